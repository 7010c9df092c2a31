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

// The variables of perdure host have the same type as those of other commands.
func TestVariablesOfAHost(t *testing.T) {
	types := map[string]string{}
	host := new(app).tree()
	host, _, err := host.Find([]string{"host"})
	if err != nil {
		t.Fatal(err)
	}
	host.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { types[variableOf(f)] = f.Value.Type() })
	if types["PERDURE_HOST_STATE"] == "" || types["PERDURE_HOST_KEEP"] == "" || types["PERDURE_HOST_SLOTS"] == "" {
		t.Errorf("%v", types)
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if of := types[variableOf(f)]; of != "" && of != f.Value.Type() && f.Annotations[noVariableKey] == nil {
				t.Errorf("%s is %s for perdure host, and %s for %s", variableOf(f), of, f.Value.Type(), cmd.CommandPath())
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
