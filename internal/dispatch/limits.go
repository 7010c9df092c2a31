package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// limits are those that one transaction has locked and counted. All transactions lock them in the order of their names,
// or they would wait for each other in a circle. Which limits a transaction needs is known only on the way. So each
// begins with those that the agent needed the last time, and one that comes upon a name before the last one that it has
// locked (disorder) begins anew with that.
type limits struct {
	defined    map[string]kernel.Limit // those that are there; nil: not known yet
	counted    kernel.Admission
	lastLocked string // the last one that was locked
}

// Disorder is the error of a transaction that should have locked these limits earlier.
type LockOrderError struct {
	agent string
	names []string
}

func (d *LockOrderError) Error() string { return fmt.Sprintf("limits %v are needed earlier", d.names) }

// fullLong is for how long searches leave out the steps that need a limit which was full. If another node releases a permit,
// this node need not hear of it, so the hint expires (L5).
const fullExpiry = time.Second

// Heed makes the next transaction lock what this one should have locked.
func (q *Queue) LockEarlier(d *LockOrderError) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agent(d.agent)
	a.knownLimits = append(slices.Clone(a.knownLimits), d.names...)
}

// hints are the limits that an agent's latest search needed, and those that are full.
func (q *Queue) cachedLimits(agent string, now time.Time) (limits, full []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agents[agent]
	if a == nil {
		return nil, nil
	}
	if now.Sub(a.fullAt) <= fullExpiry {
		full = a.fullLimits
	}
	return a.knownLimits, full
}

// remember keeps the hints of a transaction that began at a time of the node's clock.
func (q *Queue) cacheLimits(searches []*search, began time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range searches {
		a := q.agent(s.agent)
		if s.needed != nil {
			a.knownLimits = slices.Collect(maps.Keys(s.needed))
		}
		if s.offered {
			a.fullLimits, a.fullAt, a.ownLimitFull = s.full, began, s.ownLimitFull
		}
	}
}

// define reads which limits there are.
func (l *limits) loadDefined(t *Transaction) error {
	if l.defined != nil {
		return nil
	}
	all, err := t.b.Tx().Limits()
	if err != nil {
		return err
	}
	l.defined = make(map[string]kernel.Limit, len(all))
	for _, one := range all {
		l.defined[one.Name] = one
	}
	return nil
}

// open locks the limits that the searches need, as far as that is known.
func (l *limits) lockKnown(t *Transaction, searches []*search) error {
	if err := l.loadDefined(t); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, s := range searches {
		names[kernel.AgentLimit(s.agent)] = true
		for _, name := range slices.Concat(s.limits, s.full) {
			names[name] = true
		}
	}
	return l.lockMore(t, names, nil)
}

// MaxOpened bounds how many lanes are opened when permits of one key are released. The supervisor opens the rest.
const MaxOpened = 100

// openLanes opens the lanes that are closed for keys of which this transaction has released permits, and says whose they
// are. It has the lock of their limits first, so that no transaction closes one for them meanwhile.
func (l *limits) openLanes(t *Transaction) (agents []string, err error) {
	freed := t.b.Workset().Freed()
	if len(freed) == 0 {
		return nil, nil
	}
	if err := l.loadDefined(t); err != nil {
		return nil, err
	}
	freed = slices.DeleteFunc(freed, func(k kernel.LimitKey) bool {
		limit, defined := l.defined[k.Name]
		return !defined || limit.PerKey == kernel.Unbounded || k.Key == ""
	})
	if len(freed) == 0 {
		return nil, nil
	}
	names := map[string]bool{}
	for _, k := range freed {
		names[k.Name] = true
	}
	for _, s := range t.searches { // what they need as well, because it comes later
		names[kernel.AgentLimit(s.agent)] = true
		for _, name := range slices.Concat(s.limits, s.full) {
			names[name] = true
		}
	}
	if err := l.lockMore(t, names, nil); err != nil {
		return nil, err
	}
	return t.b.Tx().OpenLanes(freed, MaxOpened)
}

// stillFull are those of the limits that have no room now.
func (l *limits) withoutRoom(names []string) (full []string) {
	for _, name := range names {
		if l.counted.Has(name) && l.counted.Room(name) == 0 {
			full = append(full, name)
		}
	}
	return full
}

// admissible are the steps that the limits have room for.
func (l *limits) admissible(w *kernel.Workset, refs []kernel.StepRef) []kernel.StepRef {
	if l.counted.Empty() {
		return refs
	}
	return slices.DeleteFunc(slices.Clone(refs), func(ref kernel.StepRef) bool {
		return !l.counted.HasRoom(w.Job(ref.Job), w.Step(ref))
	})
}

// lockNeeded locks and counts the limits that the candidates need, and counts their keys.
func (l *limits) lockNeeded(t *Transaction, s *search, refs []kernel.StepRef) error {
	if len(l.defined) == 0 {
		return nil
	}
	if s.needed == nil {
		s.needed = map[string]bool{}
	}
	names := map[string]bool{}
	var keys []kernel.LimitKey
	need := func(name string) {
		if _, defined := l.defined[name]; defined {
			s.needed[name], names[name] = true, true
		}
	}
	for _, ref := range refs {
		need(kernel.JobLimit(t.b.Workset().Job(ref.Job).Type))
		for _, n := range t.b.Workset().Step(ref).Needs.List() {
			need(n.Name)
			keys = append(keys, n.LimitKey)
		}
	}
	if err := l.lockMore(t, names, s); err != nil {
		return err
	}
	keys = slices.DeleteFunc(keys, l.counted.HasKey)
	if len(keys) == 0 {
		return nil
	}
	used, err := t.b.Tx().KeyUse(keys)
	for k, n := range used {
		l.counted.AddKey(k, n)
	}
	return err
}

// lockOr locks and counts limits that are there and not locked yet. If some of them come before the last one that was
// locked, the error is a Disorder. s is the search that needs them; nil if that is not known, and they are the first.
func (l *limits) lockMore(t *Transaction, of map[string]bool, s *search) error {
	var names, passed []string
	for name := range of {
		if _, defined := l.defined[name]; defined && !l.counted.Has(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	for _, name := range names {
		if name < l.lastLocked {
			passed = append(passed, name)
		}
	}
	switch {
	case len(passed) > 0 && s != nil:
		return &LockOrderError{s.agent, passed}
	case len(passed) > 0:
		return &LockOrderError{t.grants[0].Request.Agent, passed}
	}
	l.lastLocked = names[len(names)-1]
	if err := t.b.Save(); err != nil { // the permits that this transaction frees count as free
		return err
	}
	counted, err := t.b.Tx().LockLimits(names)
	for _, limit := range counted {
		l.counted.Add(limit)
	}
	return err
}
