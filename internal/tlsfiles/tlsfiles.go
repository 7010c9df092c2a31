// Package tlsfiles makes the TLS configuration of a server, or of its clients, from PEM files, and reads them again when
// they change: certificates are renewed every few weeks, and a node or an agent runs for longer.
//
// The files are checked when a connection begins, at most once a second. If they cannot be used, for example because only
// one of certificate and key was replaced so far, the configuration stays as it was.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Config names the files.
type Config struct {
	Cert, Key string
	ClientCA  string      // authorities of client certificates, which are then required; "": none are
	Failed    func(error) // called when changed files cannot be used; nil: nothing is called
}

// checkEvery is the least time between two checks of the files.
const checkEvery = time.Second

// maxFile bounds the size of each file.
const maxFile = 1 << 20

type files struct {
	Config

	mu      sync.Mutex
	checked time.Time
	stamps  [3]stamp
	current *tls.Config
}

// stamp is compared to find out whether a file has changed.
type stamp struct {
	modified time.Time
	size     int64
}

// New reads the files.
func New(cfg Config) (*tls.Config, error) {
	if cfg.Failed == nil {
		cfg.Failed = func(error) {}
	}
	f := &files{Config: cfg, checked: time.Now()}
	f.stamps = f.stat()
	current, err := f.read()
	if err != nil {
		return nil, err
	}
	f.current = current
	outer := current.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.latest(), nil }
	return outer, nil
}

// latest returns the configuration of the files as they are.
func (f *files) latest() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.checked) >= checkEvery {
		f.checked = now
		if stamps := f.stat(); stamps != f.stamps {
			if next, err := f.read(); err != nil {
				f.Failed(err)
			} else {
				f.current, f.stamps = next, stamps
			}
		}
	}
	return f.current
}

func (f *files) stat() (stamps [3]stamp) {
	for i, name := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(name); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

func (f *files) read() (*tls.Config, error) {
	pair, err := readPair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if f.ClientCA != "" {
		if cfg.ClientCAs, err = authorities(f.ClientCA); err != nil {
			return nil, err
		}
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return cfg, nil
}

// readPair reads a certificate and its private key.
func readPair(cert, key string) (tls.Certificate, error) {
	certText, err := read(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyText, err := read(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certText, keyText)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %s and key %s: %w", cert, key, err)
	}
	return pair, nil
}

// authorities reads the certificates of a file that may sign others.
func authorities(name string) (*x509.CertPool, error) {
	text, err := read(name)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", name)
	}
	return pool, nil
}

// errTooLarge refuses a file that cannot be a certificate.
var errTooLarge = errors.New("the file is larger than 1 MiB")

func read(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s: %w", name, errTooLarge)
	}
	return os.ReadFile(name)
}
