package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
)

type listFlags struct {
	phase, typ, current, desired, key, cursor string
	labels                                    []string
	limit                                     int
	all                                       bool
}

func (a *app) listCmd() *cobra.Command {
	var o listFlags
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List jobs, newest first",
		Long: `Lists jobs, newest first, one page at a time. If there are more, the cursor of the next page is printed
on stderr. --all lists all pages.

A job is in phase parked if an operator is needed before anything else of it can continue. While other
steps of the job run or wait for a time, it is in phase running or waiting: "perdure alerts" lists all
steps that need an operator.`,
		Example: `  perdure list --phase parked
  perdure list --type order --label customer=c-77 --limit 10
  perdure ls --all -o json | jq -r .id`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := o.query()
			if err != nil {
				return err
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error { return a.list(ctx, t, q, o.all) })
		},
	}
	uses(cmd, "server", "store", "output")
	f := cmd.Flags()
	f.StringVar(&o.phase, "phase", "", "only jobs in this `PHASE`: waiting, running, parked, settled")
	f.StringVar(&o.typ, "type", "", "only jobs of this `TYPE`")
	f.StringVar(&o.current, "current", "", "only jobs with this current `STATE`: undone, done, unsure")
	f.StringVar(&o.desired, "desired", "", "only jobs with this desired `STATE`: undone, done")
	f.StringVar(&o.key, "key", "", "only the job with this `KEY`")
	f.StringArrayVarP(&o.labels, "label", "l", nil, "only jobs with this label `NAME=VALUE` (repeatable)")
	f.IntVar(&o.limit, "limit", perdure.DefaultListLimit, fmt.Sprintf("jobs per page, at most %d", perdure.MaxListLimit))
	f.StringVar(&o.cursor, "cursor", "", "`CURSOR` of the page, as the page before printed it")
	f.BoolVar(&o.all, "all", false, "list all pages")
	for name, words := range map[string][]string{
		"phase":   {"waiting", "running", "parked", "settled"},
		"current": {"undone", "done", "unsure"},
		"desired": {"undone", "done"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func (o *listFlags) query() (perdure.JobQuery, error) {
	q := perdure.JobQuery{Type: o.typ, Key: o.key, Cursor: o.cursor, Limit: o.limit}
	if o.limit < 1 || o.limit > perdure.MaxListLimit {
		return q, usagef("--limit must be 1 to %d", perdure.MaxListLimit)
	}
	if o.phase != "" {
		q.Phase = new(perdure.Phase)
		words := []string{"waiting", "running", "parked", "settled"}
		if err := q.Phase.UnmarshalText([]byte(o.phase)); err != nil || !slices.Contains(words, o.phase) {
			return q, unknownPhase(o.phase, words)
		}
	}
	for _, s := range []struct {
		flag, word string
		to         **perdure.State
	}{{"current", o.current, &q.Current}, {"desired", o.desired, &q.Desired}} {
		if s.word == "" {
			continue
		}
		state, err := parseState(s.flag, s.word)
		if err != nil {
			return q, err
		}
		*s.to = &state
	}
	for _, kv := range o.labels {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			return q, usagef("--label %q: not of the form NAME=VALUE", kv)
		}
		if q.Labels == nil {
			q.Labels = map[string]string{}
		}
		q.Labels[name] = value
	}
	return q, nil
}

// unknownPhase refuses a phase, and names the filter that was probably meant.
func unknownPhase(word string, words []string) error {
	u := &usageError{msg: fmt.Sprintf("--phase %q: must be one of %s", word, strings.Join(words, ", "))}
	switch word {
	case "failed", "failing", "error", "stuck", "alert":
		u.hint = "a job has no phase for failures: \"perdure alerts\" lists all that need an operator, --phase parked those that can do nothing else, --desired undone those that are being or were undone"
	case "done", "succeeded", "completed", "finished":
		u.hint = "that is a state: --current done"
	case "undone", "cancelled", "canceled":
		u.hint = "that is a state: --current undone"
	case "unsure":
		u.hint = "that is a state: --current unsure"
	case "ready", "queued", "pending", "open":
		u.hint = "a job that has not started, or whose steps wait, is in phase waiting"
	default:
		if near := nearest(word, words); near != "" {
			u.hint = "did you mean " + near + "?"
		}
	}
	return u
}

func parseState(flag, word string) (s perdure.State, err error) {
	err = s.UnmarshalText([]byte(word))
	if err != nil || s == perdure.Unsure && flag != "current" {
		words := "done or undone"
		if flag == "current" {
			words = "done, undone or unsure"
		}
		return s, usagef("--%s must be %s", flag, words)
	}
	return s, nil
}

func (a *app) list(ctx context.Context, t *target, q perdure.JobQuery, all bool) error {
	for first := true; ; first = false {
		page, err := t.ListJobs(ctx, q)
		if err != nil {
			return err
		}
		if a.json() {
			for i := range page.Items {
				if err := a.object(&page.Items[i]); err != nil {
					return err
				}
			}
		} else {
			a.printList(page.Items, first)
		}
		if page.NextCursor == "" || a.out.broken() {
			return nil
		}
		if !all {
			a.talk("more: --cursor %s", quoted(page.NextCursor))
			return nil
		}
		q.Cursor = page.NextCursor
	}
}

func (a *app) printList(jobs []perdure.JobView, first bool) {
	tb := a.newTable()
	if first {
		tb.head("ID", "TYPE", "KEY", "STATE", "OPEN", "AGE")
	}
	now := time.Now()
	for i := range jobs {
		v := &jobs[i]
		tb.row(v.ID.String(), plain(v.Type), plain(v.Key), stateText(a.st, v), fmt.Sprint(v.Unsettled), span(now.Sub(v.SubmittedAt)))
	}
	tb.print(a.out)
}
