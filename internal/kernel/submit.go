package kernel

import (
	"time"

	"github.com/perdure/perdure"
)

// Submit adds a new job with this id and all steps of the plan. Its desired state is done. The caller has made sure,
// under a lock of the store, that the id and the key are new.
func (w *Workset) Submit(id perdure.JobID, plan *Plan) {
	w.finishEvent(w.submit(id, plan))
}

// submit adds a new job. The caller performs its tasks.
func (w *Workset) submit(id perdure.JobID, plan *Plan) *entry {
	d := plan.Definition
	j, e := w.alloc.jobs.next(), w.alloc.entries.next()
	*j = Job{ID: id, Key: d.Key, Type: d.Type, Priority: d.Priority, Labels: d.Labels, States: d.States,
		Hash: plan.Hash, Shape: plan.ID, Input: d.Input, Current: perdure.Undone, Desired: perdure.Done, CreatedAt: w.now, UpdatedAt: w.now, Needs: plan.Needs, Traceparent: plan.Traceparent, Submitter: plan.Submitter, MadeFrom: plan.MadeFrom, Parent: plan.Parent}
	j.StartAt = d.StartAt
	if d.StartIn > 0 {
		j.StartAt = w.now.Add(time.Duration(d.StartIn)).Truncate(time.Microsecond)
	}
	j.CompleteBy = w.deadline(j, d.CompleteWithin)
	if by := plan.CompleteBy; !by.IsZero() && (j.CompleteBy.IsZero() || by.Before(j.CompleteBy)) {
		j.CompleteBy = by
	}
	j.StartBy = w.deadline(j, d.StartWithin)
	e.job, e.plan, e.whole = j, plan, true
	if d.Key != "" {
		if w.newKeys == nil {
			w.newKeys = map[string]perdure.JobID{}
		}
		w.newKeys[d.Key] = id
	}
	w.add(e)
	for i := range plan.Steps {
		ps, s, r := &plan.Steps[i], w.alloc.steps.next(), w.alloc.rows.next()
		*s = InitialStep(j, i, ps.Name, len(ps.After))
		r.Step = s
		e.steps.put(i, r)
		e.count(s, +1)
		if s.Blockers == 0 {
			w.begin(e, r)
		}
	}
	w.queueUpdate(e)
	return e
}
