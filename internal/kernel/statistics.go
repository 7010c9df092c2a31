package kernel

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/perdure/perdure"
)

// Statistics counts rows for the overview of a grid, and keeps what was computed from the counts. Rules never decide by
// it.
type Statistics interface {
	// Census counts what is open at present. Each count reads at most about max rows, whatever the store contains.
	Census(ctx context.Context, max int) (*Census, error)
	// Stats returns the text that SaveStats has stored; nil if there is none.
	Stats(context.Context) (json.RawMessage, error)
	// PutSeries stores counts of a node. A count replaces an earlier one of the same node, minute, scope, name and
	// outcome, so the call can be repeated. No two of the counts may be of the same minute, scope, name and outcome.
	PutSeries(ctx context.Context, node string, counts []SeriesCount) error
	// Series returns the counts of the minutes from since on, summed over all nodes, at most max of them, the latest
	// minutes first. Counts of one minute are in order of scope, name and outcome.
	Series(ctx context.Context, since time.Time, max int) ([]SeriesCount, error)
	// ForgetSeries deletes at most max counts of minutes before a time, and returns how many were deleted.
	ForgetSeries(ctx context.Context, before time.Time, max int) (int, error)
}

// SeriesCount is how often something has happened in a minute.
type SeriesCount struct {
	Minute  time.Time // its beginning
	Scope   SeriesScope
	Name    string // of the type or agent
	Outcome string
	N       int64
}

// SeriesScope says what the name of a SeriesCount is.
type SeriesScope uint8

const (
	SeriesOfType  SeriesScope = iota + 1 // a type of jobs. Its outcomes are those of the constants below
	SeriesOfAgent                        // an agent. Its outcomes are SeriesRefused, and error codes after SeriesError
)

// The outcomes of a SeriesCount.
const (
	SeriesSubmitted = "submitted" // jobs
	SeriesDone      = "done"      // jobs that have settled as done
	SeriesUndone    = "undone"    // jobs that have settled as undone
	SeriesParked    = "parked"    // jobs that were parked
	SeriesFailed    = "failed"    // runs that failed, were rejected or expired
	SeriesRefused   = "refused"   // reports that were refused
	SeriesError     = "error:"    // runs of the agent that failed with the error code that follows
)

// Compare orders counts as Series returns them.
func (c *SeriesCount) Compare(o *SeriesCount) int {
	return cmp.Or(o.Minute.Compare(c.Minute), cmp.Compare(c.Scope, o.Scope), cmp.Compare(c.Name, o.Name), cmp.Compare(c.Outcome, o.Outcome))
}

// Census is what a store has counted. The order of lists has no meaning.
type Census struct {
	Now  time.Time // of the store, when the counting began
	Jobs []JobGroup
	// Settled is the number of settled jobs. If it is estimated, it may be far off.
	Settled          int
	SettledEstimated bool
	Ready            []ReadyGroup
	Closed           []ClosedGroup
	Needing          []NeedGroup
	Due              []DueGroup
	Runs             []RunGroup
	Alerts           []AlertGroup
	Shares           []ShareGroup
	SignalsKept      int // signals that are kept for the next step that waits, at most CensusEntries
	SignalWaiters    int // steps that wait for a signal

	// These counts have stopped at the bound. The oldest jobs and due steps, and the newest alerts were read.
	JobsCapped, RunsCapped, DueCapped, AlertsCapped, ClosedCapped, NeedingCapped bool
	SharesCapped, SignalsKeptCapped, SignalWaitersCapped                         bool
}

// JobGroup counts unsettled jobs that are alike.
type JobGroup struct {
	Type    string
	Phase   perdure.Phase
	Undoing bool   // they are to be undone
	Permit  bool   // they hold a permit of job:TYPE
	Agent   string // of their first steps, if these are ready and the jobs hold no permit; empty: another step is ready

	Jobs    int
	Blocked int       // steps that wait for other steps, for an approval without a deadline, or are parked
	Active  int       // steps that are ready or wait for a time
	Oldest  time.Time // when the oldest of the jobs was submitted
}

// ReadyGroup counts the ready steps of an agent.
type ReadyGroup struct {
	Agent  string
	Steps  int
	Capped bool
	Oldest time.Time // when a step of the oldest job became ready: an estimate of when the oldest step became ready
}

// ClosedGroup counts the ready steps of an agent in closed lanes, by the limit that is full.
type ClosedGroup struct {
	Agent string
	Limit string
	Steps int
}

// NeedGroup counts the ready steps of an agent in lanes that are not closed, by the limits that they need.
type NeedGroup struct {
	Agent string
	Needs Needs
	Steps int
}

// DueGroup counts steps that wait for a time.
type DueGroup struct {
	Retry bool // they have failed, or were returned; otherwise they sleep, or wait for an approval or for an old run
	Steps int
	Next  time.Time
}

// RunGroup counts the runs in flight of an agent.
type RunGroup struct {
	Agent string
	Runs  int
}

// AlertGroup counts open alerts that are alike.
type AlertGroup struct {
	Kind   perdure.AlertKind
	Code   string
	Type   string
	Step   string
	N      int
	Oldest time.Time
}

// ShareGroup counts the shares of an agent that have ready steps in open lanes, apart from the share 0.
type ShareGroup struct {
	Agent  string
	Shares int
}

// CensusEntries returns how many entries of an index the count of kept signals reads, if other counts read max rows: it looks up
// no row, and an entry takes much less time. With the largest max, it counts all signals that can be kept.
func CensusEntries(max int) int { return min(max, 1<<24) * 20 }

const (
	// MaxCensusAgents bounds the agents whose ready steps are counted, and MaxCensusLanes the closed lanes whose steps are
	// counted.
	MaxCensusAgents = 100
	MaxCensusLanes  = 500
)

// CensusShare returns how many rows may be read for each of some agents or lanes.
func CensusShare(max, among int) int { return cmp.Or(max/cmp.Or(among, 1), 1) }

// AddJobs adds a group to an equal one, or to the list.
func (c *Census) AddJobs(g *JobGroup) {
	i := slices.IndexFunc(c.Jobs, func(o JobGroup) bool {
		return o.Type == g.Type && o.Phase == g.Phase && o.Undoing == g.Undoing && o.Permit == g.Permit && o.Agent == g.Agent
	})
	if i < 0 {
		c.Jobs = append(c.Jobs, *g)
		return
	}
	c.Jobs[i].Add(g)
}

// Add adds the jobs of a group that is alike.
func (g *JobGroup) Add(o *JobGroup) {
	g.Jobs, g.Blocked, g.Active = g.Jobs+o.Jobs, g.Blocked+o.Blocked, g.Active+o.Active
	g.Oldest = earlier(g.Oldest, o.Oldest)
}

// AddReady adds ready steps to those of the same agent, or to the list.
func (c *Census) AddReady(g ReadyGroup) {
	i := slices.IndexFunc(c.Ready, func(o ReadyGroup) bool { return o.Agent == g.Agent })
	if i < 0 {
		c.Ready = append(c.Ready, g)
		return
	}
	o := &c.Ready[i]
	o.Steps, o.Capped, o.Oldest = o.Steps+g.Steps, o.Capped || g.Capped, earlier(o.Oldest, g.Oldest)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Retries reports whether a step that waits for a time is to be tried again.
func (s *Step) Retries() bool {
	return s.Failures > 0 || s.Returns > 0 || s.Waits > 0 || s.LastError != ""
}
