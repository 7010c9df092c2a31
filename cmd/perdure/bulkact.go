package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// bulkFlags make an act one on many jobs: filters in place of JOB, or several JOBs.
type bulkFlags struct {
	filterFlags
	yes       bool
	perSecond int
	flags     *pflag.FlagSet // of the command
}

func (o *bulkFlags) register(cmd *cobra.Command) {
	o.filterFlags.register(cmd, "why")
	search := pflag.NewFlagSet("", pflag.ContinueOnError)
	search.StringVar(&o.search, "search", "", "only jobs with this `TEXT`: the beginning of an id or key, or the value of a label")
	addFilters(cmd, search)
	o.flags = cmd.Flags()
	o.flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[filterKey] != nil {
			f.Annotations[noVariableKey] = []string{"true"}
		}
	})
	cmd.Flags().IntVar(&o.perSecond, "per-second", 0, fmt.Sprintf("several jobs: meet at most `N` of them within a second, 1 to %d", operate.MaxBulkPerSecond))
	cmd.Flags().BoolVar(&o.yes, "yes", false, "several jobs: do not ask for confirmation; required without a terminal")
}

// refuseVariables refuses an act that names no job while the variable of a filter flag is set, as it is for other
// commands: if the act took its filter from there, it could meet jobs that the command line does not name; if it ignored
// the variable, it could meet more jobs than expected.
func (o *bulkFlags) refuseVariables(jobs []string) (err error) {
	o.flags.VisitAll(func(f *pflag.Flag) {
		if err == nil && len(jobs) == 0 && !f.Changed && f.Annotations[noVariableKey] != nil && lookupEnv(f) != "" {
			err = &usageError{msg: variableOf(f) + " is set, but only flags select the jobs of an act", hint: "unset it, or write --" + f.Name}
		}
	})
	return err
}

const bulkHelp = `Filter flags in place of JOB, or several JOBs, make it a bulk act: a node performs it on each job. The
command prints how many jobs there are and the first of them, asks, and follows the progress; the bulk
act goes on if it is interrupted (see "perdure bulk"). --reason is required; --why is the filter by reason.
Filters are read from the command line alone, not from variables.
Exit code 8 says that the act was refused on some jobs.`

// selects reports whether the flags or the arguments select jobs in bulk. jobs are arguments that each name a job.
func (o *bulkFlags) selects(jobs []string) (bool, error) {
	q, err := o.query(time.Now())
	if err != nil {
		return false, err
	}
	filtered := !operate.FilterOf(&q).IsEmpty()
	switch paced := o.flags.Lookup("per-second").Changed; {
	case paced && (o.perSecond < 1 || o.perSecond > operate.MaxBulkPerSecond):
		return false, &usageError{msg: fmt.Sprintf("--per-second %d is not from 1 to %d", o.perSecond, operate.MaxBulkPerSecond), hint: "leave it out for no bound"}
	case paced && !filtered && len(jobs) == 1:
		return false, &usageError{msg: "--per-second is for many jobs", hint: "leave it out, or select jobs with filter flags"}
	}
	if filtered && len(jobs) > 0 {
		return false, &usageError{msg: "jobs and filters exclude each other", hint: "leave out the names of jobs, or the filter flags"}
	}
	return filtered || len(jobs) > 1, nil
}

// bulkRequest returns the request for an act on many jobs.
func (o *bulkFlags) bulkRequest(act perdure.Act, jobs []string) (operate.BulkRequest, error) {
	r := operate.BulkRequest{Act: act.Verb, Step: act.Step, As: act.As, Output: act.Output, Input: act.Input, NewKey: act.NewKey, PerSecond: o.perSecond, Reason: act.Reason, Author: author()}
	q, err := o.query(time.Now())
	if err != nil {
		return r, err
	}
	if r.IDs = jobs; len(jobs) == 0 {
		r.Filter = operate.FilterOf(&q)
	}
	if strings.TrimSpace(r.Reason) == "" {
		return r, &usageError{msg: fmt.Sprintf("%s of many jobs needs --reason", verbName(act.Verb)), hint: "--reason TEXT, for the history of each job"}
	}
	if err := r.Check(); err != nil {
		return r, err
	}
	return r, nil
}

