package rest

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// The types of the bodies, for the OpenAPI description. The bodies are read field by field.
type (
	// WebhookBody is exported because the description has no fields of an embedded type that is not.
	WebhookBody struct {
		URL    string      `json:"url,omitempty" maxLength:"2048" doc:"Where notifications are posted: http or https. Either url or stream is given"`
		Stream bool        `json:"stream,omitempty" doc:"Notifications are read by GET /v1/events"`
		On     []eventKind `json:"on,omitempty" doc:"The changes that are reported; default: parked, done, undone"`
		Types  []string    `json:"types,omitempty" maxItems:"100" doc:"Types of jobs; default: all"`
		Format format      `json:"format,omitempty" doc:"The form of the body; default: cloudEvents"`
	}
	newWebhookBody struct {
		Name string `json:"name" maxLength:"64" doc:"1 to 64 letters, digits, -, _ or ., the first a letter or digit"`
		WebhookBody
	}
	resendBody struct {
		Since string `json:"since" doc:"Of changes at this time or later; or this long ago at most"`
	}
	resendAnswer struct {
		Resent int `json:"resent" doc:"How many notifications are pending again. At most 10,000 in one call"`
	}
	testAnswer struct {
		ID string `json:"id" doc:"The id of the notification"`
	}
	eventKind     string
	format        string
	deliveryState string
	webhookState  string
)

func (eventKind) Schema(huma.Registry) *huma.Schema     { return words(operate.EventKinds...) }
func (format) Schema(huma.Registry) *huma.Schema        { return words(operate.WebhookFormats...) }
func (deliveryState) Schema(huma.Registry) *huma.Schema { return words(operate.DeliveryStates...) }
func (webhookState) Schema(huma.Registry) *huma.Schema  { return words(operate.WebhookStates...) }

var (
	webhookFields    = []string{"url", "stream", "on", "types", "format"}
	newWebhookFields = append([]string{"name"}, webhookFields...)
)

