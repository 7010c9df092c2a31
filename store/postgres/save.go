package postgres

import (
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"perdure"
)

// What a row is found by, and what of it must still be as it was loaded.
var (
	jobKeys    = []string{"id"}
	jobGuards  = []string{"current", "desired", "phase", "unsettled", "running", "active"}
	stepKeys   = []string{"job", "idx"}
	stepGuards = []string{"run", "phase", "current", "desired"}
)

var (
	// Keys are inserted in their order, so that two who submit the same ones do not wait for each other.
	insertJobsSQL    = insertSQL("job", jobColumns) + " order by key, id on conflict do nothing"
	insertStepsSQL   = insertSQL("step", stepColumns)
	insertAlertsSQL  = insertSQL("alert", alertColumns)
	insertEntriesSQL = insertSQL("entry", entryColumns)
	updateJobsSQL    = updateSQL("job", jobColumns, jobKeys, jobGuards)
	updateStepsSQL   = updateSQL("step", stepColumns, stepKeys, stepGuards)
)

const (
	insertDefinitionsSQL = "insert into perdure.definition (job, body) select * from unnest($1::uuid[], $2::bytea[])"
	insertLabelsSQL      = `insert into perdure.label (name, value, job)
		select * from unnest($1::text[], $2::text[], $3::uuid[])`
	putPayloadsSQL = `insert into perdure.payload as p (job, idx, input, output)
		select job, idx, input, output
		from unnest($1::uuid[], $2::int[], $3::bytea[], $4::bytea[]) as u (job, idx, input, output)
		on conflict (job, idx) do update set `
	// An alert of a step is closed if it is of the kinds named or, where none is, holds the step.
	closeAlertsSQL = `update perdure.alert a set closed_at = coalesce($5, clock_timestamp()), closed_by = $4
		where a.job = $1 and a.closed_at is null and ($2 = '' or a.step = $2)
		and (a.kind = any ($3::text[]) or $2 <> '' and cardinality($3::text[]) = 0 and a.kind in ('parked', 'approval'))`
)

// Save sends everything in one round trip, in the order of the fields of Changes, and then compares
// how many rows there were with how many there should have been.
func (tx *tx) Save(c *perdure.Changes) error {
	if c.Empty() {
		return nil
	}
	tx.wrote = true
	w := &writing{}
	w.newJobs(c.NewJobs)
	w.jobs(c.Jobs)
	w.steps(c.Steps)
	w.payloads(c.Payloads)
	for _, ch := range c.CloseAlerts {
		w.closeAlerts(ch, tx)
	}
	w.alerts(c.Alerts)
	w.history(c.History)
	tx.stirred = tx.stirred || stirs(c)
	return tx.send(&w.Batch)
}

// writing is a batch of statements, each of which must meet as many rows as it names.
type writing struct{ pgx.Batch }

func (w *writing) exact(n int, sql string, args ...any) {
	w.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return perdure.ErrStale
		}
		return nil
	})
}

// newJobs writes submissions. A key that is taken means that somebody was faster: the transaction is
// tried again and then finds the key.
func (w *writing) newJobs(all []perdure.NewJob) {
	if len(all) == 0 {
		return
	}
	var steps []*perdure.Step
	var labels [2][]string
	var labelled [][16]byte
	for _, n := range all {
		steps = append(steps, n.Steps...)
		for name, value := range n.Job.Labels {
			labels[0], labels[1] = append(labels[0], name), append(labels[1], value)
			labelled = append(labelled, n.Job.ID)
		}
	}
	jobs := gather(all, func(n perdure.NewJob) *perdure.Job { return n.Job })
	ids := gather(all, func(n perdure.NewJob) [16]byte { return n.Job.ID })
	w.exact(len(all), insertJobsSQL, args(jobColumns, jobs)...)
	w.exact(len(all), insertDefinitionsSQL, ids, gather(all, func(n perdure.NewJob) []byte { return n.Definition }))
	if len(labelled) > 0 {
		w.exact(len(labelled), insertLabelsSQL, labels[0], labels[1], labelled)
	}
	for part := range slices.Chunk(steps, maxRows) {
		w.exact(len(part), insertStepsSQL, args(stepColumns, part)...)
	}
}

