package sim

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// order is the queue of ready steps as the transactions so far have left it, and since when others were dispatched
// before a step (L5).
type order struct {
	ready    map[kernel.StepRef]kernel.Step
	typ      map[perdure.JobID]kernel.Job
	since    map[kernel.StepRef]time.Duration // when another step was first dispatched before it
	lying    map[kernel.StepRef]time.Duration // when it was first ready, with permits and slots free
	inFlight map[string]time.Duration         // by limit: when the latest run was dispatched that counts for it
	older    map[string]time.Duration         // by agent: when the latest step was dispatched that was ready before its transaction
	passed   map[shareOf]map[string]int       // by share that has a step to dispatch: how many runs other shares got since it got one
	before   map[string]bool                  // limits that are or were defined: a node may remember one as full
}

func newOrder() order {
	return order{ready: map[kernel.StepRef]kernel.Step{}, typ: map[perdure.JobID]kernel.Job{}, since: map[kernel.StepRef]time.Duration{},
		lying: map[kernel.StepRef]time.Duration{}, inFlight: map[string]time.Duration{}, older: map[string]time.Duration{}, before: map[string]bool{}, passed: map[shareOf]map[string]int{}}
}

// before returns the order in which steps of one agent are dispatched: by the time of submission, less the head start of
// the priority; then by age of the job. It is written independently of the kernel, to check it.
func before(x, y *kernel.Step) int {
	return cmp.Or(turnOf(x).Compare(turnOf(y)), bytes.Compare(x.Job[:], y.Job[:]), cmp.Compare(x.Index, y.Index))
}

func turnOf(s *kernel.Step) time.Time {
	var ms int64
	for _, b := range s.Job[:6] {
		ms = ms<<8 | int64(b)
	}
	at := time.UnixMilli(ms)
	if strings.Contains(string(s.Needs), `"line":`) { // priorities do not count in a line
		return at
	}
	for range s.Priority {
		at = at.Add(-cmp.Or(s.Ageing, 10*365*24*time.Hour))
	}
	return at
}

// queued updates the order, and finds steps that should have been dispatched before those of a transaction.
func (w *world) queued(n *node, t *watchedTx) {
	o := &w.order
	touched, out := map[kernel.StepRef]bool{}, []*kernel.Step(nil)
	duration := map[perdure.JobID]bool{} // jobs that have acquired their type's permit
	fresh := map[kernel.StepRef]bool{}   // steps that were not ready before this transaction
	newest := map[string]int{}           // by agent: how many of those were dispatched
	keep := func(s *kernel.Step) {
		if _, ready := o.ready[s.StepRef]; !ready && !touched[s.StepRef] {
			fresh[s.StepRef] = true
		}
		touched[s.StepRef] = true
		delete(o.ready, s.StepRef)
		if s.Phase == perdure.Ready {
			o.ready[s.StepRef] = *s
		}
	}
	for _, c := range t.saved {
		for i := range c.NewJobs {
			o.typ[c.NewJobs[i].Job.ID] = *c.NewJobs[i].Job
			for _, s := range c.NewJobs[i].Steps {
				keep(s)
				if s.Phase == perdure.Running {
					newest[s.Agent]++
				}
			}
		}
		for i := range c.Jobs {
			now, before := c.Jobs[i].Now, c.Jobs[i].Loaded
			o.typ[now.ID] = *now
			if now.HasPermit && !before.HasPermit {
				duration[now.ID] = true
			}
		}
		for i := range c.Steps {
			now, before := c.Steps[i].Now, c.Steps[i].Loaded
			keep(now)
			if now.Phase == perdure.Running && now.Run != before.Run {
				out = append(out, now)
				if fresh[now.StepRef] {
					newest[now.Agent]++
				} else {
					o.older[now.Agent] = w.Now
				}
				o.inFlight[kernel.AgentLimit(now.Agent)], o.inFlight[kernel.JobLimit(o.typ[now.Job].Type)] = w.Now, w.Now
			}
		}
	}
	for ref := range o.since {
		if s := o.ready[ref]; touched[ref] || len(out) > 0 && !w.hadRoom(&s, out, duration, t.now) {
			delete(o.since, ref)
		}
	}
	w.fairlyDispatched(n, t, out, touched, duration)
	for _, s := range out {
		most := newest[s.Agent]
		for _, other := range out {
			if other.Agent == s.Agent && !fresh[other.StepRef] {
				most++
			}
		}
		mayPass := fresh[s.StepRef] && newest[s.Agent] <= most-(most+15)/16
		w.passes(n, t, s, mayPass, out, touched, duration)
	}
}

