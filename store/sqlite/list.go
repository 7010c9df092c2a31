package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
	"github.com/perdure/perdure/store/internal/rows"
)

// ListJobs reads jobs from the sources that the kernel names, each through its index, until there are enough.
func (s *Store) ListJobs(ctx context.Context, f kernel.JobFilter) (jobs []*kernel.Job, stopped perdure.JobID, err error) {
	limit := cmp.Or(f.Limit, perdure.DefaultListLimit)
	err = s.with(ctx, func(c *conn) error {
		if jobs, err = bundle.List(f, &listing{c, f}); err != nil {
			return err
		}
		for _, src := range kernel.SourcesOf(&f) {
			r, err := openSource(c, &f, src, !src.Covers(&f))
			if err != nil {
				return err
			}
			query, args := r.text(jobSelect, limit)
			found, err := transient(c, readJob, query, args...)
			if err != nil {
				return err
			}
			if len(found) < limit {
				stopped = bundle.First(stopped, r.end, f.Ascending)
			}
			jobs = bundle.Merge(jobs, found, f.Ascending, limit)
		}
		return nil
	})
	return bundle.UpTo(jobs, stopped, f.Ascending), stopped, err
}

// CountJobs counts the jobs in each source, and those in bundles.
func (s *Store) CountJobs(ctx context.Context, f kernel.JobFilter) (n int, stopped perdure.JobID, err error) {
	limit := cmp.Or(f.Limit, perdure.DefaultListLimit)
	err = s.with(ctx, func(c *conn) error {
		var sources []*source
		for _, src := range kernel.SourcesOf(&f) {
			r, err := openSource(c, &f, src, src == kernel.AllJobs || !src.Covers(&f))
			if err != nil {
				return err
			}
			sources, stopped = append(sources, r), bundle.First(stopped, r.end, f.Ascending)
		}
		for _, r := range sources {
			r.until(stopped)
			query, args := r.text(`1`, limit)
			found, err := transient(c, (*row).int, `SELECT count(*) FROM (`+query+`)`, args...)
			if err != nil {
				return err
			}
			n += found[0]
		}
		bundled, err := countBundled(c, bundle.Until(f, stopped))
		n = min(n+bundled, limit)
		return err
	})
	return n, stopped, err
}

// source is a query that reads the jobs of a source.
type source struct {
	from, id  string
	where     []string
	args      []any
	ascending bool
	end       perdure.JobID // the last job that may be read; zero: all may be read
}

func (q *source) and(condition string, args ...any) {
	q.where, q.args = append(q.where, condition), append(q.args, args...)
}

// text composes the text of the query.
func (q *source) text(columns string, limit int) (string, []any) {
	query := `SELECT ` + columns + ` FROM ` + q.from
	if len(q.where) > 0 {
		query += ` WHERE ` + strings.Join(q.where, ` AND `)
	}
	return query + ` ORDER BY ` + q.id + q.order() + ` LIMIT ?`, append(slices.Clone(q.args), atMost(limit))
}

func (q *source) order() string {
	if q.ascending {
		return ``
	}
	return ` DESC`
}

// openSource composes the query of a source. If it is bounded, it reads at most f.MaxRead entries of the source's index.
func openSource(c *conn, f *kernel.JobFilter, src kernel.Source, bounded bool) (*source, error) {
	q := &source{from: "perdure_step j", id: "j.job", ascending: f.Ascending}
	if err := q.entries(c, f, src); err != nil {
		return nil, err
	}
	if !f.Before.IsZero() {
		q.and(q.id+` < ?`, f.Before[:])
	}
	if !f.After.IsZero() {
		q.and(q.id+` > ?`, f.After[:])
	}
	if bounded && f.MaxRead > 0 {
		query, args := q.text(q.id, 1)
		found, err := transient(c, (*row).id, query+` OFFSET ?`, append(args, f.MaxRead-1)...)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			q.end = found[0]
			q.until(q.end)
		}
	}
	if src == kernel.AllJobs || src == kernel.JobOfKey { // until here, the steps of large jobs count for the bound
		q.and(`j.idx = 0`)
	}
	q.filter(f)
	return q, nil
}

// until leaves out jobs that come after one in the order of the list.
func (q *source) until(end perdure.JobID) {
	switch {
	case end.IsZero():
	case q.ascending:
		q.and(q.id+` <= ?`, end[:])
	default:
		q.and(q.id+` >= ?`, end[:])
	}
}

