package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	text "github.com/perdure/perdure/internal/plain"
)

func (a *app) getCmd() *cobra.Command {
	var wait duration
	var definition bool
	cmd := &cobra.Command{
		Use:     "get JOB [STEP]",
		Aliases: []string{"show"},
		Short:   "Show a job, and why each open step is not running; or one step",
		Long: `Shows a job with its steps, its open alerts, why each unsettled step is not running, and which commands
can follow if an operator is needed. It exits 0 for every state of the job. Values above 64 KiB are
omitted, and their sizes are shown.

With STEP it shows this step with its input and output in full. With --definition it prints the job's
definition in JSON; submitted again, it is the same job.

With --wait it first waits until the job is settled or parked, and exits by its state as run does, or
with 6 if it is neither by then.`,
		Example: `  perdure get order-1042
  perdure get @latest --store sqlite:perdure.db
  perdure get job_0193 --wait 30s
  perdure get order-1042 -o json | jq .steps.charge.output
  perdure get order-1042 charge
  perdure get order-1042 --definition > order.json`,
		Args:              argsOf(1, 2, "a JOB, and perhaps a STEP"),
		ValidArgsFunction: a.completeStep(),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, step, err := stepArgs(args)
			one := err == nil
			if one && (definition || wait > 0) || definition && wait > 0 {
				return &usageError{msg: "STEP, --definition and --wait exclude each other", hint: "leave out all but one"}
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				switch {
				case one:
					return a.printStep(ctx, t, job, step)
				case definition:
					return a.printDefinition(ctx, t, args[0])
				}
				v, err := waitFor(ctx, t, args[0], time.Duration(wait))
				if err != nil {
					return err
				}
				want := perdure.Done
				if wait > 0 {
					want = wanted(ctx, t, v)
				}
				job := newTracker(v, want)
				if !a.json() {
					job.past = pastOf(ctx, t, v)
				}
				if err := a.printJob(job, t.where); err != nil || wait == 0 {
					return err
				}
				if v.Phase != perdure.Settled && !needsOperator(v) {
					return quietly(exitTimeout)
				}
				return quietly(stateCode(v, want))
			})
		},
	}
	uses(cmd, "server", "store", "output")
	cmd.Flags().Var(&wait, "wait", "wait until the job is settled or parked, for at most `DURATION`")
	cmd.Flags().BoolVar(&definition, "definition", false, "print the job's definition in JSON")
	ownVariables(cmd, "get", "wait", "definition")
	return cmd
}

// waitFor polls until the job is settled or needs an operator, or wait has passed. One call waits for at most MaxJobWait.
func waitFor(ctx context.Context, svc perdure.Jobs, ref string, wait time.Duration) (*perdure.JobView, error) {
	end := time.Now().Add(wait)
	stuck := false
	for most := time.Duration(0); ; {
		v, err := svc.Job(ctx, ref, max(0, min(time.Until(end), most)))
		if err != nil || v.Phase == perdure.Settled || v.Phase == perdure.Parked || stuck && needsOperator(v) || !time.Now().Before(end) {
			return v, err
		}
		if stuck, most = needsOperator(v), perdure.MaxJobWait; stuck {
			most = stuckFor
		}
		ref = v.ID.String() // @latest may name another job by now
	}
}

// wanted returns the state that was last requested: done, unless an operator has requested undone. Decisions of the
// escalation ladder do not count.
func wanted(ctx context.Context, svc perdure.Jobs, v *perdure.JobView) perdure.State {
	want := perdure.Done
	if v.Desired == want && v.Current != perdure.Undone {
		return want
	}
	q := perdure.HistoryQuery{Job: v.ID.String(), Limit: perdure.MaxListLimit}
	var last time.Time
	for {
		page, err := svc.History(ctx, q)
		if err != nil {
			return v.Desired
		}
		for _, e := range page.Items {
			if e.Step != "" || e.At.Before(last) {
				continue
			}
			switch perdure.Verb(e.Event) {
			case perdure.VerbUndo:
				want, last = perdure.Undone, e.At
			case perdure.VerbRedo:
				want, last = perdure.Done, e.At
			}
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			return want
		}
	}
}

