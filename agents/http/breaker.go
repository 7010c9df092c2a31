package http

import (
	"fmt"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/perdure/perdure"
)

// A circuit opens when nearly all of at least breakerCalls requests to one host within breakerPeriod have shown that the
// host is in trouble (no connection, a broken connection, or a 5xx; a 429 is a healthy answer). Then nothing is sent to
// the host for breakerDelay; after that, one request tries whether the host is back. The thresholds are high on purpose,
// because each run that finds an open circuit uses up an attempt.
const (
	breakerCalls    = 20
	breakerRate     = 0.9
	breakerPeriod   = 10 * time.Second
	breakerDelay    = 2 * time.Second
	breakerProbing  = 100 * time.Millisecond // the pause while another run tries the host
	maxBreakerHosts = 1024
)

// breakers has a circuit breaker for each host that was used lately. A nil value has none.
type breakers struct {
	mu     sync.Mutex
	byHost map[string]circuitbreaker.CircuitBreaker[any]
}

func newBreakers() *breakers {
	return &breakers{byHost: map[string]circuitbreaker.CircuitBreaker[any]{}}
}

// enter returns an error if the circuit is open. Otherwise verdict must be called with the result of the request.
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
		case h == healthy:
			c.RecordSuccess()
		case h == unhealthy || c.IsHalfOpen(): // a trial without a result must release its permit, too
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

// evict removes a host whose circuit is closed, or any host if there is none.
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
