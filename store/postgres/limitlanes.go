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
// other changes are made right before the commit, in one order, and after them the transaction waits for nobody.
//
// The order of a lane may be too late for a while: if one transaction sets it while another one makes an older step ready,
// neither sees the other's work. That step is found when its lane has its turn, and the order is right from then on.

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
		select type, limits from perdure.lane where agent = $1 and closed_name is null and class = c.class order by ord limit 1) l
	where l.type <> all ($3::text[]) and not exists (select from jsonb_array_elements(l.limits::jsonb) as n where n ->> 'name' = any ($4::text[]))
)
select l.lane from fits f cross join lateral (
	select lane, ord from perdure.lane where agent = $1 and closed_name is null and class = f.class order by ord limit $2) l
order by l.ord, l.lane limit $2`

	readyOfLanesSQL = `
select r.ctid, r.lane, r.ord, r.job, r.idx from unnest($3::bigint[]) as l (lane) cross join lateral (
	select r.ctid, r.lane, r.ord, r.job, r.idx from perdure.ready r where r.agent = $1 and r.lane = l.lane
	order by r.ord, r.job, r.idx limit $2) r`

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
update perdure.lane l set closed_name = null, closed_key = null, ord = coalesce((
	select r.ord from perdure.ready r where r.agent = l.agent and r.lane = l.lane order by r.ord limit 1), l.ord)
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
	entered map[kernel.LaneRef]kernel.Lane     // steps have become ready in them; with the order of the first
	left    map[kernel.LaneRef]bool            // ready steps have left them
	closed  map[kernel.LaneRef]kernel.LimitKey // to be closed
	heads   merge.Heads
}

func (w *laneWork) enter(l kernel.Lane, step kernel.StepRef) {
	w.heads.Enter(l.LaneRef, kernel.Candidate{StepRef: step, Order: l.Order})
	if w.entered == nil {
		w.entered = map[kernel.LaneRef]kernel.Lane{}
	}
	if had, there := w.entered[l.LaneRef]; !there || l.Order < had.Order {
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
		if err := tx.run(into(q(lanesSQL).text(agent).int(most).texts(types).texts(names), &of, func(r *reader) kernel.LaneID { return kernel.LaneID(r.int64()) })); err != nil {
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
			if len(tx.lane.heads[ref].Steps) == 0 && !tx.lane.left[ref] {
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

// readLanes reads the first steps of each of some lanes, at most n. Of a lane that was not asked for yet, what the transaction
// has read before is enough.
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
	err := tx.run(q(readyOfLanesSQL).text(agent).int(n).array(tInt8, len(unread), ids).each(func(r *reader) error {
		row := scan(r)
		read[row.Lane] = append(read[row.Lane], row.candidate())
		return nil
	}))
	for _, id := range unread {
		heads[id] = merge.Head{Steps: read[id], Whole: len(read[id]) < n}
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
	if n := len(w.entered); n > 0 {
		var agents, lanes, classes, types, limits, ords cells
		for _, ref := range slices.SortedFunc(maps.Keys(w.entered), compareLanes) {
			l := w.entered[ref]
			agents.text(l.Agent)
			lanes.int8(int64(l.Lane))
			classes.int8(int64(l.Class))
			types.text(l.Type)
			limits.text(string(l.Needs))
			ords.int8(l.Order)
		}
		list = append(list, q("select perdure.enter_lanes($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[])").
			array(tText, n, agents).array(tInt8, n, lanes).array(tInt8, n, classes).array(tText, n, types).array(tText, n, limits).array(tInt8, n, ords))
	}
	n := 0
	var agents, lanes, ords cells
	for _, ref := range slices.SortedFunc(maps.Keys(w.left), compareLanes) {
		_, closing := w.closed[ref]
		if _, known := w.heads.Order(ref); !closing || !known {
			agents.text(ref.Agent)
			lanes.int8(int64(ref.Lane))
			w.order(ref, &ords)
			n++
		}
	}
	if n > 0 {
		list = append(list, q("select perdure.leave_lanes($1::text[], $2::bigint[], $3::bigint[])").array(tText, n, agents).array(tInt8, n, lanes).array(tInt8, n, ords))
	}
	list = append(list, w.closeStatements()...)
	tx.lane = laneWork{}
	return list
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
	if ord, known := w.heads.Order(ref); known {
		ords.int8(ord)
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
