package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/operate"
)

// tricks are characters that change what a terminal shows, or that it does not show at all: an escape sequence, DEL, an
// 8-bit CSI, bidirectional overrides, zero-width and tag characters, separators of lines.
const tricks = "\x1b[2J\x1b[8m\u007f\u009b31m\u0085\u202e\u2066\u200b\u2028\u2029\u00ad\ufeff\U000e0041\U000e0100"

// addTricks ends every text in v with tricks.
func addTricks(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			addTricks(v.Elem())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				addTricks(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			if v.Len() > 0 && v.CanSet() {
				text, _ := json.Marshal(map[string]string{"message": tricks, tricks: tricks})
				text = bytes.ReplaceAll(text, []byte(`\u2028`), []byte("\u2028")) // as a server in another language writes it
				v.SetBytes(text)
			}
			return
		}
		for i := range v.Len() {
			addTricks(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			if e := v.MapIndex(k); e.Kind() == reflect.String {
				v.SetMapIndex(k, reflect.ValueOf(e.String()+tricks).Convert(e.Type()))
			}
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(v.String() + tricks)
		}
	}
}

// tricked is a service with tricks in all texts of its answers and refusals.
func tricked() *resttest.Service {
	full := resttest.Full()
	trick := func(v any) { addTricks(reflect.ValueOf(v)) }
	job := func() *perdure.JobView {
		v := resttest.Job()
		trick(v)
		for i, s := range resttest.Job().Steps { // they are names of members, and may have few characters
			v.Steps[i].Name, v.Steps[i].After = s.Name, s.After
		}
		return v
	}
	refusal := func() error {
		return &perdure.Error{Code: perdure.CodeConflict, Message: "no" + tricks, Hint: "never" + tricks,
			Fields: []perdure.FieldError{{Pointer: "/a" + tricks, Message: "wrong" + tricks, Hint: "mend" + tricks}}}
	}
	return &resttest.Service{
		OnSubmit: func(context.Context, []byte, string, string) (*perdure.JobView, bool, error) { return job(), true, nil },
		OnJob: func(_ context.Context, ref string, _ time.Duration) (*perdure.JobView, error) {
			if ref == "refused" {
				return nil, refusal()
			}
			return job(), nil
		},
		OnListJobs: func(ctx context.Context, q perdure.JobQuery) (*perdure.Page[perdure.JobView], error) {
			page, err := full.OnListJobs(ctx, q)
			trick(page)
			return page, err
		},
		OnFollow: func(_ context.Context, _ string, see func(*perdure.JobView) error) error {
			v := job()
			for _, phase := range []perdure.Phase{perdure.Waiting, perdure.Running, perdure.Parked} {
				for i := range v.Steps {
					v.Steps[i].Phase = phase
				}
				v.Phase = phase
				if err := see(v); err != nil {
					return err
				}
			}
			return nil
		},
		OnHistory: func(ctx context.Context, q perdure.HistoryQuery) (*perdure.Page[perdure.EntryView], error) {
			page, err := full.OnHistory(ctx, q)
			trick(page)
			return page, err
		},
		OnRuns: func(ctx context.Context, q operate.RunsQuery) (*perdure.Page[operate.RunRecord], error) {
			page, err := full.OnRuns(ctx, q)
			trick(page)
			page.NextCursor = ""
			return page, err
		},
		OnAct: func(_ context.Context, _ string, act perdure.Act) (*perdure.JobView, error) {
			if act.Verb == perdure.VerbGiveUp {
				return nil, refusal()
			}
			return job(), nil
		},
		OnListAlerts: func(ctx context.Context, q perdure.AlertQuery) (*perdure.Page[perdure.AlertView], error) {
			page, err := full.OnListAlerts(ctx, q)
			trick(page)
			return page, err
		},
		OnListLimits: func(ctx context.Context) ([]perdure.LimitView, error) {
			list, err := full.OnListLimits(ctx)
			trick(list)
			return list, err
		},
		OnPutLimit: func(ctx context.Context, name string, settings perdure.LimitSettings) (*perdure.LimitView, error) {
			l, err := full.OnPutLimit(ctx, name, settings)
			trick(l)
			return l, err
		},
		OnListAgents: func(ctx context.Context) ([]perdure.AgentView, error) {
			list, err := full.OnListAgents(ctx)
			trick(list)
			return list, err
		},
		OnStats: func(ctx context.Context) (*operate.Stats, error) {
			s, err := full.OnStats(ctx)
			trick(s)
			s.Agents[0].Errors = map[string]int{tricks: 1}
			return s, err
		},
		OnListNodes: func(ctx context.Context) ([]perdure.NodeView, error) {
			list, err := full.OnListNodes(ctx)
			trick(list)
			return list, err
		},
	}
}

