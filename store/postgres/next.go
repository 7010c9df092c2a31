package postgres

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// readyAgentsSQL jumps from one agent to the next, in both tables.
const readyAgentsSQL = `with recursive r (agent, n) as (
		(select agent, 1 from perdure.ready order by agent limit 1)
		union all
		select (select t.agent from perdure.ready t where t.agent > r.agent order by t.agent limit 1), n + 1 from r where r.agent is not null and n < $1
	), b (agent, n) as (
		(select agent, 1 from perdure.bundle order by agent limit 1)
		union all
		select (select t.agent from perdure.bundle t where t.agent > b.agent order by t.agent limit 1), n + 1 from b where b.agent is not null and n < $1
	)
	select agent from (select agent from r union select agent from b) a where agent is not null order by agent limit $1`

func (s *Store) ReadyAgents(ctx context.Context, max int) ([]string, error) {
	return query(ctx, s, pgwire.New(readyAgentsSQL).Int(max), (*pgwire.Reader).Text)
}

const (
	// lookSQL begins at marks for the plain lanes of agents whose full searches are slow (see cache.Marks). Such an agent, in
	// $2, may have no mark: all its ready steps may be in lanes of limits, or in bundles.
	lookSQL = `select ` + readingSQL + `, least(
		(select at from perdure.due order by at limit 1),
		(select at from perdure.child_news order by at limit 1),
		(select look_at from perdure.open where look_at is not null order by look_at limit 1)),
		(select until_at from perdure.out order by until_at limit 1),
		array(select agent from unnest($1::text[]) as a (agent)
			where exists (select from perdure.ready r where r.agent = a.agent collate "C")
			union
			select agent from unnest($3::text[], $4::bigint[], $5::bigint[], $6::uuid[], $7::int[]) as l (agent, lane, ord, job, idx)
			where exists (select from perdure.ready r where r.agent = l.agent collate "C" and r.lane = l.lane
				and (r.ord, r.job, r.idx) >= (l.ord, l.job, l.idx))
			union
			select agent from unnest($2::text[]) as a (agent)
			where exists (select from perdure.lane l where l.agent = a.agent collate "C" and l.closed_name is null)
			union
			select agent from unnest($1::text[] || $2::text[]) as a (agent)
			where exists (select from perdure.bundle b where b.agent = a.agent collate "C")),
		exists (select from perdure.lane where closed_name is not null),
		exists (select from perdure.bucket)
		from perdure.clock where one`
)

// Poll is one query. It does not read runs: a set of runs counts until its time comes, even if all of them have ended or
// their locks were extended. Expired corrects the time of such a set.
func (s *Store) Poll(ctx context.Context, agents []string) (kernel.PollAnswer, error) {
	full, others, marks := s.cache.Marks.MarksOf(agents)
	var names, lanes, orders, jobs, idxs pgwire.Cells
	for _, m := range marks {
		names.Text(m.Agent)
		lanes.Int8(int64(m.Lane))
		orders.Int8(m.Order)
		jobs.UUID(m.Job)
		idxs.Int4(m.Index)
	}
	n := len(marks)
	st := pgwire.New(lookSQL).Texts(full).Texts(others).Array(pgwire.Text, n, names).Array(pgwire.Int8, n, lanes).Array(pgwire.Int8, n, orders).Array(pgwire.UUID, n, jobs).Array(pgwire.Int4, n, idxs)
	return first(queryAtOnce(ctx, s, st, func(r *pgwire.Reader) (l kernel.PollAnswer) {
		l.Now = s.clock.timeOf(scanReading(r)).now
		l.Next = r.Time()
		if out := r.Time(); !out.IsZero() && (l.Next.IsZero() || out.Before(l.Next)) {
			l.Next = out
		}
		l.Ready = r.Texts()
		slices.Sort(l.Ready)
		l.LanesClosed, l.Buckets = r.Bool(), r.Bool()
		return l
	}))
}
