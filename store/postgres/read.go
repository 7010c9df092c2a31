package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

var jobSQL = "select " + names(rowColumns, "s.") + ", " + implicitOfFirst + " from perdure.step s where job = $1 and idx < $2 order by idx"

// implicitOfFirst selects, beside the first row of a job s, which of its steps may be implicit.
const implicitOfFirst = "case when s.idx = 0 and s.job_phase <> 0 then (select later from perdure.shape where id = s.shape) end"

const (
	shapeSQL = "select text from perdure.shape where id = $1"
	inputSQL = `select case when size <= $2 then coalesce(s.input, p.input) end, size from perdure.step s
		left join perdure.payload p on p.job = s.job and p.idx = -1,
		lateral (select coalesce(octet_length(s.input), octet_length(p.input), 0) as size) z where s.job = $1 and s.idx = 0`
	findKeySQL = `select job from perdure.step where job_key = $1 and job_key is not null
		union all
		select recipient from perdure.mail where key = $1 and key is not null and refusal is null and ` + stillWaiting + " limit 1"
	findIDsSQL = "select job from perdure.step where job between $1 and $2 and idx = 0 order by job limit $3"
	// readPayloadsSQL reads only the sizes of values that are left out.
	readPayloadsSQL = `with sizes as (
			select *, coalesce(octet_length(input), 0) as ins, coalesce(octet_length(output), 0) as outs
			from perdure.payload where job = $1 and idx >= 0 and (input is not null or output is not null)
		), counted as (
			select *, case when ins <= $2 then ins else 0 end as in_sum, case when outs <= $2 then outs else 0 end as out_sum from sizes
		), sums as (
			select *, sum(in_sum + out_sum) over (order by idx) as upto from counted
		)
		select job, idx, case when ins <= $2 and upto - out_sum <= $3 then input end, case when outs <= $2 and upto <= $3 then output end, ins, outs
		from sums order by idx`
	readPayloadSQL = `select job, idx, input, output from perdure.payload where job = $1 and idx = $2 and (input is not null or output is not null)`
	entryColumns   = "id, job, step, run, at, event, author, detail, turn, direction, ready_at, started_at"
	historySQL     = "select " + entryColumns + " from perdure.entry where job = $1 and id > $2 order by id limit $3"

	// runsSQL uses the index entry_run, whose condition and terms it repeats.
	runsSQL = "select " + entryColumns + ` from perdure.entry
		where job = $1 and run > 0 and event in ('done', 'failed', 'rejected', 'returned', 'expired')
			and (coalesce(started_at, at), step, run) > ($2, $3, $4)
		order by coalesce(started_at, at), step, run, id limit $5`

	// jobHoldersSQL and the next select the holders of a limit. If the limit is not defined and no permits are stored,
	// they select what would hold it.
	jobHoldersSQL = `with held as (
			select job from perdure.permit where name = $1
			union all
			select o.job from` + unsettledSQL + firstOfOpenSQL + `
			where s.type = $2 and s.permit and not exists (select from perdure."limit" where name = $1))
		select job, '', 0::bigint, '', 1, n from (select job from held order by job limit $3) h
			right join (select count(*) as n from held) c on true order by job`
	runHoldersSQL = `with held as (
			select job, idx from perdure.permit where name = $1
			union all
			select distinct s.job, s.idx from perdure.out o` + membersSQL + `
			where o.agent = $2 and s.agent = $2 and s.phase = 3
				and not exists (select from perdure."limit" where name = $1))
		select h.job, s.name, s.run, '', 1, n from (select job, idx from held order by job, idx limit $3) h
			join perdure.step s on s.job = h.job and s.idx = h.idx
			right join (select count(*) as n from held) c on true order by h.job, h.idx`
	keyHoldersSQL = `with held as (select job, idx, key, amount from perdure.permit where name = $1 and ($2 = '' or key = $2))
		select h.job, coalesce(s.name, ''), coalesce(s.run, 0), h.key, h.amount, n from (select * from held order by job, idx limit $3) h
			left join perdure.step s on s.job = h.job and s.idx = h.idx
			right join (select coalesce(sum(amount), 0) as n from held) c on true order by h.job, h.idx`

	backlogSQL = `select least($1, (select count(*) from (select from` + unsettledSQL + `limit $1) j)
		+ (select coalesce(sum(size - taken), 0) from perdure.bundle))::int`
)

func scanJob(r *pgwire.Reader) *kernel.Job {
	j := &kernel.Job{}
	r.Failed = scan(r, jobColumns, j, nil)
	return j
}

