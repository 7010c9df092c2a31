package rest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest/resttest"
)

// F160: the values of a Host header that are served, without configuration and with it.
func TestHostsAreMatched(t *testing.T) {
	configured, err := ParseHosts("https://Jobs.Example.com:8443/perdure", []string{"other.example", " Third.Example. ", "xn--bcher-kva.example", "10.0.0.7", "[::1]"})
	if err != nil {
		t.Fatal(err)
	}
	longest := strings.Repeat("a.", 123) + "local" // 251 characters
	for header, want := range map[string]bool{
		// IP literals.
		"127.0.0.1": true, "127.0.0.1:7420": true, "10.1.2.3:80": true, "8.8.8.8": true, "127.0.0.1.": true, "127.0.0.1:": true,
		"[::1]": true, "[::1]:7420": true, "[fe80::1%eth0]:7420": true, "[fe80::1%25eth0]": true, "[::ffff:10.0.0.1]": true, "[2001:DB8::A]": true,
		"::1": false, "::1:7420": false, "[::1": false, "::1]": false, "[]": false, "[::1]x": false, "[::1]7420": false, "[127.0.0.1]": false,
		"[fe80::1%]": false, "[evil.example]": false, "[v1.evil.example]": false, "[::1]:7420:1": false, "[::1].evil.example": false,
		// Names that need no configuration.
		"localhost": true, "localhost:7420": true, "localhost.": true, "LOCALHOST.:7420": true, "LocalHost": true,
		"perdure": true, "perdure:7420": true, "my_app-1": true, "a.localhost": true, "a.b.LOCALHOST:1": true, "mac.local": true, "mac.local.": true,
		"node.internal": true, "perdure.default.svc": true, "perdure.default.svc.cluster.local:7420": true, longest: true,
		// Names that an attacker can register.
		"evil.example": false, "evil.example:7420": false, "evil.example.": false, "localhost.evil.example": false, "evil-localhost.example": false,
		"local.evil.example": false, "xlocal.example": false, "a.notlocal": false, "notlocalhost.com": false, "127.0.0.1.evil.example": false,
		"perdure.example": false, "evil.example@localhost": false, "localhost@evil.example": false, "localhost:80@evil.example": false,
		// A single label with a dot at its end is a top-level domain.
		"ai.": false, "ai.:80": false,
		// Not a host.
		"": false, ":": false, ":7420": false, ".": false, "..": false, ".local": false, "a..local": false, "localhost..": false, "a.local..": false,
		"localhost:x": false, "localhost:70:70": false, "localhost:123456": false, "localhost:-1": false, "local host": false, "a.local/x": false,
		"evil%2eexample": false, "évil": false, "é.local": false, "localhost\x00": false, "localhost,evil.example": false, "localhost evil.example": false,
		"a" + longest + "a.local": false, "https://localhost": false,
	} {
		if got := (Hosts{}).allows(header); got != want {
			t.Errorf("%q: allowed %v", header, got)
		}
		if got := configured.allows(header); got != want {
			t.Errorf("%q: allowed %v where other names are configured", header, got)
		}
	}
	for header, want := range map[string]bool{
		"jobs.example.com": true, "JOBS.example.com.:1": true, "other.example:8": true, "third.example": true, "third.example.": true,
		"xn--bcher-kva.example": true, "a.other.example": false, "example.com": false, "evil.example": false, "": false,
	} {
		if got := configured.allows(header); got != want {
			t.Errorf("%q: allowed %v", header, got)
		}
	}
}

// Settings that would not have the intended effect are refused, and no message repeats a password.
func TestInvalidHostSettingsAreRefused(t *testing.T) {
	for _, c := range []struct {
		url   string
		names []string
		fault string
	}{
		{"https://perdure.example.com", nil, ""},
		{"http://perdure.example.com:8080/jobs/", []string{"a.example", "localhost"}, ""},
		{"https://[2001:db8::1]:443", []string{"127.0.0.1", "::1", "fe80::1%eth0", "[::1]"}, ""},
		{"", []string{"*"}, ""},
		{"https://a.example", []string{" * "}, ""},
		{"", make([]string, MaxAllowedHosts+1), "at most 100"},
		{"perdure.example.com", nil, "http:// or https://"},
		{"ftp://perdure.example.com", nil, "http:// or https://"},
		{"https://", nil, "is not a host name"},
		{"https://a b.example", nil, "cannot be read"},
		{"https://bücher.example", nil, "is not a host name"},
		{"https://me:hunter2@a.example", nil, "must not name a user"},
		{"https://me:hun%zzter2@a.example", nil, "cannot be read"},
		{"https://me:hunter2/@a.example", nil, "cannot be read"},
		{"https://a.example?x=1", nil, "query"},
		{"https://a.example#x", nil, "fragment"},
		{"", []string{"a.example", "*"}, "alone"},
		{"", []string{"*", "*"}, "alone"},
		{"", []string{"*.example.com"}, "patterns"},
		{"", []string{""}, "is empty"},
		{"", []string{"a.example", " "}, "is empty"},
		{"", []string{"a.example:7420"}, "names a port"},
		{"", []string{"https://a.example"}, "URL does not fit"},
		{"", []string{"me:hunter2@a.example"}, "URL does not fit"},
		{"", []string{"a.example/x"}, "URL does not fit"},
		{"", []string{"bücher.example"}, "xn--"},
		{"", []string{"a b"}, "is not a host name"},
		{"", []string{"a..example"}, "is not a host name"},
		{"", []string{strings.Repeat("a.", 130) + "example"}, "is not a host name"},
	} {
		h, err := ParseHosts(c.url, c.names)
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%q %q: %v, want %q", c.url, c.names, err, c.fault)
		}
		if err != nil && (strings.Contains(err.Error(), "hun") || h.Any() || h.allows("evil.example")) {
			t.Errorf("%q %q: %v, %v", c.url, c.names, h, err)
		}
	}
	if h, _ := ParseHosts("", []string{"*"}); !h.Any() || !h.allows("[::1]") {
		t.Error("* does not disable the check")
	}
}

