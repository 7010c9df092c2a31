package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

func (a *app) definitionsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "definitions", Aliases: []string{"definition"}, Short: "Manage stored definitions: list, apply, show, promote, diff, rm", Args: noArgs,
		Long: `Lists the definitions that are stored under a name. Each version is immutable. NAME@VERSION is a
version, and NAME the current one: the first, until another is promoted. A submission names one in
place of a definition: {"definition": "order@7", "input": {…}}. Jobs keep the version that they
were made from.`,
		Example: "  perdure definitions\n  perdure definitions apply order.yaml --promote\n  perdure definitions show order@7\n  perdure definitions diff order order@7\n  perdure definitions promote order@7",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				var all []operate.DefinitionView
				for cursor := ""; ; {
					page, err := t.ListDefinitions(ctx, perdure.MaxListLimit, cursor)
					if err != nil {
						return err
					}
					all = append(all, page.Items...)
					if cursor = page.NextCursor; cursor == "" {
						return a.printDefinitions(all)
					}
				}
			})
		},
	}
	uses(cmd, "server", "store", "output")
	addList(cmd, "stored definitions")
	cmd.AddCommand(a.applyDefinitionCmd(), a.showDefinitionCmd(), a.promoteDefinitionCmd(), a.diffDefinitionCmd(), a.removeDefinitionCmd())
	return cmd
}

func (a *app) printDefinitions(all []operate.DefinitionView) error {
	tb := a.newTable()
	tb.head("NAME", "CURRENT", "LATEST", "CHANGED")
	for i := range all {
		v := &all[i]
		if a.json() {
			if err := a.object(v); err != nil {
				return err
			}
			continue
		}
		tb.row(plain(v.Name), strconv.Itoa(v.Current), strconv.Itoa(v.Latest), v.UpdatedAt.Local().Format(time.DateTime))
	}
	if !a.json() {
		tb.print(a.out)
	}
	return nil
}

// template reads one definition from a file, and returns its text as JSON and its type.
func (a *app) template(file string) (text []byte, typ string, err error) {
	src, err := readFile(file, a.in)
	if err != nil {
		return nil, "", err
	}
	text, err = new(definition.Compiler).CheckTemplate(src, definition.FormatOf(file), nil)
	if err != nil {
		return nil, "", a.refused(file, src, err)
	}
	var head struct{ Type string }
	err = json.Unmarshal(text, &head)
	return text, head.Type, err
}

func (a *app) applyDefinitionCmd() *cobra.Command {
	var name string
	var promote bool
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Store a definition as a new version", Args: argsOf(1, 1, "FILE"), ValidArgsFunction: completeFiles,
		Long: `Stores the definition in FILE under a name, which is its type if --name is not given, as a new version.
The same definition is the same version. The first version is the current one; --promote makes a
later one the current one. What depends on the input is checked with each submission. - is stdin.`,
		Example: "  perdure definitions apply order.yaml\n  perdure definitions apply order.yaml --name order-eu --promote",
		RunE: func(cmd *cobra.Command, args []string) error {
			text, typ, err := a.template(args[0])
			if err != nil {
				return err
			}
			if named, _ := given(cmd, "name"); !named {
				name = typ
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, created, err := t.PutDefinition(ctx, name, text, mediaJSON, author())
				if err == nil && promote && v.Current != v.Version {
					v, err = t.PromoteDefinition(ctx, name, v.Version, author())
				}
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(v)
				}
				state := "stored"
				if !created {
					state = "stored before"
				}
				a.printf("%s@%d %s; the current version is %d\n", plain(v.Name), v.Version, state, v.Current)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "store it under `NAME` (default: its type)")
	ownVariables(cmd, "definitions", "name")
	cmd.Flags().BoolVar(&promote, "promote", false, "make the version the current one")
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) showDefinitionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME[@VERSION]", Short: "Show a stored definition", Args: argsOf(1, 1, "NAME or NAME@VERSION"), ValidArgsFunction: a.completeDefinition,
		Long: `Prints a version of a definition, in JSON, and on stderr its versions. With -o json it prints one object
with both.`,
		Example: "  perdure definitions show order\n  perdure definitions show order@7 > order.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := t.GetDefinition(ctx, args[0])
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(v)
				}
				for _, version := range v.Versions {
					mark := ""
					if version.Version == v.Current {
						mark = ", current"
					}
					a.talk("%s@%d by %s at %s%s", plain(v.Name), version.Version, plain(version.Author), version.CreatedAt.Local().Format(time.DateTime), mark)
				}
				var b bytes.Buffer
				if err := json.Indent(&b, v.Definition, "", "  "); err != nil {
					return err
				}
				a.printf("%s\n", plainText(b.String()))
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

// plainText is plain for a text of several lines.
func plainText(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	return strings.Join(lines, "\n")
}

