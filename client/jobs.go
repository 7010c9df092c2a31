package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"perdure"
)

// Submit implements perdure.Jobs. Whether an unanswered submission was stored is known only where the
// definition has a key: it may then be sent again.
func (c *Client) Submit(ctx context.Context, body []byte, mediaType string) (*perdure.JobView, bool, error) {
	if body == nil {
		body = []byte{}
	}
	job := new(perdure.JobView)
	status, err := c.ask(ctx, &request{method: http.MethodPost, path: "/v1/jobs", body: body, mediaType: mediaType}, job)
	if err != nil {
		return nil, false, err
	}
	return job, status == http.StatusCreated, nil
}

// Job implements perdure.Jobs. A server waits for five minutes at most and may end a wait early, when
// it shuts down: it is asked again for as long as there is time.
func (c *Client) Job(ctx context.Context, ref string, wait time.Duration) (*perdure.JobView, error) {
	begin := time.Now()
	for {
		asked := time.Now()
		left := min(wait-asked.Sub(begin), perdure.MaxJobWait).Round(time.Millisecond)
		job, err := c.jobOnce(ctx, ref, left)
		switch {
		case perdure.CodeOf(err) == perdure.CodeUnavailable && left > 0 && time.Since(begin) < wait:
			// The server went away while it kept us waiting. One that is back answers the next round.
			if job, err = c.jobOnce(ctx, ref, 0); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		}
		if job.AtRest() || time.Since(begin) >= wait {
			return job, nil
		}
		if time.Since(asked) < firstPause {
			if err := sleep(ctx, firstPause); err != nil {
				return nil, err
			}
		}
	}
}

func (c *Client) jobOnce(ctx context.Context, ref string, wait time.Duration) (*perdure.JobView, error) {
	req := &request{method: http.MethodGet, path: jobPath(ref)}
	if wait > 0 {
		req.wait, req.query = wait, url.Values{"wait": {wait.String()}}
	}
	job := new(perdure.JobView)
	_, err := c.ask(ctx, req, job)
	return job, err
}

func jobPath(ref string) string { return "/v1/jobs/" + segment(ref) }

// ListJobs implements perdure.Jobs.
func (c *Client) ListJobs(ctx context.Context, q perdure.JobQuery) (*perdure.Page[perdure.JobView], error) {
	query := url.Values{}
	if q.Phase != nil {
		query.Set("phase", q.Phase.String())
	}
	if q.Current != nil {
		query.Set("current", q.Current.String())
	}
	if q.Desired != nil {
		query.Set("desired", q.Desired.String())
	}
	set(query, "type", q.Type)
	set(query, "key", q.Key)
	for k, v := range q.Labels {
		query.Add("label", k+"="+v)
	}
	setPage(query, q.Limit, q.Cursor)
	page := new(perdure.Page[perdure.JobView])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/jobs", query: query}, page)
	return page, err
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

// items is how a list without pages is sent.
type items[T any] struct {
	Items []T `json:"items"`
}

// History implements perdure.Jobs.
func (c *Client) History(ctx context.Context, ref string) ([]perdure.EntryView, error) {
	var out items[perdure.EntryView]
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: jobPath(ref) + "/history"}, &out)
	return out.Items, err
}

// Act implements perdure.Jobs.
func (c *Client) Act(ctx context.Context, ref string, act perdure.Act) (*perdure.JobView, error) {
	body, err := encode(&act)
	if err != nil {
		return nil, err
	}
	path := jobPath(ref)
	if act.Step != "" {
		path += "/steps/" + segment(act.Step)
	}
	job := new(perdure.JobView)
	if _, err := c.ask(ctx, &request{method: http.MethodPost, path: path + "/" + segment(string(act.Verb)), body: body, author: act.Author}, job); err != nil {
		return nil, err
	}
	return job, nil
}
