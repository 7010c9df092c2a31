package dispatch

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

func newClaim(agent string, max int, wait time.Duration) *Claim {
	return NewClaim(protocol.Claim{Agent: agent, Max: max, Wait: wait}, time.Time{}, func() int { return 1 << 40 })
}

// takenClaim returns a claim that a writer has taken, and that may be granted any runs.
func takenClaim(agent string, max int) *Claim {
	c := newClaim(agent, max, time.Second)
	c.mode = searchStore
	return c
}

// come puts a claim into the queue.
func come(t *testing.T, q *Queue, c *Claim) *Claim {
	t.Helper()
	if err := q.Wait(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// takeClaims takes the given number of claims.
func takeClaims(t *testing.T, q *Queue, n int) []*Claim {
	t.Helper()
	_, claims, turn, _ := q.Take()
	q.Saved(turn) // other tests cover how many transactions are in progress
	if len(claims) != n {
		t.Fatalf("%d claims are taken, want %d", len(claims), n)
	}
	return claims
}

// isDue reports whether a search is due for an agent.
func isDue(q *Queue, agent string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.due[q.agent(agent)]
}

// F068: if a wake-up comes while a claim is in a search, the claim is searched for again. A claim that missed no wake-up
// waits.
func TestWakeUpDuringASearchIsNotLost(t *testing.T) {
	for name, c := range map[string]struct {
		wake    func(*Queue)
		limited bool
		again   bool
	}{
		"none":             {func(*Queue) {}, false, false},
		"of this agent":    {func(q *Queue) { q.Wake([]string{"a"}) }, false, true},
		"of another":       {func(q *Queue) { q.Wake([]string{"b"}) }, false, false},
		"of all":           {func(q *Queue) { q.WakeAll() }, false, true},
		"room in a limit":  {func(q *Queue) { q.WakeAfterIndeterminate(nil, true) }, true, true},
		"room, not needed": {func(q *Queue) { q.WakeAfterIndeterminate(nil, true) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := NewQueue(env.Real{}, 1, false)
			come(t, q, newClaim("a", 1, 0))
			claims := takeClaims(t, q, 1)
			c.wake(q)
			q.giveBack(claims, []*search{{agent: "a", searchedStore: true, at: claims[0].searchedAt, limitReached: c.limited}}, nil, false)
			q.releaseSearches([]string{"a"})
			if again := isDue(q, "a"); again != c.again {
				t.Errorf("a search is due: %v", again)
			}
		})
	}
}

// F068: a claim that comes with reports right after a search causes none, unless a step may have become ready since.
func TestClaimWithReportsRightAfterASearchCausesNoSearch(t *testing.T) {
	nothing := func(*Queue) {}
	for name, c := range map[string]struct {
		since func(*Queue)
		found search
		woken []string
		none  bool
	}{
		"nothing since":        {since: nothing, none: true},
		"a wake-up of another": {since: func(q *Queue) { q.Wake([]string{"b"}) }, none: true},
		"a wake-up":            {since: func(q *Queue) { q.Wake([]string{"a"}) }},
		"a wake-up of all":     {since: func(q *Queue) { q.WakeAll() }},
		"a wake-up meanwhile":  {since: nothing, woken: []string{"a"}},
		"a while ago":          {since: func(*Queue) { time.Sleep(2 * searchPause) }},
		"something was left":   {since: nothing, found: search{moreRemains: true}},
		"a limit was full":     {since: nothing, found: search{limitReached: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue(env.Real{}, 1, false)
				come(t, q, newClaim("a", 1, time.Minute))
				claims := takeClaims(t, q, 1)
				c.found.agent, c.found.searchedStore, c.found.at = "a", true, claims[0].searchedAt
				q.giveBack(nil, []*search{&c.found}, c.woken, false)
				q.releaseSearches([]string{"a"})
				c.since(q)
				next := newClaim("a", 1, time.Minute)
				if err := q.Put(t.Context(), []*Request{{Weight: 1, OfRun: true, Next: next}}); err != nil {
					t.Fatal(err)
				}
				if takeClaims(t, q, 1); (next.mode == ownSteps) != c.none {
					t.Errorf("it causes no search: %v", !c.none)
				}
			})
		})
	}
}

