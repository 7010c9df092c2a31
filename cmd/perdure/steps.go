package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
)

// The operator's verbs for one step.

func (a *app) resumeCmd() *cobra.Command {
	var o stepFlags
	cmd := &cobra.Command{
		Use:        "resume JOB… [STEP]",
		SuggestFor: []string{"retry", "unpark", "continue"},
		Short:      "Try steps again that are parked or wait for a retry",
		Long: `Tries the steps of a job that are parked or wait for a retry, or the named step, again now, in the
direction that is wanted now. Their escalation ladder starts over. A step waits for a retry during the
backoff after a failure, and on a wait rung of the ladder. If no step is parked or waits for a retry,
that is a conflict (exit 8).

` + waitHelp,
		Example: `  perdure resume order-1042
  perdure resume order-1042 charge --input '{"amount": 4100}' --wait
  perdure resume order-1042/charge
  perdure resume --type order --error card_declined --since 1h --reason 'the bank is back'
  perdure resume order-1042 order-1077 --reason 'the bank is back' --yes`,
		Args:              argsOf(0, -1, "a JOB, and perhaps a STEP; or several JOBs, or filter flags"),
		ValidArgsFunction: a.completeStep("parked", "waiting"),
		RunE: func(cmd *cobra.Command, args []string) error {
			act := perdure.Act{Verb: perdure.VerbResume, Reason: o.reason, NewKey: o.newKey}
			many, err := a.manyJobs(cmd, &o, args)
			switch {
			case err != nil:
				return err
			case many:
				act.Step = o.bulkFlags.step
				return a.stepsOfMany(cmd, &o, act, args)
			case len(args) == 0:
				return noJobs(cmd)
			}
			job := args[0]
			if j, s, err := stepArgs(args); err == nil {
				job, act.Step = j, s
			} else if o.input != "" || o.newKey {
				return &usageError{msg: "--input and --new-key are for one step", hint: err.Error()}
			}
			return a.actOnStep(cmd, &o, job, act)
		},
	}
	o.register(cmd)
	o.registerInput(cmd)
	return cmd
}

