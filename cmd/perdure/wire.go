package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	agenthttp "github.com/perdure/perdure/agents/http"
	"github.com/perdure/perdure/agents/shell"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/redact"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/secret"
	"github.com/perdure/perdure/internal/tlsfiles"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
	stores "github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlite"
	"github.com/perdure/perdure/tracing"
)

// This file is the only place that opens a store and assembles a node.

// reaper reports whether this process was started as a reaper, and has finished.
func reaper() bool { return shell.MaybeReaper() }

const storeHint = "sqlite:FILE or postgres://USER@HOST/DATABASE (or memory:, which keeps nothing)"

func isSQLite(store string) bool   { return stores.IsSQLite(store) }
func isPostgres(store string) bool { return stores.IsPostgres(store) }

// openStore opens the store at a URL.
func openStore(ctx context.Context, store string, use storeUse) (kernel.Store, error) {
	if err := checkStore(store); err != nil {
		return nil, err
	}
	if path, err := sqlite.ParseURL(store); err == nil && isSQLite(store) && !use.create {
		if _, err := os.Stat(path); err != nil {
			e := perdure.Refuse(perdure.CodeUnavailable, "there is no store at %s", path)
			e.Hint = `"perdure run" and "perdure serve" make one`
			return nil, e
		}
	}
	if use.migrate {
		return stores.Open(ctx, store, stores.Migrated)
	}
	return stores.Open(ctx, store)
}

// migrate brings the schema of a store up to date. SQLite does that when it is opened.
func migrate(ctx context.Context, store string) error {
	if err := checkStore(store); err != nil {
		return err
	}
	return stores.Migrated(ctx, store)
}

func checkStore(store string) error {
	switch {
	case isSQLite(store):
		_, err := sqlite.ParseURL(store)
		return err
	case isPostgres(store), store == stores.Memory:
		return nil
	}
	return &usageError{msg: fmt.Sprintf("--store %s is no store's URL", redact.URL(store)), hint: storeHint}
}

type nodeOptions struct {
	agents agentFlags
	log    *slog.Logger
	listen string
	serve  *serveFlags     // nil: an embedded node
	tracer *tracing.Tracer // nil: no traces

	artifacts operate.Artifacts // nil: none
}

func newNode(store kernel.Store, o nodeOptions) engine {
	cfg := node.Config{Agents: makeAgents(o.agents), SecretsDir: o.agents.secrets, Listen: o.listen, Version: buildVersion(), Log: o.log, Artifacts: o.artifacts}
	cfg.Webhooks = node.Webhooks{ForbidPrivate: !o.agents.private, Secret: webhookSecrets(o.agents.secrets)}
	if o.serve != nil {
		cfg.SweepPeriod, cfg.SweepBatch, cfg.MaxBacklog, cfg.MaxMail = time.Duration(o.serve.period), o.serve.batch, o.serve.maxBacklog, o.serve.maxMail
		cfg.LogRate = int64(o.serve.logRate)
		cfg.Webhooks.PublicURL = o.serve.hosts.public
		cfg.RoleTTL, cfg.HostName, cfg.TraceURL = time.Duration(o.serve.roleTTL), string(o.serve.hostName), o.serve.traceURL
	}
	if o.tracer != nil {
		cfg.Tracer = o.tracer
	}
	return node.New(store, cfg)
}

// newTracer returns the tracer that the environment configures; nil if it configures none.
func newTracer(log *slog.Logger) (*tracing.Tracer, error) {
	tracer, err := tracing.FromEnvironment(tracing.Config{Version: buildVersion(), Log: log})
	if err != nil {
		return nil, &usageError{msg: err.Error(), hint: "correct or unset the variable; without OTEL_EXPORTER_OTLP_ENDPOINT no traces are exported"}
	}
	if tracer != nil {
		tracing.LogErrors(log)
	}
	return tracer, nil
}

// webhookSecrets returns the secrets that definitions name in notify: from the files of a directory, and from the
// environment. A name has letters, digits and _ only.
func webhookSecrets(dir string) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		if dir != "" {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				return strings.TrimRight(string(text), "\r\n"), true
			}
		}
		text := os.Getenv(secret.Variable + name)
		return text, text != ""
	}
}

// makeAgents returns the built-in agents that were selected.
func makeAgents(f agentFlags) []*perdure.Agent {
	var agents []*perdure.Agent
	for _, name := range f.programs() {
		switch name {
		case agenthttp.Name:
			agents = append(agents, agenthttp.New(agenthttp.Config{Slots: f.slotsOf(name), ForbidPrivate: !f.private}))
		case shell.Name:
			agents = append(agents, shell.New(shell.Config{Slots: f.slotsOf(name), Env: f.env}))
		}
	}
	return agents
}

// newServer serves the REST API of a node, and the console. Long polls end when polls ends.
func newServer(n engine, polls context.Context, o *serveFlags, beyond bool, log *slog.Logger) *http.Server {
	hosts := o.hosts
	cfg := rest.Config{Service: n, Ready: n.Ready, Metrics: n.Metrics(), JobSchema: definition.Schema(),
		Log: log, Version: buildVersion(), Shutdown: polls, Hosts: hosts.hosts, Connections: o.connections(), Console: rest.ConsolePath(hosts.public),
		Tokens: o.access.tokens(beyond || o.access.behindProxy(hosts.public)), Secure: strings.HasPrefix(hosts.public, "https:"), Proxies: o.access.proxies}
	if o.access.provider != nil {
		cfg.OIDC = o.access.provider
	}
	if own, ok := n.(*node.Node); ok {
		cfg.Registry, cfg.Access = own.Registry(), own.Access()
	}
	return rest.Server("", rest.New(cfg), log)
}

