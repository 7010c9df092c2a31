package postgres

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// Rows are looked up by their key in a lateral subquery (offset 0), or in a join that compares the first column of the
// key with any(array[…]). So the planner has no other choice, whatever it assumes about the size of the table.
//
// A statement that locks jobs, bundles, limits or roles is followed, in the same round trip, by one that reads the clock.

var (
	// lockJobsSQL reads whole first rows: a report of a job with one step needs no more.
	lockJobsSQL = readJobsSQL + " for update"
	readJobsSQL = "select ctid, " + names(rowColumns, "") + " from perdure.step where job = any($1) and idx = 0 order by job"

	// lockCachedSQL is for jobs whose rows are cached.
	lockCachedSQL = "select job, ctid, xmin from perdure.step where job = any($1) and idx = 0 order by job for update"

	stepsSQL = "select s.* from (select distinct * from unnest($1::uuid[], $2::int[]) as u (job, idx)) r" +
		" cross join lateral (select " + names(stepColumns, "") + ` from perdure.step
			where job = r.job and idx = r.idx offset 0) s order by s.job, s.idx`
	stepsOfSQL = "select " + names(rowColumns, "s.") + ", " + implicitOfFirst + " from perdure.step s where job = $1 order by idx"
)

const (
	// octet_length does not read a value that is stored out of line.
	payloadsSQL = `select job, idx, input, output from (
			select p.*, r.n, sum(size) over (order by r.n) - size as before
			from (select job, idx, min(n) as n from unnest($1::uuid[], $2::int[]) with ordinality as u (job, idx, n) group by job, idx) r
			cross join lateral (select job, idx, input, output, coalesce(octet_length(input), 0) + coalesce(octet_length(output), 0) as size
				from perdure.payload where job = r.job and idx = r.idx and (input is not null or output is not null) offset 0) p) s
		where before < $3 order by n`
	inputsSQL = "select job, input from perdure.payload where job = any($1) and idx = -1 and input is not null"
	shapesSQL = "select id, text from perdure.shape where id = any($1)"

	lockLimitsSQL  = `select name from perdure."limit" where name = any($1) order by name for update`
	countLimitsSQL = `select l.name, coalesce(max, -1), coalesce(per_key, -1), coalesce(rates, ''), case when l.max is null then 0 else (select coalesce(sum(amount), 0) from perdure.permit p where p.name = l.name) end,
		coalesce(b.full_at, 0), coalesce(b.permit, 0)
		from perdure."limit" l left join perdure.bucket b on b.name = l.name and b.key = '' where l.name = any($1) order by l.name`
	// firstOfLineSQL selects the first in the line for key u, and the lane of the first ready step of its job there.
	firstOfLineSQL = `(select l.rank, l.job, l.idx, s.agent, f.type, s.limits
			from (select rank, job, idx from perdure.line where name = u.name collate "C" and key = u.key collate "C" order by rank, job, idx limit 1) l
			left join lateral (select s.agent, s.limits from perdure.line o
				cross join lateral (select agent, limits from perdure.step where job = o.job and idx = o.idx and phase = 2 offset 0) s
				where o.name = u.name collate "C" and o.key = u.key collate "C" and o.rank in (1, 2) and o.job = l.job order by o.idx limit 1) s on true
			left join lateral (select type from perdure.step where job = l.job and idx = 0 offset 0) f on true)`
	firstInLineSQL = `select u.name, u.key, f.rank, f.job, f.idx, f.agent, f.type, f.limits from unnest($1::text[], $2::text[]) as u (name, key) cross join lateral ` + firstOfLineSQL + ` f`
	keyUseSQL      = `select u.name, u.key, coalesce(p.amount, 0), coalesce(b.full_at, 0), coalesce(b.permit, 0), f.rank, f.job, f.idx, f.agent, f.type, f.limits
		from (select name, key from unnest($1::text[], $2::text[]) as u (name, key) offset 0) u
		cross join lateral (select sum(amount) as amount from perdure.permit p where p.name = any(array[u.name collate "C"]) and p.key = u.key collate "C") p
		left join perdure.bucket b on b.name = any(array[u.name collate "C"]) and b.key = u.key collate "C"
		left join lateral ` + firstOfLineSQL + ` f on true`
	deleteBucketsSQL = `with looked as materialized (
		select ctid, name, key, full_at from perdure.bucket where (name, key) > ($1, $2) order by name, key limit $3
	), free as materialized (
		select b.ctid from looked l join perdure.bucket b on b.ctid = l.ctid where l.full_at <= $4 and b.full_at <= $4 for update of b skip locked
	), gone as (
		delete from perdure.bucket where ctid = any(array(select ctid from free))
	)
	select name, key, (select count(*) from looked) from looked order by name desc, key desc limit 1`
)

