package sqlite

import (
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/rows"
)

// storedRow is a row of step as it is in the file, or is about to be.
type storedRow struct {
	id     int64
	runSet int64 // of a running step
	step   kernel.Step
	job    *kernel.Job // only of a first row

	nextStep *kernel.Step // values about to be written
	nextJob  *kernel.Job

	bundled placeInBundle // of a job in a bundle, which has no row yet
}

// newStoredRow returns an empty row. Each is a separate allocation, so that a cached row keeps no others in memory.
func newStoredRow(ref kernel.StepRef) *storedRow {
	if ref.Index != 0 {
		return &storedRow{}
	}
	var first struct {
		storedRow
		j kernel.Job
	}
	first.job = &first.j
	return &first.storedRow
}

// setStep sets the values of a step that can change, as they are stored.
func (k *storedRow) setStep(now *kernel.Step) {
	ref, name, typ, priority := k.step.StepRef, k.step.Name, k.step.Type, k.step.Priority
	k.step = *now
	s := &k.step
	s.StepRef, s.Name, s.Type, s.Priority = ref, name, typ, priority
	s.Heartbeat = s.Heartbeat.Truncate(time.Microsecond)
	for _, t := range [...]*time.Time{&s.CompleteBy, &s.LockedUntil, &s.AvailableAt, &s.ReadyAt, &s.StartedAt, &s.EndedAt, &s.UpdatedAt} {
		*t = toMicros(*t)
	}
}

// setJob sets the values of a job that can change.
func (k *storedRow) setJob(now *kernel.Job) {
	was, j := *k.job, k.job
	*j = *now
	j.ID, j.Key, j.Type, j.Priority, j.Labels, j.States = was.ID, was.Key, was.Type, was.Priority, was.Labels, was.States
	j.Hash, j.Shape, j.Input, j.InputStoredApart, j.CreatedAt = was.Hash, was.Shape, was.Input, was.InputStoredApart, was.CreatedAt
	for _, t := range [...]*time.Time{&j.StartAt, &j.StartBy, &j.CompleteBy, &j.ParkedAt, &j.UpdatedAt, &j.SettledAt} {
		*t = toMicros(*t)
	}
}

// newJobOf sets all values of a new job.
func (k *storedRow) newJobOf(j *kernel.Job) {
	*k.job = *j
	k.job.CreatedAt, k.job.Labels, k.job.Input = toMicros(j.CreatedAt), maps.Clone(j.Labels), slices.Clone(j.Input)
	if k.job.InputStoredApart = j.LargeInput(); k.job.InputStoredApart {
		k.job.Input = nil
	}
	k.job.States = cloneOrNil(j.States)
	k.setJob(j)
}

func cloneOrNil[T any](v *T) *T {
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

// columnsOfNew returns the columns that the insert of a new row needs.
func (k *storedRow) columnsOfNew() rows.Set {
	set := diffSteps(&k.step, &noStep)
	set.Add(colRunSet, k.runSet != 0)
	j := k.job
	if j == nil {
		return set
	}
	set = set.Or(diffJobs(j, &noJob)).Or(rows.SetOf(rows.Hash, rows.Shape))
	set.Add(colNotDone, kernel.ExceptionsOf(j).NotDone) // as noJob would be, if it were a job
	set.Add(rows.CreatedAt, !j.CreatedAt.IsZero())
	set.Add(rows.Input, j.Input != nil)
	set.Add(rows.Apart, j.InputStoredApart)
	set.Add(rows.Key, j.Key != "")
	set.Add(rows.Labels, len(j.Labels) > 0)
	set.Add(rows.States, j.States != nil)
	return set
}
