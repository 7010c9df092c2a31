package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/hostagent"
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// machine is a computer that is a host: it has boots, processes with numbers that are used again, a state directory that
// survives both, and a host agent. The loop of the host agent, what it does with a run, and the rules of keepers are the
// production code; processes, files and sockets are simulated.
type machine struct {
	w                     *world
	id                    int
	name, grid            string
	labels                map[string]string
	capacity              perdure.Amounts
	cgroups               bool
	heartbeat, stopWithin time.Duration

	boots      int
	bootedAt   time.Duration
	off        bool // between two boots, or for ever
	gone       bool // it does not come back
	asleep     bool // suspended
	everAsleep bool
	cutOff     bool // from the nodes
	lastPID    int
	lastStart  [maxPID + 1]uint64 // by number, in this boot
	processes  map[int]*osProcess

	incarnation int // of the state directory
	dirs        map[handle]*runDir
	full        bool

	born    int           // processes of the host agent
	watched time.Duration // since when the present one lives and does not stand still
	agent   *host
	real    *agenthost.Host
	loop    *hostagent.Loop
	end     context.CancelFunc // of the host agent, in an orderly way
	live    map[handle]*keeper.Attendant
}

// runDir is the directory of a run. Its files are written whole or not at all.
type runDir struct {
	run      perdure.Run
	record   *keeper.Run
	keeper   *keeper.Keeper
	process  *simKeeper // the keeper, while it lives
	exit     *keeper.Exit
	reported bool
}

// osProcess is a process of a machine.
type osProcess struct {
	m      *machine
	pid    int
	start  uint64
	proc   *process
	of     handle     // the run; zero: a bystander, which nothing may kill (F234)
	keeper *simKeeper // of which it is a descendant
	leader bool       // it dies with its keeper (parent-death signal)
	marked bool       // its environment has the handle
	over   bool
	term   func() // what it does on TERM
}

// hostClaimWait is how long a claim of a host waits.
const hostClaimWait = 5 * time.Second

const maxPID = 60 // so numbers are soon used again

func (m *machine) holder() string { return m.holderOf(m.incarnation) }

func (m *machine) holderOf(incarnation int) string {
	return fmt.Sprintf("host/%s/i%d", m.name, incarnation)
}

// holders returns the holders of all incarnations.
func (m *machine) holders() (all []string) {
	for i := range m.incarnation {
		all = append(all, m.holderOf(i+1))
	}
	return all
}

func (m *machine) bootID() string { return fmt.Sprintf("%s-boot%d", m.name, m.boots) }

// bootTime is CLOCK_BOOTTIME. It has the rate of the machine's clocks.
func (m *machine) bootTime() int64 {
	return int64(float64(m.w.Now-m.bootedAt) * m.rate())
}

func (m *machine) rate() float64 { return m.agent.proc.Rate }

// startProcess starts a process under a number that is free.
func (m *machine) startProcess(name string, of handle) *osProcess {
	for _, p := range m.inOrder() {
		if len(m.processes) > maxPID/2 && p.of == (handle{}) {
			p.ends(keeper.Exit{})
		}
	}
	for {
		if m.lastPID = m.lastPID%maxPID + 1; m.processes[m.lastPID] == nil {
			break
		}
	}
	return m.startAs(m.lastPID, name, of)
}

func (m *machine) startAs(pid int, name string, of handle) *osProcess {
	p := &osProcess{m: m, pid: pid, start: uint64(m.bootTime() / int64(10*time.Millisecond)), of: of, proc: m.w.Spawn(fmt.Sprintf("%s.%s%d", m.name, name, pid))}
	if p.start <= m.lastStart[pid] { // no machine uses a number twice within a tick
		p.start = m.lastStart[pid] + 1
	}
	p.proc.Rate = m.rate()
	m.processes[pid], m.lastStart[pid] = p, p.start
	return p
}

// ends removes a process from the table, and lets its keeper know.
func (p *osProcess) ends(e keeper.Exit) {
	if p.over {
		return
	}
	p.over = true
	delete(p.m.processes, p.pid)
	p.m.w.grid.processEnded(p)
	p.m.w.Crash(p.proc)
	if k := p.keeper; k != nil && k.main == p {
		k.status = &e
	}
	if k := p.keeper; k != nil {
		k.ringSoon()
	}
}

