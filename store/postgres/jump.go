package postgres

import (
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// Each process compares the server's clock with its own monotonic clock. The server reads its clock between the request
// and the answer, so the difference of the two clocks lies between two bounds, however slow the answer is. If the
// bounds of two readings are further apart than jumpLeast, the server's clock was set, or a server with another clock
// took over. This raises an alert (F080, F081).
const (
	jumpLeast = time.Second
	// drift is how much faster or slower than the other a clock may run without having been set: by one part in so
	// many.
	drift = 1000
)

// offset is the change of the difference between the server's clock and this process's clock since the first reading.
type offset struct {
	server, mono time.Time     // of the first reading
	least, most  time.Duration // the bounds of the change
	at           time.Time     // when the latest answer arrived
	since        time.Time     // when the first answer after the latest jump arrived
}

// observe narrows the bounds, and returns by how much the server's clock was set since the earlier readings; 0 if it
// was not.
func (o *offset) observe(r *reading) (by time.Duration) {
	if o.since.IsZero() {
		*o = offset{server: r.server, mono: r.got, most: r.got.Sub(r.sent), at: r.got, since: r.got}
		return 0
	}
	if r.sent.Before(o.since) { // it may have been taken before the jump
		return 0
	}
	passed := r.server.Sub(o.server)
	least, most := passed-r.got.Sub(o.mono), passed-r.sent.Sub(o.mono)
	slack := max(r.got.Sub(o.at), 0) / drift
	switch early, late := o.least-slack, o.most+slack; {
	case least > late+jumpLeast:
		by = least - late
	case most < early-jumpLeast:
		by = most - early
	case least <= late && most >= early:
		least, most = max(least, early), min(most, late)
	}
	if by != 0 {
		o.since = r.got
	}
	o.least, o.most = least, most
	if r.got.After(o.at) {
		o.at = r.got
	}
	return by
}

const (
	lockClockSQL     = "select one from perdure.clock where one for update skip locked"
	openClockSQL     = "select id from perdure.alert where kind = 'clock' and closed_at is null limit 1"
	forwardMessage   = "the database server's clock was set forward by %s, as measured by the clock of a node: runs may have expired early. "
	backMessage      = "the database server's clock was set back by %s, as measured by the clock of a node: Perdure's time is now ahead of it, and passes more slowly until the clock has caught up. "
	clockMessageHint = "Check the time synchronisation of the server, or whether the node's machine was suspended, and close this alert"
)

// alertJump raises an alert for a jump of the server's clock, unless one is open: every running node detects the same
// jump. Under the lock of perdure.clock it sees alerts that other nodes have raised. It does not wait for that lock:
// each following transaction tries again until there is an alert.
func (tx *tx) alertJump() error {
	jump := tx.returnedReading.jump
	if jump == 0 {
		return nil
	}
	locked, open := false, false
	found := func(is *bool) func(*pgwire.Reader) error {
		return func(*pgwire.Reader) error {
			*is = true
			return nil
		}
	}
	if err := tx.run(pgwire.New(lockClockSQL).Each(found(&locked)), pgwire.New(openClockSQL).Each(found(&open))); err != nil || !locked {
		return err
	}
	tx.alerted = jump
	if open {
		return nil
	}
	message := forwardMessage
	if jump < 0 {
		message = backMessage
	}
	tx.wrote = true
	return tx.Save(&kernel.Changes{Alerts: []kernel.Alert{{Kind: perdure.AlertClock, RaisedAt: tx.returnedReading.now,
		Message: fmt.Sprintf(message, jump.Abs().Round(100*time.Millisecond)) + clockMessageHint}}})
}

// alerted clears a jump for which an alert was committed.
func (c *clock) alerted(jump time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jump == jump {
		c.jump = 0
	}
}
