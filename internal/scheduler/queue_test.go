package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// F068: a claim that is out for a look hears of what was made ready meanwhile: it looks again as soon as it is
// brought back. One that has missed nothing waits.
func TestNewsWhileOut(t *testing.T) {
	for name, c := range map[string]struct {
		news    func(*queue)
		limited bool
		again   bool
	}{
		"nothing":          {func(*queue) {}, false, false},
		"of this agent":    {func(q *queue) { q.wakeAgents([]string{"a"}) }, false, true},
		"of another":       {func(q *queue) { q.wakeAgents([]string{"b"}) }, false, false},
		"for all":          {func(q *queue) { q.wakeAll() }, false, true},
		"room in a limit":  {func(q *queue) { q.bringBack(&look{freed: true}) }, true, true},
		"room, not needed": {func(q *queue) { q.bringBack(&look{freed: true}) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(env.Real{}, 1)
			w := &waiter{req: protocol.Claim{Agent: "a"}, answered: make(chan struct{}, 1)}
			if err := q.wait(w); err != nil {
				t.Fatal(err)
			}
			_, claims, _ := q.take()
			if len(claims) != 1 {
				t.Fatalf("%d claims", len(claims))
			}
			c.news(q)
			q.bringBack(&look{back: map[string][]*waiter{"a": claims}, limited: map[string]bool{"a": c.limited}})
			q.release([]string{"a"})
			q.mu.Lock()
			defer q.mu.Unlock()
			if q.hot["a"] != c.again {
				t.Errorf("looks again: %v", q.hot["a"])
			}
		})
	}
}

// F068: a claim that comes right after a look need not look at once, unless something may have become ready since, or it
// has to be answered from the store. It looks soon all the same.
func TestLookLater(t *testing.T) {
	nothing := func(*queue) {}
	for name, c := range map[string]struct {
		since func(*queue)
		found look
		w     waiter
		later bool
	}{
		"nothing since":       {since: nothing, later: true},
		"news of another":     {since: func(q *queue) { q.wakeAgents([]string{"b"}) }, later: true},
		"news":                {since: func(q *queue) { q.wakeAgents([]string{"a"}) }},
		"news for all":        {since: func(q *queue) { q.wakeAll() }},
		"news amid the look":  {since: nothing, found: look{woken: []string{"a"}}},
		"a while ago":         {since: func(*queue) { time.Sleep(2 * lookPause) }},
		"something was left":  {since: nothing, found: look{behind: map[string]bool{"a": true}}},
		"a limit was full":    {since: nothing, found: look{limited: map[string]bool{"a": true}}},
		"it is repeated":      {since: nothing, w: waiter{again: true}},
		"it is not to wait":   {since: nothing, w: waiter{req: protocol.Claim{Wait: -time.Minute}}},
		"it is to wait a bit": {since: nothing, w: waiter{req: protocol.Claim{Wait: lookPause - time.Minute}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(env.Real{}, 1)
				come := func(w *waiter) {
					w.req.Agent, w.answered = "a", make(chan struct{}, 1)
					w.req.Wait += time.Minute
					if err := q.wait(w); err != nil {
						t.Fatal(err)
					}
				}
				come(&waiter{})
				_, claims, _ := q.take()
				if len(claims) != 1 {
					t.Fatalf("%d claims", len(claims))
				}
				c.found.looked = map[string]int{"a": claims[0].looked}
				q.bringBack(&c.found)
				q.release([]string{"a"})
				c.since(q)
				looks := func() bool { q.mu.Lock(); defer q.mu.Unlock(); return q.hot["a"] }
				if come(&c.w); looks() == c.later {
					t.Errorf("looks at once: %v", !c.later)
				}
				time.Sleep(lookPause)
				synctest.Wait()
				if !looks() {
					t.Error("does not look soon")
				}
			})
		})
	}
}

// F068: claims that got nothing wait again before the transaction is saved, but for the one by which the agent is
// served; and for all where a limit or a lock was in the way, of which the queue does not know yet.
func TestSpare(t *testing.T) {
	for name, c := range map[string]struct {
		limited, starved bool
		stay             int
	}{
		"nothing there": {false, false, 1},
		"a limit":       {true, false, 3},
		"a lock":        {false, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(env.Real{}, 1)
			for range 3 {
				w := &waiter{req: protocol.Claim{Agent: "a", Max: 1, Wait: time.Second}, answered: make(chan struct{}, 1)}
				if err := q.wait(w); err != nil {
					t.Fatal(err)
				}
			}
			_, claims, _ := q.take()
			b := &batch{s: &Scheduler{queue: q}, limited: map[string]bool{"a": c.limited}, starved: map[string]bool{"a": c.starved}}
			if b.spare(&claims); len(claims) != c.stay || !claims[0].serves || len(q.waiting["a"]) != 3-c.stay {
				t.Errorf("%d stay, %d wait", len(claims), len(q.waiting["a"]))
			}
			if more := q.takeWaiting([]string{"a"}); len(more) != 3-c.stay {
				t.Errorf("%d are found by another transaction", len(more))
			}
		})
	}
}

