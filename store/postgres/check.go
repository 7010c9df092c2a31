package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
	"github.com/perdure/perdure/store/internal/check"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	beginCheckSQL = "begin isolation level repeatable read read only"
	// A check may take as long as it needs, and the planner may build a hash table of the runs in flight.
	checkSettings = "select set_config('statement_timeout', '0', true), set_config('enable_hashjoin', 'on', true)"
)

// Check compares the queue tables with what the kernel computes from the rows of step (check.Run), and looks for shapes,
// inputs and labels that are missing. It reads page by page, each page in a snapshot of its own: no snapshot is held for
// long. In table out, entries of runs that have ended are allowed, and in table lane, places that are too early.
func (s *Store) Check(ctx context.Context) ([]string, error) {
	c := &checking{ctx: ctx, store: s}
	faults, err := check.Run(func(fn func(check.Source) error) error {
		return c.snapshot(func() error { return fn(c) })
	})
	if err == nil && len(faults) < check.MaxFaults {
		err = c.lost(&faults)
	}
	return faults, err
}

// checking is a check.Source on the latest snapshot.
type checking struct {
	ctx   context.Context
	store *Store
	read  func(...*pgwire.Statement) error
}

// snapshot calls fn. All reads of fn see the same state of the database.
func (c *checking) snapshot(fn func() error) error {
	conn, err := c.store.acquire(c.ctx)
	if err != nil {
		return giveUpOn(err)
	}
	defer conn.Release()
	c.read = func(list ...*pgwire.Statement) error { return pgwire.RoundTrip(c.ctx, conn.Conn(), list...) }
	if err = c.read(pgwire.New(beginCheckSQL), pgwire.New(c.store.settings), pgwire.New(checkSettings)); err == nil {
		err = fn()
	}
	if !conn.Conn().IsClosed() {
		if failed := pgwire.RoundTrip(context.WithoutCancel(c.ctx), conn.Conn(), pgwire.New("rollback")); err == nil {
			err = failed
		}
	}
	return giveUpOn(judge(err, conn))
}

// ——— rows ———

var (
	checkRowsSQL   = "select " + names(rowColumns, "") + " from perdure.step where (job, idx) > ($1, $2) order by job, idx limit $3"
	checkRowsOfSQL = "select " + names(rowColumns, "s.") + ` from (select distinct * from unnest($1::uuid[], $2::int[]) as u (job, idx)) r
		cross join lateral (select * from perdure.step where job = r.job and idx = r.idx offset 0) s`
)

func (c *checking) Rows(after kernel.StepRef, max int) ([]check.Row, error) {
	return c.rows(pgwire.New(checkRowsSQL).UUID(after.Job).Int(after.Index).Int(max))
}

func (c *checking) RowsOf(refs []kernel.StepRef) ([]check.Row, error) {
	return c.rows(stepRefs(pgwire.New(checkRowsOfSQL), refs))
}

func (c *checking) rows(st *pgwire.Statement) (rows []check.Row, err error) {
	err = c.read(st.Each(func(r *pgwire.Reader) error {
		row := check.Row{Job: &kernel.Job{}}
		err := scan(r, rowColumns, row.Job, &row.Step)
		if row.Step.Index != 0 {
			row.Job = nil
		}
		rows = append(rows, row)
		return err
	}))
	return rows, err
}

func (c *checking) Limits() (map[string]bool, error) {
	defined := map[string]bool{}
	err := c.read(pgwire.New(limitsSQL).Each(func(r *pgwire.Reader) error {
		defined[scanLimit(r).Name] = true
		return nil
	}))
	return defined, err
}

// ——— entries ———

func (c *checking) Open(j *kernel.Job) (time.Time, bool) {
	entry, ok := openOf(j)
	return entry.deadline, ok
}

