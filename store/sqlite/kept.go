package sqlite

import (
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/rows"
)

// kept is a row of step as it stands in the file, or is about to.
type kept struct {
	id   int64
	out  int64 // of a running step: the set that it is found by
	step kernel.Step
	job  *kernel.Job // of a first row

	newStep *kernel.Step // as they are about to be written
	newJob  *kernel.Job

	in bundledAt // of a job that is in a bundle: it has no row yet
}

// newKept is an empty row. Each is a value of its own: one that is kept on keeps no others.
func newKept(ref kernel.StepRef) *kept {
	if ref.Index != 0 {
		return &kept{}
	}
	var first struct {
		kept
		j kernel.Job
	}
	first.job = &first.j
	return &first.kept
}

// setStep takes on what of a step can change, as it is kept.
func (k *kept) setStep(now *kernel.Step) {
	ref, name, typ, priority := k.step.StepRef, k.step.Name, k.step.Type, k.step.Priority
	k.step = *now
	s := &k.step
	s.StepRef, s.Name, s.Type, s.Priority = ref, name, typ, priority
	s.Heartbeat = s.Heartbeat.Truncate(time.Microsecond)
	for _, t := range [...]*time.Time{&s.CompleteBy, &s.LockedUntil, &s.AvailableAt, &s.ReadyAt, &s.StartedAt, &s.EndedAt, &s.UpdatedAt} {
		*t = at(*t)
	}
}

// setJob takes on what of a job can change.
func (k *kept) setJob(now *kernel.Job) {
	was, j := *k.job, k.job
	*j = *now
	j.ID, j.Key, j.Type, j.Priority, j.Labels, j.States = was.ID, was.Key, was.Type, was.Priority, was.Labels, was.States
	j.Hash, j.Shape, j.Input, j.Apart, j.CreatedAt = was.Hash, was.Shape, was.Input, was.Apart, was.CreatedAt
	for _, t := range [...]*time.Time{&j.CompleteBy, &j.ParkedAt, &j.UpdatedAt, &j.SettledAt} {
		*t = at(*t)
	}
}

// newJobOf takes on all of a job that is new.
func (k *kept) newJobOf(j *kernel.Job) {
	*k.job = *j
	k.job.CreatedAt, k.job.Labels, k.job.Input = at(j.CreatedAt), maps.Clone(j.Labels), slices.Clone(j.Input)
	if k.job.Apart = apart(j); k.job.Apart {
		k.job.Input = nil
	}
	k.job.States = clone(j.States)
	k.setJob(j)
}

func clone[T any](v *T) *T {
	if v == nil {
		return nil
	}
	c := *v
	return &c
}

var (
	noStep kernel.Step
	noJob  kernel.Job
)

// set are the columns that a new row needs.
func (k *kept) set() rows.Set {
	set := diffSteps(&k.step, &noStep)
	set.Add(colOut, k.out != 0)
	j := k.job
	if j == nil {
		return set
	}
	set = set.Or(diffJobs(j, &noJob)).Or(rows.SetOf(rows.Hash, rows.Shape))
	set.Add(rows.CreatedAt, !j.CreatedAt.IsZero())
	set.Add(rows.Input, j.Input != nil)
	set.Add(rows.Apart, j.Apart)
	set.Add(rows.Key, j.Key != "")
	set.Add(rows.Labels, len(j.Labels) > 0)
	set.Add(rows.States, j.States != nil)
	return set
}
