package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/perdure/perdure"
)

// Store is the system of record. It loads, locks and saves rows in bulk, and holds no rules. Package store/storetest is
// its contract: a store is correct if it passes these tests.
//
// For all methods: a row that does not exist is returned as nil, or left out of a list, without an error. A max of 0
// finds nothing. Times are kept to the microsecond.
type Store interface {
	// Update runs fn in one write transaction and commits it. If a loaded row turns out to be stale, or the database
	// asks for a retry (deadlock, serialization failure), fn is run again as a whole on fresh rows. So fn must begin
	// with empty results each time. After some failed attempts Update returns ErrStale. It returns ErrUnknown if the
	// answer to the COMMIT was lost.
	Update(ctx context.Context, fn func(Tx) error) error
	Reader
	Registry
	Mailbox
	Statistics
	BulkReader
	Outbox
	AccessReader
	LogStore
	HostReader
	ArtifactReader
	ScheduleReader
	DefinitionReader
	ChildReader
	// Close releases what the store holds. Every later call fails.
	Close() error
}

// SharedStore is a store that several processes can use at the same time.
type SharedStore interface {
	Store
	// Wakeups returns a channel that receives a token when another process may have made steps ready. A token may be lost.
	// No token comes after the end of ctx.
	Wakeups(context.Context) <-chan struct{}
	// Listening reports whether tokens arrive at present.
	Listening() bool
	// RoleWakeups returns a channel that receives a token when the leader or standby of a role may have changed. A token
	// may be lost.
	RoleWakeups() <-chan struct{}
	// OutboxWakeups returns a channel that receives a token when another process may have stored notifications, or changed
	// how they are delivered, and StreamWakeups when it may have added events to streams. A token may be lost.
	OutboxWakeups() <-chan struct{}
	StreamWakeups() <-chan struct{}
	// Accepting returns the reason why the store accepts no commits at present; nil if it does. Reads may still work.
	Accepting() error
	// Refused returns the reason why a server that claims to be the store was refused; nil if none was.
	Refused() error
	// CheckSchema returns an error if another program has since given the store a schema that this program cannot use.
	CheckSchema(context.Context) error
}

// Tx is one write transaction. The lock of a job's row also protects all steps of the job.
type Tx interface {
	Locker
	Finder
	BulkTx
	OutboxTx
	AccessTx
	HeldRoleTx
	HostTx
	ScheduleTx
	SignalTx
	DefinitionTx
	ChildTx
	// Save writes changes. It compares each row with the one that was loaded (run, phase, current, desired) and returns
	// ErrStale if they differ, or if the key of a new job is taken. A store may return this error later: from its next
	// call, or from the commit. After an error nothing of the transaction can be committed.
	Save(*Changes) error
	// PutLimit sets a limit; it takes effect at once. DeleteLimit deletes one, and reports whether it existed.
	PutLimit(Limit) error
	DeleteLimit(name string) (bool, error)
	// OpenLanes opens lanes that were closed for these keys: for each key at most max, in the order of their first
	// steps. A key must not be repeated. OpenLanes returns the agents of these lanes. The caller has locked the limits,
	// so that no other transaction closes a lane for them at the same time.
	OpenLanes(keys []LimitKey, max int) (agents []string, err error)
	// OpenFirst opens these lanes if they are closed for these keys, and returns their agents. The caller has locked the
	// limits, too.
	OpenFirst(lanes []ClosedLane) (agents []string, err error)
	// DeleteBuckets looks at the buckets after a key, in order and at most max, and deletes those that are full, because
	// their FullAt is not after now. It leaves out those that other transactions have locked. It returns the last key that it
	// looked at; none if it reached the end.
	DeleteBuckets(after LimitKey, max int, now time.Time) (last LimitKey, err error)
	// DeleteShares deletes shares of an agent that have no ready steps in open lanes, at most max, and reports whether steps
	// with a share are ready, in any lane. While there are some, it deletes only shares that are not served more than the
	// floor: they count as much without a row. It leaves out those that other transactions have locked.
	DeleteShares(agent string, max int) (waiting bool, err error)
	// DeleteUnique deletes rows of unique jobs whose time has passed: at most max, the earliest first. It leaves out those that
	// other transactions have locked, and returns how many it has deleted.
	DeleteUnique(now time.Time, max int) (int, error)
	// PutAgent sets the settings of an agent.
	PutAgent(name string, settings perdure.AgentSettings) error
	// DeleteAgent deletes the settings of an agent, and reports whether there were some.
	DeleteAgent(name string) (bool, error)
	// CloseAlert closes an alert on behalf of an operator, and reports whether it was open. If it is already closed, nothing
	// happens.
	CloseAlert(id int64, by string, at time.Time) (closed bool, err error)
	// RaiseFence sets the fence if it is higher than the present one, and raises an alert that belongs to no job: an
	// operator must know that committed work may be missing.
	RaiseFence(fence int64, a Alert) error
	// SetCell sets the number of the store's cell, or returns the error of NumberCell. After an error nothing of the
	// transaction can be committed.
	SetCell(cell int) error
	// SaveRoles writes the result of an election. It compares each row with the one that was loaded (epoch, leader,
	// standby), and returns ErrStale if they differ.
	SaveRoles([]RoleChange) error
	// TakeMail locks these mails and returns those that it has locked. It leaves out mails that are closed and those
	// that another transaction has locked. CloseMail records the outcome of mails that this transaction has locked; it
	// returns ErrStale if one is already closed.
	TakeMail([]MailID) ([]MailID, error)
	CloseMail([]ClosedMail) error
	// SetMaxMail sets how many mails may wait.
	SetMaxMail(max int) error
	// SaveStats stores the statistics that Stats returns, in place of the earlier ones.
	SaveStats(text json.RawMessage) error
}

