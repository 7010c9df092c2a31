package sqlite

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
)

// ListJobs reads jobs by id, or by the index of the first label, the type or unsettled jobs, until there are enough.
func (s *Store) ListJobs(ctx context.Context, f kernel.JobFilter) (jobs []*kernel.Job, err error) {
	query, args := listJobs(f)
	err = s.with(ctx, func(c *conn) error {
		bundled, err := bundle.List(f, &listing{c, f})
		if err != nil {
			return err
		}
		if jobs, err = transient(c, readJob, query, args...); len(bundled) > 0 {
			jobs = bundle.Merge(bundled, jobs, f.Ascending, cmp.Or(f.Limit, perdure.DefaultListLimit))
		}
		return err
	})
	return jobs, err
}

func listJobs(f kernel.JobFilter) (string, []any) {
	q := filter{from: "perdure_step j", id: "j.job"}
	for i, name := range slices.Sorted(maps.Keys(f.Labels)) {
		if i == 0 { // the first label selects the index; the others are looked up
			q.from, q.id = "perdure_label CROSS JOIN perdure_step j ON j.job = perdure_label.job", "perdure_label.job"
			q.and(`perdure_label.name = ? AND perdure_label.value = ?`, name, f.Labels[name])
		} else {
			q.and(`EXISTS (SELECT 1 FROM perdure_label l WHERE l.name = ? AND l.value = ? AND l.job = j.job)`, name, f.Labels[name])
		}
	}
	q.and(`j.idx = 0`)
	if f.Key != "" {
		q.and(`job_key = ?`, f.Key)
	}
	open := f.Phase != nil && *f.Phase != perdure.Settled
	switch {
	case f.Type != "" && open:
		q.and(`+type = ?`, f.Type) // there are fewer unsettled jobs
	case f.Type != "":
		q.and(`type = ?`, f.Type)
	}
	if f.Phase != nil {
		q.and(`coalesce(job_phase, 0) = ?`, int(*f.Phase))
	}
	if open {
		q.and(`open = 1`)
	}
	if f.Current != nil {
		q.and(`coalesce(job_current, 0) = ?`, int(*f.Current))
	}
	if f.Desired != nil {
		q.and(`coalesce(job_desired, 0) = ?`, int(*f.Desired))
	}
	if !f.Before.IsZero() {
		q.and(q.id+` < ?`, f.Before[:])
	}
	if !f.After.IsZero() {
		q.and(q.id+` > ?`, f.After[:])
	}
	order := q.id + ` DESC`
	if f.Ascending {
		order = q.id
	}
	return q.query(jobSelect, order, f.Limit)
}

// filter is a query that is being composed.
type filter struct {
	from, id string
	where    []string
	args     []any
}

func (q *filter) and(condition string, args ...any) {
	q.where, q.args = append(q.where, condition), append(q.args, args...)
}

func (q *filter) query(columns, order string, limit int) (string, []any) {
	query := `SELECT ` + columns + ` FROM ` + q.from
	if len(q.where) > 0 {
		query += ` WHERE ` + strings.Join(q.where, ` AND `)
	}
	return query + ` ORDER BY ` + order + ` LIMIT ?`, append(q.args, atMost(cmp.Or(limit, perdure.DefaultListLimit)))
}
