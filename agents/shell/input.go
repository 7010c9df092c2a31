package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/agents/internal/environ"
	"github.com/perdure/perdure/agents/internal/with"
	"github.com/perdure/perdure/internal/secret"
)

// Input is what the agent is asked for: `with` of a step.
//
//	command: [./charge.sh, --amount, 4200]   # required: the program and its arguments
//	dir: /srv/shop                           # where it runs; default: where this process does
//	env: {REGION: eu}                        # added to the environment
//	stdin: {sku: tea-12}                     # a string as it is, anything else as JSON; default: nothing
//	rejectedCodes: [2, 64]                   # exit codes that mean: pointless to try again
//
// The program is looked for in PATH of this process if its name has no slash, and from dir if it
// begins with a dot. Arguments and values of env that are no strings are passed as JSON text.
type Input struct {
	Command       []with.Text          `json:"command"`
	Dir           string               `json:"dir"`
	Env           map[string]with.Text `json:"env"`
	Stdin         json.RawMessage      `json:"stdin"`
	RejectedCodes []exitCode           `json:"rejectedCodes"`
}

// exitCode is 1 to 255; 0 is an expression in a draft.
type exitCode int

func (c *exitCode) UnmarshalJSON(b []byte) error {
	word, ok := with.Scalar(b)
	if b[0] == '"' && with.Expression(word) {
		return nil
	}
	n, err := strconv.Atoi(word)
	if !ok || err != nil || n < 1 || n > 255 {
		return fmt.Errorf("an exit code from 1 to 255, not %s", with.Brief(b))
	}
	*c = exitCode(n)
	return nil
}

func (in *Input) rejects(code int) bool { return slices.Contains(in.RejectedCodes, exitCode(code)) }

// Check returns what is wrong with `with` in a definition, where strings that contain ${…} stand for any value; nil if
// it is valid.
func Check(with json.RawMessage) error {
	_, err := parse(with, true)
	return err
}

// parse reads an input strictly. In a draft, strings that contain expressions are valid for any field.
func parse(b json.RawMessage, draft bool) (*Input, error) {
	in := &Input{}
	if err := with.Decode(b, in); err != nil {
		return nil, err
	}
	if len(in.Command) == 0 || in.Command[0] == "" {
		return nil, errors.New("command is missing: a list of the program and its arguments")
	}
	for i, arg := range in.Command {
		if strings.Contains(string(arg), "\x00") {
			return nil, fmt.Errorf("command: argument %d holds a NUL", i)
		}
	}
	if strings.Contains(in.Dir, "\x00") {
		return nil, errors.New("dir: holds a NUL")
	}
	for name, v := range in.Env {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return nil, fmt.Errorf("env: %q is not a name", name)
		case strings.Contains(string(v), "\x00"):
			return nil, fmt.Errorf("env: %s holds a NUL", name)
		}
	}
	if !draft && slices.Contains(in.RejectedCodes, 0) {
		return nil, errors.New("rejectedCodes: a string does not fit here")
	}
	if with.IsNull(in.Stdin) {
		in.Stdin = nil
	}
	return in, nil
}

// checkSecrets refuses secrets in other places than env: the arguments of a process are visible to every user of the machine,
// and programs repeat their input. A definition that names the agent shell is checked when it is submitted; this is for an
// agent of another name.
func checkSecrets(pointers []string) error {
	for _, p := range pointers {
		if !strings.HasPrefix(p, "/env/") {
			return fmt.Errorf("%s: a secret may stand in env only", strings.TrimPrefix(p, "/"))
		}
	}
	return nil
}

// stdin returns the input of the program; false if there is none.
func (in *Input) stdin() (string, bool) {
	if in.Stdin == nil {
		return "", false
	}
	if in.Stdin[0] == '"' {
		return with.Scalar(in.Stdin)
	}
	return string(in.Stdin), true
}

// MaxEnv bounds Config.Env.
const MaxEnv = 100

// CheckEnv returns an error for the first name that is not valid in Config.Env, and nil if all are.
func CheckEnv(names []string) error {
	if len(names) > MaxEnv {
		return fmt.Errorf("%d variables are named, at most %d are passed on", len(names), MaxEnv)
	}
	for _, name := range names {
		switch {
		case name == "":
			return errors.New("a name is empty")
		case strings.Contains(name, "="):
			known, _, _ := strings.Cut(name, "=") // its value may be a secret
			return fmt.Errorf("%q is given a value; name the variable alone, and set it where the process is started, or in env of the step", known)
		case strings.ContainsAny(name, "\x00*? \t\n"):
			return fmt.Errorf("%q is not the name of a variable; each is named in full", name)
		case slices.Contains(environ.OfRun, name):
			return fmt.Errorf("%s is set for each run", name)
		case strings.HasPrefix(name, secret.Variable):
			return fmt.Errorf("%s is a secret, which not every program may have; name it in env of the step: ${secret.%s}", name, strings.TrimPrefix(name, secret.Variable))
		}
	}
	return nil
}
