package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// The store's time is the server's clock_timestamp(), read in a statement of its own after the locks:
// now() is the start of the transaction, and even clock_timestamp() within a guarded UPDATE is read
// before the wait for a row that another transaction has locked (F058).
//
// The store's time never runs back for one process, whatever the server's clock does. For all processes there is a
// durable mark in perdure.clock. A transaction that writes raises the mark if it is markEvery behind. When the
// server's clock was set back, or a server whose clock is behind took over, the store's time continues from the mark:
// it leads the server's clock (ahead). So, after such a jump, the time that one process has read may be ahead of the
// time that another reads, by at most markEvery and the length of a transaction.
//
// A clock was set back only if the order of two readings is known. The mark was committed before it is read. Of two
// readings of one process, the order is known if the second request was sent after the first answer had come. Any other
// reading may have been taken earlier and answered later: a lost packet delays an answer by half a second, and shows
// nothing about the clock (F154). Such a reading is used, but does not create a lead.
//
// A lead shrinks: while there is one, the store's time passes at nine tenths of its normal pace. This is safe, because
// a holder measures the remaining time of its run by its own clock, and ends no later than the store.
//
// If a clock that was wrong for a while has left a mark far in the future, the mark can be corrected by hand at once:
//
//	update perdure.clock set mark = now(), ahead = 0    -- and restart the nodes
const (
	markEvery = 250 * time.Millisecond
	// caughtUp is how far the server's clock must be past the mark to be believed again.
	caughtUp = 2 * time.Second
	// giveBack is the rate at which a lead shrinks: by one part in so many of the passing time.
	giveBack = 10
)

const (
	readingSQL = "clock_timestamp(), mark, ahead, fence, pg_postmaster_start_time()"
	clockSQL   = "select " + readingSQL + " from perdure.clock where one"
)

// reading is one reading of the server's clock and of the mark.
type reading struct {
	server time.Time     // the server's clock
	mark   time.Time     // the durable mark: a lower bound of the store's time
	ahead  time.Duration // the lead: the store's time minus the server's clock
	now    time.Time     // the store's time
	lifted bool          // ahead must be stored: without it, another process would read a different time
	jump   time.Duration // of the server's clock, if no alert has been raised for it yet
	fence  int64         // see fence.go
	start  time.Time     // start time of the server

	sent, got time.Time // by this process's clock: before the request was sent, and after the answer had arrived
}

func scanReading(r *pgwire.Reader) reading {
	return reading{server: r.Time(), mark: r.Time(), ahead: time.Duration(r.Int64()) * time.Microsecond, fence: r.Int64(), start: r.Time(),
		sent: r.Sent, got: time.Now()}
}

// clock is what this process knows of the store's time.
type clock struct {
	mu      sync.Mutex
	virtual bool // the server's clock is a simulation's
	latest  latestTime
	offset  offset
	jump    time.Duration // the latest jump of the server's clock, until an alert is committed for it
	known   recognition
	newest  string // origin of the newest timeline that has answered (see fence.go)
	refused error  // why a server of an older one was refused
}

// latestTime is the latest store time that this process has read, the lead at that time, and when the answer arrived.
type latestTime struct {
	mark  time.Time
	ahead time.Duration
	got   time.Time
}

// timeOf adds the store's time and its lead to a reading.
func (c *clock) timeOf(r reading) reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	var by time.Duration
	if !c.virtual {
		by = c.offset.observe(&r)
	}
	if by != 0 {
		c.jump = by
	}
	stored := leadAt(r.server, r.mark, r.ahead)
	mark, ahead, inOrder := r.mark, stored, !r.sent.Before(c.latest.got)
	if inOrder && c.latest.mark.After(r.mark) {
		mark, ahead = c.latest.mark, leadAt(r.server, c.latest.mark, c.latest.ahead)
	}
	ahead = max(ahead-max(by, 0), 0) // a clock that was set back and is set forward again needs a smaller lead
	if lag := mark.Sub(r.server.Add(ahead)); lag > markEvery {
		ahead += lag
	}
	r.now = later(later(r.server.Add(ahead), mark), c.latest.mark)
	r.ahead, r.lifted, r.jump = ahead, (ahead-stored).Abs() > markEvery, c.jump
	if inOrder || r.now.After(c.latest.mark) {
		c.latest = latestTime{r.now, ahead, r.got}
	}
	return r
}

// leadAt returns the rest of a lead at a time of the server's clock, if the store's time was mark when the lead was
// ahead.
func leadAt(server, mark time.Time, ahead time.Duration) time.Duration {
	if server.Sub(mark) >= caughtUp {
		return 0
	}
	return max(ahead-max(server.Add(ahead).Sub(mark), 0)/giveBack, 0)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Now returns the time that was read with the latest lock, or reads it.
func (tx *tx) Now() (time.Time, error) {
	if tx.clockReading.server.IsZero() {
		if err := tx.run(tx.readClock()); err != nil {
			return time.Time{}, err
		}
	}
	tx.returnedReading, tx.clockReading = tx.clock.timeOf(tx.clockReading), reading{}
	if err := tx.guard(); err != nil {
		return tx.returnedReading.now, err
	}
	return tx.returnedReading.now, tx.alertJump()
}

// readClock keeps a reading for the next call of Now.
func (tx *tx) readClock() *pgwire.Statement {
	return pgwire.New(clockSQL).Each(func(r *pgwire.Reader) error {
		tx.clockReading = scanReading(r)
		tx.cache.Rows.Server = tx.clockReading.start
		return nil
	})
}

const raiseMarkSQL = `update perdure.clock set mark = $1, ahead = $2
	where one in (select one from perdure.clock where mark <= $1 for update skip locked)`

// raiseMark stores the time of this transaction as the mark, if the mark is well behind; otherwise it returns nil. It
// does not wait for a transaction that has locked the row, because that one raises the mark.
func (tx *tx) raiseMark() *pgwire.Statement {
	t := tx.returnedReading
	if !t.lifted && (!tx.wrote || t.now.Sub(t.mark) < markEvery) {
		return nil
	}
	return pgwire.New(raiseMarkSQL).Time(t.now).Int64(t.ahead.Microseconds())
}

// Now is the store's time outside of transactions.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	all, err := queryAtOnce(ctx, s, pgwire.New(clockSQL), scanReading)
	if err != nil || len(all) == 0 {
		return time.Time{}, err
	}
	return s.clock.timeOf(all[0]).now, nil
}
