package agenthost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

const canary = "canary-7f3a91"

// withSecret is a run whose input refers to a secret.
func withSecret(number int64) perdure.Run {
	run := dispatched(number, time.Minute, time.Minute)
	run.Input = json.RawMessage(`{"token":"Bearer ${secret.TOKEN}","data":"${secret.TOKEN}"}`)
	run.Secrets = []string{"/token"}
	return run
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// I18: a handler gets the values of its secrets. Whatever it does with them, neither a report nor progress nor the log has
// them.
func TestSecretsReachTheHandlerAndNothingElse(t *testing.T) {
	t.Setenv("PERDURE_SECRET_TOKEN", canary)
	for name, handler := range map[string]perdure.Handler{
		"returns it": func(_ context.Context, run *perdure.Run) (json.RawMessage, error) { return run.Input, nil },
		"fails": func(_ context.Context, run *perdure.Run) (json.RawMessage, error) {
			return nil, fmt.Errorf("x: %s", run.Input)
		},
		"rejects": func(context.Context, *perdure.Run) (json.RawMessage, error) {
			return nil, perdure.Rejected(errors.New(canary), canary)
		},
		"long error": func(context.Context, *perdure.Run) (json.RawMessage, error) {
			return nil, errors.New(strings.Repeat("x", perdure.MaxReasonBytes-8) + canary)
		},
		"panics":       func(context.Context, *perdure.Run) (json.RawMessage, error) { panic("lost " + canary) },
		"output wrong": func(context.Context, *perdure.Run) (json.RawMessage, error) { return json.RawMessage(canary), nil },
		"of its context": func(ctx context.Context, _ *perdure.Run) (json.RawMessage, error) {
			if in := string(perdure.RunOf(ctx).Input); !strings.Contains(in, canary) {
				t.Errorf("the run of the context has the input %s", in)
			}
			return nil, perdure.Progress(ctx, map[string]string{"uses": canary})
		},
		"progress": func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
			_ = perdure.Progress(ctx, string(run.Input))
			time.Sleep(8 * time.Second)
			return nil, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log lockedBuffer
			var reports, beats []byte
			virtual(t, func(t *testing.T) {
				x := newExchange()
				carry(t, x, Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, 1,
					func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
						if got := string(run.Input); got != `{"token":"Bearer `+canary+`","data":"${secret.TOKEN}"}` {
							t.Errorf("input %s", got)
						}
						return handler(ctx, run)
					})
				x.offerAll(withSecret(1))
				time.Sleep(20 * time.Second)
				x.mu.Lock()
				defer x.mu.Unlock()
				if len(x.reports) != 1 || !x.claims[0].Secrets {
					t.Fatalf("%d reports, claim %+v", len(x.reports), x.claims[0])
				}
				reports, _ = json.Marshal(x.reports)
				beats, _ = json.Marshal(x.beats)
			})
			for what, text := range map[string]string{"report": string(reports), "heartbeats": string(beats), "log": log.String()} {
				if strings.Contains(text, "canary") || strings.Contains(text, "7f3a91") {
					t.Errorf("%s: %s", what, text)
				}
			}
			if name == "returns it" && !strings.Contains(string(reports), `"Bearer [secret TOKEN]"`) {
				t.Errorf("%s", reports)
			}
			if name == "progress" && !strings.Contains(string(beats), `[secret TOKEN]`) {
				t.Errorf("%s", beats)
			}
		})
	}
}

// A secret that is missing is a fault of the configuration: the run is rejected, without effect.
func TestMissingSecretIsRejectedWithoutEffect(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := newExchange()
		carry(t, x, Config{}, 1, func(context.Context, *perdure.Run) (json.RawMessage, error) {
			t.Error("the handler was called")
			return nil, nil
		})
		x.offerAll(withSecret(1))
		time.Sleep(time.Second)
		x.mu.Lock()
		defer x.mu.Unlock()
		r := x.reports[0]
		if r.Outcome != perdure.OutcomeRejected || r.Effect != "none" || r.Error.Code != "secretMissing" ||
			r.Error.Message != "secret TOKEN: where the agent runs, the environment variable PERDURE_SECRET_TOKEN is not set" {
			t.Errorf("%+v %+v", r, r.Error)
		}
	})
}

