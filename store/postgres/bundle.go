package postgres

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
	"github.com/perdure/perdure/store/internal/bundle"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// A job in a bundle (see package bundle) has no rows. This file and bundleread.go read the jobs of bundles; check.go,
// next.go and read.go only check or count them. A transaction locks the bundle instead of the job's row. When it changes
// the job, it inserts the job's rows, and rows for the jobs that come before this one in the bundle: so one number per
// bundle says which jobs are still in it.

const (
	// bundlesSQL visits the lanes as readyFullSQL does.
	bundlesSQL = `
with recursive lane (lane) as (
	(select lane from perdure.bundle where agent = $1 order by lane limit 1)
	union all
	select (select b.lane from perdure.bundle b where b.agent = $1 and b.lane > lane.lane order by b.lane limit 1)
	from lane where lane.lane is not null
)
select b.first, b.taken, b.size, b.ord from lane cross join lateral (
	select b.first, b.taken, b.size, b.ord from perdure.bundle b
	where b.agent = $1 and b.lane = lane.lane and b.ord >= $4 and (b.ord, b.first) > ($4, $5)
	order by b.ord, b.first limit $2) b
where lane.lane <> all ($3::bigint[])
order by b.ord, b.first limit $2`

	contentsSQL = `select agent, type, name, priority, ageing, shape, steps, created_at, jobs, hashes, inputs from perdure.bundle where first = any($1)`

	tryBundlesSQL  = `select first, taken from perdure.bundle where first = any($1) for update skip locked`
	lockBundlesSQL = `select b.first, b.taken from perdure.bundle b where b.first = any(array(
		select b.first from unnest($1::uuid[], $2::uuid[]) as u (job, low) cross join lateral (
			select first from perdure.bundle where first >= u.low and first <= u.job and last >= u.job and array_position(jobs, u.job) > taken) b
		)) order by b.first for update`

	insertBundleSQL = `insert into perdure.bundle (first, last, agent, lane, ord, size, type, name, priority, ageing, shape, steps, created_at, jobs, hashes, inputs)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`
	takeBundlesSQL = `update perdure.bundle b set taken = u.new from unnest($1::uuid[], $2::int[], $3::int[]) as u (first, old, new)
		where b.first = any(array[u.first]) and b.taken = u.old`
	deleteBundlesSQL = `delete from perdure.bundle b using unnest($1::uuid[], $2::int[]) as u (first, old)
		where b.first = any(array[u.first]) and b.taken = u.old`
)

// bundleTx is what one transaction knows of bundles.
type bundleTx struct {
	locked  map[perdure.JobID]*bundle.Open // by the bundle's first job
	found   map[perdure.JobID]*bundledJob  // jobs that a search has found, or that are locked
	made    []*bundle.Bundle
	xid     uint64          // of this transaction, if it has made bundles
	emptied []perdure.JobID // first jobs of bundles that are empty now
}

// bundledJob is a job in a bundle.
type bundledJob struct {
	bundle.Place
	submitted jobRow     // filled when the job is unpacked
	cached    *cache.Job // the entry for the row cache
	leaving   newRow     // the row that is written when the job leaves the bundle
}

// addFound adds jobs in the order of their ids.
func (t *bundleTx) addFound(places []bundle.Place) {
	if t.found == nil {
		t.found = make(map[perdure.JobID]*bundledJob, len(places))
	}
	room := make([]bundledJob, len(places))
	for i, p := range places {
		if id := p.Jobs[p.At].ID; t.found[id] == nil {
			room[i].Place = p
			t.found[id] = &room[i]
		}
	}
}

func (t *bundleTx) lock(o *bundle.Open) {
	if t.locked == nil {
		t.locked = map[perdure.JobID]*bundle.Open{}
	}
	t.locked[o.First()] = o
}

// find returns a job that is in a bundle which this transaction has locked; otherwise nil.
func (t *bundleTx) find(id perdure.JobID) *bundledJob {
	j := t.found[id]
	if j == nil {
		j = t.findMade(id)
	}
	if j == nil {
		return nil
	}
	if o := t.locked[j.First()]; o == nil || j.At < o.Taken {
		return nil
	}
	return j
}

