package scheduler

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// PutReceiver stores the settings of a receiver. A new one gets the secret; an existing one is a conflict if create is
// set, and otherwise keeps its secret and state.
func (s *Scheduler) PutReceiver(ctx context.Context, name, author string, settings operate.WebhookSettings, secret string, create bool) (row *kernel.Receiver, created bool, err error) {
	mine := false // an earlier try of this call, whose commit was indeterminate, has created it
	err = s.update(ctx, func(tx kernel.Tx) error {
		all, err := tx.LockReceivers()
		if err != nil {
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		row, created = nil, false
		for _, r := range all {
			if r.Name == name {
				row = r
			}
		}
		mine = row != nil && secret != "" && row.Secret == secret
		switch {
		case row != nil && create && !mine:
			return perdure.Refuse(perdure.CodeConflict, "there is a receiver %s already", name)
		case row != nil && row.Settings.Stream != settings.Stream:
			return perdure.Refuse(perdure.CodeConflict, "receiver %s is a stream or has a url, and cannot become the other: delete it first", name)
		case row == nil && len(all) >= operate.MaxWebhooks:
			return perdure.Refuse(perdure.CodeConflict, "there are %d receivers, which is the maximum", len(all))
		case row == nil:
			row, created = &kernel.Receiver{Name: name, Secret: secret, CreatedAt: now}, true
			if settings.Stream { // above all positions that an earlier stream of the name has had
				row.Position = now.UnixMicro()
			}
		}
		row.Settings, row.UpdatedAt = settings, now
		if err := tx.PutReceiver(row); err != nil {
			return err
		}
		act := "putWebhook"
		if create {
			act = "createWebhook"
		}
		audit := kernel.AuditOf(ctx, author, act)
		audit.Target, audit.Reason = name, row.Summary()
		return saveAudit(tx, audit)
	})
	return row, created || mine, err
}

// DeleteReceiver deletes a receiver, and reports whether it existed.
func (s *Scheduler) DeleteReceiver(ctx context.Context, name, author string) (had bool, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		if _, err := tx.LockReceivers(); err != nil {
			return err
		}
		found, err := tx.DeleteReceiver(name)
		had = had || found // also if the commit of an earlier try was indeterminate
		if err != nil || !found {
			return err
		}
		return auditSetting(ctx, tx, author, "deleteWebhook", name)
	})
	if err == nil {
		s.cfg.OnNotify()
	}
	return had, err
}

// ChangeReceiver changes how notifications are delivered to a receiver. act names the change in the audit log.
func (s *Scheduler) ChangeReceiver(ctx context.Context, act, name, author string, change func(r *kernel.Receiver, now time.Time)) (row *kernel.Receiver, err error) {
	return s.changeReceiver(ctx, act, name, author, func(_ kernel.Tx, r *kernel.Receiver, now time.Time) error {
		change(r, now)
		return nil
	})
}

func (s *Scheduler) changeReceiver(ctx context.Context, act, name, author string, change func(tx kernel.Tx, r *kernel.Receiver, now time.Time) error) (row *kernel.Receiver, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		if row, err = tx.LockReceiver(name); err != nil {
			return err
		}
		if row == nil {
			return kernel.ErrNoReceiver(name)
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		if err := change(tx, row, now); err != nil {
			return err
		}
		row.UpdatedAt = now
		if err := tx.PutReceiver(row); err != nil {
			return err
		}
		return auditSetting(ctx, tx, author, act, name)
	})
	if err == nil {
		s.cfg.OnNotify()
	}
	return row, err
}

// ResumeReceiver resumes a receiver, and makes what was attempted without success due at once: at most operate.MaxResend.
func (s *Scheduler) ResumeReceiver(ctx context.Context, name, author string) (*kernel.Receiver, error) {
	return s.changeReceiver(ctx, "resumeWebhook", name, author, func(tx kernel.Tx, r *kernel.Receiver, now time.Time) error {
		r.PausedCause = ""
		_, err := tx.Hasten(name, now, operate.MaxResend)
		return err
	})
}

// TestReceiver stores a notification that reports no change, and returns its id.
func (s *Scheduler) TestReceiver(ctx context.Context, name, author string) (id string, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		row, err := tx.LockReceiver(name)
		if err != nil {
			return err
		}
		if row == nil {
			return kernel.ErrNoReceiver(name)
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		var c kernel.Changes
		id = kernel.NewWorkset(now, s.env.Float64).NotifyTest(&c, name, author)
		if err := tx.Save(&c); err != nil {
			return err
		}
		return auditSetting(ctx, tx, author, "testWebhook", name)
	})
	if err == nil {
		s.cfg.OnNotify()
	}
	return id, err
}

// ResendNotifications makes dead notifications of a receiver, or to a URL that definitions name, pending again: at most
// operate.MaxResend. It returns their number.
func (s *Scheduler) ResendNotifications(ctx context.Context, name, author string, since time.Time) (n int, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		if !kernel.IsURL(name) {
			row, err := tx.LockReceiver(name)
			if err != nil {
				return err
			}
			if row == nil {
				return kernel.ErrNoReceiver(name)
			}
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		if n, err = tx.Resend(name, since, now, operate.MaxResend); err != nil {
			return err
		}
		return auditSetting(ctx, tx, author, "resendWebhook", name)
	})
	if err == nil {
		s.cfg.OnNotify()
	}
	return n, err
}
