package sqlite

import (
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// How rows of step are read: the columns, and what they become, in one order.

// A row as a Locker reads it: without the job's columns, or with them. A job, and a step, as a Reader does.
var (
	stepSelect = `id, job, idx, name, type, priority` + stepColumns.list()
	bothSelect = stepSelect + jobColumns.list()
	jobSelect  = `j.job, j.type, j.priority` + jobColumns.list()
)

func readKept(r *row, k *kept) {
	k.id = r.num()
	s := &k.step
	s.StepRef = r.ref()
	s.Name, s.Type, s.Priority = r.word(), r.word(), r.int()
	s.Current, s.Desired, s.Phase = perdure.State(r.num()), perdure.State(r.num()), perdure.Phase(r.num())
	s.Run, s.Direction, s.Was, s.Turn = r.num(), perdure.Direction(r.num()), perdure.State(r.num()), r.int()
	s.Agent, s.LockedBy, s.Request = r.word(), r.word(), r.word()
	s.CompleteBy, s.LockedUntil, s.Heartbeat = r.time(), r.time(), time.Duration(r.num())*time.Microsecond
	k.out = r.num()
	s.AvailableAt, s.Outcome, s.HasOutput, s.OwnInput, s.Blockers = r.time(), perdure.Outcome(r.num()), r.flag(), r.flag(), r.int()
	s.ReadyAt, s.StartedAt, s.EndedAt, s.UpdatedAt = r.time(), r.time(), r.time(), r.time()
	s.Skipped, s.Failures, s.Rung, s.Waits, s.Returns = r.flag(), r.int(), r.int(), r.int(), r.int()
	s.ErrorCode, s.LastError, s.Progress, s.Edited, s.GivenUp = r.text(), r.text(), r.text(), kernel.Edited(r.num()), r.flag()
	if k.job != nil {
		k.job.ID, k.job.Type, k.job.Priority = s.Job, s.Type, s.Priority
		readJobColumns(r, k.job)
	}
}

func readStep(r *row) *kernel.Step {
	var k kept
	readKept(r, &k)
	return &k.step
}

func readJob(r *row) *kernel.Job {
	j := &kernel.Job{ID: r.id(), Type: r.word(), Priority: r.int()}
	readJobColumns(r, j)
	return j
}

func readJobColumns(r *row, j *kernel.Job) {
	j.Current, j.Desired, j.Phase = perdure.State(r.num()), perdure.State(r.num()), perdure.Phase(r.num())
	j.Unsettled, j.Running, j.Active, j.Permit = r.int(), r.int(), r.int(), r.flag()
	j.CompleteBy, j.ParkedAt, j.Overdue, j.Alerted = r.time(), r.time(), r.flag(), r.flag()
	j.Then, j.Restarts, j.GivenUpBy, j.GivenUpReason = r.flag(), r.int(), r.text(), r.text()
	j.UpdatedAt, j.SettledAt, j.CreatedAt = r.time(), r.time(), r.time()
	r.blob(j.Hash[:])
	r.blob(j.Shape[:])
	j.Input, j.Apart, j.Key = r.bytes(), r.flag(), r.text()
	r.json(&j.Labels)
	r.json(&j.States)
}
