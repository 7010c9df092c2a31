package postgres

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// runSets remembers the rows of table out that this process wrote: which runs are in them, and how many of these are
// still in flight, so that the transaction that ends the last one deletes the row. It only saves work. Because other
// processes end runs too, a set is checked at intervals for runs in flight. A set that is not remembered is deleted when
// it is due.
type runSets struct {
	checkInterval time.Duration // between checks of a set

	mu     sync.Mutex
	byRun  map[kernel.StepRef]*runSet
	byID   map[int64]*runSet
	empty  []*runSet // sets without runs in flight whose rows still exist: two transactions have ended the last runs at once
	checks []*runSet // in the order in which they are due
}

type runSet struct {
	id        int64
	until     time.Time
	remaining int
	members   []kernel.StepRef
	checkAt   time.Time // not earlier
}

const (
	maxCachedRuns    = 1 << 20 // in all sets
	maxRunsOfSet     = 1000    // members of one row
	maxChecks        = 2       // with one Save
	setCheckInterval = 30 * time.Second
)

func newSets() *runSets {
	return &runSets{checkInterval: setCheckInterval, byRun: map[kernel.StepRef]*runSet{}, byID: map[int64]*runSet{}}
}

// runSetsTx is one transaction's part of the run sets.
type runSetsTx struct {
	store      *runSets
	inserted   []*runSet
	endedRuns  []runOfSet
	endedOf    map[*runSet]int // number of runs that this transaction ends
	deleted    map[*runSet]bool
	retimed    map[int64]time.Time
	foundEmpty []int64 // ids of sets that were deleted because they had no runs in flight
}

type runOfSet struct {
	kernel.StepRef
	*runSet
}

// runSetKey is what the runs of a set have in common.
type runSetKey struct {
	agent, holder, request string
	until                  int64
}

const (
	insertSetSQL = `insert into perdure.out (until_at, id, agent, locked_by, request, jobs, idxs)
		values ($1, $2, $3, $4, $5, $6, $7)`
	// A set that another transaction has locked is skipped: a due scan is about to update it.
	deleteSetsSQL = `delete from perdure.out where ctid = any (array(
		select o.ctid from unnest($1::timestamptz[], $2::bigint[]) as u (until_at, id)
		join perdure.out o on o.until_at = any(array[u.until_at]) and o.id = u.id for update of o skip locked))`
	deleteEmptySQL = `delete from perdure.out where ctid = any (array(
		select o.ctid from unnest($1::timestamptz[], $2::bigint[]) as u (until_at, id)
		join perdure.out o on o.until_at = any(array[u.until_at]) and o.id = u.id
		where not exists (select from unnest(o.jobs, o.idxs) as m (job, idx)
			join perdure.step s on s.job = any(array[m.job]) and s.idx = m.idx where s.phase = 3)
		for update of o skip locked)) returning id`
)

// statements inserts the sets of runs that start, and deletes sets whose last run ends.
func (t *runSetsTx) statements(come []inFlightEntry, go_ []kernel.StepRef) (list []*pgwire.Statement) {
	spent, old := t.end(go_)
	if len(spent) > 0 {
		list = append(list, withSets(deleteSetsSQL, spent))
	}
	if len(old) > 0 {
		list = append(list, pgwire.Into(withSets(deleteEmptySQL, old), &t.foundEmpty, (*pgwire.Reader).Int64))
	}
	var groups []*runGroup
	of := map[runSetKey]*runGroup{}
	var latest *runGroup // consecutive runs mostly belong to the same set
	for _, s := range come {
		key := runSetKey{s.Agent, s.Holder, s.Request, s.Until.UnixMicro()}
		if latest == nil || latest.runSetKey != key {
			if latest = of[key]; latest == nil {
				latest = &runGroup{runSetKey: key}
				of[key], groups = latest, append(groups, latest)
			}
		}
		latest.runs = append(latest.runs, s.StepRef)
	}
	for _, g := range groups {
		for members := range slices.Chunk(g.runs, maxRunsOfSet) {
			list = append(list, t.insert(g.runSetKey, members))
		}
	}
	return list
}

