package postgres

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// queueChanges collects what a Save changes in the queue tables: for each row of step, the entries that it had and the
// entries that it has now. A row without entries costs nothing here.
type queueChanges struct {
	tx       *tx
	capacity int // for lists of steps

	newOpen                []openEntry // for new jobs
	putOpen, delOpen       []openEntry // put: inserted, or updated if there is an entry
	putException           []exceptionEntry
	delException           []exceptionEntry
	newReady               []cache.ReadyEntry
	putReady, delReady     []cache.ReadyEntry
	putDue, delDue         []dueEntry
	putPermits, delPermits []permitEntry
	putWaiter, delWaiter   []waiterEntry
	putLine, delLine       []kernel.LineEntry
	limits                 map[string]bool // names of the defined limits; nil: not needed so far
	started                []inFlightEntry // dispatched, or with another holder than before
	ended                  []kernel.StepRef
}

type openEntry struct {
	job      perdure.JobID
	deadline time.Time
}

type exceptionEntry struct {
	kind kernel.Exception
	job  perdure.JobID
}

type inFlightEntry struct {
	kernel.InFlightKey
	kernel.StepRef
}

type dueEntry struct {
	at time.Time
	kernel.StepRef
}

type waiterEntry struct {
	topic kernel.Topic
	kernel.StepRef
}

type permitEntry struct {
	kernel.Need
	kernel.StepRef
}

// openOf returns the entry of a job in table open; ok is false if it has none. A job with runs in flight is found by
// table out, unless it has a deadline that was not acted on.
func openOf(j *kernel.Job) (row openEntry, ok bool) {
	row = openEntry{j.ID, j.OverdueAt()}
	return row, j.Phase != perdure.Settled && (j.Running == 0 || !row.deadline.IsZero())
}

// jobChanged adds what a change of a job's row changes; was is nil if the row is new.
func (d *queueChanges) jobChanged(was, now *kernel.Job) {
	row, open := openOf(now)
	var before openEntry
	wasOpen := false
	if was != nil {
		before, wasOpen = openOf(was)
	}
	switch {
	case open && was == nil:
		d.newOpen = append(d.newOpen, row)
	case open && (!wasOpen || !before.deadline.Equal(row.deadline)):
		d.putOpen = append(d.putOpen, row)
	case wasOpen && !open:
		d.delOpen = append(d.delOpen, openEntry{job: now.ID})
	}
	d.exceptionsChanged(was, now)
	d.permitsChanged(kernel.StepRef{Job: now.ID}, heldBy(was), heldBy(now))
}

// heldBy returns the permits that a job holds; nil: there is none.
func heldBy(j *kernel.Job) kernel.Permits {
	if j == nil || !j.HasPermit {
		return kernel.Permits{}
	}
	return kernel.Permits{Type: j.Type, Job: j.Needs}
}

// exceptionsChanged adds what a change of a job's row changes in table exception.
func (d *queueChanges) exceptionsChanged(was, now *kernel.Job) {
	var before kernel.Exceptions
	if was != nil {
		before = kernel.ExceptionsOf(was)
	}
	after := kernel.ExceptionsOf(now)
	if before == after {
		return
	}
	had, has := before.List(), after.List()
	for _, kind := range had {
		if !slices.Contains(has, kind) {
			d.delException = append(d.delException, exceptionEntry{kind, now.ID})
		}
	}
	for _, kind := range has {
		if !slices.Contains(had, kind) {
			d.putException = append(d.putException, exceptionEntry{kind, now.ID})
		}
	}
}

// enterLane adds the lane of a step that is ready.
func (d *queueChanges) enterLane(s *kernel.Step) {
	if s.Needs == "" {
		return
	}
	if lane, ok := kernel.LaneFor(s); ok {
		d.tx.hasLanes = true
		d.tx.lanes.enter(lane)
		d.tx.shares.enter(&lane)
	}
}

// permitsChanged adds the permits that a row acquires and releases, of those that are stored.
func (d *queueChanges) permitsChanged(ref kernel.StepRef, was, now kernel.Permits) {
	if was == now || len(d.tx.limits) == 0 && was.Needs == "" && now.Needs == "" && was.Job == "" && now.Job == "" {
		return
	}
	if d.limits == nil {
		d.limits = d.tx.limitNames()
	}
	had, has := was.List(), now.List()
	for _, n := range had {
		if n.Kept(d.limits) && !slices.Contains(has, n) {
			d.delPermits = append(d.delPermits, permitEntry{n, ref})
		}
	}
	for _, n := range has {
		if n.Kept(d.limits) && !slices.Contains(had, n) {
			d.putPermits = append(d.putPermits, permitEntry{n, ref})
		}
	}
}

