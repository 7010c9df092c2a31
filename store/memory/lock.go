package memory

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// The whole store is locked while a tx is open, so that these methods need only load.

func (tx *tx) LockJobs(ids []perdure.JobID) ([]*kernel.Job, error) {
	var jobs []*kernel.Job
	for _, id := range unique(ids, perdure.JobID.Compare) {
		if j, ok := tx.jobs[id]; ok {
			jobs = append(jobs, jobRow(j))
		}
	}
	return jobs, nil
}

func (tx *tx) TryLockJobs(ids []perdure.JobID) ([]*kernel.Job, error) { return tx.LockJobs(ids) }

func (tx *tx) LockLimits(names []string) ([]kernel.Limit, error) {
	var limits []kernel.Limit
	for _, name := range unique(names, cmp.Compare[string]) {
		if l, ok := tx.limits[name]; ok {
			if l.Max != kernel.Unbounded {
				l.Used, _ = tx.limitUse(kernel.LimitKey{Name: name})
			}
			l.Bucket = tx.buckets[kernel.LimitKey{Name: name}]
			limits = append(limits, l)
		}
	}
	return limits, nil
}

func (tx *tx) KeyUse(keys []kernel.LimitKey) (map[kernel.LimitKey]kernel.Taken, error) {
	found := map[kernel.LimitKey]kernel.Taken{}
	for _, k := range keys {
		if _, met := found[k]; met {
			continue
		}
		taken := kernel.Taken{Bucket: tx.buckets[k], First: tx.firstInLine(k)}
		_, holders := tx.limitUse(kernel.LimitKey{Name: k.Name})
		for _, h := range holders {
			if h.Key == k.Key {
				taken.Used += h.Amount
			}
		}
		found[k] = taken
	}
	return found, nil
}

func (d *data) firstInLine(k kernel.LimitKey) (first kernel.FirstInLine) {
	lanes := map[perdure.JobID]kernel.LaneRef{} // of the first ready step of each job in this line
	for _, s := range d.unsettledWhere(compareSteps, func(s *kernel.Step) bool { return kernel.LineOf(s) != "" }) {
		for _, e := range kernel.LineEntries(s.StepRef, kernel.LineOf(s)) {
			if e.LimitKey != k {
				continue
			}
			if _, known := lanes[s.Job]; !known && s.Phase == perdure.Ready {
				lanes[s.Job] = kernel.LaneRef{Agent: s.Agent, Lane: kernel.LaneOf(s.Type, s.Needs)}
			}
			if first.Rank == kernel.NotInLine || e.LinePlace.Compare(first.LinePlace) < 0 {
				first.LinePlace = e.LinePlace
			}
		}
	}
	first.Lane = lanes[first.Job]
	return first
}

func (tx *tx) DeleteBuckets(after kernel.LimitKey, max int, now time.Time) (last kernel.LimitKey, err error) {
	keys := slices.DeleteFunc(slices.SortedFunc(maps.Keys(tx.buckets), kernel.LimitKey.Compare), func(k kernel.LimitKey) bool { return k.Compare(after) <= 0 })
	if len(keys) >= max {
		last = keys[max-1]
	}
	for _, k := range firstN(max, keys) {
		if !tx.buckets[k].FullAt.After(now) {
			remove(tx, tx.buckets, k)
		}
	}
	return last, nil
}

func (tx *tx) OpenLanes(keys []kernel.LimitKey, max int) (agents []string, err error) {
	for _, k := range keys {
		var lanes []kernel.LaneRef
		for lane, closed := range tx.closedLanes {
			if closed.limit == k {
				lanes = append(lanes, lane)
			}
		}
		slices.SortFunc(lanes, func(a, b kernel.LaneRef) int {
			return cmp.Or(cmp.Compare(tx.closedLanes[a].order, tx.closedLanes[b].order), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Lane, b.Lane))
		})
		for _, lane := range firstN(max, lanes) {
			remove(tx, tx.closedLanes, lane)
			agents = append(agents, lane.Agent)
		}
	}
	return unique(agents, cmp.Compare[string]), nil
}

func (tx *tx) OpenFirst(lanes []kernel.ClosedLane) (agents []string, err error) {
	for _, l := range lanes {
		if closed, is := tx.closedLanes[l.LaneRef]; is && closed.limit == l.For {
			remove(tx, tx.closedLanes, l.LaneRef)
			agents = append(agents, l.Agent)
		}
	}
	return unique(agents, cmp.Compare[string]), nil
}

func (tx *tx) Now() (time.Time, error) { return tx.clock.now(), nil }

