package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// lists is a store that counts the reads of lists, and can fail.
type lists struct {
	kernel.Store
	jobs, counts, alerts atomic.Int64
	broken               atomic.Bool
	stall                atomic.Int64 // for how long the next list takes, although its context ends: the machine stands still
}

func (s *lists) ListJobs(ctx context.Context, f kernel.JobFilter) ([]*kernel.Job, perdure.JobID, error) {
	s.jobs.Add(1)
	if s.broken.Load() {
		return nil, perdure.JobID{}, errors.New("connection refused")
	}
	found, stopped, err := s.Store.ListJobs(ctx, f)
	time.Sleep(time.Duration(s.stall.Swap(0)))
	return found, stopped, err
}

func (s *lists) CountJobs(ctx context.Context, f kernel.JobFilter) (int, perdure.JobID, error) {
	s.counts.Add(1)
	return s.Store.CountJobs(ctx, f)
}

func (s *lists) Alerts(ctx context.Context, f kernel.AlertFilter) ([]kernel.Alert, error) {
	s.alerts.Add(1)
	return s.Store.Alerts(ctx, f)
}

// screen follows a list of jobs, and has what a page would show.
type screen struct {
	mu     sync.Mutex
	events []string // kind and keys
	times  []time.Time
	ended  chan error
	stop   context.CancelFunc
}

func followJobs(t *testing.T, n *node.Node, q perdure.JobQuery) *screen {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &screen{ended: make(chan error, 1), stop: cancel}
	keys := map[perdure.JobID]string{}
	go func() {
		s.ended <- n.FollowJobs(ctx, q, func(c *operate.JobsChange) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			var b strings.Builder
			rows := c.Changed
			switch {
			case c.Page != nil:
				b.WriteString("page")
				rows = c.Page.Items
			case len(c.Changed) > 0:
				b.WriteString("changed")
			case len(c.Gone) > 0:
				b.WriteString("gone")
			case c.Newer != nil:
				fmt.Fprintf(&b, "newer %d %v", c.Newer.N, c.Newer.Capped)
			case c.Problem != nil:
				fmt.Fprintf(&b, "problem %s", c.Problem.Code)
			}
			for _, v := range rows {
				keys[v.ID] = v.Key
				fmt.Fprintf(&b, " %s:%s", v.Key, v.Phase)
			}
			for _, id := range c.Gone {
				b.WriteString(" " + keys[id])
			}
			s.events, s.times = append(s.events, b.String()), append(s.times, time.Now())
			return nil
		})
	}()
	return s
}

// take returns the events so far, and forgets them.
func (s *screen) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = nil
	return events
}

func (s *screen) want(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := s.take(); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func submitKey(t *testing.T, n *node.Node, key string) {
	t.Helper()
	if _, _, err := perdure.Submit(t.Context(), n, perdure.Define("t").Key(key).Step("s", "idle")); err != nil {
		t.Fatal(err)
	}
}

func act(t *testing.T, n *node.Node, key string, verb perdure.Verb) {
	t.Helper()
	if _, err := n.Act(t.Context(), key, perdure.Act{Verb: verb, Author: "anna"}); err != nil {
		t.Fatal(err)
	}
}

func liveNode(t *testing.T, store kernel.Store) *node.Node {
	t.Helper()
	n := node.New(store, node.Config{})
	t.Cleanup(func() { _ = n.Stop(context.Background()) })
	return n
}

// settle waits until all goroutines wait, after d.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// If the machine stood still during a reading, the list goes on soon afterwards, and not only after ten times as long (F039).
func TestListGoesOnAfterTheMachineStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lists{Store: memory.New()}
		n := liveNode(t, store)
		submitKey(t, n, "k")
		s := followJobs(t, n, perdure.JobQuery{})
		settle(time.Second)
		s.take()
		store.stall.Store(int64(9 * time.Second))
		act(t, n, "k", perdure.VerbUndo)
		settle(10 * time.Second)
		s.take()
		act(t, n, "k", perdure.VerbRedo)
		settle(25 * time.Second)
		s.want(t, "after it stood still", "changed k:waiting")
		s.stop()
		<-s.ended
	})
}

