package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var signalChecks = []check{
	{"Signals/KeptAndTaken", signalsKept},
	{"Signals/Waiters", signalWaiters},
	{"Signals/Delete", signalsDeleted},
	{"Signals/SenderAndWaiterNeverMissEachOther", raceSignals},
}

const paid = kernel.Topic("payment.completed/p1")

func newSignal(t kernel.Topic, id string, after time.Duration) *kernel.Signal {
	return &kernel.Signal{Topic: t, ID: id, Data: json.RawMessage(`{"n": 1.0}`), At: at(after), Until: at(after + time.Hour)}
}

func sends(signals ...*kernel.Signal) *kernel.Changes {
	var c kernel.Changes
	for _, s := range signals {
		c.Signals = append(c.Signals, kernel.SignalChange{Signal: s})
	}
	return &c
}

// unnumbered returns a signal without its number, which stores assign differently.
func unnumbered(s *kernel.Signal) *kernel.Signal {
	if s == nil {
		return nil
	}
	c := *s
	c.Number = 0
	return &c
}

func (s *suite) keptSignal(what string, t kernel.Topic, job perdure.JobID, now time.Duration, want *kernel.Signal, leftOut ...int64) (number int64) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		s.must(tx.LockTopics([]kernel.Topic{t}))
		got, err := tx.KeptSignal(t, job, at(now), leftOut)
		s.must(err)
		s.equal(what, unnumbered(got), unnumbered(want))
		if got != nil {
			number = got.Number
		}
	})
	return number
}

// Signals are kept in the order in which they were stored, also those for one job only. A signal is taken once. It keeps its
// id until it is deleted or replaced.
func signalsKept(s *suite) {
	first, second, other, own := newSignal(paid, "a", 0), newSignal(paid, "b", time.Minute), newSignal("x/p1", "a", 0), newSignal(paid, "a", 0)
	own.Job = id(1)
	s.save(sends(own, other, first))
	s.save(sends(second))
	s.refused("an id twice", sends(newSignal(paid, "b", 0)))
	s.keptSignal("for its job", paid, id(1), 0, own)
	number := s.keptSignal("for another job", paid, id(2), 0, first)
	s.keptSignal("that is left out", paid, id(2), 0, second, number)
	s.keptSignal("all are left out", paid, id(2), 2*time.Hour, nil)
	s.keptSignal("the first is over", paid, id(2), time.Hour, second)
	s.keptSignal("of another topic", "x/p1", id(2), 0, other)
	s.keptSignal("of no topic", "y/p1", id(2), 0, nil)

	taken := *first
	taken.Number, taken.Data, taken.Taken, taken.Until = number, nil, []string{id(2).String() + "/s0"}, at(2*time.Hour)
	s.save(sends(&taken))
	s.refused("taken twice", sends(&taken))
	gone := taken
	gone.Number = 1 << 40
	s.refused("that does not exist", sends(&gone))
	s.keptSignal("after it was taken", paid, id(2), 0, second)
	count := func(kept, all int) {
		s.Helper()
		s.update(func(tx kernel.Tx) {
			k, n, err := tx.CountSignals(100, 100)
			s.must(err)
			s.equal("kept", k, kept)
			s.equal("stored", n, all)
			k, n, err = tx.CountSignals(1, 2)
			s.must(err)
			s.equal("kept, up to a number", k, min(1, kept))
			s.equal("stored, up to a number", n, min(2, all))
		})
	}
	count(3, 4)
	find := func(what string, job perdure.JobID, name string, want *kernel.Signal) (number int64) {
		s.Helper()
		s.update(func(tx kernel.Tx) {
			got, err := tx.FindSignal(paid, job, name)
			s.must(err)
			s.equal(what, unnumbered(got), unnumbered(want))
			if got != nil {
				number = got.Number
			}
		})
		return number
	}
	number = find("that was taken", perdure.JobID{}, "a", &taken)
	find("of a job", id(1), "a", own)
	find("of another job", id(2), "a", nil)
	find("that is not stored", perdure.JobID{}, "z", nil)

	toAll := newSignal(paid, "a", time.Minute)
	toAll.Taken, toAll.Data = []string{}, nil
	s.save(&kernel.Changes{Signals: []kernel.SignalChange{{Signal: toAll, Replaces: number}}})
	find("that replaces another", perdure.JobID{}, "a", toAll)
	s.keptSignal("after one that is not kept", paid, id(2), 0, second)
	count(3, 4)

	if err := s.store.Update(ctx, func(tx kernel.Tx) error {
		s.must(tx.Save(sends(newSignal(paid, "c", 0))))
		return errOops
	}); !errors.Is(err, errOops) {
		s.Errorf("rolled back: %v", err)
	}
	find("that was rolled back", perdure.JobID{}, "c", nil)
}

