package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

const (
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
)

// document is one definition of a file.
type document struct {
	file  string
	nth   int // number within the file, from 1
	of    int
	plan  *kernel.Plan
	taken map[[32]byte]perdure.JobID // by hash: jobs that correspond to documents of this call
}

func (d *document) name() string {
	if d.of == 1 {
		return d.file
	}
	return fmt.Sprintf("%s (document %d)", d.file, d.nth)
}

// inputFlags change definitions before they are checked.
type inputFlags struct {
	values []string
	file   string
	key    string
}

func (f *inputFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.values, "set", "i", nil, "set a field of the input: `NAME=VALUE`; VALUE is JSON, or else a string (repeatable)")
	cmd.Flags().StringVar(&f.file, "input", "", "take fields of the input from this JSON `FILE` (- is stdin); -i has precedence")
	cmd.Flags().StringVar(&f.key, "key", "", "the job's `KEY`, instead of the definition's")
	restricts(cmd, "input", "key")
}

// read returns the fields of the input that the flags set.
func (f *inputFlags) read(stdin io.Reader) (map[string]json.RawMessage, error) {
	set := map[string]json.RawMessage{}
	if f.file != "" {
		b, err := readFile(f.file, stdin)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(b, &set); err != nil || set == nil {
			return nil, usagef("%s: not a JSON object", f.file)
		}
	}
	for _, kv := range f.values {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return nil, usagef("-i %q: not of the form NAME=VALUE", kv)
		}
		set[name] = jsonOrString(value)
	}
	return set, nil
}

// jsonOrString reads a word as JSON if it is JSON: 42 and true are themselves, tea-12 is a string.
func jsonOrString(s string) json.RawMessage {
	if json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	b, _ := json.Marshal(s)
	return b
}

// load reads and validates all documents of all files, and prints all errors in them.
func (a *app) load(files []string, input inputFlags) ([]document, error) {
	stdin := 0
	for _, name := range append(files[:len(files):len(files)], input.file) {
		if name == "-" {
			stdin++
		}
	}
	if stdin > 1 {
		return nil, usagef("stdin can be read once")
	}
	set, err := input.read(a.in)
	if err != nil {
		return nil, err
	}
	taken := map[[32]byte]perdure.JobID{}
	var docs []document
	var wrong error
	for _, file := range files {
		src, err := readFile(file, a.in)
		if err != nil {
			complain(a.err, a.errSt, err)
			wrong = exit(exitUsage)
			continue
		}
		plans, err := parse(file, src, set, input.key)
		if err != nil {
			wrong = a.refused(file, src, err)
			continue
		}
		for i, p := range plans {
			docs = append(docs, document{file: file, nth: i + 1, of: len(plans), plan: p, taken: taken})
		}
	}
	if wrong == nil && len(docs) > 1 && input.key != "" {
		wrong = usagef("--key is for one definition, not %d", len(docs))
	}
	if wrong == nil {
		wrong = uniqueKeys(docs)
	}
	return docs, wrong
}

// uniqueKeys refuses documents with the same key and different definitions: only one of them could be submitted.
func uniqueKeys(docs []document) error {
	first := map[string]*document{}
	for i := range docs {
		d := &docs[i]
		key := d.plan.Definition.Key
		if key == "" {
			continue
		}
		before, known := first[key]
		if known && before.plan.Hash != d.plan.Hash {
			return &usageError{msg: fmt.Sprintf("%s: the key %q is also that of %s, whose definition is different", d.name(), key, before.name()),
				hint: "give each job a key of its own"}
		}
		first[key] = d
	}
	return nil
}

// readFile reads a whole file; - is stdin. It refuses a file over the bound of a definition file without reading more.
func readFile(name string, stdin io.Reader) ([]byte, error) {
	var r io.Reader = stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, &usageError{msg: strings.TrimPrefix(err.Error(), "open "), hint: meantBesideFile(name)}
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	const most = 4 * perdure.MaxDefinitionBytes // a file may contain several definitions
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	var perr *os.PathError
	switch {
	case errors.As(err, &perr):
		return nil, usagef("%s: %v", name, perr.Err)
	case err != nil:
		return nil, usagef("%s: %v", name, err)
	case len(b) > most:
		return nil, usagef("%s: over %d bytes", name, most)
	}
	return b, nil
}

var storedVersion = regexp.MustCompile(`^[\w.-]+@\d+$`)

// meantBesideFile returns what to write if the name of a file that does not exist looks like something else.
func meantBesideFile(name string) string {
	switch {
	case strings.HasPrefix(name, "{"):
		return "a field of the input: -i NAME=VALUE"
	case storedVersion.MatchString(name):
		return "a stored definition: --definition " + name
	}
	return ""
}

// jsonArg is a value on the command line: JSON, @FILE, or - for stdin.
func (a *app) jsonArg(flag, s string) (json.RawMessage, error) {
	b := []byte(s)
	if name, ok := strings.CutPrefix(s, "@"); ok || s == "-" {
		if !ok {
			name = s
		}
		var err error
		if b, err = readFile(name, a.in); err != nil {
			return nil, err
		}
	}
	if !json.Valid(b) {
		return nil, &usageError{msg: fmt.Sprintf("--%s is not JSON", flag), hint: `a string is written '"so"'; @FILE and - are read`}
	}
	return b, nil
}

func completeFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}
