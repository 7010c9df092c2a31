package http

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// F161: a server on this machine is not reached by its address in the network, nor by a redirect to it.
func TestOwnAddressIsNotReached(t *testing.T) {
	own := ownAddress(t)
	var reached atomic.Int32
	listener, err := net.Listen("tcp", net.JoinHostPort(own, "0"))
	if err != nil {
		t.Skip("cannot listen on this machine's address:", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	target := "http://" + listener.Addr().String()

	_, a := serve(t, Config{ForbidPrivate: true}, func(http.ResponseWriter, *http.Request) {})
	if _, err := execute(t, a, aRun(m{"url": target})); verdict(err) != "rejected forbiddenTarget none" || !strings.Contains(err.Error(), "address of this machine") {
		t.Errorf("%s: %v", verdict(err), err)
	}
	url, a := serve(t, Config{ForbidPrivate: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, http.StatusFound) })
	if _, err := execute(t, a, aRun(m{"url": url, "followRedirects": 1})); verdict(err) != "rejected forbiddenTarget" {
		t.Errorf("after a redirect: %s: %v", verdict(err), err)
	}
	if reached.Load() != 0 {
		t.Error("this machine was reached")
	}
	for _, cfg := range []Config{{}, {ForbidPrivate: true, Allow: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(own), 32)}}} {
		_, a := serve(t, cfg, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
		if _, err := execute(t, a, aRun(m{"url": target})); err != nil {
			t.Errorf("where it is allowed: %v", err)
		}
	}
	if reached.Load() != 2 {
		t.Error("this machine was not reached where it is allowed")
	}
}

// ownAddress returns an IPv4 address of this machine that is not loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has loopback alone")
	return ""
}
