package dispatch

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// The keys whose time has come are returned, however they were added, moved and removed, and at most maxReopened at once.
func TestReopeningsAreDueAtTheirTimes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	start := time.Unix(1e9, 0)
	var r reopenings
	want := map[kernel.LimitKey]time.Time{}
	for range 5000 {
		o := kernel.Reopening{Agent: "a", Key: kernel.LimitKey{Name: "ads", Key: fmt.Sprint(rnd.IntN(300))}, At: start.Add(time.Duration(rnd.IntN(100)) * time.Second)}
		switch at, there := want[o.Key]; {
		case rnd.IntN(3) > 0:
			r.add(o)
			want[o.Key] = o.At
		case there && rnd.IntN(2) == 0:
			r.remove(kernel.Reopening{Key: o.Key, At: at})
			delete(want, o.Key)
		default: // it was added again for another time
			r.remove(kernel.Reopening{Key: o.Key, At: start.Add(time.Hour)})
		}
		now := start.Add(time.Duration(rnd.IntN(100)) * time.Second)
		due := r.due(now)
		for _, d := range due {
			if at, there := want[d.Key]; !there || !at.Equal(d.At) || at.After(now) {
				t.Fatalf("%v at %v is due at %v; want %v", d.Key, d.At, now, at)
			}
		}
		n := 0
		for _, at := range want {
			if !at.After(now) {
				n++
			}
		}
		if n = min(n, maxReopened); len(due) != n || len(r.byTime) != len(want) {
			t.Fatalf("%d of %d are due, want %d of %d", len(due), len(r.byTime), n, len(want))
		}
	}
}

func TestReopeningsAreBounded(t *testing.T) {
	var r reopenings
	for i := range maxReopenings + 10 {
		r.add(kernel.Reopening{Key: kernel.LimitKey{Name: "ads", Key: fmt.Sprint(i)}, At: time.Unix(int64(i), 0)})
	}
	if due := r.due(time.Unix(maxReopenings*2, 0)); len(r.byTime) != maxReopenings || len(due) != maxReopened {
		t.Errorf("%d keys, %d due", len(r.byTime), len(due))
	}
}
