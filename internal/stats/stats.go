// Package stats computes the numbers of the overview (operate.Stats). They are for display: nothing is decided by them.
//
// The node that leads the role supervisor has a Leader. Every few seconds it counts rows of the store (kernel.Census),
// composes the numbers, and stores them as one row, in a transaction that checks its leadership. Each reader of the
// overview reads this row, so the number of readers costs no counting. If the leader dies, the numbers keep their time
// (AsOf) until another node leads.
//
// Each node has Counters. They count jobs and runs in memory after each commit, and are stored every few seconds as
// totals of a minute. The leader adds them up to the series of the last hour, and deletes old ones. A node that is killed
// loses the counts that it has not stored.
package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Store has the rows that are counted, and keeps the result.
type Store interface {
	kernel.Statistics
	Nodes(context.Context) ([]kernel.Node, error)
	LastClaims(context.Context) ([]kernel.LastClaim, error)
	ListLimits(context.Context) ([]kernel.Limit, error)
	ListHosts(ctx context.Context, after string, max int) ([]kernel.Host, error)
	LimitUse(ctx context.Context, limit kernel.LimitKey, max int) (int, []kernel.LimitHolder, error)
	Buckets(context.Context, []kernel.LimitKey) (map[kernel.LimitKey]kernel.Bucket, error)
	Update(context.Context, func(kernel.Tx) error) error
}

// Config configures a Leader.
type Config struct {
	Store Store
	// Claims returns the latest claims that this node has seen and not stored yet.
	Claims  func(now time.Time) []kernel.LastClaim
	RoleTTL time.Duration
	Deposed func(kernel.Leadership) // called when the store refuses a write because another node leads
	// Computed is called with the statistics that were stored, and with nil when the node no longer leads; may be nil.
	Computed func(*operate.Stats)
	Log      *slog.Logger
	Env      env.Env
}

const (
	computeEvery   = 5 * time.Second
	computeTimeout = 2 * time.Second
	// A computation may take one part in timeShare of the time.
	timeShare = 50

	// MaxRows bounds the rows that are read for each of the counts. Most of the time of a census goes into looking up the
	// first rows of open jobs one by one.
	MaxRows = 5_000
	// If a census fails or takes longer than slowCensus, the next one reads half as many rows, but not fewer than minRows.
	// If it takes less than a quarter of slowCensus, the next one reads twice as many.
	slowCensus = 100 * time.Millisecond
	minRows    = 500
	// maxSeriesRows bounds the rows of the series that are read: those of 60 minutes with 20 types and 20 agents.
	maxSeriesRows = 20_000
	// SeriesKept is for how long the counts of a minute are kept.
	SeriesKept   = 48 * time.Hour
	forgetEvery  = time.Minute
	forgetAtOnce = 10_000
)

// Leader computes the statistics while its node leads.
type Leader struct {
	cfg      Config
	forgotAt time.Time // when old counts were last deleted
	rows     int       // that the next census reads for each of the counts
}

// NewLeader returns a leader.
func NewLeader(cfg Config) *Leader {
	if cfg.Computed == nil {
		cfg.Computed = func(*operate.Stats) {}
	}
	return &Leader{cfg: cfg, rows: MaxRows}
}

// Lead computes until ctx, which carries the leadership, ends.
func (l *Leader) Lead(ctx context.Context) {
	defer l.cfg.Computed(nil)
	failed := false
	for ctx.Err() == nil {
		begin := l.cfg.Env.Now()
		err := l.round(ctx)
		if m, leads := kernel.LeadershipOf(ctx); leads && errors.Is(err, kernel.ErrDeposed) {
			l.cfg.Deposed(m)
		} else if err != nil && !failed && ctx.Err() == nil {
			l.cfg.Log.Warn("computing statistics failed; retrying", "error", err)
		}
		failed = err != nil
		took := l.cfg.Env.Now().Sub(begin)
		env.Sleep(l.cfg.Env, ctx, max(computeEvery, timeShare*took))
	}
}

