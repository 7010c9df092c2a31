package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// Report applies reports and returns a result for each, in order. If next is not nil, it also answers this claim.
func (s *Scheduler) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	op := &reportOp{holder: holder, rights: rightsOf(ctx), reports: reports}
	var runs []perdure.Run
	var err error
	if next == nil {
		crashpoint.Here(crashpoint.ReportQueue)
		err = s.do(ctx, op, len(reports))
	} else {
		runs, err = s.reportAndClaim(ctx, op, *next)
	}
	if err != nil {
		return nil, nil, err
	}
	crashpoint.Here(crashpoint.ReportDone)
	for i := range op.results {
		if !op.results[i].Accepted {
			s.meter.Refused(op.results[i].Reason)
		}
	}
	for _, agent := range op.refusedAgents {
		s.meter.RefusedOf(agent)
	}
	return op.results, runs, nil
}

// reportAndClaim carries out reports and a claim in one request. The claim keeps its turn until it is answered: before,
// it is not known what it is granted (F019). If the caller goes away while the request is queued, the claim is
// withdrawn, and the reports are still applied.
func (s *Scheduler) reportAndClaim(ctx context.Context, op *reportOp, c protocol.Claim) ([]perdure.Run, error) {
	w := s.newClaim(ctx, c)
	w.Request.Wait, w.WithReports = 0, true
	if !s.turns.Take(ctx, w.Name(), env.Forever) {
		return nil, cmp.Or(ctx.Err(), error(errInProgress))
	}
	var slowed bool
	if w.Most, _, slowed = s.health.mostRuns(c.Agent, c.Holder, c.Max); w.Most == 0 {
		w.Repeated = true // it gets only the runs that it was granted before
	}
	end := func() { // call it when no transaction has the claim any more
		if slowed {
			s.health.slowedEnded(c.Agent, c.Holder, len(w.Runs))
		}
		s.turns.End(w.Name())
	}
	r := newRequest(op, len(op.reports), make(chan struct{}, 1))
	r.Next = w
	crashpoint.Here(crashpoint.ReportQueue)
	err := s.queue.Put(ctx, []*dispatch.Request{&r.Request})
	if err == nil && (s.env.Wait(ctx, env.Forever, r.done) == env.Gone || s.env.Wait(ctx, env.Forever, w.Answered) == env.Gone) {
		if err = ctx.Err(); !s.queue.Withdraw(&r.Request) {
			s.env.Go(func() {
				s.env.Wait(context.Background(), env.Forever, w.Answered)
				end()
			})
			return nil, err
		}
	}
	end()
	if err != nil {
		return nil, err
	}
	return s.traced(w.Runs), cmp.Or(r.err, w.Err)
}

type reportOp struct {
	holder  string
	rights  *operate.Rights // of the caller; nil: it may report the runs of all agents
	reports []protocol.Report
	results []protocol.ReportResult

	refusedAgents []string // the agent of each refused report on a step that exists

	indeterminateResults []protocol.ReportResult // results of the latest try whose commit was indeterminate
	tryTimes             []time.Time             // the store's time at each try
}

func (o *reportOp) commitIndeterminate() { o.indeterminateResults = o.results }

func (o *reportOp) jobs() []perdure.JobID {
	ids := make([]perdure.JobID, len(o.reports))
	for i := range o.reports {
		ids[i] = o.reports[i].Job
	}
	return ids
}

func (o *reportOp) refs(b *batch) (refs []kernel.StepRef) {
	for i := range o.reports {
		if ref, ok := b.ref(o.reports[i].Job, o.reports[i].Step); ok {
			refs = b.w.ReportRefs(slices.Grow(refs, len(o.reports)-i), ref)
		}
	}
	return refs
}

// ref returns the reference of a step by its name.
func (b *batch) ref(id perdure.JobID, step string) (kernel.StepRef, bool) {
	if !b.w.Has(id) {
		return kernel.StepRef{}, false
	}
	i, ok := b.w.Plan(id).Index[step]
	return kernel.StepRef{Job: id, Index: i}, ok
}

func (o *reportOp) apply(b *batch) error {
	o.results, o.refusedAgents = make([]protocol.ReportResult, len(o.reports)), nil
	for i := range o.reports {
		var err error
		if o.results[i], err = o.reportOne(b, &o.reports[i]); err != nil {
			return err
		}
		ref, ok := b.ref(o.reports[i].Job, o.reports[i].Step)
		if ok && o.indeterminateResults != nil {
			o.results[i] = kernel.OutcomeAfterIndeterminateCommit(b.w.Step(ref), &o.reports[i], o.tryTimes, o.indeterminateResults[i], o.results[i])
		}
		if ok && !o.results[i].Accepted {
			o.refusedAgents = append(o.refusedAgents, b.w.Plan(ref.Job).Steps[ref.Index].Agent)
		}
	}
	o.tryTimes = append(o.tryTimes, b.w.Now())
	return nil
}

