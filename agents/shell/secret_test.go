//go:build unix

package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/runcontext"
	"github.com/perdure/perdure/internal/secret"
)

const canary = `{"id":"canary-7f3a91", "pin": 4711}`

// executeSecret executes a run as an agent host does whose run has the secret in the variable KEY, and returns what the
// agent itself gives to the host.
func executeSecret(t *testing.T, d time.Duration, script string) string {
	t.Helper()
	b, _ := json.Marshal(m{"command": []string{"/bin/sh", "-c", script}, "env": m{"KEY": canary}})
	run := aRun(string(b))
	run.Secrets = []string{"/env/KEY"}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	ctx = runcontext.WithSecrets(ctx, run, secret.NewRedactor([]secret.Value{{Name: "KEY", Text: canary}}), nil)
	out, err := New(Config{}).Execute(ctx, run)
	return fmt.Sprint(string(out), " ", err)
}

// I18: what a program prints of a secret is not in the output and not in the message, also if only the end of it is kept.
func TestPrintedSecretIsRemoved(t *testing.T) {
	for script, want := range map[string]string{
		`echo "$KEY"`:                      `{"stdout":"[secret KEY]\n"} <nil>`, // as JSON it would be the output, in another form
		`echo "{\"key\": $KEY}"`:           `[secret KEY]`,
		`echo "$KEY" >&2; exit 1`:          "exit code 1: [secret KEY]",
		`printf %s "$KEY" >&2; kill -9 $$`: "killed by KILL: [secret KEY]",
		`printf %s "$KEY" >&2; sleep 60`:   "killed: [secret KEY]",
		`i=0; while [ $i -lt 3000 ]; do printf %s "$KEY"; i=$((i+1)); done >&2; exit 1`: "[secret KEY]",
	} {
		d := time.Minute
		if strings.Contains(script, "sleep") {
			d = time.Second
		}
		got := executeSecret(t, d, script)
		if !strings.Contains(got, want) {
			t.Errorf("%s: %.300s", script, got)
		}
		for _, part := range []string{"canary", "7f3a91", "4711", "nary-"} {
			if strings.Contains(got, part) {
				t.Errorf("%s: %s", script, got)
			}
		}
	}
	if got := executeSecret(t, time.Minute, `test "$KEY" = '`+canary+`' && echo '"same"'`); !strings.HasPrefix(got, `"same"`) {
		t.Error(got)
	}
}

// A definition cannot put a secret there if the agent is called shell. The agent may have another name.
func TestSecretInArgumentsIsRejected(t *testing.T) {
	for pointer, want := range map[string]string{"/command/2": "command/2: a secret may stand in env only", "/stdin": "stdin: a secret", "/dir": "dir: a secret", "": "a secret may stand in env only"} {
		run := aRun(`{"command":["/bin/sh","-c","exit 0"],"env":{"A":"x"}}`)
		run.Secrets = []string{"/env/A", pointer}
		_, err := New(Config{Name: "runner"}).Execute(t.Context(), run)
		if verdict(err) != "rejected input none" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", pointer, err)
		}
	}
}
