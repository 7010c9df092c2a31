package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	checkPage = 5000
	maxFaults = 1000

	beginCheckSQL = "begin isolation level repeatable read read only"
	// A check may take as long as it needs, and may build a hash table of the runs in flight.
	checkSettings = "select set_config('statement_timeout', '0', true), set_config('enable_hashjoin', 'on', true)"
)

// Check compares the queue tables with what the kernel computes from the rows of step, in both directions: entries that
// are missing, and entries that belong to no row. In out, entries of runs that have ended are allowed.
//
// It reads page by page. Each page is read in a snapshot of its own, so that rows which change meanwhile cause no
// fault, and no snapshot is held for long.
func (s *Store) Check(ctx context.Context) ([]string, error) {
	c := &checking{store: s}
	err := c.rows(ctx)
	for _, strays := range []func(context.Context) error{c.strayOpen, c.strayReady, c.strayDue, c.strayPermits, c.strayLabels, c.bundles} {
		if err == nil {
			err = strays(ctx)
		}
	}
	if err == nil && len(c.faults) > maxFaults {
		return append(c.faults[:maxFaults], "and more"), nil
	}
	return c.faults, err
}

type checking struct {
	store   *Store
	faults  []string
	defined map[string]bool // the limits that are defined, in the present snapshot
}

func (c *checking) fault(ref kernel.StepRef, format string, args ...any) {
	if len(c.faults) <= maxFaults {
		c.faults = append(c.faults, fmt.Sprintf("%s, step %d, ", ref.Job, ref.Index)+fmt.Sprintf(format, args...))
	}
}

// snapshot calls fn, whose reads all see the same state of the database.
func (c *checking) snapshot(ctx context.Context, fn func(read func(...*pgwire.Statement) error) error) error {
	conn, err := c.store.acquire(ctx)
	if err != nil {
		return giveUpOn(err)
	}
	defer conn.Release()
	read := func(list ...*pgwire.Statement) error { return pgwire.RoundTrip(ctx, conn.Conn(), list...) }
	if err = read(pgwire.New(beginCheckSQL), pgwire.New(c.store.settings), pgwire.New(checkSettings)); err == nil {
		err = fn(read)
	}
	if !conn.Conn().IsClosed() {
		if failed := pgwire.RoundTrip(context.WithoutCancel(ctx), conn.Conn(), pgwire.New("rollback")); err == nil {
			err = failed
		}
	}
	return giveUpOn(judge(err, conn))
}

// ——— rows whose entries are missing ———

var checkRowsSQL = "select " + names(rowColumns, "") + " from perdure.step where (job, idx) > ($1, $2) order by job, idx limit $3"

// lostSQL finds what is stored beside the rows of a page, and is not an entry of a queue table.
const lostSQL = `
with first as (
	select * from perdure.step where (job, idx) > ($1, $2) and (job, idx) <= ($3, $4) and idx = 0
)
select f.job, f.idx, 'has lost its shape' from first f
where not exists (select from perdure.shape h where h.id = f.shape)
union all
select f.job, f.idx, 'has lost its input' from first f
where f.apart and not exists (select from perdure.payload y where y.job = f.job and y.idx = -1 and y.input is not null)
union all
select f.job, f.idx, 'has a label that is missing in label' from first f cross join lateral jsonb_each_text(f.labels) as l (name, value)
where not exists (select from perdure.label b where b.name = l.name and b.value = l.value and b.job = f.job)`

