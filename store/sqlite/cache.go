package sqlite

import (
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
	"github.com/perdure/perdure/store/internal/bundle"
)

// cache is what this process keeps of the file in memory, so that transactions need not read it again. Nothing depends
// on it: what is lost is read again. A transaction takes rows out of the cache, and returns them when it is committed.
// If it is rolled back, these rows are no longer cached; they are never wrong. After an indeterminate commit the store
// is not used any more, and neither is the cache.
type cache struct {
	version    int64                         // of the file, for which the cache is valid
	rows       map[kernel.StepRef]*storedRow // of jobs that are running
	newestJob  perdure.JobID                 // no job has a later id
	lastRunSet int64                         // the highest number of a run set
	remaining  map[int64]int                 // number of runs in flight of each set
	shapes     map[kernel.ShapeID]struct{}   // that are stored
	limits     map[string]bool               // the names of all limits; nil: not read
	allLimits  *[]kernel.Limit               // nil: not read
	agents     map[string]perdure.AgentSettings
	routing    *kernel.Routing               // nil: not read
	bundles    map[perdure.JobID]bundle.Open // by the bundle's first job
}

// These bound the cache.
const (
	maxCachedRows = 16_384
	maxCachedSets = 1_000_000
	maxShapes     = 100_000
)

// beginCache empties the cache if a connection that is not the store's has written to the file since: that of a caller's
// SubmitTx, or of a tool.
func (s *Store) beginCache(c *conn) error {
	version, err := versionOf(c)
	if err != nil || version == s.version && s.rows != nil {
		return err
	}
	k := cache{version: version, rows: map[kernel.StepRef]*storedRow{}, remaining: map[int64]int{}, shapes: map[kernel.ShapeID]struct{}{},
		bundles: map[perdure.JobID]bundle.Open{}}
	if k.newestJob, err = one(c, (*row).id, `SELECT max(job) FROM perdure_step`); err != nil {
		return err
	}
	bundled, err := lastBundledID(c)
	if err != nil {
		return err
	}
	if bundled.Compare(k.newestJob) > 0 {
		k.newestJob = bundled
	}
	if k.lastRunSet, err = one(c, (*row).num, `SELECT max(id) FROM perdure_out`); err != nil {
		return err
	}
	s.cache = k
	return nil
}

// ownWrite marks a write by another connection of this store as harmless for the cache.
func (s *Store) ownWrite(write func() error) error {
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

// versionOf returns a number that changes when another connection than this one has written.
func versionOf(c *conn) (int64, error) { return one(c, (*row).num, `PRAGMA data_version`) }

// take removes a row from the cache for a transaction; nil if it is not cached.
func (k *cache) take(ref kernel.StepRef) *storedRow {
	row := k.rows[ref]
	if row != nil {
		delete(k.rows, ref)
	}
	return row
}

// commitCache caches what a committed transaction has read or written.
func (tx *tx) commitCache() {
	k := &tx.store.cache
	if tx.defined != nil || tx.changesSettings {
		k.limits = tx.defined
	}
	if tx.allLimits != nil || tx.changesSettings {
		k.allLimits = tx.allLimits
	}
	if tx.agents != nil || tx.changesSettings {
		k.agents = tx.agents
	}
	if tx.routing != nil || tx.changesRouting {
		k.routing = tx.routing
	}
	for ref, row := range tx.rows {
		if ref.Job.Compare(k.newestJob) > 0 {
			k.newestJob = ref.Job
		}
		underWay := row.step.Phase == perdure.Ready || row.step.Phase == perdure.Running
		if row.job != nil {
			underWay = row.job.HasPermit // from the first run until the job is parked or settled
		}
		if underWay && row.bundled.of == nil && speed.KnownRows.On() {
			k.rows[ref] = row
		}
	}
	shrink(k.rows, maxCachedRows)
	tx.bundles.committed(k)
	for id := range tx.shapes {
		k.shapes[id] = struct{}{}
	}
	shrink(k.shapes, maxShapes)
	for id, n := range tx.runSets.remaining {
		if n > 0 {
			k.remaining[id] = n
		} else {
			delete(k.remaining, id)
		}
	}
	shrink(k.remaining, maxCachedSets)
}

// shrink removes some entries if there are too many.
func shrink[K comparable, V any](m map[K]V, most int) {
	for key := range m {
		if len(m) <= most {
			return
		}
		delete(m, key)
	}
}
