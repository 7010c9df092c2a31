package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

type listFlags struct {
	filterFlags
	cursor            string
	limit             int
	all, count, plain bool
}

// filterFlags select jobs.
type filterFlags struct {
	phases, labels                            []string
	typ, current, desired, key                string
	agent, step, reason, error, alert, search string
	since, until, parent                      string
	oldest                                    bool
	reasonFlag                                string
}

func (a *app) listCmd() *cobra.Command {
	var o listFlags
	cmd := &cobra.Command{
		Use:     "list [TEXT]",
		Aliases: []string{"ls"},
		Short:   "List jobs, newest first",
		Long: `Lists jobs, newest first, one page at a time. If there are more, the cursor of the next page is printed
on stderr. --all lists all pages, and --count only counts the jobs. TEXT is the beginning of an id or
key, or the value of a label.

--agent, --step, --reason and --error select jobs by an open step that waits for no other step. WHY says
why such a step is not running; a page of more than 50 jobs (--limit) is listed without it. A search that
finds little reads at most 10,000 jobs, and then prints the cursor with which it goes on.

A job is in phase parked if an operator is needed before anything else of it can continue. While other
steps of the job run or wait for a time, it is in phase running or waiting: "perdure alerts" lists all
steps that need an operator.`,
		Example: `  perdure list --phase parked
  perdure list --type order --label customer=c-77 --limit 10
  perdure list --error card_declined --since 24h --count
  perdure list --reason noAgent --oldest
  perdure list --parent album-7/resize --phase parked
  perdure list order-10
  perdure ls --all -o json | jq -r .id`,
		Args: argsOf(0, 1, "the beginning of an id or key, or the value of a label, or nothing"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.search = args[0]
			}
			q, err := o.query(time.Now())
			if err != nil {
				return err
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if o.count {
					return a.countJobs(ctx, t, q)
				}
				return a.list(ctx, t, q, o.all)
			})
		},
		ValidArgsFunction: a.completeJob,
	}
	uses(cmd, "server", "store", "output")
	o.register(cmd, "reason")
	f := cmd.Flags()
	f.BoolVar(&o.oldest, "oldest", false, "list the oldest jobs first")
	f.IntVar(&o.limit, "limit", perdure.DefaultListLimit, fmt.Sprintf("jobs per page, at most %d; more than %d are without WHY", perdure.MaxListLimit, perdure.MaxSummaries))
	f.StringVar(&o.cursor, "cursor", "", "`CURSOR` of the page, as the page before printed it")
	f.BoolVar(&o.all, "all", false, "list all pages")
	f.BoolVar(&o.count, "count", false, fmt.Sprintf("print the number of jobs only, up to %d; or \"N or more\"", perdure.MaxListCount))
	f.BoolVar(&o.plain, "no-why", false, "leave out the column WHY")
	return cmd
}

// register adds the flags. reason is the name of the filter by the reason why a step is not running.
func (o *filterFlags) register(cmd *cobra.Command, reason string) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.StringArrayVar(&o.phases, "phase", nil, "only jobs in this `PHASE`: waiting, running, parked, settled (repeatable)")
	f.StringVar(&o.typ, "type", "", "only jobs of this `TYPE`")
	f.StringVar(&o.current, "current", "", "only jobs with this current `STATE`: undone, done, unsure")
	f.StringVar(&o.desired, "desired", "", "only jobs with this desired `STATE`: undone, done")
	f.StringVar(&o.key, "key", "", "only the job with this `KEY`")
	f.StringArrayVarP(&o.labels, "label", "l", nil, "only jobs with this label `NAME=VALUE` (repeatable)")
	f.StringVar(&o.since, "since", "", "only jobs submitted since this `TIME`: 24h ago, or 2026-01-02T15:04:05Z")
	f.StringVar(&o.until, "until", "", "only jobs submitted before this `TIME`")
	f.StringVar(&o.agent, "agent", "", "only jobs with an open step of this `AGENT`")
	f.StringVar(&o.step, "step", "", "only jobs of which this `STEP` is open")
	o.reasonFlag = reason
	f.StringVar(&o.reason, reason, "", "only jobs with a step that is not running for this `REASON`")
	f.StringVar(&o.error, "error", "", "only jobs with a step whose latest failure has this `CODE`")
	f.StringVar(&o.alert, "alert", "", "only jobs with an open alert of this `KIND`")
	f.StringVar(&o.parent, "parent", "", "only the children of a step: `JOB/STEP`")
	addFilters(cmd, f)
	for name, words := range map[string][]string{"phase": phaseWords, "current": {"undone", "done", "unsure"}, "desired": {"undone", "done"}, reason: reasonWords, "alert": alertWords} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
}

// addFilters adds flags that select jobs.
func addFilters(cmd *cobra.Command, filters *pflag.FlagSet) {
	filters.VisitAll(func(f *pflag.Flag) {
		markFilter(f)
		cmd.Flags().AddFlag(f)
	})
}

var (
	phaseWords  = []string{"waiting", "running", "parked", "settled"}
	reasonWords = operate.Texts(operate.Reasons())
	alertWords  = operate.Texts(operate.AlertKinds())

	allAlertWords = operate.Texts(append(operate.AlertKinds(), operate.StoreAlertKinds()...)) // also of alerts that belong to no job
)

