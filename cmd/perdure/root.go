package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// app is one execution of the program.
type app struct {
	globals
	in      io.Reader
	out     *printer // the results
	err     io.Writer
	tty     *os.File // stdout if it is a terminal, else nil
	st      style    // of stdout
	errSt   style    // of stderr
	started bool     // the flags are parsed: later errors are not usage errors
	helpErr error    // --help after the name of a command that does not exist
	jsonLog bool     // --log-format json: everything on stderr is JSON, one object a line
}

func run(args []string, in io.Reader, stdout, stderr *os.File) int {
	// With a handler, a write to a broken pipe returns an error, which printer ignores. (If the signal were ignored, the
	// shell agent's programs would inherit that.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	a := &app{in: in, out: &printer{w: stdout}, err: stderr}
	if term.IsTerminal(int(stdout.Fd())) {
		a.tty = stdout
	}
	root := a.tree()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(a.out)
	root.SetErr(stderr)

	a.errSt = styleFor("auto", stderr)
	ran, err := root.ExecuteContextC(context.Background())
	if err == nil {
		err = a.helpErr
	}
	var known *usageError
	if err != nil && !a.started && !errors.As(err, &known) {
		err = asUsage(ran, err)
	}
	if err == nil && a.out.failed() {
		err = fmt.Errorf("writing the result: %w", a.out.err)
	}
	if !a.started && logsJSON(root, args) {
		a.jsonLog = true
	}
	if a.jsonLog {
		a.logFailure(err)
	} else {
		complain(stderr, a.errSt, err)
	}
	return codeOf(err)
}

// asUsage splits cobra's error into what is wrong and how to mend it.
func asUsage(cmd *cobra.Command, err error) error {
	msg, rest, _ := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	u := &usageError{msg: msg, hint: fmt.Sprintf("see %q", cmd.CommandPath()+" --help")}
	if near := strings.Fields(rest); len(near) > 0 {
		u.hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return u
}

const rootHelp = `Perdure brings every accepted job to an end: all of its steps done, or all of them undone, whatever
process dies meanwhile.

  perdure run FILE        run a job in this process, with an SQLite file
  perdure serve           run a node for other processes
  perdure submit FILE     submit a job to a node

JOB is an id, a unique start of an id, a key, or @latest. Every flag has an environment variable, except
the filters of acts; flags have precedence. Commands that take --server and --store call the server,
unless a store is named: then they open the store. PERDURE_SERVER has precedence over PERDURE_STORE.

` + exitHelp

func (a *app) tree() *cobra.Command {
	root := &cobra.Command{
		Use:               "perdure",
		Short:             "A durable job orchestrator: every job ends done or undone",
		Long:              rootHelp,
		SilenceErrors:     true,
		SilenceUsage:      true, // Args stays nil: then cobra refuses an unknown command before it answers --help and --version
		Version:           buildVersion(),
		PersistentPreRunE: a.begin,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("perdure {{.Version}}\n")
	root.SetFlagErrorFunc(unknownFlag)
	a.register(root.PersistentFlags())
	uses(root)

	group := func(id, title string, cmds ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range cmds {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("jobs", "Jobs:", a.runCmd(), a.submitCmd(), a.execCmd(), a.getCmd(), a.listCmd(), a.watchCmd(), a.historyCmd(), a.logsCmd(), a.graphCmd(), a.validateCmd(), a.simulateCmd(), a.planCmd())
	group("acts", "Operator commands:", a.undoCmd(), a.redoCmd(), a.resumeCmd(), a.settleCmd(), a.skipCmd(), a.editCmd(), a.stopCmd(), a.approveCmd(), a.rejectCmd(), a.signalCmd(), a.giveUpCmd(),
		a.topCmd(), a.bulkCmd(), a.alertsCmd(), a.limitsCmd(), a.definitionsCmd(), a.agentsCmd(), a.artifactsCmd(), a.schedulesCmd(), a.webhooksCmd())
	group("access", "Access:", a.tokensCmd(), a.auditCmd())
	group("nodes", "Nodes and stores:", a.serveCmd(), a.agentCmd(), a.hostCmd(), a.leadCmd(), a.nodesCmd(), a.hostsCmd(), a.rolesCmd(), a.checkCmd(), a.sweepCmd(), a.migrateCmd(), a.fenceCmd(), a.chaosCmd())
	group("other", "Other:", a.schemaCmd(), a.versionCmd())
	root.SetCompletionCommandGroupID("other")
	root.SetHelpCommand(helpCmd())
	root.SetHelpCommandGroupID("other")
	root.CompletionOptions.DisableDescriptions = false
	root.AddCommand(cancelCmd())
	root.InitDefaultCompletionCmd("completion")
	if c, _, err := root.Find([]string{"completion"}); err == nil && c != root {
		c.Args, c.RunE = noArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}

	a.wrap(root)
	documentEnv(root)
	wrapHelp(root)
	root.SetUsageTemplate(helpTemplate(root.UsageTemplate()))
	defineHelp(root)
	a.customizeHelp(root)
	return root
}

// begin runs after the flags are parsed, before any command.
func (a *app) begin(cmd *cobra.Command, _ []string) error {
	if err := settleFlags(cmd); err != nil {
		return err
	}
	if f := cmd.Flags().Lookup("log-format"); f != nil {
		a.jsonLog = f.Value.String() == "json"
	}
	a.st = style{}
	if a.tty != nil || a.color == "always" {
		a.st = styleFor(a.color, a.tty)
	}
	if f, ok := a.err.(*os.File); ok {
		a.errSt = styleFor(a.color, f)
	}
	return nil
}

// wrap records that a command has started, so that its errors are not taken for usage errors.
func (a *app) wrap(cmd *cobra.Command) {
	if inner := cmd.RunE; inner != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.started = true
			return inner(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		a.wrap(c)
	}
}

// defineHelp defines --help before cobra searches for the command: cobra would take "limits" in "--help limits" for the
// value of an unknown flag.
func defineHelp(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	for _, c := range cmd.Commands() {
		defineHelp(c)
	}
}

// customizeHelp refuses help for a command that does not exist, and hides flags in a command's help that the command
// refuses. Cobra answers --help before it checks arguments, and a help function cannot return an error.
func (a *app) customizeHelp(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			if a.helpErr = noArgs(cmd, cmd.Flags().Args()); a.helpErr != nil {
				return
			}
		}
		for _, name := range append([]string{"server", "store", "output", "timeout"}, ofServer...) {
			root.PersistentFlags().Lookup(name).Hidden = cmd != root && !takes(cmd, name)
		}
		help(cmd, args)
	})
}

// noArgs refuses arguments, which are probably a misspelled command.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2 // cobra's default, which SuggestionsFor does not set by itself
	u := &usageError{msg: fmt.Sprintf("unknown command %q for %q", shownArg(args[0]), cmd.CommandPath()), hint: fmt.Sprintf("see %q", cmd.CommandPath()+" --help")}
	if !cmd.HasSubCommands() {
		u.msg = fmt.Sprintf("%q takes no arguments, but there is %q", cmd.CommandPath(), shownArg(args[0]))
	} else if near := similar(args[0], cmd.SuggestionsFor(args[0])); len(near) > 0 {
		u.hint = "did you mean " + strings.Join(near, " or ") + "?"
	} else if show, _, err := cmd.Find([]string{"show"}); err == nil && show != cmd {
		u.hint = fmt.Sprintf("did you mean %s %s?", show.CommandPath(), shownArg(args[0]))
	}
	return u
}

