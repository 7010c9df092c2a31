package service

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/operate"
)

// viewWork bounds the work for rendering, in one view, the inputs of steps that are not stored: as much as one input may
// take. Further inputs are not shown. A request for a single step may take more.
const viewWork = 4 << 20

// Estimated sizes of views, for internal/admission.
const (
	stepRoom   = 2 << 10                                              // a step, without its input and output
	valueRoom  = 2 * perdure.MaxShownValue                            // the input and the output of a step
	textRoom   = 12*perdure.MaxReasonBytes + perdure.MaxProgressBytes // the error's message, escaped, also in the reason why the step waits; and the progress
	jobRoom    = 16 << 10                                             // a job without its steps
	limitRoom  = perdure.MaxHoldersShown * (holderRoom + perdure.MaxNameLength)
	holderRoom = 80      // a holder of a limit, without the name of its step
	entryRoom  = 6 << 10 // an entry of a history, or an alert
)

// room estimates the largest size of a view of the whole job.
func (p *picture) room() int {
	steps := len(p.shape.Steps)
	return jobRoom + steps*stepRoom + min(steps*valueRoom, perdure.MaxShownValues) + min(steps*textRoom, perdure.MaxShownTexts)
}

// newsRoom estimates the size of an event with these steps.
func newsRoom(steps []*kernel.Step) int {
	texts := 0
	for _, s := range steps {
		texts += 2*escaped(s.LastError) + len(s.Progress) // the message is also in the reason why the step waits
	}
	return len(steps)*stepRoom + min(texts, perdure.MaxShownTexts)
}

// view returns a job with all of its steps.
func (svc *Service) view(ctx context.Context, id perdure.JobID) (*perdure.JobView, error) {
	return svc.part(ctx, id, operate.AllSteps)
}

// part returns a job with some of its steps.
func (svc *Service) part(ctx context.Context, id perdure.JobID, part operate.Steps) (*perdure.JobView, error) {
	p, err := svc.look(ctx, id)
	if err != nil {
		return nil, Unreachable(err)
	}
	p.part = part
	return p.whole(ctx)
}

// viewOf returns the view of a job that was just submitted, from what was stored: its rows need not be read again.
func (svc *Service) viewOf(ctx context.Context, did *scheduler.Submitted, plan *kernel.Plan) (*perdure.JobView, error) {
	if did.NewJob == nil || did.NewJob.Job.HasOutput {
		v, err := svc.Job(ctx, did.ID.String(), 0)
		if perdure.CodeOf(err) == perdure.CodeNotFound { // not "not found": clients repeat a submission that is refused for the time being
			err = &perdure.Error{Code: perdure.CodeUnavailable, Message: "job " + did.ID.String() + " was submitted in a transaction, and no node has made it yet",
				Hint: "submit it again"}
		}
		return svc.orSummary(ctx, did.ID, v, err)
	}
	j, steps := did.NewJob.Job, did.NewJob.Steps
	f := &kernel.Facts{Now: j.CreatedAt}
	if err := svc.recent.fill(ctx, svc, f); err != nil {
		svc.Log.Debug("view after a submission is incomplete", "error", err) // the job is stored
	}
	if err := svc.recentHosts.fill(ctx, svc, f, steps); err != nil {
		svc.Log.Debug("view after a submission is incomplete", "error", err)
	}
	v := svc.tracedView(j)
	v.Input, v.InputBytes = shown(plan.Definition.Input, len(plan.Definition.Input))
	v.Steps = make(perdure.StepViews, len(steps))
	for i, s := range steps {
		v.Steps[i] = stepView(s, plan.Shape)
		explain(&v.Steps[i], kernel.Why(j, s, plan, func(i int) bool { return steps[i].Phase != perdure.Settled }, f))
	}
	boundTexts(v.Steps)
	return &v, nil
}