// RoleChange is the role to write (Now) and the role as it was loaded (Loaded).
type RoleChange struct{ Now, Loaded Role }

// Locker loads rows and locks them. Rows that do not exist are left out. The caller must not change the rows: the store
// may keep them in its row cache.
type Locker interface {
	// LockJobs locks the rows of jobs in the order of their ids, and waits for locks that other transactions hold. A
	// store may return rows from its row cache without a lock, if it then commits only if the rows are unchanged in the
	// database. If one has changed, Update runs its function again.
	LockJobs([]perdure.JobID) ([]*Job, error)
	// TryLockJobs is LockJobs, but leaves out the rows that another transaction has locked.
	TryLockJobs([]perdure.JobID) ([]*Job, error)
	// LockLimits locks the rows of limits, and reads the buckets of their rates. For a limit with a bound on all its
	// permits it counts them (Used); for others Used is 0.
	LockLimits(names []string) ([]Limit, error)
	// KeyUse returns, for each key, the sum of the amounts of the permits that are held, and the bucket of its rate. A key may
	// be given more than once. The caller has locked the limits of the keys.
	KeyUse([]LimitKey) (map[LimitKey]Taken, error)
	// LockRoles locks the rows of roles in the order of their names, and waits for locks that other transactions hold.
	// It returns all of them: a role that never had a leader is returned without one.
	LockRoles(names []string) ([]Role, error)
	// ShareRole returns a role and keeps it unchanged until the end of the transaction. Any number of transactions may
	// share a role at the same time.
	ShareRole(name string) (Role, error)
	// LockAlerts locks the open alerts that Save would close for these, and returns them in the order of their ids. Their jobs
	// are locked.
	LockAlerts([]CloseAlerts) ([]Alert, error)
	// Now returns the store's clock, read after all locks that were taken so far, and never earlier than the time at
	// which a row that was returned without a lock was written. It never goes back.
	Now() (time.Time, error)
	// Fence returns the least number that a run dispatched now may have, as it was when Now was read. If the store turns
	// out to be an older one (a failover that lost commits, a restored backup), the fence is raised above all run
	// numbers that may have been used.
	Fence() (int64, error)

	// Steps reads rows of steps, and StepsOf those of all steps of a job, in order. Their jobs are locked. Steps also
	// accepts steps of jobs that are not locked, and returns their committed state.
	Steps([]StepRef) ([]*Step, error)
	StepsOf(perdure.JobID) ([]*Step, error)
	// Payloads reads inputs and outputs in the order of refs until at least maxBytes are read; the payload that reaches
	// this number is included. So if the answer has maxBytes or more, nothing is known of the refs after its last one.
	Payloads(refs []StepRef, maxBytes int) ([]Payload, error)
	// Inputs returns the inputs of jobs whose input is stored apart (Job.InputStoredApart).
	Inputs([]perdure.JobID) (map[perdure.JobID]json.RawMessage, error)
	// Shapes returns the texts of shapes. It needs no lock, because these never change.
	Shapes([]ShapeID) (map[ShapeID][]byte, error)
}

