package node

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"perdure"
	"perdure/internal/scheduler"
)

// shownPayload bounds the outputs that one view of a job carries.
const shownPayload = 16 << 20

// view reads a job with all of its steps.
func (n *Node) view(ctx context.Context, id perdure.JobID) (*perdure.JobView, error) {
	p, err := n.look(ctx, id)
	if err != nil {
		return nil, unreachable(err)
	}
	return p.whole(ctx)
}

// viewOf draws a job that was just submitted, from what was stored: its rows need not be read again.
func (n *Node) viewOf(ctx context.Context, did *scheduler.Submitted, plan *perdure.Plan) (*perdure.JobView, error) {
	if did.Made == nil {
		return n.Job(ctx, did.ID.String(), 0) // it may lie in the inbox yet
	}
	j, steps := did.Made.Job, did.Made.Steps
	f := &perdure.Facts{Now: j.CreatedAt}
	if err := n.recent.fill(ctx, n, f); err != nil {
		n.log.Debug("the answer to a submission says less than it could", "error", err) // the job is there
	}
	v := jobView(j)
	v.Input = plan.Definition.Input
	v.Steps = make(perdure.StepViews, len(steps))
	for i, s := range steps {
		v.Steps[i] = stepView(s, plan)
		explain(&v.Steps[i], perdure.Why(j, s, plan, func(i int) bool { return steps[i].Phase != perdure.Settled }, f))
	}
	return &v, nil
}

// recent is what the answers to submissions say of agents and limits: up to a second old, so that a
// thousand submissions a second do not ask for it a thousand times.
type recent struct {
	mu sync.Mutex
	at time.Time
	f  perdure.Facts
}

const recentFor = time.Second

func (r *recent) fill(ctx context.Context, n *Node, f *perdure.Facts) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) > recentFor {
		fresh := perdure.Facts{Now: f.Now, Seen: map[string]time.Time{}, Limits: map[string]perdure.LimitView{}}
		if err := n.seen(ctx, &fresh); err != nil {
			return err
		}
		limits, err := n.ListLimits(ctx)
		if err != nil {
			return err
		}
		for _, l := range limits {
			fresh.Limits[l.Name] = l
		}
		r.f, r.at = fresh, time.Now()
	}
	f.Seen, f.Limits = r.f.Seen, r.f.Limits
	return nil
}

// picture is what is known of a job while it is followed: enough to draw what has changed since.
type picture struct {
	n     *Node
	plan  *perdure.Plan
	id    perdure.JobID
	job   *perdure.Job    // as it was just read; nil once it was drawn
	few   []*perdure.Step // that were read with it
	open  []bool          // by index: not settled
	drawn []time.Time
	read  time.Time // when the rows were read last, by the store's clock
}

func noJob(id perdure.JobID) error {
	return perdure.Refuse(perdure.CodeNotFound, "there is no job %s", id)
}

func (n *Node) look(ctx context.Context, id perdure.JobID) (*picture, error) {
	j, steps, err := n.store.Job(ctx, id, fewSteps)
	if err != nil {
		return nil, err
	}
	if j == nil {
		return nil, noJob(id)
	}
	return n.picture(ctx, j, steps)
}

// fewSteps are read with their job: of most jobs that is all of them, and saves a round trip.
const fewSteps = 16

// picture begins with a job that was just read, and some of its steps.
func (n *Node) picture(ctx context.Context, j *perdure.Job, few []*perdure.Step) (*picture, error) {
	plan, err := n.scheduler.Plan(ctx, j)
	if err != nil {
		return nil, err
	}
	return &picture{n: n, plan: plan, id: j.ID, job: j, few: few, open: make([]bool, len(plan.Steps)), drawn: make([]time.Time, len(plan.Steps))}, nil
}

// whole draws all of the job.
func (p *picture) whole(ctx context.Context) (*perdure.JobView, error) {
	return p.draw(ctx, time.Time{})
}

// slack is how far the time of a change may lie before its commit.
const slack = 5 * time.Second

// news draws the job with those of its steps alone that have changed since the last time.
func (p *picture) news(ctx context.Context) (*perdure.JobView, error) {
	return p.draw(ctx, p.read.Add(-slack))
}

// reread is the job as it is now, and those of its steps that have been written since, or all where they are few.
func (p *picture) reread(ctx context.Context, since time.Time) (*perdure.Job, []*perdure.Step, error) {
	j, steps := p.job, p.few
	if p.job, p.few = nil, nil; j == nil {
		few := fewSteps
		if len(p.plan.Steps) > few { // they are read below, as far as they are needed
			few = 0
		}
		var err error
		if j, steps, err = p.n.store.Job(ctx, p.id, few); err != nil {
			return nil, nil, unreachable(err)
		}
		if j == nil {
			return nil, nil, noJob(p.id)
		}
	}
	if len(steps) == len(p.plan.Steps) {
		return j, steps, nil
	}
	steps, err := p.n.store.StepsOf(ctx, p.id, since)
	if err != nil {
		return nil, nil, unreachable(err)
	}
	return j, steps, nil
}

func (p *picture) draw(ctx context.Context, since time.Time) (*perdure.JobView, error) {
	store := p.n.store
	var now time.Time
	var err error
	if j := p.job; j != nil && j.Phase == perdure.Settled {
		now = j.UpdatedAt // there is nothing to be said of time
	} else if now, err = store.Now(ctx); err != nil {
		return nil, unreachable(err)
	}
	j, steps, err := p.reread(ctx, since)
	if err != nil {
		return nil, err
	}
	p.read = now
	v := jobView(j)
	if since.IsZero() {
		v.Input = p.plan.Definition.Input
		if !j.Alerted {
			v.Alerts = []perdure.AlertView{}
		} else if v.Alerts, err = p.n.openAlerts(ctx, p.id); err != nil {
			return nil, err
		}
	} else {
		steps = p.changed(steps)
	}
	for _, s := range steps {
		p.open[s.Index] = s.Phase != perdure.Settled
		p.drawn[s.Index] = s.UpdatedAt
	}
	v.Steps, err = p.steps(ctx, j, steps, now, since.IsZero())
	return &v, err
}

