package postgres

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"perdure"
)

var jobSQL = "select " + names(jobColumns, "") + " from perdure.job where id = $1"

const (
	definitionSQL = "select body from perdure.definition where job = $1"
	findKeySQL    = "select id from perdure.job where key = $1 and key <> ''"
	findIDsSQL    = "select id from perdure.job where id between $1::uuid and $2::uuid order by id limit $3"
	// readPayloadsSQL stops once $2 bytes have been read: the sum is of the rows before.
	readPayloadsSQL = `select job, idx, input, output from (
			select *, coalesce(sum(coalesce(octet_length(input), 0) + coalesce(octet_length(output), 0))
				over (order by idx rows between unbounded preceding and 1 preceding), 0) as before
			from perdure.payload where job = $1 and (input is not null or output is not null)) p
		where before < $2 order by idx`
	historySQL = `select job, step, run, at, event, author, detail from (
			select * from perdure.entry where job = $1 order by id desc limit $2) e
		order by id`
	listLimitsSQL = `select name, max, 0 from perdure."limit" order by name`
	useSQL        = "select used from (select $1::text collate \"C\" as name) l cross join lateral (" + usedSQL + ") u"
	jobHoldersSQL = `select id, '', 0::bigint from (
			select id from perdure.job where permit and type = $1 offset 0) j
		order by id limit $2`
	runHoldersSQL = `select job, name, run from perdure.step where phase = 3 and agent = $1 order by job, idx limit $2`
	lookSQL       = `select clock_timestamp(), mark, ahead, least(
		(select available_at from perdure.step where phase = 1 and available_at is not null order by available_at limit 1),
		(select locked_until from perdure.step where phase = 3 and locked_until is not null order by locked_until limit 1),
		(select complete_by from perdure.job where open and not overdue and parked_at is null and complete_by is not null
			order by complete_by limit 1)),
		array(select agent from unnest($1::text[]) as a (agent)
			where exists (select from perdure.step s where s.phase = 2 and s.agent = a.agent collate "C") order by agent collate "C")
		from perdure.clock where one`
	backlogSQL = "select count(*) from (select from perdure.job where open limit $1) j"
)

func (s *Store) Job(ctx context.Context, id perdure.JobID) (*perdure.Job, error) {
	return first(query(ctx, s, scanJob, jobSQL, [16]byte(id)))
}

func (s *Store) Definition(ctx context.Context, id perdure.JobID) ([]byte, error) {
	return first(query(ctx, s, pgx.RowTo[[]byte], definitionSQL, [16]byte(id)))
}

func (s *Store) FindJobs(ctx context.Context, ref string, max int) ([]perdure.JobID, error) {
	ids, err := query(ctx, s, scanID, findKeySQL, ref)
	if err != nil {
		return nil, err
	}
	if low, high, ok := idRange(strings.TrimPrefix(ref, "job_")); ok {
		more, err := query(ctx, s, scanID, findIDsSQL, low, high, max)
		if err != nil {
			return nil, err
		}
		for _, id := range more {
			if len(ids) == 0 || id != ids[0] {
				ids = append(ids, id)
			}
		}
	}
	return ids[:min(len(ids), max)], nil
}

// idRange is the range of uuids that start with these digits.
func idRange(digits string) (low, high string, ok bool) {
	if digits == "" || len(digits) > 32 || strings.Trim(digits, "0123456789abcdef") != "" {
		return "", "", false
	}
	rest := 32 - len(digits)
	return digits + strings.Repeat("0", rest), digits + strings.Repeat("f", rest), true
}

func (s *Store) StepsOf(ctx context.Context, job perdure.JobID, since time.Time) ([]*perdure.Step, error) {
	if since.IsZero() {
		return query(ctx, s, scanStep, stepsOfSQL, [16]byte(job))
	}
	sql := "select " + names(stepColumns, "") + " from perdure.step where job = $1 and updated_at >= $2 order by idx"
	return query(ctx, s, scanStep, sql, [16]byte(job), since)
}

func (s *Store) Payloads(ctx context.Context, job perdure.JobID, maxBytes int) ([]perdure.Payload, error) {
	return query(ctx, s, scanPayload, readPayloadsSQL, [16]byte(job), maxBytes)
}

func (s *Store) History(ctx context.Context, job perdure.JobID, max int) ([]perdure.Entry, error) {
	return query(ctx, s, func(row pgx.CollectableRow) (perdure.Entry, error) {
		e, err := scan(row, entryColumns)
		return *e, err
	}, historySQL, [16]byte(job), max)
}

func (s *Store) LimitUse(ctx context.Context, name string, max int) (int, []perdure.LimitHolder, error) {
	kind, of, _ := perdure.SplitLimit(name)
	sql := map[string]string{"job": jobHoldersSQL, "agent": runHoldersSQL}[kind]
	if sql == "" {
		return 0, nil, nil
	}
	holders, err := query(ctx, s, scanHolder, sql, of, max)
	if err != nil || len(holders) < max {
		return len(holders), holders, err
	}
	used, err := first(query(ctx, s, pgx.RowTo[int], useSQL, name))
	return cmp.Or(used, len(holders)), holders, err
}

func scanHolder(row pgx.CollectableRow) (h perdure.LimitHolder, err error) {
	return h, row.Scan((*[16]byte)(&h.Job), &h.Step, &h.Run)
}

func (s *Store) ListLimits(ctx context.Context) ([]perdure.Limit, error) {
	return query(ctx, s, scanLimit, listLimitsSQL)
}

func (s *Store) Look(ctx context.Context, agents []string) (perdure.Look, error) {
	if agents == nil {
		agents = []string{}
	}
	return first(query(ctx, s, func(row pgx.CollectableRow) (l perdure.Look, err error) {
		var r reading
		err = row.Scan(instant{&r.server}, instant{&r.mark}, micros{&r.ahead}, instant{&l.Next}, &l.Ready)
		l.Now = s.clock.tell(r).now
		return l, err
	}, lookSQL, agents))
}

func (s *Store) Backlog(ctx context.Context, max int) (int, error) {
	return first(query(ctx, s, pgx.RowTo[int], backlogSQL, max))
}