// orSummary returns the view of a job that a submission has stored, or an act has changed. If there was no room for the
// view, it returns a summary: without steps, definition and input. A refusal would mean that nothing has changed.
func (svc *Service) orSummary(ctx context.Context, id perdure.JobID, v *perdure.JobView, err error) (*perdure.JobView, error) {
	if perdure.CodeOf(err) != perdure.CodeTooManyRequests {
		return v, err
	}
	j, _, err := svc.Store.Job(ctx, id, 0)
	if err != nil {
		return nil, Unreachable(err)
	}
	if j == nil {
		return nil, noJob(id)
	}
	summary := svc.tracedView(j)
	if summary.InputBytes, err = svc.readInput(ctx, &kernel.KeptValues{Job: j}, 0); err != nil {
		return nil, err
	}
	return &summary, nil
}

// recent are facts about agents and limits for the answers to submissions. They are up to a second old, so that a thousand
// submissions a second do not read them a thousand times.
type recent struct {
	lock env.Lock
	at   time.Time
	f    kernel.Facts
}

const recentFor = time.Second

func newRecent() *recent { return &recent{lock: env.NewLock()} }

func (r *recent) fill(ctx context.Context, svc *Service, f *kernel.Facts) error {
	if !r.lock.Acquire(ctx, svc.Env) {
		return ctx.Err()
	}
	defer r.lock.Release()
	if now := svc.Env.Now(); r.at.IsZero() || now.Sub(r.at) > recentFor {
		fresh := kernel.Facts{Now: f.Now, Seen: map[string]time.Time{}, Limits: map[string]kernel.LimitFacts{}, Keys: map[kernel.LimitKey]kernel.KeyUse{}}
		if err := svc.seen(ctx, &fresh); err != nil {
			return err
		}
		limits, err := svc.Store.ListLimits(ctx)
		if err != nil {
			return Unreachable(err)
		}
		for _, l := range limits {
			if fresh.Limits[l.Name], err = svc.limitFacts(ctx, l); err != nil {
				return err
			}
		}
		r.f, r.at = fresh, now
	}
	f.Seen, f.Limits = r.f.Seen, r.f.Limits
	return nil
}

// shown returns a value for a view, or its size if it is left out.
func shown(value json.RawMessage, size int) (json.RawMessage, int) {
	if value == nil || size > perdure.MaxShownValue {
		return nil, size
	}
	return value, 0
}

// picture is the state of a job that a follower has shown, so that the next event can contain the changes only.
type picture struct {
	svc    *Service
	shape  *kernel.Shape
	id     perdure.JobID
	part   operate.Steps  // which steps the view of the whole job has
	job    *kernel.Job    // as it was just read; nil after it was shown
	few    []*kernel.Step // the steps that were read with it
	open   []bool         // by index: the steps that are not settled
	drawn  []time.Time
	read   time.Time     // when the rows were last read, by the store's clock
	rest   time.Duration // how long the follower waits before it reads again
	waited time.Duration // how long the latest read waited for room: this costs nothing
}

func (svc *Service) look(ctx context.Context, id perdure.JobID) (*picture, error) {
	j, steps, err := svc.Store.Job(ctx, id, fewSteps)
	if err != nil {
		return nil, err
	}
	if j == nil {
		return nil, noJob(id)
	}
	return svc.picture(ctx, j, steps)
}

// fewSteps is the number of steps that are read with their job: most jobs have no more, which saves a round trip.
const fewSteps = 16

// picture returns a picture of a job that was just read, with some of its steps.
func (svc *Service) picture(ctx context.Context, j *kernel.Job, few []*kernel.Step) (*picture, error) {
	shape, err := svc.Scheduler.Shape(ctx, j)
	if err != nil {
		return nil, err
	}
	return &picture{svc: svc, shape: shape, id: j.ID, part: operate.AllSteps, job: j, few: few, open: make([]bool, len(shape.Steps)), drawn: make([]time.Time, len(shape.Steps))}, nil
}

// whole returns the view of the whole job.
func (p *picture) whole(ctx context.Context) (*perdure.JobView, error) {
	room := p.room()
	if p.part == operate.NoSteps {
		room = jobRoom + valueRoom
	}
	if err := admission.Ask(ctx, room); err != nil {
		return nil, err
	}
	return p.draw(ctx, time.Time{})
}

// slack bounds how far the time of a change may lie before its commit.
const slack = 5 * time.Second

