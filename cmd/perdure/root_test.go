package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/lead"
)

func TestEveryCommandIsDocumented(t *testing.T) {
	root := new(app).tree()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			if c.Name() == "completion" || c.Hidden { // cobra's own
				continue
			}
			if c.Short == "" || c.Long == "" || c.Example == "" && c.Name() != "help" {
				t.Errorf("%s: without Short, Long or Example", c.CommandPath())
			}
			if strings.HasSuffix(c.Short, ".") || len(c.Short) > 70 {
				t.Errorf("%s: Short is a phrase of at most 70 letters: %q", c.CommandPath(), c.Short)
			}
			if c.Args == nil && c.Name() != "help" {
				t.Errorf("%s: says nothing of its arguments", c.CommandPath())
			}
			c.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if has := strings.Contains(f.Usage, "$"+variableOf(f)); has != (f.Name != "help" && f.Annotations[noVariableKey] == nil) {
					t.Errorf("%s --%s: its variable is in the help: %t", c.CommandPath(), f.Name, has)
				}
			})
			visit(c)
		}
	}
	visit(root)
}

// eachFlag calls fn for each flag that is read from a variable.
func eachFlag(fn func(*cobra.Command, *pflag.Flag)) {
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && f.Annotations[noVariableKey] == nil {
				fn(cmd, f)
			}
		})
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(new(app).tree())
}

// A variable has the same type, and the same kind of value, in all commands that read it.
func TestEachVariableHasOneMeaning(t *testing.T) {
	kinds := []string{"FILE", "JSON", "TIME", "STEP=DURATION"} // what the help calls the values of texts that cannot stand for each other
	type meaning struct{ of, command string }
	met := map[string]meaning{}
	eachFlag(func(cmd *cobra.Command, f *pflag.Flag) {
		of := f.Value.Type()
		if of == "JSON" { // settle --output takes the formats of other commands, too
			of = "word"
		} else if kind, _ := pflag.UnquoteUsage(f); slices.Contains(kinds, kind) {
			of += " " + kind
		}
		v := variableOf(f)
		if was, is := met[v]; is && was.of != of {
			t.Errorf("%s is %s for %s, and %s for %s: see ownVariables", v, was.of, was.command, of, cmd.CommandPath())
		}
		met[v] = meaning{of, cmd.CommandPath()}
	})
	for _, v := range []string{"PERDURE_HOST_STATE", "PERDURE_HOST_KEEP", "PERDURE_HOST_SLOTS", "PERDURE_AGENTS_TEST_TIME", "PERDURE_EDIT_INPUT", "PERDURE_RESUME_INPUT"} {
		if met[v].of == "" {
			t.Errorf("no flag has %s", v)
		}
	}
}

// What Perdure hands to programs sets no flag of a perdure that they call.
func TestVariablesOfProgramsSetNoFlags(t *testing.T) {
	handed := []string{"PERDURE_KEY", "PERDURE_RUN", "PERDURE_JOB", "PERDURE_STEP", "PERDURE_DIRECTION", "PERDURE_REMAINING_MS", "PERDURE_DO_KEY", "PERDURE_PROGRESS", "PERDURE_HANDLE",
		lead.EnvRole, lead.EnvEpoch}
	for _, name := range handed {
		t.Setenv(name, "1")
	}
	eachFlag(func(cmd *cobra.Command, f *pflag.Flag) {
		if slices.Contains(handed, variableOf(f)) && lookupEnv(f) != "" {
			t.Errorf("%s --%s is read from %s", cmd.CommandPath(), f.Name, variableOf(f))
		}
	})
}

// An empty variable counts as one that is not set, except for a flag that selects or restricts.
func TestEmptyVariablesAreNotSet(t *testing.T) {
	n := 0
	eachFlag(func(cmd *cobra.Command, f *pflag.Flag) {
		if f.Annotations[filterKey] != nil {
			return
		}
		n++
		was := f.Value.String()
		t.Setenv(variableOf(f), "")
		if err := fromEnv(f); err != nil || f.Value.String() != was {
			t.Errorf("%s=: %s --%s is %q: %v", variableOf(f), cmd.CommandPath(), f.Name, f.Value, err)
		}
		if is, _ := given(cmd, f.Name); is {
			t.Errorf("%s=: --%s of %s counts as given", variableOf(f), f.Name, cmd.CommandPath())
		}
	})
	if n < 100 {
		t.Errorf("%d flags", n)
	}
}

// The environment of a step is no settings: PERDURE_KEY there is the run's key.
func TestAStepsEnvironmentSetsNoFlags(t *testing.T) {
	t.Setenv("PERDURE_KEY", "job_1/charge/1")
	if lookupEnv(&pflag.Flag{Name: "key"}) == "" {
		t.Error("outside of a step PERDURE_KEY sets --key")
	}
	t.Setenv("PERDURE_RUN", "1")
	if got := lookupEnv(&pflag.Flag{Name: "key"}); got != "" {
		t.Errorf("inside of a step --key is %q", got)
	}
}
