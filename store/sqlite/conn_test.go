package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

// A read ends early if its caller no longer waits, or if it panics; the next reader finds the connection as good as new.
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
	works("the beginning")
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := p.with(ctx, func(c *conn) error {
			_, err := one(c, (*row).int, endless)
			return err
		})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("endless: %v", err)
		}
		works("an end")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.with(gone, func(*conn) error { t.Error("called after its caller was gone"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("before the beginning: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := p.with(ctx, func(*conn) error { cancel(); return nil }); err != nil { // it was through
		t.Error(err)
	}
	works("an end too late")
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