// printJob prints a job completely: header, steps, alerts, and what to do next.
func (a *app) printJob(t *tracker, where string) error {
	if a.json() {
		return a.object(&t.view)
	}
	v := &t.view
	for _, l := range t.lines(a.st, time.Now(), 0, 0, -1) {
		a.printf("%s\n", l)
	}
	times := "id " + v.ID.String() + ", submitted " + v.SubmittedAt.Local().Format(time.DateTime)
	if v.MadeFrom != "" {
		times += " from " + plain(v.MadeFrom)
	}
	if v.Phase == perdure.Settled && !v.SettledAt.IsZero() {
		times += ", settled " + v.SettledAt.Local().Format(time.DateTime)
	}
	a.printf("  %s\n", a.st.dim(times))
	if v.Parent != "" {
		a.printf("  %s\n", a.st.dim("child of "+plain(v.Parent)))
	}
	if len(v.Labels) > 0 {
		a.printf("  %s\n", a.st.dim("labels "+labelText(v.Labels)))
	}
	if v.TraceID != "" {
		a.printf("  %s\n", a.st.dim("trace "+plain(cmp.Or(v.TraceURL, v.TraceID))))
	}
	if left := leftOut(v); left != "" {
		a.printf("  %s\n", a.st.dim(left))
	}
	switch {
	case v.OutputError != "":
		a.printf("  %s\n", fit("no output: "+plain(v.OutputError), maxCauseShown))
	case len(v.Output) > 0:
		a.printf("  %s\n", fit("output "+plain(string(v.Output)), maxCauseShown))
	case v.OutputBytes > 0:
		a.printf("  output of %s\n", plural(v.OutputBytes, "byte"))
	}
	if v.GivenUp != nil {
		a.printf("  given up by %s%s\n", plain(v.GivenUp.By), because(v.GivenUp.Reason))
	}
	if t.past.cause != "" {
		a.printf("  %s\n", fit(t.past.cause, maxCauseShown))
	}
	if v.Desired == perdure.Undone {
		a.printErrors(v.Steps)
	}
	for i := range v.Alerts {
		al := &v.Alerts[i]
		a.printf("%s #%d %s%s: %s\n", a.st.bad("alert"), al.ID, plain(string(al.Kind)), alertStep(al), plain(alertText(v, al)))
	}
	if next := advice(v, where); len(next) > 0 {
		a.printf("next:\n")
		for _, l := range next {
			a.printf("  %s\n", l)
		}
	}
	return nil
}

// maxCauseShown bounds the text that says why a job was undone.
const maxCauseShown = 300

// maxErrorsShown bounds the errors under a job that is undone.
const maxErrorsShown = 5

// printErrors prints the last errors of steps: an undone job has no alert that shows them.
func (a *app) printErrors(steps []perdure.StepView) {
	shown := 0
	for i := range steps {
		if s := &steps[i]; s.LastError != nil && shown < maxErrorsShown {
			a.printf("  last error of %s: %s\n", plain(s.Name), fit(errorText(s.LastError), 200))
			shown++
		}
	}
}

// labelText lists labels in the order of their names.
func labelText(labels map[string]string) string {
	parts := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, plain(name+"="+labels[name]))
	}
	return strings.Join(parts, ", ")
}

// maxLeftOutNamed bounds the values that a line lists.
const maxLeftOutNamed = 3

// leftOut returns a line that lists the values which are too large for the view, with their sizes; empty if there are
// none.
func leftOut(v *perdure.JobView) string {
	var all []string
	add := func(what string, bytes int) {
		if bytes > 0 {
			all = append(all, fmt.Sprintf("%s (%s)", what, sizeText(bytes)))
		}
	}
	add("input", v.InputBytes)
	for i := range v.Steps {
		s := &v.Steps[i]
		add("input of "+s.Name, s.InputBytes)
		add("output of "+s.Name, s.OutputBytes)
	}
	if len(all) == 0 {
		return ""
	}
	if n := len(all) - maxLeftOutNamed; n > 0 {
		all = append(all[:maxLeftOutNamed], fmt.Sprintf("%d more", n))
	}
	return "not shown: " + strings.Join(all, ", ")
}

