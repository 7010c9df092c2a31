// Package examples has tests that run the examples as a newcomer would.
package examples

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/protocol"
)

// build makes a binary of a package of this module.
func build(t *testing.T, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", path, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// start runs a process until the test ends.
func start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(name), out.String())
		}
	})
	return cmd
}

// serve starts a node and waits until it answers.
func serve(t *testing.T, binary string) (url string, svc protocol.Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	start(t, binary, "serve", "--listen", address, "--store", "sqlite:"+filepath.Join(t.TempDir(), "perdure.db"))
	svc, err = client.New("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := svc.ListNodes(t.Context()); err == nil {
			return "http://" + address, svc
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// The agent in Python works, dies at its work, is replaced by another, and undoes.
func TestPythonAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for some seconds")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	url, svc := serve(t, build(t, "github.com/perdure/perdure/cmd/perdure"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	definition, err := os.ReadFile("agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var job *perdure.JobView
	look := func() perdure.Phase {
		if job, err = svc.Job(ctx, job.ID.String(), 0); err != nil {
			t.Fatal(err)
		}
		return job.Steps.Get("greet").Phase
	}
	for job == nil || look() != perdure.Running { // until one dies in the middle
		if job, _, err = svc.Submit(ctx, definition, "application/yaml"); err != nil {
			t.Fatal(err)
		}
		first := start(t, python, "agent.py", url)
		for p := look(); p == perdure.Waiting || p == perdure.Ready; p = look() {
			time.Sleep(50 * time.Millisecond)
		}
		if err := first.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	ref, key := job.ID.String(), job.Steps.Get("greet").Key
	start(t, python, "agent.py", url)

	if job, err = svc.Job(ctx, ref, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	greet := job.Steps.Get("greet")
	if job.Phase != perdure.Settled || job.Current != perdure.Done {
		t.Fatalf("the job is %s, %s; greet: %+v", job.Current, job.Phase, greet)
	}
	if greet.Run < 2 || greet.Key != key {
		t.Errorf("run %d under key %s; the agent that died had %s", greet.Run, greet.Key, key)
	}
	if out := string(job.Steps.Get("again").Output); !strings.Contains(out, "Hello, world!") {
		t.Errorf("the second step says %s", out)
	}

	if _, err := svc.Act(ctx, ref, perdure.Act{Verb: perdure.VerbUndo, Author: "test"}); err != nil {
		t.Fatal(err)
	}
	if job, err = svc.Job(ctx, ref, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	if job.Phase != perdure.Settled || job.Current != perdure.Undone {
		t.Errorf("after the undo the job is %s, %s", job.Current, job.Phase)
	}
}

// The agent in Python passes all points of `perdure agents test`.
func TestPythonAgentConforms(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for half a minute")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	perdure := build(t, "github.com/perdure/perdure/cmd/perdure")
	cmd := exec.Command(perdure, "agents", "test", "python", "--listen", "127.0.0.1:0", "--input", `{"name": "world"}`, "--", python, "agent.py")
	var log bytes.Buffer
	cmd.Stderr = &log
	points, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, points, log.String())
	}
	if n := strings.Count(string(points), "passed "); n != 6 {
		t.Errorf("%d of 6 points passed:\n%s", n, points)
	}
}
