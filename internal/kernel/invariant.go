package kernel

import (
	"fmt"
	"time"

	"github.com/perdure/perdure"
)

// CheckJob returns what is inconsistent in the rows of one job at the time now: its counts, its phases, the order of its
// steps, and whether every unsettled step will be moved on by a time, an agent, a neighbour or an operator. steps are
// all steps of the job, open are its open alerts. A finding is always a bug of the rules or of a store.
func CheckJob(j *Job, plan *Plan, steps []*Step, open []Alert, now time.Time) []Finding {
	c := check{job: j, plan: plan, steps: steps, now: now, alerts: make(map[alertOf]bool, len(open))}
	for _, a := range open {
		c.alerts[alertOf{a.Step, a.Kind}] = true
	}
	if len(steps) != len(plan.Steps) {
		c.add("", "I1", "%d of %d steps exist", len(steps), len(plan.Steps))
		return c.found
	}
	for _, s := range steps {
		c.step(s)
	}
	c.counts()
	c.jobRow()
	c.openAlerts(open)
	return c.found
}

// Finding is one inconsistency that a check has found.
type Finding struct {
	Job     perdure.JobID `json:"job"`
	Step    string        `json:"step,omitempty"`
	Rule    string        `json:"rule"` // the invariant, as docs/reliability.md numbers them
	Message string        `json:"message"`
}

type check struct {
	job    *Job
	plan   *Plan
	steps  []*Step
	alerts map[alertOf]bool
	now    time.Time
	found  []Finding
}

type alertOf struct {
	step string
	kind perdure.AlertKind
}