func TestSecretsAreFilesOrVariables(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("FILE", "of a file")
	write("LINE", "line\n")
	write("TWO_LINES", "a\n\n")
	write("WINDOWS", "line\r\n")
	write("RETURN", "line\r")
	write("BOTH", "of the file")
	write("EMPTY", "\n")
	write("BINARY", "a\xff")
	write("LARGEST", strings.Repeat("x", perdure.MaxSecretBytes)+"\r\n")
	write("LARGE", strings.Repeat("x", perdure.MaxSecretBytes+1))
	write("HUGE", strings.Repeat("x", 1<<20))
	if err := os.Mkdir(filepath.Join(dir, "DIRECTORY"), 0o700); err != nil {
		t.Fatal(err)
	}
	// As Kubernetes mounts it: NAME → ..data/NAME, ..data → ..2026
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "..2026"), 0o700), os.Symlink("..2026", filepath.Join(dir, "..data")), os.Symlink("..data/MOUNTED", filepath.Join(dir, "MOUNTED"))); err != nil {
		t.Fatal(err)
	}
	write("..2026/MOUNTED", "mounted\n")
	if err := os.Symlink("nowhere", filepath.Join(dir, "DANGLING")); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{"PERDURE_SECRET_VARIABLE": "of a variable\n", "PERDURE_SECRET_BOTH": "of the variable", "PERDURE_SECRET_NOTHING": "",
		"PERDURE_SECRET_LONG": strings.Repeat("x", perdure.MaxSecretBytes+1), "PERDURE_SECRET_LARGE": "fallback"}
	s := secrets{dir: dir, lookup: func(name string) (string, bool) { v, ok := variables[name]; return v, ok }}
	for name, want := range map[string]string{"FILE": "of a file", "LINE": "line", "TWO_LINES": "a\n", "WINDOWS": "line", "RETURN": "line\r", "BOTH": "of the file",
		"VARIABLE": "of a variable\n", "MOUNTED": "mounted", "LARGEST": strings.Repeat("x", perdure.MaxSecretBytes)} {
		if got, err := s.get(name); err != nil || got != want {
			t.Errorf("%s: %.20q, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{
		"EMPTY": "is empty", "BINARY": "not UTF-8", "LARGE": "more than 65536 bytes", "HUGE": "more than 65536 bytes", "DIRECTORY": "not a regular file",
		"DANGLING": "no file DANGLING", "MISSING": "no file MISSING in the directory of secrets, and the environment variable PERDURE_SECRET_MISSING is not set",
		"NOTHING": "is empty", "LONG": "more than 65536 bytes",
	} {
		if got, err := s.get(name); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %.20q, %v", name, got, err)
		}
	}
	five := perdure.Run{Input: json.RawMessage(`"${secret.LARGEST}${secret.L2}${secret.L3}${secret.L4}${secret.L5}"`), Secrets: []string{""}}
	for _, name := range []string{"L2", "L3", "L4", "L5"} {
		write(name, strings.Repeat(name, perdure.MaxSecretBytes/2))
	}
	if _, _, err := s.resolve(&five); err == nil || !strings.Contains(err.Error(), "secret L5: the secrets of this input have more than 262144 bytes together") {
		t.Error(err)
	}
	five.Input = json.RawMessage(`"${secret.LARGEST}${secret.L2}${secret.L3}${secret.L4}${secret.L4}"`)
	if run, _, err := s.resolve(&five); err != nil || len(run.Input) != 5*perdure.MaxSecretBytes+2 {
		t.Error(err)
	}
	write("FILE", "rotated") // read at each run
	if got, _ := s.get("FILE"); got != "rotated" {
		t.Errorf("%q", got)
	}
}
