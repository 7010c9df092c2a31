package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/agenthost"
	"github.com/perdure/perdure/operate"
)

// ServeConfig configures Serve. The zero value has the defaults.
type ServeConfig struct {
	Name      string        // prefix of the holder's name, to which a unique suffix is added; "": the host's name
	Heartbeat time.Duration // if this process dies, its runs are dispatched again after so long; 0: 10s
	Grace     time.Duration // how long the drain may take; 0: 30s
	Log       *slog.Logger  // nil: nothing is logged

	// SecretsDir is a directory with a file for each secret that runs may use (${secret.NAME}). It is read again for each
	// run. A secret without a file is that of the environment variable PERDURE_SECRET_NAME.
	SecretsDir string
}

const defaultGrace = 30 * time.Second

// Serve claims runs for the agents, executes them in this process and reports them, until ctx ends. Then it drains: runs
// that have not started are returned, and runs in progress may finish within the grace. The error is nil if all runs were
// reported. The same agents can run in the process of a node without a change (node.Config.Agents).
//
// If the server answers at the start that the client's token is not valid, or may not carry out runs of these agents, Serve
// returns that. Later, calls that fail are repeated until the server accepts them: a token may be replaced.
func (c *Client) Serve(ctx context.Context, cfg ServeConfig, agents ...*perdure.Agent) error {
	if len(agents) == 0 {
		return perdure.Refuse(perdure.CodeInvalid, "no agent is given: pass at least one")
	}
	if cfg.Grace <= 0 {
		cfg.Grace = defaultGrace
	}
	names := make([]string, len(agents))
	for i, a := range agents {
		names[i] = a.Name
	}
	if err := c.MayServe(ctx, names...); err != nil {
		return err
	}
	host := agenthost.New(agenthost.Config{Exchange: c, Holder: holder(cfg.Name), Agents: agents,
		Heartbeat: cfg.Heartbeat, SecretsDir: cfg.SecretsDir, Log: cfg.Log})
	host.CompleteHeartbeats()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- host.Run(life) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(life, cfg.Grace)
	defer cancel()
	err := host.Drain(drain)
	end()
	if ran := <-ended; err == nil {
		err = ran
	}
	return err
}

// identityTime bounds the question whether the token may carry out the runs: a server that is down must not delay the rest.
const identityTime = 5 * time.Second

const agentTokenHint = "create one with: perdure tokens create --name NAME --role agent --agent %s; pass it with --token-file or PERDURE_TOKEN, or the option of the client"

// MayServe returns an error if the server says that this client may not carry out runs of the agents. If the server does
// not answer, the error is nil.
func (c *Client) MayServe(ctx context.Context, agents ...string) error {
	ctx, cancel := context.WithTimeout(ctx, identityTime)
	defer cancel()
	id, err := c.Me(ctx)
	switch perdure.CodeOf(err) {
	case perdure.CodeUnauthenticated, perdure.CodeForbidden:
		e := perdure.Refuse(perdure.CodeOf(err), "no runs are claimed: %s", messageOf(err))
		e.Hint = fmt.Sprintf(agentTokenHint, agents[0])
		return e
	}
	if err != nil { // claims wait until the server is there
		return nil
	}
	for _, a := range agents {
		if id.Role != operate.Admin && (id.Role != operate.Agent || !id.MayCarryOut(a)) {
			e := perdure.Refuse(perdure.CodeForbidden, "no runs are claimed: the token %s, user role %s, may not carry out runs of the agent %s", id.Name, id.Role, a)
			e.Hint = fmt.Sprintf(agentTokenHint, a)
			return e
		}
	}
	return nil
}

// messageOf returns the message of an error without its hint.
func messageOf(err error) string {
	if e := new(perdure.Error); errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

// holder returns a name that no other process has, not even an earlier process of the same program: the runs of that one
// are not runs of this one.
func holder(name string) string {
	if name == "" {
		name, _ = os.Hostname()
	}
	return fmt.Sprintf("%s-%d-%s", name, os.Getpid(), rand.Text()[:8])
}
