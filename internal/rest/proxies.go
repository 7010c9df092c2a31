package rest

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of proxies that a node trusts: the header X-Forwarded-For of their requests names the caller.
// Without one, the header means nothing, because any client can send it.
type Proxies []netip.Prefix

// maxProxies bounds --trusted-proxies.
const maxProxies = 100

// ParseProxies reads networks in CIDR form, and single addresses.
func ParseProxies(list []string) (Proxies, error) {
	if len(list) > maxProxies {
		return nil, fmt.Errorf("%d networks are named; at most %d are allowed", len(list), maxProxies)
	}
	var p Proxies
	for _, text := range list {
		text = strings.TrimSpace(text)
		network, err := netip.ParsePrefix(text)
		if addr, aerr := netip.ParseAddr(text); aerr == nil {
			network, err = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not a network such as 10.0.0.0/8, or an address", printable(text))
		}
		p = append(p, network.Masked())
	}
	return p, nil
}

func (p Proxies) trust(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(a.Unmap()) })
}

// address returns the IP address of the caller: that of the connection, or the last one in X-Forwarded-For that is not of
// a trusted proxy, if the connection is of one. If the header of a trusted proxy cannot be read, the caller is unreadable,
// and not the proxy: that may be on this machine, where callers may do more.
func (p Proxies) address(remote string, forwarded []string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	at, err := netip.ParseAddr(host)
	if err != nil || !p.trust(at) {
		return host
	}
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	if len(hops) == 1 && strings.TrimSpace(hops[0]) == "" { // a call of the proxy itself, such as a health check
		return at.Unmap().String()
	}
	for _, hop := range slices.Backward(hops) {
		next, ok := hopAddress(strings.TrimSpace(hop))
		if !ok {
			return unreadable
		}
		if at = next; !p.trust(at) {
			break
		}
	}
	return at.Unmap().String()
}

// unreadable is the address of a caller whom a trusted proxy names in a way that cannot be read. It is not a local one.
const unreadable = "unknown"

// hopAddress reads an address of X-Forwarded-For: IP, IP:PORT, [IP] or [IP]:PORT.
func hopAddress(text string) (netip.Addr, bool) {
	if literal, port, bracketed := strings.Cut(strings.TrimPrefix(text, "["), "]"); bracketed && text[0] == '[' && isPort(port) {
		a, err := netip.ParseAddr(literal)
		return a.Unmap().WithZone(""), err == nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return a.Unmap().WithZone(""), true
	}
	a, err := netip.ParseAddrPort(text)
	return a.Addr().Unmap().WithZone(""), err == nil
}
