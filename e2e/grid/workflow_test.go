package grid

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/e2e/rig"
)

var images = flag.Int("images", 12, "images of the mosaic that TestWorkflowOnHosts makes; 100: a graph of 402 tasks")

// wfcommons runs examples/grid/wfcommons.py.
func (g *grid) wfcommons(args ...string) []byte {
	g.Helper()
	cmd := exec.Command("python3", append([]string{"../../examples/grid/wfcommons.py"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	g.must(err)
	return out
}

// TestWorkflowOnHosts runs a scientific workflow whose commands read and write files. When half of its files exist, all hosts and
// a node are killed. The workflow is finished and every file has the content that it must have; then it is undone, and no file is
// left (F230, F231).
func TestWorkflowOnHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 on this machine")
	}
	g := newGrid(t, 10, *slots)
	work := filepath.Join(g.shared, "mosaic")
	g.must(os.Mkdir(work, 0o755))
	instance := filepath.Join(g.shared, "montage.json")
	g.must(os.WriteFile(instance, g.wfcommons("montage", strconv.Itoa(*images)), 0o644))
	var want map[string]string // SHA-256 by file
	g.must(json.Unmarshal(g.wfcommons("expected", instance), &want))
	definition := g.wfcommons("convert", instance, "--dir", work, "--speed", "20")

	job, _, err := g.client.Submit(t.Context(), definition, "application/json")
	g.must(err)
	made := func() (n int) {
		list, err := os.ReadDir(work)
		g.must(err)
		for _, f := range list {
			if !strings.Contains(f.Name(), ".part.") {
				n++
			}
		}
		return n
	}
	g.until("half of the files", time.Minute+time.Duration(*images)*time.Second, func() bool { return made() > len(want)/2 })
	for i := range g.hosts {
		g.hosts[i].End(syscall.SIGKILL)
		g.killKeepers(i)
	}
	g.restart(g.nodes[1], syscall.SIGKILL)
	rig.Ready(t, g.urls[1])
	for _, h := range g.hosts {
		g.must(h.Start())
	}
	settled := func(state perdure.State) func() bool {
		return func() bool {
			view, err := g.client.Job(t.Context(), job.ID.String(), 0)
			return err == nil && view.Phase == perdure.Settled && view.Current == state
		}
	}
	g.until("the workflow is done", 2*time.Minute+time.Duration(*images)*time.Second, settled(perdure.Done))
	for name, sum := range want {
		text, err := os.ReadFile(filepath.Join(work, name))
		if got, _, _ := strings.Cut(string(text), " "); err != nil || got != sum {
			t.Errorf("%s has %q (%v), not %s", name, text, err, sum)
		}
	}
	g.wfcommons("check", instance, "--dir", work)
	if _, err := g.client.Act(t.Context(), job.ID.String(), perdure.Act{Verb: perdure.VerbUndo, Reason: "not needed any more"}); err != nil {
		t.Fatal(err)
	}
	g.until("the workflow is undone", 2*time.Minute+time.Duration(*images)*time.Second, settled(perdure.Undone))
	if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
		t.Errorf("%d files are left: %v; %v", len(left), left, err)
	}
}

func (g *grid) until(what string, within time.Duration, is func() bool) {
	g.Helper()
	for end := time.Now().Add(within); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			g.Fatalf("%s: not within %v", what, within)
		}
	}
}
