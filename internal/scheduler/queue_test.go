package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"perdure"
	"perdure/internal/env"
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
			q := newQueue(env.Real{})
			w := &waiter{req: perdure.ClaimRequest{Agent: "a"}, answered: make(chan struct{}, 1)}
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

// F068: a claim that comes right after a look which left nothing behind needs none of its own, unless something may
// have become ready since, or it has to be answered from the store.
func TestJustSeen(t *testing.T) {
	nothing := func(*queue) {}
	for name, c := range map[string]struct {
		since func(*queue)
		found look
		w     waiter
		looks bool
	}{
		"nothing since":        {nothing, look{}, waiter{}, false},
		"news":                 {func(q *queue) { q.wakeAgents([]string{"a"}) }, look{}, waiter{}, true},
		"news of another":      {func(q *queue) { q.wakeAgents([]string{"b"}) }, look{}, waiter{}, false},
		"news for all":         {func(q *queue) { q.wakeAll() }, look{}, waiter{}, true},
		"a while ago":          {func(*queue) { time.Sleep(2 * seenLately) }, look{}, waiter{}, true},
		"something was left":   {nothing, look{behind: map[string]bool{"a": true}}, waiter{}, true},
		"a limit was full":     {nothing, look{limited: map[string]bool{"a": true}}, waiter{}, true},
		"it is repeated":       {nothing, look{}, waiter{again: true}, true},
		"it is not to wait":    {nothing, look{}, waiter{req: perdure.ClaimRequest{Wait: -1}}, true},
		"news before the look": {nothing, look{woken: []string{"b"}}, waiter{}, false},
		"news amid the look":   {nothing, look{woken: []string{"a"}}, waiter{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(env.Real{})
				come := func(w *waiter) *waiter {
					w.req.Agent, w.answered = "a", make(chan struct{}, 1)
					w.req.Wait += time.Second
					if err := q.wait(w); err != nil {
						t.Fatal(err)
					}
					return w
				}
				q.wakeAgents([]string{"a"})
				come(&waiter{})
				_, claims, _ := q.take()
				if len(claims) != 1 {
					t.Fatalf("%d claims", len(claims))
				}
				c.found.began = map[string]int{"a": claims[0].looked}
				q.bringBack(&c.found)
				q.release([]string{"a"})
				c.since(q)
				if c.w.req.Wait < 0 {
					c.w.req.Wait = -time.Second
				}
				w := come(&c.w)
				if q.hot["a"] != c.looks || !c.looks && w.looked == 0 {
					t.Errorf("looks: %v; it has looked at %d", q.hot["a"], w.looked)
				}
				q.wakeAgents([]string{"a"})
				if !q.hot["a"] {
					t.Error("and hears of nothing any more")
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
			q := newQueue(env.Real{})
			for range 3 {
				w := &waiter{req: perdure.ClaimRequest{Agent: "a", Max: 1, Wait: time.Second}, answered: make(chan struct{}, 1)}
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