// passes checks that no step of the agent that could have been dispatched in place of s comes before it. A search finds
// all ready steps except those of types whose limits were full at the last check, and a transaction that has made s
// ready itself may not know of others yet. Without faults, this does not last long. A step whose input takes more work
// than the transaction has left waits for its rendering. A step that the transaction has made ready itself may go before
// older ones of the same urgency (mayPass), as long as a sixteenth of its runs is for those, and such transactions
// occur.
func (w *world) passes(n *node, t *watchedTx, s *kernel.Step, mayPass bool, out []*kernel.Step, touched map[kernel.StepRef]bool, duration map[perdure.JobID]bool) {
	o := &w.order
	var passed []kernel.Step
	if w.goesByReservation(s) {
		return
	}
	for ref, other := range o.ready {
		if other.Agent == s.Agent && other.Needs.Share() == s.Needs.Share() && other.Needs.Demand() == s.Needs.Demand() && !touched[ref] && !t.skipped[ref.Job] && !w.postponedBy(t, ref) && before(&other, s) < 0 && w.hadRoom(&other, out, duration, t.now) {
			passed = append(passed, other)
		}
	}
	slices.SortFunc(passed, func(x, y kernel.Step) int { return before(&x, &y) })
	for i := range passed {
		other := &passed[i]
		first, known := o.since[other.StepRef]
		if !known {
			first = w.Now
			o.since[other.StepRef] = first
		}
		if asUrgent := s.Needs == "" && s.Ageing == 0 && other.Ageing == 0 && s.Priority >= other.Priority; asUrgent && (mayPass || !t.searchedFor(s.Agent)) && w.Now-o.older[s.Agent] <= slack {
			continue
		}
		job := o.typ[other.Job]
		if t.searchedFor(s.Agent) && (job.HasPermit && !duration[other.Job] || !o.before[kernel.JobLimit(job.Type)]) && !w.remembersFull(other) || w.faultsEnded && w.Now-max(first, w.healed) > slack {
			w.wrong("L5", "%s dispatches %s/%s (priority %d) and passes over %s/%s (priority %d), which is ready since %s", n.proc.Name,
				short(s.Job), s.Name, s.Priority, short(other.Job), other.Name, other.Priority, t.now.Sub(other.ReadyAt))
		}
	}
}

// shareOf names a share of an agent.
type shareOf struct{ agent, value string }

// maxWeight is the largest weight of shares in the simulation.
const maxWeight = 3

// mostPassed returns how many runs one other share may get while a share has a step that could be dispatched. The other one may
// be at the floor, which is one run of weight 1 behind, and goes first once more if both are equal.
func mostPassed(weight int) int { return 2*weight + 1 }

// fairlyDispatched checks that no share which has a step that could be dispatched is passed over by more runs of another share
// than their weights allow (L8). Only transactions that have searched for the agent count.
func (w *world) fairlyDispatched(n *node, t *watchedTx, out []*kernel.Step, touched map[kernel.StepRef]bool, duration map[perdure.JobID]bool) {
	o := &w.order
	runs := map[shareOf]int{}
	agents := map[string]bool{}
	for _, s := range out {
		runs[shareOf{s.Agent, s.Needs.Share()}]++
		agents[s.Agent] = true
	}
	for agent := range agents {
		if w.fairAgents[agent] == 0 {
			continue
		}
		open := map[shareOf]bool{}
		for ref, s := range o.ready {
			if s.Agent == agent && s.Needs.Demand() == "" && !touched[ref] && !t.skipped[ref.Job] && !w.postponedBy(t, ref) && w.hadRoom(&s, out, duration, t.now) && !w.remembersFull(&s) {
				open[shareOf{agent, s.Needs.Share()}] = true
			}
		}
		for share := range o.passed {
			if share.agent == agent && (!open[share] || runs[share] > 0) {
				delete(o.passed, share)
			}
		}
		if !t.searchedFor(agent) {
			continue
		}
		for share := range open {
			if runs[share] > 0 {
				continue
			}
			if o.passed[share] == nil {
				o.passed[share] = map[string]int{}
			}
			for other, count := range runs {
				if other.agent != agent {
					continue
				}
				if o.passed[share][other.value] += count; o.passed[share][other.value] > mostPassed(w.fairAgents[agent]) {
					w.wrong("L8", "%s dispatches %d runs of share %q of agent %s, one after the other, and passes over share %q", n.proc.Name, o.passed[share][other.value], other.value, agent, share.value)
				}
				w.hit("F331")
			}
		}
	}
}

