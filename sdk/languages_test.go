// Package sdk has the tests of the packages for other languages: the same cases for all of them, their own unit tests,
// and their examples against the real server.
package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
)

// The tests of this package wait more than they work.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "perdure-sdk-")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// scratch is a directory for all tests of this package.
var scratch string

// language is one of those that an agent can be written in, as far as the tests need to know it.
type language struct {
	name        string
	conformance func(t *testing.T, url string) *process // starts the agent that the cases are played with
}

var languages = []language{
	{name: "go", conformance: goAgent},
	{name: "python", conformance: func(t *testing.T, url string) *process {
		return spawn(t, python(t), "python/tests/conformance.py", url)
	}},
	{name: "python-async", conformance: func(t *testing.T, url string) *process {
		return spawn(t, python(t), "python/tests/conformance_async.py", url)
	}},
	{name: "typescript", conformance: func(t *testing.T, url string) *process {
		return spawn(t, node(t), "typescript/build/tests/conformance.js", url)
	}},
}

// python is the interpreter, as a command. Where it is missing the test is skipped, unless it is required.
func python(t *testing.T) string {
	t.Helper()
	// Reading them tells go test that a cached result is one of these files.
	err := filepath.WalkDir("python", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".py") {
			_, err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return needed(t, "PERDURE_TEST_REQUIRE_PYTHON", "python3", func(path string) error {
		return exec.Command(path, "-c", "import sys; sys.exit(sys.version_info < (3, 9))").Run()
	})
}

// environment is what the packages' own programs need to find them.
func environment(t *testing.T) []string {
	t.Helper()
	return append(os.Environ(), "PYTHONPATH="+absolute(t, "python"), "PYTHONDONTWRITEBYTECODE=1")
}

// process is an agent at work.
type process struct {
	stop   func()       // as SIGTERM does
	frozen func()       // SIGTERM, while it is stopped
	wait   func() error // how it ended
}

// spawn runs an agent's process until the test ends.
func spawn(t *testing.T, argv ...string) *process {
	t.Helper()
	return spawnIn(t, "", environment(t), argv...)
}

func spawnIn(t *testing.T, dir string, env []string, argv ...string) *process {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(2*patience, func() { t.Errorf("%q has not ended", argv); _ = cmd.Process.Kill() })
	wait := sync.OnceValue(func() error { defer hung.Stop(); return cmd.Wait() })
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = wait()
		if t.Failed() {
			t.Logf("%q:\n%s", argv, out.String())
		}
	})
	send := func(signals ...syscall.Signal) func() {
		return func() {
			for _, s := range signals {
				_ = cmd.Process.Signal(s)
				time.Sleep(20 * time.Millisecond) // each is to be acted on before the next
			}
		}
	}
	return &process{stop: send(syscall.SIGTERM), frozen: send(syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGCONT), wait: wait}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// needed finds a program; without it the test is skipped, or fails where the variable says that it is required.
func needed(t *testing.T, required, name string, fits func(path string) error) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		err = fits(path)
	}
	switch {
	case err == nil:
	case os.Getenv(required) != "":
		t.Fatalf("%s is set, and there is no %s that fits: %v", required, name, err)
	default:
		t.Skipf("there is no %s that fits: %v (scripts/setup installs it)", name, err)
	}
	return path
}