func (a *api) webhookRoutes() []route {
	view := reflect.TypeFor[operate.WebhookView]()
	const one = "/v1/webhooks/{name}"
	bodyProblems := []int{http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}
	actProblems := append([]int{http.StatusNotFound}, bodyProblems...)
	change := func(verb, id, summary, doc string, do func(*call) error) route {
		return route{
			method: http.MethodPost, path: one + "/" + verb, id: id, tag: "webhooks", do: do, summary: summary, doc: doc, headers: authorParam,
			results:  []result{{status: http.StatusOK, doc: "The receiver", of: view, example: webhookExample}},
			problems: actProblems,
		}
	}
	return []route{
		{
			method: http.MethodGet, path: "/v1/webhooks", id: "listWebhooks", tag: "webhooks", do: (*call).listWebhooks,
			summary: "List receivers of notifications", doc: "In the order of their names, without their secrets.",
			results: []result{{status: http.StatusOK, doc: "All receivers", of: reflect.TypeFor[list[operate.WebhookView]](), example: `{"items":[` + webhookExample + `]}`}},
		},
		{
			method: http.MethodPost, path: "/v1/webhooks", id: "createWebhook", tag: "webhooks", do: (*call).createWebhook,
			summary: "Create a receiver", doc: "Unless it is a stream, the answer has the secret with which deliveries are signed. It is not shown again. At most 100 receivers; another, or a name that exists, is a conflict.",
			headers: authorParam, body: &media{of: reflect.TypeFor[newWebhookBody](), example: newWebhookExample},
			results:  []result{{status: http.StatusCreated, doc: "The receiver, with its secret unless it is a stream", of: view, example: createdWebhookExample, headers: map[string]string{"Location": "Where the receiver is"}}},
			problems: bodyProblems,
		},
		{
			method: http.MethodGet, path: one, id: "getWebhook", tag: "webhooks", do: (*call).getWebhook,
			summary: "Get a receiver", results: []result{{status: http.StatusOK, doc: "The receiver", of: view, example: webhookExample}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodPut, path: one, id: "putWebhook", tag: "webhooks", do: (*call).putWebhook,
			summary: "Create or replace a receiver", doc: "A receiver that exists keeps its secret and its state. A stream cannot become a receiver with a url, nor the other way.",
			headers: authorParam, body: &media{of: reflect.TypeFor[WebhookBody](), example: webhookBodyExample},
			results: []result{
				{status: http.StatusOK, doc: "The receiver was replaced", of: view, example: webhookExample},
				{status: http.StatusCreated, doc: "The receiver was created; with its secret", of: view, example: createdWebhookExample},
			},
			problems: bodyProblems,
		},
		{
			method: http.MethodDelete, path: one, id: "deleteWebhook", tag: "webhooks", do: (*call).deleteWebhook,
			summary: "Delete a receiver", doc: "Its undelivered notifications are dead.", headers: authorParam,
			results: []result{{status: http.StatusNoContent, doc: "The receiver was deleted"}}, problems: []int{http.StatusNotFound},
		},
		change("pause", "pauseWebhook", "Pause a receiver", "Nothing is delivered to it. Notifications are still stored. Each is dead three days after its change.", (*call).pauseWebhook),
		change("resume", "resumeWebhook", "Resume a receiver", "The notifications that were stored meanwhile are delivered, and failed attempts are repeated at once.", (*call).resumeWebhook),
		{
			method: http.MethodPost, path: one + "/rotate", id: "rotateWebhook", tag: "webhooks", do: (*call).rotateWebhook,
			summary: "Give a receiver a new secret", doc: "The answer has the new secret. It is not shown again. For 24 hours deliveries are signed with the old and the new secret. A stream has no secret: a conflict.", headers: authorParam,
			results:  []result{{status: http.StatusOK, doc: "The receiver, with its secret", of: view, example: createdWebhookExample}},
			problems: actProblems,
		},
		{
			method: http.MethodPost, path: one + "/test", id: "testWebhook", tag: "webhooks", do: (*call).testWebhook,
			summary: "Test a receiver", doc: "Stores a notification of the type perdure.test, which is delivered as any other. The deliveries show the outcome.", headers: authorParam,
			results:  []result{{status: http.StatusOK, doc: "The notification is stored", of: reflect.TypeFor[testAnswer](), example: `{"id":"ntc_4f0c2a7be1d84d0f9a33b1c5d2e6f708"}`}},
			problems: actProblems,
		},
		{
			method: http.MethodPost, path: one + "/resend", id: "resendWebhook", tag: "webhooks", do: (*call).resendWebhook,
			summary: "Send dead notifications again", doc: "Notifications are kept for 14 days after their end. Those that are pending again keep their ids.",
			headers: authorParam, body: &media{of: reflect.TypeFor[resendBody](), example: `{"since":"2d"}`},
			results:  []result{{status: http.StatusOK, doc: "How many are pending again", of: reflect.TypeFor[resendAnswer](), example: `{"resent":12}`}},
			problems: actProblems,
		},
		{
			method: http.MethodGet, path: one + "/deliveries", id: "listDeliveries", tag: "webhooks", do: (*call).deliveries,
			summary: "List the notifications of a receiver", doc: "Newest first, with the outcomes of their deliveries.",
			params:  append([]param{{name: "state", doc: "pending, delivered or dead", example: "dead"}}, pageParams...),
			results: []result{{status: http.StatusOK, doc: "A page of notifications", of: reflect.TypeFor[perdure.Page[operate.Delivery]](), example: deliveriesExample}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/v1/events", id: "readEvents", tag: "webhooks", do: (*call).readEvents,
			summary: "Follow the events of a stream receiver",
			doc: "Server-sent events: `event` has a CloudEvent as its data, and its position as its id. With Last-Event-ID the stream goes on after that position; 0 is before the oldest event that is kept. Without it the stream begins with the next event. " +
				"An event `gap` says that events before the next one are not kept any more: notifications are kept for 14 days. Any number of readers may follow a stream.",
			params:   []param{{name: "receiver", doc: "The name of the receiver", example: "audit"}},
			headers:  []param{{name: lastEventHeader, doc: "The id of the last event that was read", example: "1767225600000042"}},
			results:  []result{{status: http.StatusOK, doc: "The events", types: []string{mediaEvents}, of: reflect.TypeFor[string]()}},
			problems: []int{http.StatusNotFound, http.StatusConflict},
		},
	}
}

const lastEventHeader = "Last-Event-ID"

// maxWebhookBody bounds the body of a receiver.
const maxWebhookBody = 64 << 10

// webhook returns a receiver as the caller may see it: only an admin sees the whole URL, which may be a secret itself, as
// those of Slack are.
func (c *call) webhook(v *operate.WebhookView) *operate.WebhookView {
	out := *v
	if id := operate.IdentityOf(c.ctx()); id != nil && id.Role != operate.Admin {
		if site := kernel.SiteOf(v.URL); site != v.URL {
			out.URL = site + "/…"
		}
	}
	utc(&out.CreatedAt, &out.UpdatedAt)
	out.Oldest, out.Latest = utcDelivery(v.Oldest), utcDelivery(v.Latest)
	return &out
}

func utcDelivery(d *operate.Delivery) *operate.Delivery {
	if d == nil {
		return nil
	}
	out := *d
	utc(&out.Time, &out.NextAttempt, &out.EndedAt)
	return &out
}

func (c *call) listWebhooks() error {
	all, err := c.Service.ListWebhooks(c.ctx())
	if err != nil {
		return err
	}
	out := list[operate.WebhookView]{Items: make([]operate.WebhookView, len(all))}
	for i := range all {
		out.Items[i] = *c.webhook(&all[i])
	}
	return c.json(http.StatusOK, &out)
}

func (c *call) getWebhook() error {
	name, err := c.path("name")
	if err != nil {
		return err
	}
	v, err := c.Service.GetWebhook(c.ctx(), name)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, c.webhook(v))
}

func (c *call) createWebhook() error {
	author, err := c.author()
	if err != nil {
		return err
	}
	request, err := c.webhookRequest("")
	if err != nil {
		return err
	}
	request.Author = author
	v, err := c.Service.CreateWebhook(c.ctx(), request)
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", c.prefix()+"/v1/webhooks/"+v.Name)
	return c.json(http.StatusCreated, c.webhook(v))
}

func (c *call) putWebhook() error {
	name, err := c.path("name")
	if err != nil {
		return err
	}
	if !operate.IsWebhookName(name) {
		return badPart("path", "name", "must be 1 to "+itoa(operate.MaxWebhookName)+" letters, digits, `-`, `_` or `.`, the first of them a letter or digit")
	}
	author, err := c.author()
	if err != nil {
		return err
	}
	request, err := c.webhookRequest(name)
	if err != nil {
		return err
	}
	request.Author = author
	v, created, err := c.Service.SetWebhook(c.ctx(), request)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.json(status, c.webhook(v))
}

// webhookRequest reads and checks the body of a receiver with the name. If name is empty, the body has it.
func (c *call) webhookRequest(name string) (r operate.WebhookRequest, err error) {
	doc, err := c.document(maxWebhookBody, false)
	if err != nil {
		return r, err
	}
	r = readWebhook(doc, name == "")
	if err := doc.err(); err != nil {
		return r, err
	}
	r.Name = cmp.Or(name, r.Name)
	return r, r.Check()
}

// readWebhook reads the fields of a receiver. named reports whether the name is one of them.
func readWebhook(doc *document, named bool) (r operate.WebhookRequest) {
	root := doc.root()
	for name, field := range root.fields() {
		switch {
		case named && string(name) == "name":
			r.Name = field.name(operate.MaxWebhookName)
		case string(name) == "url":
			r.URL = field.name(operate.MaxWebhookURL)
		case string(name) == "stream":
			r.Stream = field.boolean()
		case string(name) == "on":
			for _, s := range field.someNames(len(operate.EventKinds), perdure.MaxNameLength) {
				r.On = append(r.On, operate.EventKind(s))
			}
		case string(name) == "types":
			r.Types = field.someNames(operate.MaxWebhookTypes, perdure.MaxNameLength)
		case string(name) == "format":
			r.Format = operate.WebhookFormat(field.string())
		case named:
			field.unknown(newWebhookFields...)
		default:
			field.unknown(webhookFields...)
		}
	}
	if named {
		root.need("name", r.Name != "")
	}
	return r
}

func (c *call) deleteWebhook() error { return c.remove("name", c.Service.DeleteWebhook) }

func (c *call) pauseWebhook() error  { return c.changeWebhook(c.Service.PauseWebhook) }
func (c *call) resumeWebhook() error { return c.changeWebhook(c.Service.ResumeWebhook) }
func (c *call) rotateWebhook() error { return c.changeWebhook(c.Service.RotateWebhook) }

func (c *call) changeWebhook(change func(ctx context.Context, name, author string) (*operate.WebhookView, error)) error {
	name, author, err := c.webhookAct()
	if err != nil {
		return err
	}
	v, err := change(c.ctx(), name, author)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, c.webhook(v))
}

