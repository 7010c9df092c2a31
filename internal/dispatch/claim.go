package dispatch

import (
	"math"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/protocol"
)

// Claim is an agent's claim from its arrival at the node until it is answered. doc.go describes its states.
type Claim struct {
	Request protocol.Claim
	Since   time.Time // when it arrived, by this node's clock
	Most    int       // new runs that it may be granted: up to Request.Max, and fewer if its holder fails or is slow

	// Answered receives a token when Runs and Err are set.
	Answered chan struct{}
	Runs     []perdure.Run
	Err      error

	// HasRequestID is true if the caller gave a requestId, and so can repeat the claim.
	HasRequestID bool
	// Repeated is true if the claim may have been granted runs before: its caller repeats it, or a commit was
	// indeterminate.
	Repeated bool
	// WithReports is true if the claim came with reports. If there is no room for its runs, it is answered without runs
	// instead of an error, because the reports were accepted.
	WithReports bool
	// Room returns how many bytes of answer the server has room for now.
	Room func() int

	// These fields belong to the queue, and are protected by its lock.
	state      claimState
	searchedAt int  // Queue.clock when the latest search began that this claim took part in
	ownsSearch bool // its writer searches the store for the agent; no other writer does so meanwhile

	// These fields belong to the transaction that has taken the claim.
	mode      claimMode
	hasNoRuns bool  // its earlier runs were searched for, and there are none
	failed    error // why its latest transaction failed
}

// claimState says where a claim is.
type claimState uint8

const (
	waiting claimState = iota // in the queue of its agent
	taken                     // in a transaction, or set aside
	leaving                   // taken, and its wait has ended: it will be answered, and not put back
)

// claimMode says what a transaction may do for a claim. A transaction serves the claims of one agent in the highest mode
// among them.
type claimMode uint8

const (
	repeatOnly  claimMode = iota // return earlier runs only: older steps wait for a limit, and the claim must not overtake them
	ownSteps                     // grant steps that this transaction makes ready: no other ready step is known
	urgentSteps                  // grant such steps if none in the store is more urgent: another writer searches the store
	searchStore                  // search the store
)

// NewClaim returns a claim that arrived now, by this node's clock.
func NewClaim(c protocol.Claim, now time.Time, room func() int) *Claim {
	return &Claim{Request: c, Since: now, Most: c.Max, Room: room, Answered: make(chan struct{}, 1),
		HasRequestID: c.RequestID != "", Repeated: c.RequestID != "" && !c.First}
}

// Name returns the name under which the claim can be repeated.
func (c *Claim) Name() ClaimName {
	return ClaimName{c.Request.Agent, c.Request.Holder, c.Request.RequestID}
}

// ClaimName is the agent, the holder and the requestId of a claim.
type ClaimName struct{ Agent, Holder, Request string }

// CommitIndeterminate prepares the claim for another try after an indeterminate commit, which may have granted it runs.
func (c *Claim) CommitIndeterminate() { c.Repeated, c.hasNoRuns = true, false }

// Failed returns the error of the claim's latest transaction, if it failed.
func (c *Claim) Failed() error { return c.failed }

// Searched reports whether a transaction has searched for the claim.
func (c *Claim) Searched() bool { return c.searchedAt > 0 }

// Answer ends the claim.
func (c *Claim) Answer(runs []perdure.Run, err error) {
	c.Runs, c.Err = runs, err
	c.Answered <- struct{}{}
}

// grant is what one try of a transaction gives to one claim.
type grant struct {
	*Claim
	runs         []perdure.Run
	bytes        int             // size of the answer
	lacksRoom    bool            // nothing was granted, because the server has no room for the answer
	place        *place          // the claim's host; nil: none
	free         perdure.Amounts // what is free of the host, for this claim
	refused      error           // the claim does not fit its host
	partialOffer bool            // it is answered without runs, so that its host claims with all that is free
	aside        *Aside          // not nil if this transaction cannot answer the claim
	locked       bool            // the transaction has locked the repeated claim, and it had no runs
}

// runBytes is an upper bound on the size of a run in the answer, without its input and output.
const runBytes = 1 << 10

// largestRun is an upper bound on the size of a run including its input and output.
const largestRun = runBytes + 2*perdure.MaxPayloadBytes

// room returns how many bytes of input and output may still be added to the answer. There is always room for one run,
// unless the server itself has none: many callers may be slow to read their answers (F157).
func (g *grant) room() int {
	space := g.Room()
	if g.bytes == 0 && space >= largestRun {
		return math.MaxInt
	}
	return min(perdure.MaxAnswerBytes, max(space, admission.Free)) - g.bytes - runBytes
}

// add adds a run to the answer. WaitedMs is how long the claim had waited when the run's remaining time was computed.
// The agent subtracts it from the duration of its request; the rest is the time that the answer was on its way, and it
// counts against the run. most is an upper bound on the number of runs.
func (g *grant) add(run *perdure.Run, began time.Time, most int) {
	run.WaitedMs = max(0, began.Sub(g.Since)).Milliseconds()
	if g.runs == nil {
		g.runs = make([]perdure.Run, 0, min(most, g.Request.Max))
	}
	g.runs = append(g.runs, *run)
	g.bytes += runBytes + len(run.Input) + len(run.Output)
}

// mayGetNewRuns reports whether the claim may be granted new runs. For a repeated claim, its earlier runs are searched
// for first.
func (c *Claim) mayGetNewRuns() bool { return !c.Repeated || c.hasNoRuns }

// isOpen reports whether this transaction may grant the claim new runs.
func (g *grant) isOpen() bool {
	return g.mode != repeatOnly && g.Most > 0 && g.aside == nil && len(g.runs) == 0 && g.refused == nil
}
