package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
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
func tries(t *testing.T, s *Store, fn func(tx kernel.Tx, j *kernel.Job) error) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := s.Update(ctx, func(tx kernel.Tx) error {
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

// restarts writes what no guard but the version compares.
func restarts(n int) func(kernel.Tx, *kernel.Job) error {
	return func(tx kernel.Tx, j *kernel.Job) error {
		now := *j
		now.Restarts = n
		return tx.Save(&kernel.Changes{Jobs: []kernel.JobChange{{Now: &now, Was: j}}})
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
				done <- tries(t, b, func(tx kernel.Tx, j *kernel.Job) error {
					begun <- true
					<-let
					if changes {
						return restarts(3)(tx, j)
					}
					return nil
				})
			}()
			<-begun
			sum, n := 0, make(chan int)
			go func() {
				n <- tries(t, a, func(tx kernel.Tx, j *kernel.Job) error {
					begun <- true
					sum = j.Restarts + 1
					return restarts(sum)(tx, j)
				})
			}()
			<-begun // it does not wait for the lock
			time.Sleep(50 * time.Millisecond)
			close(let)
			<-done
			got := <-n
			if j, _ := locked(t, b, 1); got != want || j.Restarts != sum || changes != (sum == 4) {
				t.Errorf("%d tries, %d restarts", got, j.Restarts)
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
	ref := kernel.StepRef{Job: idOf(1), Index: 1}
	for name, read := range map[string]func(kernel.Tx) error{
		"nothing":  func(kernel.Tx) error { return nil },
		"StepsOf":  func(tx kernel.Tx) error { _, err := tx.StepsOf(idOf(1)); return err },
		"Payloads": func(tx kernel.Tx) error { _, err := tx.Payloads([]kernel.StepRef{ref}, 1); return err },
		"Inputs":   func(tx kernel.Tx) error { _, err := tx.Inputs([]perdure.JobID{idOf(1)}); return err },
		"Steps": func(tx kernel.Tx) error {
			_, err := tx.Steps([]kernel.StepRef{{Job: idOf(1), Index: 7}})
			return err
		},
	} {
		for _, changed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", changed: ", changed), func(t *testing.T) {
				a, b := trustedByOne(t)
				want := 1
				if changed {
					tries(t, b, restarts(3))
					want = 2
				}
				var last *kernel.Job
				past := 0
				n := tries(t, a, func(tx kernel.Tx, j *kernel.Job) error {
					last = j
					if err := read(tx); err != nil {
						return err
					}
					past++
					return nil
				})
				if n != want || (last.Restarts == 3) != changed {
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
	n := tries(t, a, func(tx kernel.Tx, j *kernel.Job) error {
		if _, err := tx.StepsOf(j.ID); err != nil {
			return err
		}
		return restarts(7)(tx, j)
	})
	if j, _ := locked(t, b, 1); n != 1 || j.Restarts != 7 || !knows(a, 1) {
		t.Errorf("%d tries, %+v", n, j)
	}
}

// A transaction that changes a job twice compares its version once.
func TestTrustedIsWrittenTwice(t *testing.T) {
	a, b := trustedByOne(t)
	n := tries(t, a, func(tx kernel.Tx, j *kernel.Job) error {
		now := *j
		now.Restarts = 5
		if err := tx.Save(&kernel.Changes{Jobs: []kernel.JobChange{{Now: &now, Was: j}}}); err != nil {
			return err
		}
		return restarts(6)(tx, &now)
	})
	if j, _ := locked(t, b, 1); n != 1 || j.Restarts != 6 {
		t.Errorf("%d tries, %+v", n, j)
	}
}

// Where others write to what is known, nothing is trusted for a while: each transaction would be done twice.
func TestTrustPauses(t *testing.T) {
	a, b := trustedByOne(t)
	round := func() int {
		tries(t, b, func(tx kernel.Tx, j *kernel.Job) error {
			now := *j
			now.Restarts++
			return tx.Save(&kernel.Changes{Jobs: []kernel.JobChange{{Now: &now, Was: j}}})
		})
		return tries(t, a, func(tx kernel.Tx, j *kernel.Job) error {
			now := *j
			now.Restarts++
			return tx.Save(&kernel.Changes{Jobs: []kernel.JobChange{{Now: &now, Was: j}}})
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
	if n := tries(t, a, restarts(2)); n != 2 {
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
		first <- tries(t, a, func(tx kernel.Tx, j *kernel.Job) error {
			begun <- true
			<-let
			now := *j
			now.Restarts = 1
			return tx.Save(&kernel.Changes{Jobs: []kernel.JobChange{{Now: &now, Was: j}}})
		})
	}()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	lock := func(tx kernel.Tx) error {
		_, err := tx.LockJobs([]perdure.JobID{idOf(0), idOf(1), idOf(2)})
		return err
	}
	if err := a.Update(ctx, lock); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it does not wait: %v", err)
	}
	if err := a.Update(t.Context(), func(tx kernel.Tx) error { _, err := tx.LockJobs([]perdure.JobID{idOf(0), idOf(2)}); return err }); err != nil {
		t.Errorf("what is apart waits: %v", err)
	}
	err := a.Update(t.Context(), func(tx kernel.Tx) error {
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
		second <- tries(t, a, func(tx kernel.Tx, j *kernel.Job) error {
			if j.Restarts != 1 {
				t.Errorf("%+v", j)
			}
			return restarts(3)(tx, j)
		})
	}()
	time.Sleep(20 * time.Millisecond)
	close(let)
	if n, m := <-first, <-second; n != 1 || m != 1 {
		t.Errorf("%d and %d tries", n, m)
	}
	if j, _ := locked(t, b, 1); j.Restarts != 3 || len(a.known.trusting) > 0 {
		t.Errorf("%+v, %d left", j, len(a.known.trusting))
	}
}

// A later step of a job that is trusted is written after the first row, which is the lock: whoever has that is waited
// for, and nobody waits for each other (F101).
func TestTrustedIsLockedBeforeItsSteps(t *testing.T) {
	a, b := trustedByOne(t)
	submitAsScheduler(t, a, oneOut(2))
	beat := func(tx kernel.Tx, n, index int) error {
		steps, err := tx.Steps([]kernel.StepRef{{Job: idOf(n), Index: index}})
		if err != nil {
			return err
		}
		now := *steps[0]
		now.Failures++
		return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{{Now: &now, Was: steps[0]}}})
	}
	begun, let, done := make(chan bool, 2), make(chan bool), make(chan int)
	go func() {
		done <- tries(t, b, func(tx kernel.Tx, _ *kernel.Job) error {
			begun <- true
			<-let
			return beat(tx, 1, 1)
		})
	}()
	<-begun
	n, first := 0, make(chan error)
	go func() {
		first <- a.Update(t.Context(), func(tx kernel.Tx) error {
			n++
			begun <- true
			if _, err := tx.LockJobs([]perdure.JobID{idOf(1), idOf(2)}); err != nil {
				return err
			}
			steps, err := tx.Steps([]kernel.StepRef{{Job: idOf(1), Index: 1}, {Job: idOf(2)}, {Job: idOf(2), Index: 1}})
			if err != nil {
				return err
			}
			var c kernel.Changes
			for _, i := range []int{2, 0, 1} {
				now := *steps[i]
				now.Failures++
				c.Steps = append(c.Steps, kernel.StepChange{Now: &now, Was: steps[i]})
			}
			return tx.Save(&c)
		})
	}()
	<-begun
	time.Sleep(100 * time.Millisecond) // it waits for the lock, and has nothing that the other wants
	if _, err := b.pool.Exec(t.Context(), "select from perdure.step where idx = 1 for update nowait"); err != nil {
		t.Error(err)
	}
	close(let)
	if tried := <-done; tried != 1 {
		t.Errorf("who has the lock has tried %d times", tried)
	}
	if err := <-first; err != nil || n != 2 {
		t.Errorf("%v, %d tries", err, n)
	}
	if _, steps := locked(t, b, 1); steps[1].Failures != 2 {
		t.Errorf("%+v", steps[1])
	}
}

// A job whose run is about to end is locked before the clock is read: two that are told of it answer alike (F056).
func TestNoTrustAtTheEndOfARun(t *testing.T) {
	for left, waits := range map[time.Duration]bool{trustTime / 2: true, -time.Hour: true, time.Hour: false} {
		t.Run(left.String(), func(t *testing.T) {
			a, b := trustedByOne(t)
			now, err := b.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			soon := oneOut(2)
			for _, s := range soon.Steps {
				s.LockedUntil = now.Add(left)
			}
			submitAsScheduler(t, a, soon)
			err = b.Update(t.Context(), func(tx kernel.Tx) error {
				if _, err := tx.LockJobs([]perdure.JobID{idOf(2)}); err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				err := a.Update(ctx, func(tx kernel.Tx) error { _, err := tx.LockJobs([]perdure.JobID{idOf(2)}); return err })
				if waited := errors.Is(err, context.DeadlineExceeded); waited != waits {
					t.Errorf("it waited for the lock: %v, %v", waited, err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Who asks for the lock a second time gets it, and goes by what is there then (I6).
func TestTrustedAndLockedAfterAll(t *testing.T) {
	a, b := trustedByOne(t)
	tries(t, b, restarts(7))
	tries(t, a, func(tx kernel.Tx, j *kernel.Job) error {
		jobs, err := tx.LockJobs([]perdure.JobID{idOf(1)})
		if err != nil {
			return err
		}
		return restarts(j.Restarts+len(jobs))(tx, j)
	})
	if j, _ := locked(t, b, 1); j.Restarts != 8 {
		t.Errorf("%+v", j)
	}
}

// A transaction that fails takes its trust along.
func TestTrustIsNotLeftBehind(t *testing.T) {
	a, b := trustedByOne(t)
	oops := errors.New("oops")
	err := a.Update(t.Context(), func(tx kernel.Tx) error {
		_, err := tx.LockJobs([]perdure.JobID{idOf(1)})
		return errors.Join(err, oops)
	})
	if !errors.Is(err, oops) || knows(a, 1) {
		t.Fatal(err, knows(a, 1))
	}
	tries(t, b, restarts(4))
	if n := tries(t, a, restarts(5)); n != 1 {
		t.Errorf("%d tries of what is not known", n)
	}
}

// Nor does a transaction that trusts a job, and tries to lock it later, go by what others of its process have left meanwhile: what
// it has decided before that is not compared any more (F018, I6).
func TestTrustedIsNotReplaced(t *testing.T) {
	a, b := trustedByOne(t)
	n := 0
	err := a.Update(t.Context(), func(tx kernel.Tx) error {
		n++
		jobs, err := tx.LockJobs([]perdure.JobID{idOf(1)})
		if err != nil {
			return err
		}
		if n == 1 {
			err := a.Update(t.Context(), func(tx kernel.Tx) error {
				jobs, err := tx.TryLockJobs([]perdure.JobID{idOf(1)})
				return errors.Join(err, restarts(7)(tx, jobs[0]))
			})
			if err != nil || !knows(a, 1) {
				t.Error(err, knows(a, 1))
			}
		}
		if _, err := tx.TryLockJobs([]perdure.JobID{idOf(1)}); err != nil {
			return err
		}
		return restarts(jobs[0].Restarts+1)(tx, jobs[0])
	})
	if j, _ := locked(t, b, 1); err != nil || j.Restarts != 8 || n != 2 {
		t.Errorf("%d tries, %d restarts, %v", n, j.Restarts, err)
	}
}
