package sqlite

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// Runs in flight are found by run sets: the runs that one Save dispatches together are one set. A row of step contains
// the number of its set, and the set lists its rows. The rows are authoritative. Every change of a row updates the sets
// here. When the last run of a set has ended, the set is deleted.

// runSetKey is what the runs of a set have in common.
type runSetKey struct {
	agent, holder, request string
	until                  int64
}

// runSet is a set that is being made.
type runSet struct {
	id int64
	runSetKey
	steps []byte
}

// runSetsTx is what a transaction changes about sets.
type runSetsTx struct {
	inserted   []*runSet     // by this Save, not written yet
	remaining  map[int64]int // number of runs in flight, of sets that were changed; negative: not counted
	maybeEmpty []int64       // sets of this Save
}

const (
	// maxSetSize bounds what is read to find one run of a set. maxOpenSets bounds how many new sets are searched for one
	// to join; with more, there would only be fewer sets.
	maxSetSize  = 1000
	maxOpenSets = 64
	notCounted  = math.MinInt32
)

// moveBetweenSets moves a row that is about to be written to the set in which it must be found, and reports whether that
// is another one.
func (tx *tx) moveBetweenSets(k *storedRow, was, now *kernel.Step) (moved bool) {
	before, after := kernel.InFlightOf(was), kernel.InFlightOf(now)
	switch {
	case before.Covers(after): // not in flight before and after, or a heartbeat
		return false
	case before.InFlight:
		tx.leaveSet(k.runSet)
		k.runSet = 0
	}
	if after.InFlight {
		m := tx.joinSet(after)
		m.add(k.id)
		k.runSet = m.id
	}
	return true
}

// joinSet returns the set of this Save for a run that is dispatched. The row is added to it when the row has a number.
func (tx *tx) joinSet(k kernel.InFlightKey) *runSet {
	of := runSetKey{k.Agent, k.Holder, k.Request, k.Until.UnixMicro()}
	made := tx.runSets.inserted
	for i := len(made) - 1; i >= max(0, len(made)-maxOpenSets); i-- {
		if made[i].runSetKey == of && len(made[i].steps) < 8*maxSetSize {
			return made[i]
		}
	}
	tx.store.lastRunSet++
	m := &runSet{id: tx.store.lastRunSet, runSetKey: of}
	tx.runSets.inserted = append(made, m)
	return m
}

func (m *runSet) add(step int64) { m.steps = binary.LittleEndian.AppendUint64(m.steps, uint64(step)) }

func (tx *tx) leaveSet(out int64) {
	s := &tx.runSets
	n, known := s.remaining[out]
	if !known {
		if n, known = tx.store.remaining[out]; !known {
			n = notCounted
		}
		s.setRemaining(out, n)
	} else if n < 0 {
		return // the set will be counted
	}
	if n > 0 {
		n--
		s.remaining[out] = n
	}
	if n <= 0 {
		s.maybeEmpty = append(s.maybeEmpty, out)
	}
}

func (s *runSetsTx) setRemaining(out int64, left int) {
	if s.remaining == nil {
		s.remaining = map[int64]int{}
	}
	s.remaining[out] = left
}

// saveSets inserts the sets that this Save has made, and deletes those that it has emptied. The rows are written before.
func (tx *tx) saveSets() error {
	s := &tx.runSets
	for _, m := range s.inserted {
		if err := tx.exec(`INSERT INTO perdure_out (id, until_at, agent, locked_by, request, steps) VALUES (?, ?, ?, ?, ?, ?)`,
			m.id, m.until, m.agent, m.holder, m.request, m.steps); err != nil {
			return err
		}
		if _, quit := s.remaining[m.id]; !quit {
			s.setRemaining(m.id, len(m.steps)/8)
		}
	}
	for _, id := range s.maybeEmpty {
		if s.remaining[id] < 0 {
			left, err := runsInFlight(tx.c, `WHERE id = ?`, id)
			if err != nil {
				return err
			}
			s.remaining[id] = len(left)
		}
		if s.remaining[id] == 0 {
			if err := tx.exec(`DELETE FROM perdure_out WHERE id = ?`, id); err != nil {
				return err
			}
		}
	}
	s.inserted, s.maybeEmpty = s.inserted[:0], s.maybeEmpty[:0]
	return nil
}

