package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// lockRow locks a job's row in a transaction of its own, as another program would, until the returned function is
// called.
func lockRow(t *testing.T, url string, job perdure.JobID) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select from perdure.step where job = $1 and idx = 0 for update", [16]byte(job)); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		_ = tx.Rollback(context.Background())
		_ = conn.Close(context.Background())
	})
}

// runNames returns the runs of an answer, in order.
func runNames(runs []perdure.Run) (all []string) {
	for _, r := range runs {
		all = append(all, fmt.Sprintf("%s/%s %d", r.Job, r.Step, r.Number))
	}
	slices.Sort(all)
	return all
}

// F019, F155: a claim is repeated while another transaction has locked the row of one of its runs. It gets the same runs
// once the lock is free. Claims and submissions of other callers are served meanwhile.
func TestRepeatedClaimWaitsForALockedRow(t *testing.T) {
	for _, withReport := range []bool{false, true} {
		t.Run(fmt.Sprintf("with reports %v", withReport), func(t *testing.T) {
			url := pgtest.Start(t)
			own, second := open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 3}), open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 3})
			for range 6 {
				own.submit(one)
			}
			c := protocol.Claim{Agent: "a", Holder: "h", Max: 3, RequestID: "r"}
			first := own.claim(c)
			for _, d := range []*harness{own, second} { // one has the rows in its cache, the other does not
				release := lockRow(t, url, first[1].Job)
				time.AfterFunc(700*time.Millisecond, release)
				began := time.Now()
				var going sync.WaitGroup
				going.Go(func() {
					other := c
					other.RequestID, other.Max = "other", 1
					if runs, err := d.Claim(t.Context(), other); err != nil || len(runs) != 1 || time.Since(began) > 500*time.Millisecond {
						t.Errorf("another claim: %d runs after %v, %v", len(runs), time.Since(began), err)
					}
					d.submit(one)
					if duration := time.Since(began); duration > 600*time.Millisecond {
						t.Errorf("a submission beside it took %v", duration)
					}
				})
				var again []perdure.Run
				var err error
				if withReport {
					_, again, err = d.Report(t.Context(), "h", nil, &c)
				} else {
					again, err = d.Claim(t.Context(), c)
				}
				if duration := time.Since(began); err != nil || !slices.Equal(runNames(again), runNames(first)) || duration > 2500*time.Millisecond {
					t.Errorf("after %v: %v, %v; was given %v", duration, runNames(again), err, runNames(first))
				}
				going.Wait()
				release()
			}
		})
	}
}

// F155: a claim that has waited for a lock gets its runs with their inputs.
func TestRepeatedClaimThatWaitedHasItsInputs(t *testing.T) {
	url := pgtest.Start(t)
	d := open(t, everystore.Postgres(t, url), scheduler.Config{})
	d.submit(fan(2, `agent: a, with: "${steps.big.output}"`))
	d.finish("big", listOfOnes(3))
	c := protocol.Claim{Agent: "a", Holder: "h", Max: 2, RequestID: "r"}
	first := d.claim(c)
	release := lockRow(t, url, first[0].Job)
	time.AfterFunc(300*time.Millisecond, release)
	again := d.claim(c)
	if !slices.Equal(runNames(again), runNames(first)) {
		t.Fatalf("%v, was given %v", runNames(again), runNames(first))
	}
	for _, run := range again {
		if string(run.Input) != string(listOfOnes(3)) {
			t.Errorf("step %s is handed %s", run.Step, run.Input)
		}
	}
}

// F155: if a row stays locked, the claim is refused after a while, and nothing else is granted to it.
func TestRepeatedClaimIsRefusedWhereARowStaysLocked(t *testing.T) {
	url := pgtest.Start(t)
	d := open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 3})
	for range 6 {
		d.submit(one)
	}
	for _, wait := range []time.Duration{0, 100 * time.Millisecond, time.Minute} {
		c := protocol.Claim{Agent: "a", Holder: "h", Max: 2, RequestID: fmt.Sprint("r", wait), Wait: wait}
		first := d.claim(c)
		release := lockRow(t, url, first[0].Job)
		began := time.Now()
		runs, err := d.Claim(t.Context(), c)
		if duration := time.Since(began); len(runs) > 0 || perdure.CodeOf(err) != perdure.CodeUnavailable || duration < 1900*time.Millisecond || duration > 3*time.Second {
			t.Errorf("wait %v: %v, %v after %v", wait, runNames(runs), err, duration)
		}
		release()
		if again := d.claim(c); !slices.Equal(runNames(again), runNames(first)) {
			t.Errorf("wait %v, once the lock is free: %v, was given %v", wait, runNames(again), runNames(first))
		}
	}
}

// blocking is a store in which other transactions have locked some rows: a transaction that does not wait for locks
// skips these rows.
type blocking struct {
	kernel.Store
	mu      sync.Mutex
	locked  map[perdure.JobID]bool
	waited  func() // called when a transaction waits for the locks; it frees the rows
	claimed bool   // another transaction has locked the claim
	locks   int    // how many claims were locked
}

