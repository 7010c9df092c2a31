package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/protocol"
)

// host is the real agent host, with agents that may be late, fail, or not report.
type host struct {
	w      *world
	id     int
	born   int
	in     *node // nil: in a process of its own
	proc   *process
	holder string
	slots  int
	agents []string
	real   *agenthost.Host
	busy   map[string]int // running handlers, by agent
}

// newHost returns a host that has not started. One inside a node dies with the node.
func (w *world) newHost(in *node) *host {
	w.hosted++
	h := &host{w: w, id: w.hosted, in: in, slots: 1 + w.own.IntN(4), agents: agentNames}
	if in == nil {
		w.hosts = append(w.hosts, h)
	}
	return h
}

// carry begins an incarnation of the host in a process, and returns its agents.
func (h *host) carry(proc *process, holder string) (agents []*perdure.Agent) {
	w := h.w
	h.born++
	h.proc, h.holder, h.busy = proc, holder, map[string]int{}
	if h.born > 1 {
		w.hit("F119")
	}
	if proc.Rate != 1 {
		w.hit("F027")
	}
	w.book.alive[holder] = true
	for _, name := range h.agents {
		a := perdure.NewAgent(name)
		a.Slots = h.slots
		a.HandleAny(func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) { return h.work(ctx, name, run) })
		agents = append(agents, a)
	}
	return agents
}

// run starts a host that is a process of its own. A new incarnation has a new name (F119).
func (h *host) run() {
	w := h.w
	proc := w.Spawn(fmt.Sprintf("host%d.%d", h.id, h.born+1))
	proc.Rate = w.swarm.rates[h.id%len(w.swarm.rates)]
	agents := h.carry(proc, proc.Name)
	h.real = agenthost.New(agenthost.Config{Exchange: remoteExchange{h}, Holder: h.holder, Agents: agents, Env: proc, Heartbeat: w.swarm.heartbeat, ClaimWait: 5 * time.Second})
	real := h.real // this incarnation's
	proc.Go(func() { _ = real.Run(context.Background()) })
	w.Settle(proc)
}

// dies ends the host. Only messages that it has sent continue.
func (h *host) dies() {
	h.w.book.alive[h.holder] = false
}

func (h *host) crash() {
	if h.in != nil {
		h.in.crash()
		return
	}
	h.w.logLine("%s is killed", h.proc.Name)
	h.dies()
	h.w.Crash(h.proc)
	h.w.After(100*time.Millisecond+h.w.upTo(6*time.Second), nil, func() {
		if h.proc.Dead {
			h.run()
		}
	})
}

// drain stops the host in an orderly way (L6), and starts it again.
func (h *host) drain() {
	h.proc.Go(func() {
		real, proc := h.real, h.proc
		ctx, cancel := env.WithTimeout(proc, context.Background(), time.Second+h.w.upTo(8*time.Second))
		defer cancel()
		_ = real.Drain(ctx)
		h.w.logLine("%s has drained", proc.Name)
		h.w.After(time.Second, nil, func() {
			if !proc.Dead {
				h.dies()
				h.w.Crash(proc)
				h.run()
			}
		})
	})
}

// work is the handler of all agents.
func (h *host) work(ctx context.Context, agent string, run *perdure.Run) (json.RawMessage, error) {
	w := h.w
	w.book.handlerBegan(h, run)
	busy := h.busy // of this incarnation
	if busy[agent]++; busy[agent] == h.slots {
		w.hit("F028")
	}
	defer func() { busy[agent]-- }()
	duration := w.randomDuration(2 * time.Second)
	dice := w.choices.Float64()
	odd := func(p float64) bool {
		before := dice
		dice -= p
		return !w.faultsEnded && w.swarm.moody && before >= 0 && before < p
	}
	switch {
	case w.book.poisoned(run) && !w.faultsEnded: // the run kills its host, each time (F049)
		w.hit("F049")
		h.crash()
		h.proc.Park(nil)
	case odd(0.03):
		w.hit("F043")
		duration = time.Minute // the handler hangs, and heartbeats continue
	case odd(0.06):
		return nil, perdure.NoEffect(errors.New("it could not begin"))
	case odd(0.04):
		_ = h.act(ctx, run)
		return nil, errors.New("who knows what came of it")
	case odd(0.03):
		_ = h.act(ctx, run)
		return nil, perdure.Rejected(errors.New("no"), "no")
	case odd(0.03): // the handler ignores the end of its context (F050)
		w.hit("F050")
		h.proc.Wait(context.Background(), duration+w.randomDuration(20*time.Second), nil)
		err := h.act(context.Background(), run)
		return output(run), err
	case odd(0.02):
		return nil, perdure.RetryAfter(w.randomDuration(3*time.Second), errors.New("not now"))
	case odd(0.03) && h.in == nil:
		w.hit("F035")
		h.crash()
		h.proc.Park(nil)
	case odd(0.03) && h.in == nil:
		_ = h.act(ctx, run)
		w.hit("F036")
		h.crash()
		h.proc.Park(nil)
	}
	if !env.Sleep(h.proc, ctx, duration/2) {
		return nil, context.Cause(ctx)
	}
	if err := h.act(ctx, run); err != nil {
		return nil, err
	}
	if !env.Sleep(h.proc, ctx, duration/2) {
		return nil, context.Cause(ctx)
	}
	return output(run), nil
}

