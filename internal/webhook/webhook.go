// Package webhook delivers notifications (kernel.Notification) to their receivers. It decides nothing about jobs, and no
// job waits for it.
//
// The deliverer runs on the node that leads the role courier. For each receiver with pending notifications it has a worker,
// so that a slow receiver delays no other. A worker reads a page of notifications that are due, delivers the first one of
// each job, and stores the outcomes in one transaction. Only then it delivers the next notification of a job: the
// notifications of one job arrive in their order.
//
// If the node ends between a delivery and its outcome, the next leader delivers the notification again: each arrives at
// least once, under an id that never changes.
//
// A stream is a receiver that is read (GET /v1/events). Its worker gives each notification the next position in the
// stream, under a lock of the receiver's row. So positions appear in their order, and a reader that goes on after the
// last position that it has read misses nothing.
package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Store keeps the notifications.
type Store interface {
	kernel.Outbox
	Now(context.Context) (time.Time, error)
	Cell(context.Context) (int, error)
	Alerts(context.Context, kernel.AlertFilter) ([]kernel.Alert, error)
	Update(ctx context.Context, fn func(kernel.Tx) error) error
}

// Poster sends a request to a receiver. Redirects are not followed.
type Poster interface {
	Post(ctx context.Context, r Request) (Answer, error)
}

// Request is a delivery.
type Request struct {
	URL     string
	Body    []byte
	Headers map[string]string
}

// Answer is what a receiver has answered.
type Answer struct {
	Status     int
	RetryAfter time.Duration // 0: the receiver has named no time
}

// Config configures a deliverer.
type Config struct {
	Store  Store
	Poster Poster
	// PublicURL is the address of the console for links in messages; "": they have no links.
	PublicURL string
	// Secret returns a secret of the node, with which deliveries to a URL that a definition names are signed; nil: none.
	Secret func(name string) (string, bool)
	// Poll returns the time between two searches without a wake-up while nothing is pending; nil: DefaultPoll.
	Poll      func() time.Duration
	Delivered func(outcome string) // called for each attempt: delivered, failed or dead; nil: no call
	Streamed  func()               // called when streams have new events; nil: no call
	Pending   func(n int)          // called by the leader with the number of pending notifications, and with 0 when it stops leading; nil: no call
	// MaxPending is the number of pending notifications at which new ones of the receiver with the most of them are dead at
	// once; 0: operate.MaxUndelivered.
	MaxPending   int
	MeasureEvery time.Duration // the time between two counts of the pending notifications; 0: 10s
	Log          *slog.Logger
	Env          env.Env // nil: env.Real
}

const (
	// DefaultPoll is the time between two searches for notifications without a wake-up, for those that are to be repeated,
	// and if no wake-ups arrive from other nodes. PollWithWakeups is this time while nothing is pending and they do.
	DefaultPoll     = time.Second
	PollWithWakeups = 10 * time.Second
	// MaxWorkers bounds the receivers to which notifications are delivered at the same time.
	MaxWorkers = 256
	// PageSize is how many notifications of one receiver are read at once, AtOnce how many of them are delivered at the same
	// time. StreamPageSize is how many are given their position in a stream at once.
	PageSize       = 256
	AtOnce         = 32
	StreamPageSize = 1000
	// Timeout bounds one attempt.
	Timeout = 15 * time.Second

	retry = time.Second // the pause after an error of the store
	// gather is the pause between two searches, so that a busy store has few commits of many outcomes and not many of few.
	gather         = 20 * time.Millisecond
	receiversPage  = 500
	maxReceivers   = 10_000 // receivers with pending notifications in one search
	measureEvery   = 10 * time.Second
	forgetEvery    = time.Minute
	forgetAtOnce   = 1000
	maxErrorLength = 500

	// A million pending notifications take up to seconds to count, or to search for one that is due. Such a call is
	// repeated only after costShare times the time that it took.
	costShare = 20
	cheap     = 50 * time.Millisecond // a search that takes less is repeated at once
	maxPause  = time.Minute           // after a costly search
)

// schedule has the pauses after failed attempts. The last one repeats until the notification expires.
var schedule = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour, 3 * time.Hour}

// jitter is the part of a pause that is random.
const jitter = 0.2

// Outcomes of attempts, for metrics.
const (
	outcomeDelivered = "delivered"
	outcomeFailed    = "failed"
	outcomeDead      = "dead"
)

