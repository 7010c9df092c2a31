// Package retryafter reads the header Retry-After of an answer.
package retryafter

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Of returns for how long an answer asks its client to wait, at most for most; 0 if it has no Retry-After that can be read.
// The header has seconds or a date. A date is compared with the Date of the same answer, so that the clocks of client and
// server need not agree; without one, with now.
func Of(h http.Header, now time.Time, most time.Duration) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(v, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return min(time.Duration(min(n, math.MaxInt64/uint64(time.Second)))*time.Second, most)
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), most)
}