// goAgent is the agent of the cases in Go, in this process.
func goAgent(t *testing.T, url string) *process {
	var mu sync.Mutex
	calls, ended, reasons := 0, 0, []string{}
	agent := perdure.NewAgent("conformance")
	agent.Slots = 2
	handle := func(action string, do func(ctx context.Context, run *perdure.Run) (any, error)) {
		agent.HandleRaw(action, func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
			if run.Direction == perdure.Undo {
				if action != "echo" {
					return nil, nil
				}
				saw, _ := json.Marshal(object{"input": run.Input, "output": run.Output, "doKey": run.DoKey})
				return nil, perdure.Rejected(errors.New(string(saw)), "seen")
			}
			if action != "log" {
				mu.Lock()
				calls++
				mu.Unlock()
				defer func() { mu.Lock(); ended++; mu.Unlock() }()
			}
			out, err := do(ctx, run)
			if raw, ok := out.(json.RawMessage); ok || err != nil {
				return raw, err
			}
			return json.Marshal(out)
		})
	}
	reason := func(ctx context.Context) (name string) {
		name = map[string]string{"the run's lock has expired: context deadline exceeded": "timeUp", "context deadline exceeded": "timeUp",
			"the run no longer belongs to this host": "notOurs", "the run is no longer wanted": "stopped", "the host is draining": "draining"}[fmt.Sprint(context.Cause(ctx))]
		mu.Lock()
		reasons = append(reasons, name)
		mu.Unlock()
		return name
	}
	handle("echo", func(ctx context.Context, run *perdure.Run) (any, error) {
		deadline, _ := ctx.Deadline()
		left := time.Until(deadline)
		b, _ := json.Marshal(object{"key": run.Key, "number": run.Number, "direction": run.Direction, "remaining": left > 0 && left <= ample})
		return json.RawMessage(`{"input":` + string(run.Input) + "," + string(b[1:])), nil
	})
	perdure.Handle(agent, "half", perdure.Op[any, json.RawMessage]{Do: func(context.Context, any) (json.RawMessage, error) { return nil, nil }})
	handle("fail", goFail)
	handle("wait", func(ctx context.Context, _ *perdure.Run) (any, error) {
		<-ctx.Done()
		reason(ctx)
		return nil, ctx.Err()
	})
	handle("obey", func(ctx context.Context, _ *perdure.Run) (any, error) {
		<-ctx.Done()
		return object{"obeyed": reason(ctx)}, nil
	})
	handle("stubborn", func(ctx context.Context, run *perdure.Run) (any, error) {
		var in struct{ Ms int }
		_ = json.Unmarshal(run.Input, &in)
		time.Sleep(time.Duration(in.Ms) * time.Millisecond)
		reason(ctx)
		return object{"late": true}, nil
	})
	handle("progress", func(ctx context.Context, run *perdure.Run) (any, error) {
		err := perdure.Progress(ctx, run.Input)
		<-ctx.Done()
		return nil, err
	})
	handle("large", func(_ context.Context, run *perdure.Run) (any, error) {
		var in struct{ N int }
		_ = json.Unmarshal(run.Input, &in)
		return string(bytes.Repeat([]byte("x"), in.N)), nil
	})
	handle("odd", func(context.Context, *perdure.Run) (any, error) { return json.RawMessage("NaN"), nil })
	handle("log", func(ctx context.Context, run *perdure.Run) (any, error) {
		var in struct{ After int }
		_ = json.Unmarshal(run.Input, &in)
		for {
			mu.Lock()
			done, out := ended >= in.After, object{"calls": calls, "reasons": append([]string{}, reasons...)}
			mu.Unlock()
			if done {
				return out, nil
			}
			if time.Sleep(10 * time.Millisecond); ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	})

	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended2 := make(chan error, 1)
	go func() {
		ended2 <- c.Serve(ctx, client.ServeConfig{Name: "conformance", Heartbeat: 600 * time.Millisecond, Grace: 4 * time.Second}, agent)
	}()
	wait := sync.OnceValue(func() error { return <-ended2 })
	t.Cleanup(func() { stop(); _ = wait() })
	return &process{stop: stop, wait: wait}
}

func goFail(_ context.Context, run *perdure.Run) (any, error) {
	var in struct{ How string }
	_ = json.Unmarshal(run.Input, &in)
	switch in.How {
	case "failed":
		return nil, perdure.Failed(errors.New("no"), "c1")
	case "rejected":
		return nil, perdure.NoEffect(perdure.Rejected(errors.New("no"), "c2"))
	case "retryAfter":
		return nil, perdure.RetryAfter(1500*time.Millisecond, errors.New("busy"))
	case "noEffect":
		return nil, perdure.NoEffect(errors.New("nothing"))
	case "long":
		return nil, perdure.Failed(errors.New(string(bytes.Repeat([]byte("é"), 5000))), string(bytes.Repeat([]byte("x"), 200)))
	case "crash":
		panic("crash")
	}
	return nil, errors.New("plain")
}
