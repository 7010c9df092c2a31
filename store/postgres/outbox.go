package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	receiverColumns  = "name, settings, secret, old_secret, old_until, paused_cause, position, created_at, updated_at"
	receiverSelect   = "select " + receiverColumns + ", exists (select from perdure.receiver_full f where f.receiver = r.name) from perdure.receiver r"
	receiverSQL      = receiverSelect + " where name = $1"
	lockReceiverSQL  = receiverSQL + " for update of r"
	receiversSQL     = receiverSelect + " order by name"
	lockReceiversSQL = receiversSQL + " for update of r"
	putReceiverSQL   = `
insert into perdure.receiver (` + receiverColumns + `) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict (name) do update set settings = excluded.settings, secret = excluded.secret, old_secret = excluded.old_secret, old_until = excluded.old_until,
	paused_cause = excluded.paused_cause, position = excluded.position, created_at = excluded.created_at, updated_at = excluded.updated_at`
	deleteReceiverSQL = "delete from perdure.receiver where name = $1"
	clearFullSQL      = "delete from perdure.receiver_full"
	setFullSQL        = "insert into perdure.receiver_full (receiver) select r from unnest($1::text[]) as u (r)"

	notificationSelect = `select number, id, receiver, job, kind, at, data, secret, expires_at, state, attempts, next_at, ended_at, error, position
from perdure.notification n where receiver = $1`

	// A plan that PostgreSQL made while the table was empty must not read a whole index for each row. The condition on the
	// receiver allows the index by receivers. The state is compared as an expression, so that the plan cannot use the
	// partial indexes of pending notifications.
	saveDeliveriesSQL = `
update perdure.notification n set state = v.state, attempts = v.attempts, next_at = v.next_at, ended_at = v.ended_at, error = v.error, position = v.position
from unnest($1::bigint[], $2::text[], $3::int[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::bigint[])
	as v (number, state, attempts, next_at, ended_at, error, position)
where n.number = any(array[v.number]) and n.receiver = $8 and n.state || '' = 'pending'`
	resendSQL = `
update perdure.notification set state = 'pending', attempts = 0, next_at = $3, expires_at = $5, ended_at = null, error = ''
where number in (select number from perdure.notification where receiver = $1 and state = 'dead' and at >= $2 order by number limit $4)`
	hastenSQL = `
update perdure.notification set next_at = $2
where number in (select number from perdure.notification where receiver = $1 and state = 'pending' and attempts > 0 and next_at > $2 order by number limit $3)`

	pendingReceiversSQL = `
with recursive r (receiver) as (
	(select receiver from perdure.notification where state = 'pending' and receiver > $1 order by receiver, number limit 1)
	union all
	select (select n.receiver from perdure.notification n where n.state = 'pending' and n.receiver > r.receiver order by n.receiver, n.number limit 1)
	from r where r.receiver is not null)
select receiver from r where receiver is not null limit $2`
	dueNotificationsSQL = notificationSelect + `
and state = 'pending' and (attempts = 0 or next_at <= $2) and (job = '00000000-0000-0000-0000-000000000000' or not exists (
	select from perdure.notification p
	where p.receiver = n.receiver and p.job = n.job and p.state = 'pending' and p.attempts > 0 and p.number < n.number))
order by number limit $3`
	countPendingOfSQL = "select count(*)::int from (select from perdure.notification where state = 'pending' and receiver = $1 limit $2) n"
	countPendingSQL   = "select count(*)::int from (select from perdure.notification where state = 'pending' limit $1) n"
	countDeadSQL      = "select count(*)::int from (select from perdure.notification where state = 'dead' and receiver = $1 limit $2) n"
	deliveriesSQL     = notificationSelect + " and number < $2 order by number desc limit $3"
	streamSQL         = notificationSelect + " and position > 0 and position > $2 order by position limit $3"
	forgetOutboxSQL   = `
delete from perdure.notification where number in (
	select number from perdure.notification where ended_at is not null and ended_at < $1 order by ended_at limit $2)`

	afterAllNotifications = 1<<63 - 1
)

// deliveriesOfSQL has a statement for each state. PostgreSQL uses the partial index of a state only if the state is a
// constant of the statement.
var deliveriesOfSQL = map[operate.DeliveryState]string{
	operate.DeliveryPending:   notificationSelect + " and number < $2 and state = 'pending' order by number desc limit $3",
	operate.DeliveryDead:      notificationSelect + " and number < $2 and state = 'dead' order by number desc limit $3",
	operate.DeliveryDelivered: notificationSelect + " and number < $2 and state = 'delivered' order by number desc limit $3",
}

