package postgres

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// Entries of table out are compared with the rows of step: a run may have ended, or may have another holder by now.
const (
	membersSQL = ` cross join lateral unnest(o.jobs, o.idxs) as m (job, idx)
		join perdure.step s on s.job = any(array[m.job]) and s.idx = m.idx `

	heldBySQL = `select distinct s.job, s.idx from perdure.out o` + membersSQL + `
		where o.locked_by = $1 and s.locked_by = $1 and s.phase = 3
		order by s.job, s.idx limit $2`
	heldByAgentSQL = `select distinct s.job, s.idx from perdure.out o` + membersSQL + `
		where o.locked_by = $1 and o.agent = $3 and s.locked_by = $1 and s.agent = $3 and s.phase = 3
		order by s.job, s.idx limit $2`
	heldByRequestSQL = `select distinct s.job, s.idx from perdure.out o` + membersSQL + `
		where o.locked_by = $1 and o.agent = $3 and o.request = $4
		and s.locked_by = $1 and s.agent = $3 and s.request = $4 and s.phase = 3
		order by s.job, s.idx limit $2`
	heldByAnyRequestSQL = `select distinct s.job, s.idx from perdure.out o` + membersSQL + `
		where o.locked_by = $1 and o.request = $3 and s.locked_by = $1 and s.request = $3 and s.phase = 3
		order by s.job, s.idx limit $2`

	// embeddedSQL jumps from one holder to the next, of those that begin with "@". It selects holders with a run in
	// flight.
	embeddedSQL = `
with recursive holder (name) as (
	(select locked_by from perdure.out where locked_by >= '@' and locked_by < 'A' order by locked_by limit 1)
	union all
	select (select o.locked_by from perdure.out o where o.locked_by > holder.name and o.locked_by < 'A'
		order by o.locked_by limit 1)
	from holder where holder.name is not null
)
select h.name from holder h where h.name is not null and exists (
	select from perdure.out o` + membersSQL + ` where o.locked_by = h.name and s.locked_by = h.name and s.phase = 3)
order by h.name`

	// expiredSQL is a page of the sets that are due until $1, each with its runs that are still in flight.
	expiredSQL = `
select o.until_at, o.id, m.job, m.idx, m.locked_until from (
	select * from perdure.out where until_at <= $1 and (until_at, id) > ($2, $3)
	order by until_at, id limit $4) o
left join lateral (
	select s.job, s.idx, s.locked_until
	from unnest(o.jobs, o.idxs) as m (job, idx) join perdure.step s on s.job = any(array[m.job]) and s.idx = m.idx
	where s.phase = 3) m on true
order by o.until_at, o.id`

	retimeSQL = `update perdure.out o set until_at = u.new from (
			select l.until_at, l.id, u.new
			from unnest($1::timestamptz[], $2::bigint[], $3::timestamptz[]) as u (old, id, new)
			join perdure.out l on l.until_at = any(array[u.old]) and l.id = u.id for update of l skip locked) u
		where o.until_at = any(array[u.until_at]) and o.id = u.id`
)

// HeldBy finds runs by the sets of the holder.
func (tx *tx) HeldBy(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	if max <= 0 {
		return nil, nil
	}
	var found []kernel.StepRef
	held := func(sql string) *pgwire.Statement {
		return pgwire.Into(pgwire.New(sql).Text(holder).Int(max), &found, scanRef)
	}
	var err error
	switch {
	case agent == "" && request == "":
		err = tx.run(held(heldBySQL))
	case agent == "":
		err = tx.run(held(heldByAnyRequestSQL).Text(request))
	case request == "":
		err = tx.run(held(heldByAgentSQL).Text(agent))
	default:
		return tx.heldByClaim(holder, agent, request, max, true)
	}
	return found, err
}

// Granted implements kernel.Tx.
func (tx *tx) Granted(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	if max <= 0 {
		return nil, nil
	}
	return tx.heldByClaim(holder, agent, request, max, false)
}

const lockClaimSQL = "select pg_try_advisory_xact_lock(hashtextextended(jsonb_build_array($1::text, $2::text, $3::text)::text, 8098991087))::int"

// heldByClaim locks the claim and then reads, in a later statement. Two nodes at which the same claim is repeated would
// otherwise both find nothing, and both grant runs. It does not wait for the lock, because the transaction serves other
// claims as well. A savepoint releases the lock again unless it is kept.
func (tx *tx) heldByClaim(holder, agent, request string, max int, keep bool) (found []kernel.StepRef, err error) {
	locked := false
	lock := pgwire.New(lockClaimSQL).Text(holder).Text(agent).Text(request).Each(func(r *pgwire.Reader) error {
		locked = r.Int() != 0
		return r.Failed
	})
	held := pgwire.Into(pgwire.New(heldByRequestSQL).Text(holder).Int(max).Text(agent).Text(request), &found, scanRef)
	if keep {
		err = tx.run(lock, held)
	} else {
		err = tx.run(pgwire.New("savepoint claim"), lock, held, pgwire.New("rollback to savepoint claim"), pgwire.New("release savepoint claim"))
	}
	if err != nil {
		return nil, err
	}
	if !locked {
		return nil, kernel.ErrLocked
	}
	return found, nil
}

