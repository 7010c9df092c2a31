package postgres

import (
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	// readyFullSQL visits the lanes of an agent by a loose index scan, and takes no more than $2 steps from each: a lane
	// of a hundred thousand steps does not block another. The lanes in $3 are left out. Some lanes begin at marks.
	readyFullSQL = `
with recursive lane (lane) as (
	(select lane from perdure.ready where agent = $1 and lane >= 0 order by lane limit 1)
	union all
	select (select r.lane from perdure.ready r where r.agent = $1 and r.lane > lane.lane order by r.lane limit 1)
	from lane where lane.lane is not null
)
select r.ctid, r.lane, r.ord, r.job, r.idx
from lane left join unnest($4::bigint[], $5::bigint[], $6::uuid[], $7::int[]) as mark (lane, ord, job, idx) on mark.lane = lane.lane
cross join lateral (
	select r.ctid, r.lane, r.ord, r.job, r.idx from perdure.ready r
	where r.agent = $1 and r.lane = lane.lane
	and (r.ord, r.job, r.idx) >= (coalesce(mark.ord, -9223372036854775808), coalesce(mark.job, '00000000-0000-0000-0000-000000000000'), coalesce(mark.idx, 0))
	order by r.ord, r.job, r.idx limit $2) r
where lane.lane <> all ($3::bigint[])
order by r.ord, r.job, r.idx limit $2`

	// readyFromSQL begins at marks.
	readyFromSQL = `
select r.ctid, r.lane, r.ord, r.job, r.idx
from unnest($4::bigint[], $5::bigint[], $6::uuid[], $7::int[]) as lane (lane, ord, job, idx) cross join lateral (
	select r.ctid, r.lane, r.ord, r.job, r.idx from perdure.ready r
	where r.agent = $1 and r.lane = lane.lane and (r.ord, r.job, r.idx) >= (lane.ord, lane.job, lane.idx)
	order by r.ord, r.job, r.idx limit $2) r
where lane.lane <> all ($3::bigint[])
order by r.ord, r.job, r.idx limit $2`

	// permittedSQL selects the jobs that hold a permit of job:TYPE, for the types in $1. There are no more than these
	// limits allow.
	permittedSQL = `
select f.type, p.job, s.priority
from unnest($1::text[]) as f (type) cross join lateral (
	select p.job from perdure.permit p where p.name = 'job:' || f.type) p cross join lateral (
	select priority from perdure.step where job = p.job and idx = 0 offset 0) s`

	// readyOfSQL selects the ready steps of these jobs. Their lanes and orders are known.
	readyOfSQL = `
select r.ctid, r.lane, r.ord, r.job, r.idx
from unnest($3::bigint[], $4::bigint[], $5::uuid[]) as j (lane, ord, job) cross join lateral (
	select r.ctid, r.lane, r.ord, r.job, r.idx from perdure.ready r
	where r.agent = $1 and r.lane = j.lane and r.ord = j.ord and r.job = j.job
	order by r.idx limit $2) r
order by r.ord, r.job, r.idx limit $2`

	// readyOfOpenSQL is the same if some of the lanes may be closed.
	readyOfOpenSQL = `
select r.ctid, r.lane, r.ord, r.job, r.idx
from unnest($3::bigint[], $4::bigint[], $5::uuid[]) as j (lane, ord, job) cross join lateral (
	select r.ctid, r.lane, r.ord, r.job, r.idx from perdure.ready r
	where r.agent = $1 and r.lane = j.lane and r.ord = j.ord and r.job = j.job
	and not exists (select from perdure.lane l where l.Agent = $1 and l.lane = j.lane and coalesce(l.closed_name, '') <> '')
	order by r.idx limit $2) r
order by r.ord, r.job, r.idx limit $2`

	// permittedStepsSQL selects what the lane and order of these jobs' ready steps follow from: the steps may need
	// users' own limits, and the settings of the agent may have changed since they became ready.
	permittedStepsSQL = `
select s.job, s.priority, s.ageing, s.limits from unnest($2::uuid[]) as j (job) cross join lateral (
	select job, priority, ageing, limits from perdure.step where job = j.job and phase = 2 and agent = $1 offset 0) s`
)

func (tx *tx) Ready(agent string, max int, full []string, serves kernel.Serves) ([]kernel.StepRef, error) {
	if max <= 0 {
		return nil, nil
	}
	if err := tx.start(); err != nil {
		return nil, err
	}
	full = slices.DeleteFunc(slices.Clone(full), func(limit string) bool { return !tx.limited(limit) })
	types, _ := fullOf(full)
	var found []cache.ReadyEntry
	var l *cache.Search // of the plain lanes; nil if they are not served
	began := time.Now()
	var page []bundleHead
	if serves.Demand("") {
		l = tx.cache.Marks.Begin(agent)
		if err := tx.run(tx.searchLanes(l, max, types, &found), selectBundles(agent, types, cache.LaneStart, &page)); err != nil {
			return nil, err
		}
	}
	set := tx.agents[agent]
	shareOf := map[kernel.LaneID]string{}
	if err := tx.readyOfPermitted(agent, max, types, full, serves, shareOf, &found); err != nil {
		return nil, err
	}
	if err := tx.readyOfLanes(agent, max, full, serves, &found); err != nil {
		return nil, err
	}
	if l != nil && l.Full {
		tx.cache.Marks.FullSearchTook(l, time.Since(began))
	}
	if err := tx.readyOfBundles(agent, max, types, page, &found); err != nil {
		return nil, err
	}
	inOrder := func(a, b cache.ReadyEntry) int { return kernel.ClaimLess(a.Candidate(), b.Candidate()) }
	if !slices.IsSortedFunc(found, inOrder) { // they come from several queries, each in order
		slices.SortFunc(found, inOrder)
	}
	if kernel.IsFair(set) {
		lanes := make(map[kernel.StepRef]kernel.LaneID, len(found))
		for i := range found {
			lanes[found[i].StepRef] = found[i].Lane
		}
		order, err := tx.inFairOrder(agent, max, found, shareOf, full, serves, &set)
		if err != nil {
			return nil, err
		}
		for i := range order {
			order[i].Lane = lanes[order[i].StepRef]
		}
		if found = order; l != nil {
			l.Returned(found)
		}
	} else if len(found) > max {
		if found = found[:max]; l != nil {
			l.Returned(found)
		}
	}
	refs := make([]kernel.StepRef, len(found))
	for i := range refs {
		refs[i] = found[i].StepRef
	}
	return refs, nil
}

