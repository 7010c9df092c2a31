package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func (a *app) agentsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "agents", Short: "Manage agents' settings: list, show, set, rm", Args: noArgs,
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
	cmd.AddCommand(a.showAgentCmd(), a.setAgentCmd(), a.rmAgentCmd(), a.agentsTestCmd())
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
	if v.FairBy != "" {
		head += "; fair by " + plain(v.FairBy)
	}
	now := time.Now()
	a.printf("%s: %s; %s, latest claim %s\n", plain(v.Name), head, plural(v.Holders, "holder"), latestClaim(v, now))
	defer a.printShares(v)
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

// printShares prints the shares that go first, and the weights of others.
func (a *app) printShares(v *perdure.AgentView) {
	if len(v.Shares)+len(v.Weights) == 0 {
		return
	}
	tb := a.newTable()
	tb.head("SHARE", "WEIGHT", "AHEAD", "READY")
	shown := map[string]bool{}
	for _, s := range v.Shares {
		shown[s.Value] = true
		tb.row(plain(s.Value), strconv.Itoa(s.Weight), strconv.FormatFloat(s.Ahead, 'f', -1, 64), short(operate.Tally{N: s.Ready, Capped: s.ReadyCapped}))
	}
	for _, value := range slices.Sorted(maps.Keys(v.Weights)) {
		if !shown[value] {
			tb.row(plain(value), strconv.Itoa(v.Weights[value]), "-", "-")
		}
	}
	tb.print(a.out)
}

func (a *app) rmAgentCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove", "delete"}, Short: "Remove the settings of an agent",
		Long: `Removes the settings of an agent, which then has the defaults. Steps that are ready keep their place.`, Example: "  perdure agents rm payments",
		Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if err := t.DeleteAgent(asAuthor(ctx), args[0]); err != nil {
					return err
				}
				a.talk("the settings of agent %s are gone", args[0])
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
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
	var fairBy string
	var weights []string
	head, patience := duration(perdure.DefaultAgeing), duration(perdure.DefaultPatience)
	cmd := &cobra.Command{
		Use: "set NAME", Aliases: []string{"put"}, Short: "Change the settings of an agent",
		Long: `Sets the ageing of an agent for steps that become ready afterwards: 1s to 10 years (3650d), which is
the default. Sets its patience, which takes effect at once: how long a step waits for room on a host
before it reserves one, 1s to 30d. The default is 1m. Settings that are not given stay.

--fair-by divides the ready steps into shares, by an expression of the job: job.labels.NAME, job.type,
job.key, or one made of these. Runs are dispatched from the shares in turn, so that jobs of one share do
not wait behind those of another. --weight VALUE=N gives a share N times the runs of one with weight 1;
N is 1 to 1,000, and 1 removes a weight. --fair-by "" removes the shares and their weights.`,
		Example: "  perdure agents set ads --fair-by job.labels.customer --weight gold=4\n  perdure agents set payments --ageing 10m\n  perdure agents set payments --ageing 3650d\n  perdure agents set exec --patience 2m",
		Args:    argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			aged, patient := cmd.Flags().Changed("ageing"), cmd.Flags().Changed("patience")
			fair, weighted := cmd.Flags().Changed("fair-by"), cmd.Flags().Changed("weight")
			given, err := readWeights(weights)
			if err != nil {
				return err
			}
			if !aged && !patient && !fair && !weighted {
				return &usageError{msg: "there is nothing to set", hint: "--ageing 10m"}
			}
			if d := time.Duration(head); d < perdure.MinAgeing || d > perdure.DefaultAgeing {
				return usagef("--ageing must be 1s to 3650d")
			}
			if d := time.Duration(patience); d < perdure.MinPatience || d > perdure.MaxPatience {
				return usagef("--patience must be 1s to 30d")
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				settings := perdure.AgentSettings{Ageing: perdure.Duration(perdure.DefaultAgeing), Patience: perdure.Duration(perdure.DefaultPatience)}
				switch was, err := t.GetAgent(ctx, args[0]); {
				case perdure.CodeOf(err) == perdure.CodeNotFound:
				case err != nil:
					return err
				default:
					settings = was.AgentSettings
				}
				if aged {
					settings.Ageing = perdure.Duration(head)
				}
				if patient {
					settings.Patience = perdure.Duration(patience)
				}
				if fair {
					settings.FairBy = fairBy
				}
				settings.Weights = mergeWeights(settings.Weights, given)
				if fair && fairBy == "" {
					settings.Weights = given
				}
				v, err := t.PutAgent(asAuthor(ctx), args[0], settings)
				if err != nil {
					return err
				}
				return a.printAgent(v)
			})
		},
	}
	cmd.Flags().StringVar(&fairBy, "fair-by", "", "expression of the job whose values are the shares")
	cmd.Flags().StringArrayVar(&weights, "weight", nil, "VALUE=N: weight of a share; can be repeated")
	cmd.Flags().Var(&head, "ageing", "head start that one level of priority gives")
	cmd.Flags().Var(&patience, "patience", "time that a step waits for room before it reserves a host")
	uses(cmd, "server", "store", "output")
	return cmd
}

// readWeights reads weights such as gold=4.
func readWeights(texts []string) (weights map[string]int, err error) {
	for _, text := range texts {
		at := strings.LastIndexByte(text, '=')
		if at <= 0 {
			return nil, &usageError{msg: "--weight " + plain(text) + " is not VALUE=N", hint: "--weight gold=4"}
		}
		n, err := strconv.Atoi(text[at+1:])
		if err != nil || n < 1 || n > perdure.MaxFairWeight {
			return nil, usagef("--weight %s: a weight is 1 to %d", plain(text), perdure.MaxFairWeight)
		}
		if weights == nil {
			weights = map[string]int{}
		}
		weights[text[:at]] = n
	}
	return weights, nil
}

// mergeWeights returns the weights with those that were given. A weight of 1 is that of every share, so it is left out.
func mergeWeights(was, given map[string]int) map[string]int {
	merged := maps.Clone(was)
	for value, n := range given {
		if merged == nil {
			merged = map[string]int{}
		}
		if merged[value] = n; n == 1 {
			delete(merged, value)
		}
	}
	return merged
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
