package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	scheduleColumns = `name, settings, version, paused, paused_cause, next_at, due_at, last_at, last_job, failures, fired, skipped_overlap, skipped_catch_up,
	backfill_from, backfill_until, backfill_next, backfill_parallel, backfill_again, backfill_agains, created_at, updated_at`
	scheduleSQL      = "select " + scheduleColumns + " from perdure.schedule where name = $1"
	lockSchedulesSQL = "select " + scheduleColumns + " from perdure.schedule where name = any($1) order by name for update"
	schedulesSQL     = "select " + scheduleColumns + " from perdure.schedule where name > $1 order by name limit $2"
	dueSchedulesSQL  = "select " + scheduleColumns + " from perdure.schedule where due_at <= $1 order by due_at, name limit $2"
	// newsOfSQL jumps from one schedule to the next, because one may have very many lines with news.
	newsOfSQL = `with recursive leap (name, n) as (
	(select schedule, 1 from perdure.firing where news order by schedule, nominal, again limit 1)
	union all
	select (select f.schedule from perdure.firing f where f.news and f.schedule > leap.name order by f.schedule, f.nominal, f.again limit 1), n + 1 from leap where leap.name is not null and n < $1
) select ` + scheduleColumns + ` from perdure.schedule where name = any(array(select name from leap where name is not null)) order by name limit $1`
	nextScheduleSQL   = "select min(due_at) from perdure.schedule where due_at > $1"
	countSchedulesSQL = "select count(*)::int from perdure.schedule"
	putScheduleSQL    = "insert into perdure.schedule (" + scheduleColumns + `)
values ($1, $2, $3, $4, $5, $6, $7, $8, nullif($9, '00000000-0000-0000-0000-000000000000'::uuid), $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
on conflict (name) do update set settings = excluded.settings, version = excluded.version, paused = excluded.paused, paused_cause = excluded.paused_cause,
	next_at = excluded.next_at, due_at = excluded.due_at, last_at = excluded.last_at, last_job = excluded.last_job, failures = excluded.failures,
	fired = excluded.fired, skipped_overlap = excluded.skipped_overlap, skipped_catch_up = excluded.skipped_catch_up,
	backfill_from = excluded.backfill_from, backfill_until = excluded.backfill_until, backfill_next = excluded.backfill_next, backfill_parallel = excluded.backfill_parallel,
	backfill_again = excluded.backfill_again, backfill_agains = excluded.backfill_agains, created_at = excluded.created_at, updated_at = excluded.updated_at`
	deleteScheduleSQL  = "delete from perdure.schedule where name = $1"
	deleteFiringsOfSQL = "delete from perdure.firing where schedule = $1"

	firingColumns = `schedule, nominal, again, until, times, state, reason, job, at, news, counted`
	newsSQL       = "select " + firingColumns + " from perdure.firing where schedule = $1 and news order by nominal, again limit $2"
	isOpenSQL     = "state in ('waiting', 'running', 'parked')"
	openSQL       = "select " + firingColumns + " from perdure.firing where schedule = $1 and not news and " + isOpenSQL + " order by nominal, again limit $2"
	// lockFiringsSQL locks the lines in the order of their keys, as the transactions of jobs do. A line that meanwhile has
	// settled or got news is returned as it is then.
	lockFiringsSQL = "select " + firingColumns + ` from perdure.firing where schedule = $1 and (nominal, again) in (
	(select nominal, again from perdure.firing where schedule = $1 and news order by nominal, again limit $2)
	union all
	(select nominal, again from perdure.firing where schedule = $1 and not news and ` + isOpenSQL + ` order by nominal, again limit $2))
order by nominal, again for update`
	firingsSQL   = "select " + firingColumns + " from perdure.firing where schedule = $1 and (nominal, again) < ($2, $3) order by nominal desc, again desc limit $4"
	putFiringSQL = "insert into perdure.firing (" + firingColumns + `)
values ($1, $2, $3, $4, $5, $6, $7, nullif($8, '00000000-0000-0000-0000-000000000000'::uuid), $9, $10, $11)
on conflict (schedule, nominal, again) do update set until = excluded.until, times = excluded.times, state = excluded.state, reason = excluded.reason,
	job = excluded.job, at = excluded.at, news = excluded.news, counted = excluded.counted`
	changeFiringSQL  = "update perdure.firing set state = $4, news = true where schedule = $1 and nominal = $2 and again = $3 and " + isOpenSQL
	forgetFiringsSQL = `delete from perdure.firing where (schedule, nominal, again) in (
	select schedule, nominal, again from perdure.firing where not news and state not in ('waiting', 'running', 'parked') and at < $1 order by at, schedule, nominal, again limit $2)`
)

