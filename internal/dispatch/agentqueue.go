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

	served   bool // a writer searches for this agent; a second one would find the same steps
	passedOn bool // a search that is not over may have left more
	left     left // what the latest search left in the store
	wokeAt   int  // Queue.clock at the latest wake-up

	searchedAt   int       // Queue.clock at the beginning of the latest search of the store
	searchEnded  time.Time // when that was over
	nextSearch   time.Time // when there is a search for the claims that need not search at once
	blockedSince time.Time // since when other transactions have locked its candidates; zero: they have not
	limits       []string  // limits that its latest search needed
	full         []string  // those of them that had no room at the end of it
	fullSeen     time.Time // when that was
	ownFull      bool      // then the agent's own limit had no room for all claims

	failedUntil time.Time // its claims are not taken for what is held until then
	olderAt     time.Time // when a search dispatched steps that had been ready before

	hindered time.Time // since when something has been ready that was not dispatched; zero: nothing is
	holding  *holding  // submissions that are held for its claims; nil: never any
}

// left is what a search left in the store, ready to be dispatched.
type left uint8

const (
	nothing  left = iota // as far as is known
	more                 // there were more steps than the claims took
	forLimit             // steps wait for room under a limit
)

// quiet reports whether nothing would be lost with the agentQueue.
func (a *agentQueue) quiet() bool {
	return len(a.waiting) == 0 && !a.served && (a.holding == nil || len(a.holding.held) == 0)
}

// free reports whether claims wait that a transaction may take for what is held. Where more is ready, they are left to the writer that
// searches for the agent. Where nothing is, the first job may wait for more room. After a transaction that failed, there is a pause.
func (a *agentQueue) free(now time.Time) bool {
	if len(a.waiting) == 0 || now.Before(a.failedUntil) || a.left == forLimit || a.left == more && a.served {
		return false
	}
	room := 0
	for _, c := range a.waiting {
		if c.mayTake() {
			room += c.Request.Max
		}
	}
	if a.left == more {
		room = newest(room)
	}
	return room > 0 && (a.left != nothing || !a.holding.waits(room, now))
}

// take hands the waiting claims over to a writer. due says that something may be ready that no search has seen.
func (a *agentQueue) take(clock int, due bool) []*Claim {
	claims := a.waiting
	a.waiting, a.passedOn = nil, false
	mode := searchStore
	switch {
	case (!due || a.served) && a.left == nothing:
		mode = ownSteps
	case a.served: // another writer searches for this agent, and finds what there was
		mode = urgentSteps
	}
	serves := !a.served && len(claims) > 0
	a.served = a.served || serves
	for i, c := range claims {
		c.state, c.searched, c.mode, c.serves = taken, clock, mode, serves && i == 0
	}
	return claims
}

// missed reports whether a claim that comes back from a search has missed a wake-up that came after the search began.
func (a *agentQueue) missed(c *Claim, wokeAll int) bool { return max(wokeAll, a.wokeAt) > c.searched }

func (a *agentQueue) remove(c *Claim) bool {
	i := slices.Index(a.waiting, c)
	if i < 0 {
		return false
	}
	a.waiting = slices.Delete(a.waiting, i, i+1)
	return true
}