// webhookAct reads a call whose body has no fields.
func (c *call) webhookAct() (name, author string, err error) {
	if name, err = c.path("name"); err != nil {
		return "", "", err
	}
	if author, err = c.author(); err != nil {
		return "", "", err
	}
	doc, err := c.document(maxSmallBody, true)
	if err != nil {
		return "", "", err
	}
	for _, field := range doc.root().fields() {
		field.unknown()
	}
	return name, author, doc.err()
}

func (c *call) testWebhook() error {
	name, author, err := c.webhookAct()
	if err != nil {
		return err
	}
	id, err := c.Service.TestWebhook(c.ctx(), name, author)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, &testAnswer{id})
}

func (c *call) resendWebhook() error {
	name, author, err := c.actOn("name")
	if err != nil {
		return err
	}
	doc, err := c.document(maxSmallBody, false)
	if err != nil {
		return err
	}
	var since time.Time
	root := doc.root()
	for field, v := range root.fields() {
		if string(field) != "since" {
			v.unknown("since")
			continue
		}
		since = v.timeOrAgo()
	}
	root.need("since", !since.IsZero())
	if err := doc.err(); err != nil {
		return err
	}
	n, err := c.Service.ResendWebhook(c.ctx(), operate.WebhookResend{Name: name, Since: since, Author: author})
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, &resendAnswer{n})
}

