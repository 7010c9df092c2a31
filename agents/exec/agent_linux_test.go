package exec

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/internal/runcontext"
	"github.com/perdure/perdure/protocol"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // they wait for other processes most of the time
	os.Exit(m.Run())
}

type m = map[string]any

func sh(script string) m { return m{"command": []string{"/bin/sh", "-c", script}} }

var (
	errStop = errors.New("stop")
	errKill = errors.New("kill")
)

func newAgent(t *testing.T, dir string, change func(*Config)) *Agent {
	t.Helper()
	cfg := Config{Dir: dir, Host: "h1", StopWithin: 200 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Full: func() {},
		Left: func(*perdure.Run) time.Duration { return time.Minute }, Ending: func(cause error) runcontext.Ending {
			switch {
			case errors.Is(cause, errStop):
				return runcontext.Stop
			case errors.Is(cause, errKill):
				return runcontext.Kill
			}
			return runcontext.Leave
		}}
	if change != nil {
		change(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if r, err := keeper.ReadRun(filepath.Join(dir, e.Name())); err == nil {
				keeper.Destroy(filepath.Join(dir, e.Name()), r)
			}
		}
	})
	return a
}

var jobs atomic.Int32

// aRun returns a run of a job of its own: the processes of a run are found by its handle.
func aRun(input any) *perdure.Run {
	b, _ := json.Marshal(input)
	n := jobs.Add(1)
	return &perdure.Run{Job: perdure.JobID{byte(os.Getpid()), byte(os.Getpid() >> 8), byte(n), byte(n >> 8)}, Step: "render it/ö", Action: "render", Number: 7, Key: "job/render/1", Input: b}
}

// verdict returns a result as a report contains it: "failed exit_1 none".
func verdict(run *perdure.Run, output json.RawMessage, err error) string {
	r := protocol.ReportOf(run, output, err)
	if err == nil {
		return "done"
	}
	return strings.TrimSpace(fmt.Sprint(r.Outcome, " ", r.Error.Code, " ", r.Effect))
}

func TestExitDecidesOutcome(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	withExit := func(script string) m {
		in := sh(script)
		in["exit"] = m{"rejected": []int{64}, "returned": []int{75}}
		return in
	}
	for name, c := range map[string]struct {
		input any
		want  string
	}{
		"exit 0":             {sh("exit 0"), "done"},
		"exit 1":             {sh("exit 1"), "failed exit_1"},
		"exit 75":            {sh("exit 75"), "failed exit_75"},
		"rejected":           {withExit("exit 64"), "rejected exit_64"},
		"returned":           {withExit("exit 75"), "returned exit_75"},
		"neither":            {withExit("exit 2"), "failed exit_2"},
		"signal":             {sh("kill -TERM $$"), "failed signal_TERM"},
		"real-time signal":   {sh("kill -34 $$"), "failed signal_34"}, // F277
		"no such program":    {m{"command": []string{"no-such-program-here"}}, "rejected notFound none"},
		"no such path":       {m{"command": []string{"/no/such/program"}}, "rejected notFound none"},
		"not executable":     {m{"command": []string{plain}}, "rejected notExecutable none"},
		"too many arguments": {m{"command": []string{"true", strings.Repeat("x", 1<<19)}}, "rejected input none"},
		"no command":         {m{}, "rejected input none"},
		"empty command":      {m{"command": []string{""}}, "rejected input none"},
		"unknown field":      {m{"command": []string{"true"}, "cmd": 1}, "rejected input none"},
		"unknown exit":       {m{"command": []string{"true"}, "exit": m{"failed": []int{1}}}, "rejected input none"},
		"code out of range":  {m{"command": []string{"true"}, "exit": m{"rejected": []int{256}}}, "rejected input none"},
		"code in both":       {m{"command": []string{"true"}, "exit": m{"rejected": []int{3}, "returned": []int{3}}}, "rejected input none"},
		"NUL in an argument": {m{"command": []string{"echo", "a\x00b"}}, "rejected input none"}, // F012
		"NUL in env":         {m{"command": []string{"true"}, "env": m{"A": "\x00"}}, "rejected input none"},
		"bad env name":       {m{"command": []string{"true"}, "env": m{"A=B": "c"}}, "rejected input none"},
		"not an object":      {[]int{1}, "rejected input none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := aRun(c.input)
			out, err := newAgent(t, t.TempDir(), nil).Execute(t.Context(), run)
			if got := verdict(run, out, err); got != c.want {
				t.Errorf("%s (%v), want %s", got, err, c.want)
			}
		})
	}
}