func scanReceiver(r *pgwire.Reader) *kernel.Receiver {
	x := &kernel.Receiver{Name: r.Text()}
	if err := json.Unmarshal(r.Bytes(), &x.Settings); err != nil {
		r.Failed = cmp.Or(r.Failed, err)
	}
	x.Secret, x.OldSecret, x.OldUntil, x.PausedCause, x.Position = r.Text(), r.Text(), r.Time(), r.Text(), r.Int64()
	x.CreatedAt, x.UpdatedAt, x.Full = r.Time(), r.Time(), r.Bool()
	return x
}

func scanNotification(r *pgwire.Reader) kernel.Notification {
	return kernel.Notification{Number: r.Int64(), ID: r.Text(), Receiver: r.Text(), Job: r.UUID(), Kind: operate.EventKind(r.Text()), At: r.Time(), Data: r.Bytes(),
		Secret: r.Text(), ExpiresAt: r.Time(), DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryState(r.Text()), Attempts: r.Int(), NextAt: r.Time(), EndedAt: r.Time(),
			Error: r.Text(), Position: r.Int64()}}
}

// routeTexts caches the settings of receivers by their text, because each transaction reads all receivers.
type routeTexts struct {
	mu     sync.Mutex
	parsed map[string]operate.WebhookSettings
}

// maxRouteTexts bounds the cache: the settings of all receivers, and some that were replaced.
const maxRouteTexts = 10 * operate.MaxWebhooks

func (t *routeTexts) of(text string) (s operate.WebhookSettings, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, known := t.parsed[text]; known {
		return s, nil
	}
	if err = json.Unmarshal([]byte(text), &s); err != nil {
		return s, err
	}
	if len(t.parsed) >= maxRouteTexts || t.parsed == nil {
		t.parsed = map[string]operate.WebhookSettings{}
	}
	t.parsed[text] = s
	return s, nil
}

// Routing returns the routing that was read when the transaction began.
func (tx *tx) Routing() (*kernel.Routing, error) {
	if err := tx.start(); err != nil {
		return nil, err
	}
	return &tx.routing, nil
}

// LockReceivers takes the gate exclusively. Each transaction that may store notifications holds it shared.
func (tx *tx) LockReceivers() (all []*kernel.Receiver, err error) {
	if err := tx.closeGate(); err != nil {
		return nil, err
	}
	err = tx.run(pgwire.Into(pgwire.New(lockReceiversSQL), &all, scanReceiver))
	return all, err
}

