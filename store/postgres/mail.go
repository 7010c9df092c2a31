package postgres

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	// stillWaiting is written so that it matches no index: mail with a known id or key is found by that.
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
	return query(ctx, s, pgwire.New(mailSQL).Int(max).Int64(int64(maxBytes)).Texts(kernel.MailKinds), func(r *pgwire.Reader) (m kernel.Mail) {
		m.To, m.ID, m.Kind, m.Key = r.UUID(), r.Text(), kernel.MailKind(r.Text()), r.Text()
		copy(m.Hash[:], r.Next())
		m.Body = r.Bytes()
		return m
	})
}

// MailWaiting counts the entries of the index of waiting mail, up to the number of mails that may wait.
func (s *Store) MailWaiting(ctx context.Context) (kernel.MailWaiting, error) {
	return first(query(ctx, s, pgwire.New(mailWaitingSQL), func(r *pgwire.Reader) kernel.MailWaiting {
		return kernel.MailWaiting{Number: r.Int(), Oldest: max(time.Duration(r.Int64())*time.Microsecond, 0)}
	}))
}

// Submission returns the outcome of a submission.
func (s *Store) Submission(ctx context.Context, id perdure.JobID) (*kernel.Submission, error) {
	return first(query(ctx, s, pgwire.New(submissionSQL).UUID(id), func(r *pgwire.Reader) *kernel.Submission {
		n := &kernel.Submission{ID: id}
		if job := r.Next(); job != nil {
			copy(n.Job[:], job)
		}
		if b := r.Next(); len(b) > 1 {
			n.Refusal = append(n.Refusal, b[1:]...) // without the format number
		}
		n.PostedAt, n.ClosedAt = r.Time(), r.Time()
		return n
	}))
}

// MailWakeups returns a channel that receives when a NOTIFY of a sender's transaction arrives, while Wakeups listens.
func (s *Store) MailWakeups() <-chan struct{} { return s.wakeups.mail }

// ForgetMail deletes old closed mail.
func (s *Store) ForgetMail(ctx context.Context, applied, refused time.Time, max int) (n int, err error) {
	err = s.write(ctx, func() []*pgwire.Statement {
		st := pgwire.New(forgetMailSQL).Moment(applied).Moment(refused).Int(max)
		st.Counted(func(met int64) { n = int(met) })
		return []*pgwire.Statement{st}
	})
	return n, err
}

func (tx *tx) TakeMail(ids []kernel.MailID) (taken []kernel.MailID, err error) {
	var to []perdure.JobID
	var names []string
	for _, m := range ids {
		to, names = append(to, m.To), append(names, m.ID)
	}
	err = tx.run(pgwire.Into(uuids(pgwire.New(takeMailSQL), to).Texts(names), &taken, func(r *pgwire.Reader) (m kernel.MailID) {
		m.To, m.ID = r.UUID(), r.Text()
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
	return tx.run(uuids(uuids(pgwire.New(closeMailSQL), to).Texts(names), jobs).Texts(refusals).Exact(len(closed)))
}

func (tx *tx) SetMaxMail(max int) error {
	tx.wrote = true
	return tx.run(pgwire.New(setMaxMailSQL).Int64(int64(max)))
}
