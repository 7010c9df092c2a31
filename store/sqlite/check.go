package sqlite

import (
	"context"
	"fmt"
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

// checkSides compares what is kept beside the rows with them.
func checkSides(c *conn, faults *[]string) error {
	for _, check := range []func(*conn, func(string, ...any)) error{checkFound, checkRuns, checkSets, checkPermits} {
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

// checkFound: what rows are found by says what they are.
func checkFound(c *conn, fault func(string, ...any)) error {
	return each(c, func(r *row) error {
		ref := r.ref()
		fault("%s/%d is not found by what it is", ref.Job, ref.Index)
		return nil
	}, `SELECT job, idx FROM perdure_step
		WHERE ready IS NOT iif(phase = 2, 9 - priority, NULL)
		OR due_at IS NOT iif(phase = 1, available_at, NULL)
		OR open IS NOT iif(job_phase <> 0, 1, NULL)
		OR look_at IS NOT iif(job_phase <> 0 AND overdue IS NULL AND parked_at IS NULL, job_complete_by, NULL)`)
}

// checkRuns: each run that is out is in its set, which lets it be found in time, and by who holds it.
func checkRuns(c *conn, fault func(string, ...any)) error {
	var set written
	var of setOf
	return each(c, func(r *row) error {
		k := kept{id: r.num(), out: r.num()}
		st := &k.step
		st.StepRef, st.Agent, st.LockedBy, st.Request, st.LockedUntil = r.ref(), r.word(), r.word(), r.word(), r.time()
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
		switch {
		case set.id == 0:
			fault("run of %s/%d: its set %d is not there", st.Job, st.Index, k.out)
		case !set.has(k.id):
			fault("run of %s/%d: it is not in its set %d", st.Job, st.Index, k.out)
		case of.agent != st.Agent || of.holder != st.LockedBy || of.request != st.Request:
			fault("run of %s/%d: its set %d is of %s %s %q", st.Job, st.Index, k.out, of.agent, of.holder, of.request)
		case set.until > st.LockedUntil.UnixMicro():
			fault("run of %s/%d: its set %d is looked at too late", st.Job, st.Index, k.out)
		}
		return nil
	}, `SELECT id, out, job, idx, agent, locked_by, request, locked_until FROM perdure_step WHERE phase = 3`)
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

// checkPermits: those of the limits that are defined are the rows that hold one.
func checkPermits(c *conn, fault func(string, ...any)) error {
	for _, q := range []struct{ what, query string }{
		{"is not counted", `
			SELECT l.name, s.job, s.idx FROM perdure_step s JOIN perdure_limit l ON l.name = 'job:' || s.type
			WHERE s.permit = 1 AND NOT EXISTS (SELECT 1 FROM perdure_permit p WHERE p.name = l.name AND p.job = s.job AND p.idx = s.idx)
			UNION ALL
			SELECT l.name, s.job, s.idx FROM perdure_step s JOIN perdure_limit l ON l.name = 'agent:' || s.agent
			WHERE s.phase = 3 AND NOT EXISTS (SELECT 1 FROM perdure_permit p WHERE p.name = l.name AND p.job = s.job AND p.idx = s.idx)`},
		{"is counted, and holds none", `
			SELECT p.name, p.job, p.idx FROM perdure_permit p
			WHERE NOT EXISTS (SELECT 1 FROM perdure_limit l WHERE l.name = p.name) OR NOT EXISTS (
				SELECT 1 FROM perdure_step s WHERE s.job = p.job AND s.idx = p.idx
				AND (p.name = 'job:' || s.type AND s.permit = 1 OR p.name = 'agent:' || s.agent AND s.phase = 3))`},
	} {
		err := each(c, func(r *row) error {
			name, ref := r.text(), r.ref()
			fault("permit of %s: %s/%d %s", name, ref.Job, ref.Index, q.what)
			return nil
		}, q.query)
		if err != nil {
			return err
		}
	}
	return nil
}