func (o *reportOp) reportOne(b *batch, rep *protocol.Report) (protocol.ReportResult, error) {
	if err := rep.Check(); err != nil {
		return protocol.ReportResult{Reason: protocol.RefusedInvalid, Message: err.Error()}, nil
	}
	ref, ok := b.ref(rep.Job, rep.Step)
	if !ok {
		return protocol.ReportResult{Reason: protocol.RefusedUnknown, Message: "there is no step " + rep.Step + " in job " + rep.Job.String()}, nil
	}
	b.reportRefs = b.w.ReportRefs(b.reportRefs[:0], ref) // the job may have changed its direction since the steps were loaded
	if err := b.LoadSteps(b.reportRefs); err != nil {
		return protocol.ReportResult{}, err
	}
	if agent := b.w.Step(ref).Agent; !mayCarryOut(o.rights, agent) {
		return protocol.ReportResult{Reason: protocol.RefusedForbidden, Message: "the token is not for agent " + agent}, nil
	}
	var res protocol.ReportResult
	err := b.Fold(ref.Job, func() { res = b.w.Report(ref, o.holder, rep) })
	return res, err
}

// Heartbeat extends the locks of the holder's runs, and says which of them should stop.
func (s *Scheduler) Heartbeat(ctx context.Context, holder string, heartbeats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	op := &heartbeatOp{holder: holder, rights: rightsOf(ctx), beats: heartbeats}
	crashpoint.Here(crashpoint.HeartbeatQueue)
	if err := s.do(ctx, op, len(heartbeats)); err != nil {
		return nil, err
	}
	crashpoint.Here(crashpoint.HeartbeatDone)
	return op.results, nil
}

// HeartbeatAll is Heartbeat for all runs of the holder: others that the store has for it are lost, and expire at once,
// unless the holder may not have received them when it sent the heartbeat. See protocol.Completer.
func (s *Scheduler) HeartbeatAll(ctx context.Context, c protocol.CompleteHeartbeat) (results []protocol.HeartbeatResult, asOf time.Time, err error) {
	if len(c.Runs) > 0 {
		if results, err = s.Heartbeat(ctx, c.Holder, c.Runs); err != nil {
			return nil, asOf, err
		}
	}
	asOf, err = s.sweepUnlisted(ctx, &c)
	return results, asOf, err
}

type heartbeatOp struct {
	holder  string
	rights  *operate.Rights // as in reportOp
	beats   []protocol.Heartbeat
	results []protocol.HeartbeatResult
}

func (o *heartbeatOp) jobs() []perdure.JobID {
	ids := make([]perdure.JobID, len(o.beats))
	for i := range o.beats {
		ids[i] = o.beats[i].Job
	}
	return ids
}

func (o *heartbeatOp) refs(b *batch) (refs []kernel.StepRef) {
	for i := range o.beats {
		if ref, ok := b.ref(o.beats[i].Job, o.beats[i].Step); ok {
			refs = append(refs, ref)
		}
	}
	return refs
}

func (o *heartbeatOp) apply(b *batch) error {
	o.results = make([]protocol.HeartbeatResult, len(o.beats))
	for i := range o.beats {
		heartbeat := o.beats[i] // a copy, because the caller may have given up, and has these
		ref, ok := b.ref(heartbeat.Job, heartbeat.Step)
		if !ok || !b.w.HasStep(ref) {
			o.results[i] = protocol.HeartbeatResult{Job: heartbeat.Job, Step: heartbeat.Step, Run: heartbeat.Run, Stop: true, Reason: string(protocol.RefusedUnknown)}
			continue
		}
		if !mayCarryOut(o.rights, b.w.Step(ref).Agent) {
			o.results[i] = protocol.HeartbeatResult{Job: heartbeat.Job, Step: heartbeat.Step, Run: heartbeat.Run, Stop: true, Reason: string(protocol.RefusedForbidden)}
			continue
		}
		if checkProgress(heartbeat.Progress) != nil {
			heartbeat.Progress = nil // a progress that cannot be stored does not cost the run its lock
		}
		o.results[i] = b.w.Heartbeat(ref, o.holder, &heartbeat)
	}
	return nil
}

func checkProgress(p json.RawMessage) error {
	if len(p) > perdure.MaxProgressBytes {
		return errors.New("too large")
	}
	return plain.CheckJSON(p)
}

// rightsOf returns the rights of the caller; nil if the program that embeds the node makes the call.
func rightsOf(ctx context.Context) *operate.Rights {
	if id := operate.IdentityOf(ctx); id != nil {
		return &id.Rights
	}
	return nil
}

func mayCarryOut(r *operate.Rights, agent string) bool { return r == nil || r.MayCarryOut(agent) }
