package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/redact"
)

func (a *app) fenceCmd() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "fence",
		Short: "After restoring a backup: let no number of a run be given twice",
		Long: `Makes the numbers of runs go on far above all that were ever given, and leaves an alert. A store that was
put back from a backup does not know which runs it has let out since; without this it would give their
numbers again, and a service that fences by them could not tell the new run from the old one.

Stop the nodes, restore, raise the fence, start the nodes. PostgreSQL does it by itself after a failover
and after a restore to a point in time, and wherever nodes were running meanwhile; to do it twice does no
harm.`,
		Example: `  perdure fence --store sqlite:perdure.db --reason 'backup of Sunday night'
  perdure fence --store postgres://localhost/perdure`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(reason) > perdure.MaxReasonBytes {
				return usagef("--reason is longer than %d bytes", perdure.MaxReasonBytes)
			}
			return a.withStore(cmd, func(ctx context.Context, t *target) error {
				fence, err := t.node.RaiseFence(ctx, author(), reason)
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(map[string]int64{"fence": fence})
				}
				a.printf("runs in %s are numbered from %d on\n", redact.URL(a.store), fence)
				return nil
			})
		},
	}
	uses(cmd, "store", "output")
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, for the alert")
	return cmd
}