// Deliverer delivers notifications.
type Deliverer struct {
	cfg     Config
	wakeups chan struct{}

	mu       sync.Mutex
	workers  map[string]*worker  // by receiver
	breakers map[string]*breaker // by receiver, of those that are failing

	// Only the goroutine of Lead uses these; a new leadership begins with none:
	source    string
	measureAt time.Time // when the pending notifications are counted again; zero: now
	forgotAt  time.Time // when old notifications were last deleted; zero: not yet
	full      bool      // receivers may be marked as full; a new leader does not know, and so begins with true
}

// worker delivers to one receiver.
type worker struct {
	again bool // notifications may have been stored since it last searched
}

// New returns a deliverer.
func New(cfg Config) *Deliverer {
	if cfg.Poll == nil {
		cfg.Poll = func() time.Duration { return DefaultPoll }
	}
	cfg.MaxPending, cfg.MeasureEvery = cmp.Or(cfg.MaxPending, operate.MaxUndelivered), cmp.Or(cfg.MeasureEvery, measureEvery)
	if cfg.Streamed == nil {
		cfg.Streamed = func() {}
	}
	if cfg.Secret == nil {
		cfg.Secret = func(string) (string, bool) { return "", false }
	}
	if cfg.Delivered == nil {
		cfg.Delivered = func(string) {}
	}
	if cfg.Pending == nil {
		cfg.Pending = func(int) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Env == nil {
		cfg.Env = env.Real{}
	}
	return &Deliverer{cfg: cfg, wakeups: make(chan struct{}, 1)}
}

// Wake makes the deliverer search for notifications soon. It never blocks.
func (d *Deliverer) Wake() {
	select {
	case d.wakeups <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Lead delivers notifications until ctx ends, and returns when its workers have ended.
func (d *Deliverer) Lead(ctx context.Context) {
	d.workers, d.breakers = map[string]*worker{}, map[string]*breaker{}
	d.source, d.measureAt, d.forgotAt, d.full = "", time.Time{}, time.Time{}, true
	ended := make(chan struct{}, 1)
	failed := false
	for ctx.Err() == nil {
		busy, err := d.round(ctx, ended)
		pause := d.cfg.Poll()
		if busy {
			pause = min(pause, DefaultPoll)
		}
		switch {
		case err != nil:
			if !failed && ctx.Err() == nil {
				d.cfg.Log.Warn("delivery of notifications failed; retrying", "error", err)
			}
			pause = retry
		case failed:
			d.cfg.Log.Info("delivery of notifications works again")
		}
		failed = err != nil
		d.cfg.Env.Wait(ctx, gather, nil)
		d.cfg.Env.Wait(ctx, pause, d.wakeups)
	}
	for d.busy() {
		d.cfg.Env.Wait(context.Background(), env.Forever, ended)
	}
	d.cfg.Pending(0)
}

func (d *Deliverer) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.workers) > 0
}

// round starts a worker for each receiver that has pending notifications, and deletes old notifications. busy reports that
// notifications are pending, or old ones are left.
func (d *Deliverer) round(ctx context.Context, ended chan struct{}) (busy bool, err error) {
	if d.source == "" {
		cell, err := d.cfg.Store.Cell(ctx)
		if err != nil {
			return false, err
		}
		d.source = Source(cell)
	}
	found := 0
	for name, err := range d.pendingReceivers(ctx) {
		if err != nil {
			return false, err
		}
		d.start(ctx, name, ended)
		if found++; found == maxReceivers {
			break
		}
	}
	if err := d.measure(ctx, found > 0); err != nil {
		return false, err
	}
	left, err := d.forget(ctx)
	return found > 0 || left, err
}

// pendingReceivers returns the receivers that have pending notifications. An error is the last value.
func (d *Deliverer) pendingReceivers(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		after := ""
		for {
			names, err := d.cfg.Store.PendingReceivers(ctx, after, receiversPage)
			if err != nil {
				yield("", err)
				return
			}
			for _, name := range names {
				if !yield(name, nil) {
					return
				}
			}
			if len(names) < receiversPage {
				return
			}
			after = names[len(names)-1]
		}
	}
}

// start starts the worker of a receiver, unless there are too many. If it works already, it searches again.
func (d *Deliverer) start(ctx context.Context, receiver string, ended chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.workers[receiver]; w != nil {
		w.again = true
		return
	}
	if len(d.workers) >= MaxWorkers {
		return
	}
	w := &worker{}
	d.workers[receiver] = w
	d.cfg.Env.Go(func() {
		d.work(ctx, receiver, w)
		select {
		case ended <- struct{}{}:
		default:
		}
	})
}

