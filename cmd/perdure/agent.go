package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/client"
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
		Long: `Claims runs of the built-in agents from a node, executes them in this process, and reports them. Any
number of these processes may run on any machine that reaches the server. If there is no server at the
start, the command ends after five seconds with exit code 3; later it waits until the server is back. If
its token (--token-file, PERDURE_TOKEN) is not one for these agents, it ends at the start with exit code 4.
SIGTERM or SIGINT drains within --grace: runs that have not begun are returned.`,
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
				logger.Info("agents started", "agents", agents.programs(), "server", shownServers(a.server))
			} else {
				a.talk("agents %s for %s", strings.Join(agents.programs(), ", "), shownServers(a.server))
			}
			return a.runAgents(ctx, agents, client.ServeConfig{
				Name: name, Heartbeat: time.Duration(beat), Grace: time.Duration(grace), Log: logger,
			})
		},
	}
	uses(cmd, "server")
	agents.register(cmd, "http,shell", false)
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "name of the `HOLDER` (default: host, process and a number)")
	f.Var(&beat, "heartbeat", "promised interval of heartbeats; the runs expire so long after this process has died")
	f.Var(&grace, "grace", "longest time of a drain")
	log.register(cmd)
	return cmd
}