func (o *listFlags) query(now time.Time) (perdure.JobQuery, error) {
	if o.limit < 1 || o.limit > perdure.MaxListLimit {
		return perdure.JobQuery{}, usagef("--limit must be 1 to %d", perdure.MaxListLimit)
	}
	q, err := o.filterFlags.query(now)
	q.Cursor, q.Limit, q.WithSummary = o.cursor, o.limit, !o.plain && o.limit <= perdure.MaxSummaries
	return q, err
}

// query returns the query for jobs that the flags select.
func (o *filterFlags) query(now time.Time) (perdure.JobQuery, error) {
	q := perdure.JobQuery{Type: o.typ, Key: o.key, Agent: o.agent, Step: o.step, Reason: perdure.ReasonKind(o.reason), Error: o.error,
		Alert: perdure.AlertKind(o.alert), Parent: o.parent, Search: o.search, OldestFirst: o.oldest}
	if o.parent != "" && !strings.Contains(strings.Trim(o.parent, "/"), "/") {
		return q, usagef("--parent %q is not JOB/STEP, such as order-1042/resize", o.parent)
	}
	for _, word := range o.phases {
		var phase perdure.Phase
		if err := phase.UnmarshalText([]byte(word)); err != nil || !slices.Contains(phaseWords, word) {
			return q, unknownPhase(word, phaseWords)
		}
		if !slices.Contains(q.Phases, phase) {
			q.Phases = append(q.Phases, phase)
		}
	}
	for _, w := range []struct {
		flag, word string
		words      []string
	}{{o.reasonFlag, o.reason, reasonWords}, {"alert", o.alert, alertWords}} {
		if err := knownWord(w.flag, w.word, w.words); err != nil {
			return q, err
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
	for _, t := range []struct {
		flag, word string
		to         *time.Time
	}{{"since", o.since, &q.Since}, {"until", o.until, &q.Until}} {
		var err error
		if *t.to, err = timeOrAgo(t.flag, t.word, now); err != nil {
			return q, err
		}
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

// knownWord refuses the value of a flag that is given and not one of words.
func knownWord(flag, word string, words []string) error {
	if word == "" || slices.Contains(words, word) {
		return nil
	}
	u := &usageError{msg: fmt.Sprintf("--%s %q: must be one of %s", flag, word, strings.Join(words, ", "))}
	if near := nearest(word, words); near != "" {
		u.hint = "did you mean " + near + "?"
	}
	return u
}

// timeOrAgo reads a time, a date, or a duration before now. An empty word is the zero time.
func timeOrAgo(flag, word string, now time.Time) (time.Time, error) {
	if word == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, word); err == nil {
		return t, nil
	}
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, word, time.Local); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04", time.TimeOnly} { // today
		if t, err := time.ParseInLocation(layout, word, time.Local); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.Local), nil
		}
	}
	ago, err := perdure.ParseDuration(word)
	if err != nil {
		return time.Time{}, &usageError{msg: fmt.Sprintf("--%s %q: not a time", flag, word), hint: "a duration before now (24h, 7d), a time of today (12:00), a date (2026-01-02), or 2026-01-02T15:04:05Z"}
	}
	return now.Add(-ago), nil
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

// list prints a page of q.Limit jobs, or all pages. A server may answer with fewer jobs than were asked for.
func (a *app) list(ctx context.Context, t *target, q perdure.JobQuery, all bool) error {
	for found, limit := 0, q.Limit; ; {
		if !all {
			q.Limit = limit - found
		}
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
		} else if len(page.Items) > 0 {
			a.printList(page.Items, found == 0)
		}
		found += len(page.Items)
		if page.NextCursor == "" || a.out.broken() {
			if found == 0 && !a.json() {
				a.talk("no job matches")
			}
			return nil
		}
		if back := page.ScannedBackTo; !all && (found >= limit || !back.IsZero() || len(page.Items) == 0) {
			if found == 0 {
				a.talk("no job matches so far")
			}
			if !back.IsZero() {
				a.talk("searched as far as %s", back.Local().Format(time.DateTime))
			}
			a.talk("more: --cursor %s", quoted(page.NextCursor))
			return nil
		}
		q.Cursor = page.NextCursor
	}
}

func (a *app) printList(jobs []perdure.JobView, first bool) {
	tb := a.newTable()
	why := slices.ContainsFunc(jobs, func(v perdure.JobView) bool { return v.Summary != nil })
	if first {
		head := []string{"ID", "TYPE", "KEY", "STATE", "OPEN", "AGE"}
		if why {
			head = append(head, "WHY")
		}
		tb.head(head...)
	}
	now := time.Now()
	for i := range jobs {
		v := &jobs[i]
		row := []string{v.ID.String(), plain(v.Type), plain(v.Key), stateText(a.st, v), fmt.Sprint(v.Unsettled), span(now.Sub(v.SubmittedAt))}
		if s := v.Summary; s != nil && s.Why != nil {
			row = append(row, plain(s.Step)+": "+plain(s.Why.Text))
		}
		tb.row(row...)
	}
	tb.print(a.out)
}

// countJobs prints how many jobs there are.
func (a *app) countJobs(ctx context.Context, t *target, q perdure.JobQuery) error {
	q.WithCount, q.WithSummary, q.Limit = true, false, 1
	page, err := t.ListJobs(ctx, q)
	if err != nil {
		return err
	}
	if a.json() {
		return a.object(page.Count)
	}
	if page.Count.Capped {
		a.printf("%d or more\n", page.Count.N)
	} else {
		a.printf("%d\n", page.Count.N)
	}
	return nil
}