// goesByReservation reports whether a run was dispatched because of a reservation, which goes before the order: the step may have
// reserved its host, or the host is reserved for another step, and gets only runs that end in time.
func (w *world) goesByReservation(s *kernel.Step) bool {
	name, _, ok := strings.Cut(strings.TrimPrefix(s.LockedBy, "host/"), "/")
	if s.Needs.Demand() == "" || !ok {
		return false
	}
	patience, g := perdure.DefaultPatience, w.swarm.grid
	if g.patience > 0 {
		patience = min(patience, g.patience)
	}
	if g.crowd != nil {
		patience = min(patience, g.crowd.patience)
	}
	h := w.hostRow(name)
	return s.StartedAt.Sub(s.ReadyAt) > patience || h != nil && !h.Reservation.Since.IsZero()
}

// remembersFull reports whether a node may remember one of the limits that a step names as full.
func (w *world) remembersFull(s *kernel.Step) bool {
	return slices.ContainsFunc(s.Needs.List(), func(n kernel.Need) bool { return w.order.before[n.Name] })
}

// hadRoom reports whether a ready step could have been dispatched before the steps after it in the order: its job's
// deadline has not passed, and its limits had free permits.
func (w *world) hadRoom(s *kernel.Step, out []*kernel.Step, duration map[perdure.JobID]bool, now time.Time) bool {
	job := w.order.typ[s.Job]
	if job.Desired == perdure.Done && !job.CompleteBy.IsZero() && !now.Before(job.CompleteBy) || !job.StartBy.IsZero() && !now.Before(job.StartBy) {
		return false
	}
	queuedLater := func(o *kernel.Step) bool { return o.Agent == s.Agent && before(s, o) < 0 }
	for _, n := range s.Needs.List() {
		if l, there := w.book.limits[n.Name]; there && !w.hadRoomFor(l, n, s, out, queuedLater) {
			return false
		}
	}
	name := kernel.JobLimit(job.Type)
	limit, limited := w.book.limits[name]
	if job.HasPermit || !limited {
		return true
	}
	used := len(w.book.held[name])
	for job := range duration {
		if w.order.typ[job].Type == w.order.typ[s.Job].Type && slices.ContainsFunc(out, func(o *kernel.Step) bool { return o.Job == job && queuedLater(o) }) {
			used--
		}
	}
	return used < limit.Max
}

// hadRoomFor reports this for one limit that the step names. Permits that later steps have acquired count as free. A
// step that needs more permits, and waits for them, lets no other step pass.
func (w *world) hadRoomFor(l kernel.Limit, n kernel.Need, s *kernel.Step, out []*kernel.Step, queuedLater func(*kernel.Step) bool) bool {
	if l.Rate.Bounds() { // it may have had none
		return false
	}
	used, ofKey := 0, 0
	for _, h := range w.book.held[n.Name] {
		used += h.Amount
		if h.Key == n.Key {
			ofKey += h.Amount
		}
	}
	for _, o := range out {
		for _, other := range o.Needs.List() {
			if other.Name != n.Name || !queuedLater(o) {
				continue
			}
			used -= other.Amount
			if other.Key == n.Key {
				ofKey -= other.Amount
			}
		}
	}
	for ref, o := range w.order.ready {
		if ref != s.StepRef && slices.ContainsFunc(o.Needs.List(), func(other kernel.Need) bool { return other.Name == n.Name && other.Amount > n.Amount }) {
			return false
		}
	}
	return w.firstInLine(s, n) && (l.Max == kernel.Unbounded || used+n.Amount <= l.Max) && (n.Key == "" || l.PerKey == kernel.Unbounded || ofKey+n.Amount <= l.PerKey)
}