// lineChanged adds the places in lines that a step gets and leaves.
func (d *queueChanges) lineChanged(ref kernel.StepRef, was, now kernel.Needs) {
	left, entered := kernel.LineChanges(ref, was, now)
	d.delLine, d.putLine = append(d.delLine, left...), append(d.putLine, entered...)
}

// stepChanged adds what a change of a step's row changes; was is nil if the row is new.
func (d *queueChanges) stepChanged(was, now *kernel.Step) {
	readyNow := kernel.ReadyOf(now)
	if was == nil {
		was = &kernel.Step{} // a step without entries
		if readyNow.Ready {
			d.newReady = appendTo(d.newReady, d.capacity, cache.ReadyEntry{ReadyKey: readyNow, StepRef: now.StepRef})
			d.enterLane(now)
			d.lineChanged(now.StepRef, "", kernel.LineOf(now))
			return
		}
	}
	if readyWas := kernel.ReadyOf(was); readyWas != readyNow {
		if readyWas.Ready {
			d.delReady = appendTo(d.delReady, d.capacity, cache.ReadyEntry{ReadyKey: readyWas, StepRef: now.StepRef})
			if !readyWas.Lane.Plain() {
				d.tx.lanes.leave(kernel.LaneRef{Agent: readyWas.Agent, Lane: readyWas.Lane})
				d.tx.shares.leaveLane(was)
			}
		}
		if readyNow.Ready {
			d.putReady = appendTo(d.putReady, d.capacity, cache.ReadyEntry{ReadyKey: readyNow, StepRef: now.StepRef})
			d.enterLane(now)
		}
	}
	if dueWas, dueNow := kernel.DueOf(was), kernel.DueOf(now); dueWas.UnixMicro() != dueNow.UnixMicro() {
		if !dueWas.IsZero() {
			d.delDue = append(d.delDue, dueEntry{dueWas, now.StepRef})
		}
		if !dueNow.IsZero() {
			d.putDue = append(d.putDue, dueEntry{dueNow, now.StepRef})
		}
	}
	if waitedFor, waitsFor := kernel.WaitingOf(was), kernel.WaitingOf(now); waitedFor != waitsFor {
		if waitedFor != "" {
			d.delWaiter = append(d.delWaiter, waiterEntry{waitedFor, now.StepRef})
		}
		if waitsFor != "" {
			d.putWaiter = append(d.putWaiter, waiterEntry{waitsFor, now.StepRef})
		}
	}
	d.lineChanged(now.StepRef, kernel.LineOf(was), kernel.LineOf(now))
	d.permitsChanged(now.StepRef, kernel.PermitsOf(was, nil), kernel.PermitsOf(now, nil))
	flyingWas, flyingNow := kernel.InFlightOf(was), kernel.InFlightOf(now)
	if flyingWas.Covers(flyingNow) {
		return
	}
	if flyingWas.InFlight {
		d.ended = appendTo(d.ended, d.capacity, now.StepRef)
	}
	if flyingNow.InFlight {
		d.started = appendTo(d.started, d.capacity, inFlightEntry{flyingNow, now.StepRef})
	}
}

// appendTo allocates a list with its expected capacity, because most changes of a Save are of one kind.
func appendTo[T any](list []T, most int, v T) []T {
	if list == nil {
		list = make([]T, 0, most)
	}
	return append(list, v)
}

