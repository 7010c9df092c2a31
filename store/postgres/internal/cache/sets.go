package cache

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// Sets remembers the rows of table out that this process wrote: which runs are in them, and how many of these are
// still in flight, so that the transaction that ends the last one deletes the row. It only saves work. Because other
// processes end runs too, a set is checked at intervals for runs in flight. A set that is not remembered is deleted when
// it is due.
type Sets struct {
	CheckInterval time.Duration // between checks of a set

	mu     sync.Mutex
	byRun  map[kernel.StepRef]*RunSet
	byID   map[int64]*RunSet
	empty  []*RunSet // sets without runs in flight whose rows still exist: two transactions have ended the last runs at once
	checks []*RunSet // in the order in which they are due
}

type RunSet struct {
	ID        int64
	Until     time.Time // when the first lock of its runs ends, or earlier
	remaining int
	members   []kernel.StepRef
	checkAt   time.Time // not earlier
}

const (
	maxCachedRuns    = 1 << 20 // in all sets
	MaxRunsOfSet     = 1000    // members of one row
	maxChecks        = 2       // with one Save
	setCheckInterval = 30 * time.Second
)

func newSets() *Sets {
	return &Sets{CheckInterval: setCheckInterval, byRun: map[kernel.StepRef]*RunSet{}, byID: map[int64]*RunSet{}}
}

// SetsTx is one transaction's part of the run sets.
type SetsTx struct {
	store      *Sets
	inserted   []*RunSet
	endedRuns  []runOfSet
	endedOf    map[*RunSet]int // number of runs that this transaction ends
	deleted    map[*RunSet]bool
	retimed    map[int64]time.Time
	FoundEmpty []int64 // ids of sets that were deleted because they had no runs in flight
}

type runOfSet struct {
	kernel.StepRef
	*RunSet
}

// End counts runs that end. It returns the sets without further runs, and some sets that are due for a check.
func (t *SetsTx) End(refs []kernel.StepRef) (spent, old []*RunSet) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.endedOf == nil {
		t.endedOf, t.deleted = map[*RunSet]int{}, map[*RunSet]bool{}
	}
	for _, of := range t.store.empty {
		t.deleted[of] = true
		spent = append(spent, of)
	}
	t.store.empty = nil
	var latest *RunSet // count consecutive runs of one set at once
	n := 0
	count := func() {
		if n == 0 {
			return
		}
		if t.endedOf[latest] += n; t.endedOf[latest] == latest.remaining && !t.deleted[latest] {
			t.deleted[latest] = true
			spent = append(spent, latest)
		}
	}
	joined := t.insertedOf(refs)
	for _, ref := range refs {
		of := joined[ref]
		if of == nil {
			of = t.store.byRun[ref]
		}
		if of == nil {
			continue
		}
		t.endedRuns = append(t.endedRuns, runOfSet{ref, of})
		if of != latest {
			count()
			latest, n = of, 0
		}
		n++
	}
	count()
	return spent, t.store.dueChecks()
}

// insertedOf returns the sets that this transaction has made, by their runs; nil if there are none, or if no run ends.
func (t *SetsTx) insertedOf(refs []kernel.StepRef) map[kernel.StepRef]*RunSet {
	if len(refs) == 0 || len(t.inserted) == 0 {
		return nil
	}
	of := map[kernel.StepRef]*RunSet{}
	for _, made := range t.inserted {
		for _, ref := range made.members {
			of[ref] = made
		}
	}
	return of
}

// dueChecks returns some sets that were not checked for long.
func (m *Sets) dueChecks() (old []*RunSet) {
	for now := time.Now(); len(m.checks) > 0 && len(old) < maxChecks && !now.Before(m.checks[0].checkAt); {
		of := m.checks[0]
		m.checks = m.checks[1:]
		if m.byID[of.ID] == of {
			of.checkAt = now.Add(m.CheckInterval)
			m.checks = append(m.checks, of)
			old = append(old, of)
		}
	}
	return old
}

// committed applies the transaction's changes.
func (t *SetsTx) committed() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	m := t.store
	for _, made := range t.inserted {
		if len(m.byRun)+len(made.members) > maxCachedRuns {
			m.byRun, m.byID, m.checks = map[kernel.StepRef]*RunSet{}, map[int64]*RunSet{}, nil
		}
		for _, ref := range made.members {
			m.byRun[ref] = made
		}
		m.byID[made.ID] = made
		made.checkAt = time.Now().Add(m.CheckInterval)
		m.checks = append(m.checks, made)
	}
	for _, l := range t.endedRuns { // including those of new sets
		if m.byRun[l.StepRef] == l.RunSet {
			delete(m.byRun, l.StepRef)
		}
	}
	for of, n := range t.endedOf {
		if of.remaining -= n; of.remaining <= 0 {
			delete(m.byID, of.ID)
			if !t.deleted[of] {
				m.empty = append(m.empty, of)
			}
		}
	}
	for _, id := range t.FoundEmpty {
		m.forget(m.byID[id])
	}
	for id, until := range t.retimed {
		if of := m.byID[id]; of != nil {
			of.Until = until
		}
	}
}

func (m *Sets) forget(of *RunSet) {
	if of == nil {
		return
	}
	delete(m.byID, of.ID)
	for _, ref := range of.members {
		if m.byRun[ref] == of {
			delete(m.byRun, ref)
		}
	}
}

// rolledBack discards the transaction's changes.
func (t *SetsTx) rolledBack() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	for of := range t.deleted {
		if of.remaining <= 0 && t.endedOf[of] == 0 { // the set was empty before this transaction
			t.store.empty = append(t.store.empty, of)
		}
	}
}

// indeterminate forgets the sets of which the transaction has ended runs. Their rows are deleted when they are due.
func (t *SetsTx) indeterminate() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	for _, l := range t.endedRuns {
		t.store.forget(l.RunSet)
	}
}

// Insert returns a new set of runs that this transaction starts.
func (t *SetsTx) Insert(until time.Time, runs []kernel.StepRef) *RunSet {
	made := &RunSet{ID: rand.Int64(), Until: until, remaining: len(runs), members: runs}
	t.inserted = append(t.inserted, made)
	return made
}

// Retime records that a set becomes due at another time.
func (t *SetsTx) Retime(id int64, until time.Time) {
	if t.retimed == nil {
		t.retimed = map[int64]time.Time{}
	}
	t.retimed[id] = until
}

// Len returns how many runs and sets are remembered.
func (m *Sets) Len() (runs, sets int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.byRun), len(m.byID)
}
