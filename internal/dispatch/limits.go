package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// limits are the limits that one transaction has locked and counted.
//
// All transactions lock limits in the order of their names; otherwise two transactions could wait for each other
// (deadlock). But a transaction learns which limits it needs only while it looks at candidates. So it begins with the
// limits that the agent's latest search needed. If it later needs a limit whose name comes before the last locked one,
// it fails with a LockOrderError, and is run again with this limit among the first.
//
// For example, a transaction has locked "crm" and then finds a step that needs "api". It is rolled back, and its next
// try locks "api" and "crm" together.
type limits struct {
	defined    map[string]kernel.Limit // the limits that exist; nil if they have not been read yet
	counted    kernel.Admission
	lastLocked string // the name that was locked last
}

// LockOrderError is the error of a transaction that should have locked these limits earlier.
type LockOrderError struct {
	agent string
	names []string
}

func (d *LockOrderError) Error() string {
	return fmt.Sprintf("limits %v must be locked earlier", d.names)
}

// fullExpiry is how long searches leave out the steps that need a limit which was full. If another node releases a
// permit, this node may not be notified. So the remembered limit expires (L5).
const fullExpiry = time.Second

// LockEarlier makes the next transaction lock these limits at its beginning.
func (q *Queue) LockEarlier(d *LockOrderError) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agent(d.agent)
	a.knownLimits = append(slices.Clone(a.knownLimits), d.names...)
}

// cachedLimits returns the limits that the agent's latest search needed, and those of them that were full.
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

// cacheLimits remembers the limits that the searches of a transaction needed. began is when it began, by this node's
// clock.
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

// loadDefined reads which limits exist.
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

// lockKnown locks the limits that the searches are known to need.
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

// MaxOpened bounds how many lanes a transaction opens when it releases permits of a key. The supervisor opens the rest.
const MaxOpened = 100

// openLanes opens the lanes that are closed for keys of which this transaction has released permits, or whose rates have
// room again, and returns their agents. It locks the limits first, so that no other transaction closes a lane for these
// keys meanwhile.
func (l *limits) openLanes(t *Transaction) (agents []string, err error) {
	t.reopened = t.q.dueReopenings(l.counted.Now)
	return l.openFor(t, t.reopened)
}

// openFor is openLanes for these rates.
func (l *limits) openFor(t *Transaction, reopened []kernel.Reopening) (agents []string, err error) {
	freed := t.b.Workset().ReleasedKeys()
	if len(freed)+len(reopened) == 0 {
		return nil, nil
	}
	if err := l.loadDefined(t); err != nil {
		return nil, err
	}
	freed = slices.DeleteFunc(freed, func(k kernel.LimitKey) bool {
		limit, defined := l.defined[k.Name]
		return !defined || limit.ForKey(k.Key).Max == kernel.Unbounded
	})
	for _, o := range reopened {
		if _, defined := l.defined[o.Key.Name]; defined {
			freed = append(freed, o.Key)
		}
	}
	slices.SortFunc(freed, kernel.LimitKey.Compare)
	if freed = slices.Compact(freed); len(freed) == 0 {
		return nil, nil
	}
	names := map[string]bool{}
	for _, k := range freed {
		names[k.Name] = true
	}
	for _, s := range t.searches { // the limits that the searches need are locked now as well, because of the order of locks
		names[kernel.AgentLimit(s.agent)] = true
		for _, name := range slices.Concat(s.limits, s.full) {
			names[name] = true
		}
	}
	if err := l.lockMore(t, names, nil); err != nil {
		return nil, err
	}
	return l.open(t, freed)
}

// open opens lanes that are closed for these keys, whose limits are locked: of a key with a line, that of the first in it.
func (l *limits) open(t *Transaction, keys []kernel.LimitKey) (agents []string, err error) {
	var inLine, others []kernel.LimitKey
	for _, k := range keys {
		if l.defined[k.Name].Ordered {
			inLine = append(inLine, k)
		} else {
			others = append(others, k)
		}
	}
	if len(inLine) > 0 {
		if err := t.b.Save(); err != nil { // so that steps which have left a line are not the first in it
			return nil, err
		}
		use, err := t.b.Tx().KeyUse(inLine)
		if err != nil {
			return nil, err
		}
		lanes, empty := kernel.FirstLanes(inLine, use)
		if others = append(others, empty...); len(lanes) > 0 {
			if agents, err = t.b.Tx().OpenFirst(lanes); err != nil {
				return nil, err
			}
		}
	}
	if len(others) > 0 {
		more, err := t.b.Tx().OpenLanes(others, MaxOpened)
		if err != nil {
			return nil, err
		}
		agents = append(agents, more...)
	}
	return agents, nil
}

// rateRoom returns when the rates have room that hold back steps of a search; ok is false if no rate does.
func (l *limits) rateRoom(s *search) (at time.Time, ok bool) {
	names := s.full
	if s.ownLimitFull {
		names = append(slices.Clone(names), kernel.AgentLimit(s.agent))
	}
	for _, name := range names {
		if room, waits := l.counted.RoomAt(name); waits && (!ok || room.Before(at)) {
			at, ok = room, true
		}
	}
	return at, ok
}

// withoutRoom returns those of the limits that have no room.
func (l *limits) withoutRoom(names []string) (full []string) {
	for _, name := range names {
		if l.counted.Has(name) && l.counted.Room(name) == 0 {
			full = append(full, name)
		}
	}
	return full
}

// admissible returns the steps for which the limits have room.
func (l *limits) admissible(w *kernel.Workset, refs []kernel.StepRef) []kernel.StepRef {
	if l.counted.Empty() {
		return refs
	}
	return slices.DeleteFunc(slices.Clone(refs), func(ref kernel.StepRef) bool {
		return !l.counted.HasRoom(w.Job(ref.Job), w.Step(ref))
	})
}

// lockNeeded locks and counts the limits that the candidates need, and counts the permits of their keys.
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
	taken, err := t.b.Tx().KeyUse(keys)
	for k, u := range taken {
		l.counted.AddKey(k, u)
	}
	return err
}

// lockMore locks and counts those of the limits that exist and are not locked yet. If one of them comes before the last
// locked one, it returns a LockOrderError. s is the search that needs the limits; nil at the beginning.
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
	if err := t.b.Save(); err != nil { // so that permits which this transaction releases are counted as free
		return err
	}
	counted, err := t.b.Tx().LockLimits(names)
	for _, limit := range counted {
		l.counted.Add(limit)
	}
	return err
}