// F068: a claim that comes right after a search causes none, unless a step may have become ready since, or it has to be
// answered from the store. A search for it follows soon.
func TestClaimRightAfterASearchCausesNoSearch(t *testing.T) {
	nothing := func(*Queue) {}
	for name, c := range map[string]struct {
		since func(*Queue)
		found search
		woken []string
		claim func(*Claim)
		later bool
	}{
		"nothing since":          {since: nothing, later: true},
		"a wake-up of another":   {since: func(q *Queue) { q.Wake([]string{"b"}) }, later: true},
		"a wake-up":              {since: func(q *Queue) { q.Wake([]string{"a"}) }},
		"a wake-up of all":       {since: func(q *Queue) { q.WakeAll() }},
		"a wake-up meanwhile":    {since: nothing, woken: []string{"a"}},
		"a while ago":            {since: func(*Queue) { time.Sleep(2 * searchPause) }},
		"something was left":     {since: nothing, found: search{moreRemains: true}},
		"a limit was full":       {since: nothing, found: search{limitReached: true}},
		"it is repeated":         {since: nothing, claim: func(c *Claim) { c.Repeated = true }},
		"it does not wait":       {since: nothing, claim: func(c *Claim) { c.Request.Wait = 0 }},
		"it waits a little only": {since: nothing, claim: func(c *Claim) { c.Request.Wait = searchPause }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue(env.Real{}, 1, false)
				come(t, q, newClaim("a", 1, time.Minute))
				claims := takeClaims(t, q, 1)
				c.found.agent, c.found.searchedStore, c.found.at = "a", true, claims[0].searchedAt
				q.giveBack(nil, []*search{&c.found}, c.woken, false)
				q.releaseSearches([]string{"a"})
				c.since(q)
				next := newClaim("a", 1, time.Minute)
				if c.claim != nil {
					c.claim(next)
				}
				if come(t, q, next); isDue(q, "a") == c.later {
					t.Errorf("a search is due at once: %v", !c.later)
				}
				time.Sleep(searchPause)
				synctest.Wait()
				if !isDue(q, "a") {
					t.Error("no search is due soon")
				}
			})
		})
	}
}

// F068: claims that were granted nothing return to the queue before the transaction is saved, except for the one that
// owns the search. If a limit or a lock was in the way, all claims of the agent stay, because the queue does not know of
// that yet.
func TestClaimsWithoutRunsReturnEarly(t *testing.T) {
	for name, c := range map[string]struct {
		atLimit, blocked bool
		stay             int
	}{
		"nothing there": {false, false, 1},
		"a limit":       {true, false, 3},
		"a lock":        {false, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			q := NewQueue(env.Real{}, 1, false)
			for range 3 {
				come(t, q, newClaim("a", 1, time.Second))
			}
			tx := q.Begin(nil, takeClaims(t, q, 3))
			tx.searches = []*search{{agent: "a", limitReached: c.atLimit, blocked: c.blocked}}
			stay := tx.ReturnEarly()
			if waiting := len(q.agent("a").waiting); len(stay) != c.stay || !stay[0].ownsSearch || waiting != 3-c.stay {
				t.Errorf("%d stay, %d wait", len(stay), waiting)
			}
			if more := q.TakeWaiting([]string{"a"}); len(more) != 3-c.stay {
				t.Errorf("%d are found by another transaction", len(more))
			}
		})
	}
}

