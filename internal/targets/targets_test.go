package targets

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// targetsOn returns the targets on a machine with these addresses.
func targetsOn(allow string, addrs ...string) *Targets {
	t := New(nil)
	if allow != "" {
		t.allow = []netip.Prefix{netip.MustParsePrefix(allow)}
	}
	t.own.read = func() (list []net.Addr, err error) {
		for _, a := range addrs {
			list = append(list, &net.IPNet{IP: net.ParseIP(a), Mask: net.CIDRMask(8, 32)})
		}
		return list, nil
	}
	return t
}

// F161: the metadata addresses of clouds and this machine's own addresses are forbidden, however they are written. The
// addresses next to them are allowed.
func TestLocalAndMetadataAddressesAreForbidden(t *testing.T) {
	here := targetsOn("", "127.0.0.1", "10.1.2.3", "192.0.2.7", "2001:db8::7", "fe80::1")
	for addr, ok := range map[string]bool{
		"fd00:ec2::254": false, "fd20:ce::254": false, "100.100.100.200": false, "192.0.0.192": false, "168.63.129.16": false,
		"::ffff:100.100.100.200": false, "64:ff9b::6464:64c8": false, "64:ff9b::a83f:8110": false, "2002:c000:c0::": false, "::ffff:0:a83f:8110": false,
		"fd00:ec2::253": true, "fd00:ec2::1:254": true, "100.100.100.201": true, "192.0.0.193": true, "168.63.129.17": true,
		"10.1.2.3": false, "192.0.2.7": false, "2001:db8::7": false, "2001:db8::7%eth0": false, "::ffff:10.1.2.3": false, "64:ff9b::a01:203": false, "2002:c000:207::1": false,
		"10.1.2.4": true, "192.0.2.8": true, "2001:db8::8": true, "64:ff9b::a01:204": true,
	} {
		err := here.Permit(net.JoinHostPort(addr, "80"))
		var forbidden *ForbiddenError
		if (err == nil) != ok || err != nil && !errors.As(err, &forbidden) {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for allow, addr := range map[string]string{"10.1.2.3/32": "10.1.2.3:80", "fd00:ec2::/32": "[fd00:ec2::254]:80", "100.64.0.0/10": "[::ffff:100.100.100.200]:80"} {
		if err := targetsOn(allow, "10.1.2.3").Permit(addr); err != nil {
			t.Errorf("%s is allowed: %v", addr, err)
		}
	}
}

// The addresses of a machine change while its node runs. Reading them costs little, however many targets are dialled.
func TestOwnAddressesAreReadAgain(t *testing.T) {
	var reads atomic.Int32
	addrs := []net.Addr{}
	here := New(nil)
	here.own.read = func() ([]net.Addr, error) { reads.Add(1); return addrs, nil }
	begin := time.Now()
	for range 10_000 {
		if err := here.Permit("10.1.2.3:80"); err != nil {
			t.Fatal(err)
		}
	}
	if n, most := int(reads.Load()), int(time.Since(begin)/ownMaxAge)+1; n > most {
		t.Errorf("the addresses were read %d times in %s", n, time.Since(begin))
	}

	here.own.maxAge = 0
	addrs = []net.Addr{&net.IPNet{IP: net.ParseIP("10.1.2.3"), Mask: net.CIDRMask(8, 32)}}
	if here.Permit("10.1.2.3:80") == nil {
		t.Error("a new address of this machine was permitted")
	}
	addrs = nil
	if err := here.Permit("10.1.2.3:80"); err != nil {
		t.Errorf("an address that this machine has no longer: %v", err)
	}

	// If the addresses cannot be read, nothing is dialled, and the run is tried again later.
	here.own.read = func() ([]net.Addr, error) { return nil, errors.New("no descriptor") }
	var forbidden *ForbiddenError
	if err := here.Permit("10.1.2.3:80"); err == nil || errors.As(err, &forbidden) {
		t.Errorf("without the addresses: %v", err)
	}
	if err := here.Permit("127.0.0.1:80"); !errors.As(err, &forbidden) {
		t.Errorf("loopback without the addresses: %v", err)
	}
}