// colors are the sequences that style writes, which are none of the tricks.
var colors = regexp.MustCompile("\x1b\\[(0|1|2|3[1-6])m")

// Text from jobs, steps, errors and refusals cannot control a terminal, neither in text output nor in JSON. From the
// JSON it can be read unchanged.
func TestTricksReachNoTerminal(t *testing.T) {
	server := httptest.NewServer(rest.New(rest.Config{Service: tricked(), Log: slog.New(slog.DiscardHandler), JobSchema: definition.Schema()}))
	defer server.Close()
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	for file, text := range map[string]string{
		good: "type: a\nsteps: {s: {agent: sleep, with: {for: 1s}}}\n",
		bad:  "type: a\nsteps:\n  s: {agent: shell, with: {command: ['" + strings.ReplaceAll(tricks, "\x1b", "") + "'], commnd: x}}\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"get", "j"}, {"get", "refused"}, {"list"}, {"history", "j"}, {"history", "j", "--runs"}, {"alerts"}, {"limits"}, {"limits", "show", "agent:a"}, {"limits", "set", "agent:a", "1"}, {"nodes"}, {"top"}, {"agents"},
		{"undo", "j"}, {"give-up", "j", "--reason", "x"}, {"resume", "j"}, {"submit", good}, {"submit", bad}, {"validate", bad}, {"watch", "j"},
		{"get", tricks}, {"get", "a", tricks}, {"limits", "set", tricks, "1"}, {tricks}, {"serve", "--agents", tricks}, {"get", "j", "--" + tricks},
		{"submit", tricks}, {"list", "--cursor", tricks}, {"__complete", "get", ""}, {"__complete", "resume", "j", ""}, {"__complete", "limits", "rm", ""}, {"__complete", "alerts", "close", ""},
	} {
		for _, more := range [][]string{{"--color", "never"}, {"--color", "always"}, {"-o", "json"}} {
			if args[0] != "serve" && args[0] != "validate" && args[0] != tricks && args[0] != "__complete" {
				more = append(more, "--server", server.URL)
			}
			line := append(args[:len(args):len(args)], more...)
			if args[0] == "__complete" {
				t.Setenv("PERDURE_SERVER", server.URL)
				line = args
			}
			out, talk := inProcess(t, line...)
			for name, text := range map[string]string{"stdout": out, "stderr": talk} {
				if more[1] == "always" {
					text = colors.ReplaceAllString(text, "")
				}
				for _, r := range strings.ReplaceAll(text, "\n", "") {
					if strings.ContainsRune(tricks, r) && r > 0x7e || r < ' ' && (r != '\t' || args[0] != "__complete") {
						t.Errorf("perdure %q: %U on %s: %q", line, r, name, text)
						break
					}
				}
			}
			if more[0] == "-o" && len(args) == 2 && args[0] == "get" && args[1] == "j" {
				var got perdure.JobView
				if err := json.Unmarshal([]byte(out), &got); err != nil || got.Type != resttest.Job().Type+tricks {
					t.Errorf("%v, type %q, said %q", err, got.Type, talk)
				}
			}
		}
	}
}

// inProcess is one call of the program.
func inProcess(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	_, stdout, stderr = exitOf(t, args...)
	return stdout, stderr
}

// exitOf is one call of the program, with its exit code.
func exitOf(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var files [2]*os.File
	for i := range files {
		f, err := os.CreateTemp("", "perdure-out-")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_ = os.Remove(f.Name())
		files[i] = f
	}
	code = run(args, strings.NewReader(""), files[0], files[1])
	read := func(f *os.File) string {
		size, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, size)
		if _, err := f.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		return string(text)
	}
	return code, read(files[0]), read(files[1])
}
