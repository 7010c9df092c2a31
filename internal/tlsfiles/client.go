package tlsfiles

import (
	"crypto/tls"
	"sync"
)

// ClientConfig names the files of a client.
type ClientConfig struct {
	CA        string // authorities of the server's certificate, in place of those of the system; "": those of the system
	Cert, Key string // the client's own certificate; "": it has none
}

// NewClient reads the files of a client. The client's own certificate is read again for each connection; the authorities
// are read once.
func NewClient(cfg ClientConfig) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CA != "" {
		var err error
		if c.RootCAs, err = authorities(cfg.CA); err != nil {
			return nil, err
		}
	}
	if cfg.Cert == "" {
		return c, nil
	}
	latest, err := readPair(cfg.Cert, cfg.Key)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if pair, err := readPair(cfg.Cert, cfg.Key); err == nil {
			latest = pair
		}
		pair := latest
		return &pair, nil
	}
	return c, nil
}
