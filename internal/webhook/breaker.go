package webhook

import (
	"time"
)

// A circuit breaker for each receiver keeps a deliverer from a receiver that is down. It counts failures in a row, since
// a receiver that fails now and then is retried by the schedule of each notification. It is not that of the agent http
// (failsafe-go), which reads the machine's clock: this one runs in the simulation, where time is virtual.
const (
	breakerFailures = 8 // failures in a row that open it
	breakerDelay    = 5 * time.Second
	breakerMaxDelay = 5 * time.Minute
)

// breaker is the state of a circuit: how many attempts have failed in a row, and until when nothing is sent.
type breaker struct {
	failures int
	delay    time.Duration
	until    time.Time
}

func (d *Deliverer) breaker(receiver string) *breaker {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.breakers[receiver]; b != nil {
		return b
	}
	return &breaker{}
}

// judge records the results of some attempts. Only the receiver's worker calls it.
func (d *Deliverer) judge(receiver string, b *breaker, ok bool, attempts int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ok {
		delete(d.breakers, receiver)
		return
	}
	if b.failures += attempts; b.failures >= breakerFailures {
		b.delay = min(max(2*b.delay, breakerDelay), breakerMaxDelay)
		b.until = d.cfg.Env.Now().Add(b.delay)
	}
	if len(d.breakers) >= maxReceivers {
		clear(d.breakers) // circuits close: that costs some attempts
	}
	d.breakers[receiver] = b
}
