package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/postgres/internal/cache"
)

// F006, F063: a commit was given up and waits for a standby, so that no reader sees it. While it may still happen, its
// jobs are not stored again.
func TestBundleOfIndeterminateCommitIsNotStoredTwice(t *testing.T) {
	ctx := t.Context()
	url := pgtest.Start(t)
	if _, _, err := Migrate(ctx, url); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	id := perdure.JobID{1, 2, 3, 4, 5, 6, 0x70, 0, 0x80}
	// The transaction whose commit is indeterminate: it has stored one bundle and not committed yet.
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	open, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Exec(ctx, `insert into perdure.bundle (first, last, agent, lane, ord, size, type, name, priority, ageing, shape, steps, created_at, jobs, hashes, inputs)
		values ($1, $1, 'a', 1, 1, 1, 't', 's', 0, 0, $1, 1, now(), array[$1::uuid], decode(repeat('00', 32), 'hex'), array[null]::bytea[])`, [16]byte(id)); err != nil {
		t.Fatal(err)
	}
	var xid int64
	if err := open.QueryRow(ctx, "select pg_current_xact_id()::text::bigint").Scan(&xid); err != nil {
		t.Fatal(err)
	}
	var server time.Time
	lock := func() (jobs []*kernel.Job, err error) {
		err = s.Update(ctx, func(t kernel.Tx) (err error) {
			jobs, err = t.LockJobs([]perdure.JobID{id})
			server = t.(*tx).cache.Rows.Server
			return err
		})
		return jobs, err
	}
	if jobs, err := lock(); err != nil || len(jobs) != 0 {
		t.Fatalf("locked before the commit: %v, %v", jobs, err)
	}
	s.indeterminate.add(server, uint64(xid))
	if jobs, err := lock(); !errors.Is(err, kernel.ErrStale) {
		t.Fatalf("locked while the commit is indeterminate: %v, %v", jobs, err)
	}
	ended := make(chan error)
	go func() {
		time.Sleep(20 * time.Millisecond)
		ended <- open.Commit(ctx)
	}()
	var jobs []*kernel.Job
	for range 100 {
		if jobs, err = lock(); !errors.Is(err, kernel.ErrStale) {
			break
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err != nil || len(jobs) != 1 || jobs[0].ID != id {
		t.Errorf("locked after the commit: %v, %v", jobs, err)
	}
}

// If the commit of a transaction that has stored bundles is indeterminate, the transaction is remembered, for its
// server.
func TestIndeterminateTransactionWithBundlesIsRemembered(t *testing.T) {
	s, server := &Store{cache: cache.New()}, time.Now()
	for xid, how := range map[uint64]outcome{7: unknown, 0: unknown, 8: committed, 9: rolledBack} {
		tx := &tx{store: s, clock: &s.clock, cache: s.cache.Begin()}
		tx.cache.Rows.Server, tx.bundles.xid = server, xid
		tx.end(how)
	}
	if xids := s.indeterminate.of(server); len(xids) != 1 || xids[0] != 7 {
		t.Errorf("remembered transactions: %v, want 7", xids)
	}
	if xids := s.indeterminate.of(server.Add(time.Second)); len(xids) != 0 {
		t.Errorf("remembered for another server: %v", xids)
	}
	for xid := range uint64(2 * maxIndeterminate) {
		s.indeterminate.add(server, xid+1)
	}
	if xids := s.indeterminate.of(server); len(xids) != maxIndeterminate || xids[maxIndeterminate-1] != 2*maxIndeterminate {
		t.Errorf("%d transactions are remembered", len(xids))
	}
}
