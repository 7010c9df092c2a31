package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/redact"
)

func (a *app) agentCmd() *cobra.Command {
	var (
		agents agentFlags
		name   string
		beat   = duration(15 * time.Second)
		grace  = duration(30 * time.Second)
		log    logFlags
	)
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the built-in agents against a server",
		Long: `Claims runs of the built-in agents from a node, executes them here and reports. Any number of these
may run, anywhere the server is reachable from; where there is none, it ends after five seconds with exit
code 3. Later it waits for a server that is away. SIGTERM or SIGINT drains within --grace; runs that
have not begun are given back.`,
		Example: `  perdure agent --agents shell --server http://perdure.internal:7420
  perdure agent --agents http,shell --slots shell=2 --name build-7`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := agents.check(); err != nil {
				return err
			}
			defer a.unblock()()
			ctx, stop := a.interruptible(cmd.Context())
			defer stop()
			logger := a.serviceLogger(log)
			if a.jsonLog {
				logger.Info("agents started", "agents", agents.programs(), "server", redact.URL(a.server))
			} else {
				a.talk("agents %s for %s", strings.Join(agents.programs(), ", "), redact.URL(a.server))
			}
			return a.runAgents(ctx, agents, client.ServeConfig{
				Name: name, Heartbeat: time.Duration(beat), Grace: time.Duration(grace), Log: logger,
			})
		},
	}
	uses(cmd, "server")
	agents.register(cmd, "http,shell", false)
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "the `HOLDER` that claims (default: host, process and a number)")
	f.Var(&beat, "heartbeat", "how soon a run is another's if this process dies")
	f.Var(&grace, "grace", "how long a drain may take")
	log.register(cmd)
	return cmd
}
