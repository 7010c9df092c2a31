package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/pgtest"
)

// F152: a probe was acknowledged, but the bound is still reached, because commits were sent after the probe and have
// been given up since. The next probe is sent at once, because nothing else ends the stop.
func TestProbesContinueUntilCommitsAreSentAgain(t *testing.T) {
	url := pgtest.Start(t)
	if _, _, err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range maxGivenUp {
		s.commits.givenUp(s, time.Now().Add(time.Second))
	}
	if err := s.Accepting(); !errors.Is(err, errNoAnswer) {
		t.Fatalf("after %d: %v", maxGivenUp, err)
	}
	for start := time.Now(); s.Accepting() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("commits are not sent again")
		}
	}
}
