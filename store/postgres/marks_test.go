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

// slowLanes is a store to which every look at a whole lane is slow: it begins at its marks.
func slowLanes(t *testing.T, url string, rest time.Duration) *Store {
	t.Helper()
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.cache.Marks.Quick, s.cache.Marks.Interval = 0, rest
	return s
}

// What one process makes ready itself, it finds from its marks on.
func TestDifferentialFromMarks(t *testing.T) {
	racedetector.Skip(t)
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			url := pgtest.Start(t)
			storetest.Differential(t, 100+seed, 2500, memory.New(), NewPoster(t, url, slowLanes(t, url, time.Hour)))
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

// claimLane dispatches the ready steps that it finds, and ends their runs; then it fails with fail.
func claimLane(s *Store, most int, fail error) (found []kernel.StepRef, err error) {
	err = s.Update(context.Background(), func(tx kernel.Tx) error {
		if found, err = tx.Ready("a", most, nil); err != nil {
			return err
		}
		c, err := settling(tx, found)
		if err != nil {
			return err
		}
		return errors.Join(tx.Save(c), fail)
	})
	return found, err
}

func numbers(refs []kernel.StepRef) (ns []int) {
	for _, r := range refs {
		ns = append(ns, int(r.Job[14])<<8|int(r.Job[15]))
	}
	return ns
}

// The marks of a transaction that is rolled back, or under way, take nothing away from others.
func TestMarksOfUncommittedTransactionsHideNoStep(t *testing.T) {
	s := slowLanes(t, pgtest.Start(t), time.Hour)
	submitLane(t, s, laneJob(1, 5), laneJob(2, 5), laneJob(3, 5))
	claim := func(most int, fail error, want ...int) {
		t.Helper()
		found, err := claimLane(s, most, fail)
		if !errors.Is(err, fail) || !slices.Equal(numbers(found), want) {
			t.Errorf("found %v, %v; want %v", numbers(found), err, want)
		}
	}
	oops := errors.New("oops")
	claim(1, nil, 1) // a full look
	claim(2, oops, 2, 3)
	claim(9, oops, 2, 3)
	if err := s.Update(t.Context(), func(tx kernel.Tx) error {
		found, err := tx.Ready("a", 9, nil)
		if err != nil || len(found) != 2 {
			return errors.Join(err, fmt.Errorf("found %v", numbers(found)))
		}
		submitLane(t, s, laneJob(0, 5), laneJob(7, 9)) // below what was found
		return nil
	}); err != nil {
		t.Error(err)
	}
	claim(9, nil, 7, 0, 2, 3)
	if l, err := s.Poll(t.Context(), []string{"a"}); err != nil || len(l.Ready) > 0 {
		t.Errorf("%v, %v", l.Ready, err)
	}
	submitLane(t, s, laneJob(8, 5))
	if l, err := s.Poll(t.Context(), []string{"a", "b"}); err != nil || !slices.Equal(l.Ready, []string{"a"}) {
		t.Errorf("%v, %v", l.Ready, err)
	}
	claim(9, nil, 8)
}

// What another process makes ready below a mark is found by a full look, soon.
func TestStepsOfOtherProcessesAreFound(t *testing.T) {
	url := pgtest.Start(t)
	s, other := slowLanes(t, url, 300*time.Millisecond), slowLanes(t, url, time.Hour)
	submitLane(t, s, laneJob(100, 5), laneJob(101, 5))
	if _, err := claimLane(s, 1, nil); err != nil {
		t.Fatal(err)
	}
	if found, err := claimLane(s, 1, nil); err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	submitLane(t, other, laneJob(102, 5)) // above the mark: at once
	if found, err := claimLane(s, 9, nil); err != nil || !slices.Equal(numbers(found), []int{102}) {
		t.Error(numbers(found), err)
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
			t.Fatal("never found")
		}
	}
}

// A mark follows what is claimed, at most one claim behind: no look walks over what left long ago.
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
			t.Fatal(len(found), err)
		}
	}
	if _, marks := s.cache.Marks.MarksOf([]string{"a"}); len(marks) != 1 || numbers([]kernel.StepRef{marks[0].StepRef})[0] < (rounds-1)*each {
		t.Errorf("searches begin at %v", marks)
	}
}

// Other claims pass the steps that a transaction is about to dispatch, and no others. If the transaction is rolled back,
// they find these steps (L5).
func TestSearchesSkipAnnouncedSteps(t *testing.T) {
	for name, quick := range map[string]time.Duration{"quick": time.Hour, "slow": 0} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.Start(t)
			s, other := slowLanes(t, url, time.Hour), slowLanes(t, url, time.Hour)
			s.cache.Marks.Quick = quick
			look := func(want ...int) {
				t.Helper()
				var found []kernel.StepRef
				err := s.Update(t.Context(), func(tx kernel.Tx) (err error) {
					found, err = tx.Ready("a", 3, nil)
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
			// passing finds two steps, lets others pass them, and lets them out, or not.
			passing := func(meanwhile func(), fail error) {
				t.Helper()
				err := s.Update(t.Context(), func(tx kernel.Tx) error {
					found, err := tx.Ready("a", 2, nil)
					if err != nil {
						return err
					}
					c, err := settling(tx, found)
					if err != nil {
						return err
					}
					tx.AnnounceDispatch("b")
					look(numbers(found)[0], numbers(found)[1], numbers(found)[1]+1)
					tx.AnnounceDispatch("a")
					meanwhile()
					return errors.Join(tx.Save(c), fail)
				})
				if !errors.Is(err, fail) {
					t.Error(err)
				}
			}
			for n := range 20 {
				submitLane(t, s, laneJob(100+n, 5))
			}
			claim(100)
			passing(func() { look(103, 104, 105) }, oops)
			look(101, 102, 103)
			passing(func() { // other claims dispatch later steps, and begin their lanes there
				claim(103)
				claim(104)
			}, oops)
			look(101, 102, 105)
			claim(101)
			claim(102)
			passing(func() {
				passing(func() { look(109, 110, 111) }, nil)
				look(109, 110, 111)
			}, nil)
			look(109, 110, 111)
			passing(func() {
				look(111, 112, 113)
				submitLane(t, s, laneJob(1, 5))
				look(1, 109, 110)
				claim(1)
			}, nil)
			look(111, 112, 113)
			passing(func() {
				submitLane(t, other, laneJob(2, 5))
				for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
					var found []kernel.StepRef
					err := s.Update(t.Context(), func(tx kernel.Tx) (err error) {
						s.cache.Marks.SearchFully("a") // else marks keep it from being found
						found, err = tx.Ready("a", 1, nil)
						return err
					})
					if err != nil || time.Since(began) > 30*time.Second {
						t.Error("what another process has made ready is passed for ever", err)
						return
					}
					if numbers(found)[0] == 2 {
						return
					}
				}
			}, nil)
			if name == "quick" {
				look(2, 113, 114)
			}
			if n := s.cache.Marks.InProgress("a"); n > 0 {
				t.Errorf("%d searches are left behind", n)
			}
		})
	}
}

// settling settles steps.
func settling(tx kernel.Tx, found []kernel.StepRef) (*kernel.Changes, error) {
	steps, err := tx.Steps(found)
	c := &kernel.Changes{}
	for _, was := range steps {
		now := *was
		now.Phase = perdure.Settled
		c.Steps = append(c.Steps, kernel.StepChange{Now: &now, Loaded: was})
	}
	return c, err
}
