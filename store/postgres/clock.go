package postgres

import (
	"context"
	"sync"
	"time"
)

// The store's time is the server's clock_timestamp(), read in a statement of its own after the locks:
// now() is the start of the transaction, and even clock_timestamp() within a guarded UPDATE is read
// before the wait for a row that another transaction has locked (F058).
//
// It never runs back for one process, whatever the server's clock does. For all of them there is a
// durable mark in perdure.clock, which whoever commits raises when it is markEvery behind; when a
// server's clock was set back, or another server with a slower clock took over, time goes on from the
// mark and at its usual pace (ahead is the difference). So what one process was told may be ahead of
// what another is told after such a jump by markEvery and the length of a transaction, not by more.
//
// A mark far in the future, left by a clock that was wrong for a while, is put right by hand:
//
//	update perdure.clock set mark = now(), ahead = 0    -- and restart the nodes
const (
	markEvery = 250 * time.Millisecond
	// caughtUp is how far the server's clock must be past the mark to be believed again.
	caughtUp = 2 * time.Second
)

const (
	readingSQL = "clock_timestamp(), mark, ahead, fence, pg_postmaster_start_time()"
	clockSQL   = "select " + readingSQL + " from perdure.clock where one"
)

// reading is one look at the clock.
type reading struct {
	server time.Time     // what the server's clock says
	mark   time.Time     // what has been told, at least nearly
	ahead  time.Duration // how far our time runs ahead of the server's clock
	now    time.Time     // our time
	lifted bool          // ahead has to be kept, or time would stand still
	fence  int64         // see fence.go
	start  time.Time     // of the server
}

func scanReading(r *reader) reading {
	return reading{server: r.time(), mark: r.time(), ahead: time.Duration(r.int64()) * time.Microsecond, fence: r.int64(), start: r.time()}
}

// clock is this process's part: the latest time that it has told.
type clock struct {
	mu    sync.Mutex
	last  time.Time
	known acquaintance
}

// tell makes our time of what was read.
func (c *clock) tell(r reading) reading {
	if r.server.Sub(r.mark) >= caughtUp {
		r.ahead = 0
	}
	r.now = later(r.server.Add(r.ahead), r.mark)
	c.mu.Lock()
	defer c.mu.Unlock()
	r.now = later(r.now, c.last)
	c.last = r.now
	// Where the server's clock is behind by more than a little, time goes on from here.
	if lag := r.now.Sub(r.server.Add(r.ahead)); lag > markEvery {
		r.ahead, r.lifted = r.ahead+lag, true
	}
	return r
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Now is the time that was read with the latest lock, or is read now.
func (tx *tx) Now() (time.Time, error) {
	if tx.read.server.IsZero() {
		if err := tx.run(tx.readClock()); err != nil {
			return time.Time{}, err
		}
	}
	tx.told, tx.read = tx.clock.tell(tx.read), reading{}
	return tx.told.now, tx.guard()
}

// readClock keeps a reading for the next call of Now.
func (tx *tx) readClock() *statement {
	return q(clockSQL).each(func(r *reader) error {
		tx.read = scanReading(r)
		tx.memory.server = tx.read.start
		return nil
	})
}

const raiseMarkSQL = `update perdure.clock set mark = $1, ahead = $2
	where one in (select one from perdure.clock where mark <= $1 for update skip locked)`

// raiseMark keeps the time at which this transaction wrote, if the mark is well behind it; else it is nil. It
// waits for nobody: whoever holds the row raises it.
func (tx *tx) raiseMark() *statement {
	t := tx.told
	if !t.lifted && (!tx.wrote || t.now.Sub(t.mark) < markEvery) {
		return nil
	}
	return q(raiseMarkSQL).time(t.now).int64(t.ahead.Microseconds())
}

// Now is the same clock outside of transactions.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	all, err := queryAtOnce(ctx, s, q(clockSQL), scanReading)
	if err != nil || len(all) == 0 {
		return time.Time{}, err
	}
	return s.clock.tell(all[0]).now, nil
}
