// Package service is what a node offers to its callers: programs, operators and agent hosts. A Service implements
// protocol.Server, which is perdure.Service with the calls of agent hosts.
//
// Everything that changes jobs, limits, agents or alerts goes through the scheduler, which decides and commits. Reads go
// to the store. A read decides nothing, because it may be stale. Four functions have transactions of their own:
// RaiseFence, which writes the fence and an alert; committed (jobs.go), which changes nothing and must commit so that its
// read is reliable; storeCalls (logs.go), which writes nothing but logs; and stepRow (logs.go), which reads one row.
//
//	submit.go      submissions
//	jobs.go        one job: wait for it, act on it, its history
//	list.go        lists of jobs: filters, counts, search, summaries
//	view.go        views of a job and its steps
//	follow.go      a job as it changes
//	live.go        lists as they change
//	graph.go       drawings of definitions
//	preview.go     what an act would do to a job
//	bulk.go        acts on many jobs
//	schedules.go   jobs that start at given times
//	webhooks.go    receivers of notifications, and streams of events
//	roles.go       roles that programs hold, and those of nodes
//	access.go      tokens, sessions and the audit log
//	validate.go    what a job of a definition would do
//	mail.go        jobs that are submitted in a caller's transaction and not yet created
//	stats.go       the numbers of an overview
//	operations.go  alerts, limits, agents and nodes
//	exchange.go    the calls of agent hosts
//	artifacts.go   data that is larger than an input or output
//	logs.go        what runs write, and its readers
//	check.go       whether the rows in the store agree with each other
//	fence.go       run numbers after a restore from a backup
package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/lru"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/timetable"
	"github.com/perdure/perdure/internal/webhook"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// Store is the part of a store that a service uses. The package comment lists what a service writes to it.
type Store interface {
	kernel.Reader
	kernel.BulkReader
	kernel.Outbox
	kernel.AccessReader
	kernel.LogStore
	kernel.HostReader
	kernel.ScheduleReader
	kernel.DefinitionReader
	kernel.ChildReader
	Nodes(context.Context) ([]kernel.Node, error)
	Roles(context.Context) ([]kernel.Role, error)
	HeldRoles(context.Context) ([]kernel.HeldRole, error)
	LastClaims(context.Context) ([]kernel.LastClaim, error)
	Submission(context.Context, perdure.JobID) (*kernel.Submission, error)
	Update(context.Context, func(kernel.Tx) error) error
	Stats(context.Context) (json.RawMessage, error)
}

// Compiler compiles definitions to plans, as definition.Compiler does.
type Compiler interface {
	Parse(text []byte, format definition.Format, o definition.Options) ([]*definition.Plan, error)
	ParseAll(base []byte, jobs []json.RawMessage, stop func() error) ([]*definition.Plan, []error)
	ParseStored(base, values []byte, o definition.Options) (*definition.Plan, error)
	CheckTemplate(body []byte, format definition.Format, stop func() error) ([]byte, error)
}

// Config configures a Service. All fields but the last four are required.
type Config struct {
	Store     Store
	Scheduler *scheduler.Scheduler
	Compiler  Compiler
	Schedules *timetable.Book
	// Life ends when the node ends. Its cause is returned to calls that wait at that time: ErrStopped, or the reason why
	// the node has failed.
	Life context.Context
	// Refuse returns why the node accepts no submissions and claims at present; nil while it does.
	Refuse func() error
	// TakeOver takes back the runs of a dead node. It is called before an act, because an act may depend on them.
	TakeOver func(context.Context) error
	// WakeCourier makes the courier read mail.
	WakeCourier func()
	// WakeBulk makes the worker of bulk acts look for them.
	WakeBulk func()
	// Streams wakes the readers of streams when there are new events, and when Life ends. EventPoll returns the time
	// between two reads of a stream without a wake-up.
	Streams   *webhook.Streams
	EventPoll func() time.Duration
	Node      string            // the id of the node
	RoleTTL   time.Duration     // for how long a node keeps its roles after its latest roll call
	Shared    bool              // several processes may have the store open at the same time
	Artifacts operate.Artifacts // nil: the node keeps none
	LogRate   int64             // how many bytes of logs are stored in a second; 0: DefaultLogRate

	// TraceID returns the id of a job's trace; empty if none is exported. nil: no traces are exported.
	TraceID  func(perdure.JobID) string
	TraceURL string // where a trace is shown, with {traceId} for its id; may be empty

	Log *slog.Logger // nil: nothing is logged
	Env env.Env      // nil: env.Real
}

// Service implements protocol.Server. It is safe for concurrent use.
type Service struct {
	Config
	recent      *recent
	recentHosts *recentHosts
	graphs      *graphs
	logs        *logWriter
	kept        *keptArtifacts

	summaries *lru.Cache[perdure.JobID, recentSummary]
	liveBytes *liveBytes
	liveJobs  *liveLists[perdure.JobView, perdure.JobID]
	liveAlert *liveLists[perdure.AlertView, int64]
}

var _ protocol.Server = (*Service)(nil)

// ErrStopped is returned by all calls after the node has stopped.
var ErrStopped = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the node has stopped", Hint: "ask another node"}

// New returns a service.
func New(cfg Config) *Service {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Env == nil {
		cfg.Env = env.Real{}
	}
	cfg.LogRate = cmp.Or(cfg.LogRate, DefaultLogRate)
	svc := &Service{Config: cfg, recent: newRecent(), recentHosts: newRecentHosts(), graphs: newGraphs(), logs: &logWriter{readers: map[kernel.LogRef]*logReaders{}}, summaries: newSummaries(), kept: newKept(), liveBytes: &liveBytes{}}
	svc.liveJobs, svc.liveAlert = newLiveLists[perdure.JobView, perdure.JobID](svc), newLiveLists[perdure.AlertView, int64](svc)
	return svc
}

// ended returns the reason why the node has ended; nil while it has not. After the end, the caller of the node may have
// closed the store.
func (svc *Service) ended() error { return context.Cause(svc.Life) }

// Unreachable converts an error of a store to the error that a caller gets.
func Unreachable(err error) error {
	if perdure.CodeOf(err) != "" || errors.Is(err, context.Canceled) {
		return err
	}
	return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("the store does not answer: %v", err), Hint: "try again later"}
}

func noJob(id perdure.JobID) error {
	return perdure.Refuse(perdure.CodeNotFound, "there is no job %s", id)
}

// listedSteps is how many steps of a job are listed for a caller who names another one.
const listedSteps = 10

// noStep returns the error for a step that a job does not have. index has the job's steps, each with its place.
func noStep(id perdure.JobID, name string, index map[string]int) error {
	e := perdure.Refuse(perdure.CodeNotFound, "job %s has no step %s", id, name)
	names := slices.SortedFunc(maps.Keys(index), func(a, b string) int { return cmp.Compare(index[a], index[b]) })
	more := ""
	if n := len(names) - listedSteps; n > 0 {
		names, more = names[:listedSteps], fmt.Sprintf(", and %d more", n)
	}
	e.Hint = "its steps: " + strings.Join(names, ", ") + more
	return e
}
