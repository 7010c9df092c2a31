package kernel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// NotifyDefinition is a receiver that a definition names: a URL of its own, or a receiver of the store.
type NotifyDefinition struct {
	Webhook  string              `json:"webhook,omitempty"`
	Receiver string              `json:"receiver,omitempty"`
	On       []operate.EventKind `json:"on,omitempty"`     // none: operate.DefaultEventKinds
	Secret   string              `json:"secret,omitempty"` // name of a secret of the nodes, with which deliveries to Webhook are signed
}

// target returns the value of Notification.Receiver for notifications to n.
func (n *NotifyDefinition) target() string {
	if n.Webhook != "" {
		return n.Webhook
	}
	return n.Receiver
}

// ErrNoReceiver returns the error for a receiver that does not exist.
func ErrNoReceiver(name string) error {
	return perdure.Refuse(perdure.CodeNotFound, "there is no receiver %s", name)
}

// Receiver is the row of a receiver of the store.
type Receiver struct {
	Name     string
	Settings operate.WebhookSettings

	Secret      string // signs deliveries; "whsec_" and base64
	OldSecret   string // the secret before the latest rotation
	OldUntil    time.Time
	PausedCause string // why it is paused; "": it is active
	Position    int64  // of the latest event of a stream
	Full        bool   // its new notifications are dead at once; SetFull decides, PutReceiver leaves it as it is

	CreatedAt, UpdatedAt time.Time
}

// State returns the state of a receiver. oldest is its oldest pending notification; nil: it has none.
func (r *Receiver) State(oldest *Notification) operate.WebhookState {
	switch {
	case r.PausedCause != "":
		return operate.WebhookPaused
	case r.Full:
		return operate.WebhookFull
	case oldest != nil && oldest.Attempts > 0:
		return operate.WebhookFailing
	}
	return operate.WebhookActive
}

// Summary says what is reported and where to, for the audit log. The path of a URL may be a secret, and is left out.
func (r *Receiver) Summary() string {
	var b strings.Builder
	if r.Settings.Stream {
		b.WriteString("a stream")
	} else {
		b.WriteString("to " + SiteOf(r.Settings.URL))
	}
	for _, kind := range r.Settings.On {
		b.WriteString(", " + string(kind))
	}
	for _, typ := range r.Settings.Types {
		b.WriteString(", type " + typ)
	}
	return plain.Shorten(b.String(), perdure.MaxReasonBytes-len("…"))
}

// Routing has the settings that decide which notifications are stored.
type Routing struct {
	Receivers []Route
	// Full has the receivers whose new notifications are dead at once, because too many are undelivered.
	Full map[string]bool
}

// Route is the part of a receiver that decides which notifications it gets.
type Route struct {
	Name     string
	Settings operate.WebhookSettings
}

// Notification is a message to a receiver. It is stored in the transaction of the change that it reports.
type Notification struct {
	Number   int64  // assigned by the store; the notifications of one job have growing numbers
	Row      int64  // assigned by the store; equal outcomes of notifications with the same row cost one write
	ID       string // ntc_ and 32 hexadecimal digits
	Receiver string // the name of a receiver, or the URL that the job's definition names
	Job      perdure.JobID
	Kind     operate.EventKind
	At       time.Time       // of the change
	Data     json.RawMessage // of the CloudEvent
	// Alert is the place, counted from 1, in Changes.Alerts of the alert that Data reports; 0: none, or Data has its id. It
	// is not stored: Save adds the id to Data.
	Alert  int
	Secret string // of a URL: the name of a secret of the nodes
	// ExpiresAt is the time at which the notification is dead unless it was delivered before.
	ExpiresAt time.Time

	DeliveryOutcome
}

// IsURL reports whether the receiver of a notification is a URL that a definition names.
func IsURL(receiver string) bool { return strings.Contains(receiver, "://") }

// SiteOf returns the scheme and host of a URL, because its other parts may be secret. Another text is returned as it is.
func SiteOf(text string) string {
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		return text
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
}

