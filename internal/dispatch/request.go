package dispatch

import "time"

// Request is one operation on its way into a transaction.
type Request struct {
	Op     any // the scheduler's
	Weight int // about how many steps it writes

	// OfRun says that it reports on a run or sends a heartbeat. Such requests go before others: they bring jobs to their
	// end, and make room for others.
	OfRun bool
	// Next is a claim that came with reports, until it is taken.
	Next *Claim

	// Agent is the agent of a submission's first steps, and Runs how many of these its claims would be given. Such a
	// submission may be held for these claims (holding). Empty: it is not held.
	Agent string
	Runs  int
	// Few says that its caller has submitted few beside it: it is held only if the agent is behind.
	SmallSet bool

	since time.Time // when it came into the queue
}
