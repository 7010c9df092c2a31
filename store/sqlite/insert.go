package sqlite

import (
	"fmt"
	"slices"
	"strings"

	driver "zombiezen.com/go/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/rows"
)

// insertJobs stores submissions. A key that is taken means that somebody was faster: the transaction is
// tried again and then finds the key.
func (tx *tx) insertJobs(jobs []kernel.NewJob) error {
	for i := range jobs {
		n := &jobs[i]
		if len(n.Steps) == 0 || n.Steps[0].Index != 0 {
			return fmt.Errorf("job %s has no first step, which is to be its row", n.Job.ID)
		}
		if err := tx.putShape(n); err != nil {
			return err
		}
	}
	jobs, err := tx.insertBundles(jobs)
	if err != nil {
		return err
	}
	for i := range jobs {
		n := &jobs[i]
		for _, st := range n.Steps {
			if err := tx.insertStep(n.Job, st); err != nil {
				return err
			}
		}
		if err := tx.insertRest(n.Job); err != nil {
			return err
		}
	}
	return tx.flush()
}

// putShape stores a shape's text, unless it is known to be there.
func (tx *tx) putShape(n *kernel.NewJob) error {
	id := n.Job.Shape
	if _, there := tx.store.shapes[id]; there || tx.shapes[id] {
		return nil
	}
	if tx.shapes == nil {
		tx.shapes = map[kernel.ShapeID]bool{}
	}
	tx.shapes[id] = true
	return tx.exec(`INSERT INTO perdure_shape (id, text) VALUES (?, ?) ON CONFLICT DO NOTHING`, id[:], textOf(n.Shape))
}

// insertRest stores what of a job is not on its row.
func (tx *tx) insertRest(j *kernel.Job) error {
	if apart(j) {
		if err := tx.exec(`INSERT INTO perdure_payload (job, idx, input) VALUES (?, -1, ?)`, j.ID[:], textOf(j.Input)); err != nil {
			return err
		}
	}
	for name, value := range j.Labels {
		if err := tx.exec(`INSERT INTO perdure_label (name, value, job) VALUES (?,?,?)`, name, value, j.ID[:]); err != nil {
			return err
		}
	}
	return nil
}

func apart(j *kernel.Job) bool { return len(j.Input) > perdure.MaxInlineInput }

// inserts are new rows that are still to be written: as many at once as have the same columns, for what a
// statement costs to begin is a good part of what a row costs.
type inserts struct {
	cols rows.Set
	kept [rowsAtOnce]*kept
	sets [rowsAtOnce]*set // that they are in
	n    int
	rest [rowsAtOnce]kept // for those that nobody will ask about
}

const rowsAtOnce = 16

// insertStep stores a new step; with the first one, its job.
func (tx *tx) insertStep(j *kernel.Job, st *kernel.Step) error {
	var k *kept
	if st.Index == 0 {
		k = newKept(st.StepRef)
		k.newJobOf(j)
		tx.rows[st.StepRef] = k // it may well be let out in this same transaction
	} else if f, err := tx.room(); err != nil {
		return err
	} else {
		k = &f.rest[f.n]
		*k = kept{}
	}
	k.step.StepRef, k.step.Name, k.step.Type, k.step.Priority = st.StepRef, st.Name, st.Type, st.Priority
	k.setStep(st)
	return tx.addRow(k)
}

// room is the rows that are still to be written, with room for one more.
func (tx *tx) room() (*inserts, error) {
	if tx.fresh == nil {
		tx.fresh = &inserts{}
	}
	if tx.fresh.n == rowsAtOnce {
		return tx.fresh, tx.flush()
	}
	return tx.fresh, nil
}

// addRow adds a row that is to be written.
func (tx *tx) addRow(k *kept) error {
	f, err := tx.room()
	if err != nil {
		return err
	}
	var m *set
	if key := kernel.InFlightOf(&k.step); key.InFlight {
		m = tx.join(key)
		k.out = m.id
	}
	cols := k.set()
	if f.n > 0 && cols != f.cols {
		if err := tx.flush(); err != nil {
			return err
		}
		if k.job == nil {
			f.rest[0] = *k
			k = &f.rest[0]
		}
	}
	f.cols, f.kept[f.n], f.sets[f.n] = cols, k, m
	f.n++
	if k.step.Needs != "" {
		tx.touchLane(&kernel.Step{}, &k.step)
	}
	return tx.permits(k.step.StepRef, kernel.Permits{}, kernel.PermitsOf(&k.step, k.job))
}

// flush writes the rows that are still to be written.
func (tx *tx) flush() error {
	f := tx.fresh
	if f == nil {
		return nil
	}
	n := f.n
	f.n = 0
	if n == rowsAtOnce {
		return tx.insertRows(&tx.c.insertMany, f.kept[:], f.sets[:])
	}
	for i := range n {
		if err := tx.insertRows(&tx.c.insertOne, f.kept[i:i+1], f.sets[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (tx *tx) insertRows(t *texts, all []*kept, sets []*set) error {
	s, err := t.of(tx.c, tx.fresh.cols)
	if err != nil {
		return err
	}
	at := 1
	for _, k := range all {
		st := &k.step
		s.BindBytes(at, st.Job[:])
		s.BindInt64(at+1, int64(st.Index))
		s.BindText(at+2, st.Name)
		s.BindText(at+3, st.Type)
		s.BindInt64(at+4, int64(st.Priority))
		if at, err = k.bind(s, at+5, tx.fresh.cols); err != nil {
			return err
		}
	}
	tx.wrote = true
	if err := run(s); err != nil {
		if driver.ErrCode(err) == driver.ResultConstraintUnique {
			return kernel.ErrStale
		}
		return err
	}
	last := tx.c.db.LastInsertRowID() // those of one statement follow each other
	for i, k := range all {
		k.id = last - int64(len(all)-1-i)
		if sets[i] != nil {
			sets[i].add(k.id)
		}
	}
	return nil
}

func insertText(n int) func(rows.Set) string {
	return func(c rows.Set) string {
		names := `job, idx, name, type, priority` + list(slices.Collect(c.IDs))
		place := `(` + places(strings.Count(names, ",")+1) + `)`
		return `INSERT INTO perdure_step (` + names + `) VALUES ` + strings.Repeat(place+`,`, n-1) + place
	}
}