// secondLockTimeout is how long a transaction that has locked jobs waits for further locks. It is less than the time
// after which PostgreSQL looks for a deadlock. Otherwise PostgreSQL would abort transactions that lock in order as often
// as those that do not. When the transaction is retried, it locks all jobs at once.
const (
	secondLockTimeout = "200ms"
	lockTimeoutSQL    = "select set_config('lock_timeout', $1, true)"
)

// LockJobs locks the rows of jobs, then the bundles of jobs that have no rows, and then the rows of jobs that have left
// a bundle in between. If jobs are still missing and an indeterminate transaction has ended since the last check, it
// locks those once more. While the transaction holds row locks of jobs, each further lock waits at most
// secondLockTimeout.
func (tx *tx) LockJobs(ids []perdure.JobID) ([]*kernel.Job, error) {
	ids = sortedUnique(ids)
	all, how := ids, lockMode{}
	switch {
	case len(tx.lockRequests) > 0:
		how = lockMode{secondLock: true}
	case len(tx.earlierRequests) > 0:
		all = sortedUnique(slices.Concat(ids, tx.earlierRequests))
		tx.earlierRequests = nil
	}
	tx.lockRequests = append(tx.lockRequests, ids...)
	jobs, err := tx.lockJobs(all, how)
	if err == nil && len(jobs) < len(all) {
		var bundled, moved []*kernel.Job
		if len(jobs) > 0 {
			how = lockMode{secondLock: true}
		}
		if bundled, err = tx.lockInBundles(without(all, jobs), how); err != nil {
			return nil, err
		}
		if jobs = append(jobs, bundled...); len(jobs) < len(all) {
			how.secondLock = how.secondLock || len(bundled) > 0
			moved, err = tx.lockJobs(without(all, jobs), how)
			jobs = append(jobs, moved...)
		}
		sortJobs(jobs)
	}
	if err == nil && len(jobs) < len(all) {
		ended, err := tx.awaitIndeterminate()
		if err != nil {
			return nil, err
		}
		if ended {
			more, err := tx.LockJobs(without(all, jobs))
			if err != nil {
				return nil, err
			}
			jobs = append(jobs, more...)
			sortJobs(jobs)
		}
	}
	if len(all) > len(ids) {
		jobs = slices.DeleteFunc(jobs, func(j *kernel.Job) bool { return !slices.Contains(ids, j.ID) })
	}
	return jobs, err
}

func sortJobs(jobs []*kernel.Job) {
	slices.SortFunc(jobs, func(a, b *kernel.Job) int { return a.ID.Compare(b.ID) })
}

// without returns those of ids that are not among the jobs. The ids are in order.
func without(ids []perdure.JobID, jobs []*kernel.Job) (rest []perdure.JobID) {
	there := make(map[perdure.JobID]bool, len(jobs))
	for _, j := range jobs {
		there[j.ID] = true
	}
	for _, id := range ids {
		if !there[id] {
			rest = append(rest, id)
		}
	}
	return rest
}