// work delivers to a receiver until nothing is due.
func (d *Deliverer) work(ctx context.Context, receiver string, w *worker) {
	for {
		more, err := d.page(ctx, receiver)
		switch {
		case err != nil && ctx.Err() == nil:
			d.cfg.Log.Warn("delivery of notifications failed; retrying", "receiver", kernel.SiteOf(receiver), "error", err)
			d.cfg.Env.Wait(ctx, retry, nil)
		case more == some:
			d.cfg.Env.Wait(ctx, gather, nil)
		}
		d.mu.Lock()
		if ctx.Err() != nil || more == none && !w.again {
			delete(d.workers, receiver)
			d.mu.Unlock()
			return
		}
		w.again = false
		d.mu.Unlock()
	}
}

// rest is what a page has left.
type rest int

const (
	none rest = iota // nothing is due, or the receiver does not answer
	some             // notifications may have become due since
	many             // the page was full
)

// restOf is what a page of so many notifications has left.
func restOf(found, size int) rest {
	if found >= size {
		return many
	}
	return some
}

// page reads a page of notifications that are due, and delivers it.
func (d *Deliverer) page(ctx context.Context, receiver string) (rest, error) {
	to, err := &kernel.Receiver{Name: receiver, Settings: operate.WebhookSettings{URL: receiver}}, error(nil)
	if !kernel.IsURL(receiver) {
		if to, err = d.cfg.Store.Receiver(ctx, receiver); err != nil {
			return none, err
		}
	}
	now, err := d.cfg.Store.Now(ctx)
	if err != nil {
		return none, err
	}
	if to != nil && to.Settings.Stream {
		return d.stream(ctx, to, now)
	}
	due, err := search(ctx, d, func() ([]kernel.Notification, error) {
		return d.cfg.Store.DueNotifications(ctx, receiver, now, PageSize)
	})
	if err != nil || len(due) == 0 {
		return none, err
	}
	left := restOf(len(due), PageSize)
	results, due := expired(due, now, to)
	switch {
	case len(results) > 0:
		return left, d.save(ctx, receiver, results)
	case to == nil, to.PausedCause != "":
		return none, nil // they expire
	}
	return d.attempt(ctx, to, due, now, left)
}

// search reads notifications. It pauses after a costly search that has found none.
func search[N any](ctx context.Context, d *Deliverer, read func() ([]N, error)) ([]N, error) {
	crashpoint.Here(crashpoint.WebhookRead)
	began := d.cfg.Env.Now()
	found, err := read()
	if err != nil {
		return nil, err
	}
	if duration := d.cfg.Env.Now().Sub(began); len(found) == 0 && duration > cheap {
		d.cfg.Env.Wait(ctx, min(costShare*duration, maxPause), nil)
	}
	crashpoint.Here(crashpoint.WebhookHasRead)
	return found, nil
}

// attempt posts the first notification of each job, and stores the outcomes. left is what the page of due has left.
func (d *Deliverer) attempt(ctx context.Context, to *kernel.Receiver, due []kernel.Notification, now time.Time, left rest) (rest, error) {
	b := d.breaker(to)
	if d.cfg.Env.Now().Before(b.until) {
		return none, nil
	}
	due = firstOfJobs(due)
	if b.failures >= breakerFailures {
		due = due[:1] // it tries whether the receiver is back
	}
	results, gone := d.deliver(ctx, to, due, now)
	if ctx.Err() != nil {
		return none, ctx.Err()
	}
	if gone && !kernel.IsURL(to.Name) {
		if err := d.pause(ctx, to.Name); err != nil {
			return none, err
		}
	}
	if ok := d.judge(to.Name, b, results); !ok && left == some {
		left = none
	}
	return left, d.save(ctx, to.Name, results)
}

// firstOfJobs returns the first notification of each job, and all that belong to no job. The others of a job wait for its
// first. Those of a row wait together, because to store their outcomes apart costs more; no job of the first row waits.
func firstOfJobs(due []kernel.Notification) []kernel.Notification {
	seen, waits := map[perdure.JobID]bool{}, map[int64]bool{}
	for i := range due {
		n := &due[i]
		if seen[n.Job] {
			waits[n.Row] = true
		}
		seen[n.Job] = !n.Job.IsZero()
	}
	return slices.DeleteFunc(due, func(n kernel.Notification) bool { return waits[n.Row] })
}

