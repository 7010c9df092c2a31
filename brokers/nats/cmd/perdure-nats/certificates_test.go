package main

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/tlsfiles"
	"github.com/perdure/perdure/internal/tlsfiles/tlstest"
)

// The certificates of the flags reach the server, which answers that the receiver does not exist. Files that cannot be
// used are refused before anything is called.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	tlstest.Write(t, dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	cfg, err := tlsfiles.New(tlsfiles.Config{Cert: file("cert.pem"), Key: file("key.pem"), ClientCA: file("ca.pem")})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code":"notFound","detail":"none"}`))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--server-ca", file("ca.pem"), "--client-cert", file("client.pem"), "--client-key", file("client.key")}, exitNotFound, "there is no receiver"},
		{[]string{"--server-ca", file("none.pem")}, exitUsage, "none.pem"},
		{[]string{"--client-cert", file("client.pem")}, exitUsage, "belong together"},
	} {
		var out bytes.Buffer
		args := append([]string{"--server", "https://" + l.Addr().String(), "--receiver", "broker", "--publish", "events", "--check"}, c.args...)
		if code := command(t.Context(), args, func(string) string { return "" }, &out, &out); code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%v: exit %d, %s", c.args, code, out.String())
		}
	}
}
