package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

// A read ends early if its context ends or if it panics. The next read can use the connection.
func TestConnectionIsUsableAfterInterruptedReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.db")
	p, err := openPool(1, func() (*conn, error) { return connect(path) })
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	const endless = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n`
	const two = `SELECT 1 UNION ALL SELECT 2`
	works := func(after string) {
		t.Helper()
		err := p.with(t.Context(), func(c *conn) error {
			if found, err := all(c, (*row).int, two); err != nil || len(found) != 2 {
				t.Errorf("after %s: %v, %v", after, found, err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("after %s: %v", after, err)
		}
	}
	works("opening the pool")
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := p.with(ctx, func(c *conn) error {
			_, err := one(c, (*row).int, endless)
			return err
		})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a read whose context ends: %v", err)
		}
		works("a cancelled read")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.with(ended, func(*conn) error { t.Error("called although the context had ended"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := p.with(ctx, func(*conn) error { cancel(); return nil }); err != nil { // cancelled after the read has ended
		t.Error(err)
	}
	works("a context that ended after the read")
	func() {
		defer func() { _ = recover() }()
		_ = p.with(t.Context(), func(c *conn) error {
			_, err := all(c, func(*row) int { panic("bad row") }, two)
			return err
		})
	}()
	err = p.with(t.Context(), func(c *conn) error {
		if !c.db.AutocommitEnabled() {
			t.Error("a transaction was left open")
		}
		return c.once("CREATE TABLE x (i)")
	})
	if err != nil {
		t.Errorf("after a panic: %v", err)
	}
	works("a panic")
}