// actOnMany starts a bulk act and follows it. It first shows how many jobs there are, and asks.
func (a *app) actOnMany(cmd *cobra.Command, w *waitFlags, o *bulkFlags, act perdure.Act, jobs []string) error {
	if w.wait || w.noWait {
		return &usageError{msg: "--wait and --no-wait are for one job", hint: "a bulk act is followed until it is done; its jobs are not"}
	}
	r, err := o.bulkRequest(act, jobs)
	if err != nil {
		return err
	}
	if !o.yes && !w.dryRun && !a.canAsk() {
		return &usageError{msg: "there is no terminal to ask for confirmation", hint: "--yes performs the act, --dry-run shows what it would be performed on"}
	}
	return a.withActor(cmd, w, func(ctx context.Context, t *target) error {
		if !o.yes || w.dryRun {
			p, err := t.PreviewBulk(ctx, r)
			if err != nil {
				return err
			}
			switch {
			case w.dryRun && a.json():
				return a.object(p)
			case !a.json():
				a.printBulkPreview(&r, p)
			}
			count := metBy(p)
			if count == (perdure.Count{}) {
				a.hintStep(r.Filter)
			}
			if w.dryRun {
				a.talk("%s: nothing was changed (--dry-run)", actName(&act))
				return nil
			}
			if count == (perdure.Count{}) {
				a.talk("%s: no job matches, nothing was changed", actName(&act))
				return nil
			}
			if ok, err := a.confirmed(ctx, fmt.Sprintf("%s %s?", actName(&act), countText(count))); err != nil || !ok {
				a.talk("%s: nothing was changed", actName(&act))
				return errors.Join(err, exit(exitOther))
			}
		}
		if err := t.start(ctx); err != nil {
			return err
		}
		v, err := t.StartBulk(ctx, r)
		if err != nil {
			return err
		}
		return a.followBulk(ctx, t, v)
	})
}

// canAsk reports whether an operator can be asked.
func (a *app) canAsk() bool {
	in, ok := a.in.(*os.File)
	return ok && term.IsTerminal(int(in.Fd())) && a.errIsTerminal()
}

