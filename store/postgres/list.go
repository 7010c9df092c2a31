package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const alertFields = "id, job, step, kind, name, message, raised_at, closed_at, closed_by"

func scanAlert(r *pgwire.Reader) kernel.Alert {
	return kernel.Alert{ID: r.Int64(), Job: r.UUID(), Step: r.Text(), Kind: perdure.AlertKind(r.Text()), Name: r.Text(),
		Message: r.Text(), RaisedAt: r.Time(), ClosedAt: r.Time(), ClosedBy: r.Text()}
}

// list is a query that is being composed.
type list struct {
	*pgwire.Statement
	where []string
}

// and adds a condition. A ? in it stands for the parameter that was added last.
func (l *list) and(condition string) {
	l.where = append(l.where, strings.ReplaceAll(condition, "?", fmt.Sprintf("$%d", l.Params())))
}

// finish composes the text of the statement.
func (l *list) finish(selectFrom, order string, limit int) *pgwire.Statement {
	where := "true"
	if len(l.where) > 0 {
		where = strings.Join(l.where, " and ")
	}
	l.Int(cmp.Or(limit, perdure.DefaultListLimit))
	l.SQL = fmt.Sprintf("%s where %s order by %s limit $%d", selectFrom, where, order, l.Params())
	return l.Statement
}

func (s *Store) ListJobs(ctx context.Context, f kernel.JobFilter) ([]*kernel.Job, error) {
	bundled, err := s.listBundled(ctx, f)
	if err != nil {
		return nil, err
	}
	rows, err := query(ctx, s, listJobs(f), scanJob)
	if err != nil || len(bundled) == 0 {
		return rows, err
	}
	return bundle.Merge(bundled, rows, f.Ascending, cmp.Or(f.Limit, perdure.DefaultListLimit)), nil
}

// listJobs reads jobs by id, or by type and id. Unsettled jobs are read by the tables that contain only those, and jobs
// with a label by table label.
func listJobs(f kernel.JobFilter) *pgwire.Statement {
	l := &list{Statement: &pgwire.Statement{}}
	from, id, order := " from perdure.step s", "s.job", ""
	labels := slices.Sorted(maps.Keys(f.Labels))
	switch {
	case len(labels) > 0:
		from, id = " from perdure.label l cross join lateral (select * from perdure.step where job = l.job and idx = 0 offset 0) s", "l.job"
		l.Text(labels[0]).Text(f.Labels[labels[0]])
		l.where = append(l.where, "l.name = $1 and l.value = $2")
		if len(labels) > 1 {
			l.JSON(marshal(f.Labels))
			l.and("s.labels @> ?")
		}
	case f.Key != "":
		l.Text(f.Key)
		l.and("s.job_key = ? and s.job_key is not null")
		order = "s.job_key" // there is at most one
	case f.Phase != nil && *f.Phase == perdure.Running:
		from, id = " from"+unsettledSQL+firstOfOpenSQL, "o.job"
	case f.Phase != nil && *f.Phase != perdure.Settled:
		from, id = " from perdure.open o"+firstOfOpenSQL, "o.job"
	case f.Type != "":
		l.and("s.shape is not null")
	}
	if len(l.where) == 0 && id == "s.job" {
		l.and("s.idx = 0")
	}
	if f.Phase != nil {
		l.Int(int(*f.Phase))
		l.and("s.job_phase = ?")
	}
	if f.Current != nil {
		l.Int(int(*f.Current))
		l.and("s.job_current = ?")
	}
	if f.Desired != nil {
		l.Int(int(*f.Desired))
		l.and("s.job_desired = ?")
	}
	if f.Type != "" {
		l.Text(f.Type)
		l.and("s.type = ?")
	}
	if f.Key != "" && len(labels) > 0 {
		l.Text(f.Key)
		l.and("s.job_key = ?")
	}
	if !f.Before.IsZero() {
		l.UUID(f.Before)
		l.and(id + " < ?")
	}
	if !f.After.IsZero() {
		l.UUID(f.After)
		l.and(id + " > ?")
	}
	switch {
	case order != "":
	case f.Ascending:
		order = id
	default:
		order = id + " desc"
	}
	return l.finish("select "+names(jobColumns, "s.")+from, order, f.Limit)
}

func (s *Store) Alerts(ctx context.Context, f kernel.AlertFilter) ([]kernel.Alert, error) {
	return query(ctx, s, listAlerts(f), scanAlert)
}

func listAlerts(f kernel.AlertFilter) *pgwire.Statement {
	l := &list{Statement: &pgwire.Statement{}}
	if !f.Job.IsZero() {
		l.UUID(f.Job)
		l.and("job = ?")
	}
	if !f.Closed {
		l.and("closed_at is null and id > 0")
	}
	if f.Before != 0 {
		l.Int64(f.Before)
		l.and("id < ?")
	}
	return l.finish("select "+alertFields+" from perdure.alert", "id desc", f.Limit)
}
