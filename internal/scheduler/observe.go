package scheduler

import (
	"slices"

	"perdure"
)

// observe notes whom a change concerns, for when it is committed.
func (b *batch) observe(c *perdure.Changes) {
	for i := range c.NewJobs {
		j := c.NewJobs[i].Job
		if o := b.submitted[j.ID]; o != nil && !slices.ContainsFunc(c.Alerts, func(a perdure.Alert) bool { return a.Job == j.ID }) {
			o.answer.Made = &c.NewJobs[i]
		}
		for _, step := range c.NewJobs[i].Steps {
			b.observeWait(step)
			if step.Phase == perdure.Running {
				b.observeRun(step)
			}
		}
		b.notes = append(b.notes, func(m Meter) {
			shape := b.w.Plan(j.ID).Shape
			b.s.plans.shapes.put(shape.ID, shape)
			m.Submitted(j.Type)
			if j.Phase == perdure.Settled {
				b.settled(m, j)
			}
		})
	}
	for i := range c.Jobs {
		b.observeJob(&c.Jobs[i])
	}
	for i := range c.Steps {
		b.observeStep(&c.Steps[i])
	}
}

func (b *batch) observeJob(c *perdure.JobChange) {
	now, was := c.Now, c.Was
	b.moved[now.ID] = true
	b.freed = b.freed || was.Permit && !now.Permit
	b.notes = append(b.notes, func(m Meter) {
		switch {
		case now.Phase == perdure.Settled && was.Phase != perdure.Settled:
			b.settled(m, now)
		case now.Phase != perdure.Settled && was.Phase == perdure.Settled:
			b.s.backlog.reopened()
		}
	})
}

func (b *batch) observeStep(c *perdure.StepChange) {
	now, was := c.Now, c.Was
	b.moved[now.Job] = true
	b.observeWait(now)
	switch {
	case now.Phase == perdure.Running && (was.Phase != perdure.Running || was.Run != now.Run):
		b.observeRun(now)
	case was.Phase == perdure.Running && now.Phase != perdure.Running:
		b.freed = true
		took := now.EndedAt.Sub(now.StartedAt)
		b.notes = append(b.notes, func(m Meter) { m.Reported(was.Agent, now.Direction, now.Outcome.String(), took) })
	}
}

func (b *batch) observeRun(s *perdure.Step) {
	agent, d := s.Agent, s.Direction
	b.notes = append(b.notes, func(m Meter) { m.LetOut(agent, d) })
}

// observeWait keeps the earliest time for which a step was made to wait.
func (b *batch) observeWait(s *perdure.Step) {
	if at := s.AvailableAt; !at.IsZero() && (b.soonest.IsZero() || at.Before(b.soonest)) {
		b.soonest = at
	}
}

func (b *batch) settled(m Meter, j *perdure.Job) {
	b.s.backlog.settled(b.began)
	m.Settled(j.Type, j.Current, j.SettledAt.Sub(j.CreatedAt))
}
