package rest

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

type (
	signalBody struct {
		Name string           `json:"name" maxLength:"128" doc:"The name for which a step waits"`
		Key  string           `json:"key" maxLength:"200" doc:"The key for which a step waits"`
		ID   string           `json:"id,omitempty" maxLength:"128" doc:"The id of the event at its source. While it is remembered, a signal with the same name, key and id has no effect. Without it the node gives one"`
		Data any              `json:"data,omitempty" doc:"For the output of the step: any JSON up to 64 KiB, without artifacts"`
		Keep perdure.Duration `json:"keep,omitempty" doc:"For how long the signal is kept for a step, and its id remembered: 1s to 30d, default 24h"`
		To   signalReceivers  `json:"to,omitempty" doc:"one (the default): the step of the oldest job that waits; if none waits, the signal is kept for the next one. all: all steps that wait now"`
	}
	signalReceivers string
)

func (signalReceivers) Schema(huma.Registry) *huma.Schema {
	return words(operate.ToOne, operate.ToAll)
}

const (
	signalExample       = `{"name":"payment.completed","key":"pay_123","id":"evt_9","data":{"amount":4200}}`
	signalResultExample = `{"id":"evt_9","matched":["job_0198c5f0a7d97c3e9a4b1c2d3e4f5061/paid"]}`
)

func (a *api) signalRoutes() []route {
	answer := reflect.TypeFor[operate.SignalResult]()
	to := func(path, id, summary, doc string, problems ...int) route {
		return route{
			method: http.MethodPost, path: path, id: id, act: "sendSignal", tag: "jobs", do: (*call).sendSignal, headers: authorParam,
			summary: summary, doc: doc,
			body: &media{of: reflect.TypeFor[signalBody](), example: signalExample},
			results: []result{
				{status: http.StatusAccepted, doc: "The steps that have received the signal; none: it is kept", of: answer, example: signalResultExample},
				{status: http.StatusOK, doc: "It was sent before, and had its effect then", of: answer, example: `{"id":"evt_9","matched":[],"repeated":true}`},
			},
			problems: append(problems, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusTooManyRequests),
		}
	}
	return []route{
		to("/v1/signals", "sendSignal", "Send a signal", "Gives the signal to the step that waits for its name and key (agent: signal). If none waits, the signal is kept for the next one. At most 100,000 signals are kept."),
		to("/v1/jobs/{id}/signals", "signalJob", "Send a signal to a job", "Only a step of this job receives the signal.", http.StatusNotFound, http.StatusConflict),
	}
}

func (c *call) sendSignal() error {
	var s operate.Signal
	var err error
	if c.r.PathValue("id") != "" {
		if s.Job, err = c.path("id"); err != nil {
			return err
		}
	}
	if s.Author, err = c.author(); err != nil {
		return err
	}
	doc, err := c.document(maxSignalBody, false)
	if err != nil {
		return err
	}
	root := doc.root()
	for field, v := range root.fields() {
		switch string(field) {
		case "name":
			s.Name = v.name(perdure.MaxNameLength)
		case "key":
			s.Key = v.name(perdure.MaxKeyLength)
		case "id":
			s.ID = v.name(operate.MaxSignalIDLength)
		case "data":
			s.Data = v.payload()
		case "keep":
			s.Keep = perdure.Duration(v.duration(operate.MinSignalKeep, operate.MaxSignalKeep))
		case "to":
			s.To = operate.Receivers(v.word(operate.Texts([]operate.Receivers{operate.ToOne, operate.ToAll})))
		default:
			v.unknown("name", "key", "id", "data", "keep", "to")
		}
	}
	root.need("name", s.Name != "")
	root.need("key", s.Key != "")
	if err := doc.err(); err != nil {
		return err
	}
	r, err := c.Service.SendSignal(c.ctx(), s)
	if err != nil {
		return err
	}
	if r.Matched == nil {
		r.Matched = []string{}
	}
	status := http.StatusAccepted
	if r.Repeated {
		status = http.StatusOK
	}
	return c.json(status, r)
}

// maxSignalBody leaves room for the other fields, and for white space in the data.
const maxSignalBody = 4 * operate.MaxSignalBytes