// lastNominal follows every nominal time.
var lastNominal = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)

func scanSchedule(r *pgwire.Reader) *kernel.Schedule {
	s := &kernel.Schedule{Name: r.Text(), Settings: r.Bytes(), Version: r.Int64(), Paused: r.Bool(), PausedCause: r.Text(),
		Next: r.Time(), DueAt: r.Time(), Last: r.Time(), LastJob: r.UUID(), Failures: r.Int(), Fired: r.Int64(), SkippedOverlap: r.Int64(), SkippedCatchUp: r.Int64()}
	b := &s.Backfill
	b.From, b.Until, b.Next = r.Time(), r.Time(), r.Time()
	b.Parallel, b.Again, b.Agains = r.Int(), r.Int(), r.Int()
	s.CreatedAt, s.UpdatedAt = r.Time(), r.Time()
	return s
}

func scanFiring(r *pgwire.Reader) kernel.Firing {
	return kernel.Firing{Schedule: r.Text(), Nominal: r.Time(), Again: r.Int(), To: r.Time(), Times: r.Int64(), State: operate.FiringState(r.Text()), Reason: operate.FiringReason(r.Text()),
		Job: r.UUID(), At: r.Time(), News: r.Bool(), Counted: r.Bool()}
}

func (tx *tx) LockSchedules(names []string) (found []*kernel.Schedule, err error) {
	err = tx.run(pgwire.Into(pgwire.New(lockSchedulesSQL).Texts(names), &found, scanSchedule))
	return found, err
}

func (tx *tx) CountSchedules() (n int, err error) {
	err = tx.run(pgwire.New(countSchedulesSQL).Each(func(r *pgwire.Reader) error {
		n = r.Int()
		return r.Failed
	}))
	return n, err
}

func (tx *tx) PutSchedule(s *kernel.Schedule) error {
	tx.wrote = true
	if err := tx.start(); err != nil {
		return err
	}
	b := &s.Backfill
	tx.saved = append(tx.saved, pgwire.New(putScheduleSQL).Text(s.Name).Text(string(s.Settings)).Int64(s.Version).Bool(s.Paused).Text(s.PausedCause).
		Time(s.Next).Time(s.DueAt).Time(s.Last).UUID(s.LastJob).Int(s.Failures).Int64(s.Fired).Int64(s.SkippedOverlap).Int64(s.SkippedCatchUp).
		Time(b.From).Time(b.Until).Time(b.Next).Int(b.Parallel).Int(b.Again).Int(b.Agains).Time(s.CreatedAt).Time(s.UpdatedAt).Exact(1))
	return nil
}

func (tx *tx) DeleteSchedule(name string) (had bool, err error) {
	tx.wrote = true
	err = tx.run(pgwire.New(deleteFiringsOfSQL).Text(name), pgwire.New(deleteScheduleSQL).Text(name).Counted(func(n int64) { had = n > 0 }))
	return had, err
}

func (tx *tx) OpenFirings(schedule string, max int) (found []kernel.Firing, err error) {
	if max <= 0 {
		return nil, nil
	}
	if err = tx.run(pgwire.Into(pgwire.New(lockFiringsSQL).Text(schedule).Int(max), &found, scanFiring)); err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(f kernel.Firing) bool { return !f.News && !f.Unsettled() })
	return kernel.NewsFirst(found, max), nil
}