func TestOutput(t *testing.T) {
	for script, want := range map[string]string{
		`echo '{"n": 12345678901234567890.10}'`: `{"exit":0,"host":"h1","stdout":{"n":12345678901234567890.10}}`,
		`echo 42`:                               `{"exit":0,"host":"h1","stdout":42}`,
		`echo hello`:                            `{"exit":0,"host":"h1","stdout":"hello\n"}`,
		`true`:                                  `{"exit":0,"host":"h1"}`,
		`printf 'a\000b\377c'`:                  `{"exit":0,"host":"h1","stdout":"a` + "\uFFFD" + `b` + "\uFFFD" + `c"}`, // F047
		`head -c 9999 /dev/zero | tr '\0' x`:    `{"exit":0,"host":"h1","stdout":"` + strings.Repeat("x", stdoutTail) + `"}`,
		`head -c 1044480 /dev/zero | tr '\0' 1`: `{"exit":0,"host":"h1","stdout":` + strings.Repeat("1", perdure.MaxPayloadBytes-outputRest) + `}`,
		`head -c 1044481 /dev/zero | tr '\0' 1`: `{"exit":0,"host":"h1","stdout":"` + strings.Repeat("1", stdoutTail) + `"}`,
		`printf %s "$PERDURE_KEY $PERDURE_RUN $PERDURE_JOB"`: `{"exit":0,"host":"h1","stdout":"job/render/1 7 JOB"}`,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			run := aRun(sh(script))
			out, err := newAgent(t, t.TempDir(), nil).Execute(t.Context(), run)
			want := strings.Replace(want, "JOB", run.Job.String(), 1)
			if r := protocol.ReportOf(run, out, err); string(r.Output) != want {
				t.Errorf("%.300s (%v), want %.300s", r.Output, err, want)
			}
		})
	}
}