func (c *checking) rows(ctx context.Context) error {
	after := kernel.StepRef{Index: -1}
	for more := true; more; {
		err := c.snapshot(ctx, func(read func(...*pgwire.Statement) error) error {
			var page []*readRow
			err := read(pgwire.New(checkRowsSQL).UUID(after.Job).Int(after.Index).Int(checkPage).Each(scanRow(&page)), c.readLimits())
			if more = err == nil && len(page) == checkPage; err != nil || len(page) == 0 {
				return err
			}
			from := after
			after = page[len(page)-1].step.StepRef
			if err := c.missing(page, read); err != nil {
				return err
			}
			return read(pgwire.New(lostSQL).UUID(from.Job).Int(from.Index).UUID(after.Job).Int(after.Index).Each(func(r *pgwire.Reader) error {
				c.fault(scanRef(r), "%s", r.Text())
				return nil
			}))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checking) readLimits() *pgwire.Statement {
	c.defined = map[string]bool{}
	return pgwire.New(limitsSQL).Each(func(r *pgwire.Reader) error {
		c.defined[scanLimit(r).Name] = true
		return nil
	})
}

func scanRow(rows *[]*readRow) func(*pgwire.Reader) error {
	return func(r *pgwire.Reader) error {
		row := &readRow{}
		*rows = append(*rows, row)
		return scan(r, rowColumns, &row.job, &row.step)
	}
}

// first is the job of a first row, else nil.
func (r *readRow) first() *kernel.Job {
	if r.step.Index != 0 {
		return nil
	}
	return &r.job
}

const (
	haveOpenSQL  = "select job, look_at from perdure.open where job = any($1)"
	haveReadySQL = `select r.job, r.idx from unnest($1::text[], $2::bigint[], $3::bigint[], $4::uuid[], $5::int[]) as u (agent, lane, ord, job, idx)
		join perdure.ready r on r.agent = u.agent collate "C" and r.lane = u.lane and r.ord = u.ord and r.job = u.job and r.idx = u.idx`
	// A step whose lane is not there, or comes later, is hidden from searches.
	haveLaneSQL = `select r.job, r.idx from unnest($1::text[], $2::bigint[], $3::bigint[], $4::uuid[], $5::int[]) as r (agent, lane, ord, job, idx)
		join perdure.lane l on l.agent = r.agent collate "C" and l.lane = r.lane and (l.ord, l.job, l.idx) <= (r.ord, r.job, r.idx)`
	haveDueSQL = `select d.job, d.idx from unnest($1::timestamptz[], $2::uuid[], $3::int[]) as u (at, job, idx)
		join perdure.due d on d.at = u.at and d.job = u.job and d.idx = u.idx`
	haveOutSQL = `select m.job, m.idx, o.agent, o.locked_by, o.request, o.until_at
		from perdure.out o cross join lateral unnest(o.jobs, o.idxs) as m (job, idx) where m.job = any($1)`
	havePermitSQL = `select p.name, p.key, p.amount, p.job, p.idx from unnest($1::text[], $2::text[], $3::uuid[], $4::int[]) as u (name, key, job, idx)
		join perdure.permit p on p.name = u.name collate "C" and p.key = u.key collate "C" and p.job = u.job and p.idx = u.idx`
)

// missing compares the rows of a page with their entries.
func (c *checking) missing(page []*readRow, read func(...*pgwire.Statement) error) error {
	open := map[perdure.JobID]openRow{}
	lanes := map[kernel.StepRef]kernel.ReadyKey{}
	ready, due, flying := map[kernel.StepRef]readyRow{}, map[kernel.StepRef]dueRow{}, map[kernel.StepRef]inFlight{}
	permits := map[permitRow]bool{}
	for _, row := range page {
		s, j := &row.step, row.first()
		if j != nil {
			if entry, has := openOf(j); has {
				open[j.ID] = entry
			}
		}
		places := kernel.PlacesOf(s)
		if places.Ready.Ready {
			ready[s.StepRef] = readyRow{places.Ready, s.StepRef}
			if !places.Ready.Lane.Plain() {
				lanes[s.StepRef] = places.Ready
			}
		}
		if !places.DueAt.IsZero() {
			due[s.StepRef] = dueRow{places.DueAt, s.StepRef}
		}
		if places.InFlight.InFlight {
			flying[s.StepRef] = inFlight{places.InFlight, s.StepRef}
		}
		for _, n := range kernel.PermitsOf(s, j).List() {
			if n.Kept(c.defined) {
				permits[permitRow{n, s.StepRef}] = true
			}
		}
	}
	if err := read(append(c.have(open, ready, due, flying, permits), haveLanes(lanes)...)...); err != nil {
		return err
	}
	for ref := range lanes {
		c.fault(ref, "is ready, and its lane is missing in lane, or has a later place")
	}
	for id := range open {
		c.fault(kernel.StepRef{Job: id}, "is not settled, and is missing in open, or has another time there")
	}
	for ref := range ready {
		c.fault(ref, "is ready, and is missing in ready")
	}
	for ref := range due {
		c.fault(ref, "waits for a time, and is missing in due")
	}
	for ref := range flying {
		c.fault(ref, "is running, and is missing in out")
	}
	for p := range permits {
		c.fault(p.StepRef, "holds a permit of %s, and is missing in permit", p.LimitKey)
	}
	return nil
}

// have are statements that remove from the expected entries those that are there.
func (c *checking) have(open map[perdure.JobID]openRow, ready map[kernel.StepRef]readyRow, due map[kernel.StepRef]dueRow, flying map[kernel.StepRef]inFlight, permits map[permitRow]bool) (list []*pgwire.Statement) {
	if len(open) > 0 {
		ids := make([]perdure.JobID, 0, len(open))
		for id := range open {
			ids = append(ids, id)
		}
		list = append(list, uuids(pgwire.New(haveOpenSQL), ids).Each(func(r *pgwire.Reader) error {
			if id, look := perdure.JobID(r.UUID()), r.Time(); open[id].look.Equal(look) {
				delete(open, id)
			}
			return nil
		}))
	}
	if len(ready) > 0 {
		var agents, lanes, orders, jobs, idxs pgwire.Cells
		for _, k := range ready {
			agents.Text(k.Agent)
			lanes.Int8(int64(k.Lane))
			orders.Int8(k.Order)
			jobs.UUID(k.Job)
			idxs.Int4(k.Index)
		}
		n := len(ready)
		list = append(list, pgwire.New(haveReadySQL).Array(pgwire.Text, n, agents).Array(pgwire.Int8, n, lanes).Array(pgwire.Int8, n, orders).Array(pgwire.UUID, n, jobs).Array(pgwire.Int4, n, idxs).
			Each(func(r *pgwire.Reader) error {
				delete(ready, scanRef(r))
				return nil
			}))
	}
	if len(due) > 0 {
		var at, jobs, idxs pgwire.Cells
		for _, d := range due {
			at.Moment(d.at)
			jobs.UUID(d.Job)
			idxs.Int4(d.Index)
		}
		n := len(due)
		list = append(list, pgwire.New(haveDueSQL).Array(pgwire.Time, n, at).Array(pgwire.UUID, n, jobs).Array(pgwire.Int4, n, idxs).Each(func(r *pgwire.Reader) error {
			delete(due, scanRef(r))
			return nil
		}))
	}
	if len(flying) > 0 {
		refs := make([]kernel.StepRef, 0, len(flying))
		for ref := range flying {
			refs = append(refs, ref)
		}
		list = append(list, uuids(pgwire.New(haveOutSQL), jobsOf(refs)).Each(func(r *pgwire.Reader) error {
			ref := scanRef(r)
			entry := kernel.InFlightKey{InFlight: true, Agent: r.Text(), Holder: r.Text(), Request: r.Text(), Until: r.Time()}
			if run, expected := flying[ref]; expected && entry.Covers(run.InFlightKey) {
				delete(flying, ref)
			}
			return nil
		}))
	}
	if len(permits) > 0 {
		var limits, keys, jobs, idxs pgwire.Cells
		for p := range permits {
			limits.Text(p.Name)
			keys.Text(p.Key)
			jobs.UUID(p.Job)
			idxs.Int4(p.Index)
		}
		n := len(permits)
		list = append(list, pgwire.New(havePermitSQL).Array(pgwire.Text, n, limits).Array(pgwire.Text, n, keys).Array(pgwire.UUID, n, jobs).Array(pgwire.Int4, n, idxs).Each(func(r *pgwire.Reader) error {
			delete(permits, scanPermit(r))
			return nil
		}))
	}
	return list
}

// haveLanes removes the steps whose lanes are there.
func haveLanes(lanes map[kernel.StepRef]kernel.ReadyKey) []*pgwire.Statement {
	if len(lanes) == 0 {
		return nil
	}
	var agents, ids, ords, jobs, idxs pgwire.Cells
	for ref, key := range lanes {
		agents.Text(key.Agent)
		ids.Int8(int64(key.Lane))
		ords.Int8(key.Order)
		jobs.UUID(ref.Job)
		idxs.Int4(ref.Index)
	}
	n := len(lanes)
	return []*pgwire.Statement{pgwire.New(haveLaneSQL).Array(pgwire.Text, n, agents).Array(pgwire.Int8, n, ids).Array(pgwire.Int8, n, ords).Array(pgwire.UUID, n, jobs).Array(pgwire.Int4, n, idxs).Each(func(r *pgwire.Reader) error {
		delete(lanes, scanRef(r))
		return nil
	})}
}

// ——— entries that belong to no row ———

var rowsOfSQL = "select " + names(rowColumns, "s.") + ` from (select distinct * from unnest($1::uuid[], $2::int[]) as u (job, idx)) r
	cross join lateral (select * from perdure.step where job = r.job and idx = r.idx offset 0) s`

// strays reads a queue table page by page and compares each entry with its row, which is nil if there is none.
func strays[E any](ctx context.Context, c *checking, page func(after *E) *pgwire.Statement, scan func(*pgwire.Reader) E, ref func(E) kernel.StepRef, compare func(E, *readRow)) error {
	var last *E
	for more := true; more; {
		err := c.snapshot(ctx, func(read func(...*pgwire.Statement) error) error {
			var entries []E
			err := read(pgwire.Into(page(last), &entries, scan), c.readLimits())
			if more = err == nil && len(entries) == checkPage; err != nil || len(entries) == 0 {
				return err
			}
			last = &entries[len(entries)-1]
			refs := make([]kernel.StepRef, len(entries))
			for i, e := range entries {
				refs[i] = ref(e)
			}
			var rows []*readRow
			if err := read(stepRefs(pgwire.New(rowsOfSQL), refs).Each(scanRow(&rows))); err != nil {
				return err
			}
			byRef := make(map[kernel.StepRef]*readRow, len(rows))
			for _, row := range rows {
				byRef[row.step.StepRef] = row
			}
			for i, e := range entries {
				compare(e, byRef[refs[i]])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checking) strayOpen(ctx context.Context) error {
	return strays(ctx, c, func(after *openRow) *pgwire.Statement {
		if after == nil {
			after = &openRow{}
		}
		return pgwire.New("select job, look_at from perdure.open where job > $1 order by job limit $2").UUID(after.job).Int(checkPage)
	}, func(r *pgwire.Reader) openRow { return openRow{r.UUID(), r.Time()} },
		func(e openRow) kernel.StepRef { return kernel.StepRef{Job: e.job} },
		func(e openRow, row *readRow) {
			if row != nil {
				if entry, has := openOf(&row.job); has && entry.look.Equal(e.look) {
					return
				}
			}
			c.fault(kernel.StepRef{Job: e.job}, "is in open, and is settled, or out, or has another time")
		})
}

func (c *checking) strayReady(ctx context.Context) error {
	return strays(ctx, c, func(after *readyRow) *pgwire.Statement {
		if after == nil {
			after = &readyRow{ReadyKey: kernel.ReadyKey{Lane: math.MinInt64}}
		}
		return pgwire.New("select agent, lane, ord, job, idx from perdure.ready where (agent, lane, ord, job, idx) > ($1, $2, $3, $4, $5) order by agent, lane, ord, job, idx limit $6").
			Text(after.Agent).Int64(int64(after.Lane)).Int64(after.Order).UUID(after.Job).Int(after.Index).Int(checkPage)
	}, func(r *pgwire.Reader) readyRow {
		return readyRow{kernel.ReadyKey{Ready: true, Agent: r.Text(), Lane: kernel.LaneID(r.Int64()), Order: r.Int64()}, scanRef(r)}
	}, func(e readyRow) kernel.StepRef { return e.StepRef },
		func(e readyRow, row *readRow) {
			if row == nil || kernel.ReadyOf(&row.step) != e.ReadyKey {
				c.fault(e.StepRef, "is in ready, and is not")
			}
		})
}

func (c *checking) strayDue(ctx context.Context) error {
	return strays(ctx, c, func(after *dueRow) *pgwire.Statement {
		if after == nil {
			after = &dueRow{at: time.Unix(0, 0)}
		}
		return pgwire.New("select at, job, idx from perdure.due where (at, job, idx) > ($1, $2, $3) order by at, job, idx limit $4").
			Moment(after.at).UUID(after.Job).Int(after.Index).Int(checkPage)
	}, func(r *pgwire.Reader) dueRow { return dueRow{r.Time(), scanRef(r)} },
		func(e dueRow) kernel.StepRef { return e.StepRef },
		func(e dueRow, row *readRow) {
			if row == nil || !kernel.DueOf(&row.step).Equal(e.at) {
				c.fault(e.StepRef, "is in due, and does not wait for that time")
			}
		})
}

func (c *checking) strayPermits(ctx context.Context) error {
	return strays(ctx, c, func(after *permitRow) *pgwire.Statement {
		if after == nil {
			after = &permitRow{}
		}
		return pgwire.New("select name, key, amount, job, idx from perdure.permit where (name, key, job, idx) > ($1, $2, $3, $4) order by name, key, job, idx limit $5").
			Text(after.Name).Text(after.Key).UUID(after.Job).Int(after.Index).Int(checkPage)
	}, scanPermit, func(e permitRow) kernel.StepRef { return e.StepRef },
		func(e permitRow, row *readRow) {
			if row == nil || !e.Kept(c.defined) || !slices.Contains(kernel.PermitsOf(&row.step, row.first()).List(), e.Need) {
				c.fault(e.StepRef, "is in permit, and holds none of %s", e.LimitKey)
			}
		})
}

func scanPermit(r *pgwire.Reader) permitRow {
	return permitRow{kernel.Need{LimitKey: kernel.LimitKey{Name: r.Text(), Key: r.Text()}, Amount: r.Int()}, scanRef(r)}
}

const strayLabelsSQL = `select b.job, 0, 'is in label, and has no ' || b.name || '=' || b.value from perdure.label b
	where not exists (select from perdure.step s where s.job = b.job and s.idx = 0 and s.labels ->> b.name = b.value)`

func (c *checking) strayLabels(ctx context.Context) error {
	return c.snapshot(ctx, func(read func(...*pgwire.Statement) error) error {
		return read(pgwire.New(strayLabelsSQL).Each(func(r *pgwire.Reader) error {
			c.fault(scanRef(r), "%s", r.Text())
			return nil
		}))
	})
}

// checkBundlesSQL reads bundles; which of their jobs have rows is a bit for each.
const checkBundlesSQL = `select first, last, lane, ord, size, taken, array(
		select (exists (select from perdure.step where job = m.job and idx = 0))::int from unnest(b.jobs) with ordinality as m (job, n) order by m.n),
		agent, type, name, priority, ageing, shape, steps, created_at, jobs, hashes, inputs
	from perdure.bundle b where first > $1 order by first limit $2`

// bundles compares what is said of a bundle with what is in it, and looks for its jobs among the rows: those have one that have left.
func (c *checking) bundles(ctx context.Context) error {
	var after perdure.JobID
	for more := true; more; {
		more = false
		err := c.snapshot(ctx, func(read func(...*pgwire.Statement) error) error {
			return read(pgwire.New(checkBundlesSQL).UUID(after).Int(bundlesAtOnce).Each(func(r *pgwire.Reader) error {
				more = true
				after = r.UUID()
				last, lane, ord, size, taken, rows := perdure.JobID(r.UUID()), kernel.LaneID(r.Int64()), r.Int64(), r.Int(), r.Int(), r.Ints()
				b := scanBundle(r)
				sorted := slices.IsSortedFunc(b.Jobs, func(a, b bundle.Job) int { return a.ID.Compare(b.ID) })
				if n := len(b.Jobs); n == 0 || !sorted || n != size || taken < 0 || taken >= n || b.First() != after || b.Jobs[n-1].ID != last ||
					b.Lane() != lane || b.Candidate(0).Order != ord || bundle.Low(last) != bundle.Low(after) {
					c.fault(kernel.StepRef{Job: after}, "is the first of a bundle that is not what is said of it")
					return nil
				}
				for i, j := range b.Jobs {
					if has := rows[i] != 0; has != (i < taken) {
						c.fault(kernel.StepRef{Job: j.ID}, "is in a bundle and has a row, or has left it and has none")
					}
				}
				return nil
			}))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
