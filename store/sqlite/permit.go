package sqlite

import (
	"slices"

	"github.com/perdure/perdure/internal/kernel"
)

// A stored permit is a row of perdure_permit. The Save that writes the row which holds the permit writes it
// (kernel.LimitKey.Kept says which permits are stored).

// limits returns the names of the defined limits.
func (tx *tx) limits() (map[string]bool, error) {
	if tx.defined == nil && !tx.changesSettings {
		tx.defined = tx.store.cache.limits
	}
	if tx.defined != nil {
		return tx.defined, nil
	}
	names, err := all(tx.c, (*row).text, `SELECT name FROM perdure_limit`)
	if err != nil {
		return nil, err
	}
	tx.defined = make(map[string]bool, len(names))
	for _, name := range names {
		tx.defined[name] = true
	}
	return tx.defined, nil
}

// permits writes what a row's change changes about the permits of its job and of the step.
func (tx *tx) permits(ref kernel.StepRef, was, now kernel.Permits) error {
	if was == now {
		return nil
	}
	defined, err := tx.limits()
	if err != nil || len(defined) == 0 && was.Needs == "" && now.Needs == "" && was.Job == "" && now.Job == "" {
		return err
	}
	return tx.changePermits(ref, was.List(), now.List(), defined)
}

// changePermits writes the permits that a row acquires and releases, of those that are stored.
func (tx *tx) changePermits(ref kernel.StepRef, had, has []kernel.Need, defined map[string]bool) error {
	for _, n := range had {
		if !slices.Contains(has, n) && n.Kept(defined) {
			if err := tx.exec(`DELETE FROM perdure_permit WHERE name = ? AND key = ? AND job = ? AND idx = ?`, n.Name, n.Key, ref.Job[:], n.PermitIndex(ref.Index)); err != nil {
				return err
			}
		}
	}
	for _, n := range has {
		if !slices.Contains(had, n) && n.Kept(defined) {
			if err := tx.putPermit(ref, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// lineChanged writes the places in lines that a step gets and leaves.
func (tx *tx) lineChanged(ref kernel.StepRef, was, now kernel.Needs) error {
	left, entered := kernel.LineChanges(ref, was, now)
	for _, e := range left {
		if err := tx.exec(`DELETE FROM perdure_line WHERE name = ? AND key = ? AND rank = ? AND job = ? AND idx = ?`, e.Name, e.Key, int(e.Rank), e.Job[:], e.Index); err != nil {
			return err
		}
	}
	for _, e := range entered {
		if err := tx.exec(`INSERT OR IGNORE INTO perdure_line (name, key, rank, job, idx) VALUES (?, ?, ?, ?, ?)`, e.Name, e.Key, int(e.Rank), e.Job[:], e.Index); err != nil {
			return err
		}
	}
	return nil
}

func (tx *tx) putPermit(ref kernel.StepRef, n kernel.Need) error {
	return tx.exec(`INSERT OR IGNORE INTO perdure_permit (name, key, job, idx, amount) VALUES (?, ?, ?, ?, ?)`, n.Name, n.Key, ref.Job[:], n.PermitIndex(ref.Index), n.Amount)
}

// fillPermits inserts the permits of a limit that was not defined before.
func (tx *tx) fillPermits(name string) error {
	holders, err := holders(tx.c, name)
	for _, ref := range holders {
		if err == nil {
			err = tx.putPermit(ref, kernel.Need{LimitKey: kernel.LimitKey{Name: name}, Amount: 1})
		}
	}
	return err
}

// holders returns the rows that hold a permit of a job's or agent's limit, whether it is defined or not, in order. It
// finds them among the unsettled jobs or the runs in flight.
func holders(c *conn, limit string) ([]kernel.StepRef, error) {
	switch kind, of, _ := kernel.SplitLimit(limit); kind {
	case kernel.LimitOfJobs:
		return all(c, (*row).ref, `
			SELECT job, 0 FROM perdure_step INDEXED BY perdure_step_open WHERE open = 1 AND permit = 1 AND type = ? ORDER BY job`, of)
	case kernel.LimitOfAgent:
		found, err := runsInFlight(c, `WHERE agent = ?`, of)
		return refsOf(found), err
	}
	return nil, nil
}
