package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/postgres"
)

// migratedServer starts a server, and migrates its database. Its commits can be made to wait for a standby that does not
// exist.
func migratedServer(t *testing.T) string {
	t.Helper()
	server := pgtest.NewServer(t, true)
	if _, _, err := postgres.Migrate(t.Context(), server.URL); err != nil {
		t.Fatal(err)
	}
	return server.URL
}

func requireStandby(t *testing.T, url, name string) {
	t.Helper()
	exec(t, url, "alter system set synchronous_standby_names = '"+name+"'")
	exec(t, url, "select pg_reload_conf()")
	if name != "" {
		awaitSyncRep(t, url)
	}
}

const commitWaits = "select exists (select from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'perdure')"

// F150: a COMMIT that is given up keeps waiting in the server. It must not be cancelled: a cancelled COMMIT is visible
// although the standby does not have it.
func TestGivenUpCommitIsNotCancelled(t *testing.T) {
	url := migratedServer(t)
	s := open(t, url)
	requireStandby(t, url, "absent")
	if err := submit(t.Context(), s, job(1, "k")); !errors.Is(err, kernel.ErrUnknown) {
		t.Errorf("a commit without the standby: %v", err)
	}
	time.Sleep(time.Second)
	if ids, err := s.FindJobs(t.Context(), "k", 2); err != nil || len(ids) != 0 {
		t.Errorf("the commit is visible: %v, %v", ids, err)
	}
	await(t, url, commitWaits)
}

// F150, F152: TryWrite waits for the standby as each commit does. If its context ends, the write is not cancelled, and
// its backend is counted.
func TestTryWriteWaitsForTheStandby(t *testing.T) {
	url := migratedServer(t)
	s := open(t, url)
	requireStandby(t, url, "absent")
	for range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		if err := s.TryWrite(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryWrite without the standby: %v", err)
		}
		cancel()
	}
	if s.Accepting() == nil {
		t.Error("four writes were given up, but the store still accepts commits")
	}
	time.Sleep(time.Second)
	await(t, url, "select count(*) >= 4 from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'perdure'")
	requireStandby(t, url, "")
	eventually(t, func() bool { return s.Accepting() == nil })
	if err := s.TryWrite(t.Context()); err != nil {
		t.Errorf("with the standby again: %v", err)
	}
}

// ends are the ways in which a wait for the standby ends early, so that its commit is visible.
var ends = map[string]func(*testing.T, *pgtest.Server){
	"cancelled by an administrator": func(t *testing.T, server *pgtest.Server) {
		exec(t, server.URL, "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'perdure'")
	},
	"terminated by an administrator": func(t *testing.T, server *pgtest.Server) { killOthers(t, server.URL) },
	"restart": func(t *testing.T, server *pgtest.Server) {
		server.Stop(true)
		server.Start()
	},
}

// F150, F151: a wait for the standby ends early. Its commit is indeterminate, and an answer that depends on the visible
// commit waits for the standby.
func TestAcknowledgementWaitsForTheStandby(t *testing.T) {
	n := job(1, "k")
	id := []perdure.JobID{n.Job.ID}
	answers := map[string]func(*postgres.Store, context.Context) error{
		"the same key": func(s *postgres.Store, ctx context.Context) error {
			return s.Update(ctx, func(tx kernel.Tx) error {
				found, err := tx.JobsByKey([]string{"k"})
				return errors.Join(err, visible(len(found)))
			})
		},
		"the same id": func(s *postgres.Store, ctx context.Context) error {
			return s.Update(ctx, func(tx kernel.Tx) error {
				found, err := tx.LockJobs(id)
				return errors.Join(err, visible(len(found)))
			})
		},
		"rows that are not locked": func(s *postgres.Store, ctx context.Context) error {
			return s.Update(ctx, func(tx kernel.Tx) error {
				found, err := tx.Steps([]kernel.StepRef{{Job: n.Job.ID}})
				return errors.Join(err, visible(len(found)))
			})
		},
		"a limit that does not exist": func(s *postgres.Store, ctx context.Context) error {
			return s.Update(ctx, func(tx kernel.Tx) error {
				_, err := tx.DeleteLimit("agent:gone")
				return err
			})
		},
		"a roll call": func(s *postgres.Store, ctx context.Context) error {
			_, err := s.ReportNode(ctx, kernel.NodeReport{Node: kernel.Node{ID: "n", Since: time.Now()}, TTL: time.Second})
			return err
		},
	}
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			server := pgtest.NewServer(t, true)
			if _, _, err := postgres.Migrate(t.Context(), server.URL); err != nil {
				t.Fatal(err)
			}
			s := open(t, server.URL)
			write(t, s, 99)
			requireStandby(t, server.URL, "absent")
			failed := make(chan error, 1)
			go func() { failed <- submit(t.Context(), s, n) }()
			await(t, server.URL, commitWaits)
			end(t, server)
			if err := <-failed; !errors.Is(err, kernel.ErrUnknown) {
				t.Errorf("the commit whose wait ended early: %v", err)
			}
			done := make(chan error, len(answers))
			for _, answer := range answers {
				go func() { done <- answer(s, t.Context()) }()
			}
			select {
			case err := <-done:
				t.Errorf("answered without the standby: %v", err)
				done <- err
			case <-time.After(time.Second):
			}
			requireStandby(t, server.URL, "")
			for range answers {
				if err := <-done; err != nil {
					t.Errorf("with the standby again: %v", err)
				}
			}
		})
	}
}