// The claims of one agent in a transaction are served in the highest mode among them.
func TestSearchHasTheHighestModeOfItsClaims(t *testing.T) {
	modes := func(all ...claimMode) *search {
		var claims []*grant
		for _, m := range all {
			c := newClaim("a", 2, 0)
			c.mode = m
			claims = append(claims, &grant{Claim: c})
		}
		return newSearch("a", claims)
	}
	for want, s := range map[claimMode]*search{
		repeatOnly: modes(repeatOnly), ownSteps: modes(ownSteps, repeatOnly), urgentSteps: modes(ownSteps, urgentSteps), searchStore: modes(urgentSteps, searchStore, ownSteps),
	} {
		if s.mode != want {
			t.Errorf("mode %d, want %d", s.mode, want)
		}
	}
	if s := modes(ownSteps, repeatOnly, ownSteps); s.want != 4 || len(s.open) != 2 {
		t.Errorf("%d runs for %d claims: a claim that only repeats is granted none", s.want, len(s.open))
	}
}

// If the store carries out one transaction at a time, a transaction begins only when the one before has only its COMMIT
// left, however much work there is and however long it takes. With other stores it begins earlier.
func TestSingleWriterOverlapsOnlyTheCommit(t *testing.T) {
	for _, one := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(env.Real{}, 1, one)
			putJobs(t, q, 1, 1, func() int { return 1 })
			_, _, turn, _ := q.Take()
			putJobs(t, q, parallelWork, 1, func() int { return 1 })
			duration := false
			go func() {
				q.Take()
				duration = true
			}()
			time.Sleep(2 * parallelAfter)
			synctest.Wait()
			if duration == one {
				t.Errorf("one after the other: %v; a transaction began beside another: %v", one, duration)
			}
			q.Saved(turn)
			synctest.Wait()
			if !duration {
				t.Error("none began after it")
			}
		})
	}
}

// The same with writers that run at the same time.
func TestSingleWriterBeginsOneTransactionAtATime(t *testing.T) {
	q := NewQueue(env.Real{}, 1, true)
	var under atomic.Int32
	var writers, putters sync.WaitGroup
	for range 3 {
		writers.Go(func() {
			for {
				_, _, turn, ok := q.Take()
				if !ok {
					return
				}
				if n := under.Add(1); n > 1 {
					t.Errorf("%d transactions are carried out at a time", n)
				}
				time.Sleep(100 * time.Microsecond)
				under.Add(-1)
				q.Saved(turn)
			}
		})
	}
	for range 20 {
		putters.Go(func() {
			for range 200 {
				putJobs(t, q, 1, 1, func() int { return 1 })
				time.Sleep(50 * time.Microsecond)
			}
		})
	}
	putters.Wait()
	q.Close()
	writers.Wait()
}

// If there are too many agents, those that are idle are forgotten, but not their wake-ups (F068).
func TestAgentsAreBounded(t *testing.T) {
	q := NewQueue(env.Real{}, 1, false)
	come(t, q, newClaim("out", 1, time.Minute))
	claims := takeClaims(t, q, 1)
	come(t, q, newClaim("waits", 1, time.Minute))
	q.Wake([]string{"out"})
	for i := range 2 * maxAgents {
		q.Wake([]string{string(rune(0x4e00 + i))})
	}
	if n := len(q.agents); n > maxAgents {
		t.Errorf("%d agents are remembered", n)
	}
	if q.agents["waits"] == nil || q.agents["out"] == nil {
		t.Error("an agent with claims was forgotten")
	}
	q.giveBack(claims, []*search{{agent: "out", searchedStore: true, at: claims[0].searchedAt}}, nil, false)
	if !isDue(q, "out") {
		t.Error("a wake-up was lost")
	}
}

// Claims that are put back find their agents, even if this makes the queue forget other agents (F068).
func TestClaimsComeBackToAFullQueue(t *testing.T) {
	q := NewQueue(env.Real{}, 1, false)
	for i := range maxAgents - 1 {
		q.Wake([]string{string(rune(0x4e00 + i))})
	}
	back := []*Claim{newClaim("a", 1, time.Minute), newClaim("b", 1, time.Minute), newClaim("a", 1, time.Minute)}
	q.giveBack(back, nil, nil, false)
	if waiting := q.WaitingClaims(); len(waiting) != 3 {
		t.Errorf("these wait: %v", waiting)
	}
}

