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
	var alerts []int64
	for _, a := range c.Alerts {
		if err := tx.exec(`INSERT INTO perdure_alert (job, type, job_key, step, kind, code, attempts, name, message, raised_at, closed_at, closed_by) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)`,
			a.Job[:], a.Type, a.JobKey, a.Step, string(a.Kind), a.Code, a.Attempts, a.Name, a.Message, micros(a.RaisedAt), micros(a.ClosedAt), a.ClosedBy); err != nil {
			return err
		}
		alerts = append(alerts, tx.c.db.LastInsertRowID())
	}
	for _, e := range c.History {
		if err := tx.exec(`INSERT INTO perdure_entry (job, step, run, at, event, author, detail, turn, direction, ready_at, started_at) VALUES (?,?,?,?,?,?,?,?,?,?,?)`,
			e.Job[:], e.Step, e.Run, micros(e.At), e.Event, e.Author, e.Detail, orNull(int64(e.Turn)), orNull(int64(e.Direction)), micros(e.ReadyAt), micros(e.StartedAt)); err != nil {
			return err
		}
	}
	for i := range c.Audit {
		if err := tx.addAudit(&c.Audit[i]); err != nil {
			return err
		}
	}
	if err := tx.useArtifacts(c.ArtifactUses); err != nil {
		return err
	}
	if err := tx.saveSignals(c.Signals); err != nil {
		return err
	}
	if err := tx.saveBuckets(c.Buckets); err != nil {
		return err
	}
	if err := tx.changeFirings(c.Firings); err != nil {
		return err
	}
	if err := tx.saveUnique(c); err != nil {
		return err
	}
	if err := tx.saveNews(c); err != nil {
		return err
	}
	if len(tx.lanesLeft)+len(tx.lanesEntered)+len(c.CloseLanes) > 0 {
		if err := tx.saveLanes(c.CloseLanes); err != nil {
			return err
		}
	}
	if err := tx.charge(c.Served); err != nil {
		return err
	}
	return tx.addNotifications(c.WithAlertIDs(alerts))
}

// change writes jobs and steps. A job and its first step are one row, and are written at once. If a row is not as it was
// loaded, the change is refused. There is no other writer, so it is enough to compare with the rows that the transaction
// has read.
func (tx *tx) change(jobs []kernel.JobChange, steps []kernel.StepChange) error {
	for i := range jobs {
		now, was := jobs[i].Now, jobs[i].Loaded
		k, err := tx.rowToChange(kernel.StepRef{Job: was.ID}, func(k *storedRow) bool { return k.nextJob != nil })
		if err != nil {
			return err
		}
		if !sameJob(k.job, was) {
			return kernel.ErrStale
		}
		k.nextJob = now
	}
	for i := range steps {
		now, was := steps[i].Now, steps[i].Loaded
		k, err := tx.rowToChange(was.StepRef, func(k *storedRow) bool { return k.nextStep != nil })
		if err != nil {
			return err
		}
		if !sameStep(&k.step, was) {
			return kernel.ErrStale
		}
		k.nextStep = now
	}
	for _, k := range tx.dirty {
		if err := tx.write(k); err != nil {
			return err
		}
	}
	tx.dirty = tx.dirty[:0]
	return tx.leaveBundles()
}

// rowToChange returns a row that is about to be changed. If it is to be changed a second time, the first change is
// written before.
func (tx *tx) rowToChange(ref kernel.StepRef, twice func(*storedRow) bool) (*storedRow, error) {
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
	if k.nextJob == nil && k.nextStep == nil {
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

// write writes what has changed of a row.
func (tx *tx) write(k *storedRow) error {
	var c rows.Set
	had, inLine := kernel.PermitsOf(&k.step, k.job), kernel.LineOf(&k.step)
	if k.nextJob != nil {
		was := *k.job
		k.setJob(k.nextJob)
		k.nextJob = nil
		c = c.Or(diffJobs(&was, k.job))
	}
	if k.nextStep != nil {
		was := k.step
		k.setStep(k.nextStep)
		k.nextStep = nil
		c = c.Or(diffSteps(&was, &k.step))
		if was.Needs != "" || k.step.Needs != "" {
			tx.laneChanged(&was, &k.step)
		}
		if k.bundled.of == nil {
			c.Add(colRunSet, tx.moveBetweenSets(k, &was, &k.step))
		}
	}
	if k.bundled.of != nil { // the row will be inserted as it is now
		tx.bundles.leave(k.bundled)
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
	tx.hasWritten = true
	if err := run(s); err != nil {
		return err
	}
	if err := tx.lineChanged(k.step.StepRef, inLine, kernel.LineOf(&k.step)); err != nil {
		return err
	}
	return tx.permits(k.step.StepRef, had, kernel.PermitsOf(&k.step, k.job))
}

func updateText(c rows.Set) string {
	return `UPDATE perdure_step SET ` + list(slices.Collect(c.IDs), ` = ?`)[2:] + ` WHERE id = ?`
}

// statements are the prepared statements for sets of columns, up to a limit.
type statements struct {
	text  func(rows.Set) string
	stmts map[rows.Set]*driver.Stmt
}

const maxTexts = 200

func newStatements(text func(rows.Set) string) statements {
	return statements{text, map[rows.Set]*driver.Stmt{}}
}

func (t *statements) of(c *conn, cols rows.Set) (*driver.Stmt, error) {
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
	query := `UPDATE perdure_alert SET closed_at = ?, closed_by = ? WHERE job = ? AND closed_at IS NULL AND kind IN (` + placeholders(len(ch.Kinds)) + `)`
	args := []any{micros(tx.store.clock.now()), ch.By, ch.Job[:]}
	for _, k := range ch.Kinds {
		args = append(args, string(k))
	}
	if ch.Step != "" {
		query, args = query+` AND step = ?`, append(args, ch.Step)
	}
	return tx.exec(query, args...)
}

func placeholders(n int) string { return strings.Repeat("?,", n-1) + "?" }
