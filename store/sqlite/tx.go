package sqlite

import (
	"context"
	"errors"
	"time"

	"perdure"
)

// tx is the write transaction. Its statements are not bound to the caller's context: they are short,
// and one that is broken off in the middle helps nobody. The caller's patience is asked at the
// beginning and before the commit.
type tx struct {
	store  *Store
	c      *conn
	ctx    context.Context // never cancelled
	wrote  bool
	told   bool  // the time
	failed error // Save refused: what is here is half a change
}

// Update runs fn in one immediate transaction, while nobody else writes.
func (s *Store) Update(ctx context.Context, fn func(perdure.Tx) error) error {
	var err error
	for range tries {
		if err = s.update(ctx, fn); !errors.Is(err, perdure.ErrStale) {
			return err
		}
	}
	return err
}

func (s *Store) update(ctx context.Context, fn func(perdure.Tx) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	tx := &tx{store: s, c: s.write, ctx: context.WithoutCancel(ctx)}
	if err := begin(tx.ctx, tx.c); err != nil {
		return s.wrap(err)
	}
	kept := false
	defer func() { // also where fn panics
		if !kept {
			rollback(tx.ctx, tx.c)
		}
	}()
	if err := fn(tx); err != nil {
		return s.wrap(err)
	}
	if tx.failed != nil { // fn went on after Save had refused
		return s.wrap(tx.failed)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := tx.commit(); err != nil {
		return err
	}
	kept = true
	return nil
}

// commit keeps the latest time with what was written at it.
func (tx *tx) commit() error {
	if tx.wrote || tx.told && tx.store.clock.unsaved() > markEvery {
		if err := tx.store.saveClock(tx.ctx, tx.c); err != nil {
			return tx.store.wrap(err)
		}
	}
	if _, err := tx.c.exec(tx.ctx, `COMMIT`); err != nil {
		return tx.store.commitFailed(err)
	}
	return nil
}

// exec changes rows, and says how many.
func (tx *tx) exec(query string, args ...any) (int64, error) {
	tx.wrote = true
	return tx.c.exec(tx.ctx, query, args...)
}

func (tx *tx) Now() (time.Time, error) {
	tx.told = true
	return tx.store.clock.now(), nil
}

func (tx *tx) PutLimit(name string, max int) error {
	_, err := tx.exec(`INSERT INTO "limit" (name, max) VALUES (?, ?) ON CONFLICT DO UPDATE SET max = excluded.max`, name, num(max))
	return err
}

func (tx *tx) DeleteLimit(name string) (bool, error) {
	n, err := tx.exec(`DELETE FROM "limit" WHERE name = ?`, name)
	return n > 0, err
}

func (tx *tx) CloseAlert(id int64, by string, at time.Time) error {
	_, err := tx.exec(`UPDATE alert SET closed_at = ?, closed_by = ? WHERE id = ? AND closed_at IS NULL`, micros(at), by, id)
	return err
}
