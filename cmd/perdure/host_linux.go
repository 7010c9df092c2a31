package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/agents/exec"
	"github.com/perdure/perdure/internal/hostagent"
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/internal/slurm"
)

func (a *app) runHost(cmd *cobra.Command, o hostOptions) error {
	as, err := o.commandUser(os.Geteuid())
	if err != nil {
		return err
	}
	users, err := o.labelUsers()
	if err != nil {
		return err
	}
	defer a.unblock()()
	ctx, stop := a.interruptible(cmd.Context())
	defer stop()
	log := a.serviceLogger(o.log)
	c, err := a.reach(ctx, log)
	if c == nil || err != nil {
		return err
	}
	if err := c.MayServe(ctx, exec.Name); err != nil {
		return err
	}
	var cluster *slurm.Cluster
	if o.grid == gridSlurm {
		if cluster = (&slurm.Cluster{Partition: o.partition, Account: o.account}); !slurm.Installed() {
			return &usageError{msg: "this machine has no commands of Slurm (sbatch, squeue, scancel)", hint: "install Slurm's client, or leave out --grid slurm"}
		}
	}
	registered := func() {
		if a.jsonLog {
			log.Info("host registered", "host", o.name, "slots", o.slots, "server", shownServers(a.server))
		} else {
			a.talk("host %s with %s for %s", o.name, plural(o.slots, "slot"), shownServers(a.server))
		}
	}
	h, err := hostagent.Open(hostagent.Config{Registered: registered, Capacity: o.amounts, Labels: o.labelled, Grid: o.grid, Slurm: cluster, Exchange: c, Hosts: c, Logs: c, Artifacts: c, Version: version, Name: o.name, State: o.state, Slots: o.slots, Commands: o.commands, User: as, Users: users, NoCgroups: o.noCgroups,
		StopWithin: time.Duration(o.stopWithin), Heartbeat: time.Duration(o.heartbeat), Keep: time.Duration(o.keep), Log: log})
	if err != nil {
		return err
	}
	defer h.Close()
	err = h.Run(ctx)
	if n := h.Left(); n > 0 {
		if a.jsonLog {
			log.Info("commands go on without this process", "host", o.name, "commands", n, "action", fmt.Sprintf("start this host again within %s, or its runs expire, and its commands are ended", span(time.Duration(o.heartbeat))))
		} else {
			a.talk("%s: start this host again within %s, or the runs expire, and the commands are ended", goOn(n), span(time.Duration(o.heartbeat)))
		}
	}
	if !errors.Is(err, hostagent.ErrRemoved) {
		return err
	}
	if a.jsonLog {
		log.Info("host removed", "host", o.name, "action", "to register it as a new host, start perdure host again")
	} else {
		a.talk("host %s was removed (perdure hosts rm), and this process ends; start it again to register it as a new host", o.name)
	}
	return nil
}

// goOn says that n commands go on.
func goOn(n int) string {
	if n == 1 {
		return "1 command goes on"
	}
	return fmt.Sprintf("%d commands go on", n)
}

// commandUser returns the user of commands; nil for the user of this process.
func (o *hostOptions) commandUser(uid int) (*exec.User, error) {
	switch {
	case o.user != "" && o.allowRoot:
		return nil, usagef("--user and --allow-root exclude each other")
	case len(o.userMap) > 0 && o.allowRoot:
		return nil, usagef("--user-map and --allow-root exclude each other")
	case len(o.userMap) > 0 && uid != 0:
		return nil, &usageError{msg: "--user-map needs root", hint: "run a perdure host as each of the users instead, with labels that steps require"}
	case o.user == "" && len(o.userMap) > 0:
		return nil, nil
	case o.user == "" && uid == 0 && !o.allowRoot:
		return nil, &usageError{msg: "this process is root, and every job could run commands as root", hint: "run it as another user, or name the user of commands: --user NAME; --allow-root if root is meant"}
	case o.user == "":
		return nil, nil
	case uid != 0:
		return nil, &usageError{msg: "--user needs root", hint: "run perdure host as that user instead"}
	}
	return lookUp("--user", o.user)
}

// labelUsers returns the users of --user-map.
func (o *hostOptions) labelUsers() (users []exec.UserOfLabel, err error) {
	for _, one := range o.userMap {
		rest, prefixed := strings.CutPrefix(one, "labels.")
		label, rest, hasValue := strings.Cut(rest, "=")
		at := strings.LastIndex(rest, ":")
		if !prefixed || !hasValue || label == "" || at < 1 || at == len(rest)-1 {
			return nil, usagef("--user-map %s: not of the form labels.NAME=VALUE:USER, such as labels.team=red:render", one)
		}
		of := exec.UserOfLabel{Label: label, Value: rest[:at]}
		if of.User, err = lookUp("--user-map", rest[at+1:]); err != nil {
			return nil, err
		}
		users = append(users, of)
	}
	return users, nil
}

func lookUp(flag, name string) (*exec.User, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, &usageError{msg: fmt.Sprintf("%s %s: %v", flag, name, err), hint: "name a user of this machine (getent passwd), or create it: useradd --system " + quoted(name)}
	}
	return credential(u)
}

func credential(u *user.User) (*exec.User, error) {
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	group, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of user %s: %w", u.Username, err)
	}
	as := &exec.User{User: keeper.User{UID: uint32(id), GID: uint32(group)}, Home: u.HomeDir}
	for _, g := range groups {
		n, err := strconv.ParseUint(g, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("groups of user %s: %w", u.Username, err)
		}
		as.Groups = append(as.Groups, uint32(n))
	}
	return as, nil
}
