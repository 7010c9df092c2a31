package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
)

// A crowd is a stream of small commands that does not end, beside one command that takes much of a host (G6, I25). It comes
// when all other jobs have ended, on hosts of its own, and the only faults are those of crowd.fault. The small commands have
// priority. So the large one would wait for ever, if it did not reserve a host.
type crowd struct {
	machines []plannedMachine
	patience time.Duration
	small    []smallCommand
	large    map[string]any // what the large command requires
	fault    string         // that occurs once while the large command waits; empty: none
	faultAt  time.Duration  // after the large command is ready
}

// smallCommand is one kind of the small commands.
type smallCommand struct {
	requires       map[string]any
	completeWithin time.Duration
}

const (
	crowdGrid = "crowd"
	crowdType = "small"
	largeType = "large"
	crowdTick = 250 * time.Millisecond
)

// drawCrowd draws the crowd of a seed with hosts. Some have none.
func drawCrowd(r *rand.Rand) *crowd {
	if r.IntN(3) == 0 {
		return nil
	}
	c := &crowd{patience: time.Duration(2+r.IntN(9)) * time.Second}
	for range 1 + r.IntN(2) {
		c.machines = append(c.machines, plannedMachine{zone: "a", grid: crowdGrid, slots: 2 + r.Int64N(3), cpu: 2 + r.Int64N(3), cgroups: r.IntN(2) == 0,
			heartbeat: []time.Duration{3 * time.Second, 6 * time.Second}[r.IntN(2)], stopWithin: time.Second})
	}
	for range 1 + r.IntN(3) {
		requires := []map[string]any{{"slots": 1}, {"cpu": 1}, {"slots": 1, "cpu": 0.5}, {"slots": 1, "memory": "512MiB"}}[r.IntN(4)]
		c.small = append(c.small, smallCommand{requires, time.Duration(4+r.IntN(14)) * time.Second})
	}
	m := c.machines[r.IntN(len(c.machines))]
	c.large = []map[string]any{{"slots": m.slots}, {"cpu": m.cpu}, {"slots": m.slots, "cpu": m.cpu}, {"slots": 2, "cpu": 2, "memory": fmt.Sprint(m.cpu, "GiB")}}[r.IntN(4)]
	c.fault = []string{"", "kill host agent", "kill node"}[r.IntN(3)]
	c.faultAt = time.Duration(r.Int64N(int64(c.patience + 5*time.Second)))
	return c
}

func (c *crowd) write(b *strings.Builder) {
	if c == nil {
		return
	}
	fmt.Fprintf(b, "\n  crowd, patience %s, %v beside %v, %q after %s, on", c.patience, c.large, c.small, c.fault, c.faultAt)
	for i, m := range c.machines {
		fmt.Fprintf(b, "\n    crowd%d: %+v", i+1, m)
	}
}

// bound is how long the large command may be ready: until it reserves a host, and from then until the runs there that were
// there before have ended. The rest is for what a host offers in parts (patienceFor), and for the fault.
func (c *crowd) bound() time.Duration {
	bound := c.patience + c.longest() + slack + 2*hostClaimWait
	if c.fault != "" {
		bound += recovery
	}
	return bound
}

// longest is how long a small command may take.
func (c *crowd) longest() (longest time.Duration) {
	for _, s := range c.small {
		longest = max(longest, s.completeWithin)
	}
	return longest
}

// playCrowd plays the crowd of the seed, and checks that the large command is placed in time. It returns false if there is none.
func (w *world) playCrowd() bool {
	if w.swarm.grid == nil || w.swarm.grid.crowd == nil {
		return false
	}
	c := w.swarm.grid.crowd
	w.logLine("a crowd of small commands comes")
	for i, p := range c.machines {
		w.startMachine(fmt.Sprintf("crowd%d", i+1), p, map[string]string{"zone": p.zone})
	}
	w.clients.Go(func() { w.setPatience(c.patience) })
	w.Settle(w.clients)
	jobs, submitAt := 0, w.Now+3*time.Second
	over := false
	for submitted, ready := false, time.Duration(0); len(w.faults) == 0; { // ready: since when the large command is ready
		w.runUntil(w.Now + crowdTick)
		small, large := w.crowdReady(c)
		for ; small < 3*len(c.machines); small++ {
			w.submitCrowd(crowdJob(c, jobs), 8)
			jobs++
		}
		if !submitted && w.Now >= submitAt {
			submitted = true
			w.submitCrowd(largeJob(c), 100) // until a node that is down is back
			w.After(c.faultAt, nil, func() {
				if !over {
					w.crowdFault(c.fault)
				}
			})
		}
		switch {
		case large == nil: // it was not submitted yet
		case large.Phase != perdure.Ready:
			over = true
			if ready > 0 {
				w.hit("crowd")
				w.logLine("the large command is placed %s after it was ready", w.Now-ready)
			}
			if c.fault == "kill node" { // until claims that it did not answer are repeated
				w.runUntil(w.Now + hostClaimWait + 20*time.Second)
			}
			return true
		case ready == 0:
			ready = w.Now
		case w.Now-ready > c.bound() && w.crowdStarves(c, large): // more work comes than the hosts can do, and the order decides
			over = true
			w.logLine("small commands that come before the large one have waited for as long: the crowd ends")
			return true
		case w.Now-ready > c.bound():
			w.wrong("G6", "%s/%s, which requires %v, has been ready since %s beside small commands: its patience is %s, and no run there takes longer than %s", short(large.Job), large.Name, large.Needs.Demand(),
				w.Now-ready, c.patience, c.longest())
		default:
			w.countReserved(large)
		}
	}
	return true
}

