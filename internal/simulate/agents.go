package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/virtual"
	"github.com/perdure/perdure/protocol"
)

// crew is the fake agents of a job. All of it runs on the one thread of the simulation.
type crew struct {
	s       *simulation
	bell    chan struct{} // closed and replaced when something was committed
	muted   map[handle]bool
	seen    map[attempt]int
	made    map[string]*made // by the key of the do run
	claimed int              // runs
	live    int              // of these: their handlers have not returned
}

type handle struct {
	job  perdure.JobID
	step string
	run  int64
}

type attempt struct {
	step string
	way  perdure.Direction
}

// made is one effect, as the service behind the fake knows it.
type made struct {
	step    string
	did     bool
	undone  bool // also without a do: then a do that comes later is refused
	repeats int
}

func newCrew(s *simulation) *crew {
	return &crew{s: s, bell: make(chan struct{}), muted: map[handle]bool{}, seen: map[attempt]int{}, made: map[string]*made{}}
}

// ring makes all claims search again.
func (c *crew) ring() {
	close(c.bell)
	c.bell = make(chan struct{})
}

// start starts a process with all agents of the plan, and one host for each kind of host that a step requires.
func (c *crew) start(ctx context.Context) error {
	names, hosts := map[string]bool{}, map[kernel.Demand]*kernel.Host{}
	for i := range c.s.plan.Steps {
		ps := &c.s.plan.Steps[i]
		if ps.Form != kernel.ByAgent {
			continue
		}
		names[ps.Agent] = true
		if d := kernel.DemandOf(ps.Requires); d != "" && hosts[d] == nil {
			hosts[d] = hostFor(ps.Requires, len(hosts)+1)
		}
	}
	c.host(ctx, agenthost.Config{Holder: "@simulated"}, names)
	for _, d := range slices.Sorted(maps.Keys(hosts)) {
		h := hosts[d]
		if _, _, _, err := c.s.sched.RegisterHost(ctx, h, false); err != nil {
			return err
		}
		c.host(ctx, agenthost.Config{Holder: h.Holder(), HostName: h.Name, Capacity: h.Capacity, ExactSlots: true}, names)
	}
	return nil
}

// hostFor returns a host that fits many runs of a step at once.
func hostFor(r *perdure.Requires, n int) *kernel.Host {
	h := &kernel.Host{Name: fmt.Sprintf("host-%d", n), Incarnation: "simulated", Grid: r.Grid, Labels: map[string]string{}, Capacity: perdure.Amounts{"slots": MaxSteps}, Heartbeat: MaxHorizon}
	for name, value := range r.Labels {
		if value == "*" { // any value
			value = "simulated"
		}
		h.Labels[name] = value
	}
	for name, amount := range r.Amounts {
		h.Capacity[name] = amount * MaxSteps
	}
	return h
}

func (c *crew) host(ctx context.Context, cfg agenthost.Config, names map[string]bool) {
	cfg.Exchange, cfg.Env = &exchange{c}, quiet{c.s.proc, c}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a := perdure.NewAgent(name)
		a.Slots = MaxSteps
		a.HandleAny(c.serve)
		cfg.Agents = append(cfg.Agents, a)
	}
	h := agenthost.New(cfg)
	c.s.proc.Go(func() { _ = h.Run(ctx) })
}

var errSimulated = perdure.Failed(errors.New("simulated failure"), "simulated")

// serve is the handler of all agents.
func (c *crew) serve(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
	defer func() { c.live-- }()
	b := c.s.o.Steps[run.Step]
	at := attempt{run.Step, run.Direction}
	c.seen[at]++
	nth := c.seen[at]
	within := func(n int) bool { return n == Always || nth <= n }
	undo := run.Direction == perdure.Undo
	dies := !undo && within(b.CrashBefore)
	if dies {
		return c.die(ctx, run)
	}
	if !env.Sleep(c.s.proc, ctx, lastsOf(b)) {
		return nil, ctx.Err()
	}
	if undo && within(b.FailUndo) || !undo && within(b.Fail) {
		return nil, errSimulated
	}
	if err := c.act(run); err != nil {
		return nil, err
	}
	if !undo && within(b.CrashAfter) {
		return c.die(ctx, run)
	}
	if undo {
		return nil, nil
	}
	return b.Output, nil
}

func lastsOf(b Behaviour) time.Duration {
	if b.Lasts == 0 {
		return time.Duration(DefaultLasts)
	}
	return time.Duration(b.Lasts)
}