// Children that are submitted later have ids between those of the jobs of a page, and can be more than a reading of the page has
// room for. The jobs of the page are shown as they are all the same.
func TestManyChildrenAmongTheJobsOfAPage(t *testing.T) {
	gate, runs := make(chan struct{}), make(chan struct{}, 1)
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	a := perdure.NewAgent("a")
	a.HandleAny(func(context.Context, *perdure.Run) (json.RawMessage, error) {
		select {
		case runs <- struct{}{}:
		default:
		}
		<-gate
		return nil, nil
	})
	n := node.New(memory.New(), node.Config{Agents: []*perdure.Agent{a}})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Stop(context.Background()) })
	parent := fmt.Sprintf(`{"type":"p","key":"p","steps":{"s":{"forEach":{"range":[0,%d]},"maxParallel":1,"agent":"a"}}}`, 2*operate.MaxNewer)
	plans, err := definition.Parse([]byte(parent), definition.JSON, definition.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.SubmitPlans(t.Context(), plans); err != nil {
		t.Fatal(err)
	}
	await := func(what string, phase perdure.Phase, key string, children int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			v, err := n.Job(t.Context(), key, 0)
			if err != nil {
				t.Fatal(err)
			}
			if c := v.Steps[0].Children; v.Phase == phase && (c == nil || c.Submitted >= children) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %s is %s", what, key, v.Phase)
			}
		}
	}
	await("one child exists", perdure.Waiting, "p", 1)
	<-runs
	submitKey(t, n, "q")
	s := followJobs(t, n, perdure.JobQuery{Limit: 3})
	for end := time.Now().Add(time.Minute); !slices.Equal(s.take(), []string{"page q:waiting :running p:waiting"}); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the page is not shown")
		}
	}
	open()
	await("the children have ended", perdure.Settled, "p", 0)
	time.Sleep(2 * time.Second) // between two readings of a list
	shown := ""
	for _, e := range s.take() {
		if strings.HasPrefix(e, "gone") {
			t.Error(e)
		}
		if i := strings.Index(e, "p:"); i >= 0 {
			shown = e[i:]
		}
	}
	if shown != "p:settled" {
		t.Errorf("the parent is shown as %q", shown)
	}
	s.stop()
	<-s.ended
}

// A list that is followed sends its page, changed rows, rows that no longer match, and a count of newer ones. The rows of
// the page stay those that they are.
func TestListIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := liveNode(t, memory.New())
		for i := range 3 {
			submitKey(t, n, fmt.Sprint("k", i))
		}
		open := []perdure.Phase{perdure.Waiting, perdure.Running}
		s := followJobs(t, n, perdure.JobQuery{Phases: open, Limit: 2, WithSummary: true})
		all := followJobs(t, n, perdure.JobQuery{Limit: 2})
		oldest := followJobs(t, n, perdure.JobQuery{OldestFirst: true})
		settle(time.Millisecond)
		s.want(t, "at the beginning", "page k2:waiting k1:waiting")
		all.want(t, "at the beginning", "page k2:waiting k1:waiting")
		oldest.want(t, "at the beginning", "page k0:waiting k1:waiting k2:waiting")

		submitKey(t, n, "k3")
		submitKey(t, n, "k4")
		act(t, n, "k1", perdure.VerbUndo)
		settle(1100 * time.Millisecond)
		s.want(t, "after two submissions and an act", "gone k1", "newer 2 false")
		all.want(t, "without a phase", "changed k1:settled", "newer 2 false")
		oldest.want(t, "with the oldest first", "changed k1:settled", "newer 2 false")

		act(t, n, "k1", perdure.VerbRedo)
		settle(1100 * time.Millisecond)
		s.want(t, "after it matches again", "changed k1:waiting")
		all.take()

		// The window does not move, however many jobs arrive.
		for i := range operate.MaxNewer {
			submitKey(t, n, fmt.Sprint("n", i))
		}
		act(t, n, "k2", perdure.VerbUndo)
		settle(1100 * time.Millisecond)
		s.want(t, "after many submissions", "gone k2", "newer 100 true")
		all.want(t, "after many submissions", "changed k2:settled", "newer 100 true")

		settle(time.Minute)
		s.want(t, "while nothing happens")
		for i, f := range []*screen{s, all, oldest} {
			f.stop()
			if err := <-f.ended; !errors.Is(err, context.Canceled) {
				t.Errorf("list %d ended with %v", i, err)
			}
		}
	})
}

// There is at most one round of events a second, however often jobs change, and the last change is never missed.
func TestManyChangesAreFewEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := liveNode(t, memory.New())
		submitKey(t, n, "k")
		s := followJobs(t, n, perdure.JobQuery{})
		settle(300 * time.Millisecond)
		for range 100 {
			act(t, n, "k", perdure.VerbUndo)
			time.Sleep(29 * time.Millisecond)
			act(t, n, "k", perdure.VerbRedo)
			time.Sleep(29 * time.Millisecond)
		}
		act(t, n, "k", perdure.VerbUndo)
		settle(1100 * time.Millisecond)
		if events := s.take(); len(events) > 8 || events[len(events)-1] != "changed k:settled" {
			t.Errorf("%d events of 7 seconds, the last is %q", len(events), events[len(events)-1])
		}
		for i := range s.times[1:] {
			if d := s.times[i+1].Sub(s.times[i]); d < time.Second {
				t.Errorf("event %d follows after %v", i+1, d)
			}
		}
	})
}