// maxRows bounds the parameters of one statement, which are in memory on both sides.
const maxRows = 5000

func (w *writing) jobs(all []perdure.JobChange) {
	for part := range slices.Chunk(all, maxRows) {
		now := gather(part, func(c perdure.JobChange) *perdure.Job { return c.Now })
		was := gather(part, func(c perdure.JobChange) *perdure.Job { return c.Was })
		w.exact(len(part), updateJobsSQL, updateArgs(jobColumns, jobKeys, jobGuards, now, was)...)
	}
}

func (w *writing) steps(all []perdure.StepChange) {
	for part := range slices.Chunk(all, maxRows) {
		now := gather(part, func(c perdure.StepChange) *perdure.Step { return c.Now })
		was := gather(part, func(c perdure.StepChange) *perdure.Step { return c.Was })
		w.exact(len(part), updateStepsSQL, updateArgs(stepColumns, stepKeys, stepGuards, now, was)...)
	}
}

// payloads writes by what is set, so that the value that is not stays as it is.
func (w *writing) payloads(all []perdure.PayloadChange) {
	for _, set := range []struct {
		input, output bool
		sql           string
	}{
		{true, false, "input = excluded.input"},
		{false, true, "output = excluded.output"},
		{true, true, "input = excluded.input, output = excluded.output"},
	} {
		var refs []perdure.StepRef
		var inputs, outputs [][]byte
		for _, ch := range all {
			if ch.SetInput == set.input && ch.SetOutput == set.output {
				refs = append(refs, ch.StepRef)
				inputs, outputs = append(inputs, kept(ch.SetInput, ch.Input)), append(outputs, kept(ch.SetOutput, ch.Output))
			}
		}
		if len(refs) > 0 {
			jobs, indexes := pairs(refs)
			w.exact(len(refs), putPayloadsSQL+set.sql, jobs, indexes, inputs, outputs)
		}
	}
}

func kept(set bool, b []byte) []byte {
	if !set {
		return nil
	}
	return b
}

func (w *writing) closeAlerts(ch perdure.CloseAlerts, tx *tx) {
	kinds := make([]string, len(ch.Kinds))
	for i, k := range ch.Kinds {
		kinds[i] = string(k)
	}
	w.Queue(closeAlertsSQL, [16]byte(ch.Job), ch.Step, kinds, ch.By, notZero(&tx.told.now))
}

func (w *writing) alerts(all []perdure.Alert) {
	if len(all) > 0 {
		w.exact(len(all), insertAlertsSQL, args(alertColumns, pointers(all))...)
	}
}

func (w *writing) history(all []perdure.Entry) {
	if len(all) > 0 {
		w.exact(len(all), insertEntriesSQL, args(entryColumns, pointers(all))...)
	}
}

func pointers[T any](all []T) []*T {
	list := make([]*T, len(all))
	for i := range all {
		list[i] = &all[i]
	}
	return list
}

// stirs says whether somebody may be waiting for these changes: an agent for work, or a caller for a
// job to come to rest.
func stirs(c *perdure.Changes) bool {
	ready := func(s *perdure.Step) bool { return s.Phase == perdure.Ready }
	for _, n := range c.NewJobs {
		if n.Job.AtRest() || slices.ContainsFunc(n.Steps, ready) {
			return true
		}
	}
	return slices.ContainsFunc(c.Jobs, func(ch perdure.JobChange) bool { return ch.Now.AtRest() && !ch.Was.AtRest() }) ||
		slices.ContainsFunc(c.Steps, func(ch perdure.StepChange) bool { return ready(ch.Now) && !ready(ch.Was) })
}
