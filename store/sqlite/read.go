package sqlite

import (
	"cmp"
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"perdure"
)

func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.usable(ctx); err != nil {
		return time.Time{}, err
	}
	return s.clock.now(), nil
}

// view reads rows beside whoever writes.
func view[T any](ctx context.Context, s *Store, read func(*row) T, query string, args ...any) ([]T, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	found, err := all(ctx, s.read, read, query, args...)
	return found, s.readFailed(err)
}

// readFailed is what a reader is told: readers do not wait for their turn, and may be overtaken by Close.
func (s *Store) readFailed(err error) error {
	if err != nil && s.closed.Load() {
		return errClosed
	}
	return s.wrap(err)
}

// viewOne reads one value; the zero one, if there is no row.
func viewOne[T any](ctx context.Context, s *Store, read func(*row) T, query string, args ...any) (first T, err error) {
	found, err := view(ctx, s, read, query, args...)
	if len(found) > 0 {
		first = found[0]
	}
	return first, err
}

func (s *Store) Job(ctx context.Context, id perdure.JobID) (*perdure.Job, error) {
	return viewOne(ctx, s, readJob, `SELECT `+jobColumns+` FROM job WHERE id = ?`, id[:])
}

func (s *Store) Definition(ctx context.Context, id perdure.JobID) ([]byte, error) {
	return viewOne(ctx, s, (*row).bytes, `SELECT body FROM definition WHERE job = ?`, id[:])
}

