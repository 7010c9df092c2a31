package postgres

import (
	"bytes"
	"encoding/json"
	"slices"

	"perdure"
)

// Rows are looked up one by one by their key in a lateral subquery (offset 0), or in a join that compares the
// first column of the key with any(array[…]): so the planner knows no other way, whatever it thinks of the
// table's size.
//
// A statement that locks is followed, in the same round trip, by one that reads the clock.

var (
	// lockJobsSQL reads the whole of the first rows: a report of a job with one step needs no more.
	lockJobsSQL = "select ctid, " + names(rowColumns, "") + " from perdure.step where job = any($1) and idx = 0 order by job for update"

	stepsSQL = "select s.* from (select distinct * from unnest($1::uuid[], $2::int[]) as u (job, idx)) r" +
		" cross join lateral (select " + names(stepColumns, "") + ` from perdure.step
			where job = r.job and idx = r.idx offset 0) s order by s.job, s.idx`
	stepsOfSQL = "select " + names(stepColumns, "") + " from perdure.step where job = $1 order by idx"
)

const (
	payloadsSQL = `select p.* from (select distinct * from unnest($1::uuid[], $2::int[]) as u (job, idx)) r
		cross join lateral (select job, idx, input, output from perdure.payload
			where job = r.job and idx = r.idx and (input is not null or output is not null) offset 0) p
		order by p.job, p.idx`
	inputsSQL = "select job, input from perdure.payload where job = any($1) and idx = -1"
	shapesSQL = "select id, text from perdure.shape where id = any($1)"

	lockLimitsSQL  = `select name from perdure."limit" where name = any($1) order by name for update`
	countLimitsSQL = `select name, max, (select count(*) from perdure.permit p where p.name = l.name)
		from perdure."limit" l where name = any($1) order by name`
)

// crossTime is how long a transaction that has locked jobs waits for others: less than PostgreSQL does before
// it looks for a deadlock, or whoever locks in order would be ended as often as who does not. Tried again, it
// locks all that it asked for at once.
const (
	crossTime      = "200ms"
	lockTimeoutSQL = "select set_config('lock_timeout', $1, true)"
)

func (tx *tx) LockJobs(ids []perdure.JobID) ([]*perdure.Job, error) {
	crossing := len(tx.asked) > 0
	tx.asked = append(tx.asked, ids...)
	switch {
	case crossing:
		return tx.lockJobs(lockJobsSQL, ids, q(lockTimeoutSQL).text(crossTime), q(lockTimeoutSQL).text(tx.store.lockTimeout))
	case len(tx.before) == 0:
		return tx.lockJobs(lockJobsSQL, ids)
	}
	more := slices.Concat(ids, tx.before)
	tx.before = nil
	jobs, err := tx.lockJobs(lockJobsSQL, more)
	return slices.DeleteFunc(jobs, func(j *perdure.Job) bool { return !slices.Contains(ids, j.ID) }), err
}

func (tx *tx) TryLockJobs(ids []perdure.JobID) ([]*perdure.Job, error) {
	return tx.lockJobs(lockJobsSQL+" skip locked", ids)
}

// firstRow is a job and its first step, as one row has them. While it is locked and not yet written, it
// stays where it is.
type firstRow struct {
	job   perdure.Job
	step  perdure.Step
	at    tid
	asked bool // the step is the caller's already
}

// lockJobs gives the rows as they are once they are locked: where a lock was waited for, PostgreSQL
// reads that row again. Around it, settings may be changed.
func (tx *tx) lockJobs(sql string, ids []perdure.JobID, around ...*statement) ([]*perdure.Job, error) {
	jobs := make([]*perdure.Job, 0, len(ids))
	var room []firstRow
	lock := q(sql).uuids(ids).each(func(r *reader) error {
		if len(room) == 0 {
			room = make([]firstRow, min(cap(jobs)-len(jobs), 100))
		}
		row := &room[0]
		room = room[1:]
		row.at = tid(r.next())
		if err := r.scan(rowColumns, &row.job, &row.step); err != nil {
			return err
		}
		jobs = append(jobs, &row.job)
		tx.firsts[row.job.ID] = row
		return nil
	})
	list := []*statement{lock, tx.readClock()}
	if len(around) == 2 {
		list = []*statement{around[0], lock, around[1], tx.readClock()}
	}
	if err := tx.run(list...); err != nil {
		return nil, err
	}
	return jobs, nil
}

