package keeper

import "time"

// Rules say when the processes of a run get TERM and KILL. All times are nanoseconds of CLOCK_BOOTTIME. They are pure: the
// keeper passes the time, and sends the signals.
type Rules struct {
	until      int64 // end of the lock
	stopWithin int64
	termed     bool  // the processes have got TERM
	killAt     int64 // when they get KILL, after that
	cause      Cause
}

// NewRules returns the rules of a run that begins.
func NewRules(r *Run) Rules { return Rules{until: r.Until, stopWithin: int64(r.StopWithin)} }

// Until returns the end of the lock.
func (r *Rules) Until() int64 { return r.until }

// Cause returns why the processes were signalled.
func (r *Rules) Cause() Cause { return r.cause }

// Signal is what all processes of a run get.
type Signal uint8

const (
	NoSignal Signal = iota
	SignalTerm
	SignalKill
)

// Extend sets a new end of the lock. An earlier end than the present one is ignored.
func (r *Rules) Extend(until int64) { r.until = max(r.until, until) }

// Stop ends the run at the request of the host agent: TERM now, and KILL after within, but not after the end of the lock.
func (r *Rules) Stop(now int64, within time.Duration) Signal {
	if r.cause == "" {
		r.cause = Stopped
	}
	return r.terminate(now, min(now+max(int64(within), 0), r.until))
}

// Due returns the signal that is due. KILL is due again and again: a process may have started another one meanwhile.
func (r *Rules) Due(now int64) Signal {
	switch {
	case r.termed && now >= r.killAt, now >= r.until:
		if r.cause == "" {
			r.cause = TimedOut
		}
		r.termed, r.killAt = true, now
		return SignalKill
	case !r.termed && now >= r.until-r.stopWithin:
		r.cause = TimedOut
		return r.terminate(now, r.until)
	}
	return NoSignal
}

// terminate returns TERM, the first time, or KILL if its time has come. An earlier time of KILL overrides a later one.
func (r *Rules) terminate(now, killAt int64) Signal {
	first := !r.termed
	if first || killAt < r.killAt {
		r.killAt = killAt
	}
	r.termed = true
	switch {
	case r.killAt <= now:
		return SignalKill
	case first:
		return SignalTerm
	}
	return NoSignal
}

// killAgain is the time between two KILLs.
const killAgain = int64(100 * time.Millisecond)

// Next returns when Due is to be called next.
func (r *Rules) Next(now int64) int64 {
	switch {
	case !r.termed:
		return r.until - r.stopWithin
	case r.killAt > now:
		return r.killAt
	}
	return now + killAgain
}

// LockEnd returns until when a command may run whose lock ends left after now. It ends a little earlier, so that its end can
// be reported.
func LockEnd(now int64, left time.Duration) int64 { return now + int64(left-min(left/10, time.Second)) }
