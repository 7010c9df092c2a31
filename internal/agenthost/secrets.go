package agenthost

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/runcontext"
	"github.com/perdure/perdure/internal/secret"
	"github.com/perdure/perdure/protocol"
)

// A run refers to secrets, and this process has them. They are read again for each run, so that a new value is used as soon
// as it is there. A handler gets an input with the values. The host removes them from whatever the handler returns before
// that is logged or sent.

// secrets are where a host finds secrets: the files of a directory, and the environment of the process.
type secrets struct {
	dir    string // "": no files
	lookup func(string) (string, bool)
}

// get returns a secret. Its errors contain neither the value nor a path.
func (s *secrets) get(name string) (string, error) {
	if s.dir != "" {
		switch text, err := s.read(name); {
		case err == nil:
			return checkedSecret(name, text)
		case !errors.Is(err, os.ErrNotExist):
			return "", fmt.Errorf("secret %s: its file cannot be used: %w", name, err)
		}
	}
	text, set := s.lookup(secret.Variable + name)
	switch {
	case set:
		return checkedSecret(name, text)
	case s.dir != "":
		return "", fmt.Errorf("secret %s: where the agent runs there is no file %s in the directory of secrets, and the environment variable %s%s is not set", name, name, secret.Variable, name)
	}
	return "", fmt.Errorf("secret %s: where the agent runs, the environment variable %s%s is not set", name, secret.Variable, name)
}

// read returns the text of a file, without one line break at its end. A symbolic link is followed, as volumes of Kubernetes
// need it. name has no separator and no dot (secret.IsName).
func (s *secrets) read(name string) (string, error) {
	path := filepath.Join(s.dir, name)
	switch info, err := os.Stat(path); {
	case err != nil:
		return "", withoutPath(err)
	case !info.Mode().IsRegular(): // to open a pipe could block
		return "", errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return "", withoutPath(err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, perdure.MaxSecretBytes+int64(len("\r\n"))+1))
	if err != nil {
		return "", withoutPath(err)
	}
	text := strings.TrimSuffix(string(b), "\n")
	if len(text) < len(b) {
		text = strings.TrimSuffix(text, "\r")
	}
	return text, nil
}

func withoutPath(err error) error {
	if e := (*os.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// checkedSecret refuses a value that cannot be meant, or cannot be in an input.
func checkedSecret(name, text string) (string, error) {
	switch {
	case text == "":
		return "", fmt.Errorf("secret %s is empty where the agent runs", name)
	case len(text) > perdure.MaxSecretBytes:
		return "", fmt.Errorf("secret %s has more than %d bytes where the agent runs", name, perdure.MaxSecretBytes)
	case !utf8.ValidString(text):
		return "", fmt.Errorf("secret %s is not UTF-8 where the agent runs", name)
	}
	return text, nil
}

// maxSecretsBytes bounds the secrets of one run together: what it reports is searched for each of them in many forms.
const maxSecretsBytes = 4 * perdure.MaxSecretBytes

// resolve returns a run whose input has the values of its secrets, and what removes them from its report. The error is a
// perdure.Failure: a missing secret is a fault of the configuration, which a further attempt does not mend. So the run is
// rejected, and the step waits for an operator, or for what else its onFailure says.
func (s *secrets) resolve(run *perdure.Run) (*perdure.Run, *secret.Redactor, error) {
	if len(run.Secrets) == 0 {
		return run, nil, nil
	}
	total := 0
	input, values, err := secret.Fill(run.Input, run.Secrets, func(name string) (string, error) {
		text, err := s.get(name)
		if total += len(text); err == nil && total > maxSecretsBytes {
			err = fmt.Errorf("secret %s: the secrets of this input have more than %d bytes together", name, maxSecretsBytes)
		}
		return text, err
	})
	switch {
	case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE):
		return nil, nil, perdure.Returned(err)
	case err != nil:
		return nil, nil, perdure.NoEffect(perdure.Rejected(err, "secretMissing"))
	}
	resolved := *run
	resolved.Input = input
	return &resolved, secret.NewRedactor(values), nil
}

// carryOut calls the handler of a run. The result has no secrets, also if the handler panics.
func (h *Host) carryOut(l *live) (output json.RawMessage, err error) {
	run, redactor, err := h.secrets.resolve(l.run)
	if err != nil {
		return nil, err
	}
	l.redactor = redactor
	ctx := l.ctx
	if len(run.Secrets) > 0 {
		ctx = runcontext.WithSecrets(ctx, run, redactor, func(p json.RawMessage) { h.keepProgress(l, redactor.Output(p)) })
	}
	return l.agent.Execute(ctx, run)
}

// withoutSecrets removes the values of a run's secrets from what its handler returned.
func (l *live) withoutSecrets(output json.RawMessage, err error) (json.RawMessage, error) {
	return l.redactor.Output(output), l.redactor.Error(err)
}

// redactCode removes the values from the code of an error, which a handler may have taken from a text.
func (l *live) redactCode(r *protocol.Report) {
	if r.Error != nil {
		r.Error.Code = l.redactor.Text(r.Error.Code)
	}
}