// news returns a view of the job with only those steps that have changed since the last view.
func (p *picture) news(ctx context.Context) (*perdure.JobView, error) {
	return p.draw(ctx, p.read.Add(-slack))
}

// reread returns the job as it is now, with the steps that have been written since, or with all steps if they are few.
func (p *picture) reread(ctx context.Context, since time.Time) (*kernel.Job, []*kernel.Step, error) {
	j, steps := p.job, p.few
	if p.job, p.few = nil, nil; j == nil {
		few := fewSteps
		if len(p.shape.Steps) > few { // they are read below, if they are needed
			few = 0
		}
		var err error
		if j, steps, err = p.svc.Store.Job(ctx, p.id, few); err != nil {
			return nil, nil, Unreachable(err)
		}
		if j == nil {
			return nil, nil, noJob(p.id)
		}
	}
	if since.IsZero() && p.part == operate.NoSteps {
		return j, nil, nil
	}
	if len(steps) == len(p.shape.Steps) {
		return j, steps, nil
	}
	steps, err := p.svc.Store.StepsOf(ctx, p.id, since)
	if err != nil {
		return nil, nil, Unreachable(err)
	}
	return j, steps, nil
}

func (p *picture) draw(ctx context.Context, since time.Time) (*perdure.JobView, error) {
	store := p.svc.Store
	var now time.Time
	var err error
	if j := p.job; j != nil && j.Phase == perdure.Settled {
		now = j.UpdatedAt // the store's time is not known
	} else if now, err = store.Now(ctx); err != nil {
		return nil, Unreachable(err)
	}
	j, steps, err := p.reread(ctx, since)
	if err != nil {
		return nil, err
	}
	p.read = now
	v := p.svc.tracedView(j)
	whole := since.IsZero()
	if !whole {
		steps = p.changed(steps)
		began := p.svc.Env.Now()
		if err := admission.Ask(ctx, newsRoom(steps)); err != nil {
			return nil, err
		}
		p.waited = p.svc.Env.Now().Sub(began)
	} else if j.Alerted {
		if v.Alerts, err = p.svc.openAlerts(ctx, p.id); err != nil {
			return nil, err
		}
	} else {
		v.Alerts = []perdure.AlertView{}
	}
	for _, s := range steps {
		p.open[s.Index] = s.Phase != perdure.Settled
		p.drawn[s.Index] = s.UpdatedAt
	}
	drawn := steps
	if whole && p.part == operate.OpenSteps {
		drawn = slices.DeleteFunc(slices.Clone(steps), func(s *kernel.Step) bool { return !p.open[s.Index] })
	}
	if v.Steps, err = p.steps(ctx, j, drawn, now); err == nil && whole {
		err = p.values(ctx, &v, j, steps, drawn)
	}
	if err == nil && j.HasOutput {
		err = p.output(ctx, &v)
	}
	return &v, err
}

// output shows the output of the job.
func (p *picture) output(ctx context.Context, v *perdure.JobView) error {
	found, err := p.svc.Store.Payload(ctx, kernel.StepRef{Job: p.id, Index: kernel.OutputIndex})
	if err != nil {
		return Unreachable(err)
	}
	if found != nil {
		v.Output, v.OutputBytes = shown(found.Output, len(found.Output))
	}
	return nil
}

// changed returns the steps that differ from what was shown.
func (p *picture) changed(steps []*kernel.Step) []*kernel.Step {
	kept := steps[:0]
	for _, s := range steps {
		if !s.UpdatedAt.Equal(p.drawn[s.Index]) {
			kept = append(kept, s)
		}
	}
	return kept
}

func (p *picture) steps(ctx context.Context, j *kernel.Job, steps []*kernel.Step, now time.Time) (perdure.StepViews, error) {
	facts, err := p.svc.facts(ctx, j, steps, now)
	if err != nil {
		return nil, err
	}
	plan := &kernel.Plan{Shape: p.shape, Definition: p.shape.Common, Hash: j.Hash} // without the values of the individual job
	views := make(perdure.StepViews, len(steps))
	for i, s := range steps {
		views[i] = stepView(s, p.shape)
		explain(&views[i], kernel.Why(j, s, plan, func(i int) bool { return p.open[i] }, facts))
	}
	boundTexts(views)
	return views, nil
}

