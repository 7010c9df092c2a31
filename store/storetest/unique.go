package storetest

import (
	"errors"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

func uniqueKey(key string) kernel.UniqueKey { return kernel.UniqueKey{Type: "order", Key: key} }

// uniqueJob returns job n as the one that holds a key until a time of storetest; 0: until it is settled.
func uniqueJob(n int, key string, until time.Duration) kernel.UniqueJob {
	u := kernel.UniqueJob{UniqueKey: uniqueKey(key), Job: id(n)}
	if until > 0 {
		u.Until = at(until)
	}
	return u
}

func (s *suite) uniqueAre(want ...kernel.UniqueJob) {
	s.Helper()
	all := map[kernel.UniqueKey]kernel.UniqueJob{}
	for _, u := range want {
		all[u.UniqueKey] = u
	}
	checkTx(s, "unique jobs", all, func(tx kernel.Tx) (map[kernel.UniqueKey]kernel.UniqueJob, error) {
		return tx.UniqueJobs([]kernel.UniqueKey{uniqueKey("a"), uniqueKey("b"), {Type: "other", Key: "a"}, uniqueKey("none"), uniqueKey("a")})
	})
}

// The rows of unique jobs are written with their jobs, replaced, and deleted when their jobs are settled or their time has
// passed.
func uniqueRows(s *suite) {
	a, b, other := uniqueJob(1, "a", 0), uniqueJob(2, "b", time.Hour), uniqueJob(3, "a", 2*time.Hour)
	other.Type = "other"
	nj := []kernel.NewJob{newJob(1, 1), newJob(2, 1), newJob(3, 1)}
	s.save(&kernel.Changes{NewJobs: nj, Unique: []kernel.UniqueChange{{UniqueJob: b}, {UniqueJob: other}, {UniqueJob: a}}})
	s.uniqueAre(a, b, other)

	// In one transaction: the row of a settled job is deleted, and another is written with its key.
	next := uniqueJob(4, "a", 3*time.Hour)
	s.save(&kernel.Changes{NewJobs: []kernel.NewJob{newJob(4, 1)}, ReleaseUnique: ids(1, 2), Unique: []kernel.UniqueChange{{UniqueJob: next}}})
	s.uniqueAre(next, b, other) // that of job 2 goes by its time
	second := uniqueJob(5, "b", 0)
	s.save(&kernel.Changes{NewJobs: []kernel.NewJob{newJob(5, 1)}, Unique: []kernel.UniqueChange{{UniqueJob: second, Replaces: id(2)}}})
	s.uniqueAre(next, second, other)

	remove := func(now time.Duration, max, want int) {
		s.Helper()
		s.update(func(tx kernel.Tx) {
			n, err := tx.DeleteUnique(at(now), max)
			s.must(err)
			s.equal("deleted rows", n, want)
		})
	}
	remove(2*time.Hour-time.Microsecond, 10, 0)
	remove(9*time.Hour, 0, 0)
	remove(9*time.Hour, 1, 1)
	s.uniqueAre(next, second)
	remove(3*time.Hour, 10, 1)
	s.uniqueAre(second) // the row that has no time stays
	s.save(&kernel.Changes{ReleaseUnique: ids(5)})
	s.uniqueAre()
}

// A key that another transaction has taken or released makes the transaction stale, and nothing of it is stored.
func uniqueConflicts(s *suite) {
	held := uniqueJob(1, "a", time.Hour)
	s.save(&kernel.Changes{NewJobs: []kernel.NewJob{newJob(1, 1)}, Unique: []kernel.UniqueChange{{UniqueJob: held}}})
	for name, u := range map[string]kernel.UniqueChange{
		"taken":              {UniqueJob: uniqueJob(2, "a", time.Hour)},
		"of another job":     {UniqueJob: uniqueJob(2, "a", time.Hour), Replaces: id(7)},
		"released meanwhile": {UniqueJob: uniqueJob(2, "b", time.Hour), Replaces: id(7)},
	} {
		err := s.store.Update(ctx, func(tx kernel.Tx) error {
			return tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{newJob(2, 1)}, Unique: []kernel.UniqueChange{u}})
		})
		if !errors.Is(err, kernel.ErrStale) {
			s.Errorf("%s: got %v", name, err)
		}
		if s.job(2) != nil {
			s.Errorf("%s: the refused transaction stored something", name)
		}
		s.uniqueAre(held)
	}
}