func (tx *tx) TryLockJobs(ids []perdure.JobID) ([]*kernel.Job, error) {
	ids = sortedUnique(ids)
	if err := tx.tryLockBundles(ids); err != nil {
		return nil, err
	}
	jobs, others := tx.unpackLocked(ids)
	if len(others) == 0 {
		return jobs, nil
	}
	how := lockMode{skip: " skip locked"}
	rows, err := tx.lockJobs(others, how)
	if err != nil {
		return nil, err
	}
	if rest := tx.withoutRows(without(others, rows)); len(rest) > 0 {
		more, err := tx.lockInBundles(rest, how)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	jobs = append(jobs, rows...)
	sortJobs(jobs)
	return jobs, nil
}

// lockMode is how jobs are locked.
type lockMode struct {
	skip       string
	secondLock bool // the transaction holds locks of other jobs: another transaction may lock in another order
}

// statements puts the statements between settings for them alone.
func (how lockMode) statements(tx *tx, list []*pgwire.Statement) []*pgwire.Statement {
	if !how.secondLock {
		return list
	}
	wait := func(d string) *pgwire.Statement { return pgwire.New(lockTimeoutSQL).Text(d) }
	return slices.Concat([]*pgwire.Statement{wait(secondLockTimeout)}, list, []*pgwire.Statement{wait(tx.store.lockTimeout)})
}

// jobRow is a job and its first step, which are in one row.
type jobRow struct {
	job  kernel.Job
	step kernel.Step
}

// lockedRow is a row that this transaction has locked. Until it is written, its position does not change.
type lockedRow struct {
	at   pgwire.RowID
	step *kernel.Step // nil if it is not cached
}

// lockJobs returns the rows as they are once they are locked: if a statement waits for a lock, PostgreSQL reads that row
// again. The ids are in order and unique.
func (tx *tx) lockJobs(ids []perdure.JobID, how lockMode) ([]*kernel.Job, error) {
	l := &locking{tx: tx, cached: tx.store.cache.Rows.Take(ids), jobs: make([]*kernel.Job, 0, len(ids))}
	list := how.statements(tx, l.statements(how.skip, ids))
	if err := tx.run(append(list, tx.readClock())...); err != nil {
		return nil, err
	}
	var err error
	if outdated := l.staleCached(); len(outdated) > 0 {
		err = tx.run(l.read(readJobsSQL, outdated))
	}
	return l.sorted(), err
}

// sortedUnique returns ids in order, each of them once. If they are so already, it returns the same slice.
func sortedUnique(ids []perdure.JobID) []perdure.JobID {
	for i := 1; i < len(ids); i++ {
		if ids[i-1].Compare(ids[i]) >= 0 {
			ids = slices.Clone(ids)
			slices.SortFunc(ids, perdure.JobID.Compare)
			return slices.Compact(ids)
		}
	}
	return ids
}

// locking locks some jobs, of which some may be cached.
type locking struct {
	tx     *tx
	cached []*cache.Job
	locked map[perdure.JobID]version // of the jobs that were locked by lockCachedSQL
	jobs   []*kernel.Job
	free   []jobRow
}

// version is the position of a row, and the transaction that wrote it.
type version struct {
	at   pgwire.RowID
	xmin uint32
}

// statements locks all jobs in one order. If some are cached, a second statement reads the others.
func (l *locking) statements(skip string, ids []perdure.JobID) []*pgwire.Statement {
	switch {
	case len(ids) == 0:
		return nil
	case len(l.cached) == 0:
		return []*pgwire.Statement{l.read(lockJobsSQL+skip, ids)}
	}
	l.locked = make(map[perdure.JobID]version, len(ids))
	hold := lockCached(ids, skip, func(id perdure.JobID, v version) error {
		l.locked[id] = v
		return nil
	})
	others := l.notCached(ids)
	if len(others) == 0 {
		return []*pgwire.Statement{hold}
	}
	return []*pgwire.Statement{hold, l.read(readJobsSQL, others)}
}

// notCached returns those of ids that were not taken from the cache. Both are in the same order.
func (l *locking) notCached(ids []perdure.JobID) []perdure.JobID {
	others, taken := make([]perdure.JobID, 0, len(ids)-len(l.cached)), l.cached
	for _, id := range ids {
		if len(taken) > 0 && taken[0].Job.ID == id {
			taken = taken[1:]
			continue
		}
		others = append(others, id)
	}
	return others
}

// lockCached locks jobs and passes their versions to tell.
func lockCached(ids []perdure.JobID, skip string, tell func(perdure.JobID, version) error) *pgwire.Statement {
	return uuids(pgwire.New(lockCachedSQL+skip), ids).Each(func(r *pgwire.Reader) error {
		id := r.UUID()
		return tell(id, version{pgwire.RowID(r.Next()), binary.BigEndian.Uint32(r.Next())})
	})
}

// read reads rows. It skips jobs that were to be locked before, and that other transactions have locked.
func (l *locking) read(sql string, ids []perdure.JobID) *pgwire.Statement {
	return uuids(pgwire.New(sql), ids).Each(func(r *pgwire.Reader) error {
		row, at := l.freeRow(), pgwire.RowID(r.Next())
		if err := scan(r, rowColumns, &row.job, &row.step); err != nil {
			return err
		}
		if _, ours := l.locked[row.job.ID]; l.locked != nil && !ours {
			*row = jobRow{}
			return nil
		}
		l.free = l.free[1:]
		l.add(&row.job, lockedRow{at, &row.step})
		return nil
	})
}

// staleCached returns the jobs that are locked and whose cached rows are stale. The others are added.
func (l *locking) staleCached() (ids []perdure.JobID) {
	m := &l.tx.cache.Rows
	same := l.tx.store.cache.Rows.UseServer(m.Server)
	for _, j := range l.cached {
		id := j.Job.ID
		v, held := l.locked[id]
		switch {
		case !held:
		case same && j.WrittenBy(v.xmin):
			m.Put(id, j)
			l.add(j.Job, lockedRow{v.at, m.Step(kernel.StepRef{Job: id})})
		default:
			ids = append(ids, id)
		}
	}
	return ids
}

// freeRow returns a zero row for the next row to be read into.
func (l *locking) freeRow() *jobRow {
	if len(l.free) == 0 {
		l.free = make([]jobRow, min(max(cap(l.jobs)-len(l.jobs), 1), 100))
	}
	return &l.free[0]
}

func (l *locking) add(job *kernel.Job, row lockedRow) {
	l.jobs = append(l.jobs, job)
	l.tx.lockedRows[job.ID] = row
}

// sorted returns the jobs in the order of their ids.
func (l *locking) sorted() []*kernel.Job {
	sortJobs(l.jobs)
	return l.jobs
}

// LockLimits locks the rows one after the other, in the order of names. It counts permits in a later statement, which
// sees what the previous holders of the locks have dispatched.
func (tx *tx) LockLimits(names []string) (limits []kernel.Limit, err error) {
	count := pgwire.New(countLimitsSQL).Texts(names).Each(func(r *pgwire.Reader) error {
		l := scanLimit(r)
		l.Used, l.Bucket = int(r.Int64()), scanBucket(r)
		limits = append(limits, l)
		return nil
	})
	err = tx.run(pgwire.New(lockLimitsSQL).Texts(names), count, tx.readClock())
	return limits, err
}

func (tx *tx) KeyUse(keys []kernel.LimitKey) (map[kernel.LimitKey]kernel.Taken, error) {
	found := make(map[kernel.LimitKey]kernel.Taken, len(keys))
	var names, texts pgwire.Cells
	for _, k := range keys {
		if _, twice := found[k]; twice {
			continue
		}
		found[k] = kernel.Taken{}
		names.Text(k.Name)
		texts.Text(k.Key)
	}
	err := tx.run(pgwire.New(keyUseSQL).Array(pgwire.Text, len(found), names).Array(pgwire.Text, len(found), texts).Each(func(r *pgwire.Reader) error {
		k := kernel.LimitKey{Name: r.Text(), Key: r.Text()}
		found[k] = kernel.Taken{Used: int(r.Int64()), Bucket: scanBucket(r), First: scanFirst(r)}
		return nil
	}))
	return found, err
}

// scanFirst reads the first place in a line. Its columns are null if there is none.
func scanFirst(r *pgwire.Reader) kernel.FirstInLine {
	f := kernel.FirstInLine{LinePlace: kernel.LinePlace{Rank: kernel.LineRank(r.Int()), StepRef: scanRef(r)}}
	if agent, typ, needs := r.Word(), r.Text(), r.Text(); agent != "" {
		f.Lane = kernel.LaneRef{Agent: agent, Lane: kernel.LaneOf(typ, kernel.Needs(needs))}
	}
	return f
}

func scanBucket(r *pgwire.Reader) kernel.Bucket { return kernel.StoredBucket(r.Int64(), r.Int64()) }

func (tx *tx) DeleteBuckets(after kernel.LimitKey, max int, now time.Time) (last kernel.LimitKey, err error) {
	n := 0
	tx.wrote = true
	err = tx.run(pgwire.New(deleteBucketsSQL).Text(after.Name).Text(after.Key).Int(max).Int64(now.UnixNano()).Each(func(r *pgwire.Reader) error {
		last, n = kernel.LimitKey{Name: r.Text(), Key: r.Text()}, int(r.Int64())
		return nil
	}))
	if n < max {
		last = kernel.LimitKey{}
	}
	return last, err
}

func (tx *tx) Steps(refs []kernel.StepRef) ([]*kernel.Step, error) {
	steps := make([]*kernel.Step, 0, len(refs))
	var missing []kernel.StepRef
	for _, ref := range refs {
		s := tx.cache.Rows.Step(ref)
		if s == nil && ref.Index == 0 {
			s = tx.lockedRows[ref.Job].step
		}
		if s == nil {
			var err error
			if s, err = tx.inBundle(ref); err != nil {
				return nil, err
			}
		}
		if s != nil {
			steps = append(steps, s)
		} else {
			missing = append(missing, ref)
		}
	}
	if len(missing) > 0 {
		known := len(steps)
		if err := tx.run(stepRefs(pgwire.New(stepsSQL), missing).Each(intoSteps(&steps))); err != nil {
			return nil, err
		}
		found := make(map[kernel.StepRef]bool, len(steps)-known)
		for _, s := range steps[known:] {
			found[s.StepRef] = true
		}
		missing = slices.DeleteFunc(missing, func(ref kernel.StepRef) bool { return found[ref] })
	}
	if len(missing) > 0 {
		waiting, err := tx.readImplicit(missing)
		if err != nil {
			return nil, err
		}
		steps = append(steps, waiting...)
	}
	byRef := func(a, b *kernel.Step) int { return a.StepRef.Compare(b.StepRef) }
	if !slices.IsSortedFunc(steps, byRef) {
		slices.SortFunc(steps, byRef)
	}
	// A step that was requested twice was read once more.
	return slices.CompactFunc(steps, func(a, b *kernel.Step) bool { return a.StepRef == b.StepRef }), nil
}

func (tx *tx) StepsOf(job perdure.JobID) ([]*kernel.Step, error) {
	if j := tx.bundles.find(job); j != nil {
		return tx.stepsInBundle(j)
	}
	var steps []*kernel.Step
	var w implicitSteps
	err := tx.run(pgwire.New(stepsOfSQL).UUID(job).Each(w.scanRows(&steps)))
	return w.insertInto(steps, perdure.MaxSteps), err
}

func intoSteps(steps *[]*kernel.Step) func(*pgwire.Reader) error {
	return func(r *pgwire.Reader) error {
		s := &kernel.Step{}
		*steps = append(*steps, s)
		return scan(r, stepColumns, nil, s)
	}
}

func (tx *tx) Payloads(refs []kernel.StepRef, maxBytes int) ([]kernel.Payload, error) {
	var found []kernel.Payload
	err := tx.run(pgwire.Into(stepRefs(pgwire.New(payloadsSQL), refs).Int64(int64(maxBytes)), &found, scanPayload))
	return found, err
}

func (tx *tx) Inputs(ids []perdure.JobID) (map[perdure.JobID]json.RawMessage, error) {
	found := map[perdure.JobID]json.RawMessage{}
	err := tx.run(uuids(pgwire.New(inputsSQL), ids).Each(func(r *pgwire.Reader) error {
		id := r.UUID()
		found[id] = r.Bytes()
		return nil
	}))
	return found, err
}

func (tx *tx) Shapes(ids []kernel.ShapeID) (map[kernel.ShapeID][]byte, error) {
	found := map[kernel.ShapeID][]byte{}
	err := tx.run(uuids(pgwire.New(shapesSQL), ids).Each(func(r *pgwire.Reader) error {
		id := r.UUID()
		found[id] = r.Bytes()
		return nil
	}))
	return found, err
}

func scanLimit(r *pgwire.Reader) kernel.Limit {
	return kernel.StoredLimit(r.Text(), r.Int(), r.Int(), r.Text())
}

func scanPayload(r *pgwire.Reader) kernel.Payload {
	return kernel.Payload{StepRef: scanRef(r), Input: r.Bytes(), Output: r.Bytes()}
}
