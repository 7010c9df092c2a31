package sim

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// What must be true of hosts:
//
//	G1  no two living processes of one step whose runs' locks have not passed: commandStarted
//	G2  the demands of the runs in flight at a holder are never more than its capacity: hostsCommitted; nor are those of
//	    living commands: commandStarted
//	G3  an accepted done of exec has an exit record with code 0 of that run: checkExec
//	G4  no process of a run lives after the end of its lock: stillMayLive
//	G5  a host gets no run after its drain, and is empty after its deadline: checkExec, endDrains
//	G6  a command that takes much of a host is placed in time beside small ones: playCrowd; and a step that has reserved a host,
//	    when the runs that the host had have ended: isKeptWaiting
//
// G2 counts the runs that the host has. The store may have others for a while: those that never reach the host, because the
// process that sent the claim has died, or has had another answer to it; and those of which the host believes that their lock
// has ended, because the answer to a heartbeat was lost. Nothing runs for them.

// commandStarted checks a command that starts.
func (g *grid) commandStarted(p *osProcess, run *perdure.Run) {
	at, w := p.of, g.w
	if g.started[at]++; g.started[at] > 1 {
		w.wrong("F236", "the command of %s/%s run %d is started again, on %s", short(at.job), at.step, at.run, p.m.name)
	}
	demands := []kernel.Demand{kernel.DemandOf(requiresOf(run))}
	for other := range g.living {
		if other.of.job == at.job && other.of.step == at.step && other.of != at && !g.excused(other) && !w.clockForward && w.Now < g.locks[other.of].at {
			w.wrong("G1", "the command of %s/%s run %d starts on %s while a process of run %d lives on %s", short(at.job), at.step, at.run, p.m.name, other.of.run, other.m.name)
		}
		if other.m == p.m && other.leader && !g.excused(other) && g.requires[other.of] != "" {
			demands = append(demands, g.requires[other.of])
		}
	}
	g.requires[at] = demands[0]
	for name, n := range kernel.UsedBy(demands) {
		if n > p.m.capacity[name] {
			w.wrong("G2", "the commands on %s take %d of %s, and it has %d", p.m.name, n, name, p.m.capacity[name])
		}
	}
	g.living[p] = true
}

func requiresOf(run *perdure.Run) *perdure.Requires {
	if run.Requires != nil {
		return run.Requires
	}
	return &perdure.Requires{}
}

// excused reports whether a process may outlive its run: its machine has stood still, or its keeper was killed, and it has
// left the group, has changed its environment, and there is no cgroup; or its keeper hangs, and no host agent was there to
// kill it in time.
func (g *grid) excused(p *osProcess) bool {
	since, hung := g.hung[p.of]
	return p.m.everAsleep || g.orphans[p] || hung && !g.notices(p, since)
}

// noticeTime is how long before the end of a lock a keeper must begin to hang, so that it is noticed in time: it has to answer for the
// last time 200 ms before the end that it knows, which is before that of the lock.
const noticeTime = 400 * time.Millisecond

// notices reports whether a host agent has had enough time to notice that the keeper of a process has begun to hang.
func (g *grid) notices(p *osProcess, since time.Duration) bool {
	agent, end := p.m.agent.proc, g.locks[p.of].at
	return !agent.Dead && !agent.Frozen && !p.m.off && p.m.watched+10*time.Second < end && since+noticeTime < end
}

// processEnded checks that a process has ended in time.
func (g *grid) processEnded(p *osProcess) {
	if g.living[p] {
		g.stillMayLive(p)
	}
	delete(g.living, p)
	delete(g.orphans, p)
}

// stillMayLive checks that the lock of a process's run has not ended (G4).
func (g *grid) stillMayLive(p *osProcess) {
	if end, known := g.locks[p.of]; known && g.w.Now > end.at && !g.excused(p) {
		g.w.wrong("G4", "process %d of %s/%s run %d lives on %s, and its lock ended %s ago", p.pid, short(p.of.job), p.of.step, p.of.run, p.m.name, g.w.Now-end.at)
	}
}

// recorded notes an exit record.
func (g *grid) recorded(d *runDir) {
	code := d.exit.Exit
	if d.exit.Signal != "" || d.exit.Cause != "" {
		code = -1
	}
	g.exits[handleOf(&d.run)] = code
}

// traceless reports whether nothing is left of a run of a host: no process, and no directory of which anything is to be reported.
func (g *grid) traceless(m *machine, at handle) bool {
	if d := m.dirs[at]; d != nil && !d.reported {
		return false
	}
	for p := range g.living {
		if p.of == at {
			return false
		}
	}
	return true
}

// has reports whether a host has a run.
func (g *grid) has(m *machine, at handle) bool {
	if m.real.Left(&perdure.Run{Job: at.job, Step: at.step, Number: at.run}) > 0 {
		return true
	}
	for p := range g.living {
		if p.of == at && !g.orphans[p] {
			return true
		}
	}
	return false
}