func (a *app) errIsTerminal() bool {
	f, ok := a.err.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// confirmed asks a question on the terminal.
func (a *app) confirmed(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(a.err, "%s [y/N] ", message(question))
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case s := <-answer:
		return s == "y" || s == "yes", nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// metBy returns how many jobs a bulk act would meet, by its preview. The search of the count may have ended before it had
// found those that the preview shows and tries.
func metBy(p *operate.BulkPreview) perdure.Count {
	c, tried := p.Count, p.Unchanged
	for _, n := range p.Refused {
		tried += n
	}
	c.N = max(c.N, len(p.Samples), tried)
	return c
}

// hintStep says why a filter by a step may have selected no job.
func (a *app) hintStep(f *operate.BulkFilter) {
	if f != nil && f.Step != "" {
		a.talk("hint: --step %s selects only jobs in which this step waits for no other step; name the JOBs instead", quoted(f.Step))
	}
}

func countText(c perdure.Count) string {
	text := plural(c.N, "job")
	if c.Capped {
		text += " or more"
	}
	return text
}

func (a *app) printBulkPreview(r *operate.BulkRequest, p *operate.BulkPreview) {
	n := metBy(p)
	pace := ""
	if r.PerSecond > 0 {
		pace = fmt.Sprintf(", at most %d a second", r.PerSecond)
	}
	a.printf("%s: %s%s\n", actName(new(r.PerJob())), countText(n), pace)
	a.printList(p.Samples, true)
	switch more := n.N - len(p.Samples); {
	case len(p.Samples) == 0:
	case n.Capped && more == 0:
		a.printf("… and perhaps more\n")
	case n.Capped:
		a.printf("… and at least %d more\n", more)
	case more > 0:
		a.printf("… and %d more\n", more)
	}
	of := fmt.Sprintf("the first %d", min(n.N, operate.MaxBulkPreviewed))
	if n.Capped && n.N < operate.MaxBulkPreviewed {
		of = "those tried" // how many is not known
	}
	if p.Unchanged > 0 {
		a.printf("nothing to do on %s of %s\n", plural(p.Unchanged, "job"), of)
	}
	for _, code := range slices.Sorted(maps.Keys(p.Refused)) {
		a.printf("refused on %s of %s: %s\n", plural(p.Refused[code], "job"), of, plain(string(code)))
	}
	if n.Capped && n.N < perdure.MaxListCount {
		a.talk("the count searched a part of the jobs; the act goes through all of them")
	}
}

// bulkPoll is how often the progress of a bulk act is read.
const bulkPoll = 500 * time.Millisecond

// followBulk shows the progress of a bulk act until it does not run any more, and exits by its result.
func (a *app) followBulk(ctx context.Context, t *target, v *operate.BulkView) error {
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	id, live := v.ID, !a.quiet && !a.json() && a.errIsTerminal()
	if !live && !a.json() {
		a.talk("%s started; perdure bulk show %s%s", id, id, t.where)
	}
	wait := 50 * time.Millisecond
	var lost time.Time
	for v.State == operate.BulkRunning {
		if live {
			fmt.Fprintf(a.err, "\r\x1b[K%s", message(progressBar(v)))
		}
		select {
		case <-ctx.Done():
			if live {
				fmt.Fprintln(a.err)
			}
			a.talk("%s goes on: perdure bulk show %s%s", id, id, t.where)
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		wait = min(2*wait, bulkPoll)
		next, err := t.GetBulk(ctx, id)
		if err == nil {
			v, lost = next, time.Time{}
			continue
		}
		if live && lost.IsZero() {
			fmt.Fprintln(a.err)
		}
		if ctx.Err() == nil && !a.retries(err, &lost) {
			return err
		}
	}
	if live {
		fmt.Fprint(a.err, "\r\x1b[K")
	}
	if a.json() {
		if err := a.object(v); err != nil {
			return err
		}
	} else {
		a.printf("%s %s: %s\n", v.ID, bulkStateText(a.st, v), bulkCounts(v))
	}
	if v.Matched == 0 {
		a.hintStep(v.Filter)
	}
	switch {
	case v.Refused > 0:
		a.talk("see why: perdure bulk show %s --refusals%s", v.ID, t.where)
		return exit(exitConflict)
	case v.State != operate.BulkDone:
		return exit(exitOther)
	}
	return nil
}

// progressBar shows how far a bulk act is: a bar, its rate, and when it is expected to end.
func progressBar(v *operate.BulkView) string {
	const width = 30
	done, total := v.Matched, max(v.Expected.N, v.Matched, 1)
	n := done * width / total
	text := fmt.Sprintf("[%s%s] %d of %d", strings.Repeat("#", n), strings.Repeat(".", width-n), done, total)
	if v.Expected.Capped {
		text += " or more"
	}
	if v.Rate > 0 {
		text += fmt.Sprintf(", %.0f/s", v.Rate)
	}
	if left := v.ExpectedEnd.Sub(v.UpdatedAt); left > 0 {
		text += ", " + span(left) + " left"
	}
	if v.Refused > 0 {
		text += fmt.Sprintf(", %d refused", v.Refused)
	}
	return text
}

func bulkCounts(v *operate.BulkView) string {
	return fmt.Sprintf("%s: %d done, %d unchanged, %d refused", plural(v.Matched, "job"), v.Done, v.Unchanged, v.Refused)
}

func bulkStateText(st style, v *operate.BulkView) string {
	text := plain(string(v.State))
	if v.State == operate.BulkStopped {
		if v.StoppedBy != "" {
			text += " by " + plain(v.StoppedBy)
		}
		return st.bad(text)
	}
	return text
}