// Equal queries share their readings, and without followers nothing is read.
func TestEqualListsShareOneReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lists{Store: memory.New()}
		n := liveNode(t, store)
		submitKey(t, n, "k")
		settle(time.Minute)
		if read := store.jobs.Load(); read != 0 {
			t.Fatalf("%d lists without a follower were read", read)
		}
		var screens []*screen
		for range 20 {
			screens = append(screens, followJobs(t, n, perdure.JobQuery{Type: "t", Labels: map[string]string{}}))
			time.Sleep(10 * time.Millisecond)
		}
		settle(0)
		if read := store.jobs.Load(); read != 1 {
			t.Errorf("20 followers have read the first page %d times", read)
		}
		settle(2 * time.Second)
		before := store.jobs.Load()
		act(t, n, "k", perdure.VerbUndo)
		settle(1100 * time.Millisecond)
		if read, counted := store.jobs.Load()-before, store.counts.Load(); read != 1 || counted > 3 {
			t.Errorf("after a change, 20 followers have read %d times, and counted %d times", read, counted)
		}
		for _, s := range screens {
			s.want(t, "each follower", "page k:waiting", "changed k:settled")
			s.stop()
			<-s.ended
		}
		before = store.jobs.Load()
		act(t, n, "k", perdure.VerbRedo)
		settle(time.Minute)
		if read := store.jobs.Load() - before; read != 0 {
			t.Errorf("%d readings after all followers have gone", read)
		}
	})
}

// A list of which another node changes a job is read again soon, although nothing wakes its followers.
func TestListShowsChangesByAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := open{memory.New()}
		front, back := liveNode(t, store), liveNode(t, store)
		submitKey(t, back, "k")
		s := followJobs(t, front, perdure.JobQuery{})
		settle(5 * time.Second)
		s.want(t, "at the beginning", "page k:waiting")
		act(t, back, "k", perdure.VerbUndo)
		settle(1100 * time.Millisecond)
		s.want(t, "after another node's act", "changed k:settled")
	})
}

// A reader that is slow gets the latest rows when it comes back, once.
func TestSlowFollowerGetsTheLatestRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := liveNode(t, memory.New())
		submitKey(t, n, "k")
		hold, changes := make(chan struct{}), 0
		var last string
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- n.FollowJobs(ctx, perdure.JobQuery{}, func(c *operate.JobsChange) error {
				if c.Page != nil {
					<-hold
				}
				for _, v := range c.Changed {
					changes++
					last = v.Phase.String()
				}
				return nil
			})
		}()
		for range 10 {
			settle(2 * time.Second)
			act(t, n, "k", perdure.VerbUndo)
			settle(2 * time.Second)
			act(t, n, "k", perdure.VerbRedo)
		}
		act(t, n, "k", perdure.VerbUndo)
		close(hold)
		settle(6 * time.Second)
		if changes != 1 || last != "settled" {
			t.Errorf("%d changes, the last to %s", changes, last)
		}
		cancel()
		<-ended
	})
}

// While the store does not answer, the followers get one problem, and it is read rarely. Afterwards they get a page.
func TestListsOutliveAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lists{Store: memory.New()}
		n := liveNode(t, store)
		submitKey(t, n, "k")
		screens := []*screen{followJobs(t, n, perdure.JobQuery{}), followJobs(t, n, perdure.JobQuery{}), followJobs(t, n, perdure.JobQuery{Type: "none"})}
		settle(1500 * time.Millisecond)
		store.broken.Store(true)
		before := store.jobs.Load()
		act(t, n, "k", perdure.VerbUndo)
		settle(time.Minute)
		if read := store.jobs.Load() - before; read > 70 {
			t.Errorf("%d readings during a minute of outage", read)
		}
		if err := n.FollowJobs(t.Context(), perdure.JobQuery{}, nil); perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("a list that begins during the outage: %v", err)
		}
		store.broken.Store(false)
		settle(6 * time.Second)
		for _, s := range screens[:2] {
			s.want(t, "during and after the outage", "page k:waiting", "problem unavailable", "page k:settled")
		}
		screens[2].want(t, "an empty list", "page", "problem unavailable", "page")
		act(t, n, "k", perdure.VerbRedo)
		settle(1100 * time.Millisecond)
		screens[0].want(t, "after the outage", "changed k:waiting")
	})
}

