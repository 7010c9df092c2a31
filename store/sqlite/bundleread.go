package sqlite

import (
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
)

// Reads for views include jobs in bundles. They read bundles before rows: a job that leaves its bundle in between is
// found there, or its row is visible by then.

// bundledJob returns a job in a bundle, with its step; nil if it is in none.
func bundledJob(c *conn, id perdure.JobID) (*kernel.Job, *kernel.Step, error) {
	low := bundle.Low(id)
	found, err := all(c, readBundle, `SELECT `+bundleColumns+` `+withJob, low[:], id[:])
	for _, o := range found {
		if at, there := o.Find(id); there && at >= o.Taken {
			j, s := &kernel.Job{}, &kernel.Step{}
			o.Make(at, j, s)
			return j, s, err
		}
	}
	return nil, nil, err
}

// listing is a bundle.Reader.
type listing struct {
	c *conn
	kernel.JobFilter
}

func (l *listing) Firsts(bound perdure.JobID, max int) ([]perdure.JobID, error) {
	query := `SELECT first FROM perdure_bundle WHERE first < ?1 AND (?2 = '' OR type = ?2) AND (?3 = '' OR agent = ?3) AND (?4 = '' OR name = ?4) ORDER BY first DESC `
	if l.Ascending {
		query = `SELECT first FROM perdure_bundle WHERE first >= ?1 AND (?2 = '' OR type = ?2) AND (?3 = '' OR agent = ?3) AND (?4 = '' OR name = ?4) ORDER BY first `
	}
	return all(l.c, (*row).id, query+limitTo, bound[:], l.Type, l.Agent, l.Step, atMost(max))
}

// Jobs reads the bundles one after the other, until the next one cannot contain a job of the list.
func (l *listing) Jobs(in bundle.Range, max int) (jobs []*kernel.Job, err error) {
	inOrder, order := func(a, b *kernel.Job) int { return b.ID.Compare(a.ID) }, `DESC`
	if l.Ascending {
		inOrder, order = func(a, b *kernel.Job) int { return a.ID.Compare(b.ID) }, ``
	}
	firsts, err := all(l.c, (*row).id, `SELECT first FROM perdure_bundle WHERE first >= ?1 AND first < ?2 AND (?3 = '' OR type = ?3)
		AND (?4 = '' OR agent = ?4) AND (?5 = '' OR name = ?5) ORDER BY first `+order, in.Low[:], in.High[:], l.Type, l.Agent, l.Step)
	for _, first := range firsts {
		if err != nil || len(jobs) >= max && l.past(first, jobs[max-1].ID) {
			break
		}
		var found []bundle.Open
		found, err = all(l.c, readBundle, selectBundle, first[:])
		for _, o := range found {
			for at := o.Taken; at < len(o.Jobs); at++ {
				if id := o.Jobs[at].ID; id.Compare(in.After) > 0 && id.Compare(in.Before) < 0 {
					j := &kernel.Job{}
					o.Make(at, j, &kernel.Step{})
					jobs = append(jobs, j)
				}
			}
		}
		slices.SortFunc(jobs, inOrder)
	}
	return jobs[:min(len(jobs), max)], err
}

// past reports whether all jobs of a bundle come after the last job of a list that is full.
func (l *listing) past(first, last perdure.JobID) bool {
	if l.Ascending {
		return first.Compare(last) > 0
	}
	return bundle.High(first).Compare(last) < 0
}

// countBundled counts the jobs of a list that are in bundles.
func countBundled(c *conn, f kernel.JobFilter) (int, error) {
	if !bundle.May(f) {
		return 0, nil
	}
	after, before := f.After, f.Before
	if before.IsZero() {
		before = bundle.Highest
	}
	return one(c, (*row).int, `SELECT coalesce(sum(CASE WHEN first > ?1 AND last < ?2 THEN size - taken ELSE
			(SELECT count(*) FROM perdure_place n WHERE n.i >= taken AND n.i < size AND substr(jobs, 16 * n.i + 1, 16) > ?1 AND substr(jobs, 16 * n.i + 1, 16) < ?2) END), 0)
		FROM perdure_bundle WHERE last > ?1 AND first < ?2 AND (?3 = '' OR type = ?3) AND (?4 = '' OR agent = ?4) AND (?5 = '' OR name = ?5)`,
		after[:], before[:], f.Type, f.Agent, f.Step)
}