// The agent of a held submission is not forgotten when its claims have left.
func TestAgentOfAHeldSubmissionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(env.Real{}, 1, false)
		q.Leave(come(t, q, newClaim("a", 100, time.Second)))
		putJobs(t, q, 50, 1, func() int { return 1 })
		for i := range 2 * maxAgents {
			q.Wake([]string{string(rune(0x4e00 + i))})
		}
		if taken := q.TakeHeld([]*Claim{takenClaim("a", 100)}, nil, 0, 0); len(taken) != 50 {
			t.Errorf("%d are taken, %d are held", len(taken), q.held)
		}
	})
}

// One transaction grants a bounded number of runs. The next one serves the other claims.
func TestGrantsOfATransactionAreBounded(t *testing.T) {
	p := newPlay(t)
	const claims = MaxGranted/perdure.MaxBatch + 2
	p.transaction(nil, func(b *fakeBatch) {
		for i := range claims {
			def := perdure.Define("letters")
			for k := range perdure.MaxBatch {
				def.Step(fmt.Sprint("s", k), "mail")
			}
			plan, err := definition.FromDefinition(def)
			p.must(err)
			b.w.Submit(perdure.JobID{1, byte(i)}, plan)
		}
	})
	all := make([]*Claim, claims)
	for i := range all {
		all[i] = come(t, p.queue, newClaim("mail", perdure.MaxBatch, time.Minute))
		all[i].Request.Heartbeat = time.Minute
	}
	for _, want := range []int{MaxGranted, claims * perdure.MaxBatch} {
		_, taken, turn, _ := p.queue.Take()
		p.transaction(taken, func(*fakeBatch) {})
		p.queue.Saved(turn)
		granted := 0
		for _, c := range all {
			granted += len(c.Runs)
		}
		if granted != want {
			t.Errorf("%d runs are granted, want %d", granted, want)
		}
	}
}

// putJobs submits n jobs with the given number of first runs each.
func putJobs(t *testing.T, q *Queue, n, runs int, weight func() int) {
	t.Helper()
	rs := make([]*Request, n)
	for i := range rs {
		rs[i] = &Request{Weight: weight(), Agent: "a", Runs: runs}
	}
	if err := q.Put(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
}

// Held submissions are taken in their order, as far as the claims of a transaction have room beside the steps that it
// has made ready.
func TestHeldSubmissionsAreTakenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(env.Real{}, 1, false)
		created, next := 0, 0
		set := func(n, runs int) {
			putJobs(t, q, n, runs, func() int { created++; return created })
		}
		take := func(want, ready int, claims ...*Claim) {
			t.Helper()
			taken := q.TakeHeld(claims, map[string][]kernel.StepRef{"a": make([]kernel.StepRef, ready)}, 0, 0)
			for _, r := range taken {
				if next++; r.Weight != next {
					t.Fatalf("submission %d came in place of %d", r.Weight, next)
				}
			}
			if len(taken) != want || q.held != created-next {
				t.Fatalf("%d taken, want %d; %d held", len(taken), want, q.held)
			}
			runs := 0
			if h := q.agent("a").holding; h != nil {
				for _, r := range h.held {
					runs += r.Runs
				}
				if runs != h.runs {
					t.Fatalf("%d runs are held, counted as %d", runs, h.runs)
				}
			}
		}
		claim := func(max int) *Claim { return takenClaim("a", max) }
		q.Leave(come(t, q, claim(1000)))
		set(50, 1)
		take(0, 0)
		set(50, 1)
		take(0, 10, claim(10)) // the transaction has made as many steps ready itself
		take(30, 0, claim(10), claim(10), claim(10))
		take(5, 10, claim(15))
		again, other := claim(20), takenClaim("b", 20)
		again.Repeated = true // it may get its earlier runs
		take(0, 0, again, other)
		take(65, 0, claim(200))
		set(20, 10) // jobs of ten runs each, which are taken if there is room for all ten
		take(2, 0, claim(25))
		take(1, 5, claim(15))
		take(0, 5, claim(14))
		take(0, 0, claim(9)) // a transaction had room for all ten lately
		h := q.agent("a").holding
		h.maxRoom, h.maxRoomBefore = 0, 10
		take(0, 0, claim(9))
		h.maxRoomBefore = 9
		take(1, 0, claim(9)) // none had
		h.maxRoom = 10
		time.Sleep(roomWait - 1)
		take(0, 0, claim(9))
		time.Sleep(time.Nanosecond)
		take(0, 1, claim(9)) // the claim gets something else
		take(1, 0, claim(9)) // the job has waited for long enough
		a := q.agent("a")
		a.lastResult = moreReady // a part of the room is left for steps in the store
		take(0, 0, claim(10))
		take(1, 0, claim(11))
		take(1, 10, claim(31))
		take(2, 10, claim(32))
		a.lastResult = nothingReady
		take(11, 0, claim(120))
		h.runsAsked, h.runsAskedBefore = 50, 0
		set(30, 10) // no more are held than the agent takes in time: 200 runs
		if h.runs != 200 || len(q.otherRequests) != 10 {
			t.Errorf("%d runs held, %d queued", h.runs, len(q.otherRequests))
		}
	})
}