func (c *check) add(step, rule, format string, args ...any) {
	c.found = append(c.found, Finding{Job: c.job.ID, Step: step, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

// require adds a finding unless ok.
func (c *check) require(ok bool, s *Step, rule, message string) {
	if !ok {
		c.add(s.Name, rule, "%s (%s, desired %s, %s, run %d)", message, s.Current, s.Desired, s.Phase, s.Run)
	}
}

func (c *check) step(s *Step) {
	c.require(s.Desired == c.job.Desired, s, "I11", "its desired state is not that of its job")
	c.require(!s.GivenUp || c.job.GivenUp(), s, "I3", "given up, but its job is not")
	c.require(!s.Owns || s.Phase == perdure.Waiting, s, "L1", "waits for its children, but is not waiting")
	c.require(s.Topic == "" && s.Approval == "" || s.Phase == perdure.Waiting, s, "S2", "has a topic or an approval, and does not wait")
	c.runFields(s)
	c.order(s)
	switch s.Phase {
	case perdure.Settled:
		turned := s.Current == perdure.Unsure && c.alerts[alertOf{s.Name, perdure.AlertChildTurned}]
		c.require(s.Current == s.Desired || s.Skipped && s.Desired == perdure.Done || s.GivenUp || turned, s, "I11", "settled, but current is not desired")
	case perdure.Waiting:
		c.waiting(s)
	case perdure.Ready:
		c.ready(s)
	case perdure.Parked:
		c.require(c.alerts[alertOf{s.Name, perdure.AlertParked}] || c.alerts[alertOf{"", perdure.AlertParked}], s, "L1", "parked without an open alert")
	}
}

// runFields checks that the number, the locks and the outcome of the latest run agree.
func (c *check) runFields(s *Step) {
	running := s.Phase == perdure.Running
	c.require(s.Run >= 0 && s.Turn >= 1, s, "I6", "run below 0 or turn below 1")
	c.require(s.Run > 0 || s.Direction == perdure.Do && s.Outcome == perdure.NoOutcome && s.LockedUntil.IsZero(), s, "I6", "fields of a run are set, but none was dispatched")
	c.require(s.Direction == perdure.Do || s.Turn > 1, s, "I4", "an undo in the first turn")
	owns := c.plan.Steps[s.Index].Form == ByChildren // its runs have no holder and no end of a lock
	c.require(s.Run == 0 || running == (s.Outcome == perdure.NoOutcome) || owns && !running, s, "I8", "has an outcome while it runs, or none after it")
	c.require(running == (s.LockedBy != ""), s, "I6", "has a holder while it does not run, or none while it runs")
	c.require(s.Current != perdure.Unsure || s.Run > 0, s, "I10", "unsure, but no run was dispatched")
	if running {
		c.require(s.Current == perdure.Unsure && s.Agent != "", s, "I6", "running, but not unsure or without an agent")
		c.require(!s.LockedUntil.IsZero() && !s.LockedUntil.After(s.CompleteBy), s, "I7", "locked past its deadline")
	} else {
		c.require(s.CompleteBy.IsZero() && s.Request == "" && s.Heartbeat == 0, s, "I6", "fields of a run's lock are set, but it does not run")
	}
}

// order checks that a step moves only after all steps that it waits for, in either direction. A job that was given up is
// not checked.
func (c *check) order(s *Step) {
	if c.job.GivenUp() {
		return
	}
	rule, open := "I9", 0
	if s.Desired == perdure.Undone {
		rule = "I10"
	}
	for _, i := range c.plan.waitsFor(s.Index, s.Desired) {
		if c.steps[i].Phase != perdure.Settled {
			open++
		}
	}
	if open != s.Blockers {
		c.add(s.Name, rule, "waits for %d neighbours, but blockers is %d", open, s.Blockers)
	}
	c.require(open == 0 || s.Phase != perdure.Ready && s.Phase != perdure.Settled, s, rule, "ready or settled before steps that it waits for")
}

func (c *check) waiting(s *Step) {
	approval := c.plan.Steps[s.Index].Form == ByApproval && c.alerts[alertOf{s.Name, perdure.AlertApproval}]
	c.require(s.Blockers > 0 || !s.AvailableAt.IsZero() || approval || s.Topic != "" || s.Owns, s, "L1", "waits for nothing, so nothing will move it on")
	c.require(!s.Owns || c.plan.Steps[s.Index].Form == ByChildren && s.Blockers == 0 && s.Children != "", s, "L1", "waits for children, and has none")
	c.require(s.Topic == "" || c.plan.Steps[s.Index].Form == BySignal && s.Blockers == 0 && s.Desired == perdure.Done, s, "S2", "waits for a signal, and should not")
}

func (c *check) ready(s *Step) {
	d := s.nextDirection()
	ps := &c.plan.Steps[s.Index]
	agent, _ := ps.agentOf(d)
	c.require(s.Agent == agent && ps.Form == ByAgent, s, "L1", "ready for a wrong agent")
	c.require(s.Current != s.Desired && !(s.Skipped && s.Desired == perdure.Done), s, "I11", "ready, but nothing remains to be done")
	c.require(d == perdure.Do || ps.Undo != nil, s, "I10", "ready for undo, but it has no undo")
	c.require(s.Needs.hasJob() == (!c.job.HasPermit && c.job.Needs != ""), s, "I12", "needs permits of its job that it has, or does not need those that it lacks")
	for _, n := range s.Needs.List() {
		c.require(n.Line != RankBegun || c.job.begun(), s, "I28", "stands in line as the step of a job that has begun")
	}
	c.require(s.Run == 0 || d == s.Direction || !c.now.Before(s.LockedUntil), s, "I10", "changes direction while an earlier run may still act")
}

func (c *check) counts() {
	unsettled, running, active := 0, 0, 0
	for _, s := range c.steps {
		if s.Phase != perdure.Settled {
			unsettled++
		}
		if s.Phase == perdure.Running {
			running++
		}
		if s.active() {
			active++
		}
	}
	j := c.job
	if unsettled != j.Unsettled || running != j.Running || active != j.Active {
		c.add("", "L1", "%d steps are unsettled, %d running and %d active, but the job's row counts %d, %d and %d",
			unsettled, running, active, j.Unsettled, j.Running, j.Active)
	}
}

func (c *check) jobRow() {
	j := c.job
	require := func(ok bool, rule, message string) {
		if !ok {
			c.add("", rule, "%s (%s, desired %s, %s)", message, j.Current, j.Desired, j.Phase)
		}
	}
	require(j.Phase == phaseOf(j), "L1", "its phase does not follow from its steps")
	require(j.Running == 0 || j.Current == perdure.Unsure, "I11", "steps run, but it is not unsure")
	require(j.Running == 0 || j.HasPermit, "I12", "steps run, but it has no permit")
	require(!j.AtRest() || !j.HasPermit, "I12", "parked or settled, but it has a permit")
	require((j.Phase == perdure.Parked) == !j.ParkedAt.IsZero(), "L1", "parkedAt does not agree with its phase")
	require(!j.RestartPending || j.Desired == perdure.Undone && j.Phase != perdure.Settled, "I11", "a restart is pending, but the job is not being undone")
	require(!j.Overdue || j.Desired == perdure.Undone || j.Active == 0, "L1", "has active steps past its deadline")
	require(j.StartBy.IsZero() || j.Desired == perdure.Done && j.Current == perdure.Undone && j.Running == 0, "I11", "must start in time, but has started")
	require(j.StartBy.IsZero() || !j.StartBy.Before(j.StartAt), "L1", "must start before it may")
	require(!j.HasOutput && j.OutputError == "" || c.plan.Output != nil && j.Desired == perdure.Done, "I11", "has an output, but is not done, or has none to compute")
	if j.Phase == perdure.Settled {
		require(j.Current == j.Desired || j.GivenUp() && j.Current == perdure.Unsure, "I11", "settled, but current is not desired")
	}
	require(!j.GivenUp() || j.Phase == perdure.Settled, "I3", "given up, but not settled")
}

// openAlerts checks that an alert is closed when its step moves on, and that a settled job has no open alert.
func (c *check) openAlerts(open []Alert) {
	for _, a := range open {
		i, named := c.plan.Index[a.Step]
		switch {
		case a.Kind == perdure.AlertOutput:
			if c.job.Phase != perdure.Settled || c.job.OutputError == "" {
				c.add("", "I11", "alert output is open, but the job has an output, or is not settled")
			}
		case a.Kind == perdure.AlertChildTurned: // CheckChildren compares it
		case c.job.Phase == perdure.Settled:
			c.add(a.Step, "I11", "alert %s is open, but the job is settled", a.Kind)
		case named && a.Kind == perdure.AlertParked && c.steps[i].Phase != perdure.Parked:
			c.add(a.Step, "I11", "alert parked is open, but the step is %s", c.steps[i].Phase)
		case named && a.Kind == perdure.AlertApproval && c.steps[i].Phase != perdure.Waiting:
			c.add(a.Step, "I11", "alert approval is open, but the step is %s", c.steps[i].Phase)
		}
	}
}
