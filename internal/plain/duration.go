package plain

import (
	"fmt"
	"strings"
	"time"
)

// Duration returns a duration as people write it, such as "30d", "2d12h", "24h" or "1m30s": from two days on, days are counted.
// perdure.ParseDuration reads it. Messages name bounds so.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 2*day {
		return withoutZeros(d)
	}
	days := fmt.Sprintf("%dd", d/day)
	if rest := d % day; rest > 0 {
		return days + withoutZeros(rest)
	}
	return days
}

// withoutZeros returns the text of a duration without the minutes and seconds that are 0 at its end.
func withoutZeros(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
