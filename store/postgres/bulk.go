package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	bulkColumns = `id, coalesce(key, ''), request, author, reason, listed_count, below, expected, capped, state, stopped_by, cursor,
	done, unchanged, refused, started_at, updated_at, ended_at, resumed_at, matched_before`
	bulkSQL        = "select " + bulkColumns + " from perdure.bulk where id = $1"
	lockBulkSQL    = bulkSQL + " for update"
	bulkByKeySQL   = "select " + bulkColumns + " from perdure.bulk where key = $1"
	bulksSQL       = "select " + bulkColumns + " from perdure.bulk where id < $1 order by id desc limit $2"
	bulksOfSQL     = "select " + bulkColumns + " from perdure.bulk where id < $1 and state = $3 order by id desc limit $2"
	runningBulkSQL = "select count(*)::int from perdure.bulk where state = 'running'"
	listedJobsSQL  = "select listed from perdure.bulk where id = $1"

	addBulkSQL = `
insert into perdure.bulk (id, key, request, author, reason, listed_count, below, expected, capped, state, stopped_by, cursor,
	done, unchanged, refused, started_at, updated_at, ended_at, resumed_at, matched_before, listed)
values ($1, nullif($2, ''), $3, $4, $5, $6, $7, $8, $9 <> 0, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
on conflict do nothing`
	saveBulkSQL = `
update perdure.bulk set state = $2, stopped_by = $3, cursor = $4, done = $5, unchanged = $6, refused = $7,
	updated_at = $8, ended_at = $9, resumed_at = $10, matched_before = $11 where id = $1`
	addBulkRefusalsSQL = `
insert into perdure.bulk_refusal (bulk, number, job, code, message)
select $1, r.number, r.job, r.code, r.message from unnest($2::int[], $3::uuid[], $4::text[], $5::text[]) as r (number, job, code, message)`
	busySQL = `select exists (select from pg_stat_activity
		where datname = current_database() and backend_type = 'client backend' and state <> 'idle' and pid <> pg_backend_pid())`
	bulkRefusalsSQL = `
select r.number, r.job, coalesce(s.job_key, ''), r.code, r.message from perdure.bulk_refusal r left join perdure.step s on s.job = r.job and s.idx = 0
where r.bulk = $1 and r.number > $2 order by r.number limit $3`
	forgetBulkSQL = `
delete from perdure.bulk where id in (
	select id from perdure.bulk where state <> 'running' and updated_at < $1 order by id limit $2)`

	afterAllBulk = "c" // follows every id of a bulk act
)

func scanBulkAct(r *pgwire.Reader) *kernel.BulkAct {
	return &kernel.BulkAct{ID: r.Text(), Key: r.Text(), Request: r.Bytes(), Author: r.Text(), Reason: r.Text(), Listed: r.Int(), Below: r.UUID(),
		Expected: r.Int(), Capped: r.Bool(), State: operate.BulkState(r.Text()), StoppedBy: r.Text(), Cursor: r.UUID(),
		Done: r.Int(), Unchanged: r.Int(), Refused: r.Int(), StartedAt: r.Time(), UpdatedAt: r.Time(), EndedAt: r.Time(), ResumedAt: r.Time(), MatchedBefore: r.Int()}
}

