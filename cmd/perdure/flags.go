package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perdure/perdure"
	text "github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/internal/redact"
	"github.com/perdure/perdure/internal/tlsfiles"
)

const (
	defaultServer = "http://127.0.0.1:7420"
	defaultStore  = "sqlite:perdure.db"
	envPrefix     = "PERDURE_"
	usesKey       = "perdure.uses"
	createsKey    = "perdure.creates"    // annotates commands that create a missing SQLite file
	filterKey     = "perdure.filter"     // annotates flags that select or restrict: an empty value is refused, because it would allow more
	noVariableKey = "perdure.noVariable" // annotates flags that are not read from the environment
	variableKey   = "perdure.variable"   // annotates flags whose variable has another name than the flag
)

// globals are the flags that have the same meaning in all commands. A command lists those that it uses; it refuses the
// others, so that no flag is silently ignored.
type globals struct {
	server    string
	tokenFile string
	files     tlsfiles.ClientConfig
	store     string
	format    string
	color     string
	quiet     bool
	timeout   duration
}

func (g *globals) register(fs *pflag.FlagSet) {
	g.server = defaultServer
	fs.Var(&serverList{to: &g.server}, "server", "`URL` of a node; with several, separated by commas, the next one is called if one fails (repeatable)")
	fs.StringVar(&g.tokenFile, "token-file", "", "`FILE` with the token for --server; PERDURE_TOKEN may have the token itself")
	fs.StringVar(&g.files.CA, "server-ca", "", "PEM `FILE` with the authorities of the certificate of --server, in place of the system's")
	fs.StringVar(&g.files.Cert, "client-cert", "", "PEM `FILE` with a client certificate, if --server requires one")
	fs.StringVar(&g.files.Key, "client-key", "", "PEM `FILE` with the private key of --client-cert")
	fs.StringVar(&g.store, "store", defaultStore, "`URL` of the store: sqlite:FILE or postgres://…")
	fs.VarP(&choice{&g.format, []string{"text", "json"}}, "output", "o", "`FORMAT` of results: text, or json (one object a line)")
	fs.Var(&choice{&g.color, []string{"auto", "always", "never"}}, "color", "`WHEN` to use color: auto, always, never (NO_COLOR is respected)")
	fs.BoolVarP(&g.quiet, "quiet", "q", false, "print results and errors only")
	fs.Var(&g.timeout, "timeout", "wait for at most `DURATION`, then exit 6; the job continues")
	g.format, g.color = "text", "auto"
}

// ofServer are the globals that belong to --server.
var ofServer = []string{"token-file", "server-ca", "client-cert", "client-key"}

// uses says which of the globals a command uses. All commands use color and quiet.
func uses(cmd *cobra.Command, names ...string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	if slices.Contains(names, "server") {
		names = append(names, ofServer...)
	}
	cmd.Annotations[usesKey] = strings.Join(append(names, "color", "quiet"), " ")
}

func takes(cmd *cobra.Command, name string) bool {
	return slices.Contains(strings.Fields(cmd.Annotations[usesKey]), name)
}

// settleFlags refuses globals that the command does not use, and reads flags that are not given from the environment.
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
		case !f.Changed && f.Annotations[noVariableKey] == nil:
			err = fromEnv(f)
		}
		if err == nil && f.Annotations[filterKey] != nil && hasBlank(f) {
			err = emptyFlag(f)
		}
		if err == nil && (f.Name == "reason" || f.Annotations[filterKey] != nil) && !utf8.ValidString(strings.Join(textsOf(f), "")) {
			err = &usageError{msg: "--" + f.Name + " is not valid UTF-8", hint: "write it in UTF-8"}
		}
	})
	return err
}

// textsOf returns the values of a flag.
func textsOf(f *pflag.Flag) []string {
	if many, ok := f.Value.(pflag.SliceValue); ok {
		return many.GetSlice()
	}
	return []string{f.Value.String()}
}

