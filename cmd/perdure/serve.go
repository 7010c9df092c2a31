package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/descriptors"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/redact"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

type serveFlags struct {
	listen        string
	hosts         hostNameFlags
	metricsListen string
	access        accessFlags
	agents        agentFlags
	migrate       bool
	period        duration
	batch         int
	roleTTL       duration
	hostName      hostName
	maxBacklog    int
	maxMail       int
	logRate       size
	artifacts     string
	maxConns      int
	grace         duration
	traceURL      string
	log           logFlags
}

func (a *app) serveCmd() *cobra.Command {
	o := serveFlags{grace: duration(30 * time.Second), period: duration(time.Second), roleTTL: duration(kernel.DefaultRoleTTL), logRate: node.DefaultLogRate}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node: REST API, console, scheduler, supervisor, built-in agents",
		Long: `Serves the REST API and the web console (at /ui/) on --listen, and processes the jobs in --store: it
dispatches steps, applies reports, and expires runs that are not reported. On PostgreSQL any number of
nodes can share a store.

Metrics are at /metrics. If OTEL_EXPORTER_OTLP_ENDPOINT is set, a trace of each job is exported there; the
other variables of OpenTelemetry, such as OTEL_TRACES_SAMPLER, are respected.

SIGTERM or SIGINT drains: /readyz turns 503, long polls end, runs of the agents end or are returned, and
the process exits 0 within --grace. A second signal ends it at once. In both cases nothing that was
acknowledged is lost.

The agent shell runs programs for every client that can submit a job; it is off unless --agents lists
it. The agents sleep and approval are always available.`,
		Example: `  perdure serve
  perdure serve --store postgres://localhost/perdure --migrate --listen :7420
  perdure serve --public-url https://perdure.example.com
  perdure serve --agents http,shell --slots http=64
  perdure serve --agents none`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), &o) },
	}
	uses(cmd, "store")
	o.agents.register(cmd, "http", false)
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:7420", "listen on `ADDRESS`; port 0 selects a free port")
	o.hosts.register(f, true)
	o.access.register(f)
	f.StringVar(&o.metricsListen, "metrics-listen", "", "serve /metrics, without a token, on this `ADDRESS`, too")
	f.BoolVar(&o.migrate, "migrate", false, "migrate a PostgreSQL store's schema first")
	f.Var(&o.period, "sweep-period", "time between searches of the supervisor")
	f.IntVar(&o.batch, "sweep-batch", 0, "most rows that the supervisor processes at a time (default: the node's)")
	f.Var(&o.roleTTL, "role-ttl", "how long the node leads a role, or stands by, without renewing it")
	f.Var(&o.hostName, "host-name", "`NAME` of the host: leader and standby of a role run on different hosts where possible (default: the operating system's)")
	f.IntVar(&o.maxBacklog, "max-backlog", perdure.DefaultMaxBacklog, "refuse submissions above this number of unsettled jobs")
	f.IntVar(&o.maxMail, "mail-max", kernel.DefaultMaxMail, "refuse submissions in callers' transactions while this `NUMBER` of them waits for a node; on PostgreSQL, numbers above 10,000 count as 10,000")
	f.Var(&o.logRate, "log-rate", "store at most so many bytes of logs of runs in a second; what is above waits at the agents")
	f.StringVar(&o.artifacts, "artifacts", "", "keep artifacts at this `URL`, which all nodes share: file:///PATH or s3://BUCKET/PREFIX (default: beside the SQLite file)")
	f.IntVar(&o.maxConns, "max-connections", 0, fmt.Sprintf("bound on open connections (default: derived from the limit of open files, at most %d)", descriptors.MaxConnections))
	f.Var(&o.grace, "grace", "longest time of a drain")
	f.StringVar(&o.traceURL, "trace-url", "", "where the trace of a job is shown, as a `URL` with {traceId}: `get` and the console link to it")
	restricts(cmd, "tls-client-ca")
	o.log.register(cmd)
	return cmd
}

// hostName is a flag that names the host of a node.
type hostName string

func (h *hostName) String() string { return string(*h) }
func (h *hostName) Type() string   { return "name" }
func (h *hostName) Set(s string) error {
	if err := kernel.CheckHostName(s); err != nil {
		return fmt.Errorf("%w; give the same name to all nodes on this host, for example web-1", err)
	}
	*h = hostName(s)
	return nil
}