// boundTexts clips error messages, and leaves out progress and the holders of full limits, beyond MaxShownTexts bytes in
// all. Otherwise the view of a job with 10,000 steps has some 300 MB.
func boundTexts(views perdure.StepViews) {
	left := perdure.MaxShownTexts
	for i := range views {
		v := &views[i]
		if e := v.LastError; e != nil {
			size := escaped(e.Message)
			if v.Why != nil { // it may contain the message
				size += escaped(v.Why.Text)
			}
			if size <= left {
				left -= size
			} else {
				short := *e
				short.Message = plain.Shorten(e.Message, perdure.MaxClippedText)
				v.LastError = &short
				if v.Why != nil {
					why := *v.Why
					why.Text = plain.Shorten(why.Text, perdure.MaxClippedText)
					v.Why = &why
				}
			}
		}
		if len(v.Progress) <= left {
			left -= len(v.Progress)
		} else {
			v.Progress = nil
		}
		if v.Why == nil || len(v.Why.Holders) == 0 {
			continue
		}
		size := 0
		for _, h := range v.Why.Holders {
			size += holderRoom + len(h.Step)
		}
		if size <= left {
			left -= size
		} else {
			why := *v.Why
			why.Holders = nil
			v.Why = &why
		}
	}
}

// escaped returns the size of a text in JSON, or slightly more.
func escaped(text string) int {
	size := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c == '<', c == '>', c == '&', c == 0x7f:
			size += 5
		case c == '"', c == '\\':
			size++
		case c >= 0x80: // U+2028 and the like
			size++
		}
	}
	return size
}

// values adds the JSON values of a job, within the bounds of a view: its input and definition, and the inputs and
// outputs of the steps that it shows. steps are all of them.
func (p *picture) values(ctx context.Context, v *perdure.JobView, j *kernel.Job, steps, shows []*kernel.Step) error {
	kept := kernel.KeptValues{Job: j, Steps: steps, Shape: p.shape, Budget: &kernel.Budget{Work: viewWork, Stop: ctx.Err}}
	inputBytes, err := p.svc.readInput(ctx, &kept, perdure.MaxShownValue)
	if err != nil {
		return err
	}
	v.Input, v.InputBytes = shown(kept.Input, inputBytes)
	if v.DefinitionBytes = definition.CanonicalSize(p.shape, j, inputBytes); v.DefinitionBytes <= perdure.MaxShownValue {
		plan, err := p.shape.PlanOf(j, kept.Input)
		if err != nil {
			return Unreachable(err)
		}
		v.Definition, v.DefinitionBytes = definition.Canonical(plan), 0
	}
	if len(shows) > 0 && slices.ContainsFunc(steps, func(s *kernel.Step) bool { return s.HasOutput || s.OwnInput }) {
		payloads, err := p.svc.Store.Payloads(ctx, p.id, perdure.MaxShownValue, perdure.MaxShownValues)
		if err != nil {
			return Unreachable(err)
		}
		kept.Payloads = make(map[int]kernel.SizedPayload, len(payloads))
		for _, payload := range payloads {
			kept.Payloads[payload.Index] = payload
		}
	}
	if complete(steps, p.shape) {
		showValues(v.Steps, shows, &kept)
	}
	return nil
}

// complete reports whether all steps of a job exist, in order. Otherwise its rows are damaged (perdure check).
func complete(steps []*kernel.Step, shape *kernel.Shape) bool {
	for i, s := range steps {
		if s.Index != i {
			return false
		}
	}
	return len(steps) == len(shape.Steps)
}

// showValues fills in the inputs and outputs of steps that fit.
func showValues(views perdure.StepViews, steps []*kernel.Step, kept *kernel.KeptValues) {
	sum := 0
	fit := func(value json.RawMessage, size int) (json.RawMessage, int) {
		if sum+len(value) > perdure.MaxShownValues {
			return nil, size
		}
		value, size = shown(value, size)
		sum += len(value)
		return value, size
	}
	for i, s := range steps {
		in, size := kept.InputOf(s.Index)
		views[i].Input, views[i].InputBytes = fit(in, max(size, len(in)))
		out := kept.Payloads[s.Index]
		views[i].Output, views[i].OutputBytes = fit(out.Output, out.OutputBytes)
	}
}

