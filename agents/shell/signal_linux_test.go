package shell

import (
	"testing"
	"time"
)

// F277: a real-time signal has no name.
func TestRealTimeSignalHasItsNumber(t *testing.T) {
	_, err := execute(t, time.Minute, sh("kill -34 $$"))
	if got := verdict(err); got != "failed signal_34" {
		t.Errorf("%s (%v)", got, err)
	}
}
