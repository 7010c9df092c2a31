package postgres

import (
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
)

// cache is what this process keeps of the database in memory, so that transactions need not read it again. Nothing depends on it, and
// what is lost is read again, with one exception: bundles also keep the transactions whose commit is indeterminate.
//
//	rows     rows of jobs that are under way
//	shapes   which shapes are stored, and which of their steps have no rows yet
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

// cacheTx is the part of one transaction.
type cacheTx struct {
	of      *cache
	rows    rowsTx
	shapes  map[kernel.ShapeID][]implicitStep // written by this transaction, or found by it
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

// indeterminate ends a transaction whose commit has an unknown outcome. Its rows are not kept. If it has made bundles, its id is kept, so
// that later transactions can query whether it is committed.
func (t *cacheTx) indeterminate() {
	t.sets.indeterminate()
	t.lanes.end(false)
	t.bundles.rememberIndeterminate(&t.of.bundles)
}

// rowCache is the rows of jobs as this process has written them last, so that they need not be read again.
//
// A job's rows are written under the lock of its first row, and none of them without the first (save.go). So
// the transaction that wrote the first row last, which PostgreSQL tells as its xmin, is the version of them
// all: what is remembered of a job is true if the first row, once it is locked, still has the xmin that was
// remembered with it. A transaction takes a job's rows from here, and gives them back when it is committed;
// one that is not leaves this poorer, never wrong.
type rowCache struct {
	mu          sync.Mutex
	now, before map[perdure.JobID]*cachedJob // before is dropped when now is full
	rows        int                          // in now
	server      time.Time                    // when the server that numbered the transactions had started
	newest      uint64                       // the latest transaction of ours
}

// knownJob is what is remembered of one job. Nobody writes to the rows.
type cachedJob struct {
	job   *kernel.Job
	steps []*kernel.Step // by place; nil where it is not known
	xid   uint64         // the transaction that has written it
	one   [1]*kernel.Step
	implicitSet

	written bool // by the transaction that has taken it: it is as it will be
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

// slim is a job as it is read: a large input is kept apart from it.
func withoutInput(j *kernel.Job) *kernel.Job {
	if !j.Apart && !apart(j) {
		return j
	}
	small := *j
	small.Apart, small.Input = true, nil
	return &small
}

const (
	// maxKnown bounds the rows in each half of the memory, maxWaiting those up to which jobs are kept that are
	// not begun: a backlog is not kept at hand.
	maxCachedRows    = 32_768
	maxCachedWaiting = maxCachedRows / 4
	// maxAge bounds how many transactions ago rows were written: xmin has 32 bits, and comes round.
	maxAge = 1 << 31
)

// take gives what is known of these jobs to a transaction.
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

// from says which server answers. Another one, or the same one after its start, may have lost transactions
// and number others as those: what was known is forgotten.
func (k *rowCache) useServer(server time.Time) (same bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.server.Equal(server) {
		return true
	}
	k.server, k.now, k.before, k.rows, k.newest = server, nil, nil, 0, 0
	return false
}

// keep remembers jobs as they are now that a transaction is committed.
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

// recall is a transaction's part.
type rowsTx struct {
	store      *rowCache
	server     time.Time
	xid        uint64
	jobs       map[perdure.JobID]*cachedJob // locked or written
	hasWritten bool                         // some of them are written
}

func (m *rowsTx) put(id perdure.JobID, j *cachedJob) {
	if m.jobs == nil {
		m.jobs = map[perdure.JobID]*cachedJob{}
	}
	m.jobs[id] = j
}

// step is a row that is known; nil where it is not, or where a row of its job was written since.
func (m *rowsTx) cached(ref kernel.StepRef) *kernel.Step {
	if j := m.jobs[ref.Job]; j != nil && !j.written && ref.Index < len(j.steps) {
		return j.steps[ref.Index]
	}
	return nil
}

// created and changed note what is written. Of a job that was not known all that is not written stays unknown.
func (m *rowsTx) created(n *kernel.NewJob, later []implicitStep) {
	j := &cachedJob{job: withoutInput(n.Job), written: true}
	if len(n.Steps) > 1 {
		j.steps = make([]*kernel.Step, 0, len(n.Steps))
	}
	for _, s := range n.Steps {
		j.put(s)
		if isImplicit(later, n.Job, s) {
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

// unmade and made say whether it is known that a step has no row yet, or that it has one.
func (m *rowsTx) isImplicit(ref kernel.StepRef) bool {
	j := m.jobs[ref.Job]
	return j != nil && j.implicitSet.has(ref.Index)
}

func (m *rowsTx) hasRow(ref kernel.StepRef) bool {
	j := m.jobs[ref.Job]
	return j != nil && ref.Index < min(len(j.steps), maxImplicitIndex) && j.steps[ref.Index] != nil && !j.implicitSet.has(ref.Index)
}

// committed gives back what was taken and what was written.
func (m *rowsTx) committed() {
	for id, j := range m.jobs {
		switch {
		case j.written:
			j.xid = m.xid
		case j.xid == 0: // it was read from a bundle and not written: there is no version to compare later
			delete(m.jobs, id)
		}
	}
	m.store.keep(m.server, m.jobs)
}
