package env

import (
	"testing"
	"time"
)

// Who is slow to come back is not asked to wait again for a while.
func TestYielderRests(t *testing.T) {
	var y Yielder
	resting := func() bool { return time.Now().UnixNano() < y.rests.Load() }
	if y.took(time.Now(), slowYield); resting() {
		t.Error("it rests after a quick one")
	}
	if y.took(time.Now(), time.Minute); !resting() {
		t.Error("it does not rest after a slow one")
	}
	y.Yield()
	y.took(time.Now().Add(-time.Hour), time.Minute)
	if resting() {
		t.Error("it rests for ever")
	}
}