// die is the death of the process that carries out the run: nothing is heard of it any more. Other runs go on, as those
// of other processes of the agent do.
func (c *crew) die(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
	c.muted[handle{run.Job, run.Step, run.Number}] = true
	c.s.proc.Wait(ctx, env.Forever, nil)
	return nil, ctx.Err()
}

// act does or undoes the effect of a run, once for each key.
func (c *crew) act(run *perdure.Run) error {
	key := run.Key
	if run.Direction == perdure.Undo {
		key = run.DoKey
	}
	m := c.made[key]
	if m == nil {
		m = &made{step: run.Step}
		c.made[key] = m
	}
	switch {
	case run.Direction == perdure.Undo:
		m.undone = true
	case m.undone:
		return perdure.NoEffect(perdure.Rejected(errors.New("it was undone before it came"), "undone"))
	case m.did:
		m.repeats++
	default:
		m.did = true
	}
	return nil
}

// effects returns what was made, in the order of the steps.
func (c *crew) effects() []Effect {
	all := make([]Effect, len(c.s.plan.Steps))
	for _, m := range c.made {
		e := &all[c.s.plan.Index[m.step]]
		if m.did {
			e.Step = m.step
			e.Done++
			e.Repeats += m.repeats
			if m.undone {
				e.Undone++
			}
		}
	}
	return slices.DeleteFunc(all, func(e Effect) bool { return e.Step == "" })
}

// quiet is the environment of an agent host. While the host has no runs, its timers stand still: it would only look each
// second for runs whose lock has ended, and a simulated month has many seconds.
type quiet struct {
	*virtual.Process
	c *crew
}

// Wait implements env.Env.
func (q quiet) Wait(ctx context.Context, d time.Duration, ch <-chan struct{}) (how env.Waited) {
	if d <= 0 || q.c.live > 0 {
		return q.Process.Wait(ctx, d, ch)
	}
	ready := func() bool {
		select {
		case <-ch:
			how = env.Got
			return true
		default:
		}
		switch {
		case ctx.Err() != nil:
			how = env.Gone
		case q.c.live > 0:
			how = env.Late
		default:
			return false
		}
		return true
	}
	if !ready() {
		q.Park(ready)
	}
	return how
}

// exchange is the connection of the agent hosts with the scheduler.
type exchange struct{ c *crew }

// Claim waits as long as it must, whatever the host has asked for, and searches again whenever something was committed. So
// no claim is repeated while nothing happens.
func (x *exchange) Claim(_ context.Context, cl protocol.Claim) ([]perdure.Run, error) {
	ctx := context.Background() // the simulation ends with all that wait
	cl.Secrets = true           // none is resolved
	for {
		bell, once := x.c.bell, cl
		once.Wait, once.RequestID = 0, ""
		runs, err := x.c.s.sched.Claim(ctx, once)
		if len(runs) > 0 || err != nil {
			x.c.claimed += len(runs)
			x.c.live += len(runs)
			return runs, err
		}
		x.c.s.proc.Wait(ctx, env.Forever, bell)
	}
}

// Report sends reports, and none of a run whose process has died. Claims of reports are answered without runs: the
// claims in progress get them.
func (x *exchange) Report(ctx context.Context, holder string, reports []protocol.Report, _ *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	results := make([]protocol.ReportResult, len(reports))
	var heard []protocol.Report
	var places []int
	for i, r := range reports {
		if x.c.muted[handle{r.Job, r.Step, r.Run}] {
			results[i].Accepted = true // the host must not repeat it
			continue
		}
		heard, places = append(heard, r), append(places, i)
	}
	if len(heard) == 0 {
		return results, nil, nil
	}
	got, _, err := x.c.s.sched.Report(ctx, holder, heard, nil)
	if err != nil {
		return nil, nil, err
	}
	for i, at := range places {
		results[at] = got[i]
	}
	return results, nil, nil
}

// Heartbeat sends heartbeats, and none of a run whose process has died.
func (x *exchange) Heartbeat(ctx context.Context, holder string, beats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	beats = slices.DeleteFunc(slices.Clone(beats), func(b protocol.Heartbeat) bool { return x.c.muted[handle{b.Job, b.Step, b.Run}] })
	if len(beats) == 0 {
		return nil, nil
	}
	return x.c.s.sched.Heartbeat(ctx, holder, beats)
}
