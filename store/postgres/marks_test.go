package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/racedetector"
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/storetest"
)

// slowLanes opens a store that regards every full search as slow, so that searches begin at the marks. interval is the
// time between full searches.
func slowLanes(t *testing.T, url string, interval time.Duration, opts ...Option) *Store {
	t.Helper()
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.cache.Marks.Quick, s.cache.Marks.Interval = 0, interval
	return s
}

// Searches that begin at the marks find every step that their own process makes ready.
func TestDifferentialFromMarks(t *testing.T) {
	racedetector.Skip(t)
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			url := pgtest.Start(t)
			storetest.Differential(t, 100+seed, 4500, memory.New(), NewPoster(t, url, slowLanes(t, url, time.Hour, WithBundles(int(seed%2)))))
		})
	}
}

func laneJob(n, priority int) kernel.NewJob {
	j := &kernel.Job{ID: perdure.JobID{0: 1, 6: 0x70, 8: 0x80, 14: byte(n >> 8), 15: byte(n)}, Type: "t", Priority: priority,
		Phase: perdure.Waiting, Unsettled: 1, Active: 1}
	return kernel.NewJob{Job: j, Shape: []byte("{}"), Steps: []*kernel.Step{{StepRef: kernel.StepRef{Job: j.ID}, Name: "s",
		Type: "t", Priority: priority, Phase: perdure.Ready, Agent: "a"}}}
}

func submitLane(t *testing.T, s *Store, jobs ...kernel.NewJob) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx kernel.Tx) error { return tx.Save(&kernel.Changes{NewJobs: jobs}) }); err != nil {
		t.Fatal(err)
	}
}

// claimLane settles the ready steps that it finds, in a transaction that then returns the error failure.
func claimLane(s *Store, most int, failure error) (found []kernel.StepRef, err error) {
	err = s.Update(context.Background(), func(tx kernel.Tx) error {
		if found, err = tx.Ready("a", most, nil, nil); err != nil {
			return err
		}
		c, err := settling(tx, found)
		if err != nil {
			return err
		}
		return errors.Join(tx.Save(c), failure)
	})
	return found, err
}

func numbers(refs []kernel.StepRef) (ns []int) {
	for _, r := range refs {
		ns = append(ns, int(r.Job[14])<<8|int(r.Job[15]))
	}
	return ns
}

// The marks of a transaction that was rolled back, or is in progress, hide no steps from others.
func TestMarksOfUncommittedTransactionsHideNoStep(t *testing.T) {
	s := slowLanes(t, pgtest.Start(t), time.Hour)
	submitLane(t, s, laneJob(1, 5), laneJob(2, 5), laneJob(3, 5))
	claim := func(most int, failure error, want ...int) {
		t.Helper()
		found, err := claimLane(s, most, failure)
		if !errors.Is(err, failure) || !slices.Equal(numbers(found), want) {
			t.Errorf("found %v, %v; want %v", numbers(found), err, want)
		}
	}
	oops := errors.New("oops")
	claim(1, nil, 1) // a full search
	claim(2, oops, 2, 3)
	claim(9, oops, 2, 3)
	if err := s.Update(t.Context(), func(tx kernel.Tx) error {
		found, err := tx.Ready("a", 9, nil, nil)
		if err != nil || len(found) != 2 {
			return errors.Join(err, fmt.Errorf("found %v", numbers(found)))
		}
		submitLane(t, s, laneJob(0, 5), laneJob(7, 9)) // before the steps that were found
		return nil
	}); err != nil {
		t.Error(err)
	}
	claim(9, nil, 7, 0, 2, 3)
	if l, err := s.Poll(t.Context(), []string{"a"}); err != nil || len(l.Ready) > 0 {
		t.Errorf("agents with ready steps: %v, %v; want none", l.Ready, err)
	}
	submitLane(t, s, laneJob(8, 5))
	if l, err := s.Poll(t.Context(), []string{"a", "b"}); err != nil || !slices.Equal(l.Ready, []string{"a"}) {
		t.Errorf("agents with ready steps: %v, %v; want a", l.Ready, err)
	}
	claim(9, nil, 8)
}