func (m *machine) kill(p *osProcess) {
	if p.of == (handle{}) {
		m.w.wrong("F234", "%s kills process %d, which belongs to no run", m.name, p.pid)
	}
	p.ends(keeper.Exit{Signal: "KILL"})
}

// killKeeper kills the keeper of a run. Its command dies with it, and other descendants go on without a parent. Mostly
// the numbers of both are used again soon.
func (m *machine) killKeeper(k *simKeeper) {
	m.w.logLine("%s: the keeper of %s is killed", m.name, k.dir.run.Step)
	m.kill(k.p)
	k.disconnect()
	var pids []int
	for _, p := range m.inOrder() {
		if p.keeper != k {
			continue
		}
		p.keeper = nil
		if p.leader {
			pids = append(pids, p.pid)
			m.kill(p)
		} else {
			m.w.grid.orphans[p] = true
		}
	}
	for _, pid := range append(pids, k.p.pid) {
		if m.w.hostChoices.IntN(3) > 0 && m.processes[pid] == nil {
			m.w.hit("F234")
			m.startAs(pid, "other", handle{})
		}
	}
}

func (m *machine) inOrder() []*osProcess {
	all := slices.Collect(maps.Values(m.processes))
	slices.SortFunc(all, func(a, b *osProcess) int { return cmp.Compare(a.pid, b.pid) })
	return all
}

// ——— boots ———

func (m *machine) start() {
	m.boots++
	m.lastStart = [maxPID + 1]uint64{}
	m.off, m.bootedAt, m.lastPID = false, m.w.Now, m.w.hostChoices.IntN(maxPID)
	m.runAgent()
	m.startProcess("other", handle{})
}

// stops ends all processes, as a power cut does.
func (m *machine) stops() {
	m.off = true
	m.w.Crash(m.agent.proc)
	for _, p := range m.inOrder() {
		p.keeper = nil
		p.ends(keeper.Exit{})
	}
	for _, at := range (stateDir{m}).inOrder() {
		d := m.dirs[at]
		d.process = nil
		if d.exit == nil && m.w.hostChoices.IntN(2) == 0 {
			d.keeper = nil // keeper.json was not synced
		}
	}
}

func (m *machine) reboot(down time.Duration) {
	m.w.logLine("%s: power cut", m.name)
	m.stops()
	m.w.After(down, nil, func() {
		if m.off && !m.gone {
			m.start()
		}
	})
}

// ——— the host agent ———

// runAgent starts a process of the host agent.
func (m *machine) runAgent() {
	w := m.w
	m.born++
	proc := w.Spawn(fmt.Sprintf("%s.agent%d", m.name, m.born))
	proc.Rate = w.swarm.rates[m.id%len(w.swarm.rates)]
	if m.agent == nil {
		m.agent = &host{w: w, agents: []string{kernel.AgentExec}}
	}
	m.agent.proc, m.agent.holder = proc, m.holder()
	m.watched = w.Now
	w.book.alive[m.holder()] = true
	w.grid.holders[m.holder()] = m
	m.live = map[handle]*keeper.Attendant{}
	agent := perdure.NewAgent(kernel.AgentExec)
	agent.Slots = hostagent.MaxSlots
	agent.HandleAny(m.carryOut)
	ctx, end := context.WithCancel(context.Background())
	m.end = end
	m.real = agenthost.New(agenthost.Config{Exchange: remoteExchange{m.agent}, Holder: m.holder(), HostName: m.name, Capacity: m.capacity, ClaimWait: hostClaimWait,
		Agents: []*perdure.Agent{agent}, Heartbeat: m.heartbeat, ExactSlots: true, Extended: m.extended, Ended: m.endedRun, Env: proc})
	loop := hostagent.NewLoop(hostagent.LoopConfig{Env: proc, Host: m.real, Agent: kernel.AgentExec, Runs: stateDir{m}, Name: m.name, State: "/var", Heartbeat: m.heartbeat,
		Keep: time.Minute, Register: m.register, Full: func(bool) bool { return m.full }})
	m.loop = loop
	w.logLine("%s starts", proc.Name)
	proc.Go(func() {
		err := loop.Run(ctx)
		w.logLine("%s ends: %v", proc.Name, err)
		w.After(time.Second, nil, func() { // a service manager starts it again
			if m.agent.proc == proc {
				w.Crash(proc)
				m.restartAgent()
			}
		})
	})
	w.Settle(proc)
}

