package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/traceid"
	"github.com/perdure/perdure/operate"
)

// WithTraceparent returns a context for submissions that belong to a span of the caller, in the form of the header
// traceparent of W3C Trace Context. The spans of the jobs have a link to it, if the server exports traces. In a handler
// that is not needed: the jobs that it submits belong to its run.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	return traceid.With(ctx, traceparent)
}

// Submit implements perdure.Jobs. If it fails with perdure.CodeUnavailable, the job may have been stored. If the
// definition has a key, it can be submitted again, and is then the same job.
func (c *Client) Submit(ctx context.Context, body []byte, mediaType string) (*perdure.JobView, bool, error) {
	return c.SubmitWithKey(ctx, body, mediaType, "")
}

// SubmitWithKey implements perdure.Jobs. The key travels in the header Idempotency-Key.
func (c *Client) SubmitWithKey(ctx context.Context, body []byte, mediaType, key string) (*perdure.JobView, bool, error) {
	if body == nil {
		body = []byte{}
	}
	if refusal := perdure.CheckKey(key); key != "" && refusal != nil {
		return nil, false, refusal
	}
	if strings.TrimSpace(key) != key { // HTTP removes space at the ends of a header
		return nil, false, perdure.Refuse(perdure.CodeInvalid, "a key that begins or ends with a space cannot be sent in a header: put it into the definition")
	}
	job := new(perdure.JobView)
	status, err := c.ask(ctx, &request{method: http.MethodPost, path: "/v1/jobs", body: body, mediaType: mediaType, key: key, submits: true}, job)
	if err != nil {
		return nil, false, err
	}
	return job, status == http.StatusCreated, nil
}

// Job implements perdure.Jobs. A server waits for at most five minutes, and less if it shuts down: Job asks again until
// wait is over. A server that cannot be reached is asked again for a while (see Patience).
func (c *Client) Job(ctx context.Context, ref string, wait time.Duration) (*perdure.JobView, error) {
	return c.JobPart(ctx, ref, wait, operate.AllSteps)
}

// JobPart implements operate.Service, as Job does.
func (c *Client) JobPart(ctx context.Context, ref string, wait time.Duration, steps operate.Steps) (*perdure.JobView, error) {
	if wait <= 0 {
		job := new(perdure.JobView)
		if _, err := c.ask(ctx, jobRequest(ref, 0, steps), job); err != nil {
			return nil, err
		}
		return job, nil
	}
	var lost outage
	for end := time.Now().Add(wait); ; {
		asked := time.Now()
		left := min(end.Sub(asked), perdure.MaxJobWait).Round(time.Millisecond)
		if lost.tries > 0 {
			left = 0 // do not wait: a proxy may have cut off the last wait, and would cut off the next
		}
		job := new(perdure.JobView)
		_, err := c.once(ctx, jobRequest(ref, left, steps), job)
		gone, over, again := awayIn(err), !time.Now().Before(end), firstPause-time.Since(asked)
		switch {
		case gone != nil && over:
			return nil, gone.err
		case gone != nil:
			again, err = lost.pause(gone, c.patience)
		case err == nil && (over || job.AtRest()):
			return job, nil
		default:
			lost = outage{}
		}
		if err != nil {
			return nil, err
		}
		if err := sleep(ctx, min(again, time.Until(end))); err != nil {
			return nil, err
		}
	}
}

// Definition implements perdure.Jobs.
func (c *Client) Definition(ctx context.Context, ref string) (json.RawMessage, error) {
	var definition json.RawMessage
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: jobPath(ref) + "/definition"}, &definition)
	return definition, err
}

// Output implements perdure.Jobs.
func (c *Client) Output(ctx context.Context, ref string) (json.RawMessage, error) {
	var output json.RawMessage
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: jobPath(ref) + "/output"}, &output)
	return output, err
}

// Graph implements operate.Service.
func (c *Client) Graph(ctx context.Context, ref string) (*operate.Graph, error) {
	var at struct{ Hash string }
	if _, err := c.ask(ctx, &request{method: http.MethodGet, path: jobPath(ref) + "/graph", seeOther: true}, &at); err != nil {
		return nil, err
	}
	return c.ShapeGraph(ctx, at.Hash)
}

// ShapeGraph implements operate.Service.
func (c *Client) ShapeGraph(ctx context.Context, hash string) (*operate.Graph, error) {
	g := new(operate.Graph)
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/shapes/" + segment(hash) + "/graph"}, g)
	return g, err
}

// Step implements perdure.Jobs.
func (c *Client) Step(ctx context.Context, ref, step string) (*perdure.StepDetail, error) {
	d := new(perdure.StepDetail)
	if _, err := c.ask(ctx, &request{method: http.MethodGet, path: stepPath(ref, step)}, d); err != nil {
		return nil, err
	}
	d.StepView.Name = d.Name
	return d, nil
}

func stepPath(ref, step string) string { return jobPath(ref) + "/steps/" + segment(step) }

