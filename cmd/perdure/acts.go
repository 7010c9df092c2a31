package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
)

// drainGrace is how long runs in flight may continue when the command's own node stops.
const drainGrace = 3 * time.Second

// waitFlags say whether a command that changes a job also waits for its end.
type waitFlags struct {
	wait, noWait bool
	dryRun       bool // print what the act would do, and do nothing
	agents       agentFlags
}

func (w *waitFlags) registerDryRun(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.dryRun, "dry-run", false, "print what the act would do to the job as it is now, and change nothing")
}

func (w *waitFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "follow the job to rest and exit by its state (default with --store)")
	cmd.Flags().BoolVar(&w.noWait, "no-wait", false, "with --store: record the act and leave the work to the next node")
	w.agents.register(cmd, "http,shell", true)
	onlyWithStore(cmd, "no-wait", "agents", "slots", "shell-env", "secrets-dir", "allow-private-targets")
}

// asked reports whether to wait. Through a server, other processes drive the job, so the command waits only if a flag
// says so. On a store of its own, no other process would drive it.
func (w *waitFlags) asked(t *target) bool { return w.wait || !t.far() && !w.noWait }

// settle combines the flags: --timeout implies --wait.
func (w *waitFlags) settle(cmd *cobra.Command) error {
	bounded := cmd.Flags().Changed("timeout")
	switch {
	case w.dryRun && (w.wait || w.noWait):
		return usagef("--dry-run performs nothing to wait for: leave out --wait and --no-wait")
	case w.wait && w.noWait:
		return usagef("--wait and --no-wait exclude each other")
	case bounded && w.noWait:
		return usagef("--timeout and --no-wait exclude each other")
	}
	w.wait = w.wait || bounded
	return w.agents.check()
}

// withActor is withTarget for commands that change or drive jobs.
func (a *app) withActor(cmd *cobra.Command, w *waitFlags, fn func(context.Context, *target) error) error {
	if err := w.settle(cmd); err != nil {
		return err
	}
	ctx, stop := a.interruptible(cmd.Context())
	defer stop()
	t, err := a.dial(ctx, cmd, &w.agents)
	if err != nil {
		return reason(ctx, err)
	}
	return errors.Join(reason(ctx, t.hinted(cmd, fn(ctx, t))), t.close())
}

// act performs an act and, if asked, follows the job until it is settled or parked.
func (a *app) act(cmd *cobra.Command, w waitFlags, ref string, act perdure.Act) error {
	return a.withActor(cmd, &w, func(ctx context.Context, t *target) error {
		if w.dryRun {
			return a.preview(ctx, t, ref, act)
		}
		if w.asked(t) && act.Verb != perdure.VerbGiveUp {
			if err := t.start(ctx); err != nil {
				return err
			}
		}
		act.Author = author()
		v, err := t.Act(ctx, ref, act)
		if err != nil {
			return err
		}
		want := perdure.Done
		switch act.Verb {
		case perdure.VerbUndo:
			want = perdure.Undone
		case perdure.VerbRedo:
		default:
			want = wanted(ctx, t, v)
		}
		job := newTracker(v, want)
		job.note = verbName(act.Verb)
		if v.Unchanged {
			job.note = nothingToDo
		}
		if !w.asked(t) || act.Verb == perdure.VerbGiveUp {
			return a.printAct(job, act)
		}
		err = a.drive(ctx, t, []*tracker{job}, a.displayFor(), drainGrace)
		return a.finish(t, []*tracker{job}, err, watchCommand([]*tracker{job}, t))
	})
}

// approvals says, after a colon, how many have approved a step, if it waits for more; else nothing.
func approvals(v *perdure.JobView, act *perdure.Act) string {
	if act.Verb != perdure.VerbApprove {
		return ""
	}
	for i := range v.Steps {
		if s := &v.Steps[i]; s.Name == act.Step && s.Why != nil && s.Why.Kind == perdure.WhyApproval {
			return fmt.Sprintf(": %d of %d approvals given", len(s.Why.Approvals), s.Why.Quorum)
		}
	}
	return ""
}

// verbName returns the command of a verb.
func verbName(verb perdure.Verb) string {
	if verb == perdure.VerbGiveUp {
		return "give-up"
	}
	return string(verb)
}

// actName returns an act as a command has it: its verb and its step.
func actName(act *perdure.Act) string {
	if act.Step == "" {
		return verbName(act.Verb)
	}
	return verbName(act.Verb) + " " + act.Step
}

// printAct prints the state of the job after the act.
func (a *app) printAct(t *tracker, act perdure.Act) error {
	if a.json() {
		return a.object(&t.view)
	}
	what := actName(&act)
	a.printf("%s %s: %s, %s\n", plain(t.view.Type), t.name(), stateText(a.st, &t.view), t.progress())
	if t.view.Unchanged {
		a.talk("%s: %s (%s)", what, nothingToDo, t.title())
		return nil
	}
	a.talk("%s: recorded for %s%s", what, t.title(), approvals(&t.view, &act))
	if act.Verb == perdure.VerbStop {
		a.talk("  the process that runs it learns of that with its next heartbeat: a host after at most a third of its --heartbeat (20s by default)")
	}
	return nil
}

