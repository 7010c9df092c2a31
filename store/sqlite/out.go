package sqlite

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// What is out is found by sets: the runs that one Save lets out together. A row of step names its set, the
// set lists its rows, and what is so stands on the rows. Whoever changes a row joins or quits here; when the
// last run of a set has ended, the set goes.

// setOf is what the runs of a set have in common.
type setOf struct {
	agent, holder, request string
	until                  int64
}

// set is one that is being made.
type set struct {
	id int64
	setOf
	steps []byte
}

// sets is what a transaction does to them.
type sets struct {
	made  []*set        // by this Save, not written yet
	left  map[int64]int // how many runs are left, of those that were touched; below 0: to be counted
	ended []int64       // those that may be empty, of this Save
}

const (
	// maxSetSize bounds what is read to find one run of a set, maxOpenSets how many are looked at for one
	// to join: more would only make fewer of them.
	maxSetSize  = 1000
	maxOpenSets = 64
	uncounted   = math.MinInt32
)

// joinOrQuit keeps a row in the set in which it is to be found, as it is about to be written, and says whether that is another one.
func (tx *tx) joinOrQuit(k *kept, was, now *kernel.Step) (moved bool) {
	before, after := kernel.InFlightOf(was), kernel.InFlightOf(now)
	switch {
	case before.Covers(after): // neither is in flight, or a heartbeat
		return false
	case before.InFlight:
		tx.quit(k.out)
		k.out = 0
	}
	if after.InFlight {
		m := tx.join(after)
		m.add(k.id)
		k.out = m.id
	}
	return true
}

// join is the set of this Save for a step that is let out. Its row is added when it has a number.
func (tx *tx) join(k kernel.InFlightKey) *set {
	of := setOf{k.Agent, k.Holder, k.Request, k.Until.UnixMicro()}
	made := tx.sets.made
	for i := len(made) - 1; i >= max(0, len(made)-maxOpenSets); i-- {
		if made[i].setOf == of && len(made[i].steps) < 8*maxSetSize {
			return made[i]
		}
	}
	tx.store.lastOut++
	m := &set{id: tx.store.lastOut, setOf: of}
	tx.sets.made = append(made, m)
	return m
}

func (m *set) add(step int64) { m.steps = binary.LittleEndian.AppendUint64(m.steps, uint64(step)) }

func (tx *tx) quit(out int64) {
	s := &tx.sets
	n, known := s.left[out]
	if !known {
		if n, known = tx.store.left[out]; !known {
			n = uncounted
		}
		s.note(out, n)
	} else if n < 0 {
		return // it is to be counted already
	}
	if n > 0 {
		n--
		s.left[out] = n
	}
	if n <= 0 {
		s.ended = append(s.ended, out)
	}
}

func (s *sets) note(out int64, left int) {
	if s.left == nil {
		s.left = map[int64]int{}
	}
	s.left[out] = left
}

// saveSets writes the sets that this Save has made, and deletes those that it has emptied. The rows are
// written by now.
func (tx *tx) saveSets() error {
	s := &tx.sets
	for _, m := range s.made {
		if err := tx.exec(`INSERT INTO perdure_out (id, until_at, agent, locked_by, request, steps) VALUES (?, ?, ?, ?, ?, ?)`,
			m.id, m.until, m.agent, m.holder, m.request, m.steps); err != nil {
			return err
		}
		if _, quit := s.left[m.id]; !quit {
			s.note(m.id, len(m.steps)/8)
		}
	}
	for _, id := range s.ended {
		if s.left[id] < 0 {
			left, err := members(tx.c, `WHERE id = ?`, id)
			if err != nil {
				return err
			}
			s.left[id] = len(left)
		}
		if s.left[id] == 0 {
			if err := tx.exec(`DELETE FROM perdure_out WHERE id = ?`, id); err != nil {
				return err
			}
		}
	}
	s.made, s.ended = s.made[:0], s.ended[:0]
	return nil
}

