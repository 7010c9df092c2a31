package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const mostResident = 512 << 20

// resident returns the resident memory of a process: now, and its peak.
func resident(t *testing.T, pid int) (now, most int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("the system does not say how much memory a process has: ", err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch f[0] {
		case "VmHWM:":
			most, _ = strconv.Atoi(f[1])
		case "VmRSS:":
			now, _ = strconv.Atoi(f[1])
		}
	}
	return now << 10, most << 10
}

func send(t *testing.T, url string, body any, answer any) int {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	c := http.Client{Timeout: time.Minute}
	resp, err := c.Post(url, "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	} else {
		err = json.NewDecoder(resp.Body).Decode(answer)
	}
	if err != nil {
		t.Fatalf("%s: %d, %v", url, resp.StatusCode, err)
	}
	return resp.StatusCode
}

// largeJob makes a job that is done, and whose outputs are some 16 MB in total.
func largeJob(t *testing.T, url string) {
	t.Helper()
	const steps, each = 280, 60_000
	all := object{}
	for i := range steps {
		all[fmt.Sprint("s", i)] = object{"agent": "large"}
	}
	if status := send(t, url+"/v1/jobs", object{"type": "large", "key": "large", "steps": all}, nil); status != http.StatusCreated {
		t.Fatal(status)
	}
	output := strings.Repeat("x", each)
	type run struct {
		Job  string
		Step string
		Run  int
	}
	for did := 0; did < steps; {
		var got struct{ Runs []run }
		send(t, url+"/v1/agents/large/claim", object{"holder": "h", "max": 100, "wait": "5s"}, &got)
		var reports []object
		for _, r := range got.Runs {
			reports = append(reports, object{"job": r.Job, "step": r.Step, "run": r.Run, "outcome": "done", "output": output})
		}
		if status := send(t, url+"/v1/reports", object{"holder": "h", "reports": reports}, nil); status != http.StatusOK || len(reports) == 0 {
			t.Fatal(status, len(reports))
		}
		did += len(reports)
	}
}

// hold opens a connection, sends text, and then neither sends nor reads anything.
func hold(t *testing.T, url, text string) net.Conn {
	t.Helper()
	d := net.Dialer{Timeout: 10 * time.Second, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	c, err := d.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// callAsOthers makes the calls of ordinary clients, and returns how long the slowest took.
func callAsOthers(t *testing.T, url, key string) (slowest time.Duration) {
	t.Helper()
	for i := range 5 {
		for _, call := range []struct {
			method, path, body string
			want               int
		}{
			{http.MethodPost, "/v1/jobs", fmt.Sprintf(`{"type": "small", "key": "%s-%d", "steps": {"a": {"agent": "absent"}}}`, key, i), http.StatusCreated},
			{http.MethodGet, fmt.Sprintf("/v1/jobs/%s-%d", key, i), "", http.StatusOK},
			{http.MethodPost, "/v1/agents/else/claim", `{"holder": "h", "wait": "10ms"}`, http.StatusOK},
			{http.MethodGet, "/readyz", "", http.StatusOK},
		} {
			began := time.Now()
			if status, _ := statusOf(t, call.method, url+call.path, call.body); status != call.want {
				t.Errorf("%s: %s %s: %d", key, call.method, call.path, status)
			}
			slowest = max(slowest, time.Since(began))
		}
	}
	return slowest
}

// F157, F125: callers that announce bodies and do not send them, that request large answers and do not read them, and
// that claim large inputs do not make a node exceed its memory, and do not block other callers.
func TestMemoryIsBoundedUnderHostileCalls(t *testing.T) {
	connections, readers, claims := 4000, 60, 12
	if testing.Short() {
		connections, readers, claims = 400, 20, 4
	}
	const inputs = 200 // of 1 MB each: a claim asks for all of them, and is granted as many as fit into its answer
	url, node := serve(t, "--store", "sqlite:"+filepath.Join(t.TempDir(), "perdure.db"), "--agents", "none")
	largeJob(t, url)
	steps := object{}
	for i := range inputs {
		steps[fmt.Sprint("s", i)] = object{"agent": "heavy", "with": object{"text": "${input.text}"}}
	}
	if status := send(t, url+"/v1/jobs", object{"type": "heavy", "input": object{"text": strings.Repeat("x", 1_000_000)}, "steps": steps}, nil); status != http.StatusCreated {
		t.Fatal(status)
	}
	checkMemory := func(when string) {
		now, most := resident(t, node.Process.Pid)
		t.Logf("%s: %d MB, %d MB at most", when, now>>20, most>>20)
		if most > mostResident {
			t.Errorf("%s: the node has had %d MB", when, most>>20)
		}
	}
	checkMemory("before")

	for range connections {
		hold(t, url, "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 16000000\r\n\r\n{")
	}
	t.Logf("the slowest call beside %d slow senders: %v", connections, callAsOthers(t, url, "senders"))
	checkMemory("slow senders")

	for range readers {
		hold(t, url, "GET /v1/jobs/large HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	for i := range 3 {
		t.Logf("the slowest call beside %d that do not read: %v", readers, callAsOthers(t, url, fmt.Sprint("readers", i)))
		checkMemory("readers that do not read")
		time.Sleep(time.Second)
	}

	for range claims {
		hold(t, url, fmt.Sprintf("POST /v1/agents/heavy/claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n%-40s",
			fmt.Sprintf(`{"holder": "h", "max": %d}`, inputs)))
	}
	t.Logf("the slowest call beside large claims: %v", callAsOthers(t, url, "claim"))
	checkMemory("large claims")
}