func (s *blocking) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return s.Store.Update(ctx, func(tx kernel.Tx) error { return fn(blockingTx{tx, s}) })
}

type blockingTx struct {
	kernel.Tx
	s *blocking
}

func (tx blockingTx) TryLockJobs(ids []perdure.JobID) ([]*kernel.Job, error) {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	return tx.Tx.TryLockJobs(slices.DeleteFunc(slices.Clone(ids), func(id perdure.JobID) bool { return tx.s.locked[id] }))
}

func (tx blockingTx) LockJobs(ids []perdure.JobID) ([]*kernel.Job, error) {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if slices.ContainsFunc(ids, func(id perdure.JobID) bool { return tx.s.locked[id] }) && tx.s.waited != nil {
		tx.s.locked = nil
		tx.s.waited()
	}
	return tx.Tx.LockJobs(ids)
}

func (tx blockingTx) HeldBy(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if tx.s.claimed && request != "" {
		return nil, kernel.ErrLocked
	}
	tx.s.locks++
	return tx.Tx.HeldBy(holder, agent, request, max)
}

func (tx blockingTx) Granted(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if tx.s.claimed {
		return nil, kernel.ErrLocked
	}
	return tx.Tx.Granted(holder, agent, request, max)
}

// A claim is locked only by a transaction that grants it runs. If a transaction grants it nothing, the claim returns to
// the queue before the save, and the next transaction must find it unlocked.
func TestClaimThatIsGrantedNothingIsNotLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &blocking{Store: memory.New()}
		d := open(t, s, scheduler.Config{})
		c := protocol.Claim{Agent: "a", Holder: "h", Max: 2, RequestID: "r", Wait: 10 * time.Second}
		if runs := d.claim(c); len(runs) != 0 || s.locks != 0 {
			t.Errorf("%v, and the claim was locked %d times", runNames(runs), s.locks)
		}
		d.submit(one)
		if runs := d.claim(c); len(runs) != 1 || s.locks != 1 {
			t.Errorf("%v, and the claim was locked %d times", runNames(runs), s.locks)
		}
	})
}

// F155: a claim is locked before it is granted runs, because another node may have begun to grant it some since the
// search.
func TestWaitingClaimIsLockedBeforeItIsGrantedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &blocking{Store: memory.New()}
		d := open(t, s, scheduler.Config{})
		var going sync.WaitGroup
		going.Go(func() {
			runs, err := d.Claim(t.Context(), protocol.Claim{Agent: "a", Holder: "h", Max: 2, RequestID: "r", Wait: 10 * time.Second})
			if len(runs) > 0 || perdure.CodeOf(err) != perdure.CodeUnavailable {
				t.Errorf("%v, %v", runNames(runs), err)
			}
		})
		time.Sleep(time.Second)
		s.mu.Lock()
		s.claimed = true
		s.mu.Unlock()
		d.submit(one)
		going.Wait()
	})
}