// Finder searches for rows that may need an event. Its results may be stale: the caller locks the job and checks the row
// again before it acts.
type Finder interface {
	// JobsByKey returns the jobs that have these keys. It needs no lock, because the key and the fingerprint of a job
	// never change.
	JobsByKey(keys []string) (map[string]Keyed, error)
	// UniqueJobs returns the jobs that hold these keys, also those whose time has passed. It needs no lock: Save compares.
	UniqueJobs([]UniqueKey) (map[UniqueKey]UniqueJob, error)
	// JobByHash returns the newest unsettled job that has this type and this fingerprint, and no key.
	JobByHash(typ string, hash [32]byte) (perdure.JobID, bool, error)
	// Limits returns all limits, without counting their permits (Used is 0).
	Limits() ([]Limit, error)
	// Agents returns the settings of all agents that have some.
	Agents() (map[string]perdure.AgentSettings, error)
	// Alert returns one alert, open or closed.
	Alert(id int64) (*Alert, error)
	// Ready returns at most max ready steps of the agent, from lanes that are not closed: in the order of ClaimLess or, if the
	// agent is fair (IsFair), in that of FairOrder.
	// Steps that need a permit of a limit in full are left out. If that is the limit of a job's type, steps of jobs that already hold
	// its permit are not left out. Names in full that are not those of limits have no effect.
	// Only steps whose demand is served are found; serves is called for each demand once or more often.
	Ready(agent string, max int, full []string, serves Serves) ([]StepRef, error)
	// ClosedFor returns keys for which lanes are closed: at most max, in order, beginning after the key after.
	ClosedFor(after LimitKey, max int) ([]LimitKey, error)
	// AnnounceDispatch announces that the next Save dispatches all steps that Ready has returned for the agent. A store may use this
	// to let Ready of other transactions skip these steps until this transaction ends; it may also ignore it.
	AnnounceDispatch(agent string)
	// Due returns steps that wait for a time that has come, and then, if the time of some news of children has come (ChildNews), the
	// steps for which there is news, in order. Expired returns runs whose lock has ended. Overdue returns
	// jobs whose deadline has passed and has not been acted on. Each returns at most max, the earliest first. After the commit of a transaction that called Expired,
	// PollAnswer.Next is later than now, unless something that these three return is left, or a row was locked.
	Due(now time.Time, max int) ([]StepRef, error)
	Expired(now time.Time, max int) ([]StepRef, error)
	Overdue(now time.Time, max int) ([]perdure.JobID, error)
	// HeldBy returns the runs of a holder; if agent or request is given, only those of that agent or claim. If both are
	// given, the transaction locks the claim until its end, and finds every run that the claim was granted before. If
	// another transaction has locked the claim, the error is ErrLocked, and nothing was done.
	HeldBy(holder, agent, request string, max int) ([]StepRef, error)
	// Granted is HeldBy for one claim, without the lock: another transaction may grant the claim runs afterwards.
	Granted(holder, agent, request string, max int) ([]StepRef, error)
	// EmbeddedHolders returns the holders of runs whose agents live inside a node (their names begin with "@").
	EmbeddedHolders() ([]string, error)
}

// Keyed is a job that has a key, with the fingerprint of its definition.
type Keyed struct {
	ID   perdure.JobID
	Hash [32]byte
}

