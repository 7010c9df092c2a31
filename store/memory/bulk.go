package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// bulkAct is the row of a bulk act, with the jobs that it lists and its refusals.
type bulkAct struct {
	kernel.BulkAct
	listed   []perdure.JobID
	refusals []kernel.BulkRefusal
}

func copyBulkAct(b *kernel.BulkAct) kernel.BulkAct {
	c := *b
	c.Request = slices.Clone(b.Request)
	for _, t := range []*time.Time{&c.StartedAt, &c.UpdatedAt, &c.EndedAt, &c.ResumedAt} {
		*t = storedTime(*t)
	}
	return c
}

func (d *data) bulkAct(id string) *kernel.BulkAct {
	b, there := d.bulk[id]
	if !there {
		return nil
	}
	c := copyBulkAct(&b.BulkAct)
	return &c
}

func (tx *tx) LockBulkAct(id string) (*kernel.BulkAct, error) { return tx.bulkAct(id), nil }

func (tx *tx) BulkActByKey(key string) (*kernel.BulkAct, error) {
	for id, b := range tx.bulk {
		if key != "" && b.Key == key {
			return tx.bulkAct(id), nil
		}
	}
	return nil, nil
}

func (tx *tx) RunningBulkActs() (n int, err error) {
	for _, b := range tx.bulk {
		if b.State == operate.BulkRunning {
			n++
		}
	}
	return n, nil
}

func (tx *tx) AddBulkAct(b *kernel.BulkAct, listed []perdure.JobID) error {
	_, there := tx.bulk[b.ID]
	if same, _ := tx.BulkActByKey(b.Key); there || same != nil {
		tx.failed = kernel.ErrStale
		return tx.failed
	}
	set(tx, tx.bulk, b.ID, bulkAct{BulkAct: copyBulkAct(b), listed: slices.Clone(listed)})
	return nil
}

func (tx *tx) SaveBulkAct(b *kernel.BulkAct, refusals []kernel.BulkRefusal) error {
	row, there := tx.bulk[b.ID]
	if !there {
		tx.failed = kernel.ErrStale
		return tx.failed
	}
	was := row.BulkAct
	row.BulkAct = copyBulkAct(b)
	row.Key, row.Request, row.Author, row.Reason, row.Listed, row.Below, row.Expected, row.Capped, row.StartedAt =
		was.Key, was.Request, was.Author, was.Reason, was.Listed, was.Below, was.Expected, was.Capped, was.StartedAt
	row.refusals = append(slices.Clone(row.refusals), refusals...)
	set(tx, tx.bulk, b.ID, row)
	return nil
}

// BulkAct implements kernel.BulkReader.
func (s *Store) BulkAct(ctx context.Context, id string) (*kernel.BulkAct, error) {
	return view(ctx, s, func() *kernel.BulkAct { return s.bulkAct(id) })
}

// BulkActs implements kernel.BulkReader.
func (s *Store) BulkActs(ctx context.Context, f kernel.BulkFilter) ([]*kernel.BulkAct, error) {
	return view(ctx, s, func() (found []*kernel.BulkAct) {
		for _, id := range slices.Backward(slices.Sorted(maps.Keys(s.bulk))) {
			b := s.bulkAct(id)
			if (f.State == "" || b.State == f.State) && (f.Before == "" || id < f.Before) && len(found) < cmp.Or(f.Limit, perdure.DefaultListLimit) {
				found = append(found, b)
			}
		}
		return found
	})
}

// ListedJobs implements kernel.BulkReader.
func (s *Store) ListedJobs(ctx context.Context, id string, after perdure.JobID, max int) ([]perdure.JobID, error) {
	return view(ctx, s, func() []perdure.JobID {
		listed := slices.DeleteFunc(slices.Clone(s.bulk[id].listed), func(j perdure.JobID) bool { return j.Compare(after) <= 0 })
		return firstN(max, listed)
	})
}

// BulkRefusals implements kernel.BulkReader.
func (s *Store) BulkRefusals(ctx context.Context, id string, after, max int) ([]kernel.BulkRefusal, error) {
	return view(ctx, s, func() []kernel.BulkRefusal {
		later := firstN(max, slices.DeleteFunc(slices.Clone(s.bulk[id].refusals), func(r kernel.BulkRefusal) bool { return r.Number <= after }))
		for i := range later {
			if j := s.jobs[later[i].Job]; j != nil {
				later[i].Key = j.Key
			}
		}
		return later
	})
}

// Busy implements kernel.BulkReader.
func (s *Store) Busy(context.Context) (bool, error) { return false, nil }

// ForgetBulkActs implements kernel.BulkReader.
func (s *Store) ForgetBulkActs(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.Update(ctx, func(t kernel.Tx) error {
		tx := t.(*tx)
		n = 0
		for _, id := range slices.Sorted(maps.Keys(tx.bulk)) {
			if b := tx.bulk[id]; n < max && b.State != operate.BulkRunning && b.UpdatedAt.Before(before) {
				remove(tx, tx.bulk, id)
				n++
			}
		}
		return nil
	})
	return n, err
}
