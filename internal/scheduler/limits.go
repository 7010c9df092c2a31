package scheduler

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// limits are those that a transaction has locked. All transactions lock them in the order of their names,
// or they would wait for each other in a circle. Which ones it takes is known only on the way; so each
// begins with those that were needed the last time, and one that comes upon a name that it has passed
// begins anew with that.
type limits struct {
	defined map[string]bool
	counted kernel.Admission
	top     string // the last one locked
	used    map[string]map[string]bool
	full    map[string][]string // by agent: types whose limit had no room at the end of the look
}

// disorder says which limits a transaction should have locked earlier.
type disorder struct {
	agent string
	names []string
}

func (d *disorder) Error() string { return fmt.Sprintf("limits %v are needed earlier", d.names) }

// open locks the limits that the agents need, as far as that is known.
func (l *limits) open(b *batch, counters []*counter) error {
	all, err := b.tx.Limits()
	if err != nil {
		return err
	}
	l.defined, l.counted, l.used = map[string]bool{}, kernel.Admission{}, map[string]map[string]bool{}
	l.full = map[string][]string{}
	for _, one := range all {
		l.defined[one.Name] = true
	}
	names := map[string]bool{}
	for _, c := range counters {
		names[kernel.AgentLimit(c.agent)] = true
		for _, name := range b.s.needed.of(c.agent) {
			names[name] = true
		}
		for _, typ := range c.full {
			names[kernel.JobLimit(typ)] = true
		}
	}
	_, err = l.lock(b, slices.Collect(maps.Keys(names)))
	return err
}

// still are those of the types whose limit has no room now.
func (l *limits) still(types []string) (full []string) {
	for _, typ := range types {
		if one := l.counted[kernel.JobLimit(typ)]; one != nil && one.Used >= one.Max {
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

// room is how many more permits there are of a limit that is locked; no bound where there is none.
func (l *limits) room(name string) int {
	if one := l.counted[name]; one != nil {
		return max(one.Max-one.Used, 0)
	}
	return math.MaxInt
}

// lockTypes locks and counts the limits of the candidates' types.
func (l *limits) lockTypes(b *batch, agent string, refs []kernel.StepRef) error {
	if len(l.defined) == 0 {
		return nil
	}
	used := l.used[agent]
	if used == nil {
		used = map[string]bool{}
		l.used[agent] = used
	}
	var names []string
	for _, ref := range refs {
		if name := kernel.JobLimit(b.w.Job(ref.Job).Type); l.defined[name] && !used[name] {
			used[name] = true
			names = append(names, name)
		}
	}
	passed, err := l.lock(b, names)
	if len(passed) > 0 {
		return &disorder{agent, passed}
	}
	return err
}

// lock locks and counts those that are there and not locked yet, unless some of them were passed.
func (l *limits) lock(b *batch, names []string) (passed []string, err error) {
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
	if err := b.save(); err != nil { // the permits that this transaction frees count as free
		return nil, err
	}
	counted, err := b.tx.LockLimits(names)
	for i := range counted {
		l.counted[counted[i].Name] = &counted[i]
	}
	return nil, err
}

// needed remembers which limits of types the latest look of each agent took, and which types had no room at
// its end: hints.
type needed struct {
	mu     sync.Mutex
	types  map[string][]string
	filled map[string]filled
}

type filled struct {
	types []string
	at    time.Time // by the node's clock
}

// fullLong is how long no room is believed: what waits for the limit is passed over meanwhile, and room that another
// node's runs have left is not heard of for certain (L5).
const fullLong = time.Second

// maxNeeded bounds the agents remembered.
const maxNeeded = 1000

func (n *needed) of(agent string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.types[agent]
}

// full are types that are not worth looking at, until it is known better.
func (n *needed) full(agent string, now time.Time) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.filled[agent]; now.Sub(f.at) <= fullLong {
		return f.types
	}
	return nil
}

func (n *needed) set(agent string, types []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.types == nil || len(n.types) >= maxNeeded {
		n.types = map[string][]string{}
	}
	n.types[agent] = types
}

// learn keeps what a transaction that began then has taken.
func (n *needed) learn(l *limits, began time.Time) {
	for agent, used := range l.used {
		n.set(agent, slices.Collect(maps.Keys(used)))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for agent, full := range l.full {
		if n.filled == nil || len(n.filled) >= maxNeeded {
			n.filled = map[string]filled{}
		}
		n.filled[agent] = filled{full, began}
	}
}

// heed adds what a transaction should have taken.
func (n *needed) heed(d *disorder) { n.set(d.agent, append(slices.Clone(n.of(d.agent)), d.names...)) }