// Nothing is held for an agent that waits for a limit. For one that has a backlog, single submissions are held, too.
func TestSubmissionsAreHeldForAnAgentWithABacklog(t *testing.T) {
	for left, want := range map[searchResult][2]int{nothingReady: {100, 0}, moreReady: {100, 100}, limitFull: {0, 0}} {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(env.Real{}, 1, false)
			q.Leave(come(t, q, newClaim("a", 25, time.Second)))
			q.agent("a").lastResult = left
			for i, few := range []bool{false, true} {
				for range 200 {
					if err := q.Put(t.Context(), []*Request{{Weight: 1, Agent: "a", Runs: 1, SmallSet: few}}); err != nil {
						t.Fatal(err)
					}
				}
				if q.held != want[i] {
					t.Errorf("left %v, few %v: %d are held, want %d", left, few, q.held, want[i])
				}
				q.TakeHeld([]*Claim{takenClaim("a", 1000)}, nil, 0, 0)
			}
		})
	}
}

// FirstRuns counts the first steps that the claims of one agent dispatch, and returns none if they are a small part of
// the job.
func TestFirstRunsCountsFirstSteps(t *testing.T) {
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
		if agent, runs := FirstRuns(&kernel.Plan{Definition: &kernel.Definition{}, Shape: &kernel.Shape{Steps: c.steps}}); agent != c.agent || runs != c.runs {
			t.Errorf("%d steps: %d runs of %q, want %d of %q", len(c.steps), runs, agent, c.runs, c.agent)
		}
	}
}

// Waiting claims take held submissions, also claims that have waited for long or have come back without runs, up to the
// bounds of one transaction.
func TestWaitingClaimsTakeHeldSubmissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(env.Real{}, 1, false)
		w := newClaim("a", 2500, time.Minute)
		take := func(want, held int) {
			t.Helper()
			requests, claims, turn, _ := q.Take()
			if taken := q.TakeHeld(claims, nil, len(requests), 0); len(claims) != 1 || len(taken) != want || q.held != held {
				t.Fatalf("%d taken, want %d; %d held, want %d", len(taken), want, q.held, held)
			}
			q.giveBack(claims, nil, nil, false)
			q.releaseSearches([]string{"a"})
			q.Saved(turn)
		}
		come(t, q, w)
		take(0, 0)
		time.Sleep(10 * time.Second)
		for range 3 {
			putJobs(t, q, 700, 1, func() int { return 1 })
		}
		take(1000, 1100)
		take(1000, 100)
		q.Leave(w)
		time.Sleep(2 * recentClaim) // no claims
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.otherRequests) != 100 || q.held != 0 {
			t.Errorf("%d queued, %d held", len(q.otherRequests), q.held)
		}
	})
}

