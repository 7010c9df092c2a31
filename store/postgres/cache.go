package postgres

import (
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
)

// cache is what this process keeps of the database in memory, so that transactions need not read it again. Nothing depends
// on it: what is lost is read again.
//
//	rows     rows of unsettled jobs
//	shapes   which shapes are stored, and which of their steps are implicit
//	sets     the sets of runs in flight that this process has written
//	lanes    where searches of an agent's lanes begin
//	bundles  the contents of bundles
//
// A transaction has its part of the cache from begin until commit, rollBack or indeterminate.
type cache struct {
	rows    rowCache
	shapes  shapes
	sets    *runSets
	lanes   laneMarks
	bundles bundleCache
}

func newCache(leastBundle int) cache {
	return cache{sets: newSets(), lanes: laneMarks{quick: quickSearch, interval: fullInterval}, bundles: bundleCache{least: leastBundle}}
}

// cacheTx is one transaction's part of the cache.
type cacheTx struct {
	of      *cache
	rows    rowsTx
	shapes  map[kernel.ShapeID][]implicitStep // written or read by this transaction
	sets    runSetsTx
	lanes   laneMarksTx
	bundles bundleTx
}

func (c *cache) begin() cacheTx {
	return cacheTx{of: c, rows: rowsTx{store: &c.rows}, sets: runSetsTx{store: c.sets}, lanes: laneMarksTx{store: &c.lanes}}
}

// commit keeps what the transaction has written or found.
func (t *cacheTx) commit() {
	t.rows.committed()
	t.sets.committed()
	t.of.shapes.add(t.shapes, t.rows.server)
	t.lanes.end(true)
	t.bundles.committed(&t.of.bundles)
}

// rollBack keeps nothing of the transaction. The rows that it has taken are lost to the cache.
func (t *cacheTx) rollBack() {
	t.sets.rolledBack()
	t.lanes.end(false)
}

// indeterminate ends a transaction whose commit has an unknown outcome. Its rows are not kept.
func (t *cacheTx) indeterminate() {
	t.sets.indeterminate()
	t.lanes.end(false)
}

// rowCache keeps the rows of jobs as this process has last written them.
//
// The rows of a job are written under the lock of its first row, and never without writing the first row (save.go). So
// the transaction that last wrote the first row, its xmin, is the version of all of them: the cached rows of a job are
// valid if the first row, once it is locked, still has the xmin that is cached with it.
//
// A transaction takes the rows of a job out of the cache, and returns them when it is committed. If it is not, these
// rows are no longer cached; they are never wrong.
type rowCache struct {
	mu          sync.Mutex
	now, before map[perdure.JobID]*cachedJob // when now is full, it becomes before
	rows        int                          // number of rows in now
	server      time.Time                    // start time of the server that numbered the transactions
	newest      uint64                       // the latest transaction of this process
}

// cachedJob is the cached rows of one job. The rows are never modified: a change replaces them.
type cachedJob struct {
	job   *kernel.Job
	steps []*kernel.Step // by index; nil if not cached
	xid   uint64         // the transaction that wrote these rows
	one   [1]*kernel.Step
	implicitSet

	written bool // by the transaction that has taken the job
}

func (j *cachedJob) rows() int { return max(1, len(j.steps)) }

func (j *cachedJob) put(s *kernel.Step) {
	if j.steps == nil {
		j.steps = j.one[:]
	}
	for len(j.steps) <= s.Index {
		j.steps = append(j.steps, nil)
	}
	j.steps[s.Index] = s
}

// withoutInput returns the job as its row has it: a large input is stored separately.
func withoutInput(j *kernel.Job) *kernel.Job {
	if !j.InputStoredApart && !apart(j) {
		return j
	}
	small := *j
	small.InputStoredApart, small.Input = true, nil
	return &small
}

const (
	// maxCachedRows bounds the rows in now, and in before. Jobs that have not started are cached only up to
	// maxCachedWaiting rows: a backlog is not kept in memory.
	maxCachedRows    = 32_768
	maxCachedWaiting = maxCachedRows / 4
	// maxAge bounds how many transactions ago cached rows were written, because xmin has 32 bits and wraps around.
	maxAge = 1 << 31
)

