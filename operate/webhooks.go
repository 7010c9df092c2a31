package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Webhooks manages the receivers of notifications, and shows what was delivered to them.
//
// A notification is stored in the transaction of the change that it reports, and delivered at least once: by HTTP POST to
// a receiver with a URL, or by GET /v1/events to the readers of a stream. The notifications of one job reach a receiver in
// the order of the changes.
type Webhooks interface {
	// ListWebhooks returns all receivers in the order of their names. GetWebhook returns one.
	ListWebhooks(context.Context) ([]WebhookView, error)
	GetWebhook(ctx context.Context, name string) (*WebhookView, error)
	// CreateWebhook creates a receiver, and returns it with its secret, which is not shown again; a stream has none. An
	// existing name is a conflict. SetWebhook creates a receiver, or replaces the settings of one and keeps its secret.
	CreateWebhook(context.Context, WebhookRequest) (*WebhookView, error)
	SetWebhook(context.Context, WebhookRequest) (v *WebhookView, created bool, err error)
	// DeleteWebhook deletes a receiver. Its undelivered notifications are dead.
	DeleteWebhook(ctx context.Context, name, author string) error
	// PauseWebhook ends the deliveries; notifications are still stored. ResumeWebhook starts them again, and makes the
	// notifications whose attempts have failed due at once, at most MaxResend.
	PauseWebhook(ctx context.Context, name, author string) (*WebhookView, error)
	ResumeWebhook(ctx context.Context, name, author string) (*WebhookView, error)
	// RotateWebhook gives the receiver a new secret, and returns it once. For WebhookRotation deliveries are signed with
	// both secrets.
	RotateWebhook(ctx context.Context, name, author string) (*WebhookView, error)
	// TestWebhook stores a notification of the type perdure.test for the receiver, and returns its id.
	TestWebhook(ctx context.Context, name, author string) (id string, err error)
	// ResendWebhook makes dead notifications of a receiver pending again, and returns how many.
	ResendWebhook(context.Context, WebhookResend) (int, error)
	// ListDeliveries returns the notifications of a receiver, newest first.
	ListDeliveries(context.Context, DeliveryQuery) (*perdure.Page[Delivery], error)
	// FollowEvents calls see with the notifications of a stream receiver after a position, in order, until see returns an
	// error or ctx ends. The first call may have none. The position 0 is before the oldest that is kept, and LatestEvent
	// after the newest.
	FollowEvents(ctx context.Context, receiver string, after int64, see func(*EventPage) error) error
}

// Bounds of notifications.
const (
	MaxWebhooks         = 100
	MaxWebhookName      = 64
	MaxWebhookURL       = 2048
	MaxWebhookTypes     = 100
	MaxJobNotify        = 4         // receivers that one definition names
	MaxUndelivered      = 1_000_000 // pending notifications of a store
	MaxResend           = 10_000    // notifications of one call of ResendWebhook
	MaxEvents           = 500       // events of one EventPage
	MaxWebhookCount     = 500       // WebhookView counts pending and dead notifications up to this number
	WebhookRotation     = 24 * time.Hour
	NotificationKept    = 14 * 24 * time.Hour
	NotificationRetried = 3 * 24 * time.Hour // after this time a notification that was not delivered is dead
)

// EventKind is the kind of change that a notification reports.
type EventKind string

// The kinds of changes.
const (
	EventReceived     EventKind = "received"     // a job was submitted
	EventRunning      EventKind = "running"      // a step was dispatched while the job was waiting
	EventParked       EventKind = "parked"       // it waits for an operator
	EventDone         EventKind = "done"         // it has settled as done
	EventUndoing      EventKind = "undoing"      // it is to be undone
	EventUndone       EventKind = "undone"       // it has settled as undone
	EventGivenUp      EventKind = "givenUp"      // an operator closed it as it was
	EventAlertRaised  EventKind = "alertRaised"  // an alert of a job was raised
	EventAlertClosed  EventKind = "alertClosed"  // an alert of a job was closed
	EventBulkFinished EventKind = "bulkFinished" // a bulk act is done
	EventTest         EventKind = "test"         // an operator tests a receiver
)

