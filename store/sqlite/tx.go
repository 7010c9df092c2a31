package sqlite

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
)

// tx is the write transaction. Its statements do not depend on the caller's context: they are short, and there is
// nothing to gain from interrupting one. The context is checked at the beginning and before the commit.
type tx struct {
	store      *Store
	c          *conn
	hasWritten bool
	readClock  bool  // Now was called
	failed     error // Save has failed in the middle of a change

	rows            map[kernel.StepRef]*storedRow // as they are in the file: there is no other writer
	dirty           []*storedRow                  // of this Save, not written yet
	inserts         *inserts
	runSets         runSetsTx
	shapes          map[kernel.ShapeID]bool          // that this transaction has stored or found
	defined         map[string]bool                  // the names of the limits; nil: not read
	allLimits       *[]kernel.Limit                  // nil: not read
	agents          map[string]perdure.AgentSettings // nil: not read
	changesSettings bool                             // this transaction has changed limits or agents
	routing         *kernel.Routing                  // nil: not read
	changesRouting  bool                             // this transaction has changed receivers

	lanesLeft    map[kernel.LaneRef]bool        // lanes that steps have left since the latest Save
	lanesEntered map[kernel.LaneRef]kernel.Lane // lanes that steps have entered, with the place of the first
	heads        laneHeads
	touched      map[classRef]kernel.Lane // classes of shares whose lanes have changed since the latest Save

	bundles bundleTx
}

// Update runs fn in one immediate transaction. There is no other writer meanwhile.
func (s *Store) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	var err error
	for range tries {
		if err = s.update(ctx, fn); !errors.Is(err, kernel.ErrStale) {
			return err
		}
	}
	return err
}

// update is one attempt. While its commit is synced, the next transaction is made.
func (s *Store) update(ctx context.Context, fn func(kernel.Tx) error) error {
	commit, err := s.commit(ctx, fn)
	switch {
	case errors.Is(err, kernel.ErrStale): // it is tried again
		return err
	case err != nil:
		return cmp.Or(s.durable.settle(), err) // the error may depend on the latest commit
	}
	if err := s.durable.await(commit); err != nil {
		return unknown(err)
	}
	crashpoint.Here(crashpoint.SQLiteCommitted)
	return nil
}