func (l *Leader) round(ctx context.Context) error {
	ctx, cancel := env.WithTimeout(l.cfg.Env, ctx, computeTimeout)
	defer cancel()
	crashpoint.Here(crashpoint.StatsCompute)
	s, err := l.compute(ctx)
	if err != nil {
		return err
	}
	if err := l.save(ctx, s); err != nil {
		return err
	}
	l.cfg.Computed(s)
	crashpoint.Here(crashpoint.StatsSaved)
	return l.forget(ctx, s.AsOf)
}

// save stores the statistics if the node still leads.
func (l *Leader) save(ctx context.Context, s *operate.Stats) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return l.cfg.Store.Update(ctx, func(tx kernel.Tx) error {
		if m, leads := kernel.LeadershipOf(ctx); leads {
			if err := m.Admit(tx); err != nil {
				return err
			}
		}
		return tx.SaveStats(text)
	})
}

// forget deletes old counts, at most once in forgetEvery.
func (l *Leader) forget(ctx context.Context, now time.Time) error {
	at := l.cfg.Env.Now()
	if !l.forgotAt.IsZero() && at.Sub(l.forgotAt) < forgetEvery {
		return nil
	}
	if _, err := l.cfg.Store.ForgetSeries(ctx, now.Add(-SeriesKept), forgetAtOnce); err != nil {
		return err
	}
	l.forgotAt = at
	return nil
}

// compute reads the store and composes the statistics.
func (l *Leader) compute(ctx context.Context) (*operate.Stats, error) {
	c, err := l.census(ctx)
	if err != nil {
		return nil, err
	}
	f := &facts{census: c}
	if f.nodes, err = l.cfg.Store.Nodes(ctx); err != nil {
		return nil, err
	}
	if f.claims, err = l.cfg.Store.LastClaims(ctx); err != nil {
		return nil, err
	}
	f.claims = append(f.claims, l.cfg.Claims(c.Now)...)
	if f.limits, f.limitsLeftOut, err = l.limits(ctx, c); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(c.Needing, func(g kernel.NeedGroup) bool { return g.Needs.Demand() != "" }) {
		if f.hosts, err = l.cfg.Store.ListHosts(ctx, "", perdure.MaxHosts); err != nil {
			return nil, err
		}
	}
	minute := c.Now.Truncate(time.Minute)
	from := minute.Add(-(operate.SeriesMinutes - 1) * time.Minute)
	counts, err := l.cfg.Store.Series(ctx, from, maxSeriesRows)
	if err != nil {
		return nil, err
	}
	return f.stats(counts, from, l.cfg.RoleTTL), nil
}

// census counts, and chooses how many rows the next census reads. A busy machine or a cold cache can make each row slow,
// and a count that always ran into its timeout would never give a number.
func (l *Leader) census(ctx context.Context) (*kernel.Census, error) {
	begin, rows := l.cfg.Env.Now(), l.rows
	c, err := l.cfg.Store.Census(ctx, rows)
	took := l.cfg.Env.Now().Sub(begin)
	switch {
	case err != nil || took > slowCensus:
		l.rows = max(rows/2, minRows)
	case took < slowCensus/4:
		l.rows = min(2*rows, MaxRows)
	}
	if l.rows < rows && rows == MaxRows {
		l.cfg.Log.Info("counting for the statistics is slow; the next counts read fewer rows", "took", took, "rows", rows)
	}
	return c, err
}

