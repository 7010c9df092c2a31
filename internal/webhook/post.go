package webhook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/descriptors"
	"github.com/perdure/perdure/internal/retryafter"
	"github.com/perdure/perdure/internal/targets"
)

// HTTP posts deliveries by HTTP.
type HTTP struct{ client *http.Client }

// HTTPConfig configures an HTTP.
type HTTPConfig struct {
	ForbidPrivate bool           // refuse to dial this machine, its link and metadata services of clouds
	Allow         []netip.Prefix // addresses that are allowed in spite of that
}

const (
	connectTimeout = 10 * time.Second
	maxAnswer      = 64 << 10 // bytes of an answer that are read, so that its connection can be used again
	maxHeaders     = 64 << 10
)

// NewHTTP returns a poster.
func NewHTTP(cfg HTTPConfig) *HTTP {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{ForceAttemptHTTP2: true, MaxIdleConns: 2 * MaxWorkers, MaxIdleConnsPerHost: AtOnce, IdleConnTimeout: 30 * time.Second,
		TLSHandshakeTimeout: connectTimeout, MaxResponseHeaderBytes: maxHeaders}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		release, err := descriptors.Take(1)
		if err != nil {
			return nil, err
		}
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			release()
			return nil, err
		}
		return &counted{conn, release}, nil
	}
	descriptors.OnShortage(t.CloseIdleConnections)
	if cfg.ForbidPrivate {
		allowed := targets.New(cfg.Allow)
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return allowed.Permit(address) }
	} else {
		t.Proxy = http.ProxyFromEnvironment
	}
	return &HTTP{&http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// counted is a connection that returns its descriptor to the share when it is closed.
type counted struct {
	net.Conn
	release func()
}

func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// Post implements Poster.
func (h *HTTP) Post(ctx context.Context, r Request) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return Answer{}, err
	}
	for name, value := range r.Headers {
		req.Header.Set(name, value)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return Answer{}, cause(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols { // then the body is the connection, whose reading ctx does not end
		_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	}
	return Answer{Status: resp.StatusCode, RetryAfter: retryafter.Of(resp.Header, time.Now(), perdure.MaxRetryAfter)}, nil
}

// cause returns an error without the URL, which may hold a secret.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// Close closes the connections that are not in use.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }
