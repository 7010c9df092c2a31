package postgres

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// sides gathers what a Save changes in the side tables: for each row of step, what it was in before and
// what it is in now. A row that is in none of them costs nothing here.
type sides struct {
	tx   *tx
	most int // how long the lists of steps become, as a rule

	bornOpen       []openRow // with their jobs
	opened, closed []openRow // or moved
	bornReady      []readyRow
	ready, unready []readyRow
	due, undue     []dueRow
	taken, freed   []permitRow
	defined        map[string]bool // the limits that there are; nil: not needed yet
	out            []inFlight      // dispatched, or held otherwise than before
	in             []kernel.StepRef
}

type openRow struct {
	job  perdure.JobID
	look time.Time
}

type readyRow struct {
	kernel.ReadyKey
	kernel.StepRef
}

type inFlight struct {
	kernel.InFlightKey
	kernel.StepRef
}

type dueRow struct {
	at time.Time
	kernel.StepRef
}

type permitRow struct {
	kernel.Need
	kernel.StepRef
}

// openOf is the entry of a job in open; ok is false if it has none. A job with runs in flight is found by out, unless
// its deadline is still to come.
func openOf(j *kernel.Job) (row openRow, ok bool) {
	row = openRow{j.ID, j.OverdueAt()}
	return row, j.Phase != perdure.Settled && (j.Running == 0 || !row.look.IsZero())
}

// job notes what a job's row changes; was is nil where it is new.
func (d *sides) job(was, now *kernel.Job) {
	row, open := openOf(now)
	var before openRow
	wasOpen := false
	if was != nil {
		before, wasOpen = openOf(was)
	}
	switch {
	case open && was == nil:
		d.bornOpen = append(d.bornOpen, row)
	case open && (!wasOpen || !before.look.Equal(row.look)):
		d.opened = append(d.opened, row)
	case wasOpen && !open:
		d.closed = append(d.closed, openRow{job: now.ID})
	}
	if had := was != nil && was.Permit; had != now.Permit {
		held := kernel.Permits{Type: now.Type}
		if now.Permit {
			d.permits(kernel.StepRef{Job: now.ID}, kernel.Permits{}, held)
		} else {
			d.permits(kernel.StepRef{Job: now.ID}, held, kernel.Permits{})
		}
	}
}

// enter notes the lane of a step that is ready.
func (d *sides) enter(s *kernel.Step) {
	if s.Needs == "" {
		return
	}
	if lane, ok := kernel.LaneFor(s); ok {
		d.tx.laned = true
		d.tx.lane.enter(lane)
	}
}

// permits notes which permits a row takes and frees, of those that are kept.
func (d *sides) permits(ref kernel.StepRef, was, now kernel.Permits) {
	if was == now || len(d.tx.limits) == 0 && was.Needs == "" && now.Needs == "" {
		return
	}
	if d.defined == nil {
		d.defined = d.tx.limitNames()
	}
	had, has := was.List(), now.List()
	for _, n := range had {
		if n.Kept(d.defined) && !slices.Contains(has, n) {
			d.freed = append(d.freed, permitRow{n, ref})
		}
	}
	for _, n := range has {
		if n.Kept(d.defined) && !slices.Contains(had, n) {
			d.taken = append(d.taken, permitRow{n, ref})
		}
	}
}

// step notes what a step's row changes; was is nil where it is new.
func (d *sides) step(was, now *kernel.Step) {
	readyNow := kernel.ReadyOf(now)
	if was == nil {
		was = &kernel.Step{} // it has no places
		if readyNow.Ready {
			d.bornReady = add(d.bornReady, d.most, readyRow{readyNow, now.StepRef})
			d.enter(now)
			return
		}
	}
	if readyWas := kernel.ReadyOf(was); readyWas != readyNow {
		if readyWas.Ready {
			d.unready = add(d.unready, d.most, readyRow{readyWas, now.StepRef})
			if !readyWas.Lane.Plain() {
				d.tx.lane.leave(kernel.LaneRef{Agent: readyWas.Agent, Lane: readyWas.Lane})
			}
		}
		if readyNow.Ready {
			d.ready = add(d.ready, d.most, readyRow{readyNow, now.StepRef})
			d.enter(now)
		}
	}
	if dueWas, dueNow := kernel.DueOf(was), kernel.DueOf(now); dueWas.UnixMicro() != dueNow.UnixMicro() {
		if !dueWas.IsZero() {
			d.undue = append(d.undue, dueRow{dueWas, now.StepRef})
		}
		if !dueNow.IsZero() {
			d.due = append(d.due, dueRow{dueNow, now.StepRef})
		}
	}
	d.permits(now.StepRef, kernel.PermitsOf(was, nil), kernel.PermitsOf(now, nil))
	flyingWas, flyingNow := kernel.InFlightOf(was), kernel.InFlightOf(now)
	if flyingWas.Covers(flyingNow) {
		return
	}
	if flyingWas.InFlight {
		d.in = add(d.in, d.most, now.StepRef)
	}
	if flyingNow.InFlight {
		d.out = add(d.out, d.most, inFlight{flyingNow, now.StepRef})
	}
}

