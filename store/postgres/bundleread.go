package postgres

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// Reads for views include jobs in bundles. They read bundles before rows: a job that leaves its bundle in between is
// found there, or its rows are visible by then.

const (
	// oneBundled selects one job of bundle b as a bundle of its own.
	oneBundled = `b.agent, b.type, b.name, b.priority, b.ageing, b.shape, b.steps, b.created_at, array[u.job], substr(b.hashes, 32 * u.n::int - 31, 32), b.inputs[u.n:u.n]`

	bundledSQL = `select ` + oneBundled + `, (select later from perdure.shape where id = b.shape)
		from perdure.bundle b cross join lateral (select $1::uuid as job, array_position(b.jobs, $1) as n) u
		where b.first >= $2 and b.first <= $1 and b.last >= $1 and u.n > b.taken`

	bundledOfJobsSQL = `select ` + oneBundled + `, (select later from perdure.shape where id = b.shape)
		from unnest($1::uuid[], $2::uuid[]) as i (job, low)
		cross join lateral (select * from perdure.bundle where first >= i.low and first <= i.job and last >= i.job offset 0) b
		cross join lateral (select i.job, array_position(b.jobs, i.job) as n) u where u.n > b.taken`

	// These find the next bundles before an id, and from an id on, by their first jobs.
	bundleFilter    = `($2 = '' or type = $2) and ($3 = '' or agent = $3) and ($4 = '' or name = $4)`
	bundlesBelowSQL = `select first from perdure.bundle where first < $1 and ` + bundleFilter + ` order by first desc limit $5`
	bundlesAboveSQL = `select first from perdure.bundle where first >= $1 and ` + bundleFilter + ` order by first limit $5`

	// bundledFromSQL reads the jobs of bundles whose first jobs are in a range.
	bundledFromSQL = `select b.agent, b.type, b.name, b.priority, b.ageing, b.shape, b.steps, b.created_at, array[u.job],
			substr(b.hashes, 32 * u.n::int - 31, 32), array[u.input]
		from perdure.bundle b cross join lateral unnest(b.jobs, b.inputs) with ordinality as u (job, input, n)
		where b.first >= $5 and b.first < $6 and ` + bundleFilter + ` and u.n > b.taken and u.job > $7 and u.job < $1`

	// withHashSQL finds the bundles of a type whose hashes contain these bytes.
	withHashSQL = `select first, taken from perdure.bundle where type = $1 and position($2 in hashes) > 0`
)

// bundledJobs are some jobs in bundles, as they were submitted.
type bundledJobs struct {
	rows     []*jobRow
	implicit [][]cache.ImplicitStep
}

func (f *bundledJobs) scan(r *pgwire.Reader) error {
	b, row := scanBundle(r), &jobRow{}
	b.Make(0, &row.job, &row.step)
	f.rows = append(f.rows, row)
	if !r.More() {
		return nil
	}
	implicit, err := scanImplicit(r)
	f.implicit = append(f.implicit, implicit)
	return err
}

// one is the query for one job.
func (f *bundledJobs) one(id perdure.JobID) *pgwire.Statement {
	*f = bundledJobs{}
	return pgwire.New(bundledSQL).UUID(id).UUID(bundle.Low(id)).Each(f.scan)
}

// into returns the steps of the one job, if it was found in a bundle.
func (f *bundledJobs) into(w *implicitSteps, steps []*kernel.Step) []*kernel.Step {
	if len(steps) > 0 || len(f.rows) == 0 {
		return steps
	}
	w.job, w.implicit = &f.rows[0].job, f.implicit[0]
	return []*kernel.Step{&f.rows[0].step}
}

// listBundled returns the jobs of a list that are in bundles.
func (s *Store) listBundled(ctx context.Context, f kernel.JobFilter) ([]*kernel.Job, error) {
	return bundle.List(f, &listing{ctx, s, f})
}

// listing is a bundle.Reader.
type listing struct {
	ctx   context.Context
	store *Store
	kernel.JobFilter
}

func (l *listing) Firsts(bound perdure.JobID, max int) ([]perdure.JobID, error) {
	sql := bundlesBelowSQL
	if l.Ascending {
		sql = bundlesAboveSQL
	}
	return query(l.ctx, l.store, pgwire.New(sql).UUID(bound).Text(l.Type).Text(l.Agent).Text(l.Step).Int(max), scanID)
}

func (l *listing) Jobs(in bundle.Range, max int) ([]*kernel.Job, error) {
	order := " order by u.job desc limit $8"
	if l.Ascending {
		order = " order by u.job limit $8"
	}
	var found bundledJobs
	err := l.store.send(l.ctx, func() []*pgwire.Statement {
		found = bundledJobs{}
		return []*pgwire.Statement{pgwire.New(bundledFromSQL + order).UUID(in.Before).Text(l.Type).Text(l.Agent).Text(l.Step).UUID(in.Low).UUID(in.High).UUID(in.After).Int(max).Each(found.scan)}
	})
	jobs := make([]*kernel.Job, len(found.rows))
	for i, row := range found.rows {
		jobs[i] = &row.job
	}
	return jobs, err
}

// hashInBundles returns the newest job in a bundle that has this hash.
func (tx *tx) hashInBundles(typ string, hash [32]byte) (id perdure.JobID, found bool, err error) {
	taken := map[perdure.JobID]int{}
	var firsts []perdure.JobID
	err = tx.run(pgwire.New(withHashSQL).Text(typ).Bytes(hash[:]).Each(func(r *pgwire.Reader) error {
		first := perdure.JobID(r.UUID())
		taken[first] = r.Int()
		firsts = append(firsts, first)
		return nil
	}))
	if err != nil || len(firsts) == 0 {
		return id, false, err
	}
	contents, err := tx.bundleContents(firsts)
	for first, b := range contents {
		for _, j := range b.Jobs[taken[first]:] {
			if j.Hash == hash && (!found || j.ID.Compare(id) > 0) {
				id, found = j.ID, true
			}
		}
	}
	return id, found, err
}

// countBundledSQL counts jobs in bundles that are between two ids. Bundles that are so as a whole are not read.
const countBundledSQL = `select coalesce(sum(case when first > $5 and last < $1 then size - taken else
		(select count(*) from unnest(jobs) with ordinality as u (job, n) where u.n > taken and u.job > $5 and u.job < $1) end), 0)::bigint
	from perdure.bundle where last > $5 and first < $1 and ` + bundleFilter

// countBundled counts the jobs of a list that are in bundles.
func (s *Store) countBundled(ctx context.Context, f kernel.JobFilter) (int, error) {
	if !bundle.May(f) {
		return 0, nil
	}
	before := f.Before
	if before.IsZero() {
		before = bundle.Highest
	}
	found, err := query(ctx, s, pgwire.New(countBundledSQL).UUID(before).Text(f.Type).Text(f.Agent).Text(f.Step).UUID(f.After), (*pgwire.Reader).Int64)
	if err != nil {
		return 0, err
	}
	return int(found[0]), nil
}
