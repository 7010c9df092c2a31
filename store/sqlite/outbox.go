package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

const (
	receiverColumns = `name, settings, secret, old_secret, old_until, paused_cause, position, created_at, updated_at`
	receiverSelect  = `SELECT ` + receiverColumns + `, EXISTS (SELECT 1 FROM perdure_receiver_full f WHERE f.receiver = r.name) FROM perdure_receiver r`
	receiverSQL     = receiverSelect + ` WHERE name = ?`
	receiversSQL    = receiverSelect + ` ORDER BY name`

	notificationColumns = `number, id, receiver, job, kind, at, data, secret, expires_at, state, attempts, next_at, ended_at, error, position`
	notificationSelect  = `SELECT ` + notificationColumns + ` FROM perdure_notification ntc `

	addNotificationSQL = `INSERT INTO perdure_notification (id, receiver, job, kind, at, data, secret, expires_at, state, attempts, next_at, ended_at, error, position)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	saveDeliverySQL = `UPDATE perdure_notification SET state = ?, attempts = ?, next_at = ?, ended_at = ?, error = ?, position = ?
		WHERE number = ? AND receiver = ? AND state = 'pending'`

	pendingReceiversSQL = `
		WITH RECURSIVE r (receiver) AS (
			SELECT min(receiver) FROM perdure_notification WHERE state = 'pending' AND receiver > ?
			UNION ALL
			SELECT (SELECT min(ntc.receiver) FROM perdure_notification ntc WHERE ntc.state = 'pending' AND ntc.receiver > r.receiver) FROM r WHERE r.receiver IS NOT NULL)
		SELECT receiver FROM r WHERE receiver IS NOT NULL LIMIT ?`
	dueNotificationsSQL = notificationSelect + `INDEXED BY perdure_notification_pending WHERE receiver = ? AND state = 'pending' AND (attempts = 0 OR next_at <= ?) AND (job = zeroblob(16) OR NOT EXISTS (
			SELECT 1 FROM perdure_notification p INDEXED BY perdure_notification_of_job
			WHERE p.receiver = ntc.receiver AND p.job = ntc.job AND p.state = 'pending' AND p.attempts > 0 AND p.number < ntc.number))
		ORDER BY number LIMIT ?`
	countPendingOfSQL = `SELECT count(*) FROM (SELECT 1 FROM perdure_notification INDEXED BY perdure_notification_pending WHERE state = 'pending' AND receiver = ? LIMIT ?)`
	countPendingSQL   = `SELECT count(*) FROM (SELECT 1 FROM perdure_notification WHERE state = 'pending' LIMIT ?)`
	countDeadSQL      = `SELECT count(*) FROM (SELECT 1 FROM perdure_notification INDEXED BY perdure_notification_dead WHERE state = 'dead' AND receiver = ? LIMIT ?)`
	deliveriesSQL     = notificationSelect + `WHERE receiver = ? AND number < ? ORDER BY number DESC LIMIT ?`
	streamSQL         = notificationSelect + `WHERE receiver = ? AND position > 0 AND position > ? ORDER BY position LIMIT ?`
	resendSQL         = `UPDATE perdure_notification SET state = 'pending', attempts = 0, next_at = ?, expires_at = ?, ended_at = NULL, error = ''
		WHERE number IN (SELECT number FROM perdure_notification INDEXED BY perdure_notification_dead WHERE receiver = ? AND state = 'dead' AND at >= ? ORDER BY number LIMIT ?)`
	hastenSQL = `UPDATE perdure_notification SET next_at = ?1 WHERE number IN (
		SELECT number FROM perdure_notification INDEXED BY perdure_notification_pending
		WHERE receiver = ?2 AND state = 'pending' AND attempts > 0 AND next_at > ?1 ORDER BY number LIMIT ?3)`
	forgetNotificationsSQL = `DELETE FROM perdure_notification WHERE number IN (
		SELECT number FROM perdure_notification WHERE ended_at IS NOT NULL AND ended_at < ? ORDER BY ended_at LIMIT ?)`

	afterAllNotifications = 1<<63 - 1
)

// deliveriesOfSQL has a statement for each state, which uses the partial index of the state.
var deliveriesOfSQL = map[operate.DeliveryState]string{
	operate.DeliveryPending:   notificationSelect + `INDEXED BY perdure_notification_pending WHERE state = 'pending' AND ` + newestOfReceiver,
	operate.DeliveryDead:      notificationSelect + `INDEXED BY perdure_notification_dead WHERE state = 'dead' AND ` + newestOfReceiver,
	operate.DeliveryDelivered: notificationSelect + `WHERE state = 'delivered' AND ` + newestOfReceiver,
}

const newestOfReceiver = `receiver = ? AND number < ? ORDER BY number DESC LIMIT ?`

func readReceiver(r *row) *kernel.Receiver {
	x := &kernel.Receiver{Name: r.text()}
	r.json(&x.Settings)
	x.Secret, x.OldSecret, x.OldUntil, x.PausedCause, x.Position = r.text(), r.text(), r.time(), r.text(), r.num()
	x.CreatedAt, x.UpdatedAt, x.Full = r.time(), r.time(), r.num() != 0
	return x
}

func readNotification(r *row) kernel.Notification {
	return kernel.Notification{Number: r.num(), ID: r.text(), Receiver: r.text(), Job: r.id(), Kind: operate.EventKind(r.text()), At: r.time(), Data: r.bytes(),
		Secret: r.text(), ExpiresAt: r.time(), DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryState(r.text()), Attempts: r.int(), NextAt: r.time(), EndedAt: r.time(),
			Error: r.text(), Position: r.num()}}
}

// Routing returns the routing from the cache of the latest transaction that has read it, unless this one changes it.
func (tx *tx) Routing() (*kernel.Routing, error) {
	if tx.routing == nil && !tx.changesRouting {
		tx.routing = tx.store.cache.routing
	}
	if tx.routing == nil {
		all, err := all(tx.c, readReceiver, receiversSQL)
		if err != nil {
			return nil, err
		}
		r := &kernel.Routing{Full: map[string]bool{}}
		for _, x := range all {
			r.Receivers = append(r.Receivers, kernel.Route{Name: x.Name, Settings: x.Settings})
		}
		if err := eachRow(tx.c, func(row *row) { r.Full[row.text()] = true }, `SELECT receiver FROM perdure_receiver_full`); err != nil {
			return nil, err
		}
		tx.routing = r
	}
	return tx.routing, nil
}

func (tx *tx) LockReceivers() ([]*kernel.Receiver, error) {
	return all(tx.c, readReceiver, receiversSQL)
}

func (tx *tx) LockReceiver(name string) (*kernel.Receiver, error) {
	return one(tx.c, readReceiver, receiverSQL, name)
}

func (tx *tx) PutReceiver(r *kernel.Receiver) error {
	settings, err := json.Marshal(&r.Settings)
	if err != nil {
		return err
	}
	tx.routing, tx.changesRouting = nil, true
	return tx.exec(`INSERT OR REPLACE INTO perdure_receiver (`+receiverColumns+`) VALUES (?,?,?,?,?,?,?,?,?)`,
		r.Name, string(settings), r.Secret, r.OldSecret, micros(r.OldUntil), r.PausedCause, r.Position, micros(r.CreatedAt), micros(r.UpdatedAt))
}

func (tx *tx) DeleteReceiver(name string) (bool, error) {
	tx.routing, tx.changesRouting = nil, true
	n, err := tx.changed(`DELETE FROM perdure_receiver WHERE name = ?`, name)
	return n > 0, err
}

func (tx *tx) SetFull(receivers []string) error {
	tx.routing, tx.changesRouting = nil, true
	if err := tx.exec(`DELETE FROM perdure_receiver_full`); err != nil {
		return err
	}
	for _, name := range receivers {
		if err := tx.exec(`INSERT INTO perdure_receiver_full (receiver) VALUES (?)`, name); err != nil {
			return err
		}
	}
	return nil
}

func (tx *tx) addNotifications(all []kernel.Notification) error {
	for i := range all {
		n := &all[i]
		if err := tx.exec(addNotificationSQL, n.ID, n.Receiver, n.Job[:], string(n.Kind), micros(n.At), textOf(n.Data), n.Secret, micros(n.ExpiresAt),
			string(n.State), n.Attempts, micros(n.NextAt), micros(n.EndedAt), n.Error, n.Position); err != nil {
			return err
		}
	}
	return nil
}

func (tx *tx) SaveDeliveries(receiver string, results []kernel.DeliveryResult) error {
	for i := range results {
		r := &results[i]
		if err := tx.exec(saveDeliverySQL, string(r.State), r.Attempts, micros(r.NextAt), micros(r.EndedAt), r.Error, r.Position, r.Number, receiver); err != nil {
			return err
		}
	}
	return nil
}

func (tx *tx) Resend(receiver string, since, now time.Time, max int) (int, error) {
	return tx.changed(resendSQL, micros(now), micros(now.Add(operate.NotificationRetried)), receiver, since.UnixMicro(), max)
}

func (tx *tx) Hasten(receiver string, now time.Time, max int) (int, error) {
	return tx.changed(hastenSQL, micros(now), receiver, max)
}

// Receiver implements kernel.Outbox.
func (s *Store) Receiver(ctx context.Context, name string) (*kernel.Receiver, error) {
	return viewOne(ctx, s, readReceiver, receiverSQL, name)
}

// Receivers implements kernel.Outbox.
func (s *Store) Receivers(ctx context.Context) ([]*kernel.Receiver, error) {
	return view(ctx, s, readReceiver, receiversSQL)
}

// PendingReceivers implements kernel.Outbox. It jumps from one receiver to the next in the index.
func (s *Store) PendingReceivers(ctx context.Context, after string, max int) ([]string, error) {
	return view(ctx, s, (*row).text, pendingReceiversSQL, after, max)
}

// DueNotifications implements kernel.Outbox.
func (s *Store) DueNotifications(ctx context.Context, receiver string, now time.Time, max int) ([]kernel.Notification, error) {
	return view(ctx, s, readNotification, dueNotificationsSQL, receiver, now.UnixMicro(), max)
}

// CountPending implements kernel.Outbox.
func (s *Store) CountPending(ctx context.Context, receiver string, max int) (int, error) {
	if receiver == "" {
		return viewOne(ctx, s, (*row).int, countPendingSQL, max)
	}
	return viewOne(ctx, s, (*row).int, countPendingOfSQL, receiver, max)
}

// CountDead implements kernel.Outbox.
func (s *Store) CountDead(ctx context.Context, receiver string, max int) (int, error) {
	return viewOne(ctx, s, (*row).int, countDeadSQL, receiver, max)
}

// Notifications implements kernel.Outbox.
func (s *Store) Notifications(ctx context.Context, f kernel.NotificationFilter) ([]kernel.Notification, error) {
	before, limit := cmp.Or(f.Before, afterAllNotifications), cmp.Or(f.Limit, perdure.DefaultListLimit)
	if f.State == "" {
		return view(ctx, s, readNotification, deliveriesSQL, f.Receiver, before, limit)
	}
	return view(ctx, s, readNotification, deliveriesOfSQL[f.State], f.Receiver, before, limit)
}

// StreamedNotifications implements kernel.Outbox.
func (s *Store) StreamedNotifications(ctx context.Context, receiver string, after int64, max int) ([]kernel.Notification, error) {
	return view(ctx, s, readNotification, streamSQL, receiver, after, max)
}

// ForgetNotifications implements kernel.Outbox.
func (s *Store) ForgetNotifications(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.Update(ctx, func(t kernel.Tx) error {
		n, err = t.(*tx).changed(forgetNotificationsSQL, micros(before), max)
		return err
	})
	return n, err
}
