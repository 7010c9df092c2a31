package postgres

import (
	"sync"
	"time"

	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// After a failover a node can tell whether the new primary has everything that was acknowledged to the node. For that
// it keeps witnesses of its latest commits: the transaction id, and a position in the log after the transaction's first
// record and before its commit. A promoted server knows up to which position it has replayed its predecessor's log. If
// the witness is before that position, the server has seen the transaction id and has not assigned it to another
// transaction, so that pg_xact_status tells whether the commit arrived. A log has no gaps: if the latest commit
// arrived, all commits before it did. For a transaction without an id, which has only read, the server certainly has
// what it read if it has the position.

// witness is one acknowledged commit.
type witness struct {
	server time.Time // start time of the server
	xid    int64     // 0: the transaction has only read, and everything that it can have seen is before lsn
	lsn    int64

	acknowledged uint64 // when it was acknowledged
}

const (
	witnessColumns = "(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8, pg_postmaster_start_time()"
	witnessSQL     = "select pg_current_xact_id(), " + witnessColumns

	// missedSQL counts the witnesses that a newly promoted server does not have. If the server was restarted after its
	// promotion, its replay position is null, and all witnesses are counted.
	missedSQL = `select count(*) from unnest($1::int8[], $2::int8[]) as w (xid, lsn)
		where not coalesce(case when '0/0'::pg_lsn + w.lsn::numeric <= pg_last_wal_replay_lsn()
			then w.xid = 0 or pg_xact_status(w.xid::text::xid8) = 'committed' end, false)`
)

func (w *witness) scan(r *pgwire.Reader) error {
	w.xid, w.lsn, w.server = r.Int64(), r.Int64(), r.Time()
	return r.Failed
}

// witnesses are the witnesses of the latest commits, by server. Few are kept: a commit that was acknowledged before
// another one was sent is before that one in the log, so its witness is not needed.
type witnesses struct {
	mu    sync.Mutex
	clock uint64
	of    map[time.Time][]witness
}

// maxServers bounds the servers whose witnesses are kept. There is more than one only between a failover and the next
// reading of the clock.
const maxServers = 4

// sent must be called before a COMMIT is sent, and acknowledged after its answer.
func (ws *witnesses) sent() uint64 {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.clock
}

func (ws *witnesses) acknowledged(w witness, sent uint64) {
	if w.lsn == 0 { // a standby
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if _, met := ws.of[w.server]; !met && len(ws.of) >= maxServers || ws.of == nil {
		ws.of = map[time.Time][]witness{}
	}
	ws.clock++
	w.acknowledged = ws.clock
	list := ws.of[w.server]
	later := list[:0]
	for _, old := range list {
		if old.acknowledged > sent {
			later = append(later, old)
		}
	}
	ws.of[w.server] = append(later, w)
}

// from returns the witnesses of a server.
func (ws *witnesses) from(server time.Time) []witness {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return append([]witness(nil), ws.of[server]...)
}

// forget removes the witnesses of all other servers.
func (ws *witnesses) forget(but time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.of = map[time.Time][]witness{but: ws.of[but]}
}

// compareWitnesses reports whether the server that answers has every commit that an earlier server has acknowledged to
// this process. If that is not certain, it returns false.
func (tx *tx) compareWitnesses(before time.Time) (hasAll bool, err error) {
	list := tx.store.witnesses.from(before)
	if len(list) == 0 {
		return false, nil
	}
	var xids, lsns pgwire.Cells
	for _, w := range list {
		xids.Int8(w.xid)
		lsns.Int8(w.lsn)
	}
	err = tx.run(pgwire.New(missedSQL).Array(pgwire.Int8, len(list), xids).Array(pgwire.Int8, len(list), lsns).Each(func(r *pgwire.Reader) error {
		hasAll = r.Int64() == 0
		return r.Failed
	}))
	return hasAll, err
}
