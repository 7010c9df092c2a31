package memory

import (
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// LockTopics locks nothing: the whole store is locked while a tx is open.
func (tx *tx) LockTopics([]kernel.Topic) error { return nil }

func (tx *tx) Waiters(t kernel.Topic, job perdure.JobID, max int) (refs []kernel.StepRef, err error) {
	for _, s := range tx.unsettledWhere(compareSteps, func(s *kernel.Step) bool {
		return kernel.WaitingOf(s) == t && (job.IsZero() || s.Job == job)
	}) {
		refs = append(refs, s.StepRef)
	}
	return firstN(max, refs), nil
}

func (tx *tx) KeptSignal(t kernel.Topic, job perdure.JobID, now time.Time, leftOut []int64) (*kernel.Signal, error) {
	for _, n := range slices.Sorted(maps.Keys(tx.signals)) {
		s := tx.signals[n]
		if s.Topic == t && (s.Job.IsZero() || s.Job == job) && s.Kept() && s.Until.After(now) && !slices.Contains(leftOut, n) {
			return copySignal(s), nil
		}
	}
	return nil, nil
}

func (tx *tx) FindSignal(t kernel.Topic, job perdure.JobID, id string) (*kernel.Signal, error) {
	if s := tx.findSignal(t, job, id); s != nil {
		return copySignal(s), nil
	}
	return nil, nil
}

func (tx *tx) findSignal(t kernel.Topic, job perdure.JobID, id string) *kernel.Signal {
	for _, s := range tx.signals {
		if s.Topic == t && s.Job == job && s.ID == id {
			return s
		}
	}
	return nil
}

func (tx *tx) CountSignals(maxKept, max int) (kept, all int, err error) {
	for _, s := range tx.signals {
		if s.Kept() {
			kept++
		}
	}
	return min(kept, maxKept), min(len(tx.signals), max), nil
}

func (tx *tx) DeleteSignals(now time.Time, max int) (n int, err error) {
	over := slices.DeleteFunc(slices.Sorted(maps.Keys(tx.signals)), func(n int64) bool { return tx.signals[n].Until.After(now) })
	slices.SortStableFunc(over, func(a, b int64) int { return tx.signals[a].Until.Compare(tx.signals[b].Until) })
	over = firstN(max, over)
	for _, n := range over {
		remove(tx, tx.signals, n)
	}
	return len(over), nil
}

func (tx *tx) saveSignals(changes []kernel.SignalChange) error {
	for _, c := range changes {
		if c.Replaces != 0 {
			remove(tx, tx.signals, c.Replaces)
		}
		now := copySignal(c.Signal)
		if now.Number == 0 {
			if tx.findSignal(now.Topic, now.Job, now.ID) != nil {
				return kernel.ErrStale
			}
			last := tx.lastSignal
			tx.addUndo(func() { tx.lastSignal = last })
			tx.lastSignal++
			now.Number = tx.lastSignal
		} else {
			was := tx.signals[now.Number]
			if was == nil || !was.Kept() {
				return kernel.ErrStale
			}
		}
		set(tx, tx.signals, now.Number, now)
	}
	return nil
}

func copySignal(s *kernel.Signal) *kernel.Signal {
	c := *s
	c.Data, c.At, c.Until = slices.Clone(s.Data), storedTime(s.At), storedTime(s.Until)
	if s.Taken != nil {
		c.Taken = append([]string{}, s.Taken...)
	}
	return &c
}
