package webhook

import (
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Each receiver has a circuit breaker, so that a receiver that is down gets few requests. It counts failures in a row: a
// receiver that fails now and then is retried by the schedule of each notification. The circuit breaker of the agent http
// (failsafe-go) reads the machine's clock; this one also runs in the simulation, where time is virtual.
const (
	breakerFailures = 8 // failures in a row that open it
	breakerDelay    = 5 * time.Second
	breakerMaxDelay = 5 * time.Minute
)

// breaker is the state of a circuit: how many attempts have failed in a row, and until when nothing is sent. It belongs to
// one version of a receiver, so that a change of the receiver, or its resumption, closes the circuit.
type breaker struct {
	version  time.Time // when the receiver was last changed
	failures int
	delay    time.Duration
	until    time.Time
}

func (d *Deliverer) breaker(to *kernel.Receiver) *breaker {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.breakers[to.Name]; b != nil && b.version.Equal(to.UpdatedAt) {
		return b
	}
	return &breaker{version: to.UpdatedAt}
}

// judge records the results of some attempts, and logs when a receiver begins to fail and when it works again. Only the
// receiver's worker calls it.
func (d *Deliverer) judge(receiver string, b *breaker, results []kernel.DeliveryResult) (ok bool) {
	failed := ""
	for _, r := range results {
		if r.State == operate.DeliveryDelivered {
			ok = true
		} else {
			failed = r.Error
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	failing := d.breakers[receiver] != nil
	switch {
	case ok && failing:
		d.cfg.Log.Info("webhook works again", "receiver", kernel.SiteOf(receiver))
	case !ok && !failing:
		d.cfg.Log.Warn("webhook fails; its notifications are sent again later", "receiver", kernel.SiteOf(receiver), "error", failed)
	}
	if ok {
		delete(d.breakers, receiver)
		return true
	}
	attempts := len(results)
	if b.failures += attempts; b.failures >= breakerFailures {
		b.delay = min(max(2*b.delay, breakerDelay), breakerMaxDelay)
		b.until = d.cfg.Env.Now().Add(b.delay)
	}
	if len(d.breakers) >= maxReceivers {
		clear(d.breakers) // this closes the circuits, which costs some attempts
	}
	d.breakers[receiver] = b
	return false
}
