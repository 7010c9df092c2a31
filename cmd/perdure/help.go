package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/columns"
)

// helpWidth is the width of help in columns.
const helpWidth = 80

// storeOnly annotates flags that have an effect only if the command opens a store, and not if it calls a server. Help
// lists them apart.
const storeOnly = "perdure.storeOnly"

func onlyWithStore(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		_ = cmd.Flags().SetAnnotation(name, storeOnly, []string{"true"})
	}
}

func init() {
	cobra.AddTemplateFunc("wrappedFlags", func(f *pflag.FlagSet) string { return strings.TrimRight(f.FlagUsagesWrapped(helpWidth), "\n") })
	cobra.AddTemplateFunc("localFlags", localFlags)
}

// localFlags returns the usage of a command's own flags in two groups.
func localFlags(cmd *cobra.Command) string {
	own, store := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[storeOnly] != nil {
			store.AddFlag(f)
		} else {
			own.AddFlag(f)
		}
	})
	text := strings.TrimRight(own.FlagUsagesWrapped(helpWidth), "\n")
	if store.HasFlags() {
		text += "\n\nFlags that have an effect only with --store:\n" + strings.TrimRight(store.FlagUsagesWrapped(helpWidth), "\n")
	}
	return text
}

// wrapHelp wraps the texts of all commands to helpWidth.
func wrapHelp(cmd *cobra.Command) {
	cmd.Long = wrapText(cmd.Long, helpWidth)
	for _, c := range cmd.Commands() {
		wrapHelp(c)
	}
}

// helpTemplate is cobra's template with wrapped flags.
func helpTemplate(template string) string {
	return strings.NewReplacer(
		".LocalFlags.FlagUsages | trimTrailingWhitespaces", "localFlags .",
		".InheritedFlags.FlagUsages | trimTrailingWhitespaces", "wrappedFlags .InheritedFlags").Replace(template)
}

// wrapText breaks the lines of paragraphs at width. Indented lines stay as they are.
func wrapText(text string, width int) string {
	var out []string
	line := ""
	flush := func() {
		if line != "" {
			out = append(out, line)
		}
		line = ""
	}
	for l := range strings.SplitSeq(text, "\n") {
		if l == "" || l[0] == ' ' {
			flush()
			out = append(out, l)
			continue
		}
		for _, word := range strings.Fields(l) {
			if line != "" && columns.Of(line)+1+columns.Of(word) > width {
				flush()
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		if strings.HasSuffix(l, ":") { // a heading of indented lines
			flush()
		}
	}
	flush()
	return strings.Join(out, "\n")
}