// Only plain lanes have marks. An agent without marks may have ready steps in lanes of limits, or in bundles.
func TestPollFindsStepsOfAgentsWithoutMarks(t *testing.T) {
	inBundle := laneJob(1, 5)
	inBundle.Job.Desired, inBundle.Job.Shape = perdure.Done, kernel.ShapeID{1}
	first := kernel.InitialStep(inBundle.Job, 0, "s", 0)
	first.Phase, first.Agent = perdure.Ready, "a"
	inBundle.Steps = []*kernel.Step{&first}
	for name, nj := range map[string]kernel.NewJob{"a lane of a limit": keyJob(1, 5, "k"), "a bundle": inBundle} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.Start(t)
			s := slowLanes(t, url, time.Hour, WithBundles(1))
			ready := func(want ...string) {
				t.Helper()
				if l, err := s.Poll(t.Context(), []string{"a", "b"}); err != nil || !slices.Equal(l.Ready, want) {
					t.Errorf("agents with ready steps: %v, %v; want %v", l.Ready, err, want)
				}
			}
			if found, err := claimLane(s, 1, nil); err != nil || len(found) > 0 { // a full search
				t.Fatalf("found %v, %v", numbers(found), err)
			}
			ready()
			submitLane(t, s, nj)
			var plain int
			if err := connect(t, url).QueryRow(t.Context(), "select count(*) from perdure.ready where lane >= 0").Scan(&plain); err != nil || plain > 0 {
				t.Fatalf("%d steps are in plain lanes, %v", plain, err)
			}
			ready("a")
			if found, err := claimLane(s, 9, nil); err != nil || !slices.Equal(numbers(found), []int{1}) {
				t.Errorf("found %v, %v", numbers(found), err)
			}
			ready()
		})
	}
}

// A step that another process makes ready before a mark is found by the next full search.
func TestStepsOfOtherProcessesAreFound(t *testing.T) {
	url := pgtest.Start(t)
	s, other := slowLanes(t, url, 300*time.Millisecond), slowLanes(t, url, time.Hour)
	submitLane(t, s, laneJob(100, 5), laneJob(101, 5))
	if _, err := claimLane(s, 1, nil); err != nil {
		t.Fatal(err)
	}
	if found, err := claimLane(s, 1, nil); err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	submitLane(t, other, laneJob(102, 5)) // after the mark: found at once
	if found, err := claimLane(s, 9, nil); err != nil || !slices.Equal(numbers(found), []int{102}) {
		t.Errorf("found %v, %v", numbers(found), err)
	}
	submitLane(t, other, laneJob(1, 9))
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		found, err := claimLane(s, 9, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 0 {
			break
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal("a step that another process made ready is not found within 30 s")
		}
	}
}

// A full search that finds steps of another process before a mark moves it back, also if its transaction is rolled back
// or uses only the first of them. Otherwise each full search would yield one claim's steps.
func TestFullSearchesMoveMarksBack(t *testing.T) {
	url := pgtest.Start(t)
	s, other := slowLanes(t, url, time.Hour), slowLanes(t, url, time.Hour)
	claim := func(most int, failure error, want ...int) {
		t.Helper()
		if found, err := claimLane(s, most, failure); !errors.Is(err, failure) || !slices.Equal(numbers(found), want) {
			t.Errorf("found %v, %v; want %v", numbers(found), err, want)
		}
	}
	oops := errors.New("oops")
	submitLane(t, s, laneJob(100, 5), laneJob(101, 5), laneJob(102, 5))
	claim(1, nil, 100)
	claim(1, nil, 101)
	submitLane(t, other, laneJob(1, 9), laneJob(2, 9), laneJob(3, 9))
	claim(1, nil, 102)
	s.cache.Marks.SearchFully("a")
	claim(1, oops, 1)
	claim(1, nil, 1)
	submitLane(t, s, laneJob(103, 5))
	if err := s.Update(t.Context(), func(tx kernel.Tx) error { // it begins at the mark, and ends after a full search
		found, err := tx.Ready("a", 1, nil, nil)
		if err != nil || !slices.Equal(numbers(found), []int{2}) {
			t.Errorf("found %v, %v", numbers(found), err)
		}
		submitLane(t, other, laneJob(0, 9))
		s.cache.Marks.SearchFully("a")
		claim(1, oops, 0)
		return nil
	}); err != nil {
		t.Error(err)
	}
	claim(1, nil, 0)
	claim(1, nil, 2)
	claim(9, nil, 3, 103)
	claim(9, nil)
}

