package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func (a *app) approveCmd() *cobra.Command {
	return a.decideCmd(perdure.VerbApprove, &cobra.Command{
		Use:   "approve JOB STEP",
		Short: "Approve a step that waits for an approval",
		Long: `Approves a step (agent: approval). The members of the step's group may, whatever their user role; if it
has no group, operators may. The step is done once as many different members as its quorum have approved.
"perdure get" shows the question, the group, and the approvals so far.

` + waitHelp,
		Example: `  perdure approve order-1042 ship --reason 'ok by phone'
  perdure approve order-1042/ship --data '{"carrier": "dhl"}'`,
	})
}

func (a *app) rejectCmd() *cobra.Command {
	return a.decideCmd(perdure.VerbReject, &cobra.Command{
		Use:   "reject JOB STEP",
		Short: "Reject a step that waits for an approval",
		Long: `Rejects a step (agent: approval). The step has failed with the code "rejected", and its escalation ladder
follows: with "onFailure: undo", the job is undone. Who may approve may reject.

` + waitHelp,
		Example: `  perdure reject order-1042 ship --reason 'the address is wrong'
  perdure reject order-1042/ship`,
	})
}

func (a *app) decideCmd(verb perdure.Verb, cmd *cobra.Command) *cobra.Command {
	var w waitFlags
	var reason, data string
	cmd.Args = argsOf(1, 2, "JOB STEP, or JOB/STEP")
	cmd.ValidArgsFunction = a.completeStep("waiting")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		job, step, err := stepArgs(args)
		if err != nil {
			return err
		}
		act := perdure.Act{Verb: verb, Step: step, Reason: reason}
		if data != "" {
			if act.Data, err = a.jsonArg("data", data); err != nil {
				return err
			}
		}
		return a.act(cmd, w, job, act)
	}
	uses(cmd, "server", "store", "output", "timeout")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the job's history")
	if verb == perdure.VerbApprove {
		cmd.Flags().StringVar(&data, "data", "", "data of the step's output, as `JSON` (@FILE and - are read)")
	}
	w.register(cmd)
	w.registerDryRun(cmd)
	return cmd
}

func (a *app) signalCmd() *cobra.Command {
	var s operate.Signal
	var data string
	var keep duration
	var all bool
	cmd := &cobra.Command{
		Use:   "signal NAME --key KEY",
		Short: "Send a signal to the step that waits for it",
		Long: `Sends a signal to the step that waits for its name and key (agent: signal). If no step waits, the signal
is kept for the next one, for --keep. A signal that is sent again with the same --id in that time has no
second effect.`,
		Example: `  perdure signal payment.completed --key pay_123 --data '{"amount": 4200}'
  perdure signal payment.completed --key pay_123 --id evt_9 --keep 7d
  perdure signal price.changed --key eur --all
  perdure signal checked --key c-77 --job order-1042`,
		Args: argsOf(1, 1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if s.Name = args[0]; s.Key == "" {
				return &usageError{msg: "signal needs --key", hint: "the key for which the step waits"}
			}
			if data != "" {
				if s.Data, err = a.jsonArg("data", data); err != nil {
					return err
				}
			}
			if all {
				s.To = operate.ToAll
			}
			s.Keep, s.Author = perdure.Duration(keep), author()
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				r, err := t.SendSignal(ctx, s)
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(r)
				}
				a.printf("%s\n", signalText(r, &s))
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output", "timeout")
	f := cmd.Flags()
	f.StringVar(&s.Key, "key", "", "the `KEY` for which the step waits")
	f.StringVar(&s.ID, "id", "", "`ID` of the event at its source (default: a new one)")
	f.StringVar(&data, "data", "", "data for the step's output, as `JSON` (@FILE and - are read)")
	f.Var(&keep, "keep", "keep the signal, and remember its id, for this `DURATION` (default 24h; 1s to 30d)")
	f.BoolVar(&all, "all", false, "wake all steps that wait now, and keep nothing")
	f.StringVar(&s.Job, "job", "", "only steps of this `JOB` receive the signal")
	ownVariables(cmd, "signal", "keep")
	return cmd
}

// signalText says what became of a signal.
func signalText(r *operate.SignalResult, s *operate.Signal) string {
	switch {
	case r.Repeated && len(r.Matched) == 0:
		return plain(r.ID) + ": was sent before"
	case r.Repeated:
		return plain(r.ID) + ": was sent before, and received by " + plain(strings.Join(r.Matched, ", "))
	case len(r.Matched) > 0:
		return plain(r.ID) + ": received by " + plain(strings.Join(r.Matched, ", "))
	case s.To == operate.ToAll:
		return plain(r.ID) + ": no step waits"
	}
	return plain(r.ID) + ": no step waits yet; kept for the next one"
}