// DeliveryOutcome is the state of the delivery of a notification.
type DeliveryOutcome struct {
	State    operate.DeliveryState
	Attempts int
	NextAt   time.Time // of a pending one: not delivered before this time
	EndedAt  time.Time // zero: pending
	Error    string    // of the latest attempt
	Position int64     // in a stream, once it is delivered
}

// DeliveryResult is the outcome of an attempt to deliver a notification.
type DeliveryResult struct {
	Number int64
	DeliveryOutcome
}

// PendingNotification is what decides how a notification is added to a stream.
type PendingNotification struct {
	Number    int64
	Attempts  int
	ExpiresAt time.Time
	Error     string
}

// NotificationFilter selects notifications of a receiver, newest first.
type NotificationFilter struct {
	Receiver string
	State    operate.DeliveryState // "": all
	Before   int64                 // only numbers below; 0: from the newest
	Limit    int
}

// Outbox keeps notifications until some time after their delivery.
type Outbox interface {
	// Receiver returns a receiver; nil if there is none. Receivers returns all receivers in the order of their names.
	Receiver(ctx context.Context, name string) (*Receiver, error)
	Receivers(context.Context) ([]*Receiver, error)
	// PendingReceivers returns receivers that have pending notifications: at most max of those after one, in order.
	PendingReceivers(ctx context.Context, after string, max int) ([]string, error)
	// DueNotifications returns pending notifications of a receiver that were not attempted yet, or whose NextAt has come: the
	// first max in the order of their numbers, and possibly some more. It leaves out notifications that come after a pending
	// one of the same job that was attempted. Several notifications of one job may be returned together.
	DueNotifications(ctx context.Context, receiver string, now time.Time, max int) ([]Notification, error)
	// PendingForStream returns the pending notifications of a stream: the first max in the order of their numbers, and
	// possibly some more. All of them are due, because to add to a stream cannot fail as an attempt can.
	PendingForStream(ctx context.Context, receiver string, max int) ([]PendingNotification, error)
	// CountPending counts the pending notifications of a receiver (empty: of all), up to max.
	CountPending(ctx context.Context, receiver string, max int) (int, error)
	// CountDead counts the dead notifications of a receiver, up to max.
	CountDead(ctx context.Context, receiver string, max int) (int, error)
	Notifications(context.Context, NotificationFilter) ([]Notification, error)
	// StreamedNotifications returns delivered notifications of a stream in the order of their positions: at most max of
	// those after a position.
	StreamedNotifications(ctx context.Context, receiver string, after int64, max int) ([]Notification, error)
	// ForgetNotifications deletes max notifications that ended before a time, or all of them if there are fewer, and
	// possibly some more. It returns their number.
	ForgetNotifications(ctx context.Context, before time.Time, max int) (int, error)
}

// OutboxTx is what transactions do with receivers. Notifications are written by Save.
type OutboxTx interface {
	// Routing returns the routing that holds until the end of the transaction. The caller must not change it.
	Routing() (*Routing, error)
	// LockReceivers returns all receivers in the order of their names, and locks them. No other transaction stores
	// notifications until this one ends. A transaction that creates, deletes or routes receivers calls it first.
	LockReceivers() ([]*Receiver, error)
	// LockReceiver returns one receiver and locks its row; nil if there is none. It is for changes that affect only how
	// notifications are delivered: secrets, PausedCause, Position.
	LockReceiver(name string) (*Receiver, error)
	// PutReceiver creates or replaces a receiver that was locked by one of these calls.
	PutReceiver(*Receiver) error
	// SetPosition writes the Position of a receiver that LockReceiver has locked.
	SetPosition(receiver string, position int64) error
	DeleteReceiver(name string) (bool, error)
	// SetFull replaces the receivers whose new notifications are dead at once. The caller has called LockReceivers.
	SetFull(receivers []string) error
	// SaveDeliveries writes the outcomes of notifications of a receiver. Notifications that are not pending stay as they are.
	SaveDeliveries(receiver string, results []DeliveryResult) error
	// Resend makes dead notifications of a receiver pending again: those of changes at the time since or later, at most
	// max, the earliest first. They are due now, and expire after operate.NotificationRetried. It returns their number.
	Resend(receiver string, since, now time.Time, max int) (int, error)
	// Hasten makes pending notifications of a receiver due now whose attempts have failed: at most max, the earliest first.
	// It returns their number.
	Hasten(receiver string, now time.Time, max int) (int, error)
}