func (tx *tx) PutFirings(lines []kernel.Firing) error {
	if len(lines) == 0 {
		return nil
	}
	tx.wrote = true
	if err := tx.start(); err != nil {
		return err
	}
	lines = slices.SortedFunc(slices.Values(lines), func(a, b kernel.Firing) int { return a.Key().Compare(b.Key()) })
	for _, f := range lines {
		tx.saved = append(tx.saved, pgwire.New(putFiringSQL).Text(f.Schedule).Moment(f.Nominal).Int(f.Again).Time(f.To).Int64(f.Times).Text(string(f.State)).Text(string(f.Reason)).
			UUID(f.Job).Moment(f.At).Bool(f.News).Bool(f.Counted).Exact(1))
	}
	return nil
}

// firings writes the new states of lines whose jobs have changed, in the order in which other transactions lock them.
func (w *writing) firings(changes []kernel.FiringChange) {
	for _, ch := range slices.SortedFunc(slices.Values(changes), func(a, b kernel.FiringChange) int { return a.Compare(b.FiringKey) }) {
		w.add(pgwire.New(changeFiringSQL).Text(ch.Schedule).Moment(ch.Nominal).Int(ch.Again).Text(string(ch.State)))
	}
}

// Schedule implements kernel.ScheduleReader.
func (s *Store) Schedule(ctx context.Context, name string) (*kernel.Schedule, error) {
	return first(query(ctx, s, pgwire.New(scheduleSQL).Text(name), scanSchedule))
}

// Schedules implements kernel.ScheduleReader.
func (s *Store) Schedules(ctx context.Context, after string, max int) ([]*kernel.Schedule, error) {
	return query(ctx, s, pgwire.New(schedulesSQL).Text(after).Int(max), scanSchedule)
}

// DueSchedules implements kernel.ScheduleReader.
func (s *Store) DueSchedules(ctx context.Context, now time.Time, max int) (due []*kernel.Schedule, next time.Time, err error) {
	if due, err = query(ctx, s, pgwire.New(dueSchedulesSQL).Moment(now).Int(max), scanSchedule); err != nil {
		return nil, next, err
	}
	news, err := query(ctx, s, pgwire.New(newsOfSQL).Int(max), scanSchedule)
	if err != nil {
		return nil, next, err
	}
	next, err = first(query(ctx, s, pgwire.New(nextScheduleSQL).Moment(now), (*pgwire.Reader).Time))
	return kernel.AddSchedules(due, news), next, err
}

// OpenFiringsOf implements kernel.ScheduleReader.
func (s *Store) OpenFiringsOf(ctx context.Context, schedule string, max int) ([]kernel.Firing, error) {
	news, err := query(ctx, s, pgwire.New(newsSQL).Text(schedule).Int(max), scanFiring)
	if err != nil {
		return nil, err
	}
	others, err := query(ctx, s, pgwire.New(openSQL).Text(schedule).Int(max-len(news)), scanFiring)
	return append(news, others...), err
}

// Firings implements kernel.ScheduleReader.
func (s *Store) Firings(ctx context.Context, schedule string, before kernel.FiringKey, max int) ([]kernel.Firing, error) {
	nominal := before.Nominal
	if nominal.IsZero() {
		nominal = lastNominal
	}
	return query(ctx, s, pgwire.New(firingsSQL).Text(schedule).Moment(nominal).Int(before.Again).Int(max), scanFiring)
}

// ForgetFirings implements kernel.ScheduleReader.
func (s *Store) ForgetFirings(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.write(ctx, func() []*pgwire.Statement {
		return []*pgwire.Statement{pgwire.New(forgetFiringsSQL).Moment(before).Int(max).Counted(func(met int64) { n = int(met) })}
	})
	return n, err
}
