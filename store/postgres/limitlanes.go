package postgres

import (
	"cmp"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/merge"
)

// The lanes of steps that need a limit of a user's own have rows in table lane, by which a search finds those that are open
// and have the oldest steps, however many there are. A transaction that closes or opens a lane has the lock of the limit. All
// other changes are made right before the commit. Two of their statements may wait for other transactions, always in this order:
// moveLanesSQL and enter_lanes. Each goes through the lanes in one order.
//
// A lane has the place of its first step. It may be too late for a while: if one transaction sets it while another one makes
// an older step ready, neither sees the other's work. That step is found when its lane has its turn, and the place is right from
// then on.

const (
	// lanesSQL are the first $2 open lanes of each class that needs no full limit and is of no full type.
	lanesSQL = `
with recursive class (class) as (
	(select class from perdure.lane where agent = $1 and closed_name is null order by class limit 1)
	union all
	select (select l.class from perdure.lane l where l.agent = $1 and l.closed_name is null and l.class > class.class order by l.class limit 1)
	from class where class.class is not null
), fits as materialized (
	select c.class from class c cross join lateral (
		select type, limits from perdure.lane where agent = $1 and closed_name is null and class = c.class order by ord, job, idx limit 1) l
	where l.type <> all ($3::text[]) and not exists (select from jsonb_array_elements(l.limits::jsonb) as n where n ->> 'name' = any ($4::text[]))
)
select l.ctid, l.lane from fits f cross join lateral (
	select ctid, lane, ord, job, idx from perdure.lane where agent = $1 and closed_name is null and class = f.class
	order by ord, job, idx limit $2) l
order by l.ord, l.job, l.idx limit $2`

	readyOfLanesSQL = `
select r.ctid, r.lane, r.ord, r.job, r.idx from unnest($3::bigint[]) as l (lane) cross join lateral (
	select r.ctid, r.lane, r.ord, r.job, r.idx from perdure.ready r where r.agent = $1 and r.lane = l.lane
	order by r.ord, r.job, r.idx limit $2) r`

	// moveLanesSQL gives lanes, as they were found, the places of other steps. A lane that another transaction has changed since
	// keeps what that one wrote.
	moveLanesSQL = `
update perdure.lane l set ord = k.ord, job = k.job, idx = k.idx from (
	select l.ctid, u.ord, u.job, u.idx
	from unnest($1::tid[], $2::bigint[], $3::bigint[], $4::uuid[], $5::int[]) as u (at, lane, ord, job, idx) cross join lateral (
		select ctid from perdure.lane where ctid = u.at and lane = u.lane and coalesce(closed_name, '') = '' offset 0) l) k
where l.ctid = k.ctid`

	// firstOfLanesSQL looks for the first steps of lanes. A lane that another transaction is changing keeps its place, which is
	// at worst too early.
	firstOfLanesSQL = `
update perdure.lane l set ord = k.ord, job = k.job, idx = k.idx from (
	select l.ctid, r.ord, r.job, r.idx from unnest($1::text[], $2::bigint[]) as u (agent, lane) cross join lateral (
		select ord, job, idx from perdure.ready r where r.agent = u.agent collate "C" and r.lane = u.lane order by ord, job, idx limit 1) r
	cross join lateral (
		select ctid from perdure.lane where agent = u.agent collate "C" and lane = u.lane and coalesce(closed_name, '') = ''
		and (ord, job, idx) <> (r.ord, r.job, r.idx) for no key update skip locked) l) k
where l.ctid = k.ctid`

	closeLanesSQL = `
update perdure.lane l set closed_name = k.name, closed_key = k.key, ord = k.ord from (
	select l.ctid, u.name, u.key, coalesce(u.ord, f.ord) as ord
	from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[]) as u (agent, lane, ord, name, key)
	cross join lateral (select ord from perdure.ready r where r.agent = u.agent collate "C" and r.lane = u.lane order by r.ord limit 1) f
	cross join lateral (
		select ctid from perdure.lane where agent = u.agent collate "C" and lane = u.lane and coalesce(closed_name, '') = ''
		for no key update skip locked) l) k
where l.ctid = k.ctid`

	openLanesSQL = `
update perdure.lane l set closed_name = null, closed_key = null, (ord, job, idx) = (
	select coalesce(r.ord, l.ord), coalesce(r.job, l.job), coalesce(r.idx, l.idx) from (select) one left join lateral (
		select ord, job, idx from perdure.ready r where r.agent = l.agent and r.lane = l.lane order by ord, job, idx limit 1) r on true)
from (select k.ctid from (select * from unnest($1::text[], $2::text[]) as u (name, key)
	where exists (select from perdure.lane where closed_name is not null) offset 0) u cross join lateral (
	select ctid from perdure.lane where closed_name = any(array[u.name collate "C"]) and closed_key = u.key collate "C"
	order by ord, agent, lane limit $3) k) k
where l.ctid = k.ctid returning l.agent, l.lane,
	not exists (select from perdure.ready r where r.agent = l.agent and r.lane = l.lane offset 0)`

	closedForSQL = `
with recursive closed (name, key) as (
	(select closed_name, closed_key from perdure.lane where closed_name is not null and (closed_name, closed_key) > ($1, $2)
	order by closed_name, closed_key limit 1)
	union all
	select n.* from closed c cross join lateral (
		select closed_name, closed_key from perdure.lane where closed_name is not null and (closed_name, closed_key) > (c.name, c.key)
		order by closed_name, closed_key limit 1) n
)
select name, key from closed limit $3`
)

