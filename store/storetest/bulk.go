package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

var bulkChecks = []check{
	{"Bulk/EveryField", bulkFields},
	{"Bulk/ListNewestFirst", bulkLists},
	{"Bulk/KeyAndIdAreTakenOnce", bulkTaken},
	{"Bulk/ListedJobsInPages", bulkListed},
	{"Bulk/RefusalsInPages", bulkRefusals},
	{"Bulk/RollbackKeepsTheCursor", bulkRolledBack},
	{"Bulk/LockedUntilTheEnd", bulkLocked},
	{"Bulk/OldOnesAreForgotten", bulkForgotten},
}

func bulkID(n int) string { return fmt.Sprintf("bulk_%032x", n) }

// newBulk returns a running bulk act of which every field has a value, except those that only an ended one has.
func newBulk(n int, edits ...func(*kernel.BulkAct)) *kernel.BulkAct {
	b := &kernel.BulkAct{ID: bulkID(n), Key: fmt.Sprintf("key ü %d", n), Request: []byte(`{"act":"undo","x":"<ü>"}`), Author: "anna", Reason: "a\nb", Listed: 3,
		Below: id(900 + n), Expected: 10_000, Capped: true, State: operate.BulkRunning, Cursor: id(1),
		StartedAt: at(time.Duration(n) * time.Second), UpdatedAt: at(time.Duration(n) * time.Second), ResumedAt: at(time.Duration(n) * time.Second)}
	for _, edit := range edits {
		edit(b)
	}
	return b
}

func (s *suite) addBulk(list ...*kernel.BulkAct) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		for _, b := range list {
			s.must(tx.AddBulkAct(b, ids(2, 3, 5)))
		}
	})
}

func (s *suite) bulk(n int) *kernel.BulkAct {
	s.Helper()
	b, err := s.store.BulkAct(ctx, bulkID(n))
	s.must(err)
	return b
}

// changeBulk edits a stored bulk act.
func (s *suite) changeBulk(n int, refusals []kernel.BulkRefusal, edit func(*kernel.BulkAct)) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		b, err := tx.LockBulkAct(bulkID(n))
		s.must(err)
		edit(b)
		s.must(tx.SaveBulkAct(b, refusals))
	})
}

// Every field is stored and read. A save does not change what was set by the start.
func bulkFields(s *suite) {
	s.equal("no bulk act", s.bulk(1), (*kernel.BulkAct)(nil))
	want := newBulk(1)
	s.addBulk(want, newBulk(2, func(b *kernel.BulkAct) { b.Key, b.Capped, b.Listed, b.Below = "", false, 0, perdure.JobID{} }))
	s.equal("as it was added", s.bulk(1), want)
	checkTx(s, "locked", want, func(tx kernel.Tx) (*kernel.BulkAct, error) { return tx.LockBulkAct(want.ID) })
	checkTx(s, "by key", want, func(tx kernel.Tx) (*kernel.BulkAct, error) { return tx.BulkActByKey(want.Key) })
	for _, key := range []string{"", "other"} {
		checkTx(s, "by a key that no bulk act has", (*kernel.BulkAct)(nil), func(tx kernel.Tx) (*kernel.BulkAct, error) { return tx.BulkActByKey(key) })
	}
	checkTx(s, "no such bulk act", (*kernel.BulkAct)(nil), func(tx kernel.Tx) (*kernel.BulkAct, error) { return tx.LockBulkAct(bulkID(9)) })
	checkTx(s, "running", 2, func(tx kernel.Tx) (int, error) { return tx.RunningBulkActs() })
	s.changeBulk(1, nil, func(b *kernel.BulkAct) {
		b.State, b.StoppedBy, b.Cursor, b.Done, b.Unchanged, b.Refused = operate.BulkStopped, "ben", id(7), 1, 2, 3
		b.UpdatedAt, b.EndedAt, b.ResumedAt, b.MatchedBefore = at(time.Minute), at(2*time.Minute), at(3*time.Minute), 4
		*want = *b
		b.Key, b.Request, b.Author, b.Reason, b.Listed, b.Below, b.Expected, b.Capped, b.StartedAt = "x", []byte("x"), "x", "x", 9, id(9), 9, false, at(time.Hour)
	})
	s.equal("after a save", s.bulk(1), want)
	checkTx(s, "running", 1, func(tx kernel.Tx) (int, error) { return tx.RunningBulkActs() })
}

