package sqlite

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

const (
	agentsReadySQL = `WITH RECURSIVE a (agent) AS (SELECT min(agent) FROM perdure_step WHERE ready IS NOT NULL
		UNION ALL SELECT (SELECT min(s.agent) FROM perdure_step s WHERE s.ready IS NOT NULL AND s.agent > a.agent) FROM a WHERE a.agent IS NOT NULL)
		SELECT agent FROM a WHERE agent IS NOT NULL LIMIT ? + 0`
	countReadySQL  = `SELECT count(*), min(job) FROM (SELECT job FROM perdure_step WHERE agent = ? AND ready IS NOT NULL LIMIT ? + 0)`
	firstReadySQL  = `SELECT ready_at FROM perdure_step WHERE job = ? AND +agent = ? AND +ready IS NOT NULL ORDER BY idx LIMIT 1`
	closedLanesSQL = `SELECT agent, lane, closed_name FROM perdure_lane WHERE closed_name IS NOT NULL ORDER BY closed_name, closed_key, ord, agent, lane LIMIT ? + 0`
	openLanesSQL   = `SELECT agent, lane, limits FROM perdure_lane WHERE closed_name IS NULL ORDER BY lane, agent LIMIT ? + 0`
	countLaneSQL   = `SELECT count(*) FROM (SELECT 1 FROM perdure_step WHERE agent = ? AND lane = ? AND ready IS NOT NULL LIMIT ? + 0)`
	// openJobsSQL does not group: SQLite would sort the rows for that, which takes longer than reading them.
	openJobsSQL = `SELECT type, job_phase, coalesce(job_desired, 0) = 0, coalesce(permit, 0) <> 0,
			CASE WHEN phase = 2 AND coalesce(permit, 0) = 0 THEN agent END,
			coalesce(unsettled, 0) - coalesce(running, 0) - coalesce(active, 0), active, created_at
		FROM (SELECT id AS at FROM perdure_step WHERE open = 1 ORDER BY job LIMIT ? + 0) o CROSS JOIN perdure_step s ON s.id = o.at`
	countBundlesSQL = `SELECT type, agent, sum(size - taken), min(created_at)
		FROM (SELECT type, agent, size, taken, created_at FROM perdure_bundle ORDER BY first LIMIT ? + 0) GROUP BY 1, 2`
	countDueSQL = `SELECT coalesce(failures, 0) > 0 OR coalesce(returns, 0) > 0 OR coalesce(waits, 0) > 0 OR coalesce(last_error, '') <> '', count(*), min(o.due)
		FROM (SELECT id AS at, due_at AS due FROM perdure_step WHERE due_at IS NOT NULL ORDER BY due_at, job, idx LIMIT ? + 0) o CROSS JOIN perdure_step s ON s.id = o.at GROUP BY 1`
	countRunsSQL   = `SELECT agent, count(*) FROM (SELECT DISTINCT value FROM json_each(?)) o CROSS JOIN perdure_step s ON s.id = o.value WHERE s.phase = 3 GROUP BY 1`
	countAlertsSQL = `SELECT kind, code, type, step, count(*), min(raised_at)
		FROM (SELECT kind, code, type, step, raised_at FROM perdure_alert WHERE closed_at IS NULL ORDER BY id DESC LIMIT ? + 0) GROUP BY 1, 2, 3, 4`
	countFirstsSQL = `SELECT count(*) FROM (SELECT 1 FROM perdure_step INDEXED BY perdure_step_type WHERE idx = 0 LIMIT ? + 0)`
	countSharesSQL = `SELECT agent, count(DISTINCT share), count(*)
		FROM (SELECT agent, share FROM perdure_share INDEXED BY perdure_share_waiting WHERE waiting = 1 ORDER BY agent, kind, served, share LIMIT ? + 0) GROUP BY agent`
	countKeptSQL    = `SELECT count(*) FROM (SELECT 1 FROM perdure_signal INDEXED BY perdure_signal_kept WHERE taken IS NULL LIMIT ? + 0)`
	countWaitersSQL = `SELECT count(*) FROM (SELECT 1 FROM perdure_step INDEXED BY perdure_step_topic WHERE topic IS NOT NULL AND phase = 1 LIMIT ? + 0)`
	sampleSQL       = `SELECT idx = 0 AND open IS NULL FROM perdure_step WHERE id >= ? ORDER BY id LIMIT 1`
)

// Census counts with statements that each end after some rows. They see different commits if others are made meanwhile.
func (s *Store) Census(ctx context.Context, max int) (c *kernel.Census, err error) {
	c = &kernel.Census{Now: s.clock.now()}
	err = s.with(ctx, func(db *conn) error {
		for _, count := range []func(*conn, *kernel.Census, int) error{countJobs, countReady, countClosed, countNeeding, countDue, countRuns, countAlerts, countShares, countSignals} {
			if err := count(db, c, max); err != nil {
				return err
			}
		}
		return nil
	})
	return c, err
}