func (s *Store) Job(ctx context.Context, id perdure.JobID, steps int) (*kernel.Job, []*kernel.Step, error) {
	w, found, err := s.rows(ctx, id, pgwire.New(jobSQL).UUID(id).Int(max(steps, 1)))
	if err != nil || len(found) == 0 {
		return nil, nil, err
	}
	found = w.insertInto(found, steps)
	return w.job, found[:min(len(found), max(steps, 0))], nil
}

var stepsOfJobsSQL = "select " + names(rowColumns, "s.") + ", " + implicitOfFirst + " from perdure.step s where job = any($1) and idx < $2 order by job, idx"

func (s *Store) StepsOfJobs(ctx context.Context, jobs []perdure.JobID, max int) (map[perdure.JobID][]*kernel.Step, error) {
	type rows struct {
		implicitSteps
		steps []*kernel.Step
	}
	var bundled bundledJobs
	var found map[perdure.JobID]*rows
	err := s.send(ctx, func() []*pgwire.Statement {
		bundled, found = bundledJobs{}, make(map[perdure.JobID]*rows, len(jobs))
		scan := func(r *pgwire.Reader) error {
			row := &jobRow{}
			if err := scan(r, rowColumns, &row.job, &row.step); err != nil {
				return err
			}
			implicit, err := scanImplicit(r)
			of := found[row.step.Job]
			if of == nil {
				of = &rows{implicitSteps: implicitSteps{&row.job, implicit}}
				found[row.step.Job] = of
			}
			of.steps = append(of.steps, &row.step)
			return err
		}
		at := func(i int) [16]byte { return jobs[i] }
		return []*pgwire.Statement{
			pgwire.New(bundledOfJobsSQL).UUIDArray(len(jobs), at).UUIDArray(len(jobs), func(i int) [16]byte { return bundle.Low(jobs[i]) }).Each(bundled.scan),
			pgwire.New(stepsOfJobsSQL).UUIDArray(len(jobs), at).Int(max).Each(scan),
		}
	})
	steps := make(map[perdure.JobID][]*kernel.Step, len(jobs))
	for i, row := range bundled.rows {
		if found[row.job.ID] == nil {
			found[row.job.ID] = &rows{implicitSteps{&row.job, bundled.implicit[i]}, []*kernel.Step{&row.step}}
		}
	}
	for id, of := range found {
		all := of.insertInto(of.steps, max)
		steps[id] = all[:min(len(all), max)]
	}
	return steps, err
}

// rows returns the steps of a job that have rows, and its implicit steps; or the steps of a job in a bundle.
func (s *Store) rows(ctx context.Context, id perdure.JobID, st *pgwire.Statement) (w implicitSteps, steps []*kernel.Step, err error) {
	var bundled bundledJobs
	err = s.send(ctx, func() []*pgwire.Statement {
		w, steps = implicitSteps{}, nil
		return []*pgwire.Statement{bundled.one(id), st.Each(w.scanRows(&steps))}
	})
	return w, bundled.into(&w, steps), err
}

func (s *Store) Shape(ctx context.Context, id kernel.ShapeID) ([]byte, error) {
	return first(query(ctx, s, pgwire.New(shapeSQL).UUID(id), (*pgwire.Reader).Bytes))
}

func (s *Store) Input(ctx context.Context, id perdure.JobID, max int) (in json.RawMessage, size int, err error) {
	var bundled bundledJobs
	found := false
	err = s.send(ctx, func() []*pgwire.Statement {
		in, size, found = nil, 0, false
		return []*pgwire.Statement{bundled.one(id), pgwire.New(inputSQL).UUID(id).Int64(int64(max)).Each(func(r *pgwire.Reader) error {
			in, size, found = r.Bytes(), r.Int(), true
			return nil
		})}
	})
	if !found && len(bundled.rows) > 0 {
		if in = bundled.rows[0].job.Input; len(in) > max {
			return nil, len(in), err
		}
		return in, len(in), err
	}
	return in, size, err
}

