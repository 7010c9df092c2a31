package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/internal/outbox"
)

func copyReceiver(r *kernel.Receiver) *kernel.Receiver {
	c := *r
	c.Settings.On, c.Settings.Types = slices.Clone(r.Settings.On), slices.Clone(r.Settings.Types)
	c.OldUntil, c.CreatedAt, c.UpdatedAt = storedTime(r.OldUntil), storedTime(r.CreatedAt), storedTime(r.UpdatedAt)
	return &c
}

func copyNotification(n kernel.Notification) kernel.Notification {
	n.Data = slices.Clone(n.Data)
	n.At, n.NextAt, n.EndedAt, n.ExpiresAt = storedTime(n.At), storedTime(n.NextAt), storedTime(n.EndedAt), storedTime(n.ExpiresAt)
	return n
}

func (d *data) receiver(name string) *kernel.Receiver {
	r, there := d.receivers[name]
	if !there {
		return nil
	}
	c := copyReceiver(r)
	c.Full = d.fullReceivers[name]
	return c
}

func (d *data) allReceivers() (all []*kernel.Receiver) {
	for _, name := range slices.Sorted(maps.Keys(d.receivers)) {
		all = append(all, d.receiver(name))
	}
	return all
}

func (tx *tx) Routing() (*kernel.Routing, error) {
	r := &kernel.Routing{Full: maps.Clone(tx.fullReceivers)}
	for _, x := range tx.allReceivers() {
		r.Receivers = append(r.Receivers, kernel.Route{Name: x.Name, Settings: x.Settings})
	}
	return r, nil
}

func (tx *tx) LockReceivers() ([]*kernel.Receiver, error) { return tx.allReceivers(), nil }

func (tx *tx) LockReceiver(name string) (*kernel.Receiver, error) { return tx.receiver(name), nil }

func (tx *tx) PutReceiver(r *kernel.Receiver) error {
	set(tx, tx.receivers, r.Name, copyReceiver(r))
	return nil
}

func (tx *tx) SetPosition(receiver string, position int64) error {
	if r := tx.receiver(receiver); r != nil {
		r.Position = position
		set(tx, tx.receivers, receiver, copyReceiver(r))
	}
	return nil
}

func (tx *tx) DeleteReceiver(name string) (bool, error) {
	_, had := tx.receivers[name]
	remove(tx, tx.receivers, name)
	return had, nil
}

func (tx *tx) SetFull(receivers []string) error {
	for name := range maps.Clone(tx.fullReceivers) {
		remove(tx, tx.fullReceivers, name)
	}
	for _, name := range receivers {
		set(tx, tx.fullReceivers, name, true)
	}
	return nil
}

// addNotifications stores notifications under the next numbers, in the order in which the other stores number them.
func (tx *tx) addNotifications(all []kernel.Notification) error {
	last := tx.lastNotification
	tx.addUndo(func() { tx.lastNotification = last })
	rows := outbox.Pack(all)
	for i := range rows {
		rows[i].Data = rows[i].Text()
	}
	all, err := outbox.Unpack(rows)
	for _, n := range all {
		tx.lastNotification++
		n.Number, n.Row = tx.lastNotification, tx.lastNotification
		set(tx, tx.notifications, n.Number, copyNotification(n))
	}
	return err
}

func (tx *tx) SaveDeliveries(receiver string, results []kernel.DeliveryResult) error {
	for _, r := range results {
		n, there := tx.notifications[r.Number]
		if !there || n.Receiver != receiver || n.State != operate.DeliveryPending {
			continue
		}
		n.DeliveryOutcome = r.DeliveryOutcome
		set(tx, tx.notifications, n.Number, copyNotification(n))
	}
	return nil
}

func (tx *tx) Resend(receiver string, since, now time.Time, max int) (sent int, err error) {
	for _, number := range tx.numbers() {
		n := tx.notifications[number]
		if sent < max && n.Receiver == receiver && n.State == operate.DeliveryDead && !n.At.Before(storedTime(since)) {
			n.DeliveryOutcome = kernel.DeliveryOutcome{State: operate.DeliveryPending, NextAt: now}
			n.ExpiresAt = now.Add(operate.NotificationRetried)
			set(tx, tx.notifications, number, copyNotification(n))
			sent++
		}
	}
	return sent, nil
}

func (tx *tx) Hasten(receiver string, now time.Time, max int) (hastened int, err error) {
	for _, number := range tx.numbers() {
		n := tx.notifications[number]
		if hastened < max && n.Receiver == receiver && n.State == operate.DeliveryPending && n.Attempts > 0 && n.NextAt.After(now) {
			n.NextAt = now
			set(tx, tx.notifications, number, copyNotification(n))
			hastened++
		}
	}
	return hastened, nil
}

