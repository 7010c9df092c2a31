package sqlite

import (
	"cmp"
	"slices"
	"strings"

	driver "zombiezen.com/go/sqlite"

	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/rows"
)

// Save writes in the order of the fields of Changes.
func (tx *tx) Save(c *kernel.Changes) error {
	crashpoint.Here(crashpoint.SQLiteSave)
	err := tx.save(c)
	crashpoint.Here(crashpoint.SQLiteSaved)
	tx.failed = cmp.Or(tx.failed, err)
	return err
}

func (tx *tx) save(c *kernel.Changes) error {
	if len(c.NewJobs) > 0 {
		if err := tx.insertJobs(c.NewJobs); err != nil {
			return err
		}
	}
	if err := tx.change(c.Jobs, c.Steps); err != nil {
		return err
	}
	if err := tx.saveSets(); err != nil {
		return err
	}
	for _, ch := range c.Payloads {
		if err := tx.putPayload(ch); err != nil {
			return err
		}
	}
	for _, ch := range c.CloseAlerts {
		if err := tx.closeAlerts(ch); err != nil {
			return err
		}
	}
	for _, a := range c.Alerts {
		if err := tx.exec(`INSERT INTO perdure_alert (job, step, kind, name, message, raised_at, closed_at, closed_by) VALUES (?,?,?,?,?,?,?,?)`,
			a.Job[:], a.Step, string(a.Kind), a.Name, a.Message, micros(a.RaisedAt), micros(a.ClosedAt), a.ClosedBy); err != nil {
			return err
		}
	}
	for _, e := range c.History {
		if err := tx.exec(`INSERT INTO perdure_entry (job, step, run, at, event, author, detail) VALUES (?,?,?,?,?,?,?)`,
			e.Job[:], e.Step, e.Run, micros(e.At), e.Event, e.Author, e.Detail); err != nil {
			return err
		}
	}
	if len(tx.lanesLeft)+len(tx.lanesEntered)+len(c.CloseLanes) > 0 {
		return tx.saveLanes(c.CloseLanes)
	}
	return nil
}

// change writes jobs and steps. A job and its first step are one row, and written at once. A row that is
// not as it was loaded refuses the change: nobody else writes meanwhile, so that it is enough to look at what
// the transaction knows of it.
func (tx *tx) change(jobs []kernel.JobChange, steps []kernel.StepChange) error {
	for i := range jobs {
		now, was := jobs[i].Now, jobs[i].Was
		k, err := tx.toChange(kernel.StepRef{Job: was.ID}, func(k *kept) bool { return k.newJob != nil })
		if err != nil {
			return err
		}
		if !sameJob(k.job, was) {
			return kernel.ErrStale
		}
		k.newJob = now
	}
	for i := range steps {
		now, was := steps[i].Now, steps[i].Was
		k, err := tx.toChange(was.StepRef, func(k *kept) bool { return k.newStep != nil })
		if err != nil {
			return err
		}
		if !sameStep(&k.step, was) {
			return kernel.ErrStale
		}
		k.newStep = now
	}
	for _, k := range tx.dirty {
		if err := tx.write(k); err != nil {
			return err
		}
	}
	tx.dirty = tx.dirty[:0]
	return tx.leaveBundles()
}

// toChange is a row that is about to be changed. What is to be changed twice is written in between.
func (tx *tx) toChange(ref kernel.StepRef, twice func(*kept) bool) (*kept, error) {
	k, err := tx.row(ref)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, kernel.ErrStale
	}
	if twice(k) {
		if err := tx.write(k); err != nil {
			return nil, err
		}
	}
	if k.newJob == nil && k.newStep == nil {
		tx.dirty = append(tx.dirty, k)
	}
	return k, nil
}

func sameJob(a, b *kernel.Job) bool {
	return a.Current == b.Current && a.Desired == b.Desired && a.Phase == b.Phase &&
		a.Unsettled == b.Unsettled && a.Running == b.Running && a.Active == b.Active
}