// checkExec checks the change of a step that a host runs (G3, G5), and notes the end of its lock, and the machines.
func (w *world) checkExec(ch *kernel.StepChange, t *watchedTx, touched map[*machine]bool) {
	after, before := ch.Now, ch.Loaded
	for _, s := range []*kernel.Step{after, before} {
		if m := w.grid.holders[s.LockedBy]; m != nil {
			touched[m] = true
		}
	}
	if before.Phase == perdure.Running && w.grid.holders[before.LockedBy] != nil && after.Phase != perdure.Running && after.Outcome == perdure.OutcomeDone && after.Run == before.Run {
		if code, ended := w.grid.exits[handle{before.Job, before.Name, before.Run}]; !ended || code != 0 {
			w.wrong("G3", "%s/%s: run %d is done, and has no exit record with code 0 (%v, %d)", short(before.Job), before.Name, before.Run, ended, code)
		}
	}
	m := w.grid.holders[after.LockedBy]
	if after.Phase != perdure.Running || m == nil {
		return
	}
	if after.Run != before.Run || !after.LockedUntil.Equal(before.LockedUntil) {
		w.grid.locks[handle{after.Job, after.Name, after.Run}] = lockEnd{t.nowAt + after.LockedUntil.Sub(t.now)}
	}
	if after.Run != before.Run {
		h := w.hostRow(m.name)
		if h == nil || h.Draining {
			w.wrong("G5", "%s/%s: run %d is dispatched to %s, which is drained", short(after.Job), after.Name, after.Run, m.name)
		}
	}
}

// hostsCommitted checks that no host is overbooked (G2).
func (w *world) hostsCommitted(touched map[*machine]bool) {
	for _, m := range w.grid.machines {
		if !touched[m] {
			continue
		}
		for _, holder := range m.holders() {
			runs, err := w.inner.HostRuns(context.Background(), holder, perdure.MaxHostRuns)
			w.must(err)
			var demands []kernel.Demand
			for i := range runs {
				at := handle{runs[i].Job, runs[i].Name, runs[i].Run}
				if w.grid.has(m, at) {
					demands = append(demands, runs[i].Needs.Demand())
				}
			}
			for name, n := range kernel.UsedBy(demands) {
				if n > m.capacity[name] {
					w.wrong("G2", "the runs in flight of %s take %d of %s, and it has %d", holder, n, name, m.capacity[name])
				}
			}
		}
	}
}

// lookAtHosts is an operator who looks at the hosts, and at why steps wait.
func (w *world) lookAtHosts() {
	_, _ = ask(context.Background(), w, w.clients, callGet, func(ctx context.Context, n *node) (bool, error) {
		w.checkHostViews(ctx, n)
		return true, nil
	})
}

// checkHostViews compares the list of hosts with the store.
func (w *world) checkHostViews(ctx context.Context, n *node) {
	before, asked := w.commits, w.storeNow()
	page, err := n.real.ListHosts(ctx, operate.HostQuery{Limit: perdure.MaxListLimit})
	if err != nil || w.commits != before {
		return
	}
	for i := range page.Items {
		v := &page.Items[i]
		h := w.hostRow(v.Name)
		runs, err := w.inner.HostRuns(context.Background(), h.Holder(), perdure.MaxHostRuns)
		w.must(err)
		want := h.StateAt(w.storeNow(), len(runs))
		if v.Runs != len(runs) || v.State != want && v.State != h.StateAt(asked, len(runs)) { // it may have become silent meanwhile
			w.wrong("hosts", "%s is shown as %s with %d runs, and is %s with %d", v.Name, v.State, v.Runs, want, len(runs))
		}
	}
}

// hostRow returns the row of a host; nil if there is none.
func (w *world) hostRow(name string) *kernel.Host {
	h, err := w.inner.Host(context.Background(), name)
	w.must(err)
	return h
}

// anySilent reports whether a host that lives is silent.
func (w *world) anySilent() bool {
	for _, m := range w.grid.machines {
		h := w.hostRow(m.name)
		if h != nil && !m.gone && h.Silent(w.storeNow()) {
			return true
		}
	}
	return false
}

