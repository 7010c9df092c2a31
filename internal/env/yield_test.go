package env

import (
	"testing"
	"time"
)

// After a slow yield, the next ones are skipped for a while.
func TestYielderPausesAfterASlowYield(t *testing.T) {
	var y Yielder
	resting := func() bool { return time.Now().UnixNano() < y.notBefore.Load() }
	if y.record(time.Now(), slowYield); resting() {
		t.Error("it rests after a quick one")
	}
	if y.record(time.Now(), time.Minute); !resting() {
		t.Error("it does not rest after a slow one")
	}
	y.Yield()
	y.record(time.Now().Add(-time.Hour), time.Minute)
	if resting() {
		t.Error("it rests for ever")
	}
}