func (o *serveFlags) check() error {
	switch {
	case o.maxBacklog < 1:
		return usagef("--max-backlog must be 1 or more")
	case o.maxMail < 1 || o.maxMail > kernel.MaxMaxMail:
		return usagef("--mail-max must be 1 to %d", kernel.MaxMaxMail)
	case o.logRate < leastLogRate || o.logRate > mostLogRate:
		return usagef("--log-rate must be %s to %s", leastLogRate, mostLogRate)
	case o.maxConns < 0:
		return usagef("--max-connections must be 1 or more")
	case o.batch < 0 || o.batch > perdure.MaxSteps:
		return usagef("--sweep-batch must be 1 to %d", perdure.MaxSteps)
	case time.Duration(o.roleTTL) < leastRoleTTL || time.Duration(o.roleTTL) > mostRoleTTL:
		return usagef("--role-ttl must be %v to %v", leastRoleTTL, mostRoleTTL)
	}
	if o.metricsListen != "" {
		if err := checkAddress("metrics-listen", o.metricsListen); err != nil {
			return err
		}
	}
	return cmp.Or(checkAddress("listen", o.listen), checkTraceURL(o.traceURL), o.hosts.check(), o.access.check(o.hosts.public), o.agents.check())
}

// checkTraceURL checks --trace-url. The console makes a link of it, so another scheme is refused.
func checkTraceURL(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(strings.ReplaceAll(text, "{traceId}", "0"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || !strings.Contains(text, "{traceId}") || len(text) > maxTraceURL {
		return &usageError{msg: fmt.Sprintf("--trace-url must be an http or https URL with {traceId} in it, of at most %d bytes", maxTraceURL),
			hint: "for Jaeger http://HOST:16686/trace/{traceId}"}
	}
	return nil
}

const maxTraceURL = 2000

// connections returns the bound on open connections.
func (o *serveFlags) connections() int {
	if o.maxConns > 0 {
		return o.maxConns
	}
	return descriptors.Connections(descriptors.Limit())
}

// A shorter time makes standbys take over from nodes that are only slow, and costs statements. A longer one delays the
// work of a role whose leader has died.
const (
	leastRoleTTL = 2 * time.Second
	mostRoleTTL  = 5 * time.Minute
)

// A lower rate could never take a chunk. A higher one is no bound.
const (
	leastLogRate size = protocol.MaxLogChunk
	mostLogRate  size = 1 << 30
)

// size is a flag with a number of bytes.
type size int64

func (s *size) Type() string { return "size" }
func (s size) String() string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if shift := 30 - 10*i; s != 0 && s%(1<<shift) == 0 {
			return fmt.Sprintf("%d%s", s>>shift, unit)
		}
	}
	return fmt.Sprint(int64(s))
}

func (s *size) Set(text string) error {
	n, err := operate.ParseSize(text)
	*s = size(n)
	return err
}

func (a *app) serve(ctx context.Context, o *serveFlags) error {
	if err := o.check(); err != nil {
		return err
	}
	paceCollector()
	memory := limitMemory()
	defer a.unblock()()
	ctx, stop := a.interruptible(ctx)
	defer stop()
	artifacts, err := artifactsOf(o.artifacts, a.store)
	if err != nil {
		return err
	}
	store, err := openStore(ctx, a.store, storeUse{create: true, migrate: o.migrate})
	if err != nil {
		return reason(ctx, err)
	}
	log := a.serviceLogger(o.log)
	listener, err := o.listenOn(ctx, store, log)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	defer listener.Close()
	metricsListener, err := o.listenForMetrics()
	if err != nil {
		return errors.Join(err, store.Close())
	}
	o.warn(log, listener.Addr())
	if memory > 0 {
		log.Info("memory limit set", "bytes", memory, "of", "the container's limit")
	}
	tracer, err := newTracer(log)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	if tracer != nil {
		log.Info("traces are exported", "url", tracer.Endpoint())
	}
	n := newNode(store, nodeOptions{agents: o.agents, log: log, listen: listener.Addr().String(), serve: o, tracer: tracer, artifacts: artifacts})
	if err := n.Start(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(err, store.Close())
	}
	if metricsListener != nil {
		// Metrics are served until the node has drained.
		metricsCtx, endMetrics := context.WithCancel(context.WithoutCancel(ctx))
		defer endMetrics()
		go o.serveMetrics(metricsCtx, n, metricsListener, log)
	}
	err = a.answer(ctx, n, listener, o, log)
	crashpoint.Here(crashpoint.ServeClose)
	err = errors.Join(err, store.Close())
	crashpoint.Here(crashpoint.ServeClosed)
	return err
}

