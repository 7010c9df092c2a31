package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/lead"
	"github.com/perdure/perdure/operate"
)

func (a *app) leadCmd() *cobra.Command {
	var (
		ttl    = duration(10 * time.Second)
		stop   duration
		holder string
	)
	cmd := &cobra.Command{
		Use:   "lead NAME -- COMMAND [ARG...]",
		Short: "Run a command while this process leads a role",
		Long: `Waits until it leads the role NAME, runs the command, and exits with its code; 128 and a number if a
signal has ended it, 127 if there is no such command. Of all processes that lead NAME, one runs its
command at a time.

The command has PERDURE_ROLE and PERDURE_EPOCH in its environment, and an empty stdin. If the leadership
cannot be extended, the command gets TERM --stop-within before it ends, and KILL when it ends. On Linux it
is also killed if this process dies. It cannot be killed while this process is stopped, or the machine
is frozen: then it is killed when this process goes on. So it must send its epoch with what it writes,
and the receiver must refuse an epoch below one that it has seen.`,
		Example: `  perdure lead nightly-report -- ./report.sh
  perdure lead importer --ttl 30s --stop-within 10s -- ./importer --watch /var/spool/in`,
		Args: func(cmd *cobra.Command, args []string) error {
			flags := false // after the name they might be the command's
			cmd.Flags().Visit(func(*pflag.Flag) { flags = true })
			if dash := cmd.ArgsLenAtDash(); len(args) < 2 || dash != 1 && (dash >= 0 || flags) {
				return usagef("give the name of a role, then --, then the command")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := lead.Config{Role: args[0], Holder: holder, TTL: time.Duration(ttl), StopWithin: time.Duration(stop), Log: a.leadLog}
			if stop == 0 {
				c.StopWithin = c.TTL / 3
			}
			if c.Holder == "" {
				c.Holder = newHolder()
			}
			if err := kernel.CheckHeldRole(c.Role); err != nil {
				return err
			}
			switch {
			case c.TTL < operate.MinRoleTTL || c.TTL > operate.MaxRoleTTL:
				return usagef("--ttl is 2s to 5m")
			case c.StopWithin < 0 || c.StopWithin > c.TTL/2:
				return usagef("--stop-within is at most half of --ttl")
			}
			if err := operate.CheckRoleHolder(c.Holder); err != nil {
				return err
			}
			ctx, stop := a.interruptible(cmd.Context())
			defer stop()
			t, err := a.connect(cmd)
			if err != nil {
				return err
			}
			c.Roles, c.Command = t, exec.Command(args[1], args[2:]...)
			c.Command.Stdout, c.Command.Stderr = os.Stdout, os.Stderr
			code, err := lead.Run(ctx, c)
			switch {
			case lead.IsNotFound(err):
				complain(a.err, a.errSt, fmt.Errorf("%s: no such command", args[1]))
				err = exit(127)
			case err == nil:
				err = quietly(code)
			}
			return errors.Join(reason(ctx, err), t.close())
		},
	}
	uses(cmd, "server")
	f := cmd.Flags()
	f.Var(&ttl, "ttl", "for how long a leader leads after its last sign of life: 2s to 5m")
	f.Var(&stop, "stop-within", "time between TERM and KILL, at most half of --ttl (default: a third of it)")
	f.StringVar(&holder, "holder", "", "name of this `PROCESS`, never used by two at once (default: host, process and a number)")
	return cmd
}

// newHolder returns the name of this process.
func newHolder() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return host + "/" + strconv.Itoa(os.Getpid()) + "/" + hex.EncodeToString(b[:])
}

func (a *app) leadLog(message string, pairs ...any) {
	var b strings.Builder
	b.WriteString(message)
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&b, " %s=%s", pairs[i], plain(fmt.Sprint(pairs[i+1])))
	}
	a.talk("%s", b.String())
}

func (a *app) rolesCmd() *cobra.Command {
	list := func(cmd *cobra.Command, _ []string) error {
		return a.withTarget(cmd, func(ctx context.Context, t *target) error {
			all, err := t.ListRoles(ctx)
			if err != nil {
				return err
			}
			return a.printRoles(all, time.Now())
		})
	}
	cmd := &cobra.Command{
		Use: "roles", Short: "List roles and their leaders", Args: noArgs, RunE: list,
		Long: `Lists the roles of the nodes (kind node) and those that programs hold (kind held), with the leader, its
epoch, which grows with every new leader, and how long it leads unless its time is extended.`,
		Example: "  perdure roles\n  perdure roles -o json | jq -r 'select(.name == \"nightly\").leader'",
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) printRoles(all []operate.RoleState, now time.Time) error {
	tb := a.newTable()
	tb.head("NAME", "KIND", "EPOCH", "LEADER", "HOST", "FOR", "STANDBY", "HOST")
	for i := range all {
		r := &all[i]
		if a.json() {
			if err := a.object(r); err != nil {
				return err
			}
			continue
		}
		left := "-"
		if r.Leader != "" {
			left = span(max(r.Until.Sub(now), 0))
		}
		tb.row(plain(r.Name), string(r.Kind), strconv.FormatInt(r.Epoch, 10), orDash(plain(r.Leader)), orDash(plain(r.LeaderHost)), left,
			orDash(plain(r.Standby)), orDash(plain(r.StandbyHost)))
	}
	if !a.json() {
		tb.print(a.out)
	}
	return nil
}
