package client_test

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crypto/tls"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/internal/tlsfiles"
	"github.com/perdure/perdure/internal/tlsfiles/tlstest"
)

// A server that requires client certificates is called with one. Without one, and without the server's authority, the
// error says which option is missing.
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
	log := slog.New(slog.DiscardHandler)
	server := rest.Server("", rest.New(rest.Config{Service: &resttest.Service{}, JobSchema: []byte("{}"), Log: log}), log)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	url := "https://" + l.Addr().String()

	if _, err := connect(t, url, client.ServerCA(file("ca.pem")), client.Certificate(file("client.pem"), file("client.key"))).JobSchema(within(t, 10*time.Second)); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	for hint, options := range map[string][]client.Option{
		"client.Certificate": {client.ServerCA(file("ca.pem"))},
		"client.ServerCA":    {client.Certificate(file("client.pem"), file("client.key"))},
	} {
		_, err := connect(t, url, options...).JobSchema(within(t, 10*time.Second))
		code(t, err, perdure.CodeUnavailable)
		if err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("without %s: %v", hint, err)
		}
	}

	_, err = connect(t, "http://"+l.Addr().String()).JobSchema(within(t, 10*time.Second))
	code(t, err, perdure.CodeUnavailable)
	if err == nil || !strings.Contains(err.Error(), "write https:// in place of http://") {
		t.Errorf("without TLS: %v", err)
	}

	if err := os.WriteFile(file("text.pem"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for words, options := range map[string][]client.Option{
		"belong together": {client.Certificate(file("client.pem"), "")},
		"none.pem":        {client.ServerCA(file("none.pem"))},
		"text.pem":        {client.Certificate(file("text.pem"), file("client.key"))},
		"HTTPClient":      {client.ServerCA(file("ca.pem")), client.HTTPClient(http.DefaultClient)},
	} {
		_, err := client.New(url, options...)
		code(t, err, perdure.CodeInvalid)
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	_, err = client.New("http://127.0.0.1:1", client.ServerCA(file("ca.pem")))
	code(t, err, perdure.CodeInvalid)
}
