package kernel

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Rate bounds how many permits are taken in a time: Count in each Per, and Burst at once after a pause. Permits that are
// given back do not come again. The zero value bounds nothing.
//
// In any window of length w, at most w × Count/Per + Burst permits are taken.
type Rate struct {
	Count int
	Per   time.Duration
	Burst int
}

// Bucket is what was taken of a rate, as one time: when all has come again, if no more is taken (the generic cell rate
// algorithm, ITU-T I.371). Each permit moves this time by Per/Count. The zero value is a full bucket.
type Bucket struct {
	FullAt time.Time
	Permit time.Duration // in which one permit came again by the rate of that time; a rate that was changed since counts permits, not time
}

// KeyBucket is the bucket of a limit, or of one of its keys.
type KeyBucket struct {
	LimitKey
	Bucket
}

// MaxRate is the largest Count, and MaxBurst the largest Burst. An empty bucket must be full again within MaxRefill.
const (
	MaxRate   = 100_000
	MaxBurst  = 100_000
	MaxRefill = 366 * 24 * time.Hour
)

// rateUnits are the units of a rate's text.
var rateUnits = []struct {
	text string
	per  time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// ParseRate reads a rate such as "5/s". A burst of 0 stands for what comes in a tenth of a second, and at least 1: the
// runs of one transaction are dispatched together, so that a burst of 1 would waste much of a high rate. The error's
// message continues a sentence that begins with "rate" or "burst".
func ParseRate(text string, burst int) (Rate, error) {
	count, unit, _ := strings.Cut(text, "/")
	r := Rate{Burst: burst}
	for _, u := range rateUnits {
		if u.text == unit {
			r.Per = u.per
		}
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > MaxRate || r.Per == 0 || strconv.Itoa(n) != count {
		return Rate{}, fmt.Errorf("rate is N/s, N/m, N/h or N/d, with N from 1 to %d, such as 5/s", MaxRate)
	}
	if r.Count = n; burst == 0 {
		r.Burst = max(1, int(time.Duration(n)*time.Second/(10*r.Per)))
	}
	if r.Burst < 1 || r.Burst > MaxBurst {
		return Rate{}, fmt.Errorf("burst is 1 to %d", MaxBurst)
	}
	if r.refill(r.Burst) > MaxRefill {
		return Rate{}, fmt.Errorf("burst of %d takes longer than a year to come again at %s", burst, text)
	}
	return r, nil
}

// String returns the rate without its burst; empty if nothing is bounded.
func (r Rate) String() string {
	for _, u := range rateUnits {
		if u.per == r.Per {
			return strconv.Itoa(r.Count) + "/" + u.text
		}
	}
	return ""
}

// Bounds reports whether the rate bounds anything.
func (r Rate) Bounds() bool { return r.Count > 0 }

// refill returns the time in which n permits come again, rounded up to a nanosecond. n is at most the burst.
func (r Rate) refill(n int) time.Duration {
	hi, lo := bits.Mul64(uint64(n), uint64(r.Per))
	lo, carry := bits.Add64(lo, uint64(r.Count)-1, 0)
	if hi += carry; hi >= uint64(r.Count) {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, uint64(r.Count))
	return time.Duration(min(q, 1<<63-1))
}

// missing returns how long the bucket needs at now until it is full, and no longer than an empty bucket needs.
func (r Rate) missing(b Bucket, now time.Time) time.Duration {
	missing := b.FullAt.Sub(now)
	if b.FullAt.IsZero() || missing <= 0 {
		return 0
	}
	if permit := r.refill(1); b.Permit > 0 && b.Permit != permit { // the rate was changed
		hi, lo := bits.Mul64(uint64(missing), uint64(permit))
		if hi >= uint64(b.Permit) {
			return r.refill(r.Burst)
		}
		q, _ := bits.Div64(hi, lo, uint64(b.Permit))
		missing = time.Duration(min(q, 1<<63-1))
	}
	return min(missing, r.refill(r.Burst))
}

// Room returns how many permits can be taken at now.
func (r Rate) Room(b Bucket, now time.Time) int {
	rest := r.refill(r.Burst) - r.missing(b, now)
	hi, lo := bits.Mul64(uint64(rest), uint64(r.Count))
	n, _ := bits.Div64(hi, lo, uint64(r.Per))
	return min(int(n), r.Burst)
}

// Take returns the bucket after n permits were taken at now.
func (r Rate) Take(b Bucket, now time.Time, n int) Bucket {
	return Bucket{now.Add(r.missing(b, now) + r.refill(n)), r.refill(1)}
}

// RoomAt returns when n permits can be taken, at now or later. n is at most the burst.
func (r Rate) RoomAt(b Bucket, now time.Time, n int) time.Time {
	return now.Add(max(0, r.missing(b, now)+r.refill(n)-r.refill(r.Burst)))
}
