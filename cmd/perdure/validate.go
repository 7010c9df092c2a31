package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/operate"
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

With --server or --store it also prints warnings, on stderr, and the exit code stays 0: of agents that no
process runs, limits that are not set or too small, a job's deadline that is shorter than its longest
path, steps without an undo before a step that may cause the job to be undone, and a key that belongs to
another job. -o json prints them as part of the plan, with the steps, the longest path and the limits.
Nothing is stored.`,
		Example: `  perdure validate order.yaml
  perdure validate order.yaml --server http://localhost:7420
  perdure validate order.yaml --server http://localhost:7420 -o json
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
				if cmd.Flags().Changed("output") && a.json() {
					return &usageError{msg: "-o json prints a plan, which needs a server or a store", hint: "add --server URL or --store URL"}
				}
				return nil
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error { return a.foresee(ctx, t, docs) })
		},
		ValidArgsFunction: completeFiles,
	}
	uses(cmd, "server", "store", "output")
	input.register(cmd)
	return cmd
}

// plannedFile is a definition in a file, and what a job of it would do.
type plannedFile struct {
	File     string               `json:"file"`
	Document int                  `json:"document,omitempty"` // its number in the file, if the file has several
	Plan     operate.Plan         `json:"plan"`
	Existing *operate.ExistingJob `json:"existing,omitempty"`
}

// foresee prints the plan of each document, or the warnings of all.
func (a *app) foresee(ctx context.Context, t *target, docs []document) error {
	var warnings placedTexts
	for i := range docs {
		d := &docs[i]
		v, err := t.Validate(ctx, definition.Canonical(d.plan), mediaJSON)
		if err != nil {
			return err
		}
		if a.json() {
			out := plannedFile{File: d.file, Plan: v.Plan, Existing: v.Existing}
			if d.of > 1 {
				out.Document = d.nth
			}
			if err := a.object(&out); err != nil {
				return err
			}
			continue
		}
		for _, w := range v.Plan.Warnings {
			place := d.name()
			if w.Step != "" {
				place += ", step " + w.Step
			}
			warnings.add(w.Text, place)
		}
		if n := v.Plan.WarningsLeftOut; n > 0 {
			warnings.add(plural(n, "more warning"), d.name())
		}
		if v.Existing != nil && !v.Existing.Same {
			warnings.add("the key belongs to "+v.Existing.Job.String()+", which has another definition or input: a submission is refused", d.name())
		}
	}
	for _, text := range warnings.texts {
		fmt.Fprintf(a.err, "perdure: warning: %s (%s)\n", plain(text), plain(someOf(warnings.places[text])))
	}
	return nil
}

// placedTexts are texts with their places, in the order in which they came.
type placedTexts struct {
	texts  []string
	places map[string][]string // by text
}

func (p *placedTexts) add(text, place string) {
	if p.places == nil {
		p.places = map[string][]string{}
	}
	if p.places[text] == nil {
		p.texts = append(p.texts, text)
	}
	p.places[text] = append(p.places[text], place)
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
