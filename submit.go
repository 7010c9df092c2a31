package perdure

import "time"

// Submit makes a job of a plan, with all of its steps and the whole intent at once: that Done is
// desired. The id is new; that the key is too, the caller has made sure of under the store's lock.
func (w *Workset) Submit(id JobID, plan *Plan) {
	d := plan.Definition
	j := &Job{ID: id, Key: d.Key, Type: d.Type, Priority: d.Priority, Labels: d.Labels, States: d.States,
		Hash: plan.Hash, Shape: plan.ID, Input: d.Input, Current: Undone, Desired: Done, CreatedAt: w.now, UpdatedAt: w.now}
	if d.CompleteWithin > 0 {
		j.CompleteBy = w.now.Add(time.Duration(d.CompleteWithin))
	}
	e := &entry{job: j, plan: plan, whole: true}
	w.add(e)
	rows := make([]row, len(plan.Steps))
	steps := make([]Step, len(plan.Steps))
	for i := range plan.Steps {
		ps := &plan.Steps[i]
		steps[i] = Step{StepRef: StepRef{id, i}, Name: ps.Name, Type: d.Type, Priority: d.Priority,
			Desired: Done, Phase: Waiting, Turn: 1, Blockers: len(ps.After), UpdatedAt: w.now}
		rows[i] = row{Step: &steps[i]}
		e.steps.put(i, &rows[i])
		e.count(&steps[i], +1)
		if steps[i].Blockers == 0 {
			w.later(e, taskLook, i)
		}
	}
	w.touch(e)
}
