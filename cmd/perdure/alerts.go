package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
)

func (a *app) alertsCmd() *cobra.Command {
	var q perdure.AlertQuery
	cmd := &cobra.Command{
		Use: "alerts", Aliases: []string{"alert"}, Short: "Manage alerts: list, close", Args: noArgs,
		Long: `Lists open alerts, newest first. The alert of a parked step is closed by the act that moves the step on:
resume, skip, settle, undo or redo. You can close the others. These are all jobs that need an operator,
also those whose other steps still run or wait, and which "perdure list --phase parked" does not list.`,
		Example: "  perdure alerts\n  perdure alerts --job order-1042 --closed\n  perdure alerts --type order --step charge --code card_declined\n  perdure alerts close 12",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error { return a.listAlerts(ctx, t, q) })
		},
	}
	uses(cmd, "server", "store", "output")
	f := cmd.Flags()
	f.StringVar(&q.Job, "job", "", "only alerts of this `JOB`")
	f.BoolVar(&q.Closed, "closed", false, "include closed alerts")
	f.StringVar((*string)(&q.Kind), "kind", "", "only alerts of this `KIND`")
	f.StringVar(&q.Type, "type", "", "only alerts of jobs of this `TYPE`")
	f.StringVar(&q.Step, "step", "", "only alerts of steps with this `NAME`")
	f.StringVar(&q.Code, "code", "", "only alerts with this error `CODE`")
	restricts(cmd, "job", "kind", "type", "step", "code")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(allAlertWords, cobra.ShellCompDirectiveNoFileComp))
	f.IntVar(&q.Limit, "limit", perdure.DefaultListLimit, fmt.Sprintf("alerts per page, at most %d", perdure.MaxListLimit))
	f.StringVar(&q.Cursor, "cursor", "", "`CURSOR` of the page, as the page before printed it")
	_ = cmd.RegisterFlagCompletionFunc("job", a.completeJob)
	addList(cmd, "alerts, newest first")
	cmd.AddCommand(a.closeAlertCmd())
	return cmd
}

func (a *app) listAlerts(ctx context.Context, t *target, q perdure.AlertQuery) error {
	if q.Limit < 1 || q.Limit > perdure.MaxListLimit {
		return usagef("--limit must be 1 to %d", perdure.MaxListLimit)
	}
	if err := knownWord("kind", string(q.Kind), allAlertWords); err != nil {
		return err
	}
	page, err := t.ListAlerts(ctx, q)
	if err != nil {
		return err
	}
	tb := a.newTable()
	tb.head("ID", "KIND", "JOB", "TYPE", "STEP", "CODE", "SINCE", "MESSAGE")
	for i := range page.Items {
		al := &page.Items[i]
		if a.json() {
			if err := a.object(al); err != nil {
				return err
			}
			continue
		}
		message := plain(al.Message)
		if !al.ClosedAt.IsZero() {
			message = "closed by " + plain(al.ClosedBy) + ": " + message
		}
		if al.Name != "" {
			message = plain(al.Name) + ": " + message
		}
		tb.row(strconv.FormatInt(al.ID, 10), plain(string(al.Kind)), jobOf(al), orDash(plain(al.Type)), orDash(plain(al.Step)), orDash(plain(al.Code)), al.RaisedAt.Local().Format(time.DateTime), message)
	}
	if !a.json() {
		tb.print(a.out)
	}
	a.more(page.NextCursor)
	return nil
}

// jobOf returns the short id of the job of an alert, which commands accept. An alert of the whole store has none.
func jobOf(al *perdure.AlertView) string {
	if al.Job == (perdure.JobID{}) {
		return "-"
	}
	return shortID(al.Job)
}

func (a *app) closeAlertCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "close ID…",
		Short:   "Close alerts",
		Long:    `Closes alerts, and records your name. An alert of a parked step cannot be closed (exit 8): the act that moves the step on closes it.`,
		Example: "  perdure alerts close 12",
		Args:    argsOf(1, -1, "the ids of alerts"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]int64, len(args))
			for i, s := range args {
				var err error
				if ids[i], err = strconv.ParseInt(strings.TrimPrefix(s, "#"), 10, 64); err != nil {
					return usagef("%q is not the id of an alert", s)
				}
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				for _, id := range ids {
					al, err := t.CloseAlert(ctx, id, author())
					if err != nil {
						return err
					}
					if a.json() {
						if err := a.object(al); err != nil {
							return err
						}
						continue
					}
					a.printf("alert %d is closed\n", al.ID)
				}
				return nil
			})
		},
		ValidArgsFunction: a.completeAlert,
	}
	uses(cmd, "server", "store", "output")
	return cmd
}
