package postgres

import (
	"cmp"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/merge"
)

// The lanes of steps that need a limit of a user's own have rows in table lane, by which a search finds those that are open
// and have the oldest steps, however many there are. Who closes a lane, and who opens it, has the lock of the limit. All
// other changes of a lane leave out rows that another transaction has locked, so that nobody waits in a circle.

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
update perdure.lane l set closed_name = k.name, closed_key = k.key from (
	select l.ctid, u.name, u.key from unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) as u (agent, lane, name, key) cross join lateral (
		select ctid from perdure.lane where agent = u.agent collate "C" and lane = u.lane and coalesce(closed_name, '') = ''
		for no key update skip locked) l
	where exists (select from perdure.ready r where r.agent = u.agent collate "C" and r.lane = u.lane offset 0)) k
where l.ctid = k.ctid`

	openLanesSQL = `
update perdure.lane l set closed_name = null, closed_key = null, ord = coalesce((
	select r.ord from perdure.ready r where r.agent = l.agent and r.lane = l.lane order by r.ord limit 1), l.ord)
from (select k.ctid from (select * from unnest($1::text[], $2::text[]) as u (name, key) offset 0) u cross join lateral (
	select ctid from perdure.lane where closed_name = any(array[u.name collate "C"]) and closed_key = u.key collate "C"
	order by ord, agent, lane limit $3) k) k
where l.ctid = k.ctid returning l.agent`

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

// leaveTries bounds how often a search for steps begins again behind lanes without steps.
const leaveTries = 5

// readyOfLanes adds the first ready steps of the agent's open lanes whose limits are not full.
func (tx *tx) readyOfLanes(agent string, max int, full []string, found *[]readyRow) error {
	if !tx.laned {
		return nil
	}
	types, names := fullOf(full)
	for try := 1; ; try++ {
		var of []kernel.LaneID
		if err := tx.run(into(q(lanesSQL).text(agent).int(max).texts(types).texts(names), &of, func(r *reader) kernel.LaneID { return kernel.LaneID(r.int64()) })); err != nil {
			return err
		}
		filled := make(map[kernel.LaneID]bool, len(of))
		rows, err := merge.First(max, of, (*readyRow).candidate, func(of []kernel.LaneID, n int) (map[kernel.LaneID][]*readyRow, error) {
			rows := make(map[kernel.LaneID][]*readyRow, len(of))
			var ids cells
			for _, id := range of {
				ids.int8(int64(id))
			}
			scan := tx.scanReady(agent)
			return rows, tx.run(q(readyOfLanesSQL).text(agent).int(n).array(tInt8, len(of), ids).each(func(r *reader) error {
				row := scan(r)
				rows[row.Lane] = append(rows[row.Lane], &row)
				filled[row.Lane] = true
				return nil
			}))
		})
		if err != nil {
			return err
		}
		if len(rows) < max && len(filled) < len(of) && len(of) == max && try < leaveTries { // lanes without steps stand in front of others
			if err := tx.leaveEmpty(agent, of, filled); err != nil {
				return err
			}
			continue
		}
		for _, row := range rows {
			*found = append(*found, *row)
		}
		return nil
	}
}

// leaveEmpty deletes the lanes that are not filled. Steps may have become ready in them, in transactions that are not over;
// then they are left as they are.
func (tx *tx) leaveEmpty(agent string, of []kernel.LaneID, filled map[kernel.LaneID]bool) error {
	var empty []kernel.LaneRef
	for _, id := range of {
		if !filled[id] {
			empty = append(empty, kernel.LaneRef{Agent: agent, Lane: id})
		}
	}
	tx.wrote = true
	return tx.run(leaveLanes(empty))
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

// enteredLanes are lanes into which a Save has moved steps, each with the order of the first.
type enteredLanes map[kernel.LaneRef]kernel.Lane

// leftLanes are lanes from which a Save has moved steps.
type leftLanes map[kernel.LaneRef]bool

func (l *leftLanes) add(ref kernel.LaneRef) {
	if *l == nil {
		*l = leftLanes{}
	}
	(*l)[ref] = true
}

// enter notes the lane of a step that is ready.
func (d *sides) enter(s *kernel.Step) {
	if s.Needs == "" {
		return
	}
	lane, _ := kernel.LaneFor(s)
	if had, there := d.entered[lane.LaneRef]; there && had.Order <= lane.Order {
		return
	}
	if d.entered == nil {
		d.entered = enteredLanes{}
	}
	d.entered[lane.LaneRef] = lane
}

// lanes are the statements that bring table lane in line with ready.
func (d *sides) lanes() (list []*statement) {
	if len(d.left) > 0 {
		list = append(list, leaveLanes(slices.SortedFunc(maps.Keys(d.left), compareLanes)))
	}
	if n := len(d.entered); n > 0 {
		var agents, lanes, classes, types, limits, ords cells
		for _, ref := range slices.SortedFunc(maps.Keys(d.entered), compareLanes) {
			l := d.entered[ref]
			agents.text(l.Agent)
			lanes.int8(int64(l.Lane))
			classes.int8(int64(l.Class))
			types.text(l.Type)
			limits.text(string(l.Needs))
			ords.int8(l.Order)
		}
		d.tx.laned = true
		list = append(list, q("select perdure.enter_lanes($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[])").
			array(tText, n, agents).array(tInt8, n, lanes).array(tInt8, n, classes).array(tText, n, types).array(tText, n, limits).array(tInt8, n, ords))
	}
	return list
}

func compareLanes(a, b kernel.LaneRef) int {
	return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Lane, b.Lane))
}

// leaveLanes deletes those that have no step left, and renews the order of the others.
func leaveLanes(refs []kernel.LaneRef) *statement {
	var agents, lanes cells
	for _, ref := range refs {
		agents.text(ref.Agent)
		lanes.int8(int64(ref.Lane))
	}
	return q("select perdure.leave_lanes($1::text[], $2::bigint[])").array(tText, len(refs), agents).array(tInt8, len(refs), lanes)
}

func closeLanes(closed []kernel.ClosedLane) *statement {
	var agents, lanes, names, keys cells
	met := map[kernel.LaneRef]bool{}
	for _, l := range closed {
		if met[l.LaneRef] {
			continue
		}
		met[l.LaneRef] = true
		agents.text(l.Agent)
		lanes.int8(int64(l.Lane))
		names.text(l.For.Name)
		keys.text(l.For.Key)
	}
	n := len(met)
	return q(closeLanesSQL).array(tText, n, agents).array(tInt8, n, lanes).array(tText, n, names).array(tText, n, keys)
}

func (tx *tx) OpenLanes(keys []kernel.LimitKey, max int) ([]string, error) {
	agents := map[string]bool{}
	var names, texts cells
	for _, k := range keys {
		names.text(k.Name)
		texts.text(k.Key)
	}
	tx.wrote = true
	err := tx.run(q(openLanesSQL).array(tText, len(keys), names).array(tText, len(keys), texts).int(max).each(func(r *reader) error {
		agents[r.text()] = true
		return nil
	}))
	if len(agents) > 0 {
		tx.stirred = true
	}
	return slices.Sorted(maps.Keys(agents)), err
}

func (tx *tx) ClosedFor(after kernel.LimitKey, max int) ([]kernel.LimitKey, error) {
	var found []kernel.LimitKey
	err := tx.run(into(q(closedForSQL).text(after.Name).text(after.Key).int(max), &found, func(r *reader) kernel.LimitKey {
		return kernel.LimitKey{Name: r.text(), Key: r.text()}
	}))
	return found, err
}
