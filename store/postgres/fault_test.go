package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/postgres"
)

// job returns a small submission.
func job(n int, key string) kernel.NewJob {
	now := time.Now().Truncate(time.Microsecond).UTC()
	j := &kernel.Job{
		ID: perdure.JobID{0: 1, 6: 0x70, 8: 0x80, 14: byte(n >> 8), 15: byte(n)}, Key: key, Type: "order", Priority: 5,
		Desired: perdure.Done, Phase: perdure.Waiting, Unsettled: 1, Active: 1, CreatedAt: now, UpdatedAt: now,
	}
	return kernel.NewJob{Job: j, Shape: []byte("{}"), Steps: []*kernel.Step{{
		StepRef: kernel.StepRef{Job: j.ID}, Name: "only", Type: j.Type, Priority: j.Priority,
		Desired: perdure.Done, Phase: perdure.Ready, Turn: 1, Agent: "http", ReadyAt: now, UpdatedAt: now,
	}}}
}

func submit(ctx context.Context, s *postgres.Store, jobs ...kernel.NewJob) error {
	return s.Update(ctx, func(tx kernel.Tx) error { return tx.Save(&kernel.Changes{NewJobs: jobs}) })
}

func mustSubmit(t *testing.T, s *postgres.Store, jobs ...kernel.NewJob) {
	t.Helper()
	if err := submit(t.Context(), s, jobs...); err != nil {
		t.Fatal(err)
	}
}

// dispatchUntil dispatches the first step of a job, with a lock until then.
func dispatchUntil(tx kernel.Tx, id perdure.JobID, until time.Time) error {
	steps, err := tx.StepsOf(id)
	if err != nil {
		return err
	}
	now := *steps[0]
	now.Phase, now.Current, now.Run, now.LockedBy, now.LockedUntil = perdure.Running, perdure.Unsure, now.Run+1, "h", until
	return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{{Now: &now, Loaded: steps[0]}}})
}

