package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/internal/outbox"
)

const (
	receiverColumns = `name, settings, secret, old_secret, old_until, paused_cause, position, created_at, updated_at`
	receiverSelect  = `SELECT ` + receiverColumns + `, EXISTS (SELECT 1 FROM perdure_receiver_full f WHERE f.receiver = r.name) FROM perdure_receiver r`
	receiverSQL     = receiverSelect + ` WHERE name = ?`
	receiversSQL    = receiverSelect + ` ORDER BY name`

	notificationColumns = `number, size, id, receiver, job, kind, at, data, secret, expires_at, state, attempts, next_at, ended_at, error, position`
	notificationSelect  = `SELECT number, size, id, receiver, job, kind, at,
		CASE size WHEN 1 THEN data ELSE (SELECT d.data FROM perdure_notification_data d WHERE d.number = ntc.number) END,
		secret, expires_at, state, attempts, next_at, ended_at, error, position FROM perdure_notification ntc `

	// A new row gets the next number that is a multiple of outbox.Room.
	addNotificationSQL = `INSERT INTO perdure_notification (` + notificationColumns + `)
		VALUES (coalesce(?, ((SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'perdure_notification') / 1024 + 1) * 1024),?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	saveDeliverySQL = `UPDATE perdure_notification SET state = ?, attempts = ?, next_at = ?, ended_at = ?, error = ?, position = ?
		WHERE number = ? AND size = ? AND receiver = ? AND state = 'pending'`
	severalSQL                = notificationSelect + `WHERE number = ? AND receiver = ? AND size > 1 AND state = 'pending'`
	deleteNotificationSQL     = `DELETE FROM perdure_notification WHERE number = ?`
	addNotificationDataSQL    = `INSERT INTO perdure_notification_data (number, data) VALUES (last_insert_rowid(), ?)`
	deleteNotificationDataSQL = `DELETE FROM perdure_notification_data WHERE number = ?`

	pendingReceiversSQL = `
		WITH RECURSIVE r (receiver) AS (
			SELECT min(receiver) FROM perdure_notification WHERE state = 'pending' AND receiver > ?
			UNION ALL
			SELECT (SELECT min(ntc.receiver) FROM perdure_notification ntc WHERE ntc.state = 'pending' AND ntc.receiver > r.receiver) FROM r WHERE r.receiver IS NOT NULL)
		SELECT receiver FROM r WHERE receiver IS NOT NULL LIMIT ?`
	dueNotificationsSQL = notificationSelect + `INDEXED BY perdure_notification_pending WHERE receiver = ? AND state = 'pending' AND (attempts = 0 OR next_at <= ?) AND (job = zeroblob(16) OR NOT EXISTS (
			SELECT 1 FROM perdure_notification p INDEXED BY perdure_notification_of_job
			WHERE p.receiver = ntc.receiver AND p.job = ntc.job AND p.state = 'pending' AND p.attempts > 0 AND p.number < ntc.number))
		AND number > ? ORDER BY number LIMIT ?`
	pendingForStreamSQL = `SELECT number, size, attempts, expires_at, error FROM perdure_notification INDEXED BY perdure_notification_pending
		WHERE receiver = ? AND state = 'pending' ORDER BY number LIMIT ?`
	anyAttemptedSQL   = `SELECT 1 FROM perdure_notification INDEXED BY perdure_notification_of_job WHERE receiver = ? AND state = 'pending' AND attempts > 0 LIMIT 1`
	attemptedSQL      = `SELECT min(number) FROM perdure_notification INDEXED BY perdure_notification_of_job WHERE receiver = ? AND state = 'pending' AND attempts > 0 AND job = ?`
	countPendingOfSQL = `SELECT coalesce(sum(size), 0) FROM (SELECT size FROM perdure_notification INDEXED BY perdure_notification_pending WHERE state = 'pending' AND receiver = ? LIMIT ?)`
	countPendingSQL   = `SELECT coalesce(sum(size), 0) FROM (SELECT size FROM perdure_notification WHERE state = 'pending' LIMIT ?)`
	countDeadSQL      = `SELECT count(*) FROM (SELECT 1 FROM perdure_notification INDEXED BY perdure_notification_dead WHERE state = 'dead' AND receiver = ? LIMIT ?)`
	deliveriesSQL     = notificationSelect + `WHERE receiver = ? AND number < ? ORDER BY number DESC LIMIT ?`
	streamSQL         = notificationSelect + `WHERE receiver = ? AND position > 0 AND position > ? ORDER BY position LIMIT ?`
	resendSQL         = `UPDATE perdure_notification SET state = 'pending', attempts = 0, next_at = ?, expires_at = ?, ended_at = NULL, error = ''
		WHERE number IN (SELECT number FROM perdure_notification INDEXED BY perdure_notification_dead WHERE receiver = ? AND state = 'dead' AND at >= ? ORDER BY number LIMIT ?)`
	hastenSQL = `UPDATE perdure_notification SET next_at = ?1 WHERE number IN (
		SELECT number FROM perdure_notification INDEXED BY perdure_notification_pending
		WHERE receiver = ?2 AND state = 'pending' AND attempts > 0 AND next_at > ?1 ORDER BY number LIMIT ?3)`
	forgetNotificationsSQL = `DELETE FROM perdure_notification WHERE number IN (
		SELECT number FROM (
			SELECT number, sum(size) OVER (ORDER BY ended_at, number ROWS UNBOUNDED PRECEDING) - size AS earlier FROM perdure_notification
			WHERE ended_at IS NOT NULL AND ended_at < ?1 ORDER BY ended_at, number LIMIT ?2)
		WHERE earlier < ?2) RETURNING number, size`

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

func readNotification(r *row) (x outbox.Row) {
	number := r.num()
	x.Size = r.int()
	x.Notification = kernel.Notification{Number: number, ID: r.text(), Receiver: r.text(), Job: r.id(), Kind: operate.EventKind(r.text()), At: r.time(), Data: r.bytes(),
		Secret: r.text(), ExpiresAt: r.time(), DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryState(r.text()), Attempts: r.int(), NextAt: r.time(), EndedAt: r.time(),
			Error: r.text(), Position: r.num()}}
	return x
}

func readPending(r *row) (x outbox.PendingRow) {
	x.Number, x.Size, x.Attempts, x.ExpiresAt, x.Error = r.num(), r.int(), r.int(), r.time(), r.text()
	return x
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

func (tx *tx) SetPosition(receiver string, position int64) error {
	return tx.exec(`UPDATE perdure_receiver SET position = ? WHERE name = ?`, position, receiver)
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
	if len(all) == 0 {
		return nil
	}
	return tx.InsertRows(outbox.Pack(all))
}

// InsertRows implements outbox.Writer.
func (tx *tx) InsertRows(rows []outbox.Row) error {
	for i := range rows {
		n := &rows[i]
		if err := tx.exec(addNotificationSQL, orNull(n.Number), n.Size, n.ID, n.Receiver, n.Job[:], string(n.Kind), micros(n.At), textOf(n.Data), n.Secret, micros(n.ExpiresAt),
			string(n.State), n.Attempts, micros(n.NextAt), micros(n.EndedAt), n.Error, n.Position); err != nil {
			return err
		}
		if n.Size > 1 {
			if err := tx.exec(addNotificationDataSQL, textOf(n.Text())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (tx *tx) SaveDeliveries(receiver string, results []kernel.DeliveryResult) error {
	return outbox.Save(tx, receiver, results)
}

// SaveOutcomes implements outbox.Writer.
func (tx *tx) SaveOutcomes(receiver string, all []outbox.Outcome) (saved []int64, err error) {
	for i := range all {
		o := &all[i]
		n, err := tx.changed(saveDeliverySQL, string(o.State), o.Attempts, micros(o.NextAt), micros(o.EndedAt), o.Error, o.Position, o.Number, o.Size, receiver)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			saved = append(saved, o.Number)
		}
	}
	return saved, nil
}

// TakeRows implements outbox.Writer.
func (tx *tx) TakeRows(receiver string, numbers []int64) (taken []outbox.Row, err error) {
	for _, number := range numbers {
		rows, err := all(tx.c, readNotification, severalSQL, number, receiver)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if err := errors.Join(tx.exec(deleteNotificationSQL, row.Number), tx.exec(deleteNotificationDataSQL, row.Number)); err != nil {
				return nil, err
			}
		}
		taken = append(taken, rows...)
	}
	return taken, nil
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

// readRows reads rows until they have so many notifications.
func readRows(c *conn, max int, query string, args ...any) ([]outbox.Row, error) {
	return untilSize(c, readNotification, func(r outbox.Row) int { return r.Size }, max, query, args...)
}

func untilSize[R any](c *conn, read func(*row) R, size func(R) int, max int, query string, args ...any) ([]R, error) {
	left := max
	return until(c, read, func(r R) bool {
		left -= size(r)
		return left <= 0
	}, query, append(args, max)...)
}

// DueNotifications implements kernel.Outbox.
func (s *Store) DueNotifications(ctx context.Context, receiver string, now time.Time, max int) (due []kernel.Notification, err error) {
	err = s.with(ctx, func(c *conn) error {
		due, err = outbox.Due(dueRows{c, receiver, now}, max)
		return err
	})
	return due, err
}

// dueRows implements outbox.Source.
type dueRows struct {
	c        *conn
	receiver string
	now      time.Time
}

func (d dueRows) DueRows(after int64, max int) ([]outbox.Row, error) {
	return readRows(d.c, max, dueNotificationsSQL, d.receiver, d.now.UnixMicro(), after)
}

func (d dueRows) Attempted(jobs []perdure.JobID) (map[perdure.JobID]int64, error) {
	any, err := one(d.c, (*row).num, anyAttemptedSQL, d.receiver)
	if err != nil || any == 0 {
		return nil, err
	}
	found := map[perdure.JobID]int64{}
	for _, job := range jobs {
		first, err := one(d.c, (*row).num, attemptedSQL, d.receiver, job[:])
		if err != nil {
			return nil, err
		}
		if first > 0 {
			found[job] = first
		}
	}
	return found, nil
}

// PendingForStream implements kernel.Outbox.
func (s *Store) PendingForStream(ctx context.Context, receiver string, max int) ([]kernel.PendingNotification, error) {
	var rows []outbox.PendingRow
	err := s.with(ctx, func(c *conn) (err error) {
		rows, err = untilSize(c, readPending, func(r outbox.PendingRow) int { return r.Size }, max, pendingForStreamSQL, receiver)
		return err
	})
	return outbox.Pending(rows), err
}

// CountPending implements kernel.Outbox.
func (s *Store) CountPending(ctx context.Context, receiver string, max int) (int, error) {
	query, args := countPendingSQL, []any{max}
	if receiver != "" {
		query, args = countPendingOfSQL, []any{receiver, max}
	}
	n, err := viewOne(ctx, s, (*row).int, query, args...)
	return min(n, max), err
}

// CountDead implements kernel.Outbox.
func (s *Store) CountDead(ctx context.Context, receiver string, max int) (int, error) {
	return viewOne(ctx, s, (*row).int, countDeadSQL, receiver, max)
}

// Notifications implements kernel.Outbox.
func (s *Store) Notifications(ctx context.Context, f kernel.NotificationFilter) ([]kernel.Notification, error) {
	before, limit := cmp.Or(f.Before, afterAllNotifications), cmp.Or(f.Limit, perdure.DefaultListLimit)
	query := deliveriesSQL
	if f.State != "" {
		query = deliveriesOfSQL[f.State]
	}
	rows, err := s.notificationRows(ctx, outbox.ToList(f, limit), query, f.Receiver, before)
	if err != nil {
		return nil, err
	}
	return outbox.Listed(rows, before, limit)
}

// StreamedNotifications implements kernel.Outbox.
func (s *Store) StreamedNotifications(ctx context.Context, receiver string, after int64, max int) ([]kernel.Notification, error) {
	rows, err := s.notificationRows(ctx, max+outbox.MaxSize, streamSQL, receiver, after)
	if err != nil {
		return nil, err
	}
	return outbox.Streamed(rows, after, max)
}

// notificationRows reads rows until they have max notifications.
func (s *Store) notificationRows(ctx context.Context, max int, query string, args ...any) (rows []outbox.Row, err error) {
	err = s.with(ctx, func(c *conn) error {
		rows, err = readRows(c, max, query, args...)
		return err
	})
	return rows, err
}

// ForgetNotifications implements kernel.Outbox.
func (s *Store) ForgetNotifications(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.Update(ctx, func(t kernel.Tx) error {
		tx := t.(*tx)
		type gone struct {
			number int64
			size   int
		}
		rows, err := all(tx.c, func(r *row) gone { return gone{r.num(), r.int()} }, forgetNotificationsSQL, micros(before), max)
		n = 0
		for _, g := range rows {
			n += g.size
			if g.size > 1 {
				err = errors.Join(err, tx.exec(deleteNotificationDataSQL, g.number))
			}
		}
		return err
	})
	return n, err
}
