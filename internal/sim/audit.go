package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// checkPromptness checks that no due work is left for long (L2, L3).
func (w *world) checkPromptness() {
	w.checkNewsIsCounted()
	now := w.storeNow()
	for _, j := range w.known() {
		if j.Phase == perdure.Settled {
			continue
		}
		for _, s := range w.steps(j.ID) {
			switch {
			case s.Phase == perdure.Running && now.Sub(s.LockedUntil) > slack:
				w.wrong("L2", "%s/%s: run %d has been over since %s, and no due scan has found it", short(j.ID), s.Name, s.Run, now.Sub(s.LockedUntil))
			case s.Phase == perdure.Waiting && !s.AvailableAt.IsZero() && now.Sub(s.AvailableAt) > slack:
				w.wrong("L2", "%s/%s has been due since %s, and no due scan has found it", short(j.ID), s.Name, now.Sub(s.AvailableAt))
			case s.Phase == perdure.Ready && w.Now > recovered && w.dispatchDelay(j, s, now) > patienceFor(s):
				w.wrong("L3", "%s/%s has been ready since %s, and an agent has nothing to do (%s)", short(j.ID), s.Name, now.Sub(s.ReadyAt), s.Needs)
			case s.Phase == perdure.Ready && w.isKeptWaiting(j, s, now) && w.Now > recovered:
				w.wrong("G6", "%s/%s has been ready since %s, and the runs of the host that it has reserved have ended (%s)", short(j.ID), s.Name, now.Sub(s.ReadyAt), s.Needs)
			}
		}
	}
}

// patienceFor is how long a step may be ready while it could be dispatched. What is free of a host may be in the parts of
// several claims of its process, and then a step waits for their ends.
func patienceFor(s *kernel.Step) time.Duration {
	if s.Agent == kernel.AgentExec {
		return slack + 2*hostClaimWait
	}
	return slack
}

// dispatchDelay returns for how long a ready step could have been dispatched while neither it nor another step in its
// place was.
func (w *world) dispatchDelay(j *kernel.Job, s *kernel.Step, now time.Time) time.Duration {
	if !w.mayRun(j, s, now) {
		delete(w.order.lying, s.StepRef)
		return 0
	}
	first, known := w.order.lying[s.StepRef]
	if !known || first < max(w.order.inFlight[kernel.AgentLimit(s.Agent)], w.order.inFlight[kernel.JobLimit(j.Type)]) {
		first = w.Now
		w.order.lying[s.StepRef] = first
	}
	return w.Now - first
}

// recovery is the time within which every node works again, without help, after its store answers again (L4).
const recovery = 10 * time.Second

// checkNodesAnswer makes a claim at each node after the faults have ended: the node must search, and be able to answer that there
// is no work.
func (w *world) checkNodesAnswer() {
	for _, n := range w.nodes {
		if n.stopping {
			continue // the node was asked to stop
		}
		proc, answer := n.proc, errors.New("no answer")
		w.After(recovery-2*time.Second, proc, func() {
			proc.Go(func() {
				_, answer = n.real.Claim(n.life, protocol.Claim{Agent: "absent", Holder: "probe", Max: 1, Wait: time.Second})
			})
		})
		w.After(recovery, nil, func() {
			switch {
			case n.proc != proc || proc.Dead:
				w.wrong("L4", "%s did not live to work again", proc.Name)
			case answer != nil:
				w.wrong("L4", "%s says, %s after the last fault: %v", proc.Name, recovery, answer)
			case n.scanAnsweredAt < w.healed:
				w.wrong("L4", "%s has not looked for what is due since the last fault, for %s", proc.Name, recovery)
			}
		})
	}
}

// mayRun reports whether a ready step can be dispatched: an agent has a free slot, and the limits have free permits.
func (w *world) mayRun(j *kernel.Job, s *kernel.Step, now time.Time) bool {
	if at := j.OverdueAt(); !at.IsZero() && !now.Before(at) {
		return false
	}
	if !w.limitsFit(j, s) {
		return false
	}
	if s.Agent == kernel.AgentExec {
		return w.canTake(s)
	}
	for _, h := range w.everyHost() {
		if slices.Contains(h.agents, s.Agent) && h.busy[s.Agent] < h.slots {
			return true
		}
	}
	return false
}

