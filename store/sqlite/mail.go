package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Mail returns mails that wait.
func (s *Store) Mail(ctx context.Context, max, maxBytes int) ([]kernel.Mail, error) {
	kinds, err := json.Marshal(kernel.MailKinds)
	if err != nil {
		return nil, err
	}
	return view(ctx, s, func(r *row) (m kernel.Mail) {
		m.To, m.ID, m.Kind, m.Key = r.id(), r.text(), kernel.MailKind(r.text()), r.text()
		r.blob(m.Hash[:])
		m.Body = r.bytes()
		return m
	}, `
		SELECT recipient, id, kind, key, hash, body FROM (
			SELECT recipient, id, kind, key, hash, body, sum(length(body)) OVER (ORDER BY posted_at, recipient, id) - length(body) AS before
			FROM (SELECT * FROM perdure_mail WHERE closed_at IS NULL AND kind IN (SELECT value FROM json_each(?)) ORDER BY posted_at, recipient, id LIMIT ?))
		WHERE before < ?`, string(kinds), max, maxBytes)
}

// MailWaiting counts the entries of the index of waiting mail, up to the number of mails that may wait. Mail has the
// time of its sender, by the wall clock of this machine.
func (s *Store) MailWaiting(ctx context.Context) (kernel.MailWaiting, error) {
	return viewOne(ctx, s, func(r *row) (w kernel.MailWaiting) {
		w.Number = r.int()
		if at := r.time(); !at.IsZero() {
			w.Oldest = max(s.clock.now().Sub(at), 0)
		}
		return w
	}, `SELECT count(*), min(posted_at) FROM (
		SELECT posted_at FROM perdure_mail WHERE closed_at IS NULL ORDER BY posted_at, recipient, id
		LIMIT (SELECT mail_max FROM perdure_clock WHERE one = 1))`)
}

// Submission returns the outcome of a submission.
func (s *Store) Submission(ctx context.Context, id perdure.JobID) (*kernel.Submission, error) {
	return viewOne(ctx, s, func(r *row) *kernel.Submission {
		return &kernel.Submission{ID: id, Job: r.id(), Refusal: r.bytes(), PostedAt: r.time(), ClosedAt: r.time()}
	}, `SELECT job, refusal, posted_at, closed_at FROM perdure_mail WHERE recipient = ? AND id = 'submit'`, id[:])
}

// MailWakeups returns nil: SQLite does not report what another connection has committed.
func (s *Store) MailWakeups() <-chan struct{} { return nil }

// ForgetMail deletes old closed mail.
func (s *Store) ForgetMail(ctx context.Context, applied, refused time.Time, max int) (n int, err error) {
	err = s.Update(ctx, func(t kernel.Tx) error {
		n, err = t.(*tx).changed(`DELETE FROM perdure_mail WHERE (recipient, id) IN (SELECT recipient, id FROM perdure_mail
			WHERE closed_at IS NOT NULL AND closed_at < ? AND (refusal IS NULL OR closed_at < ?) ORDER BY closed_at LIMIT ?)`,
			micros(applied), micros(refused), max)
		return err
	})
	return n, err
}

func (tx *tx) TakeMail(ids []kernel.MailID) (taken []kernel.MailID, err error) {
	for _, m := range ids {
		waits, err := one(tx.c, (*row).flag, `SELECT 1 FROM perdure_mail WHERE recipient = ? AND id = ? AND closed_at IS NULL`, m.To[:], m.ID)
		if err != nil {
			return nil, err
		}
		if waits {
			taken = append(taken, m)
		}
	}
	return taken, nil
}

func (tx *tx) CloseMail(closed []kernel.ClosedMail) error {
	at := micros(tx.store.clock.now())
	for _, c := range closed {
		var job, refusal any
		if !c.Job.IsZero() {
			job = c.Job[:]
		}
		if len(c.Refusal) > 0 {
			refusal = textOf(c.Refusal)
		}
		n, err := tx.changed(`UPDATE perdure_mail SET closed_at = ?, body = NULL, job = ?, refusal = ? WHERE recipient = ? AND id = ? AND closed_at IS NULL`,
			at, job, refusal, c.To[:], c.ID)
		if err != nil {
			return err
		}
		if n != 1 {
			return kernel.ErrStale
		}
	}
	return nil
}

func (tx *tx) SetMaxMail(max int) error {
	return tx.exec(`UPDATE perdure_clock SET mail_max = ? WHERE one = 1 AND mail_max <> ?`, max, max)
}