// statements deletes entries before it inserts others. For rows that are updated, an entry may exist already or be
// missing already: queue tables follow the rows, and a wrong entry is corrected so. The entry of a new row must not
// exist. An entry that is deleted by its position must still be there; otherwise the transaction is retried.
func (d *queueChanges) statements() (list []*pgwire.Statement) {
	if len(d.delOpen) > 0 {
		list = append(list, openGrid(d.delOpen, false).Remove("open"))
	}
	if len(d.delException) > 0 {
		list = append(list, exceptionGrid(d.delException).Remove("exception"))
	}
	list = append(list, d.deleteReady()...)
	if len(d.delDue) > 0 {
		list = append(list, dueGrid(d.delDue).Remove("due"))
	}
	if len(d.delPermits) > 0 {
		list = append(list, permitGrid(d.delPermits, false).Remove("permit"))
	}
	if len(d.delWaiter) > 0 {
		list = append(list, waiterGrid(d.delWaiter).Remove("waiter"))
	}
	if len(d.delLine) > 0 {
		list = append(list, lineGrid(d.delLine).Remove("line"))
	}
	const there = " on conflict do nothing"
	if len(d.putLine) > 0 {
		list = append(list, lineGrid(d.putLine).Insert("line", there))
	}
	if len(d.putWaiter) > 0 {
		list = append(list, waiterGrid(d.putWaiter).Insert("waiter", there))
	}
	if len(d.putException) > 0 {
		list = append(list, exceptionGrid(d.putException).Insert("exception", there))
	}
	if len(d.newOpen) > 0 {
		list = append(list, openGrid(d.newOpen, true).Insert("open", ""))
	}
	if len(d.newReady) > 0 {
		d.tx.cache.Marks.AddReady(d.newReady)
		list = append(list, readyGrid(d.newReady).Insert("ready", ""))
	}
	if len(d.putOpen) > 0 {
		list = append(list, openGrid(d.putOpen, true).Insert("open", " on conflict (job) do update set look_at = excluded.look_at"))
	}
	if len(d.putReady) > 0 {
		d.tx.cache.Marks.AddReady(d.putReady)
		list = append(list, readyGrid(d.putReady).Insert("ready", there))
	}
	if len(d.putDue) > 0 {
		list = append(list, dueGrid(d.putDue).Insert("due", there))
	}
	if len(d.putPermits) > 0 {
		list = append(list, permitGrid(d.putPermits, true).Insert("permit", there))
	}
	return append(list, setStatements(&d.tx.cache.Sets, d.started, d.ended)...)
}

// deleteReady deletes the entries of steps that are no longer ready. Entries that this transaction has found are deleted
// by their position, the others by their key. If one has moved, the transaction is retried.
func (d *queueChanges) deleteReady() (list []*pgwire.Statement) {
	var others []cache.ReadyEntry
	g := queuedGrid()
	for _, r := range d.delReady {
		at, found := d.tx.readyRows[r.StepRef]
		if !found {
			others = append(others, r)
			continue
		}
		delete(d.tx.readyRows, r.StepRef)
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

func openGrid(rows []openEntry, whole bool) *pgwire.Grid {
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
			g.At(1).Time(r.deadline)
		}
	}
	return g
}

func exceptionGrid(rows []exceptionEntry) *pgwire.Grid {
	g := pgwire.NewGrid(pgwire.Int2.Named("kind"), pgwire.UUID.Named("job"))
	g.KeyedBy("kind")
	for _, r := range rows {
		g.Row()
		g.At(0).Int2(int(r.kind))
		g.At(1).UUID(r.job)
	}
	return g
}

func readyGrid(rows []cache.ReadyEntry) *pgwire.Grid {
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

func dueGrid(rows []dueEntry) *pgwire.Grid {
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

func waiterGrid(rows []waiterEntry) *pgwire.Grid {
	g := pgwire.NewGrid(pgwire.UUID.Named("job"), pgwire.Int4.Named("idx"), pgwire.Text.Named("topic"))
	g.KeyedBy("topic")
	for _, r := range rows {
		g.Row()
		g.At(0).UUID(r.Job)
		g.At(1).Int4(r.Index)
		g.At(2).Text(string(r.topic))
	}
	return g
}

func lineGrid(rows []kernel.LineEntry) *pgwire.Grid {
	g := pgwire.NewGrid(pgwire.UUID.Named("job"), pgwire.Int4.Named("idx"), pgwire.Text.Named("name"), pgwire.Text.Named("key"), pgwire.Int2.Named("rank"))
	g.KeyedBy("name")
	for _, r := range rows {
		g.Row()
		g.At(0).UUID(r.Job)
		g.At(1).Int4(r.Index)
		g.At(2).Text(r.Name)
		g.At(3).Text(r.Key)
		g.At(4).Int2(int(r.Rank))
	}
	return g
}

func permitGrid(rows []permitEntry, whole bool) *pgwire.Grid {
	fields := []pgwire.Field{pgwire.UUID.Named("job"), pgwire.Int4.Named("idx"), pgwire.Text.Named("name"), pgwire.Text.Named("key"), pgwire.Int4.Named("amount")}
	if !whole {
		fields = fields[:4]
	}
	g := pgwire.NewGrid(fields...)
	g.KeyedBy("name")
	for _, r := range rows {
		g.Row()
		g.At(0).UUID(r.Job)
		g.At(1).Int4(r.PermitIndex(r.Index))
		g.At(2).Text(r.Name)
		g.At(3).Text(r.Key)
		if whole {
			g.At(4).Int4(r.Amount)
		}
	}
	return g
}