// addList gives a command that lists something the command "list", with the same flags.
func addList(cmd *cobra.Command, what string) {
	ls := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List " + what, Args: noArgs, RunE: cmd.RunE, Annotations: cmd.Annotations,
		Long:    fmt.Sprintf("Lists %s, as \"perdure %s\" does.", what, cmd.Name()),
		Example: fmt.Sprintf("  perdure %s list -o json", cmd.Name()),
	}
	ls.Flags().AddFlagSet(cmd.Flags())
	cmd.AddCommand(ls)
}

// restricts marks flags whose empty value would allow or select more than was meant.
func restricts(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		markFilter(cmd.Flags().Lookup(name))
	}
}

// markFilter marks a flag that selects or restricts. If it has one value, it may be given once only: the last of several
// values would count alone, and select something else than was meant.
func markFilter(f *pflag.Flag) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[filterKey] = []string{"true"}
	if _, many := f.Value.(pflag.SliceValue); !many {
		f.Value = &once{Value: f.Value}
	}
}

// once is the value of a flag that may be given once.
type once struct {
	pflag.Value
	given bool
}

var errTwice = errors.New("is given more than once")

func (o *once) Set(s string) error {
	if o.given {
		return errTwice
	}
	o.given = true
	return o.Value.Set(s)
}

// hasBlank reports whether a flag has no value, or an empty one.
func hasBlank(f *pflag.Flag) bool {
	texts := textsOf(f)
	return len(texts) == 0 || slices.ContainsFunc(texts, blank)
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// variableOf returns the name of the environment variable of a flag.
func variableOf(f *pflag.Flag) string {
	if names := f.Annotations[variableKey]; len(names) > 0 {
		return names[0]
	}
	return envName(f.Name)
}

// ownVariables gives flags of a command variables of their own, PERDURE_PREFIX_FLAG, because flags of other commands with
// these names mean something else.
func ownVariables(cmd *cobra.Command, prefix string, names ...string) {
	for _, name := range names {
		_ = cmd.Flags().SetAnnotation(name, variableKey, []string{envName(prefix + "-" + name)})
	}
}

// ofRun are the flags whose environment variables the shell agent sets for its programs. In such a program they are not
// settings.
var ofRun = []string{"job", "step", "key", "run", "direction"}

func lookupEnv(f *pflag.Flag) string {
	if slices.Contains(ofRun, f.Name) && os.Getenv("PERDURE_RUN") != "" {
		return ""
	}
	return os.Getenv(variableOf(f))
}

// emptyFlag refuses a flag without a value, or the variable that it was read from. A flag that was not given is no error.
func emptyFlag(f *pflag.Flag) error {
	_, set := os.LookupEnv(variableOf(f))
	ofProgram := slices.Contains(ofRun, f.Name) && os.Getenv("PERDURE_RUN") != ""
	what := " is empty"
	if f.Value.Type() == "duration" {
		what = " is 0s"
	}
	switch {
	case f.Changed:
		return &usageError{msg: "--" + f.Name + what, hint: "leave it out, or quote a value"}
	case set && !ofProgram && f.Annotations[noVariableKey] == nil:
		return &usageError{msg: variableOf(f) + what, hint: "unset it, or give it a value"}
	}
	return nil
}

func fromEnv(f *pflag.Flag) error {
	value := lookupEnv(f)
	if value == "" {
		return nil
	}
	if err := f.Value.Set(value); err != nil {
		if number := (*strconv.NumError)(nil); errors.As(err, &number) {
			return usagef("%s=%q %s", variableOf(f), value, notNumber(number))
		}
		return usagef("%s=%q: %v", variableOf(f), value, err)
	}
	return nil
}

// given reports whether a value was given by flag or environment, and whether by flag.
func given(cmd *cobra.Command, name string) (said, flag bool) {
	f := cmd.Flags().Lookup(name)
	if f == nil {
		return false, false
	}
	return f.Changed || lookupEnv(f) != "", f.Changed
}

// documentEnv appends the environment variable to the usage of every flag that has one.
func documentEnv(cmd *cobra.Command) {
	mark := func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" && f.Annotations[noVariableKey] == nil && !strings.Contains(f.Usage, envPrefix) {
			f.Usage += " [$" + variableOf(f) + "]"
		}
	}
	cmd.PersistentFlags().VisitAll(mark)
	cmd.LocalFlags().VisitAll(mark)
	for _, c := range cmd.Commands() {
		documentEnv(c)
	}
}

