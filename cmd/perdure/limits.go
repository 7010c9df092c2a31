package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

func (a *app) limitsCmd() *cobra.Command {
	list := func(cmd *cobra.Command, _ []string) error {
		return a.withTarget(cmd, func(ctx context.Context, t *target) error {
			limits, err := t.ListLimits(ctx)
			if err != nil {
				return err
			}
			return a.printLimits(limits)
		})
	}
	cmd := &cobra.Command{
		Use: "limits", Aliases: []string{"limit"}, Short: "Bounds on what may be out at once: list, set, rm", Args: noArgs, RunE: list,
		Long: `Lists limits, and who holds their permits. job:TYPE bounds the jobs of a type that are under way,
agent:NAME the runs of an agent. A change takes hold at once: one that is lowered kills nothing, and
nothing is admitted above it.`,
		Example: "  perdure limits\n  perdure limits set agent:http 10\n  perdure limits rm job:order",
	}
	uses(cmd, "server", "store", "output")
	ls := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List limits and who holds their permits", Args: noArgs, RunE: list,
		Long: `Lists limits, how many of their permits are out, and who holds them.`, Example: "  perdure limits list -o json"}
	uses(ls, "server", "store", "output")
	cmd.AddCommand(ls, a.setLimitCmd(), a.removeLimitCmd())
	return cmd
}

func (a *app) printLimits(limits []perdure.LimitView) error {
	tb := table{st: a.st}
	tb.head("LIMIT", "MAX", "USED", "HELD BY")
	for i := range limits {
		l := &limits[i]
		if a.json() {
			if err := a.object(l); err != nil {
				return err
			}
			continue
		}
		var holders []string
		for _, h := range l.Holders[:min(len(l.Holders), 3)] {
			s := h.Job.String()
			if h.Step != "" {
				s += fmt.Sprintf("/%s/%d", plain(h.Step), h.Run)
			}
			holders = append(holders, s)
		}
		if len(l.Holders) > 3 {
			holders = append(holders, fmt.Sprintf("… (%d)", l.Used))
		}
		tb.row(plain(l.Name), strconv.Itoa(l.Max), strconv.Itoa(l.Used), strings.Join(holders, ", "))
	}
	if !a.json() {
		tb.print(a.out)
	}
	return nil
}

func (a *app) setLimitCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "set NAME MAX",
		Aliases:           []string{"put"},
		Short:             "Set a limit",
		Long:              `Sets how many may be out at once. 0 lets nothing out. NAME is job:TYPE or agent:NAME.`,
		Example:           "  perdure limits set agent:http 10\n  perdure limits set job:order 0",
		Args:              argsOf(2, 2, "NAME MAX"),
		ValidArgsFunction: a.completeLimit,
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 0 || n > perdure.MaxLimit {
				return usagef("MAX must be 0 to %d, not %q", perdure.MaxLimit, args[1])
			}
			if _, _, ok := kernel.SplitLimit(args[0]); !ok {
				return &usageError{msg: fmt.Sprintf("%q is not the name of a limit", args[0]), hint: "job:TYPE or agent:NAME"}
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				l, err := t.PutLimit(ctx, args[0], n)
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(l)
				}
				a.printf("%s: at most %d at once, %d now\n", plain(l.Name), l.Max, l.Used)
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) removeLimitCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm NAME",
		Aliases:           []string{"remove", "delete"},
		Short:             "Remove a limit",
		Long:              `Removes a limit: from now on nothing bounds what it bounded.`,
		Example:           "  perdure limits rm agent:http",
		Args:              argsOf(1, 1, "NAME"),
		ValidArgsFunction: a.completeLimit,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if err := t.DeleteLimit(ctx, args[0]); err != nil {
					return err
				}
				a.talk("limit %s is gone", args[0])
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output") // which is empty
	return cmd
}