// A mark follows the claims, at most one claim behind, so that no search reads the entries of steps that were dispatched
// long ago.
func TestMarksFollowTheClaims(t *testing.T) {
	s := slowLanes(t, pgtest.Start(t), time.Hour)
	const rounds, each = 5, 20
	for round := range rounds {
		var jobs []kernel.NewJob
		for i := range each {
			jobs = append(jobs, laneJob(round*each+i, 5))
		}
		submitLane(t, s, jobs...)
		if found, err := claimLane(s, each, nil); err != nil || len(found) != each {
			t.Fatalf("found %d steps, %v", len(found), err)
		}
	}
	if _, _, marks := s.cache.Marks.MarksOf([]string{"a"}); len(marks) != 1 || numbers([]kernel.StepRef{marks[0].StepRef})[0] < (rounds-1)*each {
		t.Errorf("the marks are %v", marks)
	}
}

// Concurrent searches skip the steps that a transaction has announced to dispatch, and no others. If the transaction is
// rolled back, they find these steps (L5).
func TestSearchesSkipAnnouncedSteps(t *testing.T) {
	for name, quick := range map[string]time.Duration{"quick": time.Hour, "slow": 0} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.Start(t)
			s, other := slowLanes(t, url, time.Hour), slowLanes(t, url, time.Hour)
			s.cache.Marks.Quick = quick
			find := func(want ...int) {
				t.Helper()
				var found []kernel.StepRef
				err := s.Update(t.Context(), func(tx kernel.Tx) (err error) {
					found, err = tx.Ready("a", 3, nil, nil)
					return err
				})
				if err != nil || !slices.Equal(numbers(found), want) {
					t.Errorf("found %v, %v; want %v", numbers(found), err, want)
				}
			}
			claim := func(want int) {
				t.Helper()
				if found, err := claimLane(s, 1, nil); err != nil || !slices.Equal(numbers(found), []int{want}) {
					t.Errorf("dispatched %v, %v; want %d", numbers(found), err, want)
				}
			}
			oops := errors.New("oops")
			// announce finds two steps, announces them, and settles them or fails; meanwhile runs after the
			// announcement.
			announce := func(meanwhile func(), failure error) {
				t.Helper()
				err := s.Update(t.Context(), func(tx kernel.Tx) error {
					found, err := tx.Ready("a", 2, nil, nil)
					if err != nil {
						return err
					}
					c, err := settling(tx, found)
					if err != nil {
						return err
					}
					tx.AnnounceDispatch("b")
					find(numbers(found)[0], numbers(found)[1], numbers(found)[1]+1)
					tx.AnnounceDispatch("a")
					meanwhile()
					return errors.Join(tx.Save(c), failure)
				})
				if !errors.Is(err, failure) {
					t.Error(err)
				}
			}
			for n := range 20 {
				submitLane(t, s, laneJob(100+n, 5))
			}
			claim(100)
			announce(func() { find(103, 104, 105) }, oops)
			find(101, 102, 103)
			announce(func() { // others dispatch later steps, so that the marks are behind these
				claim(103)
				claim(104)
			}, oops)
			find(101, 102, 105)
			claim(101)
			claim(102)
			announce(func() {
				announce(func() { find(109, 110, 111) }, nil)
				find(109, 110, 111)
			}, nil)
			find(109, 110, 111)
			announce(func() {
				find(111, 112, 113)
				submitLane(t, s, laneJob(1, 5))
				find(1, 109, 110)
				claim(1)
			}, nil)
			find(111, 112, 113)
			announce(func() {
				submitLane(t, other, laneJob(2, 5))
				for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
					var found []kernel.StepRef
					err := s.Update(t.Context(), func(tx kernel.Tx) (err error) {
						s.cache.Marks.SearchFully("a") // otherwise the marks would hide it
						found, err = tx.Ready("a", 1, nil, nil)
						return err
					})
					if err != nil || time.Since(began) > 30*time.Second {
						t.Error("a step that another process made ready is never found", err)
						return
					}
					if numbers(found)[0] == 2 {
						return
					}
				}
			}, nil)
			find(2, 113, 114)
			if n := s.cache.Marks.InProgress("a"); n > 0 {
				t.Errorf("%d searches are still registered", n)
			}
		})
	}
}

// settling returns the changes that settle these steps.
func settling(tx kernel.Tx, found []kernel.StepRef) (*kernel.Changes, error) {
	steps, err := tx.Steps(found)
	c := &kernel.Changes{}
	for _, loaded := range steps {
		now := *loaded
		now.Phase = perdure.Settled
		c.Steps = append(c.Steps, kernel.StepChange{Now: &now, Loaded: loaded})
	}
	return c, err
}