// laneWork is what a transaction has done to lanes, and has not written yet.
type laneWork struct {
	entered map[kernel.LaneRef]kernel.Lane     // steps have become ready in them; with the place of the first
	left    map[kernel.LaneRef]bool            // ready steps have left them
	closed  map[kernel.LaneRef]kernel.LimitKey // to be closed
	at      map[kernel.LaneRef]tid             // of the rows of lanes that a search has found
	heads   merge.Heads
}

func (w *laneWork) enter(l kernel.Lane) {
	w.heads.Enter(l.LaneRef, l.First)
	if w.entered == nil {
		w.entered = map[kernel.LaneRef]kernel.Lane{}
	}
	if had, there := w.entered[l.LaneRef]; !there || kernel.ClaimLess(l.First, had.First) < 0 {
		w.entered[l.LaneRef] = l
	}
}

func (w *laneWork) leave(ref kernel.LaneRef, step kernel.StepRef) {
	w.heads.Leave(ref, step)
	if w.left == nil {
		w.left = map[kernel.LaneRef]bool{}
	}
	w.left[ref] = true
}

func (w *laneWork) found(ref kernel.LaneRef, at tid) {
	if w.at == nil {
		w.at = map[kernel.LaneRef]tid{}
	}
	w.at[ref] = at
}

func (w *laneWork) close(lanes []kernel.ClosedLane) {
	if w.closed == nil && len(lanes) > 0 {
		w.closed = map[kernel.LaneRef]kernel.LimitKey{}
	}
	for _, l := range lanes {
		if _, already := w.closed[l.LaneRef]; !already {
			w.closed[l.LaneRef] = l.For
		}
	}
}

// readyOfLanes adds the first ready steps of the agent's open lanes whose limits are not full. Lanes that this transaction
// has left or closed may be found as they were, so that more are read.
func (tx *tx) readyOfLanes(agent string, max int, full []string, found *[]readyRow) error {
	if !tx.laned {
		return nil
	}
	types, names := fullOf(full)
	empty := 0
	for {
		var of []kernel.LaneID
		most := max + len(tx.lane.left) + len(tx.lane.closed)
		if err := tx.run(into(q(lanesSQL).text(agent).int(most).texts(types).texts(names), &of, func(r *reader) kernel.LaneID {
			at, id := tid(r.next()), kernel.LaneID(r.int64())
			tx.lane.found(kernel.LaneRef{Agent: agent, Lane: id}, at)
			return id
		})); err != nil {
			return err
		}
		all := len(of) < most
		of = slices.DeleteFunc(of, func(id kernel.LaneID) bool {
			_, closed := tx.lane.closed[kernel.LaneRef{Agent: agent, Lane: id}]
			return closed
		})
		asked := map[kernel.LaneID]bool{}
		first, err := merge.First(max, of, func(of []kernel.LaneID, n int) (map[kernel.LaneID]merge.Head, error) {
			return tx.readLanes(agent, of, n, asked)
		})
		if err != nil {
			return err
		}
		known := empty
		for _, id := range of {
			ref := kernel.LaneRef{Agent: agent, Lane: id}
			if tx.lane.heads.Empty(ref) && !tx.lane.left[ref] {
				tx.lane.leave(ref, kernel.StepRef{}) // so that it is deleted
				empty++
			}
		}
		if len(first) < max && !all && empty > known { // lanes without steps stand in front of others
			continue
		}
		for _, c := range first {
			*found = append(*found, readyRow{kernel.ReadyKey{Ready: true, Agent: agent, Order: c.Order}, c.StepRef})
		}
		return nil
	}
}

