package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A bulk act leaves the writers to others that work on the database, whatever program that is.
func TestBusy(t *testing.T) {
	direct := fresh(t)
	s := open(t, direct)
	other, err := pgx.Connect(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	for _, c := range []struct {
		do   string
		busy bool
	}{{"select 1", false}, {"begin", true}, {"select 1", true}, {"commit", false}} {
		if _, err := other.Exec(t.Context(), c.do); err != nil {
			t.Fatal(err)
		}
		if busy, err := s.Busy(t.Context()); err != nil || busy != c.busy {
			t.Errorf("after %q: busy is %t, %v", c.do, busy, err)
		}
	}
}
