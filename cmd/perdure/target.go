package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/redact"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/tracing"
)

// engine is what commands need of an embedded node in addition to a server's methods.
type engine interface {
	protocol.Server
	Start(context.Context) error
	Stop(context.Context) error
	Ready(context.Context) error
	Failed() <-chan struct{}
	RaiseFence(ctx context.Context, author, reason string) (int64, error)
	Check(context.Context, func(kernel.Finding)) error
	FindSame(context.Context, *kernel.Plan) (perdure.JobID, bool, error)
	Metrics() http.Handler
}

// service is everything that a node offers to programs, operators and consoles.
type service interface {
	perdure.Service
	operate.Service
}

// target is the server or the store that a command works on.
type target struct {
	service
	node  engine // of a store; nil for a server
	where string // flags that make another command use the same target
	place string // as it is shown

	store   kernel.Store
	tracer  *tracing.Tracer // nil: no traces
	talk    func(format string, args ...any)
	started bool
	stopped bool
}

// start starts the node of a store. It is called before a job is submitted or read, so that no step is shown as waiting
// for an agent that is about to start.
func (t *target) start(ctx context.Context) error {
	if t.far() || t.started {
		return nil
	}
	t.started = true
	return t.node.Start(context.WithoutCancel(ctx))
}

// stop drains the node for at most grace.
func (t *target) stop(grace time.Duration) error {
	if t.far() || t.stopped {
		return nil
	}
	t.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := t.node.Stop(ctx) // it exports the last spans, for a second at most
	if t.tracer != nil {
		if _, dropped := t.tracer.Spans(); dropped > 0 {
			t.talk("%s of traces not exported: no collector has taken them", plural(int(dropped), "span"))
		}
	}
	return err
}

// close closes the store.
func (t *target) close() error {
	if t.far() {
		return nil
	}
	err := t.stop(drainGrace)
	if cerr := t.store.Close(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("closing %s: %w", t.place, cerr))
	}
	return err
}

// far reports whether the target is a server.
func (t *target) far() bool { return t.node == nil }

// dial determines the target and connects to it. A flag overrides the environment, and a server overrides a store.
// agents is nil for a command that starts no node.
func (a *app) dial(ctx context.Context, cmd *cobra.Command, agents *agentFlags) (*target, error) {
	server, serverFlag := given(cmd, "server")
	store, storeFlag := given(cmd, "store")
	switch {
	case serverFlag && storeFlag:
		return nil, &usageError{msg: "--server and --store exclude each other", hint: "a store in use is reached through its server"}
	case store && takes(cmd, "store") && (storeFlag || !server):
		return a.open(ctx, storeUse{agents: agents, create: cmd.Annotations[createsKey] != ""})
	}
	svc, err := a.newClient(a.server)
	if err != nil {
		return nil, err
	}
	t := &target{service: svc, place: shownServers(a.server)}
	if serverFlag {
		t.where = " --server " + quoted(shownServers(a.server))
	}
	for _, name := range ofServer {
		if _, byFlag := given(cmd, name); byFlag {
			t.where += " --" + name + " " + quoted(cmd.Flags().Lookup(name).Value.String())
		}
	}
	return t, nil
}

// storeUse says for what purpose a store is opened.
type storeUse struct {
	agents  *agentFlags // nil: the node of the store is not started
	create  bool        // create a missing SQLite file
	migrate bool
}

// open makes a node on --store that is not started: it answers queries and dispatches nothing.
func (a *app) open(ctx context.Context, use storeUse) (*target, error) {
	var tracer *tracing.Tracer
	o := nodeOptions{agents: agentFlags{names: []string{"none"}}, log: a.logger("error", "text")}
	if use.agents != nil {
		o.agents = *use.agents
		var err error
		if tracer, err = newTracer(o.log); err != nil {
			return nil, err
		}
		o.tracer = tracer
	}
	store, err := openStore(ctx, a.store, use)
	if err != nil {
		return nil, err
	}
	if o.artifacts, err = artifactsOf("", a.store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	n := newNode(store, o)
	t := &target{service: n, node: n, place: redact.URL(a.store), store: store, tracer: tracer, talk: a.talk}
	if os.Getenv(envName("store")) != a.store || os.Getenv(envName("server")) != "" {
		t.where = " --store " + quoted(redact.URL(a.store))
	}
	return t, nil
}

// author returns the author of acts.
func author() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if name == "" {
		name = "unknown"
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// asAuthor returns the context of a call that has no parameter for its author. A server identifies the caller by its token.
func asAuthor(ctx context.Context) context.Context {
	return operate.WithIdentity(ctx, &operate.Identity{OnBehalfOf: author()})
}

// connect is dial for commands that only read.
func (a *app) connect(cmd *cobra.Command) (*target, error) {
	return a.dial(cmd.Context(), cmd, nil)
}

// withTarget calls fn with the target.
func (a *app) withTarget(cmd *cobra.Command, fn func(context.Context, *target) error) error {
	ctx, stop := a.interruptible(cmd.Context())
	defer stop()
	t, err := a.connect(cmd)
	if err != nil {
		return err
	}
	return errors.Join(reason(ctx, t.hinted(cmd, fn(ctx, t))), t.close())
}

// hinted adds to the error of a default server that cannot be reached that there is a store to open instead.
func (t *target) hinted(cmd *cobra.Command, err error) error {
	var refusal *perdure.Error
	if server, _ := given(cmd, "server"); server || !t.far() || !takes(cmd, "store") || perdure.CodeOf(err) != perdure.CodeUnavailable || !errors.As(err, &refusal) {
		return err
	}
	file := strings.TrimPrefix(defaultStore, "sqlite:")
	if info, serr := os.Stat(file); serr != nil || !info.Mode().IsRegular() {
		return err
	}
	more := *refusal
	more.Hint = strings.TrimPrefix(more.Hint+"; or use "+file+" of this directory: --store "+defaultStore, "; or ")
	return &more
}

// reason returns why the context has ended, if that is the cause of err.
func reason(ctx context.Context, err error) error {
	var said exit
	if err != nil && ctx.Err() != nil && !errors.As(err, &said) {
		return context.Cause(ctx)
	}
	return err
}