func (tx *tx) LockReceiver(name string) (*kernel.Receiver, error) {
	var found []*kernel.Receiver
	if err := tx.run(pgwire.Into(pgwire.New(lockReceiverSQL).Text(name), &found, scanReceiver)); err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

func (tx *tx) PutReceiver(r *kernel.Receiver) error {
	tx.wrote = true
	tx.wakes |= wakeOutbox
	return tx.run(pgwire.New(putReceiverSQL).Text(r.Name).Text(string(marshal(&r.Settings))).Text(r.Secret).Text(r.OldSecret).Time(r.OldUntil).
		Text(r.PausedCause).Int64(r.Position).Time(r.CreatedAt).Time(r.UpdatedAt), tx.readSettings())
}

func (tx *tx) DeleteReceiver(name string) (had bool, err error) {
	tx.wrote = true
	tx.wakes |= wakeOutbox | wakeStreams
	err = tx.run(pgwire.New(deleteReceiverSQL).Text(name).Counted(func(n int64) { had = n > 0 }), tx.readSettings())
	return had, err
}

func (tx *tx) SetFull(receivers []string) error {
	tx.wrote = true
	return tx.run(pgwire.New(clearFullSQL), pgwire.New(setFullSQL).Texts(receivers), tx.readSettings())
}

// notifications inserts notifications, in their order: their numbers grow in it.
func (w *writing) notifications(all []kernel.Notification) {
	if len(all) == 0 {
		return
	}
	g := pgwire.NewGrid(pgwire.Text.Named("id"), pgwire.Text.Named("receiver"), pgwire.UUID.Named("job"), pgwire.Text.Named("kind"), pgwire.Time.Named("at"),
		pgwire.Text.Named("data"), pgwire.Text.Named("secret"), pgwire.Text.Named("state"), pgwire.Int4.Named("attempts"), pgwire.Time.Named("next_at"),
		pgwire.Time.Named("ended_at"), pgwire.Text.Named("error"), pgwire.Int8.Named("position"), pgwire.Time.Named("expires_at")).Classes(1)
	for i := range all {
		n := &all[i]
		g.Row()
		g.At(0).Text(n.ID)
		g.At(1).Text(n.Receiver)
		g.At(2).UUID(n.Job)
		g.At(3).Text(string(n.Kind))
		g.At(4).Time(n.At)
		g.At(5).Text(string(n.Data))
		g.At(6).Text(n.Secret)
		g.At(7).Text(string(n.State))
		g.At(8).Int4(n.Attempts)
		g.At(9).Time(n.NextAt)
		g.At(10).Time(n.EndedAt)
		g.At(11).Text(n.Error)
		g.At(12).Int8(n.Position)
		g.At(13).Time(n.ExpiresAt)
	}
	w.add(g.Insert("notification", "").Exact(g.Len()))
}

func (tx *tx) SaveDeliveries(receiver string, results []kernel.DeliveryResult) error {
	if len(results) == 0 {
		return nil
	}
	tx.wrote = true
	var numbers, attempts, nextAt, endedAt, positions pgwire.Cells
	var states, errs []string
	for _, r := range results {
		numbers.Int8(r.Number)
		attempts.Int4(r.Attempts)
		nextAt.Time(r.NextAt)
		endedAt.Time(r.EndedAt)
		if positions.Int8(r.Position); r.Position > 0 {
			tx.wakes |= wakeStreams
		}
		states, errs = append(states, string(r.State)), append(errs, r.Error)
	}
	n := len(results)
	return tx.run(pgwire.New(saveDeliveriesSQL).Array(pgwire.Int8, n, numbers).Texts(states).Array(pgwire.Int4, n, attempts).
		Array(pgwire.Time, n, nextAt).Array(pgwire.Time, n, endedAt).Texts(errs).Array(pgwire.Int8, n, positions).Text(receiver))
}

func (tx *tx) Resend(receiver string, since, now time.Time, max int) (sent int, err error) {
	tx.wrote = true
	tx.wakes |= wakeOutbox
	err = tx.run(pgwire.New(resendSQL).Text(receiver).Moment(since).Time(now).Int(max).Time(now.Add(operate.NotificationRetried)).Counted(func(n int64) { sent = int(n) }))
	return sent, err
}

func (tx *tx) Hasten(receiver string, now time.Time, max int) (hastened int, err error) {
	tx.wrote = true
	err = tx.run(pgwire.New(hastenSQL).Text(receiver).Time(now).Int(max).Counted(func(n int64) { hastened = int(n) }))
	return hastened, err
}

// Receiver implements kernel.Outbox.
func (s *Store) Receiver(ctx context.Context, name string) (*kernel.Receiver, error) {
	return first(query(ctx, s, pgwire.New(receiverSQL).Text(name), scanReceiver))
}

// Receivers implements kernel.Outbox.
func (s *Store) Receivers(ctx context.Context) ([]*kernel.Receiver, error) {
	return query(ctx, s, pgwire.New(receiversSQL), scanReceiver)
}

// PendingReceivers implements kernel.Outbox. It jumps from one receiver to the next in the index.
func (s *Store) PendingReceivers(ctx context.Context, after string, max int) ([]string, error) {
	return query(ctx, s, pgwire.New(pendingReceiversSQL).Text(after).Int(max), (*pgwire.Reader).Text)
}

// DueNotifications implements kernel.Outbox.
func (s *Store) DueNotifications(ctx context.Context, receiver string, now time.Time, max int) ([]kernel.Notification, error) {
	return query(ctx, s, pgwire.New(dueNotificationsSQL).Text(receiver).Moment(now).Int(max), scanNotification)
}

// CountPending implements kernel.Outbox.
func (s *Store) CountPending(ctx context.Context, receiver string, max int) (int, error) {
	st := pgwire.New(countPendingSQL).Int(max)
	if receiver != "" {
		st = pgwire.New(countPendingOfSQL).Text(receiver).Int(max)
	}
	return first(query(ctx, s, st, (*pgwire.Reader).Int))
}

// CountDead implements kernel.Outbox.
func (s *Store) CountDead(ctx context.Context, receiver string, max int) (int, error) {
	return first(query(ctx, s, pgwire.New(countDeadSQL).Text(receiver).Int(max), (*pgwire.Reader).Int))
}

// Notifications implements kernel.Outbox.
func (s *Store) Notifications(ctx context.Context, f kernel.NotificationFilter) ([]kernel.Notification, error) {
	before, limit := cmp.Or(f.Before, afterAllNotifications), cmp.Or(f.Limit, perdure.DefaultListLimit)
	text := deliveriesSQL
	if f.State != "" {
		text = deliveriesOfSQL[f.State]
	}
	return query(ctx, s, pgwire.New(text).Text(f.Receiver).Int64(before).Int(limit), scanNotification)
}

// StreamedNotifications implements kernel.Outbox.
func (s *Store) StreamedNotifications(ctx context.Context, receiver string, after int64, max int) ([]kernel.Notification, error) {
	return query(ctx, s, pgwire.New(streamSQL).Text(receiver).Int64(after).Int(max), scanNotification)
}

// ForgetNotifications implements kernel.Outbox.
func (s *Store) ForgetNotifications(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.write(ctx, func() []*pgwire.Statement {
		return []*pgwire.Statement{pgwire.New(forgetOutboxSQL).Moment(before).Int(max).Counted(func(met int64) { n = int(met) })}
	})
	return n, err
}
