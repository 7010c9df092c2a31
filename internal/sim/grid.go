package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// gridSwarm is the part of the swarm with hosts (machines). Most seeds have none.
type gridSwarm struct {
	machines []plannedMachine
	share    float64 // of the steps that are commands on hosts
	moody    bool    // commands fail, hang, ignore TERM and leave daemons; host agents die at any place
	faults   []plannedFault
	looks    []time.Duration // when an operator looks at the hosts
	patience time.Duration   // of commands; 0: the default
	crowd    *crowd          // nil: none comes
}

type plannedMachine struct {
	zone, grid string
	slots, cpu int64 // cpu in whole ones
	gpu        int64
	cgroups    bool
	heartbeat  time.Duration
	stopWithin time.Duration
}

var machineFaults = []string{"kill host agent", "kill host agent", "host agent down", "stop host agent", "kill keeper", "kill keeper and agent", "freeze keeper", "freeze keeper and kill agent", "power cut", "freeze host agent",
	"suspend machine", "cut machine off", "disk full", "drain machine", "drain machine", "remove machine", "lose machine", "lose state", "two of one name"}

// drawGrid draws the hosts of a seed, and what goes wrong with them.
func (s *swarm) drawGrid(r *rand.Rand, c *Config) {
	if r.IntN(3) > 0 && !c.Hosts || s.alone || c.Only != nil || slices.Contains(c.Without, "grid") {
		return
	}
	g := &gridSwarm{share: 0.3 + 0.6*r.Float64(), moody: r.IntN(3) > 0}
	for range 1 + r.IntN(3) {
		m := plannedMachine{zone: []string{"a", "b"}[r.IntN(2)], slots: 1 + r.Int64N(3), cpu: 1 + r.Int64N(4), gpu: max(r.Int64N(5)-3, 0), cgroups: r.IntN(2) == 0,
			heartbeat: []time.Duration{3 * time.Second, 6 * time.Second}[r.IntN(2)], stopWithin: time.Duration(100+r.IntN(1200)) * time.Millisecond}
		if r.IntN(3) == 0 {
			m.grid = "far"
		}
		g.machines = append(g.machines, m)
	}
	kinds := slices.DeleteFunc(slices.Clone(machineFaults), func(string) bool { return r.IntN(2) == 0 })
	for i := range r.IntN(7) * min(len(kinds), 1) {
		g.faults = append(g.faults, plannedFault{name: fmt.Sprintf("g%d", i), at: time.Duration(r.Int64N(int64(chaos))), kind: kinds[r.IntN(len(kinds))], who: r.IntN(100),
			long: time.Duration(r.Int64N(int64(20 * time.Second)))})
	}
	for range r.IntN(4) {
		g.looks = append(g.looks, 5*time.Second+time.Duration(r.Int64N(int64(chaos))))
	}
	g.faults = slices.DeleteFunc(g.faults, func(m plannedFault) bool { return slices.Contains(c.Without, m.name) })
	g.moody = g.moody && !slices.Contains(c.Without, "moods")
	g.patience = []time.Duration{0, time.Second, 5 * time.Second}[r.IntN(3)]
	if g.crowd = drawCrowd(r); slices.Contains(c.Without, "crowd") {
		g.crowd = nil
	}
	s.grid = g
}

func (g *gridSwarm) write(b *strings.Builder) {
	if g == nil {
		return
	}
	fmt.Fprintf(b, "\n  %.2f of the steps are commands, moods %v, patience %s, on", g.share, g.moody, g.patience)
	for i, m := range g.machines {
		fmt.Fprintf(b, "\n    m%d: %+v", i+1, m)
	}
	for _, m := range g.faults {
		fmt.Fprintf(b, "\n  %s", m)
	}
	g.crowd.write(b)
}