// F278: the disk becomes full while a command writes its stdout. The number that it wrote is not in the output, because its end
// is missing.
func TestStdoutWithoutItsEndIsLeftOut(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("NOT TESTED: no tmpfs can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	const want = `{"exit":0,"host":"h1"}`
	if out, err := newAgent(t, disk, nil).Execute(t.Context(), aRun(sh(`head -c 600000 /dev/zero | tr '\0' 1`))); string(out) != want || err != nil {
		t.Errorf("%.300s (%v), want %s", out, err, want)
	}
}

func TestEndOfStderrIsTheMessage(t *testing.T) {
	_, err := newAgent(t, t.TempDir(), nil).Execute(t.Context(), aRun(sh(`i=0; while [ $i -lt 900 ]; do echo "line $i" >&2; i=$((i+1)); done; echo last >&2; exit 4`)))
	if err == nil || !strings.HasPrefix(err.Error(), "exit code 4: ") || !strings.HasSuffix(err.Error(), "line 899\nlast") || len(err.Error()) > stderrBytes+20 {
		t.Errorf("%v", err)
	}
}

func TestOnlyAllowedCommandsRun(t *testing.T) {
	a := newAgent(t, t.TempDir(), func(c *Config) { c.Commands = []string{"true"} })
	for command, want := range map[string]string{"true": "done", "/bin/true": "rejected notExecutable none", "false": "rejected notExecutable none"} {
		run := aRun(m{"command": []string{command}})
		run.Step = command
		out, err := a.Execute(t.Context(), run)
		if got := verdict(run, out, err); got != want {
			t.Errorf("%s: %s (%v)", command, got, err)
		}
	}
}

func TestSecretsAreRefused(t *testing.T) {
	run := aRun(m{"command": []string{"true"}, "env": m{"A": "value"}})
	run.Secrets = []string{"/env/A"}
	out, err := newAgent(t, t.TempDir(), nil).Execute(t.Context(), run)
	if verdict(run, out, err) != "rejected input none" || !strings.Contains(err.Error(), "env/A") {
		t.Errorf("%v", err)
	}
}

// A run that is stopped, or that belongs to another holder now, ends its command. One that is left goes on, and another
// process continues with it.
func TestEndOfTheContext(t *testing.T) {
	dir := t.TempDir()
	run := aRun(sh(`trap 'exit 0' TERM; echo start >> ../starts; while [ ! -e ../go ]; do sleep 0.02; done; echo whole`))
	begin := func(a *Agent) (end context.CancelCauseFunc, ended chan error) {
		ctx, end := context.WithCancelCause(t.Context())
		ended = make(chan error, 1)
		go func() {
			out, err := a.Execute(ctx, run)
			if err == nil && !strings.Contains(string(out), "whole") {
				err = errors.New(string(out))
			}
			ended <- err
		}()
		for range 1000 {
			if _, err := os.Stat(filepath.Join(dir, dirName(run), "starts")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return end, ended
	}
	a := newAgent(t, dir, nil)
	end, ended := begin(a)
	end(errors.New("the process ends"))
	if err := <-ended; !errors.Is(err, keeper.ErrLeft) {
		t.Fatalf("%v", err)
	}
	next := newAgent(t, dir, nil)
	if runs, _, err := next.Pending(); err != nil || len(runs) != 1 || runs[0].Key != run.Key || runs[0].Step != run.Step {
		t.Fatalf("%v, %v", runs, err)
	}
	end, ended = begin(next)
	if err := os.WriteFile(filepath.Join(dir, dirName(run), "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	end(nil)
	if b, _ := os.ReadFile(filepath.Join(dir, dirName(run), "starts")); string(b) != "start\n" {
		t.Errorf("%q", b)
	}
	next.Ended(run)
	if runs, _, _ := next.Pending(); len(runs) != 0 {
		t.Errorf("%v", runs)
	}
	next.Sweep(time.Hour)
	if _, err := os.Stat(filepath.Join(dir, dirName(run))); err != nil {
		t.Error(err)
	}
	next.Sweep(0)
	if _, err := os.Stat(filepath.Join(dir, dirName(run))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}

	run.Number = 8
	end, ended = begin(next)
	end(errStop)
	if err := <-ended; verdict(run, nil, err) != "failed stopped" {
		t.Errorf("%v", err)
	}
	run.Number = 9
	end, ended = begin(next)
	end(errKill)
	<-ended
	if e, err := keeper.ReadExit(filepath.Join(dir, dirName(run))); err != nil || e.Signal != "KILL" {
		t.Errorf("%+v, %v", e, err)
	}
}

// The earlier process died between two of its steps. Nothing is started twice, and nothing is taken for started.
func TestUnfinishedStarts(t *testing.T) {
	boot, _ := keeper.Boot()
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string, r *keeper.Run)
		want    string
	}{
		"run.json alone": {func(t *testing.T, dir string, r *keeper.Run) {}, "done"},
		"run.json of another boot": {func(t *testing.T, dir string, r *keeper.Run) {
			r.Boot = "another"
			if err := keeper.WriteRun(dir, r); err != nil {
				t.Fatal(err)
			}
		}, "failed hostRestarted"},
		"refused, without an exit record": {func(t *testing.T, dir string, r *keeper.Run) {
			if err := keeper.WriteFile(dir, "keeper.json", &keeper.Keeper{}); err != nil {
				t.Fatal(err)
			}
		}, "returned"},
		"killed for want of memory": {func(t *testing.T, dir string, r *keeper.Run) { // F255
			if err := keeper.WriteFile(dir, "exit.json", &keeper.Exit{Signal: "KILL", OOM: true}); err != nil {
				t.Fatal(err)
			}
		}, "failed outOfMemory"},
		"a dead keeper": {func(t *testing.T, dir string, r *keeper.Run) {
			if err := keeper.WriteFile(dir, "keeper.json", &keeper.Keeper{Process: keeper.Process{PID: os.Getpid(), Start: 1, Boot: boot}}); err != nil {
				t.Fatal(err)
			}
		}, "failed lost"},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			run := aRun(sh("true"))
			dir := filepath.Join(state, dirName(run))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			owner, _ := json.Marshal(run)
			r := &keeper.Run{Handle: handleOf(run), Command: []string{"true"}, Env: []string{"PATH=/bin:/usr/bin"}, Boot: boot, Until: keeper.Now() + int64(time.Minute), Owner: owner}
			if err := keeper.WriteRun(dir, r); err != nil {
				t.Fatal(err)
			}
			c.prepare(t, dir, r)
			a := newAgent(t, state, nil)
			if runs, _, err := a.Pending(); err != nil || len(runs) != 1 {
				t.Fatalf("%v, %v", runs, err)
			}
			out, err := a.Execute(t.Context(), run)
			if got := verdict(run, out, err); got != c.want {
				t.Errorf("%s (%v), want %s", got, err, c.want)
			}
		})
	}
	state := t.TempDir()
	if err := os.Mkdir(filepath.Join(state, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if runs, _, err := newAgent(t, state, nil).Pending(); err != nil || len(runs) != 0 {
		t.Errorf("%v, %v", runs, err)
	}
	if _, err := os.Stat(filepath.Join(state, "empty")); err == nil {
		t.Error("the directory without run.json is left")
	}
}

// What the command writes to the file of PERDURE_PROGRESS is its progress.
func TestProgressIsSent(t *testing.T) {
	run := aRun(sh(`echo '{"done": 3}' > "$PERDURE_PROGRESS"; while [ ! -e ../go ]; do sleep 0.02; done`))
	dir := t.TempDir()
	sent := make(chan string, 10)
	ctx := runcontext.With(t.Context(), run, time.Now().Add(time.Minute), func(p json.RawMessage) { sent <- string(p) })
	go func() { _, _ = newAgent(t, dir, nil).Execute(ctx, run) }()
	select {
	case p := <-sent:
		if p != `{"done":3}` {
			t.Errorf("%s", p)
		}
	case <-time.After(30 * time.Second):
		t.Error("nothing was sent")
	}
	_ = os.WriteFile(filepath.Join(dir, dirName(run), "go"), nil, 0o600)
}

func TestProgressIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "progress")
	p := progressReader{path: path}
	at := time.Now()
	for text, want := range map[string]string{
		"":           "",
		"half way\n": `"half way"`,
		`[1]`:        `[1]`,
		strings.Repeat("1", perdure.MaxProgressBytes):   strings.Repeat("1", perdure.MaxProgressBytes),
		strings.Repeat("1", perdure.MaxProgressBytes+1): "",
		strings.Repeat("x", perdure.MaxProgressBytes):   "", // as a string of JSON it has two bytes more
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Second)
		_ = os.Chtimes(path, at, at)
		if got := string(p.read()); got != want {
			t.Errorf("%.20q: %.40q, want %.40q", text, got, want)
		}
		if got := p.read(); got != nil && want != "" {
			t.Errorf("%.20q is sent twice", text)
		}
	}
	_ = os.Remove(path)
	if err := os.Symlink("/proc/self/environ", path); err != nil {
		t.Fatal(err)
	}
	if got := p.read(); got != nil {
		t.Errorf("a link is followed: %s", got)
	}
}

