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
	Since   time.Time // when it arrived, by the node's clock

	// Answered gets a token when the answer is there.
	Answered chan struct{}
	Runs     []perdure.Run
	Err      error

	// Named says that the caller gave the requestId, and can repeat the claim.
	HasRequestID bool
	// Repeated says that the claim may have been granted runs before: a caller repeats it, or the outcome of a commit is
	// not known.
	Repeated bool
	// WithReports says that the claim came with reports. If there is no room for its runs, it is answered without runs,
	// because the reports are accepted.
	WithReports bool
	// Space is how many bytes the server has room for.
	Room func() int

	// These belong to the queue, under its lock.
	state      claimState
	searchedAt int  // Queue.clock at the beginning of the latest search that this claim has seen, or has been taken for
	ownsSearch bool // by this claim, its writer searches for the agent, and no other writer does

	// These belong to the transaction that has taken the claim.
	mode      claimMode
	hasNoRuns bool  // it was searched for earlier runs, and there are none
	failed    error // why its latest transaction failed
}

// claimState is where a claim is.
type claimState uint8

const (
	waiting claimState = iota // in the queue of its agent
	taken                     // a writer has taken it into a transaction, or it has been set aside
	leaving                   // taken, and its time is over: it is answered and not put back
)

// claimMode is what a transaction may do for a claim. A transaction serves the claims of one agent by the highest mode
// among them.
type claimMode uint8

const (
	repeatOnly  claimMode = iota // return earlier runs, grant no new ones: older steps wait for room under a limit
	ownSteps                     // grant steps that the transaction itself makes ready: nothing else is ready, as far as is known
	urgentSteps                  // the same, but nothing in the store is more urgent: another writer searches there, for what is older
	searchStore                  // search the store
)

// NewClaim makes a claim. now is the node's clock.
func NewClaim(c protocol.Claim, now time.Time, space func() int) *Claim {
	return &Claim{Request: c, Since: now, Room: space, Answered: make(chan struct{}, 1),
		HasRequestID: c.RequestID != "", Repeated: c.RequestID != "" && !c.First}
}

// Name identifies a claim that is repeated.
func (c *Claim) Name() ClaimName {
	return ClaimName{c.Request.Agent, c.Request.Holder, c.Request.RequestID}
}

// ClaimName is the agent, the holder and the requestId of a claim.
type ClaimName struct{ Agent, Holder, Request string }

// Doubt prepares the claim for another try after a commit whose outcome is not known: it may have been granted runs.
func (c *Claim) CommitIndeterminate() { c.Repeated, c.hasNoRuns = true, false }

// Failed is why the latest transaction of the claim failed; nil if it did not.
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
	runs      []perdure.Run
	bytes     int    // size of the answer so far
	lacksRoom bool   // it was granted nothing, because its server has no room for the answer
	aside     *Aside // it cannot be answered by this transaction
	locked    bool   // the transaction has locked the repeated claim, which had no runs
}

// runBytes is an upper bound on the size of a run in the answer, without its input and output.
const runBytes = 1 << 10

// largestRun is an upper bound on the size of a run with both.
const largestRun = runBytes + 2*perdure.MaxPayloadBytes

// room is how many bytes of input and output the answer has left. It always has room for one run, unless the server has
// none left, because many callers do not read their answers (F157).
func (g *grant) room() int {
	space := g.Room()
	if g.bytes == 0 && space >= largestRun {
		return math.MaxInt
	}
	return min(perdure.MaxAnswerBytes, max(space, admission.Free)) - g.bytes - runBytes
}

// add adds a run to the answer, with how long the claim had waited when the run's remaining time was read: the rest of a
// claim's duration is the way of its answer, and counts against the run. most is an upper bound on the number of runs.
func (g *grant) add(run *perdure.Run, began time.Time, most int) {
	run.WaitedMs = max(0, began.Sub(g.Since)).Milliseconds()
	if g.runs == nil {
		g.runs = make([]perdure.Run, 0, min(most, g.Request.Max))
	}
	g.runs = append(g.runs, *run)
	g.bytes += runBytes + len(run.Input) + len(run.Output)
}

// mayTake reports whether the claim may be granted new runs: one that is repeated is searched for its earlier ones first.
func (c *Claim) mayGetNewRuns() bool { return !c.Repeated || c.hasNoRuns }

// open reports whether the transaction may grant the claim new runs.
func (g *grant) isOpen() bool { return g.mode != repeatOnly && g.aside == nil && len(g.runs) == 0 }
