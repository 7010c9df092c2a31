package rest

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

type (
	drainBody struct {
		Deadline string `json:"deadline,omitempty" default:"10m" doc:"How long the runs of the host may go on: 0s to 30d"`
		Reason   string `json:"reason,omitempty" maxLength:"4096"`
	}
	hostState  string
	amountsOf  map[string]any
	requiresOf map[string]any
)

func (hostState) Schema(huma.Registry) *huma.Schema { return words(operate.HostStates...) }

func amountSchema() *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeNumber}, {Type: huma.TypeString}}}
}

func (amountsOf) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: amountSchema(),
		Description: "Numbers by name. cpu may have decimals. memory is a text such as 4GiB, or a number of bytes", Examples: []any{map[string]any{"cpu": 2.5, "memory": "4GiB", "slots": 10}}}
}

func (requiresOf) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: &huma.Schema{},
		Description: "What a run takes of its host: amounts by name, beside labels and grid", Examples: []any{map[string]any{"cpu": 2, "memory": "4GiB", "labels": map[string]any{"gpu": "*"}, "grid": "local"}}}
}

func (a *api) hostRoutes() []route {
	view := reflect.TypeFor[operate.HostView]()
	const one = "/v1/hosts/{name}"
	problems := []int{http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}
	return []route{
		{
			method: http.MethodGet, path: "/v1/hosts", id: "listHosts", tag: "hosts", do: (*call).listHosts,
			summary: "List hosts", doc: "In the order of their names.",
			params: append([]param{
				{name: "grid", doc: "Of this grid", example: "local"},
				{name: "state", doc: "In this state: ready, draining, drained or silent", example: "ready"},
				{name: "label", doc: "With this label: NAME or NAME=VALUE", example: "zone=a"},
			}, pageParams...),
			results: []result{{status: http.StatusOK, doc: "A page of hosts, without their runs", of: reflect.TypeFor[perdure.Page[operate.HostView]](), example: `{"items":[` + hostExample + `]}`}},
		},
		{
			method: http.MethodGet, path: one, id: "getHost", tag: "hosts", do: (*call).getHost,
			summary: "Get a host", doc: "With its runs.", results: []result{{status: http.StatusOK, doc: "The host", of: view, example: hostExample}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodPut, path: one, id: "registerHost", tag: "hosts", do: (*call).registerHost,
			summary: "Register a host",
			doc: "Creates or replaces the host, and is its sign of life: its process repeats the call at least every heartbeat, with the same incarnation, also after a restart. " +
				"The holder in the answer is that of the host's claims, reports and heartbeats. A conflict while another incarnation of the name is alive, or with 10,000 hosts. A host that is drained stays so. With renews, a host that was removed stays removed.",
			body: &media{of: reflect.TypeFor[operate.HostRequest](), example: hostBodyExample},
			results: []result{
				{status: http.StatusOK, doc: "The host is registered", of: reflect.TypeFor[operate.HostRegistered](), example: registeredExample},
				{status: http.StatusCreated, doc: "The host is new", of: reflect.TypeFor[operate.HostRegistered](), example: registeredExample},
			},
			problems: problems,
		},
		{
			method: http.MethodPost, path: one + "/drain", id: "drainHost", tag: "hosts", do: (*call).drainHost,
			summary: "Drain a host", doc: "From then on it gets no run. Its runs may end until the deadline. It is drained when it has none.",
			headers: authorParam, body: &media{of: reflect.TypeFor[drainBody](), optional: true, example: `{"deadline":"10m","reason":"kernel update"}`},
			results: []result{{status: http.StatusOK, doc: "The host", of: view, example: hostExample}}, problems: problems,
		},
		{
			method: http.MethodPost, path: one + "/ready", id: "readyHost", tag: "hosts", do: (*call).readyHost,
			summary: "End the drain of a host", doc: "It gets runs again.", headers: authorParam,
			results: []result{{status: http.StatusOK, doc: "The host", of: view, example: hostExample}}, problems: problems,
		},
		{
			method: http.MethodDelete, path: one, id: "deleteHost", tag: "hosts", do: (*call).deleteHost,
			summary: "Remove a host", doc: "Only a host that is silent or drained, and has no runs; another is a conflict.", headers: authorParam,
			results: []result{{status: http.StatusNoContent, doc: "The host was removed"}}, problems: []int{http.StatusNotFound, http.StatusConflict},
		},
	}
}

func utcHost(h *operate.HostView) *operate.HostView {
	out := *h
	utc(&out.RegisteredAt, &out.SeenAt)
	if h.Drain != nil {
		drain := *h.Drain
		utc(&drain.By)
		out.Drain = &drain
	}
	if h.Reservation != nil {
		reservation := *h.Reservation
		utc(&reservation.Since, &reservation.Until)
		out.Reservation = &reservation
	}
	out.InFlight = make([]operate.HostRun, len(h.InFlight))
	for i, r := range h.InFlight {
		utc(&r.StartedAt)
		out.InFlight[i] = r
	}
	return &out
}

func (c *call) listHosts() error {
	q := reader{query: c.query}
	query := operate.HostQuery{Grid: q.name("grid", perdure.MaxHostWord), State: operate.HostState(q.word("state", operate.Texts(operate.HostStates)...)),
		Label: q.name("label", 2*perdure.MaxHostWord+1), Limit: q.limit(), Cursor: q.cursor()}
	if q.err != nil {
		return q.err
	}
	page, err := c.Service.ListHosts(c.ctx(), query)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, pageOf(page, utcHost))
}

