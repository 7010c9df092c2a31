package rest

import (
	"context"
	"encoding"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// The types of the bodies, for the documentation. They are read field by field.
type (
	bulkBody struct {
		Act       string          `json:"act" enum:"undo,redo,resume,giveUp,settle,skip,edit,stop" doc:"What is done to each job"`
		Step      string          `json:"step,omitempty" doc:"The step of each job: for settle, skip and edit, and for the resume of one step"`
		As        string          `json:"as,omitempty" enum:"done,undone" doc:"settle: the state that the step has"`
		Output    any             `json:"output,omitempty" doc:"settle as done: stored as the output of the step"`
		Input     any             `json:"input,omitempty" doc:"edit, resume of one step: replaces the step's input"`
		NewKey    bool            `json:"newKey,omitempty" doc:"edit, resume of one step: no earlier run had an effect"`
		Filter    *bulkFilterBody `json:"filter,omitempty" doc:"Selects the jobs. At least one field; either filter or ids is given"`
		IDs       []string        `json:"ids,omitempty" maxItems:"10000" doc:"The jobs, each as an id, a key or the start of an id"`
		PerSecond int             `json:"perSecond,omitempty" minimum:"1" maximum:"10000" doc:"At most so many jobs are met within any second"`
		Reason    string          `json:"reason" maxLength:"4096" doc:"For the history of each job"`
		Key       string          `json:"key,omitempty" maxLength:"200" doc:"Makes a repeated call safe: the same key is the same bulk act"`
	}
	bulkFilterBody struct {
		Phase   phaseList         `json:"phase,omitempty" doc:"One phase, or a list: any of them"`
		Type    string            `json:"type,omitempty"`
		Current string            `json:"current,omitempty" enum:"undone,done,unsure"`
		Desired string            `json:"desired,omitempty" enum:"undone,done"`
		Key     string            `json:"key,omitempty"`
		Label   map[string]string `json:"label,omitempty" doc:"All of these"`
		Since   string            `json:"since,omitempty" doc:"Submitted at this time or later; or this long ago at most"`
		Until   string            `json:"until,omitempty" doc:"Submitted before this time; or longer ago"`
		Agent   string            `json:"agent,omitempty"`
		Step    string            `json:"step,omitempty"`
		Reason  string            `json:"reason,omitempty"`
		Error   string            `json:"error,omitempty"`
		Alert   string            `json:"alert,omitempty"`
		Q       string            `json:"q,omitempty"`
	}
	phaseList struct{}
	bulkState string
)

func (phaseList) Schema(r huma.Registry) *huma.Schema {
	one := words("waiting", "running", "parked", "settled")
	return &huma.Schema{AnyOf: []*huma.Schema{one, {Type: huma.TypeArray, Items: one}}}
}

func (bulkState) Schema(huma.Registry) *huma.Schema { return words(operate.BulkStates...) }

var (
	bulkFields       = []string{"act", "step", "as", "output", "input", "newKey", "filter", "ids", "perSecond", "reason", "key"}
	bulkFilterFields = []string{"phase", "type", "current", "desired", "key", "label", "since", "until", "agent", "step", "reason", "error", "alert", "parent", "q"}
)

func (a *api) bulkRoutes() []route {
	view := reflect.TypeFor[operate.BulkView]()
	const one = "/v1/bulk/{id}"
	change := func(verb, id, summary, doc string, do func(*call) error) route {
		return route{
			method: http.MethodPost, path: one + "/" + verb, id: id, tag: "bulk", do: do, summary: summary, doc: doc, headers: authorParam,
			results:  []result{{status: http.StatusOK, doc: "The bulk act", of: view, example: bulkExample}},
			problems: []int{http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity},
		}
	}
	return []route{
		{
			method: http.MethodPost, path: "/v1/bulk", id: "startBulk", tag: "bulk", do: (*call).startBulk,
			summary: "Act on many jobs",
			doc:     "Stores the bulk act and answers. A node then goes through the jobs in the order of their submission, and performs the act on each as a single act is performed. A job counts if it matches the filter when its turn comes; jobs submitted after the start are left out. At most 10 bulk acts run at once, and another is a conflict.",
			headers: authorParam, params: dryRunParam,
			body: &media{of: reflect.TypeFor[bulkBody](), example: bulkBodyExample},
			results: []result{
				{status: http.StatusAccepted, doc: "The bulk act is stored", of: view, example: bulkExample, headers: map[string]string{"Location": "Where the bulk act is"}},
				{status: http.StatusOK, doc: "With dryRun: how many jobs there are, the first of them, and on how many of the first 1,000 the act would be refused, by code", of: reflect.TypeFor[operate.BulkPreview](), example: bulkPreviewExample},
			},
			problems: []int{http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodGet, path: "/v1/bulk", id: "listBulk", tag: "bulk", do: (*call).listBulk,
			summary: "List bulk acts", doc: "Newest first, without inputs and outputs. A bulk act is kept for 90 days after its end.",
			params:  append([]param{{name: "state", doc: "running, done or stopped", example: "running"}}, pageParams...),
			results: []result{{status: http.StatusOK, doc: "A page of bulk acts", of: reflect.TypeFor[perdure.Page[operate.BulkView]](), example: `{"items":[` + bulkExample + `]}`}},
		},
		{
			method: http.MethodGet, path: one, id: "getBulk", tag: "bulk", do: (*call).getBulk,
			summary: "Get a bulk act", doc: "With its progress.",
			results: []result{{status: http.StatusOK, doc: "The bulk act", of: view, example: bulkExample}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: one + "/refusals", id: "listBulkRefusals", tag: "bulk", do: (*call).bulkRefusals,
			summary: "List the refusals of a bulk act", doc: "The first 1,000 jobs on which the act was refused, in the order in which they were met.",
			params:  pageParams,
			results: []result{{status: http.StatusOK, doc: "A page of refusals", of: reflect.TypeFor[perdure.Page[operate.BulkRefusal]](), example: bulkRefusalsExample}}, problems: []int{http.StatusNotFound},
		},
		change("stop", "stopBulk", "Stop a bulk act", "The acts that it has performed remain. A bulk act that is stopped already stays as it is; one that is done is a conflict.", (*call).stopBulk),
		change("resume", "resumeBulk", "Resume a bulk act", "It goes on after the last job that it has met. One that is running already stays as it is; one that is done is a conflict, and so is an eleventh that runs.", (*call).resumeBulk),
	}
}

// maxBulkBody bounds the body of a bulk act: one input or output, and 10,000 ids.
const maxBulkBody = maxActBody + operate.MaxBulkIDs*perdure.MaxKeyLength

func (c *call) startBulk() error {
	q := reader{query: c.query}
	dryRun := q.flag("dryRun")
	if q.err != nil {
		return q.err
	}
	author, err := c.author()
	if err != nil {
		return err
	}
	doc, err := c.document(maxBulkBody, false)
	if err != nil {
		return err
	}
	request := readBulk(doc)
	if err := doc.err(); err != nil {
		return err
	}
	request.Author = author
	if err := request.Check(); err != nil {
		return err
	}
	if dryRun {
		p, err := c.Service.PreviewBulk(c.ctx(), request)
		if err != nil {
			return err
		}
		out := *p
		out.Samples = make([]perdure.JobView, len(p.Samples))
		for i := range p.Samples {
			out.Samples[i] = *utcJob(&p.Samples[i])
		}
		return c.json(http.StatusOK, &out)
	}
	crashpoint.Here(crashpoint.RestBulk)
	v, err := c.Service.StartBulk(c.ctx(), request)
	if err != nil {
		return err
	}
	crashpoint.Here(crashpoint.RestBulkAnswer)
	c.w.Header().Set("Location", c.prefix()+"/v1/bulk/"+v.ID)
	return c.storedBulk(http.StatusAccepted, v)
}

// storedBulk answers with a bulk act that the call has stored or changed. It must not answer 429, because the client would
// repeat a call that was carried out: without room for the whole view, input and output are left out.
func (c *call) storedBulk(status int, v *operate.BulkView) error {
	err := c.json(status, utcBulk(v))
	if perdure.CodeOf(err) != perdure.CodeTooManyRequests {
		return err
	}
	shortened := *v
	shortened.Input, shortened.Output, shortened.Filter = nil, nil, nil
	return c.json(status, utcBulk(&shortened))
}

// utcBulk returns a copy of a bulk act whose times are UTC.
func utcBulk(v *operate.BulkView) *operate.BulkView {
	out := *v
	utc(&out.StartedAt, &out.UpdatedAt, &out.EndedAt, &out.ExpectedEnd)
	if v.Filter != nil {
		filter := *v.Filter
		utc(&filter.Since, &filter.Until)
		out.Filter = &filter
	}
	return &out
}

func readBulk(doc *document) (r operate.BulkRequest) {
	root := doc.root()
	for name, field := range root.fields() {
		switch string(name) {
		case "act":
			r.Act = perdure.Verb(field.string())
		case "step":
			r.Step = field.name(perdure.MaxNameLength)
		case "as":
			r.As = field.pole()
		case "output":
			r.Output = field.payload()
		case "input":
			r.Input = field.payload()
		case "newKey":
			r.NewKey = field.boolean()
		case "filter":
			if !field.absent() {
				r.Filter = field.bulkFilter()
			}
		case "ids":
			if !field.absent() {
				r.IDs = field.bulkIDs()
			}
		case "perSecond":
			if !field.absent() {
				r.PerSecond = int(field.integer(1, operate.MaxBulkPerSecond))
			}
		case "reason":
			r.Reason = field.prose(perdure.MaxReasonBytes)
		case "key":
			r.Key = field.name(operate.MaxBulkKeyLength)
		default:
			field.unknown(bulkFields...)
		}
	}
	root.need("act", r.Act != "")
	root.need("reason", strings.TrimSpace(r.Reason) != "")
	return r
}

// absent reports whether a value is null, and adds a fault if it is: null as a filter, or in one, is rather a mistake of
// the caller's program than the wish to select more jobs.
func (v value) absent() bool {
	if !v.null() {
		return false
	}
	v.fault(emptyField)
	return true
}

const emptyField = "is empty: leave it out"

func (v value) bulkIDs() (ids []string) {
	isList := v.kind() == jsontext.List
	for i, item := range v.items() {
		switch {
		case i < operate.MaxBulkIDs:
			id := item.name(perdure.MaxKeyLength)
			if id == "" && item.null() {
				item.fault("must be a string")
			}
			ids = append(ids, id)
		case i == operate.MaxBulkIDs:
			v.faultAt(v.pointer(), "use a filter, or several bulk acts", "has more than %d elements", operate.MaxBulkIDs)
		}
	}
	if isList && len(ids) == 0 {
		v.fault(emptyField)
	}
	return ids
}

// bulkFilter reads a filter. Its fields are the parameters of GET /v1/jobs.
func (v value) bulkFilter() *operate.BulkFilter {
	f := &operate.BulkFilter{}
	for name, field := range v.fields() {
		if slices.Contains(bulkFilterFields, string(name)) && field.absent() {
			continue
		}
		switch string(name) {
		case "phase":
			f.Phase = field.phases()
		case "type":
			f.Type = field.name(perdure.MaxNameLength)
		case "current":
			f.Current = wordOf[perdure.State](field, "undone", "done", "unsure")
		case "desired":
			f.Desired = wordOf[perdure.State](field, "undone", "done")
		case "key":
			f.Key = field.name(perdure.MaxKeyLength)
		case "label":
			f.Label = field.labels()
		case "since":
			f.Since = field.timeOrAgo()
		case "until":
			f.Until = field.timeOrAgo()
		case "agent":
			f.Agent = field.name(perdure.MaxNameLength)
		case "step":
			f.Step = field.name(perdure.MaxNameLength)
		case "reason":
			f.Reason = perdure.ReasonKind(field.word(operate.Texts(operate.Reasons())))
		case "error":
			f.Error = field.name(perdure.MaxCodeLength)
		case "alert":
			f.Alert = perdure.AlertKind(field.word(operate.Texts(operate.AlertKinds())))
		case "parent":
			f.Parent = field.name(maxParentRef)
		case "q":
			f.Q = field.text(maxSearch)
		default:
			field.unknown(bulkFilterFields...)
		}
	}
	return f
}

// phases reads a phase, or a list of phases.
func (v value) phases() (list []perdure.Phase) {
	add := func(v value) {
		if p := wordOf[perdure.Phase](v, "waiting", "running", "parked", "settled"); p != nil && !slices.Contains(list, *p) {
			list = append(list, *p)
		}
	}
	if v.kind() != jsontext.List {
		add(v)
		return list
	}
	n := 0
	for _, item := range v.items() {
		if n++; !item.absent() {
			add(item)
		}
	}
	if n == 0 {
		v.fault(emptyField)
	}
	return list
}

// wordOf reads a value of T that is one of words; nil for null.
func wordOf[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](v value, words ...string) *T {
	if v.null() {
		return nil
	}
	s, out := v.word(words), new(T)
	if s == "" || P(out).UnmarshalText([]byte(s)) != nil {
		return nil
	}
	return out
}

// word reads a text that is one of words; "" for null, and for any other value, which is a fault.
func (v value) word(words []string) string {
	if v.null() {
		return ""
	}
	if s := v.string(); slices.Contains(words, s) {
		return s
	}
	v.fault("must be one of %s", strings.Join(words, ", "))
	return ""
}

// labels reads an object of texts.
func (v value) labels() map[string]string {
	isObject := v.kind() == jsontext.Object
	labels, n := map[string]string{}, 0
	for name, field := range v.fields() {
		n++
		switch {
		case field.absent():
		case !plain.IsText(string(name)):
			field.fault("has a name that holds a NUL or is not UTF-8")
		case len(name) == 0 || len(name) > perdure.MaxLabelLength:
			field.fault("is not the name of a label: use 1 to %d characters", perdure.MaxLabelLength)
		case len(labels) == perdure.MaxLabels:
			field.fault("is one label too many: use at most %d", perdure.MaxLabels)
		default:
			labels[string(name)] = field.prose(perdure.MaxLabelLength)
		}
	}
	if isObject && n == 0 {
		v.fault(emptyField)
	}
	return labels
}

// time reads a time.
func (v value) time() time.Time {
	t, err := time.Parse(time.RFC3339, v.string())
	if err != nil {
		v.fault("is not a time such as 2026-01-02T15:04:05Z")
	}
	return t
}

// timeOrAgo reads a time, or a duration before now.
func (v value) timeOrAgo() time.Time {
	s := v.string()
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t
	}
	ago, err := perdure.ParseDuration(s)
	if err != nil {
		v.fault(timeOrAgo)
		return time.Time{}
	}
	return time.Now().Add(-ago)
}

func (c *call) listBulk() error {
	q := reader{query: c.query}
	query := operate.BulkQuery{State: operate.BulkState(q.word("state", operate.Texts(operate.BulkStates)...)), Limit: q.limit(), Cursor: q.cursor()}
	if q.err != nil {
		return q.err
	}
	page, err := c.Service.ListBulks(c.ctx(), query)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, pageOf(page, utcBulk))
}

func (c *call) getBulk() error {
	id, err := c.path("id")
	if err != nil {
		return err
	}
	v, err := c.Service.GetBulk(c.ctx(), id)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcBulk(v))
}

func (c *call) bulkRefusals() error {
	id, err := c.path("id")
	if err != nil {
		return err
	}
	q := reader{query: c.query}
	query := operate.BulkRefusalQuery{ID: id, Limit: q.limit(), Cursor: q.cursor()}
	if q.err != nil {
		return q.err
	}
	page, err := c.Service.BulkRefusals(c.ctx(), query)
	if err != nil {
		return err
	}
	out := *page
	out.Items = listOf(page.Items)
	return c.json(http.StatusOK, &out)
}

func (c *call) stopBulk() error   { return c.changeBulk(c.Service.StopBulk) }
func (c *call) resumeBulk() error { return c.changeBulk(c.Service.ResumeBulk) }

func (c *call) changeBulk(change func(ctx context.Context, id, author string) (*operate.BulkView, error)) error {
	id, author, err := c.actOn("id")
	if err != nil {
		return err
	}
	doc, err := c.document(maxSmallBody, true)
	if err != nil {
		return err
	}
	for _, field := range doc.root().fields() {
		field.unknown()
	}
	if err := doc.err(); err != nil {
		return err
	}
	v, err := change(c.ctx(), id, author)
	if err != nil {
		return err
	}
	return c.storedBulk(http.StatusOK, v)
}