// readLanes reads the first n steps of each of some lanes, and one more, which says whether there are others. Of a lane that was
// not asked for yet, what the transaction has read before is enough.
func (tx *tx) readLanes(agent string, of []kernel.LaneID, n int, asked map[kernel.LaneID]bool) (map[kernel.LaneID]merge.Head, error) {
	heads := make(map[kernel.LaneID]merge.Head, len(of))
	var ids cells
	var unread []kernel.LaneID
	for _, id := range of {
		head := tx.lane.heads[kernel.LaneRef{Agent: agent, Lane: id}]
		if enough := len(head.Steps) >= n || len(head.Steps) > 0 && !asked[id]; head.Whole || enough {
			heads[id] = head
		} else {
			unread = append(unread, id)
			ids.int8(int64(id))
		}
		asked[id] = true
	}
	if len(unread) == 0 {
		return heads, nil
	}
	read := make(map[kernel.LaneID][]kernel.Candidate, len(unread))
	scan := tx.scanReady(agent)
	err := tx.run(q(readyOfLanesSQL).text(agent).int(n+1).array(tInt8, len(unread), ids).each(func(r *reader) error {
		row := scan(r)
		read[row.Lane] = append(read[row.Lane], row.candidate())
		return nil
	}))
	for _, id := range unread {
		heads[id] = merge.Head{Steps: read[id], Whole: len(read[id]) <= n}
		tx.lane.heads.Read(kernel.LaneRef{Agent: agent, Lane: id}, heads[id])
	}
	return heads, err
}

// fullOf are the types whose limits are among these, and the limits of users' own.
func fullOf(full []string) (types, names []string) {
	for _, limit := range full {
		switch kind, of, _ := kernel.SplitLimit(limit); kind {
		case kernel.LimitOfJobs:
			types = append(types, of)
		case kernel.LimitNamed:
			names = append(names, limit)
		}
	}
	return types, names
}

// laneStatements bring table lane in line with what the transaction has done, and forget it.
func (tx *tx) laneStatements() (list []*statement) {
	w := &tx.lane
	var moved, empty, unknown, perhaps laneCells // unknown: whose first step is to be found; perhaps: that may be empty
	for _, ref := range slices.SortedFunc(maps.Keys(w.left), compareLanes) {
		first, known := w.heads.First(ref)
		at, found := w.at[ref]
		_, entered := w.entered[ref] // then its row may be elsewhere by then
		_, closing := w.closed[ref]
		found = found && !entered
		switch {
		case known && closing: // it is closed at its place
		case known && found:
			moved.add(ref)
			moved.ats.tid(at)
			moved.firsts.add(first)
		case known:
			unknown.add(ref)
		case found && w.heads.Empty(ref):
			empty.add(ref)
			empty.ats.tid(at)
		default:
			unknown.add(ref)
			perhaps.add(ref)
		}
	}
	if n := moved.n; n > 0 {
		list = append(list, q(moveLanesSQL).array(tTID, n, moved.ats).array(tInt8, n, moved.lanes).
			array(tInt8, n, moved.firsts.ords).array(tUUID, n, moved.firsts.jobs).array(tInt4, n, moved.firsts.idxs))
	}
	if n := len(w.entered); n > 0 {
		var lanes laneCells
		var classes, types, limits cells
		for _, ref := range slices.SortedFunc(maps.Keys(w.entered), compareLanes) {
			l := w.entered[ref]
			lanes.add(ref)
			lanes.firsts.add(l.First)
			classes.int8(int64(l.Class))
			types.text(l.Type)
			limits.text(string(l.Needs))
		}
		list = append(list, q("select perdure.enter_lanes($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::uuid[], $8::int[])").
			array(tText, n, lanes.agents).array(tInt8, n, lanes.lanes).array(tInt8, n, classes).array(tText, n, types).array(tText, n, limits).
			array(tInt8, n, lanes.firsts.ords).array(tUUID, n, lanes.firsts.jobs).array(tInt4, n, lanes.firsts.idxs))
	}
	if n := unknown.n; n > 0 {
		list = append(list, q(firstOfLanesSQL).array(tText, n, unknown.agents).array(tInt8, n, unknown.lanes))
	}
	if n, m := empty.n, perhaps.n; n+m > 0 {
		list = append(list, q("select perdure.delete_lanes($1::tid[], $2::bigint[], $3::text[], $4::bigint[])").
			array(tTID, n, empty.ats).array(tInt8, n, empty.lanes).array(tText, m, perhaps.agents).array(tInt8, m, perhaps.lanes))
	}
	list = append(list, w.closeStatements()...)
	tx.lane = laneWork{}
	return list
}

