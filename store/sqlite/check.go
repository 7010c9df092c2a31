package sqlite

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/check"
)

// Check reads the whole file in one transaction. It returns what SQLite's integrity check finds, or if that finds nothing, where the
// queue tables and columns do not agree with what the kernel computes from the rows of step (check.Run), and sets without runs.
func (s *Store) Check(ctx context.Context) (faults []string, err error) {
	err = s.with(ctx, func(c *conn) error {
		if err := c.exec(`BEGIN`); err != nil {
			return err
		}
		defer rollback(c)
		faults, err = all(c, (*row).text, `PRAGMA integrity_check(100)`)
		if len(faults) != 1 || faults[0] != "ok" || err != nil {
			return err // the rest would read the same pages
		}
		faults, err = checkQueues(c)
		return err
	})
	return faults, err
}

func checkQueues(c *conn) ([]string, error) {
	faults, err := check.Run(func(fn func(check.Source) error) error { return fn(checking{c}) })
	if err == nil && len(faults) < check.MaxFaults {
		err = emptySets(c, &faults)
	}
	if err == nil && len(faults) < check.MaxFaults {
		err = wrongShares(c, &faults)
	}
	return faults, err
}

// checking is a check.Source. The entries of ready steps, due steps and open jobs are columns of the row.
type checking struct{ *conn }

func (c checking) Rows(after kernel.StepRef, max int) ([]check.Row, error) {
	return c.rows(`WHERE (job, idx) > (?, ?) ORDER BY job, idx LIMIT ?`, after.Job[:], after.Index, max)
}

