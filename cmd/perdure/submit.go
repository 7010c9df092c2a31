package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
)

func (a *app) submitCmd() *cobra.Command {
	var input inputFlags
	var wait waitFlags
	var labels []string
	var stored string
	cmd := &cobra.Command{
		Use:   "submit FILE…",
		Short: "Submit jobs to a node",
		Long: `Submits the jobs of all files and prints their ids, one a line. All definitions are validated first, and
none is submitted if one is invalid. - is stdin. The same key and definition is the same job; the same
key with another definition is a conflict (exit 8).

With --definition it submits a job of a stored definition ("perdure definitions"), with the input, key and
labels of the flags. The node checks them.

With --wait or --timeout it follows the jobs to rest and exits by their state.`,
		Example: `  perdure submit order.yaml
  JOB=$(perdure submit order.yaml -i sku=tea-12)
  perdure submit order.yaml --label customer=c-77 --label batch=2026-11
  perdure submit --definition order@7 -i sku=tea-12
  perdure submit order.yaml --wait --timeout 5m`,
		Args: func(cmd *cobra.Command, files []string) error {
			if stored != "" && len(files) > 0 {
				return usagef("give either files or --definition")
			}
			if stored != "" {
				return nil
			}
			return argsOf(1, -1, "one or more files")(cmd, files)
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			added, err := readLabels("--label", labels)
			if err != nil {
				return err
			}
			var docs []document
			var body []byte
			if stored != "" {
				docs = []document{{file: stored, nth: 1, of: 1}}
				body, err = storedSubmission(stored, input, added, a.in)
			} else if docs, err = a.load(files, input); err == nil {
				err = addLabels(docs, added)
			}
			if err != nil {
				return err
			}
			return a.withActor(cmd, &wait, func(ctx context.Context, t *target) error {
				jobs, refused := a.submitAll(ctx, docs, func(ctx context.Context, d *document) (*perdure.JobView, string, error) {
					if stored == "" {
						body = definition.Canonical(d.plan)
					}
					v, created, err := t.Submit(ctx, body, mediaJSON)
					if created {
						return v, "submitted", err
					}
					return v, "submitted before", err
				})
				if !wait.asked(t) {
					return worse(a.printSubmitted(jobs), refused)
				}
				if len(jobs) == 0 {
					return refused
				}
				err := a.drive(ctx, t, jobs, a.displayFor(), drainGrace)
				return worse(a.finish(t, jobs, err, watchCommand(jobs, t)), refused)
			})
		},
	}
	uses(cmd, "server", "store", "output", "timeout")
	input.register(cmd)
	wait.register(cmd)
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "add the label `NAME=VALUE` to the labels of each definition (repeatable)")
	cmd.Flags().StringVar(&stored, "definition", "", "submit a job of the stored definition `NAME` or NAME@VERSION, in place of files")
	restricts(cmd, "definition")
	_ = cmd.RegisterFlagCompletionFunc("label", a.completeLabel)
	_ = cmd.RegisterFlagCompletionFunc("definition", a.completeDefinition)
	cmd.ValidArgsFunction = completeFiles
	return cmd
}

// storedSubmission returns the body that submits a job of a stored definition.
func storedSubmission(name string, input inputFlags, labels map[string]string, stdin io.Reader) ([]byte, error) {
	if _, err := kernel.ParseDefinitionRef(name); err != nil {
		return nil, err
	}
	set, err := input.read(stdin)
	if err != nil {
		return nil, err
	}
	body := map[string]any{"definition": name}
	if len(set) > 0 {
		body["input"] = set
	}
	if len(labels) > 0 {
		body["labels"] = labels
	}
	if input.key != "" {
		body["key"] = strings.ReplaceAll(input.key, "${", "$${") // it is no expression
	}
	return json.Marshal(body)
}

// readLabels reads labels from the command line.
func readLabels(flag string, args []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, usagef("%s %q: not of the form NAME=VALUE", flag, arg)
		}
		if before, given := labels[name]; given && before != value {
			return nil, usagef("%s %s is given twice, with the values %q and %q", flag, name, before, value)
		}
		labels[name] = value
	}
	return labels, nil
}

// addLabels adds labels to each definition. A label that the definition has with another value is refused.
func addLabels(docs []document, labels map[string]string) error {
	if len(labels) == 0 {
		return nil
	}
	for i := range docs {
		d := &docs[i]
		merged := maps.Clone(labels)
		for name, value := range d.plan.Definition.Labels {
			if added, given := labels[name]; given && added != value {
				return &usageError{msg: fmt.Sprintf("--label %s=%s: %s has %s=%s", name, added, d.name(), name, value), hint: "change the file, or leave out this --label"}
			}
			merged[name] = value
		}
		changed := *d.plan.Definition
		changed.Labels = merged
		plan := *d.plan
		plan.Definition = &changed
		plans, err := definition.Parse(definition.Canonical(&plan), definition.JSON, definition.Options{}) // checks the labels
		if err != nil {
			return usagef("--label: %s: %v", d.name(), err)
		}
		d.plan = plans[0]
	}
	return nil
}

// completeLabel suggests the labels of recent jobs.
func (a *app) completeLabel(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	words := map[string]bool{}
	a.ask(cmd, func(ctx context.Context, t *target) error {
		page, err := t.ListJobs(ctx, perdure.JobQuery{Limit: perdure.DefaultListLimit})
		if err != nil {
			return err
		}
		for i := range page.Items {
			for name, value := range page.Items[i].Labels {
				words[plain(name+"="+value)] = true
			}
		}
		return nil
	})
	return slices.Sorted(maps.Keys(words)), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) printSubmitted(jobs []*tracker) error {
	for _, t := range jobs {
		if a.json() {
			if err := a.object(&t.view); err != nil {
				return err
			}
			continue
		}
		a.talk("%s %s: %s", plain(t.view.Type), t.name(), t.note)
		a.printf("%s\n", t.view.ID)
	}
	return nil
}