func (tx *tx) oneBulkAct(s *pgwire.Statement) (*kernel.BulkAct, error) {
	var found []*kernel.BulkAct
	if err := tx.run(pgwire.Into(s, &found, scanBulkAct)); err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

func (tx *tx) LockBulkAct(id string) (*kernel.BulkAct, error) {
	return tx.oneBulkAct(pgwire.New(lockBulkSQL).Text(id))
}

func (tx *tx) BulkActByKey(key string) (*kernel.BulkAct, error) {
	return tx.oneBulkAct(pgwire.New(bulkByKeySQL).Text(key))
}

func (tx *tx) RunningBulkActs() (n int, err error) {
	err = tx.run(pgwire.New(runningBulkSQL).Each(func(r *pgwire.Reader) error {
		n = r.Int()
		return r.Failed
	}))
	return n, err
}

func (tx *tx) AddBulkAct(b *kernel.BulkAct, listed []perdure.JobID) error {
	tx.wrote = true
	ids := make([]byte, 0, len(listed)*len(perdure.JobID{}))
	for _, id := range listed {
		ids = append(ids, id[:]...)
	}
	capped := 0
	if b.Capped {
		capped = 1
	}
	return tx.run(pgwire.New(addBulkSQL).Text(b.ID).Text(b.Key).Text(string(b.Request)).Text(b.Author).Text(b.Reason).Int(b.Listed).UUID(b.Below).
		Int(b.Expected).Int(capped).Text(string(b.State)).Text(b.StoppedBy).UUID(b.Cursor).Int(b.Done).Int(b.Unchanged).Int(b.Refused).
		Time(b.StartedAt).Time(b.UpdatedAt).Time(b.EndedAt).Time(b.ResumedAt).Int(b.MatchedBefore).Bytes(ids).Exact(1))
}

func (tx *tx) SaveBulkAct(b *kernel.BulkAct, refusals []kernel.BulkRefusal) error {
	tx.wrote = true
	list := []*pgwire.Statement{pgwire.New(saveBulkSQL).Text(b.ID).Text(string(b.State)).Text(b.StoppedBy).UUID(b.Cursor).
		Int(b.Done).Int(b.Unchanged).Int(b.Refused).Time(b.UpdatedAt).Time(b.EndedAt).Time(b.ResumedAt).Int(b.MatchedBefore).Exact(1)}
	if len(refusals) > 0 {
		var codes, messages []string
		for _, r := range refusals {
			codes, messages = append(codes, string(r.Code)), append(messages, r.Message)
		}
		list = append(list, pgwire.New(addBulkRefusalsSQL).Text(b.ID).
			Int4Array(len(refusals), func(i int) int { return refusals[i].Number }).
			UUIDArray(len(refusals), func(i int) [16]byte { return refusals[i].Job }).Texts(codes).Texts(messages))
	}
	return tx.run(list...)
}

// BulkAct implements kernel.BulkReader.
func (s *Store) BulkAct(ctx context.Context, id string) (*kernel.BulkAct, error) {
	return first(query(ctx, s, pgwire.New(bulkSQL).Text(id), scanBulkAct))
}

// BulkActs implements kernel.BulkReader.
func (s *Store) BulkActs(ctx context.Context, f kernel.BulkFilter) ([]*kernel.BulkAct, error) {
	before, limit := cmp.Or(f.Before, afterAllBulk), cmp.Or(f.Limit, perdure.DefaultListLimit)
	if f.State == "" {
		return query(ctx, s, pgwire.New(bulksSQL).Text(before).Int(limit), scanBulkAct)
	}
	return query(ctx, s, pgwire.New(bulksOfSQL).Text(before).Int(limit).Text(string(f.State)), scanBulkAct)
}

// ListedJobs implements kernel.BulkReader.
func (s *Store) ListedJobs(ctx context.Context, id string, after perdure.JobID, max int) (ids []perdure.JobID, err error) {
	all, err := first(query(ctx, s, pgwire.New(listedJobsSQL).Text(id), func(r *pgwire.Reader) []byte { return r.Bytes() }))
	for ; len(all) >= len(after) && len(ids) < max; all = all[len(after):] {
		if job := perdure.JobID(all[:len(after)]); job.Compare(after) > 0 {
			ids = append(ids, job)
		}
	}
	return ids, err
}

// BulkRefusals implements kernel.BulkReader.
func (s *Store) BulkRefusals(ctx context.Context, id string, after, max int) ([]kernel.BulkRefusal, error) {
	return query(ctx, s, pgwire.New(bulkRefusalsSQL).Text(id).Int(after).Int(max), func(r *pgwire.Reader) kernel.BulkRefusal {
		return kernel.BulkRefusal{Number: r.Int(), Job: r.UUID(), Key: r.Text(), Code: perdure.Code(r.Text()), Message: r.Text()}
	})
}

// Busy implements kernel.BulkReader. PostgreSQL shows what other roles' connections do only to members of pg_read_all_stats.
func (s *Store) Busy(ctx context.Context) (bool, error) {
	return first(query(ctx, s, pgwire.New(busySQL), (*pgwire.Reader).Bool))
}

// ForgetBulkActs implements kernel.BulkReader. The refusals are deleted by their foreign key.
func (s *Store) ForgetBulkActs(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.write(ctx, func() []*pgwire.Statement {
		st := pgwire.New(forgetBulkSQL).Moment(before).Int(max)
		st.Counted(func(met int64) { n = int(met) })
		return []*pgwire.Statement{st}
	})
	return n, err
}