// expired returns dead outcomes for notifications that have expired, and for those of a receiver that was deleted. The
// others are returned, too, in the memory of due.
func expired(due []kernel.Notification, now time.Time, to *kernel.Receiver) (results []kernel.DeliveryResult, others []kernel.Notification) {
	others = slices.DeleteFunc(due, func(n kernel.Notification) bool {
		reason := notInTime(n.Error)
		switch {
		case to == nil:
			reason = "the receiver was deleted"
		case now.Before(n.ExpiresAt):
			return false
		}
		results = append(results, deadResult(n.Number, n.Attempts, now, reason))
		return true
	})
	return results, others
}

// notInTime is why a notification is dead that has expired, after an attempt with this error or without one.
func notInTime(latest string) string { return cmp.Or(latest, "it was not delivered in time") }

func deadResult(number int64, attempts int, now time.Time, reason string) kernel.DeliveryResult {
	return kernel.DeliveryResult{Number: number, DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryDead, Attempts: attempts, EndedAt: now, Error: reason}}
}

// save writes outcomes. The first dead notification of a receiver raises an alert, which stays open until an operator
// closes it.
func (d *Deliverer) save(ctx context.Context, receiver string, results []kernel.DeliveryResult) error {
	dead := 0
	for _, r := range results {
		if r.State == operate.DeliveryDead {
			dead++
		}
	}
	raise := false
	if dead > 0 {
		var err error
		if raise, err = d.lacksAlert(ctx, receiver); err != nil {
			return err
		}
	}
	crashpoint.Here(crashpoint.WebhookSave)
	err := d.cfg.Store.Update(ctx, func(tx kernel.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		if raise {
			if err := tx.Save(&kernel.Changes{Alerts: []kernel.Alert{deadAlert(receiver, results, now)}}); err != nil {
				return err
			}
		}
		return tx.SaveDeliveries(receiver, results)
	})
	crashpoint.Here(crashpoint.WebhookSaved)
	if err != nil {
		return err
	}
	for _, r := range results {
		switch r.State {
		case operate.DeliveryDelivered:
			d.cfg.Delivered(outcomeDelivered)
		case operate.DeliveryDead:
			d.cfg.Delivered(outcomeDead)
		default:
			d.cfg.Delivered(outcomeFailed)
		}
	}
	if dead > 0 {
		d.cfg.Log.Warn("notifications are dead", "receiver", kernel.SiteOf(receiver), "number", dead)
	}
	return nil
}

// lacksAlert reports whether no alert `undelivered` of a receiver is open. If too many are open to read them all, it
// returns false: another alert would not help.
func (d *Deliverer) lacksAlert(ctx context.Context, receiver string) (bool, error) {
	open, err := d.cfg.Store.Alerts(ctx, kernel.AlertFilter{Kind: perdure.AlertUndelivered, Limit: perdure.MaxListLimit})
	if err != nil {
		return false, err
	}
	for _, a := range open {
		if a.Name == alertName(receiver) {
			return false, nil
		}
	}
	return len(open) < perdure.MaxListLimit, nil
}

func alertName(receiver string) string {
	name := kernel.SiteOf(receiver)
	return name[:min(len(name), perdure.MaxNameLength)]
}

func deadAlert(receiver string, results []kernel.DeliveryResult, now time.Time) kernel.Alert {
	cause := ""
	for _, r := range results {
		if r.State == operate.DeliveryDead {
			cause = r.Error
			break
		}
	}
	hint := fmt.Sprintf("; send them again with: perdure webhooks resend %s --since 3d", receiver)
	if kernel.IsURL(receiver) {
		hint = "; send them again with perdure webhooks resend and the URL that the definition names"
	}
	return kernel.Alert{Kind: perdure.AlertUndelivered, Name: alertName(receiver), RaisedAt: now,
		Message: fmt.Sprintf("notifications to %s are dead: %s%s", kernel.SiteOf(receiver), cause, hint)}
}

