package scheduler

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// findOwners finds what steps with children want (kernel.OwnerWant). It locks the children that are turned without waiting for
// other transactions, because it holds the lock of their parent; those that it cannot lock are left for a later transaction. The
// news is read after the children are locked, so that all of theirs is read.
func (b *batch) findOwners(wants []kernel.OwnerWant) error {
	for i := range wants {
		want := &wants[i]
		if want.Collect != nil {
			b.w.AddCollected(want, b.s.collections.get(*want.Collect))
			continue
		}
		if want.Lines != nil {
			b.w.AddLines(want, b.s.lines.get(*want.Lines))
			continue
		}
		if len(want.Keys) > 0 {
			keys, err := b.keysOfChildren(want.Keys)
			if err != nil {
				return err
			}
			b.w.AddKeys(want, keys)
			continue
		}
		found, err := b.findOwner(want)
		if err != nil {
			return err
		}
		b.w.AddOwner(want, found)
	}
	return nil
}

func (b *batch) findOwner(want *kernel.OwnerWant) (*kernel.OwnerFound, error) {
	f := &kernel.OwnerFound{}
	var err error
	if !b.reads { // a preview shows what happens to the one job
		err = b.lockChildren(want.Turn, f)
	}
	if err != nil {
		return nil, err
	}
	if f.News, err = b.tx.ChildNews(want.StepRef, kernel.MaxChildNews); err != nil {
		return nil, err
	}
	f.All = len(f.News) < kernel.MaxChildNews
	if want.Definition != "" {
		if err := b.findDefinition(want.Definition, f); err != nil {
			return nil, err
		}
	}
	return f, b.findOutputs(want.Outputs, f)
}

// keysOfChildren looks up which jobs have keys. It needs no lock: a key that another transaction takes meanwhile makes this one
// fail, and the next try finds it.
func (b *batch) keysOfChildren(keys []string) (map[string]perdure.JobID, error) {
	found, err := b.tx.JobsByKey(keys)
	if err != nil {
		return nil, err
	}
	taken := make(map[string]perdure.JobID, len(keys))
	for _, key := range keys {
		if taken[key] = found[key].ID; taken[key].IsZero() {
			taken[key] = b.keys[key].ID
		}
	}
	return taken, nil
}

// lockChildren locks jobs, as far as other transactions have not locked them, and loads all of their steps.
func (b *batch) lockChildren(ids []perdure.JobID, f *kernel.OwnerFound) error {
	if len(ids) == 0 {
		return nil
	}
	refs := make([]kernel.StepRef, len(ids))
	for i, id := range ids {
		refs[i].Job = id
	}
	if _, err := b.TryLock(refs); err != nil {
		return err
	}
	gone, err := b.gone(without(ids, perdure.JobID.Compare, b.w.Has))
	if err != nil {
		return err
	}
	f.Gone = gone
	var steps []kernel.StepRef
	var whole []perdure.JobID
	for _, id := range ids {
		if !b.w.Has(id) || b.w.HasWhole(id) {
			continue
		}
		whole = append(whole, id)
		for i := range b.w.Plan(id).Steps {
			steps = append(steps, kernel.StepRef{Job: id, Index: i})
		}
	}
	if err := b.LoadSteps(steps); err != nil {
		return err
	}
	for _, id := range whole {
		if err := b.loadRest(id); err != nil {
			return err
		}
	}
	return nil
}

// gone returns which of these jobs do not exist. They are looked up twice: a job may be moved to other rows between the statements
// of one look-up, but only once.
func (b *batch) gone(ids []perdure.JobID) (map[perdure.JobID]bool, error) {
	for range 2 {
		if len(ids) == 0 {
			return nil, nil
		}
		refs := make([]kernel.StepRef, len(ids))
		for i, id := range ids {
			refs[i].Job = id
		}
		found, err := b.tx.Steps(refs)
		if err != nil {
			return nil, err
		}
		there := map[perdure.JobID]bool{}
		for _, s := range found {
			there[s.Job] = true
		}
		ids = slices.DeleteFunc(ids, func(id perdure.JobID) bool { return there[id] })
	}
	gone := map[perdure.JobID]bool{}
	for _, id := range ids {
		gone[id] = true
	}
	return gone, nil
}

// dropNews deletes the news for steps whose jobs do not exist any more: no owner will count it, and it would stay due.
func (b *batch) dropNews(refs []kernel.StepRef) error {
	missing := slices.DeleteFunc(slices.Clone(refs), func(ref kernel.StepRef) bool { return b.w.Has(ref.Job) })
	gone, err := b.gone(jobsOf(missing))
	if err != nil {
		return err
	}
	for _, ref := range missing {
		if !gone[ref.Job] {
			continue // another transaction has locked it
		}
		news, err := b.tx.ChildNews(ref, kernel.MaxChildNews)
		if err != nil {
			return err
		}
		b.w.DropNews(news)
	}
	return nil
}

// loadRest marks a job as whole if all of its steps were loaded.
func (b *batch) loadRest(id perdure.JobID) error {
	for i := range b.w.Plan(id).Steps {
		if !b.w.HasStep(kernel.StepRef{Job: id, Index: i}) {
			return b.loadWhole(id)
		}
	}
	b.w.AddWhole(id, nil)
	return nil
}

// findDefinition finds a stored definition. That it does not exist is an answer, too.
func (b *batch) findDefinition(name string, f *kernel.OwnerFound) error {
	ref, err := kernel.ParseDefinitionRef(name)
	if err != nil {
		f.Missing = err
		return nil
	}
	if ref.Version > 0 {
		if text, known := b.s.plans.definitions.Get(name); known {
			f.Definition, f.MadeFrom = text, name
			return nil
		}
	}
	d, err := b.tx.FindDefinition(ref.Name, ref.Version)
	if err != nil {
		return err
	}
	if d == nil {
		f.Missing = kernel.ErrNoDefinition(ref)
		return nil
	}
	f.Definition, f.MadeFrom = d.Text, kernel.DefinitionRef{Name: d.Name, Version: d.Version}.String()
	b.s.plans.definitions.Put(f.MadeFrom, d.Text)
	return nil
}

// outputsPage is how many outputs of children one query reads.
const outputsPage = 1000

// findOutputs reads the outputs of jobs, up to the bound of one value.
func (b *batch) findOutputs(ids []perdure.JobID, f *kernel.OwnerFound) error {
	if len(ids) == 0 {
		return nil
	}
	f.Outputs = map[perdure.JobID][]byte{}
	read := 0
	for page := range slices.Chunk(ids, outputsPage) {
		refs := make([]kernel.StepRef, len(page))
		for i, id := range page {
			refs[i] = kernel.StepRef{Job: id, Index: kernel.OutputIndex}
		}
		for len(refs) > 0 {
			found, err := b.tx.Payloads(refs, perdure.MaxPayloadBytes)
			if err != nil {
				return fmt.Errorf("outputs of children: %w", err)
			}
			size := 0
			for i := range found {
				size += len(found[i].Input) + len(found[i].Output) // the input of a child may be there, too
				read += len(found[i].Output)
				f.Outputs[found[i].Job] = found[i].Output
			}
			if read > perdure.MaxPayloadBytes {
				f.TooLarge = true
				return nil
			}
			if size < perdure.MaxPayloadBytes {
				break
			}
			refs = refs[slices.Index(refs, found[len(found)-1].StepRef)+1:]
		}
	}
	return nil
}
