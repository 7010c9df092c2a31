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
		Short: "Raise run numbers after a backup was restored",
		Long: `Raises the number of the next run far above all earlier numbers, and raises an alert. A restored store
does not know which runs were dispatched after the backup. Without this command it would use their
numbers again, and a service that uses them as fencing tokens could not tell a new run from an old one.

Stop the nodes, restore, run this command, start the nodes. PostgreSQL stores raise the fence by
themselves after a failover, after a restore to a point in time, and if nodes ran meanwhile. To raise it
twice does no harm.`,
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
	cmd.Flags().StringVar(&reason, "reason", "", "`REASON`, for the alert")
	return cmd
}
