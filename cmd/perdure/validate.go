package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
)

func (a *app) validateCmd() *cobra.Command {
	var input inputFlags
	cmd := &cobra.Command{
		Use:        "validate FILE…",
		SuggestFor: []string{"lint", "verify"},
		Short:      "Show the faults of definitions; print nothing if there are none",
		Long: `Reads all documents of all files and prints each fault with its place (FILE:LINE:COL) and how to correct
it, on stderr, with exit code 2. If there are none it prints nothing and exits 0. - is stdin. It needs
no server and no store.

With --server or --store it also warns of limits that steps name and that are not set there (such a
limit bounds nothing) or too small for a step. Warnings are on stderr, and the exit code is 0.`,
		Example: `  perdure validate order.yaml
  perdure validate order.yaml --server http://localhost:7420
  generate | perdure validate -`,
		Args: argsOf(1, -1, "one or more files"),
		RunE: func(cmd *cobra.Command, files []string) error {
			docs, err := a.load(files, input)
			if err != nil {
				return err
			}
			server, _ := given(cmd, "server")
			store, _ := given(cmd, "store")
			if !server && !store {
				return nil
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error { return a.warnOfLimits(ctx, t, docs) })
		},
		ValidArgsFunction: completeFiles,
	}
	uses(cmd, "server", "store")
	input.register(cmd)
	return cmd
}

// warnOfLimits warns about limits that steps name and that are not defined, or that are too small for a step.
func (a *app) warnOfLimits(ctx context.Context, svc perdure.Operations, docs []document) error {
	needed := map[string][]string{} // steps by limit
	for _, d := range docs {
		for _, s := range d.plan.Definition.Steps {
			for _, l := range s.Limits {
				if name := d.name() + ", step " + s.Name; !slices.Contains(needed[l.Name], name) {
					needed[l.Name] = append(needed[l.Name], name)
				}
			}
		}
	}
	if len(needed) == 0 {
		return nil
	}
	limits, err := svc.ListLimits(ctx)
	if err != nil {
		return err
	}
	for _, l := range limits {
		if _, named := needed[l.Name]; named {
			a.warnOfAmounts(l, docs)
		}
		delete(needed, l.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		fmt.Fprintf(a.err, "perdure: warning: limit %s is not set, and bounds nothing (%s)\n  hint: perdure limits set %s MAX\n", plain(name), plain(someOf(needed[name])), plain(name))
	}
	return nil
}

// warnOfAmounts warns about steps that need more permits than a limit has.
func (a *app) warnOfAmounts(l perdure.LimitView, docs []document) {
	var large []string
	for _, d := range docs {
		for _, s := range d.plan.Definition.Steps {
			all, ofKey := 0, 0
			for _, use := range s.Limits {
				if amount := max(use.Amount, 1); use.Name == l.Name {
					if all += amount; use.Key != "" {
						ofKey = max(ofKey, amount)
					}
				}
			}
			if l.Max != nil && all > *l.Max && *l.Max > 0 || l.PerKey != nil && ofKey > l.PerKey.Max && l.PerKey.Max > 0 {
				large = append(large, fmt.Sprintf("%s, step %s", d.name(), s.Name))
			}
		}
	}
	if len(large) > 0 {
		fmt.Fprintf(a.err, "perdure: warning: limit %s is too small for what these need of it: they would wait until it is raised (%s)\n", plain(l.Name), plain(someOf(large)))
	}
}

// someOf lists the first of some steps.
func someOf(steps []string) string {
	text := strings.Join(steps[:min(len(steps), maxStepsNamed)], "; ")
	if more := len(steps) - maxStepsNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// maxStepsNamed is how many steps a warning lists.
const maxStepsNamed = 3

func (a *app) schemaCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of definitions",
		Long:    `Prints the JSON Schema with which editors complete and check definitions.`,
		Example: "  perdure schema > job.schema.json\n  # and as a file's first line: # yaml-language-server: $schema=./job.schema.json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.printf("%s\n", jobSchema())
			return nil
		},
	}
	uses(cmd)
	return cmd
}