// A report that waited for the job's lock until after locked_until reads a time after locked_until (F058).
func TestLateReportReadsTheTimeAfterItsLockWait(t *testing.T) {
	url := fresh(t)
	a, b := open(t, url), open(t, url)
	n := job(1, "")
	mustSubmit(t, a, n)
	var until time.Time
	if err := a.Update(t.Context(), func(tx kernel.Tx) error {
		if _, err := tx.LockJobs([]perdure.JobID{n.Job.ID}); err != nil {
			return err
		}
		now, err := tx.Now()
		until = now.Add(150 * time.Millisecond)
		return errors.Join(err, dispatchUntil(tx, n.Job.ID, until))
	}); err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Update(t.Context(), func(tx kernel.Tx) error {
			_, err := tx.LockJobs([]perdure.JobID{n.Job.ID})
			close(held)
			time.Sleep(300 * time.Millisecond)
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	<-held
	if err := b.Update(t.Context(), func(tx kernel.Tx) error {
		if _, err := tx.LockJobs([]perdure.JobID{n.Job.ID}); err != nil {
			return err
		}
		now, err := tx.Now()
		if now.Before(until) {
			t.Errorf("the time is %v after a lock wait until %v", now, until)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// Two transactions change the same job. The second reads the rows as the first wrote them, not as they were when it
// began to wait for the lock.
func TestLockedRowsAreFresh(t *testing.T) {
	url := fresh(t)
	n := job(1, "")
	stores := []*postgres.Store{open(t, url), open(t, url)}
	mustSubmit(t, stores[0], n)
	var wg sync.WaitGroup
	for _, s := range stores {
		wg.Go(func() {
			for range 20 {
				if err := s.Update(t.Context(), func(tx kernel.Tx) error {
					jobs, err := tx.LockJobs([]perdure.JobID{n.Job.ID})
					if err != nil {
						return err
					}
					steps, err := tx.StepsOf(n.Job.ID)
					if err != nil {
						return err
					}
					if int64(jobs[0].Restarts) != steps[0].Run {
						return fmt.Errorf("the job has value %d, its step %d", jobs[0].Restarts, steps[0].Run)
					}
					j, st := *jobs[0], *steps[0]
					j.Restarts++
					st.Run++
					return tx.Save(&kernel.Changes{
						Jobs:  []kernel.JobChange{{Now: &j, Loaded: jobs[0]}},
						Steps: []kernel.StepChange{{Now: &st, Loaded: steps[0]}},
					})
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if j, _, err := stores[0].Job(t.Context(), n.Job.ID, 0); err != nil || j.Restarts != 40 {
		t.Errorf("the job is %+v, %v; want 40 restarts", j, err)
	}
}

// A limit takes effect at once: a transaction that has dispatched without seeing the limit commits before the limit
// does.
func TestLimitChangeWaitsForRunningTransactions(t *testing.T) {
	url := fresh(t)
	a, b := open(t, url), open(t, url)
	n := job(1, "")
	mustSubmit(t, a, n)
	seen := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Update(t.Context(), func(tx kernel.Tx) error {
			if limits, err := tx.Limits(); err != nil || len(limits) != 0 {
				return fmt.Errorf("limits %v, %w", limits, err)
			}
			close(seen)
			time.Sleep(200 * time.Millisecond)
			return dispatchUntil(tx, n.Job.ID, time.Now().Add(time.Minute))
		}); err != nil {
			t.Error(err)
		}
	})
	<-seen
	if err := b.Update(t.Context(), func(tx kernel.Tx) error {
		return tx.PutLimit(kernel.Limit{Name: "agent:http", Max: 0, PerKey: kernel.Unbounded})
	}); err != nil {
		t.Fatal(err)
	}
	if used, _, err := b.LimitUse(t.Context(), kernel.LimitKey{Name: "agent:http"}, 10); err != nil || used != 1 {
		t.Errorf("the limit was set before an earlier transaction committed: %d, %v", used, err)
	}
	wg.Wait()
}

// killOthers terminates the backends of all stores on the database.
func killOthers(t *testing.T, url string) {
	t.Helper()
	exec(t, url, `select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and application_name = 'perdure'`)
}

// If a connection is lost before COMMIT, the transaction is tried again, and no error is returned (F097).
func TestTransactionIsRetriedAfterALostConnection(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	tries := 0
	err := s.Update(t.Context(), func(tx kernel.Tx) error {
		if tries++; tries == 1 {
			killOthers(t, url)
		}
		return tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{job(1, "k")}})
	})
	if err != nil || tries != 2 {
		t.Errorf("%d tries: %v", tries, err)
	}
	killOthers(t, url)
	if ids, err := s.FindJobs(t.Context(), "k", 2); err != nil || len(ids) != 1 {
		t.Errorf("a read with a lost connection: %v, %v", ids, err)
	}
}

// If a connection is lost during COMMIT, the error says that the outcome is unknown (F006, F063).
func TestCommitWithALostConnectionIsIndeterminate(t *testing.T) {
	server := pgtest.NewServer(t, true)
	if _, _, err := postgres.Migrate(t.Context(), server.URL); err != nil {
		t.Fatal(err)
	}
	s := open(t, server.URL)
	// Each COMMIT waits for a standby that does not exist.
	exec(t, server.URL, "alter system set synchronous_standby_names = 'absent'")
	exec(t, server.URL, "select pg_reload_conf()")
	awaitSyncRep(t, server.URL)
	failed := make(chan error, 1)
	tries := 0
	go func() {
		failed <- s.Update(t.Context(), func(tx kernel.Tx) error {
			tries++
			return tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{job(1, "k")}})
		})
	}()
	await(t, server.URL, "select exists (select from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'perdure')")
	killOthers(t, server.URL)
	if err := <-failed; !errors.Is(err, kernel.ErrUnknown) || tries != 1 {
		t.Errorf("%d tries: %v", tries, err)
	}
	if ids, err := s.FindJobs(t.Context(), "k", 2); err != nil || len(ids) != 1 {
		t.Errorf("the committed job is not found: %v, %v", ids, err)
	}
}

// awaitSyncRep waits until a COMMIT waits for the standby.
func awaitSyncRep(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	writing.Go(func() {
		for err := error(nil); err == nil; {
			_, err = conn.Exec(ctx, "select pg_logical_emit_message(true, '', '')")
		}
	})
	await(t, url, "select exists (select from pg_stat_activity where wait_event = 'SyncRep')")
}

func await(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
		var yes bool
		if err := conn.QueryRow(t.Context(), sql).Scan(&yes); err != nil {
			t.Fatal(err)
		} else if yes {
			return
		}
	}
	t.Fatalf("not within 30 s: %s", sql)
}

// While the server is down, calls fail soon. When it is back, the same store works again (F009, F097).
func TestStoreWorksAgainAfterAServerRestart(t *testing.T) {
	server := pgtest.NewServer(t, true)
	if _, _, err := postgres.Migrate(t.Context(), server.URL); err != nil {
		t.Fatal(err)
	}
	s := open(t, server.URL)
	for i, kill := range []bool{false, true} {
		mustSubmit(t, s, job(10+i, ""))
		server.Stop(kill)
		start := time.Now()
		if err := submit(t.Context(), s, job(20+i, "")); perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("submission while the server is down: %v", err)
		}
		if _, _, err := s.Job(t.Context(), perdure.JobID{}, 0); perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("read while the server is down: %v", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("refused after %v", took)
		}
		server.Start()
		mustSubmit(t, s, job(30+i, ""))
		if j, _, err := s.Job(t.Context(), job(10+i, "").Job.ID, 0); err != nil || j == nil {
			t.Errorf("a job that was accepted before is missing: %v", err)
		}
	}
}

// A frozen server blocks no caller forever, and the store works again when the server does (F099).
func TestFrozenServerBlocksNoCallerForever(t *testing.T) {
	server := pgtest.NewServer(t, false)
	if _, _, err := postgres.Migrate(t.Context(), server.URL); err != nil {
		t.Fatal(err)
	}
	limits := postgres.DefaultLimits
	limits.Connect, limits.Acquire, limits.Transaction = 200*time.Millisecond, 400*time.Millisecond, 500*time.Millisecond
	s := open(t, server.URL, postgres.WithLimits(limits))
	works := func(n int) { // tries again, because a busy machine may exceed the limits
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; {
			err := submit(t.Context(), s, job(n, ""))
			if err == nil {
				return
			} else if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	works(1)
	server.Freeze()
	start := time.Now()
	if err := submit(t.Context(), s, job(2, "")); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("submission while the server is frozen: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Now(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read with a deadline of its own: %v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("refused after %v", took)
	}
	server.Thaw()
	works(3)
}

// If the connections of the pool lead to a standby, they are dropped (F098). The test simulates the standby by a
// database whose transactions are read-only.
func TestConnectionsToAReadOnlyServerAreDropped(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	exec(t, url, `do $$ begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end $$`)
	killOthers(t, url)
	if err := submit(t.Context(), s, job(1, "")); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("submission to a read-only server: %v", err)
	}
	exec(t, url+"&default_transaction_read_only=off", `do $$ begin execute format('alter database %I reset default_transaction_read_only', current_database()); end $$`)
	mustSubmit(t, s, job(2, ""))
}

// The wait for a row that another transaction has locked is bounded (F101). A node that was paused during a transaction
// loses its lock on the row.
func TestWaitForALockedRowIsBounded(t *testing.T) {
	url := fresh(t)
	limits := postgres.DefaultLimits
	limits.Lock, limits.Idle = 50*time.Millisecond, 300*time.Millisecond
	paused, s := open(t, url, postgres.WithLimits(limits)), open(t, url, postgres.WithLimits(limits))
	n := job(1, "")
	mustSubmit(t, s, n)
	held, lost := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tries := 0
		if err := paused.Update(t.Context(), func(tx kernel.Tx) error {
			tries++
			if _, err := tx.LockJobs([]perdure.JobID{n.Job.ID}); err != nil {
				return err
			}
			if tries == 1 {
				close(held)
				<-lost
			}
			_, err := tx.StepsOf(n.Job.ID)
			return err
		}); err != nil || tries < 2 {
			t.Errorf("%d tries: %v", tries, err)
		}
	})
	<-held
	if err := s.Update(t.Context(), func(tx kernel.Tx) error {
		jobs, err := tx.LockJobs([]perdure.JobID{n.Job.ID})
		if len(jobs) != 1 {
			err = errors.Join(err, errors.New("the job is not locked"))
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	close(lost)
	wg.Wait()
}