// nothingToDo is the message for an act whose result already holds: it has changed and recorded nothing.
const nothingToDo = "nothing to do, it is so already"

// watchCommand returns the command that continues to follow the jobs.
func watchCommand(jobs []*tracker, t *target) string {
	words := "perdure watch"
	for _, j := range jobs {
		if !j.atRest() {
			words += " " + refOf(&j.view)
		}
	}
	return words + t.where
}

// stepArgs reads JOB STEP or JOB/STEP.
func stepArgs(args []string) (job, step string, err error) {
	if len(args) == 2 {
		return args[0], args[1], nil
	}
	job, step, ok := strings.Cut(args[0], "/")
	if !ok || job == "" || step == "" {
		return "", "", &usageError{msg: fmt.Sprintf("%q names no step", args[0]), hint: "write JOB STEP or JOB/STEP"}
	}
	return job, step, nil
}

func (a *app) undoCmd() *cobra.Command {
	return a.jobVerb(perdure.VerbUndo, &cobra.Command{
		Use:        "undo JOB…",
		SuggestFor: []string{"rollback", "revert", "compensate"},
		Short:      "Undo all that a job did",
		Long: `Changes the desired state of the job to undone. Every step that was done, or may have been, is then
undone, in reverse order. This is possible at any time: while the job runs, or a month after it was
done. Runs in flight are stopped, and what they did is undone as well.`,
		Example: `  perdure undo order-1042 --reason 'customer called'
  perdure undo order-1042 --wait --timeout 5m
  perdure undo @latest --store sqlite:perdure.db
  perdure undo --type order --since 1h --reason 'wrong price list' --dry-run`,
	})
}

func (a *app) redoCmd() *cobra.Command {
	return a.jobVerb(perdure.VerbRedo, &cobra.Command{
		Use:        "redo JOB…",
		SuggestFor: []string{"rerun", "replay", "restart"},
		Short:      "Do a job again that was undone",
		Long:       `Changes the desired state of the job to done. An undo that has begun ends first.`,
		Example: `  perdure redo order-1042
  perdure redo order-1042 --wait
  perdure redo --type order --desired undone --reason 'prices are right' --yes
  perdure redo --parent album-7/resize --current undone --reason 'disk is free'`,
	})
}

func (a *app) giveUpCmd() *cobra.Command {
	return a.jobVerb(perdure.VerbGiveUp, &cobra.Command{
		Use:        "give-up JOB…",
		Aliases:    []string{"giveup"},
		SuggestFor: []string{"abandon", "terminate"},
		Short:      "Close a job in its current state, neither done nor undone",
		Long: `Closes the job in the current state of its steps, and records your name. The act is refused while a run
is valid. Only undo or redo opens the job again.`,
		Example: `  perdure give-up order-1042 --reason 'settled by phone, ticket 881'
  perdure give-up order-1042 order-1077 --reason 'settled by phone, ticket 881'`,
	})
}

// jobVerb makes the command of a verb that acts on a whole job.
func (a *app) jobVerb(verb perdure.Verb, cmd *cobra.Command) *cobra.Command {
	var why string
	var w waitFlags
	var o bulkFlags
	if verb != perdure.VerbGiveUp {
		cmd.Long += "\n\n" + waitHelp
		w.register(cmd)
	}
	cmd.Long += "\n\n" + bulkHelp
	w.registerDryRun(cmd)
	cmd.Args = argsOf(0, -1, "a JOB, several JOBs, or filter flags")
	cmd.ValidArgsFunction = a.completeJob
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		act := perdure.Act{Verb: verb, Reason: why}
		if err := o.refuseVariables(args); err != nil {
			return err
		}
		many, err := o.selects(args)
		switch {
		case err != nil:
			return err
		case many:
			return a.actOnMany(cmd, &w, &o, act, args)
		case len(args) == 0:
			return noJobs(cmd)
		}
		return a.act(cmd, w, args[0], act)
	}
	o.register(cmd)
	cmd.Flags().StringVar(&why, "reason", "", "reason, for the job's history")
	usesForAct(cmd, verb)
	return cmd
}

// noJobs refuses an act without a job: an empty filter would select all.
func noJobs(cmd *cobra.Command) error {
	return &usageError{msg: fmt.Sprintf("%q needs a JOB, or a filter flag such as --type", cmd.CommandPath()), hint: cmd.UseLine()}
}

func usesForAct(cmd *cobra.Command, verb perdure.Verb) {
	if verb == perdure.VerbGiveUp {
		uses(cmd, "server", "store", "output")
		return
	}
	uses(cmd, "server", "store", "output", "timeout")
}

const waitHelp = `With a server, the command returns when the act is recorded; with --wait or --timeout it follows the job
to rest and exits by its state. With --store an embedded node brings the job to rest, unless --no-wait.`