func (c *call) deliveries() error {
	name, err := c.path("name")
	if err != nil {
		return err
	}
	q := reader{query: c.query}
	query := operate.DeliveryQuery{Name: name, State: operate.DeliveryState(q.word("state", operate.Texts(operate.DeliveryStates)...)), Limit: q.limit(), Cursor: q.cursor()}
	if q.err != nil {
		return q.err
	}
	page, err := c.Service.ListDeliveries(c.ctx(), query)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, pageOf(page, utcDelivery))
}

// readEvents streams the events of a receiver until the client disconnects or the node shuts down.
func (c *call) readEvents() error {
	q := reader{query: c.query}
	receiver := q.name("receiver", operate.MaxWebhookName)
	if q.err != nil {
		return q.err
	}
	if receiver == "" {
		return badPart("query", "receiver", "is required")
	}
	after := int64(operate.LatestEvent)
	if s := c.r.Header.Get(lastEventHeader); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return badPart("header", lastEventHeader, "must be the id of an event")
		}
		after = n
	}
	if _, err := c.Service.GetWebhook(c.ctx(), receiver); err != nil {
		return err
	}
	if c.r.Method == http.MethodHead || c.shuttingDown() {
		streamHeaders(c.w)
		return nil
	}
	release, err := c.streams.take("event streams")
	if err != nil {
		return err
	}
	defer release()
	return c.stream(func(ctx context.Context, s *stream) error {
		return c.Service.FollowEvents(ctx, receiver, after, func(page *operate.EventPage) error {
			s.keepAlive.Do(func() { s.start(ctx) })
			return s.sendEvents(page)
		})
	})
}

// sendEvents sends a page of events. Their ids are positions.
func (s *stream) sendEvents(page *operate.EventPage) error {
	return s.write(func(b *bytes.Buffer) error {
		if page.Gap {
			b.WriteString("event: gap\ndata: {}\n\n")
		}
		for i := range page.Events {
			e := &page.Events[i]
			b.WriteString("event: event\nid: " + strconv.FormatInt(e.Position, 10) + "\ndata: ")
			b.Write(e.Body)
			b.WriteString("\n\n")
		}
		return nil
	})
}
