package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"

	"perdure"
)

const (
	jobsByKeySQL = "select key, id, hash from perdure.job where key = any($1) and key <> ''"
	jobByHashSQL = "select id from perdure.job where hash = $1 and open and key = '' order by id desc limit 1"
	limitsSQL    = `select name, max, 0 from perdure."limit" order by name`
	alertSQL     = "select " + alertFields + " from perdure.alert where id = $1"

	// readySQL walks the lanes of an agent, one per type of job, by a loose index scan, and takes no more
	// than $2 from each: a lane of a hundred thousand steps does not stand in front of another. Of the
	// types in $3 it comes from the other side, from the jobs that hold a permit; these are no more than
	// their limit.
	readySQL = `
with recursive lane (type) as (
	(select type from perdure.step where phase = 2 and agent = $1 order by type limit 1)
	union all
	select (select s.type from perdure.step s where s.phase = 2 and s.agent = $1 and s.type > lane.type
		order by s.type limit 1)
	from lane where lane.type is not null
)
select job, idx from (
	select r.priority, r.job, r.idx from lane cross join lateral (
		select s.priority, s.job, s.idx from perdure.step s
		where s.phase = 2 and s.agent = $1 and s.type = lane.type
		order by s.priority desc, s.job, s.idx limit $2) r
	where lane.type <> all ($3::text[])
	union all
	select r.priority, r.job, r.idx from unnest($3::text[]) as f (type) cross join lateral (
		select s.priority, s.job, s.idx from perdure.job j cross join lateral (
			select s.priority, s.job, s.idx from perdure.step s
			where s.phase = 2 and s.agent = $1 and s.type = j.type and s.priority = j.priority and s.job = j.id
			order by s.idx limit $2) s
		where j.permit and j.type = f.type collate "C"
		order by j.priority desc, j.id, s.idx limit $2) r
) s order by priority desc, job, idx limit $2`

	dueSQL = `select job, idx from perdure.step
		where phase = 1 and available_at is not null and available_at <= $1
		order by available_at, job, idx limit $2`
	expiredSQL = `select job, idx from perdure.step
		where phase = 3 and locked_until <= $1
		order by locked_until, job, idx limit $2`
	overdueSQL = `select id from perdure.job
		where open and not overdue and parked_at is null and complete_by is not null and complete_by <= $1
		order by complete_by, id limit $2`
	heldBySQL = `select job, idx from perdure.step
		where phase = 3 and agent = $2 and locked_by = $1
		order by job, idx limit $3`
	heldByRequestSQL = `select job, idx from perdure.step
		where phase = 3 and agent = $2 and locked_by = $1 and request = $4
		order by job, idx limit $3`
	// Of all agents: the whole of a partial index, which holds what is out.
	heldByAnySQL = `select job, idx from perdure.step
		where phase = 3 and locked_by = $1 and ($3 = '' or request = $3)
		order by job, idx limit $2`
	embeddedSQL = `select distinct locked_by from perdure.step
		where phase = 3 and locked_by like '@%' order by locked_by`
)

func (tx *tx) JobsByKey(keys []string) (map[string]perdure.Keyed, error) {
	found := map[string]perdure.Keyed{}
	_, err := rows(tx, func(row pgx.CollectableRow) (struct{}, error) {
		var key string
		var hash []byte
		var job perdure.Keyed
		err := row.Scan(&key, (*[16]byte)(&job.ID), &hash)
		copy(job.Hash[:], hash)
		found[key] = job
		return struct{}{}, err
	}, jobsByKeySQL, keys)
	return found, err
}

func (tx *tx) JobByHash(hash [32]byte) (perdure.JobID, bool, error) {
	return one(tx, scanID, jobByHashSQL, hash[:])
}

// Limits are those that hold until this transaction ends.
func (tx *tx) Limits() (limits []perdure.Limit, err error) {
	b := &pgx.Batch{}
	b.Queue(shareGate)
	b.Queue(limitsSQL).Query(into(&limits, scanLimit))
	return limits, tx.send(b)
}

func (tx *tx) Alert(id int64) (*perdure.Alert, error) {
	a, _, err := one(tx, pgx.RowToFunc[*perdure.Alert](scanAlert), alertSQL, id)
	return a, err
}

func (tx *tx) Ready(agent string, max int, full []string) ([]perdure.StepRef, error) {
	if full == nil {
		full = []string{}
	}
	return rows(tx, scanRef, readySQL, agent, max, full)
}

func (tx *tx) Due(now time.Time, max int) ([]perdure.StepRef, error) {
	return rows(tx, scanRef, dueSQL, now, max)
}

func (tx *tx) Expired(now time.Time, max int) ([]perdure.StepRef, error) {
	return rows(tx, scanRef, expiredSQL, now, max)
}

func (tx *tx) Overdue(now time.Time, max int) ([]perdure.JobID, error) {
	return rows(tx, scanID, overdueSQL, now, max)
}

func (tx *tx) HeldBy(holder, agent, request string, max int) ([]perdure.StepRef, error) {
	switch {
	case agent == "":
		return rows(tx, scanRef, heldByAnySQL, holder, max, request)
	case request == "":
		return rows(tx, scanRef, heldBySQL, holder, agent, max)
	}
	// The same claim, repeated on two nodes at once, must not find nothing on both: the later waits here
	// until the earlier has let out, and finds that.
	if _, err := tx.exec(claimTurn, holder, agent, request); err != nil {
		return nil, err
	}
	return rows(tx, scanRef, heldByRequestSQL, holder, agent, max, request)
}

const claimTurn = "select pg_advisory_xact_lock(hashtextextended(jsonb_build_array($1::text, $2::text, $3::text)::text, 8098991087))"

func (tx *tx) EmbeddedHolders() ([]string, error) {
	return rows(tx, pgx.RowTo[string], embeddedSQL)
}