// checkSQL are two statements for each queue table: one reads the entries of given rows by their keys, the other reads
// the entries after a given one (out and lane have none). $1 and $2 are the jobs and indexes of the rows; the columns of
// the key follow from $3 on.
var checkSQL = [...]struct{ stored, page string }{
	check.Open: {
		`select job, 0, look_at from perdure.open where job = any($1)`,
		`select job, 0, look_at from perdure.open where job > ($1::uuid[])[1] order by job limit %d`,
	},
	check.Exception: {
		`select e.job, 0, e.kind from unnest($1::uuid[], $2::int[], $3::smallint[]) as u (job, idx, kind)
			join perdure.exception e on e.kind = u.kind and e.job = u.job`,
		`select job, 0, kind from perdure.exception where (kind, job) > (($3::smallint[])[1], ($1::uuid[])[1]) order by kind, job limit %d`,
	},
	check.Ready: {
		`select r.job, r.idx, r.agent, r.lane, r.ord from unnest($1::uuid[], $2::int[], $3::text[], $4::bigint[], $5::bigint[]) as u (job, idx, agent, lane, ord)
			join perdure.ready r on r.agent = u.agent collate "C" and r.lane = u.lane and r.ord = u.ord and r.job = u.job and r.idx = u.idx`,
		`select job, idx, agent, lane, ord from perdure.ready
			where (agent, lane, ord, job, idx) > (($3::text[])[1], ($4::bigint[])[1], ($5::bigint[])[1], ($1::uuid[])[1], ($2::int[])[1])
			order by agent, lane, ord, job, idx limit %d`,
	},
	check.Lane: {
		stored: `select r.job, r.idx, l.agent, l.lane, l.class, l.type, l.limits, l.ord, l.job, l.idx
			from unnest($1::uuid[], $2::int[], $3::text[], $4::bigint[]) as r (job, idx, agent, lane)
			join perdure.lane l on l.agent = r.agent collate "C" and l.lane = r.lane`,
	},
	check.Due: {
		`select d.job, d.idx, d.at from unnest($1::uuid[], $2::int[], $3::timestamptz[]) as u (job, idx, at)
			join perdure.due d on d.at = u.at and d.job = u.job and d.idx = u.idx`,
		`select job, idx, at from perdure.due where (at, job, idx) > (($3::timestamptz[])[1], ($1::uuid[])[1], ($2::int[])[1])
			order by at, job, idx limit %d`,
	},
	check.InFlight: {
		stored: `select m.job, m.idx, o.agent, o.locked_by, o.request, o.until_at
			from perdure.out o cross join lateral unnest(o.jobs, o.idxs) as m (job, idx) where m.job = any($1)`,
	},
	check.Permit: {
		`select p.job, p.idx, p.name, p.key, p.amount from unnest($1::uuid[], $2::int[], $3::text[], $4::text[]) as u (job, idx, name, key)
			join perdure.permit p on p.name = u.name collate "C" and p.key = u.key collate "C" and p.job = u.job and p.idx = u.idx`,
		`select job, idx, name, key, amount from perdure.permit
			where (name, key, job, idx) > (($3::text[])[1], ($4::text[])[1], ($1::uuid[])[1], ($2::int[])[1]) order by name, key, job, idx limit %d`,
	},
	check.Waiter: {
		`select w.job, w.idx, w.topic from unnest($1::uuid[], $2::int[], $3::text[]) as u (job, idx, topic)
			join perdure.waiter w on w.topic = u.topic collate "C" and w.job = u.job and w.idx = u.idx`,
		`select job, idx, topic from perdure.waiter
			where (topic, job, idx) > (($3::text[])[1], ($1::uuid[])[1], ($2::int[])[1]) order by topic, job, idx limit %d`,
	},
	check.Line: {
		`select l.job, l.idx, l.name, l.key, l.rank from unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::smallint[]) as u (job, idx, name, key, rank)
			join perdure.line l on l.name = u.name collate "C" and l.key = u.key collate "C" and l.rank = u.rank and l.job = u.job and l.idx = u.idx`,
		`select job, idx, name, key, rank from perdure.line
			where (name, key, rank, job, idx) > (($3::text[])[1], ($4::text[])[1], ($5::smallint[])[1], ($1::uuid[])[1], ($2::int[])[1])
			order by name, key, rank, job, idx limit %d`,
	},
}

