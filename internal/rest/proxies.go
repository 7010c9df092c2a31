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
// a trusted proxy, if the connection is of one.
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
	for _, hop := range slices.Backward(hops) {
		next, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		if at = next.Unmap(); !p.trust(at) {
			break
		}
	}
	return at.String()
}
