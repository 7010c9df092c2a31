package postgres

import (
	"slices"
	"time"

	"perdure"
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

// trusty says of a job that as a rule nobody writes to it but who ends its only run.
func trusty(j *perdure.Job) bool { return j.Running == 1 && j.Active == 0 }

// trust marks the jobs among what was taken that are not to be locked, and counts them.
func (m *recall) trust(taken map[perdure.JobID]*knownJob) (n int) {
	if len(taken) == 0 || m.store.wary() {
		return 0
	}
	for _, j := range taken {
		if j.trusted = trusty(j.job); j.trusted {
			n++
		}
	}
	m.trusts = n > 0
	return n
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
	var trusted []perdure.JobID
	for _, id := range ids {
		if j := tx.memory.taken[id]; j != nil && j.trusted {
			trusted = append(trusted, id)
		}
	}
	if len(trusted) == 0 {
		return []*statement{st}
	}
	slices.SortFunc(trusted, perdure.JobID.Compare)
	trusted = slices.Compact(trusted)
	return []*statement{hold(trusted, "", func(id perdure.JobID, v version) error {
		j := tx.memory.taken[id]
		if uint32(j.xid) != v.xmin {
			return perdure.ErrStale
		}
		j.trusted = false
		tx.firsts[id] = firstRow{v.at, tx.memory.step(perdure.StepRef{Job: id})}
		return nil
	}).exact(len(trusted)), st}
}

const asKnownSQL = `select 1 / (count(*) = $3)::int
	from unnest($1::uuid[], $2::xid[]) as u (job, was_xmin)
	cross join lateral (select xmin from perdure.step where job = u.job and idx = 0 offset 0) s
	where s.xmin = u.was_xmin`

// asKnown goes before the commit: it fails where a job that was trusted and not written is not as it was known.
// Nil if there is none.
func (tx *tx) asKnown() *statement {
	if !tx.memory.trusts {
		return nil
	}
	var ids, xmins cells
	n := 0
	for id, j := range tx.memory.taken {
		if j.trusted {
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

func jobsOf(refs []perdure.StepRef) []perdure.JobID {
	ids := make([]perdure.JobID, len(refs))
	for i, ref := range refs {
		ids[i] = ref.Job
	}
	return ids
}
