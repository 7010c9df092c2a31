package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/e2e/rig"
)

// F127: the node's log is not read, and the pipe is full. The node does its work, and ends when it is signalled.
func TestUnreadLogBlocksNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fd := int(w.Fd()) // once: it makes the file blocking
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = syscall.Write(fd, []byte(strings.Repeat("x", 1<<10)))
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	addr := rig.FreeAddress(t)
	url, dir := "http://"+addr, t.TempDir()
	cmd := exec.Command(perdure, "serve", "--listen", addr, "--store", "sqlite:"+filepath.Join(dir, "perdure.db"), "--agents", "shell", "--log-level", "debug")
	cmd.Stderr = w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	eventually(t, "the node is ready", func() bool { return ready(url) })
	job := filepath.Join(dir, "job.yaml")
	if err := os.WriteFile(job, []byte("type: t\nsteps:\n  a: {agent: shell, with: {command: [\"true\"]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		must(t, "submit", job, "--wait", "--timeout", "1m", "--server", url)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}

// starved starts a node with a limit on file descriptors, and returns its log.
func starved(t *testing.T, descriptors int, args ...string) (url string, log func() string) {
	t.Helper()
	addr, dir := rig.FreeAddress(t), t.TempDir()
	file, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, descriptors), perdure, "serve", "--listen", addr,
		"--store", "sqlite:" + filepath.Join(dir, "perdure.db")}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	log = func() string {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	url = "http://" + addr
	eventually(t, "the node is ready", func() bool { return ready(url) })
	return url, log
}

// crowd opens connections without requests.
func crowd(t *testing.T, url string, n int) (close func()) {
	t.Helper()
	var all []net.Conn
	for range n {
		c, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), time.Second)
		if err != nil {
			break // the queue of the system is full, too
		}
		all = append(all, c)
	}
	close = func() {
		for _, c := range all {
			c.Close()
		}
	}
	t.Cleanup(close)
	return close
}

// F128, F159: more connections arrive than the node has file descriptors for. Connections without a request are closed,
// and every other call is served meanwhile. The same holds if the bound is set too high, so that the system refuses
// connections first.
func TestMoreConnectionsThanDescriptorsAreServed(t *testing.T) {
	const descriptors = 64
	for _, c := range []struct {
		args    []string
		warning string
	}{
		{nil, `level=WARN msg="all connections are in use"`},
		{[]string{"--max-connections", "1000"}, `level=WARN msg="connections are not accepted" error="accept tcp`},
	} {
		url, log := starved(t, descriptors, c.args...)
		for i := range 3 {
			crowd(t, url, 200)
			eventually(t, "a new caller is served", func() bool { return ready(url) })
			time.Sleep(time.Second) // from now on connections of the crowd are closed for others
			t.Logf("the slowest call beside the crowd: %v", callAsOthers(t, url, fmt.Sprint("crowd", i)))
		}
		if text := log(); !strings.Contains(text, c.warning) || strings.Count(text, "level=WARN") > 6 {
			t.Errorf("the log: %s", tail(text))
		}
	}
}

// F159: runs need more file descriptors than the node has. Those that get none are returned, and no failure is counted.
// All are done in the end, and every other call is served meanwhile.
func TestRunsWithoutDescriptorsAreReturned(t *testing.T) {
	url, _ := starved(t, 96, "--agents", "http,shell", "--slots", "http=100", "--slots", "shell=100", "--allow-private-targets")
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(300 * time.Millisecond) }))
	defer service.Close()
	const each = 60
	steps := object{}
	for i := range each {
		steps[fmt.Sprint("h", i)] = object{"agent": "http", "with": object{"url": service.URL}, "retry": object{"attempts": 1}}
		steps[fmt.Sprint("p", i)] = object{"agent": "shell", "with": object{"command": []string{"sleep", "0.3"}}, "retry": object{"attempts": 1}}
	}
	if status := send(t, url+"/v1/jobs", object{"type": "t", "key": "hungry", "steps": steps}, nil); status != http.StatusCreated {
		t.Fatal(status)
	}
	t.Logf("the slowest call beside the runs: %v", callAsOthers(t, url, "hungry"))
	out := must(t, "get", "hungry", "--wait", "3m", "-o", "json", "--server", url)
	var job struct {
		Current string
		Steps   map[string]struct {
			Failures, Run, Returns int
			LastError              *struct{ Message string }
		}
	}
	if err := json.Unmarshal([]byte(out), &job); err != nil {
		t.Fatal(err)
	}
	returned := 0
	for name, s := range job.Steps {
		if s.Failures > 0 {
			t.Errorf("%s: %d failures: %+v", name, s.Failures, s.LastError)
		}
		returned += s.Run - 1
	}
	if job.Current != "done" || len(job.Steps) != 2*each || returned == 0 {
		t.Errorf("%s, %d steps, %d runs were returned", job.Current, len(job.Steps), returned)
	}
	t.Logf("%d runs were returned", returned)
}

// F010: the disk is full. The node refuses submissions, gives the reason in /readyz, and still serves reads. Once there
// is room, it is ready again, even if no submission has come meanwhile.
func TestNotReadyWhileTheDiskIsFull(t *testing.T) {
	dir := t.TempDir()
	if exec.Command("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", dir).Run() != nil {
		t.Skip("needs a disk of its own, which only root can mount")
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	url, _ := serve(t, "--store", "sqlite:"+filepath.Join(dir, "perdure.db"), "--agents", "none")
	large := func(key string) int {
		return send(t, url+"/v1/jobs", object{"type": "t", "key": key, "input": strings.Repeat("x", 1_000_000), "steps": object{"a": object{"agent": "absent"}}}, nil)
	}
	if status := large("before"); status != http.StatusCreated {
		t.Fatal(status)
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 64<<10))
	}
	filler.Close()
	refused := 0
	for i := range 40 { // until the space that is allocated to the log is used up
		if large(fmt.Sprint("k", i)) == http.StatusServiceUnavailable {
			refused++
			break
		}
	}
	if refused == 0 {
		t.Fatal("the disk does not become full")
	}
	for range 4 {
		resp, err := http.Get(url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		var p struct{ Detail string }
		_ = json.NewDecoder(resp.Body).Decode(&p)
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(p.Detail, "no space is left") {
			t.Errorf("/readyz: %d %q", resp.StatusCode, p.Detail)
		}
		if status, _ := statusOf(t, http.MethodGet, url+"/v1/jobs/before", ""); status != http.StatusOK {
			t.Errorf("a read: %d", status)
		}
		time.Sleep(400 * time.Millisecond)
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is ready again", func() bool { return ready(url) })
	if status := large("after"); status != http.StatusCreated {
		t.Errorf("then: %d", status)
	}
}