func TestDirectoriesOfRunsDiffer(t *testing.T) {
	var names []string
	for _, step := range []string{"a", "b", "a/b", "../a", strings.Repeat("long", 30)} {
		for _, n := range []int64{1, 2} {
			names = append(names, dirName(&perdure.Run{Job: perdure.JobID{1}, Step: step, Number: n}))
		}
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) || strings.ContainsAny(name, "/ ") || len(name) > 100 {
			t.Errorf("%q", name)
		}
	}
}

// As root, commands are processes of another user, who can neither read nor change the records of a run.
func TestCommandsOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root can start processes of another user")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "perdure-user")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	run := aRun(sh(`exec 2>&1; id -u; id -g; id -G; echo $HOME; echo '"half"' > $PERDURE_PROGRESS && touch file && echo wrote
cat ../run.json || echo no; ls .. || echo no; rm ../progress || echo no; echo x > ../exit.json || echo no; kill -9 $PPID || echo no`))
	a := newAgent(t, dir, func(c *Config) {
		c.User = &User{User: keeper.User{UID: nobody, GID: nobody, Groups: []uint32{nobody}}, Home: "/home/none"}
	})
	out, err := a.Execute(t.Context(), run)
	if s := string(out); err != nil || strings.Count(s, `no\n`) != 5 || !strings.Contains(s, `"65534\n65534\n65534\n/home/none\nwrote\n`) || strings.Contains(s, "handle") {
		t.Errorf("%s, %v", out, err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, dirName(run), progressFile)); string(b) != "\"half\"\n" {
		t.Errorf("%q", b)
	}
}

// The user of a command is chosen by a label of its job: the first that matches counts, then Config.User, and a job without
// any is refused.
func TestUserOfALabel(t *testing.T) {
	red, blue, other := &User{Home: "red"}, &User{Home: "blue"}, &User{Home: "other"}
	users := []UserOfLabel{{"team", "red", red}, {"team", "blue", blue}, {"zone", "a", other}}
	for _, c := range []struct {
		labels  map[string]string
		user    *User
		want    *User
		refused bool
	}{
		{map[string]string{"team": "red", "zone": "a"}, nil, red, false},
		{map[string]string{"team": "blue"}, other, blue, false},
		{map[string]string{"zone": "a", "team": "green"}, nil, other, false},
		{map[string]string{"team": "green"}, other, other, false},
		{map[string]string{"team": "green"}, nil, nil, true},
		{nil, nil, nil, true},
	} {
		a := newAgent(t, t.TempDir(), func(cfg *Config) { cfg.User, cfg.Users = c.user, users })
		run := aRun(sh("true"))
		run.Labels = c.labels
		got, err := a.userOf(run)
		if got != c.want || (err != nil) != c.refused {
			t.Errorf("%v: %+v, %v", c.labels, got, err)
		}
		if c.refused && verdict(run, nil, err) != "rejected notExecutable none" {
			t.Errorf("%v", err)
		}
	}
}
