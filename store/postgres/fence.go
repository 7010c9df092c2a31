package postgres

import (
	"fmt"
	"time"

	"perdure"
)

// A database may turn out to be an older one: after a failover to a standby that had not got the last commits,
// or where a backup was restored. Then runs have been let out of which it knows nothing, and to count on from
// what it knows would give their numbers a second time (I6). So each transaction sees whether it still speaks
// to the server that this process knows, before it lets anything out; where it does not, the database's origin
// is compared with the one that it has written down. If that is another, or if the clock's mark is behind what
// this process has read, the fence is raised: to the time, in milliseconds, which is above all numbers that
// were counted up from 1, and above all fences before.
//
// What it cannot see is a backup that was put back into the same server while no node ran: `perdure fence`.

// acquaintance is the database as this process knows it.
type acquaintance struct {
	start time.Time // of the server whose origin was compared
	mark  time.Time // the latest that was read
	fence int64     // the highest that was read
}

const (
	originSQL = "select " + readingSQL + ", origin, perdure.origin() from perdure.clock where one"
	// Whoever else raises it meanwhile is waited for, and has done it then.
	setOriginSQL   = "update perdure.clock set origin = $2 where one and origin = $1"
	raiseFenceSQL  = "update perdure.clock set fence = greatest(fence, $1), mark = greatest(mark, $2), origin = coalesce(nullif($4, ''), origin) where one and origin = $3 and fence = $5"
	raiseOnlySQL   = "update perdure.clock set fence = greatest(fence, $1) where one"
	readFenceSQL   = "select fence from perdure.clock where one"
	setbackMessage = "the database may have lost what it had (%s): what was acknowledged before may be missing, and numbers of runs go on from %d. " +
		"Compare with what your services know, and close this alert"
)

// standbyOrigin is what a server says that only follows another.
const standbyOrigin = "standby"

// familiar says whether a reading is of the server that this process knows, and no older than what it has
// read; and gives what is known.
func (c *clock) familiar(r reading) (bool, acquaintance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.start.Equal(c.known.start) || r.mark.Before(c.known.mark) {
		return false, c.known
	}
	c.known.mark, c.known.fence = r.mark, max(c.known.fence, r.fence)
	return true, c.known
}

// learn remembers a reading of a database whose origin is right.
func (c *clock) learn(r reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = acquaintance{r.start, later(c.known.mark, r.mark), max(c.known.fence, r.fence)}
}

// guard raises the fence where the database is an older one, in this transaction.
func (tx *tx) guard() error {
	familiar, known := tx.clock.familiar(tx.told)
	if familiar {
		tx.told.fence = known.fence // another reading may have been the later one
		return nil
	}
	var fresh reading
	var stored, is string
	// A statement of its own: what it reads is no older than what this process has read before.
	if err := tx.run(q(originSQL).each(func(r *reader) error {
		fresh, stored, is = scanReading(r), r.text(), r.text()
		return r.failed
	})); err != nil {
		return err
	}
	var why string
	switch {
	case is == standbyOrigin: // it may be promoted, and is not known before that
		return nil
	case stored != "" && is != "" && stored != is:
		why = fmt.Sprintf("it was %s, and is %s", stored, is)
	case fresh.mark.Before(known.mark):
		why = fmt.Sprintf("its clock was at %s, and is at %s", known.mark.Format(time.RFC3339Nano), fresh.mark.Format(time.RFC3339Nano))
	default:
		if stored == "" && is != "" {
			if err := tx.run(q(setOriginSQL).text(stored).text(is)); err != nil {
				return err
			}
		}
		tx.told.fence = max(fresh.fence, known.fence)
		tx.clock.learn(fresh)
		return nil
	}
	return tx.setBack(why, stored, is, fresh, known)
}

// setBack raises the fence once, whoever else finds the same. This process compares again in its next
// transaction: this one may fail.
func (tx *tx) setBack(why, stored, is string, fresh reading, known acquaintance) error {
	fence, met := tx.told.now.UnixMilli(), false
	raise := q(raiseFenceSQL).int64(fence).time(tx.told.now).text(stored).text(is).int64(fresh.fence)
	raise.done = func(n int64) error {
		met = n > 0
		return nil
	}
	if err := tx.run(raise, q(readFenceSQL).each(func(r *reader) error {
		tx.told.fence = max(r.int64(), known.fence)
		return r.failed
	})); err != nil || !met {
		return err
	}
	tx.wrote = true
	return tx.Save(&perdure.Changes{Alerts: []perdure.Alert{{Kind: perdure.AlertSetback, RaisedAt: tx.told.now, Message: fmt.Sprintf(setbackMessage, why, fence)}}})
}

func (tx *tx) Fence() (int64, error) {
	if tx.told.start.IsZero() {
		if _, err := tx.Now(); err != nil {
			return 0, err
		}
	}
	return tx.told.fence, nil
}

func (tx *tx) RaiseFence(fence int64, a perdure.Alert) error {
	tx.wrote = true
	if err := tx.run(q(raiseOnlySQL).int64(fence)); err != nil {
		return err
	}
	tx.told.fence = max(tx.told.fence, fence)
	return tx.Save(&perdure.Changes{Alerts: []perdure.Alert{a}})
}
