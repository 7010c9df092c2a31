package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/agenthost"
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
func (c *Client) Serve(ctx context.Context, cfg ServeConfig, agents ...*perdure.Agent) error {
	if len(agents) == 0 {
		return perdure.Refuse(perdure.CodeInvalid, "no agent is given: pass at least one")
	}
	if cfg.Grace <= 0 {
		cfg.Grace = defaultGrace
	}
	host := agenthost.New(agenthost.Config{Exchange: c, Holder: holder(cfg.Name), Agents: agents,
		Heartbeat: cfg.Heartbeat, SecretsDir: cfg.SecretsDir, Log: cfg.Log})
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

// holder returns a name that no other process has, not even an earlier process of the same program: the runs of that one
// are not runs of this one.
func holder(name string) string {
	if name == "" {
		name, _ = os.Hostname()
	}
	return fmt.Sprintf("%s-%d-%s", name, os.Getpid(), rand.Text()[:8])
}
