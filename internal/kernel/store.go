package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/perdure/perdure"
)

// Store is the only truth. It loads, locks and saves in bulk; it holds no rules. Package storetest is
// its contract.
//
// What is not there is nil, or left out, without an error. A max of 0 finds nothing. Times are kept to
// the microsecond.
type Store interface {
	// Update runs fn in one write transaction and commits it. Where rows turn out to be stale, or the
	// database asks for it (deadlock, serialization), the whole of fn is run again on fresh rows, so fn
	// must start from nothing each time; ErrStale comes back after some tries in vain. ErrUnknown: the
	// answer to the commit was lost.
	Update(ctx context.Context, fn func(Tx) error) error
	Reader
	Registry
	Mailbox
	Close() error
}

// SharedStore is a store that several processes may use at once.
type SharedStore interface {
	Store
	// Hints gives a token when another process may have made steps ready. A token may be lost. There
	// are no more after the end of ctx.
	Hints(context.Context) <-chan struct{}
	// Heard returns whether tokens do come through at present.
	Heard() bool
	// RoleHints gives a token when the leader or standby of a role may have changed; it may be lost.
	RoleHints() <-chan struct{}
	// Accepting returns why the store accepts no commits at present, although it may answer reads; nil while it does.
	Accepting() error
	// Refused returns why a server was refused that claims to be the store; nil if none was.
	Refused() error
	// CheckSchema returns an error once another program has given the store a schema that this one cannot use.
	CheckSchema(context.Context) error
}

// Tx is one write transaction. A job's row is the lock of all its steps.
type Tx interface {
	Locker
	Finder
	// Save writes what the rules changed. Each row is compared with what was loaded (run, phase,
	// current, desired); ErrStale where it differs, and where a new job's key is taken. A store may tell
	// that no sooner than at its next call or at the commit. After an error nothing of the transaction can
	// be committed.
	Save(*Changes) error
	// PutLimit and DeleteLimit change a limit; it takes hold at once.
	PutLimit(Limit) error
	DeleteLimit(name string) (bool, error)
	// OpenLanes opens lanes that were closed for these keys, each given once, at most max for each key, in the order of their first steps,
	// and returns the agents. The transaction has locked the limits, so that none is being closed for them meanwhile.
	OpenLanes(keys []LimitKey, max int) (agents []string, err error)
	// PutAgent sets the settings of an agent.
	PutAgent(name string, settings perdure.AgentSettings) error
	// CloseAlert closes one alert by hand, if it is open.
	CloseAlert(id int64, by string, at time.Time) error
	// RaiseFence raises the fence, never lowers it, and raises an alert that is no job's: a person should
	// know that something may be missing.
	RaiseFence(fence int64, a Alert) error
	// SetCell gives the store the number of its cell, or returns the error of NumberCell. After an error nothing of the
	// transaction can be committed.
	SetCell(cell int) error
	// SaveRoles writes what an election has changed. Each row is compared with what was loaded (epoch,
	// leader, standby); ErrStale where it differs.
	SaveRoles([]RoleChange) error
	// TakeMail locks those of these mails that wait, and leaves out what another transaction has locked. CloseMail writes
	// what became of mails that this transaction has locked; ErrStale where one does not wait any more.
	TakeMail([]MailID) ([]MailID, error)
	CloseMail([]ClosedMail) error
	// SetMaxMail sets how many mails may wait.
	SetMaxMail(max int) error
}

// RoleChange is a role as it was loaded and as it shall be.
type RoleChange struct{ Now, Was Role }

// Locker loads rows under their locks. What is not there is left out of the answer. The rows must not be changed.
type Locker interface {
	// LockJobs waits for the rows' locks, in the order of ids. A store may give rows as it has written them last, without
	// the lock, if it sees to it that nothing is committed unless they were still so; then Update may be tried again.
	LockJobs([]perdure.JobID) ([]*Job, error)
	// TryLockJobs leaves out the rows that another transaction has locked.
	TryLockJobs([]perdure.JobID) ([]*Job, error)
	// LockLimits locks the limits' rows, and counts the permits of those that bound all of them: Used is 0 where Max is
	// Unbounded.
	LockLimits(names []string) ([]Limit, error)
	// KeyUse returns the sums of the amounts of the permits that are held with these keys, any of which may be given more than once.
	// Their limits are locked.
	KeyUse([]LimitKey) (map[LimitKey]int, error)
	// LockRoles waits for the locks of the roles' rows, in the order of names, and gives all of them: one
	// that nobody has had yet is there without anybody.
	LockRoles(names []string) ([]Role, error)
	// ShareRole keeps a role as it is until the transaction is over; any number may do so at once.
	ShareRole(name string) (Role, error)
	// Now is the store's clock, read after the locks taken so far, or after rows given without one were written. It never
	// runs back.
	Now() (time.Time, error)
	// Fence is the least number that a run may have which is dispatched now, as it was when Now was read. It is
	// raised above all numbers that there were where the store turns out to be an older one: after a failover
	// that has lost commits, after a backup was restored.
	Fence() (int64, error)

	// These read rows of jobs that are locked. Steps reads those of others as well, as they are committed.
	Steps([]StepRef) ([]*Step, error)
	StepsOf(perdure.JobID) ([]*Step, error)
	// Payloads reads inputs and outputs in the order of refs until at least maxBytes are read; the payload that reaches
	// the bound is included. So if the answer has maxBytes or more, nothing is known of the refs after its last one.
	Payloads(refs []StepRef, maxBytes int) ([]Payload, error)
	// Inputs are those of jobs whose input is apart.
	Inputs([]perdure.JobID) (map[perdure.JobID]json.RawMessage, error)
	// Shapes need no lock: their texts never change.
	Shapes([]ShapeID) (map[ShapeID][]byte, error)
}

