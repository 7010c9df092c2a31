package sim

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// startFault starts a fault of the swarm.
func (w *world) startFault(m plannedFault) {
	if w.faultsEnded {
		return
	}
	w.logLine("%s", m)
	n := w.nodes[m.who%len(w.nodes)]
	h := w.anyHost(m.who)
	switch m.kind {
	case "kill node":
		if !n.proc.Dead {
			n.crash()
		}
	case "stop node":
		n.stop()
	case "kill node before", "kill node inside", "kill node after":
		n.link.doom = m.kind[len("kill node "):]
	case "freeze node", "suspend node":
		if n.sweeping {
			w.hit("F073")
		}
		w.hit("F082")
		w.freezeFor(n.proc, m.kind == "suspend node", m.long)
	case "freeze node after":
		n.link.doom = "freeze"
	case "cut node off store":
		n.cutOff(m.long)
	case "store away":
		for _, n := range w.nodes {
			n.cutOff(m.long)
		}
	case "clock forward":
		w.hit("F080")
		w.clockDisturbed, w.clockForward = true, true
		w.clockOffset += m.long
	case "clock back":
		w.jumpClockBack(m.long)
	case "node clock":
		w.hit("F122")
		n.proc.WallError += m.long*100 - 20*time.Minute
	default:
		if h != nil {
			w.startHostFault(m, h)
		}
	}
}

// cutOff cuts a node off from the store. A report that was sent in time may then be processed late.
func (n *node) cutOff(long time.Duration) {
	link := n.link
	link.cut, n.w.clockDisturbed = true, true
	n.w.After(long, nil, func() { link.cut = false })
}

func (w *world) startHostFault(m plannedFault, h *host) {
	p := h.proc
	switch m.kind {
	case "kill host":
		if !p.Dead {
			if h.working() {
				w.hit("F134")
			}
			h.crash()
		}
	case "drain host":
		if !p.Dead && h.in == nil {
			h.drain()
			if m.who%3 == 0 { // and not in time, for a caller that waits for it
				w.After(w.upTo(time.Second), nil, func() {
					if !p.Dead {
						w.hit("F118")
						h.crash()
					}
				})
			}
		}
	case "freeze host", "suspend host":
		if h.working() {
			w.hit("F038")
		}
		if m.kind == "suspend host" {
			w.hit("F039")
		}
		w.hit("F023")
		w.freezeFor(p, m.kind == "suspend host", m.long)
	case "cut host off nodes":
		w.cutOff[p] = true
		w.After(m.long, nil, func() { delete(w.cutOff, p) })
	case "cut host off resource":
		w.resourceCutOff[p] = true
		w.After(m.long, nil, func() { delete(w.resourceCutOff, p) })
	case "host clock":
		w.hit("F122")
		p.WallError += m.long*100 - 20*time.Minute
	}
}

func (w *world) anyHost(choice int) *host {
	if len(w.hosts) > 0 {
		return w.hosts[choice%len(w.hosts)]
	}
	return w.nodes[0].host
}

func (w *world) everyHost() (all []*host) {
	all = append(all, w.hosts...)
	for _, n := range w.nodes {
		if n.host != nil {
			all = append(all, n.host)
		}
	}
	return all
}

func (w *world) freezeFor(p *process, suspend bool, d time.Duration) {
	w.logLine("%s stands still", p.Name)
	w.clockDisturbed = true
	w.Freeze(p, suspend)
	w.After(d, nil, func() {
		w.logLine("%s goes on", p.Name)
		w.Thaw(p)
	})
}

// jumpClockBack sets the store's wall clock back: the store's time must not run back (F081).
func (w *world) jumpClockBack(d time.Duration) {
	w.hit("F081")
	w.clockDisturbed = true
	w.clockOffset -= d
	w.storeNow()
}

// countCrash counts the rows of the matrix that the crash of a node may be an instance of.
func (n *node) countCrash() {
	w := n.w
	w.logLine("%s is killed", n.proc.Name)
	switch n.link.doom {
	case "before":
		w.hit("F004", "F061")
	case "after":
		w.hit("F007", "F064")
	}
	if n.sweeping {
		w.hit("F070")
	}
	if len(n.leads) > 0 {
		w.hit("F076")
	}
	for _, j := range w.known() {
		if j.Phase == perdure.Settled {
			continue
		}
		if j.Desired == perdure.Undone {
			w.hit("F088")
		}
		for _, s := range w.steps(j.ID) {
			if s.Phase == perdure.Ready {
				w.hit("F017")
			}
		}
	}
}

// countUnknownCommit counts the rows of the matrix that a commit with a lost answer may be an instance of.
func (w *world) countUnknownCommit(t *watchedTx) {
	w.hit("F115")
	if t == nil {
		return
	}
	for _, c := range t.saved {
		if len(c.NewJobs) > 0 {
			w.hit("F006")
		}
		w.countPreventedChildren(c)
		for i := range c.Steps {
			if before := c.Steps[i].Loaded; before.Phase == perdure.Running && c.Steps[i].Now.Run == before.Run {
				w.hit("F063")
			}
		}
	}
}

// heal ends all faults: dead processes start, connections work again, and all agents behave.
func (w *world) heal() {
	w.logLine("the faults end")
	w.faultsEnded, w.healed = true, w.Now
	w.weather = weather{}
	clear(w.cutOff)
	clear(w.resourceCutOff)
	for _, n := range w.nodes {
		n.link.cut, n.link.doom = false, ""
		n.link.faulty.StopFaults()
		w.Thaw(n.proc)
		if n.proc.Dead {
			n.boot()
		}
	}
	for _, h := range w.hosts {
		w.Thaw(h.proc)
		if h.proc.Dead {
			h.run()
		}
	}
	w.healMachines()
	w.checkNodesAnswer()
	lateHost := w.newHost(nil)
	lateHost.agents = []string{lateAgent, agentNames[0], agentNames[1]}
	lateHost.run()
	limits, err := w.inner.ListLimits(context.Background())
	w.must(err)
	for _, l := range limits {
		kind, _, _ := kernel.SplitLimit(l.Name)
		if kind == kernel.LimitOfJobs && w.swarm.children { // parents may hold permits that their children wait for (F344)
			w.clients.Go(func() { w.deleteLimit(l.Name) })
			continue
		}
		w.clients.Go(func() { w.setLimit(l.Name, maxAmount+sizeOf(l)) })
	}
	w.Settle(w.clients)
}

// working reports whether a handler is running.
func (h *host) working() bool {
	for _, n := range h.busy {
		if n > 0 {
			return true
		}
	}
	return false
}
