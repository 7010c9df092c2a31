package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

func (a *app) watchCmd() *cobra.Command {
	var agents agentFlags
	cmd := &cobra.Command{
		Use:   "watch JOB…",
		Short: "Follow jobs until they are settled or parked",
		Long: `Follows jobs until they are settled or parked, and exits by their state: 0 if it is the desired one. On a terminal
it redraws the job; elsewhere it prints one line for each change, and with -o json one object for each
change (first the complete job, then what has changed).

With --store an embedded node processes the jobs meanwhile, as with run.`,
		Example: `  perdure watch order-1042
  perdure watch @latest --timeout 10m && echo done
  perdure watch order-1042 --store sqlite:perdure.db`,
		Args:              argsOf(1, -1, "one or more JOBs"),
		ValidArgsFunction: a.completeJob,
		RunE: func(cmd *cobra.Command, refs []string) error {
			return a.withActor(cmd, &waitFlags{agents: agents}, func(ctx context.Context, t *target) error {
				if err := t.start(ctx); err != nil {
					return err
				}
				var jobs []*tracker
				for _, ref := range refs {
					v, err := t.Job(ctx, ref, 0)
					if err != nil {
						return err
					}
					jobs = append(jobs, newTracker(v, wanted(ctx, t, v)))
				}
				if a.json() {
					return a.stream(ctx, t, jobs)
				}
				err := a.drive(ctx, t, jobs, a.displayFor(), drainGrace)
				return a.finish(t, jobs, err, watchCommand(jobs, t))
			})
		},
	}
	uses(cmd, "server", "store", "output", "timeout")
	agents.register(cmd, "http,shell", true)
	onlyWithStore(cmd, "agents", "slots", "shell-env", "secrets-dir", "allow-private-targets")
	return cmd
}

// stream prints changes as they happen. The last object of a job is complete.
func (a *app) stream(ctx context.Context, t *target, jobs []*tracker) error {
	err := a.drive(ctx, t, jobs, stream{silent{a}}, drainGrace)
	code := codeOf(err)
	for _, j := range jobs {
		if j.atRest() {
			code = max(code, stateCode(&j.view, j.want))
		}
	}
	if errors.Is(err, errInterrupted) || errors.Is(err, errTimeout) {
		a.goOn(t, jobs, err, watchCommand(jobs, t))
	} else {
		complain(a.err, a.errSt, err)
	}
	return quietly(code)
}
