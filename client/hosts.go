package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func hostPath(name string) string { return "/v1/hosts/" + segment(name) }

// RegisterHost implements operate.Hosts.
func (c *Client) RegisterHost(ctx context.Context, r operate.HostRequest) (*operate.HostRegistered, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	body, err := encode(&r)
	if err != nil {
		return nil, err
	}
	out := new(operate.HostRegistered)
	status, err := c.ask(ctx, &request{method: http.MethodPut, path: hostPath(r.Name), body: body, repeatable: true, signOfLife: true}, out)
	if err != nil {
		return nil, err
	}
	out.Created = status == http.StatusCreated
	return out, nil
}

// ListHosts implements operate.Hosts.
func (c *Client) ListHosts(ctx context.Context, q operate.HostQuery) (*perdure.Page[operate.HostView], error) {
	query := url.Values{}
	set(query, "grid", q.Grid)
	set(query, "state", string(q.State))
	set(query, "label", q.Label)
	setPage(query, q.Limit, q.Cursor)
	page := new(perdure.Page[operate.HostView])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/hosts", query: query}, page)
	return page, err
}

func (c *Client) host(ctx context.Context, req *request) (*operate.HostView, error) {
	v := new(operate.HostView)
	if _, err := c.ask(ctx, req, v); err != nil {
		return nil, err
	}
	return v, nil
}

// GetHost implements operate.Hosts.
func (c *Client) GetHost(ctx context.Context, name string) (*operate.HostView, error) {
	return c.host(ctx, &request{method: http.MethodGet, path: hostPath(name)})
}

// DrainHost implements operate.Hosts.
func (c *Client) DrainHost(ctx context.Context, d operate.HostDrain) (*operate.HostView, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]any{"deadline": perdure.Duration(d.Deadline), "reason": d.Reason})
	if err != nil {
		return nil, err
	}
	return c.host(ctx, &request{method: http.MethodPost, path: hostPath(d.Name) + "/drain", body: body, author: d.Author, repeatable: true})
}

// ReadyHost implements operate.Hosts.
func (c *Client) ReadyHost(ctx context.Context, name, author string) (*operate.HostView, error) {
	return c.host(ctx, &request{method: http.MethodPost, path: hostPath(name) + "/ready", author: author, repeatable: true})
}

// DeleteHost implements operate.Hosts.
func (c *Client) DeleteHost(ctx context.Context, name, author string) error {
	_, err := c.ask(ctx, &request{method: http.MethodDelete, path: hostPath(name), author: author}, nil)
	return err
}
