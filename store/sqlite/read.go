package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
)

func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.usable(ctx); err != nil {
		return time.Time{}, err
	}
	return s.clock.now(), nil
}

// view reads rows while a transaction may be writing.
func view[T any](ctx context.Context, s *Store, read func(*row) T, query string, args ...any) (found []T, err error) {
	err = s.with(ctx, func(c *conn) error {
		found, err = all(c, read, query, args...)
		return err
	})
	return found, err
}

// with calls fn with a connection for reading. It returns when everything that fn may have read is on the disk.
func (s *Store) with(ctx context.Context, fn func(*conn) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := s.read.with(ctx, fn); err != nil {
		return s.wrap(err)
	}
	return s.durable.settle()
}

// viewOne reads one value; the zero value if there is no row.
func viewOne[T any](ctx context.Context, s *Store, read func(*row) T, query string, args ...any) (first T, err error) {
	found, err := view(ctx, s, read, query, args...)
	if len(found) > 0 {
		first = found[0]
	}
	return first, err
}

var selectFirstSteps = `SELECT ` + bothSelect + ` FROM perdure_step WHERE job = ? AND idx < ? ORDER BY idx`

func (s *Store) Job(ctx context.Context, id perdure.JobID, steps int) (job *kernel.Job, found []*kernel.Step, err error) {
	err = s.with(ctx, func(c *conn) error {
		job, found, err = jobAndSteps(c, id, max(steps, 1))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if steps <= 0 {
		found = nil
	}
	return job, found, nil
}

func jobAndSteps(c *conn, id perdure.JobID, steps int) (job *kernel.Job, found []*kernel.Step, err error) {
	bundled, step, err := bundledJob(c, id)
	if err != nil {
		return nil, nil, err
	}
	found, err = all(c, func(r *row) *kernel.Step {
		var k storedRow
		if job == nil {
			job = &kernel.Job{}
			k.job = job
		}
		readStored(r, &k)
		return &k.step
	}, selectFirstSteps, id[:], steps)
	if job == nil && bundled != nil {
		return bundled, []*kernel.Step{step}, err
	}
	return job, found, err
}

// jobsAtOnce is the number of jobs whose steps one statement reads. Its text is always the same.
const jobsAtOnce = 50

var selectStepsOfJobs = `SELECT ` + stepSelect + ` FROM perdure_step WHERE job IN (` + placeholders(jobsAtOnce) + `) AND idx < ? ORDER BY job, idx`

// StepsOfJobs reads the rows of the jobs, and then, one by one, the jobs that have none: mostly, they are in bundles.
func (s *Store) StepsOfJobs(ctx context.Context, jobs []perdure.JobID, max int) (map[perdure.JobID][]*kernel.Step, error) {
	found := make(map[perdure.JobID][]*kernel.Step, len(jobs))
	err := s.with(ctx, func(c *conn) error {
		for some := range slices.Chunk(jobs, jobsAtOnce) {
			args := make([]any, jobsAtOnce, jobsAtOnce+1)
			for i := range args {
				args[i] = some[min(i, len(some)-1)][:]
			}
			steps, err := all(c, func(r *row) *kernel.Step {
				var k storedRow
				readStored(r, &k)
				return &k.step
			}, selectStepsOfJobs, append(args, max)...)
			if err != nil {
				return err
			}
			for _, step := range steps {
				found[step.Job] = append(found[step.Job], step)
			}
			for _, id := range some {
				if len(found[id]) > 0 {
					continue
				}
				job, steps, err := jobAndSteps(c, id, max)
				if err != nil {
					return err
				}
				if job != nil {
					found[id] = steps
				}
			}
		}
		return nil
	})
	return found, err
}

func (s *Store) Cell(ctx context.Context) (int, error) {
	return viewOne(ctx, s, (*row).int, cellSQL)
}

func (s *Store) Shape(ctx context.Context, id kernel.ShapeID) ([]byte, error) {
	return viewOne(ctx, s, (*row).bytes, selectShape, id[:])
}

func (s *Store) Input(ctx context.Context, id perdure.JobID, max int) (in json.RawMessage, size int, err error) {
	err = s.with(ctx, func(c *conn) error {
		bundled, _, err := bundledJob(c, id)
		if err != nil {
			return err
		}
		found := false
		in, err = one(c, func(r *row) json.RawMessage {
			in := r.bytes()
			size, found = r.int(), true
			return in
		}, `SELECT CASE WHEN size <= ?2 THEN coalesce(s.input, p.input) END, size FROM (
				SELECT s.job, coalesce(octet_length(s.input), octet_length(p.input), 0) AS size
				FROM perdure_step s LEFT JOIN perdure_payload p ON p.job = s.job AND p.idx = -1 WHERE s.job = ?1 AND s.idx = 0) z
			JOIN perdure_step s ON s.job = z.job AND s.idx = 0 LEFT JOIN perdure_payload p ON p.job = s.job AND p.idx = -1`, id[:], max)
		if !found && bundled != nil {
			if size = len(bundled.Input); size <= max {
				in = bundled.Input
			}
		}
		return err
	})
	return in, size, err
}

func (s *Store) FindJobs(ctx context.Context, ref string, max int) ([]perdure.JobID, error) {
	ids, err := view(ctx, s, (*row).id, `SELECT job FROM perdure_step WHERE job_key = ?1 UNION ALL
		SELECT recipient FROM perdure_mail WHERE key = ?1 AND key IS NOT NULL AND refusal IS NULL AND closed_at IS NULL LIMIT 1`, ref)
	if err != nil {
		return nil, err
	}
	if from, to, ok := kernel.IDRange(ref); ok {
		started, err := s.startingAt(ctx, from, to, max)
		if err != nil {
			return nil, err
		}
		for _, id := range started {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids[:min(len(ids), int(atMost(max)))], nil
}

// startingAt returns the first jobs with ids in a range, at most max.
func (s *Store) startingAt(ctx context.Context, from, to perdure.JobID, max int) (ids []perdure.JobID, err error) {
	if max <= 0 {
		return nil, nil
	}
	err = s.with(ctx, func(c *conn) error {
		f := kernel.JobFilter{After: bundle.Before(from), Before: bundle.After(to), Ascending: true, Limit: max}
		bundled, err := bundle.List(f, &listing{c, f})
		if err != nil {
			return err
		}
		ids, err = all(c, (*row).id, `SELECT job FROM perdure_step WHERE job BETWEEN ? AND ? AND idx = 0 ORDER BY job LIMIT ?`, from[:], to[:], atMost(max))
		for _, j := range bundled {
			ids = append(ids, j.ID)
		}
		return err
	})
	return unique(ids, perdure.JobID.Compare), err
}

func (s *Store) StepsOf(ctx context.Context, job perdure.JobID, since time.Time) (steps []*kernel.Step, err error) {
	query, args := `SELECT `+stepSelect+` FROM perdure_step WHERE job = ?`, []any{job[:]}
	if !since.IsZero() {
		query, args = query+` AND updated_at >= ?`, append(args, micros(since))
	}
	err = s.with(ctx, func(c *conn) error {
		_, bundled, err := bundledJob(c, job)
		if err != nil {
			return err
		}
		steps, err = all(c, readStep, query+` ORDER BY idx`, args...)
		if len(steps) == 0 && bundled != nil && !bundled.UpdatedAt.Before(since) {
			steps = append(steps, bundled)
		}
		return err
	})
	return steps, err
}

// Payloads reads the sizes first, so that it does not read values that are left out.
func (s *Store) Payloads(ctx context.Context, job perdure.JobID, max, total int) ([]kernel.SizedPayload, error) {
	return view(ctx, s, readSizedPayload, `
		WITH sizes AS (
			SELECT idx, coalesce(octet_length(input), 0) AS ins, coalesce(octet_length(output), 0) AS outs
			FROM perdure_payload WHERE job = ?1 AND idx >= 0 AND (input IS NOT NULL OR output IS NOT NULL)
		), sums AS (
			SELECT *, sum(iif(ins <= ?2, ins, 0) + iif(outs <= ?2, outs, 0)) OVER (ORDER BY idx) AS upto FROM sizes
		)
		SELECT p.job, p.idx, iif(ins <= ?2 AND upto - iif(outs <= ?2, outs, 0) <= ?3, p.input, NULL), iif(outs <= ?2 AND upto <= ?3, p.output, NULL), ins, outs
		FROM sums JOIN perdure_payload p ON p.job = ?1 AND p.idx = sums.idx ORDER BY p.idx`, job[:], max, total)
}

func (s *Store) Payload(ctx context.Context, ref kernel.StepRef) (*kernel.Payload, error) {
	found, err := view(ctx, s, readPayload, selectPayload, ref.Job[:], ref.Index)
	if len(found) == 0 {
		return nil, err
	}
	return &found[0], err
}

func (s *Store) Alerts(ctx context.Context, f kernel.AlertFilter) ([]kernel.Alert, error) {
	query, args := alertsQuery(f)
	return view(ctx, s, readAlert, query, args...)
}

// alertsQuery selects alerts. A + hides a column from the planner, so that the first value that is given chooses the index.
func alertsQuery(f kernel.AlertFilter) (query string, args []any) {
	q := source{from: "perdure_alert", id: "id"}
	if !f.Job.IsZero() {
		q.and(`job = ?`, f.Job[:])
	}
	if !f.Closed {
		q.and(`closed_at IS NULL`)
	}
	indexed := f.Closed || !f.Job.IsZero()
	for _, c := range []struct{ column, value string }{{`code`, f.Code}, {`step`, f.Step}, {`type`, f.Type}, {`kind`, string(f.Kind)}} {
		switch {
		case c.value == "":
		case indexed:
			q.and(`+`+c.column+` = ?`, c.value)
		default:
			q.and(c.column+` = ?`, c.value)
			indexed = true
		}
	}
	if f.After != 0 {
		q.and(`id > ?`, f.After)
	}
	if f.Before != 0 {
		q.and(`id < ?`, f.Before)
	}
	return q.text(alertColumns, cmp.Or(f.Limit, perdure.DefaultListLimit))
}

func (s *Store) History(ctx context.Context, job perdure.JobID, after int64, max int) ([]kernel.Entry, error) {
	return view(ctx, s, readEntry, `SELECT `+entryColumns+` FROM perdure_entry WHERE job = ? AND id > ? ORDER BY id LIMIT ?`, job[:], after, atMost(max))
}

// runsSQL uses the index perdure_entry_run, whose condition and terms it repeats.
const runsSQL = `SELECT ` + entryColumns + ` FROM perdure_entry
	WHERE job = ? AND run > 0 AND event IN ('done', 'failed', 'rejected', 'returned', 'expired')
		AND (coalesce(started_at, at), step, run) > (?, ?, ?)
	ORDER BY coalesce(started_at, at), step, run, id LIMIT ?`

// Runs reads the entries of runs in the order of their starts.
func (s *Store) Runs(ctx context.Context, job perdure.JobID, after kernel.RunPlace, max int) ([]kernel.Entry, error) {
	from := int64(math.MinInt64)
	if !after.StartedAt.IsZero() {
		from = after.StartedAt.UnixMicro()
	}
	return view(ctx, s, readEntry, runsSQL, job[:], from, after.Step, after.Run, atMost(max))
}

// LimitUse reads stored permits. For other limits, it reads the rows that would hold a permit.
func (s *Store) LimitUse(ctx context.Context, limit kernel.LimitKey, max int) (used int, named []kernel.LimitHolder, err error) {
	err = s.with(ctx, func(c *conn) error {
		defined, err := one(c, (*row).flag, `SELECT count(*) FROM perdure_limit WHERE name = ?`, limit.Name)
		if err != nil {
			return err
		}
		var found []permit
		if limit.Kept(map[string]bool{limit.Name: defined}) {
			const where = ` FROM perdure_permit WHERE name = ?1 AND (?2 = '' OR key = ?2)`
			if used, err = one(c, (*row).int, `SELECT coalesce(sum(amount), 0)`+where, limit.Name, limit.Key); err == nil {
				found, err = all(c, readPermit, `SELECT name, key, job, idx, amount`+where+` ORDER BY job, idx LIMIT ?3`, limit.Name, limit.Key, atMost(max))
			}
		} else {
			var refs []kernel.StepRef
			refs, err = holders(c, limit.Name)
			used = len(refs)
			for _, ref := range refs[:min(len(refs), int(atMost(max)))] {
				found = append(found, permit{ref, kernel.Need{LimitKey: limit, Amount: 1}})
			}
		}
		if err != nil {
			return err
		}
		named, err = nameHolders(c, found)
		return err
	})
	return used, named, err
}

func (s *Store) ClosedKeys(ctx context.Context, limit string, max int) ([]kernel.ClosedKey, error) {
	var keys kernel.ClosedKeys
	err := s.with(ctx, func(c *conn) error {
		keys = kernel.ClosedKeys{Limit: limit}
		return eachRow(c, func(r *row) { keys.Add(r.text(), kernel.Needs(r.text()), r.int()) }, closedKeysSQL, limit, kernel.MaxKeyLanes, kernel.MaxKeyReady)
	})
	return keys.First(max), err
}

const closedKeysSQL = `SELECT closed_key, limits, (SELECT count(*) FROM (SELECT 1 FROM perdure_step WHERE agent = l.agent AND lane = l.lane AND ready IS NOT NULL LIMIT ?3))
	FROM perdure_lane l WHERE closed_name = ?1 ORDER BY closed_key, ord, agent, lane LIMIT ?2`

// permit is a permit that a row holds.
type permit struct {
	kernel.StepRef
	kernel.Need
}

func readPermit(r *row) (p permit) {
	k, ref := kernel.LimitKey{Name: r.text(), Key: r.text()}, r.ref()
	p.StepRef, p.Need = kernel.StoredPermit(ref.Job, ref.Index, k, r.int())
	return p
}

func nameHolders(c *conn, permits []permit) ([]kernel.LimitHolder, error) {
	var named []kernel.LimitHolder
	for _, p := range permits {
		holder := kernel.LimitHolder{Job: p.Job, Key: p.Key, Amount: p.Amount}
		if kind, _, _ := kernel.SplitLimit(p.Name); kind == kernel.LimitOfJobs || p.OfJob {
			named = append(named, holder)
			continue
		}
		found, err := all(c, func(r *row) kernel.LimitHolder {
			holder.Step, holder.Run = r.text(), r.num()
			return holder
		}, `SELECT name, run FROM perdure_step WHERE job = ? AND idx = ?`, p.Job[:], p.Index)
		if err != nil {
			return nil, err
		}
		named = append(named, found...)
	}
	return named, nil
}

func (s *Store) ListAgents(ctx context.Context) (found map[string]perdure.AgentSettings, err error) {
	err = s.with(ctx, func(c *conn) error {
		found, err = readAgents(c)
		return err
	})
	return found, err
}

func (s *Store) Buckets(ctx context.Context, keys []kernel.LimitKey) (map[kernel.LimitKey]kernel.Bucket, error) {
	found := map[kernel.LimitKey]kernel.Bucket{}
	err := s.with(ctx, func(c *conn) error {
		for _, k := range keys {
			of, err := all(c, readBucket, `SELECT full_at, permit FROM perdure_bucket WHERE name = ? AND key = ?`, k.Name, k.Key)
			if err != nil {
				return err
			}
			for _, b := range of {
				found[k] = b
			}
		}
		return nil
	})
	return found, err
}

func (s *Store) FirstInLine(ctx context.Context, keys []kernel.LimitKey) (map[kernel.LimitKey]kernel.FirstInLine, error) {
	found := map[kernel.LimitKey]kernel.FirstInLine{}
	err := s.with(ctx, func(c *conn) error {
		for _, k := range keys {
			first, err := firstInLine(c, k)
			if err != nil {
				return err
			}
			if first.Rank != kernel.NotInLine {
				found[k] = first
			}
		}
		return nil
	})
	return found, err
}

func (s *Store) ListLimits(ctx context.Context) ([]kernel.Limit, error) {
	return view(ctx, s, readLimit, `SELECT `+limitColumns+` FROM perdure_limit ORDER BY name`)
}

// Poll reads the first entries of the indexes that are ordered by time, and of the index of ready steps for each agent.
func (s *Store) Poll(ctx context.Context, agents []string) (l kernel.PollAnswer, err error) {
	err = s.with(ctx, func(c *conn) error {
		for _, query := range []string{
			`SELECT min(due_at) FROM perdure_step WHERE due_at IS NOT NULL`,
			`SELECT min(look_at) FROM perdure_step WHERE look_at IS NOT NULL`,
			`SELECT min(at) FROM perdure_child_news`,
		} {
			at, err := one(c, (*row).time, query)
			if err != nil {
				return err
			}
			l.Next = earlier(l.Next, at)
		}
		expiry, err := nextExpiry(c, l.Next)
		if err != nil {
			return err
		}
		l.Next = earlier(l.Next, expiry)
		for _, agent := range slices.Sorted(slices.Values(agents)) {
			ready, err := one(c, (*row).flag, `SELECT EXISTS (SELECT 1 FROM perdure_step WHERE ready IS NOT NULL AND agent = ?1) OR EXISTS (SELECT 1 FROM perdure_bundle WHERE agent = ?1)`, agent)
			if err != nil {
				return err
			}
			if ready {
				l.Ready = append(l.Ready, agent)
			}
		}
		l.Now = s.clock.now()
		if l.LanesClosed, err = one(c, (*row).flag, `SELECT EXISTS (SELECT 1 FROM perdure_lane WHERE closed_name IS NOT NULL)`); err != nil {
			return err
		}
		l.Buckets, err = one(c, (*row).flag, `SELECT EXISTS (SELECT 1 FROM perdure_bucket)`)
		return err
	})
	return l, err
}

// readyAgentsSQL jumps from one agent to the next, in both indexes.
const readyAgentsSQL = `
	WITH RECURSIVE leap (agent, n) AS (
		SELECT (SELECT min(agent) FROM perdure_step WHERE ready IS NOT NULL), 1
		UNION ALL
		SELECT (SELECT min(t.agent) FROM perdure_step t WHERE t.ready IS NOT NULL AND t.agent > leap.agent), n + 1 FROM leap WHERE leap.agent IS NOT NULL AND n < ?1
	), bundled (agent, n) AS (
		SELECT (SELECT min(agent) FROM perdure_bundle), 1
		UNION ALL
		SELECT (SELECT min(t.agent) FROM perdure_bundle t WHERE t.agent > bundled.agent), n + 1 FROM bundled WHERE bundled.agent IS NOT NULL AND n < ?1
	)
	SELECT agent FROM (SELECT agent FROM leap UNION SELECT agent FROM bundled) WHERE agent IS NOT NULL ORDER BY agent LIMIT ?1`

func (s *Store) ReadyAgents(ctx context.Context, max int) ([]string, error) {
	return view(ctx, s, (*row).text, readyAgentsSQL, atMost(max))
}

// earlier returns the earlier of two times. A zero time counts as none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (s *Store) Backlog(ctx context.Context, max int) (int, error) {
	return viewOne(ctx, s, (*row).int, `
		SELECT min(?1, (SELECT count(*) FROM (SELECT 1 FROM perdure_step WHERE open = 1 LIMIT ?1)) + (SELECT coalesce(sum(size - taken), 0) FROM perdure_bundle))`, atMost(max))
}
