package postgres_test

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres"
)

// F102: if readers use all connections that they may use, and get no answer, claims, reports and role renewals still get
// connections. One more reader is refused in time.
func TestReadersLeaveConnectionsForWriters(t *testing.T) {
	direct := fresh(t)
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("pool_max_conns", "8") // two of them for readers
	u.RawQuery = q.Encode()
	limits := postgres.DefaultLimits
	limits.Acquire, limits.Lock, limits.Statement = 5*time.Second, time.Minute, time.Minute
	s := open(t, u.String(), postgres.WithLimits(limits))
	blocker, err := pgx.Connect(t.Context(), direct)
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Close(context.Background())
	if _, err := blocker.Exec(t.Context(), "begin; lock table perdure.entry in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	for range 20 {
		reading.Go(func() { _, _ = s.History(ctx, perdure.JobID{}, 0, 1) })
	}
	await(t, direct, "select count(*) >= 2 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
	began := time.Now()
	mustSubmit(t, s, job(1, ""))
	if _, err := s.Poll(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := s.ReportNode(t.Context(), kernel.NodeReport{Node: kernel.Node{ID: "n"}, TTL: time.Minute}); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > limits.Acquire {
		t.Errorf("writers waited for readers: %v", took)
	}
	if _, _, err := s.Job(t.Context(), perdure.JobID{}, 0); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("one more reader: %v", err)
	}
	cancel()
	if _, err := blocker.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	reading.Wait()
	if _, _, err := s.Job(t.Context(), perdure.JobID{}, 0); err != nil {
		t.Errorf("a read after the others have ended: %v", err)
	}
}