func jobRequest(ref string, wait time.Duration, steps operate.Steps) *request {
	req := &request{method: http.MethodGet, path: jobPath(ref), query: url.Values{}}
	if wait > 0 {
		req.wait = wait
		req.query.Set("wait", wait.String())
	}
	if steps != operate.AllSteps {
		req.query.Set("steps", string(steps))
	}
	return req
}

func jobPath(ref string) string { return "/v1/jobs/" + segment(ref) }

// ListJobs implements perdure.Jobs.
func (c *Client) ListJobs(ctx context.Context, q perdure.JobQuery) (*perdure.Page[perdure.JobView], error) {
	page := new(perdure.Page[perdure.JobView])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: jobsPath, query: jobsQuery(&q)}, page)
	return page, err
}

const jobsPath = "/v1/jobs"

func jobsQuery(q *perdure.JobQuery) url.Values {
	query := url.Values{}
	for _, p := range q.Phases {
		query.Add("phase", p.String())
	}
	if q.Current != nil {
		query.Set("current", q.Current.String())
	}
	if q.Desired != nil {
		query.Set("desired", q.Desired.String())
	}
	for name, value := range map[string]string{"type": q.Type, "key": q.Key, "agent": q.Agent, "step": q.Step, "reason": string(q.Reason),
		"error": q.Error, "alert": string(q.Alert), "parent": q.Parent, "q": q.Search, "since": timeText(q.Since), "until": timeText(q.Until)} {
		set(query, name, value)
	}
	for k, v := range q.Labels {
		query.Add("label", k+"="+v)
	}
	if q.OldestFirst {
		query.Set("order", "oldest")
	}
	if q.WithCount {
		query.Set("count", "true")
	}
	if q.WithSummary {
		query.Set("with", "summary")
	}
	setPage(query, q.Limit, q.Cursor)
	return query
}

// timeText returns a time for a query; "" for the zero time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

func setPage(query url.Values, limit int, cursor string) {
	if limit != 0 {
		query.Set("limit", number(limit))
	}
	set(query, "cursor", cursor)
}

// items is a list that has no pages.
type items[T any] struct {
	Items []T `json:"items"`
}

// History implements perdure.Jobs.
func (c *Client) History(ctx context.Context, q perdure.HistoryQuery) (*perdure.Page[perdure.EntryView], error) {
	query := url.Values{}
	setPage(query, q.Limit, q.Cursor)
	page := new(perdure.Page[perdure.EntryView])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: jobPath(q.Job) + "/history", query: query}, page)
	return page, err
}

// Runs implements operate.Service.
func (c *Client) Runs(ctx context.Context, q operate.RunsQuery) (*perdure.Page[operate.RunRecord], error) {
	query := url.Values{}
	setPage(query, q.Limit, q.Cursor)
	page := new(perdure.Page[operate.RunRecord])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: jobPath(q.Job) + "/runs", query: query}, page)
	return page, err
}

// Act implements perdure.Jobs.
func (c *Client) Act(ctx context.Context, ref string, act perdure.Act) (*perdure.JobView, error) {
	req, err := actRequest(ref, &act)
	if err != nil {
		return nil, err
	}
	job := new(perdure.JobView)
	if _, err := c.ask(ctx, req, job); err != nil {
		return nil, err
	}
	return job, nil
}

func actRequest(ref string, act *perdure.Act) (*request, error) {
	if err := act.Check(); err != nil {
		return nil, err
	}
	body, err := encode(act)
	if err != nil {
		return nil, err
	}
	path := jobPath(ref)
	if act.Step != "" {
		path = stepPath(ref, act.Step)
	}
	return &request{method: http.MethodPost, path: path + "/" + segment(string(act.Verb)), body: body, author: act.Author}, nil
}

// Preview implements operate.Service.
func (c *Client) Preview(ctx context.Context, ref string, act perdure.Act) (*operate.Preview, error) {
	req, err := actRequest(ref, &act)
	if err != nil {
		return nil, err
	}
	req.query = url.Values{"dryRun": {"true"}}
	var p struct {
		Job     *perdure.JobView `json:"job"`
		Effects *operate.Effects `json:"effects"`
	}
	if _, err := c.ask(ctx, req, &p); err != nil {
		return nil, err
	}
	if p.Job == nil || p.Effects == nil {
		return nil, perdure.Refuse(perdure.CodeUnavailable, "%s did not answer with a preview: it may have performed the act", c.at().shown)
	}
	return &operate.Preview{Job: p.Job, Effects: *p.Effects}, nil
}

// Validate implements operate.Service.
func (c *Client) Validate(ctx context.Context, body []byte, mediaType string) (*operate.Validation, error) {
	if body == nil {
		body = []byte{}
	}
	v := new(operate.Validation)
	if _, err := c.ask(ctx, &request{method: http.MethodPost, path: "/v1/validate", body: body, mediaType: mediaType}, v); err != nil {
		return nil, err
	}
	return v, nil
}
