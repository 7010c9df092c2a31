package agenthost

import (
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/speed"
)

// An agent with few slots and quick handlers would wait for the next runs most of the time. So it claims ahead: as many runs more
// as its handlers work off while two claims are under way. These wait for a slot, and are begun in the order in which they came. If
// none gets free, they are given back soon, so that no step waits behind a busy agent (F162).
const (
	mostAhead  = 8                      // runs for each slot that are claimed ahead, at most
	aheadBelow = 4 * perdure.MaxBatch   // slots and runs that are claimed ahead, at most
	aheadWait  = 100 * time.Millisecond // how long a run waits for a slot
	aheadPause = 10 * time.Second       // for how long nothing is claimed ahead after runs were given back
	aheadPart  = 8                      // each new time counts for such a part of the mean
)

// ahead is how many runs an agent claims beyond its slots: while it is given as many as it asks for.
func (a *hosted) ahead(now time.Time) int {
	if !speed.ClaimAhead.On() || !a.flows || now.Before(a.slow) || a.took <= 0 {
		return 0
	}
	n := 2 * int64(a.slots) * int64(a.trip) / int64(a.took) // twice as many, since they come in batches
	return max(int(min(n, int64(mostAhead*a.slots), int64(aheadBelow-a.slots))), 0)
}

// mean moves a mean by a new value.
func mean(of *time.Duration, value time.Duration) { *of += (value - *of) / aheadPart }

// line lets a run wait for a slot. Called under mu.
func (h *Host) line(l *live) {
	a := l.agent
	l.inLine = true
	a.inLine++
	a.line = append(a.line, l)
	if !a.timed {
		a.timed = true
		h.env.AfterFunc(aheadWait, func() { h.reviewLine(a) })
	}
}

// leaveLine is the end of the waiting for a slot. Called under mu.
func (l *live) leaveLine() {
	if l.inLine {
		l.inLine = false
		l.agent.inLine--
	}
}

// advance begins runs that wait, as far as slots are free. While the exchange does not answer, it begins none: the end of such a
// run could not be reported, and the run would be carried out once more. Runs that wait are then returned. Called under mu.
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

// answers notes whether the exchange has answered the latest call.
func (h *Host) answers(did bool) {
	h.mu.Lock()
	defer h.unlock()
	was := h.unanswered
	if h.unanswered = !did; was && did {
		for _, a := range h.agents {
			h.advance(a)
		}
	}
}

// reviewLine gives all runs back that wait, if one has waited for too long.
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
	a.slow = now.Add(aheadPause)
	h.clearLine(a)
}

// clearLine gives all runs back that wait for a slot. Called under mu.
func (h *Host) clearLine(a *hosted) {
	for _, l := range a.line {
		if l.inLine {
			l.leaveLine()
			h.giveBack(l)
		}
	}
	a.line = nil
}