func (a *app) settleCmd() *cobra.Command {
	var o stepFlags
	var as string
	out := &settleOutput{format: &a.format}
	cmd := &cobra.Command{
		Use:        "settle JOB STEP --as done|undone",
		SuggestFor: []string{"resolve"},
		Short:      "Record that a step is done or undone",
		Long: `Records that a step is done or undone: after you did it by hand, or after you checked its effect. The act
is refused while a run of the step is valid. If the recorded state is not the desired one, the step
continues from it. It also ends the wait for a signal or an approval.

--output is the step's output if its value is JSON, and the format of results if it is text or json.

` + waitHelp,
		Example: `  perdure settle order-1042 approve --as done --reason 'ok by anna'
  perdure settle order-1042 charge --as done --output '{"id": "ch_77"}' --reason 'done by hand'
  perdure settle order-1042/charge --as undone --reason 'refunded, ticket 881'`,
		Args:              argsOf(0, -1, "JOB STEP, or JOB/STEP; or --step with JOBs or filter flags"),
		ValidArgsFunction: a.completeStep("parked", "waiting"),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, step, many, err := o.target(cmd, args)
			if err != nil {
				return err
			}
			if as == "" {
				return &usageError{msg: "settle needs --as", hint: "--as done or --as undone"}
			}
			state, err := parseState("as", as)
			if err != nil {
				return err
			}
			act := perdure.Act{Verb: perdure.VerbSettle, Step: step, Reason: o.reason, As: &state}
			if out.value != "" {
				if act.Output, err = a.jsonArg("output", out.value); err != nil {
					return err
				}
			}
			if many {
				return a.stepsOfMany(cmd, &o, act, args)
			}
			return a.actOnStep(cmd, &o, job, act)
		},
	}
	o.register(cmd)
	cmd.Flags().StringVar(&as, "as", "", "state of the step: done or undone")
	cmd.Flags().VarP(out, "output", "o", "the step's output, as `JSON` (@FILE and - are read); or text or json: the format of results")
	_ = cmd.RegisterFlagCompletionFunc("as", cobra.FixedCompletions([]string{"done", "undone"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// settleOutput is a step's output, or the format of results: neither text nor json is a JSON value.
type settleOutput struct {
	format *string
	value  string
}

func (o *settleOutput) String() string { return o.value }
func (o *settleOutput) Type() string   { return "JSON" }
func (o *settleOutput) Set(s string) error {
	if s == "text" || s == "json" {
		*o.format = s
		return nil
	}
	if s != "-" && (s == "" || s[0] != '@') && !json.Valid([]byte(s)) {
		return fmt.Errorf(`neither a JSON value (a string is written '"so"') nor text or json`)
	}
	o.value = s
	return nil
}

func (a *app) skipCmd() *cobra.Command {
	var o stepFlags
	cmd := &cobra.Command{
		Use:   "skip JOB STEP",
		Short: "Continue without a step",
		Long: `Settles a step without doing it, with the output null. If it was ever dispatched, it is undone with the
others if the job is undone. During an undo, a skip is refused: settle the step instead.

` + waitHelp,
		Example: `  perdure skip order-1042 mail --reason 'customer has no address'
  perdure skip --type order --step mail --error no_address --reason 'ticket 881'`,
		Args:              argsOf(0, -1, "JOB STEP, or JOB/STEP; or --step with JOBs or filter flags"),
		ValidArgsFunction: a.completeStep("parked", "waiting", "ready"),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, step, many, err := o.target(cmd, args)
			if err != nil {
				return err
			}
			act := perdure.Act{Verb: perdure.VerbSkip, Step: step, Reason: o.reason}
			if many {
				return a.stepsOfMany(cmd, &o, act, args)
			}
			return a.actOnStep(cmd, &o, job, act)
		},
	}
	o.register(cmd)
	return cmd
}

func (a *app) stopCmd() *cobra.Command {
	var o stepFlags
	cmd := &cobra.Command{
		Use:        "stop JOB STEP",
		SuggestFor: []string{"kill", "cancel", "abort"},
		Short:      "Stop the run of a step",
		Long: `Tells the process that runs the step, with its next heartbeat, to stop. Heartbeats come every third of what
that process promises: from a host, every 20 seconds, or more often with a shorter --heartbeat of
"perdure host". Then a command of exec gets SIGTERM, and SIGKILL after stopWithin. The run ends failed, with the code "stopped", and the step goes on as after any
failure: it is tried again while retry has attempts left, and then its escalation ladder follows. If the
process is gone, the run expires. If no run is in flight, that is a conflict (exit 8).

` + waitHelp,
		Example: `  perdure stop order-1042 render --reason 'wrong scene'
  perdure stop order-1042/render --wait
  perdure stop --type order --step render --phase running --reason 'ticket 882'`,
		Args:              argsOf(0, -1, "JOB STEP, or JOB/STEP; or --step with JOBs or filter flags"),
		ValidArgsFunction: a.completeStep("running"),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, step, many, err := o.target(cmd, args)
			if err != nil {
				return err
			}
			act := perdure.Act{Verb: perdure.VerbStop, Step: step, Reason: o.reason}
			if many {
				return a.stepsOfMany(cmd, &o, act, args)
			}
			return a.actOnStep(cmd, &o, job, act)
		},
	}
	o.register(cmd)
	return cmd
}

func (a *app) editCmd() *cobra.Command {
	var o stepFlags
	cmd := &cobra.Command{
		Use:   "edit JOB STEP --input JSON",
		Short: "Set the input of a step's next run",
		Long: `Replaces the input of a step's next run. The stable key, by which services recognize a repetition, stays
the same unless --new-key is set. A parked step stays parked; "resume --input" also tries it again.

` + waitHelp,
		Example: `  perdure edit order-1042 charge --input '{"amount": 4100}' --reason 'typo'
  perdure edit order-1042/charge --input @charge.json --new-key`,
		Args:              argsOf(0, -1, "JOB STEP, or JOB/STEP; or --step with JOBs or filter flags"),
		ValidArgsFunction: a.completeStep("parked", "waiting", "ready"),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, step, many, err := o.target(cmd, args)
			if err != nil {
				return err
			}
			if o.input == "" && !o.newKey {
				return &usageError{msg: "edit needs --input or --new-key", hint: "--input JSON, @FILE or -"}
			}
			act := perdure.Act{Verb: perdure.VerbEdit, Step: step, Reason: o.reason, NewKey: o.newKey}
			if many {
				return a.stepsOfMany(cmd, &o, act, args)
			}
			return a.actOnStep(cmd, &o, job, act)
		},
	}
	o.register(cmd)
	o.registerInput(cmd)
	return cmd
}

