package postgres

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

const (
	// lookSQL begins at marks where full looks at a lane are slow (see lanes).
	lookSQL = `select ` + readingSQL + `, least(
		(select at from perdure.due order by at limit 1),
		(select look_at from perdure.open where look_at is not null order by look_at limit 1)),
		(select until_at from perdure.out order by until_at limit 1),
		array(select agent from unnest($1::text[]) as a (agent)
			where exists (select from perdure.ready r where r.agent = a.agent collate "C")
			union
			select agent from unnest($2::text[], $3::bigint[], $4::bigint[], $5::uuid[], $6::int[]) as l (agent, lane, ord, job, idx)
			where exists (select from perdure.ready r where r.agent = l.agent collate "C" and r.lane = l.lane
				and (r.ord, r.job, r.idx) >= (l.ord, l.job, l.idx))
			union
			select agent from unnest($2::text[]) as a (agent)
			where exists (select from perdure.lane l where l.agent = a.agent collate "C" and l.closed_name is null)
			union
			select agent from unnest($1::text[] || $2::text[]) as a (agent)
			where exists (select from perdure.bundle b where b.agent = a.agent collate "C")),
		exists (select from perdure.lane where closed_name is not null)
		from perdure.clock where one`

	// nextSQL is a page of the sets, and the earliest end of a lock of each, null where nobody is out.
	nextSQL = `
select o.until_at, o.id, m.next from (
	select * from perdure.out where (until_at, id) > ($1, $2) order by until_at, id limit $3) o
cross join lateral (
	select min(s.locked_until) as next
	from unnest(o.jobs, o.idxs) as m (job, idx) join perdure.step s on s.job = any(array[m.job]) and s.idx = m.idx
	where s.phase = 3) m
order by o.until_at, o.id`
)

// Look is one query. Only where a set's time has come, and a sweep has not been there yet, its runs are looked
// at: it may be that all of them live on.
func (s *Store) Look(ctx context.Context, agents []string) (kernel.Look, error) {
	full, marks := s.lanes.slow(agents)
	var names, lanes, orders, jobs, idxs cells
	for _, m := range marks {
		names.text(m.Agent)
		lanes.int8(int64(m.Lane))
		orders.int8(m.Order)
		jobs.uuid(m.Job)
		idxs.int4(m.Index)
	}
	n := len(marks)
	st := q(lookSQL).texts(full).array(tText, n, names).array(tInt8, n, lanes).array(tInt8, n, orders).array(tUUID, n, jobs).array(tInt4, n, idxs)
	var out time.Time
	l, err := first(queryAtOnce(ctx, s, st, func(r *reader) (l kernel.Look) {
		l.Now = s.clock.timeOf(scanReading(r)).now
		l.Next, out = r.time(), r.time()
		l.Ready = r.texts()
		slices.Sort(l.Ready)
		l.Closed = r.bool()
		return l
	}))
	if err == nil && !out.IsZero() && !out.After(l.Now) {
		out, err = s.nextOut(ctx)
	}
	if !out.IsZero() && (l.Next.IsZero() || out.Before(l.Next)) {
		l.Next = out
	}
	return l, err
}

// maxLookPages bounds what a look may cost; it is early then, and a sweep comes and puts things in order.
const maxLookPages = 10

// nextOut is when the first lock of a run ends: no set has one before its own time.
func (s *Store) nextOut(ctx context.Context) (next time.Time, err error) {
	type end struct {
		dueSet
		some bool
	}
	last := dueSet{id: math.MinInt64}
	for range maxLookPages {
		page, err := queryAtOnce(ctx, s, q(nextSQL).moment(last.until).int64(last.id).int(expiredPage), func(r *reader) (e end) {
			e.until, e.id = r.time(), r.int64()
			v := r.next()
			e.some, e.next = v != nil, toTime(v)
			return e
		})
		if err != nil {
			return next, err
		}
		for _, e := range page {
			if !next.IsZero() && !e.until.Before(next) {
				return next, nil
			}
			if last = e.dueSet; e.some && (next.IsZero() || e.next.Before(next)) {
				next = e.next
			}
		}
		if len(page) < expiredPage {
			return next, nil
		}
	}
	return last.until, nil
}
