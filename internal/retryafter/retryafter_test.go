package retryafter

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfterIsReadAndBounded(t *testing.T) {
	const most = 24 * time.Hour
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		after, date string
		want        time.Duration
	}{
		{"", "", 0}, {"0", "", 0}, {"7", "", 7 * time.Second}, {" 7 ", "", 7 * time.Second}, {"-7", "", 0}, {"7s", "", 0}, {"soon", "", 0},
		{"4000000000", "", most}, {"9223372036854775807", "", most}, {"99999999999999999999", "", most}, {"-99999999999999999999", "", 0},
		{at(time.Minute), "", time.Minute}, {at(-time.Minute), "", 0}, {at(90 * 24 * time.Hour), "", most},
		{at(time.Hour), at(59 * time.Minute), time.Minute}, // by the other side's own clock
	} {
		if got := Of(http.Header{"Retry-After": {c.after}, "Date": {c.date}}, now, most); got != c.want {
			t.Errorf("%q at %q: %s, want %s", c.after, c.date, got, c.want)
		}
	}
}
