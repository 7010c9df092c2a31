package storetest

import (
	"errors"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// childNewsOf is a change of job child, for step idx of job owner.
func childNewsOf(owner, idx, child int, from, to kernel.ChildState, after time.Duration) kernel.ChildNews {
	return kernel.ChildNews{Owner: ref(owner, idx), Child: id(child), From: from, To: to, At: at(after)}
}

// withoutNumbers returns news without the numbers, which each store assigns in its own way.
func withoutNumbers(list []kernel.ChildNews, err error) ([]kernel.ChildNews, error) {
	for i := range list {
		list[i].Number = 0
	}
	return list, err
}

func (s *suite) newsOf(owner, idx, max int, want ...kernel.ChildNews) {
	s.Helper()
	checkTx(s, "news", want, func(tx kernel.Tx) ([]kernel.ChildNews, error) {
		return withoutNumbers(tx.ChildNews(ref(owner, idx), max))
	})
	got, err := withoutNumbers(s.store.ReadChildNews(ctx, ref(owner, idx), max))
	s.must(err)
	s.equal("news outside of a transaction", got, want)
}

// News of children is found by its owner in the order in which it was stored, makes the owner due, and is deleted once (F312).
func childNews(s *suite) {
	s.save(&kernel.Changes{NewJobs: []kernel.NewJob{newJob(1, 2), newJob(2, 1), newJob(3, 1)}})
	a := childNewsOf(1, 1, 2, kernel.ChildActive, kernel.ChildDone, time.Second)
	b := childNewsOf(1, 1, 3, kernel.ChildActive, kernel.ChildParked, 2*time.Second)
	c := childNewsOf(1, 1, 3, kernel.ChildParked, kernel.ChildUnsure, 3*time.Second)
	other := childNewsOf(1, 0, 2, kernel.ChildDone, kernel.ChildUndone, 4*time.Second)
	s.save(&kernel.Changes{News: []kernel.ChildNews{a, b}})
	s.save(&kernel.Changes{News: []kernel.ChildNews{other, c}})
	s.newsOf(1, 1, 10, a, b, c)
	s.newsOf(1, 1, 2, a, b)
	s.newsOf(1, 1, 0)
	s.newsOf(1, 0, 10, other)
	s.newsOf(2, 0, 10)

	due := func(now time.Duration, max int, want ...kernel.StepRef) {
		s.Helper()
		checkTx(s, "due", want, func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Due(at(now), max) })
	}
	due(time.Second-time.Microsecond, 10)
	due(4*time.Second, 10, ref(1, 0), ref(1, 1))
	due(4*time.Second, 1, ref(1, 0))
	poll, err := s.store.Poll(ctx, nil)
	s.must(err)
	s.equal("next", poll.Next, at(time.Second))

	var taken []kernel.ChildNews
	take := func(max int) error {
		return s.store.Update(ctx, func(tx kernel.Tx) (err error) {
			if taken, err = tx.ChildNews(ref(1, 1), max); err != nil {
				return err
			}
			return tx.Save(&kernel.Changes{TakenNews: taken})
		})
	}
	s.must(take(2))
	s.newsOf(1, 1, 10, c)
	again := taken
	err = s.store.Update(ctx, func(tx kernel.Tx) error { return tx.Save(&kernel.Changes{TakenNews: again}) })
	s.equal("news that is taken twice is stale", errors.Is(err, kernel.ErrStale), true)
	s.newsOf(1, 1, 10, c)
	s.must(take(10))
	s.newsOf(1, 1, 10)
	due(time.Hour, 10, ref(1, 0))
}

// What a step records of its children, and the parent of a job, are kept.
func childColumns(s *suite) {
	parent := kernel.ParentParts{StepRef: ref(1, 1), Step: "resize", Depth: 1}
	s.save(&kernel.Changes{NewJobs: []kernel.NewJob{newJob(1, 2), newJob(2, 1, func(j *kernel.Job) { j.Parent = parent.Parent() })}})
	s.changeSteps(func(st *kernel.Step) { st.Children, st.Owns = `{"first":"x","total":3}`, true }, ref(1, 1))
	owner := func() (step *kernel.Step) {
		s.update(func(tx kernel.Tx) { step = s.one(ref(1, 1), tx) })
		return step
	}
	step := owner()
	s.equal("children", step.Children, kernel.ChildrenState(`{"first":"x","total":3}`))
	s.equal("owns", step.Owns, true)
	j, _, err := s.store.Job(ctx, id(2), 0)
	s.must(err)
	s.equal("parent", j.Parent, parent.Parent())
	s.changeSteps(func(st *kernel.Step) { st.Owns = false }, ref(1, 1))
	s.equal("owns afterwards", owner().Owns, false)
}