func sameStep(a, b *kernel.Step) bool {
	return a.Run == b.Run && a.Phase == b.Phase && a.Current == b.Current && a.Desired == b.Desired
}

// write writes what of a row has changed.
func (tx *tx) write(k *kept) error {
	var c rows.Set
	had := kernel.PermitsOf(&k.step, k.job)
	if k.newJob != nil {
		was := *k.job
		k.setJob(k.newJob)
		k.newJob = nil
		c = c.Or(diffJobs(&was, k.job))
	}
	if k.newStep != nil {
		was := k.step
		k.setStep(k.newStep)
		k.newStep = nil
		c = c.Or(diffSteps(&was, &k.step))
		if was.Needs != "" || k.step.Needs != "" {
			tx.touchLane(&was, &k.step)
		}
		if k.in.of == nil {
			c.Add(colOut, tx.joinOrQuit(k, &was, &k.step))
		}
	}
	if k.in.of != nil { // it is inserted as it is now
		tx.bundles.leave(k.in)
		return nil
	}
	if c.Empty() {
		return nil
	}
	s, err := tx.c.updates.of(tx.c, c)
	if err != nil {
		return err
	}
	n, err := k.bind(s, 1, c)
	if err != nil {
		return err
	}
	s.BindInt64(n, k.id)
	tx.wrote = true
	if err := run(s); err != nil {
		return err
	}
	return tx.permits(k.step.StepRef, had, kernel.PermitsOf(&k.step, k.job))
}

func updateText(c rows.Set) string {
	return `UPDATE perdure_step SET ` + list(slices.Collect(c.IDs), ` = ?`)[2:] + ` WHERE id = ?`
}

// texts are the prepared statements for sets of columns, up to so many.
type texts struct {
	text  func(rows.Set) string
	stmts map[rows.Set]*driver.Stmt
}

const maxTexts = 200

func textsOf(text func(rows.Set) string) texts { return texts{text, map[rows.Set]*driver.Stmt{}} }

func (t *texts) of(c *conn, cols rows.Set) (*driver.Stmt, error) {
	if s := t.stmts[cols]; s != nil {
		return s, nil
	}
	if len(t.stmts) >= maxTexts {
		for cols, s := range t.stmts {
			if err := s.Finalize(); err != nil {
				return nil, err
			}
			delete(t.stmts, cols)
		}
	}
	s, err := c.db.Prepare(t.text(cols))
	if err == nil {
		t.stmts[cols] = s
	}
	return s, err
}

func (tx *tx) putPayload(ch kernel.PayloadChange) error {
	input, output := textOrNull(ch.Input), textOrNull(ch.Output)
	if !ch.SetInput {
		input = nil
	}
	if !ch.SetOutput {
		output = nil
	}
	return tx.exec(`
		INSERT INTO perdure_payload (job, idx, input, output) VALUES (?,?,?,?)
		ON CONFLICT DO UPDATE SET input = iif(?, excluded.input, input), output = iif(?, excluded.output, output)`,
		ch.Job[:], ch.Index, input, output, ch.SetInput, ch.SetOutput)
}

// closeAlerts closes the open alerts of these kinds, of a step or of a job and all its steps.
func (tx *tx) closeAlerts(ch kernel.CloseAlerts) error {
	if len(ch.Kinds) == 0 {
		return nil
	}
	query := `UPDATE perdure_alert SET closed_at = ?, closed_by = ? WHERE job = ? AND closed_at IS NULL AND kind IN (` + places(len(ch.Kinds)) + `)`
	args := []any{micros(tx.store.clock.now()), ch.By, ch.Job[:]}
	for _, k := range ch.Kinds {
		args = append(args, string(k))
	}
	if ch.Step != "" {
		query, args = query+` AND step = ?`, append(args, ch.Step)
	}
	return tx.exec(query, args...)
}

func places(n int) string { return strings.Repeat("?,", n-1) + "?" }
