package sqlite

import (
	"github.com/perdure/perdure/internal/kernel"
)

// Permits are kept for the limits that are defined: a row for each that holds one, written by the Save that
// writes what holds it.

// limits are those that are defined.
func (tx *tx) limits() (map[string]bool, error) {
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

// permits writes what a row's change says about the permits of its job and of its agent.
func (tx *tx) permits(ref kernel.StepRef, was, now kernel.Permits) error {
	if was == now {
		return nil
	}
	defined, err := tx.limits()
	if err != nil || len(defined) == 0 {
		return err
	}
	if was.Type != now.Type {
		if err := tx.movePermit(ref, kernel.JobLimit(was.Type), kernel.JobLimit(now.Type)); err != nil {
			return err
		}
	}
	if was.Agent != now.Agent {
		return tx.movePermit(ref, kernel.AgentLimit(was.Agent), kernel.AgentLimit(now.Agent))
	}
	return nil
}

func (tx *tx) movePermit(ref kernel.StepRef, from, to string) error {
	if tx.defined[from] {
		if err := tx.exec(`DELETE FROM perdure_permit WHERE name = ? AND job = ? AND idx = ?`, from, ref.Job[:], ref.Index); err != nil {
			return err
		}
	}
	if tx.defined[to] {
		return tx.exec(`INSERT OR IGNORE INTO perdure_permit (name, job, idx) VALUES (?, ?, ?)`, to, ref.Job[:], ref.Index)
	}
	return nil
}

// fillPermits writes those of a limit that was not defined before.
func (tx *tx) fillPermits(name string) error {
	holders, err := holders(tx.c, name)
	for _, ref := range holders {
		if err == nil {
			err = tx.exec(`INSERT OR IGNORE INTO perdure_permit (name, job, idx) VALUES (?, ?, ?)`, name, ref.Job[:], ref.Index)
		}
	}
	return err
}

// holders are the rows that hold a permit of a limit, whether it is defined or not, in order: found among
// the unsettled jobs, or the runs that are out.
func holders(c *conn, limit string) ([]kernel.StepRef, error) {
	switch kind, of, _ := kernel.SplitLimit(limit); kind {
	case "job":
		return all(c, (*row).ref, `
			SELECT job, 0 FROM perdure_step INDEXED BY perdure_step_open WHERE open = 1 AND permit = 1 AND type = ? ORDER BY job`, of)
	case "agent":
		found, err := members(c, `WHERE agent = ?`, of)
		return refsOf(found), err
	}
	return nil, nil
}
