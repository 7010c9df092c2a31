package postgres

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
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
func (d *sides) statements() (list []*pgwire.Statement) {
	if len(d.closed) > 0 {
		list = append(list, openGrid(d.closed, false).Remove("open"))
	}
	list = append(list, d.leave()...)
	if len(d.undue) > 0 {
		list = append(list, dueGrid(d.undue).Remove("due"))
	}
	if len(d.freed) > 0 {
		list = append(list, permitGrid(d.freed, false).Remove("permit"))
	}
	const there = " on conflict do nothing"
	if len(d.bornOpen) > 0 {
		list = append(list, openGrid(d.bornOpen, true).Insert("open", ""))
	}
	if len(d.bornReady) > 0 {
		d.tx.cache.lanes.made(d.bornReady)
		list = append(list, readyGrid(d.bornReady).Insert("ready", ""))
	}
	if len(d.opened) > 0 {
		list = append(list, openGrid(d.opened, true).Insert("open", " on conflict (job) do update set look_at = excluded.look_at"))
	}
	if len(d.ready) > 0 {
		d.tx.cache.lanes.made(d.ready)
		list = append(list, readyGrid(d.ready).Insert("ready", there))
	}
	if len(d.due) > 0 {
		list = append(list, dueGrid(d.due).Insert("due", there))
	}
	if len(d.taken) > 0 {
		list = append(list, permitGrid(d.taken, true).Insert("permit", there))
	}
	return append(list, d.tx.cache.sets.statements(d.out, d.in)...)
}

// leave takes steps out of the queue: those that this transaction has found there where they are, the others
// by their key. Where one has moved, the transaction is tried again.
func (d *sides) leave() (list []*pgwire.Statement) {
	var others []readyRow
	g := queuedGrid()
	for _, r := range d.unready {
		at, found := d.tx.queued[r.StepRef]
		if !found {
			others = append(others, r)
			continue
		}
		delete(d.tx.queued, r.StepRef)
		g.Row()
		g.At(0).RowID(at)
		g.At(1).UUID(r.Job)
		g.At(2).Int4(r.Index)
	}
	if g.Len() > 0 {
		list = append(list, g.Remove("ready").Exact(g.Len()))
	}
	if len(others) > 0 {
		list = append(list, readyGrid(others).Remove("ready"))
	}
	return list
}

func queuedGrid() *pgwire.Grid {
	return pgwire.NewGrid(pgwire.TID.Named("ctid"), pgwire.UUID.Named("job"), pgwire.Int4.Named("idx"))
}

func openGrid(rows []openRow, whole bool) *pgwire.Grid {
	fields := []pgwire.Field{pgwire.UUID.Named("job"), pgwire.Time.Named("look_at")}
	if !whole {
		fields = fields[:1]
	}
	g := pgwire.NewGrid(fields...)
	g.KeyedBy("job")
	for _, r := range rows {
		g.Row()
		g.At(0).UUID(r.job)
		if whole {
			g.At(1).Time(r.look)
		}
	}
	return g
}

func readyGrid(rows []readyRow) *pgwire.Grid {
	g := pgwire.NewGrid(pgwire.UUID.Named("job"), pgwire.Int4.Named("idx"), pgwire.Text.Named("agent"), pgwire.Int8.Named("lane"), pgwire.Int8.Named("ord"))
	g.KeyedBy("agent")
	for _, r := range rows {
		g.Row()
		g.At(0).UUID(r.Job)
		g.At(1).Int4(r.Index)
		g.At(2).Text(r.Agent)
		g.At(3).Int8(int64(r.Lane))
		g.At(4).Int8(r.Order)
	}
	return g
}

func dueGrid(rows []dueRow) *pgwire.Grid {
	g := pgwire.NewGrid(pgwire.UUID.Named("job"), pgwire.Int4.Named("idx"), pgwire.Time.Named("at"))
	g.KeyedBy("at")
	for _, r := range rows {
		g.Row()
		g.At(0).UUID(r.Job)
		g.At(1).Int4(r.Index)
		g.At(2).Time(r.at)
	}
	return g
}

func permitGrid(rows []permitRow, whole bool) *pgwire.Grid {
	fields := []pgwire.Field{pgwire.UUID.Named("job"), pgwire.Int4.Named("idx"), pgwire.Text.Named("name"), pgwire.Text.Named("key"), pgwire.Int4.Named("amount")}
	if !whole {
		fields = fields[:4]
	}
	g := pgwire.NewGrid(fields...)
	g.KeyedBy("name")
	for _, r := range rows {
		g.Row()
		g.At(0).UUID(r.Job)
		g.At(1).Int4(r.Index)
		g.At(2).Text(r.Name)
		g.At(3).Text(r.Key)
		if whole {
			g.At(4).Int4(r.Amount)
		}
	}
	return g
}
