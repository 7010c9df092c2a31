package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const alertFields = "id, job, type, job_key, step, kind, code, attempts, name, message, raised_at, closed_at, closed_by"

func scanAlert(r *pgwire.Reader) kernel.Alert {
	return kernel.Alert{ID: r.Int64(), Job: r.UUID(), Type: r.Text(), JobKey: r.Text(), Step: r.Text(), Kind: perdure.AlertKind(r.Text()), Code: r.Text(), Attempts: r.Int(), Name: r.Text(),
		Message: r.Text(), RaisedAt: r.Time(), ClosedAt: r.Time(), ClosedBy: r.Text()}
}

// list is a query that is being composed.
type list struct {
	*pgwire.Statement
	from, id, order string
	where           []string
}

// and adds a condition. A ? in it stands for the parameter that was added last.
func (l *list) and(condition string) {
	l.where = append(l.where, strings.ReplaceAll(condition, "?", fmt.Sprintf("$%d", l.Params())))
}

// finish composes the text of the statement.
func (l *list) finish(columns string, limit int) *pgwire.Statement {
	where := "true"
	if len(l.where) > 0 {
		where = strings.Join(l.where, " and ")
	}
	l.Int(cmp.Or(limit, perdure.DefaultListLimit))
	l.SQL = fmt.Sprintf("%s%s where %s order by %s limit $%d", columns, l.from, where, l.order, l.Params())
	return l.Statement
}

// ListJobs reads jobs from the sources that the kernel names, each through its index, until there are enough.
func (s *Store) ListJobs(ctx context.Context, f kernel.JobFilter) (jobs []*kernel.Job, stopped perdure.JobID, err error) {
	limit := cmp.Or(f.Limit, perdure.DefaultListLimit)
	if jobs, err = s.listBundled(ctx, f); err != nil {
		return nil, stopped, err
	}
	for _, src := range kernel.SourcesOf(&f) {
		end, err := s.endOf(ctx, &f, src, !src.Covers(&f))
		if err != nil {
			return nil, stopped, err
		}
		found, err := query(ctx, s, listJobs(bundle.Until(f, end), src).finish("select "+names(jobColumns, "s."), limit), scanJob)
		if err != nil {
			return nil, stopped, err
		}
		if len(found) < limit {
			stopped = bundle.First(stopped, end, f.Ascending)
		}
		jobs = bundle.Merge(jobs, found, f.Ascending, limit)
	}
	return bundle.UpTo(jobs, stopped, f.Ascending), stopped, nil
}

// CountJobs counts the jobs in each source, and those in bundles.
func (s *Store) CountJobs(ctx context.Context, f kernel.JobFilter) (n int, stopped perdure.JobID, err error) {
	limit := cmp.Or(f.Limit, perdure.DefaultListLimit)
	sources := kernel.SourcesOf(&f)
	for _, src := range sources {
		end, err := s.endOf(ctx, &f, src, src == kernel.AllJobs || !src.Covers(&f))
		if err != nil {
			return 0, stopped, err
		}
		stopped = bundle.First(stopped, end, f.Ascending)
	}
	f = bundle.Until(f, stopped)
	if n, err = s.countBundled(ctx, f); err != nil {
		return 0, stopped, err
	}
	for _, src := range sources {
		st := listJobs(f, src).finish("select 1", limit)
		st.SQL = "select count(*) from (" + st.SQL + ") j"
		found, err := query(ctx, s, st, (*pgwire.Reader).Int)
		if err != nil {
			return 0, stopped, err
		}
		n += found[0]
	}
	return min(n, limit), stopped, nil
}

// endOf returns the last job of a source that may be read, if the read is bounded; zero if all may be read.
func (s *Store) endOf(ctx context.Context, f *kernel.JobFilter, src kernel.Source, bounded bool) (end perdure.JobID, err error) {
	if !bounded || f.MaxRead <= 0 {
		return end, nil
	}
	l := entries(f, src)
	st := l.finish("select "+l.id, 1)
	st.Int(f.MaxRead - 1)
	st.SQL += fmt.Sprintf(" offset $%d", st.Params())
	found, err := query(ctx, s, st, scanID)
	if len(found) > 0 {
		end = found[0]
	}
	return end, err
}

// entries selects the entries of a source's index, in the order of the list.
func entries(f *kernel.JobFilter, src kernel.Source) *list {
	l := &list{Statement: &pgwire.Statement{}, from: " from perdure.step s", id: "s.job"}
	switch src {
	case kernel.AllJobs:
	case kernel.JobOfKey:
		l.Text(f.Key)
		l.and("s.job_key = ? and s.job_key is not null")
		l.order = "s.job_key" // there is at most one
	case kernel.JobsOfType:
		l.Text(f.Type)
		l.and("s.shape is not null and s.type = ?")
	case kernel.JobsOfLabel:
		l.from, l.id = " from perdure.label o"+firstOfOpenSQL, "o.job"
		name := slices.Sorted(maps.Keys(f.Labels))[0]
		l.Text(name).Text(f.Labels[name])
		l.where = append(l.where, "o.name = $1 and o.value = $2")
	case kernel.JobsOfAlert:
		l.from, l.id = " from (select distinct job from perdure.alert where closed_at is null and kind <> '' and kind = $1) o"+firstOfOpenSQL, "o.job"
		l.Text(string(f.Alert))
	case kernel.JobsInFlight:
		l.from, l.id = " from (select distinct m.job from (select jobs from perdure.out order by until_at, id) t, unnest(t.jobs) as m (job)) o"+firstOfOpenSQL, "o.job"
		l.where = append(l.where, "s.running > 0")
	case kernel.JobsIdle:
		l.from, l.id = " from perdure.open o"+firstOfOpenSQL, "o.job"
		l.where = append(l.where, "coalesce(s.running, 0) = 0")
	default:
		l.from, l.id = " from perdure.exception o"+firstOfOpenSQL, "o.job"
		l.where = append(l.where, fmt.Sprintf("o.kind = %d", src.Exception()))
	}
	if !f.Before.IsZero() {
		l.UUID(f.Before)
		l.and(l.id + " < ?")
	}
	if !f.After.IsZero() {
		l.UUID(f.After)
		l.and(l.id + " > ?")
	}
	if l.order == "" {
		l.order = l.id
		if !f.Ascending {
			l.order += " desc"
		}
	}
	return l
}

