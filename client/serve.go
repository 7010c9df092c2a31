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

// ServeConfig says how agents are carried. The zero value is fine.
type ServeConfig struct {
	Name      string        // prefix of the holder's name; "": the host's name. A suffix makes it unique
	Heartbeat time.Duration // how soon a run is another's if this process dies; 0: 10s
	Grace     time.Duration // how long the drain may take; 0: 30s
	Log       *slog.Logger  // nil: none
}

const defaultGrace = 30 * time.Second

// Serve claims runs for the agents, executes them here and reports, until ctx ends. Then it drains: what has
// not started is given back, what runs may finish within the grace. The error is nil after a drain in
// which all was told. The same agents run in a node's own process unchanged (node.Config.Agents).
func (c *Client) Serve(ctx context.Context, cfg ServeConfig, agents ...*perdure.Agent) error {
	if len(agents) == 0 {
		return perdure.Refuse(perdure.CodeInvalid, "there is no agent to carry")
	}
	if cfg.Grace <= 0 {
		cfg.Grace = defaultGrace
	}
	host := agenthost.New(agenthost.Config{Exchange: c, Holder: holder(cfg.Name), Agents: agents,
		Heartbeat: cfg.Heartbeat, Log: cfg.Log})
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

// holder names this incarnation of the process; what a dead one held is not ours.
func holder(name string) string {
	if name == "" {
		name, _ = os.Hostname()
	}
	return fmt.Sprintf("%s-%d-%s", name, os.Getpid(), rand.Text()[:8])
}
