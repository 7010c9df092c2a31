package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// Each statement of a census reads about $1 rows at most, by an index, in the order of the index.
const (
	censusNowSQL = "select now from (" + nowSQL + ") n"

	countOpenSQL = `select s.type, s.job_phase, s.job_desired = 0, s.permit is true,
			case when s.phase = 2 and s.permit is not true then s.agent end,
			count(*), coalesce(sum(coalesce(s.unsettled, 0) - coalesce(s.running, 0) - coalesce(s.active, 0)), 0), coalesce(sum(coalesce(s.active, 0)), 0), min(s.created_at)
		from (
			(select m.job from (select distinct m.job from (select jobs from perdure.out order by until_at, id limit $1) t, unnest(t.jobs) as m (job) limit $1) m
			cross join lateral (select * from perdure.step where job = m.job and idx = 0 offset 0) f where ` + isOutSQL + `)
			union all
			(select job from perdure.open order by job limit $1)) o` + firstOfOpenSQL + `
		where s.job_phase <> 0 group by 1, 2, 3, 4, 5`

	// countBundlesSQL counts jobs in bundles: the first step of each is ready, and its other steps wait.
	countBundlesSQL = `select type, agent, sum(size - taken)::bigint, sum((size - taken) * (steps - 1))::bigint, min(created_at) from (
			select type, agent, size, taken, steps, created_at from perdure.bundle order by first limit $1) b
		group by 1, 2`

	// countFirstsSQL counts the jobs that have rows. If the statistics of the index of jobs say that there are many, their
	// number is that estimate. The second number is an estimate of the open jobs.
	countFirstsSQL = `select case when i.reltuples >= $1 then i.reltuples::bigint
			else (select count(*) from (select from perdure.step where shape is not null order by type, job limit $1) j) end, o.reltuples::bigint
		from pg_class i cross join pg_class o where i.oid = 'perdure.step_type'::regclass and o.oid = 'perdure.open'::regclass`

	countReadySQL = `with recursive r (agent, n) as (
			(select agent, 1 from perdure.ready order by agent limit 1)
			union all
			select (select t.agent from perdure.ready t where t.agent > r.agent order by t.agent limit 1), n + 1 from r where r.agent is not null and n < $2
		), share as materialized (
			select greatest($1 / greatest(count(agent), 1), 1) as most from r
		)
		select r.agent, c.n, c.n >= share.most, (
			select s.ready_at from perdure.step s where s.job = c.job and s.agent = r.agent and s.phase = 2 order by s.idx limit 1)
		from r cross join share cross join lateral (
			select count(*) as n, min(job::text)::uuid as job from (
				select job from perdure.ready q where q.agent = r.agent limit share.most) q) c
		where r.agent is not null`

	countClosedSQL = `with l (agent, lane, held_by) as materialized (
			select agent, lane, closed_name from perdure.lane where closed_name is not null
			order by closed_name, closed_key, ord, agent, lane limit $2` + countInLanesSQL
	countNeedingSQL = `with l (agent, lane, held_by) as materialized (
			select agent, lane, limits from perdure.lane where closed_name is null order by lane, agent limit $2` + countInLanesSQL
	// countInLanesSQL counts the ready steps in these lanes, by their agent and what holds them back, or may do so.
	countInLanesSQL = `
		), share as materialized (
			select greatest($1 / greatest(count(*), 1), 1) as most, count(*) as lanes from l
		)
		select l.agent, l.held_by, sum(c.n)::bigint, bool_or(c.n >= share.most or share.lanes >= $2)
		from l cross join share cross join lateral (
			select count(*) as n from (select from perdure.ready q where q.agent = l.agent and q.lane = l.lane limit share.most) q) c
		where c.n > 0 group by 1, 2`

	countDueSQL = `select coalesce(s.failures, 0) > 0 or coalesce(s.returns, 0) > 0 or coalesce(s.waits, 0) > 0 or coalesce(s.last_error, '') <> '', count(*), min(d.at)
		from (select at, job, idx from perdure.due order by at, job, idx limit $1) d
		cross join lateral (select * from perdure.step where job = d.job and idx = d.idx offset 0) s group by 1`

	countRunsSQL = `select s.agent, count(*) from (select distinct m.job, m.idx from (
				select jobs, idxs from perdure.out order by until_at, id limit $1) o cross join lateral unnest(o.jobs, o.idxs) as m (job, idx) limit $1) m
		cross join lateral (select * from perdure.step where job = m.job and idx = m.idx offset 0) s
		where s.phase = 3 group by 1`

	countAlertsSQL = `select kind, code, type, step, count(*), min(raised_at) from (
			select kind, code, type, step, raised_at from perdure.alert where closed_at is null and id > 0 order by id desc limit $1) a
		group by 1, 2, 3, 4`

	// countSharesSQL counts the shares of each agent that have open lanes. A share has a row for each of its classes of lanes. The
	// third number is how many rows were read.
	countSharesSQL = `with s as materialized (select agent, share, class from perdure.share where waiting order by agent, kind, served, share limit $1)
		select s.agent, count(distinct s.share) filter (where l.open), count(*) from s cross join lateral (
			select exists (select from perdure.lane l where l.agent = s.agent and l.class = s.class and l.closed_name is null offset 0) as open) l
		group by s.agent`
	countCensusSignalsSQL = `select (select count(*)::int from (select from perdure.signal where taken is null limit $1) k),
		(select count(*)::int from (select from perdure.waiter order by topic, job, idx limit $2) w)`

	statsSQL     = "select text from perdure.stats where one"
	saveStatsSQL = "insert into perdure.stats (text) values ($1) on conflict (one) do update set text = excluded.text"
	putSeriesSQL = `insert into perdure.series (minute, node, scope, name, outcome, n)
		select minute, $1, scope, name, outcome, n from unnest($2::timestamptz[], $3::smallint[], $4::text[], $5::text[], $6::bigint[]) as u (minute, scope, name, outcome, n)
		order by minute, scope, name, outcome
		on conflict (minute, scope, name, outcome, node) do update set n = excluded.n`
	seriesSQL = `select minute, scope, name, outcome, sum(n)::bigint from perdure.series where minute >= $1
		group by minute, scope, name, outcome order by minute desc, scope, name, outcome limit $2`
	forgetSeriesSQL = `delete from perdure.series where (minute, scope, name, outcome, node) in (
		select minute, scope, name, outcome, node from perdure.series where minute < $1 order by minute limit $2)`
)