// entries selects the entries of a source's index.
func (q *source) entries(c *conn, f *kernel.JobFilter, src kernel.Source) error {
	const first = ` CROSS JOIN perdure_step j ON j.idx = 0 AND j.job = `
	switch src {
	case kernel.AllJobs:
	case kernel.JobOfKey:
		q.and(`j.job_key = ?`, f.Key)
	case kernel.JobsOfType:
		q.and(`j.idx = 0 AND j.type = ?`, f.Type)
	case kernel.JobsOfLabel:
		name := slices.Sorted(maps.Keys(f.Labels))[0]
		q.from, q.id = `perdure_label l`+first+`l.job`, `l.job`
		q.and(`l.name = ? AND l.value = ?`, name, f.Labels[name])
	case kernel.JobsOfAlert:
		q.from, q.id = `(SELECT DISTINCT job FROM perdure_alert WHERE closed_at IS NULL AND kind = ?) o`+first+`o.job`, `o.job`
		q.args = append(q.args, string(f.Alert))
	case kernel.JobsInFlight:
		steps, err := stepsInFlight(c)
		if err != nil {
			return err
		}
		q.from, q.id = `(SELECT DISTINCT s.job FROM json_each(?) e CROSS JOIN perdure_step s ON s.id = e.value) o`+first+`o.job`, `o.job`
		q.args = append(q.args, steps)
		q.and(`coalesce(j.running, 0) > 0`)
	case kernel.JobsIdle:
		q.and(`j.open = 1 AND coalesce(j.running, 0) = 0`)
	default:
		q.and(`j.` + nameOf(colParked+rows.ID(src.Exception()-kernel.ExceptionParked)) + ` IS NOT NULL`)
	}
	return nil
}

// filter compares the filter with each job. A + hides a column from the planner, so that it uses the source's index.
func (q *source) filter(f *kernel.JobFilter) {
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		q.and(`EXISTS (SELECT 1 FROM perdure_label m WHERE m.name = ? AND m.value = ? AND m.job = j.job)`, name, f.Labels[name])
	}
	if f.Key != "" {
		q.and(`+j.job_key = ?`, f.Key)
	}
	if f.Type != "" {
		q.and(`+j.type = ?`, f.Type)
	}
	if len(f.Phases) > 0 {
		words := make([]string, len(f.Phases))
		for i, p := range f.Phases {
			words[i] = strconv.Itoa(int(p))
		}
		q.and(`coalesce(j.job_phase, 0) IN (` + strings.Join(words, `, `) + `)`)
	}
	if f.Current != nil {
		q.and(`coalesce(j.job_current, 0) = ?`, int(*f.Current))
	}
	if f.Desired != nil {
		q.and(`coalesce(j.job_desired, 0) = ?`, int(*f.Desired))
	}
	if f.OfSteps() {
		condition, values := `x.job = j.job AND coalesce(x.phase, 0) <> 0 AND coalesce(x.blockers, 0) = 0`, []any(nil)
		for _, c := range []struct{ column, value string }{{`+x.agent`, f.Agent}, {`x.name`, f.Step}, {`x.error_code`, f.ErrorCode}} {
			if c.value != "" {
				condition, values = condition+` AND `+c.column+` = ?`, append(values, c.value)
			}
		}
		q.and(`coalesce(j.job_phase, 0) <> 0 AND EXISTS (SELECT 1 FROM perdure_step x WHERE `+condition+`)`, values...)
	}
	if f.Alert != "" {
		q.and(`EXISTS (SELECT 1 FROM perdure_alert y WHERE y.job = j.job AND y.closed_at IS NULL AND y.kind = ?)`, string(f.Alert))
	}
}

// stepsInFlight returns the rows of all runs in flight, as a JSON list. Some of them may have ended.
func stepsInFlight(c *conn) (string, error) {
	ids := []int64{}
	err := each(c, func(r *row) error {
		set := storedSet{steps: r.bytes()}
		for i := range len(set.steps) / 8 {
			ids = append(ids, set.step(i))
		}
		return nil
	}, `SELECT steps FROM perdure_out`)
	if err != nil {
		return "", err
	}
	list, err := json.Marshal(ids)
	return string(list), err
}

// SearchJobs searches the keys in their order, and each of the labels' names for the value.
func (s *Store) SearchJobs(ctx context.Context, text string, max int) (ids []perdure.JobID, err error) {
	err = s.with(ctx, func(c *conn) error {
		if ids, err = all(c, (*row).id, `SELECT job FROM perdure_step WHERE job_key >= ?1 AND job_key < ?1 || char(1114111) ORDER BY job_key `+limitTo, text, atMost(max)); err != nil {
			return err
		}
		names, err := all(c, (*row).text, `WITH RECURSIVE n (name) AS (SELECT min(name) FROM perdure_label
			UNION ALL SELECT (SELECT min(l.name) FROM perdure_label l WHERE l.name > n.name) FROM n WHERE n.name IS NOT NULL)
			SELECT name FROM n WHERE name IS NOT NULL LIMIT ?`, kernel.MaxLabelNames)
		if err != nil {
			return err
		}
		var labelled []perdure.JobID
		for _, name := range names {
			found, err := all(c, (*row).id, `SELECT job FROM perdure_label WHERE name = ? AND value = ? ORDER BY job DESC LIMIT ?`, name, text, atMost(max))
			if err != nil {
				return err
			}
			labelled = append(labelled, found...)
		}
		labelled = kernel.NewestFirst(labelled)
		ids = kernel.NewestFirst(append(ids, labelled[:min(len(labelled), max)]...))
		return nil
	})
	return ids, err
}
