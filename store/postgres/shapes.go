package postgres

import (
	"encoding/json"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// implicitSteps are the implicit steps of a job.
type implicitSteps struct {
	job      *kernel.Job // as its first row has it
	implicit []cache.ImplicitStep
}

func scanImplicit(r *pgwire.Reader) (list []cache.ImplicitStep, err error) {
	if v := r.Next(); v != nil {
		err = json.Unmarshal(v[1:], &list)
	}
	return list, err
}

// scanRows reads steps, and the implicit steps beside the first.
func (w *implicitSteps) scanRows(steps *[]*kernel.Step) func(*pgwire.Reader) error {
	return func(r *pgwire.Reader) error {
		row := &jobRow{}
		if err := scan(r, rowColumns, &row.job, &row.step); err != nil {
			return err
		}
		*steps = append(*steps, &row.step)
		implicit, err := scanImplicit(r)
		if row.step.Index == 0 {
			w.job, w.implicit = &row.job, implicit
		}
		return err
	}
}

// insertInto inserts the implicit steps with an index below upTo that have no row. steps are all steps with rows, in
// order.
func (w *implicitSteps) insertInto(steps []*kernel.Step, upTo int) []*kernel.Step {
	if len(w.implicit) == 0 {
		return steps
	}
	all := make([]*kernel.Step, 0, len(steps)+len(w.implicit))
	for i := range w.implicit {
		l := &w.implicit[i]
		for len(steps) > 0 && steps[0].Index < l.Index {
			all, steps = append(all, steps[0]), steps[1:]
		}
		if l.Index < upTo && (len(steps) == 0 || steps[0].Index > l.Index) {
			s := l.Step(w.job)
			all = append(all, &s)
		}
	}
	return append(all, steps...)
}

const implicitOfJobsSQL = "select job, type, priority, created_at, " + implicitOfFirst + " from perdure.step s where job = any($1) and idx = 0 order by job"

// readImplicit returns those of these steps that are implicit. None of them has a row.
func (tx *tx) readImplicit(refs []kernel.StepRef) (steps []*kernel.Step, err error) {
	wanted := make(map[kernel.StepRef]bool, len(refs))
	for _, ref := range refs {
		wanted[ref] = true
	}
	err = tx.run(uuids(pgwire.New(implicitOfJobsSQL), jobsOf(refs)).Each(func(r *pgwire.Reader) error {
		j := &kernel.Job{ID: r.UUID(), Type: r.Word(), Priority: r.Int(), CreatedAt: r.Time()}
		list, err := scanImplicit(r)
		for i := range list {
			if s := list[i].Step(j); wanted[s.StepRef] {
				steps = append(steps, &s)
			}
		}
		return err
	}))
	return steps, err
}

func jobsOf(refs []kernel.StepRef) []perdure.JobID {
	ids := make([]perdure.JobID, len(refs))
	for i, ref := range refs {
		ids[i] = ref.Job
	}
	return ids
}

// mayBeImplicit reports whether a step, as it was loaded, may have no row: it has waited for other steps from the
// beginning.
func mayBeImplicit(was *kernel.Step) bool {
	return was.Index > 0 && was.Run == 0 && was.Phase == perdure.Waiting && was.Blockers > 0 && was.Current == perdure.Undone && was.Desired == perdure.Done
}

const implicitSQL = "select id, later from perdure.shape where id = any($1) order by id"

// selectImplicit reads the implicit steps of shapes as they are stored: the first job of a shape has determined them.
func selectImplicit(ids []kernel.ShapeID, into map[kernel.ShapeID][]cache.ImplicitStep) *pgwire.Statement {
	return uuids(pgwire.New(implicitSQL), ids).Each(func(r *pgwire.Reader) (err error) {
		id := kernel.ShapeID(r.UUID())
		into[id], err = scanImplicit(r)
		return err
	})
}
