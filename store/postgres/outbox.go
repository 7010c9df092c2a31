package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/internal/outbox"
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
	setPositionSQL    = "update perdure.receiver set position = $2 where name = $1"
	deleteReceiverSQL = "delete from perdure.receiver where name = $1"
	clearFullSQL      = "delete from perdure.receiver_full"
	setFullSQL        = "insert into perdure.receiver_full (receiver) select r from unnest($1::text[]) as u (r)"

	notificationColumns = "number, size, id, receiver, job, kind, at, data, secret, expires_at, state, attempts, next_at, ended_at, error, position"

	// A plan that PostgreSQL made while the table was empty must not read a whole index for each row. The condition on the
	// receiver allows the index by receivers. The state is compared as an expression, so that the plan cannot use the
	// partial indexes of pending notifications.
	saveDeliveriesSQL = `
update perdure.notification n set state = v.state, attempts = v.attempts, next_at = v.next_at, ended_at = v.ended_at, error = v.error, position = v.position
from unnest($1::bigint[], $2::int[], $3::text[], $4::int[], $5::timestamptz[], $6::timestamptz[], $7::text[], $8::bigint[])
	as v (number, size, state, attempts, next_at, ended_at, error, position)
where n.number = any(array[v.number]) and n.size = v.size and n.receiver = $9 and n.state || '' = 'pending'
returning n.number`
	takeNotificationsSQL = "delete from perdure.notification where number = any($2) and receiver = $1 and size > 1 and state || '' = 'pending' returning " + notificationColumns
	resendSQL            = `
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
	attemptedSQL = `
select job, min(number) from perdure.notification where receiver = $1 and state = 'pending' and attempts > 0 and job = any($2) group by job`
	countPendingOfSQL = "select coalesce(sum(size), 0)::int from (select size from perdure.notification where state = 'pending' and receiver = $1 limit $2) n"
	countPendingSQL   = "select coalesce(sum(size), 0)::int from (select size from perdure.notification where state = 'pending' limit $1) n"
	countDeadSQL      = "select count(*)::int from (select from perdure.notification where state = 'dead' and receiver = $1 limit $2) n"
	forgetOutboxSQL   = `
delete from perdure.notification where number in (
	select number from (
		select number, sum(size) over (order by ended_at, number) - size as earlier from perdure.notification
		where ended_at is not null and ended_at < $1 order by ended_at, number limit $2) n
	where earlier < $2)
