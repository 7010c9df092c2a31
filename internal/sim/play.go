// Package sim plays whole grids under a seed: the real scheduler, supervisor, agent hosts and rules, on a real store,
// with everything that can go wrong between them, on one thread and in virtual time. The same seed is the same schedule,
// event by event. Package virtual is its clock and its thread.
//
//	world.go   one schedule
//	node.go    a node, its connection to the store, and what was committed
//	roles.go   which node leads each role, and which is the standby
//	host.go    a host of agents, and what they do
//	machine.go  a machine that is a host of the grid: boots, processes, state directory, host agent
//	grid.go    the machines of a seed, and their faults
//	gridcheck.go  what must be true of them
//	crowd.go   small commands beside a large one
//	net.go     calls from one process to another
//	notifications.go  what receivers of notifications get, and must get
//	signals.go  signals, and what must be true of them
//	mail.go    business transactions that submit, and their outcomes
//	swarm.go   what may go wrong: each seed has some of it
//	faults.go  faults as they happen
//	operators.go  what operators and clients do
//	lists.go   operators who follow lists of jobs
//	order.go   the order of dispatch
//	ledger.go  the resource on which the agents act
//	values.go  what each run must receive
//	book.go    check.go  audit.go  what must be true, after every transaction and at the end
//	play.go    from the first submission to the last audit
//	matrix.go  the rows of the fault matrix that must be covered
package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Config says how a schedule is played.
type Config struct {
	Store    func(clock func() time.Time) (kernel.Store, error) // a fresh, empty one, on this clock
	Small    bool                                               // a smaller schedule, because the store is slow
	Without  []string                                           // parts of the swarm that are left out
	Hosts    bool                                               // there are hosts, whatever the seed
	Children bool                                               // steps have children, whatever the seed
	Only     []string                                           // the kinds of faults that occur; nil: all
	Lines    func(string)                                       // receives the transcript; nil: none
}

// Result is the result of a schedule.
type Result struct {
	Seed        uint64
	Violations  []string
	Hits        map[string]int // rows of the fault matrix, and other counts
	Fingerprint uint64
	Events      int
	Commits     int
	Jobs        int
	Simulated   time.Duration
	Swarm       string
	Parts       []string // parts that can be left out
}

// A grid without faults must settle all jobs and deliver all notifications in patience (L1). Something that is repeated
// without end shows earlier: by its events.
const (
	patience  = 30 * time.Minute
	maxEvents = 100_000
)

// Play plays one schedule.
func Play(seed uint64, c Config) (res Result, err error) {
	stream := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	w := &world{loop: &loop{}, cfg: c, seed: seed, net: stream(1), choices: stream(2), deeds: stream(3), own: stream(4), locks: stream(8), posts: stream(10),
		cutOff: map[*process]bool{}, resourceCutOff: map[*process]bool{}, hits: map[string]int{}, lines: c.Lines,
		drafts: map[[32]byte]*draft{}, resumed: map[perdure.JobID]int{}, actsBegun: map[perdure.JobID]int{}, actsAnswered: map[perdure.JobID]int{}, admittedLeaders: map[kernel.Leadership]string{}, ledBy: map[kernel.Leadership]string{}, order: newOrder(), inLine: lineBook{}, fairAgents: map[string]int{},
		postponed: map[kernel.StepRef]time.Duration{}, outbox: newOutbox(), idleLooks: map[string]int{}}
	chance := stream(5)
	w.Chance = chance.Float64
	w.Failed = func(format string, args ...any) { w.wrong("F126", format, args...) }
	w.swarm = drawSwarm(stream(6), &c)
	w.swarm.drawReceivers(stream(11), c.Without)
	w.swarm.drawGrid(stream(12), &c)
	if err := w.drawSchedules(stream(15)); err != nil {
		return res, err
	}
	w.signalChoices = stream(16)
	w.swarm.signals = w.signalChoices.IntN(3) == 0 && !slices.Contains(c.Without, "signals")
	w.childChoices = stream(17)
	w.swarm.children = (w.childChoices.IntN(3) == 0 || c.Children) && !slices.Contains(c.Without, "children")
	w.placing, w.hostChoices, w.grid = stream(13), stream(14), newGrid(w)
	w.weather = w.swarm.weather
	w.ledger = &ledger{w: w, effects: map[perdure.JobID]map[string]*effect{}}
	w.book = newBook(w)
	if w.inner, err = c.Store(w.wallClock); err != nil {
		return res, err
	}
	defer func() { _ = w.inner.Close() }()
	w.mailbox, _ = w.inner.(mailbox)
	defer w.end()
	if err := w.play(stream(7)); err != nil {
		return res, err
	}
	for _, n := range w.nodes {
		for f, hits := range n.link.faulty.Hits {
			w.hits[fmt.Sprintf("store%d", f)] += hits
		}
	}
	return Result{Seed: seed, Violations: w.faults, Hits: w.hits, Fingerprint: w.hash, Events: w.Ran, Commits: w.commits,
		Jobs: len(w.book.jobs), Simulated: w.Now, Swarm: w.swarm.String() + w.schedulesText(), Parts: w.swarm.names()}, nil
}

