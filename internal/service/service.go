// Package service is what a node does for its callers: programs, operators and agent hosts. A Service implements
// protocol.Server, which is perdure.Service with the calls of agent hosts.
//
// Whatever changes something goes to the scheduler. Whatever only reads is read from the store, and never decides
// anything: what was read may be stale.
//
//	submit.go      submissions
//	jobs.go        one job: wait for it, act on it, its history; and lists of jobs
//	view.go        what a job and its steps look like to a reader
//	follow.go      a job as it changes
//	mail.go        jobs that are submitted in a caller's transaction, and are not made yet
//	operations.go  alerts, limits, agents and nodes
//	exchange.go    the calls of agent hosts
//	check.go       whether the rows in the store agree with each other
//	fence.go       run numbers after a restore from a backup
package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
)

// Store is what a service reads. Of what it writes, only the fence does not go through the scheduler.
type Store interface {
	kernel.Reader
	Nodes(context.Context) ([]kernel.Node, error)
	Roles(context.Context) ([]kernel.Role, error)
	Seen(context.Context) ([]kernel.Seen, error)
	Submission(context.Context, perdure.JobID) (*kernel.Submission, error)
	Update(context.Context, func(kernel.Tx) error) error
}

// Compiler makes plans of definitions, as definition.Compiler does.
type Compiler interface {
	Parse(text []byte, format definition.Format, o definition.Options) ([]*definition.Plan, error)
	ParseAll(base []byte, jobs []json.RawMessage, stop func() error) ([]*definition.Plan, []error)
}

// Config is what a Service is made of. All fields but the last three are required.
type Config struct {
	Store     Store
	Scheduler *scheduler.Scheduler
	Compiler  Compiler
	// Life ends when the node ends. Its cause is returned to calls that wait then: ErrStopped, or why the node has failed.
	Life context.Context
	// Refuse returns why the node accepts no submissions and claims at present; nil while it does.
	Refuse func() error
	// TakeOver takes back the runs of a dead node. It is called before an act, because an act may depend on them.
	TakeOver func(context.Context) error
	// WakeCourier makes the courier look for mail.
	WakeCourier func()
	Node        string        // the id of the node
	RoleTTL     time.Duration // for how long a node keeps its roles after its last roll call
	Shared      bool          // several processes may use the store at once

	Log *slog.Logger // nil: nothing is logged
	Env env.Env      // nil: env.Real
}

// Service is safe for concurrent use.
type Service struct {
	Config
	recent *recent
}

var _ protocol.Server = (*Service)(nil)

// ErrStopped is why no call succeeds after the node has stopped.
var ErrStopped = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the node has stopped", Hint: "ask another node"}

// New makes a service.
func New(cfg Config) *Service {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Env == nil {
		cfg.Env = env.Real{}
	}
	return &Service{Config: cfg, recent: newRecent()}
}

// ended returns why the node has ended; nil while it has not. The caller of the node may have closed the store after that.
func (svc *Service) ended() error { return context.Cause(svc.Life) }

// Unreachable returns the error of a store as a caller gets it.
func Unreachable(err error) error {
	if perdure.CodeOf(err) != "" || errors.Is(err, context.Canceled) {
		return err
	}
	return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("the store does not answer: %v", err), Hint: "try again later"}
}

func noJob(id perdure.JobID) error {
	return perdure.Refuse(perdure.CodeNotFound, "there is no job %s", id)
}
