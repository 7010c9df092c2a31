package sqlite

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var _ kernel.Inbox = (*Store)(nil)
var _ kernel.InboxTx = (*tx)(nil)

// Posted are the submissions that lie in the inbox.
func (s *Store) Posted(ctx context.Context, max, maxBytes int) ([]kernel.Posted, error) {
	return view(ctx, s, func(r *row) (p kernel.Posted) {
		p.ID, p.Key = r.id(), r.text()
		r.blob(p.Hash[:])
		p.Body = r.bytes()
		return p
	}, `
		SELECT id, key, hash, body FROM (
			SELECT id, key, hash, body, sum(length(body)) OVER (ORDER BY posted_at, id) - length(body) AS before
			FROM (SELECT * FROM perdure_inbox WHERE closed_at IS NULL ORDER BY posted_at, id LIMIT ?))
		WHERE before < ?`, max, maxBytes)
}

// Submission is what became of one.
func (s *Store) Submission(ctx context.Context, id perdure.JobID) (*kernel.Submission, error) {
	return viewOne(ctx, s, func(r *row) *kernel.Submission {
		return &kernel.Submission{ID: id, Job: r.id(), Refusal: r.bytes(), PostedAt: r.time(), ClosedAt: r.time()}
	}, `SELECT job, refusal, posted_at, closed_at FROM perdure_inbox WHERE id = ?`, id[:])
}

// Mail never comes by itself: SQLite tells nobody what another connection has committed.
func (s *Store) Mail() <-chan struct{} { return nil }

// ForgetPosted deletes what is closed and old.
func (s *Store) ForgetPosted(ctx context.Context, taken, refused time.Time, max int) (n int, err error) {
	err = s.Update(ctx, func(t kernel.Tx) error {
		n, err = t.(*tx).changed(`DELETE FROM perdure_inbox WHERE id IN (SELECT id FROM perdure_inbox
			WHERE closed_at IS NOT NULL AND closed_at < ? AND (refusal IS NULL OR closed_at < ?) ORDER BY closed_at LIMIT ?)`,
			micros(taken), micros(refused), max)
		return err
	})
	return n, err
}

func (tx *tx) TakePosted(ids []perdure.JobID) (taken []perdure.JobID, err error) {
	for _, id := range ids {
		there, err := one(tx.c, (*row).flag, `SELECT 1 FROM perdure_inbox WHERE id = ? AND closed_at IS NULL`, id[:])
		if err != nil {
			return nil, err
		}
		if there {
			taken = append(taken, id)
		}
	}
	return taken, nil
}

func (tx *tx) ClosePosted(closed []kernel.ClosedPost) error {
	at := micros(tx.store.clock.now())
	for _, c := range closed {
		var job, refusal any
		if !c.Job.IsZero() {
			job = c.Job[:]
		}
		if len(c.Refusal) > 0 {
			refusal = textOf(c.Refusal)
		}
		n, err := tx.changed(`UPDATE perdure_inbox SET closed_at = ?, body = NULL, job = ?, refusal = ? WHERE id = ? AND closed_at IS NULL`,
			at, job, refusal, c.ID[:])
		if err != nil {
			return err
		}
		if n != 1 {
			return kernel.ErrStale
		}
	}
	return nil
}
