package webhook

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// measure counts the pending notifications, at most once in MeasureEvery, and less often if that takes long. At the bound,
// new notifications of the receiver with the most of them are dead at once, until a tenth of the bound is free again. Jobs
// go on.
func (d *Deliverer) measure(ctx context.Context, found bool) error {
	began := d.cfg.Env.Now()
	if began.Before(d.measureAt) {
		return nil
	}
	n := 0
	if found {
		var err error
		if n, err = d.cfg.Store.CountPending(ctx, "", d.cfg.MaxPending); err != nil {
			return err
		}
	}
	defer func() { d.measureAt = began.Add(max(d.cfg.MeasureEvery, costShare*d.cfg.Env.Now().Sub(began))) }()
	d.cfg.Pending(n)
	switch {
	case n >= d.cfg.MaxPending:
		return d.fill(ctx)
	case d.full && n < d.cfg.MaxPending/10*9:
		return d.unfill(ctx)
	}
	return nil
}

// fill marks the receiver with the most pending notifications as full.
func (d *Deliverer) fill(ctx context.Context) error {
	largest, most := "", 0
	for name, err := range d.pendingReceivers(ctx) {
		if err != nil {
			return err
		}
		n, err := d.cfg.Store.CountPending(ctx, name, d.cfg.MaxPending)
		if err != nil {
			return err
		}
		if n > most {
			largest, most = name, n
		}
	}
	if largest == "" {
		return nil
	}
	raise, err := d.lacksAlert(ctx, largest)
	if err != nil {
		return err
	}
	d.full = true
	d.cfg.Log.Warn("too many notifications are undelivered: new ones of a receiver are dead at once", "receiver", kernel.SiteOf(largest), "pending", most)
	return d.cfg.Store.Update(ctx, func(tx kernel.Tx) error {
		if _, err := tx.LockReceivers(); err != nil {
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		if raise {
			a := kernel.Alert{Kind: perdure.AlertUndelivered, Name: alertName(largest), RaisedAt: now,
				Message: fmt.Sprintf("%d notifications are undelivered, most of them to %s: new ones to it are dead at once", d.cfg.MaxPending, kernel.SiteOf(largest))}
			if err := tx.Save(&kernel.Changes{Alerts: []kernel.Alert{a}}); err != nil {
				return err
			}
		}
		return tx.SetFull([]string{largest})
	})
}

// unfill removes the marks of full receivers. A new leader calls it once, because an earlier one may have set them.
func (d *Deliverer) unfill(ctx context.Context) error {
	marked := false
	err := d.cfg.Store.Update(ctx, func(tx kernel.Tx) error {
		r, err := tx.Routing()
		if err != nil {
			return err
		}
		marked = len(r.Full) > 0
		return nil
	})
	if err == nil && marked {
		err = d.cfg.Store.Update(ctx, func(tx kernel.Tx) error {
			if _, err := tx.LockReceivers(); err != nil {
				return err
			}
			return tx.SetFull(nil)
		})
	}
	if err == nil {
		d.full = false
	}
	return err
}

// forget deletes old notifications, at most once in forgetEvery, a bounded number at a time. left reports that there may be
// others.
func (d *Deliverer) forget(ctx context.Context) (left bool, err error) {
	at := d.cfg.Env.Now()
	if !d.forgotAt.IsZero() && at.Sub(d.forgotAt) < forgetEvery {
		return false, nil
	}
	crashpoint.Here(crashpoint.WebhookForget)
	defer crashpoint.Here(crashpoint.WebhookForgot)
	now, err := d.cfg.Store.Now(ctx)
	if err != nil {
		return false, err
	}
	deleted, err := d.cfg.Store.ForgetNotifications(ctx, now.Add(-operate.NotificationKept), forgetAtOnce)
	if err != nil {
		return false, err
	}
	if left = deleted >= forgetAtOnce; !left {
		d.forgotAt = at
	}
	return left, nil
}
