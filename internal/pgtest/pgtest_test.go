package pgtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/pgtest"
)

func TestEachStartIsAnEmptyDatabase(t *testing.T) {
	ctx := t.Context()
	for range 2 {
		conn, err := pgx.Connect(ctx, pgtest.Start(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(ctx, "create table only_once()"); err != nil {
			t.Error(err)
		}
	}
}

func TestServerStopsFreezesAndGoesOn(t *testing.T) {
	s := pgtest.NewServer(t, true)
	ping := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		conn, err := pgx.Connect(ctx, s.URL)
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
	for _, kill := range []bool{false, true} {
		if s.Stop(kill); ping(time.Second) == nil {
			t.Error("a stopped server answers")
		}
		if s.Start(); ping(30*time.Second) != nil {
			t.Error("a started server does not answer")
		}
	}
	if s.Freeze(); ping(time.Second) == nil {
		t.Error("a frozen server answers")
	}
	if s.Thaw(); ping(30*time.Second) != nil {
		t.Error("a thawed server does not answer")
	}
}