// Steps that wait are found by their topic, in order, until they stop waiting.
func signalWaiters(s *suite) {
	waits := func(t kernel.Topic) func(*kernel.Step) {
		return func(st *kernel.Step) { st.Phase, st.Topic = perdure.Waiting, t }
	}
	s.submit(newJob(1, 2), newJob(2, 2), newJob(3, 1))
	find := func(what string, t kernel.Topic, job perdure.JobID, max int, want ...int) {
		s.Helper()
		checkTx(s, what, refs(want...), func(tx kernel.Tx) ([]kernel.StepRef, error) {
			if err := tx.LockTopics([]kernel.Topic{t, "z/z"}); err != nil {
				return nil, err
			}
			return tx.Waiters(t, job, max)
		})
	}
	find("none", paid, perdure.JobID{}, 9)
	for _, r := range refs(2, 0, 1, 1, 3, 0, 1, 0) {
		s.changeStep(r, waits(paid))
	}
	s.changeStep(ref(2, 1), waits("x/p1"))
	find("all", paid, perdure.JobID{}, 9, 1, 0, 1, 1, 2, 0, 3, 0)
	find("the first", paid, perdure.JobID{}, 3, 1, 0, 1, 1, 2, 0)
	find("of one job", paid, id(1), 9, 1, 0, 1, 1)
	find("of a job without", "x/p1", id(1), 9)
	s.changeStep(ref(1, 0), func(st *kernel.Step) { st.Phase, st.Topic = perdure.Settled, "" })
	s.changeStep(ref(2, 0), waits("x/p1"))
	find("after two have gone", paid, perdure.JobID{}, 9, 1, 1, 3, 0)
	find("of the other topic", "x/p1", perdure.JobID{}, 9, 2, 0, 2, 1)
}

// Signals that are over are deleted, the oldest first, whether they are kept or not.
func signalsDeleted(s *suite) {
	taken := newSignal(paid, "b", time.Second)
	taken.Taken, taken.Data = []string{"x"}, nil
	s.save(sends(newSignal(paid, "a", 0), taken, newSignal(paid, "c", time.Minute)))
	sweep := func(now time.Duration, max, want int) {
		s.Helper()
		s.update(func(tx kernel.Tx) {
			n, err := tx.DeleteSignals(at(now), max)
			s.must(err)
			s.equal("deleted", n, want)
		})
	}
	sweep(time.Hour-time.Microsecond, 9, 0)
	sweep(time.Hour+time.Second, 1, 1)
	sweep(time.Hour, 9, 0)
	sweep(time.Hour+time.Second, 9, 1)
	sweep(2*time.Hour, 0, 0)
	sweep(2*time.Hour, 9, 1)
	s.keptSignal("none is left", paid, id(1), 0, nil)
}

// Senders and steps that begin to wait lock the topic: each signal is taken, or kept while no step waits, whatever the order
// (F290).
func raceSignals(s *suite) {
	const pairs = 12
	topics := []kernel.Topic{"a/k", "b/k"}
	for n := range pairs {
		s.submit(newJob(n, 1))
	}
	var mu sync.Mutex
	matched := 0
	s.concurrently(2*pairs, func(i int) error {
		n, taken := i/2, false
		err := s.store.Update(ctx, func(tx kernel.Tx) error {
			taken = false
			t := topics[n%2]
			if i%2 == 0 { // a sender
				if err := tx.LockTopics(topics[n%2 : n%2+1]); err != nil {
					return err
				}
				waiting, err := tx.Waiters(t, perdure.JobID{}, pairs)
				if err != nil {
					return err
				}
				waiting = slices.DeleteFunc(waiting, func(r kernel.StepRef) bool {
					locked, err := tx.TryLockJobs([]perdure.JobID{r.Job})
					return err != nil || len(locked) == 0
				})
				sig := newSignal(t, fmt.Sprint(n), 0)
				if len(waiting) == 0 {
					return tx.Save(sends(sig))
				}
				taken, sig.Taken = true, []string{"x"}
				c := sends(sig)
				c.Steps = []kernel.StepChange{editStep(s.one(waiting[0], tx), func(st *kernel.Step) { settle(st); st.Topic = "" })}
				return tx.Save(c)
			}
			if _, err := tx.LockJobs(ids(n)); err != nil {
				return err
			}
			if err := tx.LockTopics(topics); err != nil {
				return err
			}
			kept, err := tx.KeptSignal(t, id(n), at(0), nil)
			if err != nil {
				return err
			}
			step := s.one(ref(n, 0), tx)
			if kept == nil {
				return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(step, func(st *kernel.Step) { st.Phase, st.Topic = perdure.Waiting, t })}})
			}
			kept.Taken, taken = []string{"x"}, true
			c := sends(kept)
			c.Steps = []kernel.StepChange{editStep(step, settle)}
			return tx.Save(c)
		})
		mu.Lock()
		defer mu.Unlock()
		if taken && err == nil {
			matched++
		}
		return err
	})
	s.equal("steps that have received a signal", matched, pairs)
}
