package sqlite

import (
	"cmp"
	"strings"

	"perdure"
)

// Save writes in the order of the fields of Changes.
func (tx *tx) Save(c *perdure.Changes) error {
	err := tx.save(c)
	tx.failed = cmp.Or(tx.failed, err)
	return err
}

func (tx *tx) save(c *perdure.Changes) error {
	for i := range c.NewJobs {
		if err := tx.insert(&c.NewJobs[i]); err != nil {
			return err
		}
	}
	for _, ch := range c.Jobs {
		if err := tx.updateJob(ch.Now, ch.Was); err != nil {
			return err
		}
	}
	for _, ch := range c.Steps {
		if err := tx.updateStep(ch.Now, ch.Was); err != nil {
			return err
		}
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
		if _, err := tx.exec(`INSERT INTO alert (job, step, kind, name, message, raised_at, closed_at, closed_by) VALUES (?,?,?,?,?,?,?,?)`,
			a.Job[:], a.Step, string(a.Kind), a.Name, a.Message, micros(a.RaisedAt), micros(a.ClosedAt), a.ClosedBy); err != nil {
			return err
		}
	}
	for _, e := range c.History {
		if _, err := tx.exec(`INSERT INTO entry (job, step, run, at, event, author, detail) VALUES (?,?,?,?,?,?,?)`,
			e.Job[:], e.Step, e.Run, micros(e.At), e.Event, e.Author, e.Detail); err != nil {
			return err
		}
	}
	return nil
}

// insert stores a submission. A key that is taken means that somebody was faster: the transaction is
// tried again and then finds the key.
func (tx *tx) insert(n *perdure.NewJob) error {
	j := n.Job
	labels, err := jsonOrNull(j.Labels, len(j.Labels) > 0)
	if err != nil {
		return err
	}
	states, err := jsonOrNull(j.States, j.States != nil)
	if err != nil {
		return err
	}
	if err := tx.guarded(`INSERT INTO job (`+jobColumns+`) VALUES (`+places(24)+`) ON CONFLICT DO NOTHING`,
		j.ID[:], textOrNull(j.Key), j.Type, num(j.Priority), labels, states, j.Hash[:], micros(j.CreatedAt),
		num(j.Current), num(j.Desired), num(j.Phase), j.Then, num(j.Restarts), j.Permit,
		num(j.Unsettled), num(j.Running), num(j.Active),
		micros(j.CompleteBy), micros(j.ParkedAt), j.Overdue, j.GivenUpBy, j.GivenUpReason,
		micros(j.UpdatedAt), micros(j.SettledAt)); err != nil {
		return err
	}
	for name, value := range j.Labels {
		if _, err := tx.exec(`INSERT INTO label (name, value, job) VALUES (?,?,?)`, name, value, j.ID[:]); err != nil {
			return err
		}
	}
	if _, err := tx.exec(`INSERT INTO definition (job, body) VALUES (?,?)`, j.ID[:], string(n.Definition)); err != nil {
		return err
	}
	return tx.insertSteps(n.Steps)
}

