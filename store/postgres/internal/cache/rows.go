package cache

import (
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
)

// Rows keeps the rows of jobs as this process has last written them.
//
// The store writes the rows of a job under the lock of its first row, and never without writing the first row. So the
// transaction that last wrote the first row, its xmin, is the version of all of them: the cached rows of a job are valid
// if the first row, once it is locked, still has the xmin that is cached with it.
//
// A transaction takes the rows of a job out of the cache, and returns them when it is committed. If it is not, these
// rows are no longer cached; they are never wrong.
type Rows struct {
	mu          sync.Mutex
	now, before map[perdure.JobID]*Job // when now is full, it becomes before
	rows        int                    // number of rows in now
	server      time.Time              // start time of the server that numbered the transactions
	newest      uint64                 // the latest transaction of this process
}

// Job is the cached rows of one job. The rows are never modified: a change replaces them.
type Job struct {
	Job   *kernel.Job
	steps []*kernel.Step // by index; nil if not cached
	xid   uint64         // the transaction that wrote these rows
	one   [1]*kernel.Step
	implicitSet

	written bool // by the transaction that has taken the job
}

// NewJob returns the rows of a job that was read from a bundle: its first step, and the steps that are implicit.
func NewJob(job *kernel.Job, first *kernel.Step, implicit []ImplicitStep) *Job {
	j := &Job{Job: job}
	j.put(first)
	for _, l := range implicit {
		j.implicitSet.add(l.Index)
	}
	return j
}

// WrittenBy reports whether the transaction with this xmin has written the rows.
func (j *Job) WrittenBy(xmin uint32) bool { return xmin == uint32(j.xid) }

func (j *Job) rows() int { return max(1, len(j.steps)) }

func (j *Job) put(s *kernel.Step) {
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
	if !j.InputStoredApart && !j.LargeInput() {
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

// Take removes jobs from the cache for a transaction.
func (k *Rows) Take(ids []perdure.JobID) (taken []*Job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.now)+len(k.before) == 0 {
		return nil
	}
	taken = make([]*Job, 0, len(ids))
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

// UseServer empties the cache if another server answers than before, or the same one after a restart: it may have lost
// transactions, and may give their numbers to others.
func (k *Rows) UseServer(server time.Time) (same bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.server.Equal(server) {
		return true
	}
	k.server, k.now, k.before, k.rows, k.newest = server, nil, nil, 0, 0
	return false
}

// Has reports whether rows of a job are cached.
func (k *Rows) Has(id perdure.JobID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now[id] != nil || k.before[id] != nil
}

// keep caches jobs as a committed transaction has left them.
func (k *Rows) keep(server time.Time, jobs map[perdure.JobID]*Job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.server.Equal(server) || !speed.KnownRows.On() {
		return
	}
	for id, j := range jobs {
		j.written = false
		if j.Job.Phase == perdure.Settled || j.rows() > maxCachedRows/4 || j.Job.Current == perdure.Undone && k.rows+j.rows() > maxCachedWaiting {
			continue
		}
		if k.now == nil || k.rows+j.rows() > maxCachedRows {
			k.before, k.now, k.rows = k.now, make(map[perdure.JobID]*Job, len(k.now)), 0
		}
		k.newest = max(k.newest, j.xid)
		k.now[id] = j
		k.rows += j.rows()
	}
}

// RowsTx is one transaction's part of the row cache.
type RowsTx struct {
	store      *Rows
	Server     time.Time              // start time of the server
	XID        uint64                 // of this transaction, once it is known
	jobs       map[perdure.JobID]*Job // locked or written
	hasWritten bool                   // at least one of them is written
}

// Put adds the rows of a job that the transaction has locked.
func (m *RowsTx) Put(id perdure.JobID, j *Job) {
	if m.jobs == nil {
		m.jobs = map[perdure.JobID]*Job{}
	}
	m.jobs[id] = j
}

// Reserve makes room for so many jobs.
func (m *RowsTx) Reserve(n int) {
	if m.jobs == nil {
		m.jobs = make(map[perdure.JobID]*Job, n)
	}
}

// Job returns the rows of a job that the transaction has locked or written; nil if they are not cached.
func (m *RowsTx) Job(id perdure.JobID) *Job { return m.jobs[id] }

// NeedsXID reports whether rows are written and the transaction's id is not known yet.
func (m *RowsTx) NeedsXID() bool { return m.hasWritten && m.XID == 0 }

// Step returns a cached row; nil if it is not cached, or if a row of its job was written since.
func (m *RowsTx) Step(ref kernel.StepRef) *kernel.Step {
	if j := m.jobs[ref.Job]; j != nil && !j.written && ref.Index < len(j.steps) {
		return j.steps[ref.Index]
	}
	return nil
}

// Created and Changed update the cached rows with what this transaction writes. Rows of a job that was not cached, and
// that are not written, stay uncached.
func (m *RowsTx) Created(n *kernel.NewJob, implicit []ImplicitStep) {
	j := &Job{Job: withoutInput(n.Job), written: true}
	if len(n.Steps) > 1 {
		j.steps = make([]*kernel.Step, 0, len(n.Steps))
	}
	for _, s := range n.Steps {
		j.put(s)
		if IsImplicit(implicit, n.Job, s) {
			j.implicitSet.add(s.Index)
		}
	}
	m.Put(n.Job.ID, j)
	m.hasWritten = true
}

func (m *RowsTx) Changed(jobs []kernel.JobChange, steps []kernel.StepChange) {
	for _, ch := range jobs {
		j := m.jobs[ch.Now.ID]
		if j == nil {
			j = &Job{}
			m.Put(ch.Now.ID, j)
		}
		j.Job, j.written = withoutInput(ch.Now), true
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

// IsImplicit reports whether a step is known to be implicit, and HasRow whether it is known to have a row. Both are
// false if that is not cached.
func (m *RowsTx) IsImplicit(ref kernel.StepRef) bool {
	j := m.jobs[ref.Job]
	return j != nil && j.implicitSet.has(ref.Index)
}

func (m *RowsTx) HasRow(ref kernel.StepRef) bool {
	j := m.jobs[ref.Job]
	return j != nil && ref.Index < min(len(j.steps), MaxImplicitIndex) && j.steps[ref.Index] != nil && !j.implicitSet.has(ref.Index)
}

// committed returns the jobs that were taken or written to the cache.
func (m *RowsTx) committed() {
	for id, j := range m.jobs {
		switch {
		case j.written:
			j.xid = m.XID
		case j.xid == 0: // it was read from a bundle and not written: there is no xmin to compare with later
			delete(m.jobs, id)
		}
	}
	m.store.keep(m.Server, m.jobs)
}
