package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"perdure"
	"perdure/internal/pgtest"
)

func TestMicro(t *testing.T) {
	ctx := context.Background()
	url := pgtest.Start(t)
	if _, _, err := Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const n = 1000
	var ids []perdure.JobID
	var c perdure.Changes
	at := time.Now()
	for i := range n {
		id := perdure.JobID{1, 2, 3, 4, 5, 6, 0x70, 1, 0x80, 14: byte(i >> 8), 15: byte(i)}
		ids = append(ids, id)
		c.NewJobs = append(c.NewJobs, perdure.NewJob{Shape: []byte("{}"), Job: &perdure.Job{ID: id, Type: "order", Priority: 5, Input: []byte(`{"amount":4200,"sku":"tea-12"}`), Unsettled: 1, Running: 1, Phase: perdure.Running, CreatedAt: at, UpdatedAt: at, Permit: true},
			Steps: []*perdure.Step{{StepRef: perdure.StepRef{Job: id}, Name: "s0", Type: "order", Priority: 5, Phase: perdure.Running, Current: perdure.Unsure, Desired: perdure.Done, Run: 1, Turn: 1, Agent: "http", LockedBy: "host-1", Request: "request-1", CompleteBy: at, LockedUntil: at, ReadyAt: at, StartedAt: at, UpdatedAt: at}}})
	}
	if err := s.Update(ctx, func(tx perdure.Tx) error { return tx.Save(&c) }); err != nil {
		t.Fatal(err)
	}
	for _, q1 := range []struct{ name, sql string }{
		{"all columns, locked", lockJobsSQL},
		{"all columns, unlocked", lockJobsSQL[:len(lockJobsSQL)-len(" for update")]},
		{"ctid, locked", "select ctid from perdure.step where job = any($1) and idx = 0 order by job for update"},
		{"ctid, unlocked", "select ctid from perdure.step where job = any($1) and idx = 0 order by job"},
		{"count unlocked", "select count(*) from perdure.step where job = any($1) and idx = 0"},
		{"count unlocked last col", "select count(given_up_reason) from perdure.step where job = any($1) and idx = 0"},
	} {
		best := time.Hour
		for range 30 {
			_ = s.Update(ctx, func(tx0 perdure.Tx) error {
				tx := tx0.(*tx)
				if err := tx.start(); err != nil {
					return err
				}
				b := time.Now()
				err := tx.run(q(q1.sql).uuids(ids))
				best = min(best, time.Since(b))
				if err != nil {
					t.Error(err)
				}
				return fmt.Errorf("back")
			})
		}
		t.Logf("%-30s %6.2f us", q1.name, float64(best.Nanoseconds())/1e3/n)
	}
}
