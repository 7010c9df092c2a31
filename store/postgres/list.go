package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"perdure"
)

const alertFields = "id, job, step, kind, name, message, raised_at, closed_at, closed_by"

func scanAlert(row pgx.CollectableRow) (*perdure.Alert, error) {
	a := &perdure.Alert{}
	return a, row.Scan(append([]any{&a.ID}, dests(alertColumns, a)...)...)
}

// list is a query in the making.
type list struct {
	where []string
	args  []any
}

// and adds a condition; each ? in it is the next of the values.
func (l *list) and(condition string, values ...any) {
	for _, v := range values {
		l.args = append(l.args, v)
		condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(l.args)), 1)
	}
	l.where = append(l.where, condition)
}

func (l *list) sql(selectFrom, order string, limit int) string {
	where := "true"
	if len(l.where) > 0 {
		where = strings.Join(l.where, " and ")
	}
	l.args = append(l.args, cmp.Or(limit, perdure.DefaultListLimit))
	return fmt.Sprintf("%s where %s order by %s limit $%d", selectFrom, where, order, len(l.args))
}

func (s *Store) ListJobs(ctx context.Context, f perdure.JobFilter) ([]*perdure.Job, error) {
	sql, args, err := listJobs(f)
	if err != nil {
		return nil, err
	}
	return query(ctx, s, scanJob, sql, args...)
}

// listJobs walks the table by id; the open ones by an index of their own; those with a label by the
// labels.
func listJobs(f perdure.JobFilter) (sql string, args []any, err error) {
	l := &list{}
	from, id := " from perdure.job j", "j.id"
	if labels := slices.Sorted(maps.Keys(f.Labels)); len(labels) > 0 {
		from, id = " from perdure.label l join perdure.job j on j.id = l.job", "l.job"
		l.and("l.name = ? and l.value = ?", labels[0], f.Labels[labels[0]])
		if len(labels) > 1 {
			all, err := json.Marshal(f.Labels)
			if err != nil {
				return "", nil, err
			}
			l.and("j.labels @> ?::jsonb", string(all))
		}
	}
	// Constants of the program, written out so that the partial indexes are seen to fit.
	if f.Phase != nil {
		l.and(fmt.Sprintf("j.phase = %d", *f.Phase))
		if *f.Phase != perdure.Settled {
			l.and("j.open")
		}
	}
	if f.Current != nil {
		l.and(fmt.Sprintf("j.current = %d", *f.Current))
	}
	if f.Desired != nil {
		l.and(fmt.Sprintf("j.desired = %d", *f.Desired))
	}
	if f.Type != "" {
		l.and("j.type = ?", f.Type)
	}
	if f.Key != "" {
		l.and("j.key = ? and j.key <> ''", f.Key)
	}
	if !f.Before.IsZero() {
		l.and(id+" < ?", [16]byte(f.Before))
	}
	if !f.After.IsZero() {
		l.and(id+" > ?", [16]byte(f.After))
	}
	order := id + " desc"
	if f.Ascending {
		order = id
	}
	sql = l.sql("select "+names(jobColumns, "j.")+from, order, f.Limit)
	return sql, l.args, nil
}

func (s *Store) Alerts(ctx context.Context, f perdure.AlertFilter) ([]perdure.Alert, error) {
	sql, args := listAlerts(f)
	return query(ctx, s, func(row pgx.CollectableRow) (perdure.Alert, error) {
		a, err := scanAlert(row)
		return *a, err
	}, sql, args...)
}

func listAlerts(f perdure.AlertFilter) (sql string, args []any) {
	l := &list{}
	if !f.Job.IsZero() {
		l.and("job = ?", [16]byte(f.Job))
	}
	if !f.Closed {
		l.and("closed_at is null and id > 0")
	}
	if f.Before != 0 {
		l.and("id < ?", f.Before)
	}
	sql = l.sql("select "+alertFields+" from perdure.alert", "id desc", f.Limit)
	return sql, l.args
}