// Finder looks for rows that may want an event. Its answers are hints: whoever acts on one locks the
// job and looks again.
type Finder interface {
	// JobsByKey needs no lock: a job's key and fingerprint never change.
	JobsByKey(keys []string) (map[string]Keyed, error)
	// JobByHash is the newest unsettled job of this type without a key whose definition has this
	// fingerprint.
	JobByHash(typ string, hash [32]byte) (perdure.JobID, bool, error)
	Limits() ([]Limit, error) // Used is not counted
	// Agents are the settings of the agents that have some.
	Agents() (map[string]perdure.AgentSettings, error)
	Alert(id int64) (*Alert, error)
	// Ready are steps that the agent may claim, in the order of ClaimLess, of lanes that are not closed. Steps that need a
	// limit in full are left out; where it is the limit of a job's type, only if the job does not hold its permit already.
	// A limit that is not there leaves nothing out.
	Ready(agent string, max int, full []string) ([]StepRef, error)
	// ClosedFor are the keys for which lanes are closed: at most max, in order, beginning after one.
	ClosedFor(after LimitKey, max int) ([]LimitKey, error)
	// Pass announces that the next Save dispatches all that Ready has returned for the agent. Until this transaction is over,
	// the store may let Ready of other transactions begin behind these steps, or do nothing.
	Pass(agent string)
	// Due are steps whose time has come; Expired are runs whose lock has passed; Overdue are jobs past
	// their deadline and not yet acted upon. After the commit of a transaction that called Expired, Look.Next is
	// after now, unless something that these three return is left, or a row was locked.
	Due(now time.Time, max int) ([]StepRef, error)
	Expired(now time.Time, max int) ([]StepRef, error)
	Overdue(now time.Time, max int) ([]perdure.JobID, error)
	// HeldBy returns the runs of a holder; with an agent or a request, those of that agent or claim. With agent and
	// request, the transaction locks the claim until its end, and finds everything that the claim was granted before.
	// If another transaction has locked the claim, the error is ErrLocked, and nothing was done.
	HeldBy(holder, agent, request string, max int) ([]StepRef, error)
	// Granted is HeldBy for one claim, which it does not leave locked: another transaction may grant it runs afterwards.
	Granted(holder, agent, request string, max int) ([]StepRef, error)
	// EmbeddedHolders are the holders of runs that live inside a node ("@…").
	EmbeddedHolders() ([]string, error)
}

// Keyed is the job that has a key, and the fingerprint of its definition.
type Keyed struct {
	ID   perdure.JobID
	Hash [32]byte
}

// Reader serves views. Rules never decide by its results, which may be stale.
type Reader interface {
	Now(context.Context) (time.Time, error)
	// Cell is the number of the store's cell; 0: it has none.
	Cell(context.Context) (int, error)
	// Job is a job with the first of its steps, at most steps of them, all as they were at one instant; nil where
	// it is not there.
	Job(ctx context.Context, id perdure.JobID, steps int) (*Job, []*Step, error)
	Shape(context.Context, ShapeID) ([]byte, error)
	// Input returns the job's input, wherever it is stored, and its size in bytes. An input of more than max bytes is
	// not read.
	Input(ctx context.Context, job perdure.JobID, max int) (in json.RawMessage, size int, err error)
	// FindJobs are the jobs that ref may mean: a key, or the start of an id with or without "job_"; the
	// key first, at most max.
	FindJobs(ctx context.Context, ref string, max int) ([]perdure.JobID, error)
	ListJobs(context.Context, JobFilter) ([]*Job, error)
	// StepsOf are the job's steps in order; with since, only those written at that time or later.
	StepsOf(ctx context.Context, job perdure.JobID, since time.Time) ([]*Step, error)
	// Payloads returns the inputs and outputs of a job's steps, in order; a step's input comes before its output. A
	// value of more than max bytes is not read, and does not count for the total. Once the sum of the other values
	// exceeds total, no further value is read. The size of a value is returned even if the value is not read.
	Payloads(ctx context.Context, job perdure.JobID, max, total int) ([]SizedPayload, error)
	// Payload returns the input and output of one step, in full; nil if it has neither.
	Payload(context.Context, StepRef) (*Payload, error)
	Alerts(context.Context, AlertFilter) ([]Alert, error)
	// History returns at most max entries of a job in the order in which they were written, beginning after an entry
	// (0: from the first).
	History(ctx context.Context, job perdure.JobID, after int64, max int) ([]Entry, error)
	// LimitUse adds up the amounts of the permits of a limit, or of one of its keys, and names the holders, at most max of
	// them. Both are 0 of what nobody holds.
	LimitUse(ctx context.Context, limit LimitKey, max int) (used int, holders []LimitHolder, err error)
	ListLimits(context.Context) ([]Limit, error)
	ListAgents(context.Context) (map[string]perdure.AgentSettings, error)
	// Look says what there is to be done, and when. It is called often.
	Look(ctx context.Context, agents []string) (Look, error)
	// ReadyAgents are agents with a step that is ready, in order, at most max.
	ReadyAgents(ctx context.Context, max int) ([]string, error)
	// Backlog counts unsettled jobs, up to max.
	Backlog(ctx context.Context, max int) (int, error)
}