// pause pauses a receiver that has answered 410 Gone, and raises an alert.
func (d *Deliverer) pause(ctx context.Context, receiver string) error {
	d.cfg.Log.Warn("webhook paused: it answered 410 Gone", "receiver", receiver)
	raise, err := d.lacksAlert(ctx, receiver)
	if err != nil {
		return err
	}
	return d.cfg.Store.Update(ctx, func(tx kernel.Tx) error {
		r, err := tx.LockReceiver(receiver)
		if err != nil || r == nil || r.PausedCause != "" {
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		r.PausedCause, r.UpdatedAt = "the receiver answered 410 Gone", now
		if err := tx.PutReceiver(r); err != nil || !raise {
			return err
		}
		a := kernel.Alert{Kind: perdure.AlertUndelivered, Name: alertName(receiver), RaisedAt: now,
			Message: fmt.Sprintf("receiver %s is paused, because it answered 410 Gone; resume it with: perdure webhooks resume %s", receiver, receiver)}
		return tx.Save(&kernel.Changes{Alerts: []kernel.Alert{a}})
	})
}

// stream gives the pending notifications of a stream the next positions. The expired ones come first.
func (d *Deliverer) stream(ctx context.Context, to *kernel.Receiver, now time.Time) (rest, error) {
	pending, err := search(ctx, d, func() ([]kernel.PendingNotification, error) {
		return d.cfg.Store.PendingForStream(ctx, to.Name, StreamPageSize)
	})
	if err != nil || len(pending) == 0 {
		return none, err
	}
	left := restOf(len(pending), StreamPageSize)
	var expired, results []kernel.DeliveryResult
	for _, n := range pending {
		if !now.Before(n.ExpiresAt) {
			expired = append(expired, deadResult(n.Number, n.Attempts, now, notInTime(n.Error)))
			continue
		}
		results = append(results, kernel.DeliveryResult{Number: n.Number, DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryDelivered,
			Attempts: 1, EndedAt: now, Position: to.Position + int64(len(results)) + 1}})
	}
	switch {
	case len(expired) > 0:
		return left, d.save(ctx, to.Name, expired)
	case to.PausedCause != "":
		return none, nil
	}
	return left, d.addToStream(ctx, to, results)
}

// addToStream stores that notifications have positions of a stream.
func (d *Deliverer) addToStream(ctx context.Context, to *kernel.Receiver, results []kernel.DeliveryResult) error {
	written := false
	crashpoint.Here(crashpoint.WebhookSave)
	err := d.cfg.Store.Update(ctx, func(tx kernel.Tx) error {
		written = false
		r, err := tx.LockReceiver(to.Name)
		if err != nil || r == nil || r.Position != to.Position {
			return err // another leader has added to the stream
		}
		if err := tx.SetPosition(to.Name, results[len(results)-1].Position); err != nil {
			return err
		}
		written = true
		return tx.SaveDeliveries(to.Name, results)
	})
	crashpoint.Here(crashpoint.WebhookSaved)
	if err == nil && written {
		for range results {
			d.cfg.Delivered(outcomeDelivered)
		}
		d.cfg.Streamed()
	}
	return err
}

// deliver posts notifications, with AtOnce tasks at the same time, and returns the outcomes of those that were attempted: a
// task ends with its first failure. gone reports that the receiver has answered 410 Gone.
func (d *Deliverer) deliver(ctx context.Context, to *kernel.Receiver, due []kernel.Notification, now time.Time) (results []kernel.DeliveryResult, gone bool) {
	answers := make([]Answer, len(due))
	outcomes := make([]kernel.DeliveryOutcome, len(due))
	tasks := make([]func(), min(AtOnce, len(due)))
	began := d.cfg.Env.Now()
	for first := range tasks {
		tasks[first] = func() {
			for i := first; i < len(due); i += AtOnce {
				var err error
				answers[i], err = d.post(ctx, to, &due[i])
				outcomes[i] = d.outcome(&due[i], answers[i], err, now.Add(d.cfg.Env.Now().Sub(began)))
				if outcomes[i].State != operate.DeliveryDelivered {
					return
				}
			}
		}
	}
	env.Start(d.cfg.Env, tasks...)()
	ended := now.Add(d.cfg.Env.Now().Sub(began)) // equal outcomes are stored together
	for i, o := range outcomes {
		if o.Attempts == 0 {
			continue // not attempted
		}
		if answers[i].Status == statusGone {
			gone = true
			if kernel.IsURL(to.Name) { // there is no receiver that could be paused
				o.State, o.NextAt = operate.DeliveryDead, time.Time{}
			}
		}
		if o.State != operate.DeliveryPending {
			o.EndedAt = ended
		}
		results = append(results, kernel.DeliveryResult{Number: due[i].Number, DeliveryOutcome: o})
	}
	return results, gone
}

