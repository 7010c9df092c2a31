package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/tlsfiles/tlstest"
)

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// serve serves with the files, and returns what makes one request and returns the serial number of the certificate.
func serve(t *testing.T, cfg Config, a *tlstest.Authority) func(edits ...func(*tls.Config)) (int64, error) {
	t.Helper()
	server, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return func(edits ...func(*tls.Config)) (int64, error) {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(a.PEM)
		c := &tls.Config{RootCAs: pool}
		for _, edit := range edits {
			edit(c)
		}
		transport := &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport}).Get("https://" + l.Addr().String())
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "ok" {
			t.Errorf("%q, %v", text, err)
		}
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64(), nil
	}
}

// Replaced files take effect without a restart. While only one of certificate and key is replaced, the pair before it stays.
func TestChangedFilesAreUsed(t *testing.T) {
	a := tlstest.New(t)
	dir := t.TempDir()
	var failed atomic.Int32
	cfg := Config{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), Failed: func(error) { failed.Add(1) }}
	cert, key := a.Issue(2)
	write(t, cfg.Cert, cert)
	write(t, cfg.Key, key)
	get := serve(t, cfg, a)
	until := func(want int64) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
			serial, err := get()
			if err != nil {
				t.Fatal(err)
			}
			if serial == want {
				return
			}
			if time.Since(began) > 20*time.Second {
				t.Fatalf("certificate %d, want %d", serial, want)
			}
		}
	}
	until(2)
	cert, key = a.Issue(3)
	write(t, cfg.Cert, cert)
	for began := time.Now(); failed.Load() == 0; time.Sleep(100 * time.Millisecond) {
		if serial, err := get(); err != nil || serial != 2 {
			t.Fatalf("half replaced: certificate %d, %v", serial, err)
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("the fault was not reported")
		}
	}
	write(t, cfg.Key, key)
	until(3)
}

func TestClientCertificates(t *testing.T) {
	a, other := tlstest.New(t), tlstest.New(t)
	dir := t.TempDir()
	cfg := Config{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ClientCA: filepath.Join(dir, "ca.PEM")}
	cert, key := a.Issue(2)
	write(t, cfg.Cert, cert)
	write(t, cfg.Key, key)
	write(t, cfg.ClientCA, a.PEM)
	get := serve(t, cfg, a)
	with := func(from *tlstest.Authority) func(*tls.Config) {
		cert, key := from.Issue(7)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return func(c *tls.Config) { c.Certificates = []tls.Certificate{pair} }
	}
	if _, err := get(with(a)); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if _, err := get(); err == nil {
		t.Error("without a certificate it is served")
	}
	if _, err := get(with(other)); err == nil {
		t.Error("with a certificate of another authority it is served")
	}
	if _, err := get(with(a), func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 }); err == nil {
		t.Error("TLS 1.1 is served")
	}
}

func TestFilesThatCannotBeUsedAreRefused(t *testing.T) {
	a := tlstest.New(t)
	dir := t.TempDir()
	good := Config{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	cert, key := a.Issue(2)
	write(t, good.Cert, cert)
	write(t, good.Key, key)
	_, otherKey := a.Issue(3)
	for name, text := range map[string][]byte{"other.pem": otherKey, "text.pem": []byte("x"), "large.pem": make([]byte, maxFile+1)} {
		write(t, filepath.Join(dir, name), text)
	}
	for name, edit := range map[string]func(*Config){
		"no such file":      func(c *Config) { c.Cert = filepath.Join(dir, "none.pem") },
		"another key":       func(c *Config) { c.Key = filepath.Join(dir, "other.pem") },
		"no key":            func(c *Config) { c.Key = filepath.Join(dir, "text.pem") },
		"no authority":      func(c *Config) { c.ClientCA = filepath.Join(dir, "text.pem") },
		"a file too large":  func(c *Config) { c.ClientCA = filepath.Join(dir, "large.pem") },
		"no such authority": func(c *Config) { c.ClientCA = filepath.Join(dir, "none.pem") },
	} {
		c := good
		edit(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), ".pem") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client trusts the authorities of its file alone, and its own certificate is read again for each connection. While only
// one of certificate and key is replaced, it uses the pair before.
func TestClientFiles(t *testing.T) {
	a, other := tlstest.New(t), tlstest.New(t)
	dir := t.TempDir()
	server := Config{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ClientCA: filepath.Join(dir, "ca.pem")}
	cert, key := a.Issue(2)
	write(t, server.Cert, cert)
	write(t, server.Key, key)
	write(t, server.ClientCA, a.PEM)
	get := serve(t, server, a)
	mine := ClientConfig{CA: server.ClientCA, Cert: filepath.Join(dir, "mine.pem"), Key: filepath.Join(dir, "minekey.pem")}
	put := func(from *tlstest.Authority) {
		cert, key := from.Issue(7)
		write(t, mine.Cert, cert)
		write(t, mine.Key, key)
	}
	put(a)
	client, err := NewClient(mine)
	if err != nil {
		t.Fatal(err)
	}
	with := func(c *tls.Config) { c.RootCAs, c.GetClientCertificate = client.RootCAs, client.GetClientCertificate }
	if _, err := get(with); err != nil {
		t.Errorf("with its certificate: %v", err)
	}
	_, half := a.Issue(8)
	write(t, mine.Key, half)
	if _, err := get(with); err != nil {
		t.Errorf("half replaced: %v", err)
	}
	put(other)
	if _, err := get(with); err == nil {
		t.Error("the replaced certificate, of another authority, is not used")
	}
	put(a)
	write(t, mine.CA, other.PEM)
	if client, err = NewClient(mine); err != nil {
		t.Fatal(err)
	}
	if _, err := get(with); err == nil {
		t.Error("a server of another authority is trusted")
	}

	write(t, filepath.Join(dir, "text.pem"), []byte("x"))
	for name, edit := range map[string]func(*ClientConfig){
		"no such file":   func(c *ClientConfig) { c.Cert = filepath.Join(dir, "none.pem") },
		"another key":    func(c *ClientConfig) { c.Key = server.Key },
		"no certificate": func(c *ClientConfig) { c.Cert = filepath.Join(dir, "text.pem") },
		"no authority":   func(c *ClientConfig) { c.CA = filepath.Join(dir, "text.pem") },
	} {
		c := mine
		edit(&c)
		if _, err := NewClient(c); err == nil || !strings.Contains(err.Error(), ".pem") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
