package postgres_test

import (
	"testing"
	"time"

	"perdure"
	"perdure/store/postgres"
)

func now(t *testing.T, s *postgres.Store) time.Time {
	t.Helper()
	at, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// write commits something, at the store's time.
func write(t *testing.T, s *postgres.Store, n int) (at time.Time) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx perdure.Tx) (err error) {
		if at, err = tx.Now(); err != nil {
			return err
		}
		return tx.Save(&perdure.Changes{NewJobs: []perdure.NewJob{job(n, "")}})
	}); err != nil {
		t.Fatal(err)
	}
	return at
}

// setBack stands for a server whose clock was set back: what was told before is so much later.
func setBack(t *testing.T, url string, by time.Duration) {
	t.Helper()
	exec(t, url, "update perdure.clock set mark = mark + $1::bigint * interval '1 microsecond', ahead = 0", by.Microseconds())
}

// When the server's clock is set back, or one that is behind takes over, time goes on from where it
// was, at its usual pace, for nodes that were there and for those that come (F081).
func TestTimeNeverRunsBack(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	time.Sleep(300 * time.Millisecond) // the mark is behind now, and is raised
	before := write(t, s, 1)
	setBack(t, url, time.Hour)
	for i, s := range []*postgres.Store{s, open(t, url)} {
		first := write(t, s, 10+i)
		if first.Before(before.Add(time.Hour - time.Second)) {
			t.Errorf("%v, after %v", first, before.Add(time.Hour))
		}
		time.Sleep(20 * time.Millisecond)
		if second := now(t, s); second.Sub(first) < 20*time.Millisecond || second.Sub(first) > time.Minute {
			t.Errorf("does not go on: %v, then %v", first, second)
		}
	}
}

// Once the server's clock has passed the mark, it is followed again.
func TestTimeCatchesUp(t *testing.T) {
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