// take removes jobs from the cache for a transaction.
func (k *rowCache) take(ids []perdure.JobID) (taken []*cachedJob) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.now)+len(k.before) == 0 {
		return nil
	}
	taken = make([]*cachedJob, 0, len(ids))
	for _, id := range ids {
		j := k.now[id]
		if j != nil {
			delete(k.now, id)
			k.rows -= j.rows()
		} else if j = k.before[id]; j != nil {
			delete(k.before, id)
		}
		if j != nil && k.newest-j.xid < maxAge {
			taken = append(taken, j)
		}
	}
	return taken
}

// useServer empties the cache if another server answers than before, or the same one after a restart: it may have lost
// transactions, and may give their numbers to others.
func (k *rowCache) useServer(server time.Time) (same bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.server.Equal(server) {
		return true
	}
	k.server, k.now, k.before, k.rows, k.newest = server, nil, nil, 0, 0
	return false
}

// keep caches jobs as a committed transaction has left them.
func (k *rowCache) keep(server time.Time, jobs map[perdure.JobID]*cachedJob) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.server.Equal(server) || !speed.KnownRows.On() {
		return
	}
	for id, j := range jobs {
		j.written = false
		if j.job.Phase == perdure.Settled || j.rows() > maxCachedRows/4 || j.job.Current == perdure.Undone && k.rows+j.rows() > maxCachedWaiting {
			continue
		}
		if k.now == nil || k.rows+j.rows() > maxCachedRows {
			k.before, k.now, k.rows = k.now, make(map[perdure.JobID]*cachedJob, len(k.now)), 0
		}
		k.newest = max(k.newest, j.xid)
		k.now[id] = j
		k.rows += j.rows()
	}
}

// rowsTx is one transaction's part of the row cache.
type rowsTx struct {
	store      *rowCache
	server     time.Time
	xid        uint64
	jobs       map[perdure.JobID]*cachedJob // locked or written
	hasWritten bool                         // at least one of them is written
}

func (m *rowsTx) put(id perdure.JobID, j *cachedJob) {
	if m.jobs == nil {
		m.jobs = map[perdure.JobID]*cachedJob{}
	}
	m.jobs[id] = j
}

// cached returns a cached row; nil if it is not cached, or if a row of its job was written since.
func (m *rowsTx) cached(ref kernel.StepRef) *kernel.Step {
	if j := m.jobs[ref.Job]; j != nil && !j.written && ref.Index < len(j.steps) {
		return j.steps[ref.Index]
	}
	return nil
}

// created and changed update the cached rows with what this transaction writes. Rows of a job that was not cached, and
// that are not written, stay uncached.
func (m *rowsTx) created(n *kernel.NewJob, implicit []implicitStep) {
	j := &cachedJob{job: withoutInput(n.Job), written: true}
	if len(n.Steps) > 1 {
		j.steps = make([]*kernel.Step, 0, len(n.Steps))
	}
	for _, s := range n.Steps {
		j.put(s)
		if isImplicit(implicit, n.Job, s) {
			j.implicitSet.add(s.Index)
		}
	}
	m.put(n.Job.ID, j)
	m.hasWritten = true
}

func (m *rowsTx) changed(jobs []kernel.JobChange, steps []kernel.StepChange) {
	for _, ch := range jobs {
		j := m.jobs[ch.Now.ID]
		if j == nil {
			j = &cachedJob{}
			m.put(ch.Now.ID, j)
		}
		j.job, j.written = withoutInput(ch.Now), true
		m.hasWritten = true
	}
	for _, ch := range steps {
		if j := m.jobs[ch.Now.Job]; j != nil {
			j.written = true
			j.put(ch.Now)
			j.implicitSet.remove(ch.Now.Index)
			m.hasWritten = true
		}
	}
}

// isImplicit reports whether a step is known to be implicit, and hasRow whether it is known to have a row. Both are
// false if that is not cached.
func (m *rowsTx) isImplicit(ref kernel.StepRef) bool {
	j := m.jobs[ref.Job]
	return j != nil && j.implicitSet.has(ref.Index)
}

func (m *rowsTx) hasRow(ref kernel.StepRef) bool {
	j := m.jobs[ref.Job]
	return j != nil && ref.Index < min(len(j.steps), maxImplicitIndex) && j.steps[ref.Index] != nil && !j.implicitSet.has(ref.Index)
}

// committed returns the jobs that were taken or written to the cache.
func (m *rowsTx) committed() {
	for id, j := range m.jobs {
		switch {
		case j.written:
			j.xid = m.xid
		case j.xid == 0: // it was read from a bundle and not written: there is no xmin to compare with later
			delete(m.jobs, id)
		}
	}
	m.store.keep(m.server, m.jobs)
}
