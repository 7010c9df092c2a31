package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// A database may turn out to be an older one: after a failover to a standby that lacks the last commits, or after a
// backup was restored. Then it knows nothing of some runs that were dispatched, and would give their run numbers a
// second time (I6).
//
// So each transaction checks, before it dispatches anything, whether it talks to the server that this process knows. If
// it does not, the origin of the database is compared with the stored one. If the origins differ, or if the clock's mark
// is behind what this process has read, the fence is raised to the time in milliseconds. That is above all run numbers
// that were counted up from 1, and above all earlier fences.
//
// One case cannot be detected: a backup that is restored into the same server while no node runs. For that there is
// `perdure fence`.

// If a promoted standby has everything that was acknowledged, it has a new timeline, too, and the alert is a false one.
// Each node checks this for what was acknowledged to it (see witness.go) and writes the result into its row of
// perdure.node. When all nodes have found nothing missing, the alert is closed. A node that has died meanwhile cannot
// check; then an operator closes the alert.
//
// The former primary may come back as a primary. Its timeline is the older one, and this process refuses it.

// recognition is what this process knows of the database.
type recognition struct {
	start              time.Time // of the server whose origin was compared
	mark               time.Time // the latest mark that was read
	fence              int64     // the highest fence that was read
	origin             string    // of that server
	hasAllAcknowledged bool      // as far as is known, the database has everything that was acknowledged to this process
	changed            bool      // this process has known another origin before
}

const (
	originSQL = "select " + readingSQL + ", origin, perdure.origin() from perdure.clock where one"
	// If another transaction sets the origin meanwhile, this one waits for it, and changes nothing then.
	setOriginSQL  = "update perdure.clock set origin = $2 where one and origin = $1"
	raiseFenceSQL = "update perdure.clock set fence = greatest(fence, $1), mark = greatest(mark, $2), origin = coalesce(nullif($4, ''), origin) where one and origin = $3 and fence = $5"
	// closeSetbackSQL closes the alert when all nodes have found that nothing is missing. A node that was not seen in
	// the minute before need not agree: nothing was acknowledged to it later than to the others.
	closeSetbackSQL = `update perdure.alert a set closed_at = clock_timestamp(), closed_by = 'perdure'
		where a.closed_at is null and a.id > 0 and a.kind = 'setback' and a.name = $1 and not exists (
			select from perdure.node n where n.seen_at > a.raised_at - interval '1 minute' and n.origin <> a.name)`
	raiseOnlySQL   = "update perdure.clock set fence = greatest(fence, $1) where one"
	readFenceSQL   = "select fence from perdure.clock where one"
	setbackMessage = "the database may have lost committed work (%s): what was acknowledged before may be missing. New run numbers begin at %d. " +
		"Compare with what your services know, and close this alert. It closes by itself if all nodes find that nothing acknowledged to them is missing"
)

// standbyOrigin is the origin of a server that follows another.
const standbyOrigin = "standby"

// recognize reports whether a reading is of the server that this process knows and not older than what it has read, and
// returns what is known.
func (c *clock) recognize(r reading) (bool, recognition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.start.Equal(c.known.start) || r.mark.Before(c.known.mark) {
		return false, c.known
	}
	c.known.mark, c.known.fence = r.mark, max(c.known.fence, r.fence)
	return true, c.known
}

// remember stores a reading of a database whose origin was checked.
func (c *clock) remember(r reading, now recognition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known.start.Equal(r.start) { // another transaction was faster, and has compared the witnesses
		now.origin, now.hasAllAcknowledged = c.known.origin, c.known.hasAllAcknowledged
	}
	now.start, now.mark, now.fence = r.start, later(c.known.mark, r.mark), max(c.known.fence, r.fence)
	now.changed = c.known.changed || c.known.origin != "" && c.known.origin != now.origin
	c.known = now
}

// confirmedOrigin returns the origin of the database if it has everything that was acknowledged to this process, as far
// as is known, and otherwise "". changed is true if this process has known another origin before.
func (c *clock) confirmedOrigin() (origin string, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known.hasAllAcknowledged {
		return "", false
	}
	return c.known.origin, c.known.changed
}

// successor reports whether a database is of the timeline after another one, and former whether it is of an older one.
func successor(of, is string) bool { return timelinesAhead(of, is) == 1 }
func former(of, is string) bool    { return timelinesAhead(of, is) < 0 }

// timelinesAhead returns how many timelines a database is ahead of another one of its cluster; 0 for another cluster.
func timelinesAhead(of, is string) int64 {
	cluster, was, _ := strings.Cut(of, "/")
	other, now, _ := strings.Cut(is, "/")
	before, err1 := strconv.ParseInt(was, 16, 64)
	after, err2 := strconv.ParseInt(now, 16, 64)
	if cluster != other || err1 != nil || err2 != nil {
		return 0
	}
	return after - before
}

// formerPrimary is the error for a server that is of an older timeline than the one that this process knows.
func formerPrimary(known, is string) error {
	return fmt.Errorf("the server that answers is a former primary and is refused: it is %s, and this node has worked with %s (cluster and timeline); "+
		"stop it, or restart the nodes if an older backup was restored on purpose", is, known)
}

