package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// viewer is an operator who follows a list of jobs. When the stream ends, because its node has stopped or died, the
// viewer opens another one at some node. When all jobs are settled, the list that is shown must equal the store.
type viewer struct {
	w      *world
	query  perdure.JobQuery
	proc   *process
	stream int // the number of the stream that is open; events of earlier ones are ignored
	closed chan struct{}

	rows  []perdure.JobID // of the page
	whole bool            // the page had all jobs that matched
	shown map[perdure.JobID]jobState
	gone  map[perdure.JobID]bool
	newer int
	lacks string // why no list is shown; empty: one is
}

// jobState is what a row says of a job.
type jobState struct {
	phase            perdure.Phase
	current, desired perdure.State
}

// startViewers starts one or two viewers in a third of the schedules, each at a random time.
func (w *world) startViewers(r *rand.Rand) {
	queries := []perdure.JobQuery{
		{}, {OldestFirst: true}, {Phases: []perdure.Phase{perdure.Parked}}, {Desired: new(perdure.Undone)},
		{Phases: []perdure.Phase{perdure.Waiting, perdure.Running}}, {Current: new(perdure.Done), Phases: []perdure.Phase{perdure.Settled}},
	}
	if r.IntN(3) > 0 {
		return
	}
	for range 1 + r.IntN(2) {
		v := &viewer{w: w, query: queries[r.IntN(len(queries))], closed: make(chan struct{}, 1), lacks: "it was not sent yet"}
		v.query.Limit, v.query.WithSummary = 1+r.IntN(6), r.IntN(2) == 0
		w.viewers = append(w.viewers, v)
		w.After(time.Duration(r.Int64N(int64(chaos))), w.clients, func() { w.clients.Go(v.follow) })
	}
}

// follow opens streams for as long as the schedule lasts.
func (v *viewer) follow() {
	w := v.w
	for {
		v.open()
		for w.clients.Wait(context.Background(), 2*time.Second, v.closed) != env.Got && !v.proc.Dead {
		}
		v.lacks = "the stream has ended"
		w.clients.Wait(context.Background(), time.Second+w.upTo(2*time.Second), nil)
	}
}

func (v *viewer) open() {
	w := v.w
	n := w.anyNode()
	v.stream++
	stream := v.stream
	end := func() {
		w.After(w.latency(), w.clients, func() {
			if stream == v.stream && len(v.closed) == 0 {
				v.closed <- struct{}{}
			}
		})
	}
	proc := n.proc
	v.proc = proc
	w.After(w.latency(), nil, func() {
		if proc.Dead {
			end()
			return
		}
		proc.Go(func() {
			defer end() // the connection breaks when the process dies, too
			_ = n.real.FollowJobs(n.polls, v.query, func(c *operate.JobsChange) error {
				if stream != v.stream {
					return errors.New("the viewer has gone")
				}
				v.apply(c)
				return nil
			})
		})
		w.Settle(proc)
	})
}

// apply applies a change to what is shown.
func (v *viewer) apply(c *operate.JobsChange) {
	w := v.w
	switch {
	case c.Page != nil:
		v.rows, v.whole = nil, c.Page.NextCursor == ""
		v.shown, v.gone, v.newer, v.lacks = map[perdure.JobID]jobState{}, map[perdure.JobID]bool{}, 0, ""
		for i := range c.Page.Items {
			v.rows = append(v.rows, c.Page.Items[i].ID)
			v.shown[c.Page.Items[i].ID] = rowState(&c.Page.Items[i])
		}
	case c.Changed != nil:
		for i := range c.Changed {
			id := c.Changed[i].ID
			if !slices.Contains(v.rows, id) {
				w.wrong("lists", "%s changes in a list that does not show it", short(id))
			}
			v.shown[id] = rowState(&c.Changed[i])
			delete(v.gone, id)
		}
	case c.Gone != nil:
		for _, id := range c.Gone {
			if !slices.Contains(v.rows, id) || v.gone[id] {
				w.wrong("lists", "%s is gone from a list that does not show it", short(id))
			}
			v.gone[id] = true
		}
	case c.Newer != nil:
		v.newer = c.Newer.N
	case c.Problem != nil:
		v.lacks = c.Problem.Message
	default:
		w.wrong("lists", "a change of a list without content")
	}
}

func rowState(v *perdure.JobView) jobState { return jobState{v.Phase, v.Current, v.Desired} }

// listLag is how long after a change of a job a list may still show the state before it.
const listLag = 2 * time.Second

// checkLists compares what viewers are shown with the store.
func (w *world) checkLists() {
	if shown := w.jobMovedAt + listLag; w.Now < shown {
		w.runUntil(shown)
	}
	for _, v := range w.viewers {
		if v.stream == 0 {
			continue // it begins later
		}
		if v.lacks != "" {
			w.wrong("lists", "a list of %+v is not shown although all jobs are settled: %s", v.query, v.lacks)
			continue
		}
		v.check()
	}
}

func (v *viewer) check() {
	w := v.w
	f := kernel.JobFilter{Phases: v.query.Phases, Current: v.query.Current, Desired: v.query.Desired, Ascending: v.query.OldestFirst, Limit: perdure.MaxListLimit}
	jobs, _, err := w.inner.ListJobs(context.Background(), f)
	w.must(err)
	if len(v.rows) == 0 && len(jobs) > 0 {
		w.wrong("lists", "a list of %+v shows nothing, and %d jobs match", v.query, len(jobs))
		return
	}
	matching := map[perdure.JobID]bool{}
	newer := 0
	for _, j := range jobs {
		matching[j.ID] = true
		shown := slices.Contains(v.rows, j.ID)
		after := j.ID.Compare(v.rows[len(v.rows)-1])
		if v.query.OldestFirst {
			after = -after
		}
		switch row := v.shown[j.ID]; {
		case !shown && (v.whole || after > 0):
			newer++
		case !shown: // it is on a later page
		case v.gone[j.ID]:
			w.wrong("lists", "%s matches %+v, and is shown as gone", short(j.ID), v.query)
		case row != jobState{j.Phase, j.Current, j.Desired}:
			w.wrong("lists", "%s is %s, and is shown as %+v", short(j.ID), fmt.Sprint(j.Phase, j.Current, j.Desired), row)
		}
	}
	for _, id := range v.rows {
		if !matching[id] && !v.gone[id] {
			w.wrong("lists", "%s does not match %+v, and is shown as if it did", short(id), v.query)
		}
	}
	if min(newer, operate.MaxNewer) != v.newer {
		w.wrong("lists", "a list of %+v says that %d jobs are newer, and %d are", v.query, v.newer, newer)
	}
	w.hit("viewed")
}