// routed reports whether a change of this kind, of a job of this type, is reported to a receiver.
func routed(s *operate.WebhookSettings, kind operate.EventKind, typ string) bool {
	return reports(s.On, kind) && (len(s.Types) == 0 || slices.Contains(s.Types, typ))
}

func reports(on []operate.EventKind, kind operate.EventKind) bool {
	if len(on) == 0 {
		on = operate.DefaultEventKinds
	}
	return slices.Contains(on, kind)
}

// JobEvents returns the kinds of events that a change of a job reports, in order. before is nil for a new job.
func JobEvents(before, after *Job) (kinds []operate.EventKind) {
	if before == nil {
		kinds = append(kinds, operate.EventReceived)
		before = &Job{Current: perdure.Undone, Desired: perdure.Done, Phase: perdure.Waiting}
	}
	if after.Desired == perdure.Done && before.Current != perdure.Unsure && after.Current == perdure.Unsure && after.Running > 0 {
		kinds = append(kinds, operate.EventRunning)
	}
	if before.Desired == perdure.Done && after.Desired == perdure.Undone {
		kinds = append(kinds, operate.EventUndoing)
	}
	switch {
	case after.Phase == perdure.Parked && before.Phase != perdure.Parked:
		kinds = append(kinds, operate.EventParked)
	case after.Phase != perdure.Settled, before.Phase == perdure.Settled && after.SettledAt.Equal(before.SettledAt):
	case after.GivenUp():
		kinds = append(kinds, operate.EventGivenUp)
	case after.Current == perdure.Done:
		kinds = append(kinds, operate.EventDone)
	case after.Current == perdure.Undone:
		kinds = append(kinds, operate.EventUndone)
	}
	return kinds
}

// UseRouting sets which notifications are stored for the changes after this call.
func (w *Workset) UseRouting(r *Routing) { w.routing = r }

// notifyJob adds the notifications of a change of a job: to the receivers that its definition names, and to the receivers
// of the store that match. Without a receiver it costs two comparisons.
func (w *Workset) notifyJob(c *Changes, e *entry, before, after *Job) {
	own := e.plan.Definition.Notify
	if len(own) == 0 && (w.routing == nil || len(w.routing.Receivers) == 0) {
		return
	}
	for _, kind := range JobEvents(before, after) {
		var data json.RawMessage
		alert := 0
		add := func(receiver, secret string) {
			if data == nil {
				var parked *Alert
				if alert = parkedAlert(c.Alerts, after, kind); alert > 0 {
					parked = &c.Alerts[alert-1]
				}
				data = jobData(after, kind, parked, e.jobOutput.json)
			}
			w.notify(c, Notification{Receiver: receiver, Secret: secret, Job: after.ID, Kind: kind, Data: data, Alert: alert})
		}
		for i := range own {
			if n := &own[i]; reports(n.On, kind) && (n.Webhook != "" || w.routing.has(n.Receiver)) {
				add(n.target(), n.Secret)
			}
		}
		for _, r := range w.routing.routes() {
			if routed(&r.Settings, kind, after.Type) && !namedBy(own, r.Name, kind) {
				add(r.Name, "")
			}
		}
	}
}

// namedBy reports whether the definition names the receiver for a change of this kind. The receiver then has the
// notification already.
func namedBy(own []NotifyDefinition, receiver string, kind operate.EventKind) bool {
	return slices.ContainsFunc(own, func(n NotifyDefinition) bool { return n.Receiver == receiver && reports(n.On, kind) })
}

