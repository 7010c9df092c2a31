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

func (a *app) hostsCmd() *cobra.Command {
	var q operate.HostQuery
	var state string
	cmd := &cobra.Command{
		Use: "hosts", Short: "Manage hosts: list, show, drain, ready, remove", Args: noArgs,
		Long: `Lists the hosts that carry out runs: their state, labels and capacity, how much of it is in use, the
number of their runs, and when they were last seen.

A host is ready, or it is drained by an operator: draining while it has runs, then drained. A host
that did not register again in time is silent. "no space" is a ready host that can take nothing at present, because
its state directory is full.`,
		Example: "  perdure hosts\n  perdure hosts --state silent\n  perdure hosts show h1\n  perdure hosts drain h1 --deadline 10m --wait",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := knownWord("state", state, operate.Texts(operate.HostStates)); err != nil {
				return err
			}
			q.State, q.Limit = operate.HostState(state), perdure.MaxListLimit
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				var all []operate.HostView
				for q.Cursor = ""; ; {
					page, err := t.ListHosts(ctx, q)
					if err != nil {
						return err
					}
					all = append(all, page.Items...)
					if q.Cursor = page.NextCursor; q.Cursor == "" {
						return a.printHosts(all, time.Now())
					}
				}
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Grid, "grid", "", "list hosts of this `GRID`")
	f.StringVar(&state, "state", "", "list hosts in this `STATE`: ready, draining, drained or silent")
	f.StringVar(&q.Label, "label", "", "list hosts with this `LABEL`: NAME or NAME=VALUE")
	ownVariables(cmd, "hosts", "label")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(operate.Texts(operate.HostStates), cobra.ShellCompDirectiveNoFileComp))
	uses(cmd, "server", "store", "output")
	addList(cmd, "hosts")
	cmd.AddCommand(a.showHostCmd(), a.drainHostCmd(), a.readyHostCmd(), a.removeHostCmd())
	return cmd
}

func (a *app) printHosts(all []operate.HostView, now time.Time) error {
	tb := a.newTable()
	tb.head("HOST", "STATE", "GRID", "LABELS", "USED", "RUNS", "VERSION", "SEEN")
	for i := range all {
		v := &all[i]
		if a.json() {
			if err := a.object(v); err != nil {
				return err
			}
			continue
		}
		state := string(v.State)
		switch {
		case v.State == operate.HostSilent:
			state = a.st.bad(state)
		case v.NoSpace && v.State == operate.HostReady:
			state = a.st.bad("no space")
		}
		tb.row(plain(v.Name), state, orDash(plain(v.Grid)), orDash(plain(labelsText(v.Labels))), orDash(usedText(v)), strconv.Itoa(v.Runs), orDash(plain(v.Version)), span(max(now.Sub(v.SeenAt), 0))+" ago")
	}
	if !a.json() {
		tb.print(a.out)
	}
	return nil
}

func labelsText(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, name+"="+labels[name])
	}
	return strings.Join(list, " ")
}

// usedText returns how much of each amount of a host is in use, such as "cpu 2/8".
func usedText(v *operate.HostView) string {
	list := make([]string, 0, len(v.Capacity))
	for _, name := range slices.Sorted(maps.Keys(v.Capacity)) {
		list = append(list, fmt.Sprintf("%s %s/%s", plain(name), amountText(name, v.Used[name]), amountText(name, v.Capacity[name])))
	}
	return strings.Join(list, ", ")
}

func (a *app) printHost(v *operate.HostView) error {
	if a.json() {
		return a.object(v)
	}
	now := time.Now()
	if err := a.printHosts([]operate.HostView{*v}, now); err != nil {
		return err
	}
	if d := v.Drain; d != nil {
		line := "drained by " + plain(d.Author)
		if d.Reason != "" {
			line += " (" + plain(d.Reason) + ")"
		}
		switch {
		case v.Runs == 0:
			line += "; it has no runs"
		case d.By.After(now):
			line += "; its runs may go on for another " + span(d.By.Sub(now)) + ", and are stopped then"
		default:
			line += "; its runs are stopped"
		}
		a.printf("%s\n", line)
	}
	if v.NoSpace {
		a.printf("it has no space in its state directory, and gets no runs until there is some; see perdure alerts\n")
	}
	if r := v.Reservation; r != nil {
		a.printf("reserved for %s/%s since %s, for another %s at most\n", r.Job, plain(r.Step), span(max(now.Sub(r.Since), 0)), span(max(r.Until.Sub(now), 0)))
	}
	if len(v.InFlight) == 0 {
		return nil
	}
	tb := a.newTable()
	tb.head("JOB", "STEP", "RUN", "AGENT", "TAKES", "SINCE")
	for _, r := range v.InFlight {
		takes := make([]string, 0, len(r.Requires.Amounts))
		for _, name := range slices.Sorted(maps.Keys(r.Requires.Amounts)) {
			takes = append(takes, plain(name)+" "+amountText(name, r.Requires.Amounts[name]))
		}
		tb.row(r.Job.String(), plain(r.Step), strconv.FormatInt(r.Run, 10), plain(r.Agent), strings.Join(takes, ", "), span(max(now.Sub(r.StartedAt), 0)))
	}
	tb.print(a.out)
	return nil
}

