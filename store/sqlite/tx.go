package sqlite

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
)

// tx is the write transaction. Its statements are not bound to the caller's context: they are short,
// and one that is broken off in the middle helps nobody. The caller's patience is asked at the
// beginning and before the commit.
type tx struct {
	store  *Store
	c      *conn
	wrote  bool
	told   bool  // the time
	failed error // Save refused: what is here is half a change

	rows    map[kernel.StepRef]*kept // as they stand in the file: nobody else writes
	dirty   []*kept                  // of this Save, not written yet
	fresh   *inserts
	sets    sets
	shapes  map[kernel.ShapeID]bool          // that are stored now
	defined map[string]bool                  // the limits; nil: not read yet
	agents  map[string]perdure.AgentSettings // nil: not read yet
	puts    bool                             // this transaction has changed them

	lanesLeft    map[kernel.LaneRef]bool        // lanes out of which steps have moved, since the latest Save
	lanesEntered map[kernel.LaneRef]kernel.Lane // and into which, with the place of the first
	heads        laneHeads

	bundles bundlesTx
}

// Update runs fn in one immediate transaction, while nobody else writes.
func (s *Store) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	var err error
	for range tries {
		if err = s.update(ctx, fn); !errors.Is(err, kernel.ErrStale) {
			return err
		}
	}
	return err
}

// update is one try. While its commit is synced, the next transaction is made.
func (s *Store) update(ctx context.Context, fn func(kernel.Tx) error) error {
	commit, err := s.commit(ctx, fn)
	switch {
	case errors.Is(err, kernel.ErrStale): // it is tried again
		return err
	case err != nil:
		return cmp.Or(s.durable.settle(), err) // what it was refused for may be the latest commit
	}
	if err := s.durable.await(commit); err != nil {
		return unknown(err)
	}
	crashpoint.Here(crashpoint.SQLiteCommitted)
	return nil
}

// commit makes a transaction and commits it. What it returns is the number of the commit, which is not on the disk yet;
// of a transaction that has only read, it is the number of the latest commit that it can have seen.
func (s *Store) commit(ctx context.Context, fn func(kernel.Tx) error) (number int64, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	tx := &tx{store: s, c: s.write, rows: map[kernel.StepRef]*kept{}}
	if err := begin(tx.c); err != nil {
		return 0, s.wrap(err)
	}
	kept := false
	defer func() { // also where fn panics
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
	if tx.failed != nil { // fn went on after Save had refused
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

// commit keeps the latest time with what was written at it.
func (tx *tx) commit() (number int64, err error) {
	tx.wrote = tx.wrote || tx.told && tx.store.clock.unsaved() > markEvery
	if tx.wrote {
		if err := tx.store.saveClock(tx.c); err != nil {
			return 0, tx.store.wrap(err)
		}
		tx.store.wal.extend()
	}
	crashpoint.Here(crashpoint.SQLiteCommit)
	number, err = tx.store.durable.commit(tx.wrote, func() error { return tx.c.exec(`COMMIT`) })
	if err != nil {
		return 0, tx.store.commitFailed(err)
	}
	return number, nil
}

// exec changes rows.
func (tx *tx) exec(query string, args ...any) error {
	tx.wrote = true
	return tx.c.exec(query, args...)
}

// changed changes rows, and says how many.
func (tx *tx) changed(query string, args ...any) (int, error) {
	tx.wrote = true
	return tx.c.changed(query, args...)
}

func (tx *tx) Now() (time.Time, error) {
	tx.told = true
	return tx.store.clock.now(), nil
}

func (tx *tx) PutAgent(name string, settings perdure.AgentSettings) error {
	tx.agents, tx.puts = nil, true
	return tx.exec(`INSERT INTO perdure_agent (name, ageing) VALUES (?, ?) ON CONFLICT DO UPDATE SET ageing = excluded.ageing`,
		name, time.Duration(settings.Ageing).Microseconds())
}

// PutLimit finds who holds a permit of a limit that is new. From then on each Save says it.
func (tx *tx) PutLimit(l kernel.Limit) error {
	defined, err := tx.limits()
	if err != nil {
		return err
	}
	if err := tx.exec(`INSERT INTO perdure_limit (name, max, per_key) VALUES (?, nullif(?, -1), nullif(?, -1))
		ON CONFLICT DO UPDATE SET max = excluded.max, per_key = excluded.per_key`, l.Name, l.Max, l.PerKey); err != nil {
		return err
	}
	tx.puts = true
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
	tx.defined, tx.puts = nil, true
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

func (tx *tx) CloseAlert(id int64, by string, at time.Time) error {
	return tx.exec(`UPDATE perdure_alert SET closed_at = ?, closed_by = ? WHERE id = ? AND closed_at IS NULL`, micros(at), by, id)
}
