package dispatch

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// limits are those that one transaction has locked and counted. All transactions lock them in the order of their names,
// or they would wait for each other in a circle. Which limits a transaction needs is known only on the way. So each
// begins with those that the agent needed the last time, and one that comes upon a name before the last one that it has
// locked (disorder) begins anew with that.
type limits struct {
	defined map[string]bool
	counted kernel.Admission
	top     string // the last one that was locked
}

// Disorder is the error of a transaction that should have locked these limits earlier.
type Disorder struct {
	agent string
	names []string
}

func (d *Disorder) Error() string { return fmt.Sprintf("limits %v are needed earlier", d.names) }

// fullLong is how long the queue believes that a type has no room under its limit. Its steps are left out of searches
// meanwhile, and room that comes up on another node need not become known here (L5).
const fullLong = time.Second

// Heed makes the next transaction lock what this one should have locked.
func (q *Queue) Heed(d *Disorder) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agent(d.agent)
	a.limits = append(slices.Clone(a.limits), d.names...)
}

// hints are the limits that an agent's latest search needed, and the types that are not worth a search.
func (q *Queue) hints(agent string, now time.Time) (limits, full []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agents[agent]
	if a == nil {
		return nil, nil
	}
	if now.Sub(a.fullTypesSeen) <= fullLong {
		full = a.fullTypes
	}
	return a.limits, full
}

// remember keeps the hints of a transaction that began at a time of the node's clock.
func (q *Queue) remember(searches []*search, began time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range searches {
		a := q.agent(s.agent)
		if s.types != nil {
			a.limits = slices.Collect(maps.Keys(s.types))
		}
		if s.served {
			a.fullTypes, a.fullTypesSeen = s.full, began
		}
	}
}

// open locks the limits that the searches need, as far as that is known.
func (l *limits) open(t *Transaction, searches []*search) error {
	all, err := t.b.Tx().Limits()
	if err != nil {
		return err
	}
	l.defined, l.counted = map[string]bool{}, kernel.Admission{}
	for _, one := range all {
		l.defined[one.Name] = true
	}
	names := map[string]bool{}
	for _, s := range searches {
		names[kernel.AgentLimit(s.agent)] = true
		for _, name := range s.limits {
			names[name] = true
		}
		for _, typ := range s.full {
			names[kernel.JobLimit(typ)] = true
		}
	}
	_, err = l.lock(t, slices.Collect(maps.Keys(names)))
	return err
}

// full are those of the types whose limit has no room now.
func (l *limits) full(types []string) (full []string) {
	for _, typ := range types {
		if l.counted[kernel.JobLimit(typ)] != nil && l.room(kernel.JobLimit(typ)) == 0 {
			full = append(full, typ)
		}
	}
	return full
}

// admissible are the steps whose job has a permit, or whose type's limit has room.
func (l *limits) admissible(w *kernel.Workset, refs []kernel.StepRef) []kernel.StepRef {
	if len(l.counted) == 0 {
		return refs
	}
	return slices.DeleteFunc(slices.Clone(refs), func(ref kernel.StepRef) bool {
		j := w.Job(ref.Job)
		return !j.Permit && l.room(kernel.JobLimit(j.Type)) == 0
	})
}

// room is how many more permits there are of a limit that is locked; no bound if there is no such limit.
func (l *limits) room(name string) int {
	if one := l.counted[name]; one != nil {
		return max(one.Max-one.Used, 0)
	}
	return math.MaxInt
}

// lockTypes locks and counts the limits of the candidates' types.
func (l *limits) lockTypes(t *Transaction, s *search, refs []kernel.StepRef) error {
	if len(l.defined) == 0 {
		return nil
	}
	if s.types == nil {
		s.types = map[string]bool{}
	}
	var names []string
	for _, ref := range refs {
		if name := kernel.JobLimit(t.b.Workset().Job(ref.Job).Type); l.defined[name] && !s.types[name] {
			s.types[name] = true
			names = append(names, name)
		}
	}
	passed, err := l.lock(t, names)
	if len(passed) > 0 {
		return &Disorder{s.agent, passed}
	}
	return err
}

// lock locks and counts limits that are defined and not locked yet. If some of them come before the last one that was
// locked, it returns these, and locks none.
func (l *limits) lock(t *Transaction, names []string) (passed []string, err error) {
	names = slices.DeleteFunc(names, func(name string) bool { return !l.defined[name] || l.counted[name] != nil })
	if len(names) == 0 {
		return nil, nil
	}
	slices.Sort(names)
	for _, name := range names {
		if name < l.top {
			passed = append(passed, name)
		}
	}
	if len(passed) > 0 {
		return passed, nil
	}
	l.top = names[len(names)-1]
	if err := t.b.Save(); err != nil { // the permits that this transaction frees count as free
		return nil, err
	}
	counted, err := t.b.Tx().LockLimits(names)
	for i := range counted {
		l.counted[counted[i].Name] = &counted[i]
	}
	return nil, err
}