func (tx *tx) Steps(refs []kernel.StepRef) ([]*kernel.Step, error) {
	var steps []*kernel.Step
	for _, ref := range unique(refs, kernel.StepRef.Compare) {
		if s, ok := tx.steps[ref]; ok {
			steps = append(steps, copyStep(s))
		}
	}
	return steps, nil
}

func (tx *tx) StepsOf(job perdure.JobID) ([]*kernel.Step, error) { return tx.stepsOf(job), nil }

func (tx *tx) Payloads(refs []kernel.StepRef, maxBytes int) ([]kernel.Payload, error) {
	return firstBytes(maxBytes, tx.payloadsOf(distinct(refs))), nil
}

// firstBytes returns the first payloads, until maxBytes are reached.
func firstBytes(maxBytes int, all []kernel.Payload) []kernel.Payload {
	read := 0
	for i, p := range all {
		if read >= maxBytes {
			return all[:i]
		}
		read += len(p.Input) + len(p.Output)
	}
	return all
}

// distinct returns the refs in their order, without duplicates.
func distinct(refs []kernel.StepRef) (once []kernel.StepRef) {
	seen := map[kernel.StepRef]bool{}
	for _, ref := range refs {
		if !seen[ref] {
			seen[ref] = true
			once = append(once, ref)
		}
	}
	return once
}

func (tx *tx) Inputs(ids []perdure.JobID) (map[perdure.JobID]json.RawMessage, error) {
	found := map[perdure.JobID]json.RawMessage{}
	for _, id := range ids {
		if j, ok := tx.jobs[id]; ok && j.Input != nil {
			found[id] = slices.Clone(j.Input)
		}
	}
	return found, nil
}

func (tx *tx) Shapes(ids []kernel.ShapeID) (map[kernel.ShapeID][]byte, error) {
	found := map[kernel.ShapeID][]byte{}
	for _, id := range ids {
		if text, ok := tx.shapes[id]; ok {
			found[id] = slices.Clone(text)
		}
	}
	return found, nil
}

func (d *data) stepsOf(job perdure.JobID) []*kernel.Step {
	var steps []*kernel.Step
	for _, ref := range d.order[job] {
		steps = append(steps, copyStep(d.steps[ref]))
	}
	return steps
}

func (d *data) payloadsOf(refs []kernel.StepRef) []kernel.Payload {
	var found []kernel.Payload
	for _, ref := range refs {
		if p := d.payloads[ref]; p.Input != nil || p.Output != nil {
			found = append(found, copyPayload(p))
		}
	}
	return found
}

// limitUse returns the permits of a limit or of one of its keys: the sum of their amounts, and their holders.
func (d *data) limitUse(k kernel.LimitKey) (used int, holders []kernel.LimitHolder) {
	kind, of, _ := kernel.SplitLimit(k.Name)
	if kind == kernel.LimitOfJobs {
		for _, id := range slices.SortedFunc(maps.Keys(d.jobs), perdure.JobID.Compare) {
			if j := d.jobs[id]; j.HasPermit && j.Type == of {
				holders = append(holders, kernel.LimitHolder{Job: id, Amount: 1})
			}
		}
		return len(holders), holders
	}
	for _, id := range slices.SortedFunc(maps.Keys(d.jobs), perdure.JobID.Compare) {
		j := d.jobs[id]
		if !j.HasPermit || kind != kernel.LimitNamed {
			continue
		}
		for _, n := range j.Needs.List() {
			if n.Name == k.Name && (k.Key == "" || n.Key == k.Key) {
				used += n.Amount
				holders = append(holders, kernel.LimitHolder{Job: id, Key: n.Key, Amount: n.Amount})
			}
		}
	}
	for _, s := range d.unsettledWhere(compareSteps, func(s *kernel.Step) bool { return s.Phase == perdure.Running }) {
		for _, n := range kernel.PermitsOf(s, nil).List() {
			if n.Name == k.Name && (k.Key == "" || n.Key == k.Key) {
				used += n.Amount
				holders = append(holders, kernel.LimitHolder{Job: s.Job, Step: s.Name, Run: s.Run, Key: n.Key, Amount: n.Amount})
			}
		}
	}
	slices.SortStableFunc(holders, func(a, b kernel.LimitHolder) int { return a.Job.Compare(b.Job) }) // the job before its steps
	return used, holders
}

func unique[T comparable](of []T, compare func(a, b T) int) []T {
	return slices.Compact(slices.SortedFunc(slices.Values(of), compare))
}

func compareSteps(a, b *kernel.Step) int { return a.StepRef.Compare(b.StepRef) }