func (a *app) showHostCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show a host and its runs", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeHost,
		Long: `Shows the state of a host, how much of its capacity is in use, and its runs.`, Example: "  perdure hosts show h1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := t.GetHost(ctx, args[0])
				if err != nil {
					return err
				}
				return a.printHost(v)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

// drainPoll is the time between two looks at a host that is drained with --wait.
const drainPoll = 500 * time.Millisecond

func (a *app) drainHostCmd() *cobra.Command {
	d, deadline, wait := operate.HostDrain{}, duration(operate.DefaultDrain), false
	cmd := &cobra.Command{
		Use: "drain NAME", Short: "Drain a host", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeHost,
		Long: `Drains a host: it gets no more runs, and its runs may end until the deadline. With --wait the command
ends when the host has no runs. It goes on waiting while the server is unreachable, for a minute. If
--timeout has passed or the command is interrupted, the drain goes on. "perdure hosts ready" ends it.`,
		Example: "  perdure hosts drain h1\n  perdure hosts drain h1 --deadline 30m --wait --reason \"kernel update\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			d.Name, d.Author, d.Deadline = args[0], author(), time.Duration(deadline)
			if err := d.Check(); err != nil {
				return err
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				ctx, cancel := a.bounded(ctx)
				defer cancel()
				v, err := t.DrainHost(ctx, d)
				if err == nil && wait {
					v, err = a.awaitDrained(ctx, t, v)
				}
				if err != nil {
					return reason(ctx, err)
				}
				return a.printHost(v)
			})
		},
	}
	f := cmd.Flags()
	f.Var(&deadline, "deadline", "how long the runs of the host may go on")
	f.StringVar(&d.Reason, "reason", "", "`WHY`, for other operators and the audit log")
	f.BoolVar(&wait, "wait", false, "wait until the host has no runs")
	uses(cmd, "server", "store", "output", "timeout")
	return cmd
}

// awaitDrained waits until a host that is drained has no runs.
func (a *app) awaitDrained(ctx context.Context, t *target, v *operate.HostView) (*operate.HostView, error) {
	name := v.Name
	var lost time.Time
	for v.Runs > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(drainPoll):
		}
		now, err := t.GetHost(ctx, name)
		switch {
		case ctx.Err() != nil:
			a.talk("%v: the drain of host %s goes on", context.Cause(ctx), name)
			a.talk("  look:    perdure hosts show %s%s", name, t.where)
			a.talk("  end it:  perdure hosts ready %s%s", name, t.where)
			return nil, exit(codeOf(context.Cause(ctx)))
		case err == nil && now.Drain == nil:
			return nil, perdure.Refuse(perdure.CodeConflict, "the drain of host %s was ended by perdure hosts ready", name)
		case err == nil:
			v, lost = now, time.Time{}
		case !a.retries(err, &lost):
			return nil, err
		}
	}
	return v, nil
}

func (a *app) readyHostCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ready NAME", Short: "End the drain of a host", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeHost,
		Long: `Ends the drain of a host: it gets runs again.`, Example: "  perdure hosts ready h1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := t.ReadyHost(ctx, args[0], author())
				if err != nil {
					return err
				}
				return a.printHost(v)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) removeHostCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove", "delete"}, Short: "Remove a host", Args: argsOf(1, 1, "NAME"), ValidArgsFunction: a.completeHost,
		Long: `Removes a host that is silent or drained, and has no runs. If its "perdure host" still runs, it learns of
that within 10 seconds, and exits with 0. Started again, it registers the host as a new one.`,
		Example: "  perdure hosts rm h1\n  perdure hosts drain h1 --deadline 10m --wait && perdure hosts rm h1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if err := t.DeleteHost(ctx, args[0], author()); err != nil {
					return err
				}
				a.talk("host %s is removed", args[0])
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

// amountText is operate.AmountText for tables: memory of more than a GiB has one decimal.
func amountText(name string, n int64) string {
	const gib = 1 << 30
	switch {
	case name == "memory" && n == 0:
		return "0"
	case name == "memory" && n > gib && n%gib != 0:
		return strconv.FormatFloat(float64(n)/gib, 'f', 1, 64) + "GiB"
	}
	return operate.AmountText(name, n)
}