func (tx *tx) EmbeddedHolders() ([]string, error) {
	var found []string
	err := tx.run(pgwire.Into(pgwire.New(embeddedSQL), &found, (*pgwire.Reader).Text))
	return found, err
}

// dueSet is a set that is due.
type dueSet struct {
	until time.Time
	id    int64
	alive bool      // a run is in flight
	next  time.Time // when the first lock of its runs ends
}

// expiredRun is a run in flight and the end of its lock.
type expiredRun struct {
	until time.Time
	kernel.StepRef
}

// expiredPage is how many sets one query reads.
const expiredPage = 20

// upkeep is how long before it is due a set is corrected, so that sets that are due one shortly after another do not
// each cause a due scan.
const upkeep = time.Second

// Expired reads the sets that are due now or soon, and corrects them: if locks were extended, the set becomes due when
// the first of them ends, and a set without runs in flight is deleted.
func (tx *tx) Expired(now time.Time, max int) ([]kernel.StepRef, error) {
	if max <= 0 {
		return nil, nil
	}
	var late []expiredRun
	var sets []dueSet
	var list []*pgwire.Statement
	last := dueSet{id: math.MinInt64}
	for more := true; more && !enough(late, max, last.until); {
		page, runs, err := tx.expiredPage(now, last)
		if err != nil {
			return nil, err
		}
		late, sets = append(late, runs...), append(sets, page...)
		if more = len(page) == expiredPage; len(page) > 0 {
			last = page[len(page)-1]
			more = more && (len(late) == 0 || !last.until.After(now)) // if runs expire, the sets after now are left to a later scan
		}
	}
	if list = reschedule(&tx.cache.Sets, sets); len(list) > 0 {
		if err := tx.run(list...); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(late, compareRuns)
	late = slices.CompactFunc(late, func(a, b expiredRun) bool { return a.StepRef == b.StepRef })
	refs := make([]kernel.StepRef, min(max, len(late)))
	for i := range refs {
		refs[i] = late[i].StepRef
	}
	return refs, nil
}

// enough reports whether no later set can contain a run that comes before the first max of these.
func enough(late []expiredRun, max int, until time.Time) bool {
	n := 0
	for _, r := range late {
		if r.until.Before(until) {
			n++
		}
	}
	return n >= 2*max // a run may be in two sets
}

func compareRuns(a, b expiredRun) int {
	return cmp.Or(a.until.Compare(b.until), bytes.Compare(a.Job[:], b.Job[:]), cmp.Compare(a.Index, b.Index))
}

func (tx *tx) expiredPage(now time.Time, after dueSet) (page []dueSet, late []expiredRun, err error) {
	s := pgwire.New(expiredSQL).Time(now.Add(upkeep)).Moment(after.until).Int64(after.id).Int(expiredPage).Each(func(r *pgwire.Reader) error {
		set := dueSet{until: r.Time(), id: r.Int64()}
		if n := len(page); n == 0 || page[n-1].id != set.id || !page[n-1].until.Equal(set.until) {
			page = append(page, set)
		}
		job := r.Next()
		if job == nil {
			return nil
		}
		run := expiredRun{StepRef: kernel.StepRef{Job: perdure.JobID(job), Index: r.Int()}, until: r.Time()}
		of := &page[len(page)-1]
		if !of.alive || run.until.Before(of.next) {
			of.alive, of.next = true, run.until
		}
		if !run.until.After(now) {
			late = append(late, run)
		}
		return nil
	})
	err = tx.run(s)
	return page, late, err
}

// reschedule writes what has changed about sets.
func reschedule(t *cache.SetsTx, all []dueSet) (list []*pgwire.Statement) {
	var gone []*cache.RunSet
	var old, ids, next pgwire.Cells
	n := 0
	for _, s := range all {
		switch {
		case !s.alive:
			gone = append(gone, &cache.RunSet{ID: s.id, Until: s.until})
			t.FoundEmpty = append(t.FoundEmpty, s.id)
		case s.next.After(s.until):
			old.Moment(s.until)
			ids.Int8(s.id)
			next.Moment(s.next)
			n++
			t.Retime(s.id, s.next)
		}
	}
	if len(gone) > 0 {
		list = append(list, withSets(deleteSetsSQL, gone))
	}
	if n > 0 {
		list = append(list, pgwire.New(retimeSQL).Array(pgwire.Time, n, old).Array(pgwire.Int8, n, ids).Array(pgwire.Time, n, next))
	}
	return list
}