// laneCells are the columns of some lanes.
type laneCells struct {
	n                  int
	agents, lanes, ats cells
	firsts             firstCells
}

func (c *laneCells) add(ref kernel.LaneRef) {
	c.n++
	c.agents.text(ref.Agent)
	c.lanes.int8(int64(ref.Lane))
}

// firstCells are the columns of the first steps of some lanes.
type firstCells struct{ ords, jobs, idxs cells }

func (c *firstCells) add(first kernel.Candidate) {
	c.ords.int8(first.Order)
	c.jobs.uuid(first.Job)
	c.idxs.int4(first.Index)
}

// closeStatements close lanes, and forget that.
func (w *laneWork) closeStatements() []*statement {
	n := len(w.closed)
	if n == 0 {
		return nil
	}
	var agents, lanes, ords, names, keys cells
	for _, ref := range slices.SortedFunc(maps.Keys(w.closed), compareLanes) {
		agents.text(ref.Agent)
		lanes.int8(int64(ref.Lane))
		w.order(ref, &ords)
		names.text(w.closed[ref].Name)
		keys.text(w.closed[ref].Key)
	}
	w.closed = nil
	return []*statement{q(closeLanesSQL).array(tText, n, agents).array(tInt8, n, lanes).array(tInt8, n, ords).array(tText, n, names).array(tText, n, keys)}
}

// order is that of the first step of a lane, null if it is not known.
func (w *laneWork) order(ref kernel.LaneRef, ords *cells) {
	if first, known := w.heads.First(ref); known {
		ords.int8(first.Order)
	} else {
		ords.null()
	}
}

func compareLanes(a, b kernel.LaneRef) int {
	return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Lane, b.Lane))
}

func (tx *tx) OpenLanes(keys []kernel.LimitKey, max int) ([]string, error) {
	agents := map[string]bool{}
	var empty []kernel.LaneRef
	var names, texts cells
	for _, k := range keys {
		names.text(k.Name)
		texts.text(k.Key)
	}
	tx.wrote = true
	err := tx.run(append(tx.lane.closeStatements(), q(openLanesSQL).array(tText, len(keys), names).array(tText, len(keys), texts).int(max).each(func(r *reader) error {
		ref := kernel.LaneRef{Agent: r.text(), Lane: kernel.LaneID(r.int64())}
		agents[ref.Agent] = true
		if r.bool() {
			empty = append(empty, ref)
		}
		return nil
	}))...)
	for _, ref := range empty {
		tx.lane.leave(ref, kernel.StepRef{}) // so that it is deleted
	}
	if len(agents) > 0 {
		tx.stirred = true
	}
	return slices.Sorted(maps.Keys(agents)), err
}

func (tx *tx) ClosedFor(after kernel.LimitKey, max int) ([]kernel.LimitKey, error) {
	var found []kernel.LimitKey
	err := tx.run(append(tx.lane.closeStatements(), into(q(closedForSQL).text(after.Name).text(after.Key).int(max), &found, func(r *reader) kernel.LimitKey {
		return kernel.LimitKey{Name: r.text(), Key: r.text()}
	}))...)
	return found, err
}