// JobEventKinds are the kinds that a definition may name. EventKinds are those that a receiver may name.
var (
	JobEventKinds = []EventKind{EventReceived, EventRunning, EventParked, EventDone, EventUndoing, EventUndone, EventGivenUp}
	EventKinds    = append(slices.Clone(JobEventKinds), EventAlertRaised, EventAlertClosed, EventBulkFinished)
)

// DefaultEventKinds are the kinds that are reported unless others are named.
var DefaultEventKinds = []EventKind{EventParked, EventDone, EventUndone}

// TypeOf returns the type of a CloudEvent of this kind.
func (k EventKind) TypeOf() string {
	switch k {
	case EventAlertRaised:
		return "perdure.alert.raised"
	case EventAlertClosed:
		return "perdure.alert.closed"
	case EventBulkFinished:
		return "perdure.bulk.finished"
	case EventTest:
		return "perdure.test"
	}
	return "perdure.job." + string(k)
}

// WebhookFormat is the form of the body of a delivery.
type WebhookFormat string

// The forms of bodies.
const (
	FormatCloudEvents WebhookFormat = "cloudEvents"
	FormatSlack       WebhookFormat = "slack"
)

// WebhookFormats are all forms of bodies.
var WebhookFormats = []WebhookFormat{FormatCloudEvents, FormatSlack}

// WebhookSettings say what is delivered, and where to.
type WebhookSettings struct {
	URL    string        `json:"url,omitempty"`    // either a URL or Stream
	Stream bool          `json:"stream,omitempty"` // read by GET /v1/events
	On     []EventKind   `json:"on,omitempty"`     // kinds of changes; none: DefaultEventKinds
	Types  []string      `json:"types,omitempty"`  // types of jobs; none: all
	Format WebhookFormat `json:"format,omitempty"` // "": FormatCloudEvents
}

// WebhookRequest creates or replaces a receiver.
type WebhookRequest struct {
	Name string `json:"name"`
	WebhookSettings
	Author string `json:"-"`
}

// WebhookView is a receiver as callers see it.
type WebhookView struct {
	Name string `json:"name"`
	WebhookSettings
	State        WebhookState `json:"state"`
	PausedReason string       `json:"pausedReason,omitempty"` // why it is paused
	Secret       string       `json:"secret,omitempty"`       // only in the answer to the call that has created it
	Pending      int          `json:"pending"`                // undelivered notifications, counted up to MaxWebhookCount
	Dead         int          `json:"dead"`                   // dead notifications, counted up to MaxWebhookCount
	Oldest       *Delivery    `json:"oldest,omitempty"`       // the oldest pending notification
	Latest       *Delivery    `json:"latest,omitempty"`       // the latest notification
	CreatedAt    time.Time    `json:"createdAt"`
	UpdatedAt    time.Time    `json:"updatedAt"`
}

// WebhookState is the state of a receiver.
type WebhookState string

// The states of a receiver.
const (
	WebhookActive  WebhookState = "active"
	WebhookFailing WebhookState = "failing" // attempts to deliver its oldest pending notification have failed
	WebhookFull    WebhookState = "full"    // at MaxUndelivered, most of them are its own: new ones are dead at once
	WebhookPaused  WebhookState = "paused"
)

// WebhookStates are all states of receivers.
var WebhookStates = []WebhookState{WebhookActive, WebhookFailing, WebhookFull, WebhookPaused}

// WebhookResend selects dead notifications of a receiver.
type WebhookResend struct {
	Name   string    `json:"-"`
	Since  time.Time `json:"since"` // of changes at this time or later
	Author string    `json:"-"`
}

// DeliveryState is the state of a notification.
type DeliveryState string

// The states of a notification.
const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryDead      DeliveryState = "dead" // given up
)

// DeliveryStates are all states of notifications.
var DeliveryStates = []DeliveryState{DeliveryPending, DeliveryDelivered, DeliveryDead}

// DeliveryQuery selects notifications of a receiver, newest first.
type DeliveryQuery struct {
	Name   string        // of a receiver, or a URL that definitions name
	State  DeliveryState // "": all
	Limit  int           // 0: perdure.DefaultListLimit
	Cursor string
}