func (a *app) promoteDefinitionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "promote NAME@VERSION", Short: "Make a version the current one", Args: argsOf(1, 1, "NAME@VERSION"), ValidArgsFunction: a.completeDefinition,
		Long: `Makes a version the one that NAME means, for submissions from now on. Jobs that exist keep their
version. To go back, promote the earlier version.`,
		Example: "  perdure definitions promote order@7",
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := kernel.ParseDefinitionRef(args[0])
			if err != nil {
				return err
			}
			if ref.Version == 0 {
				return &usageError{msg: "promote needs a version", hint: "write NAME@VERSION, such as " + ref.Name + "@7"}
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := t.PromoteDefinition(ctx, ref.Name, ref.Version, author())
				if err != nil {
					return err
				}
				if a.json() {
					return a.object(v)
				}
				a.printf("%s is %s@%d now\n", plain(v.Name), plain(v.Name), v.Current)
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) diffDefinitionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff NAME[@VERSION] [NAME[@VERSION]]", Short: "Compare two versions of definitions", Args: argsOf(1, 2, "one or two of NAME or NAME@VERSION"), ValidArgsFunction: a.completeDefinition,
		Long: `Prints what differs in the second version: a line for each place, as a JSON Pointer, with + for what it
has in addition, - for what it lacks, and ~ for another value. With one argument, that is compared
with the latest version of its name.`,
		Example: "  perdure definitions diff order@6 order@7\n  perdure definitions diff order",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				from, err := t.GetDefinition(ctx, args[0])
				if err != nil {
					return err
				}
				other := from.Name + "@" + strconv.Itoa(from.Latest)
				if len(args) > 1 {
					other = args[1]
				}
				to, err := t.GetDefinition(ctx, other)
				if err != nil {
					return err
				}
				return a.printDifferences(from.Definition, to.Definition, fmt.Sprintf("%s@%d and %s@%d are the same", plain(from.Name), from.Version, plain(to.Name), to.Version))
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) removeDefinitionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm NAME[@VERSION]", Aliases: []string{"remove", "delete"}, Short: "Delete a version, or a definition with all of its versions", Args: argsOf(1, 1, "NAME or NAME@VERSION"), ValidArgsFunction: a.completeDefinition,
		Long: `Deletes a version, which must not be the current one; or, without a version, the definition with all of
its versions. Jobs that were made from it are kept as they are.`,
		Example: "  perdure definitions rm order@6\n  perdure definitions rm order",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				if err := t.DeleteDefinition(ctx, args[0], author()); err != nil {
					return err
				}
				a.talk("definition %s is deleted", args[0])
				return nil
			})
		},
	}
	uses(cmd, "server", "store", "output")
	return cmd
}

func (a *app) planCmd() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "plan FILE", Short: "Show how a definition differs from the stored one", Args: argsOf(1, 1, "FILE"), ValidArgsFunction: completeFiles,
		Long: `Compares the definition in FILE with the current version of the stored one, and stores nothing. The name
is the type of the definition, if --name is not given. Each line is a place, as a JSON Pointer, with +
for what FILE has in addition, - for what it lacks, and ~ for another value. - is stdin.`,
		Example: "  perdure plan order.yaml\n  perdure plan order.yaml --name order-eu@7",
		RunE: func(cmd *cobra.Command, args []string) error {
			text, typ, err := a.template(args[0])
			if err != nil {
				return err
			}
			if named, _ := given(cmd, "name"); !named {
				name = typ
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				v, err := t.GetDefinition(ctx, name)
				if perdure.CodeOf(err) == perdure.CodeNotFound {
					a.talk("there is no definition %s: perdure definitions apply would store version 1", plain(name))
					return a.printDifferences(nil, text, "")
				}
				if err != nil {
					return err
				}
				a.talk("compared with %s@%d", plain(v.Name), v.Version)
				return a.printDifferences(v.Definition, text, fmt.Sprintf("%s and %s@%d are the same", plain(args[0]), plain(v.Name), v.Version))
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "compare with the definition `NAME` or NAME@VERSION (default: its type)")
	ownVariables(cmd, "definitions", "name")
	uses(cmd, "server", "store", "output")
	return cmd
}

// difference is a place in which two definitions differ.
type difference struct {
	Pointer string          `json:"pointer"`
	From    json.RawMessage `json:"from,omitempty"`
	To      json.RawMessage `json:"to,omitempty"`
}

// printDifferences prints a line for each difference, and same if there is none.
func (a *app) printDifferences(from, to json.RawMessage, same string) error {
	list := differences(from, to)
	for i := range list {
		d := &list[i]
		switch {
		case a.json():
			if err := a.object(d); err != nil {
				return err
			}
		case d.From == nil:
			a.printf("+ %s: %s\n", plain(d.Pointer), fit(plain(string(d.To)), maxCauseShown))
		case d.To == nil:
			a.printf("- %s: %s\n", plain(d.Pointer), fit(plain(string(d.From)), maxCauseShown))
		default:
			a.printf("~ %s: %s → %s\n", plain(d.Pointer), fit(plain(string(d.From)), maxCauseShown/2), fit(plain(string(d.To)), maxCauseShown/2))
		}
	}
	if len(list) == 0 {
		a.talk("%s", same)
	}
	return nil
}

// differences compares two definitions in JSON; nil: there is none. Lists are compared as a whole.
func differences(from, to json.RawMessage) (list []difference) {
	var walk func(pointer string, from, to json.RawMessage)
	walk = func(pointer string, from, to json.RawMessage) {
		if bytes.Equal(from, to) {
			return
		}
		x, isObject := members(from)
		y, bothAre := members(to)
		if bothAre = bothAre && isObject; !bothAre && (pointer != "" || from != nil) {
			list = append(list, difference{pointer, from, to})
			return
		}
		names := slices.Collect(maps.Keys(x))
		for name := range y {
			if x[name] == nil {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			escaped := strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
			walk(pointer+"/"+escaped, x[name], y[name])
		}
	}
	walk("", from, to)
	return list
}

// members returns the members of an object.
func members(value json.RawMessage) (m map[string]json.RawMessage, ok bool) {
	if len(value) == 0 || value[0] != '{' || json.Unmarshal(value, &m) != nil {
		return nil, false
	}
	return m, true
}

func (a *app) completeDefinition(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	a.ask(cmd, func(ctx context.Context, t *target) error {
		page, err := t.ListDefinitions(ctx, perdure.MaxListLimit, "")
		if err != nil {
			return err
		}
		for i := range page.Items {
			words = append(words, plain(page.Items[i].Name))
		}
		return nil
	})
	return words, cobra.ShellCompDirectiveNoFileComp
}