// Census counts in one round trip.
func (s *Store) Census(ctx context.Context, most int) (c *kernel.Census, err error) {
	var firsts, rows, open int
	entries := kernel.CensusEntries(most)
	err = s.send(ctx, func() []*pgwire.Statement {
		c = &kernel.Census{}
		firsts, rows, open = 0, 0, 0
		due, runs, alerts, shares := 0, 0, 0, 0
		each := func(st *pgwire.Statement, read func(*pgwire.Reader)) *pgwire.Statement {
			return st.Each(func(r *pgwire.Reader) error { read(r); return nil })
		}
		return []*pgwire.Statement{
			each(pgwire.New(censusNowSQL), func(r *pgwire.Reader) { c.Now = r.Time() }),
			// Bundles come first: a job that leaves its bundle in between has a row by then, and is counted twice rather than not at all.
			each(pgwire.New(countBundlesSQL).Int(most), func(r *pgwire.Reader) {
				g := kernel.JobGroup{Type: r.Text(), Agent: r.Text(), Phase: perdure.Waiting, Jobs: int(r.Int64()), Blocked: int(r.Int64()), Oldest: r.Time()}
				g.Active = g.Jobs
				c.AddJobs(&g)
				c.AddReady(kernel.ReadyGroup{Agent: g.Agent, Steps: g.Jobs, Oldest: g.Oldest})
			}),
			each(pgwire.New(countOpenSQL).Int(most), func(r *pgwire.Reader) {
				g := kernel.JobGroup{Type: r.Text(), Phase: perdure.Phase(r.Int()), Undoing: r.Bool(), Permit: r.Bool(), Agent: r.Text(),
					Jobs: int(r.Int64()), Blocked: int(r.Int64()), Active: int(r.Int64()), Oldest: r.Time()}
				rows += g.Jobs
				c.AddJobs(&g)
			}),
			each(pgwire.New(countFirstsSQL).Int(most), func(r *pgwire.Reader) { firsts, open = int(r.Int64()), int(r.Int64()) }),
			each(pgwire.New(countReadySQL).Int(most).Int(kernel.MaxCensusAgents), func(r *pgwire.Reader) {
				c.AddReady(kernel.ReadyGroup{Agent: r.Text(), Steps: int(r.Int64()), Capped: r.Bool(), Oldest: r.Time()})
			}),
			each(pgwire.New(countNeedingSQL).Int(most).Int(kernel.MaxCensusLanes), func(r *pgwire.Reader) {
				c.Needing = append(c.Needing, kernel.NeedGroup{Agent: r.Text(), Needs: kernel.Needs(r.Text()), Steps: int(r.Int64())})
				c.NeedingCapped = r.Bool() || c.NeedingCapped
			}),
			each(pgwire.New(countClosedSQL).Int(most).Int(kernel.MaxCensusLanes), func(r *pgwire.Reader) {
				c.Closed = append(c.Closed, kernel.ClosedGroup{Agent: r.Text(), Limit: r.Text(), Steps: int(r.Int64())})
				c.ClosedCapped = r.Bool() || c.ClosedCapped
			}),
			each(pgwire.New(countDueSQL).Int(most), func(r *pgwire.Reader) {
				g := kernel.DueGroup{Retry: r.Bool(), Steps: int(r.Int64()), Next: r.Time()}
				due += g.Steps
				c.Due, c.DueCapped = append(c.Due, g), due >= most
			}),
			each(pgwire.New(countRunsSQL).Int(most), func(r *pgwire.Reader) {
				g := kernel.RunGroup{Agent: r.Text(), Runs: int(r.Int64())}
				runs += g.Runs
				c.Runs, c.RunsCapped = append(c.Runs, g), runs >= most
			}),
			each(pgwire.New(countAlertsSQL).Int(most), func(r *pgwire.Reader) {
				g := kernel.AlertGroup{Kind: perdure.AlertKind(r.Text()), Code: r.Text(), Type: r.Text(), Step: r.Text(), N: int(r.Int64()), Oldest: r.Time()}
				alerts += g.N
				c.Alerts, c.AlertsCapped = append(c.Alerts, g), alerts >= most
			}),
			each(pgwire.New(countSharesSQL).Int(most), func(r *pgwire.Reader) {
				g := kernel.ShareGroup{Agent: r.Text(), Shares: int(r.Int64())}
				if g.Shares > 0 {
					c.Shares = append(c.Shares, g)
				}
				shares += int(r.Int64())
				c.SharesCapped = shares >= most
			}),
			each(pgwire.New(countCensusSignalsSQL).Int(entries).Int(most), func(r *pgwire.Reader) {
				c.SignalsKept, c.SignalWaiters = r.Int(), r.Int()
				c.SignalsKeptCapped, c.SignalWaitersCapped = c.SignalsKept >= entries, c.SignalWaiters >= most
			}),
		}
	})
	if err != nil {
		return nil, err
	}
	c.JobsCapped, c.SettledEstimated = rows >= most, firsts >= most
	unsettled := rows
	if c.JobsCapped { // not all of them were read
		unsettled = max(rows, open)
	}
	if firsts > unsettled {
		c.Settled = firsts - unsettled
	}
	return c, nil
}