// killAgent kills the host agent, which is started again after a while. Its keepers go on.
func (m *machine) killAgent(down time.Duration) {
	if m.off || m.agent.proc.Dead {
		return
	}
	m.w.logLine("%s is killed", m.agent.proc.Name)
	m.w.Crash(m.agent.proc)
	m.w.After(down, nil, m.restartAgent)
}

// restartAgent starts the host agent if none runs.
func (m *machine) restartAgent() {
	switch {
	case m.off || !m.agent.proc.Dead:
	case m.asleep:
		m.w.After(time.Second, nil, m.restartAgent)
	default:
		m.runAgent()
	}
}

func (m *machine) register(ctx context.Context, _, renews bool) (*operate.HostRegistered, error) {
	req := operate.HostRequest{Name: m.name, Renews: renews, HostSettings: operate.HostSettings{Incarnation: fmt.Sprintf("i%d", m.incarnation), Boot: m.bootID(), Grid: m.grid, Labels: m.labels,
		Capacity: m.capacity, Heartbeat: perdure.Duration(m.heartbeat)}}
	return ask(ctx, m.w, m.agent.proc, callRegister, func(ctx context.Context, n *node) (*operate.HostRegistered, error) {
		return n.real.RegisterHost(ctx, req)
	})
}

func (m *machine) extended(run *perdure.Run, left time.Duration) {
	if at := m.live[handleOf(run)]; at != nil {
		at.Extend(keeper.LockEnd(m.bootTime(), left))
	}
}

func handleOf(run *perdure.Run) handle { return handle{run.Job, run.Step, run.Number} }

func (m *machine) endedRun(run *perdure.Run) {
	if d := m.dirs[handleOf(run)]; d != nil {
		d.reported = true
	}
}

// carryOut is what the agent exec does with a run.
func (m *machine) carryOut(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
	w, at := m.w, handleOf(run)
	w.book.runs[at] = run.Key
	w.compareRun(run)
	attendant := keeper.NewAttendant()
	m.live[at] = attendant
	defer delete(m.live, at)
	proc := m.agent.proc
	d := m.dirs[at]
	if d == nil {
		w.dieAt(m, 0.02)
		if m.full {
			w.hit("F238")
			m.loop.NoteFull()
			return nil, perdure.Failed(perdure.Returned(keeper.ErrNotStarted), "noSpace")
		}
		left := m.real.Left(run)
		d = &runDir{run: *run, record: &keeper.Run{Handle: fmt.Sprintf("%s/%s/%d", run.Job, run.Step, run.Number), Boot: m.bootID(),
			Until: keeper.LockEnd(m.bootTime(), left), StopWithin: min(m.stopWithin, left/2)}}
		m.dirs[at] = d
		w.dieAt(m, 0.02)
	}
	attendant.Env, attendant.Run, attendant.Place = proc, d.record, &place{m, d}
	attendant.Ending, attendant.Until = agenthost.EndingOf, keeper.LockEnd(m.bootTime(), m.real.Left(run))
	exit, err := attendant.Attend(ctx)
	switch {
	case errors.Is(err, keeper.ErrNotStarted):
		return nil, perdure.Returned(err)
	case errors.Is(err, keeper.ErrLost):
		w.hit("F232")
		return nil, perdure.Failed(err, "lost")
	case errors.Is(err, keeper.ErrRestarted):
		w.hit("F233")
		return nil, perdure.Failed(err, "hostRestarted")
	case errors.Is(err, errTooLate):
		return nil, perdure.NoEffect(perdure.Failed(err, "start"))
	case err != nil:
		return nil, err
	}
	w.dieAt(m, 0.02)
	switch {
	case exit.Cause == keeper.NotStarted:
		return nil, perdure.NoEffect(perdure.Failed(errors.New(exit.Message), "start"))
	case exit.Cause == keeper.TimedOut:
		return nil, perdure.Failed(errors.New("not done in time"), "timeout")
	case exit.Cause == keeper.Stopped:
		return nil, perdure.Failed(errors.New("stopped"), "stopped")
	case exit.Exit == 0 && exit.Signal == "":
		return output(run), nil
	}
	return nil, perdure.Failed(fmt.Errorf("exit %d%s", exit.Exit, exit.Signal), "exit")
}

