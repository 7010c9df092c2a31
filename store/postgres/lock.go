package postgres

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"perdure"
)

// A statement that locks is followed, in the same round trip, by one that reads the clock.

var (
	lockJobsSQL = "select " + names(jobColumns, "") + " from perdure.job where id = any($1) order by id for update"

	stepsSQL = "select " + names(stepColumns, "s.") + `
		from (select distinct * from unnest($1::uuid[], $2::int[]) as u (job, idx)) r
		join perdure.step s on s.job = r.job and s.idx = r.idx order by s.job, s.idx`
	stepsOfSQL = "select " + names(stepColumns, "") + " from perdure.step where job = $1 order by idx"
)

const (
	payloadsSQL = `select p.job, p.idx, p.input, p.output
		from (select distinct * from unnest($1::uuid[], $2::int[]) as u (job, idx)) r
		join perdure.payload p on p.job = r.job and p.idx = r.idx
		where p.input is not null or p.output is not null order by p.job, p.idx`
	definitionsSQL = "select job, body from perdure.definition where job = any($1)"

	lockLimitsSQL  = `select name from perdure."limit" where name = any($1) order by name for update`
	countLimitsSQL = `select name, max, used from perdure."limit" l cross join lateral (` + usedSQL + `) u
		where name = any($1) order by name`
	// usedSQL counts the rows that hold a permit of l.
	usedSQL = `select case when l.name like 'job:%'
		then (select count(*) from perdure.job j where j.permit and j.type = substr(l.name, 5))
		else (select count(*) from perdure.step s where s.phase = 3 and s.agent = substr(l.name, 7))
		end as used`
)

func (tx *tx) LockJobs(ids []perdure.JobID) ([]*perdure.Job, error) {
	tx.asked = append(tx.asked, ids...)
	if len(tx.before) == 0 {
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

// lockJobs gives the rows as they are once they are locked: where a lock was waited for, PostgreSQL
// reads that row again.
func (tx *tx) lockJobs(sql string, ids []perdure.JobID) (jobs []*perdure.Job, err error) {
	b := &pgx.Batch{}
	b.Queue(sql, uuids(ids)).Query(into(&jobs, scanJob))
	b.Queue(clockSQL).Query(tx.readClock)
	return jobs, tx.send(b)
}

// LockLimits takes the rows one after the other, in the order of names, and counts in a later
// statement, which sees what the rows' last holders have let out.
func (tx *tx) LockLimits(names []string) (limits []perdure.Limit, err error) {
	b := &pgx.Batch{}
	b.Queue(shareGate)
	b.Queue(lockLimitsSQL, names)
	b.Queue(countLimitsSQL, names).Query(into(&limits, scanLimit))
	b.Queue(clockSQL).Query(tx.readClock)
	return limits, tx.send(b)
}

func (tx *tx) Steps(refs []perdure.StepRef) ([]*perdure.Step, error) {
	jobs, indexes := pairs(refs)
	return rows(tx, scanStep, stepsSQL, jobs, indexes)
}

func (tx *tx) StepsOf(job perdure.JobID) ([]*perdure.Step, error) {
	return rows(tx, scanStep, stepsOfSQL, [16]byte(job))
}

func (tx *tx) Payloads(refs []perdure.StepRef) ([]perdure.Payload, error) {
	jobs, indexes := pairs(refs)
	return rows(tx, scanPayload, payloadsSQL, jobs, indexes)
}

func (tx *tx) Definitions(ids []perdure.JobID) (map[perdure.JobID][]byte, error) {
	found := map[perdure.JobID][]byte{}
	_, err := rows(tx, func(row pgx.CollectableRow) (struct{}, error) {
		var id perdure.JobID
		var body []byte
		err := row.Scan((*[16]byte)(&id), &body)
		found[id] = body
		return struct{}{}, err
	}, definitionsSQL, uuids(ids))
	return found, err
}

func scanLimit(row pgx.CollectableRow) (l perdure.Limit, err error) {
	return l, row.Scan(&l.Name, &l.Max, &l.Used)
}

// into collects the rows of a query in a batch.
func into[T any](all *[]T, scan pgx.RowToFunc[T]) func(pgx.Rows) error {
	return func(r pgx.Rows) (err error) {
		*all, err = collect(r, scan)
		return err
	}
}

// readClock keeps a reading for the next call of Now.
func (tx *tx) readClock(r pgx.Rows) (err error) {
	tx.read, err = pgx.CollectExactlyOneRow(r, scanReading)
	return err
}

// send runs a batch in one round trip.
func (tx *tx) send(b *pgx.Batch) error {
	return tx.fail(tx.SendBatch(tx.ctx, b).Close())
}
