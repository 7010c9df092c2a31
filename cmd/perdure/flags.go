package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure"
)

const (
	defaultServer = "http://127.0.0.1:7420"
	defaultStore  = "sqlite:perdure.db"
	envPrefix     = "PERDURE_"
	usesKey       = "perdure.uses"
)

// globals are the flags that mean the same wherever they mean anything. A command names those that
// it uses; the others are refused there, so that no flag is silently without effect.
type globals struct {
	server  string
	store   string
	format  string
	color   string
	quiet   bool
	timeout duration
}

func (g *globals) register(fs *pflag.FlagSet) {
	fs.StringVar(&g.server, "server", defaultServer, "`URL` of a node")
	fs.StringVar(&g.store, "store", defaultStore, "`URL` of the store: sqlite:FILE or postgres://…")
	fs.VarP(&choice{&g.format, []string{"text", "json"}}, "output", "o", "`FORMAT` of results: text, or json (one object a line)")
	fs.Var(&choice{&g.color, []string{"auto", "always", "never"}}, "color", "`WHEN` to use color: auto, always, never (NO_COLOR is respected)")
	fs.BoolVarP(&g.quiet, "quiet", "q", false, "print results and errors only")
	fs.Var(&g.timeout, "timeout", "wait for at most `DURATION`, then exit 6; the job continues")
	g.format, g.color = "text", "auto"
}

// uses says which of the globals a command takes. color and quiet go without saying.
func uses(cmd *cobra.Command, names ...string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[usesKey] = strings.Join(append(names, "color", "quiet"), " ")
}

func takes(cmd *cobra.Command, name string) bool {
	return slices.Contains(strings.Fields(cmd.Annotations[usesKey]), name)
}

// settleFlags refuses globals where they mean nothing and takes from the environment what no flag says.
func settleFlags(cmd *cobra.Command) error {
	var err error
	root := cmd.Root().PersistentFlags()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		global := root.Lookup(f.Name) == f
		switch {
		case err != nil || f.Name == "help" || f.Name == "version":
		case global && !takes(cmd, f.Name):
			if f.Changed {
				err = usagef("--%s means nothing to %q", f.Name, cmd.CommandPath())
			}
		case !f.Changed:
			err = fromEnv(f)
		}
	})
	return err
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// ofRun are the flags whose variables a program that the shell agent runs finds set to its run's
// identities. In there they are no settings.
var ofRun = []string{"job", "step", "key", "run", "direction"}

func lookupEnv(flag string) string {
	if slices.Contains(ofRun, flag) && os.Getenv("PERDURE_RUN") != "" {
		return ""
	}
	return os.Getenv(envName(flag))
}

func fromEnv(f *pflag.Flag) error {
	value := lookupEnv(f.Name)
	if value == "" {
		return nil
	}
	if err := f.Value.Set(value); err != nil {
		return usagef("%s=%q: %v", envName(f.Name), value, err)
	}
	return nil
}

// given says whether a person said so, by flag or by environment; flag, whether by flag.
func given(cmd *cobra.Command, name string) (said, flag bool) {
	f := cmd.Flags().Lookup(name)
	if f == nil {
		return false, false
	}
	return f.Changed || lookupEnv(name) != "", f.Changed
}

// documentEnv ends every flag's usage with the variable that sets it.
func documentEnv(cmd *cobra.Command) {
	mark := func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" && !strings.Contains(f.Usage, envPrefix) {
			f.Usage += " [$" + envName(f.Name) + "]"
		}
	}
	cmd.PersistentFlags().VisitAll(mark)
	cmd.LocalFlags().VisitAll(mark)
	for _, c := range cmd.Commands() {
		documentEnv(c)
	}
}

// unknownFlag adds the nearest flag to pflag's complaint.
func unknownFlag(cmd *cobra.Command, err error) error {
	u := &usageError{msg: err.Error(), hint: fmt.Sprintf("see %q", cmd.CommandPath()+" --help")}
	var missing *pflag.NotExistError
	if errors.As(err, &missing) && len(missing.GetSpecifiedName()) > 1 {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if cmd.Root().PersistentFlags().Lookup(f.Name) != f || takes(cmd, f.Name) {
				names = append(names, f.Name)
			}
		})
		if near := nearest(missing.GetSpecifiedName(), names); near != "" {
			u.hint = fmt.Sprintf("did you mean --%s?", near)
		}
	}
	return u
}

// nearest is the word that a slip of the hand may have meant; "" if none is near.
func nearest(word string, words []string) string {
	best, at := "", len(word)/3+2
	for _, w := range words {
		if d := distance(word, w); d < at {
			best, at = w, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// choice is a flag that takes one of a few words.
type choice struct {
	to    *string
	words []string
}

func (c *choice) String() string { return *c.to }
func (c *choice) Type() string   { return "word" }
func (c *choice) Set(s string) error {
	if !slices.Contains(c.words, s) {
		return fmt.Errorf("must be one of %s", strings.Join(c.words, ", "))
	}
	*c.to = s
	return nil
}

// duration is a flag in the syntax of definitions: Go's, and d for days.
type duration time.Duration

func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return perdure.Duration(*d).String()
}
func (d *duration) Type() string { return "duration" }
func (d *duration) Set(s string) error {
	if s == "0" || s == "0s" {
		*d = 0
		return nil
	}
	v, err := perdure.ParseDuration(s)
	*d = duration(v)
	return err
}
