package scheduler

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// txEvent is an event of a transaction, to be counted after the commit.
type txEvent struct {
	kind      eventKind
	job       *kernel.Job // for the events of jobs
	agent     string      // for eventDispatched
	direction perdure.Direction
	ready     time.Duration  // for eventDispatched: how long the step was ready before
	role      string         // for eventDeposed
	run       *kernel.RunEnd // for eventReported
}

type eventKind uint8

const (
	eventSubmitted eventKind = iota
	eventSettled
	eventReopened
	eventStarted // only if the log has level debug
	eventDispatched
	eventReported
	eventDeposed
	eventParked
)

// observe collects the events of the changes.
func (b *batch) observe(c *kernel.Changes) {
	b.journal(c)
	b.wrote = true
	b.debug = b.s.log.Enabled(context.Background(), slog.LevelDebug)
	b.events = slices.Grow(b.events, 2*len(c.NewJobs)+len(c.Jobs)+len(c.Steps))
	ended := b.w.EndedRuns()
	for i := range ended {
		b.events = append(b.events, txEvent{kind: eventReported, run: &ended[i]})
	}
	for i := range c.News {
		b.noteWait(c.News[i].At)
	}
	for i := range c.NewJobs {
		b.observeNew(c, &c.NewJobs[i])
	}
	for i := range c.Jobs {
		b.observeJob(&c.Jobs[i])
	}
	for i := range c.Steps {
		b.observeStep(&c.Steps[i])
	}
}

func (b *batch) observeNew(c *kernel.Changes, n *kernel.NewJob) {
	j := n.Job
	var o *submitOp                                        // nil: a child
	if len(b.submitted) > 0 && b.submitted[0].id == j.ID { // new jobs are written in the order of their submission
		o, b.submitted = b.submitted[0], b.submitted[1:]
	}
	if o != nil && (!j.Alerted || !slices.ContainsFunc(c.Alerts, func(a kernel.Alert) bool { return a.Job == j.ID })) {
		o.answer.NewJob = n
	}
	b.events = append(b.events, txEvent{kind: eventSubmitted, job: j})
	b.observeStart(perdure.Undone, j)
	if j.Phase == perdure.Settled {
		b.events = append(b.events, txEvent{kind: eventSettled, job: j})
	}
	for _, step := range n.Steps {
		b.observeWait(step)
		if step.Phase == perdure.Running {
			b.observeRun(step)
		}
	}
}

func (b *batch) observeJob(c *kernel.JobChange) {
	now, before := c.Now, c.Loaded
	b.movedJobs = append(b.movedJobs, now.ID)
	b.freed = b.freed || before.HasPermit && !now.HasPermit
	b.observeStart(before.Current, now)
	switch {
	case now.Phase == perdure.Settled && before.Phase != perdure.Settled:
		b.events = append(b.events, txEvent{kind: eventSettled, job: now})
	case now.Phase != perdure.Settled && before.Phase == perdure.Settled:
		b.events = append(b.events, txEvent{kind: eventReopened, job: now})
	}
	if now.Phase == perdure.Parked && before.Phase != perdure.Parked {
		b.events = append(b.events, txEvent{kind: eventParked, job: now})
	}
}

// observeStart notes the first dispatch of a job after its submission, an undo or a redo.
func (b *batch) observeStart(before perdure.State, j *kernel.Job) {
	if b.debug && before != perdure.Unsure && j.Current == perdure.Unsure {
		b.events = append(b.events, txEvent{kind: eventStarted, job: j})
	}
}

func (b *batch) observeStep(c *kernel.StepChange) {
	now, before := c.Now, c.Loaded
	b.movedJobs = append(b.movedJobs, now.Job)
	b.observeWait(now)
	wasRunning, isRunning := before.Phase == perdure.Running, now.Phase == perdure.Running
	if wasRunning && (!isRunning || before.Run != now.Run) {
		b.freed = true
	}
	if isRunning && (!wasRunning || before.Run != now.Run) {
		b.observeRun(now)
	}
}

func (b *batch) observeRun(s *kernel.Step) {
	b.events = append(b.events, txEvent{kind: eventDispatched, agent: s.Agent, direction: s.Direction, ready: s.StartedAt.Sub(s.ReadyAt)})
}

// observeWait keeps the earliest time for which a step waits.
func (b *batch) observeWait(s *kernel.Step) {
	if at := s.AvailableAt; !at.IsZero() {
		b.noteWait(at)
	}
}

func (b *batch) noteWait(at time.Time) {
	if b.earliestWait.IsZero() || at.Before(b.earliestWait) {
		b.earliestWait = at
	}
}

// publish logs and counts the collected events. It is called before the requests are answered, so that a caller who has
// its answer finds the counts up to date.
func (b *batch) publish() {
	b.writeJournal()
	m, backlog, tracer := b.s.meter, b.s.backlog, b.s.cfg.Tracer
	for i := range b.events {
		n := &b.events[i]
		switch n.kind {
		case eventSubmitted:
			shape := b.w.Plan(n.job.ID).Shape
			b.s.plans.shapes.Put(shape.ID, shape)
			m.Submitted(n.job.Type)
			if n.job.Parent != "" { // no submission was admitted for it
				backlog.unadmitted()
			}
			b.logJob("job received", n.job)
		case eventSettled:
			backlog.settled(b.began)
			m.Settled(n.job.Type, n.job.Current, n.job.SettledAt.Sub(n.job.CreatedAt))
			b.logJob(settledMessages[n.job.Current], n.job)
			if tracer != nil {
				tracer.JobSettled(n.job)
			}
		case eventStarted:
			b.logJob("job started", n.job)
		case eventReopened:
			backlog.unadmitted()
		case eventDeposed:
			m.Deposed(n.role)
		case eventDispatched:
			m.Dispatched(n.agent, n.direction, n.ready)
		case eventReported:
			r := n.run
			m.Reported(r.Agent, r.Direction, r.Outcome.String(), r.Duration)
			b.s.health.note(r)
			if r.Outcome == perdure.OutcomeFailed || r.Outcome == perdure.OutcomeRejected || r.Outcome == perdure.OutcomeExpired {
				m.RunFailed(r.Type, r.Agent, r.Code)
			}
			if tracer != nil {
				tracer.RunEnded(b.w.Job(r.Job), r, b.w.Now())
			}
		case eventParked:
			m.Parked(n.job.Type)
		}
	}
}