// Reader serves views. Rules never decide by its results, because they may be stale.
type Reader interface {
	// Now returns the store's clock.
	Now(context.Context) (time.Time, error)
	// Cell returns the number of the store's cell; 0: it has none.
	Cell(context.Context) (int, error)
	// Job returns a job with at most the first steps of its steps, all as of the same instant; nil if it does not exist.
	Job(ctx context.Context, id perdure.JobID, steps int) (*Job, []*Step, error)
	// StepsOfJobs returns the steps of several jobs, of each at most the first max (from 1 on), as Job does. Jobs that do
	// not exist are left out. It costs much less than a call of Job for each.
	StepsOfJobs(ctx context.Context, jobs []perdure.JobID, max int) (map[perdure.JobID][]*Step, error)
	// Shape returns the text of a shape.
	Shape(context.Context, ShapeID) ([]byte, error)
	// Input returns the job's input, wherever it is stored, and its size in bytes. An input of more than max bytes is
	// not read.
	Input(ctx context.Context, job perdure.JobID, max int) (in json.RawMessage, size int, err error)
	// FindJobs returns the jobs that ref may stand for: a key, or the beginning of an id with or without "job_". At most
	// max are returned, the job with the key first.
	FindJobs(ctx context.Context, ref string, max int) ([]perdure.JobID, error)
	// ListJobs returns the jobs that match the filter, in its order. Inputs that are stored apart are not read. If the
	// search reached the filter's MaxRead before it had found enough, stopped is the last job that it has read: the result
	// has all jobs that match, up to this one. Otherwise stopped is zero.
	ListJobs(context.Context, JobFilter) (jobs []*Job, stopped perdure.JobID, err error)
	// CountJobs counts the jobs that match the filter, up to its Limit. stopped is as in ListJobs.
	CountJobs(context.Context, JobFilter) (n int, stopped perdure.JobID, err error)
	// SearchJobs returns jobs whose key begins with a text, and jobs that have a label with this value: at most max of
	// each, newest first. Only the first MaxLabelNames names of labels are searched.
	SearchJobs(ctx context.Context, text string, max int) ([]perdure.JobID, error)
	// StepsOf returns the job's steps in order. If since is given, only steps written at that time or later are
	// returned.
	StepsOf(ctx context.Context, job perdure.JobID, since time.Time) ([]*Step, error)
	// Payloads returns the inputs and outputs of a job's steps, in order; a step's input comes before its output. A
	// value of more than max bytes is not read, and does not count for the total. Once the sum of the other values
	// exceeds total, no further value is read. The size of a value is returned even if the value is not read.
	Payloads(ctx context.Context, job perdure.JobID, max, total int) ([]SizedPayload, error)
	// Payload returns the input and output of one step, in full; nil if it has neither.
	Payload(context.Context, StepRef) (*Payload, error)
	// Alerts returns the alerts that match the filter, newest first.
	Alerts(context.Context, AlertFilter) ([]Alert, error)
	// History returns at most max entries of a job in the order in which they were written, beginning after the entry
	// with the id after (0: from the first).
	History(ctx context.Context, job perdure.JobID, after int64, max int) ([]Entry, error)
	// Runs returns at most max entries of a job that record the end of a run (Entry.IsRun), in the order of their places,
	// beginning after a place (zero: from the first).
	Runs(ctx context.Context, job perdure.JobID, after RunPlace, max int) ([]Entry, error)
	// LimitUse returns the sum of the amounts of the permits of a limit, or of one of its keys, and at most max of their
	// holders. Both are empty if no permit is held.
	LimitUse(ctx context.Context, limit LimitKey, max int) (used int, holders []LimitHolder, err error)
	// Buckets returns the buckets of the rates of these limits, or of their keys. Those that are missing are full.
	Buckets(context.Context, []LimitKey) (map[LimitKey]Bucket, error)
	// FirstInLine returns the first in the lines for these keys, of those lines that are not empty.
	FirstInLine(context.Context, []LimitKey) (map[LimitKey]FirstInLine, error)
	// ClosedKeys returns at most max keys of a limit for which steps are ready in closed lanes: those with the most of these
	// steps first, and then in the order of the keys. It counts in MaxKeyLanes lanes, and MaxKeyReady steps in each.
	ClosedKeys(ctx context.Context, limit string, max int) ([]ClosedKey, error)
	// ListLimits returns all limits in the order of their names, without counting their permits.
	ListLimits(context.Context) ([]Limit, error)
	// ListAgents returns the settings of all agents that have some.
	ListAgents(context.Context) (map[string]perdure.AgentSettings, error)
	// Shares returns the shares of an agent that have ready steps in open lanes, apart from the share 0, in the order of
	// CompareShares and at most max, and the agent's floor. If count is set, it counts their ready steps, up to MaxShareReady.
	Shares(ctx context.Context, agent string, max int, count bool) (shares []ShareState, floor int64, err error)
	// Poll returns when the next due scan is needed, and which agents have ready steps. Nodes call it often.
	Poll(ctx context.Context, agents []string) (PollAnswer, error)
	// ReadyAgents returns the agents that have a ready step, in order, at most max.
	ReadyAgents(ctx context.Context, max int) ([]string, error)
	// Backlog counts the unsettled jobs, up to max.
	Backlog(ctx context.Context, max int) (int, error)
}

// Registry records the nodes, the roles that they have, and the holders that claim runs.
type Registry interface {
	// ReportNode records that a node is alive, and which claims it has seen. It extends the node's places in roles that have
	// not lapsed by NodeReport.TTL. Nodes call it often, so it must cost one statement.
	ReportNode(context.Context, NodeReport) (NodeAnswer, error)
	// DropNode deletes the row of a node that has ended.
	DropNode(ctx context.Context, id string) error
	// Nodes returns all nodes that have a row, whether they are alive or not.
	Nodes(context.Context) ([]Node, error)
	// Roles returns all roles in the order of their names.
	Roles(context.Context) ([]Role, error)
	// HeldRoles returns all roles that users' programs hold, in the order of their names.
	HeldRoles(context.Context) ([]HeldRole, error)
	// LastClaims returns the MaxSeen holders that claimed last, ordered by agent and holder.
	LastClaims(context.Context) ([]LastClaim, error)
}