func visible(n int) error {
	if n != 1 {
		return errors.New("the commit is not visible")
	}
	return nil
}

// F150: perdure.submit and SubmitTx with a key that exists make their caller's COMMIT wait, although it has written
// nothing.
func TestRepeatedPostWaitsForTheStandby(t *testing.T) {
	url := migratedServer(t)
	definition := `{"type": "t", "steps": {"s": {"agent": "a"}}}`
	post := `select perdure.submit($1::jsonb, key => 'k')`
	exec(t, url, post, definition)
	requireStandby(t, url, "absent")
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), post, definition)
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("answered without the standby: %v", err)
	case <-time.After(time.Second):
	}
	requireStandby(t, url, "")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// F152: while the standby does not respond, a process uses only a few of the server's backends, and its refusals give
// the reason. When the standby responds, the process continues by itself.
func TestWaitingBackendsAreBounded(t *testing.T) {
	server := pgtest.NewServer(t, true, "max_connections=50")
	if _, _, err := postgres.Migrate(t.Context(), server.URL); err != nil {
		t.Fatal(err)
	}
	limits := postgres.DefaultLimits
	limits.Commit, limits.Acquire = 300*time.Millisecond, 300*time.Millisecond
	stores := []*postgres.Store{open(t, server.URL, postgres.WithLimits(limits)), open(t, server.URL, postgres.WithLimits(limits))}
	requireStandby(t, server.URL, "absent")
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	for i, s := range stores {
		for k := range 20 {
			load.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					if err := submit(ctx, s, job(1+i*20+k+n*40, "")); err == nil {
						return
					}
				}
			})
		}
	}
	count := func() (n int) {
		conn, err := pgx.Connect(t.Context(), server.URL) // as an administrator would
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if err := conn.QueryRow(t.Context(), "select count(*) from pg_stat_activity where wait_event = 'SyncRep'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, s := range stores {
		eventually(t, func() bool {
			err := s.Accepting()
			return err != nil && strings.Contains(err.Error(), "the store's synchronous standby does not answer")
		})
		if _, err := s.Now(t.Context()); err != nil {
			t.Errorf("a read: %v", err)
		}
		if err := submit(t.Context(), s, job(5000, "")); perdure.CodeOf(err) != perdure.CodeUnavailable || !strings.Contains(err.Error(), "synchronous standby") {
			t.Errorf("a submission: %v", err)
		}
	}
	first := count()
	time.Sleep(3 * time.Second)
	later := count()
	// Each store may have four commits that were given up, those that were in flight meanwhile (its pool has ten
	// connections), and a probe.
	if most := len(stores) * (4 + 10 + 1); first > most || later != first {
		t.Errorf("%d backends wait, later %d; want at most %d, and no more later", first, later, most)
	}
	t.Logf("%d backends wait", later)
	exec(t, server.URL, "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")
	time.Sleep(3 * time.Second)
	if n := count(); n != len(stores) {
		t.Errorf("%d backends wait, want one probe of each process", n)
	}
	requireStandby(t, server.URL, "")
	for _, s := range stores {
		eventually(t, func() bool { return s.Accepting() == nil })
	}
	load.Wait()
}

// F152: a statement that changes no row also waits for the standby. Otherwise its answer would be taken for a sign that
// the commits that were given up have ended.
func TestWriteWithoutRowsWaitsForTheStandby(t *testing.T) {
	url := migratedServer(t)
	s := open(t, url)
	requireStandby(t, url, "absent")
	done := make(chan error, 1)
	go func() { done <- s.DropNode(t.Context(), "absent") }()
	select {
	case err := <-done:
		t.Fatalf("answered without the standby: %v", err)
	case <-time.After(time.Second):
	}
	requireStandby(t, url, "")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatal("not within 20 s")
		}
	}
}