// limitsFit reports whether the limits have free permits for a step.
func (w *world) limitsFit(j *kernel.Job, s *kernel.Step) bool {
	needs := append(s.Needs.List(), kernel.Need{LimitKey: kernel.LimitKey{Name: kernel.AgentLimit(s.Agent)}, Amount: 1})
	if !j.HasPermit {
		needs = append(needs, kernel.Need{LimitKey: kernel.LimitKey{Name: kernel.JobLimit(j.Type)}, Amount: 1})
	}
	all, err := w.inner.ListLimits(context.Background())
	w.must(err)
	for _, l := range all {
		for _, n := range needs {
			if n.Name == l.Name && (!w.limitFits(l, n, needs) || !w.firstInLine(s, n)) {
				return false
			}
		}
	}
	return true
}

// limitFits reports whether a limit has room for one of the needs of a step, and for all that the step needs of it.
func (w *world) limitFits(l kernel.Limit, n kernel.Need, needs []kernel.Need) bool {
	used, _, err := w.inner.LimitUse(context.Background(), kernel.LimitKey{Name: n.Name}, 1)
	for _, other := range needs {
		if other.Name == n.Name {
			used += other.Amount
		}
	}
	if err != nil || l.Max != kernel.Unbounded && used > l.Max || l.Rate.Bounds() || l.KeyRate.Bounds() { // a rate may have no room now
		return false
	}
	if n.Key == "" || l.PerKey == kernel.Unbounded {
		return true
	}
	used, _, err = w.inner.LimitUse(context.Background(), n.LimitKey, 1)
	return err == nil && used+n.Amount <= l.PerKey
}

// recovered is when hosts that have met errors have ended their pauses.
const recovered = chaos + 30*time.Second

// slack is the supervisor's period, a second, and what a round takes.
const slack = 3 * time.Second

// outputs checks that the stored output is the one that the latest do run has returned, or that an operator has set
// (I8).
func (w *world) outputs(j *kernel.Job, steps []*kernel.Step) {
	kept, err := w.inner.Payloads(context.Background(), j.ID, perdure.MaxPayloadBytes, 1<<30)
	w.must(err)
	out := map[int][]byte{}
	for _, p := range kept {
		out[p.Index] = p.Output
	}
	w.jobOutput(j)
	for _, s := range steps {
		if setsOwnOutput(w.plan(j.ID), s.Index) {
			continue
		}
		if want := w.book.at(j.ID, s.Name).output.json(); string(orNull(out[s.Index])) != want {
			w.wrong("I8", "%s/%s run %d: %s is kept, and %s was returned", short(j.ID), s.Name, s.Run, out[s.Index], want)
		}
	}
}

// audit is the final check: every accepted job has ended as it must, and so have its effects.
func (w *world) audit() {
	w.auditMail()
	w.auditSignals()
	w.auditHosts()
	w.auditSchedules()
	w.auditNotifications()
	jobs, now := w.known(), w.storeNow()
	stored := map[perdure.JobID]bool{}
	for _, j := range jobs {
		stored[j.ID] = true
		w.checkJob(j.ID, now)
		plan := w.plan(j.ID)
		if plan == nil || j.Hash != plan.Hash || j.Key != plan.Definition.Key {
			w.wrong("I1", "%s is not what was submitted", j.ID)
			continue
		}
		w.auditRuns(j.ID)
		w.auditOwners(j, w.steps(j.ID))
		if j.Phase == perdure.Settled && !j.GivenUp() {
			steps := w.steps(j.ID)
			w.ledger.audit(j, plan, steps)
			w.outputs(j, steps)
		}
		w.mix(uint64(j.Current), uint64(j.Desired), uint64(j.Phase))
	}
	for id, j := range w.book.jobs {
		if j.acked && !stored[id] {
			w.wrong("I1", "%s was acknowledged, and is not there", id)
		}
	}
	for _, h := range w.everyHost() {
		for _, a := range h.real.Stats() {
			if a.Busy+a.Unreported+a.Overdue > 0 {
				w.wrong("L7", "%s: all jobs are settled or parked, and of %s's %d slots %d are busy, %d unreported, %d overdue", h.holder, a.Agent, a.Slots, a.Busy, a.Unreported, a.Overdue)
			}
		}
	}
	limits, err := w.inner.ListLimits(context.Background())
	w.must(err)
	for _, l := range limits {
		if used, holders, err := w.inner.LimitUse(context.Background(), kernel.LimitKey{Name: l.Name}, 10); err != nil || used > 0 {
			w.wrong("I12", "%s: %d are held while all jobs are settled or parked, by %v (%v)", l.Name, used, holders, err)
		}
	}
	if store, ok := w.inner.(interface {
		Check(context.Context) ([]string, error)
	}); ok {
		faults, err := store.Check(context.Background())
		w.must(err)
		for _, f := range faults {
			w.wrong("check", "%s", f)
		}
	}
}
