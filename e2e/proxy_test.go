package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The configuration of nginx in docs/access.md passes on the host, the caller's address, events as they happen, and a
// large body.
func TestNginxAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	_, conf, found := strings.Cut(string(text), "\n    server {\n")
	conf, _, ended := strings.Cut(conf, "\n    }\n")
	if !found || !ended {
		t.Fatal("docs/access.md has no configuration of nginx")
	}
	store := "sqlite:" + filepath.Join(t.TempDir(), "perdure.db")
	token := strings.TrimSpace(must(t, "tokens", "create", "--name", "anna", "--role", "admin", "--store", store))
	node, _ := serve(t, "--store", store, "--behind-proxy", "--trusted-proxies", "127.0.0.0/8", "--public-url", "https://perdure.example.com")
	addr, _ := runNginx(t, func(dir, addr string) string {
		writeCertificate(t, dir)
		server := strings.NewReplacer("listen 443 ssl", "listen "+addr+" ssl", "http://10.0.0.5:7420", node, "/etc/nginx", dir).Replace(conf)
		return fmt.Sprintf("worker_processes 1; daemon off; error_log %[1]s/error.log; pid %[1]s/pid; events { worker_connections 64; }\nhttp {\n"+
			"access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;\n"+
			"server {\n%[2]s\n}\n}\n", dir, server)
	})
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}}}
	defer client.CloseIdleConnections()
	call := func(method, path, body string, headers ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "https://perdure.example.com"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	status := func(resp *http.Response, want int) {
		t.Helper()
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); resp.StatusCode != want || err != nil {
			t.Fatalf("%d %s, %v", resp.StatusCode, text, err)
		}
	}
	status(call(http.MethodGet, "/v1/me", "", "Authorization: Bearer wrong", "X-Forwarded-For: 203.0.113.9"), http.StatusUnauthorized)
	status(call(http.MethodPost, "/v1/jobs", `{"type":"order","key":"o1","labels":{"x":"y"},"steps":{"charge":{"agent":"payments","with":{"x":"`+strings.Repeat("x", 500_000)+`"}}}}`,
		"Content-Type: application/json"), http.StatusCreated)

	events := call(http.MethodGet, "/v1/jobs/o1/events", "", "Accept: text/event-stream")
	defer events.Body.Close()
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(events.Body); s.Scan(); {
			lines <- s.Text()
		}
	}()
	await := func(part string) {
		t.Helper()
		for deadline := time.After(10 * time.Second); ; {
			select {
			case line, ok := <-lines:
				if strings.Contains(line, part) {
					return
				}
				if !ok {
					t.Fatalf("the stream ended before %s", part)
				}
			case <-deadline:
				t.Fatalf("the stream has no %s", part)
			}
		}
	}
	await(`"phase":"waiting"`)
	status(call(http.MethodPost, "/v1/jobs/o1/undo", ""), http.StatusOK)
	await(`"phase":"settled"`)

	for _, want := range []string{`"code":"unauthenticated"`, `"address":"203.0.113.9"`} { // nginx appends its caller, which is trusted here
		eventually(t, want, func() bool {
			return strings.Contains(must(t, "audit", "-o", "json", "--act", "getMe", "--server", node, "--token-file", writeToken(t, token)), want)
		})
	}
}

func writeToken(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// writeCertificate writes cert.pem and key.pem.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	c := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