func (s *Store) FindJobs(ctx context.Context, ref string, max int) ([]perdure.JobID, error) {
	ids, err := query(ctx, s, pgwire.New(findKeySQL).Text(ref), scanID)
	if err != nil {
		return nil, err
	}
	if low, high, ok := kernel.IDRange(ref); ok {
		bundled, err := s.listBundled(ctx, kernel.JobFilter{After: bundle.Before(low), Before: bundle.After(high), Ascending: true, Limit: max})
		if err != nil {
			return nil, err
		}
		more, err := query(ctx, s, pgwire.New(findIDsSQL).UUID(low).UUID(high).Int(max), scanID)
		if err != nil {
			return nil, err
		}
		for _, j := range bundled {
			if !slices.Contains(more, j.ID) {
				more = append(more, j.ID)
			}
		}
		slices.SortFunc(more, perdure.JobID.Compare)
		for _, id := range more {
			if len(ids) == 0 || id != ids[0] {
				ids = append(ids, id)
			}
		}
	}
	return ids[:min(len(ids), max)], nil
}

// stepsSinceSQL reads steps that were updated since, and the first row, from which implicit steps follow.
var stepsSinceSQL = "select " + names(rowColumns, "s.") + ", " + implicitOfFirst + " from perdure.step s where job = $1 and (updated_at >= $2 or idx = 0) order by idx"

func (s *Store) StepsOf(ctx context.Context, job perdure.JobID, since time.Time) ([]*kernel.Step, error) {
	st := pgwire.New(stepsOfSQL).UUID(job)
	if !since.IsZero() {
		st = pgwire.New(stepsSinceSQL).UUID(job).Time(since)
	}
	w, steps, err := s.rows(ctx, job, st)
	if err != nil || since.IsZero() {
		return w.insertInto(steps, perdure.MaxSteps), err
	}
	// A step without a row was not updated since the job was created. If the job was created since, all rows are here.
	if w.job != nil && !w.job.CreatedAt.Before(since) {
		steps = w.insertInto(steps, perdure.MaxSteps)
	}
	return slices.DeleteFunc(steps, func(s *kernel.Step) bool { return s.UpdatedAt.Before(since) }), nil
}

func (s *Store) Payloads(ctx context.Context, job perdure.JobID, max, total int) ([]kernel.SizedPayload, error) {
	return query(ctx, s, pgwire.New(readPayloadsSQL).UUID(job).Int64(int64(max)).Int64(int64(total)), func(r *pgwire.Reader) kernel.SizedPayload {
		return kernel.SizedPayload{Payload: scanPayload(r), InputBytes: r.Int(), OutputBytes: r.Int()}
	})
}

func (s *Store) Payload(ctx context.Context, ref kernel.StepRef) (*kernel.Payload, error) {
	found, err := query(ctx, s, pgwire.New(readPayloadSQL).UUID(ref.Job).Int(ref.Index), scanPayload)
	if len(found) == 0 {
		return nil, err
	}
	return &found[0], err
}

func (s *Store) History(ctx context.Context, job perdure.JobID, after int64, max int) ([]kernel.Entry, error) {
	return query(ctx, s, pgwire.New(historySQL).UUID(job).Int64(after).Int(max), readEntry)
}

// Runs reads the entries of runs in the order of their starts.
func (s *Store) Runs(ctx context.Context, job perdure.JobID, after kernel.RunPlace, max int) ([]kernel.Entry, error) {
	from := after.StartedAt
	if from.IsZero() {
		from = time.Unix(0, 0) // no run has started before
	}
	return query(ctx, s, pgwire.New(runsSQL).UUID(job).Time(from).Text(after.Step).Int64(after.Run).Int(max), readEntry)
}

func readEntry(r *pgwire.Reader) kernel.Entry {
	return kernel.Entry{ID: r.Int64(), Job: r.UUID(), Step: r.Text(), Run: r.Int64(), At: r.Time(), Event: r.Text(), Author: r.Text(), Detail: r.Text(),
		Turn: int(r.Int64()), Direction: perdure.Direction(r.Int64()), ReadyAt: r.Time(), StartedAt: r.Time()}
}

func (s *Store) LimitUse(ctx context.Context, limit kernel.LimitKey, max int) (used int, holders []kernel.LimitHolder, err error) {
	kind, of, _ := kernel.SplitLimit(limit.Name)
	sql := runHoldersSQL
	switch kind {
	case kernel.LimitOfJobs:
		sql = jobHoldersSQL
	case kernel.LimitNamed:
		sql, of = keyHoldersSQL, limit.Key
	}
	err = s.send(ctx, func() []*pgwire.Statement {
		holders = nil
		return []*pgwire.Statement{pgwire.New(sql).Text(limit.Name).Text(of).Int(max).Each(func(r *pgwire.Reader) error {
			job := r.Next()
			h := kernel.LimitHolder{Step: r.Text(), Run: r.Int64(), Key: r.Text(), Amount: r.Int()}
			used = int(r.Int64())
			if job != nil {
				h.Job = perdure.JobID(job)
				holders = append(holders, h)
			}
			return nil
		})}
	})
	return used, holders, err
}

