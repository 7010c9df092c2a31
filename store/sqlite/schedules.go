package sqlite

import (
	"context"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

const (
	scheduleColumns = `name, settings, version, paused, paused_cause, next_at, due_at, last_at, last_job, failures, fired, skipped_overlap, skipped_catch_up,
		backfill_from, backfill_until, backfill_next, backfill_parallel, backfill_again, backfill_agains, created_at, updated_at`
	scheduleSQL     = `SELECT ` + scheduleColumns + ` FROM perdure_schedule WHERE name = ?`
	schedulesSQL    = `SELECT ` + scheduleColumns + ` FROM perdure_schedule WHERE name > ? ORDER BY name LIMIT ?`
	dueSchedulesSQL = `SELECT ` + scheduleColumns + ` FROM perdure_schedule WHERE due_at <= ? ORDER BY due_at, name LIMIT ?`
	// newsOfSQL jumps from one schedule to the next, because one may have very many lines with news.
	newsOfSQL = `WITH RECURSIVE leap (name, n) AS (
			SELECT (SELECT min(schedule) FROM perdure_firing WHERE news = 1), 1
			UNION ALL
			SELECT (SELECT min(f.schedule) FROM perdure_firing f WHERE f.news = 1 AND f.schedule > leap.name), n + 1 FROM leap WHERE leap.name IS NOT NULL AND n < ?1
		) SELECT ` + scheduleColumns + ` FROM perdure_schedule WHERE name IN (SELECT name FROM leap WHERE name IS NOT NULL) ORDER BY name LIMIT ?1`
	nextScheduleSQL = `SELECT min(due_at) FROM perdure_schedule WHERE due_at > ?`

	firingColumns  = `schedule, nominal, again, until, times, state, reason, job, at, news, counted`
	newsSQL        = `SELECT ` + firingColumns + ` FROM perdure_firing WHERE schedule = ? AND news = 1 ORDER BY nominal, again LIMIT ?`
	openFiringsSQL = `SELECT ` + firingColumns + ` FROM perdure_firing WHERE schedule = ? AND news = 0 AND state IN ('waiting', 'running', 'parked') ORDER BY nominal, again LIMIT ?`
	firingsSQL     = `SELECT ` + firingColumns + ` FROM perdure_firing WHERE schedule = ? AND (nominal, again) < (?, ?) ORDER BY nominal DESC, again DESC LIMIT ?`
	putFiringSQL   = `INSERT INTO perdure_firing (` + firingColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (schedule, nominal, again) DO UPDATE SET until = excluded.until, times = excluded.times, state = excluded.state, reason = excluded.reason,
			job = excluded.job, at = excluded.at, news = excluded.news, counted = excluded.counted`
	changeFiringSQL = `UPDATE perdure_firing SET state = ?, news = 1 WHERE schedule = ? AND nominal = ? AND again = ? AND state IN ('waiting', 'running', 'parked')`
	oldFiringsSQL   = `SELECT ` + firingColumns + ` FROM perdure_firing WHERE news = 0 AND state NOT IN ('waiting', 'running', 'parked') AND at < ? ORDER BY at, schedule, nominal, again LIMIT ?`

	lastNominal = 1 << 62 // in microseconds; it follows every nominal time
)

func readSchedule(r *row) *kernel.Schedule {
	s := &kernel.Schedule{Name: r.text(), Settings: r.bytes(), Version: r.num(), Paused: r.flag(), PausedCause: r.text(),
		Next: r.time(), DueAt: r.time(), Last: r.time(), LastJob: r.id(), Failures: r.int(), Fired: r.num(), SkippedOverlap: r.num(), SkippedCatchUp: r.num()}
	b := &s.Backfill
	b.From, b.Until, b.Next = r.time(), r.time(), r.time()
	b.Parallel, b.Again, b.Agains = r.int(), r.int(), r.int()
	s.CreatedAt, s.UpdatedAt = r.time(), r.time()
	return s
}

func readFiring(r *row) kernel.Firing {
	return kernel.Firing{Schedule: r.text(), Nominal: r.time(), Again: r.int(), To: r.time(), Times: r.num(), State: operate.FiringState(r.text()), Reason: operate.FiringReason(r.text()),
		Job: r.id(), At: r.time(), News: r.flag(), Counted: r.flag()}
}

// jobOrNull returns the value to bind for a job; NULL for none.
func jobOrNull(id perdure.JobID) any {
	if id == (perdure.JobID{}) {
		return nil
	}
	return id[:]
}

func (tx *tx) LockSchedules(names []string) (found []*kernel.Schedule, err error) {
	for _, name := range unique(append([]string(nil), names...), strings.Compare) {
		rows, err := all(tx.c, readSchedule, scheduleSQL, name)
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	return found, nil
}

func (tx *tx) CountSchedules() (int, error) {
	return one(tx.c, (*row).int, `SELECT count(*) FROM perdure_schedule`)
}

func (tx *tx) PutSchedule(s *kernel.Schedule) error {
	b := &s.Backfill
	err := tx.exec(`INSERT INTO perdure_schedule (`+scheduleColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET settings = excluded.settings, version = excluded.version, paused = excluded.paused, paused_cause = excluded.paused_cause,
			next_at = excluded.next_at, due_at = excluded.due_at, last_at = excluded.last_at, last_job = excluded.last_job, failures = excluded.failures,
			fired = excluded.fired, skipped_overlap = excluded.skipped_overlap, skipped_catch_up = excluded.skipped_catch_up,
			backfill_from = excluded.backfill_from, backfill_until = excluded.backfill_until, backfill_next = excluded.backfill_next, backfill_parallel = excluded.backfill_parallel,
			backfill_again = excluded.backfill_again, backfill_agains = excluded.backfill_agains, created_at = excluded.created_at, updated_at = excluded.updated_at`,
		s.Name, textOf(s.Settings), s.Version, flag(s.Paused), s.PausedCause, micros(s.Next), micros(s.DueAt), micros(s.Last), jobOrNull(s.LastJob), s.Failures, s.Fired,
		s.SkippedOverlap, s.SkippedCatchUp, micros(b.From), micros(b.Until), micros(b.Next), b.Parallel, b.Again, b.Agains, micros(s.CreatedAt), micros(s.UpdatedAt))
	if err != nil {
		tx.failed = err
	}
	return err
}

func (tx *tx) DeleteSchedule(name string) (bool, error) {
	if err := tx.exec(`DELETE FROM perdure_firing WHERE schedule = ?`, name); err != nil {
		return false, err
	}
	n, err := tx.changed(`DELETE FROM perdure_schedule WHERE name = ?`, name)
	return n > 0, err
}

func (tx *tx) OpenFirings(schedule string, max int) ([]kernel.Firing, error) {
	return openFirings(tx.c, schedule, max)
}

func openFirings(c *conn, schedule string, max int) ([]kernel.Firing, error) {
	found, err := all(c, readFiring, newsSQL, schedule, atMost(max))
	if err != nil {
		return nil, err
	}
	others, err := all(c, readFiring, openFiringsSQL, schedule, atMost(max-len(found)))
	return append(found, others...), err
}

func (tx *tx) PutFirings(lines []kernel.Firing) error {
	for _, f := range lines {
		if err := tx.exec(putFiringSQL, f.Schedule, micros(f.Nominal), f.Again, micros(f.To), f.Times, string(f.State), string(f.Reason), jobOrNull(f.Job), micros(f.At), flag(f.News), flag(f.Counted)); err != nil {
			tx.failed = err
			return err
		}
	}
	return nil
}

// changeFirings writes the new states of lines whose jobs have changed.
func (tx *tx) changeFirings(changes []kernel.FiringChange) error {
	for _, ch := range changes {
		if err := tx.exec(changeFiringSQL, string(ch.State), ch.Schedule, micros(ch.Nominal), ch.Again); err != nil {
			return err
		}
	}
	return nil
}

// Schedule implements kernel.ScheduleReader.
func (s *Store) Schedule(ctx context.Context, name string) (*kernel.Schedule, error) {
	return viewOne(ctx, s, readSchedule, scheduleSQL, name)
}

// Schedules implements kernel.ScheduleReader.
func (s *Store) Schedules(ctx context.Context, after string, max int) ([]*kernel.Schedule, error) {
	return view(ctx, s, readSchedule, schedulesSQL, after, atMost(max))
}

// DueSchedules implements kernel.ScheduleReader.
func (s *Store) DueSchedules(ctx context.Context, now time.Time, max int) (due []*kernel.Schedule, next time.Time, err error) {
	err = s.with(ctx, func(c *conn) error {
		if due, err = all(c, readSchedule, dueSchedulesSQL, now.UnixMicro(), atMost(max)); err != nil {
			return err
		}
		news, err := all(c, readSchedule, newsOfSQL, atMost(max))
		if err != nil {
			return err
		}
		due = kernel.AddSchedules(due, news)
		next, err = one(c, (*row).time, nextScheduleSQL, now.UnixMicro())
		return err
	})
	return due, next, err
}

// OpenFiringsOf implements kernel.ScheduleReader.
func (s *Store) OpenFiringsOf(ctx context.Context, schedule string, max int) (found []kernel.Firing, err error) {
	err = s.with(ctx, func(c *conn) error {
		found, err = openFirings(c, schedule, max)
		return err
	})
	return found, err
}

// Firings implements kernel.ScheduleReader.
func (s *Store) Firings(ctx context.Context, schedule string, before kernel.FiringKey, max int) ([]kernel.Firing, error) {
	nominal := int64(lastNominal)
	if !before.Nominal.IsZero() {
		nominal = before.Nominal.UnixMicro()
	}
	return view(ctx, s, readFiring, firingsSQL, schedule, nominal, before.Again, atMost(max))
}

// ForgetFirings implements kernel.ScheduleReader.
func (s *Store) ForgetFirings(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.Update(ctx, func(t kernel.Tx) error {
		tx := t.(*tx)
		old, err := all(tx.c, readFiring, oldFiringsSQL, before.UnixMicro(), atMost(max))
		if err != nil {
			return err
		}
		for _, f := range old {
			if err := tx.exec(`DELETE FROM perdure_firing WHERE schedule = ? AND nominal = ? AND again = ?`, f.Schedule, micros(f.Nominal), f.Again); err != nil {
				return err
			}
		}
		n = len(old)
		return nil
	})
	return n, err
}
