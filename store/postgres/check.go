package postgres

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/internal/kernel"
)

// Check compares the side tables with the rows that they speak of, both ways: rows of step that are missing
// there, and strays. Of out only the former, as it may say too much. Each statement sees the tables as one
// transaction left them, so nothing that moves meanwhile is told. The rows of step come in pages; a side
// table is no larger than the work that is not done.
func (s *Store) Check(ctx context.Context) ([]string, error) {
	c := &checking{store: s}
	if err := c.pages(ctx, c.missing); err != nil {
		return c.faults, err
	}
	for _, sql := range strays {
		if err := c.run(ctx, q(sql).each(c.tell)); err != nil {
			return c.faults, err
		}
	}
	if len(c.faults) > maxFaults {
		return append(c.faults[:maxFaults], "and more"), nil
	}
	return c.faults, nil
}

const (
	checkPage = 5000
	maxFaults = 1000

	// A check may take as long as it does, and may build a table of what is out.
	checkSettings = "select set_config('statement_timeout', '0', true), set_config('enable_hashjoin', 'on', true)"
)

type checking struct {
	store  *Store
	faults []string
	last   kernel.StepRef // of the page
	met    bool           // there was one
}

// run is a transaction of its own, without bounds but the caller's.
func (c *checking) run(ctx context.Context, s *statement) error {
	conn, err := c.store.acquire(ctx)
	if err != nil {
		return giveUpOn(err)
	}
	defer conn.Release()
	return giveUpOn(judge(roundTrip(ctx, conn.Conn(), q(c.store.settings), q(checkSettings), s), conn))
}

// tell notes a fault; a row without one is the last of a page.
func (c *checking) tell(r *reader) error {
	ref := scanRef(r)
	what := r.text()
	if what == "" {
		c.last, c.met = ref, true
		return nil
	}
	if len(c.faults) <= maxFaults {
		c.faults = append(c.faults, fmt.Sprintf("%s, step %d, %s", ref.Job, ref.Index, what))
	}
	return nil
}

// pages goes through all rows of step.
func (c *checking) pages(ctx context.Context, page func(kernel.StepRef) *statement) error {
	after := kernel.StepRef{Index: -1}
	for {
		c.met = false
		if err := c.run(ctx, page(after)); err != nil {
			return err
		}
		if !c.met {
			return nil
		}
		after = c.last
	}
}

func (c *checking) missing(after kernel.StepRef) *statement {
	return q(missingSQL).uuid(after.Job).int(after.Index).int(checkPage).each(c.tell)
}

const missingSQL = `
with page as materialized (
	select * from perdure.step where (job, idx) > ($1, $2) order by job, idx limit $3
), first as (
	select *, case when overdue or parked_at is not null then null else job_complete_by end as look_at from page where idx = 0
)
(select job, idx, '' from page order by job desc, idx desc limit 1)
union all
select f.job, f.idx, 'is not settled, and is missing in open, or has another time there' from first f
where f.job_phase <> 0 and not (` + isOutSQL + `) and not exists (
	select from perdure.open o where o.job = f.job and o.look_at is not distinct from f.look_at)
union all
select p.job, p.idx, 'is ready, and is missing in ready' from page p
where p.phase = 2 and not exists (
	select from perdure.ready r
	where r.agent = coalesce(p.agent, '') and r.type = p.type and r.rank = 9 - p.priority and r.job = p.job and r.idx = p.idx)
union all
select p.job, p.idx, 'waits for a time, and is missing in due' from page p
where p.phase = 1 and p.available_at is not null and not exists (
	select from perdure.due d where d.at = p.available_at and d.job = p.job and d.idx = p.idx)
union all
select p.job, p.idx, 'is running, and is missing in out' from page p
where p.phase = 3 and not exists (
	select from perdure.out o cross join lateral unnest(o.jobs, o.idxs) as m (job, idx)
	where m.job = p.job and m.idx = p.idx and o.until_at <= p.locked_until
	and o.locked_by = coalesce(p.locked_by, '') and o.agent = coalesce(p.agent, '') and o.request = coalesce(p.request, ''))
union all
select f.job, f.idx, 'holds a permit that is missing in permit' from first f
join perdure."limit" l on l.name = 'job:' || f.type
where f.permit and not exists (select from perdure.permit t where t.name = l.name and t.job = f.job and t.idx = 0)
union all
select p.job, p.idx, 'is running, and is missing in permit' from page p
join perdure."limit" l on l.name = 'agent:' || p.agent
where p.phase = 3 and not exists (select from perdure.permit t where t.name = l.name and t.job = p.job and t.idx = p.idx)
union all
select f.job, f.idx, 'has lost its shape' from first f
where not exists (select from perdure.shape h where h.id = f.shape)
union all
select f.job, f.idx, 'has lost its input' from first f
where f.apart and not exists (select from perdure.payload y where y.job = f.job and y.idx = -1 and y.input is not null)
union all
select f.job, f.idx, 'has a label that is missing in label' from first f cross join lateral jsonb_each_text(f.labels) as l (name, value)
where not exists (select from perdure.label b where b.name = l.name and b.value = l.value and b.job = f.job)`

var strays = []string{
	`select o.job, 0, 'is in open, and is settled, or out' from perdure.open o
	where not exists (select from perdure.step f where f.job = o.job and f.idx = 0 and f.job_phase <> 0 and not (` + isOutSQL + `))`,
	`select r.job, r.idx, 'is in ready, and is not' from perdure.ready r
	where not exists (select from perdure.step s where s.job = r.job and s.idx = r.idx
		and s.phase = 2 and coalesce(s.agent, '') = r.agent and s.type = r.type and 9 - s.priority = r.rank)`,
	`select d.job, d.idx, 'is in due, and does not wait for that time' from perdure.due d
	where not exists (select from perdure.step s where s.job = d.job and s.idx = d.idx and s.phase = 1 and s.available_at = d.at)`,
	`select t.job, t.idx, 'is in permit, and holds none of ' || t.name from perdure.permit t
	where not exists (select from perdure."limit" l where l.name = t.name)
	or not exists (select from perdure.step s where s.job = t.job and s.idx = t.idx
		and (s.permit and s.idx = 0 and t.name = 'job:' || s.type or s.phase = 3 and t.name = 'agent:' || s.agent))`,
	`select b.job, 0, 'is in label, and has no ' || b.name || '=' || b.value from perdure.label b
	where not exists (select from perdure.step s where s.job = b.job and s.idx = 0 and s.labels ->> b.name = b.value)`,
}