// crowdStarves reports whether a small command that comes before the large one has waited for longer than the patience, too. Then
// it may reserve a host first.
func (w *world) crowdStarves(c *crowd, large *kernel.Step) bool {
	for ref, s := range w.order.ready {
		if w.order.typ[ref.Job].Type == crowdType && w.storeNow().Sub(s.ReadyAt) > c.patience && before(&s, large) < 0 {
			return true
		}
	}
	return false
}

// crowdReady returns how many small commands are ready of the kind of which there are fewest, and the large one.
func (w *world) crowdReady(c *crowd) (small int, large *kernel.Step) {
	ready := make([]int, len(c.small))
	for ref := range w.order.ready {
		if w.order.typ[ref.Job].Type == crowdType {
			ready[ref.Index]++
		}
	}
	for id, j := range w.book.jobs {
		if j.plan.Definition.Type == largeType {
			large = w.steps(id)[0]
		}
	}
	return slices.Min(ready), large
}

// countReserved counts the times at which a host was seen reserved for the large command.
func (w *world) countReserved(large *kernel.Step) {
	hosts, err := w.inner.ListHosts(context.Background(), "", perdure.MaxListLimit)
	w.must(err)
	for i := range hosts {
		if h := &hosts[i]; h.Reserves(large, w.storeNow()) {
			w.logLine("%s is reserved for the large command", h.Name)
			w.hit("F178")
		}
	}
}

func (w *world) crowdFault(kind string) {
	switch kind {
	case "kill host agent":
		w.grid.machines[len(w.grid.machines)-1].killAgent(500 * time.Millisecond)
	case "kill node":
		if n := w.anyNode(); !n.proc.Dead && !n.stopping {
			w.hit("F165")
			n.crash()
		}
	}
}

// setPatience sets how long commands wait for room before they reserve a host.
func (w *world) setPatience(patience time.Duration) {
	for range 20 {
		_, err := ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (bool, error) {
			_, err := n.real.PutAgent(ctx, kernel.AgentExec, perdure.AgentSettings{Ageing: perdure.Duration(perdure.DefaultAgeing), Patience: perdure.Duration(patience)})
			return true, err
		})
		if err == nil {
			return
		}
		w.clients.Wait(context.Background(), time.Second, nil)
	}
}

// crowdJob has one command of each kind.
func crowdJob(c *crowd, n int) map[string]any {
	steps := map[string]any{}
	for i, s := range c.small {
		steps[stepName(i)] = crowdStep(s.requires, s.completeWithin)
	}
	return map[string]any{"type": crowdType, "priority": 5, "input": map[string]any{"n": n}, "steps": steps}
}

func largeJob(c *crowd) map[string]any {
	return map[string]any{"type": largeType, "steps": map[string]any{"large": crowdStep(c.large, 20*time.Second)}}
}

func crowdStep(requires map[string]any, completeWithin time.Duration) map[string]any {
	all := map[string]any{"grid": crowdGrid}
	for name, n := range requires {
		all[name] = n
	}
	return map[string]any{"agent": kernel.AgentExec, "completeWithin": completeWithin.String(), "requires": all, "with": with(asCommand(nil)), "retry": map[string]any{"attempts": 3, "backoff": "500ms"}}
}

func (w *world) submitCrowd(job map[string]any, tries int) {
	text, err := json.Marshal(job)
	if err != nil {
		panic(err)
	}
	plans, err := compiler.Parse(text, definition.JSON, definition.Options{})
	if err != nil {
		panic(fmt.Sprintf("sim: %v\n%s", err, text))
	}
	d := &draft{plan: plans[0]}
	d.plan.Shape = w.watch(d.plan.Shape)
	for range d.plan.Steps {
		d.recipes = append(d.recipes, recipe{do: asCommand(nil)})
	}
	w.drafts[d.plan.Hash] = d
	w.clients.Go(func() { w.submit(d.plan, tries) })
	w.Settle(w.clients)
}