// readInput reads the job's input, unless it has more than max bytes.
func (svc *Service) readInput(ctx context.Context, kept *kernel.KeptValues, max int) (size int, err error) {
	if !kept.Job.InputStoredApart {
		kept.Input, kept.InputRead = kept.Job.Input, true
		return len(kept.Input), nil
	}
	if kept.Input, size, err = svc.Store.Input(ctx, kept.Job.ID, max); err != nil {
		return 0, Unreachable(err)
	}
	kept.InputRead = kept.Input != nil
	return size, nil
}

// Definition implements perdure.Jobs.
func (svc *Service) Definition(ctx context.Context, ref string) (json.RawMessage, error) {
	return onceMade(ctx, svc, ref, 0, func(ctx context.Context, id perdure.JobID) (json.RawMessage, error) {
		j, _, err := svc.Store.Job(ctx, id, 0)
		if err != nil {
			return nil, Unreachable(err)
		}
		if j == nil {
			return nil, noJob(id)
		}
		shape, err := svc.Scheduler.Shape(ctx, j)
		if err != nil {
			return nil, Unreachable(err)
		}
		inputBytes := len(j.Input)
		if j.InputStoredApart {
			inputBytes = perdure.MaxPayloadBytes // or less
		}
		if err := admission.Ask(ctx, definition.CanonicalSize(shape, j, inputBytes)); err != nil {
			return nil, err
		}
		plan, err := svc.Scheduler.Plan(ctx, j)
		if err != nil {
			return nil, Unreachable(err)
		}
		return definition.Canonical(plan), nil
	})
}

// Output implements perdure.Jobs.
func (svc *Service) Output(ctx context.Context, ref string) (json.RawMessage, error) {
	return onceMade(ctx, svc, ref, 0, func(ctx context.Context, id perdure.JobID) (json.RawMessage, error) {
		if err := admission.Ask(ctx, 2*perdure.MaxPayloadBytes); err != nil { // it is read with the input
			return nil, err
		}
		j, _, err := svc.Store.Job(ctx, id, 0)
		if err != nil {
			return nil, Unreachable(err)
		}
		if j == nil {
			return nil, noJob(id)
		}
		if !j.HasOutput {
			return plain.OrNull(nil), nil
		}
		found, err := svc.Store.Payload(ctx, kernel.StepRef{Job: id, Index: kernel.OutputIndex})
		if err != nil {
			return nil, Unreachable(err)
		}
		if found == nil {
			return plain.OrNull(nil), nil // it was redone meanwhile
		}
		return plain.OrNull(found.Output), nil
	})
}

// Step implements perdure.Jobs.
func (svc *Service) Step(ctx context.Context, ref, step string) (*perdure.StepDetail, error) {
	return onceMade(ctx, svc, ref, 0, func(ctx context.Context, id perdure.JobID) (*perdure.StepDetail, error) {
		p, err := svc.look(ctx, id)
		if err != nil {
			return nil, Unreachable(err)
		}
		return p.step(ctx, step)
	})
}

// step returns the view of one step, with its complete values.
func (p *picture) step(ctx context.Context, name string) (*perdure.StepDetail, error) {
	i, there := p.shape.Index[name]
	if !there {
		return nil, noStep(p.id, name, p.shape.Index)
	}
	if err := admission.Ask(ctx, stepRoom+2*perdure.MaxPayloadBytes); err != nil { // the values of the undo may be as large
		return nil, err
	}
	now, err := p.svc.Store.Now(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	j, steps, err := p.reread(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	if !complete(steps, p.shape) {
		return nil, perdure.Refuse(perdure.CodeUnavailable, "rows of job %s are missing: see perdure check", p.id)
	}
	for _, s := range steps {
		p.open[s.Index] = s.Phase != perdure.Settled
	}
	views, err := p.steps(ctx, j, steps[i:i+1], now)
	if err != nil {
		return nil, err
	}
	kept := kernel.KeptValues{Job: j, Steps: steps, Shape: p.shape, Payloads: map[int]kernel.SizedPayload{},
		Budget: &kernel.Budget{Work: 4 * viewWork, Stop: ctx.Err}}
	if _, err := p.svc.readInput(ctx, &kept, perdure.MaxPayloadBytes); err != nil {
		return nil, err
	}
	if err := p.svc.readPayloads(ctx, &kept, i); err != nil {
		return nil, err
	}
	d := &perdure.StepDetail{Job: p.id, Name: name, StepView: views[0]}
	d.Output = kept.Payloads[i].Output
	d.Input, d.InputBytes = kept.InputOf(i)
	return d, nil
}

// Bounds of the reads for rendering the input of one undo again.
const (
	maxRereadSteps = 100
	maxRereadBytes = 16 << 20
)

// readPayloads reads the input and output of a step and, if they are few, the outputs that the input of its undo reads.
func (svc *Service) readPayloads(ctx context.Context, kept *kernel.KeptValues, i int) error {
	wanted := []int{i}
	if refs := kept.InputRefs(i); len(refs) > 0 && len(refs) < maxRereadSteps {
		wanted = append(wanted, refs...)
		most := min(len(refs)*perdure.MaxPayloadBytes, maxRereadBytes+perdure.MaxPayloadBytes)
		if err := admission.Ask(ctx, stepRoom+2*perdure.MaxPayloadBytes+most); err != nil {
			return err
		}
	}
	read := 0
	for _, at := range wanted {
		if s := kept.Steps[at]; read > maxRereadBytes || !s.HasOutput && !s.OwnInput {
			continue
		}
		found, err := svc.Store.Payload(ctx, kept.Steps[at].StepRef)
		if err != nil {
			return Unreachable(err)
		}
		if found != nil {
			kept.Payloads[at] = kernel.SizedPayload{Payload: *found, InputBytes: len(found.Input), OutputBytes: len(found.Output)}
			read += len(found.Input) + len(found.Output)
		}
	}
	return nil
}

// tracedView is jobView with the job's trace. Lists leave it out.
func (svc *Service) tracedView(j *kernel.Job) perdure.JobView {
	v := jobView(j)
	if svc.TraceID != nil {
		v.TraceID = svc.TraceID(j.ID)
		if v.TraceID != "" {
			v.TraceURL = strings.ReplaceAll(svc.TraceURL, "{traceId}", v.TraceID)
		}
	}
	return v
}

func jobView(j *kernel.Job) perdure.JobView {
	v := perdure.JobView{ID: j.ID, Key: j.Key, Type: j.Type, Priority: j.Priority, Labels: maps.Clone(j.Labels),
		Current: j.Current, Desired: j.Desired, Phase: j.Phase, Restarts: j.Restarts, Unsettled: j.Unsettled,
		StartAt: j.StartAt, StartBy: j.StartBy, CompleteBy: j.CompleteBy, SubmittedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt, SettledAt: j.SettledAt}
	if j.States != nil {
		v.States = new(*j.States)
	}
	v.OutputError, v.MadeFrom, v.Parent = j.OutputError, j.MadeFrom, j.Parent.Shown()
	if j.OutputError != "" {
		v.Output = plain.OrNull(nil)
	}
	if j.RestartPending {
		done := perdure.Done
		v.Then = &done
	}
	if j.GivenUp() {
		v.GivenUp = &perdure.Mark{By: j.GivenUpBy, Reason: j.GivenUpReason}
	}
	return v
}

func stepView(s *kernel.Step, shape *kernel.Shape) perdure.StepView {
	d := shape.Steps[s.Index].StepDefinition
	v := perdure.StepView{Name: s.Name, Agent: d.Agent, Action: d.Action, After: d.After,
		Current: s.Current, Desired: s.Desired, Phase: s.Phase, Skipped: s.Skipped, GivenUp: s.GivenUp,
		Run: s.Run, Direction: s.Direction, Was: s.CurrentBeforeRun, Turn: s.Turn, Key: s.Key(),
		LockedBy: s.LockedBy, LockedUntil: s.LockedUntil, CompleteBy: s.CompleteBy,
		Failures: s.Failures, Rung: s.Rung, Waits: s.Waits, Returns: s.Returns, AvailableAt: s.AvailableAt,
		Outcome: s.Outcome, ProgressAt: s.ProgressAt, StopRequestedAt: s.StopRequestedAt, ReadyAt: s.ReadyAt, StartedAt: s.StartedAt, EndedAt: s.EndedAt}
	if v.Action == "" {
		v.Action = s.Name
	}
	if ps := &shape.Steps[s.Index]; ps.Form == kernel.ByAgent && ps.Undo == nil {
		v.NoUndo = s.Phase == perdure.Settled && s.Current == perdure.Undone && s.Desired == perdure.Undone && s.Run > 0 && !s.GivenUp
	}
	if s.Agent != "" {
		v.Agent = s.Agent // the undo may have another agent
	}
	for _, need := range s.Needs.List() {
		v.Limits = append(v.Limits, perdure.StepLimit{Name: need.Name, Key: need.Key, Amount: need.Amount})
	}
	if d := s.Needs.Demand(); d != "" {
		v.Requires = d.Requires()
	}
	if s.LastError != "" || s.ErrorCode != "" {
		v.LastError = &perdure.RunError{Code: s.ErrorCode, Message: s.LastError}
	}
	if s.Children != "" {
		v.Children = childrenView(s)
	}
	if s.Progress != "" {
		v.Progress = json.RawMessage(s.Progress)
	}
	return v
}

// explain adds the reason why a step waits. A step that only a limit holds back is ready in its row, so that claims find
// it, and waiting in a view.
func explain(v *perdure.StepView, why *perdure.Reason) {
	v.Why = why
	if why != nil && why.Kind == perdure.WhyLimit {
		v.Phase = perdure.Waiting
	}
}

// facts reads the data on which the reasons of a job's ready steps depend.
func (svc *Service) facts(ctx context.Context, j *kernel.Job, steps []*kernel.Step, now time.Time) (*kernel.Facts, error) {
	f := &kernel.Facts{Now: now, Seen: map[string]time.Time{}, Limits: map[string]kernel.LimitFacts{}, Keys: map[kernel.LimitKey]kernel.KeyUse{},
		Quarantined: svc.Scheduler.Quarantined(j.ID)}
	needed := map[string]bool{}
	for _, s := range steps {
		if s.Phase != perdure.Ready {
			continue
		}
		needed[kernel.AgentLimit(s.Agent)], needed[kernel.JobLimit(j.Type)] = true, true
		for _, need := range s.Needs.List() {
			needed[need.Name] = true
		}
	}
	if len(needed) == 0 {
		return f, nil
	}
	if err := svc.seen(ctx, f); err != nil {
		return nil, err
	}
	if err := svc.countInFlight(ctx, f, steps); err != nil {
		return nil, err
	}
	if err := svc.readShares(ctx, f, steps); err != nil {
		return nil, err
	}
	if err := svc.recentHosts.fill(ctx, svc, f, steps); err != nil {
		return nil, err
	}
	limits, err := svc.Store.ListLimits(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	for _, l := range limits {
		if !needed[l.Name] {
			continue
		}
		if f.Limits[l.Name], err = svc.limitFacts(ctx, l); err != nil {
			return nil, err
		}
	}
	return f, svc.keyUses(ctx, f, steps, maxReasonKeys, perdure.MaxHoldersShown)
}

// keyUses reads what is taken of the keys that ready steps need, and of each at most so many holders. f has the limits, and keeps
// the keys that it has, at most so many.
func (svc *Service) keyUses(ctx context.Context, f *kernel.Facts, steps []*kernel.Step, most, holders int) error {
	var rated, ordered []kernel.LimitKey
	for _, s := range steps {
		if s.Phase != perdure.Ready {
			continue
		}
		for _, need := range s.Needs.List() {
			l, exists := f.Limits[need.Name]
			if _, known := f.Keys[need.LimitKey]; known || !exists || need.Key == "" || !l.BoundsKeys() || len(f.Keys) >= most {
				continue
			}
			used, held, err := svc.Store.LimitUse(ctx, need.LimitKey, holders)
			if err != nil {
				return Unreachable(err)
			}
			f.Keys[need.LimitKey] = kernel.KeyUse{Taken: kernel.Taken{Used: used}, Holders: holderViews(held)}
			if l.ForKey(need.Key).Rate.Bounds() {
				rated = append(rated, need.LimitKey)
			}
			if l.Ordered {
				ordered = append(ordered, need.LimitKey)
			}
		}
	}
	if len(rated) > 0 {
		full, err := svc.Store.Buckets(ctx, rated)
		if err != nil {
			return Unreachable(err)
		}
		for _, k := range rated {
			use := f.Keys[k]
			use.Bucket = full[k]
			f.Keys[k] = use
		}
	}
	if len(ordered) > 0 {
		first, err := svc.Store.FirstInLine(ctx, ordered)
		if err != nil {
			return Unreachable(err)
		}
		for _, k := range ordered {
			use := f.Keys[k]
			use.First = first[k]
			f.Keys[k] = use
		}
	}
	return nil
}

// maxReasonKeys bounds the keys of limits that the view of one job reads, and maxListKeys those that a page of jobs reads. Further
// steps show that they wait for their agent.
const (
	maxReasonKeys = 100
	maxListKeys   = 500
)

// An agent's process with a free slot always has a claim waiting. This node knows its own waiting claims at once, and
// those at other nodes when these nodes have stored them.
const (
	noClaimHere   = 2 * time.Second
	noClaimShared = 15 * time.Second
)

// countInFlight counts the runs in flight of those agents of ready steps that have no claim waiting, so that Why can
// distinguish an agent whose slots are all in use from one that has no process.
func (svc *Service) countInFlight(ctx context.Context, f *kernel.Facts, steps []*kernel.Step) error {
	idle := noClaimHere
	if svc.Shared {
		idle = noClaimShared
	}
	f.InFlight = map[string]int{}
	for _, s := range steps {
		if s.Phase != perdure.Ready || len(f.InFlight) >= maxReasonKeys {
			continue
		}
		if _, counted := f.InFlight[s.Agent]; counted {
			continue
		}
		if at, ok := f.Seen[s.Agent]; !ok || f.Now.Sub(at) < idle || f.Now.Sub(at) > perdure.NotSeenFor {
			continue
		}
		used, _, err := svc.Store.LimitUse(ctx, kernel.LimitKey{Name: kernel.AgentLimit(s.Agent)}, 0)
		if err != nil {
			return Unreachable(err)
		}
		f.InFlight[s.Agent] = used
	}
	return nil
}

// maxSharesRead bounds how many shares of an agent are read to say where one of them is in the order.
const maxSharesRead = 1000

// readShares reads the shares of the agents of ready steps.
func (svc *Service) readShares(ctx context.Context, f *kernel.Facts, steps []*kernel.Step) error {
	var settings map[string]perdure.AgentSettings
	for _, s := range steps {
		if _, known := f.Shares[s.Agent]; known || s.Phase != perdure.Ready || len(f.Shares) >= maxReasonKeys {
			continue
		}
		if settings == nil {
			var err error
			if settings, err = svc.Store.ListAgents(ctx); err != nil {
				return Unreachable(err)
			}
		}
		set := settings[s.Agent]
		if !kernel.IsFair(set) {
			continue
		}
		shares, floor, err := svc.Store.Shares(ctx, s.Agent, maxSharesRead, false)
		if err != nil {
			return Unreachable(err)
		}
		if f.Shares == nil {
			f.Shares = map[string]kernel.ShareFacts{}
		}
		f.Shares[s.Agent] = kernel.ShareFacts{Settings: set, Shares: shares, Capped: len(shares) >= maxSharesRead, Floor: floor}
	}
	return nil
}

func (svc *Service) seen(ctx context.Context, f *kernel.Facts) error {
	written, err := svc.Store.LastClaims(ctx)
	if err != nil {
		return Unreachable(err)
	}
	for _, s := range append(written, svc.Scheduler.AllSeen(f.Now)...) {
		if s.At.After(f.Seen[s.Agent]) {
			f.Seen[s.Agent] = s.At
		}
	}
	return nil
}
