package kernel

import (
	"cmp"
	"time"

	"github.com/perdure/perdure"
)

// A job that is unique holds a row with its type and key, from its submission for a time, or until it is settled. A
// submission that finds such a row is answered with that job. The row is written in the transaction that creates the job,
// and its time goes by the store's clock. Rows whose time has passed are replaced, and the supervisor deletes them.

// UniqueKey is what at most one job holds at a time: a type of jobs and a key.
type UniqueKey struct{ Type, Key string }

// Compare orders by type, then by key.
func (k UniqueKey) Compare(o UniqueKey) int {
	return cmp.Or(cmp.Compare(k.Type, o.Type), cmp.Compare(k.Key, o.Key))
}

// UniqueJob is the job that holds a key.
type UniqueJob struct {
	UniqueKey
	Job   perdure.JobID
	Until time.Time // zero: until the job is settled, which deletes the row
}

// Holds reports whether a submission at a time is answered with the job.
func (u *UniqueJob) Holds(now time.Time) bool { return u.Until.IsZero() || now.Before(u.Until) }

// UniqueChange is the row to write. Replaces is the job of the row that is there; zero: there is none. If that is not so, the
// store returns ErrStale.
type UniqueChange struct {
	UniqueJob
	Replaces perdure.JobID
}

// Unique returns what a job of the plan holds; ok is false if it is not unique.
func (p *Plan) Unique() (k UniqueKey, ok bool) {
	return UniqueKey{p.Definition.Type, p.UniqueKey}, p.UniqueKey != ""
}

// ReplaceUnique records that a job which was submitted in this workset takes the row of another job, whose time has passed.
func (w *Workset) ReplaceUnique(id, other perdure.JobID) { w.entry(id).replaces = other }

// ReplacedUnique returns the job whose row is still there if a job of this workset has settled. It is zero if that job was
// stored before: then its row is deleted.
func (w *Workset) ReplacedUnique(id perdure.JobID) (other perdure.JobID) {
	if e := w.entry(id); e.loaded == nil {
		return e.replaces
	}
	return other
}

// holdUnique adds the row of a new job to the changes. A job that settles in the transaction that creates it holds nothing
// while it is unsettled.
func (w *Workset) holdUnique(c *Changes, e *entry) {
	k, ok := e.plan.Unique()
	if !ok {
		return
	}
	u := UniqueChange{UniqueJob{UniqueKey: k, Job: e.job.ID, Until: w.UniqueUntil(e.job.ID)}, e.replaces}
	if u.Until.IsZero() && e.job.Phase == perdure.Settled {
		return
	}
	c.Unique = append(c.Unique, u)
}

// UniqueUntil returns until when a new job of this workset holds its key; zero: until it is settled.
func (w *Workset) UniqueUntil(id perdure.JobID) time.Time {
	d := w.entry(id).plan.Definition.Unique
	if d.While != "" {
		return time.Time{}
	}
	return w.now.Add(time.Duration(d.Within)).Truncate(time.Microsecond)
}

// releaseUnique releases the key of a job that is settled now.
func (w *Workset) releaseUnique(e *entry) {
	if u := e.plan.Definition.Unique; u != nil && u.While != "" && e.loaded != nil {
		w.changes.ReleaseUnique = append(w.changes.ReleaseUnique, e.job.ID)
	}
}