// findMade finds a job in the bundles that this transaction has made.
func (t *bundleTx) findMade(id perdure.JobID) *bundledJob {
	for _, b := range t.made {
		if at, found := b.Find(id); found {
			t.addFound([]bundle.Place{{Bundle: b, At: at}})
			return t.found[id]
		}
	}
	return nil
}

// bundlePage is how many bundles one query of a search reads.
const bundlePage = 20

// bundleHead is a bundle as a search finds it. Its first job that has not left comes no earlier than at.
type bundleHead struct {
	first       perdure.JobID
	taken, size int
	at          kernel.Candidate
}

func scanBundleHead(r *pgwire.Reader) bundleHead {
	f := bundleHead{first: r.UUID(), taken: r.Int(), size: r.Int()}
	f.at = kernel.Candidate{StepRef: kernel.StepRef{Job: f.first}, Order: r.Int64()}
	return f
}

// selectBundles reads the next page of an agent's bundles, in the order of dispatch. Bundles of full types are left out.
func selectBundles(agent string, types []string, after kernel.Candidate, found *[]bundleHead) *pgwire.Statement {
	var leftOut pgwire.Cells
	for _, typ := range types {
		leftOut.Int8(int64(kernel.LaneOf(typ, "")))
	}
	return pgwire.Into(pgwire.New(bundlesSQL).Text(agent).Int(bundlePage).Array(pgwire.Int8, len(types), leftOut).Int64(after.Order).UUID(after.Job), found, scanBundleHead)
}

// readyOfBundles adds the first steps of jobs in bundles to what a search has found. It locks these bundles, so that a
// concurrent search finds others. Only if they do not suffice, it also adds steps of bundles that other transactions
// have locked, which cannot be dispatched now. A search for one step locks nothing, because it may only compare.
func (tx *tx) readyOfBundles(agent string, max int, types []string, page []bundleHead, found *[]cache.ReadyEntry) error {
	var open, elsewhere []bundle.Open
	for len(page) > 0 {
		have := 0
		for _, o := range open {
			have += len(o.Jobs) - o.Taken
		}
		if have >= max && kernel.ClaimLess(bundle.Next(open, max)[max-1].Candidate(), page[0].at) < 0 {
			break
		}
		n, jobs := 0, 0 // as many as may be needed
		for n < len(page) && (n == 0 || have+jobs < max) {
			jobs += page[n].size - page[n].taken
			n++
		}
		got, busy, err := tx.openBundles(page[:n], max > 1)
		if err != nil {
			return err
		}
		open, elsewhere = append(open, got...), append(elsewhere, busy...)
		last := page[n-1].at
		if page = page[n:]; len(page) == 0 && n > 0 {
			if err := tx.run(selectBundles(agent, types, last, &page)); err != nil {
				return err
			}
		}
	}
	next := bundle.Next(open, max)
	if missing := max - len(next) - len(*found); missing > 0 {
		next = append(next, bundle.Next(elsewhere, missing)...)
	}
	tx.bundles.addFound(next)
	*found = slices.Grow(*found, len(next))
	for _, p := range next {
		c := p.Candidate()
		*found = append(*found, cache.EntryOf(agent, p.Lane(), c))
	}
	return nil
}

// openBundles reads the contents of bundles. With lock, it also locks those that no other transaction has locked.
func (tx *tx) openBundles(found []bundleHead, lock bool) (open, elsewhere []bundle.Open, err error) {
	firsts := make([]perdure.JobID, 0, len(found))
	for _, f := range found {
		if o := tx.bundles.locked[f.first]; o != nil {
			open = append(open, *o)
		} else {
			firsts = append(firsts, f.first)
		}
	}
	if len(firsts) == 0 {
		return open, nil, nil
	}
	contents, err := tx.bundleContents(firsts)
	if err != nil {
		return nil, nil, err
	}
	locked := map[perdure.JobID]int{}
	if lock {
		if locked, err = tx.lockBundles(lockMode{}, uuids(pgwire.New(tryBundlesSQL), firsts)); err != nil {
			return nil, nil, err
		}
	}
	for _, f := range found {
		b := contents[f.first]
		if b == nil {
			continue // the bundle is gone, or was locked before and is in open
		}
		taken, ours := locked[f.first]
		switch {
		case ours:
			o := &bundle.Open{Bundle: b, Taken: taken}
			tx.bundles.lock(o)
			open = append(open, *o)
		case lock:
			elsewhere = append(elsewhere, bundle.Open{Bundle: b, Taken: f.taken})
		default:
			open = append(open, bundle.Open{Bundle: b, Taken: f.taken})
		}
	}
	return open, elsewhere, nil
}