// With little work, one transaction is in progress at a time. Another one begins at the same time if there is much work,
// or if the first takes long.
func TestTransactionsOverlapUnderMuchWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(env.Real{}, HoldMinPace, false)
		put := func(n int) {
			rs := make([]*Request, n)
			for i := range rs {
				rs[i] = &Request{Weight: 1}
			}
			if err := q.Put(t.Context(), rs); err != nil {
				t.Fatal(err)
			}
		}
		var taken []int // in the order in which writers took them
		var mu sync.Mutex
		for range 3 {
			go func() {
				for {
					rs, _, _, ok := q.Take()
					if !ok {
						return
					}
					mu.Lock()
					taken = append(taken, len(rs))
					mu.Unlock()
				}
			}()
		}
		see := func(what string, want ...int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(taken, want) {
				t.Errorf("%s: %v, want %v", what, taken, want)
			}
		}
		put(1)
		see("the first", 1)
		put(1)
		put(1)
		see("little beside it", 1)
		q.Saved(1)
		see("it has ended", 1, 2)
		put(1)
		time.Sleep(parallelAfter / 2)
		see("a short while", 1, 2)
		time.Sleep(parallelAfter)
		see("it takes its time", 1, 2, 1)
		q.Saved(3)
		put(1)
		see("the latest has ended, and the one before takes its time", 1, 2, 1, 1)
		q.Saved(4)
		q.Saved(2)
		put(1)
		see("alone again", 1, 2, 1, 1, 1)
		put(parallelWork)
		see("much beside it", 1, 2, 1, 1, 1, parallelWork)
		q.Saved(5)
		q.Saved(6)
		taken = nil
		if err := q.Put(t.Context(), []*Request{{Weight: parallelWork - 1, OfRun: true}}); err != nil {
			t.Fatal(err)
		}
		see("reports, with none beside them", 1)
		if err := q.Put(t.Context(), []*Request{{Weight: parallelWork - 1, OfRun: true}}); err != nil {
			t.Fatal(err)
		}
		see("a few reports beside them", 1)
		put(1)
		see("enough", 1, 2)
		q.Close()
	})
}

// L5: if the latest search has left steps, claims that no search has served are due: those that come back from a
// transaction that did not search the store, and those that came during the search.
func TestClaimsThatNoSearchServedAreDueIfMoreIsReady(t *testing.T) {
	q := NewQueue(env.Real{}, 1, false)
	come(t, q, newClaim("a", 1, time.Minute))
	server := takeClaims(t, q, 1)
	come(t, q, newClaim("a", 1, time.Minute))
	beside := q.TakeWaiting([]string{"a"})
	delete(q.due, q.agent("a")) // as if it had come just after a search that found nothing
	q.giveBack(beside, nil, nil, false)
	if len(beside) != 1 || isDue(q, "a") {
		t.Fatal("due before it is known that there is more")
	}
	q.giveBack(nil, []*search{{agent: "a", searchedStore: true, moreRemains: true, at: server[0].searchedAt}}, nil, false)
	if !isDue(q, "a") {
		t.Error("what waits is not due")
	}
	beside = q.agent("a").take(q.clock, true)
	delete(q.due, q.agent("a"))
	q.giveBack(beside, nil, nil, false)
	if !isDue(q, "a") {
		t.Error("what comes back is not due")
	}
}

