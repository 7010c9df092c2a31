package sqlite

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
	"github.com/perdure/perdure/store/internal/bundle"
)

// A job in a bundle (see package bundle) has no row. Here bundles contain jobs with one step: all steps of other jobs
// have rows. A transaction that changes a job in a bundle inserts its row, and rows for the jobs that come before it in
// the bundle. So the number of jobs that have left, taken, says which jobs are still in it.

// openBundle is a bundle that a transaction has read or made.
type openBundle struct {
	bundle.Open
	upTo int // jobs before this index leave the bundle with this Save
}

// bundleTx is what one transaction knows of bundles.
type bundleTx struct {
	open    map[perdure.JobID]*openBundle // by the bundle's first job
	made    []*openBundle
	found   map[perdure.JobID]placeInBundle // jobs that a search has found
	leaving []*openBundle
}

// placeInBundle is a job in a bundle, by its index.
type placeInBundle struct {
	of *openBundle
	at int
}

const (
	bundleColumns = `agent, type, name, priority, ageing, shape, created_at, jobs, hashes, inputs, ends, taken`

	insertBundle = `INSERT INTO perdure_bundle (first, last, agent, lane, ord, size, type, name, priority, ageing, shape, created_at, jobs, hashes, inputs, ends)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	selectBundle = `SELECT ` + bundleColumns + ` FROM perdure_bundle WHERE first = ?`

	// withJob selects the bundles that may contain a job.
	withJob = `FROM perdure_bundle WHERE first >= ?1 AND first <= ?2 AND last >= ?2`
)

// ——— writing ———

// insertBundles puts new jobs into bundles, and returns the jobs that get rows.
func (tx *tx) insertBundles(jobs []kernel.NewJob) (rest []kernel.NewJob, err error) {
	if !speed.Bundles.On() {
		return jobs, nil
	}
	made, rest := bundle.Collect(jobs, tx.store.leastBundle, func(n *kernel.NewJob) bool {
		return len(n.Steps) == 1
	})
	for _, b := range made {
		first, last := b.Candidate(0), b.Jobs[len(b.Jobs)-1].ID
		ids, hashes, inputs, ends := pack(b)
		if err := tx.exec(insertBundle, first.Job[:], last[:], b.Agent, int64(b.Lane()), first.Order, len(b.Jobs), b.Type, b.Step, b.Priority, b.Ageing.Microseconds(),
			b.Shape[:], b.CreatedAt.UnixMicro(), ids, hashes, inputs, ends); err != nil {
			return nil, err
		}
		tx.bundles.made = append(tx.bundles.made, tx.bundles.add(b, 0))
	}
	return rest, nil
}

// pack returns the columns of a bundle that hold what differs between its jobs. The inputs are concatenated. The end of
// each is a number of eight digits, which SQL can read.
func pack(b *bundle.Bundle) (ids, hashes, inputs []byte, ends string) {
	ids, hashes = make([]byte, 0, 16*len(b.Jobs)), make([]byte, 0, 32*len(b.Jobs))
	digits := make([]byte, 0, endDigits*len(b.Jobs))
	for i := range b.Jobs {
		j := &b.Jobs[i]
		ids, hashes, inputs = append(ids, j.ID[:]...), append(hashes, j.Hash[:]...), append(inputs, j.Input...)
		digits = fmt.Appendf(digits, "%0*d", endDigits, len(inputs))
	}
	return ids, hashes, inputs, textOf(digits)
}

// endDigits is enough for bundle.MaxBytes and one more input.
const endDigits = 8

// unpack returns the jobs of a bundle.
func unpack(ids, hashes, inputs, ends []byte) ([]bundle.Job, error) {
	n := len(ids) / 16
	if n == 0 || len(ids) != 16*n || len(hashes) != 32*n || len(ends) != endDigits*n {
		return nil, fmt.Errorf("a bundle has %d bytes of ids, %d of hashes and %d of ends", len(ids), len(hashes), len(ends))
	}
	jobs := make([]bundle.Job, n)
	for i, from := 0, 0; i < n; i++ {
		j := &jobs[i]
		copy(j.ID[:], ids[16*i:])
		copy(j.Hash[:], hashes[32*i:])
		end, err := strconv.Atoi(textOf(ends[endDigits*i:][:endDigits]))
		if err != nil || end < from || end > len(inputs) {
			return nil, fmt.Errorf("an input of a bundle ends at %q of %d bytes", ends[endDigits*i:][:endDigits], len(inputs))
		}
		if end > from {
			j.Input = inputs[from:end:end]
		}
		from = end
	}
	return jobs, nil
}

func (t *bundleTx) add(b *bundle.Bundle, taken int) *openBundle {
	if t.open == nil {
		t.open = map[perdure.JobID]*openBundle{}
	}
	o := &openBundle{Open: bundle.Open{Bundle: b, Taken: taken}}
	t.open[b.First()] = o
	return o
}

// leave records that a job leaves its bundle with this Save.
func (t *bundleTx) leave(in placeInBundle) {
	if in.of.upTo <= in.of.Taken {
		t.leaving = append(t.leaving, in.of)
	}
	in.of.upTo = max(in.of.upTo, in.at+1)
}

// leaveBundles inserts rows for the jobs that leave their bundles, and for those before them.
func (tx *tx) leaveBundles() error {
	for _, o := range tx.bundles.leaving {
		for at := o.Taken; at < o.upTo; at++ {
			k := tx.rows[kernel.StepRef{Job: o.Jobs[at].ID}]
			if k == nil {
				k = tx.rowOf(placeInBundle{o, at})
			}
			k.bundled, k.job.Input = placeInBundle{}, slices.Clone(k.job.Input) // a row that is cached must not refer to the bundle
			if err := tx.addRow(k); err != nil {
				return err
			}
		}
	}
	if err := tx.flush(); err != nil {
		return err
	}
	for _, o := range tx.bundles.leaving {
		first := o.First()
		query, args := `UPDATE perdure_bundle SET taken = ?3 WHERE first = ?1 AND taken = ?2`, []any{first[:], o.Taken, o.upTo}
		if o.upTo == len(o.Jobs) {
			query, args = `DELETE FROM perdure_bundle WHERE first = ?1 AND taken = ?2`, args[:2]
		}
		if n, err := tx.changed(query, args...); err != nil || n != 1 {
			return cmp.Or(err, kernel.ErrStale)
		}
		o.Taken = o.upTo
	}
	tx.bundles.leaving = tx.bundles.leaving[:0]
	return nil
}

// rowOf returns the row that a job in a bundle would have, as it was submitted.
func (tx *tx) rowOf(in placeInBundle) *storedRow {
	k := newStoredRow(kernel.StepRef{})
	in.of.Make(in.at, k.job, &k.step)
	k.bundled = in
	tx.rows[k.step.StepRef] = k
	return k
}

// ——— reading, in a transaction that writes ———

// bundled returns the row that a job in a bundle would have; nil if the job is in none.
func (tx *tx) bundled(ref kernel.StepRef) (*storedRow, error) {
	if ref.Index != 0 {
		return nil, nil
	}
	in, found, err := tx.findBundled(ref.Job)
	if err != nil || !found {
		return nil, err
	}
	return tx.rowOf(in), nil
}

// bundledByThis does the same for a job that this transaction has put into a bundle.
func (tx *tx) bundledByThis(ref kernel.StepRef) *storedRow {
	for _, o := range tx.bundles.made {
		if at, found := o.Find(ref.Job); found && at >= o.Taken {
			return tx.rowOf(placeInBundle{o, at})
		}
	}
	return nil
}

func (tx *tx) findBundled(id perdure.JobID) (in placeInBundle, found bool, err error) {
	low := bundle.Low(id)
	firsts, err := all(tx.c, (*row).id, `SELECT first `+withJob, low[:], id[:])
	if err != nil {
		return in, false, err
	}
	for _, first := range firsts {
		o, err := tx.openBundle(first)
		if err != nil {
			return in, false, err
		}
		if at, found := o.Find(id); found && at >= o.Taken {
			return placeInBundle{o, at}, true, nil
		}
	}
	return in, false, nil
}

// openBundle returns a bundle that exists.
func (tx *tx) openBundle(first perdure.JobID) (*openBundle, error) {
	if o := tx.bundles.open[first]; o != nil {
		return o, nil
	}
	if known, ok := tx.store.cache.bundles[first]; ok {
		delete(tx.store.cache.bundles, first)
		return tx.bundles.add(known.Bundle, known.Taken), nil
	}
	found, err := all(tx.c, readBundle, selectBundle, first[:])
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("the bundle of job %s is gone", first)
	}
	if err != nil {
		return nil, err
	}
	return tx.bundles.add(found[0].Bundle, found[0].Taken), nil
}

// readBundle reads bundleColumns.
func readBundle(r *row) bundle.Open {
	b := &bundle.Bundle{Common: bundle.Common{Agent: r.word(), Type: r.word(), Step: r.word(), Priority: r.int(), Ageing: time.Duration(r.num()) * time.Microsecond, Steps: 1}}
	r.blob(b.Shape[:])
	b.CreatedAt = r.time()
	var err error
	if b.Jobs, err = unpack(r.bytes(), r.bytes(), r.bytes(), r.bytes()); err != nil {
		r.err = cmp.Or(r.err, err)
		return bundle.Open{}
	}
	return bundle.Open{Bundle: b, Taken: r.int()}
}

// bundlePage is how many bundles one query of a search reads.
const bundlePage = 20

// bundleLanes returns the lanes in which the agent has bundles, by one jump in the index for each.
func (tx *tx) bundleLanes(agent string) ([]kernel.LaneID, error) {
	return all(tx.c, func(r *row) kernel.LaneID { return kernel.LaneID(r.num()) }, `
		WITH RECURSIVE lane (lane) AS (
			SELECT (SELECT min(lane) FROM perdure_bundle WHERE agent = ?1)
			UNION ALL
			SELECT (SELECT min(b.lane) FROM perdure_bundle b WHERE b.agent = ?1 AND b.lane > lane.lane) FROM lane WHERE lane IS NOT NULL
		)
		SELECT lane FROM lane WHERE lane IS NOT NULL`, agent)
}

// readyOfBundles returns the first ready steps in the bundles of a lane.
func (tx *tx) readyOfBundles(agent string, lane kernel.LaneID, max int) ([]kernel.Candidate, error) {
	var open []bundle.Open
	have, last := 0, kernel.Candidate{Order: -1 << 63}
	for whole := false; !whole; {
		page, err := all(tx.c, func(r *row) kernel.Candidate {
			return kernel.Candidate{Order: r.num(), StepRef: kernel.StepRef{Job: r.id()}}
		}, `SELECT ord, first FROM perdure_bundle WHERE agent = ? AND lane = ? AND (ord, first) > (?, ?) ORDER BY ord, first `+limitTo, agent, int64(lane), last.Order, last.Job[:], bundlePage)
		if err != nil {
			return nil, err
		}
		whole = len(page) < bundlePage
		for _, last = range page {
			if have >= max && kernel.ClaimLess(bundle.Next(open, max)[max-1].Candidate(), last) < 0 {
				whole = true
				break
			}
			o, err := tx.openBundle(last.Job)
			if err != nil {
				return nil, err
			}
			open = append(open, o.Open)
			have += len(o.Jobs) - o.Taken
		}
	}
	next := bundle.Next(open, max)
	if tx.bundles.found == nil {
		tx.bundles.found = make(map[perdure.JobID]placeInBundle, len(next))
	}
	found := make([]kernel.Candidate, len(next))
	for i, p := range next {
		found[i] = p.Candidate()
		tx.bundles.found[found[i].Job] = placeInBundle{tx.bundles.open[p.First()], p.At}
	}
	return found, nil
}

// hashInBundles returns the newest job in a bundle that has this hash.
func (tx *tx) hashInBundles(typ string, hash [32]byte) (id perdure.JobID, err error) {
	firsts, err := all(tx.c, (*row).id, `SELECT first FROM perdure_bundle WHERE type = ? AND instr(hashes, ?) > 0`, typ, hash[:])
	for _, first := range firsts {
		o, err := tx.openBundle(first)
		if err != nil {
			return id, err
		}
		for _, j := range o.Jobs[o.Taken:] {
			if j.Hash == hash && j.ID.Compare(id) > 0 {
				id = j.ID
			}
		}
	}
	return id, err
}

// maxCachedBundles bounds the bundles in the cache.
const maxCachedBundles = 256

// committed caches the bundles that still contain jobs.
func (t *bundleTx) committed(k *cache) {
	for first, o := range t.open {
		if last := o.Jobs[len(o.Jobs)-1].ID; last.Compare(k.newestJob) > 0 {
			k.newestJob = last
		}
		if o.Taken < len(o.Jobs) {
			k.bundles[first] = o.Open
		}
	}
	shrink(k.bundles, maxCachedBundles)
}

// lastBundledID returns an id that is not less than that of any job in a bundle.
func lastBundledID(c *conn) (newest perdure.JobID, err error) {
	first, err := one(c, (*row).id, `SELECT max(first) FROM perdure_bundle`)
	if !first.IsZero() {
		newest = bundle.High(first)
	}
	return newest, err
}