// lockBundles locks bundles and returns, for each, how many jobs have left it.
func (tx *tx) lockBundles(how lockMode, st *pgwire.Statement) (taken map[perdure.JobID]int, err error) {
	taken = map[perdure.JobID]int{}
	list := how.statements(tx, []*pgwire.Statement{st.Each(func(r *pgwire.Reader) error {
		first := r.UUID()
		taken[first] = r.Int()
		return nil
	})})
	return taken, tx.run(append(list, tx.readClock())...)
}

// withoutRows returns those jobs that may be in a bundle: it leaves out jobs of which a search has found a row.
func (tx *tx) withoutRows(ids []perdure.JobID) []perdure.JobID {
	if len(ids) == 0 || len(tx.readyRows) == 0 {
		return ids
	}
	rows := make(map[perdure.JobID]bool, len(tx.readyRows))
	for ref := range tx.readyRows {
		rows[ref.Job] = true
	}
	return slices.DeleteFunc(ids, func(id perdure.JobID) bool { return rows[id] })
}

// bundleContents returns those of these bundles that exist.
func (tx *tx) bundleContents(firsts []perdure.JobID) (map[perdure.JobID]*bundle.Bundle, error) {
	tx.store.cache.Bundles.UseServer(tx.cache.Rows.Server)
	found := make(map[perdure.JobID]*bundle.Bundle, len(firsts))
	var missing []perdure.JobID
	for _, first := range firsts {
		if b := tx.store.cache.Bundles.Get(first); b != nil {
			found[first] = b
		} else {
			missing = append(missing, first)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	var read []*bundle.Bundle
	if err := tx.run(pgwire.Into(uuids(pgwire.New(contentsSQL), missing), &read, scanBundle)); err != nil {
		return nil, err
	}
	for _, b := range read {
		found[b.First()] = b
		tx.store.cache.Bundles.Add(b)
	}
	return found, nil
}

func scanBundle(r *pgwire.Reader) *bundle.Bundle {
	b := &bundle.Bundle{Common: bundle.Common{Agent: r.Word(), Type: r.Word(), Step: r.Word(), Priority: r.Int(), Ageing: time.Duration(r.Int64()) * time.Microsecond,
		Shape: kernel.ShapeID(r.UUID()), Steps: r.Int(), CreatedAt: r.Time()}}
	b.Jobs = pgwire.Elements(r.Next(), func(v []byte) bundle.Job { return bundle.Job{ID: perdure.JobID(v)} })
	hashes := r.Next()
	for i := range b.Jobs {
		copy(b.Jobs[i].Hash[:], hashes[32*i:])
	}
	for i, in := range inputsOf(r.Next()) {
		b.Jobs[i].Input = in
	}
	return b
}

// inputsOf reads an array of inputs. An element may be null.
func inputsOf(v []byte) (list []json.RawMessage) {
	v = slices.Clone(v)
	n := int(binary.BigEndian.Uint32(v[12:]))
	v = v[20:]
	for range n {
		size := int32(binary.BigEndian.Uint32(v))
		if v = v[4:]; size < 0 {
			list = append(list, nil)
			continue
		}
		list = append(list, json.RawMessage(v[:size:size]))
		v = v[size:]
	}
	return list
}

// lockInBundles locks the bundles of jobs that have no rows, and returns these jobs.
func (tx *tx) lockInBundles(ids []perdure.JobID, how lockMode) (jobs []*kernel.Job, err error) {
	var lows pgwire.Cells
	for _, id := range ids {
		lows.UUID(bundle.Low(id))
	}
	taken, err := tx.lockBundles(how, uuids(pgwire.New(lockBundlesSQL+how.skip), ids).Array(pgwire.UUID, len(ids), lows))
	if err != nil || len(taken) == 0 {
		return nil, err
	}
	contents, err := tx.bundleContents(slices.Collect(maps.Keys(taken)))
	if err != nil {
		return nil, err
	}
	for first, b := range contents {
		if tx.bundles.locked[first] == nil {
			tx.bundles.lock(&bundle.Open{Bundle: b, Taken: taken[first]})
		}
		for _, id := range ids {
			if at, found := b.Find(id); found && at >= tx.bundles.locked[first].Taken {
				tx.bundles.addFound([]bundle.Place{{Bundle: b, At: at}})
				jobs = append(jobs, tx.unpack(tx.bundles.found[id]))
			}
		}
	}
	return jobs, nil
}

// tryLockBundles locks the bundles of jobs that a search has found without locking them.
func (tx *tx) tryLockBundles(ids []perdure.JobID) error {
	if len(tx.bundles.found) == 0 {
		return nil
	}
	of := map[perdure.JobID]*bundle.Bundle{}
	var firsts []perdure.JobID
	for _, id := range ids {
		p := tx.bundles.found[id]
		if p != nil && tx.bundles.locked[p.First()] == nil && of[p.First()] == nil {
			of[p.First()] = p.Bundle
			firsts = append(firsts, p.First())
		}
	}
	if len(firsts) == 0 {
		return nil
	}
	taken, err := tx.lockBundles(lockMode{}, uuids(pgwire.New(tryBundlesSQL), firsts))
	for first, n := range taken {
		tx.bundles.lock(&bundle.Open{Bundle: of[first], Taken: n})
	}
	return err
}

// unpackLocked returns the jobs that are in locked bundles, and the ids of the others.
func (tx *tx) unpackLocked(ids []perdure.JobID) (jobs []*kernel.Job, others []perdure.JobID) {
	if len(tx.bundles.locked) == 0 {
		return nil, ids
	}
	for _, id := range ids {
		if j := tx.bundles.find(id); j != nil {
			jobs = append(jobs, tx.unpack(j))
		} else {
			others = append(others, id)
		}
	}
	return jobs, others
}

// unpack adds a job of a locked bundle to the rows that this transaction knows.
func (tx *tx) unpack(j *bundledJob) *kernel.Job {
	j.Make(j.At, &j.submitted.job, &j.submitted.step)
	implicit, _ := tx.store.cache.Shapes.Of(j.Shape, tx.cache.Rows.Server)
	j.cached = cache.NewJob(&j.submitted.job, &j.submitted.step, implicit)
	tx.cache.Rows.Put(j.submitted.job.ID, j.cached)
	return &j.submitted.job
}

// inBundle returns a step of a job that a search has found in a bundle; nil if the job was not found there, or has left.
func (tx *tx) inBundle(ref kernel.StepRef) (*kernel.Step, error) {
	p := tx.bundles.found[ref.Job]
	if p == nil {
		return nil, nil
	}
	if o := tx.bundles.locked[p.First()]; o != nil && p.At < o.Taken {
		return nil, nil
	}
	if _, locked := tx.lockedRows[ref.Job]; locked || tx.cache.Rows.Job(ref.Job) != p.cached { // the job has left the bundle, and has rows
		return nil, nil
	}
	row := &jobRow{}
	if p.Make(p.At, &row.job, &row.step); ref.Index == 0 {
		return &row.step, nil
	}
	implicit, err := tx.implicitOf(p.Shape)
	for i := range implicit {
		if implicit[i].Index == ref.Index {
			s := implicit[i].Step(&row.job)
			return &s, err
		}
	}
	return nil, err
}

// stepsInBundle returns the steps of a job that is in a locked bundle.
func (tx *tx) stepsInBundle(p *bundledJob) ([]*kernel.Step, error) {
	row := &jobRow{}
	p.Make(p.At, &row.job, &row.step)
	implicit, err := tx.implicitOf(p.Shape)
	w := implicitSteps{&row.job, implicit}
	return w.insertInto([]*kernel.Step{&row.step}, perdure.MaxSteps), err
}

// implicitOf returns the implicit steps of a shape.
func (tx *tx) implicitOf(id kernel.ShapeID) ([]cache.ImplicitStep, error) {
	if list, known := tx.store.cache.Shapes.Of(id, tx.cache.Rows.Server); known {
		return list, nil
	}
	if tx.cache.Shapes == nil {
		tx.cache.Shapes = map[kernel.ShapeID][]cache.ImplicitStep{}
	}
	if list, known := tx.cache.Shapes[id]; known {
		return list, nil
	}
	err := tx.run(selectImplicit([]kernel.ShapeID{id}, tx.cache.Shapes))
	return tx.cache.Shapes[id], err
}

// ——— writing ———

// insertBundles puts new jobs into bundles, and returns the jobs that get rows.
func (w *writing) insertBundles(all []kernel.NewJob) []kernel.NewJob {
	least := w.tx.store.leastBundle
	if !speed.Bundles.On() {
		least = 0
	}
	made, rest := bundle.Collect(all, least, func(n *kernel.NewJob) bool {
		implicit := w.implicit[n.Job.Shape]
		if len(implicit) < len(n.Steps)-1 {
			return false
		}
		for _, s := range n.Steps[1:] {
			if !cache.IsImplicit(implicit, n.Job, s) {
				return false
			}
		}
		return true
	})
	for _, b := range made {
		w.add(insertBundle(b))
		w.tx.bundles.made = append(w.tx.bundles.made, b)
		w.tx.bundles.lock(&bundle.Open{Bundle: b})
	}
	if len(made) > 0 && w.tx.bundles.xid == 0 {
		w.add(pgwire.New("select pg_current_xact_id()").Each(func(r *pgwire.Reader) error {
			w.tx.bundles.xid = binary.BigEndian.Uint64(r.Next())
			return nil
		}))
	}
	return rest
}

func insertBundle(b *bundle.Bundle) *pgwire.Statement {
	first := b.Candidate(0)
	var ids, inputs pgwire.Cells
	hashes := make([]byte, 0, 32*len(b.Jobs))
	for i := range b.Jobs {
		j := &b.Jobs[i]
		ids.UUID(j.ID)
		inputs.NullBytes(j.Input)
		hashes = append(hashes, j.Hash[:]...)
	}
	return pgwire.New(insertBundleSQL).UUID(first.Job).UUID(b.Jobs[len(b.Jobs)-1].ID).Text(b.Agent).Int64(int64(b.Lane())).Int64(first.Order).Int(len(b.Jobs)).
		Text(b.Type).Text(b.Step).Int(b.Priority).Int64(b.Ageing.Microseconds()).UUID(b.Shape).Int(b.Steps).Moment(b.CreatedAt).
		Array(pgwire.UUID, len(b.Jobs), ids).Bytes(hashes).Array(pgwire.Bytea, len(b.Jobs), inputs).Exact(1)
}

// leavingJobs says up to which index jobs leave each bundle with this Save.
type leavingJobs struct {
	tx     *bundleTx
	upTo   map[*bundle.Open]int
	latest *bundledJob // consecutive changes mostly belong to the same job
}

// add records that a job leaves its bundle, and returns it; nil if it is in none.
func (l *leavingJobs) add(id perdure.JobID) *bundledJob {
	if l.latest != nil && l.latest.Jobs[l.latest.At].ID == id {
		return l.latest
	}
	j := l.tx.find(id)
	if j == nil {
		return nil
	}
	o := l.tx.locked[j.First()]
	l.upTo[o] = max(l.upTo[o], j.At+1)
	l.latest = j
	return j
}

// leaveBundles inserts the rows of jobs in bundles that are changed, and of the jobs that come before them in their
// bundles. It returns the changes to other jobs.
func (w *writing) leaveBundles(jobs []kernel.JobChange, steps []kernel.StepChange) (otherJobs []kernel.JobChange, otherSteps []kernel.StepChange) {
	if len(w.tx.bundles.locked) == 0 {
		return jobs, steps
	}
	leaving := leavingJobs{tx: &w.tx.bundles, upTo: map[*bundle.Open]int{}}
	var further []kernel.StepChange
	for _, ch := range jobs {
		if j := leaving.add(ch.Now.ID); j != nil {
			w.stale = w.stale || !j.WasJob(ch.Loaded)
			j.leaving.job = ch.Now
		} else {
			otherJobs = append(otherJobs, ch)
		}
	}
	for _, ch := range steps {
		j := leaving.add(ch.Now.Job)
		switch {
		case j == nil:
			otherSteps = append(otherSteps, ch)
		case ch.Now.Index == 0:
			w.stale = w.stale || !bundle.WasStep(ch.Loaded)
			j.leaving.step = ch.Now
		default:
			further = append(further, ch)
		}
	}
	if len(leaving.upTo) == 0 {
		return jobs, steps
	}
	open := slices.SortedFunc(maps.Keys(leaving.upTo), func(a, b *bundle.Open) int { return a.First().Compare(b.First()) })
	w.insertLeaving(open, leaving.upTo)
	w.advanceBundles(open, leaving.upTo)
	for i := range further {
		w.queues.stepChanged(further[i].Loaded, further[i].Now)
	}
	w.upsertImplicit(further)
	return otherJobs, otherSteps
}

// insertLeaving inserts the rows of the jobs that leave these bundles. If many leave one, they get a statement of their
// own: the columns that are equal in all rows of a bundle become one parameter each.
func (w *writing) insertLeaving(open []*bundle.Open, upTo map[*bundle.Open]int) {
	var few []newRow
	for _, o := range open {
		rows := make([]newRow, 0, upTo[o]-o.Taken)
		for at := o.Taken; at < upTo[o]; at++ {
			r := w.rowOf(o, at)
			w.queues.jobChanged(nil, r.job)
			w.queues.stepChanged(nil, r.step)
			rows = append(rows, r)
		}
		if len(rows) >= manyRows/2 {
			w.add(insertRows(rows, noColumns))
		} else {
			few = append(few, rows...)
		}
	}
	for part := range slices.Chunk(few, maxRows) {
		w.add(insertRows(part, noColumns))
	}
}

// advanceBundles stores how many jobs have left these bundles, and deletes those that are empty.
func (w *writing) advanceBundles(open []*bundle.Open, upTo map[*bundle.Open]int) {
	var firsts, olds, news, emptied, emptiedOlds pgwire.Cells
	remain, empty := 0, 0
	for _, o := range open {
		if upTo[o] == len(o.Jobs) {
			emptied.UUID(o.First())
			emptiedOlds.Int4(o.Taken)
			empty++
			w.tx.bundles.emptied = append(w.tx.bundles.emptied, o.First())
		} else {
			firsts.UUID(o.First())
			olds.Int4(o.Taken)
			news.Int4(upTo[o])
			remain++
		}
		o.Taken = upTo[o]
	}
	if remain > 0 {
		w.add(pgwire.New(takeBundlesSQL).Array(pgwire.UUID, remain, firsts).Array(pgwire.Int4, remain, olds).Array(pgwire.Int4, remain, news).Exact(remain))
	}
	if empty > 0 {
		w.add(pgwire.New(deleteBundlesSQL).Array(pgwire.UUID, empty, emptied).Array(pgwire.Int4, empty, emptiedOlds).Exact(empty))
	}
}

// rowOf returns the row of a job that leaves its bundle: as it is changed, or as it was submitted.
func (w *writing) rowOf(o *bundle.Open, at int) (r newRow) {
	j := w.tx.bundles.found[o.Jobs[at].ID]
	if j != nil {
		r = j.leaving
	}
	if r.job == nil || r.step == nil {
		row := &jobRow{}
		o.Make(at, &row.job, &row.step)
		r = newRow{cmp.Or(r.job, &row.job), cmp.Or(r.step, &row.step)}
	}
	return r
}

// committed caches the bundles that were made, and removes those that are empty.
func (t *bundleTx) committed(store *cache.Bundles) {
	for _, b := range t.made {
		if !slices.Contains(t.emptied, b.First()) {
			store.Add(b)
		}
	}
	for _, first := range t.emptied {
		store.Remove(first)
	}
}
