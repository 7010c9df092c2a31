package dispatch

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/env"
)

// The bottleneck is the store if transactions follow each other without a pause or requests wait for long; otherwise the
// agents, or a limit. Since says how long this has lasted.
func TestBottlenecksAreRecognized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(env.Real{}, 1, false)
		expect := func(want ...string) {
			t.Helper()
			var got []string
			for _, b := range q.Bottlenecks() {
				got = append(got, fmt.Sprint(b.Agent, " ", b.Cause, " ", b.Limits, " ", b.Queued, " ", b.Since))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		work := func(share float64) { // a second in which transactions are in progress for this share
			const pieces = 10
			for range pieces {
				q.usage.begin(1, q.env.Now(), q.env.Now(), 0)
				time.Sleep(time.Duration(share * float64(time.Second) / pieces))
				q.usage.end(1, q.env.Now())
				time.Sleep(time.Duration((1 - share) * float64(time.Second) / pieces))
			}
		}
		q.agent("b").lastResult, q.agent("c").lastResult, q.agent("d").lastResult = moreReady, limitFull, nothingReady
		q.agent("c").fullLimits = []string{"y", "x"}
		work(0.9)
		expect("b agents [] 0 0s", "c limit [x y] 0 0s")
		work(0.96)
		expect("b store [] 0 1s", "c limit [x y] 0 1s")
		q.usage.begin(1, q.env.Now(), q.env.Now(), 0) // one long transaction
		time.Sleep(time.Second)
		expect("b store [] 0 2s", "c limit [x y] 0 2s")
		q.usage.end(1, q.env.Now())
		time.Sleep(time.Second)
		expect("b agents [] 0 3s", "c limit [x y] 0 3s")
		q.agent("b").lastResult, q.agent("c").lastResult = nothingReady, nothingReady
		expect()
		if err := q.Put(t.Context(), []*Request{{Weight: 1}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		expect()
		time.Sleep(time.Second)
		expect(" store [] 1 0s")
		time.Sleep(time.Second)
		expect(" store [] 1 1s")
		_, _, turn, _ := q.Take()
		expect(" store [] 1 1s") // it is taken, and the store does not answer
		time.Sleep(2 * time.Second)
		expect(" store [] 1 3s")
		q.Saved(turn)
		q.Finished(turn)
		expect()
		q.agent("b").lastResult = moreReady
		expect("b agents [] 0 0s")
		q.agent("b").lastResult, q.agent("b").ownLimitFull = limitFull, true
		expect("b limit [agent:b] 0 0s")
	})
}
