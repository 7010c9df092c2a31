package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

func (tx *tx) UniqueJobs(keys []kernel.UniqueKey) (map[kernel.UniqueKey]kernel.UniqueJob, error) {
	found := map[kernel.UniqueKey]kernel.UniqueJob{}
	for _, k := range keys {
		if u, ok := tx.unique[k]; ok {
			found[k] = u
		}
	}
	return found, nil
}

func (tx *tx) saveUnique(c *kernel.Changes) error {
	for k, u := range tx.unique {
		if u.Until.IsZero() && slices.Contains(c.ReleaseUnique, u.Job) {
			remove(tx, tx.unique, k)
		}
	}
	for _, u := range c.Unique {
		if tx.unique[u.UniqueKey].Job != u.Replaces {
			return kernel.ErrStale
		}
		u.Until = storedTime(u.Until)
		set(tx, tx.unique, u.UniqueKey, u.UniqueJob)
	}
	return nil
}

func (tx *tx) DeleteUnique(now time.Time, max int) (int, error) {
	var old []kernel.UniqueJob
	for _, u := range tx.unique {
		if !u.Holds(now) {
			old = append(old, u)
		}
	}
	slices.SortFunc(old, func(a, b kernel.UniqueJob) int {
		return cmp.Or(a.Until.Compare(b.Until), a.UniqueKey.Compare(b.UniqueKey))
	})
	old = firstN(max, old)
	for _, u := range old {
		remove(tx, tx.unique, u.UniqueKey)
	}
	return len(old), nil
}
