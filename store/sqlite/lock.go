package sqlite

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	driver "zombiezen.com/go/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// A write transaction has the whole file, so that locking a row means reading it. A row that it has read does not change
// until it writes the row, and need not be read again.

func (tx *tx) LockJobs(ids []perdure.JobID) ([]*kernel.Job, error) {
	s, err := tx.c.stmt(selectFirst)
	if err != nil {
		return nil, err
	}
	ids = unique(ids, perdure.JobID.Compare)
	jobs := make([]*kernel.Job, 0, len(ids))
	var copies slab[kernel.Job]
	for _, id := range ids {
		k, err := tx.load(s, kernel.StepRef{Job: id})
		if err != nil {
			return nil, err
		}
		if k != nil {
			j := copies.next()
			*j = *k.job
			j.Labels, j.States = maps.Clone(j.Labels), cloneOrNil(j.States) // inputs are never modified, and shared
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

func (tx *tx) TryLockJobs(ids []perdure.JobID) ([]*kernel.Job, error) { return tx.LockJobs(ids) }

func (tx *tx) LockLimits(names []string) ([]kernel.Limit, error) {
	var limits []kernel.Limit
	for _, name := range unique(names, cmp.Compare[string]) {
		found, err := all(tx.c, func(r *row) kernel.Limit {
			l := readLimit(r)
			l.Used, l.Bucket = r.int(), readBucket(r)
			return l
		}, `SELECT l.name, coalesce(max, -1), coalesce(per_key, -1), coalesce(rates, ''), iif(l.max IS NULL, 0, (SELECT coalesce(sum(amount), 0) FROM perdure_permit p WHERE p.name = l.name)),
			coalesce(b.full_at, 0), coalesce(b.permit, 0) FROM perdure_limit l LEFT JOIN perdure_bucket b ON b.name = l.name AND b.key = '' WHERE l.name = ?`, name)
		if err != nil {
			return nil, err
		}
		limits = append(limits, found...)
	}
	return limits, nil
}

func (tx *tx) Steps(refs []kernel.StepRef) ([]*kernel.Step, error) {
	first, err := tx.c.stmt(selectFirst)
	if err != nil {
		return nil, err
	}
	other, err := tx.c.stmt(selectOther)
	if err != nil {
		return nil, err
	}
	refs = unique(refs, kernel.StepRef.Compare)
	steps := make([]*kernel.Step, 0, len(refs))
	var copies slab[kernel.Step]
	for _, ref := range refs {
		s := other
		if ref.Index == 0 {
			s = first
		}
		k, err := tx.load(s, ref)
		if err != nil {
			return nil, err
		}
		if k != nil {
			st := copies.next()
			*st = k.step
			steps = append(steps, st)
		}
	}
	return steps, nil
}

func (tx *tx) StepsOf(job perdure.JobID) ([]*kernel.Step, error) {
	steps, err := all(tx.c, func(r *row) *kernel.Step {
		k := &storedRow{}
		readStored(r, k)
		ref := k.step.StepRef
		if there := tx.rows[ref]; there != nil {
			k = there
		} else if ref.Index > 0 { // a first row has more columns
			tx.store.take(ref) // otherwise the cache would keep the old version after this transaction changes the row
			tx.rows[ref] = k
		}
		st := k.step
		return &st
	}, `SELECT `+stepSelect+` FROM perdure_step WHERE job = ? ORDER BY idx`, job[:])
	if err != nil || len(steps) > 0 {
		return steps, err
	}
	return tx.Steps([]kernel.StepRef{{Job: job}}) // the job may be in a bundle
}

var (
	selectFirst = `SELECT ` + bothSelect + ` FROM perdure_step WHERE job = ? AND idx = 0`
	selectOther = `SELECT ` + stepSelect + ` FROM perdure_step WHERE job = ? AND idx = ?`
)

// load returns the row; nil if there is none.
func (tx *tx) load(s *driver.Stmt, ref kernel.StepRef) (*storedRow, error) {
	if k := tx.rows[ref]; k != nil {
		return k, nil
	}
	if k := tx.store.take(ref); k != nil {
		tx.rows[ref] = k
		return k, nil
	}
	if in, found := tx.bundles.found[ref.Job]; found && ref.Index == 0 { // nothing need be read
		return tx.rowOf(in), nil
	}
	if ref.Index == 0 && ref.Job.Compare(tx.store.newestJob) > 0 { // a new id: the job is probably about to be submitted
		return tx.bundledByThis(ref), nil
	}
	s.BindBytes(1, ref.Job[:])
	if ref.Index != 0 {
		s.BindInt64(2, int64(ref.Index))
	}
	more, err := s.Step()
	switch {
	case err != nil:
		return nil, err
	case !more:
		if err := s.Reset(); err != nil {
			return nil, err
		}
		return tx.bundled(ref)
	}
	k := newStoredRow(ref)
	r := row{s: s, words: tx.c.words}
	readStored(&r, k)
	if err := cmp.Or(r.err, s.Reset()); err != nil {
		return nil, err
	}
	tx.rows[ref] = k
	return k, nil
}

// row is load for one row.
func (tx *tx) row(ref kernel.StepRef) (*storedRow, error) {
	if k := tx.rows[ref]; k != nil {
		return k, nil
	}
	query := selectFirst
	if ref.Index != 0 {
		query = selectOther
	}
	s, err := tx.c.stmt(query)
	if err != nil {
		return nil, err
	}
	return tx.load(s, ref)
}

func (tx *tx) Payloads(refs []kernel.StepRef, maxBytes int) ([]kernel.Payload, error) {
	var payloads []kernel.Payload
	seen, read := make(map[kernel.StepRef]bool, len(refs)), 0
	for _, ref := range refs {
		switch {
		case seen[ref]:
			continue
		case read >= maxBytes:
			return payloads, nil
		}
		seen[ref] = true
		found, err := all(tx.c, readPayload, selectPayload, ref.Job[:], ref.Index)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			payloads = append(payloads, p)
			read += len(p.Input) + len(p.Output)
		}
	}
	return payloads, nil
}

const selectPayload = `SELECT job, idx, input, output FROM perdure_payload
	WHERE job = ? AND idx = ? AND (input IS NOT NULL OR output IS NOT NULL)`

func (tx *tx) Inputs(ids []perdure.JobID) (map[perdure.JobID]json.RawMessage, error) {
	found := map[perdure.JobID]json.RawMessage{}
	for _, id := range ids {
		in, err := one(tx.c, (*row).bytes, selectInput, id[:])
		if err != nil {
			return nil, err
		}
		if in != nil {
			found[id] = in
		}
	}
	return found, nil
}

const selectInput = `SELECT coalesce(input, (SELECT input FROM perdure_payload p WHERE p.job = s.job AND p.idx = -1)) FROM perdure_step s WHERE job = ? AND idx = 0`

func (tx *tx) Shapes(ids []kernel.ShapeID) (map[kernel.ShapeID][]byte, error) {
	found := map[kernel.ShapeID][]byte{}
	for _, id := range ids {
		text, err := one(tx.c, (*row).bytes, selectShape, id[:])
		if err != nil {
			return nil, err
		}
		if text != nil {
			found[id] = text
		}
	}
	return found, nil
}

const selectShape = `SELECT text FROM perdure_shape WHERE id = ?`

// slab allocates values in groups, and larger groups as more are needed.
type slab[T any] struct {
	free []T
	made int
}

const slabSize = 64

func (s *slab[T]) next() *T {
	if len(s.free) == 0 {
		s.made = max(1, min(2*s.made, slabSize))
		s.free = make([]T, s.made)
	}
	v := &s.free[0]
	s.free = s.free[1:]
	return v
}

// unique returns the values in order, each of them once.
func unique[T comparable](of []T, compare func(a, b T) int) []T {
	for i := 1; i < len(of); i++ {
		if compare(of[i-1], of[i]) >= 0 {
			return slices.Compact(slices.SortedFunc(slices.Values(of), compare))
		}
	}
	return of
}