// listenOn opens the node's listener, unless other machines could connect without tokens, or send them unencrypted.
func (o *serveFlags) listenOn(ctx context.Context, store kernel.Store, log *slog.Logger) (net.Listener, error) {
	hasAdmin, err := store.HasAdminToken(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.access.mayListen(o.listen, o.hosts.public, hasAdmin); err != nil {
		return nil, err
	}
	o.access.tls.Failed = func(err error) {
		log.Error("changed TLS files cannot be used; those before them stay in use", "error", err)
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return nil, notListening("listen", o.listen, err)
	}
	secured, err := o.access.secured(l)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return secured, nil
}

// warn logs settings that make the node unsafe.
func (o *serveFlags) warn(log *slog.Logger, addr net.Addr) {
	if o.access.insecure {
		log.Warn("every caller may act without a token", "listen", addr.String(), "agents", strings.Join(o.agents.all(), ","),
			"action", "remove --insecure, and create tokens with: perdure tokens create")
	}
	if o.hosts.hosts.Any() {
		log.Warn("the host check is disabled", "allowed_hosts", "*",
			"action", "list the host names of this node in --allowed-hosts, or any web page can reach it by DNS rebinding")
	}
}

// answer serves requests until ctx ends, and then drains.
func (a *app) answer(ctx context.Context, n engine, listener net.Listener, o *serveFlags, log *slog.Logger) error {
	polls, endPolls := context.WithCancel(context.Background())
	defer endPolls()
	server := newServer(n, polls, o, isBeyond(listener.Addr()), log)
	listener = rest.Bound(listener, server, o.connections(), log)
	crashpoint.Here(crashpoint.ServeListen)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	a.announceServing(log, o.access.scheme()+"://"+listener.Addr().String(), o.agents.all())

	var err error
	select {
	case <-ctx.Done():
		log.Info("draining", "grace", o.grace.String())
	case err = <-failed:
		log.Error("serving has ended", "error", err)
	case <-n.Failed():
		err = n.Ready(ctx) // logs the reason
	}
	drain, cancel := context.WithTimeout(context.Background(), time.Duration(o.grace))
	defer cancel()
	// The node stops first: from now on /readyz returns 503, while remote agents can still report. Long polls end with
	// the node, not before, so that no client is sent away by a node that still looks ready.
	stopped := make(chan error, 1)
	go func() { stopped <- n.Stop(drain) }()
	endPolls()
	if serr := <-stopped; serr != nil { // nothing is lost: runs that were not reported expire, and are dispatched again
		log.Warn("the drain was cut short", "error", serr)
	}
	if server.Shutdown(drain) != nil {
		_ = server.Close()
	}
	return err
}

// announceServing reports where the node can be reached: as text, or as a log line.
func (a *app) announceServing(log *slog.Logger, url string, agents []string) {
	if a.jsonLog {
		log.Info("listening", "url", url, "store", redact.URL(a.store), "agents", agents)
		return
	}
	fmt.Fprintf(a.err, "listening on %s, store %s, agents %s\n", url, redact.URL(a.store), strings.Join(agents, ", "))
}

// checkAddress refuses the value of a flag on which no process can listen.
func checkAddress(flag, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return &usageError{msg: fmt.Sprintf("--%s %s is not an address", flag, shownArg(addr)), hint: "HOST:PORT, such as 127.0.0.1:7420, or :7420 for all addresses of this machine"}
	}
	return nil
}

// notListening is the error of a listener at the value of a flag.
func notListening(flag, addr string, err error) error {
	e := perdure.Refuse(perdure.CodeUnavailable, "cannot listen on %s: %v", addr, errors.Unwrap(err))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		e.Message, e.Hint = fmt.Sprintf("cannot listen on %s: the address is in use", addr), "is a node running already? choose another address with --"+flag
	case errors.As(err, new(*net.AddrError)), errors.As(err, new(*net.DNSError)):
		return usagef("--%s %s: %v", flag, addr, errors.Unwrap(err))
	}
	return e
}