func (c *call) getHost() error {
	name, err := c.path("name")
	if err != nil {
		return err
	}
	v, err := c.Service.GetHost(c.ctx(), name)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcHost(v))
}

// hostName reads the name in the path of a call that may create a host.
func (c *call) hostName() (string, error) {
	name, err := c.path("name")
	if err != nil {
		return "", err
	}
	if err := plain.CheckHostWord(name); err != nil {
		return "", badPart("path", "name", err.Error())
	}
	return name, nil
}

func (c *call) registerHost() error {
	name, err := c.hostName()
	if err != nil {
		return err
	}
	doc, err := c.document(maxWebhookBody, false)
	if err != nil {
		return err
	}
	r := readHost(doc)
	r.Name = name
	if err := doc.err(); err != nil {
		return err
	}
	if err := r.Check(); err != nil {
		return err
	}
	out, err := c.Service.RegisterHost(c.ctx(), r)
	if err != nil {
		return err
	}
	answer := *out
	utc(&answer.DrainBy)
	if out.Created {
		return c.json(http.StatusCreated, &answer)
	}
	return c.json(http.StatusOK, &answer)
}

func readHost(doc *document) (s operate.HostRequest) {
	root := doc.root()
	capacity := false
	for name, field := range root.fields() {
		switch string(name) {
		case "incarnation":
			s.Incarnation = field.name(operate.MaxIncarnation)
		case "boot":
			s.Boot = field.name(operate.MaxIncarnation)
		case "grid":
			s.Grid = field.name(perdure.MaxHostWord)
		case "version":
			s.Version = field.name(operate.MaxHostVersion)
		case "labels":
			s.Labels = field.texts()
		case "capacity":
			capacity = true
			s.Capacity = field.amounts()
		case "heartbeat":
			s.Heartbeat = perdure.Duration(field.duration(operate.MinHostHeartbeat, operate.MaxHostHeartbeat))
		case "renews":
			s.Renews = field.boolean()
		default:
			field.unknown("incarnation", "boot", "grid", "labels", "capacity", "version", "heartbeat", "renews")
		}
	}
	root.need("incarnation", s.Incarnation != "")
	root.need("capacity", capacity)
	return s
}

// texts reads an object of texts.
func (v value) texts() map[string]string {
	all := map[string]string{}
	for name, field := range v.fields() {
		key := string(name)
		all[key] = field.string()
	}
	return all
}

// amounts reads an object of amounts.
func (v value) amounts() perdure.Amounts {
	all := perdure.Amounts{}
	for name, field := range v.fields() {
		key, text := string(name), ""
		switch kind := field.kind(); {
		case kind == jsontext.String && key == plain.AmountMemory:
			text = field.string()
		case kind == jsontext.Number:
			text = string(field.raw())
		default:
			field.fault("must be a number")
			continue
		}
		n, err := plain.ParseAmount(key, text)
		if err != nil {
			field.fault("%s", err.Error())
		}
		all[key] = n
	}
	return all
}

func (c *call) drainHost() error {
	name, author, err := c.actOn("name")
	if err != nil {
		return err
	}
	doc, err := c.document(maxSmallBody, true)
	if err != nil {
		return err
	}
	d := operate.HostDrain{Name: name, Author: author, Deadline: operate.DefaultDrain}
	for field, v := range doc.root().fields() {
		switch string(field) {
		case "deadline":
			d.Deadline = v.duration(0, operate.MaxDrain)
		case "reason":
			d.Reason = v.prose(perdure.MaxReasonBytes)
		default:
			v.unknown("deadline", "reason")
		}
	}
	if err := doc.err(); err != nil {
		return err
	}
	v, err := c.Service.DrainHost(c.ctx(), d)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcHost(v))
}

func (c *call) readyHost() error {
	name, author, err := c.webhookAct()
	if err != nil {
		return err
	}
	v, err := c.Service.ReadyHost(c.ctx(), name, author)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcHost(v))
}

func (c *call) deleteHost() error { return c.remove("name", c.Service.DeleteHost) }
