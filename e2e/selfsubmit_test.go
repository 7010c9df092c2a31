package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/e2e/rig"
	"github.com/perdure/perdure/internal/crashpoint"
)

// A step of the agent http submits a job to its own node. The node is killed after it has stored the child job and
// before it has answered. The step runs again, under the same key, and there is still one child.
func TestRepeatedStepSubmitsOneJob(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program once more")
	}
	armed := buildArmed(t)
	address, store := rig.FreeAddress(t), "sqlite:"+filepath.Join(t.TempDir(), "perdure.db")
	url := "http://" + address
	start := func(env ...string) *exec.Cmd {
		cmd := exec.Command(armed, "serve", "--listen", address, "--store", store, "--allow-private-targets")
		cmd.Env = append(cmd.Environ(), env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		eventually(t, "the node is ready", func() bool { return ready(url) })
		return cmd
	}
	// The first submission that is answered is the parent's.
	node := start(fmt.Sprintf("%s=%s:2", crashpoint.Env, crashpoint.RestSubmitAnswer))
	parent := fmt.Sprintf(`{"type": "parent", "key": "p", "steps": {"submit": {"agent": "http", "retry": {"backoff": "100ms"}, "with": {
		"method": "POST", "url": "%s/v1/jobs",
		"body": {"type": "child", "steps": {"nap": {"agent": "sleep", "with": {"for": "1ms"}}}}}}}}`, url)
	resp, err := http.Post(url+"/v1/jobs", "application/json", strings.NewReader(parent))
	if err == nil { // otherwise the node has died before the answer arrived: the parent is stored all the same
		resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("the parent: %s", resp.Status)
		}
	}
	died := make(chan error, 1)
	go func() { died <- node.Wait() }()
	select {
	case <-died:
	case <-time.After(time.Minute):
		t.Fatal("the node did not die at the crash point: the child was not submitted")
	}
	start()

	var job struct {
		ID      string
		Phase   string
		Current string
		Steps   map[string]struct{ Run int64 }
	}
	get := func(path string, into any) {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, resp.Status, err)
		}
	}
	get("/v1/jobs/p?wait=60s", &job)
	if job.Phase != "settled" || job.Current != "done" || job.Steps["submit"].Run < 2 {
		t.Fatalf("the parent: %+v", job)
	}
	var children struct{ Items []struct{ Key string } }
	get("/v1/jobs?type=child", &children)
	want := "step:" + strings.TrimPrefix(job.ID, "job_") + ":submit:1"
	if len(children.Items) != 1 || children.Items[0].Key != want {
		t.Errorf("children %+v, want one with the key %s", children.Items, want)
	}
}
