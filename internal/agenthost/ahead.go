package agenthost

import (
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/speed"
)

// An agent with few slots and quick handlers would wait for the next runs most of the time. Therefore it claims ahead:
// as many more runs as its handlers complete while two claims are in progress. These runs wait for a slot, and start in
// the order of their arrival. If no slot becomes free soon, they are returned, so that no step waits behind a busy agent
// (F162).
const (
	maxAhead     = 8                      // the most runs claimed ahead for each slot
	maxWithAhead = 4 * perdure.MaxBatch   // the most slots plus runs claimed ahead
	aheadWait    = 100 * time.Millisecond // how long a run may wait for a slot
	aheadPause   = 10 * time.Second       // how long nothing is claimed ahead after runs were returned
	meanWeight   = 8                      // the weight of a new value in a mean is 1/aheadPart
)

// ahead returns the number of runs that an agent claims beyond its slots: 0 unless its claims get as many runs as they
// ask for.
func (a *hosted) ahead(now time.Time) int {
	if a.exact || !speed.ClaimAhead.On() || !a.filledAtOnce || now.Before(a.noAheadUntil) || a.handlerTime <= 0 {
		return 0
	}
	n := 2 * int64(a.slots) * int64(a.claimTime) / int64(a.handlerTime) // twice as many, because runs arrive in batches
	return max(int(min(n, int64(maxAhead*a.slots), int64(maxWithAhead-a.slots))), 0)
}

// mean updates a moving average with a new value.
func mean(of *time.Duration, value time.Duration) { *of += (value - *of) / meanWeight }

// enterLine makes a run wait for a slot. mu must be held.
func (h *Host) enterLine(l *live) {
	a := l.agent
	l.inLine = true
	a.inLine++
	a.line = append(a.line, l)
	if !a.timed {
		a.timed = true
		h.env.AfterFunc(aheadWait, func() { h.reviewLine(a) })
	}
}

// leaveLine ends the wait of a run for a slot. mu must be held.
func (l *live) leaveLine() {
	if l.inLine {
		l.inLine = false
		l.agent.inLine--
	}
}

// advance starts waiting runs in free slots. While the exchange does not respond, it starts none: the end of such a run
// could not be reported, and the run would be carried out again. Waiting runs are then returned. mu must be held.
func (h *Host) advance(a *hosted) {
	for len(a.line) > 0 && (a.busy < a.slots && !h.unanswered || !a.line[0].inLine) {
		l := a.line[0]
		a.line[0] = nil
		if a.line = a.line[1:]; l.inLine {
			l.leaveLine()
			h.occupy(l)
		}
	}
	if len(a.line) == 0 {
		a.line = nil
	}
}

// recordAnswer records whether the exchange answered the latest call.
func (h *Host) recordAnswer(worked bool) {
	h.mu.Lock()
	defer h.unlock()
	before := h.unanswered
	if h.unanswered = !worked; before && worked {
		for _, a := range h.agents {
			h.advance(a)
		}
	}
}

// reviewLine returns all waiting runs if one of them has waited for too long.
func (h *Host) reviewLine(a *hosted) {
	h.mu.Lock()
	defer h.unlock()
	h.advance(a)
	if a.timed = false; len(a.line) == 0 {
		return
	}
	now := h.env.Now()
	if waited := now.Sub(a.line[0].since); waited < aheadWait {
		a.timed = true
		h.env.AfterFunc(aheadWait-waited, func() { h.reviewLine(a) })
		return
	}
	a.noAheadUntil = now.Add(aheadPause)
	h.clearLine(a)
}

// clearLine returns all runs that wait for a slot. mu must be held.
func (h *Host) clearLine(a *hosted) {
	for _, l := range a.line {
		if l.inLine {
			l.leaveLine()
			h.returnRun(l)
		}
	}
	a.line = nil
}
