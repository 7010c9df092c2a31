package keeper

import (
	"testing"
	"time"
)

// I24: a command ends before the end of its lock, early enough for its end to be reported.
func TestLockEnd(t *testing.T) {
	const now = int64(1000 * time.Second)
	for left, want := range map[time.Duration]time.Duration{
		time.Hour: time.Hour - time.Second, 10 * time.Second: 9 * time.Second, 2 * time.Second: 1800 * time.Millisecond, 0: 0, -time.Second: -900 * time.Millisecond,
	} {
		if got := time.Duration(LockEnd(now, left) - now); got != want {
			t.Errorf("%s: %s, not %s", left, got, want)
		}
	}
}

// I24: TERM comes stopWithin before the end of the lock, and KILL at it. A stop is sooner, and never later.
func TestRulesEndTheRunByItsLock(t *testing.T) {
	at := func(s float64) int64 { return int64(s * float64(time.Second)) }
	rules := func() Rules { return NewRules(&Run{Until: at(100), StopWithin: 10 * time.Second}) }
	r := rules()
	if r.Due(at(89.9)) != NoSignal || r.Next(at(89.9)) != at(90) || r.Due(at(90)) != SignalTerm || r.Due(at(99.9)) != NoSignal || r.Next(at(99)) != at(100) ||
		r.Due(at(100)) != SignalKill || r.Due(at(101)) != SignalKill || r.Cause() != TimedOut {
		t.Error("without a stop")
	}
	r = rules()
	if r.Stop(at(50), 5*time.Second) != SignalTerm || r.Next(at(50)) != at(55) || r.Due(at(54)) != NoSignal || r.Due(at(55)) != SignalKill || r.Cause() != Stopped {
		t.Error("stopped")
	}
	r = rules()
	if r.Stop(at(98), 5*time.Second) != SignalTerm || r.Next(at(98)) != at(100) || r.Due(at(100)) != SignalKill {
		t.Error("stopped just before the end")
	}
	r = rules()
	r.Extend(at(200))
	if r.Extend(at(150)); r.Until() != at(200) || r.Due(at(150)) != NoSignal || r.Due(at(190)) != SignalTerm {
		t.Error("extended")
	}
}
