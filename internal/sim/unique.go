package sim

import (
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// checkUnique checks that no other job holds the key of a job that was just stored (F302).
func (w *world) checkUnique(j *kernel.Job, plan *kernel.Plan) {
	if plan.UniqueKey == "" {
		return
	}
	for id, other := range w.book.jobs {
		o := w.job(id)
		if id == j.ID || o == nil || other.plan.UniqueKey != plan.UniqueKey || o.Type != j.Type {
			continue
		}
		if u := other.plan.Definition.Unique; u.While != "" {
			if o.Phase != perdure.Settled && !w.book.settled[id] {
				w.wrong("F302", "%s was made while %s, which has the same key, is unsettled", short(j.ID), short(id))
			}
		} else if until := o.CreatedAt.Add(time.Duration(u.Within)); j.CreatedAt.Before(until) {
			w.wrong("F302", "%s was made %s before the time of %s, which has the same key, has passed", short(j.ID), until.Sub(j.CreatedAt), short(id))
		}
	}
}

// answeredByUnique checks the answer to a submission with another job: both have the same type and key.
func (w *world) answeredByUnique(id perdure.JobID, plan *kernel.Plan) {
	other := w.book.jobs[id].plan
	if plan.UniqueKey == "" || other.UniqueKey != plan.UniqueKey || other.Definition.Type != plan.Definition.Type {
		w.wrong("F302", "a submission of type %s with the unique key %q is answered with %s, of type %s and key %q", plan.Definition.Type, plan.UniqueKey, short(id), other.Definition.Type, other.UniqueKey)
	}
	w.hit("F302")
}
