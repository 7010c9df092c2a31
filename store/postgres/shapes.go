package postgres

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// shapes are the shapes that are known to be stored, so that their texts are not sent again, each with its implicit
// steps.
type shapes struct {
	mu     sync.Mutex
	known  map[kernel.ShapeID][]implicitStep
	weight int
	server time.Time // start time of the server that has these shapes; another server may lack some
}

// implicitStep is a step that waits for other steps from the beginning. It has no row until it is dispatched or
// otherwise changed: it is read as the row that it would have, which follows from the shape and the job.
type implicitStep struct {
	Index    int    `json:"idx"`
	Name     string `json:"name"`
	Blockers int    `json:"blockers"`
}

const (
	maxShapes = 100_000 // counted with their implicit steps
	// maxImplicit bounds the implicit steps of a shape, because each read of a job reads all of them.
	maxImplicit = 100
)

func (s *shapes) of(id kernel.ShapeID, server time.Time) (list []implicitStep, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, known = s.known[id]
	return list, known && s.server.Equal(server)
}

// add caches what a committed transaction has written or read.
func (s *shapes) add(found map[kernel.ShapeID][]implicitStep, server time.Time) {
	if len(found) == 0 || server.IsZero() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || s.weight > maxShapes || !s.server.Equal(server) {
		s.known, s.weight, s.server = map[kernel.ShapeID][]implicitStep{}, 0, server
	}
	for id, list := range found {
		s.known[id] = list
		s.weight += 1 + len(list)
	}
}

// implicitSet is a set of indexes of implicit steps.
type implicitSet [(maxImplicitIndex + 63) / 64]uint64

// maxImplicitIndex bounds the indexes: of a step with a higher index it is unknown whether it has a row.
const maxImplicitIndex = 128

func (u *implicitSet) has(place int) bool {
	return place < maxImplicitIndex && u[place/64]&(1<<(place%64)) != 0
}

func (u *implicitSet) add(place int) {
	if place < maxImplicitIndex {
		u[place/64] |= 1 << (place % 64)
	}
}

func (u *implicitSet) remove(place int) {
	if place < maxImplicitIndex {
		u[place/64] &^= 1 << (place % 64)
	}
}

// implicitOf returns the steps of a new job that may be implicit; none if there are more than maxImplicit.
func implicitOf(n *kernel.NewJob) (list []implicitStep) {
	if !speed.ImplicitRows.On() {
		return nil
	}
	for _, s := range n.Steps {
		if l := (implicitStep{s.Index, s.Name, s.Blockers}); l.equals(n.Job, s) {
			if len(list) == maxImplicit {
				return nil
			}
			list = append(list, l)
		}
	}
	return list
}

// isImplicit reports whether a new job's step is one of these implicit steps, which are in order.
func isImplicit(list []implicitStep, j *kernel.Job, s *kernel.Step) bool {
	if len(list) == 0 || s.Phase != perdure.Waiting {
		return false
	}
	at, met := slices.BinarySearchFunc(list, s.Index, func(l implicitStep, place int) int { return l.Index - place })
	return met && list[at].equals(j, s)
}

// equals reports whether a job's step is exactly what is read for it without a row.
func (l *implicitStep) equals(j *kernel.Job, s *kernel.Step) bool {
	return s.Index > 0 && s.Blockers > 0 && j.Phase != perdure.Settled && *s == l.step(j)
}

// step returns the step as it is read without a row.
func (l *implicitStep) step(j *kernel.Job) kernel.Step {
	return kernel.InitialStep(j, l.Index, l.Name, l.Blockers)
}

// implicitSteps are the implicit steps of a job.
type implicitSteps struct {
	job      *kernel.Job // as its first row has it
	implicit []implicitStep
}

func scanImplicit(r *pgwire.Reader) (list []implicitStep, err error) {
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
			s := l.step(w.job)
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
			if s := list[i].step(j); wanted[s.StepRef] {
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
func selectImplicit(ids []kernel.ShapeID, into map[kernel.ShapeID][]implicitStep) *pgwire.Statement {
	return uuids(pgwire.New(implicitSQL), ids).Each(func(r *pgwire.Reader) (err error) {
		id := kernel.ShapeID(r.UUID())
		into[id], err = scanImplicit(r)
		return err
	})
}
