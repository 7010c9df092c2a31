package sqlite

import (
	"fmt"
	"slices"
	"strings"

	driver "zombiezen.com/go/sqlite"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/rows"
)

// insertJobs inserts submissions. If a row with the same key or id exists, the transaction is retried, and then finds
// it.
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

// putShape inserts a shape's text, unless it is known to be stored.
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

// insertRest inserts what is not in the row of a job: labels and a large input.
func (tx *tx) insertRest(j *kernel.Job) error {
	if j.LargeInput() {
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

// inserts are new rows that are still to be written. Consecutive rows with the same columns are written by one
// statement, because the fixed cost of a statement is a large part of the cost of a row.
type inserts struct {
	cols rows.Set
	kept [rowsAtOnce]*storedRow
	sets [rowsAtOnce]*runSet // the run set of each row
	n    int
	rest [rowsAtOnce]storedRow // for rows that are not kept
}

const rowsAtOnce = 16

// insertStep inserts a new step; for the first step, with its job.
func (tx *tx) insertStep(j *kernel.Job, st *kernel.Step) error {
	var k *storedRow
	if st.Index == 0 {
		k = newStoredRow(st.StepRef)
		k.newJobOf(j)
		tx.rows[st.StepRef] = k // it may be dispatched by this transaction
	} else if f, err := tx.insertBuffer(); err != nil {
		return err
	} else {
		k = &f.rest[f.n]
		*k = storedRow{}
	}
	k.step.StepRef, k.step.Name, k.step.Type, k.step.Priority = st.StepRef, st.Name, st.Type, st.Priority
	k.setStep(st)
	return tx.addRow(k)
}

// insertBuffer returns the rows that are still to be written, with space for one more.
func (tx *tx) insertBuffer() (*inserts, error) {
	if tx.inserts == nil {
		tx.inserts = &inserts{}
	}
	if tx.inserts.n == rowsAtOnce {
		return tx.inserts, tx.flush()
	}
	return tx.inserts, nil
}

// addRow adds a row to be written.
func (tx *tx) addRow(k *storedRow) error {
	f, err := tx.insertBuffer()
	if err != nil {
		return err
	}
	var m *runSet
	if key := kernel.InFlightOf(&k.step); key.InFlight {
		m = tx.joinSet(key)
		k.runSet = m.id
	}
	cols := k.columnsOfNew()
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
		tx.laneChanged(&kernel.Step{}, &k.step)
	}
	if err := tx.lineChanged(k.step.StepRef, "", kernel.LineOf(&k.step)); err != nil {
		return err
	}
	return tx.permits(k.step.StepRef, kernel.Permits{}, kernel.PermitsOf(&k.step, k.job))
}

// flush writes these rows.
func (tx *tx) flush() error {
	f := tx.inserts
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

func (tx *tx) insertRows(t *statements, all []*storedRow, sets []*runSet) error {
	s, err := t.of(tx.c, tx.inserts.cols)
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
		if at, err = k.bind(s, at+5, tx.inserts.cols); err != nil {
			return err
		}
	}
	tx.hasWritten = true
	if err := run(s); err != nil {
		if driver.ErrCode(err) == driver.ResultConstraintUnique {
			return kernel.ErrStale
		}
		return err
	}
	last := tx.c.db.LastInsertRowID() // consecutive numbers within one statement
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
		place := `(` + placeholders(strings.Count(names, ",")+1) + `)`
		return `INSERT INTO perdure_step (` + names + `) VALUES ` + strings.Repeat(place+`,`, n-1) + place
	}
}