// limits returns the limits with the permits that are held, in order of names. If there are too many, it leaves out limits
// that hold back nothing.
func (l *Leader) limits(ctx context.Context, c *kernel.Census) (found []kernel.Limit, leftOut int, err error) {
	all, err := l.cfg.Store.ListLimits(ctx)
	if err != nil {
		return nil, 0, err
	}
	needed := map[string]bool{}
	for _, g := range c.Closed {
		needed[g.Limit] = true
	}
	for _, g := range c.Needing {
		for _, n := range g.Needs.List() {
			needed[n.Name] = true
		}
	}
	holdsBack := func(limit kernel.Limit) int {
		if needed[limit.Name] || concerns(c, limit.Name) {
			return 0
		}
		return 1
	}
	byName := func(a, b kernel.Limit) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(all, func(a, b kernel.Limit) int { return cmp.Or(cmp.Compare(holdsBack(a), holdsBack(b)), byName(a, b)) })
	found, leftOut = cut(all, operate.MaxStatsLimits)
	for i := range found {
		if found[i].Used, _, err = l.cfg.Store.LimitUse(ctx, kernel.LimitKey{Name: found[i].Name}, 0); err != nil {
			return nil, 0, err
		}
	}
	slices.SortFunc(found, byName)
	return found, leftOut, l.readBuckets(ctx, found)
}

// readBuckets reads the buckets of the rates of limits.
func (l *Leader) readBuckets(ctx context.Context, limits []kernel.Limit) error {
	var rated []kernel.LimitKey
	for _, limit := range limits {
		if limit.Rate.Bounds() {
			rated = append(rated, kernel.LimitKey{Name: limit.Name})
		}
	}
	if len(rated) == 0 {
		return nil
	}
	full, err := l.cfg.Store.Buckets(ctx, rated)
	for i := range limits {
		limits[i].Bucket = full[kernel.LimitKey{Name: limits[i].Name}]
	}
	return err
}

// concerns reports whether a limit on an agent or a type of jobs may hold back a step that was counted.
func concerns(c *kernel.Census, limit string) bool {
	switch kind, owner, _ := kernel.SplitLimit(limit); kind {
	case kernel.LimitOfAgent:
		return slices.ContainsFunc(c.Ready, func(g kernel.ReadyGroup) bool { return g.Agent == owner })
	case kernel.LimitOfJobs:
		return slices.ContainsFunc(c.Jobs, func(g kernel.JobGroup) bool { return g.Type == owner && g.Phase == perdure.Waiting && !g.Permit })
	}
	return false
}

// facts are what the statistics are composed of.
type facts struct {
	census *kernel.Census
	nodes  []kernel.Node
	claims []kernel.LastClaim
	limits []kernel.Limit
	hosts  []kernel.Host // if steps with a demand wait

	limitsLeftOut int
}

func (f *facts) stats(counts []kernel.SeriesCount, from time.Time, ttl time.Duration) *operate.Stats {
	s := &operate.Stats{AsOf: f.census.Now, TypesCapped: f.census.JobsCapped, AlertsCapped: f.census.AlertsCapped}
	f.jobs(s)
	f.alerts(s)
	f.series(s, counts, from)
	f.agents(s, counts, ttl)
	f.reasons(s)
	f.limitUse(s)
	s.Signals.Kept = operate.Tally{N: f.census.SignalsKept, Capped: f.census.SignalsKeptCapped}
	s.Signals.Waiters = operate.Tally{N: f.census.SignalWaiters, Capped: f.census.SignalWaitersCapped}
	for i := range f.nodes {
		if f.nodes[i].StateAt(f.census.Now, ttl) == perdure.NodeAlive {
			s.Nodes.Alive++
		} else {
			s.Nodes.Dead++
		}
	}
	return s
}

func (f *facts) limitUse(s *operate.Stats) {
	s.Limits, s.LimitsLeftOut = make([]operate.LimitStats, 0, len(f.limits)), f.limitsLeftOut
	for i := range f.limits {
		s.Limits = append(s.Limits, operate.LimitStats{Limit: f.limits[i].Name, Used: f.limits[i].Used, Max: f.limits[i].Settings().Max})
	}
}

