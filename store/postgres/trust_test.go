package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"perdure"
	"perdure/internal/pgtest"
)

// trustedByOne is two stores on one database, and a job that the first one trusts.
func trustedByOne(t *testing.T) (a, b *Store) {
	t.Helper()
	url := pgtest.Start(t)
	a, b = slowLanes(t, url, time.Hour), slowLanes(t, url, time.Hour)
	submitAsScheduler(t, a, oneOut(1))
	if !knows(a, 1) {
		t.Fatal("it is not known")
	}
	return a, b
}

// tries counts how often a transaction on job 1 is done until it is committed.
func tries(t *testing.T, s *Store, fn func(tx perdure.Tx, j *perdure.Job) error) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := s.Update(ctx, func(tx perdure.Tx) error {
		n++
		jobs, err := tx.LockJobs([]perdure.JobID{idOf(1)})
		if err != nil {
			return err
		}
		return fn(tx, jobs[0])
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func active(n int) func(perdure.Tx, *perdure.Job) error {
	return func(tx perdure.Tx, j *perdure.Job) error {
		now := *j
		now.Active = n
		return tx.Save(&perdure.Changes{Jobs: []perdure.JobChange{{Now: &now, Was: j}}})
	}
}

// Who writes to a job that it trusts takes the lock with the write: whoever holds it and changes nothing is waited for,
// and the change of one who does is seen (F058, I6).
func TestTrustedIsLockedByTheWrite(t *testing.T) {
	for changes, want := range map[bool]int{false: 1, true: 2} {
		t.Run(fmt.Sprint(changes), func(t *testing.T) {
			a, b := trustedByOne(t)
			begun, let := make(chan bool, 2), make(chan bool)
			done := make(chan int)
			go func() {
				done <- tries(t, b, func(tx perdure.Tx, j *perdure.Job) error {
					begun <- true
					<-let
					if changes {
						return active(3)(tx, j)
					}
					return nil
				})
			}()
			<-begun
			sum, n := 0, make(chan int)
			go func() {
				n <- tries(t, a, func(tx perdure.Tx, j *perdure.Job) error {
					begun <- true
					sum = j.Active + 1
					return active(sum)(tx, j)
				})
			}()
			<-begun // it does not wait for the lock
			time.Sleep(50 * time.Millisecond)
			close(let)
			<-done
			got := <-n
			if j, _ := locked(t, b, 1); got != want || j.Active != sum || changes != (sum == 4) {
				t.Errorf("%d tries, %d active", got, j.Active)
			}
			if a.known.wary() != changes {
				t.Errorf("it trusts: %v", !a.known.wary())
			}
		})
	}
}

// What is answered without a write is true when it is answered, and what is read beside what is known belongs to it
// (F018, I6).
func TestTrustedIsComparedWhereNothingIsWritten(t *testing.T) {
	ref := perdure.StepRef{Job: idOf(1), Index: 1}
	for name, read := range map[string]func(perdure.Tx) error{
		"nothing":  func(perdure.Tx) error { return nil },
		"StepsOf":  func(tx perdure.Tx) error { _, err := tx.StepsOf(idOf(1)); return err },
		"Payloads": func(tx perdure.Tx) error { _, err := tx.Payloads([]perdure.StepRef{ref}); return err },
		"Inputs":   func(tx perdure.Tx) error { _, err := tx.Inputs([]perdure.JobID{idOf(1)}); return err },
		"Steps": func(tx perdure.Tx) error {
			_, err := tx.Steps([]perdure.StepRef{{Job: idOf(1), Index: 7}})
			return err
		},
	} {
		for _, changed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", changed: ", changed), func(t *testing.T) {
				a, b := trustedByOne(t)
				want := 1
				if changed {
					tries(t, b, active(3))
					want = 2
				}
				var last *perdure.Job
				past := 0
				n := tries(t, a, func(tx perdure.Tx, j *perdure.Job) error {
					last = j
					if err := read(tx); err != nil {
						return err
					}
					past++
					return nil
				})
				if n != want || (last.Active == 3) != changed {
					t.Errorf("%d tries, %+v", n, last)
				}
				if name != "nothing" && past != 1 {
					t.Errorf("it went by what is outdated, and by what was read, %d times", past-1)
				}
			})
		}
	}
}

// A job that is read of under its lock after all is written where it was locked, and known afterwards.
func TestTrustedIsWrittenAfterAReading(t *testing.T) {
	a, b := trustedByOne(t)
	n := tries(t, a, func(tx perdure.Tx, j *perdure.Job) error {
		if _, err := tx.StepsOf(j.ID); err != nil {
			return err
		}
		return active(7)(tx, j)
	})
	if j, _ := locked(t, b, 1); n != 1 || j.Active != 7 || !knows(a, 1) {
		t.Errorf("%d tries, %+v", n, j)
	}
}

