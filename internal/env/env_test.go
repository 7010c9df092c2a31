package env

import (
	"testing"
	"time"
)

// F217: the difference of two wall times counts the time for which the machine slept. That of two monotonic readings does not.
func TestWallHasNoMonotonicReading(t *testing.T) {
	if now := (Real{}).Wall(); now != now.Round(0) || time.Since(now) > time.Hour {
		t.Errorf("%v", now)
	}
}
