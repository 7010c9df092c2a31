package postgres

import (
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// indeterminate keeps the transactions of this process that made bundles and whose commit is indeterminate.
//
// A commit that this process has given up may still happen: until the synchronous standby answers, its changes are invisible. A
// second insert of a job with rows waits for the key of the first. But a bundle has one key for all of its jobs, so a second insert
// would not wait. Therefore a transaction that does not find a job checks whether an indeterminate transaction is still in
// progress. While one is, the transaction is retried (F006, F063).
type indeterminate struct {
	mu     sync.Mutex
	server time.Time // start time of the server that numbered them
	xids   []uint64
}

// maxIndeterminate bounds the transactions: the latest ones are kept.
const maxIndeterminate = 100

func (m *indeterminate) add(server time.Time, xid uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.server.Equal(server) {
		m.server, m.xids = server, nil
	}
	if m.xids = append(m.xids, xid); len(m.xids) > maxIndeterminate {
		m.xids = m.xids[1:]
	}
}

// of returns the transactions that may still be in progress on this server. Another server has none of them.
func (m *indeterminate) of(server time.Time) []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.server.Equal(server) {
		return nil
	}
	return slices.Clone(m.xids)
}

// forget removes transactions that have ended.
func (m *indeterminate) forget(xids []uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.xids = slices.DeleteFunc(m.xids, func(xid uint64) bool { return slices.Contains(xids, xid) })
}

const inProgressSQL = "select x from unnest($1::bigint[]) as x where pg_xact_status(x::text::xid8) = 'in progress'"

// awaitIndeterminate reports whether an indeterminate transaction has ended since the last call: then a missing job may exist now.
// It fails with ErrStale while one is in progress.
func (tx *tx) awaitIndeterminate() (ended bool, err error) {
	xids := tx.store.indeterminate.of(tx.cache.Rows.Server)
	if len(xids) == 0 {
		return false, nil
	}
	var ids pgwire.Cells
	for _, xid := range xids {
		ids.Int8(int64(xid))
	}
	var running []int64
	if err := tx.run(pgwire.Into(pgwire.New(inProgressSQL).Array(pgwire.Int8, len(xids), ids), &running, (*pgwire.Reader).Int64)); err != nil {
		return false, err
	}
	if len(running) > 0 {
		return false, tx.fail(kernel.ErrStale)
	}
	tx.store.indeterminate.forget(xids)
	return true, nil
}