func bulkLists(s *suite) {
	list := func(f kernel.BulkFilter) (names []string) {
		found, err := s.store.BulkActs(ctx, f)
		s.must(err)
		for _, b := range found {
			names = append(names, b.ID)
		}
		return names
	}
	s.equal("no bulk acts", list(kernel.BulkFilter{}), nil)
	s.addBulk(newBulk(1), newBulk(2), newBulk(3))
	s.changeBulk(2, nil, func(b *kernel.BulkAct) { b.State = operate.BulkDone })
	s.equal("all", list(kernel.BulkFilter{}), []string{bulkID(3), bulkID(2), bulkID(1)})
	s.equal("two", list(kernel.BulkFilter{Limit: 2}), []string{bulkID(3), bulkID(2)})
	s.equal("those before", list(kernel.BulkFilter{Before: bulkID(2)}), []string{bulkID(1)})
	s.equal("running", list(kernel.BulkFilter{State: operate.BulkRunning}), []string{bulkID(3), bulkID(1)})
	s.equal("running, before", list(kernel.BulkFilter{State: operate.BulkRunning, Before: bulkID(3), Limit: 9}), []string{bulkID(1)})
	s.equal("done", list(kernel.BulkFilter{State: operate.BulkDone}), []string{bulkID(2)})
	s.equal("stopped", list(kernel.BulkFilter{State: operate.BulkStopped}), nil)
}

// An id, and a key, belongs to one bulk act.
func bulkTaken(s *suite) {
	s.addBulk(newBulk(1))
	for _, b := range []*kernel.BulkAct{newBulk(1, func(b *kernel.BulkAct) { b.Key = "other" }), newBulk(2, func(b *kernel.BulkAct) { b.Key = newBulk(1).Key })} {
		if err := s.store.Update(ctx, func(tx kernel.Tx) error { return tx.AddBulkAct(b, nil) }); !errors.Is(err, kernel.ErrStale) {
			s.Errorf("%s %q: %v", b.ID, b.Key, err)
		}
	}
	s.equal("the first", s.bulk(1), newBulk(1))
	s.equal("the second", s.bulk(2), (*kernel.BulkAct)(nil))
	without := func(b *kernel.BulkAct) { b.Key = "" }
	s.addBulk(newBulk(3, without), newBulk(4, without))
}

func bulkListed(s *suite) {
	s.addBulk(newBulk(1))
	for _, c := range []struct {
		n     int
		after perdure.JobID
		max   int
		want  []perdure.JobID
	}{{1, perdure.JobID{}, 9, ids(2, 3, 5)}, {1, perdure.JobID{}, 2, ids(2, 3)}, {1, id(3), 9, ids(5)}, {1, id(4), 1, ids(5)}, {1, id(5), 9, nil}, {1, id(1), 0, nil}, {2, perdure.JobID{}, 9, nil}} {
		found, err := s.store.ListedJobs(ctx, bulkID(c.n), c.after, c.max)
		s.must(err)
		s.equal(fmt.Sprintf("%d of %d after %v", c.max, c.n, c.after), found, c.want)
	}
}