type stepFlags struct {
	waitFlags
	bulkFlags
	reason string
	input  string
	newKey bool
}

func (o *stepFlags) register(cmd *cobra.Command) {
	uses(cmd, "server", "store", "output", "timeout")
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, for the job's history")
	o.waitFlags.register(cmd)
	o.registerDryRun(cmd)
	o.bulkFlags.register(cmd)
	cmd.Long += "\n\n" + bulkHelp + "\n" + stepHelp
	cmd.Flags().Lookup("step").Usage = "this `STEP` of each job; as a filter, only jobs in which it waits for no other step"
}

const stepHelp = `--step names the step of each job. With filters it also selects the jobs: those in which this step can
move now, because it is open and waits for no other step. If the step still waits for others, name the
JOBs.`

// target returns what the arguments name: a job and a step; or many jobs, of which --step names the step.
func (o *stepFlags) target(cmd *cobra.Command, args []string) (job, step string, many bool, err error) {
	if err := o.refuseVariables(args); err != nil {
		return "", "", false, err
	}
	if o.bulkFlags.step == "" {
		if many, err = o.selects(nil); many && err == nil {
			err = &usageError{msg: fmt.Sprintf("%q of many jobs needs --step", cmd.CommandPath()), hint: "--step names the step of each job"}
		}
		if err != nil {
			return "", "", false, err
		}
		if len(args) == 0 || len(args) > 2 {
			return "", "", false, &usageError{msg: fmt.Sprintf("%q takes JOB STEP, or JOB/STEP; or --step with JOBs or filter flags", cmd.CommandPath()), hint: cmd.UseLine()}
		}
		job, step, err = stepArgs(args)
		return job, step, false, err
	}
	return "", o.bulkFlags.step, true, nil
}

// stepsOfMany performs an act on a step of many jobs. With jobs as arguments, --step only names the step.
func (a *app) stepsOfMany(cmd *cobra.Command, o *stepFlags, act perdure.Act, jobs []string) (err error) {
	if len(jobs) > 0 {
		o.bulkFlags.step = ""
	}
	if _, err := o.selects(jobs); err != nil {
		return err
	}
	if o.input != "" {
		if act.Input, err = a.jsonArg("input", o.input); err != nil {
			return err
		}
	}
	return a.actOnMany(cmd, &o.waitFlags, &o.bulkFlags, act, jobs)
}

// manyJobs reports whether the arguments of resume, or its flags, name many jobs. Of two arguments, the second is a step
// if the first job has one of this name.
func (a *app) manyJobs(cmd *cobra.Command, o *stepFlags, args []string) (many bool, err error) {
	if err := o.refuseVariables(args); err != nil {
		return false, err
	}
	if o.bulkFlags.step != "" {
		return true, nil
	}
	if many, err = o.selects(nil); many || err != nil {
		if many && len(args) > 0 {
			_, err = o.selects(args)
		}
		return many, err
	}
	if len(args) != 2 || o.input != "" || o.newKey {
		return len(args) > 2, nil
	}
	err = a.withTarget(cmd, func(ctx context.Context, t *target) error {
		v, err := t.Job(ctx, args[0], 0)
		if err != nil || v.Steps.Get(args[1]) != nil {
			return err
		}
		_, err = t.Job(ctx, args[1], 0)
		many = err == nil
		if perdure.CodeOf(err) == perdure.CodeNotFound {
			return nil // the act says that there is no such step
		}
		return err
	})
	return many, err
}

func (o *stepFlags) registerInput(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.input, "input", "", "the step's input, as `JSON` (@FILE and - are read)")
	cmd.Flags().BoolVar(&o.newKey, "new-key", false, "start a new stable key, because no earlier run had an effect")
	ownVariables(cmd, cmd.Name(), "input")
}

// actOnStep reads the input, if there is one, and performs the act.
func (a *app) actOnStep(cmd *cobra.Command, o *stepFlags, job string, act perdure.Act) (err error) {
	if o.input != "" {
		if act.Input, err = a.jsonArg("input", o.input); err != nil {
			return err
		}
	}
	return a.act(cmd, o.waitFlags, job, act)
}