// dieAt kills the host agent at a place in its code, by chance.
func (w *world) dieAt(m *machine, p float64) {
	if w.swarm.grid.moody && w.chanced(w.hostChoices, p) {
		w.hit("F230")
		m.killAgent(w.upTo(4 * time.Second))
		m.agent.proc.Park(nil)
	}
}

// stateDir is the state directory, as the loop of the host agent sees it.
type stateDir struct{ m *machine }

func (s stateDir) inOrder() []handle {
	return slices.SortedFunc(maps.Keys(s.m.dirs), func(a, b handle) int {
		return cmp.Or(a.job.Compare(b.job), cmp.Compare(a.step, b.step), cmp.Compare(a.run, b.run))
	})
}

func (s stateDir) Pending() (runs []perdure.Run, unread int, err error) {
	for _, at := range s.inOrder() {
		if d := s.m.dirs[at]; !d.reported {
			runs = append(runs, d.run)
			if d.exit == nil && d.process != nil {
				s.m.w.hit("F230")
			}
		}
	}
	return runs, 0, nil
}

func (s stateDir) Discard(run *perdure.Run) {
	if d := s.m.dirs[handleOf(run)]; d != nil {
		keeper.Abandon(&place{s.m, d})
		d.reported = true
	}
}

func (s stateDir) Sweep(time.Duration) {
	for at, d := range s.m.dirs {
		if d.reported && d.process == nil {
			delete(s.m.dirs, at)
		}
	}
}

// ——— a run ———

var errTooLate = errors.New("the lock of the run has ended")

// place is the directory of a run, and its processes.
type place struct {
	m *machine
	d *runDir
}

func (p *place) Boot() string { return p.m.bootID() }
func (p *place) Now() int64   { return p.m.bootTime() }

func (p *place) Exit() (*keeper.Exit, error) {
	if p.d.exit == nil {
		return nil, fs.ErrNotExist
	}
	return p.d.exit, nil
}

func (p *place) Keeper() (*keeper.Keeper, error) {
	if p.d.keeper == nil {
		return nil, fs.ErrNotExist
	}
	return p.d.keeper, nil
}

func (p *place) Alive(k *keeper.Keeper) bool {
	st := p.m.processes[k.PID]
	return st != nil && k.Is(p.m.bootID(), st.start)
}

// Start starts a keeper, which begins a little later, whether or not the host agent lives then.
func (p *place) Start() error {
	m, d, boot := p.m, p.d, p.m.boots
	var err error
	done := make(chan struct{}, 1)
	answer := func(e error) {
		m.w.After(time.Millisecond, m.agent.proc, func() {
			err = e
			done <- struct{}{}
		})
	}
	var begin func()
	begin = func() {
		switch {
		case m.boots != boot || m.off:
		case m.asleep:
			m.w.After(100*time.Millisecond, nil, begin)
		case d.record.Boot != m.bootID() || m.bootTime() >= d.record.Until:
			answer(errTooLate)
		case d.keeper != nil: // another keeper has the run
			m.w.hit("F236")
			answer(nil)
		default:
			m.startKeeper(d)
			answer(nil)
		}
	}
	m.w.After(m.w.upTo(40*time.Millisecond), nil, begin)
	m.agent.proc.Wait(context.Background(), time.Minute, done)
	return err
}