returning size`

	afterAllNotifications = 1<<63 - 1
)

// These read the rows of a receiver ($1) in an order, until they have so many notifications ($2).
var (
	dueNotificationsSQL = rowsSQL(notificationColumns, "number", `number > $3 and state = 'pending' and (attempts = 0 or next_at <= $4) and (job = '00000000-0000-0000-0000-000000000000'
	or not exists (
		select from perdure.notification p
		where p.receiver = n.receiver and p.job = n.job and p.state = 'pending' and p.attempts > 0 and p.number < n.number))`)
	pendingForStreamSQL = rowsSQL("number, size, attempts, expires_at, error", "number", "state = 'pending'")
	deliveriesSQL       = rowsSQL(notificationColumns, "number desc", "number < $3")
	streamSQL           = rowsSQL(notificationColumns, "position", "position > 0 and position > $3")
)

// rowsSQL has the limit twice, so that PostgreSQL stops after $2 rows although it does not know how many notifications
// they have.
func rowsSQL(columns, order, where string) string {
	return "select " + columns + " from (select n.*, sum(size) over (order by " + order + ") - size as earlier from perdure.notification n where receiver = $1 and " +
		where + " order by " + order + " limit $2) n where earlier < $2 order by " + order
}

// deliveriesOfSQL has a statement for each state. PostgreSQL uses the partial index of a state only if the state is a
// constant of the statement.
var deliveriesOfSQL = map[operate.DeliveryState]string{
	operate.DeliveryPending:   rowsSQL(notificationColumns, "number desc", "number < $3 and state = 'pending'"),
	operate.DeliveryDead:      rowsSQL(notificationColumns, "number desc", "number < $3 and state = 'dead'"),
	operate.DeliveryDelivered: rowsSQL(notificationColumns, "number desc", "number < $3 and state = 'delivered'"),
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

func scanNotification(r *pgwire.Reader) (x outbox.Row) {
	number := r.Int64()
	x.Size = r.Int()
	x.Notification = kernel.Notification{Number: number, ID: r.Text(), Receiver: r.Text(), Job: r.UUID(), Kind: operate.EventKind(r.Text()), At: r.Time(), Data: r.Bytes(),
		Secret: r.Text(), ExpiresAt: r.Time(), DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryState(r.Text()), Attempts: r.Int(), NextAt: r.Time(), EndedAt: r.Time(),
			Error: r.Text(), Position: r.Int64()}}
	return x
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

func (tx *tx) SetPosition(receiver string, position int64) error {
	tx.wrote = true
	return tx.run(pgwire.New(setPositionSQL).Text(receiver).Int64(position))
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

// notificationFields are the columns of a row, the number last: a new row gets it from the database.
var notificationFields = []pgwire.Field{pgwire.Text.Named("id"), pgwire.Text.Named("receiver"), pgwire.UUID.Named("job"), pgwire.Text.Named("kind"), pgwire.Time.Named("at"),
	pgwire.Text.Named("data"), pgwire.Text.Named("secret"), pgwire.Text.Named("state"), pgwire.Int4.Named("attempts"), pgwire.Time.Named("next_at"),
	pgwire.Time.Named("ended_at"), pgwire.Text.Named("error"), pgwire.Int8.Named("position"), pgwire.Time.Named("expires_at"), pgwire.Int4.Named("size"), pgwire.Int8.Named("number")}

// insertNotifications inserts rows in their order: the numbers that new ones get grow in it.
func insertNotifications(all []outbox.Row, numbered bool) *pgwire.Statement {
	fields := notificationFields
	if !numbered {
		fields = fields[:len(fields)-1]
	}
	g := pgwire.NewGrid(fields...).Classes(1)
	for i := range all {
		n := &all[i]
		g.Row()
		g.At(0).Text(n.ID)
		g.At(1).Text(n.Receiver)
		g.At(2).UUID(n.Job)
		g.At(3).Text(string(n.Kind))
		g.At(4).Time(n.At)
		g.At(5).Text(string(n.Text()))
		g.At(6).Text(n.Secret)
		g.At(7).Text(string(n.State))
		g.At(8).Int4(n.Attempts)
		g.At(9).Time(n.NextAt)
		g.At(10).Time(n.EndedAt)
		g.At(11).Text(n.Error)
		g.At(12).Int8(n.Position)
		g.At(13).Time(n.ExpiresAt)
		g.At(14).Int4(n.Size)
		if numbered {
			g.At(15).Int8(n.Number)
		}
	}
	return g.Insert("notification", "").Exact(g.Len())
}

func (w *writing) notifications(all []kernel.Notification) {
	if len(all) > 0 {
		w.add(insertNotifications(outbox.Pack(all), false))
	}
}

func (tx *tx) SaveDeliveries(receiver string, results []kernel.DeliveryResult) error {
	if len(results) == 0 {
		return nil
	}
	tx.wrote = true
	if slices.ContainsFunc(results, func(r kernel.DeliveryResult) bool { return r.Position > 0 }) {
		tx.wakes |= wakeStreams
	}
	return outbox.Save(tx, receiver, results)
}

// SaveOutcomes implements outbox.Writer.
func (tx *tx) SaveOutcomes(receiver string, all []outbox.Outcome) (saved []int64, err error) {
	var numbers, sizes, attempts, nextAt, endedAt, positions pgwire.Cells
	var states, errs []string
	for _, o := range all {
		numbers.Int8(o.Number)
		sizes.Int4(o.Size)
		attempts.Int4(o.Attempts)
		nextAt.Time(o.NextAt)
		endedAt.Time(o.EndedAt)
		positions.Int8(o.Position)
		states, errs = append(states, string(o.State)), append(errs, o.Error)
	}
	n := len(all)
	err = tx.run(pgwire.Into(pgwire.New(saveDeliveriesSQL).Array(pgwire.Int8, n, numbers).Array(pgwire.Int4, n, sizes).Texts(states).Array(pgwire.Int4, n, attempts).
		Array(pgwire.Time, n, nextAt).Array(pgwire.Time, n, endedAt).Texts(errs).Array(pgwire.Int8, n, positions).Text(receiver), &saved, (*pgwire.Reader).Int64))
	return saved, err
}

// TakeRows implements outbox.Writer.
func (tx *tx) TakeRows(receiver string, numbers []int64) (taken []outbox.Row, err error) {
	var cells pgwire.Cells
	for _, n := range numbers {
		cells.Int8(n)
	}
	err = tx.run(pgwire.Into(pgwire.New(takeNotificationsSQL).Text(receiver).Array(pgwire.Int8, len(numbers), cells), &taken, scanNotification))
	return taken, err
}

// InsertRows implements outbox.Writer.
func (tx *tx) InsertRows(all []outbox.Row) error { return tx.run(insertNotifications(all, true)) }

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
	return outbox.Due(dueRows{ctx, s, receiver, now}, max)
}

// dueRows implements outbox.Source.
type dueRows struct {
	ctx      context.Context
	store    *Store
	receiver string
	now      time.Time
}

func (d dueRows) DueRows(after int64, max int) ([]outbox.Row, error) {
	return query(d.ctx, d.store, pgwire.New(dueNotificationsSQL).Text(d.receiver).Int(max).Int64(after).Moment(d.now), scanNotification)
}

func (d dueRows) Attempted(jobs []perdure.JobID) (map[perdure.JobID]int64, error) {
	found := map[perdure.JobID]int64{}
	_, err := query(d.ctx, d.store, pgwire.New(attemptedSQL).Text(d.receiver).UUIDArray(len(jobs), func(i int) [16]byte { return jobs[i] }), func(r *pgwire.Reader) (none struct{}) {
		job := r.UUID()
		found[job] = r.Int64()
		return none
	})
	return found, err
}

// PendingForStream implements kernel.Outbox.
func (s *Store) PendingForStream(ctx context.Context, receiver string, max int) ([]kernel.PendingNotification, error) {
	rows, err := query(ctx, s, pgwire.New(pendingForStreamSQL).Text(receiver).Int(max), func(r *pgwire.Reader) (x outbox.PendingRow) {
		x.Number, x.Size, x.Attempts, x.ExpiresAt, x.Error = r.Int64(), r.Int(), r.Int(), r.Time(), r.Text()
		return x
	})
	return outbox.Pending(rows), err
}

// CountPending implements kernel.Outbox.
func (s *Store) CountPending(ctx context.Context, receiver string, max int) (int, error) {
	st := pgwire.New(countPendingSQL).Int(max)
	if receiver != "" {
		st = pgwire.New(countPendingOfSQL).Text(receiver).Int(max)
	}
	n, err := first(query(ctx, s, st, (*pgwire.Reader).Int))
	return min(n, max), err
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
	rows, err := query(ctx, s, pgwire.New(text).Text(f.Receiver).Int(outbox.ToList(f, limit)).Int64(before), scanNotification)
	if err != nil {
		return nil, err
	}
	return outbox.Listed(rows, before, limit)
}

// StreamedNotifications implements kernel.Outbox.
func (s *Store) StreamedNotifications(ctx context.Context, receiver string, after int64, max int) ([]kernel.Notification, error) {
	rows, err := query(ctx, s, pgwire.New(streamSQL).Text(receiver).Int(max+outbox.MaxSize).Int64(after), scanNotification)
	if err != nil {
		return nil, err
	}
	return outbox.Streamed(rows, after, max)
}

// ForgetNotifications implements kernel.Outbox.
func (s *Store) ForgetNotifications(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.write(ctx, func() []*pgwire.Statement {
		n = 0
		return []*pgwire.Statement{pgwire.New(forgetOutboxSQL).Moment(before).Int(max).Each(func(r *pgwire.Reader) error {
			n += r.Int()
			return nil
		})}
	})
	return n, err
}
