package perduretest

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// Fault is something that goes wrong with a run.
type Fault string

const (
	// CrashBefore: the process of the agent dies before the handler is called.
	CrashBefore Fault = "a crash before the effect"
	// CrashAfter: it dies after the handler has returned, and before the run is reported.
	CrashAfter Fault = "a crash after the effect"
	// Late: the report arrives after the run has expired.
	Late Fault = "a late report"
	// Twice: the report arrives twice.
	Twice Fault = "a doubled report"
)

// injection is a fault that is still to happen.
type injection struct {
	step  string
	way   perdure.Direction
	nth   []int
	fault Fault
	seen  int // number of runs of that step and direction so far
	met   bool
}

// Which selects the runs that a fault hits.
type Which func(*injection)

// OfUndo selects undo runs. The default is do runs.
func OfUndo(in *injection) { in.way = perdure.Undo }

// OfRuns selects runs by number, counted from 1 in their direction. The default is the first.
func OfRuns(nth ...int) Which { return func(in *injection) { in.nth = nth } }

// Inject makes a fault hit a step's first do run, or the runs that which selects. A fault that has not happened by the
// end fails the test.
func (w *World) Inject(step string, fault Fault, which ...Which) {
	in := &injection{step: step, way: perdure.Do, nth: []int{1}, fault: fault}
	for _, set := range which {
		set(in)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plans = append(w.plans, in)
}

type handle struct {
	job  perdure.JobID
	step string
	run  int64
}

// faultOf returns the fault that hits this run; empty if there is none.
func (w *World) faultOf(run *perdure.Run) (fault Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range w.plans {
		if in.step != run.Step || in.way != run.Direction {
			continue
		}
		if in.seen++; slices.Contains(in.nth, in.seen) {
			in.met, fault = true, in.fault
		}
	}
	h := handle{run.Job, run.Step, run.Number}
	switch fault {
	case CrashBefore, CrashAfter:
		w.muted[h] = true
	case Late:
		w.muted[h], w.holding[h] = true, fault
	case Twice:
		w.holding[h] = fault
	}
	return fault
}

// shaky returns the agent with the faults that hit its runs.
func (w *World) shaky(a *perdure.Agent) *perdure.Agent {
	s := perdure.NewAgent(a.Name)
	s.Slots = a.Slots
	s.HandleAny(func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
		fault := w.faultOf(run)
		if fault == CrashBefore {
			<-ctx.Done() // the run has expired: nothing is reported
			return nil, ctx.Err()
		}
		out, err := a.Execute(ctx, run)
		if fault == CrashAfter {
			<-ctx.Done()
		}
		return out, err
	})
	return s
}

// Refusal is a report that was not accepted.
type Refusal struct {
	Step   string
	Run    int64
	Reason protocol.RefusalReason
}

// Refused returns the reports that were not accepted so far.
func (w *World) Refused() []Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.refused)
}

// exchange is the connection between the agents and the node, with the faults.
type exchange struct {
	protocol.Exchange
	w *World
}

// Heartbeat drops heartbeats of runs that are muted.
func (e *exchange) Heartbeat(ctx context.Context, holder string, beats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	e.w.mu.Lock()
	beats = slices.DeleteFunc(slices.Clone(beats), func(b protocol.Heartbeat) bool { return e.w.muted[handle{b.Job, b.Step, b.Run}] })
	e.w.mu.Unlock()
	if len(beats) == 0 {
		return nil, nil
	}
	return e.Exchange.Heartbeat(ctx, holder, beats)
}

// Report delivers, delays or doubles reports.
func (e *exchange) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	results := make([]protocol.ReportResult, len(reports))
	var now []protocol.Report
	var places []int
	for i, r := range reports {
		if e.take(r) == Late {
			results[i].Accepted = true // that is all that the host can know
			e.w.going.Go(func() { e.late(holder, r) })
			continue
		}
		now, places = append(now, r), append(places, i)
	}
	if len(now) == 0 && next == nil {
		return results, nil, nil
	}
	got, runs, err := e.tell(ctx, holder, now, next)
	if err != nil {
		return nil, nil, err
	}
	for i, at := range places {
		results[at] = got[i]
		if e.took(now[i]) == Twice {
			if _, _, err := e.tell(ctx, holder, now[i:i+1], nil); err != nil {
				return nil, nil, err
			}
		}
	}
	return results, runs, nil
}

func (e *exchange) take(r protocol.Report) Fault {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	return e.w.holding[handle{r.Job, r.Step, r.Run}]
}

func (e *exchange) took(r protocol.Report) Fault {
	f := e.take(r)
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	delete(e.w.holding, handle{r.Job, r.Step, r.Run})
	return f
}

// late sends a report after its run has expired.
func (e *exchange) late(holder string, r protocol.Report) {
	for {
		v, err := e.w.node.Job(e.w.ctx, r.Job.String(), 0)
		if err != nil {
			e.w.Error(err)
			return
		}
		if s := v.Steps.Get(r.Step); s.Run != r.Run || s.Phase != perdure.Running {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if _, _, err := e.tell(e.w.ctx, holder, []protocol.Report{r}, nil); err != nil {
		e.w.Error(err)
	}
}

// tell sends reports, and records which were refused.
func (e *exchange) tell(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	got, runs, err := e.Exchange.Report(ctx, holder, reports, next)
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	for i, g := range got {
		if !g.Accepted {
			e.w.refused = append(e.w.refused, Refusal{reports[i].Step, reports[i].Run, g.Reason})
		}
	}
	return got, runs, err
}