func (r *Routing) routes() []Route {
	if r == nil {
		return nil
	}
	return r.Receivers
}

func (r *Routing) has(name string) bool {
	return slices.ContainsFunc(r.routes(), func(x Route) bool { return x.Name == name })
}

// NotifyAlerts adds the notifications of alerts to the changes that raise them.
func (w *Workset) NotifyAlerts(c *Changes) {
	for i := range c.Alerts {
		a := &c.Alerts[i]
		for _, r := range w.routing.routes() {
			if routed(&r.Settings, operate.EventAlertRaised, a.Type) && a.Kind != perdure.AlertUndelivered {
				w.notify(c, Notification{Receiver: r.Name, Job: a.Job, Kind: operate.EventAlertRaised, Alert: i + 1,
					Data: encodeData(&eventData{Key: a.JobKey, Type: a.Type, Alert: alertOfData(a)})})
			}
		}
	}
}

// ReportsClosed reports whether any receiver is to be notified of closed alerts. If not, a transaction need not read the
// open alerts.
func (w *Workset) ReportsClosed() bool {
	return slices.ContainsFunc(w.routing.routes(), func(r Route) bool { return reports(r.Settings.On, operate.EventAlertClosed) })
}

// NotifyClosedAlerts adds the notifications of alerts to the changes that close them. open are those that LockAlerts has
// returned.
func (w *Workset) NotifyClosedAlerts(c *Changes, open []Alert) {
	for i := range open {
		a := &open[i]
		// The first CloseAlerts that matches closes the alert, and decides its author.
		if at := slices.IndexFunc(c.CloseAlerts, func(x CloseAlerts) bool { return x.Closes(a) }); at >= 0 {
			w.NotifyClosedAlert(c, a, c.CloseAlerts[at].By)
		}
	}
}

// NotifyClosedAlert adds the notifications of an alert that was closed. by is empty if a change of the job has closed it.
// Only alerts of jobs are reported.
func (w *Workset) NotifyClosedAlert(c *Changes, a *Alert, by string) {
	for _, r := range w.routing.routes() {
		if routed(&r.Settings, operate.EventAlertClosed, a.Type) && !a.Job.IsZero() {
			w.notify(c, Notification{Receiver: r.Name, Job: a.Job, Kind: operate.EventAlertClosed,
				Data: encodeData(&eventData{Key: a.JobKey, Type: a.Type, Alert: alertOfData(a), Author: by})})
		}
	}
}

// NotifyBulk adds the notifications of a bulk act that is done.
func (w *Workset) NotifyBulk(c *Changes, b *BulkAct) {
	for _, r := range w.routing.routes() {
		if routed(&r.Settings, operate.EventBulkFinished, "") {
			w.notify(c, Notification{Receiver: r.Name, Kind: operate.EventBulkFinished,
				Data: encodeData(&eventData{Bulk: &bulkData{b.ID, b.Author, b.Done, b.Unchanged, b.Refused}})})
		}
	}
}

// NotifyTest adds a notification with which an operator tests a receiver, and returns its id.
func (w *Workset) NotifyTest(c *Changes, receiver, author string) string {
	w.notify(c, Notification{Receiver: receiver, Kind: operate.EventTest, Data: encodeData(&eventData{Author: author})})
	return c.Notifications[len(c.Notifications)-1].ID
}

func (w *Workset) notify(c *Changes, n Notification) {
	n.At, n.State, n.NextAt, n.ExpiresAt = w.now, operate.DeliveryPending, w.now, w.now.Add(operate.NotificationRetried)
	if w.routing != nil && w.routing.Full[n.Receiver] {
		n.State, n.NextAt, n.EndedAt, n.Error = operate.DeliveryDead, time.Time{}, w.now, "too many notifications of this receiver are undelivered"
	}
	n.ID = w.notificationID(c, &n)
	if len(c.Notifications) == cap(c.Notifications) {
		// Append would grow a long list more often. Few changes have more notifications than jobs.
		c.Notifications = slices.Grow(c.Notifications, max(len(c.Notifications), min(len(w.order), 64), 1))
	}
	c.Notifications = append(c.Notifications, n)
}

