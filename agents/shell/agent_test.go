//go:build unix

package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

func TestMain(m *testing.M) {
	if MaybeReaper() {
		return
	}
	if os.Getenv("PERDURE_TEST_NODE") != "" {
		beNode()
		return
	}
	os.Exit(m.Run())
}

func aRun(input string) *perdure.Run {
	return &perdure.Run{Job: perdure.JobID{1}, Step: "ship", Action: "ship", Number: 7, Key: "job/ship/1", Input: json.RawMessage(input)}
}

// execute executes a run with this input for at most d.
func execute(t *testing.T, d time.Duration, input any) (string, error) {
	t.Helper()
	b, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	out, err := New(Config{}).Execute(ctx, aRun(string(b)))
	return string(out), err
}

type m = map[string]any

func sh(script string) m { return m{"command": []string{"/bin/sh", "-c", script}} }

// verdict returns an error as a report contains it: "failed exit_1 none".
func verdict(err error) string {
	r := protocol.ReportOf(aRun("{}"), nil, err)
	if err == nil {
		return "done"
	}
	return strings.TrimSpace(fmt.Sprint(r.Outcome, " ", r.Error.Code, " ", r.Effect))
}

func TestStdoutIsTheOutput(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"object":       {`echo '{"n": 12345678901234567890.10}'`, `{"n": 12345678901234567890.10}` + "\n"},
		"number":       {`echo 42`, "42\n"},
		"text":         {`echo hello`, `{"stdout":"hello\n"}`},
		"nothing":      {`true`, `{"stdout":""}`},
		"two values":   {`echo 1 2`, `{"stdout":"1 2\n"}`},
		"NUL and junk": {`printf 'a\000b\377c'`, `{"stdout":"a` + "\uFFFD" + `b` + "\uFFFD" + `c"}`}, // F047
		"too deep":     {`printf '%0200d' 0 | tr 0 '['`, `{"stdout":"` + strings.Repeat("[", 200) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := execute(t, time.Minute, sh(c.script))
			if err != nil || got != c.want {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}

func TestExitDecidesOutcome(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	rejecting := sh("exit 3")
	rejecting["rejectedCodes"] = []int{2, 3}
	for name, c := range map[string]struct {
		input any
		want  string
	}{
		"exit 0":             {sh("exit 0"), "done"},
		"exit 1":             {sh("exit 1"), "failed exit_1"},
		"exit 75":            {sh("exit 75"), "failed exit_75"},
		"rejected code":      {rejecting, "rejected exit_3"},
		"signal":             {sh("kill -TERM $$"), "failed signal_TERM"},
		"no such program":    {m{"command": []string{"no-such-program-here"}}, "rejected notFound none"},
		"no such path":       {m{"command": []string{"/no/such/program"}}, "rejected notFound none"},
		"not executable":     {m{"command": []string{write("plain", "#!/bin/sh\n", 0o644)}}, "rejected notExecutable none"},
		"a directory":        {m{"command": []string{dir}}, "rejected notExecutable none"},
		"no program":         {m{"command": []string{write("junk", "\x01\x02", 0o755)}}, "rejected notExecutable none"},
		"dir missing":        {m{"command": []string{"true"}, "dir": dir + "/gone"}, "rejected notFound none"},
		"dir is a file":      {m{"command": []string{"true"}, "dir": write("file", "", 0o644)}, "rejected notFound none"},
		"no command":         {m{}, "rejected input none"},
		"empty command":      {m{"command": []string{}}, "rejected input none"},
		"command is text":    {m{"command": "echo hello"}, "rejected input none"},
		"unknown field":      {m{"command": []string{"true"}, "cmd": 1}, "rejected input none"},
		"other spelling":     {m{"Command": []string{"true"}}, "rejected input none"},
		"NUL in an argument": {m{"command": []string{"echo", "a\x00b"}}, "rejected input none"}, // F012
		"NUL in env":         {m{"command": []string{"true"}, "env": m{"A": "\x00"}}, "rejected input none"},
		"NUL in dir":         {m{"command": []string{"true"}, "dir": "\x00"}, "rejected input none"},
		"bad env name":       {m{"command": []string{"true"}, "env": m{"A=B": "c"}}, "rejected input none"},
		"bad code":           {m{"command": []string{"true"}, "rejectedCodes": []int{0}}, "rejected input none"},
		"too many arguments": {m{"command": []string{"true", strings.Repeat("x", 1<<20)}}, "rejected input none"},
		"not an object":      {[]int{1}, "rejected input none"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, time.Minute, c.input)
			if got := verdict(err); got != c.want {
				t.Errorf("%s (%v), want %s", got, err, c.want)
			}
		})
	}
}

// No shell reads the arguments. An argument that is not a string is passed as JSON text, with all its digits.
func TestArgumentsAreNotReadByAShell(t *testing.T) {
	out, err := execute(t, time.Minute, m{"command": []any{"printf", `[%s]`, "$(id); `id` *", json.RawMessage("1.50"), true, nil, m{"a": []int{1}}, ""}})
	if want := `{"stdout":"[$(id); ` + "`id`" + ` *][1.50][true][null][{\"a\":[1]}][]"}`; err != nil || out != want {
		t.Errorf("%s, %v", out, err)
	}
}

func TestStdinIsPassedOn(t *testing.T) {
	for in, want := range map[string]string{
		`"plain text"`:    `{"stdout":"plain text"}`,
		`{"sku":"tea-1"}`: `{"sku":"tea-1"}`,
		`7`:               `7`,
		`null`:            `{"stdout":""}`,
	} {
		out, err := execute(t, time.Minute, m{"command": []string{"cat"}, "stdin": json.RawMessage(in)})
		if err != nil || out != want {
			t.Errorf("%s: %s, %v", in, out, err)
		}
	}
	// A program that does not read its stdin is not blocked.
	if out, err := execute(t, time.Minute, m{"command": []string{"true"}, "stdin": strings.Repeat("x", 1<<20)}); err != nil {
		t.Errorf("%s, %v", out, err)
	}
}