// LockLimits takes the rows one after the other, in the order of names, and counts in a later
// statement, which sees what the rows' last holders have let out.
func (tx *tx) LockLimits(names []string) (limits []perdure.Limit, err error) {
	count := q(countLimitsSQL).texts(names).each(func(r *reader) error {
		limits = append(limits, perdure.Limit{Name: r.text(), Max: r.int(), Used: r.int()})
		return nil
	})
	return limits, tx.run(q(lockLimitsSQL).texts(names), count, tx.readClock())
}

// Steps gives those that were read with their jobs once: they are the caller's then.
func (tx *tx) Steps(refs []perdure.StepRef) ([]*perdure.Step, error) {
	steps := make([]*perdure.Step, 0, len(refs))
	var missing []perdure.StepRef
	for _, ref := range refs {
		if row := tx.firsts[ref.Job]; row != nil && ref.Index == 0 && !row.asked {
			steps = append(steps, &row.step)
			row.asked = true
		} else {
			missing = append(missing, ref)
		}
	}
	if len(missing) > 0 {
		if err := tx.run(q(stepsSQL).refs(missing).each(intoSteps(&steps))); err != nil {
			return nil, err
		}
	}
	byRef := func(a, b *perdure.Step) int { return compareRefs(a.StepRef, b.StepRef) }
	if !slices.IsSortedFunc(steps, byRef) {
		slices.SortFunc(steps, byRef)
	}
	// One that was asked for twice was read once more.
	return slices.CompactFunc(steps, func(a, b *perdure.Step) bool { return a.StepRef == b.StepRef }), nil
}

func (tx *tx) StepsOf(job perdure.JobID) ([]*perdure.Step, error) {
	var steps []*perdure.Step
	return steps, tx.run(q(stepsOfSQL).uuid(job).each(intoSteps(&steps)))
}

func intoSteps(steps *[]*perdure.Step) func(*reader) error {
	return func(r *reader) error {
		s := &perdure.Step{}
		*steps = append(*steps, s)
		return r.scan(stepColumns, nil, s)
	}
}

func (tx *tx) Payloads(refs []perdure.StepRef) ([]perdure.Payload, error) {
	var found []perdure.Payload
	err := tx.run(into(q(payloadsSQL).refs(refs), &found, scanPayload))
	return found, err
}

func (tx *tx) Inputs(ids []perdure.JobID) (map[perdure.JobID]json.RawMessage, error) {
	found := map[perdure.JobID]json.RawMessage{}
	err := tx.run(q(inputsSQL).uuids(ids).each(func(r *reader) error {
		id := r.uuid()
		found[id] = r.bytes()
		return nil
	}))
	return found, err
}

func (tx *tx) Shapes(ids []perdure.ShapeID) (map[perdure.ShapeID][]byte, error) {
	found := map[perdure.ShapeID][]byte{}
	var wanted cells
	for _, id := range ids {
		wanted.uuid(id)
	}
	err := tx.run(q(shapesSQL).array(tUUID, len(ids), wanted).each(func(r *reader) error {
		id := r.uuid()
		found[id] = r.bytes()
		return nil
	}))
	return found, err
}

func scanLimit(r *reader) perdure.Limit { return perdure.Limit{Name: r.text(), Max: r.int()} }

func scanPayload(r *reader) perdure.Payload {
	return perdure.Payload{StepRef: scanRef(r), Input: r.bytes(), Output: r.bytes()}
}

func compareIDs(a, b perdure.JobID) int { return bytes.Compare(a[:], b[:]) }

func compareRefs(a, b perdure.StepRef) int {
	if c := compareIDs(a.Job, b.Job); c != 0 {
		return c
	}
	return a.Index - b.Index
}
