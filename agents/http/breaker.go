package http

import (
	"fmt"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/perdure/perdure"
)

// A circuit opens when of at least breakerCalls requests to one host within breakerPeriod nearly all
// have found it in trouble (no connection, a broken one, or a 5xx; a 429 is a healthy no). For
// breakerDelay nothing is sent to it then; after that one request tries whether it is back. The
// bar is high on purpose: each run that meets an open circuit is an attempt spent.
const (
	breakerCalls    = 20
	breakerRate     = 0.9
	breakerPeriod   = 10 * time.Second
	breakerDelay    = 2 * time.Second
	breakerProbing  = 100 * time.Millisecond // how long to stay away while another run tries
	maxBreakerHosts = 1024
)

// breakers has a circuit breaker for each of the hosts seen lately. Nil: none.
type breakers struct {
	mu     sync.Mutex
	byHost map[string]circuitbreaker.CircuitBreaker[any]
}

func newBreakers() *breakers {
	return &breakers{byHost: map[string]circuitbreaker.CircuitBreaker[any]{}}
}

// enter asks whether a request may be sent. If so, verdict must be told how it went.
func (b *breakers) enter(host string) (verdict func(health), err error) {
	if b == nil {
		return func(health) {}, nil
	}
	c := b.of(host)
	if !c.TryAcquirePermit() {
		after := max(c.RemainingDelay(), breakerProbing)
		err := fmt.Errorf("%s has been failing: nothing is sent to it for %s", host, after.Round(time.Millisecond))
		return nil, perdure.RetryAfter(after, perdure.NoEffect(perdure.Failed(err, "circuitOpen")))
	}
	return func(h health) {
		switch {
		case h == well:
			c.RecordSuccess()
		case h == ill || c.IsHalfOpen(): // a try that shows nothing must give its permit back all the same
			c.RecordFailure()
		}
	}, nil
}

func (b *breakers) of(host string) circuitbreaker.CircuitBreaker[any] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c, ok := b.byHost[host]; ok {
		return c
	}
	if len(b.byHost) >= maxBreakerHosts {
		b.evict()
	}
	c := circuitbreaker.NewBuilder[any]().
		WithFailureRateThreshold(breakerRate, breakerCalls, breakerPeriod).
		WithSuccessThreshold(1).
		WithDelay(breakerDelay).
		Build()
	b.byHost[host] = c
	return c
}

// evict makes room: for one host whose circuit is closed, or for any if there is none.
func (b *breakers) evict() {
	victim := ""
	for host, c := range b.byHost {
		victim = host
		if c.IsClosed() {
			break
		}
	}
	delete(b.byHost, victim)
}
