package postgres

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

const (
	// readyFullSQL walks the lanes of an agent, one per type of job, by a loose index scan, and takes no
	// more than $2 from each: a lane of a hundred thousand steps does not stand in front of another. Lanes
	// of the types in $3 are left out; some begin at marks.
	readyFullSQL = `
with recursive lane (type) as (
	(select type from perdure.ready where agent = $1 order by type limit 1)
	union all
	select (select r.type from perdure.ready r where r.agent = $1 and r.type > lane.type order by r.type limit 1)
	from lane where lane.type is not null
)
select r.ctid, r.type, r.rank, r.job, r.idx
from lane left join unnest($4::text[], $5::smallint[], $6::uuid[], $7::int[]) as mark (type, rank, job, idx) on mark.type = lane.type
cross join lateral (
	select r.ctid, r.type, r.rank, r.job, r.idx from perdure.ready r
	where r.agent = $1 and r.type = lane.type
	and (r.rank, r.job, r.idx) >= (coalesce(mark.rank, 0::smallint), coalesce(mark.job, '00000000-0000-0000-0000-000000000000'), coalesce(mark.idx, 0))
	order by r.rank, r.job, r.idx limit $2) r
where lane.type <> all ($3::text[])
order by r.rank, r.job, r.idx limit $2`

	// readyFromSQL begins at marks.
	readyFromSQL = `
select r.ctid, r.type, r.rank, r.job, r.idx
from unnest($4::text[], $5::smallint[], $6::uuid[], $7::int[]) as lane (type, rank, job, idx) cross join lateral (
	select r.ctid, r.type, r.rank, r.job, r.idx from perdure.ready r
	where r.agent = $1 and r.type = lane.type and (r.rank, r.job, r.idx) >= (lane.rank, lane.job, lane.idx)
	order by r.rank, r.job, r.idx limit $2) r
where lane.type <> all ($3::text[])
order by r.rank, r.job, r.idx limit $2`

	// readyHeldSQL comes from the other side, from the jobs of the types in $3 that hold a permit of their
	// limit; these are no more than it allows.
	readyHeldSQL = `
select r.ctid, r.type, r.rank, r.job, r.idx from unnest($3::text[]) as f (type) cross join lateral (
	select r.ctid, r.type, r.rank, r.job, r.idx
	from perdure.permit p cross join lateral (
		select priority from perdure.step where job = p.job and idx = 0 offset 0) s cross join lateral (
		select r.ctid, r.type, r.rank, r.job, r.idx from perdure.ready r
		where r.agent = $1 and r.type = f.type and r.rank = 9 - s.priority and r.job = p.job
		order by r.idx limit $2) r
	where p.name = 'job:' || f.type) r
order by r.rank, r.job, r.idx limit $2`

	// readyUnheldSQL is for types without a limit, of which no permits are kept: it walks the lane.
	readyUnheldSQL = `
select r.ctid, r.type, r.rank, r.job, r.idx from unnest($3::text[]) as f (type) cross join lateral (
	select r.ctid, r.type, r.rank, r.job, r.idx
	from perdure.ready r cross join lateral (
		select permit from perdure.step where job = r.job and idx = 0 offset 0) s
	where r.agent = $1 and r.type = f.type and s.permit
	order by r.rank, r.job, r.idx limit $2) r
order by r.rank, r.job, r.idx limit $2`
)

func (tx *tx) Ready(agent string, max int, full []string) ([]kernel.StepRef, error) {
	if max <= 0 {
		return nil, nil
	}
	if err := tx.start(); err != nil {
		return nil, err
	}
	var found []readyRow
	l := tx.lanes.begin(agent)
	began := time.Now()
	if err := tx.run(tx.looks(l, max, full, &found)...); err != nil {
		return nil, err
	}
	if l.full {
		tx.lanes.took(l, time.Since(began))
	}
	if len(full) > 0 { // of several queries, each in order
		slices.SortFunc(found, func(a, b readyRow) int { return kernel.ClaimLess(a.candidate(), b.candidate()) })
	}
	refs := make([]kernel.StepRef, min(len(found), max))
	for i := range refs {
		refs[i] = found[i].StepRef
	}
	return refs, nil
}

func (tx *tx) Pass(agent string) { tx.lanes.pass(agent) }

// looks are the queries of one look.
func (tx *tx) looks(l *look, max int, full []string, found *[]readyRow) (list []*statement) {
	scan := func(r *reader) readyRow {
		at := tid(r.next())
		row := readyRow{kernel.ReadyKey{Ready: true, Agent: l.agent, Type: r.word(), Rank: r.int()}, scanRef(r)}
		tx.queued[row.StepRef] = at
		return row
	}
	ask := func(sql string) *statement {
		s := into(q(sql).text(l.agent).int(max), found, scan)
		list = append(list, s)
		return s
	}
	lane := func(r *reader) readyRow {
		row := scan(r)
		l.found(row.Type, row.candidate())
		return row
	}
	var types, ranks, jobs, idxs cells
	n := 0
	for typ, from := range l.from {
		if !l.full || from != (kernel.Candidate{}) {
			types.text(typ)
			ranks.int2(from.Rank)
			jobs.uuid(from.Job)
			idxs.int4(from.Index)
			n++
		}
	}
	sql := readyFromSQL
	if l.full {
		sql = readyFullSQL
	}
	into(ask(sql).texts(full).array(tText, n, types).array(tInt2, n, ranks).array(tUUID, n, jobs).array(tInt4, n, idxs), found, lane)
	limited := func(typ string) bool { return tx.limited(kernel.JobLimit(typ)) }
	if held := slices.DeleteFunc(slices.Clone(full), func(typ string) bool { return !limited(typ) }); len(held) > 0 {
		ask(readyHeldSQL).texts(held)
	}
	if unheld := slices.DeleteFunc(slices.Clone(full), limited); len(unheld) > 0 {
		ask(readyUnheldSQL).texts(unheld)
	}
	return list
}
