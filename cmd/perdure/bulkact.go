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
	"golang.org/x/term"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// bulkFlags make an act one on many jobs: filters in place of JOB, or several JOBs.
type bulkFlags struct {
	filterFlags
	yes bool
}

func (o *bulkFlags) register(cmd *cobra.Command) {
	o.filterFlags.register(cmd, "why")
	cmd.Flags().StringVar(&o.search, "search", "", "only jobs with this `TEXT`: the beginning of an id or key, or the value of a label")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "several jobs: do not ask for confirmation; required without a terminal")
}

const bulkHelp = `Filter flags in place of JOB, or several JOBs, make it a bulk act: a node performs it on each job. The
command prints how many jobs there are and the first of them, asks, and follows the progress; the bulk
act goes on if it is interrupted (see "perdure bulk"). --reason is required; --why is the filter by reason.
Exit code 8 says that the act was refused on some jobs.`

// selects reports whether the flags or the arguments select jobs in bulk. jobs are arguments that each name a job.
func (o *bulkFlags) selects(jobs []string) (bool, error) {
	q, err := o.query(time.Now())
	if err != nil {
		return false, err
	}
	filtered := !operate.FilterOf(&q).IsEmpty()
	if filtered && len(jobs) > 0 {
		return false, &usageError{msg: "jobs and filters exclude each other", hint: "leave out the names of jobs, or the filter flags"}
	}
	return filtered || len(jobs) > 1, nil
}

// bulkRequest returns the request for an act on many jobs.
func (o *bulkFlags) bulkRequest(act perdure.Act, jobs []string) (operate.BulkRequest, error) {
	r := operate.BulkRequest{Act: act.Verb, Step: act.Step, As: act.As, Output: act.Output, Input: act.Input, NewKey: act.NewKey, Reason: act.Reason, Author: author()}
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
			if w.dryRun {
				a.talk("%s: nothing was changed (--dry-run)", actName(&act))
				return nil
			}
			if p.Count.N == 0 {
				a.talk("%s: no job matches, nothing was changed", actName(&act))
				return nil
			}
			if ok, err := a.confirmed(ctx, fmt.Sprintf("%s %s?", actName(&act), countText(p.Count))); err != nil || !ok {
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

func countText(c perdure.Count) string {
	text := plural(c.N, "job")
	if c.Capped {
		text += " or more"
	}
	return text
}

func (a *app) printBulkPreview(r *operate.BulkRequest, p *operate.BulkPreview) {
	a.printf("%s: %s\n", actName(new(r.PerJob())), countText(p.Count))
	a.printList(p.Samples, true)
	if more := p.Count.N - len(p.Samples); more > 0 && len(p.Samples) > 0 {
		a.printf("… and %d more\n", more)
	}
	if p.Unchanged > 0 {
		a.printf("nothing to do on %s of the first %d\n", plural(p.Unchanged, "job"), min(p.Count.N, operate.MaxBulkPreviewed))
	}
	for _, code := range slices.Sorted(maps.Keys(p.Refused)) {
		a.printf("refused on %s of the first %d: %s\n", plural(p.Refused[code], "job"), min(p.Count.N, operate.MaxBulkPreviewed), plain(string(code)))
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
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil {
			v = next
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
	if v.Expected.Capped && v.Matched <= v.Expected.N {
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
