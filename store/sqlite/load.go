package sqlite

import (
	"time"

	"perdure"
)

// How rows are read: the columns, and what they become, in one order.

const jobColumns = `id, key, type, priority, labels, states, hash, created_at,
	current, desired, phase, "then", restarts, permit, unsettled, running, active,
	complete_by, parked_at, overdue, given_up_by, given_up_reason, updated_at, settled_at`

func readJob(r *row) *perdure.Job {
	j := &perdure.Job{}
	j.ID, j.Key, j.Type, j.Priority = r.id(), r.text(), r.text(), r.int()
	r.json(&j.Labels)
	r.json(&j.States)
	r.blob(j.Hash[:])
	j.CreatedAt = r.time()
	j.Current, j.Desired, j.Phase = perdure.State(r.num()), perdure.State(r.num()), perdure.Phase(r.num())
	j.Then, j.Restarts, j.Permit = r.flag(), r.int(), r.flag()
	j.Unsettled, j.Running, j.Active = r.int(), r.int(), r.int()
	j.CompleteBy, j.ParkedAt, j.Overdue = r.time(), r.time(), r.flag()
	j.GivenUpBy, j.GivenUpReason = r.text(), r.text()
	j.UpdatedAt, j.SettledAt = r.time(), r.time()
	return j
}

const stepColumns = `job, idx, name, type, priority,
	current, desired, phase, skipped, run, direction, was, turn,
	agent, locked_by, request, complete_by, locked_until, heartbeat,
	failures, rung, waits, returns, available_at,
	outcome, error_code, last_error, progress, has_output, own_input, edited, given_up,
	blockers, ready_at, started_at, ended_at, updated_at`

func readStep(r *row) *perdure.Step {
	s := &perdure.Step{StepRef: r.ref()}
	s.Name, s.Type, s.Priority = r.text(), r.text(), r.int()
	s.Current, s.Desired, s.Phase = perdure.State(r.num()), perdure.State(r.num()), perdure.Phase(r.num())
	s.Skipped, s.Run, s.Direction, s.Was, s.Turn = r.flag(), r.num(), perdure.Direction(r.num()), perdure.State(r.num()), r.int()
	s.Agent, s.LockedBy, s.Request = r.text(), r.text(), r.text()
	s.CompleteBy, s.LockedUntil, s.Heartbeat = r.time(), r.time(), time.Duration(r.num())*time.Microsecond
	s.Failures, s.Rung, s.Waits, s.Returns, s.AvailableAt = r.int(), r.int(), r.int(), r.int(), r.time()
	s.Outcome, s.ErrorCode, s.LastError, s.Progress = perdure.Outcome(r.num()), r.text(), r.text(), r.text()
	s.HasOutput, s.OwnInput, s.Edited, s.GivenUp = r.flag(), r.flag(), perdure.Edited(r.num()), r.flag()
	s.Blockers, s.ReadyAt, s.StartedAt, s.EndedAt, s.UpdatedAt = r.int(), r.time(), r.time(), r.time(), r.time()
	return s
}

func readPayload(r *row) perdure.Payload {
	return perdure.Payload{StepRef: r.ref(), Input: r.bytes(), Output: r.bytes()}
}

func readLimit(r *row) perdure.Limit { return perdure.Limit{Name: r.text(), Max: r.int()} }

const alertColumns = `id, job, step, kind, name, message, raised_at, closed_at, closed_by`

func readAlert(r *row) perdure.Alert {
	return perdure.Alert{
		ID: r.num(), Job: r.id(), Step: r.text(), Kind: perdure.AlertKind(r.text()), Name: r.text(), Message: r.text(),
		RaisedAt: r.time(), ClosedAt: r.time(), ClosedBy: r.text(),
	}
}

func readEntry(r *row) perdure.Entry {
	return perdure.Entry{
		Job: r.id(), Step: r.text(), Run: r.num(), At: r.time(), Event: r.text(), Author: r.text(), Detail: r.text(),
	}
}
