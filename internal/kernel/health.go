package kernel

import (
	"slices"
	"time"
)

// Bounds of what is known of a holder's runs.
const (
	HealthRuns = 100              // the latest runs that count
	HealthTime = 10 * time.Minute // and only those that have ended within this time

	minHealthRuns    = 10                     // a holder with fewer runs is not judged
	minHealthHolders = 3                      // with fewer holders that can be judged, a median means nothing
	slowerBy         = 100 * time.Millisecond // a smaller difference from the median is noise
)

// LowWeight is the weight of a holder that fails or is slow. All others have the weight 1.
const LowWeight = 0.1

// Window summarizes the latest runs of one holder of an agent.
type Window struct {
	Runs int           // that have ended
	Done int           // of these
	Took time.Duration // sum of their durations
}

func (w Window) share() float64      { return float64(w.Done) / float64(w.Runs) }
func (w Window) mean() time.Duration { return w.Took / time.Duration(max(w.Runs, 1)) }

// Mean returns the mean duration of the runs.
func (w Window) Mean() time.Duration { return w.mean() }

// Norm is how the holders of an agent do: the medians of the holders that have enough runs. The zero Norm judges no holder.
type Norm struct {
	share float64
	mean  time.Duration
	valid bool
}

// NormOf returns the norm of an agent's holders. If most of them fail, for example because a service is down, the norm is
// low, and they keep their weight.
func NormOf(windows []Window) (n Norm) {
	var shares []float64
	var means []time.Duration
	for _, w := range windows {
		if w.Runs >= minHealthRuns {
			shares, means = append(shares, w.share()), append(means, w.mean())
		}
	}
	if len(shares) < minHealthHolders {
		return Norm{}
	}
	slices.Sort(shares)
	slices.Sort(means)
	middle := len(shares) / 2
	n = Norm{shares[middle], means[middle], true}
	if len(shares)%2 == 0 {
		n.share, n.mean = (n.share+shares[middle-1])/2, (n.mean+means[middle-1])/2
	}
	return n
}

// Weight returns the weight of a holder: LowWeight if less than half as many of its runs are done as is the median, or if
// they take more than three times as long.
func (n Norm) Weight(w Window) float64 {
	if n.valid && w.Runs >= minHealthRuns && (w.share() < n.share/2 || w.mean() > 3*n.mean && w.mean()-n.mean > slowerBy) {
		return LowWeight
	}
	return 1
}

// MostRuns returns how many runs a claim of a holder with this weight gets at most that asks for max; if that is none, wait is
// the time after which it may get one. since is the time since it got runs last.
//
// A holder of low weight gets a tenth of what it asks for, once in the time that a run takes on the median of the holders:
// otherwise a holder whose runs fail at once would claim again at once, and get most of the work in spite of its weight. If a
// tenth is less than one, it gets one run in each LowPause, so that it can recover.
func (n Norm) MostRuns(weight float64, max int, since time.Duration) (most int, wait time.Duration) {
	if weight >= 1 {
		return max, 0
	}
	most, pause := int(float64(max)*weight), min(n.mean, LowPause)
	if most == 0 {
		most, pause = 1, LowPause
	}
	if since < pause {
		return 0, pause - since
	}
	return most, 0
}

// LowPause is the longest time between two claims with runs of a holder of low weight.
const LowPause = time.Minute
