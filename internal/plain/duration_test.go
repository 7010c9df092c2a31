package plain_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Durations are written in days from two days on, and can be read again.
func TestDurationIsWrittenAsPeopleDo(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		30 * day: "30d", perdure.MaxDuration: "3650d", 2 * day: "2d", 60 * time.Hour: "2d12h", day: "24h", 36 * time.Hour: "36h",
		2*day + time.Minute: "2d1m", time.Hour: "1h", 90 * time.Second: "1m30s", time.Minute: "1m", 10 * time.Minute: "10m", time.Second: "1s", 300 * time.Millisecond: "300ms",
	} {
		got := plain.Duration(d)
		if back, err := perdure.ParseDuration(got); got != want || err != nil || back != d {
			t.Errorf("%v: got %s, want %s; read as %v, %v", d, got, want, back, err)
		}
	}
	if got := plain.Duration(0); got != "0s" {
		t.Errorf("0: %s", got)
	}
}