// placeStep makes a step a command on a host, by chance, and draws what it requires of the host.
func (w *world) placeStep(step map[string]any, drawn *recipe) {
	type object = map[string]any
	r := w.placing
	if w.swarm.grid == nil || step["agent"] == lateAgent || r.Float64() >= w.swarm.grid.share {
		return
	}
	step["agent"] = kernel.AgentExec
	drawn.do = asCommand(drawn.do)
	step["with"] = with(drawn.do)
	if undo, is := step["undo"].(object); is && undo["agent"] == nil {
		drawn.undo = asCommand(drawn.undo)
		step["undo"] = object{"with": with(drawn.undo)}
	}
	requires, labels := object{}, object{}
	switch r.IntN(6) {
	case 0:
		requires["cpu"] = float64(1+r.IntN(4)) / 2
	case 1:
		requires["cpu"], requires["slots"] = 1, 1
	case 2:
		requires["slots"] = 1 + r.IntN(2)
	case 3:
		requires["memory"] = "1GiB"
	}
	switch r.IntN(8) {
	case 0, 1:
		labels["zone"] = []string{"a", "b"}[r.IntN(2)]
	case 2:
		labels["zone"] = "*"
	case 3:
		requires["gpu"] = 1
	}
	switch r.IntN(30) {
	case 0:
		labels["late"] = "*" // only of hosts that come after the faults
	case 1, 2:
		requires["grid"] = "far"
	}
	if len(labels) > 0 {
		requires["labels"] = labels
	}
	if len(requires) > 0 {
		step["requires"] = requires
	}
	if r.IntN(3) == 0 {
		step["prefers"] = object{"labels": object{"zone": []string{"a", "b"}[r.IntN(2)]}}
	}
	if r.IntN(3) == 0 {
		step["place"] = []string{"pack", "spread"}[r.IntN(2)]
	}
}

// grid has the machines, and what is known of their runs.
type grid struct {
	w        *world
	machines []*machine
	holders  map[string]*machine
	started  map[handle]int      // commands
	exits    map[handle]int      // exit records: 0 of a command that has ended by itself with code 0, else another number
	locks    map[handle]lockEnd  // of runs on hosts
	living   map[*osProcess]bool // of runs
	orphans  map[*osProcess]bool // what keepers that were killed have left
	requires map[handle]kernel.Demand
	drained  map[string]time.Duration // hosts that are drained: until when their runs may go on
	hung     map[handle]time.Duration // runs whose keepers have stood still, and since when
	room     map[reservedAt]time.Time // when a reserved host has room at the latest
}

// reservedAt is a reservation of a host.
type reservedAt struct {
	host string
	at   int64
}

// lockEnd is the end of a run's lock, in the time of the simulation, which no clock's jump changes.
type lockEnd struct{ at time.Duration }

func newGrid(w *world) *grid {
	return &grid{w: w, holders: map[string]*machine{}, started: map[handle]int{}, exits: map[handle]int{}, locks: map[handle]lockEnd{}, hung: map[handle]time.Duration{}, living: map[*osProcess]bool{},
		orphans: map[*osProcess]bool{}, requires: map[handle]kernel.Demand{}, drained: map[string]time.Duration{}, room: map[reservedAt]time.Time{}}
}

// startMachines starts the machines of the swarm.
func (w *world) startMachines() {
	if w.swarm.grid == nil {
		return
	}
	for i, p := range w.swarm.grid.machines {
		labels := map[string]string{"zone": p.zone}
		w.startMachine(fmt.Sprintf("m%d", i+1), p, labels)
	}
	if w.swarm.grid.patience > 0 {
		w.After(3*time.Second, w.clients, func() { w.clients.Go(func() { w.setAgeing(kernel.AgentExec, perdure.DefaultAgeing) }) })
	}
	for _, at := range w.swarm.grid.looks {
		w.After(at, w.clients, func() { w.clients.Go(w.lookAtHosts) })
	}
	for _, m := range w.swarm.grid.faults {
		w.After(m.at, nil, func() { w.startMachineFault(m) })
	}
}

func (w *world) startMachine(name string, p plannedMachine, labels map[string]string) {
	capacity := perdure.Amounts{"slots": p.slots, "cpu": p.cpu * 1000, "memory": p.cpu << 30}
	if p.gpu > 0 {
		capacity["gpu"] = p.gpu
	}
	m := &machine{w: w, id: len(w.grid.machines), name: name, grid: p.grid, labels: labels, capacity: capacity, cgroups: p.cgroups, heartbeat: p.heartbeat, stopWithin: p.stopWithin,
		processes: map[int]*osProcess{}, dirs: map[handle]*runDir{}, incarnation: 1}
	w.grid.machines = append(w.grid.machines, m)
	m.start()
}