// newClient returns the client of a command. It soon returns an error if the server is gone, because commands that
// follow a job have their own patience (lostFor). A call that a busy server refuses is repeated, with a message to the
// user.
func (a *app) newClient(server string) (protocol.Server, error) {
	for _, one := range serversIn(server) {
		u, err := url.Parse(one)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, &usageError{msg: fmt.Sprintf("--server %s is no server's URL", redact.URL(one)), hint: "http://HOST:PORT"}
		}
	}
	options, err := a.clientOptions(server)
	if err != nil {
		return nil, err
	}
	return client.New(server, append(options, client.Patience(time.Second), client.OnBusy(func(reason error, again time.Duration) {
		a.talk("%v: trying again in %s", reason, again.Round(time.Second))
	}))...)
}

// clientOptions returns the options of a client by the flags of a command: who calls, and how the connection is
// protected.
func (a *app) clientOptions(server string) ([]client.Option, error) {
	token, err := a.token()
	if err != nil {
		return nil, err
	}
	options := []client.Option{token, client.Author(author())}
	switch files := a.files; {
	case files == (tlsfiles.ClientConfig{}):
		return options, nil
	case slices.ContainsFunc(serversIn(server), func(url string) bool { return !strings.HasPrefix(strings.ToLower(url), "https:") }):
		return nil, &usageError{msg: fmt.Sprintf("--server-ca and --client-cert need HTTPS, and --server is %s", shownServers(server)), hint: "--server https://HOST:PORT"}
	case (files.Cert == "") != (files.Key == ""):
		return nil, &usageError{msg: "--client-cert and --client-key belong together", hint: "give both"}
	default:
		return append(options, client.ServerCA(files.CA), client.Certificate(files.Cert, files.Key)), nil
	}
}

// tokenVariable is the environment variable with a token. --token-file has precedence.
const tokenVariable = envPrefix + "TOKEN"

// token returns the option for the token of a command's client.
func (a *app) token() (client.Option, error) {
	if a.tokenFile != "" {
		if info, err := os.Stat(a.tokenFile); err == nil && info.Mode().Perm()&0o004 != 0 && !a.jsonLog {
			a.talk("warning: other users can read the token file %s; chmod 600 %s", a.tokenFile, quoted(a.tokenFile))
		}
		return client.TokenFile(a.tokenFile), nil
	}
	text := os.Getenv(tokenVariable)
	if text == "" {
		return func(*client.Client) {}, nil
	}
	token, err := client.CheckToken(text, tokenVariable)
	if err != nil {
		return nil, &usageError{msg: err.Error()}
	}
	return client.Token(token), nil
}

// sweep is one round of the supervisor, as text and as an object.
func sweep(ctx context.Context, n engine) (string, any, error) {
	own, ok := n.(*node.Node)
	if !ok {
		return "", nil, errors.ErrUnsupported
	}
	s, err := own.Sweep(ctx)
	return fmt.Sprintf("%s expired, %s moved on, %s overdue", plural(s.Expired, "run"), plural(s.Due, "step"), plural(s.Overdue, "job")), s, err
}

// startPatience is how long `perdure agent` waits for a server at its start: a server that is being restarted is back
// soon, and a wrong address must be reported soon.
const startPatience = 5 * time.Second

// runAgents runs agents against a server until ctx ends, and drains them.
func (a *app) runAgents(ctx context.Context, agents agentFlags, cfg client.ServeConfig) error {
	c, err := a.reach(ctx, cfg.Log)
	if c == nil || err != nil {
		return err
	}
	cfg.SecretsDir = agents.secrets
	return c.Serve(ctx, cfg, makeAgents(agents)...)
}

// reach returns a client of --server when the server answers. It waits while the server's store is unavailable. The client
// is nil if ctx ends first: nothing has begun then that would have to be drained.
func (a *app) reach(ctx context.Context, log *slog.Logger) (*client.Client, error) {
	options, err := a.clientOptions(a.server)
	if err != nil {
		return nil, err
	}
	c, err := client.New(a.server, options...)
	if err != nil {
		return nil, &usageError{msg: err.Error()}
	}
	for began, told := time.Now(), false; ; told = true {
		_, err := c.JobSchema(ctx)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		if perdure.CodeOf(err) != perdure.CodeUnavailable || time.Since(began) > startPatience {
			return nil, err
		}
		if !told && a.jsonLog {
			log.Warn("server not reachable; trying again", "error", err, "for", startPatience.String())
		} else if !told {
			a.talk("%v: trying for %s", err, startPatience)
		}
	}
}

// parse reads the definitions of a file, and validates them.
func parse(file string, src []byte, set map[string]json.RawMessage, key string) ([]*kernel.Plan, error) {
	return definition.Parse(src, definition.FormatOf(file), definition.Options{Input: set, Key: key})
}

// faults formats the errors in a file.
func faults(file string, src []byte, err error) string { return definition.FormatError(file, src, err) }

// locate adds the places in a file to the faults of what was read of it.
func locate(src []byte, err error) error { return definition.Locate(src, definition.YAML, err) }

// toJSON reads a file of YAML or JSON.
func toJSON(src []byte) ([]byte, error) { return definition.ToJSON(src, definition.YAML) }

func jobSchema() []byte { return definition.Schema() }
