package http

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

const connectTimeout = 10 * time.Second

var errScheme = errors.New("redirected to a URL that is not http or https")

// exchangeKey finds the exchange in the context of its requests.
type exchangeKey struct{}

// newClient makes the one client of an agent. Connections are kept for as many concurrent runs as the
// agent has slots.
func newClient(cfg Config, slots int) *http.Client {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           max(4*slots, 100),
		MaxIdleConnsPerHost:    slots,
		IdleConnTimeout:        30 * time.Second,
		TLSHandshakeTimeout:    connectTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: MaxHeaders,
	}
	if cfg.ForbidPrivate {
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return permit(address, cfg.Allow) }
	} else {
		t.Proxy = http.ProxyFromEnvironment
	}
	return &http.Client{Transport: t, CheckRedirect: redirect}
}

// redirect follows as many as the input allows; the answer after that is an answer like another. What
// the input sets in headers is not for hosts that it does not name.
func redirect(req *http.Request, via []*http.Request) error {
	x, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if x == nil || len(via) > x.in.FollowRedirects.n {
		return http.ErrUseLastResponse
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return errScheme
	}
	if first := via[0].URL; req.URL.Host != first.Host || req.URL.Scheme != first.Scheme {
		for name := range x.in.Headers {
			if n := http.CanonicalHeaderKey(name); n != "Content-Type" && n != "Accept" {
				req.Header.Del(n)
			}
		}
		delete(req.Header, quietKey)
		x.setKey(req.Header)
	}
	return nil
}

// forbiddenError says that a target is private to this machine or link.
type forbiddenError struct{ addr netip.Addr }

func (e *forbiddenError) Error() string {
	return fmt.Sprintf("%s is on this machine or its link, and not an allowed target (serve and agent have --allow-private-targets)", e.addr)
}

// permit looks at an address that is about to be dialled: after all names are resolved, so that no
// second answer of a name server can differ from what was checked (F053).
func permit(address string, allow []netip.Prefix) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &forbiddenError{}
	}
	addr := ap.Addr().Unmap().WithZone("")
	for _, p := range allow {
		if p.Contains(addr) {
			return nil
		}
	}
	if private(addr) {
		return &forbiddenError{addr}
	}
	if inner, ok := embedded(addr); ok && private(inner) {
		return &forbiddenError{addr}
	}
	return nil
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")
	reserved    = netip.MustParsePrefix("240.0.0.0/4") // with broadcast
	siteLocal   = netip.MustParsePrefix("fec0::/10")
	teredo      = netip.MustParsePrefix("2001::/32")
)

func private(a netip.Addr) bool {
	return a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() ||
		thisNetwork.Contains(a) || reserved.Contains(a) || siteLocal.Contains(a) || teredo.Contains(a)
}

// wrappers are the ranges of IPv6 that hold an IPv4 address, and at which byte.
var wrappers = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // IPv4-translated
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},  // NAT64, of a network's own
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
}

func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return a, false
	}
	b := a.As16()
	for _, w := range wrappers {
		if w.prefix.Contains(a) {
			return netip.AddrFrom4([4]byte(b[w.at : w.at+4])), true
		}
	}
	return a, false
}