func (f *facts) jobs(s *operate.Stats) {
	c := f.census
	types := map[string]*operate.TypeStats{}
	for i := range c.Jobs {
		g := &c.Jobs[i]
		t := types[g.Type]
		if t == nil {
			t = &operate.TypeStats{Type: g.Type}
			types[g.Type] = t
		}
		switch g.Phase {
		case perdure.Running:
			t.Running += g.Jobs
			s.Jobs.Running.N += g.Jobs
		case perdure.Parked:
			t.Parked += g.Jobs
			s.Jobs.Parked.N += g.Jobs
		default:
			t.Waiting += g.Jobs
			s.Jobs.Waiting.N += g.Jobs
			if t.OldestWaiting.IsZero() || g.Oldest.Before(t.OldestWaiting) {
				t.OldestWaiting = g.Oldest
			}
		}
		if g.Undoing {
			t.Undoing += g.Jobs
		}
	}
	s.Jobs.Waiting.Capped, s.Jobs.Running.Capped, s.Jobs.Parked.Capped = c.JobsCapped, c.JobsCapped, c.JobsCapped
	s.Jobs.Settled = operate.Tally{N: c.Settled, Estimated: c.SettledEstimated}
	s.Types = make([]operate.TypeStats, 0, len(types))
	for _, t := range types {
		s.Types = append(s.Types, *t)
	}
	slices.SortFunc(s.Types, func(a, b operate.TypeStats) int {
		return cmp.Or(cmp.Compare(b.Waiting+b.Running+b.Parked, a.Waiting+a.Running+a.Parked), cmp.Compare(a.Type, b.Type))
	})
	s.Types, s.TypesLeftOut = cut(s.Types, operate.MaxStatsTypes)
	slices.SortFunc(s.Types, func(a, b operate.TypeStats) int { return cmp.Compare(a.Type, b.Type) })
}

// cut returns the first elements of a list, and how many are left out.
func cut[T any](list []T, max int) ([]T, int) {
	if len(list) <= max {
		return list, 0
	}
	return list[:max:max], len(list) - max
}

func (f *facts) alerts(s *operate.Stats) {
	s.Alerts = make([]operate.AlertStats, 0, len(f.census.Alerts))
	for _, g := range f.census.Alerts {
		if s.AlertKinds == nil {
			s.AlertKinds = map[perdure.AlertKind]int{}
		}
		s.AlertKinds[g.Kind] += g.N
		s.Alerts = append(s.Alerts, operate.AlertStats{Kind: g.Kind, Type: g.Type, Step: g.Step, Code: g.Code, N: g.N, Oldest: g.Oldest})
	}
	holds := func(a *operate.AlertStats) int {
		if a.Kind.Holds() {
			return 0
		}
		return 1
	}
	slices.SortFunc(s.Alerts, func(a, b operate.AlertStats) int {
		return cmp.Or(cmp.Compare(holds(&a), holds(&b)), cmp.Compare(b.N, a.N), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Code, b.Code))
	})
	s.Alerts, s.AlertsLeftOut = cut(s.Alerts, operate.MaxStatsAlerts)
}

func (f *facts) series(s *operate.Stats, counts []kernel.SeriesCount, from time.Time) {
	lists := map[string]*[]int{kernel.SeriesSubmitted: &s.Series.Submitted, kernel.SeriesDone: &s.Series.Done, kernel.SeriesUndone: &s.Series.Undone,
		kernel.SeriesParked: &s.Series.Parked, kernel.SeriesFailed: &s.Series.Failed}
	s.Series.Every, s.Series.From = perdure.Duration(time.Minute), from
	for _, list := range lists {
		*list = make([]int, operate.SeriesMinutes)
	}
	for _, c := range counts {
		list, at := lists[c.Outcome], int(c.Minute.Sub(from)/time.Minute)
		if c.Scope == kernel.SeriesOfType && list != nil && at >= 0 && at < operate.SeriesMinutes {
			(*list)[at] += int(c.N)
		}
	}
}

