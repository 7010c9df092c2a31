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
		Short:      "Say what is wrong with definitions; silent when they are fine",
		Long: `Reads all documents of all files and says of each fault where it is (FILE:LINE:COL) and how to mend
it, on stderr, exit 2. When all is fine it says nothing and exits 0. - is stdin. It needs no server
and no store.

With --server or --store it also warns of limits that steps name and that are not set there. Such a
limit bounds nothing. A warning is on stderr, too, and the exit code is 0.`,
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

// warnOfLimits warns of limits that steps name and that are not set.
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
		delete(needed, l.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		steps := needed[name]
		text := strings.Join(steps[:min(len(steps), maxStepsNamed)], "; ")
		if more := len(steps) - maxStepsNamed; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		fmt.Fprintf(a.err, "perdure: warning: limit %s is not set, and bounds nothing (%s)\n  hint: perdure limits set %s MAX\n", plain(name), plain(text), plain(name))
	}
	return nil
}

// maxStepsNamed is how many steps a warning names.
const maxStepsNamed = 3

func (a *app) schemaCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of definitions",
		Long:    `Prints the JSON Schema that editors complete and check definitions by.`,
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