func (p *place) Refuse(e keeper.Exit) error {
	if p.d.keeper != nil {
		return fs.ErrExist
	}
	p.d.keeper, p.d.exit = &keeper.Keeper{}, &keeper.Exit{Cause: keeper.NotStarted, Message: e.Message}
	return nil
}

func (p *place) Dial(patience func() time.Duration, ended func()) (keeper.Connection, error) {
	p.m.agent.proc.Wait(context.Background(), time.Millisecond, nil)
	k := p.d.process
	if k == nil {
		return nil, fs.ErrNotExist
	}
	c := &connection{k: k, agent: p.m.agent.proc, ended: ended, patience: patience}
	k.connections = append(k.connections, c)
	if err := c.call(func() {}); err != nil {
		return nil, err
	}
	return c, nil
}

// KillRun kills the processes of the run: those of its cgroup, and those that have its handle in their environment.
func (p *place) KillRun() {
	at := handleOf(&p.d.run)
	for _, st := range p.m.inOrder() {
		if st.of == at && (p.m.cgroups || st.marked) {
			p.m.kill(st)
		}
	}
}

func (p *place) Destroy() {
	if k := p.d.keeper; k != nil && p.Alive(k) {
		if p.d.process == nil {
			p.m.kill(p.m.processes[k.PID])
		} else {
			p.m.killKeeper(p.d.process)
		}
	}
	p.KillRun()
}

func (p *place) Progress(context.Context) {}

// connection is a connection of a host agent to a keeper.
type connection struct {
	k        *simKeeper // nil: it has ended
	agent    *process
	ended    func()
	closed   bool
	patience func() time.Duration
	until    int64
}

func (c *connection) Until() int64 { return c.until }

func (c *connection) Ended() bool { return c.k == nil || c.closed }
func (c *connection) Close()      { c.closed = true }

// call lets the keeper do something. A keeper that stands still does it when it goes on, and the host agent does not wait for
// that for ever.
func (c *connection) call(do func()) error {
	if c.Ended() {
		return fs.ErrClosed
	}
	k, answered := c.k, false
	answer := make(chan struct{}, 1)
	act := func() {
		do()
		c.until, answered = k.rules.Until(), true
		k.ringSoon()
		answer <- struct{}{}
	}
	if k.p.proc.Frozen {
		k.p.m.w.After(0, k.p.proc, act)
		c.agent.Wait(context.Background(), c.patience(), answer)
	} else {
		act()
	}
	switch {
	case answered:
		return nil
	case c.k == nil:
		return fs.ErrClosed
	}
	return os.ErrDeadlineExceeded
}

func (c *connection) Extend(until int64) error {
	k := c.k
	return c.call(func() { k.rules.Extend(until) })
}

func (c *connection) Stop(within time.Duration) error {
	k := c.k
	return c.call(func() { k.signal(k.rules.Stop(k.p.m.bootTime(), within)) })
}

// ——— keepers and commands ———

// simKeeper is the process of a keeper.
type simKeeper struct {
	p           *osProcess
	dir         *runDir
	rules       keeper.Rules
	main        *osProcess
	status      *keeper.Exit // how the main process has ended
	wake        chan struct{}
	alarm       *event // for what is due next
	connections []*connection
}

func (m *machine) startKeeper(d *runDir) {
	p := m.startProcess("keeper", handleOf(&d.run))
	k := &simKeeper{p: p, dir: d, rules: keeper.NewRules(d.record), wake: make(chan struct{}, 1)}
	d.keeper, d.process = &keeper.Keeper{Process: keeper.Process{PID: p.pid, Start: p.start, Boot: m.bootID()}}, k
	m.startCommand(k)
	p.proc.Go(k.run)
	m.w.Settle(p.proc)
}