// Registry keeps who is there: nodes, what roles they have, and who asks for work.
type Registry interface {
	// Attend says that a node is there, and what it has seen. The places that it has in roles, and that have
	// not lapsed, are its own for so much longer. It is asked often, and costs one statement.
	Attend(context.Context, Presence) (Roll, error)
	DropNode(ctx context.Context, id string) error
	Nodes(context.Context) ([]Node, error)
	Roles(context.Context) ([]Role, error)
	// Seen returns the MaxSeen holders that claimed last, ordered by agent and holder.
	Seen(context.Context) ([]Seen, error)
}

// Mailbox keeps mail until it is applied, and for a while what became of it.
type Mailbox interface {
	// Mail returns mails of MailKinds that wait, oldest first: at most max of them, and none after the one with which their bodies
	// together reach maxBytes.
	Mail(ctx context.Context, max, maxBytes int) ([]Mail, error)
	// MailWaiting counts no more mails than may wait.
	MailWaiting(context.Context) (MailWaiting, error)
	// MailHints gives a token when mail may have been sent. A token may be lost; one may come of nothing. A nil channel
	// gives none.
	MailHints() <-chan struct{}
	// Submission is what became of a submission that was posted; nil of one that was not, or is forgotten.
	Submission(context.Context, perdure.JobID) (*Submission, error)
	// ForgetMail deletes mail that was applied, or refused, before these times, at most max.
	ForgetMail(ctx context.Context, applied, refused time.Time, max int) (int, error)
}

// Presence is what a node says of itself.
type Presence struct {
	Node   Node // SeenAt is the store's to say
	Seen   []Seen
	TTL    time.Duration // for how long it keeps its places in roles
	Forget bool          // also forget who has not been seen for more than a day
}

// Roll is what a node is told: the time, and all roles as they are now, in the order of names.
type Roll struct {
	Now   time.Time
	Fence int64 // see Locker
	Roles []Role
}

// Look is what time will bring, and what may be claimed.
type Look struct {
	Now    time.Time
	Next   time.Time // not after the earliest time at which a step is due, a run expires or a job is overdue; zero: never
	Ready  []string  // of the agents asked about, those with a step that is ready, in order
	Closed bool      // a lane is closed
}

// In says how long it is until something is to be done; far off where nothing will be.
func (l *Look) In() time.Duration {
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
	Slots   []int     `json:"slots"` // of each of the agents: runs that it takes at once
	Since   time.Time `json:"since"`
	SeenAt  time.Time `json:"seenAt"`
}

// Seen is when a holder last asked for an agent's work.
type Seen struct {
	Agent  string    `json:"agent"`
	Holder string    `json:"holder"`
	At     time.Time `json:"at"`
}

// JobFilter selects jobs for a list, newest first.
type JobFilter struct {
	Phase     *perdure.Phase
	Type      string
	Current   *perdure.State
	Desired   *perdure.State
	Key       string
	Labels    map[string]string
	Before    perdure.JobID // only jobs older than this one; zero: from the newest
	After     perdure.JobID // only jobs newer; with Ascending, for walks over all
	Ascending bool
	Limit     int // 0: DefaultListLimit
}

// AlertFilter selects alerts, newest first.
type AlertFilter struct {
	Job    perdure.JobID // zero: all
	Closed bool          // closed ones too
	Before int64         // only ids below; 0: from the newest
	Limit  int           // 0: DefaultListLimit
}

// The errors of stores.
var (
	// ErrStale says that a guarded write met another run number or state than was loaded. The whole
	// transaction is tried again on fresh rows.
	ErrStale = errors.New("row changed since it was loaded")
	// ErrBroken says that the store must not be used any more: what it has written may not be there. The
	// process is to end, loudly.
	ErrBroken = errors.New("the store cannot be relied upon any more")
	// ErrLocked says that another transaction has locked what was requested, and that the call did not wait for it.
	ErrLocked = errors.New("another transaction has the lock")
	// ErrUnknown says that the outcome of a COMMIT is not known. It must be looked up, never guessed.
	ErrUnknown = errors.New("the outcome of the commit is not known")
)