func (tx *tx) SaveStats(text json.RawMessage) error {
	tx.wrote = true
	return tx.run(pgwire.New(saveStatsSQL).Text(string(text)))
}

func (s *Store) Stats(ctx context.Context) (json.RawMessage, error) {
	return first(query(ctx, s, pgwire.New(statsSQL), func(r *pgwire.Reader) json.RawMessage { return r.Bytes() }))
}

func (s *Store) PutSeries(ctx context.Context, node string, counts []kernel.SeriesCount) error {
	if len(counts) == 0 {
		return nil
	}
	var minutes, scopes, names, outcomes, ns pgwire.Cells
	for i := range counts {
		c := &counts[i]
		minutes.Moment(c.Minute)
		scopes.Int2(int(c.Scope))
		names.Text(c.Name)
		outcomes.Text(c.Outcome)
		ns.Int8(c.N)
	}
	n := len(counts)
	return s.write(ctx, func() []*pgwire.Statement {
		return []*pgwire.Statement{pgwire.New(putSeriesSQL).Text(node).Array(pgwire.Time, n, minutes).Array(pgwire.Int2, n, scopes).
			Array(pgwire.Text, n, names).Array(pgwire.Text, n, outcomes).Array(pgwire.Int8, n, ns)}
	})
}

func (s *Store) Series(ctx context.Context, since time.Time, max int) ([]kernel.SeriesCount, error) {
	return query(ctx, s, pgwire.New(seriesSQL).Moment(since).Int(max), func(r *pgwire.Reader) kernel.SeriesCount {
		c := kernel.SeriesCount{Minute: r.Time(), Scope: kernel.SeriesScope(r.Int()), Name: r.Text(), Outcome: r.Text()}
		c.N = r.Int64()
		return c
	})
}

func (s *Store) ForgetSeries(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.write(ctx, func() []*pgwire.Statement {
		st := pgwire.New(forgetSeriesSQL).Moment(before).Int(max)
		st.Counted(func(met int64) { n = int(met) })
		return []*pgwire.Statement{st}
	})
	return n, err
}
