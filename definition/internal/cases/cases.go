package cases

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/racedetector"
)

// Quick fails a test that has taken longer than it may, which the race detector does not judge.
func Quick(t *testing.T, began time.Time, most time.Duration) {
	t.Helper()
	if duration := time.Since(began); duration > most && !racedetector.On {
		t.Errorf("took %s", duration)
	}
}

// Dense is an expression with as many operators as one can have; each n gives another one.
func Dense(n int) string {
	return fmt.Sprintf("input.a != %d", n) + strings.Repeat("+1", 490)
}

// Kept returns how many bytes of memory the result of f keeps.
func Kept[T any](f func() T) (value T, bytes int) {
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	value = f()
	return value, heap() - before
}

// Near fails the test unless counted is bytes within a factor of 1.5.
func Near(t *testing.T, counted, bytes int) {
	t.Helper()
	t.Logf("%d bytes, counted as %d", bytes, counted)
	if float64(counted) < float64(bytes)/1.5 || float64(counted) > float64(bytes)*1.5 {
		t.Errorf("%d bytes are kept, and counted as %d", bytes, counted)
	}
}
