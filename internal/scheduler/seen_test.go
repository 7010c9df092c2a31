package scheduler

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/store/memory"
)

// F157: callers choose the names of holders. However many there are, the number in memory is bounded, and so is the
// number of new ones that are stored in an hour. Known ones are still stored.
func TestHoldersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Store: memory.New(), Compiler: &definition.Compiler{}})
		written := map[string]int{}
		take := func() {
			for _, seen := range s.TakeSeen(time.Now()) {
				written[seen.Holder]++
			}
		}
		s.seen.note("a", "known")
		take()
		for i := range 3 * perdure.MaxSeen / 2 {
			if i%1000 == 0 {
				s.seen.note("a", "known")
				take()
				time.Sleep(seenEvery)
			}
			s.seen.note("a", fmt.Sprint("h", i))
			if len(s.seen.claimedAt) > perdure.MaxSeen || len(s.seen.storedAt) > perdure.MaxSeen {
				t.Fatalf("%d are remembered, %d as written", len(s.seen.claimedAt), len(s.seen.storedAt))
			}
		}
		take()
		if n := len(written); n > perdure.MaxSeen || n < perdure.MaxSeen-10 {
			t.Errorf("%d were written down", len(written))
		}
		if written["known"] < 10 {
			t.Errorf("the one that is known was written down %d times", written["known"])
		}
		time.Sleep(newHoldersEvery)
		s.seen.note("a", "new")
		take()
		if written["new"] != 1 {
			t.Error("a new one is not written down in the next hour")
		}
	})
}