// inFlightRun is a run in flight.
type inFlightRun struct {
	ref   kernel.StepRef
	until time.Time
}

// storedSet is a set as it is in the file.
type storedSet struct {
	id        int64
	until     int64
	steps     []byte
	remaining int // see setEarliest
}

// setPage is how many sets are read at once.
const setPage = 50

func readSet(r *row) storedSet { return storedSet{id: r.num(), until: r.num(), steps: r.bytes()} }

// runsInFlight returns the runs in flight of the sets that match.
func runsInFlight(c *conn, where string, args ...any) ([]inFlightRun, error) {
	found, err := all(c, readSet, `SELECT id, until_at, steps FROM perdure_out `+where, args...)
	if err != nil {
		return nil, err
	}
	var runs []inFlightRun
	for _, w := range found {
		if runs, err = w.runs(c, runs); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// step returns the number of the i-th row.
func (w *storedSet) step(i int) int64 { return int64(binary.LittleEndian.Uint64(w.steps[8*i:])) }

func (w *storedSet) has(step int64) bool {
	for i := range len(w.steps) / 8 {
		if w.step(i) == step {
			return true
		}
	}
	return false
}

// runs appends the runs of a set that are still in flight.
func (w *storedSet) runs(c *conn, to []inFlightRun) ([]inFlightRun, error) {
	for i := range len(w.steps) / 8 {
		m, err := w.run(c, i)
		if err != nil {
			return nil, err
		}
		if m != nil {
			to = append(to, *m)
		}
	}
	return to, nil
}

// run returns the i-th run; nil if it is no longer in flight, or in another set.
func (w *storedSet) run(c *conn, i int) (*inFlightRun, error) {
	found, err := all(c, func(r *row) inFlightRun { return inFlightRun{r.ref(), r.time()} },
		`SELECT job, idx, locked_until FROM perdure_step WHERE id = ? AND phase = 3 AND out = ?`,
		w.step(i), w.id)
	if len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// setEarliest sets the time of a set to that of its earliest run, and reports whether it has changed. A set without runs
// gets the latest possible time.
func (w *storedSet) setEarliest(runs []inFlightRun) (moved bool) {
	was := w.until
	w.remaining, w.until = len(runs), math.MaxInt64
	for _, m := range runs {
		w.until = min(w.until, m.until.UnixMicro())
	}
	return w.until != was
}

// retime writes the time of a set.
func (tx *tx) retime(w storedSet) error {
	tx.runSets.setRemaining(w.id, w.remaining)
	if w.remaining == 0 {
		return tx.exec(`DELETE FROM perdure_out WHERE id = ?`, w.id)
	}
	return tx.exec(`UPDATE perdure_out SET until_at = ? WHERE id = ?`, w.until, w.id)
}

func compareRuns(a, b inFlightRun) int {
	return cmp.Or(a.until.Compare(b.until), a.ref.Compare(b.ref))
}

func refsOf(runs []inFlightRun) []kernel.StepRef {
	refs := make([]kernel.StepRef, len(runs))
	for i := range runs {
		refs[i] = runs[i].ref
	}
	slices.SortFunc(refs, kernel.StepRef.Compare)
	return refs
}

// maxReadRuns bounds what a search for the next expiry reads. If that is not enough, the result is too early, and the
// due scan that follows corrects the sets' times.
const maxReadRuns = 2000

// nextExpiry returns when the first run expires, if that is before the given time.
func nextExpiry(c *conn, before time.Time) (next time.Time, err error) {
	read := 0
	for after := (storedSet{until: math.MinInt64}); ; {
		found, err := all(c, readSet, `
			SELECT id, until_at, steps FROM perdure_out WHERE (until_at, id) > (?, ?) ORDER BY until_at, id LIMIT 1`, after.until, after.id)
		if err != nil || len(found) == 0 {
			return next, err
		}
		after = found[0]
		from := time.UnixMicro(after.until).UTC() // none of its runs expires earlier
		if !before.IsZero() && !from.Before(before) || !next.IsZero() && !from.Before(next) {
			return next, nil
		}
		for i := range len(after.steps) / 8 {
			if read++; read > maxReadRuns {
				return from, nil
			}
			m, err := after.run(c, i)
			if err != nil {
				return next, err
			}
			if m == nil {
				continue
			}
			if next = earlier(next, m.until); !from.Before(next) {
				return next, nil
			}
		}
	}
}
