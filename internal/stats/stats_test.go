package stats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

var noon = time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)

// watch is a wall clock that a test sets.
type watch struct{ at time.Time }

func (w *watch) now() time.Time { return w.at }

func newCounters(store Store, w *watch) *Counters {
	return NewCounters(CountersConfig{Store: store, Node: "n1", StoreTime: func() (time.Time, bool) { return w.at, !w.at.IsZero() }, Log: slog.New(slog.DiscardHandler), Env: env.Real{}})
}

func seriesOf(t *testing.T, store Store) map[string]int64 {
	t.Helper()
	list, err := store.Series(t.Context(), time.Time{}, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for _, c := range list {
		found[fmt.Sprintf("%s %d %s %s", c.Minute.Format("15:04"), c.Scope, c.Name, c.Outcome)] = c.N
	}
	return found
}

func flush(t *testing.T, c *Counters) {
	t.Helper()
	if err := c.flush(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
}

func TestCountsAreStoredByMinute(t *testing.T) {
	store, w := memory.New(), &watch{noon}
	c := newCounters(store, w)
	c.Submitted("order")
	c.Submitted("order")
	c.Settled("order", perdure.Done)
	c.Failed("order", "payments", "card_declined")
	flush(t, c)
	c.Settled("order", perdure.Undone)
	c.Refused("payments")
	flush(t, c)
	w.at = noon.Add(time.Minute)
	c.Parked("order")
	flush(t, c)
	want := map[string]int64{"12:00 1 order submitted": 2, "12:00 1 order done": 1, "12:00 1 order failed": 1, "12:00 1 order undone": 1,
		"12:00 2 payments error:card_declined": 1, "12:00 2 payments refused": 1, "12:01 1 order parked": 1}
	if got := seriesOf(t, store); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if len(c.pending) != 1 {
		t.Errorf("%d minutes are kept", len(c.pending))
	}
}

// A store that does not answer loses no count, and an attempt whose outcome is not known counts nothing twice.
func TestCountsSurviveAStoreThatFails(t *testing.T) {
	broken := &failing{Store: memory.New(), err: errors.New("no answer")}
	w := &watch{noon}
	c := newCounters(broken, w)
	c.Submitted("order")
	if err := c.flush(t.Context(), time.Second); err == nil {
		t.Fatal("no error")
	}
	w.at = noon.Add(time.Minute)
	c.Submitted("order")
	broken.doneAllTheSame = true
	if err := c.flush(t.Context(), time.Second); err == nil {
		t.Fatal("no error")
	}
	broken.err = nil
	flush(t, c)
	if got := seriesOf(t, broken); got["12:00 1 order submitted"] != 1 || got["12:01 1 order submitted"] != 1 {
		t.Errorf("got %v", got)
	}
	broken.err = errors.New("no answer")
	for i := range 3 * maxPending {
		w.at = noon.Add(time.Duration(i) * time.Minute)
		c.Submitted("order")
		_ = c.flush(t.Context(), time.Second)
	}
	if len(c.pending) > maxPending {
		t.Errorf("%d minutes are kept", len(c.pending))
	}
}

// failing is a store whose counts cannot be written.
type failing struct {
	Store
	err            error
	doneAllTheSame bool
}

func (f *failing) PutSeries(ctx context.Context, node string, counts []kernel.SeriesCount) error {
	if f.err == nil || f.doneAllTheSame {
		if err := f.Store.PutSeries(ctx, node, counts); err != nil {
			return err
		}
	}
	return f.err
}

// Types, agents and error codes are chosen by users: only some are counted apart (F157).
func TestNamesAreBounded(t *testing.T) {
	store, w := memory.New(), &watch{noon}
	c := newCounters(store, w)
	for range 2 {
		for i := range 100 {
			c.Submitted(fmt.Sprintf("type-%03d", i))
			c.Failed("order", "payments", fmt.Sprintf("code-%03d", i))
		}
		flush(t, c)
	}
	names, codes, sum := map[string]bool{}, 0, int64(0)
	list, err := store.Series(t.Context(), time.Time{}, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Scope == kernel.SeriesOfType {
			names[s.Name] = true
		} else {
			codes++
		}
		if s.Outcome == kernel.SeriesSubmitted {
			sum += s.N
		}
	}
	if len(names) > maxNames+1 || codes > maxCodes+1 || sum != 200 {
		t.Errorf("%d names, %d codes, %d submitted", len(names), codes, sum)
	}
}

// The minute is that of the store's clock. If that is not known yet, or the clock of this machine is set, no count is
// lost (F122).
func TestCountsFollowTheStoresClock(t *testing.T) {
	store, w := memory.New(), &watch{}
	c := newCounters(store, w)
	c.Submitted("order")
	flush(t, c)
	if got := seriesOf(t, store); len(got) != 0 {
		t.Errorf("stored without a time: %v", got)
	}
	w.at = noon
	flush(t, c)
	c.Submitted("order")
	w.at = noon.Add(-10 * time.Minute) // the estimate was wrong
	flush(t, c)
	c.Submitted("order")
	w.at = noon
	flush(t, c)
	if got := seriesOf(t, store); got["12:00 1 order submitted"]+got["11:50 1 order submitted"] < 2 {
		t.Errorf("got %v", got)
	}
}

func TestCountsAreStoredAtTheEnd(t *testing.T) {
	store := memory.New()
	c := newCounters(store, &watch{noon})
	ctx, stop := context.WithCancel(t.Context())
	ended := env.Start(env.Real{}, func() { c.Run(ctx) })
	c.Submitted("order")
	stop()
	ended()
	if got := seriesOf(t, store); got["12:00 1 order submitted"] != 1 {
		t.Errorf("got %v", got)
	}
}

func newLeader(store Store) *Leader {
	return NewLeader(Config{Store: store, Claims: func(time.Time) []kernel.LastClaim { return nil }, RoleTTL: kernel.DefaultRoleTTL,
		Deposed: func(kernel.Leadership) {}, Log: slog.New(slog.DiscardHandler), Env: env.Real{}})
}

func saved(t *testing.T, store Store) *operate.Stats {
	t.Helper()
	text, err := store.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := new(operate.Stats)
	if text != nil {
		if err := json.Unmarshal(text, s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// A former leader stores nothing: the statistics of the present leader stay (F071, F075).
func TestFormerLeaderStoresNoStatistics(t *testing.T) {
	store := memory.New(memory.WithClock(func() time.Time { return noon }))
	lead := func(node string, epoch int64) context.Context {
		return kernel.WithLeadership(t.Context(), kernel.Leadership{Role: kernel.RoleSupervisor, Node: node, Epoch: epoch})
	}
	if err := store.Update(t.Context(), func(tx kernel.Tx) error {
		roles, err := tx.LockRoles([]string{kernel.RoleSupervisor})
		if err != nil {
			return err
		}
		return tx.SaveRoles([]kernel.RoleChange{{Loaded: roles[0], Now: kernel.Role{Name: kernel.RoleSupervisor, Epoch: 2, Leader: "n2", LeaderUntil: noon.Add(time.Minute)}}})
	}); err != nil {
		t.Fatal(err)
	}
	l := newLeader(store)
	if err := l.round(lead("n1", 1)); !errors.Is(err, kernel.ErrDeposed) {
		t.Errorf("a former leader: %v", err)
	}
	if s := saved(t, store); !s.AsOf.IsZero() {
		t.Errorf("stored: %+v", s)
	}
	if err := l.round(lead("n2", 2)); err != nil {
		t.Error(err)
	}
	if s := saved(t, store); !s.AsOf.Equal(noon) {
		t.Errorf("as of %v", s.AsOf)
	}
}

// If the clock of the machine is set back, the store's time does not go back, and the statistics keep their order (F122).
func TestStatisticsAreNotSetBack(t *testing.T) {
	w := &watch{noon}
	store := memory.New(memory.WithClock(w.now))
	l := newLeader(store)
	var before time.Time
	for _, jump := range []time.Duration{0, time.Hour, -3 * time.Hour, 0} {
		w.at = noon.Add(jump)
		if err := l.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := saved(t, store)
		if s.AsOf.Before(before) || len(s.Series.Submitted) != operate.SeriesMinutes {
			t.Errorf("after a jump of %v: as of %v, before %v", jump, s.AsOf, before)
		}
		before = s.AsOf
	}
}

func TestOldCountsAreDeleted(t *testing.T) {
	w := &watch{noon}
	store := memory.New(memory.WithClock(w.now))
	count := func(ago time.Duration) kernel.SeriesCount {
		return kernel.SeriesCount{Minute: noon.Add(-ago).Truncate(time.Minute), Scope: kernel.SeriesOfType, Name: "order", Outcome: kernel.SeriesDone, N: 1}
	}
	if err := store.PutSeries(t.Context(), "n", []kernel.SeriesCount{count(0), count(time.Hour), count(SeriesKept + time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if err := newLeader(store).round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := seriesOf(t, store); len(got) != 2 {
		t.Errorf("left: %v", got)
	}
}

func compose(f *facts, counts ...kernel.SeriesCount) *operate.Stats {
	f.census.Now = noon
	return f.stats(counts, noon.Truncate(time.Minute).Add(-59*time.Minute), kernel.DefaultRoleTTL)
}

func TestEachReadyStepHasOneReason(t *testing.T) {
	s := compose(&facts{
		census: &kernel.Census{
			Ready:  []kernel.ReadyGroup{{Agent: "ads", Steps: 30, Oldest: noon.Add(-time.Minute)}, {Agent: "busy", Steps: 7}, {Agent: "full", Steps: 5}, {Agent: "mail", Steps: 812}},
			Closed: []kernel.ClosedGroup{{Agent: "ads", Limit: "api", Steps: 10}},
			Needing: []kernel.NeedGroup{{Agent: "ads", Needs: `[{"name":"api","key":"x"},{"name":"seats","amount":2}]`, Steps: 6},
				{Agent: "busy", Needs: `[{"name":"seats"}]`, Steps: 3}},
			Jobs: []kernel.JobGroup{
				{Type: "order", Phase: perdure.Waiting, Agent: "ads", Jobs: 4, Active: 4, Blocked: 8, Oldest: noon.Add(-time.Hour)},
				{Type: "order", Phase: perdure.Waiting, Permit: true, Jobs: 1, Active: 1, Undoing: true, Oldest: noon},
				{Type: "trip", Phase: perdure.Parked, Jobs: 2, Blocked: 5}, {Type: "trip", Phase: perdure.Running, Jobs: 3}},
			Due: []kernel.DueGroup{{Retry: true, Steps: 14, Next: noon.Add(9 * time.Second)}, {Steps: 2, Next: noon.Add(time.Hour)}},
		},
		claims: []kernel.LastClaim{{Agent: "ads", Holder: "h", At: noon}, {Agent: "busy", Holder: "h", At: noon}, {Agent: "full", Holder: "h", At: noon}, {Agent: "mail", Holder: "h", At: noon.Add(-10 * time.Minute)}},
		limits: []kernel.Limit{{Name: "agent:full", Max: 3, PerKey: kernel.Unbounded, Taken: kernel.Taken{Used: 3}}, {Name: "api", Max: kernel.Unbounded, PerKey: 2, Taken: kernel.Taken{Used: 6}}, {Name: "job:order", Max: 1, PerKey: kernel.Unbounded, Taken: kernel.Taken{Used: 1}},
			{Name: "seats", Max: 3, PerKey: kernel.Unbounded, Taken: kernel.Taken{Used: 2}}, {Name: "agent:busy", Max: 9, PerKey: kernel.Unbounded, Taken: kernel.Taken{Used: 8}}},
	})
	var got []string
	for _, r := range s.Reasons {
		got = append(got, fmt.Sprint(r.Reason, " ", r.Name, " ", r.Steps))
	}
	want := []string{"noAgent mail 812", "limit api 10", "limit seats 6", "limit agent:full 5", "limit job:order 4", "agentBusy ads 10", "agentBusy busy 7", "backoff  14", "notYet  2", "afterSteps  8"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	sum := 0
	for _, r := range s.Reasons[:7] {
		sum += r.Steps
	}
	if sum != 30+7+5+812 {
		t.Errorf("%d steps have a reason", sum)
	}
	if order := s.Types[0]; order.Waiting != 5 || order.Undoing != 1 || !order.OldestWaiting.Equal(noon.Add(-time.Hour)) {
		t.Errorf("%+v", order)
	}
	if s.Jobs.Waiting.N != 5 || s.Jobs.Running.N != 3 || s.Jobs.Parked.N != 2 {
		t.Errorf("%+v", s.Jobs)
	}
}

func TestAgentsAreThoseOfLiveNodes(t *testing.T) {
	minute := noon.Truncate(time.Minute)
	s := compose(&facts{census: &kernel.Census{Runs: []kernel.RunGroup{{Agent: "http", Runs: 20}}},
		nodes: []kernel.Node{{ID: "n1", Agents: []string{"http"}, Slots: []int{16}, SeenAt: noon}, {ID: "n2", Agents: []string{"http"}, Slots: []int{4}, SeenAt: noon}, {ID: "dead", Agents: []string{"http"}, Slots: []int{50}, SeenAt: noon.Add(-time.Hour)}}},
		kernel.SeriesCount{Minute: minute, Scope: kernel.SeriesOfAgent, Name: "http", Outcome: kernel.SeriesError + "503", N: 5},
		kernel.SeriesCount{Minute: minute.Add(-time.Minute), Scope: kernel.SeriesOfAgent, Name: "http", Outcome: kernel.SeriesError + "503", N: 2},
		kernel.SeriesCount{Minute: minute, Scope: kernel.SeriesOfAgent, Name: "http", Outcome: kernel.SeriesRefused, N: 1},
		kernel.SeriesCount{Minute: minute, Scope: kernel.SeriesOfType, Name: "order", Outcome: kernel.SeriesFailed, N: 7})
	want := operate.AgentStats{Agent: "http", Running: 20, Nodes: 2, Slots: 20, Refused: 1, Errors: map[string]int{"503": 7}}
	if len(s.Agents) != 1 || fmt.Sprintf("%+v", s.Agents[0]) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", s.Agents, want)
	}
	if s.Series.Failed[59] != 7 || s.Series.Failed[58] != 0 {
		t.Errorf("%v", s.Series.Failed)
	}
}

func TestListsAreBounded(t *testing.T) {
	c := &kernel.Census{}
	errs := map[string]int{}
	for i := range 300 {
		name := fmt.Sprintf("%03d", i)
		c.Jobs = append(c.Jobs, kernel.JobGroup{Type: name, Phase: perdure.Waiting, Jobs: i, Oldest: noon})
		c.Alerts = append(c.Alerts, kernel.AlertGroup{Kind: perdure.AlertNamed, Code: name, N: i})
		c.Ready = append(c.Ready, kernel.ReadyGroup{Agent: name, Steps: 1 + i})
		errs[name] = i
	}
	s := compose(&facts{census: c})
	if len(s.Types) != operate.MaxStatsTypes || s.TypesLeftOut != 200 || s.Types[0].Type != "200" {
		t.Errorf("%d types, %d left out, first %v", len(s.Types), s.TypesLeftOut, s.Types[0])
	}
	if len(s.Alerts) != operate.MaxStatsAlerts || s.AlertsLeftOut != 200 || s.Alerts[0].N != 299 {
		t.Errorf("%d alerts, %d left out, first %v", len(s.Alerts), s.AlertsLeftOut, s.Alerts[0])
	}
	if s.AlertKinds[perdure.AlertNamed] != 299*300/2 {
		t.Errorf("alerts by kind: %v", s.AlertKinds)
	}
	if len(s.Agents) != operate.MaxStatsAgents || s.AgentsLeftOut != 200 || len(s.Reasons) != operate.MaxStatsReasons {
		t.Errorf("%d agents, %d left out, %d reasons", len(s.Agents), s.AgentsLeftOut, len(s.Reasons))
	}
	kept, sum := mostFrequent(errs), 0
	for _, n := range kept {
		sum += n
	}
	if len(kept) != operate.MaxStatsErrors || kept["299"] != 299 || sum != 299*300/2 {
		t.Errorf("%v", kept)
	}
}

// slowStore is a store whose census takes some time, and keeps how many rows each was to read.
type slowStore struct {
	Store
	at   *time.Time
	took time.Duration
	err  error
	rows []int
}

func (s *slowStore) Census(ctx context.Context, max int) (*kernel.Census, error) {
	s.rows = append(s.rows, max)
	*s.at = s.at.Add(s.took)
	if s.err != nil {
		return nil, s.err
	}
	return s.Store.Census(ctx, max)
}

type slowEnv struct {
	env.Real
	at *time.Time
}

func (e slowEnv) Now() time.Time { return *e.at }

// While counting is slow or fails, fewer rows are counted, and all again after that (F157).
func TestSlowCensusReadsFewerRows(t *testing.T) {
	now := time.Now().Add(time.Hour) // the clock of this test stands still between counts, and no timeout passes
	store := &slowStore{Store: memory.New(), at: &now}
	l := newLeader(store)
	l.cfg.Env = slowEnv{at: &now}
	rounds := func(n int, took time.Duration, err error, want ...int) {
		t.Helper()
		store.rows, store.took, store.err = nil, took, err
		for range n {
			if got := l.round(t.Context()); !errors.Is(got, err) {
				t.Fatal(got)
			}
		}
		if !slices.Equal(store.rows, want) {
			t.Errorf("rows %d, want %d", store.rows, want)
		}
	}
	rounds(6, time.Second, nil, MaxRows, MaxRows/2, MaxRows/4, MaxRows/8, minRows, minRows)
	rounds(2, slowCensus/2, nil, minRows, minRows)
	rounds(5, time.Millisecond, nil, minRows, 2*minRows, 4*minRows, 8*minRows, MaxRows)
	rounds(2, time.Millisecond, errors.New("canceling statement due to statement timeout"), MaxRows, MaxRows/2)
	rounds(2, slowCensus/2, nil, MaxRows/4, MaxRows/4)
}

// All limits are counted, up to a bound: those that hold back nothing are left out first.
func TestLimitsOfTheStatisticsAreBounded(t *testing.T) {
	store := memory.New(memory.WithClock(func() time.Time { return noon }))
	put := func(names ...string) {
		t.Helper()
		if err := store.Update(t.Context(), func(tx kernel.Tx) error {
			for _, name := range names {
				if err := tx.PutLimit(kernel.Limit{Name: name, Max: 3, PerKey: kernel.Unbounded}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	l := newLeader(store)
	computed := func(c *kernel.Census) *operate.Stats {
		t.Helper()
		f := facts{census: c}
		var err error
		if f.limits, f.limitsLeftOut, err = l.limits(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return f.stats(nil, noon, kernel.DefaultRoleTTL)
	}
	for i := range operate.MaxStatsLimits {
		put(fmt.Sprintf("l%03d", i))
	}
	s := computed(&kernel.Census{Now: noon})
	if len(s.Limits) != operate.MaxStatsLimits || s.LimitsLeftOut != 0 || s.Limits[0].Limit != "l000" || *s.Limits[0].Max != 3 || s.Limits[0].Used != 0 {
		t.Errorf("%d limits, %d left out, first %+v", len(s.Limits), s.LimitsLeftOut, s.Limits[0])
	}
	put("needed", "agent:busy")
	s = computed(&kernel.Census{Now: noon, Closed: []kernel.ClosedGroup{{Agent: "a", Limit: "needed", Steps: 1}}, Ready: []kernel.ReadyGroup{{Agent: "busy", Steps: 1}}})
	var names []string
	for _, limit := range s.Limits {
		names = append(names, limit.Limit)
	}
	if len(names) != operate.MaxStatsLimits || s.LimitsLeftOut != 2 || !slices.Contains(names, "needed") || !slices.Contains(names, "agent:busy") || !slices.IsSorted(names) {
		t.Errorf("%d left out: %v", s.LimitsLeftOut, names)
	}
}

// The statistics are handed on after they were stored, and withdrawn when the leadership ends.
func TestStatisticsAreHandedOnWhileTheNodeLeads(t *testing.T) {
	store := memory.New(memory.WithClock(func() time.Time { return noon }))
	l := newLeader(store)
	ctx, stop := context.WithCancel(t.Context())
	var got []string
	l.cfg.Computed = func(s *operate.Stats) {
		if s == nil {
			got = append(got, "none")
			return
		}
		got = append(got, s.AsOf.Format("15:04"))
		if !saved(t, store).AsOf.Equal(s.AsOf) {
			t.Error("not stored before")
		}
		stop()
	}
	l.Lead(ctx)
	if !slices.Equal(got, []string{"12:00", "none"}) {
		t.Errorf("%v", got)
	}
}

func TestSharesAndSignalsAreCounted(t *testing.T) {
	s := compose(&facts{census: &kernel.Census{Shares: []kernel.ShareGroup{{Agent: "ads", Shares: 40}}, SharesCapped: true, SignalsKept: 7, SignalWaiters: 9, SignalWaitersCapped: true}})
	if len(s.Agents) != 1 || s.Agents[0].Agent != "ads" || s.Agents[0].SharesWaiting != 40 || !s.Agents[0].SharesCapped {
		t.Errorf("%+v", s.Agents)
	}
	if want := (operate.SignalStats{Kept: operate.Tally{N: 7}, Waiters: operate.Tally{N: 9, Capped: true}}); s.Signals != want {
		t.Errorf("got %+v, want %+v", s.Signals, want)
	}
}
