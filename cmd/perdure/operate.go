package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func (a *app) historyCmd() *cobra.Command {
	var q perdure.HistoryQuery
	var runs bool
	cmd := &cobra.Command{
		Use:        "history JOB",
		SuggestFor: []string{"events", "audit"},
		Short:      "Show failures, expiries and acts in a job's history",
		Long: `Prints a job's history, oldest first: failures, expired runs, and the acts of operators and policies.
A run that has succeeded is listed when its step was dispatched again, with the time of its end.

With --runs it prints every recorded run instead, in the order of their starts: also the runs that succeeded,
and those in flight. A run that is done has no holder, because none is kept.

Without --limit all entries are printed. With it one page is printed, and the cursor of the next page on
stderr.`,
		Example: `  perdure history order-1042
  perdure history order-1042 --limit 100
  perdure history order-1042 --runs
  perdure history order-1042 -o json | jq -r .event
  perdure history order-1042 --runs -o json | jq -r 'select(.outcome == "expired") | .holder'`,
		Args:              argsOf(1, 1, "one JOB"),
		ValidArgsFunction: a.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			all := !cmd.Flags().Changed("limit")
			if all {
				q.Limit = perdure.MaxListLimit
			} else if q.Limit < 1 || q.Limit > perdure.MaxListLimit {
				return usagef("--limit must be 1 to %d", perdure.MaxListLimit)
			}
			q.Job = args[0]
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if runs {
					return a.runs(ctx, t, operate.RunsQuery{Job: q.Job, Limit: q.Limit, Cursor: q.Cursor}, all)
				}
				return a.history(ctx, t, q, all)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	cmd.Flags().BoolVar(&runs, "runs", false, "print the recorded runs")
	cmd.Flags().IntVar(&q.Limit, "limit", 0, fmt.Sprintf("print one page with this many lines, at most %d (default: all pages)", perdure.MaxListLimit))
	cmd.Flags().StringVar(&q.Cursor, "cursor", "", "`CURSOR` of the page, as the page before printed it")
	return cmd
}

// history prints one page, or all pages.
func (a *app) history(ctx context.Context, t *target, q perdure.HistoryQuery, all bool) error {
	for first := true; ; first = false {
		page, err := t.History(ctx, q)
		if err != nil {
			return err
		}
		tb := a.newTable()
		if first {
			tb.head("TIME", "STEP", "RUN", "EVENT", "BY", "DETAIL")
		}
		for i := range page.Items {
			e := &page.Items[i]
			if a.json() {
				if err := a.object(e); err != nil {
					return err
				}
				continue
			}
			first, rest, _ := strings.Cut(strings.TrimSpace(e.Detail), "\n")
			tb.row(e.At.Local().Format(time.DateTime), orDash(plain(e.Step)), orDash(number(e.Run)), plain(e.Event), orDash(plain(e.Author)), plain(first))
			tb.below(rest)
		}
		if !a.json() {
			tb.print(a.out)
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" || a.out.broken() {
			return nil
		}
		if !all {
			a.talk("more: --cursor %s", quoted(q.Cursor))
			return nil
		}
	}
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
