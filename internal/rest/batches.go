package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/jsontext"
)

// A batch submits many jobs in one call. The body is read as far as needed to tell its jobs apart. Each job is passed on
// as it was sent, and has a result of its own.

// The types of the bodies, for the documentation. They are read and written field by field.
type (
	batchBody struct {
		Definition *batchBase `json:"definition,omitempty" doc:"The definition that all jobs have in common, or the name of a stored one, such as order@7; each item of jobs then has only its own values"`
		Jobs       []batchJob `json:"jobs" minItems:"1" maxItems:"1000" doc:"Definitions; or, if definition is given, the values of each job"`
	}
	batchBase   struct{}
	batchJob    struct{}
	batchValues struct {
		Key      string            `json:"key,omitempty"`
		Priority any               `json:"priority,omitempty"`
		Labels   map[string]string `json:"labels,omitempty"`
		StartAt  string            `json:"startAt,omitempty"`
		Input    any               `json:"input,omitempty"`
	}
	batchAnswer struct {
		Results []batchResult `json:"results" doc:"One for each job, in the same order"`
	}
	batchResult struct {
		ID      perdure.JobID `json:"id,omitzero" doc:"The job; missing if it was refused"`
		Key     string        `json:"key,omitempty"`
		Created *bool         `json:"created,omitempty" doc:"false: the key was submitted before, with the same definition"`
		Error   *itemProblem  `json:"error,omitempty" doc:"Why it was refused"`
	}
	itemProblem struct {
		Code   perdure.Code         `json:"code" doc:"The same codes as those of a problem"`
		Detail string               `json:"detail" doc:"What is wrong with this job"`
		Hint   string               `json:"hint,omitempty" doc:"How to mend it"`
		Errors []perdure.FieldError `json:"errors" doc:"Each fault with its pointer into the job's one definition"`
	}
)

func (batchBase) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{AnyOf: []*huma.Schema{r.Schema(reflect.TypeFor[definitionBody](), true, ""), {Type: huma.TypeString}}}
}

func (batchJob) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{AnyOf: []*huma.Schema{
		r.Schema(reflect.TypeFor[definitionBody](), true, ""), r.Schema(reflect.TypeFor[batchValues](), true, ""),
	}}
}

// batchRoom is about how long the answer for one job of a batch is.
const batchRoom = 300

func (a *api) batchRoutes() []route {
	return []route{{
		method: http.MethodPost, path: "/v1/batches/submit", id: "submitBatch", tag: "jobs", do: (*call).submitBatch,
		headers: []param{traceParam},
		summary: "Submit many jobs",
		doc:     "Up to 1000 definitions; or one, and the values of up to 1000 jobs of it, which replace its own. Each job has a result of its own, once it is stored; a refused job does not affect the others. The definition times the number of jobs is at most 16 MiB.",
		body:    &media{of: reflect.TypeFor[batchBody](), example: batchExample},
		results: []result{{status: http.StatusOK, doc: "The result of each job", of: reflect.TypeFor[batchAnswer](), example: batchResultsExample}},
		problems: []int{http.StatusTooManyRequests, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
			http.StatusUnprocessableEntity},
	}}
}

func (c *call) submitBatch() error {
	key, err := c.submissionKey()
	if err != nil {
		return err
	}
	doc, err := c.document(perdure.MaxDefinitionBytes, false)
	if err != nil {
		return err
	}
	base, jobs := readBatch(doc)
	if err := doc.err(); err != nil {
		return err
	}
	if key != "" && !allKeyed(base, jobs) {
		return badPart("header", keyHeader, "cannot be the key of several jobs").
			hint("give each job a key, or leave out the header (null in the headers of an http step)")
	}
	// A small body must not stand for a work that no body may ask for.
	if n := len(base) * len(jobs); n > perdure.MaxDefinitionBytes {
		e := perdure.Refuse(perdure.CodeTooLarge, "%d jobs of a definition of %d bytes are over %d bytes when they are written out",
			len(jobs), len(base), perdure.MaxDefinitionBytes)
		e.Hint = "send fewer jobs in a call"
		return e
	}
	// Room for the answer is made first: once jobs are stored, a 429 would have them submitted again.
	if err := c.hold(c.r.Context(), max(len(jobs)*batchRoom, freeAnswer+1)); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.RestBatch)
	results, err := c.Service.SubmitAll(c.traced(), base, jobs)
	if err != nil {
		return err
	}
	crashpoint.Here(crashpoint.RestBatchAnswer)
	return c.written(http.StatusOK, len(results)*batchRoom, func(b *bytes.Buffer) error {
		body, err := c.appendBatch(b.AvailableBuffer(), results)
		b.Write(body)
		return err
	})
}

func readBatch(doc *document) (base json.RawMessage, jobs []json.RawMessage) {
	root, present := doc.root(), false
	for name, v := range root.fields() {
		switch string(name) {
		case "definition":
			if kind := v.kind(); kind != jsontext.Object && kind != jsontext.String {
				v.fault("must be an object, or the name of a stored definition")
			}
			base = v.raw()
		case "jobs":
			present = !v.null()
			jobs = v.jobs()
		default:
			v.unknown("definition", "jobs")
		}
	}
	root.need("jobs", present)
	return base, jobs
}

// allKeyed reports whether each job has its own key or that of the definition, so that repeating the call makes no
// second job.
func allKeyed(base json.RawMessage, jobs []json.RawMessage) bool {
	return len(base) > 0 && hasKey(base) || !slices.ContainsFunc(jobs, func(job json.RawMessage) bool { return !hasKey(job) })
}

func hasKey(object json.RawMessage) bool {
	found := false
	for name := range parse(object).root().fields() {
		found = found || string(name) == "key"
	}
	return found
}

func (v value) jobs() []json.RawMessage {
	faults, null := len(v.doc.faults), v.null()
	var jobs []json.RawMessage
	v.set(func(item value) { jobs = append(jobs, item.raw()) })
	if len(jobs) == 0 && !null && len(v.doc.faults) == faults {
		v.fault("has no job in it")
	}
	return jobs
}

// appendBatch appends batchAnswer as encoding/json would write it, and logs what went wrong.
func (c *call) appendBatch(b []byte, results []perdure.Submitted) ([]byte, error) {
	troubles, refused := 0, 0
	var trouble error
	a := jsontext.NewAppender(b)
	a.BeginObject()
	a.Name("results")
	a.BeginList()
	for i := range results {
		d := &results[i]
		a.BeginObject()
		if d.Err != nil {
			p := problemOf(c.r, d.Err)
			if p.Status >= http.StatusInternalServerError {
				trouble, troubles = d.Err, troubles+1
			} else {
				refused++
			}
			var text bytes.Buffer
			if err := encodeJSON(&text, itemProblem{p.Code, p.Detail, p.Hint, p.Errors}); err != nil {
				return nil, err
			}
			a.RawField("error", bytes.TrimSpace(text.Bytes()))
		} else {
			if !d.ID.IsZero() {
				a.TextField("id", d.ID.String())
			}
			a.OptionalText("key", d.Key)
			a.BoolField("created", d.Created)
		}
		a.EndObject()
	}
	a.EndList()
	a.EndObject()
	if troubles > 0 {
		c.Log.ErrorContext(c.ctx(), "jobs of a batch failed", "jobs", troubles, "of", len(results), "error", trouble)
	}
	if refused > 0 {
		c.Log.InfoContext(c.ctx(), "jobs of a batch refused", "jobs", refused, "of", len(results))
	}
	return append(a.Bytes(), '\n'), nil
}
