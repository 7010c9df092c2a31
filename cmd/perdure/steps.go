package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
)

// The operator's verbs for one step.

func (a *app) resumeCmd() *cobra.Command {
	var o stepFlags
	cmd := &cobra.Command{
		Use:        "resume JOB [STEP]",
		SuggestFor: []string{"retry", "unpark", "continue"},
		Short:      "Try steps again that are parked or wait for a retry",
		Long: `Tries the steps of a job that are parked or wait for a retry, or the named step, again now, in the
direction that is wanted now. Their escalation ladder starts over. A step waits for a retry during the
backoff after a failure, and on a wait rung of the ladder. If no step is parked or waits for a retry,
that is a conflict (exit 8).

` + waitHelp,
		Example: `  perdure resume order-1042
  perdure resume order-1042 charge --input '{"amount": 4100}' --wait
  perdure resume order-1042/charge`,
		Args:              argsOf(1, 2, "a JOB, and perhaps a STEP"),
		ValidArgsFunction: a.completeStep("parked", "waiting"),
		RunE: func(cmd *cobra.Command, args []string) error {
			act := perdure.Act{Verb: perdure.VerbResume, Reason: o.reason, NewKey: o.newKey}
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
		SuggestFor: []string{"approve", "resolve"},
		Short:      "Record that a step is done or undone",
		Long: `Records that a step is done or undone: after you did it by hand, after you checked its effect, or as the
approval that it waits for. To reject an approval, undo the job. The act is refused while a run of the
step is valid. If the recorded state
is not the desired one, the step continues from it.

--output is the step's output if its value is JSON, and the format of results if it is text or json.

` + waitHelp,
		Example: `  perdure settle order-1042 approve --as done --reason 'ok by anna'
  perdure settle order-1042 charge --as done --output '{"id": "ch_77"}' --reason 'done by hand'
  perdure settle order-1042/charge --as undone --reason 'refunded, ticket 881'`,
		Args:              argsOf(1, 2, "JOB STEP, or JOB/STEP"),
		ValidArgsFunction: a.completeStep("parked", "waiting"),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, step, err := stepArgs(args)
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
		Example:           `  perdure skip order-1042 mail --reason 'customer has no address'`,
		Args:              argsOf(1, 2, "JOB STEP, or JOB/STEP"),
		ValidArgsFunction: a.completeStep("parked", "waiting", "ready"),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, step, err := stepArgs(args)
			if err != nil {
				return err
			}
			return a.actOnStep(cmd, &o, job, perdure.Act{Verb: perdure.VerbSkip, Step: step, Reason: o.reason})
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
		Args:              argsOf(1, 2, "JOB STEP, or JOB/STEP"),
		ValidArgsFunction: a.completeStep("parked", "waiting", "ready"),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, step, err := stepArgs(args)
			if err != nil {
				return err
			}
			if o.input == "" && !o.newKey {
				return &usageError{msg: "edit needs --input or --new-key", hint: "--input JSON, @FILE or -"}
			}
			return a.actOnStep(cmd, &o, job, perdure.Act{Verb: perdure.VerbEdit, Step: step, Reason: o.reason, NewKey: o.newKey})
		},
	}
	o.register(cmd)
	o.registerInput(cmd)
	return cmd
}

type stepFlags struct {
	waitFlags
	reason string
	input  string
	newKey bool
}

func (o *stepFlags) register(cmd *cobra.Command) {
	uses(cmd, "server", "store", "output", "timeout")
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, for the job's history")
	o.waitFlags.register(cmd)
	o.registerDryRun(cmd)
}

func (o *stepFlags) registerInput(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.input, "input", "", "the step's input, as `JSON` (@FILE and - are read)")
	cmd.Flags().BoolVar(&o.newKey, "new-key", false, "start a new stable key, because no earlier run had an effect")
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