// commit runs and commits a transaction. It returns the number of the commit, which is not on the disk yet. For a
// transaction that has only read, that is the latest commit that it can have seen.
func (s *Store) commit(ctx context.Context, fn func(kernel.Tx) error) (number int64, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	tx := &tx{store: s, c: s.write, rows: map[kernel.StepRef]*storedRow{}}
	if err := begin(tx.c); err != nil {
		return 0, s.wrap(err)
	}
	kept := false
	defer func() { // also if fn panics
		if !kept {
			rollback(tx.c)
		}
	}()
	crashpoint.Here(crashpoint.SQLiteBegun)
	if err := s.beginCache(tx.c); err != nil {
		return 0, s.wrap(err)
	}
	if err := fn(tx); err != nil {
		return 0, s.wrap(err)
	}
	if tx.failed != nil { // fn has continued after a failed Save
		return 0, s.wrap(tx.failed)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if number, err = tx.commit(); err != nil {
		return 0, err
	}
	kept = true
	tx.commitCache()
	return number, nil
}

// commit stores the clock's mark with what was written.
func (tx *tx) commit() (number int64, err error) {
	tx.hasWritten = tx.hasWritten || tx.readClock && tx.store.clock.unsaved() > markEvery
	if tx.hasWritten {
		if err := tx.store.saveClock(tx.c); err != nil {
			return 0, tx.store.wrap(err)
		}
		tx.store.wal.extend()
	}
	crashpoint.Here(crashpoint.SQLiteCommit)
	number, err = tx.store.durable.commit(tx.hasWritten, func() error { return tx.c.exec(`COMMIT`) })
	if err != nil {
		return 0, tx.store.commitFailed(err)
	}
	return number, nil
}

// exec runs a statement that changes rows.
func (tx *tx) exec(query string, args ...any) error {
	tx.hasWritten = true
	return tx.c.exec(query, args...)
}

// changed runs such a statement, and returns how many rows it has changed.
func (tx *tx) changed(query string, args ...any) (int, error) {
	tx.hasWritten = true
	return tx.c.changed(query, args...)
}

func (tx *tx) Now() (time.Time, error) {
	tx.readClock = true
	return tx.store.clock.now(), nil
}

func (tx *tx) PutAgent(name string, settings perdure.AgentSettings) error {
	tx.agents, tx.changesSettings = nil, true
	return tx.exec(`INSERT INTO perdure_agent (name, ageing, patience, fair) VALUES (?, ?, ?, nullif(?, '')) ON CONFLICT DO UPDATE SET ageing = excluded.ageing, patience = excluded.patience, fair = excluded.fair`,
		name, time.Duration(settings.Ageing).Microseconds(), time.Duration(settings.Patience).Microseconds(), kernel.FairText(&settings))
}

func (tx *tx) DeleteAgent(name string) (bool, error) {
	tx.agents, tx.changesSettings = nil, true
	n, err := tx.changed(`DELETE FROM perdure_agent WHERE name = ?`, name)
	return n > 0, err
}

// PutLimit stores the permits of a new limit that are held. From then on each Save updates them.
func (tx *tx) PutLimit(l kernel.Limit) error {
	defined, err := tx.limits()
	if err != nil {
		return err
	}
	if err := tx.exec(`INSERT INTO perdure_limit (name, max, per_key, rates) VALUES (?, nullif(?, -1), nullif(?, -1), nullif(?, ''))
		ON CONFLICT DO UPDATE SET max = excluded.max, per_key = excluded.per_key, rates = excluded.rates`, l.Name, l.Max, l.PerKey, l.RatesText()); err != nil {
		return err
	}
	tx.allLimits, tx.changesSettings = nil, true
	if defined[l.Name] {
		return nil
	}
	tx.defined = maps.Clone(defined)
	tx.defined[l.Name] = true
	return tx.fillPermits(l.Name)
}

func (tx *tx) DeleteLimit(name string) (bool, error) {
	n, err := tx.changed(`DELETE FROM perdure_limit WHERE name = ?`, name)
	if n == 0 || err != nil {
		return false, err
	}
	tx.defined, tx.allLimits, tx.changesSettings = nil, nil, true
	if (kernel.LimitKey{Name: name}).Kept(nil) {
		return true, nil
	}
	return true, tx.exec(`DELETE FROM perdure_permit WHERE name = ?`, name)
}

const fenceSQL = `SELECT fence FROM perdure_clock WHERE one = 1`

func (tx *tx) Fence() (int64, error) { return one(tx.c, (*row).num, fenceSQL) }

const cellSQL = `SELECT cell FROM perdure_clock WHERE one = 1`

func (tx *tx) SetCell(cell int) error {
	have, err := one(tx.c, (*row).int, cellSQL)
	if err = cmp.Or(err, kernel.NumberCell(have, cell)); err != nil {
		return err
	}
	return tx.exec(`UPDATE perdure_clock SET cell = ? WHERE one = 1`, cell)
}

func (tx *tx) RaiseFence(fence int64, a kernel.Alert) error {
	if err := tx.exec(`UPDATE perdure_clock SET fence = max(fence, ?) WHERE one = 1`, fence); err != nil {
		return err
	}
	return tx.Save(&kernel.Changes{Alerts: []kernel.Alert{a}})
}

func (tx *tx) CloseAlert(id int64, by string, at time.Time) (closed bool, err error) {
	n, err := tx.changed(`UPDATE perdure_alert SET closed_at = ?, closed_by = ? WHERE id = ? AND closed_at IS NULL`, micros(at), by, id)
	return n > 0, err
}

// LockAlerts reads the open alerts of each job. SQLite has one writer, so that they are locked already.
func (tx *tx) LockAlerts(of []kernel.CloseAlerts) (open []kernel.Alert, err error) {
	read := map[perdure.JobID]bool{}
	for _, c := range of {
		if read[c.Job] {
			continue
		}
		read[c.Job] = true
		found, err := all(tx.c, readAlert, `SELECT `+alertColumns+` FROM perdure_alert WHERE job = ? AND closed_at IS NULL`, c.Job[:])
		if err != nil {
			return nil, err
		}
		for i := range found {
			if slices.ContainsFunc(of, func(c kernel.CloseAlerts) bool { return c.Closes(&found[i]) }) {
				open = append(open, found[i])
			}
		}
	}
	slices.SortFunc(open, func(a, b kernel.Alert) int { return cmp.Compare(a.ID, b.ID) })
	return open, nil
}
