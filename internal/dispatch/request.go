package dispatch

import "time"

// Request is one operation that is to be carried out in a transaction.
type Request struct {
	Op     any // the scheduler's operation
	Weight int // about how many steps the request writes

	// OfRun is true for reports and heartbeats. They go before other requests, because they bring jobs to their end and
	// free slots and permits.
	OfRun bool
	// Next is the claim that came with reports; nil once it is taken.
	Next *Claim

	// Agent is the agent of a submission's first steps, and Runs is how many of them name this agent. Such a submission
	// may be held for the agent's claims (see holding). If Agent is empty, it is not held.
	Agent string
	Runs  int
	// SmallSet is true if the caller submitted only a few jobs: then the submission is held only if the agent has a
	// backlog.
	SmallSet bool

	since time.Time // when it entered the queue
}
