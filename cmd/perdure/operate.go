package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) historyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "history JOB",
		SuggestFor:        []string{"log", "logs", "events", "audit"},
		Short:             "What did not go the happy way, and who acted",
		Example:           `  perdure history order-1042`,
		Long:              `Prints a job's history, oldest first: failures, expiries, and what operators and policies did about them.`,
		Args:              argsOf(1, 1, "one JOB"),
		ValidArgsFunction: a.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				entries, err := t.History(ctx, args[0])
				if err != nil {
					return err
				}
				tb := table{st: a.st}
				tb.head("TIME", "STEP", "RUN", "EVENT", "BY", "DETAIL")
				for i := range entries {
					e := &entries[i]
					if a.json() {
						if err := a.object(e); err != nil {
							return err
						}
						continue
					}
					tb.row(e.At.Local().Format(time.DateTime), orDash(e.Step), orDash(number(e.Run)), plain(e.Event), orDash(plain(e.Author)), plain(e.Detail))
				}
				if !a.json() {
					tb.print(a.out)
				}
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