// refuseFormer checks a new connection.
func (c *clock) refuseFormer(ctx context.Context, pg *pgconn.PgConn) error {
	c.mu.Lock()
	knows := c.newest != ""
	c.mu.Unlock()
	if !knows {
		return nil
	}
	rows := pg.ExecParams(ctx, "select perdure.origin()", nil, nil, nil, nil).Read()
	if rows.Err != nil || len(rows.Rows) == 0 { // no schema: the following statements will report it
		return nil //nolint:nilerr // and a connection that is lost
	}
	return c.refuse(string(rows.Rows[0][0]))
}

// refuse returns an error for a database of an older timeline than one that has answered before.
func (c *clock) refuse(is string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if former(c.newest, is) {
		c.refused = formerPrimary(c.newest, is)
		return c.refused
	}
	if is != "" && is != standbyOrigin {
		c.newest = is
	}
	return nil
}

// Refused returns why a server was refused that claims to be the primary; nil if none was.
func (s *Store) Refused() error {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	return s.clock.refused
}

// guard raises the fence in this transaction if the database is an older one.
func (tx *tx) guard() error {
	familiar, known := tx.clock.recognize(tx.returnedReading)
	if familiar {
		tx.returnedReading.fence = known.fence // the other reading may have been the later one
		return nil
	}
	var fresh reading
	var stored, is string
	// A statement of its own: what it reads is no older than what this process has read before.
	if err := tx.run(pgwire.New(originSQL).Each(func(r *pgwire.Reader) error {
		fresh, stored, is = scanReading(r), r.Text(), r.Text()
		return r.Failed
	})); err != nil {
		return err
	}
	if err := tx.clock.refuse(is); err != nil {
		return tx.fail(&fault{lost, err})
	}
	var why string
	switch {
	case is == standbyOrigin: // it may be promoted later
		return nil
	case stored != "" && is != "" && stored != is:
		why = fmt.Sprintf("it was %s, and is %s", stored, is)
	case fresh.mark.Before(known.mark):
		why = fmt.Sprintf("its clock was at %s, and is at %s", known.mark.Format(time.RFC3339Nano), fresh.mark.Format(time.RFC3339Nano))
	default:
		if stored == "" && is != "" {
			if err := tx.run(pgwire.New(setOriginSQL).Text(stored).Text(is)); err != nil {
				return err
			}
		}
		tx.returnedReading.fence = max(fresh.fence, known.fence)
		hasAll := known.origin == "" || known.origin == is && known.hasAllAcknowledged
		if successor(known.origin, is) {
			var err error
			if hasAll, err = tx.compareWitnesses(known.start); err != nil {
				return err
			}
		}
		tx.clock.remember(fresh, recognition{origin: is, hasAllAcknowledged: hasAll})
		tx.store.witnesses.forget(fresh.start)
		return nil
	}
	return tx.setBack(why, stored, is, fresh, known)
}

// setBack raises the fence, once even if other transactions detect the same. This process compares again in its next
// transaction, because this one may fail.
func (tx *tx) setBack(why, stored, is string, fresh reading, known recognition) error {
	fence, met := tx.returnedReading.now.UnixMilli(), false
	raise := pgwire.New(raiseFenceSQL).Int64(fence).Time(tx.returnedReading.now).Text(stored).Text(is).Int64(fresh.fence)
	raise.Counted(func(n int64) { met = n > 0 })
	if err := tx.run(raise, pgwire.New(readFenceSQL).Each(func(r *pgwire.Reader) error {
		tx.returnedReading.fence = max(r.Int64(), known.fence)
		return r.Failed
	})); err != nil || !met {
		return err
	}
	tx.wrote = true
	return tx.Save(&kernel.Changes{Alerts: []kernel.Alert{{Kind: perdure.AlertSetback, Name: is, RaisedAt: tx.returnedReading.now, Message: fmt.Sprintf(setbackMessage, why, fence)}}})
}

func (tx *tx) Fence() (int64, error) {
	if tx.returnedReading.start.IsZero() {
		if _, err := tx.Now(); err != nil {
			return 0, err
		}
	}
	return tx.returnedReading.fence, nil
}

const (
	cellSQL    = "select cell from perdure.clock where one"
	setCellSQL = "update perdure.clock set cell = $1 where one"
)

func (tx *tx) SetCell(cell int) error {
	tx.wrote = true
	have := 0
	if err := tx.run(pgwire.New(cellSQL + " for update").Each(func(r *pgwire.Reader) error {
		have = r.Int()
		return nil
	})); err != nil {
		return err
	}
	if err := kernel.NumberCell(have, cell); err != nil {
		return err
	}
	return tx.run(pgwire.New(setCellSQL).Int(cell))
}

func (tx *tx) RaiseFence(fence int64, a kernel.Alert) error {
	tx.wrote = true
	if err := tx.run(pgwire.New(raiseOnlySQL).Int64(fence)); err != nil {
		return err
	}
	tx.returnedReading.fence = max(tx.returnedReading.fence, fence)
	return tx.Save(&kernel.Changes{Alerts: []kernel.Alert{a}})
}