// startMachineFault starts a fault of a machine.
func (w *world) startMachineFault(f plannedFault) {
	m := w.grid.machines[f.who%len(w.swarm.grid.machines)]
	if w.faultsEnded || m.off || m.asleep {
		return
	}
	w.logLine("%s", f)
	short := 100*time.Millisecond + w.upTo(5*time.Second)
	switch f.kind {
	case "kill host agent":
		m.killAgent(short)
	case "host agent down": // perhaps beyond the locks
		w.hit("F231")
		m.killAgent(m.heartbeat/2 + f.long)
	case "stop host agent":
		m.end()
	case "kill keeper", "kill keeper and agent":
		for _, at := range (stateDir{m}).inOrder() {
			if k := m.dirs[at].process; k != nil {
				m.killKeeper(k)
				break
			}
		}
		if f.kind != "kill keeper" {
			m.killAgent(short)
		}
	case "freeze keeper", "freeze keeper and kill agent":
		for _, at := range (stateDir{m}).inOrder() {
			if k := m.dirs[at].process; k != nil {
				k.hangs(f.long)
				break
			}
		}
		if f.kind != "freeze keeper" {
			m.killAgent(short)
		}
	case "power cut":
		m.reboot(short)
	case "freeze host agent":
		agent := m.agent.proc
		w.freezeFor(agent, false, f.long)
		w.After(f.long, nil, func() {
			if m.agent.proc == agent {
				m.watched = w.Now
			}
		})
	case "suspend machine":
		m.suspend(f.long)
	case "cut machine off":
		w.hit("F239")
		m.cutOff = true
		w.After(f.long, nil, func() { m.cutOff = false })
	case "disk full":
		m.full = true
		w.After(f.long, nil, func() { m.full = false })
	case "drain machine":
		w.hit("F175")
		w.clients.Go(func() { w.drainMachine(m, f.long/2) })
		w.Settle(w.clients)
	case "remove machine":
		w.clients.Go(func() {
			w.drainMachine(m, f.long/2)
			w.removeMachine(m, f.long)
		})
		w.Settle(w.clients)
	case "lose machine":
		if len(w.grid.machines) > 1 {
			w.logLine("%s is lost", m.name)
			w.hit("F205")
			m.gone = true
			m.stops()
		}
	case "lose state": // the keepers go on; nothing extends their locks
		w.hit("F206")
		w.Crash(m.agent.proc)
		m.dirs = map[handle]*runDir{}
		m.incarnation++
		w.After(short, nil, m.restartAgent)
	case "two of one name":
		w.clients.Go(func() { w.registerTwice(m) })
		w.Settle(w.clients)
	}
}

// registerTwice is another process that registers the name of a host (F176).
func (w *world) registerTwice(m *machine) {
	_, err := ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (bool, error) {
		was := w.hostRow(m.name)
		_, err := n.real.RegisterHost(ctx, operate.HostRequest{Name: m.name, HostSettings: operate.HostSettings{Incarnation: "other", Capacity: perdure.Amounts{"slots": 1}, Heartbeat: perdure.Duration(time.Second)}})
		if err == nil && was != nil && was.Incarnation != "other" && !was.Silent(w.storeNow()) { // not by an earlier try, whose answer was lost
			w.wrong("F176", "%s is registered by another process, although it was seen %s ago", m.name, w.storeNow().Sub(was.SeenAt))
		}
		if perdure.CodeOf(err) == perdure.CodeConflict {
			w.hit("F176")
		}
		return true, err
	})
	w.logLine("another process registers %s: %v", m.name, err)
}

// drainMachine drains a host.
func (w *world) drainMachine(m *machine, deadline time.Duration) {
	_, err := ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (bool, error) {
		_, err := n.real.DrainHost(ctx, operate.HostDrain{Name: m.name, Deadline: deadline, Author: operator})
		return true, err
	})
	w.logLine("drain of %s within %s: %v", m.name, deadline, err)
}

