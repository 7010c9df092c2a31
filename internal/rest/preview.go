package rest

import (
	"bytes"
	"net/http"
	"reflect"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func (a *api) validateRoutes() []route {
	return []route{{
		method: http.MethodPost, path: "/v1/validate", id: "validate", tag: "jobs", do: (*call).validate,
		summary:  "Validate a definition",
		doc:      "Answers what a job of the definition would do, with warnings, and stores nothing. A definition that is invalid is refused as its submission would be.",
		body:     &media{types: []string{mediaJSON, mediaYAML}, of: reflect.TypeFor[definitionBody](), example: definitionExample},
		results:  []result{{status: http.StatusOK, doc: "The definition is valid", of: reflect.TypeFor[operate.Validation](), example: validationExample}},
		problems: []int{http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity},
	}}
}

// preview answers what an act would do. It has no crash points, because nothing is stored or sent.
func (c *call) preview(ref string, act perdure.Act) error {
	p, err := c.Service.Preview(c.ctx(), ref, act)
	if err != nil {
		return err
	}
	job, effects := utcJob(p.Job), utcEffects(&p.Effects)
	return c.written(http.StatusOK, sizeOfJob(job), func(b *bytes.Buffer) error {
		b.WriteString(`{"job":`)
		if err := encodeJSON(b, job); err != nil {
			return err
		}
		b.Truncate(b.Len() - len("\n"))
		b.WriteString(`,"effects":`)
		if err := encodeJSON(b, effects); err != nil {
			return err
		}
		b.Truncate(b.Len() - len("\n"))
		b.WriteString("}\n")
		return nil
	})
}

func utcEffects(e *operate.Effects) *operate.Effects {
	out := *e
	out.Dispatch, out.Settle, out.Park, out.WithoutUndo = listOf(e.Dispatch), listOf(e.Settle), listOf(e.Park), listOf(e.WithoutUndo)
	out.WaitFor = make([]operate.StepWait, len(e.WaitFor))
	for i, w := range e.WaitFor {
		utc(&w.Until)
		out.WaitFor[i] = w
	}
	return &out
}

func (c *call) validate() error {
	body, mediaType, err := c.readDefinition()
	if err != nil {
		return err
	}
	v, err := c.Service.Validate(c.ctx(), body, mediaType)
	if err != nil {
		return err
	}
	out := *v
	out.Plan.Limits, out.Plan.Warnings = listOf(v.Plan.Limits), listOf(v.Plan.Warnings)
	return c.json(http.StatusOK, &out)
}
