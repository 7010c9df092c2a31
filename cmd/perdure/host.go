package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agents/exec"
	"github.com/perdure/perdure/internal/hostagent"
	values "github.com/perdure/perdure/internal/plain"
)

// hostOptions are the flags of perdure host.
type hostOptions struct {
	name, state, user  string
	slots              int
	cpu, memory        string
	capacity, labels   []string
	grid               string
	partition, account string
	commands, userMap  []string

	amounts              perdure.Amounts   // of cpu, memory and capacity
	labelled             map[string]string // labels
	allowRoot, noCgroups bool

	heartbeat, stopWithin, keep duration
	log                         logFlags
}

func (a *app) hostCmd() *cobra.Command {
	o := hostOptions{heartbeat: duration(hostagent.DefaultHeartbeat), stopWithin: duration(perdure.DefaultStopWithin), keep: duration(hostagent.DefaultKeep)}
	cmd := &cobra.Command{
		Use:   "host --state DIR",
		Short: "Run the commands of steps of the agent exec on this machine",
		Long: `Claims runs of the agent exec from a node, and runs their commands. Each command has a small process
beside it, its keeper, which survives this one: after a restart, by hand, by a crash or by an upgrade,
"perdure host" with the same --state continues with the commands that run. If it does not come back, each
command is ended when its run expires, and the step runs elsewhere.

SIGTERM or SIGINT ends this process, and its commands go on. With systemd, set KillMode=process, and
Delegate=yes so that all processes of a command can be ended together.

As root it refuses to start, unless --user names the user of commands, --user-map those of jobs with certain
labels, or --allow-root is given. Linux only.`,
		Example: `  perdure host --state /var/lib/perdure --server http://perdure.internal:7420
  perdure host --state ~/perdure --name build-7 --slots 4
  perdure host --state /var/lib/perdure --user render --allow-commands render,/usr/bin/ffmpeg
  perdure host --state /var/lib/perdure --user-map labels.team=red:red,labels.team=blue:blue
  perdure host --state /var/lib/perdure --labels zone=a,gpu=l4 --capacity gpu=2 --memory 32GiB
  perdure host --state /shared/perdure --grid slurm --partition batch --slots 500 --heartbeat 10m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.runHost(cmd, o)
		},
	}
	uses(cmd, "server")
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "`NAME` of the host (default: this machine's name up to the first dot)")
	f.StringVar(&o.state, "state", "", "`DIR` that keeps what is needed after a restart; one for each host, on a local disk (with --grid slurm: on the shared one)")
	f.IntVar(&o.slots, "slots", hostagent.DefaultSlots, fmt.Sprintf("commands at a time, at most %d", hostagent.MaxSlots))
	f.StringVar(&o.cpu, "cpu", "", "`CPU` for commands, such as 8 or 1.5 (default: the processors of this machine)")
	f.StringVar(&o.memory, "memory", "", "`MEMORY` for commands, such as 32GiB (default: that of this machine)")
	f.StringSliceVar(&o.capacity, "capacity", nil, "further `NAME=COUNT` that steps may require, such as gpu=2 (repeatable)")
	f.StringSliceVar(&o.labels, "labels", nil, "`NAME=VALUE` that steps may require or prefer, such as zone=a (repeatable)")
	f.StringVar(&o.grid, "grid", "", "`GRID` to which the host belongs. With slurm, commands run as jobs of the Slurm cluster that this machine reaches, and --state is on a file system that the cluster shares")
	f.StringVar(&o.partition, "partition", "", "Slurm `PARTITION` (default: the cluster's)")
	f.StringVar(&o.account, "account", "", "Slurm `ACCOUNT` (default: the user's)")
	f.StringSliceVar(&o.commands, "allow-commands", nil, "the only `PROGRAMS` that may run, each as steps name it (default: any)")
	f.StringVar(&o.user, "user", "", "run commands as this `USER`; needs root")
	f.StringSliceVar(&o.userMap, "user-map", nil, "run commands of jobs with a label as another user, `labels.NAME=VALUE:USER` (repeatable; the first that matches counts, then --user; otherwise they are refused); needs root")
	f.BoolVar(&o.allowRoot, "allow-root", false, "run commands as root")
	f.BoolVar(&o.noCgroups, "no-cgroups", false, "use no cgroups, even where they could be created")
	f.Var(&o.heartbeat, "heartbeat", "promised interval of heartbeats; runs expire this long after the last one")
	f.Var(&o.stopWithin, "stop-within", "time between SIGTERM and SIGKILL for a command, at most half of --heartbeat")
	f.Var(&o.keep, "keep", "how long the directory of a run is kept after its report")
	o.log.register(cmd)
	restricts(cmd, "allow-commands", "user", "user-map")
	ownVariables(cmd, "host", "state", "keep", "slots")
	_ = cmd.MarkFlagDirname("state")
	return cmd
}

// check refuses values that cannot be meant.
func (o *hostOptions) check() error {
	if o.state == "" {
		return &usageError{msg: "--state is missing", hint: "a directory for this host alone, on a local disk: --state /var/lib/perdure"}
	}
	if o.name == "" {
		name, err := os.Hostname()
		if err != nil {
			return usagef("--name is missing, and this machine's name is not known: %v", err)
		}
		o.name, _, _ = strings.Cut(name, ".")
	}
	if err := values.CheckHostWord(o.name); err != nil {
		return &usageError{msg: fmt.Sprintf("the name %q of this host %v", o.name, err), hint: "--name NAME"}
	}
	heartbeat, stop := time.Duration(o.heartbeat), time.Duration(o.stopWithin)
	switch {
	case o.slots < 1 || o.slots > hostagent.MaxSlots:
		return usagef("--slots must be 1 to %d", hostagent.MaxSlots)
	case heartbeat < time.Second || heartbeat > time.Hour:
		return usagef("--heartbeat must be 1s to 1h")
	case stop <= 0 || stop > exec.MaxStopWithin:
		return usagef("--stop-within must be more than 0s, and at most %s", span(exec.MaxStopWithin))
	case o.grid != gridSlurm && (o.partition != "" || o.account != ""):
		return &usageError{msg: "--partition and --account are for Slurm", hint: "--grid slurm"}
	case o.grid == gridSlurm && (o.user != "" || len(o.userMap) > 0):
		return &usageError{msg: "--user, --user-map and --grid slurm exclude each other: jobs of Slurm have the user of this process", hint: "run perdure host as that user"}
	case 2*stop > heartbeat:
		return &usageError{msg: "--heartbeat must be at least twice --stop-within", hint: "a command is stopped so long before its run expires"}
	}
	return o.readAmounts()
}

// gridSlurm is the grid whose commands are jobs of Slurm.
const gridSlurm = "slurm"

// readAmounts reads the capacities and labels.
func (o *hostOptions) readAmounts() (err error) {
	if o.labelled, err = readLabels("--labels", o.labels); err != nil {
		return err
	}
	if o.amounts, err = readAmounts("--capacity", o.capacity); err != nil {
		return err
	}
	if n, given := o.amounts["slots"]; given {
		return &usageError{msg: "--capacity has slots, which have a flag of their own", hint: fmt.Sprintf("--slots %d", n)}
	}
	for _, one := range []struct{ name, text string }{{"cpu", o.cpu}, {"memory", o.memory}} {
		if one.text == "" {
			continue
		}
		if _, twice := o.amounts[one.name]; twice {
			return usagef("--%s and --capacity %s=… exclude each other", one.name, one.name)
		}
		if o.amounts[one.name], err = values.ParseAmount(one.name, one.text); err != nil {
			return usagef("--%s %s %v", one.name, one.text, err)
		}
	}
	return nil
}

// readAmounts reads amounts of a host from the command line.
func readAmounts(flag string, given []string) (perdure.Amounts, error) {
	amounts := perdure.Amounts{}
	for _, one := range given {
		name, text, found := strings.Cut(one, "=")
		_, twice := amounts[name]
		switch n, err := values.ParseAmount(name, text); {
		case !found || name == "":
			return nil, usagef("%s %s: not of the form NAME=AMOUNT, such as gpu=2", flag, one)
		case twice:
			return nil, usagef("%s %s: %s is given twice", flag, one, name)
		case err != nil:
			return nil, usagef("%s %s %v", flag, one, err)
		default:
			amounts[name] = n
		}
	}
	return amounts, nil
}
