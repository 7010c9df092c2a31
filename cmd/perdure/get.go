package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"perdure"
)

func (a *app) getCmd() *cobra.Command {
	var wait duration
	cmd := &cobra.Command{
		Use:     "get JOB",
		Aliases: []string{"show"},
		Short:   "Show a job, and why each open step is not running",
		Long: `Shows a job with its steps, for each unsettled step why it isn't running, its open alerts, and what
to type next where a person is needed. It exits 0 whatever state the job is in.

With --wait it waits for the job to be at rest first, and exits by its state as run does, or 6 if
the job isn't at rest by then.`,
		Example: `  perdure get order-1042
  perdure get @latest --store sqlite:perdure.db
  perdure get job_0193 --wait 30s
  perdure get order-1042 -o json | jq .steps.charge.output`,
		Args:              argsOf(1, 1, "one JOB"),
		ValidArgsFunction: a.completeJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := waitFor(ctx, t, args[0], time.Duration(wait))
				if err != nil {
					return err
				}
				want := perdure.Done
				if wait > 0 {
					want = wanted(ctx, t, v)
				}
				job := newTracker(v, want, time.Now())
				if err := a.printJob(job, t.where); err != nil || wait == 0 {
					return err
				}
				if !job.atRest() {
					return quietly(exitTimeout)
				}
				return quietly(stateCode(v, want))
			})
		},
	}
	uses(cmd, "server", "store", "output")
	cmd.Flags().Var(&wait, "wait", "wait for the job to be at rest, for at most `DURATION`")
	return cmd
}

// waitFor asks until the job is at rest or wait has passed: one call waits for MaxJobWait at most.
func waitFor(ctx context.Context, svc perdure.Jobs, ref string, wait time.Duration) (*perdure.JobView, error) {
	end := time.Now().Add(wait)
	for {
		v, err := svc.Job(ctx, ref, max(0, min(time.Until(end), perdure.MaxJobWait)))
		if err != nil || v.Phase == perdure.Settled || v.Phase == perdure.Parked || !time.Now().Before(end) {
			return v, err
		}
		ref = v.ID.String() // @latest may be another by now
	}
}

// wanted is the state that a person last asked for: done, unless an operator said otherwise. What a
// policy did about a failure was not asked for.
func wanted(ctx context.Context, svc perdure.Jobs, v *perdure.JobView) perdure.State {
	want := perdure.Done
	if v.Desired == want && v.Current != perdure.Undone {
		return want
	}
	entries, err := svc.History(ctx, v.ID.String())
	if err != nil {
		return v.Desired
	}
	var last time.Time
	for _, e := range entries {
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
	return want
}

// printJob is the job at full length: header, steps, alerts, and what to do next.
func (a *app) printJob(t *tracker, where string) error {
	if a.json() {
		return a.object(&t.view)
	}
	v := &t.view
	for _, l := range t.lines(a.st, time.Now(), 0, 0, -1) {
		a.printf("%s\n", l)
	}
	a.printf("  %s\n", a.st.dim("id "+v.ID.String()+", submitted "+v.SubmittedAt.Local().Format(time.DateTime)))
	if v.GivenUp != nil {
		a.printf("  given up by %s%s\n", plain(v.GivenUp.By), because(v.GivenUp.Reason))
	}
	for i := range v.Alerts {
		al := &v.Alerts[i]
		a.printf("%s #%d %s%s: %s\n", a.st.bad("alert"), al.ID, al.Kind, alertStep(al), plain(al.Message))
	}
	if next := advice(v, where); len(next) > 0 {
		a.printf("next:\n")
		for _, l := range next {
			a.printf("  %s\n", l)
		}
	}
	return nil
}

func alertStep(al *perdure.AlertView) string {
	if al.Step == "" {
		return ""
	}
	return " " + al.Step
}