// similar returns the suggestions that are similar to a word. Those of cobra differ in two letters at most, as all words of two
// letters do.
func similar(word string, suggestions []string) []string {
	return slices.DeleteFunc(suggestions, func(s string) bool { return len(word) <= 2 && !strings.ContainsAny(s, word) })
}

// argsOf checks the number of arguments, and names those that are expected.
func argsOf(low, high int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || high >= 0 && len(args) > high {
			return &usageError{
				msg:  fmt.Sprintf("%q takes %s; there are %d arguments", cmd.CommandPath(), what, len(args)),
				hint: cmd.UseLine(),
			}
		}
		own := args
		if words, command := argWords(cmd); command { // its arguments may be empty, but not its name
			own = args[:min(len(args), len(words))]
		}
		if i := slices.IndexFunc(own, blank); i >= 0 {
			return emptyArg(cmd, len(args), i)
		}
		return nil
	}
}

// argWords returns the names of the arguments, as the usage of the command has them. command reports whether the last one is
// that of a command after --.
func argWords(cmd *cobra.Command) (words []string, command bool) {
	use, after, command := strings.Cut(cmd.Use, " -- ")
	if !command {
		use, _, _ = strings.Cut(use, " --")
	}
	for _, word := range strings.Fields(use)[1:] {
		if word != "[flags]" {
			words = append(words, word)
		}
	}
	if command {
		words = append(words, strings.Fields(after)[0])
	}
	return words, command
}

// emptyArg refuses an argument that is empty, probably because a variable of the shell is not set.
func emptyArg(cmd *cobra.Command, n, i int) error {
	words, command := argWords(cmd)
	word := words[min(i, len(words)-1)]
	if step := cmd.Flags().Lookup("step"); !command && n > len(words) || step != nil && step.Changed {
		word = words[0] // there are several JOBs
	}
	u := &usageError{msg: strings.Trim(word, "[]…") + " is empty", hint: cmd.UseLine()}
	if word[0] == '[' {
		u.hint = "leave it out, or quote a value"
	}
	return u
}

// helpCmd is cobra's, except for the exit code of an unknown topic.
func helpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		Long:  "Prints what a command does, with its flags, their variables and examples.",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			if at, _, err := cmd.Root().Find(args); err == nil {
				for _, c := range at.Commands() {
					if c.IsAvailableCommand() {
						names = append(names, c.Name()+"\t"+c.Short)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err // run adds the suggestion
			}
			if err := noArgs(topic, rest); err != nil {
				return err
			}
			return topic.Help()
		},
	}
}

func cancelCmd() *cobra.Command {
	return &cobra.Command{
		Use: "cancel", Aliases: []string{"abort", "kill", "park"}, Hidden: true, DisableFlagParsing: true,
		Short: "Says what to use instead",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &usageError{
				msg:  fmt.Sprintf("there is no %q: the word means several things", cmd.CalledAs()),
				hint: `did you mean "perdure undo" (take back what was done), "perdure stop" (end the run of a step) or "perdure give-up" (leave the job as it is, and close it)?`,
			}
		},
	}
}
