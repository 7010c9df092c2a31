package postgres

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/merge"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// The lanes of steps that need a user's own limit have rows in table lane. (So have those of shares, see shares.go. Their classes are not
// negative.) By them a search finds the lanes that are
// open and have the oldest steps, however many lanes there are. A row has the lane's place: that of its first step, or
// an earlier one. A place that is too early costs a read of the lane. A place that is too late would hide a step from
// all searches. So a place is lowered by the transaction that makes an earlier step ready (enter_lanes). It is raised
// only by a transaction that has locked the lane's row and reads the lane's steps after that (settle_lanes). Closing and
// opening a lane changes no place.
//
// A transaction that closes or opens a lane holds the lock of the limit. It opens lanes as soon as it finds them,
// and closes pending lanes before that. All other changes are written right before the commit. Of these statements, only enter_lanes may wait for other transactions.
// If it has to lower the place of a lane that another transaction has opened, it waits for that one. If that one then
// waits for a limit which this one has locked, PostgreSQL aborts one of the two, and it is retried.

const (
	classesOf = `
with recursive class (class) as (
	(select class from perdure.lane where agent = $1 and closed_name is null and class < 0 order by class limit 1)
	union all
	select (select l.class from perdure.lane l where l.agent = $1 and l.closed_name is null and l.class > class.class and l.class < 0 order by l.class limit 1)
	from class where class.class is not null
)`

	// demandsSQL selects the classes of open lanes whose steps have a demand, each with the needs of one lane: the demand
	// is the same in all lanes of a class.
	demandsSQL = classesOf + `
select c.class, l.limits from class c cross join lateral (
	select limits from perdure.lane where agent = $1 and closed_name is null and class = c.class order by ord, job, idx limit 1) l
where strpos(l.limits, '{"name":"host:') > 0`

	// openLanesOf selects the first $2 open lanes. Lanes of full types, and lanes that need a full limit, are left out. Of
	// lanes with a demand only the classes $5 are selected, and lanes without one only if $6 is 1.
	openLanesOf = classesOf + `, fits as materialized (
	select c.class from class c cross join lateral (
		select type, limits from perdure.lane where agent = $1 and closed_name is null and class = c.class order by ord, job, idx limit 1) l
	where l.type <> all ($3::text[]) and not exists (select from jsonb_array_elements(l.limits::jsonb) as n where n ->> 'name' = any ($4::text[]))
	and case when strpos(l.limits, '{"name":"host:') = 0 then $6 > 0 else c.class = any ($5::bigint[]) end
), found as materialized (
	select l.* from fits f cross join lateral (
		select ctid as at, lane, ord, job, idx from perdure.lane where agent = $1 and closed_name is null and class = f.class
		order by ord, job, idx limit $2) l
	order by l.ord, l.job, l.idx limit $2
)`
	lanesSQL = openLanesOf + ` select at, lane, ord, job, idx from found order by ord, job, idx, lane`

	// headsSQL also reads the first two steps of each lane, up to the bound: if there may be more lanes, the order of
	// the last lane's place.
	headsSQL = openLanesOf + `, bound as materialized (
	select case when count(*) < $2 then 9223372036854775807 else max(ord) end as ord from found
)
select l.at, l.lane, l.ord, l.job, l.idx, r.ctid, r.ord, r.job, r.idx from found l cross join bound b left join lateral (
	select r.ctid, r.ord, r.job, r.idx from perdure.ready r where r.agent = $1 and r.lane = l.lane and r.ord >= l.ord and r.ord <= b.ord
	order by r.ord, r.job, r.idx limit 2) r on true
order by l.ord, l.job, l.idx, l.lane, r.ord, r.job, r.idx`

	// readyOfLanesSQL reads each lane from the place that was found, up to the bound $5. Before that place are index
	// entries of deleted steps, and perhaps steps of a transaction that has just lowered the place: a later search finds
	// those.
	readyOfLanesSQL = `
select r.ctid, r.lane, r.ord, r.job, r.idx from unnest($3::bigint[], $4::bigint[]) as l (lane, ord) cross join lateral (
	select r.ctid, r.lane, r.ord, r.job, r.idx from perdure.ready r where r.agent = $1 and r.lane = l.lane and r.ord >= l.ord and r.ord <= $5
	order by r.ord, r.job, r.idx limit $2) r`

	closeLanesSQL = `
update perdure.lane l set closed_name = k.name, closed_key = k.key from (
	select l.ctid, u.name, u.key from unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) as u (agent, lane, name, key)
	cross join lateral (select from perdure.ready r where r.agent = u.agent collate "C" and r.lane = u.lane limit 1) f
	cross join lateral (
		select ctid from perdure.lane where agent = u.agent collate "C" and lane = u.lane and coalesce(closed_name, '') = ''
		for no key update skip locked) l) k
where l.ctid = k.ctid`

	openLanesSQL = `
update perdure.lane l set closed_name = null, closed_key = null
from (select k.agent, k.lane from (select * from unnest($1::text[], $2::text[]) as u (name, key)
	where exists (select from perdure.lane where closed_name is not null) offset 0) u cross join lateral (
	select agent, lane from perdure.lane where closed_name = any(array[u.name collate "C"]) and closed_key = u.key collate "C"
	order by ord, agent, lane limit $3) k offset 0) k
where l.lane = k.lane and l.agent = k.agent returning l.agent, l.lane, l.class, l.type, l.limits`

	openFirstSQL = `
update perdure.lane l set closed_name = null, closed_key = null
from (select * from unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) as u (agent, lane, name, key) offset 0) u
where l.lane = u.lane and l.agent = u.agent collate "C" and l.closed_name = u.name collate "C" and l.closed_key = u.key collate "C"
returning l.agent, l.lane, l.class, l.type, l.limits`

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

// laneChanges is what a transaction has to write about lanes.
type laneChanges struct {
	entered map[kernel.LaneRef]kernel.Lane     // lanes in which steps became ready, with the place of the first
	left    map[kernel.LaneRef]bool            // lanes that ready steps have left, or whose place is too early
	closed  map[kernel.LaneRef]kernel.LimitKey // to be closed
	at      map[kernel.LaneRef]pgwire.RowID    // rows of lanes that a search has found
}

func (w *laneChanges) enter(l kernel.Lane) {
	if w.entered == nil {
		w.entered = map[kernel.LaneRef]kernel.Lane{}
	}
	if had, there := w.entered[l.LaneRef]; !there || kernel.ClaimLess(l.First, had.First) < 0 {
		w.entered[l.LaneRef] = l
	}
}

func (w *laneChanges) leave(ref kernel.LaneRef) {
	if w.left == nil {
		w.left = make(map[kernel.LaneRef]bool, len(w.at))
	}
	w.left[ref] = true
}

func (w *laneChanges) close(lanes []kernel.ClosedLane) {
	if w.closed == nil && len(lanes) > 0 {
		w.closed = map[kernel.LaneRef]kernel.LimitKey{}
	}
	for _, l := range lanes {
		if _, already := w.closed[l.LaneRef]; !already {
			w.closed[l.LaneRef] = l.For
		}
	}
}

// openLane is an open lane that a search has found.
type openLane struct {
	id    kernel.LaneID
	start kernel.Candidate
	read  bool       // head was read
	head  merge.Head // its first steps up to the search's bound; Whole: there are no others up to the bound
}

// readyOfLanes adds the first ready steps of the agent's open lanes whose limits are not full. If places were too early,
// or lanes were left out, more lanes are read until the result is certain. A later search of the transaction reads
// everything again, because others may have dispatched these steps while it waited for a lock.
func (tx *tx) readyOfLanes(agent string, max int, full []string, serves kernel.Serves, found *[]cache.ReadyEntry) error {
	if !tx.hasLanes {
		return nil
	}
	types, names := fullOf(full)
	served, err := tx.servedClasses(agent, serves)
	if err != nil {
		return err
	}
	for most := max + len(tx.lanes.left) + len(tx.lanes.closed); ; most *= 2 {
		lanes, err := tx.findLanes(agent, most, types, names, served)
		if err != nil {
			return err
		}
		of := make([]kernel.LaneID, 0, len(lanes))
		byID := make(map[kernel.LaneID]*openLane, len(lanes))
		for i := range lanes {
			l := &lanes[i]
			if _, closed := tx.lanes.closed[kernel.LaneRef{Agent: agent, Lane: l.id}]; !closed {
				of = append(of, l.id)
				byID[l.id] = l
			}
		}
		bound := int64(math.MaxInt64) // as in headsSQL
		if len(lanes) == most {       // each lane has a step up to the last place: later steps are not among the first
			bound = lanes[most-1].start.Order
		}
		first, err := merge.First(max, of, func(of []kernel.LaneID, n int) (map[kernel.LaneID]merge.Head, error) {
			return tx.readLanes(agent, of, n, byID, bound)
		})
		if err != nil {
			return err
		}
		for _, l := range byID {
			if l.read && (len(l.head.Steps) == 0 || l.head.Steps[0] != l.start) {
				tx.lanes.leave(kernel.LaneRef{Agent: agent, Lane: l.id})
			}
		}
		if len(lanes) == most && (len(first) < max || kernel.ClaimLess(first[max-1], lanes[most-1].start) > 0) {
			continue // there may be earlier steps in lanes that were not read
		}
		for _, c := range first {
			*found = append(*found, cache.EntryOf(agent, 0, c))
		}
		return nil
	}
}

// servedClasses are the classes of lanes that a search may read.
type servedClasses struct {
	open    int // 1: also those whose steps have no demand
	classes pgwire.Cells
	demands int // number of classes
}

// servedClasses returns the classes of lanes whose demand is served.
func (tx *tx) servedClasses(agent string, serves kernel.Serves) (s servedClasses, err error) {
	if serves.Demand("") {
		s.open = 1
	}
	if serves == nil {
		return s, nil
	}
	return s, tx.run(pgwire.New(demandsSQL).Text(agent).Each(func(r *pgwire.Reader) error {
		if class, needs := r.Int64(), kernel.Needs(r.Text()); serves.Demand(needs.Demand()) {
			s.classes.Int8(class)
			s.demands++
		}
		return nil
	}))
}

// findLanes reads the first open lanes and, in the same statement, their first steps. After the transaction has
// dispatched steps from lanes or closed some, most of the first lanes are useless to it: then it reads the lanes alone.
func (tx *tx) findLanes(agent string, most int, types, names []string, served servedClasses) ([]openLane, error) {
	sql, withHeads := lanesSQL, len(tx.lanes.left)+len(tx.lanes.closed) == 0
	if withHeads {
		sql = headsSQL
	}
	lanes := make([]openLane, 0, min(most, perdure.MaxBatch))
	if tx.lanes.at == nil {
		tx.lanes.at = make(map[kernel.LaneRef]pgwire.RowID, cap(lanes))
	}
	err := tx.run(pgwire.New(sql).Text(agent).Int(most).Texts(types).Texts(names).Array(pgwire.Int8, served.demands, served.classes).Int(served.open).Each(func(r *pgwire.Reader) error {
		at, id, order := pgwire.RowID(r.Next()), kernel.LaneID(r.Int64()), r.Int64()
		place := kernel.Candidate{Order: order, StepRef: scanRef(r)}
		if n := len(lanes); n == 0 || lanes[n-1].id != id {
			ref := kernel.LaneRef{Agent: agent, Lane: id}
			tx.lanes.at[ref] = at
			entered, ok := tx.lanes.entered[ref] // its place is lowered before the commit
			lanes = append(lanes, openLane{id: id, start: place, read: withHeads && !(ok && entered.First.Order < order), head: merge.Head{Whole: true}})
		}
		if !withHeads {
			return nil
		}
		if at := r.Next(); at != nil {
			c := kernel.Candidate{Order: r.Int64(), StepRef: scanRef(r)}
			tx.readyRows[c.StepRef] = pgwire.RowID(at)
			head := &lanes[len(lanes)-1].head
			head.Steps = append(head.Steps, c)
			head.Whole = len(head.Steps) < 2
		}
		return nil
	}))
	return lanes, err
}

// readLanes reads the first n steps of each of some lanes, up to a bound, and mostly one more, which shows whether there
// are others. It skips lanes of which so many were read.
func (tx *tx) readLanes(agent string, of []kernel.LaneID, n int, lanes map[kernel.LaneID]*openLane, bound int64) (map[kernel.LaneID]merge.Head, error) {
	heads := make(map[kernel.LaneID]merge.Head, len(of))
	var ids, ords pgwire.Cells
	var unread []*openLane
	for _, id := range of {
		lane := lanes[id]
		if lane.read && (lane.head.Whole || len(lane.head.Steps) > n) {
			heads[id] = lane.head
			continue
		}
		from := lane.start.Order
		if entered, ok := tx.lanes.entered[kernel.LaneRef{Agent: agent, Lane: id}]; ok { // the place is lowered before the commit
			from = min(from, entered.First.Order)
		}
		unread = append(unread, lane)
		lane.read, lane.head = true, merge.Head{}
		ids.Int8(int64(id))
		ords.Int8(from)
	}
	if len(unread) == 0 {
		return heads, nil
	}
	scan := tx.scanReady(agent)
	err := tx.run(pgwire.New(readyOfLanesSQL).Text(agent).Int(n+1).Array(pgwire.Int8, len(unread), ids).Array(pgwire.Int8, len(unread), ords).Int64(bound).Each(func(r *pgwire.Reader) error {
		row := scan(r)
		head := &lanes[row.Lane].head
		head.Steps = append(head.Steps, row.Candidate())
		return nil
	}))
	for _, lane := range unread {
		lane.head.Whole = len(lane.head.Steps) <= n
		heads[lane.id] = lane.head
	}
	return heads, err
}

// fullOf splits full limits into the types whose limits they are, and users' own limits.
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

// laneStatements returns the statements that update table lane, and clears the changes.
func (tx *tx) laneStatements() (list []*pgwire.Statement) {
	w := &tx.lanes
	if n := len(w.entered); n > 0 {
		var agents, lanes, classes, types, limits, ords, jobs, idxs pgwire.Cells
		for _, ref := range slices.SortedFunc(maps.Keys(w.entered), compareLanes) {
			l := w.entered[ref]
			agents.Text(l.Agent)
			lanes.Int8(int64(l.Lane))
			classes.Int8(int64(l.Class))
			types.Text(l.Type)
			limits.Text(string(l.Needs))
			ords.Int8(l.First.Order)
			jobs.UUID(l.First.Job)
			idxs.Int4(l.First.Index)
		}
		list = append(list, pgwire.New("select perdure.enter_lanes($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::uuid[], $8::int[])").
			Array(pgwire.Text, n, agents).Array(pgwire.Int8, n, lanes).Array(pgwire.Int8, n, classes).Array(pgwire.Text, n, types).Array(pgwire.Text, n, limits).
			Array(pgwire.Int8, n, ords).Array(pgwire.UUID, n, jobs).Array(pgwire.Int4, n, idxs))
	}
	list = append(list, w.settle()...)
	var closed []kernel.LaneRef
	if len(tx.agents) > 0 {
		closed = slices.SortedFunc(maps.Keys(w.closed), compareLanes)
	}
	list = append(list, w.closeStatements()...)
	tx.lanes = laneChanges{}
	if st := tx.shares.moveStatement(); st != nil {
		list = append(list, st)
	}
	if st := tx.settleShares(closed); st != nil {
		list = append(list, st)
	}
	return list
}

// settle updates the places of lanes that steps have left.
func (w *laneChanges) settle() (list []*pgwire.Statement) {
	type lanesOf struct {
		ats, atLanes, lanes pgwire.Cells
		found, others       int
	}
	of := map[string]*lanesOf{}
	for ref := range w.left {
		l := of[ref.Agent]
		if l == nil {
			l = &lanesOf{}
			of[ref.Agent] = l
		}
		at, found := w.at[ref]
		if _, entered := w.entered[ref]; found && !entered { // enter_lanes may have written another version of the row
			l.found++
			l.ats.RowID(at)
			l.atLanes.Int8(int64(ref.Lane))
		} else {
			l.others++
			l.lanes.Int8(int64(ref.Lane))
		}
	}
	for agent, l := range of {
		list = append(list, pgwire.New("select perdure.settle_lanes($1, $2::tid[], $3::bigint[], $4::bigint[])").
			Text(agent).Array(pgwire.TID, l.found, l.ats).Array(pgwire.Int8, l.found, l.atLanes).Array(pgwire.Int8, l.others, l.lanes))
	}
	return list
}

// closeStatements returns the statements that close lanes.
func (w *laneChanges) closeStatements() []*pgwire.Statement {
	n := len(w.closed)
	if n == 0 {
		return nil
	}
	var agents, lanes, names, keys pgwire.Cells
	for _, ref := range slices.SortedFunc(maps.Keys(w.closed), compareLanes) {
		agents.Text(ref.Agent)
		lanes.Int8(int64(ref.Lane))
		names.Text(w.closed[ref].Name)
		keys.Text(w.closed[ref].Key)
	}
	w.closed = nil
	return []*pgwire.Statement{pgwire.New(closeLanesSQL).Array(pgwire.Text, n, agents).Array(pgwire.Int8, n, lanes).Array(pgwire.Text, n, names).Array(pgwire.Text, n, keys)}
}

func compareLanes(a, b kernel.LaneRef) int {
	return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Lane, b.Lane))
}