const closedKeysSQL = `select l.closed_key, l.limits, r.n from (
		select closed_key, agent, lane, limits, ord from perdure.lane where closed_name = $1 order by closed_key, ord, agent, lane limit $2) l
	cross join lateral (select count(*) as n from (select from perdure.ready where agent = l.agent and lane = l.lane limit $3) x) r
	order by l.closed_key, l.ord, l.agent, l.lane`

func (s *Store) ClosedKeys(ctx context.Context, limit string, max int) ([]kernel.ClosedKey, error) {
	var keys kernel.ClosedKeys
	err := s.send(ctx, func() []*pgwire.Statement {
		keys = kernel.ClosedKeys{Limit: limit}
		return []*pgwire.Statement{pgwire.New(closedKeysSQL).Text(limit).Int(kernel.MaxKeyLanes).Int(kernel.MaxKeyReady).Each(func(r *pgwire.Reader) error {
			keys.Add(r.Text(), kernel.Needs(r.Text()), int(r.Int64()))
			return nil
		})}
	})
	return keys.First(max), err
}

func (s *Store) Cell(ctx context.Context) (int, error) {
	return first(query(ctx, s, pgwire.New(cellSQL), (*pgwire.Reader).Int))
}

func (s *Store) ListAgents(ctx context.Context) (map[string]perdure.AgentSettings, error) {
	found := map[string]perdure.AgentSettings{}
	var damaged error
	_, err := query(ctx, s, pgwire.New(agentsSQL), func(r *pgwire.Reader) struct{} {
		name := r.Text()
		set := perdure.AgentSettings{Ageing: perdure.Duration(r.Int64()) * perdure.Duration(time.Microsecond), Patience: perdure.Duration(r.Int64()) * perdure.Duration(time.Microsecond)}
		damaged = cmp.Or(damaged, kernel.ReadFair(&set, r.Text()))
		found[name] = set
		return struct{}{}
	})
	return found, cmp.Or(err, damaged)
}

const bucketsSQL = `select b.name, b.key, b.full_at, b.permit from unnest($1::text[], $2::text[]) as u (name, key)
	join perdure.bucket b on b.name = any(array[u.name collate "C"]) and b.key = u.key collate "C"`

func (s *Store) Buckets(ctx context.Context, keys []kernel.LimitKey) (map[kernel.LimitKey]kernel.Bucket, error) {
	var names, texts pgwire.Cells
	for _, k := range keys {
		names.Text(k.Name)
		texts.Text(k.Key)
	}
	list, err := query(ctx, s, pgwire.New(bucketsSQL).Array(pgwire.Text, len(keys), names).Array(pgwire.Text, len(keys), texts), func(r *pgwire.Reader) kernel.KeyBucket {
		return kernel.KeyBucket{LimitKey: kernel.LimitKey{Name: r.Text(), Key: r.Text()}, Bucket: scanBucket(r)}
	})
	found := make(map[kernel.LimitKey]kernel.Bucket, len(list))
	for _, b := range list {
		found[b.LimitKey] = b.Bucket
	}
	return found, err
}

func (s *Store) FirstInLine(ctx context.Context, keys []kernel.LimitKey) (map[kernel.LimitKey]kernel.FirstInLine, error) {
	var names, texts pgwire.Cells
	for _, k := range keys {
		names.Text(k.Name)
		texts.Text(k.Key)
	}
	found := map[kernel.LimitKey]kernel.FirstInLine{}
	_, err := query(ctx, s, pgwire.New(firstInLineSQL).Array(pgwire.Text, len(keys), names).Array(pgwire.Text, len(keys), texts), func(r *pgwire.Reader) struct{} {
		k := kernel.LimitKey{Name: r.Text(), Key: r.Text()}
		found[k] = scanFirst(r)
		return struct{}{}
	})
	return found, err
}

func (s *Store) ListLimits(ctx context.Context) ([]kernel.Limit, error) {
	return query(ctx, s, pgwire.New(limitsSQL), scanLimit)
}

func (s *Store) Backlog(ctx context.Context, max int) (int, error) {
	return first(query(ctx, s, pgwire.New(backlogSQL).Int(max), (*pgwire.Reader).Int))
}