// auditHosts checks the hosts after all jobs have ended: those that live are ready and empty, those that were lost are
// silent, and nothing runs.
func (w *world) auditHosts() {
	if w.swarm.grid == nil {
		return
	}
	for p := range w.grid.living {
		found := p.marked || p.m.cgroups // by the host agent, if it has the directory of the run
		if !w.grid.orphans[p] || found && p.m.incarnation == 1 && !p.m.gone {
			w.wrong("G4", "all jobs are settled or parked, and process %d of %s/%s run %d lives on %s", p.pid, short(p.of.job), p.of.step, p.of.run, p.m.name)
		}
	}
	if w.anySilent() { // its registration may be at a node that was killed
		w.runUntil(w.Now + hostClaimWait + 20*time.Second)
	}
	now := w.storeNow()
	for _, m := range w.grid.machines {
		h := w.hostRow(m.name)
		if h == nil {
			continue // it never reached a node
		}
		runs, err := w.inner.HostRuns(context.Background(), h.Holder(), 1)
		w.must(err)
		want := operate.HostReady
		if m.gone {
			want = operate.HostSilent
		}
		if state := h.StateAt(now, len(runs)); state != want || len(runs) > 0 {
			w.wrong("hosts", "all jobs are settled or parked, and %s is %s, not %s, with %d runs", m.name, state, want, len(runs))
		}
		if m.gone {
			continue
		}
		for _, a := range m.real.Stats() {
			if a.Busy+a.Unreported+a.Overdue > 0 {
				w.wrong("L7", "%s: all jobs are settled or parked, and of %s's slots %d are busy, %d unreported, %d overdue", m.holder(), a.Agent, a.Busy, a.Unreported, a.Overdue)
			}
		}
		for at, d := range m.dirs {
			if !d.reported {
				w.wrong("hosts", "%s keeps the directory of %s/%s run %d, of which nothing is to be reported", m.name, short(at.job), at.step, at.run)
			}
		}
	}
}

// reservation returns the step for which a host is reserved; nil if it is not.
func (w *world) reservation(h *kernel.Host, now time.Time) *kernel.Step {
	if h.Reservation.Since.IsZero() {
		return nil
	}
	for _, s := range w.steps(h.Reservation.Job) {
		if s.StepRef == h.Reservation.StepRef && h.Reserves(s, now) {
			return s
		}
	}
	return nil
}

// isKeptWaiting reports whether a ready step has reserved a host, and was not dispatched there when the runs that the host
// had then must have ended. All runs that it got since must have ended before, or leave room.
func (w *world) isKeptWaiting(j *kernel.Job, s *kernel.Step, now time.Time) bool {
	if w.swarm.grid == nil || s.Agent != kernel.AgentExec || !j.CompleteBy.IsZero() && !now.Before(j.CompleteBy) || !w.limitsFit(j, s) {
		return false
	}
	for _, m := range w.grid.machines {
		h := w.hostRow(m.name)
		if h == nil || m.off || m.asleep || h.Reservation.StepRef != s.StepRef || !h.Reserves(s, now) {
			continue
		}
		at := reservedAt{m.name, h.Reservation.Since.UnixNano()}
		room, known := w.grid.room[at]
		if !known {
			w.hit("F178")
			room = now
			runs, err := w.inner.HostRuns(context.Background(), h.Holder(), perdure.MaxHostRuns)
			w.must(err)
			for i := range runs {
				for _, running := range w.steps(runs[i].Job) {
					if running.StepRef == runs[i].StepRef && running.CompleteBy.After(room) {
						room = running.CompleteBy
					}
				}
			}
			w.grid.room[at] = room
		}
		if now.Sub(room) > patienceFor(s) {
			return true
		}
	}
	return false
}

// canTake reports whether a host that lives has room for a step, and is not reserved for another one.
func (w *world) canTake(s *kernel.Step) bool {
	d := s.Needs.Demand()
	if w.swarm.grid == nil {
		return false
	}
	for _, m := range w.grid.machines {
		h := w.hostRow(m.name)
		if h == nil || m.off || h.Draining || h.Silent(w.storeNow()) {
			continue
		}
		if other := w.reservation(h, w.storeNow()); other != nil && other.StepRef != s.StepRef {
			continue
		}
		runs, err := w.inner.HostRuns(context.Background(), h.Holder(), perdure.MaxHostRuns)
		w.must(err)
		free := perdure.Amounts{}
		for name, n := range m.capacity {
			free[name] = n
		}
		for i := range runs {
			free = kernel.Take(free, runs[i].Needs.Demand().Requires())
		}
		if kernel.Fits(h, free, d.Requires()) {
			return true
		}
	}
	return false
}

// holderHasNot reports whether the holder of a run does not carry it out any more, or never has: its process is dead, or
// nothing is left of the run on its machine.
func (w *world) holderHasNot(s *kernel.Step) bool {
	if m := w.grid.holders[s.LockedBy]; m != nil {
		return w.grid.traceless(m, handle{s.Job, s.Name, s.Run})
	}
	return !w.book.alive[s.LockedBy]
}

// cutOff reports whether a process is of a machine that is cut off from the nodes.
func (g *grid) cutOff(p *process) bool {
	for _, m := range g.machines {
		if m.cutOff && m.agent.proc == p {
			return true
		}
	}
	return false
}
