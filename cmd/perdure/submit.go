package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
)

func (a *app) submitCmd() *cobra.Command {
	var input inputFlags
	var wait waitFlags
	cmd := &cobra.Command{
		Use:   "submit FILE…",
		Short: "Submit jobs to a node",
		Long: `Submits the jobs of all files and prints their ids, one a line. All definitions are validated first, and
none is submitted if one is invalid. - is stdin. The same key and definition is the same job; the same
key with another definition is a conflict (exit 8).

With --wait or --timeout it follows the jobs to rest and exits by their state.`,
		Example: `  perdure submit order.yaml
  JOB=$(perdure submit order.yaml -i sku=tea-12)
  perdure submit order.yaml --wait --timeout 5m`,
		Args: argsOf(1, -1, "one or more files"),
		RunE: func(cmd *cobra.Command, files []string) error {
			docs, err := a.load(files, input)
			if err != nil {
				return err
			}
			return a.withActor(cmd, &wait, func(ctx context.Context, t *target) error {
				jobs, refused := a.submitAll(ctx, docs, func(ctx context.Context, d *document) (*perdure.JobView, string, error) {
					v, created, err := t.Submit(ctx, definition.Canonical(d.plan), mediaJSON)
					if created {
						return v, "submitted", err
					}
					return v, "submitted before", err
				})
				if !wait.asked(t) {
					return worse(a.printSubmitted(jobs), refused)
				}
				if len(jobs) == 0 {
					return refused
				}
				err := a.drive(ctx, t, jobs, a.displayFor(), drainGrace)
				return worse(a.finish(t, jobs, err, watchCommand(jobs, t)), refused)
			})
		},
	}
	uses(cmd, "server", "store", "output", "timeout")
	input.register(cmd)
	wait.register(cmd)
	cmd.ValidArgsFunction = completeFiles
	return cmd
}

func (a *app) printSubmitted(jobs []*tracker) error {
	for _, t := range jobs {
		if a.json() {
			if err := a.object(&t.view); err != nil {
				return err
			}
			continue
		}
		a.talk("%s %s: %s", plain(t.view.Type), t.name(), t.note)
		a.printf("%s\n", t.view.ID)
	}
	return nil
}
