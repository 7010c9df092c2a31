package access

import (
	"net/netip"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/env"
)

const (
	// MaxFailures is how many wrong tokens a minute from one address are compared with the store.
	MaxFailures  = 10
	failureTime  = time.Minute
	maxAddresses = 10_000 // whose failures are counted; any more count together
)

// failures counts wrong tokens by address.
type failures struct {
	env env.Env

	mu    sync.Mutex
	count map[string]failureCount
	swept time.Time // when old counts were removed
}

// failureCount is how often callers at an address were wrong in a minute.
type failureCount struct {
	since time.Time
	n     int
}

func newFailures(e env.Env) *failures { return &failures{env: e, count: map[string]failureCount{}} }

// allow reports whether a caller at address may still be wrong.
func (f *failures) allow(address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.count[f.key(address)]
	return c.n < MaxFailures || f.env.Now().Sub(c.since) >= failureTime
}

// add counts a failure, and reports whether it was among the first MaxFailures of a minute.
func (f *failures) add(address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.env.Now()
	if len(f.count) >= maxAddresses && now.Sub(f.swept) >= failureTime {
		f.swept = now
		for key, c := range f.count {
			if now.Sub(c.since) >= failureTime {
				delete(f.count, key)
			}
		}
	}
	key := f.key(address)
	c := f.count[key]
	if now.Sub(c.since) >= failureTime {
		c = failureCount{since: now}
	}
	c.n = min(c.n+1, MaxFailures+1)
	f.count[key] = c
	return c.n <= MaxFailures
}

// key returns the key under which failures of an address are counted. For IPv6 it is the network, because a machine can
// use all addresses of its network.
func (f *failures) key(address string) string {
	key := address
	if a, err := netip.ParseAddr(address); err == nil && a.Unmap().Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			key = p.String()
		}
	}
	if _, counted := f.count[key]; !counted && len(f.count) >= maxAddresses {
		return ""
	}
	return key
}
