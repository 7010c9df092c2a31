package rest

import (
	"bytes"
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/negotiate"
	"github.com/perdure/perdure/operate"
)

func (a *api) jobRoutes() []route {
	job, page := reflect.TypeFor[perdure.JobView](), reflect.TypeFor[perdure.Page[perdure.JobView]]()
	return []route{
		{
			method: http.MethodPost, path: "/v1/jobs", id: "submitJob", tag: "jobs", do: (*call).submit,
			summary: "Submit a job",
			doc:     "Stores the definition before it answers. The same key with the same definition is the same job; with another definition it is a conflict. The header gives the key to a definition that has none.",
			headers: []param{{name: keyHeader, doc: "The key of the job if the definition has none: 1 to 200 printable characters, not starting with job_ or @, no /. The stable key of a step, job_ID/STEP/TURN, is converted to step:ID:STEP:TURN", example: "order-1042"}, traceParam},
			body:    &media{types: []string{mediaJSON, mediaYAML}, of: reflect.TypeFor[definitionBody](), example: definitionExample},
			results: []result{
				{status: http.StatusCreated, doc: "The job was stored", of: job, example: jobExample, headers: map[string]string{"Location": "Where the job is"}},
				{status: http.StatusOK, doc: "The key was submitted before, with the same definition", of: job, example: jobExample},
			},
			problems: []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodGet, path: "/v1/jobs", id: "listJobs", tag: "jobs", do: (*call).listJobs,
			summary: "List jobs", doc: "Newest first, without steps. A search that finds little reads at most 10,000 jobs in one call: the answer then has few items or none, `scannedBackTo`, and a `nextCursor` that goes on from there. " + liveDoc,
			params: append([]param{
				{name: "phase", doc: "waiting, running, parked or settled; several: any of them", example: "parked", repeated: true},
				{name: "type", doc: "The job's type", example: "order"},
				{name: "current", doc: "undone, done or unsure", example: "unsure"},
				{name: "desired", doc: "undone or done", example: "done"},
				{name: "key", doc: "The job's key", example: "order-1042"},
				{name: "label", doc: "A label as NAME=VALUE; several must all hold", example: "customer=c-77", repeated: true},
				{name: "since", doc: "Submitted at this time or later; or this long ago at most", example: "2026-01-02T15:04:05Z"},
				{name: "until", doc: "Submitted before this time; or longer ago", example: "24h"},
				{name: "agent", doc: "The agent of an open step that waits for no other step", example: "payments"},
				{name: "step", doc: "The name of such a step", example: "charge"},
				{name: "reason", doc: "Why such a step is not running", example: "noAgent"},
				{name: "error", doc: "The error code of the latest failure of such a step", example: "card_declined"},
				{name: "alert", doc: "The kind of an open alert", example: "parked"},
				{name: "parent", doc: "The step whose children the jobs are: JOB/STEP", example: "album-7/resize"},
				{name: "q", doc: "The beginning of an id or key, or the value of a label", example: "order-10"},
				{name: "order", doc: "oldest: the oldest first", example: "oldest"},
				{name: "count", doc: "true: count the jobs of all pages, up to 10,000", example: "true"},
				{name: "with", doc: "summary: how far the steps of each job are, for at most 50 jobs", example: "summary"},
			}, pageParams...),
			results: []result{
				{status: http.StatusOK, doc: "A page of jobs", of: page, example: pageExample},
				{status: http.StatusOK, types: []string{mediaEvents}, of: reflect.TypeFor[string]()},
			},
		},
		{
			method: http.MethodGet, path: "/v1/jobs/{id}", id: "getJob", tag: "jobs", do: (*call).job,
			summary: "Get a job", doc: "With its steps and, for each that is unsettled, why it is not running. Values above 64 KiB are left out, and so are inputs and outputs of steps beyond 4 MiB in all; `inputBytes`, `outputBytes` and `definitionBytes` are their sizes.",
			params: []param{
				{name: "wait", doc: "Answer when the job is at rest, or after so long; at most 5m", example: "30s"},
				{name: "steps", doc: "Which steps: none, open (those that are not settled) or all; default: all", example: "open"},
			},
			headers: []param{{name: "If-None-Match", doc: "The ETag of an earlier answer to the same request: if the answer would be the same, it is 304, without a body", example: tagExample}},
			results: []result{
				{status: http.StatusOK, doc: "The job", of: job, example: jobExample, headers: map[string]string{"ETag": "Stands for this answer"}},
				{status: http.StatusNotModified, doc: "The answer is that of the ETag"},
			},
			problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/v1/jobs/{id}/definition", id: "getDefinition", tag: "jobs", do: (*call).definition,
			summary: "Get a job's definition", doc: "In canonical form, without fields that have their default. Submitted again, it is the same job.",
			results: []result{{status: http.StatusOK, doc: "The definition", of: reflect.TypeFor[definitionBody](), example: definitionExample}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/v1/jobs/{id}/output", id: "getOutput", tag: "jobs", do: (*call).output,
			summary: "Get a job's output", doc: "Whatever its size. null if the job is not done, or has no output.",
			results: []result{{status: http.StatusOK, doc: "The output", of: reflect.TypeFor[any](), example: `{"receipt":"r-1042"}`}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/v1/jobs/{id}/steps/{name}", id: "getStep", tag: "jobs", do: (*call).step,
			summary: "Get a step", doc: "With its input and output in full, whatever their size.",
			results: []result{{status: http.StatusOK, doc: "The step", of: reflect.TypeFor[perdure.StepDetail](), example: stepExample}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/v1/jobs/{id}/events", id: "followJob", tag: "jobs", do: (*call).events,
			summary: "Follow a job",
			doc:     "Server-sent events. A first event `job` has the whole job; those that follow have the job with the steps that moved. A last event `rest` says that nothing moves any more unless a person acts. An event `problem` says why the stream ends early.",
			results: []result{{status: http.StatusOK, doc: "The stream", types: []string{mediaEvents}, of: reflect.TypeFor[string]()}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/v1/jobs/{id}/history", id: "getHistory", tag: "jobs", do: (*call).history,
			summary: "Get a job's history", doc: "Failures, expiries, and acts of operators and policies. A run that has succeeded is recorded when its step is dispatched again, with the time of its end.",
			params:  pageParams,
			results: []result{{status: http.StatusOK, doc: "A page of entries, oldest first", of: reflect.TypeFor[perdure.Page[perdure.EntryView]](), example: historyExample}}, problems: []int{http.StatusNotFound},
		},
	}
}

// readDefinition reads a body that is a definition, in JSON or YAML.
func (c *call) readDefinition() (body []byte, mediaType string, err error) {
	if err := c.encoded(); err != nil {
		return nil, "", err
	}
	if mediaType = c.mediaType(); mediaType == "" {
		return nil, "", c.wrongMedia(mediaJSON, mediaYAML)
	}
	if body, err = c.read(perdure.MaxDefinitionBytes); err != nil {
		return nil, "", err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, "", perdure.Refuse(perdure.CodeMalformed, "the body is empty; a definition is expected")
	}
	return body, mediaType, nil
}

func (c *call) submit() error {
	key, err := c.submissionKey()
	if err != nil {
		return err
	}
	body, mediaType, err := c.readDefinition()
	if err != nil {
		return err
	}
	crashpoint.Here(crashpoint.RestSubmit)
	job, created, err := c.Service.SubmitWithKey(c.traced(), body, mediaType, key)
	if err != nil {
		return err
	}
	crashpoint.Here(crashpoint.RestSubmitAnswer)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		c.w.Header().Set("Location", c.prefix()+"/v1/jobs/"+job.ID.String())
	}
	return c.stored(status, job)
}

// stored answers with a job that the call has stored or changed. It must not answer 429, because the client would repeat
// a call that was carried out. If there is no room for the whole view, its long parts are left out, and such a view needs
// no room.
func (c *call) stored(status int, job *perdure.JobView) error {
	err := c.json(status, utcJob(job))
	if perdure.CodeOf(err) != perdure.CodeTooManyRequests {
		return err
	}
	shortened := *job
	shortened.Input, shortened.InputBytes = nil, max(job.InputBytes, len(job.Input))
	shortened.Definition, shortened.DefinitionBytes = nil, max(job.DefinitionBytes, len(job.Definition))
	shortened.Labels, shortened.Alerts, shortened.Steps = nil, nil, nil
	return c.json(status, utcJob(&shortened))
}

func (c *call) listJobs() error {
	q := reader{query: c.query}
	query := readJobQuery(&q)
	q.order(query.Since, query.Until)
	if q.err != nil {
		return q.err
	}
	if negotiate.Names(c.r.Header, mediaEvents) {
		return c.liveJobs(query)
	}
	page, err := c.Service.ListJobs(c.ctx(), query)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcJobs(page))
}

func utcJobs(page *perdure.Page[perdure.JobView]) *perdure.Page[perdure.JobView] {
	out := *page
	out.ScannedBackTo = page.ScannedBackTo.UTC()
	out.Items = make([]perdure.JobView, len(page.Items))
	for i := range page.Items {
		out.Items[i] = *utcJob(&page.Items[i])
	}
	return &out
}

func readJobQuery(q *reader) perdure.JobQuery {
	return perdure.JobQuery{
		Phases:  many[perdure.Phase](q, "phase", "waiting", "running", "parked", "settled"),
		Type:    q.name("type", perdure.MaxNameLength),
		Current: one[perdure.State](q, "current", "undone", "done", "unsure"),
		Desired: one[perdure.State](q, "desired", "undone", "done"),
		Key:     q.name("key", perdure.MaxKeyLength),
		Labels:  q.labels(),
		Since:   q.time("since"),
		Until:   q.time("until"),
		Agent:   q.name("agent", perdure.MaxNameLength),
		Step:    q.name("step", perdure.MaxNameLength),
		Reason:  perdure.ReasonKind(q.word("reason", operate.Texts(operate.Reasons())...)),
		Error:   q.name("error", perdure.MaxCodeLength),
		Alert:   perdure.AlertKind(q.word("alert", operate.Texts(operate.AlertKinds())...)),
		Parent:  q.name("parent", maxParentRef),
		Search:  q.text("q", maxSearch),

		OldestFirst: q.word("order", "newest", "oldest") == "oldest",
		WithCount:   q.flag("count"),
		WithSummary: q.word("with", "summary") != "",
		Limit:       q.limit(),
		Cursor:      q.cursor(),
	}
}

func (c *call) job() error {
	q := reader{query: c.query}
	wait := q.wait(perdure.MaxJobWait)
	part := operate.Steps(q.word("steps", operate.Texts([]operate.Steps{operate.NoSteps, operate.OpenSteps, operate.AllSteps})...))
	if q.err != nil {
		return q.err
	}
	ref, err := c.path("id")
	if err != nil {
		return err
	}
	read := func(ctx context.Context, wait time.Duration) (*perdure.JobView, error) {
		if part == "" {
			return c.Service.Job(ctx, ref, wait)
		}
		return c.Service.JobPart(ctx, ref, wait, part)
	}
	job, err := c.waitForJob(wait, read)
	if err != nil {
		return err
	}
	c.w.tagged = true
	return c.json(http.StatusOK, utcJob(job))
}

// waitForJob returns a job when it is at rest, after wait, or when the node shuts down.
func (c *call) waitForJob(wait time.Duration, read func(context.Context, time.Duration) (*perdure.JobView, error)) (*perdure.JobView, error) {
	if wait > 0 && !c.shuttingDown() {
		ctx, cancel, err := c.longPoll(wait)
		if err != nil {
			return nil, err
		}
		defer cancel()
		job, err := read(ctx, wait)
		if err = orRevoked(ctx, err); err == nil || c.gone() || !c.shuttingDown() {
			return job, c.unidentified(err)
		}
	}
	return read(c.ctx(), 0)
}

func (c *call) definition() error {
	ref, err := c.path("id")
	if err != nil {
		return err
	}
	text, err := c.Service.Definition(c.ctx(), ref)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, text)
}

func (c *call) output() error {
	ref, err := c.path("id")
	if err != nil {
		return err
	}
	value, err := c.Service.Output(c.ctx(), ref)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, value)
}

func (c *call) step() error {
	ref, err := c.path("id")
	if err != nil {
		return err
	}
	name, err := c.path("name")
	if err != nil {
		return err
	}
	step, err := c.Service.Step(c.ctx(), ref, name)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcStep(step))
}

func (c *call) history() error {
	q := reader{query: c.query}
	query := perdure.HistoryQuery{Limit: q.limit(), Cursor: q.cursor()}
	if q.err != nil {
		return q.err
	}
	var err error
	if query.Job, err = c.path("id"); err != nil {
		return err
	}
	page, err := c.Service.History(c.ctx(), query)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, pageOf(page, utcEntry))
}