func (w *world) play(r *rand.Rand) error {
	w.clients = w.Spawn("clients")
	for i := range w.swarm.nodes {
		w.nodes = append(w.nodes, &node{w: w, id: i + 1})
	}
	for _, n := range w.nodes {
		n.boot()
	}
	for range w.swarm.hosts {
		w.newHost(nil).run()
	}
	w.startMachines()
	if w.seed%4 == 1 { // the agents are fair from the beginning
		for i, agent := range agentNames {
			w.After(time.Second, w.clients, func() { w.clients.Go(func() { w.setAgent(agent, perdure.DefaultAgeing, 3+(w.seed/4+uint64(i))%5) }) })
		}
	}
	for i := range w.swarm.jobs {
		d, err := drawJob(r, i, w.placeStep, w.waitStep, w.ownStep)
		if err != nil {
			return err
		}
		d.plan.Shape = w.watch(d.plan.Shape)
		plan := d.plan
		w.drafts[plan.Hash] = d
		if w.swarm.moody && r.IntN(25) == 0 {
			w.book.poison[plan.Definition.Type+"/"+stepName(r.IntN(len(plan.Steps)))] = true
		}
		at := time.Duration(r.Int64N(int64(chaos / 2)))
		if kind := r.IntN(4); kind == 0 && w.mailbox != nil {
			w.After(at, w.clients, func() { w.clients.Go(func() { w.postJob(plan) }) })
		} else {
			w.After(at, w.clients, func() { w.clients.Go(func() { w.submit(plan, 8) }) })
		}
		if plan.Definition.Key != "" && r.IntN(4) == 0 {
			w.After(at+time.Second, w.clients, func() { w.clients.Go(func() { w.await(plan.Definition.Key) }) })
		}
		if plan.Definition.Key != "" && r.IntN(3) == 0 { // the same, at the same time or later
			w.After(at+time.Duration(r.IntN(2))*time.Duration(r.Int64N(int64(5*time.Second))), w.clients, func() { w.clients.Go(func() { w.submit(plan, 2) }) })
		}
	}
	for _, l := range w.swarm.limits {
		w.clients.Go(func() { w.setLimit(l.name, l.max) })
	}
	w.startSchedules()
	w.clients.Go(w.createReceivers)
	w.clients.Go(w.readStream)
	w.Settle(w.clients)
	for _, m := range w.swarm.faults {
		w.After(m.at, nil, func() { w.startFault(m) })
	}
	w.startSenders()
	w.doomParents()
	w.startViewers(rand.New(rand.NewPCG(w.seed, 9)))
	for _, d := range w.swarm.acts {
		w.After(d.at, w.clients, func() { w.clients.Go(func() { w.perform(d) }) })
	}
	w.runUntil(chaos)
	if len(w.faults) == 0 {
		w.heal()
		w.runToRest()
		w.checkLists()
	}
	if len(w.faults) == 0 && w.resumeSchedules() {
		w.runToRest()
		w.checkLists()
	}
	if len(w.faults) == 0 && w.playCrowd() {
		w.runToRest()
		w.checkLists()
	}
	if len(w.faults) == 0 && r.IntN(4) == 0 { // long after: everything is undone
		w.logLine("a month later")
		for _, j := range w.known() {
			if j.Current == perdure.Done {
				w.clients.Go(func() { w.act(j.ID, perdure.Act{Verb: perdure.VerbUndo}) })
			}
		}
		w.Settle(w.clients)
		w.runUntil(w.Now + 2*time.Second)
		w.runToRest()
		w.checkLists()
	}
	if len(w.faults) == 0 && r.IntN(4) == 0 {
		w.endLeader(r.IntN(2) == 0)
	}
	if len(w.faults) == 0 {
		w.audit()
	}
	return nil
}

// runUntil lets time pass, until t or until something is wrong.
func (w *world) runUntil(t time.Duration) {
	for len(w.faults) == 0 && w.Step(t) {
	}
	w.Now = max(w.Now, t)
}

// runToRest waits until all jobs are settled, and no message is in transit.
func (w *world) runToRest() {
	const interval, calm = 2 * time.Second, 10 * time.Second
	const lateWork = chaos + 50*time.Second // until then, earlier work may be in progress
	began, ran, quiet := w.Now, w.Ran, time.Duration(0)
	for tended := 0; len(w.faults) == 0; tended++ {
		w.runUntil(w.Now + interval)
		if tended > 2 {
			w.checkPromptness()
		}
		w.checkRolesAreHeld()
		undelivered := w.undelivered()
		if quiet += interval; w.resumeParked()+w.waitingSubmissions()+w.openBulk()+undelivered+w.drainsOpen() > 0 {
			quiet = 0
		}
		if quiet >= calm && w.Now > lateWork {
			return
		}
		if w.Now-began > patience || w.Ran-ran > maxEvents {
			w.wrong("L1", "not everything has ended after %s and %d events without faults: %d notifications are pending,%s", w.Now-began, w.Ran-ran, undelivered, w.openText())
		}
	}
}

// end releases everything.
func (w *world) end() {
	for _, n := range w.nodes {
		w.crashSilently(n.proc)
	}
	for _, h := range w.hosts {
		w.crashSilently(h.proc)
	}
	for _, m := range w.grid.machines {
		w.crashSilently(m.agent.proc)
		for _, p := range m.inOrder() {
			w.crashSilently(p.proc)
		}
	}
	w.crashSilently(w.clients)
	w.Clear()
}

func (w *world) crashSilently(p *process) {
	if p != nil && !p.Dead {
		p.Frozen = false
		w.Crash(p)
	}
}