const statusGone = 410

// outcome returns the outcome of an attempt from its answer or error, without EndedAt.
func (d *Deliverer) outcome(n *kernel.Notification, a Answer, err error, now time.Time) kernel.DeliveryOutcome {
	o := kernel.DeliveryOutcome{Attempts: n.Attempts + 1}
	switch {
	case err != nil:
		o.Error = err.Error()
	case a.Status < 200 || a.Status > 299:
		o.Error = fmt.Sprintf("the receiver answered %d", a.Status)
	default:
		o.State = operate.DeliveryDelivered
		return o
	}
	if len(o.Error) > maxErrorLength {
		o.Error = strings.ToValidUTF8(o.Error[:maxErrorLength], "")
	}
	pause := schedule[min(n.Attempts, len(schedule)-1)]
	pause += time.Duration(jitter * (2*d.cfg.Env.Float64() - 1) * float64(pause))
	pause = max(pause, min(a.RetryAfter, perdure.MaxRetryAfter))
	o.State, o.NextAt = operate.DeliveryPending, now.Add(pause)
	return o
}

// post sends one notification.
func (d *Deliverer) post(ctx context.Context, to *kernel.Receiver, n *kernel.Notification) (Answer, error) {
	body, err := Body(n, to.Settings.Format, d.source, d.cfg.PublicURL)
	if err != nil {
		return Answer{}, err
	}
	secrets, err := d.secrets(to, n)
	if err != nil {
		return Answer{}, err
	}
	headers := map[string]string{"Content-Type": contentType(to.Settings.Format), "User-Agent": "perdure"}
	if err := sign(headers, secrets, n.ID, d.cfg.Env.Wall(), body); err != nil {
		return Answer{}, err
	}
	ctx, cancel := env.WithTimeout(d.cfg.Env, ctx, Timeout)
	defer cancel()
	crashpoint.Here(crashpoint.WebhookPost)
	answer, err := d.cfg.Poster.Post(ctx, Request{URL: to.Settings.URL, Body: body, Headers: headers})
	crashpoint.Here(crashpoint.WebhookPosted)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s", Timeout)
	}
	return answer, err
}

// secrets returns the secrets with which a delivery is signed; none: it is not signed.
func (d *Deliverer) secrets(to *kernel.Receiver, n *kernel.Notification) ([]string, error) {
	if kernel.IsURL(to.Name) {
		if n.Secret == "" {
			return nil, nil
		}
		secret, ok := d.cfg.Secret(n.Secret)
		if !ok {
			return nil, fmt.Errorf("this node has no secret %s: give each node the file %s in --secrets-dir, or the variable PERDURE_SECRET_%s", n.Secret, n.Secret, n.Secret)
		}
		return []string{secret}, nil
	}
	secrets := []string{to.Secret}
	if to.OldSecret != "" && d.cfg.Env.Wall().Before(to.OldUntil) {
		secrets = append(secrets, to.OldSecret)
	}
	return secrets, nil
}

// event is a CloudEvent in structured JSON.
type event struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject,omitempty"`
	Time            time.Time       `json:"time"`
	Sequence        string          `json:"sequence"`
	DataContentType string          `json:"datacontenttype"`
	Data            json.RawMessage `json:"data"`
}

// Source returns the source of the CloudEvents of a store.
func Source(cell int) string { return fmt.Sprintf("/perdure/%d", cell) }

// Body returns the body of a delivery. source is that of the CloudEvent; publicURL, for links, may be empty.
func Body(n *kernel.Notification, format operate.WebhookFormat, source, publicURL string) ([]byte, error) {
	if format == operate.FormatSlack {
		return slackBody(n, publicURL)
	}
	e := event{SpecVersion: "1.0", ID: n.ID, Source: source, Type: n.Kind.TypeOf(), Time: n.At.UTC(),
		// Numbers are those of the store, so that they grow with each notification of a job.
		Sequence: fmt.Sprintf("%019d", n.Number), DataContentType: "application/json", Data: n.Data}
	if !n.Job.IsZero() {
		e.Subject = n.Job.String()
	}
	return encode(&e)
}

func contentType(format operate.WebhookFormat) string {
	if format == operate.FormatSlack {
		return "application/json"
	}
	return "application/cloudevents+json"
}