// listJobs reads the jobs of a source that match the filter.
func listJobs(f kernel.JobFilter, src kernel.Source) *list {
	l := entries(&f, src)
	if src == kernel.AllJobs {
		l.where = append(l.where, "s.idx = 0")
	}
	if labels := len(f.Labels); labels > 1 || labels > 0 && src != kernel.JobsOfLabel {
		l.JSON(marshal(f.Labels))
		l.and("s.labels @> ?")
	}
	if len(f.Phases) > 0 {
		phases := make([]string, len(f.Phases))
		for i, p := range f.Phases {
			phases[i] = strconv.Itoa(int(p))
		}
		l.where = append(l.where, "s.job_phase in ("+strings.Join(phases, ", ")+")")
	}
	if f.Current != nil {
		l.Int(int(*f.Current))
		l.and("s.job_current = ?")
	}
	if f.Desired != nil {
		l.Int(int(*f.Desired))
		l.and("s.job_desired = ?")
	}
	if f.Type != "" && src != kernel.JobsOfType {
		l.Text(f.Type)
		l.and("s.type = ?")
	}
	if f.Alert != "" {
		l.Text(string(f.Alert))
		l.and("exists (select from perdure.alert y where y.job = s.job and y.closed_at is null and y.kind = ? offset 0)")
	}
	if f.OfSteps() {
		l.ofSteps(&f)
	}
	return l
}

// ofSteps compares the filter with the job's steps that wait for no other step. Steps without a row wait for others.
func (l *list) ofSteps(f *kernel.JobFilter) {
	condition := "x.job = s.job and x.phase <> 0 and coalesce(x.blockers, 0) = 0"
	for _, c := range []struct{ column, value string }{{"agent", f.Agent}, {"name", f.Step}, {"error_code", f.ErrorCode}} {
		if c.value != "" {
			l.Text(c.value)
			condition += fmt.Sprintf(" and x.%s = $%d", c.column, l.Params())
		}
	}
	// With "offset 0" the planner can only look up the steps of one job after the other.
	l.where = append(l.where, "s.job_phase <> 0 and exists (select from perdure.step x where "+condition+" offset 0)")
}

const (
	keysFromSQL  = `select job from perdure.step where job_key >= $1 and job_key < $2 and job_key is not null order by job_key limit $3`
	withValueSQL = `with recursive n (name) as ((select name from perdure.label order by name limit 1)
		union all select (select l.name from perdure.label l where l.name > n.name order by l.name limit 1) from n where n.name is not null)
		select l.job from (select name from n where name is not null limit $3) n
		cross join lateral (select job from perdure.label l where l.name = n.name and l.value = $1 order by job desc limit $2) l order by l.job desc limit $2`
	lastCharacter = "\U0010ffff"
)

// SearchJobs searches the keys in their order, and each of the labels' names for the value.
func (s *Store) SearchJobs(ctx context.Context, text string, max int) ([]perdure.JobID, error) {
	var ids []perdure.JobID
	err := s.send(ctx, func() []*pgwire.Statement {
		ids = nil
		return []*pgwire.Statement{
			pgwire.Into(pgwire.New(keysFromSQL).Text(text).Text(text+lastCharacter).Int(max), &ids, scanID),
			pgwire.Into(pgwire.New(withValueSQL).Text(text).Int(max).Int(kernel.MaxLabelNames), &ids, scanID),
		}
	})
	return kernel.NewestFirst(ids), err
}

func (s *Store) Alerts(ctx context.Context, f kernel.AlertFilter) ([]kernel.Alert, error) {
	return query(ctx, s, listAlerts(f), scanAlert)
}

func listAlerts(f kernel.AlertFilter) *pgwire.Statement {
	l := &list{Statement: &pgwire.Statement{}, from: " from perdure.alert", order: "id desc"}
	if !f.Job.IsZero() {
		l.UUID(f.Job)
		l.and("job = ?")
	}
	// The open alerts with one value are found by its index, which has the condition that the value is not empty.
	indexed := f.Closed || !f.Job.IsZero()
	for _, c := range []struct{ column, value string }{{"code", f.Code}, {"step", f.Step}, {"type", f.Type}, {"kind", string(f.Kind)}} {
		if c.value == "" {
			continue
		}
		l.Text(c.value)
		l.and(c.column + " = ?")
		if !indexed {
			l.and("closed_at is null and " + c.column + " <> ''")
			indexed = true
		}
	}
	if !f.Closed {
		l.and("closed_at is null")
		if !indexed {
			l.and("id > 0")
		}
	}
	if f.After != 0 {
		l.Int64(f.After)
		l.and("id > ?")
	}
	if f.Before != 0 {
		l.Int64(f.Before)
		l.and("id < ?")
	}
	return l.finish("select "+alertFields, f.Limit)
}
