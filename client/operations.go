package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// ListAlerts implements perdure.Operations.
func (c *Client) ListAlerts(ctx context.Context, q perdure.AlertQuery) (*perdure.Page[perdure.AlertView], error) {
	page := new(perdure.Page[perdure.AlertView])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: alertsPath, query: alertsQuery(&q)}, page)
	return page, err
}

const alertsPath = "/v1/alerts"

func alertsQuery(q *perdure.AlertQuery) url.Values {
	query := url.Values{}
	for name, value := range map[string]string{"job": q.Job, "kind": string(q.Kind), "type": q.Type, "step": q.Step, "code": q.Code} {
		set(query, name, value)
	}
	if q.Closed {
		query.Set("closed", "true")
	}
	setPage(query, q.Limit, q.Cursor)
	return query
}

// CloseAlert implements perdure.Operations.
func (c *Client) CloseAlert(ctx context.Context, id int64, by string) (*perdure.AlertView, error) {
	alert := new(perdure.AlertView)
	path := "/v1/alerts/" + strconv.FormatInt(id, 10) + "/close"
	if _, err := c.ask(ctx, &request{method: http.MethodPost, path: path, author: by}, alert); err != nil {
		return nil, err
	}
	return alert, nil
}

// ListLimits implements perdure.Operations.
func (c *Client) ListLimits(ctx context.Context) ([]perdure.LimitView, error) {
	var out items[perdure.LimitView]
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/limits"}, &out)
	return out.Items, err
}

// GetLimit implements perdure.Operations.
func (c *Client) GetLimit(ctx context.Context, name string) (*perdure.LimitView, error) {
	return c.limit(ctx, &request{method: http.MethodGet, path: limitPath(name)})
}

// LimitKeys implements operate.Service.
func (c *Client) LimitKeys(ctx context.Context, q operate.LimitKeyQuery) ([]operate.LimitKeyView, error) {
	query := url.Values{}
	set(query, "key", q.Key)
	setPage(query, q.Limit, "")
	var out items[operate.LimitKeyView]
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: limitPath(q.Name) + "/keys", query: query}, &out)
	return out.Items, err
}

// PutLimit implements perdure.Operations.
func (c *Client) PutLimit(ctx context.Context, name string, settings perdure.LimitSettings) (*perdure.LimitView, error) {
	body, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	return c.limit(ctx, &request{method: http.MethodPut, path: limitPath(name), body: body})
}

// DeleteLimit implements perdure.Operations.
func (c *Client) DeleteLimit(ctx context.Context, name string) error {
	_, err := c.ask(ctx, &request{method: http.MethodDelete, path: limitPath(name)}, nil)
	return err
}

func limitPath(name string) string { return "/v1/limits/" + segment(name) }

func (c *Client) limit(ctx context.Context, req *request) (*perdure.LimitView, error) {
	limit := new(perdure.LimitView)
	if _, err := c.ask(ctx, req, limit); err != nil {
		return nil, err
	}
	return limit, nil
}

// Stats implements operate.Service.
func (c *Client) Stats(ctx context.Context) (*operate.Stats, error) {
	s := new(operate.Stats)
	if _, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/stats"}, s); err != nil {
		return nil, err
	}
	return s, nil
}

// ListNodes implements perdure.Operations.
func (c *Client) ListNodes(ctx context.Context) ([]perdure.NodeView, error) {
	var out items[perdure.NodeView]
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/nodes"}, &out)
	return out.Items, err
}

// ListAgents implements perdure.Operations.
func (c *Client) ListAgents(ctx context.Context) ([]perdure.AgentView, error) {
	var out items[perdure.AgentView]
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/agents"}, &out)
	return out.Items, err
}

// GetAgent implements perdure.Operations.
func (c *Client) GetAgent(ctx context.Context, name string) (*perdure.AgentView, error) {
	return c.agent(ctx, &request{method: http.MethodGet, path: agentPath(name)})
}

// PutAgent implements perdure.Operations.
func (c *Client) PutAgent(ctx context.Context, name string, settings perdure.AgentSettings) (*perdure.AgentView, error) {
	body, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	return c.agent(ctx, &request{method: http.MethodPut, path: agentPath(name), body: body})
}

// DeleteAgent implements perdure.Operations.
func (c *Client) DeleteAgent(ctx context.Context, name string) error {
	_, err := c.ask(ctx, &request{method: http.MethodDelete, path: agentPath(name)}, nil)
	return err
}

func agentPath(name string) string { return "/v1/agents/" + segment(name) }

func (c *Client) agent(ctx context.Context, req *request) (*perdure.AgentView, error) {
	agent := new(perdure.AgentView)
	if _, err := c.ask(ctx, req, agent); err != nil {
		return nil, err
	}
	return agent, nil
}

// JobSchema returns the JSON Schema of a definition, for editors. The server answers it without its store, so that it also
// shows whether a Perdure server listens at a URL.
func (c *Client) JobSchema(ctx context.Context) (json.RawMessage, error) {
	var schema json.RawMessage
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/schema/job.json"}, &schema)
	return schema, err
}
