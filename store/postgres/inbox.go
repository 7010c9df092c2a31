package postgres

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var _ kernel.Inbox = (*Store)(nil)
var _ kernel.InboxTx = (*tx)(nil)

const (
	// stillWaiting says it in a way that fits no index: what is known by its id or key is found by that.
	stillWaiting = "coalesce(closed_at, 'infinity') = 'infinity'"

	postedSQL = `
select id, key, hash, body from (
	select id, key, hash, body, posted_at, sum(octet_length(body)) over (order by posted_at, id) - octet_length(body) as before
	from (select * from perdure.inbox where closed_at is null order by posted_at, id limit $1) w) o
where before < $2 order by posted_at, id`
	submissionSQL = "select job, refusal, posted_at, closed_at from perdure.inbox where id = $1"
	takePostedSQL = "select id from perdure.inbox where id = any($1) and " + stillWaiting + " order by id for update skip locked"

	closePostedSQL = `
update perdure.inbox i set closed_at = clock_timestamp(), body = null,
	job = nullif(v.job, '00000000-0000-0000-0000-000000000000'), refusal = nullif(v.refusal, '')::jsonb
from unnest($1::uuid[], $2::uuid[], $3::text[]) as v (id, job, refusal)
where i.id = any(array[v.id])`
	forgetPostedSQL = `
delete from perdure.inbox where id = any(array(
	select id from perdure.inbox
	where closed_at is not null and closed_at < $1 and (refusal is null or closed_at < $2) order by closed_at limit $3))`
)

// Posted are the submissions that lie in the inbox.
func (s *Store) Posted(ctx context.Context, max, maxBytes int) ([]kernel.Posted, error) {
	return query(ctx, s, q(postedSQL).int(max).int64(int64(maxBytes)), func(r *reader) (p kernel.Posted) {
		p.ID, p.Key = r.uuid(), r.text()
		copy(p.Hash[:], r.next())
		p.Body = r.bytes()
		return p
	})
}

// Submission is what became of one.
func (s *Store) Submission(ctx context.Context, id perdure.JobID) (*kernel.Submission, error) {
	return first(query(ctx, s, q(submissionSQL).uuid(id), func(r *reader) *kernel.Submission {
		n := &kernel.Submission{ID: id}
		if job := r.next(); job != nil {
			copy(n.Job[:], job)
		}
		if b := r.next(); len(b) > 1 {
			n.Refusal = append(n.Refusal, b[1:]...) // after the number of the format
		}
		n.PostedAt, n.ClosedAt = r.time(), r.time()
		return n
	}))
}

// Mail is told by a NOTIFY in the caller's transaction, while somebody listens (Hints).
func (s *Store) Mail() <-chan struct{} { return s.hints.mail }

// ForgetPosted deletes what is closed and old.
func (s *Store) ForgetPosted(ctx context.Context, taken, refused time.Time, max int) (n int, err error) {
	err = s.write(ctx, func() []*statement {
		st := q(forgetPostedSQL).moment(taken).moment(refused).int(max)
		st.done = func(met int64) error { n = int(met); return nil }
		return []*statement{st}
	})
	return n, err
}

func (tx *tx) TakePosted(ids []perdure.JobID) ([]perdure.JobID, error) {
	var taken []perdure.JobID
	err := tx.run(into(q(takePostedSQL).uuids(ids), &taken, scanID))
	return taken, err
}

func (tx *tx) ClosePosted(closed []kernel.ClosedPost) error {
	var ids, jobs []perdure.JobID
	var refusals []string
	for _, c := range closed {
		ids, jobs, refusals = append(ids, c.ID), append(jobs, c.Job), append(refusals, string(c.Refusal))
	}
	return tx.run(q(closePostedSQL).uuids(ids).uuids(jobs).texts(refusals).exact(len(closed)))
}
