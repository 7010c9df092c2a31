// Package e2e runs the real binary as its users do, kills it, and compares the results with the records of the steps
// themselves.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/e2e/rig"
)

var perdure string // the binary

func TestMain(m *testing.M) {
	remove := rig.Build()
	perdure = rig.Program()
	code := m.Run()
	remove()
	os.Exit(code)
}

// run runs one command to its end.
func run(t *testing.T, args ...string) (stdout string, exit int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, perdure, args...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("perdure %s did not end: %s%s", strings.Join(args, " "), tail(out.String()), tail(stderr.String()))
	}
	if exit = cmd.ProcessState.ExitCode(); exit != 0 {
		t.Logf("perdure %s: exit %d: %s", strings.Join(args, " "), exit, tail(stderr.String()))
	}
	return out.String(), exit
}

func tail(s string) string { return s[max(0, len(s)-1000):] }

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, exit := run(t, args...)
	if exit != 0 {
		t.Fatalf("perdure %s: exit %d", strings.Join(args, " "), exit)
	}
	return out
}

// begin starts a command in a session of its own, so that it alone can be killed.
func begin(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(perdure, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log := &bytes.Buffer{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("perdure %s: %s", strings.Join(args, " "), tail(log.String()))
		}
	})
	return cmd
}

// serve starts a node and waits until it is ready.
func serve(t *testing.T, args ...string) (url string, cmd *exec.Cmd) {
	t.Helper()
	addr := rig.FreeAddress(t)
	cmd = begin(t, append([]string{"serve", "--listen", addr}, args...)...)
	url = "http://" + addr
	eventually(t, "the node is ready", func() bool { return ready(url) })
	return url, cmd
}

func ready(url string) bool {
	c := http.Client{Timeout: time.Second}
	resp, err := c.Get(url + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within a minute: %s", what)
}

// graph is a job of shell steps, each of which writes its beginning and end to a ledger.
type graph struct {
	key    string
	after  map[string][]string
	names  []string
	ledger string
}

const ledgerScript = `echo "$1 start $2 $PERDURE_RUN" >> "$3"; eval "sleep $4"; echo "$1 end $2 $PERDURE_RUN" >> "$3"`

// write writes the job's file.
func (g *graph) write(t *testing.T, nap func(i int) string) string {
	t.Helper()
	steps := map[string]any{}
	for i, name := range g.names {
		command := func(direction string) map[string]any {
			return map[string]any{"command": []string{"sh", "-c", ledgerScript, "sh", direction, name, g.ledger, nap(i)}}
		}
		steps[name] = map[string]any{"agent": "shell", "after": append([]string{}, g.after[name]...), "with": command("do"),
			"undo": map[string]any{"with": command("undo")}, "completeWithin": "30s",
			"retry": map[string]any{"attempts": 100, "backoff": "10ms"}}
	}
	body, err := json.Marshal(map[string]any{"type": "graph", "key": g.key, "steps": steps})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(g.ledger), g.key+".json")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// audit reads the ledger: every step ran after all steps that it waits for had ended; run numbers grow; and no run is
// dispatched while an earlier one is still in flight.
func (g *graph) audit(t *testing.T, direction string) (repeats int) {
	t.Helper()
	text, err := os.ReadFile(g.ledger)
	if err != nil {
		t.Fatal(err)
	}
	before := map[string][]string{}
	for name, preds := range g.after {
		if direction == "do" {
			before[name] = preds
			continue
		}
		for _, p := range preds {
			before[p] = append(before[p], name)
		}
	}
	latest, ended := map[string]int{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var way, event, step string
		var run int
		if _, err := fmt.Sscan(line, &way, &event, &step, &run); err != nil {
			t.Fatalf("ledger: %q", line)
		}
		switch {
		case way != direction:
		case event == "start":
			if run <= latest[step] {
				t.Errorf("%s %s: run %d after run %d", way, step, run, latest[step])
			}
			if latest[step] > 0 {
				repeats++
			}
			latest[step] = run
			for _, p := range before[step] {
				if !ended[p] {
					t.Errorf("%s %s began before %s had ended", way, step, p)
				}
			}
		case latest[step] != run:
			t.Errorf("%s %s: run %d ended when run %d was out", way, step, run, latest[step])
		default:
			ended[step] = true
		}
	}
	for _, name := range g.names {
		if !ended[name] {
			t.Errorf("%s %s never ended", direction, name)
		}
	}
	return repeats
}
