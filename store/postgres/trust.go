package postgres

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Trust: a job that this process has written last, and of which nobody but the holder of one run has anything to
// say, is not locked to be told that it is still so. The transaction goes by what is known, and the first write to
// the job takes the lock and compares its version; what else is read of it, and the commit where nothing was
// written, compares it before. Where it is not as it was known, the transaction is tried again, and locks.
//
// It is the same as with a lock: what was decided was decided by what the rows were until they were written, and by
// a clock that was read after they were written last.

// trustPause is for how long nothing is trusted after something was not as it was known: where others write to the
// jobs of this process, each transaction would be done twice.
const trustPause = time.Second

const (
	// maxTrusted bounds the steps of a job that is trusted, as the one that runs is looked for.
	maxTrusted = 100
	// trustTime is how much of a run's time must be left: two that are told of its end at about that moment have to
	// answer alike, and so need the lock (F056).
	trustTime = time.Second
)

// trusty says of a job that as a rule nobody writes to it but who ends its only run.
func trusty(j *knownJob) bool {
	return j.job.Running == 1 && j.job.Active == 0 && len(j.steps) <= maxTrusted
}

// endsBy says whether the run of a job is over by then, as far as is known.
func (j *knownJob) endsBy(at time.Time) bool {
	for _, s := range j.steps {
		if s != nil && s.Phase == perdure.Running {
			return !s.LockedUntil.After(at)
		}
	}
	return true
}

// trust marks the jobs among what was taken that are not to be locked, and counts them.
func (m *recall) trust(ids []perdure.JobID, taken []*knownJob) (n int) {
	if len(taken) == 0 || m.store.wary() {
		return 0
	}
	for _, j := range taken {
		if trusty(j) {
			j.state = isTrusted
			n++
		}
	}
	if n > 0 {
		m.trusts = &trusting{ids, make(chan struct{})}
		m.store.mu.Lock()
		defer m.store.mu.Unlock()
		if m.store.trusting == nil {
			m.store.trusting = map[*trusting]bool{}
		}
		m.store.trusting[m.trusts] = true
	}
	return n
}

// trusting is a transaction of this process that trusts some jobs of these, in order.
type trusting struct {
	ids  []perdure.JobID
	over chan struct{}
}

// await waits for others of this process that trust one of these jobs, as it would for their locks, and says whether
// nobody does now. Without it two of them would write to the same jobs, each in its own order, and one would be ended
// as a deadlock. Who has begun does not wait: somebody may be waiting for what it holds.
func (tx *tx) await(ids []perdure.JobID) (free bool, err error) {
	others := tx.memory.store.trustedElsewhere(ids)
	for _, over := range others {
		select {
		case <-over:
		case <-tx.ctx.Done():
			return false, tx.fail(tx.ctx.Err())
		}
	}
	return len(others) == 0 || len(tx.memory.store.trustedElsewhere(ids)) == 0, nil
}

func (k *rowMemory) trustedElsewhere(ids []perdure.JobID) (over []<-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for t := range k.trusting {
		if meet(t.ids, ids) {
			over = append(over, t.over)
		}
	}
	return over
}

// meet says whether two lists, each in order, have something in common.
func meet(a, b []perdure.JobID) bool {
	for len(a) > 0 && len(b) > 0 {
		switch c := a[0].Compare(b[0]); {
		case c == 0:
			return true
		case c < 0:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return false
}

// over ends the trust of a transaction.
func (m *recall) over() {
	if m.trusts == nil {
		return
	}
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	delete(m.store.trusting, m.trusts)
	close(m.trusts.over)
}

func (k *rowMemory) wary() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().Before(k.distrusted)
}

func (k *rowMemory) distrust() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.distrusted = time.Now().Add(trustPause)
}

// surely goes before what reads more of these jobs: those that are trusted are locked, and compared.
func (tx *tx) surely(ids []perdure.JobID, st *statement) []*statement {
	var these []perdure.JobID
	for _, id := range ids {
		if tx.memory.trusted(id) != nil {
			these = append(these, id)
		}
	}
	if len(these) == 0 {
		return []*statement{st}
	}
	slices.SortFunc(these, perdure.JobID.Compare)
	these = slices.Compact(these)
	return []*statement{hold(these, "", func(id perdure.JobID, v version) error {
		j := tx.memory.jobs[id]
		if uint32(j.xid) != v.xmin {
			return kernel.ErrStale
		}
		j.state = isLocked
		tx.firsts[id] = firstRow{v.at, tx.memory.step(kernel.StepRef{Job: id})}
		return nil
	}).exact(len(these)), st}
}

const asKnownSQL = `select 1 / (count(*) = $3)::int
	from unnest($1::uuid[], $2::xid[]) as u (job, was_xmin)
	cross join lateral (select xmin from perdure.step where job = u.job and idx = 0 offset 0) s
	where s.xmin = u.was_xmin`

// asKnown goes before the commit: it fails where a job that was trusted and not written is not as it was known.
// Nil if there is none.
func (tx *tx) asKnown() *statement {
	if tx.memory.trusts == nil {
		return nil
	}
	var ids, xmins cells
	n := 0
	for id, j := range tx.memory.jobs {
		if j.state == isTrusted {
			ids.uuid(id)
			xmins.xid(j.xid)
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return q(asKnownSQL).array(tUUID, n, ids).array(tXID, n, xmins).int64(int64(n))
}

func jobsOf(refs []kernel.StepRef) []perdure.JobID {
	ids := make([]perdure.JobID, len(refs))
	for i, ref := range refs {
		ids[i] = ref.Job
	}
	return ids
}