// A transaction that changes a job twice compares its version once.
func TestTrustedIsWrittenTwice(t *testing.T) {
	a, b := trustedByOne(t)
	n := tries(t, a, func(tx perdure.Tx, j *perdure.Job) error {
		now := *j
		now.Active = 5
		if err := tx.Save(&perdure.Changes{Jobs: []perdure.JobChange{{Now: &now, Was: j}}}); err != nil {
			return err
		}
		return active(6)(tx, &now)
	})
	if j, _ := locked(t, b, 1); n != 1 || j.Active != 6 {
		t.Errorf("%d tries, %+v", n, j)
	}
}

// Where others write to what is known, nothing is trusted for a while: each transaction would be done twice.
func TestTrustPauses(t *testing.T) {
	a, b := trustedByOne(t)
	round := func() int {
		tries(t, b, func(tx perdure.Tx, j *perdure.Job) error {
			now := *j
			now.Restarts++
			return tx.Save(&perdure.Changes{Jobs: []perdure.JobChange{{Now: &now, Was: j}}})
		})
		return tries(t, a, func(tx perdure.Tx, j *perdure.Job) error {
			now := *j
			now.Restarts++
			return tx.Save(&perdure.Changes{Jobs: []perdure.JobChange{{Now: &now, Was: j}}})
		})
	}
	sum := 0
	for range 10 {
		sum += round()
	}
	if sum != 11 {
		t.Errorf("%d tries for ten transactions", sum)
	}
	a.known.distrusted = time.Time{}
	if n := round(); n != 2 {
		t.Errorf("%d tries: it never trusts again", n)
	}
}

// After a server's start nothing that was known is trusted.
func TestNoTrustInAnotherServer(t *testing.T) {
	a, _ := trustedByOne(t)
	a.known.mu.Lock()
	a.known.server = time.UnixMicro(1)
	a.known.mu.Unlock()
	if n := tries(t, a, active(2)); n != 2 {
		t.Errorf("%d tries", n)
	}
}

// Who comes to a job that another transaction of this process trusts waits for that, and neither is tried again; who
// has begun does not wait.
func TestTrustedElsewhere(t *testing.T) {
	a, b := trustedByOne(t)
	begun, let := make(chan bool), make(chan bool)
	first := make(chan int)
	go func() {
		first <- tries(t, a, func(tx perdure.Tx, j *perdure.Job) error {
			begun <- true
			<-let
			now := *j
			now.Restarts = 1
			return tx.Save(&perdure.Changes{Jobs: []perdure.JobChange{{Now: &now, Was: j}}})
		})
	}()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	lock := func(tx perdure.Tx) error {
		_, err := tx.LockJobs([]perdure.JobID{idOf(0), idOf(1), idOf(2)})
		return err
	}
	if err := a.Update(ctx, lock); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it does not wait: %v", err)
	}
	if err := a.Update(t.Context(), func(tx perdure.Tx) error { _, err := tx.LockJobs([]perdure.JobID{idOf(0), idOf(2)}); return err }); err != nil {
		t.Errorf("what is apart waits: %v", err)
	}
	err := a.Update(t.Context(), func(tx perdure.Tx) error {
		if _, err := tx.Now(); err != nil {
			return err
		}
		return lock(tx)
	})
	if err != nil {
		t.Errorf("who has begun waits: %v", err)
	}
	second := make(chan int)
	go func() {
		second <- tries(t, a, func(tx perdure.Tx, j *perdure.Job) error {
			if j.Restarts != 1 {
				t.Errorf("%+v", j)
			}
			return active(3)(tx, j)
		})
	}()
	time.Sleep(20 * time.Millisecond)
	close(let)
	if n, m := <-first, <-second; n != 1 || m != 1 {
		t.Errorf("%d and %d tries", n, m)
	}
	if j, _ := locked(t, b, 1); j.Restarts != 1 || j.Active != 3 || len(a.known.trusting) > 0 {
		t.Errorf("%+v, %d left", j, len(a.known.trusting))
	}
}

// A transaction that fails takes its trust along.
func TestTrustIsNotLeftBehind(t *testing.T) {
	a, b := trustedByOne(t)
	oops := errors.New("oops")
	err := a.Update(t.Context(), func(tx perdure.Tx) error {
		_, err := tx.LockJobs([]perdure.JobID{idOf(1)})
		return errors.Join(err, oops)
	})
	if !errors.Is(err, oops) || knows(a, 1) {
		t.Fatal(err, knows(a, 1))
	}
	tries(t, b, active(4))
	if n := tries(t, a, active(5)); n != 1 {
		t.Errorf("%d tries of what is not known", n)
	}
}