// unknownFlag adds the nearest flag to pflag's error.
func unknownFlag(cmd *cobra.Command, err error) error {
	u := &usageError{msg: err.Error(), hint: fmt.Sprintf("see %q", cmd.CommandPath()+" --help")}
	wrong, number := (*pflag.InvalidValueError)(nil), (*strconv.NumError)(nil)
	if errors.As(err, &wrong) && errors.As(wrong.Unwrap(), &number) {
		u.msg = fmt.Sprintf("--%s %q %s", wrong.GetFlag().Name, shownArg(wrong.GetValue()), notNumber(number))
	}
	if wrong != nil && errors.Is(err, errTwice) {
		u.msg, u.hint = "--"+wrong.GetFlag().Name+" "+errTwice.Error(), "give one value; filters of several values are marked \"repeatable\" in the help"
	}
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

// notNumber says what is wrong with the value of a flag that is a number, or true or false.
func notNumber(err *strconv.NumError) string {
	switch {
	case errors.Is(err, strconv.ErrRange):
		return "is too large"
	case err.Func == "ParseBool":
		return "is neither true nor false"
	case err.Func == "ParseFloat":
		return "is not a number"
	}
	return "is not a whole number"
}

// nearest returns the word that was probably meant; "" if none is similar.
func nearest(word string, words []string) string { return text.Nearest(word, words) }

// choice is a flag with a fixed set of values.
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

// serverList is a flag with the URLs of nodes, separated by commas. Given again, it adds to them.
type serverList struct {
	to    *string
	given bool
}

func (l *serverList) String() string { return *l.to }
func (l *serverList) Type() string   { return "string" }
func (l *serverList) Set(s string) error {
	if l.given {
		s = *l.to + "," + s
	}
	*l.to, l.given = s, true
	return nil
}

// serversIn returns the URLs of --server.
func serversIn(list string) []string { return text.Servers(list) }

// shownServers returns the URLs of --server without passwords.
func shownServers(list string) string {
	urls := serversIn(list)
	for i := range urls {
		urls[i] = redact.URL(urls[i])
	}
	return strings.Join(urls, ",")
}

// duration is a flag with the syntax of definitions: Go's, with d for days.
type duration time.Duration

func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return text.Duration(time.Duration(*d))
}
func (d *duration) Type() string { return "duration" }
func (d *duration) Set(s string) error {
	if s == "0" || s == "0s" {
		*d = 0
		return nil
	}
	v, err := perdure.ParseDuration(s)
	if *d = duration(v); err != nil {
		return fmt.Errorf("%w; write 30s, 12h or 90d, for example", err)
	}
	return nil
}

// pageFlags adds the flags of a list that is printed a page at a time.
func pageFlags(cmd *cobra.Command, limit *int, cursor *string, what string) {
	f := cmd.Flags()
	f.IntVar(limit, "limit", perdure.DefaultListLimit, fmt.Sprintf("%s per page, at most %d", what, perdure.MaxListLimit))
	f.StringVar(cursor, "cursor", "", "`CURSOR` of the page, as the page before printed it")
}

func checkPageSize(limit int) error {
	if limit < 1 || limit > perdure.MaxListLimit {
		return usagef("--limit must be 1 to %d", perdure.MaxListLimit)
	}
	return nil
}

// more prints the cursor of the next page, if there is one.
func (a *app) more(cursor string) {
	if cursor != "" {
		a.talk("more: --cursor %s", quoted(cursor))
	}
}
