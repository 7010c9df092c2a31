package sim

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// ratedRun is a run that took permits of a rate, by the store's clock.
type ratedRun struct {
	at     time.Time
	amount int
}

// rateKey is a rate in force: that of a limit, or of one of its keys. A rate that is set again counts from then on.
type rateKey struct {
	kernel.LimitKey
	kernel.Rate
}

// checkRates checks that in every window that ends with a run at most what comes in it and the burst have begun (I26). A run
// whose transaction waited for the limit may have begun, by its time, before one that was granted earlier.
func (w *world) checkRates(s *kernel.Step) {
	needs := s.Needs.List()
	if len(needs) == 0 {
		return
	}
	limits, err := w.inner.ListLimits(context.Background())
	w.must(err)
	for _, n := range needs {
		i := slices.IndexFunc(limits, func(l kernel.Limit) bool { return l.Name == n.Name })
		if i < 0 {
			continue
		}
		l := limits[i]
		of := map[rateKey]int{}
		if l.Rate.Bounds() {
			of[rateKey{kernel.LimitKey{Name: n.Name}, l.Rate}] += n.Amount
		}
		if r := l.ForKey(n.Key).Rate; r.Bounds() {
			of[rateKey{n.LimitKey, r}] += n.Amount
		}
		for _, k := range slices.SortedFunc(maps.Keys(of), func(a, b rateKey) int { return a.Compare(b.LimitKey) }) {
			w.addRated(k, ratedRun{s.StartedAt, of[k]})
		}
	}
}

func (w *world) addRated(k rateKey, run ratedRun) {
	all := append(w.book.rated[k], run)
	w.book.rated[k] = all
	sum := 0
	for i := len(all) - 1; i >= 0; i-- {
		sum += all[i].amount
		window := run.at.Sub(all[i].at)
		if most := window.Seconds()*float64(k.Count)/k.Per.Seconds() + float64(k.Burst); float64(sum) > most+1e-6 && window >= 0 {
			w.wrong("I26", "%s: %d permits were taken in %s, and %s with a burst of %d allows fewer", k.LimitKey, sum, window, k.Rate, k.Burst)
		}
	}
	if sum > k.Burst {
		w.hit("F275")
	}
}
