package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
)

// keyJob returns laneJob with a key of limit ads.
func keyJob(n, priority int, key string) kernel.NewJob {
	nj := laneJob(n, priority)
	nj.Steps[0].Needs = kernel.Needs(`[{"name":"ads","key":"` + key + `"}]`)
	return nj
}

// checkPlaces fails the test if a step is hidden behind the place of its lane, or if a search does not return these
// steps in this order, whatever its limit.
func checkPlaces(t *testing.T, s *Store, want ...int) {
	t.Helper()
	if faults, err := s.Check(t.Context()); err != nil || len(faults) > 0 {
		t.Errorf("Check: %v, %v", faults, err)
	}
	for max := 1; max <= len(want)+1; max++ {
		err := s.Update(t.Context(), func(tx kernel.Tx) error {
			found, err := tx.Ready("a", max, nil, nil)
			if got := numbers(found); !slices.Equal(got, want[:min(max, len(want))]) {
				return errors.Join(err, fmt.Errorf("a search for %d steps returns %v, want %v", max, got, want))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// connect opens a connection to the same database.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// search runs a transaction that finds up to max steps and settles the first n. The function meanwhile runs before it
// ends.
func search(t *testing.T, s *Store, max, n int, meanwhile func()) {
	t.Helper()
	tries := 0
	err := s.Update(t.Context(), func(tx kernel.Tx) error {
		found, err := tx.Ready("a", max, nil, nil)
		if err != nil {
			return err
		}
		if tries++; tries == 1 {
			defer meanwhile()
		}
		c, err := settling(tx, found[:n])
		if err != nil {
			return err
		}
		return tx.Save(c)
	})
	if err != nil {
		t.Error(err)
	}
}

// A step becomes ready during a search, before the first step that the search leaves. It is not hidden behind the place
// that the search writes (L5, F017).
func TestPlaceIsNotRaisedPastANewStep(t *testing.T) {
	url := pgtest.Start(t)
	s := slowLanes(t, url, time.Hour)
	submitLane(t, s, keyJob(1, 9, "k"), keyJob(5, 0, "k"), keyJob(3, 5, "l"), keyJob(4, 5, "m"))
	search(t, s, 2, 1, func() { submitLane(t, s, keyJob(2, 9, "k")) })
	checkPlaces(t, s, 2, 3, 4, 5)
	search(t, s, 9, 4, func() { submitLane(t, s, keyJob(6, 9, "k"), keyJob(7, 0, "n")) }) // in lanes that the search would delete
	checkPlaces(t, s, 6, 7)
}

// Two transactions take steps from one lane at the same time. The place that is stored may be too early. A search still
// finds the first steps of all lanes, and corrects the place.
func TestPlaceThatIsTooEarlyIsCorrected(t *testing.T) {
	url := pgtest.Start(t)
	s := slowLanes(t, url, time.Hour)
	submitLane(t, s, keyJob(1, 9, "k"), keyJob(2, 9, "k"), keyJob(6, 0, "k"), keyJob(3, 5, "l"), keyJob(4, 5, "m"), keyJob(5, 5, "n"))
	search(t, s, 1, 1, func() { search(t, s, 2, 0, func() {}) })
	search(t, s, 2, 1, func() {})
	checkPlaces(t, s, 3, 4, 5, 6)
	conn := connect(t, url)
	for range 2 { // as if another transaction had locked the row
		if _, err := conn.Exec(t.Context(), "update perdure.lane set ord = ord - 1 where limits like '%\"k\"%' or limits like '%\"n\"%'"); err != nil {
			t.Fatal(err)
		}
		checkPlaces(t, s, 3, 4, 5, 6)
	}
	var wrong int
	if err := conn.QueryRow(t.Context(), `select count(*) from perdure.lane l join perdure.ready r on r.agent = l.agent and r.lane = l.lane
		where (l.ord, l.job, l.idx) <> (r.ord, r.job, r.idx)`).Scan(&wrong); err != nil || wrong > 0 {
		t.Errorf("%d places are still too early, %v", wrong, err)
	}
}

// A place that is too late, which only a fault or a manual change can make, hides the steps before it from one search.
// That search corrects it: a lane with a ready step is never deleted.
func TestPlaceThatIsTooLateIsCorrected(t *testing.T) {
	url := pgtest.Start(t)
	s := slowLanes(t, url, time.Hour)
	submitLane(t, s, keyJob(1, 9, "k"), keyJob(2, 5, "k"), keyJob(3, 0, "l"))
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), "update perdure.lane set ord = ord + 1000000000000000000"); err != nil {
		t.Fatal(err)
	}
	search(t, s, 9, 0, func() {})
	checkPlaces(t, s, 1, 2, 3)
}

// Two lanes may have the same place, if a step has moved from one to the other and the first could not be corrected
// (L5).
func TestPlaceSharedByTwoLanesHidesNoStep(t *testing.T) {
	url := pgtest.Start(t)
	s := slowLanes(t, url, time.Hour)
	submitLane(t, s, keyJob(1, 9, "l"), keyJob(2, 5, "k"), keyJob(3, 0, "l"))
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), `update perdure.lane l set ord = o.ord, job = o.job, idx = o.idx
		from perdure.lane o where l.limits like '%"k"%' and o.limits like '%"l"%'`); err != nil {
		t.Fatal(err)
	}
	err := s.Update(t.Context(), func(tx kernel.Tx) error {
		found, err := tx.Ready("a", 9, nil, nil)
		if got := numbers(found); !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("found %v", got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	checkPlaces(t, s, 1, 2, 3)
}

// A later search of a transaction sees what others have committed since its earlier search (L5, F018).
func TestLanesAreReadAgainByLaterSearches(t *testing.T) {
	url := pgtest.Start(t)
	s := slowLanes(t, url, time.Hour)
	submitLane(t, s, keyJob(2, 9, "l"), keyJob(3, 5, "l"), keyJob(4, 0, "l"))
	err := s.Update(t.Context(), func(tx kernel.Tx) error {
		if found, err := tx.Ready("a", 1, nil, nil); err != nil || !slices.Equal(numbers(found), []int{2}) {
			t.Errorf("found %v, %v", numbers(found), err)
		}
		search(t, s, 1, 1, func() {})
		submitLane(t, s, keyJob(1, 9, "l"))
		for _, max := range []int{1, 1, 3} {
			if found, err := tx.Ready("a", max, nil, nil); err != nil || !slices.Equal(numbers(found), []int{1, 3, 4}[:max]) {
				t.Errorf("a search for %d steps returns %v, %v", max, numbers(found), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A lane that was found, closed by another transaction and opened again is corrected (L5).
func TestLaneFoundBeforeItWasClosedIsCorrected(t *testing.T) {
	url := pgtest.Start(t)
	s := slowLanes(t, url, time.Hour)
	submitLane(t, s, keyJob(1, 9, "k"))
	conn := connect(t, url)
	err := s.Update(t.Context(), func(tx kernel.Tx) error {
		if _, err := tx.Ready("a", 9, nil, nil); err != nil {
			return err
		}
		if _, err := conn.Exec(t.Context(), "update perdure.lane set closed_name = 'ads', closed_key = 'k'; delete from perdure.ready"); err != nil {
			return err
		}
		_, err := tx.OpenLanes([]kernel.LimitKey{{Name: "ads", Key: "k"}}, 9)
		return err
	})
	var rows int
	if err := errors.Join(err, conn.QueryRow(t.Context(), "select count(*) from perdure.lane").Scan(&rows)); err != nil || rows > 0 {
		t.Errorf("%d rows of lanes without a step, %v", rows, err)
	}
}