func bulkRefusals(s *suite) {
	s.submit(newJob(2, 1, keyed("order-2")), newJob(3, 1))
	s.addBulk(newBulk(1), newBulk(2))
	all := []kernel.BulkRefusal{{Number: 1, Job: id(2), Key: "order-2", Code: perdure.CodeConflict, Message: "not\n<now>"}, {Number: 2, Job: id(3), Code: perdure.CodeNotFound}, {Number: 3, Job: id(5), Code: perdure.CodeInvalid, Message: "ü"}}
	s.changeBulk(1, all[:2], func(b *kernel.BulkAct) { b.Refused = 2 })
	s.changeBulk(1, all[2:], func(b *kernel.BulkAct) { b.Refused = 3 })
	for _, c := range []struct {
		n, after, max int
		want          []kernel.BulkRefusal
	}{{1, 0, 9, all}, {1, 0, 2, all[:2]}, {1, 2, 9, all[2:]}, {1, 3, 9, nil}, {1, 0, 0, nil}, {2, 0, 9, nil}} {
		found, err := s.store.BulkRefusals(ctx, bulkID(c.n), c.after, c.max)
		s.must(err)
		s.equal(fmt.Sprintf("%d of %d after %d", c.max, c.n, c.after), found, c.want)
	}
}

// A transaction that fails moves no cursor, keeps no refusal, and adds no bulk act (F001).
func bulkRolledBack(s *suite) {
	s.addBulk(newBulk(1))
	err := s.store.Update(ctx, func(tx kernel.Tx) error {
		b, err := tx.LockBulkAct(bulkID(1))
		s.must(err)
		b.Cursor, b.Done = id(9), 5
		s.must(tx.SaveBulkAct(b, []kernel.BulkRefusal{{Number: 1, Job: id(2), Code: perdure.CodeConflict}}))
		s.must(tx.AddBulkAct(newBulk(2), ids(1)))
		return errOops
	})
	if !errors.Is(err, errOops) {
		s.Error(err)
	}
	s.equal("the bulk act", s.bulk(1), newBulk(1))
	s.equal("the other", s.bulk(2), (*kernel.BulkAct)(nil))
	refusals, err := s.store.BulkRefusals(ctx, bulkID(1), 0, 9)
	s.must(err)
	s.equal("refusals", refusals, nil)
}

// Two transactions that move the same bulk act on follow each other: none overwrites what the other has counted.
func bulkLocked(s *suite) {
	s.addBulk(newBulk(1))
	const each = 20
	errs := make(chan error)
	for range 2 {
		go func() {
			var err error
			for range each {
				err = errors.Join(err, s.store.Update(context.WithoutCancel(ctx), func(tx kernel.Tx) error {
					b, err := tx.LockBulkAct(bulkID(1))
					if err != nil {
						return err
					}
					b.Done++
					return tx.SaveBulkAct(b, []kernel.BulkRefusal{{Number: b.Done, Job: id(1), Code: perdure.CodeConflict}})
				}))
			}
			errs <- err
		}()
	}
	s.must(errors.Join(<-errs, <-errs))
	s.equal("counted", s.bulk(1).Done, 2*each)
}

// Only bulk acts that do not run are deleted, with their refusals, a bounded number at a time.
func bulkForgotten(s *suite) {
	s.addBulk(newBulk(1), newBulk(2), newBulk(3), newBulk(4))
	for n, state := range map[int]operate.BulkState{1: operate.BulkDone, 2: operate.BulkStopped, 3: operate.BulkRunning, 4: operate.BulkDone} {
		s.changeBulk(n, []kernel.BulkRefusal{{Number: 1, Job: id(2), Code: perdure.CodeConflict}}, func(b *kernel.BulkAct) { b.State = state })
	}
	for _, c := range []struct {
		before time.Time
		max    int
		want   int
	}{{at(time.Second), 9, 0}, {at(time.Hour), 0, 0}, {at(time.Hour), 1, 1}, {at(4 * time.Second), 9, 1}, {at(4*time.Second + 1000), 9, 1}, {at(time.Hour), 9, 0}} {
		n, err := s.store.ForgetBulkActs(ctx, c.before, c.max)
		s.must(err)
		s.equal(fmt.Sprintf("forgotten before %v", c.before), n, c.want)
	}
	s.equal("the one that runs", s.bulk(3) != nil, true)
	for n := range 4 {
		refusals, err := s.store.BulkRefusals(ctx, bulkID(n+1), 0, 9)
		s.must(err)
		s.equal(fmt.Sprintf("refusals of %d", n+1), len(refusals) > 0, n+1 == 3)
	}
}
