package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agents/shell"
	"github.com/perdure/perdure/internal/kernel"
)

// agentFlags select the built-in agents.
type agentFlags struct {
	names   []string
	slots   []string
	env     []string
	private bool
	secrets string // directory
}

var (
	builtIn = []string{"http", "shell"}
	always  = []string{kernel.AgentSleep, kernel.AgentApproval, kernel.AgentSignal} // these are rules, not programs
)

// register adds the flags. In a process that runs the jobs of other users (serve, agent), the agent http does not reach
// this machine unless a flag allows it. In a process that runs its own user's jobs, it does.
func (f *agentFlags) register(cmd *cobra.Command, def string, private bool) {
	cmd.Flags().StringSliceVar(&f.names, "agents", strings.Split(def, ","), "`LIST` of built-in agents to run: http, shell; or none")
	cmd.Flags().StringSliceVar(&f.slots, "slots", nil, "`N` runs at a time for each agent, or NAME=N for one (repeatable)")
	cmd.Flags().StringSliceVar(&f.env, "shell-env", nil, "`NAMES` of further environment variables that programs of the agent shell inherit (repeatable)")
	cmd.Flags().BoolVar(&f.private, "allow-private-targets", private, "let the agent http and webhooks call loopback, link-local and this machine's own addresses, and metadata services")
	cmd.Flags().StringVar(&f.secrets, "secrets-dir", "", "`DIR` with a file NAME for each secret that is not in the environment")
	restricts(cmd, "slots")
	_ = cmd.MarkFlagDirname("secrets-dir")
	_ = cmd.RegisterFlagCompletionFunc("agents", cobra.FixedCompletions(append(slices.Clone(builtIn), "none"), cobra.ShellCompDirectiveNoFileComp))
}

// check refuses unknown names and invalid numbers.
func (f *agentFlags) check() error {
	for _, name := range f.names {
		name = strings.TrimSpace(name)
		switch {
		case name == "none" && len(f.names) > 1:
			return usagef("--agents: none goes alone")
		case name == "none", name == "", slices.Contains(builtIn, name), slices.Contains(always, name):
		default:
			u := &usageError{msg: fmt.Sprintf("--agents: there is no built-in agent %q", name), hint: "one or more of http, shell; or none"}
			if near := nearest(name, append(slices.Clone(builtIn), always...)); near != "" {
				u.hint = "did you mean " + near + "?"
			}
			return u
		}
	}
	if err := shell.CheckEnv(f.env); err != nil {
		return usagef("--shell-env: %v", err)
	}
	if f.secrets != "" {
		if info, err := os.Stat(f.secrets); err != nil || !info.IsDir() {
			return usagef("--secrets-dir %s: there is no such directory", f.secrets)
		}
	}
	for _, s := range f.slots {
		name, n, named := strings.Cut(s, "=")
		if !named {
			n = s
		} else if !slices.Contains(builtIn, name) {
			return usagef("--slots %s: there is no built-in agent %q", s, name)
		}
		if v, err := strconv.Atoi(n); err != nil || v < 1 || v > perdure.MaxBatch {
			return usagef("--slots %s: not a number of 1 to %d", s, perdure.MaxBatch)
		}
	}
	return nil
}

// programs returns the agents that run; none for "none".
func (f *agentFlags) programs() []string {
	var names []string
	for _, n := range f.names {
		if n = strings.TrimSpace(n); slices.Contains(builtIn, n) && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// all returns the agents as they are shown, with those that are always available.
func (f *agentFlags) all() []string { return append(f.programs(), always...) }

// slotsOf returns how many runs of an agent go on at once; 0 if no flag says so. A flag for one agent overrides the flag
// for all.
func (f *agentFlags) slotsOf(agent string) int {
	n, named := 0, false
	for _, s := range f.slots {
		name, count, ok := strings.Cut(s, "=")
		switch {
		case ok && name == agent:
			n, _ = strconv.Atoi(count)
			named = true
		case !ok && !named:
			n, _ = strconv.Atoi(s)
		}
	}
	return n
}