// A list without rows sends a page when there are some.
func TestEmptyListIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := liveNode(t, memory.New())
		s := followJobs(t, n, perdure.JobQuery{Type: "t"})
		settle(3 * time.Second)
		s.want(t, "an empty list", "page")
		submitKey(t, n, "k")
		settle(1100 * time.Millisecond)
		s.want(t, "after a submission", "page k:waiting")
		submitKey(t, n, "l")
		settle(1100 * time.Millisecond)
		s.want(t, "after another one", "newer 1 false")
	})
}

// The end of a node ends its followers.
func TestStopEndsLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := liveNode(t, memory.New())
		submitKey(t, n, "k")
		s := followJobs(t, n, perdure.JobQuery{})
		e := followJobs(t, n, perdure.JobQuery{Type: "none"})
		settle(1500 * time.Millisecond)
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		settle(0)
		for _, f := range []*screen{s, e} {
			if err := <-f.ended; perdure.CodeOf(err) != perdure.CodeUnavailable {
				t.Error(err)
			}
		}
	})
}

// The rows of all lists that are followed are bounded.
func TestRowsOfFollowedListsAreBounded(t *testing.T) {
	n := liveNode(t, memory.New())
	for i := range operate.MaxLiveRows {
		job := perdure.Define("t").Key(fmt.Sprint("k", i))
		for l := range perdure.MaxLabels {
			job.Label(fmt.Sprint("label", l), strings.Repeat("x", perdure.MaxLabelLength))
		}
		job.Step("s", "idle")
		if _, _, err := perdure.Submit(t.Context(), n, job); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	var refused error
	for i := range 40 {
		began := make(chan struct{}, 1)
		go func() {
			ended <- n.FollowJobs(ctx, perdure.JobQuery{Limit: operate.MaxLiveRows, Since: time.Unix(int64(i), 0)}, func(c *operate.JobsChange) error {
				select {
				case began <- struct{}{}:
				default:
				}
				return nil
			})
		}()
		select {
		case <-began:
			continue
		case refused = <-ended:
		}
		break
	}
	if perdure.CodeOf(refused) != perdure.CodeTooManyRequests {
		t.Errorf("40 lists of 100 rows with 16 KB of labels each: %v", refused)
	}
}

// What cannot be followed is refused.
func TestFollowRefusesPages(t *testing.T) {
	n := liveNode(t, memory.New())
	for _, q := range []perdure.JobQuery{{Cursor: "x"}, {Limit: operate.MaxLiveRows + 1}, {Reason: "tired"}} {
		if err := n.FollowJobs(t.Context(), q, nil); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if err := n.FollowAlerts(t.Context(), perdure.AlertQuery{Cursor: "x"}, nil); perdure.CodeOf(err) != perdure.CodeInvalid {
		t.Error(err)
	}
	if err := n.FollowAlerts(t.Context(), perdure.AlertQuery{Job: "none"}, nil); perdure.CodeOf(err) != perdure.CodeNotFound {
		t.Error(err)
	}
	enough := errors.New("enough")
	if err := n.FollowJobs(t.Context(), perdure.JobQuery{}, func(*operate.JobsChange) error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
}

// Lists of alerts are followed as lists of jobs are, on each store.
func TestAlertsAreFollowed(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		sign := func(key string) {
			t.Helper()
			if _, _, err := perdure.Submit(t.Context(), n, perdure.Define("t").Key(key).Step("sign", "approval")); err != nil {
				t.Fatal(err)
			}
			for {
				if v, err := n.Job(t.Context(), key, 0); err != nil {
					t.Fatal(err)
				} else if len(v.Alerts) > 0 {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		sign("a")
		sign("b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		events := make(chan *operate.AlertsChange, 100)
		ended := make(chan error, 1)
		go func() {
			ended <- n.FollowAlerts(ctx, perdure.AlertQuery{}, func(c *operate.AlertsChange) error { events <- c; return nil })
		}()
		next := func() *operate.AlertsChange {
			t.Helper()
			select {
			case c := <-events:
				return c
			case err := <-ended:
				t.Fatal(err)
			}
			return nil
		}
		page := next().Page
		if page == nil || len(page.Items) != 2 {
			t.Fatalf("%+v", page)
		}
		sign("c")
		if c := next(); c.Newer == nil || c.Newer.N != 1 {
			t.Fatalf("after another alert: %+v", c)
		}
		done := perdure.Done
		if _, err := n.Act(t.Context(), "a", perdure.Act{Verb: perdure.VerbSettle, Step: "sign", As: &done, Author: "anna"}); err != nil {
			t.Fatal(err)
		}
		if c := next(); len(c.Gone) != 1 || c.Gone[0] != page.Items[1].ID {
			t.Fatalf("after an alert was closed: %+v", c)
		}
		cancel()
		<-ended
	})
}