// Mailbox keeps mail until it is applied, and its outcome for some time afterwards.
type Mailbox interface {
	// Mail returns waiting mails of MailKinds, oldest first: at most max of them, and none after the one with which
	// their bodies together reach maxBytes.
	Mail(ctx context.Context, max, maxBytes int) ([]Mail, error)
	// MailWaiting counts the waiting mails. It stops at the number that may wait.
	MailWaiting(context.Context) (MailWaiting, error)
	// MailWakeups returns a channel that receives a token when mail may have been sent. A token may be lost, or come
	// without mail. A store without such a signal returns nil.
	MailWakeups() <-chan struct{}
	// Submission returns the state of a posted submission; nil if it was not posted, or was forgotten.
	Submission(context.Context, perdure.JobID) (*Submission, error)
	// ForgetMail deletes at most max closed mails: those applied before the time applied, and those refused before the
	// time refused.
	ForgetMail(ctx context.Context, applied, refused time.Time, max int) (int, error)
}

// NodeReport is what a node reports about itself.
type NodeReport struct {
	Node   Node // the store sets SeenAt
	Seen   []LastClaim
	TTL    time.Duration // how long the node keeps its places in roles
	Forget bool          // also delete nodes and holders that were not seen for more than a day
}

// NodeAnswer is the answer to a node: the time, and all roles in the order of their names.
type NodeAnswer struct {
	Now   time.Time
	Fence int64 // see Locker.Fence
	Roles []Role
}

// PollAnswer is the answer to a node that polls for work. An agent whose ready steps are all in closed lanes may be left
// out of Ready.
type PollAnswer struct {
	Now         time.Time
	Next        time.Time // a time not later than the next at which a step is due, a run expires, a job is overdue or there is news of a child; zero: never
	Ready       []string  // those of the agents in the call that have a ready step, in order
	LanesClosed bool      // at least one lane is closed
	Buckets     bool      // there is a bucket of a rate
}

// UntilNext returns the time until Next; MaxDuration if there is none.
func (l *PollAnswer) UntilNext() time.Duration {
	if l.Next.IsZero() {
		return perdure.MaxDuration
	}
	return l.Next.Sub(l.Now)
}

// Node is one process of the grid.
type Node struct {
	ID      string    `json:"id"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Listen  string    `json:"listen,omitempty"`
	Agents  []string  `json:"agents"`
	Slots   []int     `json:"slots"` // for each of Agents: the number of runs at a time
	Since   time.Time `json:"since"`
	SeenAt  time.Time `json:"seenAt"`
}

// LastClaim is the last time at which a holder claimed runs of an agent.
type LastClaim struct {
	Agent  string    `json:"agent"`
	Holder string    `json:"holder"`
	At     time.Time `json:"at"`
}

// AlertFilter selects alerts, newest first. A field that is empty selects all.
type AlertFilter struct {
	Job    perdure.JobID // zero: of all jobs
	Closed bool          // include closed alerts
	Kind   perdure.AlertKind
	Type   string // of the job
	Step   string
	Code   string
	After  int64 // only ids above; 0: to the oldest
	Before int64 // only ids below; 0: from the newest
	Limit  int   // 0: DefaultListLimit
}

// Matches reports whether an alert matches the filter, apart from Limit.
func (f *AlertFilter) Matches(a *Alert) bool {
	return (f.Job.IsZero() || a.Job == f.Job) && (f.Closed || a.ClosedAt.IsZero()) &&
		(f.Kind == "" || a.Kind == f.Kind) && (f.Type == "" || a.Type == f.Type) && (f.Step == "" || a.Step == f.Step) && (f.Code == "" || a.Code == f.Code) &&
		a.ID > f.After && (f.Before == 0 || a.ID < f.Before)
}

// Errors that stores return.
var (
	// ErrStale means that a row that was to be written has another run number or state than when it was loaded. Update
	// runs the whole transaction again on fresh rows.
	ErrStale = errors.New("row changed since it was loaded")
	// ErrBroken means that the store must not be used any more, because what it has written may be lost. The process
	// must end with an error.
	ErrBroken = errors.New("the store cannot be relied upon any more")
	// ErrLocked means that another transaction has locked what was requested, and that the call did not wait for it.
	ErrLocked = errors.New("another transaction has the lock")
	// ErrUnknown means that the outcome of a COMMIT is not known. It must be looked up, never guessed.
	ErrUnknown = errors.New("the outcome of the commit is not known")
)