// Held submissions cause no transaction that could not take them: waiting claims may be repeated ones, whose earlier
// runs are searched for first, or ones whose latest transaction has just failed.
func TestHeldSubmissionsCauseNoUselessTransactions(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(q *Queue, a *agentQueue, c *Claim)
		free    bool
	}{
		"new":                                {func(*Queue, *agentQueue, *Claim) {}, true},
		"repeated":                           {func(_ *Queue, _ *agentQueue, c *Claim) { c.Repeated = true }, false},
		"repeated, and there are no runs":    {func(_ *Queue, _ *agentQueue, c *Claim) { c.Repeated, c.hasNoRuns = true, true }, true},
		"failed":                             {func(q *Queue, _ *agentQueue, _ *Claim) { q.pauseHeld([]string{"a"}) }, false},
		"failed long ago":                    {func(q *Queue, _ *agentQueue, _ *Claim) { q.pauseHeld([]string{"a"}); time.Sleep(failedPause) }, true},
		"of one run, and older steps wait":   {func(_ *Queue, a *agentQueue, c *Claim) { a.lastResult, c.Request.Max = moreReady, 1 }, false},
		"of more runs, and older steps wait": {func(_ *Queue, a *agentQueue, _ *Claim) { a.lastResult = moreReady }, true},
		"older steps wait, and a search is in progress": {func(_ *Queue, a *agentQueue, _ *Claim) { a.lastResult, a.searching = moreReady, true }, false},
		"a limit is full": {func(_ *Queue, a *agentQueue, _ *Claim) { a.lastResult = limitFull }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue(env.Real{}, 1, false)
				claim := come(t, q, newClaim("a", 100, time.Minute))
				a := q.agent("a")
				c.prepare(q, a, claim)
				if free := a.canTakeHeld(q.env.Now()); free != c.free {
					t.Fatalf("%v", free)
				}
				claim.mode = searchStore
				taken := q.TakeHeld([]*Claim{claim}, nil, 0, 0)
				putJobs(t, q, 1, 1, func() int { return 1 })
				if taken = append(taken, q.TakeHeld([]*Claim{claim}, nil, 0, 0)...); c.free && len(taken) == 0 {
					t.Error("it is free, and takes nothing")
				}
			})
		})
	}
}

// While a held job waits for more room than the claims have, it causes no transaction. When it has waited for long
// enough, it does.
func TestJobHeldForMoreRoomCausesNoUselessTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(env.Real{}, 1, false)
		q.Leave(come(t, q, newClaim("a", 100, time.Minute)))
		putJobs(t, q, 1, 100, func() int { return 1 })
		if q.TakeHeld([]*Claim{takenClaim("a", 100)}, nil, 0, 0); q.held > 0 {
			t.Fatal("not taken")
		}
		putJobs(t, q, 1, 100, func() int { return 1 })
		come(t, q, newClaim("a", 99, time.Minute))
		delete(q.due, q.agent("a")) // it was searched for
		began := time.Now()
		_, claims, _, _ := q.Take()
		if waited := time.Since(began); waited < roomWait || waited > holdTime/2 {
			t.Errorf("a transaction begins after %s", waited)
		}
		if got := q.TakeHeld(claims, nil, 0, 0); len(got) != 1 {
			t.Errorf("%d taken", len(got))
		}
	})
}

// Claims that a search puts back are not due because the search left more: it has served them.
func TestClaimsOfASearchAreNotDueIfMoreIsReady(t *testing.T) {
	q := NewQueue(env.Real{}, 1, false)
	for range 3 {
		come(t, q, newClaim("a", 1, time.Second))
	}
	tx := q.Begin(nil, takeClaims(t, q, 3))
	tx.searches = []*search{{agent: "a", searchedStore: true, moreRemains: true, at: tx.grants[0].searchedAt}}
	tx.ReturnEarly()
	q.giveBack(nil, tx.searches, nil, false)
	if isDue(q, "a") {
		t.Error("due again at once")
	}
}

// A full transaction takes no held submissions.
func TestFullTransactionsTakeNoHeldSubmissions(t *testing.T) {
	for weight, want := range map[int]int{0: 3, MaxWeight - 20: 2, MaxWeight - 5: 0, MaxWeight: 0, MaxWeight + 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			q := NewQueue(env.Real{}, 1, false)
			q.Leave(come(t, q, newClaim("a", 100, time.Second)))
			putJobs(t, q, 3, 1, func() int { return 10 })
			if n := len(q.TakeHeld([]*Claim{takenClaim("a", 100)}, nil, 1, weight)); n != want {
				t.Errorf("beside %d: %d are taken, want %d", weight, n, want)
			}
		})
	}
}