func (tx *tx) AnnounceDispatch(agent string) { tx.cache.Marks.Announce(agent) }

// searchLanes is the query of one search of the plain lanes. Lanes of full types are left out.
func (tx *tx) searchLanes(l *cache.Search, max int, types []string, found *[]cache.ReadyEntry) *pgwire.Statement {
	scan := tx.scanReady(l.Agent)
	inLane := func(r *pgwire.Reader) cache.ReadyEntry {
		row := scan(r)
		l.Add(row.Lane, row.Candidate())
		return row
	}
	var lanes, orders, jobs, idxs, leftOut pgwire.Cells
	n := 0
	for id, from := range l.From {
		if !l.Full || from != cache.LaneStart {
			lanes.Int8(int64(id))
			orders.Int8(from.Order)
			jobs.UUID(from.Job)
			idxs.Int4(from.Index)
			n++
		}
	}
	for _, typ := range types {
		leftOut.Int8(int64(kernel.LaneOf(typ, "")))
	}
	sql := readyFromSQL
	if l.Full {
		sql = readyFullSQL
	}
	return pgwire.Into(pgwire.New(sql).Text(l.Agent).Int(max).Array(pgwire.Int8, len(types), leftOut).
		Array(pgwire.Int8, n, lanes).Array(pgwire.Int8, n, orders).Array(pgwire.UUID, n, jobs).Array(pgwire.Int4, n, idxs), found, inLane)
}

func (tx *tx) scanReady(agent string) func(*pgwire.Reader) cache.ReadyEntry {
	return func(r *pgwire.Reader) cache.ReadyEntry {
		at := pgwire.RowID(r.Next())
		row := cache.ReadyEntry{ReadyKey: kernel.ReadyKey{Ready: true, Agent: agent, Lane: kernel.LaneID(r.Int64()), Order: r.Int64()}, StepRef: scanRef(r)}
		tx.readyRows[row.StepRef] = at
		return row
	}
}

// readyOfPermitted adds the ready steps of jobs that hold a permit of a full job:TYPE limit.
func (tx *tx) readyOfPermitted(agent string, max int, fullTypes, full []string, serves kernel.Serves, shareOf map[kernel.LaneID]string, found *[]cache.ReadyEntry) error {
	if len(fullTypes) == 0 {
		return nil
	}
	type place struct {
		lane  kernel.LaneID
		order int64
		job   perdure.JobID
	}
	places := map[place]bool{}
	types := map[perdure.JobID]string{}
	err := tx.run(pgwire.New(permittedSQL).Texts(fullTypes).Each(func(r *pgwire.Reader) error {
		typ, job := r.Word(), perdure.JobID(r.UUID())
		types[job] = typ
		if priority := r.Int(); serves.Demand("") {
			places[place{kernel.LaneOf(typ, ""), kernel.OrderOf(job, priority, 0), job}] = true
		}
		return nil
	}))
	sql := readyOfSQL
	if _, aged := tx.agents[agent]; (aged || tx.hasLanes) && err == nil {
		sql = readyOfOpenSQL
		jobs := slices.SortedFunc(maps.Keys(types), perdure.JobID.Compare)
		err = tx.run(uuids(pgwire.New(permittedStepsSQL).Text(agent), jobs).Each(func(r *pgwire.Reader) error {
			job := perdure.JobID(r.UUID())
			priority, ageing := r.Int(), time.Duration(r.Int64())*time.Microsecond
			s := kernel.Step{StepRef: kernel.StepRef{Job: job}, Type: types[job], Phase: perdure.Ready, Priority: priority, Ageing: ageing, Needs: kernel.Needs(r.Text())}
			if !s.NeedsAny(full, true) && serves.Demand(s.Needs.Demand()) {
				key := kernel.ReadyOf(&s)
				places[place{key.Lane, key.Order, job}] = true
				if share := s.Needs.Share(); share != "" {
					shareOf[key.Lane] = share
				}
			}
			return nil
		}))
	}
	if err != nil || len(places) == 0 {
		return err
	}
	var ids, orders, jobs pgwire.Cells
	for p := range places {
		ids.Int8(int64(p.lane))
		orders.Int8(p.order)
		jobs.UUID(p.job)
	}
	n := len(places)
	return tx.run(pgwire.Into(pgwire.New(sql).Text(agent).Int(max).Array(pgwire.Int8, n, ids).Array(pgwire.Int8, n, orders).Array(pgwire.UUID, n, jobs), found, tx.scanReady(agent)))
}
