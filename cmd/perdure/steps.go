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
		Short:      "Try again what is parked",
		Long: `Lets parked steps out again, in the direction that is wanted now, with the failure ladder started
over: all of a job's, or the one named. Nothing parked is a conflict (exit 8).

` + waitHelp,
		Example: `  perdure resume order-1042
  perdure resume order-1042 charge --input '{"amount": 4100}' --wait
  perdure resume order-1042/charge`,
		Args:              argsOf(1, 2, "a JOB, and perhaps a STEP"),
		ValidArgsFunction: a.completeStep("parked"),
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
		Short:      "Say what you know: this step is done, or undone",
		Long: `Records that a step is done or undone, on your word: after you did it by hand, after you looked, or
as the approval that it waits for. It is refused while a run of the step is valid. If that is not
what is desired of the step, it goes on from there.

--output is the step's output where it takes a JSON value, and the format of what is printed where it
is text or json.

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
	cmd.Flags().StringVar(&as, "as", "", "what the step is: done or undone")
	cmd.Flags().VarP(out, "output", "o", "the step's output, as `JSON` (@FILE and - are read); or text or json: the format of what is printed")
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
		Short: "Go on without a step",
		Long: `Settles a step as far as doing goes, its output being null. If it was ever let out, it is undone with
the rest should the job turn. On the way back a skip is refused: settle the step instead.

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
		Short: "Give a step another input for its next run",
		Long: `Replaces the input of a step's next run. It keeps its stable key, by which the remote side knows a
repetition; --new-key says that no earlier run had an effect, and starts a new one. A parked step
stays parked: "resume --input" does both.

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
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, for the audit")
	o.waitFlags.register(cmd)
}

func (o *stepFlags) registerInput(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.input, "input", "", "the step's input, as `JSON` (@FILE and - are read)")
	cmd.Flags().BoolVar(&o.newKey, "new-key", false, "no earlier run had an effect: start a new stable key")
}

// actOnStep reads the input, if one is given, and acts.
func (a *app) actOnStep(cmd *cobra.Command, o *stepFlags, job string, act perdure.Act) (err error) {
	if o.input != "" {
		if act.Input, err = a.jsonArg("input", o.input); err != nil {
			return err
		}
	}
	return a.act(cmd, o.waitFlags, job, act)
}