// notificationID returns an id that no other notification has: a number of the change, and the notification's place in it.
// The number is computed from what distinguishes the first notification, and from a random number, because two changes
// may have the same time.
func (w *Workset) notificationID(c *Changes, n *Notification) string {
	const prefix, number = "ntc_", 12 // bytes, that is, twice as many digits
	var id [len(prefix) + 2*number + 8]byte
	place := id[len(prefix)+2*number:]
	if len(c.Notifications) > 0 {
		copy(id[:], c.Notifications[0].ID)
	} else {
		b := append(n.Job[:], n.Receiver+"\x00"+string(n.Kind)+"\x00"...)
		b = binary.BigEndian.AppendUint64(b, uint64(n.At.UnixMicro()))
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(w.random()))
		hash := sha256.Sum256(b)
		copy(id[:], prefix)
		hex.Encode(id[len(prefix):], hash[:number])
	}
	var at [4]byte
	binary.BigEndian.PutUint32(at[:], uint32(len(c.Notifications)))
	hex.Encode(place, at[:])
	return string(id[:])
}

// eventData is the data of a CloudEvent.
type eventData struct {
	Key           string            `json:"key,omitempty"`
	Type          string            `json:"type,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	LabelsOmitted bool              `json:"labelsOmitted,omitempty"` // they have more than maxNotificationLabels bytes
	Current       string            `json:"current,omitempty"`
	Desired       string            `json:"desired,omitempty"`
	Phase         string            `json:"phase,omitempty"`
	Reason        string            `json:"reason,omitempty"`
	Output        json.RawMessage   `json:"output,omitempty"`
	OutputBytes   int               `json:"outputBytes,omitempty"` // of an output of more than maxNotificationOutput bytes
	Alert         *alertData        `json:"alert,omitempty"`
	Bulk          *bulkData         `json:"bulk,omitempty"`
	Author        string            `json:"author,omitempty"`
}

type alertData struct {
	ID      int64             `json:"id,omitempty"` // of a new alert: added by WithAlertIDs
	Kind    perdure.AlertKind `json:"kind"`
	Step    string            `json:"step,omitempty"`
	Name    string            `json:"name,omitempty"`
	Code    string            `json:"code,omitempty"`
	Message string            `json:"message,omitempty"`
}

type bulkData struct {
	ID        string `json:"id"`
	Author    string `json:"author"`
	Done      int    `json:"done"`
	Unchanged int    `json:"unchanged"`
	Refused   int    `json:"refused"`
}

// MaxNotificationBytes bounds the body of a notification. Its largest parts are bounded so that it always fits, even if
// JSON writes a character as six bytes.
const (
	MaxNotificationBytes  = 20 << 10
	maxNotificationLabels = 1536
	maxNotificationText   = 512
	maxNotificationOutput = 3 << 10
)

func alertOfData(a *Alert) *alertData {
	return &alertData{a.ID, a.Kind, a.OfStep(), a.Name, a.Code, plain.Clip(a.Message, maxNotificationText)}
}

// parkedAlert returns the place of the alert that has parked a job, counted from 1; 0 if this change has raised none.
func parkedAlert(raised []Alert, j *Job, kind operate.EventKind) int {
	if kind != operate.EventParked {
		return 0
	}
	return 1 + slices.IndexFunc(raised, func(a Alert) bool { return a.Job == j.ID && a.Kind == perdure.AlertParked })
}

// NeedAlertIDs reports whether any of the notifications reports an alert of the same changes.
func (c *Changes) NeedAlertIDs() bool {
	for i := range c.Notifications { // without a copy of each
		if c.Notifications[i].Alert > 0 {
			return true
		}
	}
	return false
}

// WithAlertIDs returns the notifications as they are to be stored. ids are those of Alerts, in their order; they may be nil
// if NeedAlertIDs is false.
func (c *Changes) WithAlertIDs(ids []int64) []Notification {
	if !c.NeedAlertIDs() {
		return c.Notifications
	}
	all := slices.Clone(c.Notifications)
	for i := range all {
		if n := &all[i]; n.Alert > 0 {
			// Within a string of JSON the quotation marks would be escaped, and no other member has this name and an object.
			n.Data = bytes.Replace(n.Data, []byte(`"alert":{`), fmt.Appendf(nil, `"alert":{"id":%d,`, ids[n.Alert-1]), 1)
			n.Alert = 0
		}
	}
	return all
}

func jobData(j *Job, kind operate.EventKind, parked *Alert, output json.RawMessage) json.RawMessage {
	d := eventData{Key: j.Key, Type: j.Type, Labels: j.Labels, Current: j.Current.String(), Desired: j.Desired.String(), Phase: j.Phase.String()}
	if kind == operate.EventGivenUp {
		d.Reason = plain.Clip(j.GivenUpReason, maxNotificationText)
	}
	if parked != nil {
		d.Alert = alertOfData(parked)
		d.Reason = d.Alert.Message
		d.Alert.Message = ""
	}
	if kind == operate.EventDone && j.HasOutput {
		if d.Output = output; len(output) > maxNotificationOutput {
			d.Output, d.OutputBytes = nil, len(output)
		}
	}
	size := 0
	for name, value := range j.Labels {
		size += len(name) + len(value)
	}
	if size > maxNotificationLabels {
		d.Labels, d.LabelsOmitted = fewLabels(j.Labels), true
	}
	return encodeData(&d)
}

// fewLabels returns the first labels, in the order of their names, that fit.
func fewLabels(all map[string]string) map[string]string {
	few, size := map[string]string{}, 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if size += len(name) + len(all[name]); size > maxNotificationLabels {
			break
		}
		few[name] = all[name]
	}
	return few
}

// encodeData returns what encoding/json would, without escapes for HTML. It is written out because each job with a
// receiver has its data encoded, at a third of the cost.
func encodeData(d *eventData) json.RawMessage {
	a := jsontext.NewAppender(make([]byte, 0, 256))
	a.BeginObject()
	a.OptionalText("key", d.Key)
	a.OptionalText("type", d.Type)
	if len(d.Labels) > 0 {
		a.Name("labels")
		a.BeginObject()
		for _, name := range slices.Sorted(maps.Keys(d.Labels)) {
			a.TextName(name)
			a.Text(d.Labels[name])
		}
		a.EndObject()
	}
	if d.LabelsOmitted {
		a.BoolField("labelsOmitted", true)
	}
	a.OptionalText("current", d.Current)
	a.OptionalText("desired", d.Desired)
	a.OptionalText("phase", d.Phase)
	a.OptionalText("reason", d.Reason)
	if len(d.Output) > 0 {
		a.RawField("output", d.Output)
	}
	if d.OutputBytes > 0 {
		a.IntField("outputBytes", int64(d.OutputBytes))
	}
	if x := d.Alert; x != nil {
		a.Name("alert")
		a.BeginObject()
		if x.ID != 0 {
			a.IntField("id", x.ID)
		}
		a.TextField("kind", string(x.Kind))
		a.OptionalText("step", x.Step)
		a.OptionalText("name", x.Name)
		a.OptionalText("code", x.Code)
		a.OptionalText("message", x.Message)
		a.EndObject()
	}
	if x := d.Bulk; x != nil {
		a.Name("bulk")
		a.BeginObject()
		a.TextField("id", x.ID)
		a.TextField("author", x.Author)
		a.IntField("done", int64(x.Done))
		a.IntField("unchanged", int64(x.Unchanged))
		a.IntField("refused", int64(x.Refused))
		a.EndObject()
	}
	a.OptionalText("author", d.Author)
	a.EndObject()
	return a.Bytes()
}
