package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// A variable that sets flags of several commands has values of one type.
func TestVariablesHaveOneType(t *testing.T) {
	types := map[string]string{}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			name := variableOf(f)
			switch was := types[name]; {
			case f.Name == "help" || f.Annotations[noVariableKey] != nil:
			case was == "":
				types[name] = f.Value.Type()
			case was != f.Value.Type():
				t.Errorf("%s is %s for %s, and %s for another command", name, f.Value.Type(), cmd.CommandPath(), was)
			}
		})
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(new(app).tree())
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
