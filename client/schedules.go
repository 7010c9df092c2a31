package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func schedulePath(name string) string { return "/v1/schedules/" + segment(name) }

func (c *Client) schedule(ctx context.Context, req *request) (*operate.ScheduleView, error) {
	v := new(operate.ScheduleView)
	if _, err := c.ask(ctx, req, v); err != nil {
		return nil, err
	}
	return v, nil
}

// PutSchedule implements operate.Schedules.
func (c *Client) PutSchedule(ctx context.Context, r operate.ScheduleRequest) (*operate.ScheduleView, bool, error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	body, err := encode(&r.ScheduleSettings)
	if err != nil {
		return nil, false, err
	}
	v, query := new(operate.ScheduleView), url.Values{}
	if r.DryRun {
		query.Set("dryRun", "true")
	}
	status, err := c.ask(ctx, &request{method: http.MethodPut, path: schedulePath(r.Name), query: query, body: body, author: r.Author, repeatable: true}, v)
	if err != nil {
		return nil, false, err
	}
	return v, status == http.StatusCreated, nil
}

// GetSchedule implements operate.Schedules.
func (c *Client) GetSchedule(ctx context.Context, name string) (*operate.ScheduleView, error) {
	return c.schedule(ctx, &request{method: http.MethodGet, path: schedulePath(name)})
}

// ListSchedules implements operate.Schedules.
func (c *Client) ListSchedules(ctx context.Context, q operate.ScheduleQuery) (*perdure.Page[operate.ScheduleView], error) {
	query := url.Values{}
	set(query, "state", string(q.State))
	setPage(query, q.Limit, q.Cursor)
	page := new(perdure.Page[operate.ScheduleView])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/schedules", query: query}, page)
	return page, err
}

// DeleteSchedule implements operate.Schedules.
func (c *Client) DeleteSchedule(ctx context.Context, name, author string) error {
	_, err := c.ask(ctx, &request{method: http.MethodDelete, path: schedulePath(name), author: author}, nil)
	return err
}

// PauseSchedule implements operate.Schedules.
func (c *Client) PauseSchedule(ctx context.Context, p operate.SchedulePause) (*operate.ScheduleView, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	body, err := encode(&p)
	if err != nil {
		return nil, err
	}
	return c.schedule(ctx, &request{method: http.MethodPost, path: schedulePath(p.Name) + "/pause", body: body, author: p.Author, repeatable: true})
}

// ResumeSchedule implements operate.Schedules.
func (c *Client) ResumeSchedule(ctx context.Context, r operate.ScheduleResume) (*operate.ScheduleView, error) {
	body, err := encode(&r)
	if err != nil {
		return nil, err
	}
	return c.schedule(ctx, &request{method: http.MethodPost, path: schedulePath(r.Name) + "/resume", body: body, author: r.Author, repeatable: true})
}

// TriggerSchedule implements operate.Schedules. Without a time it is not repeated if the answer is lost: a second call would
// submit another job.
func (c *Client) TriggerSchedule(ctx context.Context, r operate.ScheduleTrigger) (*operate.ScheduleFired, error) {
	body, err := encode(&r)
	if err != nil {
		return nil, err
	}
	out := new(operate.ScheduleFired)
	if _, err := c.ask(ctx, &request{method: http.MethodPost, path: schedulePath(r.Name) + "/trigger", body: body, author: r.Author, repeatable: !r.At.IsZero()}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// BackfillSchedule implements operate.Schedules. It is repeated only if it is a dry run.
func (c *Client) BackfillSchedule(ctx context.Context, r operate.ScheduleBackfill) (*operate.BackfillView, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	body, err := encode(&r)
	if err != nil {
		return nil, err
	}
	out := new(operate.BackfillView)
	if _, err := c.ask(ctx, &request{method: http.MethodPost, path: schedulePath(r.Name) + "/backfill", body: body, author: r.Author, repeatable: r.DryRun}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// NextTimes implements operate.Schedules.
func (c *Client) NextTimes(ctx context.Context, name string, n int) ([]time.Time, error) {
	query := url.Values{}
	if n != 0 {
		query.Set("n", strconv.Itoa(n))
	}
	var out items[time.Time]
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: schedulePath(name) + "/next", query: query}, &out)
	return out.Items, err
}

// ListFirings implements operate.Schedules.
func (c *Client) ListFirings(ctx context.Context, q operate.FiringQuery) (*perdure.Page[operate.Firing], error) {
	query := url.Values{}
	setPage(query, q.Limit, q.Cursor)
	page := new(perdure.Page[operate.Firing])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: schedulePath(q.Name) + "/firings", query: query}, page)
	return page, err
}
