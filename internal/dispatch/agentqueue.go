package dispatch

import (
	"slices"
	"time"
)

// agentQueue is what a node remembers of one agent between transactions: the waiting claims, and what the latest search
// found. If all of it is lost, nothing breaks: the store has the truth, and the next search finds the same.
type agentQueue struct {
	name    string
	waiting []*Claim // in order of arrival

	searching      bool         // a writer searches the store for this agent; a second search would find the same steps
	searchReleased bool         // that writer has released its search early, because the store may have more ready steps
	lastResult     searchResult // what the latest search left in the store
	wokeAt         int          // Queue.clock at the latest wake-up

	searchedAt   int       // Queue.clock at the beginning of the latest search of the store
	searchEnded  time.Time // when that search ended
	nextSearch   time.Time // when a search serves the claims that did not cause one (maySearchLater)
	blockedSince time.Time // since when other transactions have locked candidates of this agent; zero if none has
	knownLimits  []string  // limits that the latest search needed
	fullLimits   []string  // those of them that had no room at its end
	fullAt       time.Time // when fullLimits was set
	ownLimitFull bool      // the agent's own limit had no room for all claims at that time

	rateWake          time.Time // when a timer wakes the claims because a rate has room; zero: no timer is set
	reservesAt        time.Time // when hosts may be reserved again (mayReserve)
	hostReserved      bool      // the latest search had claims of a reserved host: the end of a run may make room for the step
	pausedUntil       time.Time // after a failed transaction: until then, no claims are taken for held submissions
	olderDispatchedAt time.Time // when a search last dispatched steps that had been ready before its transaction

	backlogSince time.Time // since when ready steps have been left undispatched; zero if none are
	holding      *holding  // submissions that are held for this agent's claims; nil if the agent has not claimed yet
}

// searchResult is what a search left in the store. The higher value wins if two searches are combined.
type searchResult uint8

const (
	nothingReady searchResult = iota // no ready step is known
	moreReady                        // perhaps more ready steps: the claims got all that they asked for
	limitFull                        // ready steps wait for room under a limit
)

// isIdle reports whether the agentQueue can be forgotten without loss.
func (a *agentQueue) isIdle() bool {
	return len(a.waiting) == 0 && !a.searching && (a.holding == nil || len(a.holding.held) == 0)
}

// canTakeHeld reports whether a transaction should begin now in order to give held submissions to the waiting claims.
// There are three reasons not to. After a failed transaction there is a pause. If more steps are ready in the store, the
// claims belong to the writer that searches there. If nothing else is ready, the first held job may wait a moment for
// more room (waitsForRoom).
func (a *agentQueue) canTakeHeld(now time.Time) bool {
	if len(a.waiting) == 0 || now.Before(a.pausedUntil) || a.lastResult == limitFull || a.lastResult == moreReady && a.searching {
		return false
	}
	room := 0
	for _, c := range a.waiting {
		if c.mayGetNewRuns() {
			room += c.Request.Max
		}
	}
	if a.lastResult == moreReady {
		room = youngerShare(room)
	}
	return room > 0 && (a.lastResult != nothingReady || !a.holding.waitsForRoom(room, now))
}

// take gives all waiting claims to a writer, and sets the mode in which the transaction may serve them. due is true if
// steps may be ready that no search has seen yet.
func (a *agentQueue) take(clock int, due bool) []*Claim {
	claims := a.waiting
	a.waiting, a.searchReleased = nil, false
	mode := searchStore
	switch {
	case (!due || a.searching) && a.lastResult == nothingReady:
		mode = ownSteps
	case a.searching: // another writer searches the store for this agent
		mode = urgentSteps
	}
	serves := !a.searching && len(claims) > 0
	a.searching = a.searching || serves
	for i, c := range claims {
		c.state, c.searchedAt, c.mode, c.ownsSearch = taken, clock, mode, serves && i == 0
	}
	return claims
}

// missedWakeUp reports whether a wake-up came after the search of this claim began, so that the search may have missed a
// ready step.
func (a *agentQueue) missedWakeUp(c *Claim, wokeAll int) bool {
	return max(wokeAll, a.wokeAt) > c.searchedAt
}

func (a *agentQueue) remove(c *Claim) bool {
	i := slices.Index(a.waiting, c)
	if i < 0 {
		return false
	}
	a.waiting = slices.Delete(a.waiting, i, i+1)
	return true
}