// sizeText formats a number of bytes with a unit.
func sizeText(bytes int) string {
	switch {
	case bytes < 1<<10:
		return plural(bytes, "byte")
	case bytes < 1<<20:
		return fmt.Sprintf("%d KiB", (bytes+1<<9)>>10)
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}

// printStep prints one step with its values in full.
func (a *app) printStep(ctx context.Context, svc perdure.Jobs, job, step string) error {
	d, err := svc.Step(ctx, job, step)
	if err != nil {
		return err
	}
	if a.json() {
		return a.object(d)
	}
	now := time.Now()
	one := &perdure.JobView{ID: d.Job, Desired: d.Desired, Steps: perdure.StepViews{d.StepView}}
	one.Steps[0].Name = d.Name
	p := pastOf(ctx, svc, one)
	r := rowOf(one, &one.Steps[0], now)
	if by := p.settler(&one.Steps[0]); by != "" {
		r.detail = by
	}
	line := a.st.toned(r.tone, r.glyph) + " " + d.Name + "  " + r.word
	if r.detail != "" {
		line += "  " + a.st.dim(r.detail)
	}
	names := "job " + d.Job.String()
	if d.Agent != "" {
		names += ", key " + d.Key
	}
	a.printf("%s\n  %s\n", line, a.st.dim(names))
	if n := d.Children; n != nil {
		if d.Phase == perdure.Parked { // in other phases, the line of the step says it
			a.printf("  %s\n", childrenText(&d.StepView))
		}
		if n.MadeFrom != "" {
			a.printf("  made from %s\n", plain(n.MadeFrom))
		}
		a.printf("  %s\n", a.st.dim("list them: perdure list --parent "+d.Job.String()+"/"+d.Name))
	}
	if d.Phase == perdure.Running {
		a.printf("  %s\n", holderText(&d.StepView, holdersNode(ctx, svc, d.LockedBy), now))
	}
	if p.cause != "" {
		a.printf("  %s\n", fit(p.cause, maxCauseShown))
	}
	if e := d.LastError; e != nil {
		a.printf("  last error%s\n", indented(strings.TrimPrefix(e.Code+": "+e.Message, ": ")))
	}
	for _, l := range d.Limits {
		a.printf("  limit   %s\n", plain(limitText(l)))
	}
	if d.Input != nil && d.Agent != "" {
		a.printf("  input   %s\n", plain(string(d.Input)))
	}
	if d.Output != nil {
		a.printf("  output  %s\n", plain(string(d.Output)))
	}
	return nil
}

// indented returns a text of several lines, such as a traceback, on lines of its own below their heading.
func indented(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) == 1 {
		return "  " + plain(lines[0])
	}
	for i, l := range lines {
		lines[i] = errorLine(l)
	}
	return strings.Join(append([]string{""}, lines...), "\n")
}

// errorLine indents one line of a longer error. It keeps the line's own indentation.
func errorLine(line string) string {
	return "    " + plain(strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), " \r\n"))
}

// holderText describes the run of a running step: its holder, the holder's node if it is known, and since when.
func holderText(s *perdure.StepView, node string, now time.Time) string {
	text := "held by " + plain(s.LockedBy)
	if node != "" {
		text += " (" + plain(node) + ")"
	}
	if !s.StartedAt.IsZero() {
		text += " since " + s.StartedAt.Local().Format(time.DateTime) + ", " + span(now.Sub(s.StartedAt))
	}
	if !s.LockedUntil.IsZero() {
		text += "; the lock ends in " + span(s.LockedUntil.Sub(now))
	}
	return text
}

// holdersNode returns host and process of a holder that is one of a node's own agents; empty if there is none.
func holdersNode(ctx context.Context, svc perdure.Jobs, holder string) string {
	id, ok := strings.CutPrefix(holder, "@")
	all, lists := svc.(perdure.Operations)
	if !ok || !lists {
		return ""
	}
	nodes, err := all.ListNodes(ctx)
	if err != nil {
		return ""
	}
	for i := range nodes {
		if n := &nodes[i]; n.ID == id {
			return fmt.Sprintf("node on %s, process %d", n.Host, n.PID)
		}
	}
	return ""
}

// limitText describes the permits that a step's runs hold: ads-api for key acme, 2 permits.
func limitText(l perdure.StepLimit) string {
	text := l.Name
	if l.Key != "" {
		text += " for key " + l.Key
	}
	if l.Amount > 1 {
		text += fmt.Sprintf(", %d permits", l.Amount)
	}
	return text
}

// printDefinition prints a definition that can be submitted again.
func (a *app) printDefinition(ctx context.Context, svc perdure.Jobs, job string) error {
	text, err := svc.Definition(ctx, job)
	if err != nil {
		return err
	}
	return a.object(text)
}

// alertText returns the message of an alert. Of an error of several lines it has only the first; if the step still has
// this error, its last line is shown.
func alertText(v *perdure.JobView, al *perdure.AlertView) string {
	s := v.Steps.Get(al.Step)
	before, last, found := strings.Cut(al.Message, ", last: ")
	if !found || s == nil || s.LastError == nil {
		return al.Message
	}
	first, _, long := strings.Cut(strings.TrimSpace(s.LastError.Message), "\n")
	if !long || !strings.Contains(last, text.Clip(first, 100)) {
		return al.Message
	}
	return before + ", last: " + errorText(s.LastError)
}

func alertStep(al *perdure.AlertView) string {
	if al.Step == "" {
		return ""
	}
	return " " + plain(al.Step)
}