// eachRow calls fn for each row of a query that is kept.
func eachRow(c *conn, fn func(*row), query string, args ...any) error {
	_, err := all(c, func(r *row) struct{} { fn(r); return struct{}{} }, query, args...)
	return err
}

func countJobs(db *conn, c *kernel.Census, max int) error {
	err := eachRow(db, func(r *row) {
		g := kernel.JobGroup{Type: r.text(), Agent: r.text(), Phase: perdure.Waiting, Jobs: r.int(), Oldest: r.time()}
		g.Active = g.Jobs // each has one step, which is ready
		c.AddJobs(&g)
	}, countBundlesSQL, atMost(max))
	if err != nil {
		return err
	}
	rows := 0
	groups := map[kernel.JobGroup]*kernel.JobGroup{} // by a group that counts nothing
	err = eachRow(db, func(r *row) {
		key := kernel.JobGroup{Type: r.word(), Phase: perdure.Phase(r.int()), Undoing: r.flag(), Permit: r.flag(), Agent: r.word()}
		one := key
		one.Jobs, one.Blocked, one.Active, one.Oldest = 1, r.int(), r.int(), r.time()
		rows++
		if g := groups[key]; g != nil {
			g.Add(&one)
		} else {
			groups[key] = &one
		}
	}, openJobsSQL, atMost(max))
	if err != nil {
		return err
	}
	for _, g := range groups {
		c.AddJobs(g)
	}
	c.JobsCapped = rows == max
	return countSettled(db, c, rows, max)
}

// samples is how many rows are read to estimate the number of jobs.
const samples = 200

// countSettled counts the jobs that have rows, without the unsettled ones. If there are many rows, it estimates the
// number from the share of first rows (idx 0) of settled jobs among some of all rows. The places of these follow from the golden
// ratio: rows of jobs with equally many steps repeat at equal distances, and so would equal distances between the samples.
func countSettled(db *conn, c *kernel.Census, unsettled, max int) error {
	last, err := one(db, (*row).num, `SELECT coalesce(max(id), 0) FROM perdure_step`)
	if err != nil {
		return err
	}
	if last < int64(max) {
		firsts, err := one(db, (*row).int, countFirstsSQL, atMost(max))
		c.Settled = firsts - unsettled
		return err
	}
	met := 0
	for i := range samples {
		_, place := math.Modf(float64(i+1) * (math.Phi - 1))
		settled, err := all(db, (*row).flag, sampleSQL, 1+int64(place*float64(last)))
		if err != nil {
			return err
		}
		if len(settled) > 0 && settled[0] {
			met++
		}
	}
	c.Settled, c.SettledEstimated = int(float64(last)*float64(met)/samples), true
	return nil
}

func countReady(db *conn, c *kernel.Census, max int) error {
	agents, err := all(db, (*row).text, agentsReadySQL, kernel.MaxCensusAgents)
	if err != nil {
		return err
	}
	share := kernel.CensusShare(max, len(agents))
	for _, agent := range agents {
		var oldest []byte
		g := kernel.ReadyGroup{Agent: agent}
		if err := eachRow(db, func(r *row) { g.Steps, oldest = r.int(), r.bytes() }, countReadySQL, agent, atMost(share)); err != nil {
			return err
		}
		g.Capped = g.Steps >= share
		if g.Oldest, err = one(db, (*row).time, firstReadySQL, oldest, agent); err != nil {
			return err
		}
		c.AddReady(g)
	}
	return eachRow(db, func(r *row) {
		r.text()
		c.AddReady(kernel.ReadyGroup{Agent: r.text(), Steps: r.int(), Oldest: r.time()})
	}, countBundlesSQL, atMost(max))
}

func countClosed(db *conn, c *kernel.Census, max int) (err error) {
	steps, capped, err := countLanes(db, closedLanesSQL, max)
	c.ClosedCapped = capped
	for of, n := range steps {
		c.Closed = append(c.Closed, kernel.ClosedGroup{Agent: of[0], Limit: of[1], Steps: n})
	}
	return err
}

func countNeeding(db *conn, c *kernel.Census, max int) error {
	steps, capped, err := countLanes(db, openLanesSQL, max)
	c.NeedingCapped = capped
	for of, n := range steps {
		c.Needing = append(c.Needing, kernel.NeedGroup{Agent: of[0], Needs: kernel.Needs(of[1]), Steps: n})
	}
	return err
}

