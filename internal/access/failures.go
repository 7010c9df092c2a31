package access

import (
	"net/netip"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/env"
)

const (
	// MaxFailures is how many wrong tokens a minute from one address are compared with the store without a further bound.
	MaxFailures  = 10
	failureTime  = time.Minute
	maxAddresses = 10_000 // whose failures are counted; any more count together
	// MaxReads is how many tokens a second from an address with more failures are compared with the store: one of them may
	// be valid.
	MaxReads  = 10
	readsTime = time.Second
	// wrongTime is for how long a wrong token is remembered, so that an agent that repeats one uses up no reads.
	wrongTime = 5 * time.Second
	maxWrong  = 1000 // wrong tokens that are remembered
)

// failures counts wrong tokens by address, and remembers the latest ones.
type failures struct {
	env env.Env

	mu    sync.Mutex
	count map[string]failureCount
	swept time.Time              // when old counts were removed
	wrong map[[32]byte]time.Time // when the store did not have a token, by the hash of its text
}

// failureCount is how often callers at an address were wrong in a minute, and how many of their tokens were read in a
// second since then.
type failureCount struct {
	since time.Time
	n     int

	readsSince time.Time
	reads      int
}

func newFailures(e env.Env) *failures {
	return &failures{env: e, count: map[string]failureCount{}, wrong: map[[32]byte]time.Time{}}
}

// check says what to do with a token that is not cached.
type check uint8

const (
	readToken  check = iota // compare it with the store
	wrongAgain              // it was wrong a moment ago
	readLater               // too many tokens of its address were read in this second
)

// check says what to do with a token of a caller at address that is not cached. sum is the hash of its text.
func (f *failures) check(address string, sum *[32]byte) check {
	if f.allow(address) {
		return readToken
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.env.Now()
	if at, known := f.wrong[*sum]; known && now.Sub(at) < wrongTime {
		return wrongAgain
	}
	key := f.key(address)
	c := f.count[key]
	if now.Sub(c.readsSince) >= readsTime {
		c.readsSince, c.reads = now, 0
	}
	if c.reads >= MaxReads {
		return readLater
	}
	c.reads++
	f.count[key] = c
	return readToken
}

// remember notes that the store does not have a token.
func (f *failures) remember(sum *[32]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.wrong) >= maxWrong {
		clear(f.wrong)
	}
	f.wrong[*sum] = f.env.Now()
}

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
