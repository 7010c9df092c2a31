package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/postgres"
)

func now(t *testing.T, s *postgres.Store) time.Time {
	t.Helper()
	at, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// write stores a job, and returns the store's time.
func write(t *testing.T, s *postgres.Store, n int) (at time.Time) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx kernel.Tx) (err error) {
		if at, err = tx.Now(); err != nil {
			return err
		}
		return tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{job(n, "")}})
	}); err != nil {
		t.Fatal(err)
	}
	return at
}

// setBack simulates that the server's clock was set back: it moves the mark forward instead.
func setBack(t *testing.T, url string, by time.Duration) {
	t.Helper()
	exec(t, url, "update perdure.clock set mark = mark + $1::bigint * interval '1 microsecond', ahead = 0", by.Microseconds())
}

// If the server's clock is set back, or a server whose clock is behind takes over, the store's time continues, at nine
// tenths of its pace or faster. This holds for nodes that had the store open and for new ones (F081).
func TestTimeNeverRunsBack(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	time.Sleep(300 * time.Millisecond) // until the mark is old enough to be written again
	before := write(t, s, 1)
	setBack(t, url, time.Hour)
	for i, s := range []*postgres.Store{s, open(t, url)} {
		first := write(t, s, 10+i)
		if first.Before(before.Add(time.Hour - time.Second)) {
			t.Errorf("%v, after %v", first, before.Add(time.Hour))
		}
		time.Sleep(20 * time.Millisecond)
		if second := now(t, s); second.Sub(first) < 18*time.Millisecond || second.Sub(first) > time.Minute {
			t.Errorf("does not go on: %v, then %v", first, second)
		}
	}
}

// When the server's clock has passed the mark, the store's time is that of the clock.
func TestTimeFollowsTheClockWhenTheLeadHasEnded(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	exec(t, url, "update perdure.clock set mark = now() - interval '1 minute', ahead = 3600000000")
	if at := now(t, s); time.Until(at).Abs() > 10*time.Second {
		t.Errorf("%v", at)
	}
	write(t, s, 1)
	if at := now(t, open(t, url)); time.Until(at).Abs() > 10*time.Second {
		t.Errorf("%v", at)
	}
}

// F080, F081: the clock of a real server is set forward, back, and forward again while two nodes use it. The store's
// time never runs back, and keeps about its pace. Each jump raises one alert, if the previous one was closed.
func TestServerClockJumpsRaiseAlerts(t *testing.T) {
	server, set := pgtest.NewServerWithClock(t)
	if _, _, err := postgres.Migrate(t.Context(), server.URL); err != nil {
		t.Fatal(err)
	}
	stores := []*postgres.Store{open(t, server.URL), open(t, server.URL)}
	var last [2]time.Time
	n := 0
	pass := func(d time.Duration) {
		t.Helper()
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			for i, s := range stores {
				n++
				at := write(t, s, n)
				if read := now(t, s); at.Before(last[i]) || read.Before(at) {
					t.Errorf("time runs back: %v, %v after %v", at, read, last[i])
				}
				last[i] = at
			}
		}
	}
	lead := func(want time.Duration) {
		t.Helper()
		for _, s := range stores {
			if is := time.Until(now(t, s)); (is - want).Abs() > 500*time.Millisecond {
				t.Errorf("Perdure's time is %v ahead of the true time, want %v", is, want)
			}
		}
	}
	alerted := func(want string) {
		t.Helper()
		open, err := stores[0].Alerts(t.Context(), kernel.AlertFilter{})
		if err != nil || want == "" && len(open) > 0 || want != "" && (len(open) != 1 || open[0].Kind != perdure.AlertClock || !strings.Contains(open[0].Message, want)) {
			t.Errorf("want an alert with %q: %+v, %v", want, open, err)
		}
		for _, a := range open {
			if err := stores[0].Update(t.Context(), func(tx kernel.Tx) error {
				_, err := tx.CloseAlert(a.ID, "anna", a.RaisedAt)
				return err
			}); err != nil {
				t.Error(err)
			}
		}
	}
	pass(300 * time.Millisecond)
	lead(0)
	alerted("")
	set(30 * time.Second)
	pass(300 * time.Millisecond)
	lead(30 * time.Second)
	alerted("was set forward by 30s")
	set(25 * time.Second)
	pass(300 * time.Millisecond)
	lead(30 * time.Second) // ahead of the server's clock by 5 s
	alerted("was set back by 5s")
	pass(5 * time.Second)
	lead(29500 * time.Millisecond) // the lead has shrunk by a tenth of the time that has passed
	set(30 * time.Second)
	pass(300 * time.Millisecond)
	lead(30 * time.Second)
	alerted("was set forward by 5s")
	pass(300 * time.Millisecond)
	alerted("")
}