// insertSteps stores new steps. Most of their fields are as the table has them by default, and to bind
// values is what an insert costs; so is the statement, which therefore takes many rows at once.
func (tx *tx) insertSteps(steps []*perdure.Step) error {
	for len(steps) > 0 {
		n := 0
		for n < len(steps) && n < stepsAtOnce && fresh(steps[n]) {
			n++
		}
		var err error
		switch {
		case n == 0:
			n, err = 1, tx.insertStep(steps[0])
		case n == stepsAtOnce:
			err = tx.insertFresh(steps[:n])
		default:
			n, err = 1, tx.insertFresh(steps[:1])
		}
		if err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

const stepsAtOnce = 16

func (tx *tx) insertStep(s *perdure.Step) error {
	_, err := tx.exec(`INSERT INTO step (`+stepColumns+`) VALUES (`+places(37)+`)`,
		append([]any{s.Job[:], num(s.Index), s.Name, s.Type, num(s.Priority)}, stepValues(s)...)...)
	return err
}

func (tx *tx) insertFresh(steps []*perdure.Step) error {
	args := make([]any, 0, len(steps)*14)
	for _, s := range steps {
		args = append(args, s.Job[:], num(s.Index), s.Name, s.Type, num(s.Priority),
			num(s.Current), num(s.Desired), num(s.Phase), num(s.Turn), s.Agent,
			micros(s.AvailableAt), num(s.Blockers), micros(s.ReadyAt), micros(s.UpdatedAt))
	}
	query := insertOne
	if len(steps) > 1 {
		query = insertMany
	}
	_, err := tx.exec(query, args...)
	return err
}

var (
	insertOne = `INSERT INTO step (job, idx, name, type, priority, current, desired, phase, turn, agent,
		available_at, blockers, ready_at, updated_at) VALUES (` + places(14) + `)`
	insertMany = insertOne + strings.Repeat(`,(`+places(14)+`)`, stepsAtOnce-1)
)

// fresh says whether nothing of a new step is set but what insertFresh carries.
func fresh(s *perdure.Step) bool {
	rest := perdure.Step{
		StepRef: s.StepRef, Name: s.Name, Type: s.Type, Priority: s.Priority,
		Current: s.Current, Desired: s.Desired, Phase: s.Phase, Turn: s.Turn, Agent: s.Agent,
		AvailableAt: s.AvailableAt, Blockers: s.Blockers, ReadyAt: s.ReadyAt, UpdatedAt: s.UpdatedAt,
	}
	return *s == rest
}

// updateJob writes what of a job can change, if it is as it was loaded.
func (tx *tx) updateJob(now, was *perdure.Job) error {
	return tx.guarded(`
		UPDATE job SET
			current = ?, desired = ?, phase = ?, "then" = ?, restarts = ?, permit = ?,
			unsettled = ?, running = ?, active = ?, complete_by = ?, parked_at = ?, overdue = ?,
			given_up_by = ?, given_up_reason = ?, updated_at = ?, settled_at = ?
		WHERE id = ? AND current = ? AND desired = ? AND phase = ? AND unsettled = ? AND running = ? AND active = ?`,
		num(now.Current), num(now.Desired), num(now.Phase), now.Then, num(now.Restarts), now.Permit,
		num(now.Unsettled), num(now.Running), num(now.Active), micros(now.CompleteBy), micros(now.ParkedAt), now.Overdue,
		now.GivenUpBy, now.GivenUpReason, micros(now.UpdatedAt), micros(now.SettledAt),
		was.ID[:], num(was.Current), num(was.Desired), num(was.Phase), num(was.Unsettled), num(was.Running), num(was.Active))
}

// updateStep writes what of a step can change, if it is as it was loaded.
func (tx *tx) updateStep(now, was *perdure.Step) error {
	return tx.guarded(`
		UPDATE step SET
			current = ?, desired = ?, phase = ?, skipped = ?, run = ?, direction = ?, was = ?, turn = ?,
			agent = ?, locked_by = ?, request = ?, complete_by = ?, locked_until = ?, heartbeat = ?,
			failures = ?, rung = ?, waits = ?, returns = ?, available_at = ?,
			outcome = ?, error_code = ?, last_error = ?, progress = ?, has_output = ?, own_input = ?, edited = ?, given_up = ?,
			blockers = ?, ready_at = ?, started_at = ?, ended_at = ?, updated_at = ?
		WHERE job = ? AND idx = ? AND run = ? AND phase = ? AND current = ? AND desired = ?`,
		append(stepValues(now),
			was.Job[:], num(was.Index), was.Run, num(was.Phase), num(was.Current), num(was.Desired))...)
}

// stepValues are the values of stepColumns from current on.
func stepValues(s *perdure.Step) []any {
	return append(make([]any, 0, 38), // six more are to come
		num(s.Current), num(s.Desired), num(s.Phase), s.Skipped, s.Run, num(s.Direction), num(s.Was), num(s.Turn),
		s.Agent, s.LockedBy, s.Request, micros(s.CompleteBy), micros(s.LockedUntil), s.Heartbeat.Microseconds(),
		num(s.Failures), num(s.Rung), num(s.Waits), num(s.Returns), micros(s.AvailableAt),
		num(s.Outcome), s.ErrorCode, s.LastError, s.Progress, s.HasOutput, s.OwnInput, num(s.Edited), s.GivenUp,
		num(s.Blockers), micros(s.ReadyAt), micros(s.StartedAt), micros(s.EndedAt), micros(s.UpdatedAt))
}

// guarded writes one row or refuses.
func (tx *tx) guarded(query string, args ...any) error {
	n, err := tx.exec(query, args...)
	if err == nil && n == 0 {
		err = perdure.ErrStale
	}
	return err
}

func (tx *tx) putPayload(ch perdure.PayloadChange) error {
	input, output := bytesOrNull(ch.Input), bytesOrNull(ch.Output)
	if !ch.SetInput {
		input = nil
	}
	if !ch.SetOutput {
		output = nil
	}
	_, err := tx.exec(`
		INSERT INTO payload (job, idx, input, output) VALUES (?,?,?,?)
		ON CONFLICT DO UPDATE SET input = iif(?, excluded.input, input), output = iif(?, excluded.output, output)`,
		ch.Job[:], num(ch.Index), input, output, ch.SetInput, ch.SetOutput)
	return err
}

// closeAlerts closes alerts of a step, or of a job and all its steps, that are of the kinds named; of
// a step, those that hold it where none is named.
func (tx *tx) closeAlerts(ch perdure.CloseAlerts) error {
	kinds := ch.Kinds
	if ch.Step != "" && len(kinds) == 0 {
		kinds = []perdure.AlertKind{perdure.AlertParked, perdure.AlertApproval}
	}
	if len(kinds) == 0 {
		return nil
	}
	query := `UPDATE alert SET closed_at = ?, closed_by = ? WHERE job = ? AND closed_at IS NULL AND kind IN (` + places(len(kinds)) + `)`
	args := []any{micros(tx.store.clock.now()), ch.By, ch.Job[:]}
	for _, k := range kinds {
		args = append(args, string(k))
	}
	if ch.Step != "" {
		query, args = query+` AND step = ?`, append(args, ch.Step)
	}
	_, err := tx.exec(query, args...)
	return err
}

func places(n int) string { return strings.Repeat("?,", n-1) + "?" }
