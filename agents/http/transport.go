package http

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/descriptors"
	"github.com/perdure/perdure/internal/targets"
)

const connectTimeout = 10 * time.Second

var errScheme = errors.New("redirected to a URL that is not http or https")

// exchangeKey finds the exchange in the context of its requests.
type exchangeKey struct{}

// newClient returns the HTTP client of an agent. It keeps as many connections as the agent has slots.
func newClient(cfg Config, slots int) *http.Client {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second}
	_, _ = x509.SystemCertPool() // loaded now: if no descriptor is free at the first use, all certificates are refused from then on
	t := &http.Transport{
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           max(4*slots, 100),
		MaxIdleConnsPerHost:    slots,
		IdleConnTimeout:        30 * time.Second,
		TLSHandshakeTimeout:    connectTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: MaxHeaders,
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dial(ctx, dialer, network, address)
	}
	descriptors.OnShortage(t.CloseIdleConnections)
	if cfg.ForbidPrivate {
		allowed := targets.New(cfg.Allow)
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return allowed.Permit(address) }
	} else {
		t.Proxy = http.ProxyFromEnvironment
	}
	return &http.Client{Transport: t, CheckRedirect: redirect}
}

// dial connects within the agents' share of the file descriptors.
func dial(ctx context.Context, dialer *net.Dialer, network, address string) (net.Conn, error) {
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

// counted is a connection that returns its descriptor to the share when it is closed.
type counted struct {
	net.Conn
	release func()
}

func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// lacksDescriptor reports whether a connection failed because this process, or the machine, has no file descriptor left. An
// error of name resolution has the system's error only as text.
func lacksDescriptor(err error) bool {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return true
	}
	var dns *net.DNSError
	return errors.As(err, &dns) && strings.Contains(dns.Err, syscall.EMFILE.Error())
}

// redirect follows as many redirects as the input allows; the next answer is treated like any other. Headers that the
// input sets are not sent to hosts that it does not name, and a body of a run with secrets is not either.
func redirect(req *http.Request, via []*http.Request) error {
	x, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if x == nil || len(via) > x.in.FollowRedirects.n {
		return http.ErrUseLastResponse
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return errScheme
	}
	if first := via[0].URL; req.URL.Host != first.Host || req.URL.Scheme != first.Scheme {
		if len(x.run.Secrets) > 0 {
			if req.Body != nil && req.Body != http.NoBody {
				return http.ErrUseLastResponse // the body may have secrets, which are for the host that the step names
			}
			req.Header.Del("Referer") // the URL may have some
		}
		for name := range x.in.Headers {
			if n := http.CanonicalHeaderKey(name); n != "Content-Type" && n != "Accept" {
				req.Header.Del(n)
			}
		}
		delete(req.Header, quietKey)
		x.setDefaults(req.Header)
		for name, v := range x.in.Headers {
			if len(v) == 0 {
				leaveOut(req.Header, name)
			}
		}
		hideKey(req.Header)
	}
	return nil
}