// changed leaves out the steps that were drawn as they are.
func (p *picture) changed(steps []*perdure.Step) []*perdure.Step {
	kept := steps[:0]
	for _, s := range steps {
		if !s.UpdatedAt.Equal(p.drawn[s.Index]) {
			kept = append(kept, s)
		}
	}
	return kept
}

func (p *picture) steps(ctx context.Context, j *perdure.Job, steps []*perdure.Step, now time.Time, outputs bool) (perdure.StepViews, error) {
	facts, err := p.n.facts(ctx, j, steps, now)
	if err != nil {
		return nil, err
	}
	views := make(perdure.StepViews, len(steps))
	at := make(map[int]*perdure.StepView, len(steps))
	hasOutput := false
	for i, s := range steps {
		views[i] = stepView(s, p.plan)
		explain(&views[i], perdure.Why(j, s, p.plan, func(i int) bool { return p.open[i] }, facts))
		at[s.Index] = &views[i]
		hasOutput = hasOutput || s.HasOutput
	}
	if !outputs || !hasOutput {
		return views, nil
	}
	payloads, err := p.n.store.Payloads(ctx, p.id, shownPayload)
	if err != nil {
		return nil, unreachable(err)
	}
	for _, pl := range payloads {
		if v := at[pl.Index]; v != nil {
			v.Output = pl.Output
		}
	}
	return views, nil
}

func jobView(j *perdure.Job) perdure.JobView {
	v := perdure.JobView{ID: j.ID, Key: j.Key, Type: j.Type, Priority: j.Priority, Labels: maps.Clone(j.Labels),
		Current: j.Current, Desired: j.Desired, Phase: j.Phase, Restarts: j.Restarts, Unsettled: j.Unsettled,
		CompleteBy: j.CompleteBy, SubmittedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt, SettledAt: j.SettledAt}
	if j.States != nil {
		v.States = new(*j.States)
	}
	if j.Then {
		done := perdure.Done
		v.Then = &done
	}
	if j.GivenUp() {
		v.GivenUp = &perdure.Mark{By: j.GivenUpBy, Reason: j.GivenUpReason}
	}
	return v
}

func stepView(s *perdure.Step, plan *perdure.Plan) perdure.StepView {
	d := plan.Steps[s.Index].StepDefinition
	v := perdure.StepView{Name: s.Name, Agent: d.Agent, Action: d.Action, After: d.After,
		Current: s.Current, Desired: s.Desired, Phase: s.Phase, Skipped: s.Skipped, GivenUp: s.GivenUp,
		Run: s.Run, Direction: s.Direction, Was: s.Was, Turn: s.Turn, Key: s.Key(),
		LockedBy: s.LockedBy, LockedUntil: s.LockedUntil, CompleteBy: s.CompleteBy,
		Failures: s.Failures, Rung: s.Rung, Waits: s.Waits, Returns: s.Returns, AvailableAt: s.AvailableAt,
		Outcome: s.Outcome, ReadyAt: s.ReadyAt, StartedAt: s.StartedAt, EndedAt: s.EndedAt}
	if v.Action == "" {
		v.Action = s.Name
	}
	if s.Agent != "" {
		v.Agent = s.Agent // the undo's may be another
	}
	if s.LastError != "" || s.ErrorCode != "" {
		v.LastError = &perdure.RunError{Code: s.ErrorCode, Message: s.LastError}
	}
	if s.Progress != "" {
		v.Progress = json.RawMessage(s.Progress)
	}
	return v
}

// explain adds the reason. A step that only a limit holds back is ready in its row, so that whoever claims
// finds it, and waits for those who look.
func explain(v *perdure.StepView, why *perdure.Reason) {
	v.Why = why
	if why != nil && why.Kind == perdure.WhyLimit {
		v.Phase = perdure.Waiting
	}
}

// facts reads what the reasons of a job's ready steps depend on.
func (n *Node) facts(ctx context.Context, j *perdure.Job, steps []*perdure.Step, now time.Time) (*perdure.Facts, error) {
	f := &perdure.Facts{Now: now, Seen: map[string]time.Time{}, Limits: map[string]perdure.LimitView{}}
	agents := map[string]bool{}
	for _, s := range steps {
		if s.Phase == perdure.Ready {
			agents[s.Agent] = true
		}
	}
	if len(agents) == 0 {
		return f, nil
	}
	if err := n.seen(ctx, f); err != nil {
		return nil, err
	}
	limits, err := n.store.ListLimits(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	for _, l := range limits {
		kind, of, _ := perdure.SplitLimit(l.Name)
		if kind == "agent" && !agents[of] || kind == "job" && of != j.Type {
			continue
		}
		if f.Limits[l.Name], err = n.limitView(ctx, l); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (n *Node) seen(ctx context.Context, f *perdure.Facts) error {
	written, err := n.store.Seen(ctx)
	if err != nil {
		return unreachable(err)
	}
	for _, s := range append(written, n.scheduler.SeenNow(f.Now)...) {
		if s.At.After(f.Seen[s.Agent]) {
			f.Seen[s.Agent] = s.At
		}
	}
	return nil
}