// Delivery is a notification and the outcome of its delivery.
type Delivery struct {
	ID          string        `json:"id"`
	Type        string        `json:"type"` // of the CloudEvent
	Job         perdure.JobID `json:"job,omitzero"`
	Time        time.Time     `json:"time"` // of the change
	State       DeliveryState `json:"state"`
	Attempts    int           `json:"attempts"`
	NextAttempt time.Time     `json:"nextAttempt,omitzero"`
	EndedAt     time.Time     `json:"endedAt,omitzero"`
	Error       string        `json:"error,omitempty"` // of the latest attempt
}

// LatestEvent is the position after the newest event of a stream.
const LatestEvent = -1

// EventPage is a part of a stream.
type EventPage struct {
	Events []Event // at most MaxEvents
	// Gap reports that events before these are not kept any more.
	Gap bool
}

// Event is one event of a stream.
type Event struct {
	Position int64
	Body     json.RawMessage // a CloudEvent
}

// Check returns an error with the fields that are at fault.
func (r *WebhookRequest) Check() error {
	e := perdure.Refuse(perdure.CodeInvalid, "the receiver is not valid")
	fault := func(pointer, format string, args ...any) {
		e.Fields = append(e.Fields, perdure.FieldError{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
	}
	if !IsWebhookName(r.Name) {
		fault("/name", "must be 1 to %d letters, digits, -, _ or ., the first of them a letter or digit", MaxWebhookName)
	}
	switch {
	case r.Stream == (r.URL != ""):
		fault("/url", "give either url, or stream: true")
	case !r.Stream:
		if err := CheckWebhookURL(r.URL); err != nil {
			fault("/url", "%v", err)
		}
	case r.Format == FormatSlack:
		fault("/format", "a stream has CloudEvents only")
	}
	if r.Format != "" && !slices.Contains(WebhookFormats, r.Format) {
		fault("/format", "must be one of %s", strings.Join(Texts(WebhookFormats), ", "))
	}
	for i, k := range r.On {
		if !slices.Contains(EventKinds, k) || slices.Contains(r.On[:i], k) {
			fault(fmt.Sprintf("/on/%d", i), "must be one of %s, each once", strings.Join(Texts(EventKinds), ", "))
		}
	}
	if len(r.Types) > MaxWebhookTypes {
		fault("/types", "has %d types; at most %d", len(r.Types), MaxWebhookTypes)
	}
	for i, t := range r.Types[:min(len(r.Types), MaxWebhookTypes)] {
		if !plain.IsName(t) || len(t) > perdure.MaxNameLength {
			fault(fmt.Sprintf("/types/%d", i), "must be the type of a job: 1 to %d letters, digits, ., _ and -, starting with a letter or digit", perdure.MaxNameLength)
		}
	}
	if i := slices.Index(r.On, EventBulkFinished); i >= 0 && len(r.Types) > 0 {
		fault(fmt.Sprintf("/on/%d", i), "a bulk act is of no type, so that %s would never be reported with types: make another receiver for it", EventBulkFinished)
	}
	if len(e.Fields) > 0 {
		return e
	}
	return nil
}

// IsWebhookName reports whether a text may name a receiver.
func IsWebhookName(name string) bool {
	if name == "" || len(name) > MaxWebhookName {
		return false
	}
	for i, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || i > 0 && strings.ContainsRune("-_.", c)) {
			return false
		}
	}
	return true
}

// CheckWebhookURL returns an error if notifications cannot be delivered to a URL.
func CheckWebhookURL(text string) error {
	if len(text) > MaxWebhookURL {
		return fmt.Errorf("has %d characters; at most %d", len(text), MaxWebhookURL)
	}
	u, err := url.Parse(text)
	switch {
	case strings.Contains(text, "${"):
		return fmt.Errorf("must not contain ${…}: a URL is not an expression")
	case err != nil:
		return fmt.Errorf("is not a URL")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return fmt.Errorf("must begin with https:// or http://, and name a host")
	case u.Port() != "" && !isPort(u.Port()):
		return fmt.Errorf("must have a port from 1 to 65535")
	case u.User != nil:
		return fmt.Errorf("must have no user and password: deliveries are signed instead")
	case u.Fragment != "":
		return fmt.Errorf("must have no fragment")
	case strings.ContainsFunc(text, unicode.IsSpace):
		return fmt.Errorf("must have no spaces: write %%20")
	}
	return nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}