// byKey adds the rows and keys of a table's entries to a statement, as arrays.
func byKey(st *pgwire.Statement, t check.Table, entries []check.Entry) *pgwire.Statement {
	n := len(entries)
	cells := func(typ *pgwire.Type, put func(*pgwire.Cells, *check.Entry)) {
		var c pgwire.Cells
		for i := range entries {
			put(&c, &entries[i])
		}
		st.Array(typ, n, c)
	}
	cells(pgwire.UUID, func(c *pgwire.Cells, e *check.Entry) { c.UUID(e.Job) })
	cells(pgwire.Int4, func(c *pgwire.Cells, e *check.Entry) { c.Int4(e.Need.PermitIndex(e.Index)) })
	switch t {
	case check.Exception:
		cells(pgwire.Int2, func(c *pgwire.Cells, e *check.Entry) { c.Int2(int(e.Kind)) })
	case check.Ready:
		cells(pgwire.Text, func(c *pgwire.Cells, e *check.Entry) { c.Text(e.Ready.Agent) })
		cells(pgwire.Int8, func(c *pgwire.Cells, e *check.Entry) { c.Int8(int64(e.Ready.Lane)) })
		cells(pgwire.Int8, func(c *pgwire.Cells, e *check.Entry) { c.Int8(e.Ready.Order) })
	case check.Lane:
		cells(pgwire.Text, func(c *pgwire.Cells, e *check.Entry) { c.Text(e.Lane.Agent) })
		cells(pgwire.Int8, func(c *pgwire.Cells, e *check.Entry) { c.Int8(int64(e.Lane.Lane)) })
	case check.Due:
		cells(pgwire.Time, func(c *pgwire.Cells, e *check.Entry) { c.Moment(e.At) })
	case check.Permit:
		cells(pgwire.Text, func(c *pgwire.Cells, e *check.Entry) { c.Text(e.Need.Name) })
		cells(pgwire.Text, func(c *pgwire.Cells, e *check.Entry) { c.Text(e.Need.Key) })
	case check.Line:
		cells(pgwire.Text, func(c *pgwire.Cells, e *check.Entry) { c.Text(e.Need.Name) })
		cells(pgwire.Text, func(c *pgwire.Cells, e *check.Entry) { c.Text(e.Need.Key) })
		cells(pgwire.Int2, func(c *pgwire.Cells, e *check.Entry) { c.Int2(int(e.Need.Line)) })
	case check.Waiter:
		cells(pgwire.Text, func(c *pgwire.Cells, e *check.Entry) { c.Text(string(e.Topic)) })
	}
	return st
}

// scanEntry reads one entry as the statements of checkSQL select it.
func scanEntry(t check.Table) func(*pgwire.Reader) check.Entry {
	return func(r *pgwire.Reader) check.Entry {
		e := check.Entry{Table: t, StepRef: scanRef(r)}
		switch t {
		case check.Open, check.Due:
			e.At = r.Time()
		case check.Exception:
			e.Kind = kernel.Exception(r.Int())
		case check.Ready:
			e.Ready = kernel.ReadyKey{Ready: true, Agent: r.Text(), Lane: kernel.LaneID(r.Int64()), Order: r.Int64()}
		case check.Lane:
			e.Lane = kernel.Lane{LaneRef: kernel.LaneRef{Agent: r.Text(), Lane: kernel.LaneID(r.Int64())}, Class: kernel.LaneID(r.Int64()),
				Type: r.Text(), Needs: kernel.Needs(r.Text()), First: kernel.Candidate{Order: r.Int64(), StepRef: scanRef(r)}}
			of := kernel.LaneWith(e.Lane.Agent, e.Lane.Type, e.Lane.Needs)
			e.Lane.Kind, e.Lane.Share = of.Kind, of.Share
		case check.InFlight:
			e.Run = kernel.InFlightKey{InFlight: true, Agent: r.Text(), Holder: r.Text(), Request: r.Text(), Until: r.Time()}
		case check.Permit:
			k := kernel.LimitKey{Name: r.Text(), Key: r.Text()}
			e.StepRef, e.Need = kernel.StoredPermit(e.Job, e.Index, k, r.Int())
		case check.Line:
			e.Need = kernel.Need{LimitKey: kernel.LimitKey{Name: r.Text(), Key: r.Text()}, Line: kernel.LineRank(r.Int())}
		case check.Waiter:
			e.Topic = kernel.Topic(r.Text())
		}
		return e
	}
}

func (c *checking) Stored(want []check.Entry, has func(check.Entry)) error {
	of := map[check.Table][]check.Entry{}
	for _, e := range want {
		of[e.Table] = append(of[e.Table], e)
	}
	var list []*pgwire.Statement
	for t, entries := range of {
		scan := scanEntry(t)
		list = append(list, byKey(pgwire.New(checkSQL[t].stored), t, entries).Each(func(r *pgwire.Reader) error {
			has(scan(r))
			return nil
		}))
	}
	return c.read(list...)
}