// putJobs submits jobs that begin with so many runs each.
func putJobs(t *testing.T, q *queue, n, runs int, weight func() int) {
	t.Helper()
	rs := make([]*request, n)
	for i := range rs {
		rs[i] = &request{op: &submission{}, weight: weight(), agent: "a", runs: runs, done: make(chan struct{}, 1)}
	}
	if err := q.put(rs); err != nil {
		t.Fatal(err)
	}
}

// Who was held first is let in first: also where several claims come before a writer picks, and where one of them leaves
// again.
func TestHeldInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(env.Real{}, 1)
		made, next := 0, 0
		set := func(n, runs int) {
			putJobs(t, q, n, runs, func() int { made++; return made })
		}
		claim := func(max int) *waiter {
			w := &waiter{req: protocol.Claim{Agent: "a", Max: max, Wait: time.Second}, answered: make(chan struct{}, 1)}
			if err := q.wait(w); err != nil {
				t.Fatal(err)
			}
			return w
		}
		pick := func(want int) {
			t.Helper()
			q.mu.Lock()
			defer q.mu.Unlock()
			picked, _ := q.pick()
			for _, r := range picked {
				if next++; r.weight != next {
					t.Fatalf("submission %d came in place of %d", r.weight, next)
				}
			}
			if delete(q.waiting, "a"); len(picked) != want || q.held != made-next || q.first != 0 || q.paces["a"].atHead != 0 {
				t.Fatalf("%d picked, want %d; %d held, %d let in", len(picked), want, q.held, q.first)
			}
			runs := 0
			for _, r := range q.paces["a"].held {
				runs += r.runs
			}
			if runs != q.paces["a"].runs {
				t.Fatalf("%d runs are held, counted as %d", runs, q.paces["a"].runs)
			}
		}
		q.leave(claim(100))
		set(50, 1)
		pick(0)
		set(50, 1)
		pick(0)
		for range 3 {
			claim(10)
		}
		set(20, 1)
		pick(30)
		q.leave(claim(10))
		claim(5)
		pick(5)
		q.leave(claim(200))
		pick(0)
		claim(200)
		pick(85)
		set(20, 10) // jobs of ten runs each, of which the last that is let in need not have room for all
		pick(0)
		claim(25)
		pick(3)
		claim(10)
		claim(1)
		pick(2)
		claim(1)
		q.leave(claim(30))
		pick(1) // the others had been let in, and are held again
		claim(140)
		pick(14)
		p := q.paces["a"]
		p.asked, p.before = 50, 0
		set(30, 10) // no more are held than it takes in time: 200 runs
		q.mu.Lock()
		picked, _ := q.pick()
		q.mu.Unlock()
		if len(picked) != 10 || p.runs != 200 {
			t.Errorf("%d picked, %d runs held", len(picked), p.runs)
		}
	})
}

// What a job's first steps are to the claims of one agent; nothing where they are a small part of it.
func TestFirstRuns(t *testing.T) {
	of := func(agent string, after ...int) kernel.PlanStep {
		return kernel.PlanStep{StepDefinition: &kernel.StepDefinition{Agent: agent}, After: after}
	}
	chain := func(steps int) []kernel.PlanStep {
		all := []kernel.PlanStep{of("a")}
		for i := range steps - 1 {
			all = append(all, of("a", i))
		}
		return all
	}
	wait := kernel.PlanStep{StepDefinition: &kernel.StepDefinition{}, Form: kernel.BySleep}
	for _, c := range []struct {
		steps []kernel.PlanStep
		agent string
		runs  int
	}{
		{chain(1), "a", 1},
		{chain(10), "a", 1},
		{chain(11), "", 0},
		{[]kernel.PlanStep{of("a"), of("a"), of("a"), of("a", 0, 1, 2)}, "a", 3},
		{[]kernel.PlanStep{wait, of("a"), of("b"), of("a")}, "a", 2},
		{[]kernel.PlanStep{wait, of("a", 0)}, "", 0},
	} {
		if agent, runs := firstRuns(&kernel.Plan{Shape: &kernel.Shape{Steps: c.steps}}); agent != c.agent || runs != c.runs {
			t.Errorf("%d steps: %d runs of %q, want %d of %q", len(c.steps), runs, agent, c.runs, c.agent)
		}
	}
}

// What is held is let in by claims that come back from a transaction in which they got nothing, and claims that have
// waited for long are as good as one that has just come.
func TestHeldForClaimsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(env.Real{}, 1)
		w := &waiter{req: protocol.Claim{Agent: "a", Max: 1000, Wait: time.Minute}, answered: make(chan struct{}, 1)}
		pick := func(want, held int) {
			t.Helper()
			q.mu.Lock()
			defer q.mu.Unlock()
			if picked, _ := q.pick(); len(picked) != want || q.held != held {
				t.Fatalf("%d picked, want %d; %d held, want %d", len(picked), want, q.held, held)
			}
		}
		if err := q.wait(w); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		for range 3 {
			putJobs(t, q, 700, 1, func() int { return 1 })
		}
		pick(1000, 0) // as much as one transaction carries
		q.leave(w)
		pick(0, 1100)
		q.bringBack(&look{back: map[string][]*waiter{"a": {w}}})
		pick(1000, 100)
		q.leave(w)
		time.Sleep(2 * holdLately) // nobody claims
		pick(100, 0)
	})
}