func output(run *perdure.Run) json.RawMessage {
	return json.RawMessage(resultOf(run.Job, run.Step, run.Number).json())
}

func (w *world) randomDuration(d time.Duration) time.Duration {
	return time.Duration(w.choices.Int64N(int64(d)))
}

// act calls the resource.
func (h *host) act(ctx context.Context, run *perdure.Run) error {
	return h.w.reachResource(ctx, h.proc, run)
}

// reachResource calls the resource from a process, over a network of its own. A sent request arrives, whatever happens to
// the sender.
func (w *world) reachResource(ctx context.Context, proc *process, run *perdure.Run) error {
	for w.resourceCutOff[proc] { // cut off from the resource, until that ends or the run's time is over (F041)
		w.hit("F041")
		if !env.Sleep(proc, ctx, 500*time.Millisecond) {
			return perdure.NoEffect(errors.New("the resource was not to be reached"))
		}
	}
	var err error
	done := make(chan struct{}, 1)
	delay := w.latency()
	if w.chanced(w.net, w.weather.slow) {
		delay += w.upTo(25 * time.Second)
	}
	w.After(delay, nil, func() {
		result := w.ledger.act(run)
		w.logLine("the resource: %s %s/%s run %d: %v", run.Direction, short(run.Job), run.Step, run.Number, result)
		w.After(w.latency(), proc, func() { err = result; done <- struct{}{} })
	})
	if proc.Wait(ctx, env.Forever, done) != env.Got {
		return errors.New("no answer from the resource")
	}
	return err
}

// says records the reports of holders, to distinguish them from false ones.
func (h *host) says(reports []protocol.Report) {
	for i := range reports {
		h.w.book.reportsOutcome(h.holder, &reports[i])
	}
}

// contradict sends other reports about runs that are reported, from time to time (F045, F046).
func (h *host) contradict(reports []protocol.Report, results []protocol.ReportResult) {
	w := h.w
	if !w.chanced(w.net, w.swarm.lies) {
		return
	}
	other := slices.Clone(reports)
	for i := range other {
		other[i].Output, other[i].Error, other[i].Effect = nil, nil, ""
		other[i].Outcome = perdure.OutcomeDone
		if reports[i].Outcome == perdure.OutcomeDone {
			other[i].Outcome = perdure.OutcomeFailed
		}
	}
	proc, holder := h.proc, h.holder
	proc.Go(func() {
		got, err := ask(context.Background(), w, proc, callReport, func(ctx context.Context, n *node) ([]protocol.ReportResult, error) {
			results, _, err := n.real.Report(ctx, holder, slices.Clone(other), nil)
			return results, err
		})
		for i := range got {
			if err == nil && results[i].Accepted && got[i].Accepted {
				w.wrong("I8", "a second, other answer was accepted: %+v after %+v", other[i], reports[i])
			}
			if !got[i].Accepted {
				w.hit("F045", "F046")
			}
		}
	})
}

func short(id perdure.JobID) string {
	s := id.String()
	return "job" + strings.TrimLeft(s[len(s)-8:], "0")
}

func sortBeats(heartbeats []protocol.Heartbeat) {
	slices.SortFunc(heartbeats, func(a, b protocol.Heartbeat) int {
		if c := slices.Compare(a.Job[:], b.Job[:]); c != 0 {
			return c
		}
		return strings.Compare(a.Step, b.Step)
	})
}