func (tx *tx) OpenLanes(keys []kernel.LimitKey, max int) ([]string, error) {
	var names, texts pgwire.Cells
	for _, k := range keys {
		names.Text(k.Name)
		texts.Text(k.Key)
	}
	return tx.open(pgwire.New(openLanesSQL).Array(pgwire.Text, len(keys), names).Array(pgwire.Text, len(keys), texts).Int(max))
}

func (tx *tx) OpenFirst(lanes []kernel.ClosedLane) ([]string, error) {
	var agents, ids, names, texts pgwire.Cells
	for _, l := range lanes {
		agents.Text(l.Agent)
		ids.Int8(int64(l.Lane))
		names.Text(l.For.Name)
		texts.Text(l.For.Key)
	}
	return tx.open(pgwire.New(openFirstSQL).Array(pgwire.Text, len(lanes), agents).Array(pgwire.Int8, len(lanes), ids).Array(pgwire.Text, len(lanes), names).Array(pgwire.Text, len(lanes), texts))
}

// open runs a statement that opens lanes, and returns their agents. Rows of lanes are found by their keys: by their place, a row
// that another transaction changes meanwhile would be left out.
func (tx *tx) open(st *pgwire.Statement) ([]string, error) {
	agents := map[string]bool{}
	tx.wrote = true
	err := tx.run(append(tx.lanes.closeStatements(), st.Each(func(r *pgwire.Reader) error {
		ref := kernel.LaneRef{Agent: r.Text(), Lane: kernel.LaneID(r.Int64())}
		agents[ref.Agent] = true
		delete(tx.lanes.at, ref) // the row has another version now
		tx.lanes.leave(ref)      // steps may have left it while it was closed
		if class := r.Int64(); class >= 0 {
			l := kernel.LaneWith(ref.Agent, r.Text(), kernel.Needs(r.Text()))
			tx.shares.enter(&l)
		}
		return nil
	}))...)
	if st := tx.shares.moveStatement(); st != nil && err == nil {
		err = tx.run(st)
	}
	if len(agents) > 0 {
		tx.wakes |= wakeReady
	}
	return slices.Sorted(maps.Keys(agents)), err
}

func (tx *tx) ClosedFor(after kernel.LimitKey, max int) ([]kernel.LimitKey, error) {
	var found []kernel.LimitKey
	err := tx.run(append(tx.lanes.closeStatements(), pgwire.Into(pgwire.New(closedForSQL).Text(after.Name).Text(after.Key).Int(max), &found, func(r *pgwire.Reader) kernel.LimitKey {
		return kernel.LimitKey{Name: r.Text(), Key: r.Text()}
	}))...)
	return found, err
}