// run is keeper_linux.go's loop: it signals what is due, and records the exit when all processes of the run have ended.
func (k *simKeeper) run() {
	m, proc := k.p.m, k.p.proc
	for k.status == nil {
		now := m.bootTime()
		k.signal(k.rules.Due(now))
		if k.status != nil {
			break
		}
		if k.alarm != nil {
			k.alarm.Stop()
		}
		k.alarm = k.ringIn(time.Duration(float64(k.rules.Next(now)-now)/m.rate()) + time.Microsecond) // it is rounded down
		proc.Wait(context.Background(), -1, k.wake)
	}
	for k.killDescendants() {
		proc.Wait(context.Background(), 5*time.Millisecond, k.wake)
	}
	proc.Wait(context.Background(), m.w.upTo(4*time.Millisecond)+time.Millisecond, nil) // the record is synced
	e := *k.status
	e.Cause = k.rules.Cause()
	k.dir.exit, k.dir.process = &e, nil
	m.w.grid.recorded(k.dir)
	k.disconnect()
	k.p.ends(keeper.Exit{})
}

// killDescendants reports whether there were any.
func (k *simKeeper) killDescendants() (found bool) {
	for _, p := range k.p.m.inOrder() {
		if p.keeper == k {
			found = true
			k.p.m.kill(p)
		}
	}
	return found
}

func (k *simKeeper) signal(s keeper.Signal) {
	for _, p := range k.p.m.inOrder() {
		switch {
		case p.keeper != k:
		case s == keeper.SignalKill:
			k.p.m.kill(p)
		case s == keeper.SignalTerm:
			p.term()
		}
	}
}

// ringIn wakes the keeper by CLOCK_BOOTTIME, which does not stop while the machine is suspended.
func (k *simKeeper) ringIn(d time.Duration) *event {
	return k.p.m.w.After(d, k.p.proc, func() {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	})
}

func (k *simKeeper) ringSoon() { k.ringIn(0) }

// hangs lets the keeper stand still.
func (k *simKeeper) hangs(d time.Duration) {
	k.p.m.w.hit("F260")
	k.p.m.w.grid.hung[k.p.of] = k.p.m.w.Now
	k.p.m.w.freezeFor(k.p.proc, false, d)
}

func (k *simKeeper) disconnect() {
	k.dir.process = nil
	for _, c := range k.connections {
		c.k = nil
		k.p.m.w.After(0, c.agent, c.ended)
	}
	k.connections = nil
}

// startCommand starts the command of a run: it works, acts on the resource, and exits. Some ignore TERM, fail, hang, or
// leave a daemon behind.
func (m *machine) startCommand(k *simKeeper) {
	w, run := m.w, k.dir.run
	p := m.startProcess("command", handleOf(&run))
	p.keeper, p.leader, p.marked = k, true, true
	k.main = p
	w.grid.commandStarted(p, &run)
	duration, dice := time.Duration(w.hostChoices.Int64N(int64(2*time.Second))), w.hostChoices.Float64()
	odd := func(share float64) bool {
		dice -= share
		return !w.faultsEnded && w.swarm.grid.moody && dice < 0 && dice >= -share
	}
	ignores, code := false, 0
	switch {
	case odd(0.08):
		ignores = true
		duration = time.Minute
	case odd(0.08):
		code = 3
	case odd(0.05):
		duration += 8 * time.Second
	}
	p.term = func() {
		switch {
		case ignores:
			w.hit("F187")
		case w.hostChoices.IntN(3) == 0: // it tidies up first, and its exit code says nothing
			w.After(w.upTo(300*time.Millisecond), p.proc, func() { p.ends(keeper.Exit{}) })
		default:
			p.ends(keeper.Exit{Signal: "TERM"})
		}
	}
	if w.swarm.grid.moody && w.hostChoices.IntN(4) == 0 { // a daemon, which ends by itself no sooner than its run
		daemon := m.startProcess("daemon", handleOf(&run))
		daemon.keeper, daemon.marked = k, w.hostChoices.IntN(2) == 0 // it may have changed its environment
		daemon.term = func() {}
		w.grid.living[daemon] = true
		w.hit("F235")
	}
	p.proc.Go(func() {
		p.proc.Wait(context.Background(), duration/2, nil)
		if code == 0 {
			if err := w.reachResource(context.Background(), p.proc, &run); err != nil {
				code = 1
			}
		}
		p.proc.Wait(context.Background(), duration/2, nil)
		w.grid.stillMayLive(p)
		p.ends(keeper.Exit{Exit: code})
	})
	w.Settle(p.proc)
}