// member is a run that is out.
type member struct {
	ref   kernel.StepRef
	until time.Time
}

// written is a set as it stands in the file.
type written struct {
	id    int64
	until int64
	steps []byte
	left  int // see earliest
}

// setsAtOnce is how many are read before they are looked into.
const setsAtOnce = 50

func readSet(r *row) written { return written{id: r.num(), until: r.num(), steps: r.bytes()} }

// members are the runs that are out, of the sets that fit.
func members(c *conn, where string, args ...any) ([]member, error) {
	found, err := all(c, readSet, `SELECT id, until_at, steps FROM perdure_out `+where, args...)
	if err != nil {
		return nil, err
	}
	var runs []member
	for _, w := range found {
		if runs, err = w.members(c, runs); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// step is the number of the i-th row.
func (w *written) step(i int) int64 { return int64(binary.LittleEndian.Uint64(w.steps[8*i:])) }

func (w *written) has(step int64) bool {
	for i := range len(w.steps) / 8 {
		if w.step(i) == step {
			return true
		}
	}
	return false
}

// members adds the runs of a set that are still out.
func (w *written) members(c *conn, to []member) ([]member, error) {
	for i := range len(w.steps) / 8 {
		m, err := w.member(c, i)
		if err != nil {
			return nil, err
		}
		if m != nil {
			to = append(to, *m)
		}
	}
	return to, nil
}

// member is the i-th run; nil where it is not out any more, or not of this set.
func (w *written) member(c *conn, i int) (*member, error) {
	found, err := all(c, func(r *row) member { return member{r.ref(), r.time()} },
		`SELECT job, idx, locked_until FROM perdure_step WHERE id = ? AND phase = 3 AND out = ?`,
		w.step(i), w.id)
	if len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// earliest puts a set to the time of the earliest of its runs, and says whether that is another; to none, if
// it has none.
func (w *written) earliest(runs []member) (moved bool) {
	was := w.until
	w.left, w.until = len(runs), math.MaxInt64
	for _, m := range runs {
		w.until = min(w.until, m.until.UnixMicro())
	}
	return w.until != was
}

// retime writes that.
func (tx *tx) retime(w written) error {
	tx.sets.note(w.id, w.left)
	if w.left == 0 {
		return tx.exec(`DELETE FROM perdure_out WHERE id = ?`, w.id)
	}
	return tx.exec(`UPDATE perdure_out SET until_at = ? WHERE id = ?`, w.until, w.id)
}

func compareMembers(a, b member) int {
	return cmp.Or(a.until.Compare(b.until), a.ref.Compare(b.ref))
}

func refsOf(runs []member) []kernel.StepRef {
	refs := make([]kernel.StepRef, len(runs))
	for i := range runs {
		refs[i] = runs[i].ref
	}
	slices.SortFunc(refs, kernel.StepRef.Compare)
	return refs
}

// mostRuns bounds what a look at what expires next reads. Where that is not enough, the answer is too early:
// whoever acts on it sets the sets' times right.
const mostRuns = 2000

// nextExpiry is when the first run expires, if that is before the time given.
func nextExpiry(c *conn, before time.Time) (next time.Time, err error) {
	read := 0
	for after := (written{until: math.MinInt64}); ; {
		found, err := all(c, readSet, `
			SELECT id, until_at, steps FROM perdure_out WHERE (until_at, id) > (?, ?) ORDER BY until_at, id LIMIT 1`, after.until, after.id)
		if err != nil || len(found) == 0 {
			return next, err
		}
		after = found[0]
		from := time.UnixMicro(after.until).UTC() // none of its runs expires before
		if !before.IsZero() && !from.Before(before) || !next.IsZero() && !from.Before(next) {
			return next, nil
		}
		for i := range len(after.steps) / 8 {
			if read++; read > mostRuns {
				return from, nil
			}
			m, err := after.member(c, i)
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