func (s *Store) FindJobs(ctx context.Context, ref string, max int) ([]perdure.JobID, error) {
	ids, err := view(ctx, s, (*row).id, `SELECT id FROM job WHERE key = ?`, ref)
	if err != nil {
		return nil, err
	}
	if from, to, ok := idsFrom(ref); ok {
		started, err := view(ctx, s, (*row).id, `SELECT id FROM job WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?`, from[:], to[:], atMost(max))
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

// idsFrom are the first and the last id that start as ref does.
func idsFrom(ref string) (from, to perdure.JobID, ok bool) {
	digits := strings.TrimPrefix(ref, "job_")
	if digits == "" || len(digits) > 32 || strings.ToLower(digits) != digits {
		return from, to, false
	}
	_, err1 := hex.Decode(from[:], []byte(digits+strings.Repeat("0", 32-len(digits))))
	_, err2 := hex.Decode(to[:], []byte(digits+strings.Repeat("f", 32-len(digits))))
	return from, to, err1 == nil && err2 == nil
}

// ListJobs walks the jobs by id, or those with the first label, of the type, or unsettled by index,
// until there are enough.
func (s *Store) ListJobs(ctx context.Context, f perdure.JobFilter) ([]*perdure.Job, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	query, args := listJobs(f)
	jobs, err := once(ctx, s.read, readJob, query, args...)
	return jobs, s.readFailed(err)
}

func listJobs(f perdure.JobFilter) (string, []any) {
	q := filter{from: "job", id: "id"}
	for i, name := range slices.Sorted(maps.Keys(f.Labels)) {
		if i == 0 { // leads the walk; the rest are looked up
			q.from, q.id = "label CROSS JOIN job ON job.id = label.job", "label.job"
			q.and(`label.name = ? AND label.value = ?`, name, f.Labels[name])
		} else {
			q.and(`EXISTS (SELECT 1 FROM label l WHERE l.name = ? AND l.value = ? AND l.job = job.id)`, name, f.Labels[name])
		}
	}
	if f.Key != "" {
		q.and(`key = ?`, f.Key)
	}
	if f.Type != "" {
		q.and(`type = ?`, f.Type)
	}
	if f.Phase != nil {
		q.and(`phase = ?`, num(*f.Phase))
		if *f.Phase != perdure.Settled {
			q.and(`phase <> 0`) // what the index of the unsettled ones is made by
		}
	}
	if f.Current != nil {
		q.and(`current = ?`, num(*f.Current))
	}
	if f.Desired != nil {
		q.and(`desired = ?`, num(*f.Desired))
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
	return q.query(jobColumns, order, f.Limit)
}

// filter is a query in the making.
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

func (s *Store) StepsOf(ctx context.Context, job perdure.JobID, since time.Time) ([]*perdure.Step, error) {
	query, args := `SELECT `+stepColumns+` FROM step WHERE job = ?`, []any{job[:]}
	if !since.IsZero() {
		query, args = query+` AND updated_at >= ?`, append(args, micros(since))
	}
	return view(ctx, s, readStep, query+` ORDER BY idx`, args...)
}

// Payloads reads row by row, and no further than it is asked to.
func (s *Store) Payloads(ctx context.Context, job perdure.JobID, maxBytes int) ([]perdure.Payload, error) {
	return view(ctx, s, readPayload, `
		SELECT job, idx, input, output FROM (
			SELECT job, idx, input, output, sum(coalesce(octet_length(input), 0) + coalesce(octet_length(output), 0))
				OVER (ORDER BY idx) - coalesce(octet_length(input), 0) - coalesce(octet_length(output), 0) AS before
			FROM payload WHERE job = ? AND (input IS NOT NULL OR output IS NOT NULL)
		) WHERE before < ? ORDER BY idx`, job[:], num(maxBytes))
}

func (s *Store) Alerts(ctx context.Context, f perdure.AlertFilter) ([]perdure.Alert, error) {
	q := filter{from: "alert"}
	if !f.Job.IsZero() {
		q.and(`job = ?`, f.Job[:])
	}
	if !f.Closed {
		q.and(`closed_at IS NULL`)
	}
	if f.Before != 0 {
		q.and(`id < ?`, f.Before)
	}
	query, args := q.query(alertColumns, `id DESC`, f.Limit)
	return view(ctx, s, readAlert, query, args...)
}

func (s *Store) History(ctx context.Context, job perdure.JobID, max int) ([]perdure.Entry, error) {
	entries, err := view(ctx, s, readEntry, `
		SELECT job, step, run, at, event, author, detail FROM entry WHERE job = ? ORDER BY id DESC LIMIT ?`, job[:], atMost(max))
	slices.Reverse(entries)
	return entries, err
}

func (s *Store) LimitUse(ctx context.Context, name string, max int) (int, []perdure.LimitHolder, error) {
	if err := s.usable(ctx); err != nil {
		return 0, nil, err
	}
	used, err := countHolders(ctx, s.read, name)
	if err != nil || used == 0 {
		return 0, nil, s.readFailed(err)
	}
	kind, of, _ := perdure.SplitLimit(name)
	if kind == "job" {
		holders, err := view(ctx, s, func(r *row) perdure.LimitHolder { return perdure.LimitHolder{Job: r.id()} },
			`SELECT id FROM job WHERE type = ? AND permit = 1 ORDER BY id LIMIT ?`, of, atMost(max))
		return used, holders, err
	}
	holders, err := view(ctx, s, func(r *row) perdure.LimitHolder {
		return perdure.LimitHolder{Job: r.id(), Step: r.text(), Run: r.num()}
	}, `SELECT job, name, run FROM step WHERE agent = ? AND phase = 3 ORDER BY job, idx LIMIT ?`, of, atMost(max))
	return used, holders, err
}

func (s *Store) ListLimits(ctx context.Context) ([]perdure.Limit, error) {
	return view(ctx, s, readLimit, `SELECT name, max FROM "limit" ORDER BY name`)
}

// Look asks the three indexes that are kept by time for their first, and the one of ready steps for each
// agent.
func (s *Store) Look(ctx context.Context, agents []string) (perdure.Look, error) {
	var l perdure.Look
	for _, query := range []string{
		`SELECT min(available_at) FROM step WHERE phase = 1 AND available_at IS NOT NULL`,
		`SELECT min(locked_until) FROM step WHERE phase = 3`,
		`SELECT min(complete_by) FROM job WHERE phase <> 0 AND overdue = 0 AND parked_at IS NULL AND complete_by IS NOT NULL`,
	} {
		at, err := viewOne(ctx, s, (*row).time, query)
		if err != nil {
			return l, err
		}
		if l.Next.IsZero() || !at.IsZero() && at.Before(l.Next) {
			l.Next = at
		}
	}
	for _, agent := range slices.Sorted(slices.Values(agents)) {
		ready, err := viewOne(ctx, s, (*row).flag, `SELECT EXISTS (SELECT 1 FROM step WHERE phase = 2 AND agent = ?)`, agent)
		if err != nil {
			return l, err
		}
		if ready {
			l.Ready = append(l.Ready, agent)
		}
	}
	l.Now = s.clock.now()
	return l, nil
}

func (s *Store) Backlog(ctx context.Context, max int) (int, error) {
	return viewOne(ctx, s, (*row).int, `SELECT count(*) FROM (SELECT 1 FROM job WHERE phase <> 0 LIMIT ?)`, atMost(max))
}
