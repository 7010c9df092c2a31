package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/perdure/perdure/e2e/rig"
)

// logged runs a command, and returns the lines of its log: each must be a JSON object with a level and a message.
func logged(t *testing.T, cmd *exec.Cmd, while func()) (exit int, lines []map[string]any) {
	t.Helper()
	var text bytes.Buffer
	cmd.Stderr = &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	while()
	_ = cmd.Wait()
	scan := bufio.NewScanner(&text)
	for scan.Scan() {
		line := map[string]any{}
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil || line["level"] == nil || line["msg"] == nil || line["time"] == nil {
			t.Errorf("%v: not a line of JSON with time, level and msg: %s", cmd.Args[1:], scan.Text())
		}
		lines = append(lines, line)
	}
	return cmd.ProcessState.ExitCode(), lines
}

func said(lines []map[string]any, message string) map[string]any {
	for _, line := range lines {
		if line["msg"] == message {
			return line
		}
	}
	return nil
}

// --log-format json writes only JSON to stderr, from the first line to the last, whatever fails.
func TestJSONLogHasOnlyJSON(t *testing.T) {
	store, addr := "sqlite:"+filepath.Join(t.TempDir(), "perdure.db"), rig.FreeAddress(t)
	url := "http://" + addr
	serve := exec.Command(perdure, "serve", "--listen", addr, "--store", store, "--log-format", "json", "--log-level", "debug")
	exit, lines := logged(t, serve, func() {
		eventually(t, "the node is ready", func() bool { return ready(url) })
		// An error that net/http's server logs by itself.
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "\x16\x03\x01 no request\r\n\r\n")
		conn.Close()
		post := func(path, body string) {
			resp, err := http.Post(url+path, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		post("/v1/jobs", `{"type": "t", "key": "k", "steps": {"s": {"agent": "http", "retry": {"attempts": 1}, "with": {"url": "`+url+`/"}}}}`)
		if resp, err := http.Get(url + "/v1/jobs/k?wait=30s"); err == nil {
			resp.Body.Close()
		}
		post("/v1/jobs/k/resume", `{"reason": "once more"}`)
		if resp, err := http.Get(url + "/v1/jobs/k?wait=30s"); err == nil {
			resp.Body.Close()
		}
		post("/v1/jobs/k/giveUp", `{"reason": "enough"}`)
		post("/v1/jobs/k/resume", "")
		if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	})
	if exit != 0 {
		t.Errorf("exit %d", exit)
	}
	for _, message := range []string{"listening", "step parked", "step resumed", "job given up", "request refused", "draining"} {
		if line := said(lines, message); line == nil || line["level"] != "INFO" {
			t.Errorf("%q is not logged at info: %v", message, line)
		}
	}
	if line := said(lines, "listening"); line != nil && (line["url"] != url || line["store"] != store) {
		t.Errorf("%v", line)
	}

	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, c := range []struct {
		exit int
		args []string
		env  string
	}{
		{exit: 3, args: []string{"serve", "--log-format", "json", "--store", store, "--listen", busy.Addr().String()}},
		{exit: 2, args: []string{"serve", "--log-format=json", "--store", store, "--max-backlog", "0"}},
		{exit: 2, args: []string{"serve", "--nonsense", "--log-format", "json"}},
		{exit: 2, args: []string{"serve", "surplus", "--log-format", "json"}},
		{exit: 2, args: []string{"serve", "--nonsense"}, env: "PERDURE_LOG_FORMAT=json"},
		{exit: 2, args: []string{"serve", "--log-format", "json", "--store", "mongodb://x"}},
		{exit: 3, args: []string{"agent", "--log-format", "json", "--server", "http://" + rig.FreeAddress(t)}},
	} {
		cmd := exec.Command(perdure, c.args...)
		cmd.Env = append(cmd.Environ(), c.env)
		exit, lines := logged(t, cmd, func() {})
		failure := said(lines, "command failed")
		if exit != c.exit || failure == nil || failure["level"] != "ERROR" || failure["error"] == "" || failure["exit"] != float64(c.exit) {
			t.Errorf("%v: exit %d, logged %v", c.args, exit, lines)
		}
	}
}
