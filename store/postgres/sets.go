package postgres

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// sets is this process's memory of the rows of out that it wrote: which runs are in them, and how many are
// still out, so that whoever ends the last one deletes the row. It is a mere shortcut. Where other processes
// end runs, too, a set is looked at now and then whether anybody is left in it; and what is forgotten stays
// until its time has come: then the sweep finds nobody.
type sets struct {
	patience time.Duration // between looks at a set

	mu    sync.Mutex
	of    map[kernel.StepRef]*set
	byID  map[int64]*set
	spent []*set // nobody is left, and the row is there still: two transactions ended the last ones at once
	old   []*set // to be looked at, in the order of their times
}

type set struct {
	id      int64
	until   time.Time
	left    int
	members []kernel.StepRef
	look    time.Time // not before
}

const (
	maxMembers  = 1 << 20 // remembered
	maxSet      = 1000    // members of one row
	maxLooks    = 2       // at old sets, with one Save
	setPatience = 30 * time.Second
)

func newSets() *sets {
	return &sets{patience: setPatience, of: map[kernel.StepRef]*set{}, byID: map[int64]*set{}}
}

// setsTx is what one transaction does with sets. It becomes memory with the commit.
type setsTx struct {
	store   *sets
	joined  []*set
	left    []membership
	ended   map[*set]int // how many in this transaction
	deleted map[*set]bool
	retimed map[int64]time.Time
	gone    []int64 // deleted because nobody was left
}

type membership struct {
	kernel.StepRef
	*set
}

// together is what runs have in common that are let out together.
type together struct {
	agent, holder, request string
	until                  int64
}

const (
	insertSetSQL = `insert into perdure.out (until_at, id, agent, locked_by, request, jobs, idxs)
		values ($1, $2, $3, $4, $5, $6, $7)`
	// Whoever has locked a set is sweeping it: it is left to him.
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

// statements write the sets of those who come, and delete those whose last member goes.
func (t *setsTx) statements(come []inFlight, go_ []kernel.StepRef) (list []*pgwire.Statement) {
	spent, old := t.leave(go_)
	if len(spent) > 0 {
		list = append(list, forSets(deleteSetsSQL, spent))
	}
	if len(old) > 0 {
		list = append(list, pgwire.Into(forSets(deleteEmptySQL, old), &t.gone, (*pgwire.Reader).Int64))
	}
	var groups []*group
	of := map[together]*group{}
	var latest *group // those who come one after the other have come together, as a rule
	for _, s := range come {
		key := together{s.Agent, s.Holder, s.Request, s.Until.UnixMicro()}
		if latest == nil || latest.together != key {
			if latest = of[key]; latest == nil {
				latest = &group{together: key}
				of[key], groups = latest, append(groups, latest)
			}
		}
		latest.runs = append(latest.runs, s.StepRef)
	}
	for _, g := range groups {
		for members := range slices.Chunk(g.runs, maxSet) {
			list = append(list, t.join(g.together, members))
		}
	}
	return list
}

type group struct {
	together
	runs []kernel.StepRef
}

// join makes a set.
func (t *setsTx) join(key together, refs []kernel.StepRef) *pgwire.Statement {
	made := &set{id: rand.Int64(), until: time.UnixMicro(key.until), left: len(refs), members: refs}
	t.joined = append(t.joined, made)
	return stepRefs(pgwire.New(insertSetSQL).Moment(made.until).Int64(made.id).Text(key.agent).Text(key.holder).Text(key.request), refs)
}

// leave counts those who go, and gives the sets in which nobody is left, and some in which that may be so.
func (t *setsTx) leave(refs []kernel.StepRef) (spent, old []*set) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.ended == nil {
		t.ended, t.deleted = map[*set]int{}, map[*set]bool{}
	}
	for _, of := range t.store.spent {
		t.deleted[of] = true
		spent = append(spent, of)
	}
	t.store.spent = nil
	var latest *set // of so many, one after the other
	n := 0
	count := func() {
		if n == 0 {
			return
		}
		if t.ended[latest] += n; t.ended[latest] == latest.left && !t.deleted[latest] {
			t.deleted[latest] = true
			spent = append(spent, latest)
		}
	}
	joined := t.joinedOf(refs)
	for _, ref := range refs {
		of := joined[ref]
		if of == nil {
			of = t.store.of[ref]
		}
		if of == nil {
			continue
		}
		t.left = append(t.left, membership{ref, of})
		if of != latest {
			count()
			latest, n = of, 0
		}
		n++
	}
	count()
	return spent, t.store.aged()
}

// joinedOf are the sets that this transaction has made, by their members; nil where nobody goes or none was made.
func (t *setsTx) joinedOf(refs []kernel.StepRef) map[kernel.StepRef]*set {
	if len(refs) == 0 || len(t.joined) == 0 {
		return nil
	}
	of := map[kernel.StepRef]*set{}
	for _, made := range t.joined {
		for _, ref := range made.members {
			of[ref] = made
		}
	}
	return of
}

// aged are some sets that have not been looked at for long.
func (m *sets) aged() (old []*set) {
	for now := time.Now(); len(m.old) > 0 && len(old) < maxLooks && !now.Before(m.old[0].look); {
		of := m.old[0]
		m.old = m.old[1:]
		if m.byID[of.id] == of {
			of.look = now.Add(m.patience)
			m.old = append(m.old, of)
			old = append(old, of)
		}
	}
	return old
}

func forSets(sql string, which []*set) *pgwire.Statement {
	var until, ids pgwire.Cells
	for _, s := range which {
		until.Moment(s.until)
		ids.Int8(s.id)
	}
	return pgwire.New(sql).Array(pgwire.Time, len(which), until).Array(pgwire.Int8, len(which), ids)
}

// committed makes memory of what the transaction did.
func (t *setsTx) committed() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	m := t.store
	for _, made := range t.joined {
		if len(m.of)+len(made.members) > maxMembers {
			m.of, m.byID, m.old = map[kernel.StepRef]*set{}, map[int64]*set{}, nil
		}
		for _, ref := range made.members {
			m.of[ref] = made
		}
		m.byID[made.id] = made
		made.look = time.Now().Add(m.patience)
		m.old = append(m.old, made)
	}
	for _, l := range t.left { // of the sets made now, too
		if m.of[l.StepRef] == l.set {
			delete(m.of, l.StepRef)
		}
	}
	for of, n := range t.ended {
		if of.left -= n; of.left <= 0 {
			delete(m.byID, of.id)
			if !t.deleted[of] {
				m.spent = append(m.spent, of)
			}
		}
	}
	for _, id := range t.gone {
		m.forget(m.byID[id])
	}
	for id, until := range t.retimed {
		if of := m.byID[id]; of != nil {
			of.until = until
		}
	}
}

func (m *sets) forget(of *set) {
	if of == nil {
		return
	}
	delete(m.byID, of.id)
	for _, ref := range of.members {
		if m.of[ref] == of {
			delete(m.of, ref)
		}
	}
}

// rolledBack leaves memory as it was.
func (t *setsTx) rolledBack() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	for of := range t.deleted {
		if of.left <= 0 && t.ended[of] == 0 { // was spent before
			t.store.spent = append(t.store.spent, of)
		}
	}
}

// unknown forgets whatever the transaction may have changed.
func (t *setsTx) unknown() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	for _, l := range t.left {
		t.store.forget(l.set)
	}
}
