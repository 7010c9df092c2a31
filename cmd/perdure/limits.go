package main

import (
	"context"
	"errors"
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
		Use: "limits", Aliases: []string{"limit"}, Short: "Manage concurrency limits: list, set, rm", Args: noArgs, RunE: list,
		Long: `Lists limits and the holders of their permits. job:TYPE bounds the jobs of a type that are under way, and
agent:NAME the runs of an agent. Any other name is a limit of your own: it bounds the runs of the steps
that name it in their "limits", in all (MAX), with the same key (--per-key), or both. A change takes
effect at once: if a limit is lowered, runs in flight continue, and nothing is admitted above it.`,
		Example: "  perdure limits\n  perdure limits set agent:http 10\n  perdure limits set ads-api 50 --per-key 2\n  perdure limits rm job:order",
	}
	uses(cmd, "server", "store", "output")
	ls := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List limits and the holders of their permits", Args: noArgs, RunE: list,
		Long: `Lists limits, how many of their permits are held, and by which jobs.`, Example: "  perdure limits list -o json"}
	uses(ls, "server", "store", "output")
	cmd.AddCommand(ls, a.setLimitCmd(), a.removeLimitCmd())
	return cmd
}

func (a *app) printLimits(limits []perdure.LimitView) error {
	tb := a.newTable()
	tb.head("LIMIT", "MAX", "PER KEY", "USED", "HELD BY")
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
			if h.Key != "" {
				s += " (" + plain(h.Key) + ")"
			}
			holders = append(holders, s)
		}
		if len(l.Holders) > 3 {
			holders = append(holders, fmt.Sprintf("… (%d)", l.Used))
		}
		most, perKey := "", ""
		if l.Max != nil {
			most = strconv.Itoa(*l.Max)
		}
		if l.PerKey != nil {
			perKey = strconv.Itoa(l.PerKey.Max)
		}
		tb.row(plain(l.Name), most, perKey, strconv.Itoa(l.Used), strings.Join(holders, ", "))
	}
	if !a.json() {
		tb.print(a.out)
	}
	return nil
}

func (a *app) setLimitCmd() *cobra.Command {
	perKey := 0
	cmd := &cobra.Command{
		Use:     "set NAME [MAX]",
		Aliases: []string{"put"},
		Short:   "Set a limit",
		Long: `Sets how many permits may be held at a time; 0 stops all work. NAME is job:TYPE, agent:NAME, or a name of
your own that steps name in their "limits". MAX bounds all permits, and --per-key those with the same
key. A bound that is omitted is removed.`,
		Example:           "  perdure limits set agent:http 10\n  perdure limits set job:order 0\n  perdure limits set ads-api 50 --per-key 2\n  perdure limits set ads-api --per-key 2",
		Args:              argsOf(1, 2, "NAME [MAX]"),
		ValidArgsFunction: a.completeLimit,
		RunE: func(cmd *cobra.Command, args []string) error {
			var settings perdure.LimitSettings
			if len(args) > 1 {
				n, err := strconv.Atoi(args[1])
				if err != nil || n < 0 || n > perdure.MaxLimit {
					return usagef("MAX must be 0 to %d, not %q", perdure.MaxLimit, args[1])
				}
				settings.Max = &n
			}
			if set, _ := given(cmd, "per-key"); set {
				if perKey < 0 || perKey > perdure.MaxLimit {
					return usagef("--per-key must be 0 to %d, not %d", perdure.MaxLimit, perKey)
				}
				settings.PerKey = &perdure.KeyLimit{Max: perKey}
			}
			if _, err := kernel.LimitOf(args[0], settings); err != nil {
				return limitUsage(args[0], settings, err)
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				l, err := t.PutLimit(asAuthor(ctx), args[0], settings)
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(l)
				}
				var bounds []string
				if l.Max != nil {
					bounds = append(bounds, fmt.Sprintf("at most %d at once", *l.Max))
				}
				if l.PerKey != nil {
					bounds = append(bounds, fmt.Sprintf("at most %d at once with the same key", l.PerKey.Max))
				}
				a.printf("%s: %s, %d now\n", plain(l.Name), strings.Join(bounds, ", "), l.Used)
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&perKey, "per-key", 0, "most permits with the same key at a time")
	uses(cmd, "server", "store", "output")
	return cmd
}

// limitUsage translates the error for an invalid limit into terms of the command line.
func limitUsage(name string, settings perdure.LimitSettings, err error) error {
	if settings.Max == nil && settings.PerKey == nil {
		return &usageError{msg: fmt.Sprintf("limit %s has no bound", name), hint: "give MAX, --per-key, or both"}
	}
	e := &perdure.Error{}
	if errors.As(err, &e) {
		return &usageError{msg: e.Message, hint: e.Hint}
	}
	return err
}

func (a *app) removeLimitCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm NAME",
		Aliases:           []string{"remove", "delete"},
		Short:             "Remove a limit",
		Long:              `Removes a limit. Steps that name it are not bounded any more.`,
		Example:           "  perdure limits rm agent:http",
		Args:              argsOf(1, 1, "NAME"),
		ValidArgsFunction: a.completeLimit,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if err := t.DeleteLimit(asAuthor(ctx), args[0]); err != nil {
					return err
				}
				a.talk("limit %s is gone", args[0])
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output") // an empty store
	return cmd
}