func (d *data) numbers() []int64 { return slices.Sorted(maps.Keys(d.notifications)) }

// notificationsOf returns notifications in the order of their numbers.
func (d *data) notificationsOf(matches func(*kernel.Notification) bool) (found []kernel.Notification) {
	for _, number := range d.numbers() {
		if n := d.notifications[number]; matches(&n) {
			found = append(found, copyNotification(n))
		}
	}
	return found
}

// Receiver implements kernel.Outbox.
func (s *Store) Receiver(ctx context.Context, name string) (*kernel.Receiver, error) {
	return view(ctx, s, func() *kernel.Receiver { return s.receiver(name) })
}

// Receivers implements kernel.Outbox.
func (s *Store) Receivers(ctx context.Context) ([]*kernel.Receiver, error) {
	return view(ctx, s, func() []*kernel.Receiver { return s.allReceivers() })
}

// PendingReceivers implements kernel.Outbox.
func (s *Store) PendingReceivers(ctx context.Context, after string, max int) ([]string, error) {
	return view(ctx, s, func() []string {
		names := map[string]bool{}
		for _, n := range s.notifications {
			if n.State == operate.DeliveryPending && n.Receiver > after {
				names[n.Receiver] = true
			}
		}
		return firstN(max, slices.Sorted(maps.Keys(names)))
	})
}

// DueNotifications implements kernel.Outbox.
func (s *Store) DueNotifications(ctx context.Context, receiver string, now time.Time, max int) ([]kernel.Notification, error) {
	return view(ctx, s, func() []kernel.Notification {
		behind := map[perdure.JobID]bool{}
		return firstN(max, s.notificationsOf(func(n *kernel.Notification) bool {
			if n.Receiver != receiver || n.State != operate.DeliveryPending || behind[n.Job] {
				return false
			}
			behind[n.Job] = !n.Job.IsZero() && n.Attempts > 0
			return n.Attempts == 0 || !n.NextAt.After(now)
		}))
	})
}

// PendingForStream implements kernel.Outbox.
func (s *Store) PendingForStream(ctx context.Context, receiver string, max int) ([]kernel.PendingNotification, error) {
	return view(ctx, s, func() (pending []kernel.PendingNotification) {
		for _, n := range s.notificationsOf(func(n *kernel.Notification) bool { return n.Receiver == receiver && n.State == operate.DeliveryPending }) {
			pending = append(pending, kernel.PendingNotification{Number: n.Number, Attempts: n.Attempts, ExpiresAt: n.ExpiresAt, Error: n.Error})
		}
		return firstN(max, pending)
	})
}

// CountPending implements kernel.Outbox.
func (s *Store) CountPending(ctx context.Context, receiver string, max int) (int, error) {
	return view(ctx, s, func() int {
		return min(max, len(s.notificationsOf(func(n *kernel.Notification) bool {
			return n.State == operate.DeliveryPending && (receiver == "" || n.Receiver == receiver)
		})))
	})
}

// CountDead implements kernel.Outbox.
func (s *Store) CountDead(ctx context.Context, receiver string, max int) (int, error) {
	return view(ctx, s, func() int {
		return min(max, len(s.notificationsOf(func(n *kernel.Notification) bool { return n.State == operate.DeliveryDead && n.Receiver == receiver })))
	})
}

// Notifications implements kernel.Outbox.
func (s *Store) Notifications(ctx context.Context, f kernel.NotificationFilter) ([]kernel.Notification, error) {
	return view(ctx, s, func() []kernel.Notification {
		found := s.notificationsOf(func(n *kernel.Notification) bool {
			return n.Receiver == f.Receiver && (f.State == "" || n.State == f.State) && (f.Before == 0 || n.Number < f.Before)
		})
		slices.Reverse(found)
		return firstN(cmp.Or(f.Limit, perdure.DefaultListLimit), found)
	})
}

// StreamedNotifications implements kernel.Outbox.
func (s *Store) StreamedNotifications(ctx context.Context, receiver string, after int64, max int) ([]kernel.Notification, error) {
	return view(ctx, s, func() []kernel.Notification {
		found := s.notificationsOf(func(n *kernel.Notification) bool { return n.Receiver == receiver && n.Position > after })
		slices.SortFunc(found, func(a, b kernel.Notification) int { return cmp.Compare(a.Position, b.Position) })
		return firstN(max, found)
	})
}

// ForgetNotifications implements kernel.Outbox.
func (s *Store) ForgetNotifications(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.Update(ctx, func(t kernel.Tx) error {
		tx := t.(*tx)
		n = 0
		for _, number := range tx.numbers() {
			if x := tx.notifications[number]; n < max && x.State != operate.DeliveryPending && x.EndedAt.Before(before) {
				remove(tx, tx.notifications, number)
				n++
			}
		}
		return nil
	})
	return n, err
}