// I18: a program gets a few variables of this process, those that Config.Env names, and those of its run. It gets no
// others, whatever their names.
func TestEnvironmentHasOnlyNamedVariables(t *testing.T) {
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value) // restored at the end
		os.Unsetenv(name)
	}
	for name, value := range map[string]string{
		"PATH": "/usr/bin:/bin", "HOME": "/home/anna", "LANG": "C.UTF-8", "TZ": "Europe/Warsaw",
		"PERDURE_STORE": "postgres://u:secret@db", "PERDURE_SERVER": "http://u:secret@node", "PERDURE_TOKEN": "secret", "PERDURE_STEP": "secret",
		"PGPASSWORD": "secret", "AWS_SECRET_ACCESS_KEY": "secret", "LC_ALL": "secret", "LD_PRELOAD": "", "lang": "secret",
		"GIVEN": "yes", "EMPTY": "", "CHANGED": "not",
	} {
		t.Setenv(name, value)
	}
	in := m{"command": []string{"env"}, "env": m{"REGION": "eu", "N": 3, "CHANGED": "yes", "PERDURE_RUN": "99", "TRACEPARENT": "of the input", "TZ": "UTC"}}
	b, _ := json.Marshal(in)
	run := aRun(string(b))
	run.Direction, run.DoKey, run.Traceparent = perdure.Undo, "job/ship/0", "00-trace-span-01"
	own := []string{"PERDURE_KEY=job/ship/1", "PERDURE_RUN=7", "PERDURE_JOB=" + run.Job.String(), "PERDURE_STEP=ship", "PERDURE_DIRECTION=undo",
		"PERDURE_DO_KEY=job/ship/0", "TRACEPARENT=00-trace-span-01", "PATH=/usr/bin:/bin", "HOME=/home/anna", "LANG=C.UTF-8", "TZ=UTC", "REGION=eu", "N=3", "CHANGED=yes"}
	for _, c := range []struct {
		names []string
		want  []string
	}{
		{nil, own},
		{[]string{"GIVEN", "EMPTY", "UNSET", "CHANGED", "PATH"}, append([]string{"GIVEN=yes", "EMPTY="}, own...)},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := New(Config{Env: c.names}).Execute(ctx, run)
		if err != nil {
			t.Fatal(err)
		}
		var o struct{ Stdout string }
		if err := json.Unmarshal(out, &o); err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(strings.Split(strings.TrimSpace(o.Stdout), "\n"), func(s string) bool { return strings.HasPrefix(s, "PERDURE_REMAINING_MS=5") })
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("with %q:\n%q, want\n%q", c.names, got, c.want)
		}
	}
}

func TestCheckEnvRefusesInvalidNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"AWS_REGION": true, "lower_case": true, "PERDURE_SERVER": true, "A-B": true,
		"": false, "A=secret": false, "*": false, "AWS_*": false, "A B": false, "A\x00": false, "PERDURE_RUN": false, "PERDURE_DO_KEY": false,
	} {
		if err := CheckEnv([]string{"FINE", name}); (err == nil) != ok || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", name, err)
		}
	}
	many := slices.Repeat([]string{"A"}, MaxEnv)
	if CheckEnv(many) != nil || CheckEnv(append(many, "A")) == nil {
		t.Error("the bound is not", MaxEnv)
	}
}

func TestEndOfStderrIsTheMessage(t *testing.T) {
	_, err := execute(t, time.Minute, sh(`i=0; while [ $i -lt 3000 ]; do echo "line $i" >&2; i=$((i+1)); done; printf 'last \000words' >&2; exit 4`))
	r := protocol.ReportOf(aRun("{}"), nil, err)
	if msg := r.Error.Message; !strings.HasPrefix(msg, "exit code 4: ") || !strings.HasSuffix(msg, "line 2999\nlast \uFFFDwords") || len(msg) > perdure.MaxReasonBytes {
		t.Errorf("message of %d bytes: …%s", len(msg), msg[max(0, len(msg)-40):])
	}
}

// F014, F067: a draft is checked as far as its values are known.
func TestCheckRefusesInvalidDrafts(t *testing.T) {
	for in, ok := range map[string]bool{
		`{"command": ["./ship.sh", "${job.key}"]}`:                        true,
		`{"command": ["a"], "rejectedCodes": ["${input.code}"]}`:          true,
		`{"command": ["a"], "env": {"A": "${input.a}"}, "stdin": "${x}"}`: true,
		`{"command": ["a"], "rejectedCodes": ["$${input.code}"]}`:         false,
		`{"command": ["a"], "timeout": "${input.t}"}`:                     false,
		`{"dir": "${input.dir}"}`:                                         false,
	} {
		if err := Check(json.RawMessage(in)); (err == nil) != ok {
			t.Errorf("%s: %v", in, err)
		}
	}
	if _, err := parse(json.RawMessage(`{"command": ["a"], "rejectedCodes": ["${input.code}"]}`), false); err == nil {
		t.Error("an expression that was not evaluated")
	}
}

func TestExpiredRunIsNotStarted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the host is draining"))
	_, err := New(Config{}).Execute(ctx, aRun(`{"command": ["true"]}`))
	if verdict(err) != "failed  none" {
		t.Errorf("%s: %v", verdict(err), err)
	}
}