func (f *facts) agents(s *operate.Stats, counts []kernel.SeriesCount, ttl time.Duration) {
	agents := map[string]*operate.AgentStats{}
	agent := func(name string) *operate.AgentStats {
		if agents[name] == nil {
			agents[name] = &operate.AgentStats{Agent: name}
		}
		return agents[name]
	}
	for _, g := range f.census.Ready {
		a := agent(g.Agent)
		a.Ready, a.ReadyCapped, a.OldestReady = g.Steps, g.Capped, g.Oldest
	}
	for _, g := range f.census.Runs {
		agent(g.Agent).Running = g.Runs
	}
	for _, g := range f.census.Shares {
		a := agent(g.Agent)
		a.SharesWaiting, a.SharesCapped = g.Shares, f.census.SharesCapped
	}
	for i := range f.nodes {
		n := &f.nodes[i]
		if n.StateAt(f.census.Now, ttl) != perdure.NodeAlive {
			continue
		}
		for i := range min(len(n.Agents), len(n.Slots)) {
			a := agent(n.Agents[i])
			a.Nodes, a.Slots = a.Nodes+1, a.Slots+n.Slots[i]
		}
	}
	seen := map[[2]string]bool{}
	for _, c := range f.claims {
		a := agent(c.Agent)
		if c.At.After(a.LastClaim) {
			a.LastClaim = c.At
		}
		if by := [2]string{c.Agent, c.Holder}; f.census.Now.Sub(c.At) <= perdure.NotSeenFor && !seen[by] {
			seen[by] = true
			a.Holders++
		}
	}
	for _, c := range counts {
		if c.Scope != kernel.SeriesOfAgent || c.Name == "" {
			continue
		}
		a := agent(c.Name)
		if c.Outcome == kernel.SeriesRefused {
			a.Refused += int(c.N)
		} else if code, ok := strings.CutPrefix(c.Outcome, kernel.SeriesError); ok {
			if a.Errors == nil {
				a.Errors = map[string]int{}
			}
			a.Errors[code] += int(c.N)
		}
	}
	s.Agents = make([]operate.AgentStats, 0, len(agents))
	for _, a := range agents {
		a.Errors = mostFrequent(a.Errors)
		s.Agents = append(s.Agents, *a)
	}
	slices.SortFunc(s.Agents, func(a, b operate.AgentStats) int {
		return cmp.Or(cmp.Compare(b.Ready, a.Ready), cmp.Compare(b.Running, a.Running), cmp.Compare(a.Agent, b.Agent))
	})
	s.Agents, s.AgentsLeftOut = cut(s.Agents, operate.MaxStatsAgents)
	slices.SortFunc(s.Agents, func(a, b operate.AgentStats) int { return cmp.Compare(a.Agent, b.Agent) })
}

// mostFrequent keeps the most frequent error codes, and adds up the others under "".
func mostFrequent(errs map[string]int) map[string]int {
	codes := slices.SortedFunc(maps.Keys(errs), func(a, b string) int { return cmp.Or(cmp.Compare(errs[b], errs[a]), cmp.Compare(a, b)) })
	if len(codes) <= operate.MaxStatsErrors {
		return errs
	}
	kept := map[string]int{}
	for i, code := range codes {
		if i >= operate.MaxStatsErrors-1 {
			kept[""] += errs[code]
			continue
		}
		kept[code] += errs[code]
	}
	return kept
}

