package postgres

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

const (
	// stillWaiting says it in a way that fits no index: what is known by its id or key is found by that.
	stillWaiting = "coalesce(closed_at, 'infinity') = 'infinity'"

	mailSQL = `
select recipient, id, kind, key, hash, body from (
	select recipient, id, kind, key, hash, body, posted_at,
		sum(octet_length(body)) over (order by posted_at, recipient, id) - octet_length(body) as before
	from (select * from perdure.mail where closed_at is null and kind = any($3) order by posted_at, recipient, id limit $1) w) o
where before < $2 order by posted_at, recipient, id`
	mailWaitingSQL = `
select count(*), coalesce(extract(epoch from clock_timestamp() - min(posted_at)) * 1e6, 0)::bigint from (
	select posted_at from perdure.mail where closed_at is null order by posted_at, recipient, id
	limit (select mail_max from perdure.clock where one)) w`
	submissionSQL = "select job, refusal, posted_at, closed_at from perdure.mail where recipient = $1 and id = 'submit'"
	takeMailSQL   = `
select m.recipient, m.id from unnest($1::uuid[], $2::text[]) as w (recipient, id) cross join lateral (
	select recipient, id from perdure.mail where recipient = w.recipient and id = w.id and ` + stillWaiting + ` for update skip locked) m`

	closeMailSQL = `
update perdure.mail m set closed_at = clock_timestamp(), body = null,
	job = nullif(v.job, '00000000-0000-0000-0000-000000000000'), refusal = nullif(v.refusal, '')::jsonb
from unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[]) as v (recipient, id, job, refusal)
where m.recipient = any(array[v.recipient]) and m.id = v.id and ` + stillWaiting + ``
	forgetMailSQL = `
delete from perdure.mail where (recipient, id) in (
	select recipient, id from perdure.mail
	where closed_at is not null and closed_at < $1 and (refusal is null or closed_at < $2) order by closed_at limit $3)`
	setMaxMailSQL = "update perdure.clock set mail_max = $1 where one and mail_max <> $1"
)

// Mail returns mails that wait.
func (s *Store) Mail(ctx context.Context, max, maxBytes int) ([]kernel.Mail, error) {
	return query(ctx, s, q(mailSQL).int(max).int64(int64(maxBytes)).texts(kernel.MailKinds), func(r *reader) (m kernel.Mail) {
		m.To, m.ID, m.Kind, m.Key = r.uuid(), r.text(), kernel.MailKind(r.text()), r.text()
		copy(m.Hash[:], r.next())
		m.Body = r.bytes()
		return m
	})
}

// MailWaiting is one look at an index.
func (s *Store) MailWaiting(ctx context.Context) (kernel.MailWaiting, error) {
	return first(query(ctx, s, q(mailWaitingSQL), func(r *reader) kernel.MailWaiting {
		return kernel.MailWaiting{Number: r.int(), Oldest: max(time.Duration(r.int64())*time.Microsecond, 0)}
	}))
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

// MailHints is told by a NOTIFY in the sender's transaction, while somebody listens (Hints).
func (s *Store) MailHints() <-chan struct{} { return s.hints.mail }

// ForgetMail deletes what is closed and old.
func (s *Store) ForgetMail(ctx context.Context, applied, refused time.Time, max int) (n int, err error) {
	err = s.write(ctx, func() []*statement {
		st := q(forgetMailSQL).moment(applied).moment(refused).int(max)
		st.counted(func(met int64) { n = int(met) })
		return []*statement{st}
	})
	return n, err
}

func (tx *tx) TakeMail(ids []kernel.MailID) (taken []kernel.MailID, err error) {
	var to []perdure.JobID
	var names []string
	for _, m := range ids {
		to, names = append(to, m.To), append(names, m.ID)
	}
	err = tx.run(into(uuids(q(takeMailSQL), to).texts(names), &taken, func(r *reader) (m kernel.MailID) {
		m.To, m.ID = r.uuid(), r.text()
		return m
	}))
	return taken, err
}

func (tx *tx) CloseMail(closed []kernel.ClosedMail) error {
	tx.wrote = true
	var to, jobs []perdure.JobID
	var names, refusals []string
	for _, c := range closed {
		to, names, jobs, refusals = append(to, c.To), append(names, c.ID), append(jobs, c.Job), append(refusals, string(c.Refusal))
	}
	return tx.run(uuids(uuids(q(closeMailSQL), to).texts(names), jobs).texts(refusals).exact(len(closed)))
}

func (tx *tx) SetMaxMail(max int) error {
	tx.wrote = true
	return tx.run(q(setMaxMailSQL).int64(int64(max)))
}