func (c checking) RowsOf(refs []kernel.StepRef) (rows []check.Row, err error) {
	for _, ref := range refs {
		found, err := c.rows(`WHERE job = ? AND idx = ?`, ref.Job[:], ref.Index)
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

func (c checking) rows(where string, args ...any) ([]check.Row, error) {
	return all(c.conn, func(r *row) check.Row {
		k := &storedRow{job: &kernel.Job{}}
		readStored(r, k)
		row, ref := check.Row{Step: k.step, Job: k.job}, k.step.StepRef
		if ref.Index != 0 {
			row.Job = nil
		}
		lane, order, due, open, deadline := kernel.LaneID(r.num()), r.nullNum(), r.time(), r.flag(), r.time()
		for _, kind := range (kernel.Exceptions{Parked: r.flag(), Undoing: r.flag(), NotDone: r.flag()}).List() {
			row.Entries = append(row.Entries, check.Entry{Table: check.Exception, StepRef: ref, Kind: kind})
		}
		if order != nil {
			row.Entries = append(row.Entries, check.Entry{Table: check.Ready, StepRef: ref, Ready: kernel.ReadyKey{Ready: true, Agent: k.step.Agent, Lane: lane, Order: *order}})
		}
		if !due.IsZero() {
			row.Entries = append(row.Entries, check.Entry{Table: check.Due, StepRef: ref, At: due})
		}
		if kernel.WaitingOf(&k.step) != "" {
			row.Entries = append(row.Entries, check.Entry{Table: check.Waiter, StepRef: ref, Topic: k.step.Topic})
		}
		if open || !deadline.IsZero() {
			row.Entries = append(row.Entries, check.Entry{Table: check.Open, StepRef: ref, At: deadline})
		}
		return row
	}, `SELECT `+bothSelect+`, lane, ready, due_at, open, look_at, parked, undoing, not_done FROM perdure_step `+where, args...)
}

func (checking) Open(j *kernel.Job) (time.Time, bool) {
	return j.OverdueAt(), j.Phase != perdure.Settled
}

func (c checking) Limits() (map[string]bool, error) {
	defined := map[string]bool{}
	err := each(c.conn, func(r *row) error { defined[r.text()] = true; return nil }, `SELECT name FROM perdure_limit`)
	return defined, err
}

func (c checking) Stored(want []check.Entry, has func(check.Entry)) error {
	for _, e := range want {
		found, err := c.stored(e)
		if err != nil {
			return err
		}
		for _, e := range found {
			has(e)
		}
	}
	return nil
}

// stored returns the entry of a row with the same key, if there is one.
func (c checking) stored(e check.Entry) ([]check.Entry, error) {
	job, idx := e.Job[:], e.Index
	switch e.Table {
	case check.InFlight:
		return all(c.conn, func(r *row) check.Entry {
			id := r.num()
			e.Run = kernel.InFlightKey{Agent: r.text(), Holder: r.text(), Request: r.text(), Until: r.time()}
			set := storedSet{steps: r.bytes()}
			e.Run.InFlight = set.has(id)
			return e
		}, `SELECT s.id, o.agent, o.locked_by, o.request, o.until_at, o.steps FROM perdure_step s JOIN perdure_out o ON o.id = s.out WHERE s.job = ? AND s.idx = ?`, job, idx)
	case check.Permit:
		return all(c.conn, func(r *row) check.Entry {
			e.Need.Amount = r.int()
			return e
		}, `SELECT amount FROM perdure_permit WHERE name = ? AND key = ? AND job = ? AND idx = ?`, e.Need.Name, e.Need.Key, job, e.Need.PermitIndex(idx))
	case check.Line:
		return all(c.conn, func(*row) check.Entry { return e },
			`SELECT 1 FROM perdure_line WHERE name = ? AND key = ? AND rank = ? AND job = ? AND idx = ?`, e.Need.Name, e.Need.Key, int(e.Need.Line), job, idx)
	case check.Lane:
		return all(c.conn, func(r *row) check.Entry {
			e.Lane = readLane(r)
			return e
		}, `SELECT `+laneColumns+` FROM perdure_lane WHERE agent = ? AND lane = ?`, e.Lane.Agent, int64(e.Lane.Lane))
	}
	return nil, nil // the entry is a column of the row
}

func (c checking) Entries(t check.Table, after *check.Entry, max int) ([]check.Entry, error) {
	if after == nil {
		after = &check.Entry{Lane: kernel.Lane{LaneRef: kernel.LaneRef{Lane: math.MinInt64}}}
	}
	switch t {
	case check.Permit:
		return all(c.conn, func(r *row) check.Entry {
			p := readPermit(r) // of a job: as that of its first step
			return check.Entry{Table: t, StepRef: p.StepRef, Need: p.Need}
		}, `SELECT name, key, job, idx, amount FROM perdure_permit WHERE (name, key, job, idx) > (?, ?, ?, ?) ORDER BY name, key, job, idx LIMIT ?`,
			after.Need.Name, after.Need.Key, after.Job[:], after.Need.PermitIndex(after.Index), max)
	case check.Line:
		return all(c.conn, func(r *row) check.Entry {
			need := kernel.Need{LimitKey: readLimitKey(r), Line: kernel.LineRank(r.int())}
			return check.Entry{Table: t, StepRef: r.ref(), Need: need}
		}, `SELECT name, key, rank, job, idx FROM perdure_line WHERE (name, key, rank, job, idx) > (?, ?, ?, ?, ?) ORDER BY name, key, rank, job, idx LIMIT ?`,
			after.Need.Name, after.Need.Key, int(after.Need.Line), after.Job[:], after.Index, max)
	case check.Lane: // the place of a closed lane is lowered, and not raised
		return all(c.conn, func(r *row) check.Entry {
			lane := readLane(r)
			return check.Entry{Table: t, StepRef: lane.First.StepRef, Lane: lane}
		}, `SELECT `+laneColumns+` FROM perdure_lane WHERE coalesce(closed_name, '') = '' AND (lane, agent) > (?, ?) ORDER BY lane, agent LIMIT ?`,
			int64(after.Lane.Lane), after.Lane.Agent, max)
	}
	return nil, nil
}

func (c checking) Bundles(after perdure.JobID, max int) ([]check.Bundle, error) {
	page, err := all(c.conn, func(r *row) check.Bundle {
		b := check.Bundle{First: r.id(), Last: r.id(), Lane: kernel.LaneID(r.num()), Order: r.num(), Size: r.int()}
		b.Open = readBundle(r)
		return b
	}, `SELECT first, last, lane, ord, size, `+bundleColumns+` FROM perdure_bundle WHERE first > ? ORDER BY first LIMIT ?`, after[:], max)
	for i := range page {
		b := &page[i]
		for _, j := range b.Jobs {
			has, err := one(c.conn, (*row).flag, `SELECT EXISTS (SELECT 1 FROM perdure_step WHERE job = ?)`, j.ID[:])
			if err != nil {
				return nil, err
			}
			b.HasRow = append(b.HasRow, has)
		}
	}
	return page, err
}

// emptySets reports sets without runs in flight: the transaction that ends the last run of a set must delete it.
func emptySets(c *conn, faults *[]string) error {
	return each(c, func(r *row) error {
		w := readSet(r)
		runs, err := w.runs(c, nil)
		if err == nil && len(runs) == 0 && len(*faults) < check.MaxFaults {
			*faults = append(*faults, fmt.Sprintf("set %d of runs: none of them is in flight", w.id))
		}
		return err
	}, `SELECT id, until_at, steps FROM perdure_out`)
}

// wrongShares adds the shares that have open lanes without being marked as waiting, which hides their steps, and those of which two
// rows have different counts.
func wrongShares(c *conn, faults *[]string) error {
	return each(c, func(r *row) error {
		if fault := check.WrongShare(r.text(), r.text(), r.text(), r.flag()); len(*faults) < check.MaxFaults {
			*faults = append(*faults, fault)
		}
		return nil
	}, `SELECT l.agent, min(l.limits), '', 0 FROM perdure_lane l WHERE l.closed_name IS NULL AND l.class >= 0
		AND NOT EXISTS (SELECT 1 FROM perdure_share s WHERE s.class = l.class AND s.agent = l.agent AND s.waiting = 1) GROUP BY l.agent, l.class
		UNION ALL
		SELECT agent, '', min(value), 1 FROM perdure_share GROUP BY agent, share HAVING min(served) <> max(served)
		LIMIT 1000`)
}
