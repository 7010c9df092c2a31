package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/webhook"
	"github.com/perdure/perdure/operate"
)

// newSecret returns a secret of 256 random bits.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return webhook.SecretPrefix + base64.StdEncoding.EncodeToString(b[:])
}

func (svc *Service) webhookView(ctx context.Context, r *kernel.Receiver) (*operate.WebhookView, error) {
	v := &operate.WebhookView{Name: r.Name, WebhookSettings: r.Settings, PausedReason: r.PausedCause, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
	if len(v.On) == 0 {
		v.On = operate.DefaultEventKinds
	}
	if v.Format == "" {
		v.Format = operate.FormatCloudEvents
	}
	var oldest, latest []kernel.Notification
	var err error
	if v.Pending, err = svc.Store.CountPending(ctx, r.Name, operate.MaxWebhookCount); err != nil {
		return nil, Unreachable(err)
	}
	if v.Dead, err = svc.Store.CountDead(ctx, r.Name, operate.MaxWebhookCount); err != nil {
		return nil, Unreachable(err)
	}
	if v.Pending > 0 {
		if oldest, err = svc.Store.DueNotifications(ctx, r.Name, r.UpdatedAt.Add(aLongTime), 1); err != nil {
			return nil, Unreachable(err)
		}
	}
	if latest, err = svc.Store.Notifications(ctx, kernel.NotificationFilter{Receiver: r.Name, Limit: 1}); err != nil {
		return nil, Unreachable(err)
	}
	var first *kernel.Notification
	if len(oldest) > 0 {
		first, v.Oldest = &oldest[0], deliveryView(&oldest[0])
	}
	if len(latest) > 0 {
		v.Latest = deliveryView(&latest[0])
	}
	v.State = r.State(first)
	return v, nil
}

// aLongTime makes any pending notification due.
const aLongTime = 100 * 365 * 24 * time.Hour

func deliveryView(n *kernel.Notification) *operate.Delivery {
	return &operate.Delivery{ID: n.ID, Type: n.Kind.TypeOf(), Job: n.Job, Time: n.At, State: n.State, Attempts: n.Attempts, NextAttempt: n.NextAt, EndedAt: n.EndedAt, Error: n.Error}
}

// ListWebhooks implements operate.Webhooks.
func (svc *Service) ListWebhooks(ctx context.Context) ([]operate.WebhookView, error) {
	rows, err := svc.Store.Receivers(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	views := []operate.WebhookView{}
	for _, r := range rows {
		v, err := svc.webhookView(ctx, r)
		if err != nil {
			return nil, err
		}
		views = append(views, *v)
	}
	return views, nil
}

// GetWebhook implements operate.Webhooks.
func (svc *Service) GetWebhook(ctx context.Context, name string) (*operate.WebhookView, error) {
	r, err := svc.receiver(ctx, name)
	if err != nil {
		return nil, err
	}
	return svc.webhookView(ctx, r)
}

func (svc *Service) receiver(ctx context.Context, name string) (*kernel.Receiver, error) {
	r, err := svc.Store.Receiver(ctx, name)
	switch {
	case err != nil:
		return nil, Unreachable(err)
	case r == nil:
		return nil, kernel.ErrNoReceiver(name)
	}
	return r, nil
}

// CreateWebhook implements operate.Webhooks.
func (svc *Service) CreateWebhook(ctx context.Context, r operate.WebhookRequest) (*operate.WebhookView, error) {
	v, _, err := svc.putWebhook(ctx, r, true)
	return v, err
}

// SetWebhook implements operate.Webhooks.
func (svc *Service) SetWebhook(ctx context.Context, r operate.WebhookRequest) (*operate.WebhookView, bool, error) {
	return svc.putWebhook(ctx, r, false)
}

func (svc *Service) putWebhook(ctx context.Context, r operate.WebhookRequest, create bool) (*operate.WebhookView, bool, error) {
	if err := cmp.Or(svc.ended(), checkAuthor(r.Author), r.Check()); err != nil {
		return nil, false, err
	}
	if err := svc.checkReplaced(ctx, r.Name); err != nil {
		return nil, false, err
	}
	row, created, err := svc.Scheduler.PutReceiver(ctx, r.Name, r.Author, r.WebhookSettings, newSecret(), create)
	if err != nil {
		return nil, false, Unreachable(err)
	}
	svc.Log.InfoContext(ctx, "webhook set", "webhook", r.Name, "author", r.Author)
	v, err := svc.webhookView(ctx, row)
	if err == nil && created && !row.Settings.Stream {
		v.Secret = row.Secret
	}
	return v, created, err
}

// checkReplaced refuses to create a receiver while notifications of a deleted one of the same name are pending: they would be
// delivered to it. None is added to them, and the deliverer soon ends them as dead.
func (svc *Service) checkReplaced(ctx context.Context, name string) error {
	r, err := svc.Store.Receiver(ctx, name)
	switch {
	case err != nil:
		return Unreachable(err)
	case r != nil:
		return nil
	}
	pending, err := svc.Store.CountPending(ctx, name, 1)
	if err != nil {
		return Unreachable(err)
	}
	if pending > 0 {
		return perdure.Refuse(perdure.CodeConflict, "receiver %s was just deleted, and its notifications are not yet given up: try again in some seconds", name)
	}
	return nil
}

func checkAuthor(author string) error {
	if author == "" {
		return perdure.Refuse(perdure.CodeInvalid, "an act needs an author")
	}
	return nil
}

// DeleteWebhook implements operate.Webhooks.
func (svc *Service) DeleteWebhook(ctx context.Context, name, author string) error {
	if err := cmp.Or(svc.ended(), checkAuthor(author)); err != nil {
		return err
	}
	had, err := svc.Scheduler.DeleteReceiver(ctx, name, author)
	switch {
	case err != nil:
		return Unreachable(err)
	case !had:
		return kernel.ErrNoReceiver(name)
	}
	svc.Log.InfoContext(ctx, "webhook deleted", "webhook", name, "author", author)
	return nil
}

// changeWebhook changes a receiver, logs it, and returns its view.
func (svc *Service) changeWebhook(ctx context.Context, message, name, author string, change func() (*kernel.Receiver, error)) (*kernel.Receiver, *operate.WebhookView, error) {
	if err := cmp.Or(svc.ended(), checkAuthor(author)); err != nil {
		return nil, nil, err
	}
	row, err := change()
	if err != nil {
		return nil, nil, Unreachable(err)
	}
	svc.Log.InfoContext(ctx, message, "webhook", name, "author", author)
	v, err := svc.webhookView(ctx, row)
	return row, v, err
}

// PauseWebhook implements operate.Webhooks.
func (svc *Service) PauseWebhook(ctx context.Context, name, author string) (*operate.WebhookView, error) {
	_, v, err := svc.changeWebhook(ctx, "webhook paused", name, author, func() (*kernel.Receiver, error) {
		return svc.Scheduler.ChangeReceiver(ctx, "pauseWebhook", name, author, func(r *kernel.Receiver, _ time.Time) {
			if r.PausedCause == "" {
				r.PausedCause = "paused by " + author
			}
		})
	})
	return v, err
}

// ResumeWebhook implements operate.Webhooks.
func (svc *Service) ResumeWebhook(ctx context.Context, name, author string) (*operate.WebhookView, error) {
	_, v, err := svc.changeWebhook(ctx, "webhook resumed", name, author, func() (*kernel.Receiver, error) { return svc.Scheduler.ResumeReceiver(ctx, name, author) })
	return v, err
}

// RotateWebhook implements operate.Webhooks.
func (svc *Service) RotateWebhook(ctx context.Context, name, author string) (*operate.WebhookView, error) {
	if r, err := svc.receiver(ctx, name); err != nil {
		return nil, err
	} else if r.Settings.Stream {
		return nil, perdure.Refuse(perdure.CodeConflict, "receiver %s is a stream, which has no secret", name)
	}
	secret := newSecret()
	row, v, err := svc.changeWebhook(ctx, "webhook secret rotated", name, author, func() (*kernel.Receiver, error) {
		return svc.Scheduler.ChangeReceiver(ctx, "rotateWebhook", name, author, func(r *kernel.Receiver, now time.Time) {
			if r.Secret != secret {
				r.OldSecret, r.OldUntil, r.Secret = r.Secret, now.Add(operate.WebhookRotation), secret
			}
		})
	})
	if err == nil {
		v.Secret = row.Secret
	}
	return v, err
}

// TestWebhook implements operate.Webhooks.
func (svc *Service) TestWebhook(ctx context.Context, name, author string) (string, error) {
	if err := cmp.Or(svc.ended(), checkAuthor(author)); err != nil {
		return "", err
	}
	id, err := svc.Scheduler.TestReceiver(ctx, name, author)
	if err != nil {
		return "", Unreachable(err)
	}
	return id, nil
}

// ResendWebhook implements operate.Webhooks.
func (svc *Service) ResendWebhook(ctx context.Context, r operate.WebhookResend) (int, error) {
	if err := cmp.Or(svc.ended(), checkAuthor(r.Author)); err != nil {
		return 0, err
	}
	n, err := svc.Scheduler.ResendNotifications(ctx, r.Name, r.Author, r.Since)
	if err != nil {
		return 0, Unreachable(err)
	}
	svc.Log.InfoContext(ctx, "notifications sent again", "webhook", r.Name, "number", n, "author", r.Author)
	return n, nil
}

// deliveryRoom is the room of one delivery in an answer.
const deliveryRoom = 1 << 10

// ListDeliveries implements operate.Webhooks.
func (svc *Service) ListDeliveries(ctx context.Context, q operate.DeliveryQuery) (*perdure.Page[operate.Delivery], error) {
	before, err := deliveryList.position(q.Cursor)
	if err != nil {
		return nil, errCursor
	}
	if !kernel.IsURL(q.Name) {
		if _, err := svc.receiver(ctx, q.Name); err != nil {
			return nil, err
		}
	}
	limit := pageSize(q.Limit)
	if err := admission.Ask(ctx, limit*deliveryRoom); err != nil {
		return nil, err
	}
	rows, err := svc.Store.Notifications(ctx, kernel.NotificationFilter{Receiver: q.Name, State: q.State, Before: before, Limit: limit + 1})
	if err != nil {
		return nil, Unreachable(err)
	}
	page := &perdure.Page[operate.Delivery]{Items: []operate.Delivery{}}
	for i, n := range rows {
		if i == limit {
			page.NextCursor = deliveryList.cursor(rows[i-1].Number)
			break
		}
		page.Items = append(page.Items, *deliveryView(&n))
	}
	return page, nil
}

// eventPause is the shortest time between two reads of a stream by one reader.
const eventPause = 100 * time.Millisecond

// FollowEvents implements operate.Webhooks.
func (svc *Service) FollowEvents(ctx context.Context, receiver string, after int64, see func(*operate.EventPage) error) error {
	moved, stop := svc.Streams.Follow() // before the stream is read
	defer stop()
	for first := true; ; first = false {
		if err := svc.ended(); err != nil {
			return err
		}
		page, next, more, err := svc.readEvents(ctx, receiver, after)
		if err != nil {
			return err
		}
		if first || len(page.Events) > 0 || page.Gap {
			if err := see(page); err != nil {
				return err
			}
		}
		if after = next; more {
			continue
		}
		if !env.Sleep(svc.Env, ctx, eventPause) || svc.Env.Wait(ctx, svc.EventPoll(), moved) == env.Gone {
			return ctx.Err()
		}
	}
}

// readEvents returns the events after a position, and the position after them. more reports that there may be more events.
func (svc *Service) readEvents(ctx context.Context, receiver string, after int64) (page *operate.EventPage, next int64, more bool, err error) {
	r, err := svc.receiver(ctx, receiver)
	switch {
	case err != nil:
		return nil, 0, false, err
	case !r.Settings.Stream:
		return nil, 0, false, perdure.Refuse(perdure.CodeConflict, "receiver %s has a url, and is not a stream", receiver)
	case after < 0:
		return &operate.EventPage{}, r.Position, false, nil
	}
	if err := admission.Ask(ctx, operate.MaxEvents*deliveryRoom); err != nil {
		return nil, 0, false, err
	}
	rows, err := svc.Store.StreamedNotifications(ctx, receiver, after, operate.MaxEvents)
	if err != nil {
		return nil, 0, false, Unreachable(err)
	}
	cell, err := svc.Store.Cell(ctx)
	if err != nil {
		return nil, 0, false, Unreachable(err)
	}
	page, more = &operate.EventPage{}, len(rows) == operate.MaxEvents
	// Positions follow each other. A missing one was deleted, or is between a stream that was deleted and one of the same name:
	// the next page begins behind it, with a gap.
	for i := 1; i < len(rows); i++ {
		if rows[i].Position != rows[i-1].Position+1 {
			rows = rows[:i]
			more = true
		}
	}
	for i := range rows {
		body, err := webhook.Body(&rows[i], operate.FormatCloudEvents, webhook.Source(cell), "")
		if err != nil {
			return nil, 0, false, err
		}
		page.Events = append(page.Events, operate.Event{Position: rows[i].Position, Body: body})
	}
	switch {
	case len(rows) > 0:
		page.Gap, next = after != 0 && rows[0].Position != after+1, rows[len(rows)-1].Position
	case after == 0:
		next = 0
	default:
		page.Gap, next = after != r.Position, r.Position
	}
	return page, next, more, nil
}
