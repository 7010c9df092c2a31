package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func (a *app) agentsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "agents", Short: "Manage agents' settings: list, show, set", Args: noArgs,
		Long: `Lists the agents that have settings, or have claimed runs in the last day: their ageing, the number of
holders that have claimed their runs within the last 90 seconds, the number of those that have claimed
earlier that day and are gone (or so busy that they have not claimed since), and the time of the latest
claim. Of the statistics, which a node computes every five seconds, it lists the runs in flight, the slots
inside nodes, the ready steps with the age of about the oldest, and of the last hour the failed runs by
error code and the refused reports.

Ageing is the head start that one level of priority gives. With 10m, a job of priority 9 is dispatched
before all jobs of priority 0 that were submitted in the 90 minutes before it, and no job waits behind
one that was submitted more than 90 minutes later. With the default, 10 years, a higher priority is
always first.`,
		Example: "  perdure agents\n  perdure agents show payments\n  perdure agents set payments --ageing 10m",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				agents, err := t.ListAgents(ctx)
				if err != nil {
					return err
				}
				return a.printAgents(agents, time.Now())
			})
		},
	}
	uses(cmd, "server", "store", "output")
	addList(cmd, "agents")
	cmd.AddCommand(a.showAgentCmd(), a.setAgentCmd(), a.agentsTestCmd())
	return cmd
}

func (a *app) printAgents(agents []perdure.AgentView, now time.Time) error {
	tb := a.newTable()
	tb.head("AGENT", "AGEING", "HOLDERS", "GONE", "LATEST CLAIM", "RUNNING", "SLOTS", "READY", "OLDEST", "LAST HOUR")
	for i := range agents {
		v := &agents[i]
		if a.json() {
			if err := a.object(v); err != nil {
				return err
			}
			continue
		}
		tb.row(plain(v.Name), ageing(v), strconv.Itoa(v.Holders), strconv.Itoa(v.Gone), latestClaim(v, now),
			strconv.Itoa(v.Running), orDash(number(int64(v.Slots))), short(operate.Tally{N: v.Ready, Capped: v.ReadyCapped}), oldestReady(v, now),
			orDash(errorsText(&operate.AgentStats{Errors: v.Errors, Refused: v.Refused})))
	}
	if !a.json() {
		tb.print(a.out)
	}
	return nil
}

func ageing(v *perdure.AgentView) string {
	if time.Duration(v.Ageing) == perdure.DefaultAgeing {
		return "-"
	}
	return v.Ageing.String()
}

func oldestReady(v *perdure.AgentView, now time.Time) string {
	if v.OldestReady.IsZero() {
		return "-"
	}
	return span(max(now.Sub(v.OldestReady), 0))
}

func latestClaim(v *perdure.AgentView, now time.Time) string {
	if v.SeenAt.IsZero() {
		return "-"
	}
	return span(max(now.Sub(v.SeenAt), 0)) + " ago"
}

func (a *app) printAgent(v *perdure.AgentView) error {
	if a.json() {
		return a.object(v)
	}
	head := "priorities are strict"
	if time.Duration(v.Ageing) != perdure.DefaultAgeing {
		head = fmt.Sprintf("a level of priority is a head start of %s", v.Ageing)
	}
	if v.Patience != 0 && time.Duration(v.Patience) != perdure.DefaultPatience {
		head += fmt.Sprintf("; steps reserve hosts after %s", v.Patience)
	}
	now := time.Now()
	a.printf("%s: %s; %s, latest claim %s\n", plain(v.Name), head, plural(v.Holders, "holder"), latestClaim(v, now))
	defer a.printHealth(v.Health)
	if v.AsOf.IsZero() {
		return nil
	}
	ready := short(operate.Tally{N: v.Ready, Capped: v.ReadyCapped}) + " ready"
	if !v.OldestReady.IsZero() {
		ready += ", oldest " + oldestReady(v, now)
	}
	a.printf("%d running, %s in %s; %s; as of %s ago\n", v.Running, plural(v.Slots, "slot"), plural(v.Nodes, "node"), ready, span(max(now.Sub(v.AsOf), 0)))
	if text := errorsText(&operate.AgentStats{Errors: v.Errors, Refused: v.Refused}); text != "" {
		a.printf("last hour: %s\n", text)
	}
	return nil
}

// printHealth prints how the latest runs of the holders have ended.
func (a *app) printHealth(all []perdure.HolderHealth) {
	if len(all) == 0 {
		return
	}
	tb := a.newTable()
	tb.head("HOLDER", "RUNS", "DONE", "MEAN", "WEIGHT")
	for _, h := range all {
		weight := strconv.FormatFloat(h.Weight, 'g', 3, 64)
		if h.Weight < 1 {
			weight = a.st.bad(weight)
		}
		tb.row(plain(h.Holder), strconv.Itoa(h.Runs), strconv.Itoa(h.Done), span(time.Duration(h.MeanDuration)), weight)
	}
	tb.print(a.out)
}

func (a *app) showAgentCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show an agent", Long: `Shows the settings of an agent, and the holders that claim its runs.`, Example: "  perdure agents show payments -o json",
		Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := t.GetAgent(ctx, args[0])
				if err != nil {
					return err
				}
				return a.printAgent(v)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) setAgentCmd() *cobra.Command {
	head, patience := duration(perdure.DefaultAgeing), duration(perdure.DefaultPatience)
	cmd := &cobra.Command{
		Use: "set NAME", Aliases: []string{"put"}, Short: "Change the settings of an agent",
		Long: `Sets the ageing of an agent for steps that become ready afterwards: 1s to 10 years (3650d), which is
the default. Sets its patience, which takes effect at once: how long a step waits for room on a host
before it reserves one, 1s to 30d. The default is 1m. Settings that are not given stay.`,
		Example: "  perdure agents set payments --ageing 10m\n  perdure agents set payments --ageing 3650d\n  perdure agents set exec --patience 2m",
		Args:    argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			aged, patient := cmd.Flags().Changed("ageing"), cmd.Flags().Changed("patience")
			if !aged && !patient {
				return &usageError{msg: "there is nothing to set", hint: "--ageing 10m"}
			}
			if d := time.Duration(head); d < perdure.MinAgeing || d > perdure.DefaultAgeing {
				return usagef("--ageing must be 1s to 3650d")
			}
			if d := time.Duration(patience); d < perdure.MinPatience || d > perdure.MaxPatience {
				return usagef("--patience must be 1s to 30d")
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				settings := perdure.AgentSettings{Ageing: perdure.Duration(head), Patience: perdure.Duration(patience)}
				if !aged || !patient {
					switch was, err := t.GetAgent(ctx, args[0]); {
					case perdure.CodeOf(err) == perdure.CodeNotFound:
					case err != nil:
						return err
					case !aged:
						settings.Ageing = was.Ageing
					default:
						settings.Patience = was.Patience
					}
				}
				v, err := t.PutAgent(asAuthor(ctx), args[0], settings)
				if err != nil {
					return err
				}
				return a.printAgent(v)
			})
		},
	}
	cmd.Flags().Var(&head, "ageing", "head start that one level of priority gives")
	cmd.Flags().Var(&patience, "patience", "time that a step waits for room before it reserves a host")
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) completeAgent(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	if len(args) == 0 {
		a.ask(cmd, func(ctx context.Context, t *target) error {
			agents, err := t.ListAgents(ctx)
			for i := range agents {
				words = append(words, plain(agents[i].Name)+"\t"+plural(agents[i].Holders, "holder"))
			}
			return err
		})
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