// F160: a request for another host is refused before its path, body or origin is read, however the host is written in
// the request.
func TestRequestsForOtherHostsAreRefused(t *testing.T) {
	served := 0
	allowed, err := ParseHosts("https://jobs.example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	api := New(Config{Service: resttest.Full(), Log: quiet, JobSchema: []byte(`{}`), Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }), Hosts: allowed})
	server := Server("", api, quiet)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })

	const refused = http.StatusMisdirectedRequest
	for _, c := range []struct {
		request string // lines end with |
		status  int
	}{
		{"GET /v1/jobs HTTP/1.1|Host: localhost:7420", 200},
		{"GET /v1/jobs HTTP/1.1|Host: jobs.example.com", 200},
		{"GET /v1/jobs HTTP/1.1|Host: evil.example", refused},
		{"GET /v1/jobs HTTP/1.1|Host: evil.example|X-Forwarded-Host: localhost", refused},
		{"GET /v1/jobs HTTP/1.1|Host: evil.example|Forwarded: host=localhost", refused},
		{"GET /v1/jobs HTTP/1.1|Host: localhost|X-Forwarded-Host: evil.example", 200},
		{"GET /v1/jobs HTTP/1.1|Host:", refused},
		{"GET /v1/jobs HTTP/1.0", refused},
		{"GET /v1/jobs HTTP/1.0|Host: evil.example", refused},
		{"GET /v1/jobs HTTP/1.0|Host: localhost", 200},
		// The host of an absolute target replaces the header.
		{"GET http://evil.example/v1/jobs HTTP/1.1|Host: localhost", refused},
		{"GET http://evil.example:7420/healthz/../v1/jobs HTTP/1.1|Host: localhost", refused},
		{"GET http://localhost/v1/jobs HTTP/1.1|Host: localhost", 200},
		{"GET http://localhost@evil.example/v1/jobs HTTP/1.1|Host: localhost", refused},
		{"GET //localhost/v1/jobs HTTP/1.1|Host: evil.example", refused},
		{"CONNECT evil.example:80 HTTP/1.1|Host: localhost", refused},
		// Requests that net/http refuses by itself.
		{"GET /v1/jobs HTTP/1.1", 400},
		{"GET /v1/jobs HTTP/1.1|Host: localhost|Host: evil.example", 400},
		// Before routing: every path, known or not, and every method.
		{"GET /nowhere HTTP/1.1|Host: evil.example", refused},
		{"GET / HTTP/1.1|Host: evil.example", refused},
		{"DELETE /v1/jobs HTTP/1.1|Host: evil.example", refused},
		{"OPTIONS * HTTP/1.1|Host: evil.example", refused},
		{"GET /metrics HTTP/1.1|Host: evil.example", refused},
		{"GET /readyz HTTP/1.1|Host: evil.example", refused},
		{"GET /openapi.json HTTP/1.1|Host: evil.example", refused},
		{"GET /v1/jobs/j/events HTTP/1.1|Host: evil.example", refused},
		{"POST /v1/jobs/j/undo HTTP/1.1|Host: evil.example|Origin: http://evil.example|Sec-Fetch-Site: same-origin|Content-Type: application/json|Content-Length: 0", refused},
		{"POST /v1/jobs HTTP/1.1|Host: evil.example|Content-Type: text/plain|Content-Length: 0", refused},
		// Probes.
		{"GET /healthz HTTP/1.1|Host: evil.example", 200},
		{"GET /healthz HTTP/1.0", 200},
		{"GET /healthz/ HTTP/1.1|Host: evil.example", refused},
		{"GET //healthz HTTP/1.1|Host: evil.example", refused},
		{"GET /v1/../healthz HTTP/1.1|Host: evil.example", refused},
	} {
		status, body := raw(t, listener.Addr().String(), c.request)
		if status != c.status {
			t.Errorf("%s: %d, want %d: %s", c.request, status, c.status, body)
		}
		if status == refused && (!strings.Contains(body, `"code":"misdirected"`) || !strings.Contains(body, `"hint":"`)) {
			t.Errorf("%s: %s", c.request, body)
		}
	}
	if served != 0 {
		t.Error("the metrics were read")
	}
}

// raw sends the lines of a request that no client would write, and reads the answer.
func raw(t *testing.T, addr, lines string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s\r\nConnection: close\r\n\r\n", strings.ReplaceAll(lines, "|", "\r\n"))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", lines, err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// A handler that is not a node's API, such as the proxy of perdure chaos, can have the check too.
func TestHostsHandlerChecksAnyHandler(t *testing.T) {
	passed := 0
	h := Hosts{}.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }))
	if w := exchange(h, "GET /x", ""); w.Code != 200 || passed != 1 {
		t.Error(w.Code, passed)
	}
	w := exchange(h, "POST /v1/reports", "{}", "Host: evil.example")
	if p := problemIn(t, w); w.Code != http.StatusMisdirectedRequest || p.Code != perdure.CodeMisdirected || passed != 1 {
		t.Error(w.Code, p, passed)
	}
}