type runGroup struct {
	runSetKey
	runs []kernel.StepRef
}

// insert makes a set.
func (t *runSetsTx) insert(key runSetKey, refs []kernel.StepRef) *pgwire.Statement {
	made := &runSet{id: rand.Int64(), until: time.UnixMicro(key.until), remaining: len(refs), members: refs}
	t.inserted = append(t.inserted, made)
	return stepRefs(pgwire.New(insertSetSQL).Moment(made.until).Int64(made.id).Text(key.agent).Text(key.holder).Text(key.request), refs)
}

// end counts runs that end. It returns the sets without further runs, and some sets that are due for a check.
func (t *runSetsTx) end(refs []kernel.StepRef) (spent, old []*runSet) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.endedOf == nil {
		t.endedOf, t.deleted = map[*runSet]int{}, map[*runSet]bool{}
	}
	for _, of := range t.store.empty {
		t.deleted[of] = true
		spent = append(spent, of)
	}
	t.store.empty = nil
	var latest *runSet // count consecutive runs of one set at once
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
func (t *runSetsTx) insertedOf(refs []kernel.StepRef) map[kernel.StepRef]*runSet {
	if len(refs) == 0 || len(t.inserted) == 0 {
		return nil
	}
	of := map[kernel.StepRef]*runSet{}
	for _, made := range t.inserted {
		for _, ref := range made.members {
			of[ref] = made
		}
	}
	return of
}

// dueChecks returns some sets that were not checked for long.
func (m *runSets) dueChecks() (old []*runSet) {
	for now := time.Now(); len(m.checks) > 0 && len(old) < maxChecks && !now.Before(m.checks[0].checkAt); {
		of := m.checks[0]
		m.checks = m.checks[1:]
		if m.byID[of.id] == of {
			of.checkAt = now.Add(m.checkInterval)
			m.checks = append(m.checks, of)
			old = append(old, of)
		}
	}
	return old
}

func withSets(sql string, which []*runSet) *pgwire.Statement {
	var until, ids pgwire.Cells
	for _, s := range which {
		until.Moment(s.until)
		ids.Int8(s.id)
	}
	return pgwire.New(sql).Array(pgwire.Time, len(which), until).Array(pgwire.Int8, len(which), ids)
}

// committed applies the transaction's changes.
func (t *runSetsTx) committed() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	m := t.store
	for _, made := range t.inserted {
		if len(m.byRun)+len(made.members) > maxCachedRuns {
			m.byRun, m.byID, m.checks = map[kernel.StepRef]*runSet{}, map[int64]*runSet{}, nil
		}
		for _, ref := range made.members {
			m.byRun[ref] = made
		}
		m.byID[made.id] = made
		made.checkAt = time.Now().Add(m.checkInterval)
		m.checks = append(m.checks, made)
	}
	for _, l := range t.endedRuns { // including those of new sets
		if m.byRun[l.StepRef] == l.runSet {
			delete(m.byRun, l.StepRef)
		}
	}
	for of, n := range t.endedOf {
		if of.remaining -= n; of.remaining <= 0 {
			delete(m.byID, of.id)
			if !t.deleted[of] {
				m.empty = append(m.empty, of)
			}
		}
	}
	for _, id := range t.foundEmpty {
		m.forget(m.byID[id])
	}
	for id, until := range t.retimed {
		if of := m.byID[id]; of != nil {
			of.until = until
		}
	}
}

func (m *runSets) forget(of *runSet) {
	if of == nil {
		return
	}
	delete(m.byID, of.id)
	for _, ref := range of.members {
		if m.byRun[ref] == of {
			delete(m.byRun, ref)
		}
	}
}

// rolledBack discards the transaction's changes.
func (t *runSetsTx) rolledBack() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	for of := range t.deleted {
		if of.remaining <= 0 && t.endedOf[of] == 0 { // the set was empty before this transaction
			t.store.empty = append(t.store.empty, of)
		}
	}
}

// indeterminate forgets the sets of which the transaction has ended runs. Their rows are deleted when they are due.
func (t *runSetsTx) indeterminate() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	for _, l := range t.endedRuns {
		t.store.forget(l.runSet)
	}
}