// removeMachine removes a host when it is drained (F266). Its process ends, and registers the host again when it is started again.
func (w *world) removeMachine(m *machine, within time.Duration) {
	for end := w.Now + within; w.Now < end && !w.faultsEnded; w.clients.Wait(context.Background(), time.Second, nil) {
		_, err := ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (bool, error) {
			before, holder := w.commits, m.holder()
			err := n.real.DeleteHost(ctx, m.name, operator)
			if err != nil || w.commits != before+1 {
				return true, err
			}
			runs, err := w.inner.HostRuns(context.Background(), holder, 1)
			w.must(err)
			if len(runs) > 0 {
				w.wrong("F266", "%s is removed, and has %s run %d", m.name, runs[0].Name, runs[0].Run)
			}
			w.hit("F266")
			return true, nil
		})
		if w.logLine("removal of %s: %v", m.name, err); err == nil || perdure.CodeOf(err) == perdure.CodeNotFound {
			return
		}
	}
}

func (m *machine) suspend(d time.Duration) {
	w := m.w
	w.logLine("%s is suspended", m.name)
	m.asleep, m.everAsleep, w.clockDisturbed = true, true, true
	frozen := []*process{m.agent.proc}
	for _, p := range m.inOrder() {
		frozen = append(frozen, p.proc)
	}
	for _, p := range frozen {
		w.Freeze(p, true)
	}
	w.After(d, nil, func() {
		w.logLine("%s wakes up", m.name)
		m.asleep = false
		for _, p := range frozen {
			w.Thaw(p)
		}
	})
}

// healMachines ends all faults of machines. Two more hosts start, which together have what any step requires.
func (w *world) healMachines() {
	if w.swarm.grid == nil {
		return
	}
	for _, m := range w.grid.machines {
		m.cutOff, m.full = false, false
		if !m.asleep {
			w.Thaw(m.agent.proc)
		}
		if m.off && !m.gone {
			m.start()
		}
	}
	for i, zone := range []string{"a", "b"} {
		w.startMachine(fmt.Sprintf("late%d", i+1), plannedMachine{zone: zone, grid: "far", slots: 4, cpu: 4, gpu: 2, cgroups: true, heartbeat: 6 * time.Second, stopWithin: time.Second},
			map[string]string{"zone": zone, "late": "1"})
	}
	for i := range 10 { // an operator's drain may still be on its way
		w.After(w.drainBound()+time.Duration(i)*10*time.Second, w.clients, func() { w.clients.Go(w.endDrains) })
	}
}

// drainBound is how long a drained host may have runs after its deadline and without faults: until its process knows of the
// drain, the runs get TERM and KILL, and their reports are answered.
func (w *world) drainBound() time.Duration {
	bound := time.Duration(0)
	for _, m := range w.grid.machines {
		bound = max(bound, 2*m.heartbeat+m.stopWithin)
	}
	return bound + recovery + slack
}

// endDrains checks that hosts whose drain is over are empty (G5), and makes them ready.
func (w *world) endDrains() {
	for _, m := range w.grid.machines {
		h := w.hostRow(m.name)
		if h == nil || !h.Draining {
			continue
		}
		if now := w.storeNow(); now.Sub(h.DrainBy) > w.drainBound() && !w.clockDisturbed {
			runs, err := w.inner.HostRuns(context.Background(), h.Holder(), 10)
			w.must(err)
			if len(runs) > 0 && !m.gone {
				w.wrong("G5", "%s was to be empty %s ago, and has %s run %d", m.name, now.Sub(h.DrainBy), runs[0].Name, runs[0].Run)
			}
		}
		for range 20 {
			ctx, cancel := env.WithTimeout(w.clients, context.Background(), 5*time.Second)
			_, err := ask(ctx, w, w.clients, callAct, func(ctx context.Context, n *node) (bool, error) {
				_, err := n.real.ReadyHost(ctx, m.name, operator)
				return true, err
			})
			cancel()
			if err == nil {
				break
			}
			w.clients.Wait(context.Background(), time.Second, nil)
		}
		w.logLine("%s is made ready", m.name)
	}
}

// drainsOpen returns the number of hosts that are drained.
func (w *world) drainsOpen() (n int) {
	if w.swarm.grid == nil {
		return 0
	}
	for _, m := range w.grid.machines {
		h := w.hostRow(m.name)
		if h != nil && h.Draining {
			n++
		}
	}
	return n
}
