// Package targets decides which addresses requests that others choose may reach: those of the agent http, and of webhooks.
// Addresses of this machine, its link, and metadata services of clouds are forbidden unless they are allowed.
package targets

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Targets decides which addresses may be dialled.
type Targets struct {
	allow []netip.Prefix
	own   ownAddresses
}

// New returns targets: forbidden addresses within allow are allowed.
func New(allow []netip.Prefix) *Targets {
	return &Targets{allow: allow, own: ownAddresses{read: net.InterfaceAddrs, maxAge: ownMaxAge}}
}

// ForbiddenError is the error for a target that may not be dialled.
type ForbiddenError struct {
	addr netip.Addr
	why  string
}

func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("%s %s, and not an allowed target (serve and agent have --allow-private-targets)", e.addr, e.why)
}

// The reasons why a target is forbidden.
const (
	whyPrivate  = "is on this machine or its link"
	whyMetadata = "is a metadata service of a cloud"
	whyOwn      = "is an address of this machine"
	whyUnread   = "cannot be read as an address"
)

// Permit checks an address that is about to be dialled. This is after name resolution, so a second answer of a name
// server cannot differ from what was checked (F053, F161).
func (t *Targets) Permit(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &ForbiddenError{why: whyUnread}
	}
	addr := ap.Addr().Unmap().WithZone("")
	for _, p := range t.allow {
		if p.Contains(addr) {
			return nil
		}
	}
	reached := []netip.Addr{addr}
	if inner, ok := embedded(addr); ok {
		reached = append(reached, inner)
	}
	for _, a := range reached {
		why, err := t.forbids(a)
		if err != nil {
			return err
		}
		if why != "" {
			return &ForbiddenError{addr, why}
		}
	}
	return nil
}

// forbids returns why an address may not be a target; empty if it may be.
func (t *Targets) forbids(a netip.Addr) (why string, err error) {
	if private(a) {
		return whyPrivate, nil
	}
	if metadata[a] {
		return whyMetadata, nil
	}
	own, err := t.own.contain(a)
	if err != nil {
		return "", fmt.Errorf("cannot read the addresses of this machine, with which targets are compared: %w", err)
	}
	if own {
		return whyOwn, nil
	}
	return "", nil
}

// ownMaxAge is how long the addresses of this machine are cached; a new address may be dialled for that long. Reading
// them takes some 0.1 ms, and milliseconds on a machine with thousands of interfaces.
const ownMaxAge = time.Second

// ownAddresses are the addresses of this machine's interfaces. They change while it runs.
type ownAddresses struct {
	read   func() ([]net.Addr, error)
	maxAge time.Duration

	mu     sync.Mutex
	readAt time.Time
	addrs  map[netip.Addr]bool
}

func (o *ownAddresses) contain(a netip.Addr) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.addrs == nil || time.Since(o.readAt) >= o.maxAge {
		list, err := o.read()
		if err != nil {
			return false, err
		}
		o.readAt, o.addrs = time.Now(), make(map[netip.Addr]bool, len(list))
		for _, l := range list {
			if n, ok := l.(*net.IPNet); ok {
				if addr, ok := netip.AddrFromSlice(n.IP); ok {
					o.addrs[addr.Unmap()] = true
				}
			}
		}
	}
	return o.addrs[a], nil
}

// metadata are the addresses outside the link-local range at which clouds offer metadata, and credentials, to their
// machines.
var metadata = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"):   true, // AWS
	netip.MustParseAddr("fd20:ce::254"):    true, // Google Cloud
	netip.MustParseAddr("100.100.100.200"): true, // Alibaba Cloud
	netip.MustParseAddr("192.0.0.192"):     true, // Oracle Cloud
	netip.MustParseAddr("168.63.129.16"):   true, // Azure
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