func (c *checking) Entries(t check.Table, after *check.Entry, max int) (page []check.Entry, err error) {
	if checkSQL[t].page == "" {
		return nil, nil
	}
	if after == nil { // before all of them
		after = &check.Entry{At: time.Unix(0, 0), Ready: kernel.ReadyKey{Lane: math.MinInt64}}
	}
	err = c.read(pgwire.Into(byKey(pgwire.New(fmt.Sprintf(checkSQL[t].page, max)), t, []check.Entry{*after}), &page, scanEntry(t)))
	return page, err
}

// ——— bundles ———

// checkBundlesSQL reads bundles. For each of their jobs, 1 says that the job has a row.
const checkBundlesSQL = `select first, last, lane, ord, size, taken, array(
		select (exists (select from perdure.step where job = m.job and idx = 0))::int from unnest(b.jobs) with ordinality as m (job, n) order by m.n),
		agent, type, name, priority, ageing, shape, steps, created_at, jobs, hashes, inputs
	from perdure.bundle b where first > $1 order by first limit $2`

func (c *checking) Bundles(after perdure.JobID, max int) (page []check.Bundle, err error) {
	err = c.read(pgwire.Into(pgwire.New(checkBundlesSQL).UUID(after).Int(max), &page, func(r *pgwire.Reader) check.Bundle {
		b := check.Bundle{First: r.UUID(), Last: r.UUID(), Lane: kernel.LaneID(r.Int64()), Order: r.Int64(), Size: r.Int(), Open: bundle.Open{Taken: r.Int()}}
		for _, has := range r.Ints() {
			b.HasRow = append(b.HasRow, has != 0)
		}
		b.Bundle = scanBundle(r)
		return b
	}))
	return page, err
}

// ——— what is stored beside the rows, and is in no queue table ———

const (
	// lostSQL reports what is missing of the jobs after $1, at most $2 of them: a row for each job, with null if nothing
	// is missing.
	lostSQL = `
select f.job, 0, case
	when not exists (select from perdure.shape h where h.id = f.shape) then 'has lost its shape'
	when f.apart and not exists (select from perdure.payload y where y.job = f.job and y.idx = -1 and y.input is not null) then 'has lost its input'
	when exists (select from jsonb_each_text(f.labels) as l (name, value)
		where not exists (select from perdure.label b where b.name = l.name and b.value = l.value and b.job = f.job))
	then 'has a label that is missing in label' end
from (select * from perdure.step where job > $1 and idx = 0 order by job limit $2) f order by f.job`

	strayLabelsSQL = `select b.job, 0, 'is in label, and has no ' || b.name || '=' || b.value from perdure.label b
		where not exists (select from perdure.step s where s.job = b.job and s.idx = 0 and s.labels ->> b.name = b.value)`
)

// lost reports what is missing of jobs, and labels that belong to no job.
func (c *checking) lost(faults *[]string) error {
	var last perdure.JobID
	n := 0
	see := func(r *pgwire.Reader) error {
		n++
		ref := scanRef(r)
		last = ref.Job
		if fault := r.Text(); fault != "" && len(*faults) < check.MaxFaults {
			*faults = append(*faults, fmt.Sprintf("%s, step %d, %s", ref.Job, ref.Index, fault))
		}
		return nil
	}
	for n = lostPage; n == lostPage; {
		if err := c.snapshot(func() error {
			n = 0
			return c.read(pgwire.New(lostSQL).UUID(last).Int(lostPage).Each(see))
		}); err != nil {
			return err
		}
	}
	return c.snapshot(func() error {
		return c.read(pgwire.New(strayLabelsSQL).Each(see), pgwire.New(wrongSharesSQL).Each(func(r *pgwire.Reader) error {
			if fault := check.WrongShare(r.Text(), r.Text(), r.Text(), r.Bool()); len(*faults) < check.MaxFaults {
				*faults = append(*faults, fault)
			}
			return nil
		}))
	})
}

// wrongSharesSQL selects the shares that have open lanes without being marked as waiting, which hides their steps, and those of
// which two rows have different counts.
const wrongSharesSQL = `
select l.agent, min(l.limits), '', false from perdure.lane l where l.closed_name is null and l.class >= 0
and not exists (select from perdure.share s where s.class = l.class and s.agent = l.agent and s.waiting) group by l.agent, l.class
union all
select agent, '', min(value), true from perdure.share group by agent, share having min(served) <> max(served)
limit 1000`

// lostPage is how many jobs are read in one snapshot.
const lostPage = 5000
