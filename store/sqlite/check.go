package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
)

// maxFaults is how many are told of a kind.
const maxFaults = 100

// Check reads the whole file and says what is wrong with it, and where what rows are found by, the sets
// of runs and the permits do not say what the rows do; nothing, if it is sound. It reads row by row, all of it as it was at one time.
func (s *Store) Check(ctx context.Context) (faults []string, err error) {
	err = s.with(ctx, func(c *conn) error {
		if err := c.exec(`BEGIN`); err != nil {
			return err
		}
		defer rollback(c)
		faults, err = all(c, (*row).text, `PRAGMA integrity_check(100)`)
		if len(faults) != 1 || faults[0] != "ok" || err != nil {
			return err // what comes next would read the same pages
		}
		faults = nil
		return checkSides(c, &faults)
	})
	return faults, err
}

// checkSides compares the entries of queue tables with what the kernel computes from the rows.
func checkSides(c *conn, faults *[]string) error {
	for _, check := range []func(*conn, func(string, ...any)) error{checkColumns, checkRuns, checkSets, checkPermits, checkLanes, checkBundles} {
		n := 0
		err := check(c, func(format string, args ...any) {
			if n++; n <= maxFaults {
				*faults = append(*faults, fmt.Sprintf(format, args...))
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkColumns compares the columns by which rows are found: lane, ready, due_at, open, look_at.
func checkColumns(c *conn, fault func(string, ...any)) error {
	return eachRow(c, func(k *kept, r *row) {
		lane, order, due, open, look := kernel.LaneID(r.num()), r.nullNum(), r.time(), r.flag(), r.time()
		places := kernel.PlacesOf(&k.step)
		ok := due.Equal(places.DueAt) && (order != nil) == places.Ready.Ready && (order == nil || *order == places.Ready.Order) && lane == places.Ready.Lane
		if k.job != nil {
			ok = ok && open == (k.job.Phase != perdure.Settled) && look.Equal(k.job.OverdueAt())
		} else {
			ok = ok && !open && look.IsZero()
		}
		if !ok {
			fault("%s/%d is not found by what it is", k.step.Job, k.step.Index)
		}
	}, `, lane, ready, due_at, open, look_at`, ``)
}

// eachRow reads rows of step, and more of their columns.
func eachRow(c *conn, see func(*kept, *row), more, where string) error {
	return each(c, func(r *row) error {
		k := &kept{job: &kernel.Job{}}
		readKept(r, k)
		if k.step.Index != 0 {
			k.job = nil
		}
		see(k, r)
		return r.err
	}, `SELECT `+bothSelect+more+` FROM perdure_step `+where)
}

// checkRuns: each run in flight is in its set, which is found in time, and by its holder.
func checkRuns(c *conn, fault func(string, ...any)) error {
	var set written
	var of setOf
	return each(c, func(r *row) error {
		k := &kept{}
		readKept(r, k)
		ref, run := k.step.StepRef, kernel.InFlightOf(&k.step)
		if !run.InFlight {
			return nil
		}
		if set.id != k.out || set.id == 0 {
			found, err := all(c, func(r *row) written {
				w := readSet(r)
				of = setOf{agent: r.text(), holder: r.text(), request: r.text()}
				return w
			}, `SELECT id, until_at, steps, agent, locked_by, request FROM perdure_out WHERE id = ?`, k.out)
			if err != nil {
				return err
			}
			set = written{}
			if len(found) > 0 {
				set = found[0]
			}
		}
		entry := kernel.InFlightKey{InFlight: true, Agent: of.agent, Holder: of.holder, Request: of.request, Until: time.UnixMicro(set.until)}
		switch {
		case set.id == 0:
			fault("run of %s/%d: its set %d is not there", ref.Job, ref.Index, k.out)
		case !set.has(k.id):
			fault("run of %s/%d: it is not in its set %d", ref.Job, ref.Index, k.out)
		case !entry.Same(run):
			fault("run of %s/%d: its set %d is of %s %s %q", ref.Job, ref.Index, k.out, of.agent, of.holder, of.request)
		case !entry.Covers(run):
			fault("run of %s/%d: its set %d is looked at too late", ref.Job, ref.Index, k.out)
		}
		return nil
	}, `SELECT `+stepSelect+` FROM perdure_step `)
}

// checkSets: each set has a run that is out.
func checkSets(c *conn, fault func(string, ...any)) error {
	return each(c, func(r *row) error {
		w := readSet(r)
		runs, err := w.members(c, nil)
		if err == nil && len(runs) == 0 {
			fault("set %d of runs: none of them is out", w.id)
		}
		return err
	}, `SELECT id, until_at, steps FROM perdure_out`)
}

// checkPermits compares the permits that are kept with the rows that hold one.
func checkPermits(c *conn, fault func(string, ...any)) error {
	defined := map[string]bool{}
	stored := map[permit]bool{}
	if err := each(c, func(r *row) error { defined[r.text()] = true; return nil }, `SELECT name FROM perdure_limit`); err != nil {
		return err
	}
	if err := each(c, func(r *row) error { stored[readPermit(r)] = true; return nil }, `SELECT name, key, job, idx, amount FROM perdure_permit`); err != nil {
		return err
	}
	err := eachRow(c, func(k *kept, _ *row) {
		for _, n := range kernel.PermitsOf(&k.step, k.job).List() {
			p := permit{k.step.StepRef, n}
			if n.Kept(defined) && !stored[p] {
				fault("permit of %s: %s/%d is not counted", n.LimitKey, p.Job, p.Index)
			}
			if n.Kept(defined) {
				delete(stored, p)
			}
		}
	}, ``, ``)
	for p := range stored {
		fault("permit of %s: %s/%d is counted, and holds none", p.LimitKey, p.Job, p.Index)
	}
	return err
}

// checkLanes: each lane with a ready step is there, and is searched by its first one.
func checkLanes(c *conn, fault func(string, ...any)) error {
	firsts := map[kernel.LaneRef]kernel.Lane{}
	err := eachRow(c, func(k *kept, _ *row) {
		if lane, ok := kernel.LaneFor(&k.step); ok {
			if first, there := firsts[lane.LaneRef]; !there || kernel.ClaimLess(lane.First, first.First) < 0 {
				firsts[lane.LaneRef] = lane
			}
		}
	}, ``, `WHERE lane < 0 AND ready IS NOT NULL`)
	if err != nil {
		return err
	}
	err = each(c, func(r *row) error {
		lane := readLane(r)
		if r.text() == "" && firsts[lane.LaneRef] != lane {
			fault("lane of %s with %s: it is not what its steps say", lane.Agent, lane.Needs)
		}
		delete(firsts, lane.LaneRef)
		return r.err
	}, `SELECT `+laneColumns+`, coalesce(closed_name, '') FROM perdure_lane`)
	for _, lane := range firsts {
		fault("lane of %s with %s: it is not searched", lane.Agent, lane.Needs)
	}
	return err
}

// checkBundles compares what is said of a bundle with what is in it, and looks for its jobs among the rows: those have one that have
// left.
func checkBundles(c *conn, fault func(string, ...any)) error {
	return each(c, func(r *row) error {
		first, last, lane, ord, size := r.id(), r.id(), kernel.LaneID(r.num()), r.num(), r.int()
		o := readBundle(r)
		if r.err != nil {
			return r.err
		}
		sorted := slices.IsSortedFunc(o.Jobs, func(a, b bundle.Job) int { return a.ID.Compare(b.ID) })
		if n := len(o.Jobs); !sorted || n != size || o.Taken < 0 || o.Taken >= n || o.First() != first || o.Jobs[n-1].ID != last ||
			o.Lane() != lane || o.Candidate(0).Order != ord || bundle.Low(last) != bundle.Low(first) {
			fault("bundle of job %s: it is not what is said of it", first)
			return nil
		}
		for i, j := range o.Jobs {
			has, err := one(c, (*row).flag, `SELECT EXISTS (SELECT 1 FROM perdure_step WHERE job = ?)`, j.ID[:])
			if err != nil {
				return err
			}
			if has != (i < o.Taken) {
				fault("job %s is in a bundle and has a row, or has left it and has none", j.ID)
			}
		}
		return nil
	}, `SELECT first, last, lane, ord, size, `+bundleColumns+` FROM perdure_bundle`)
}
