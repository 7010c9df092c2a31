package kernel

import (
	"math/rand/v2"
	"testing"
	"time"
)

// No second has more jobs than the bound, however long transactions take, and the bound is nearly reached.
func TestBulkPace(t *testing.T) {
	for _, perSecond := range []int{1, 2, 7, 10, 250, 10_000} {
		for _, latency := range []time.Duration{0, 3 * time.Millisecond, 400 * time.Millisecond} {
			rng := rand.New(rand.NewPCG(uint64(perSecond), uint64(latency)))
			p, now := &BulkPace{PerSecond: perSecond}, startTime
			type met struct {
				at time.Time
				n  int
			}
			var all []met
			total := 0
			for end := now.Add(30 * time.Second); now.Before(end); {
				n, wait := p.Room(now)
				if n == 0 {
					if wait <= 0 || wait > time.Second {
						t.Fatalf("%d a second: a wait of %s", perSecond, wait)
					}
					now = now.Add(wait)
					continue
				}
				if n > max(1, perSecond/parts) {
					t.Fatalf("%d a second: %d at once", perSecond, n)
				}
				took := time.Duration(rng.Int64N(int64(latency) + 1))
				all = append(all, met{now.Add(took / 2), n}) // the commit
				now = now.Add(took)
				p.Use(now, n)
				total += n
			}
			from, sum := 0, 0
			for i, m := range all {
				for sum += m.n; m.at.Sub(all[from].at) >= time.Second; from++ {
					sum -= all[from].n
				}
				if sum > perSecond {
					t.Fatalf("%d a second: %d within the second before the %dth transaction", perSecond, sum, i)
				}
			}
			if least := 30 * perSecond * 9 / 10; latency < 100*time.Millisecond && perSecond < 1000 && total < least {
				t.Errorf("%d a second, transactions of up to %s: only %d in 30s", perSecond, latency, total)
			}
		}
	}
}