// F155: what a repeated claim returns if another transaction has at first locked its runs or the claim itself.
func TestRepeatedClaimReturnsItsRunsDespiteLocks(t *testing.T) {
	c := protocol.Claim{Agent: "a", Holder: "h", Max: 2, RequestID: "r", Wait: 30 * time.Second}
	play := func(name string, act func(t *testing.T, s *blocking, d *harness, first []perdure.Run)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &blocking{Store: memory.New()}
				d := open(t, s, scheduler.Config{Writers: 3})
				for range 5 {
					d.submit(one)
				}
				first := d.claim(c)
				if len(first) != 2 {
					t.Fatal(runNames(first))
				}
				act(t, s, d, first)
			})
		})
	}
	lock := func(s *blocking, runs []perdure.Run, waited func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.locked, s.waited = map[perdure.JobID]bool{}, waited
		for _, r := range runs {
			s.locked[r.Job] = true
		}
	}
	play("some are locked", func(t *testing.T, s *blocking, d *harness, first []perdure.Run) {
		lock(s, first[:1], func() {})
		if again := d.claim(c); !slices.Equal(runNames(again), runNames(first)) {
			t.Errorf("%v, was given %v", runNames(again), runNames(first))
		}
	})
	play("all are locked", func(t *testing.T, s *blocking, d *harness, first []perdure.Run) {
		lock(s, first, func() {})
		if again := d.claim(c); !slices.Equal(runNames(again), runNames(first)) {
			t.Errorf("%v, was given %v", runNames(again), runNames(first))
		}
	})
	play("one has ended, and the other is locked", func(t *testing.T, s *blocking, d *harness, first []perdure.Run) {
		d.report("h", first[0], perdure.OutcomeDone)
		lock(s, first, func() {})
		if again := d.claim(c); !slices.Equal(runNames(again), runNames(first[1:])) {
			t.Errorf("%v, was given %v", runNames(again), runNames(first))
		}
	})
	for _, wait := range []time.Duration{0, 30 * time.Second} {
		play(fmt.Sprintf("they end while the lock is waited for, wait %v", wait), func(t *testing.T, s *blocking, d *harness, first []perdure.Run) {
			time.Sleep(time.Second)
			s.mu.Lock()
			s.claimed = true // it is locked for a while
			s.mu.Unlock()
			c := c
			c.Wait = wait
			var again []perdure.Run
			var going sync.WaitGroup
			going.Go(func() { again = d.claim(c) })
			time.Sleep(time.Second)
			for _, run := range first {
				d.report("h", run, perdure.OutcomeDone)
			}
			s.mu.Lock()
			s.claimed = false
			s.mu.Unlock()
			going.Wait()
			if len(again) != 2 || slices.ContainsFunc(again, func(r perdure.Run) bool { return r.Job == first[0].Job || r.Job == first[1].Job }) {
				t.Errorf("%v, was given %v, which have ended", runNames(again), runNames(first))
			}
		})
	}
	play("another transaction has the claim", func(t *testing.T, s *blocking, d *harness, _ []perdure.Run) {
		s.claimed = true
		for _, wait := range []time.Duration{0, time.Second, time.Minute} {
			c := c
			c.Wait = wait
			began := time.Now()
			runs, err := d.Claim(t.Context(), c)
			if duration := time.Since(began); len(runs) > 0 || perdure.CodeOf(err) != perdure.CodeUnavailable || duration < 2*time.Second || duration > 2100*time.Millisecond {
				t.Errorf("wait %v: %v, %v after %v", wait, runNames(runs), err, duration)
			}
		}
	})
	play("the node ends meanwhile", func(t *testing.T, s *blocking, _ *harness, _ []perdure.Run) {
		s.claimed = true
		cfg := scheduler.Config{Store: s}
		ending := scheduler.New(cfg)
		ctx, end := context.WithCancel(t.Context())
		go ending.Run(ctx)
		answered := make(chan error, 1)
		go func() {
			_, err := ending.Claim(t.Context(), c)
			answered <- err
		}()
		time.Sleep(time.Second)
		end()
		if err := <-answered; perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("%v", err)
		}
	})
	play("more than may wait at once", func(t *testing.T, s *blocking, d *harness, _ []perdure.Run) {
		s.claimed = true
		const most, more = 1000 + 2, 3 // maxLockedClaims, and those that repeaters have taken
		var mu sync.Mutex
		var atOnce, late int
		began := time.Now()
		var going sync.WaitGroup
		for i := range most + more {
			going.Go(func() {
				c := c
				c.RequestID = fmt.Sprint(i)
				runs, err := d.Claim(t.Context(), c)
				if len(runs) > 0 || perdure.CodeOf(err) != perdure.CodeUnavailable {
					t.Errorf("%v, %v", runNames(runs), err)
				}
				mu.Lock()
				defer mu.Unlock()
				if duration := time.Since(began); duration < time.Second {
					atOnce++
				} else if duration > 2500*time.Millisecond {
					late++
				}
			})
		}
		going.Wait()
		if atOnce != more || late > 0 {
			t.Errorf("%d are refused at once, %d after more than their time", atOnce, late)
		}
	})
}

// F155: claims are repeated on two nodes, while their jobs are written all the time. Each time they return the same
// runs.
func TestRepeatedClaimsUnderLoad(t *testing.T) {
	url := pgtest.Start(t)
	nodes := []*harness{open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 3}), open(t, everystore.Postgres(t, url), scheduler.Config{Writers: 3})}
	wide := "type: t\nsteps:\n"
	for i := range 40 {
		wide += fmt.Sprintf("  s%d: {agent: a}\n", i)
	}
	const claims, repeats = 12, 15
	for range claims {
		nodes[0].submit(wide)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	unavailable := 0
	for i := range claims {
		all.Go(func() {
			c := protocol.Claim{Agent: "a", Holder: fmt.Sprint("h", i), Max: 10, RequestID: fmt.Sprint("r", i), Heartbeat: time.Minute, Wait: 10 * time.Second}
			first, err := nodes[i%2].Claim(t.Context(), c)
			if err != nil || len(first) == 0 {
				t.Errorf("%d runs, %v", len(first), err)
				return
			}
			ctx, stop := context.WithCancel(t.Context())
			var beating sync.WaitGroup
			defer beating.Wait()
			defer stop()
			beating.Go(func() { // the rows of all jobs are locked again and again
				for n := 0; ctx.Err() == nil; n++ {
					heartbeats := make([]protocol.Heartbeat, len(first))
					for k, r := range first {
						heartbeats[k] = protocol.Heartbeat{Job: r.Job, Step: r.Step, Run: r.Number}
					}
					_, _ = nodes[n%2].Heartbeat(ctx, c.Holder, heartbeats)
				}
			})
			for k := range repeats {
				again, err := nodes[k%2].Claim(t.Context(), c)
				switch {
				case perdure.CodeOf(err) == perdure.CodeUnavailable:
					mu.Lock()
					unavailable++
					mu.Unlock()
				case err != nil || !slices.Equal(runNames(again), runNames(first)):
					t.Errorf("%s, repeat %d: %v, %v; was given %v", c.RequestID, k, runNames(again), err, runNames(first))
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d of %d were refused", unavailable, claims*repeats)
	if unavailable > claims*repeats/10 {
		t.Errorf("%d of %d were refused, although no lock is held for long", unavailable, claims*repeats)
	}
}
