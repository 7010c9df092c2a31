package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// mail is the row of a mail.
type mail struct {
	kernel.Mail
	number   int64 // in the order of sending
	postedAt time.Time
	closedAt time.Time
	closed   kernel.ClosedMail
}

func (m mail) isWaiting() bool { return m.closedAt.IsZero() }

// Post submits a job in a transaction of its own. The other stores have SubmitTx, which uses the caller's transaction.
func (s *Store) Post(ctx context.Context, id perdure.JobID, plan *kernel.Plan) (did perdure.Submitted, err error) {
	p, err := kernel.Post(id, plan)
	if err != nil {
		return did, err
	}
	err = s.Update(ctx, func(t kernel.Tx) error {
		did, err = t.(*tx).post(p)
		return err
	})
	if err == nil {
		select {
		case s.mailHints <- struct{}{}:
		default: // the same submission is waiting
		}
	}
	return did, err
}

func (tx *tx) post(p kernel.Mail) (perdure.Submitted, error) {
	p.To = kernel.WithCell(p.To, tx.cell)
	has, known := kernel.Keyed{}, false
	if old, there := tx.submissionByKey(p.Key); there {
		job, made := tx.jobs[old.closed.Job]
		switch {
		case old.isWaiting():
			has, known = kernel.Keyed{ID: old.To, Hash: old.Hash}, true
		case made:
			has, known = kernel.Keyed{ID: job.ID, Hash: old.Hash}, true
		default: // the job was deleted
			remove(tx, tx.mail, old.MailID)
		}
	}
	if id, there := tx.keys[p.Key]; there && !known {
		has, known = kernel.Keyed{ID: id, Hash: tx.jobs[id].Hash}, true
	}
	switch {
	case known && has.Hash != p.Hash:
		return perdure.Submitted{}, perdure.Refuse(perdure.CodeConflict, "key %s belongs to %s, which was submitted with another definition or input", p.Key, has.ID)
	case known:
		return perdure.Submitted{ID: has.ID, Key: p.Key}, nil
	}
	if room := kernel.MaxPosted(tx.maxMail); len(tx.waitingMail(room)) >= room {
		return perdure.Submitted{}, kernel.ErrTooManyPosted(room)
	}
	last := tx.lastMail
	tx.addUndo(func() { tx.lastMail = last })
	tx.lastMail++
	set(tx, tx.mail, p.MailID, mail{Mail: p, number: tx.lastMail, postedAt: tx.clock.now()})
	return perdure.Submitted{ID: p.To, Key: p.Key, Created: true}, nil
}

// submissionByKey returns the submission with a key, unless it was refused.
func (d *data) submissionByKey(key string) (mail, bool) {
	for _, m := range d.mail {
		if key != "" && m.Key == key && m.closed.Refusal == nil {
			return m, true
		}
	}
	return mail{}, false
}

// waitingMail returns the first max waiting mails, in order.
func (d *data) waitingMail(max int) (waiting []mail) {
	for _, m := range d.mail {
		if m.isWaiting() {
			waiting = append(waiting, m)
		}
	}
	slices.SortFunc(waiting, func(a, b mail) int { return cmp.Compare(a.number, b.number) })
	return firstN(max, waiting)
}

// Mail implements kernel.Mailbox.
func (s *Store) Mail(ctx context.Context, max, maxBytes int) ([]kernel.Mail, error) {
	return view(ctx, s, func() (found []kernel.Mail) {
		read := 0
		for _, m := range s.waitingMail(max) {
			if read >= maxBytes {
				break
			}
			read += len(m.Body)
			found = append(found, m.Mail)
		}
		return found
	})
}

// MailWaiting implements kernel.Mailbox.
func (s *Store) MailWaiting(ctx context.Context) (kernel.MailWaiting, error) {
	return view(ctx, s, func() (w kernel.MailWaiting) {
		waiting := s.waitingMail(s.maxMail)
		if w.Number = len(waiting); w.Number > 0 {
			w.Oldest = max(s.clock.now().Sub(waiting[0].postedAt), 0)
		}
		return w
	})
}

// MailWakeups returns a channel to which Post sends.
func (s *Store) MailWakeups() <-chan struct{} { return s.mailHints }

// Submission implements kernel.Mailbox.
func (s *Store) Submission(ctx context.Context, id perdure.JobID) (*kernel.Submission, error) {
	return view(ctx, s, func() *kernel.Submission {
		m, there := s.mail[kernel.SubmissionOf(id)]
		if !there {
			return nil
		}
		return &kernel.Submission{ID: id, Job: m.closed.Job, Refusal: m.closed.Refusal, PostedAt: m.postedAt, ClosedAt: m.closedAt}
	})
}

// ForgetMail implements kernel.Mailbox.
func (s *Store) ForgetMail(ctx context.Context, applied, refused time.Time, max int) (n int, err error) {
	err = s.Update(ctx, func(t kernel.Tx) error {
		tx := t.(*tx)
		var old []mail
		for _, m := range tx.mail {
			kept := applied
			if m.closed.Refusal != nil {
				kept = refused
			}
			if !m.isWaiting() && m.closedAt.Before(applied) && m.closedAt.Before(kept) {
				old = append(old, m)
			}
		}
		slices.SortFunc(old, func(a, b mail) int { return a.closedAt.Compare(b.closedAt) })
		old = firstN(max, old)
		for _, m := range old {
			remove(tx, tx.mail, m.MailID)
		}
		n = len(old)
		return nil
	})
	return n, err
}

func (tx *tx) TakeMail(ids []kernel.MailID) (taken []kernel.MailID, err error) {
	for _, id := range ids {
		if m, there := tx.mail[id]; there && m.isWaiting() {
			taken = append(taken, id)
		}
	}
	return taken, nil
}

func (tx *tx) CloseMail(closed []kernel.ClosedMail) error {
	for _, c := range closed {
		m, there := tx.mail[c.MailID]
		if !there || !m.isWaiting() {
			tx.failed = kernel.ErrStale
			return tx.failed
		}
		m.closed, m.closedAt, m.Body = c, tx.clock.now(), nil
		set(tx, tx.mail, c.MailID, m)
	}
	return nil
}

func (tx *tx) SetMaxMail(max int) error {
	was := tx.maxMail
	tx.addUndo(func() { tx.maxMail = was })
	tx.maxMail = max
	return nil
}
