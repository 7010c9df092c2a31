package dispatch

import (
	"slices"
	"time"
)

// agentQueue is what a node remembers of one agent between transactions: the claims that wait, and hints. All of it may
// be lost without harm: the store has the truth.
type agentQueue struct {
	name    string
	waiting []*Claim // in the order in which they came

	searching      bool         // a writer searches for this agent; a second one would find the same steps
	searchReleased bool         // a search that is not over may have left more
	lastResult     searchResult // what the latest search left in the store
	wokeAt         int          // Queue.clock at the latest wake-up

	searchedAt   int       // Queue.clock at the beginning of the latest search of the store
	searchEnded  time.Time // when that was over
	nextSearch   time.Time // when there is a search for the claims that need not search at once
	blockedSince time.Time // since when other transactions have locked its candidates; zero: they have not
	knownLimits  []string  // limits that its latest search needed
	fullLimits   []string  // those of them that had no room at the end of it
	fullAt       time.Time // when that was
	ownLimitFull bool      // then the agent's own limit had no room for all claims

	pausedUntil       time.Time // its claims are not taken for what is held until then
	olderDispatchedAt time.Time // when a search dispatched steps that had been ready before

	backlogSince time.Time // since when something has been ready that was not dispatched; zero: nothing is
	holding      *holding  // submissions that are held for its claims; nil: never any
}

// left is what a search left in the store, ready to be dispatched.
type searchResult uint8

const (
	nothingReady searchResult = iota // as far as is known
	moreReady                        // there were more steps than the claims took
	limitFull                        // steps wait for room under a limit
)

// quiet reports whether nothing would be lost with the agentQueue.
func (a *agentQueue) isIdle() bool {
	return len(a.waiting) == 0 && !a.searching && (a.holding == nil || len(a.holding.held) == 0)
}

// free reports whether claims wait that a transaction may take for what is held. Where more is ready, they are left to the writer that
// searches for the agent. Where nothing is, the first job may wait for more room. After a transaction that failed, there is a pause.
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

// take hands the waiting claims over to a writer. due says that something may be ready that no search has seen.
func (a *agentQueue) take(clock int, due bool) []*Claim {
	claims := a.waiting
	a.waiting, a.searchReleased = nil, false
	mode := searchStore
	switch {
	case (!due || a.searching) && a.lastResult == nothingReady:
		mode = ownSteps
	case a.searching: // another writer searches for this agent, and finds what there was
		mode = urgentSteps
	}
	serves := !a.searching && len(claims) > 0
	a.searching = a.searching || serves
	for i, c := range claims {
		c.state, c.searchedAt, c.mode, c.ownsSearch = taken, clock, mode, serves && i == 0
	}
	return claims
}

// missed reports whether a claim that comes back from a search has missed a wake-up that came after the search began.
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
