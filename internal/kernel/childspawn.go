package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// NewKey returns the job of this workset that was submitted with a key; zero: there is none.
func (w *Workset) NewKey(key string) perdure.JobID { return w.newKeys[key] }

// UseChildren sets what makes the plans of children.
func (w *Workset) UseChildren(c Compiler) { w.compiler = c }

// spawn submits the next children. ok is false if the step has failed, or waits for something else.
func (w *Workset) spawn(e *entry, r *row, ps *PlanStep, c *Children, f *OwnerFound, room int) (more, ok bool) {
	n := min(room, c.Total-c.Spawned, SpawnSet)
	if n <= 0 {
		return false, true
	}
	whole, work := w.budget.untouched(), 0
	if w.budget != nil {
		work = max(w.budget.Work, w.budget.Full)
	}
	x, _, err := w.itemsOf(e, r, ps)
	if w.deferTend(e, r, err) {
		return false, false
	}
	if whole && w.budget != nil {
		// The items are not charged to the children: else it might never be enough for both. And the children get the full
		// budget also while the renderers are busy: whether a child can be submitted must not depend on other jobs.
		w.budget.Work = work
	}
	if err == nil && x.artifact != nil {
		l, _ := w.linesOf(e, r, f, LinesWant{*x.artifact, c.Spawned, c.Offset})
		if l == nil {
			w.putChildren(r, c)
			return false, false
		}
		if l.Code != "" || len(l.Items) == 0 {
			w.failOwner(e, r, c, failure{event: "failed", code: cmp.Or(l.Code, codeItemsNotAList), message: cmp.Or(l.Reason, "the artifact has fewer lines than before"), final: true})
			return false, false
		}
		x.n, x.list, x.base = c.Total, l.Items, c.Spawned
		n = min(n, len(l.Items))
	}
	definition := f.Definition
	if _, named := definitionName(ps.Job.Definition); !named {
		definition = ps.Job.Definition
	}
	switch {
	case err == nil && x.total() != c.Total:
		err = fmt.Errorf("there are %d items now, and were %d", x.total(), c.Total)
	case err == nil && f.Missing != nil:
		err = f.Missing
	case err == nil && definition == nil: // the number of children to submit was not known when it was searched
		w.putChildren(r, c)
		delete(w.owners, r.StepRef)
		w.tend(e, r)
		return false, false
	}
	if err != nil {
		w.failOwner(e, r, c, failure{event: "failed", code: codeChildInvalid, message: err.Error(), final: true})
		return false, false
	}
	invalid := func(number int, message string) (more, ok bool) {
		w.failOwner(e, r, c, failure{event: "failed", code: codeChildInvalid, message: fmt.Sprintf("child %d: %s", number, message), final: true})
		return false, false
	}
	var refusal error // of the child after the plans
	if f.plans == nil {
		values, err := w.childValues(e, r, ps, c, &x, n)
		if w.deferTend(e, r, err) {
			return false, false
		}
		if err == nil && len(values) == 0 && !whole {
			return true, true // the budget is used up: another transaction goes on
		}
		if err == nil && len(values) == 0 {
			err = errors.New("the input of one child takes too much work")
		}
		if err != nil {
			return invalid(c.Spawned+len(values), plain.Clip(err.Error(), perdure.MaxReasonBytes))
		}
		plans, errs := w.compiler.Children(definition, values)
		for i := range plans {
			if errs[i] != nil {
				plans, refusal = plans[:i], errs[i]
				break
			}
		}
		if f.plans = plans; w.wantKeys(e, r, f) {
			w.putChildren(r, c)
			return false, false
		}
	}
	parent, _ := e.job.Parent.Parts()
	own := ParentParts{StepRef: r.StepRef, Step: r.Name, Depth: parent.Depth + 1, ParkedFails: ps.ParkedIs == ParkedIsFailed}
	plans := f.plans
	f.plans = nil
	for _, plan := range plans {
		if key := plan.Definition.Key; key != "" {
			if taken := cmp.Or(w.newKeys[key], f.keys[key]); !taken.IsZero() {
				return invalid(c.Spawned, fmt.Sprintf("the key %s belongs to %s: keys of children must be new", plain.Clip(key, perdure.MaxKeyLength), taken))
			}
		}
		if plan.UniqueKey != "" {
			return invalid(c.Spawned, "its definition has unique, and a child is always a job of its own: use a definition without it")
		}
		if limit := sharedLimit(e.job, plan); limit != "" && !ps.Job.Detached {
			return invalid(c.Spawned, fmt.Sprintf("it names limit %s, of which its parent holds permits until its children have ended: use another limit", limit))
		}
		p := *plan
		p.Parent, p.MadeFrom, p.Submitter = own.Parent(), c.MadeFrom, e.job.Submitter
		if !ps.Job.Detached {
			p.CompleteBy = e.job.CompleteBy
		}
		w.submit(ChildID(c.First, c.Spawned), &p)
		if x.artifact != nil {
			c.Offset = f.lines.Ends[c.Spawned-x.base]
		}
		c.Spawned++
		c.Active++
		w.moved(r)
	}
	if refusal != nil {
		return invalid(c.Spawned, refusalText(refusal))
	}
	return c.Spawned < c.Total && n > 0 && room > n, true
}

// sharedLimit returns a limit that a job names for itself, and that a child names for itself or for one of its steps; empty: none.
// The child would wait for permits that its parent holds while it waits for the child.
func sharedLimit(parent *Job, child *Plan) string {
	for _, n := range parent.Needs.List() {
		named := func(s StepDefinition) bool {
			return slices.ContainsFunc(s.Limits, func(l LimitUse) bool { return l.Name == n.Name })
		}
		if ofLimit(child.Needs.List(), n.Name) > 0 || slices.ContainsFunc(child.Definition.Steps, named) {
			return n.Name
		}
	}
	return ""
}

// wantKeys reports whether the next children of a step have keys. Then it is looked up whether these are new, and the step goes
// on after that.
func (w *Workset) wantKeys(e *entry, r *row, f *OwnerFound) bool {
	var keys []string
	for _, plan := range f.plans {
		if plan.Definition.Key != "" {
			keys = append(keys, plan.Definition.Key)
		}
	}
	if len(keys) == 0 {
		return false
	}
	w.ask(e, r, OwnerWant{StepRef: r.StepRef, Keys: keys})
	return true
}

func refusalText(err error) string {
	var e *perdure.Error
	if errors.As(err, &e) && len(e.Fields) > 0 {
		return plain.Clip(e.Fields[0].Pointer+": "+e.Fields[0].Message, perdure.MaxReasonBytes)
	}
	return plain.Clip(err.Error(), perdure.MaxReasonBytes)
}
