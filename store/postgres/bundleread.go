package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
)

// Screens read jobs in bundles, too. Whoever reads both bundles and rows reads the bundles first: a job that leaves its bundle
// meanwhile is found there or has rows by then.

const (
	// oneBundled is one job of a bundle b, as a bundle.
	oneBundled = `b.agent, b.type, b.name, b.priority, b.ageing, b.shape, b.steps, b.created_at, array[u.job], substr(b.hashes, 32 * u.n::int - 31, 32), b.inputs[u.n:u.n]`

	bundledSQL = `select ` + oneBundled + `, (select later from perdure.shape where id = b.shape)
		from perdure.bundle b cross join lateral (select $1::uuid as job, array_position(b.jobs, $1) as n) u
		where b.first >= $2 and b.first <= $1 and b.last >= $1 and u.n > b.taken`

	// The next bundles before an id, and from an id on, by their first jobs.
	bundlesBelowSQL = `select first from perdure.bundle where first < $1 and ($2 = '' or type = $2) order by first desc limit $3`
	bundlesAboveSQL = `select first from perdure.bundle where first >= $1 and ($2 = '' or type = $2) order by first limit $3`

	// bundledFromSQL are the jobs of the bundles whose first jobs are in a range.
	bundledFromSQL = `select b.agent, b.type, b.name, b.priority, b.ageing, b.shape, b.steps, b.created_at, array[u.job],
			substr(b.hashes, 32 * u.n::int - 31, 32), array[u.input]
		from perdure.bundle b cross join lateral unnest(b.jobs, b.inputs) with ordinality as u (job, input, n)
		where b.first >= $1 and b.first < $2 and ($3 = '' or b.type = $3) and u.n > b.taken and u.job > $4 and u.job < $5`

	// withHashSQL are the bundles of a type that have these bytes among their hashes.
	withHashSQL = `select first, taken from perdure.bundle where type = $1 and position($2 in hashes) > 0`
)

// bundledJobs are some jobs in bundles, as they were submitted.
type bundledJobs struct {
	rows  []*readRow
	later [][]laterStep
}

func (f *bundledJobs) scan(r *reader) error {
	b, row := scanBundle(r), &readRow{}
	b.Make(0, &row.job, &row.step)
	f.rows = append(f.rows, row)
	if len(r.values) == 0 {
		return nil
	}
	later, err := scanLater(r)
	f.later = append(f.later, later)
	return err
}

// one is the query for one job.
func (f *bundledJobs) one(id perdure.JobID) *statement {
	*f = bundledJobs{}
	return q(bundledSQL).uuid(id).uuid(bundle.Low(id)).each(f.scan)
}

// into gives the steps of the one job, if there is one.
func (f *bundledJobs) into(w *waiters, steps []*kernel.Step) []*kernel.Step {
	if len(steps) > 0 || len(f.rows) == 0 {
		return steps
	}
	w.job, w.later = &f.rows[0].job, f.later[0]
	return []*kernel.Step{&f.rows[0].step}
}

// highest comes after all ids.
var highest = perdure.JobID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// bundlesAtOnce is how many bundles a list reads at once, or a few more.
const bundlesAtOnce = 20

// listBundled are the jobs of a list that are in bundles: it walks the bundles by their ids until there are enough.
func (s *Store) listBundled(ctx context.Context, f kernel.JobFilter) ([]*kernel.Job, error) {
	if !bundle.May(f) {
		return nil, nil
	}
	limit := cmp.Or(f.Limit, perdure.DefaultListLimit)
	below := f.Before
	if below.IsZero() {
		below = highest
	}
	var found bundledJobs
	from, to := bundle.Low(f.After), highest
	if !f.Ascending && !f.Before.IsZero() {
		to = bundle.High(f.Before)
	}
	for {
		st := q(bundlesBelowSQL).uuid(to)
		if f.Ascending {
			st = q(bundlesAboveSQL).uuid(from)
		}
		firsts, err := query(ctx, s, st.text(f.Type).int(bundlesAtOnce), scanID)
		if err != nil || len(firsts) == 0 {
			return found.list(f.Ascending, limit), err
		}
		// The ids of bundles of the same time may overlap, so these are read together.
		low, high, last := from, to, firsts[len(firsts)-1]
		if f.Ascending {
			high = bundle.High(last)
			from = high
		} else {
			low = bundle.Low(last)
			to = low
		}
		done := f.Ascending && high.Compare(below) > 0 || !f.Ascending && low.Compare(f.After) <= 0
		order := " order by u.job desc limit $6"
		if f.Ascending {
			order = " order by u.job limit $6"
		}
		var part bundledJobs
		err = s.send(ctx, func() []*statement {
			part = bundledJobs{}
			return []*statement{q(bundledFromSQL + order).uuid(low).uuid(high).text(f.Type).uuid(f.After).uuid(below).int(limit - len(found.rows)).each(part.scan)}
		})
		found.rows = append(found.rows, part.rows...)
		if err != nil || done || len(found.rows) >= limit || len(firsts) < bundlesAtOnce {
			return found.list(f.Ascending, limit), err
		}
	}
}

func (f *bundledJobs) list(ascending bool, limit int) []*kernel.Job {
	jobs := make([]*kernel.Job, len(f.rows))
	for i, row := range f.rows {
		jobs[i] = &row.job
	}
	return mergeJobs(jobs, nil, ascending, limit)
}

// mergeJobs makes one list of two. A job that is in both is as the second has it.
func mergeJobs(bundled, rows []*kernel.Job, ascending bool, limit int) []*kernel.Job {
	all := append(slices.Clone(rows), bundled...)
	slices.SortStableFunc(all, func(a, b *kernel.Job) int {
		if ascending {
			return a.ID.Compare(b.ID)
		}
		return b.ID.Compare(a.ID)
	})
	all = slices.CompactFunc(all, func(a, b *kernel.Job) bool { return a.ID == b.ID })
	return all[:min(len(all), limit)]
}

// hashInBundles is the newest job in a bundle that has this fingerprint.
func (tx *tx) hashInBundles(typ string, hash [32]byte) (id perdure.JobID, found bool, err error) {
	taken := map[perdure.JobID]int{}
	var firsts []perdure.JobID
	err = tx.run(q(withHashSQL).text(typ).bytes(hash[:]).each(func(r *reader) error {
		first := perdure.JobID(r.uuid())
		taken[first] = r.int()
		firsts = append(firsts, first)
		return nil
	}))
	if err != nil || len(firsts) == 0 {
		return id, false, err
	}
	contents, err := tx.contents(firsts)
	for first, b := range contents {
		for _, j := range b.Jobs[taken[first]:] {
			if j.Hash == hash && (!found || j.ID.Compare(id) > 0) {
				id, found = j.ID, true
			}
		}
	}
	return id, found, err
}
