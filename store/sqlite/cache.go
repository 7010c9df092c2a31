package sqlite

import (
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
	"github.com/perdure/perdure/store/internal/bundle"
)

// cache is what the one process that has the file open keeps of it in memory, so that transactions need not read it again. Nothing depends
// on it: what is lost is read again. A transaction takes rows from it, and returns them when it is committed. Rows of a transaction that
// is rolled back are lost to the cache, and never wrong. After an indeterminate commit the store is not used any more, and so neither is
// the cache.
type cache struct {
	version int64                       // of the file, when this was so
	rows    map[kernel.StepRef]*kept    // of jobs that are under way
	newest  perdure.JobID               // no job has a later id
	lastOut int64                       // the latest number of a set
	left    map[int64]int               // runs that are left in a set
	shapes  map[kernel.ShapeID]struct{} // that are stored
	limits  map[string]bool             // the names of all; nil: not read yet
	agents  map[string]perdure.AgentSettings
	bundles map[perdure.JobID]bundle.Open // by their first jobs
}

// How much is kept at most.
const (
	maxRows   = 16_384
	maxSets   = 1_000_000
	maxShapes = 100_000
)

// beginCache empties the cache if another process has written to the file since: a tool, because no other node can have it open.
func (s *Store) beginCache(c *conn) error {
	version, err := versionOf(c)
	if err != nil || version == s.version && s.rows != nil {
		return err
	}
	k := cache{version: version, rows: map[kernel.StepRef]*kept{}, left: map[int64]int{}, shapes: map[kernel.ShapeID]struct{}{},
		bundles: map[perdure.JobID]bundle.Open{}}
	if k.newest, err = one(c, (*row).id, `SELECT max(job) FROM perdure_step`); err != nil {
		return err
	}
	bundled, err := newestBundled(c)
	if err != nil {
		return err
	}
	if bundled.Compare(k.newest) > 0 {
		k.newest = bundled
	}
	if k.lastOut, err = one(c, (*row).num, `SELECT max(id) FROM perdure_out`); err != nil {
		return err
	}
	s.cache = k
	return nil
}

// expect lets a write of our own by another connection pass for what it is: it touches nothing that is known.
func (s *Store) expect(write func() error) error {
	before, err := versionOf(s.write)
	if err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	after, err := versionOf(s.write)
	if err == nil && before == s.version {
		s.version = after
	}
	return err
}

// versionOf changes where another connection than this one has written.
func versionOf(c *conn) (int64, error) { return one(c, (*row).num, `PRAGMA data_version`) }

// take gives a row to the transaction, which may change it; nil if it is not known.
func (k *cache) take(ref kernel.StepRef) *kept {
	row := k.rows[ref]
	if row != nil {
		delete(k.rows, ref)
	}
	return row
}

// commitCache keeps what the transaction has read or written.
func (tx *tx) commitCache() {
	k := &tx.store.cache
	if tx.defined != nil || tx.puts {
		k.limits = tx.defined
	}
	if tx.agents != nil || tx.puts {
		k.agents = tx.agents
	}
	for ref, row := range tx.rows {
		if ref.Job.Compare(k.newest) > 0 {
			k.newest = ref.Job
		}
		underWay := row.step.Phase == perdure.Ready || row.step.Phase == perdure.Running
		if row.job != nil {
			underWay = row.job.Permit // from the first run until it rests
		}
		if underWay && row.in.of == nil && speed.KnownRows.On() {
			k.rows[ref] = row
		}
	}
	shrink(k.rows, maxRows)
	tx.bundles.remember(k)
	for id := range tx.shapes {
		k.shapes[id] = struct{}{}
	}
	shrink(k.shapes, maxShapes)
	for id, n := range tx.sets.left {
		if n > 0 {
			k.left[id] = n
		} else {
			delete(k.left, id)
		}
	}
	shrink(k.left, maxSets)
}

// shrink forgets some where there are too many.
func shrink[K comparable, V any](m map[K]V, most int) {
	for key := range m {
		if len(m) <= most {
			return
		}
		delete(m, key)
	}
}