// add makes a list large enough at once: most of what one Save changes changes alike.
func add[T any](list []T, most int, v T) []T {
	if list == nil {
		list = make([]T, 0, most)
	}
	return append(list, v)
}

// statements take out what has left before they put in what has come. What is there already, or gone, is
// as it should be: the side tables follow the rows, and an error in them mends itself.
func (d *sides) statements() (list []*statement) {
	if len(d.closed) > 0 {
		list = append(list, openGrid(d.closed, false).remove("open"))
	}
	list = append(list, d.leave()...)
	if len(d.undue) > 0 {
		list = append(list, dueGrid(d.undue).remove("due"))
	}
	if len(d.freed) > 0 {
		list = append(list, permitGrid(d.freed, false).remove("permit"))
	}
	const there = " on conflict do nothing"
	if len(d.bornOpen) > 0 {
		list = append(list, openGrid(d.bornOpen, true).insert("open", ""))
	}
	if len(d.bornReady) > 0 {
		d.tx.lanes.made(d.bornReady)
		list = append(list, readyGrid(d.bornReady).insert("ready", ""))
	}
	if len(d.opened) > 0 {
		list = append(list, openGrid(d.opened, true).insert("open", " on conflict (job) do update set look_at = excluded.look_at"))
	}
	if len(d.ready) > 0 {
		d.tx.lanes.made(d.ready)
		list = append(list, readyGrid(d.ready).insert("ready", there))
	}
	if len(d.due) > 0 {
		list = append(list, dueGrid(d.due).insert("due", there))
	}
	if len(d.taken) > 0 {
		list = append(list, permitGrid(d.taken, true).insert("permit", there))
	}
	return append(list, d.tx.sets.statements(d.out, d.in)...)
}

// leave takes steps out of the queue: those that this transaction has found there where they are, the others
// by their key. Where one has moved, the transaction is tried again.
func (d *sides) leave() (list []*statement) {
	var others []readyRow
	g := queuedGrid()
	for _, r := range d.unready {
		at, found := d.tx.queued[r.StepRef]
		if !found {
			others = append(others, r)
			continue
		}
		delete(d.tx.queued, r.StepRef)
		g.row()
		g.at(0).tid(at)
		g.at(1).uuid(r.Job)
		g.at(2).int4(r.Index)
	}
	if g.len() > 0 {
		list = append(list, g.remove("ready").exact(g.len()))
	}
	if len(others) > 0 {
		list = append(list, readyGrid(others).remove("ready"))
	}
	return list
}

func queuedGrid() *grid {
	return newGrid(field{"ctid", tTID}, field{"job", tUUID}, field{"idx", tInt4})
}

func openGrid(rows []openRow, whole bool) *grid {
	fields := []field{{"job", tUUID}, {"look_at", tTime}}
	if !whole {
		fields = fields[:1]
	}
	g := newGrid(fields...)
	g.keyedBy("job")
	for _, r := range rows {
		g.row()
		g.at(0).uuid(r.job)
		if whole {
			g.at(1).time(r.look)
		}
	}
	return g
}

func readyGrid(rows []readyRow) *grid {
	g := newGrid(field{"job", tUUID}, field{"idx", tInt4}, field{"agent", tText}, field{"lane", tInt8}, field{"ord", tInt8})
	g.keyedBy("agent")
	for _, r := range rows {
		g.row()
		g.at(0).uuid(r.Job)
		g.at(1).int4(r.Index)
		g.at(2).text(r.Agent)
		g.at(3).int8(int64(r.Lane))
		g.at(4).int8(r.Order)
	}
	return g
}

func dueGrid(rows []dueRow) *grid {
	g := newGrid(field{"job", tUUID}, field{"idx", tInt4}, field{"at", tTime})
	g.keyedBy("at")
	for _, r := range rows {
		g.row()
		g.at(0).uuid(r.Job)
		g.at(1).int4(r.Index)
		g.at(2).time(r.at)
	}
	return g
}

func permitGrid(rows []permitRow, whole bool) *grid {
	fields := []field{{"job", tUUID}, {"idx", tInt4}, {"name", tText}, {"key", tText}, {"amount", tInt4}}
	if !whole {
		fields = fields[:4]
	}
	g := newGrid(fields...)
	g.keyedBy("name")
	for _, r := range rows {
		g.row()
		g.at(0).uuid(r.Job)
		g.at(1).int4(r.Index)
		g.at(2).text(r.Name)
		g.at(3).text(r.Key)
		if whole {
			g.at(4).int4(r.Amount)
		}
	}
	return g
}