// countLanes counts the ready steps in lanes by their agent and another property.
func countLanes(db *conn, query string, max int) (steps map[[2]string]int, capped bool, err error) {
	type lane struct {
		agent, of string
		lane      int64
	}
	lanes, err := all(db, func(r *row) (l lane) {
		l.agent, l.lane, l.of = r.text(), r.num(), r.text()
		return l
	}, query, kernel.MaxCensusLanes)
	if err != nil {
		return nil, false, err
	}
	capped = len(lanes) == kernel.MaxCensusLanes
	share := kernel.CensusShare(max, len(lanes))
	steps = map[[2]string]int{}
	for _, l := range lanes {
		n, err := one(db, (*row).int, countLaneSQL, l.agent, l.lane, atMost(share))
		if err != nil {
			return nil, false, err
		}
		if n > 0 {
			steps[[2]string{l.agent, l.of}] += n
		}
		capped = capped || n >= share
	}
	return steps, capped, nil
}

func countDue(db *conn, c *kernel.Census, max int) error {
	sum := 0
	err := eachRow(db, func(r *row) {
		g := kernel.DueGroup{Retry: r.flag(), Steps: r.int(), Next: r.time()}
		sum += g.Steps
		c.Due = append(c.Due, g)
	}, countDueSQL, atMost(max))
	c.DueCapped = sum >= max
	return err
}

func countRuns(db *conn, c *kernel.Census, max int) error {
	steps, err := stepsInFlight(db)
	if err != nil {
		return err
	}
	sum := 0
	err = eachRow(db, func(r *row) {
		g := kernel.RunGroup{Agent: r.text(), Runs: r.int()}
		sum += g.Runs
		c.Runs = append(c.Runs, g)
	}, countRunsSQL, steps)
	c.RunsCapped = sum >= max
	return err
}

func countAlerts(db *conn, c *kernel.Census, max int) error {
	sum := 0
	err := eachRow(db, func(r *row) {
		g := kernel.AlertGroup{Kind: perdure.AlertKind(r.text()), Code: r.text(), Type: r.text(), Step: r.text(), N: r.int(), Oldest: r.time()}
		sum += g.N
		c.Alerts = append(c.Alerts, g)
	}, countAlertsSQL, atMost(max))
	c.AlertsCapped = sum >= max
	return err
}

func countShares(db *conn, c *kernel.Census, max int) error {
	read := 0
	err := eachRow(db, func(r *row) {
		c.Shares = append(c.Shares, kernel.ShareGroup{Agent: r.text(), Shares: r.int()})
		read += r.int()
	}, countSharesSQL, atMost(max))
	c.SharesCapped = read >= max
	return err
}

func countSignals(db *conn, c *kernel.Census, max int) (err error) {
	entries := kernel.CensusEntries(max)
	if c.SignalsKept, err = one(db, (*row).int, countKeptSQL, atMost(entries)); err != nil {
		return err
	}
	c.SignalWaiters, err = one(db, (*row).int, countWaitersSQL, atMost(max))
	c.SignalsKeptCapped, c.SignalWaitersCapped = c.SignalsKept >= entries, c.SignalWaiters >= max
	return err
}

func (tx *tx) SaveStats(text json.RawMessage) error {
	return tx.exec(`INSERT OR REPLACE INTO perdure_stats (one, text) VALUES (1, ?)`, textOf(text))
}

func (s *Store) Stats(ctx context.Context) (json.RawMessage, error) {
	text, err := viewOne(ctx, s, (*row).bytes, `SELECT text FROM perdure_stats WHERE one = 1`)
	return text, err
}

// PutSeries does not wait for the disk: after a power failure the last counts may be missing.
func (s *Store) PutSeries(ctx context.Context, node string, counts []kernel.SeriesCount) error {
	return s.writeRegistry(ctx, func() error {
		for i := range counts {
			c := &counts[i]
			if err := s.registry.exec(`INSERT OR REPLACE INTO perdure_series (minute, node, scope, name, outcome, n) VALUES (?,?,?,?,?,?)`,
				micros(c.Minute), node, int(c.Scope), c.Name, c.Outcome, c.N); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) Series(ctx context.Context, since time.Time, max int) ([]kernel.SeriesCount, error) {
	return view(ctx, s, func(r *row) kernel.SeriesCount {
		return kernel.SeriesCount{Minute: r.time(), Scope: kernel.SeriesScope(r.int()), Name: r.text(), Outcome: r.text(), N: r.num()}
	}, `SELECT minute, scope, name, outcome, sum(n) FROM perdure_series WHERE minute >= ?
		GROUP BY minute, scope, name, outcome ORDER BY minute DESC, scope, name, outcome LIMIT ? + 0`, since.UnixMicro(), atMost(max))
}

func (s *Store) ForgetSeries(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.writeRegistry(ctx, func() error {
		n, err = s.registry.changed(`DELETE FROM perdure_series WHERE (minute, scope, name, outcome, node) IN
			(SELECT minute, scope, name, outcome, node FROM perdure_series WHERE minute < ? ORDER BY minute LIMIT ? + 0)`, before.UnixMicro(), atMost(max))
		return err
	})
	return n, err
}