// reasons groups the steps that wait. Each ready step is counted under one reason: the limit that holds it back, or else
// its agent.
func (f *facts) reasons(s *operate.Stats) {
	c := f.census
	var list []operate.ReasonStats
	held := map[string]int{} // by agent: ready steps that a limit holds back
	byLimit := map[string]int{}
	for _, g := range c.Closed {
		byLimit[g.Limit] += g.Steps
		held[g.Agent] += g.Steps
	}
	noHost := map[string]int{}
	for _, g := range c.Needing {
		of := g.Needs.List()
		if i := slices.IndexFunc(of, func(n kernel.Need) bool { return f.full(n.Name, n.Amount) }); i >= 0 {
			byLimit[of[i].Name] += g.Steps
			held[g.Agent] += g.Steps
		} else if d := g.Needs.Demand(); d != "" && kernel.NoHost(d, f.hosts, c.Now) != "" {
			noHost[g.Agent] += g.Steps
			held[g.Agent] += g.Steps
		}
	}
	for agent, steps := range noHost {
		list = append(list, operate.ReasonStats{Reason: perdure.WhyNoHost, Name: agent, Steps: steps, Capped: c.NeedingCapped})
	}
	for _, l := range f.limits {
		kind, owner, _ := kernel.SplitLimit(l.Name)
		if kind == kernel.LimitOfJobs && l.Max != kernel.Unbounded && l.Used >= l.Max {
			for i := range c.Jobs {
				if g := &c.Jobs[i]; g.Type == owner && g.Phase == perdure.Waiting && !g.Permit {
					byLimit[l.Name] += g.Active
					held[g.Agent] += g.Active
				}
			}
		}
	}
	for _, a := range s.Agents {
		rest := a.Ready - held[a.Agent]
		if rest <= 0 {
			continue
		}
		if f.full(kernel.AgentLimit(a.Agent), 1) {
			byLimit[kernel.AgentLimit(a.Agent)] += rest
			continue
		}
		r := operate.ReasonStats{Reason: perdure.WhyAgentBusy, Name: a.Agent, Steps: rest, Capped: a.ReadyCapped, Oldest: a.OldestReady}
		if a.Holders == 0 {
			r.Reason, r.LastClaim = perdure.WhyNoAgent, a.LastClaim
		}
		list = append(list, r)
	}
	for name, steps := range byLimit {
		if steps == 0 {
			continue
		}
		r := operate.ReasonStats{Reason: perdure.WhyLimit, Name: name, Steps: steps, Capped: c.ClosedCapped || c.NeedingCapped}
		if i := slices.IndexFunc(f.limits, func(l kernel.Limit) bool { return l.Name == name }); i >= 0 {
			settings := f.limits[i].Settings()
			r.Used, r.Max = f.limits[i].Used, settings.Max
			r.Rate = settings.Rate
			if settings.PerKey != nil {
				r.PerKey, r.KeyRate = settings.PerKey.Max, settings.PerKey.Rate
			}
		}
		list = append(list, r)
	}
	for _, g := range c.Due {
		r := operate.ReasonStats{Reason: perdure.WhyNotYet, Steps: g.Steps, Capped: c.DueCapped, Next: g.Next}
		if g.Retry {
			r.Reason = perdure.WhyBackoff
		}
		list = append(list, r)
	}
	blocked := 0
	for i := range c.Jobs {
		if g := &c.Jobs[i]; g.Phase != perdure.Parked {
			blocked += g.Blocked
		}
	}
	if blocked > 0 {
		list = append(list, operate.ReasonStats{Reason: perdure.WhyAfterSteps, Steps: blocked, Capped: c.JobsCapped})
	}
	slices.SortFunc(list, func(a, b operate.ReasonStats) int {
		return cmp.Or(cmp.Compare(rank(a.Reason), rank(b.Reason)), cmp.Compare(b.Steps, a.Steps), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Name, b.Name))
	})
	if list == nil {
		list = []operate.ReasonStats{}
	}
	s.Reasons, s.ReasonsLeftOut = cut(list, operate.MaxStatsReasons)
}

// rank orders reasons: first those that an operator can remove, last those that pass by themselves.
func rank(r perdure.ReasonKind) int {
	switch r {
	case perdure.WhyNoAgent, perdure.WhyNoHost:
		return 0
	case perdure.WhyLimit:
		return 1
	case perdure.WhyAgentBusy:
		return 2
	case perdure.WhyAfterSteps:
		return 4
	}
	return 3
}

// full reports whether a limit has no room for an amount.
func (f *facts) full(name string, amount int) bool {
	return slices.ContainsFunc(f.limits, func(l kernel.Limit) bool { return l.Name == name && l.Room(f.census.Now) < amount })
}
