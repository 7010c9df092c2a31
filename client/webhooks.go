package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func webhookPath(name string) string { return "/v1/webhooks/" + segment(name) }

func (c *Client) webhook(ctx context.Context, req *request) (*operate.WebhookView, error) {
	v := new(operate.WebhookView)
	if _, err := c.ask(ctx, req, v); err != nil {
		return nil, err
	}
	return v, nil
}

// ListWebhooks implements operate.Webhooks.
func (c *Client) ListWebhooks(ctx context.Context) ([]operate.WebhookView, error) {
	var out items[operate.WebhookView]
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/webhooks"}, &out)
	return out.Items, err
}

// GetWebhook implements operate.Webhooks.
func (c *Client) GetWebhook(ctx context.Context, name string) (*operate.WebhookView, error) {
	return c.webhook(ctx, &request{method: http.MethodGet, path: webhookPath(name)})
}

// CreateWebhook implements operate.Webhooks. It is not repeated if the answer is lost, because only that has the secret.
func (c *Client) CreateWebhook(ctx context.Context, r operate.WebhookRequest) (*operate.WebhookView, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	body, err := encode(&r)
	if err != nil {
		return nil, err
	}
	return c.webhook(ctx, &request{method: http.MethodPost, path: "/v1/webhooks", body: body, author: r.Author})
}

// SetWebhook implements operate.Webhooks.
func (c *Client) SetWebhook(ctx context.Context, r operate.WebhookRequest) (*operate.WebhookView, bool, error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	body, err := encode(&r.WebhookSettings)
	if err != nil {
		return nil, false, err
	}
	v := new(operate.WebhookView)
	status, err := c.ask(ctx, &request{method: http.MethodPut, path: webhookPath(r.Name), body: body, author: r.Author}, v)
	if err != nil {
		return nil, false, err
	}
	return v, status == http.StatusCreated, nil
}

// DeleteWebhook implements operate.Webhooks.
func (c *Client) DeleteWebhook(ctx context.Context, name, author string) error {
	_, err := c.ask(ctx, &request{method: http.MethodDelete, path: webhookPath(name), author: author}, nil)
	return err
}

// PauseWebhook implements operate.Webhooks.
func (c *Client) PauseWebhook(ctx context.Context, name, author string) (*operate.WebhookView, error) {
	return c.webhook(ctx, &request{method: http.MethodPost, path: webhookPath(name) + "/pause", author: author, repeatable: true})
}

// ResumeWebhook implements operate.Webhooks.
func (c *Client) ResumeWebhook(ctx context.Context, name, author string) (*operate.WebhookView, error) {
	return c.webhook(ctx, &request{method: http.MethodPost, path: webhookPath(name) + "/resume", author: author, repeatable: true})
}

// RotateWebhook implements operate.Webhooks. It is not repeated if the answer is lost: a second rotation would forget the
// secret that is in use.
func (c *Client) RotateWebhook(ctx context.Context, name, author string) (*operate.WebhookView, error) {
	return c.webhook(ctx, &request{method: http.MethodPost, path: webhookPath(name) + "/rotate", author: author})
}

// TestWebhook implements operate.Webhooks.
func (c *Client) TestWebhook(ctx context.Context, name, author string) (string, error) {
	var out struct{ ID string }
	_, err := c.ask(ctx, &request{method: http.MethodPost, path: webhookPath(name) + "/test", author: author}, &out)
	return out.ID, err
}

// ResendWebhook implements operate.Webhooks.
func (c *Client) ResendWebhook(ctx context.Context, r operate.WebhookResend) (int, error) {
	body, err := json.Marshal(map[string]string{"since": r.Since.Format(time.RFC3339Nano)})
	if err != nil {
		return 0, err
	}
	var out struct{ Resent int }
	_, err = c.ask(ctx, &request{method: http.MethodPost, path: webhookPath(r.Name) + "/resend", body: body, author: r.Author, repeatable: true}, &out)
	return out.Resent, err
}

// ListDeliveries implements operate.Webhooks.
func (c *Client) ListDeliveries(ctx context.Context, q operate.DeliveryQuery) (*perdure.Page[operate.Delivery], error) {
	query := url.Values{}
	set(query, "state", string(q.State))
	setPage(query, q.Limit, q.Cursor)
	page := new(perdure.Page[operate.Delivery])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: webhookPath(q.Name) + "/deliveries", query: query}, page)
	return page, err
}

// FollowEvents implements operate.Webhooks over server-sent events. If a stream breaks, FollowEvents opens another one,
// which goes on after the last event. If the server cannot be reached for too long (see Patience), it returns an error.
func (c *Client) FollowEvents(ctx context.Context, receiver string, after int64, see func(*operate.EventPage) error) error {
	var lost outage
	for {
		req := &request{method: http.MethodGet, path: "/v1/events", query: url.Values{"receiver": {receiver}}, events: true}
		if after >= 0 {
			req.lastEvent = strconv.FormatInt(after, 10)
		}
		err := c.stream(ctx, req, func(e *event) (last bool, err error) {
			lost = outage{}
			switch e.name {
			case "gap":
				return false, see(&operate.EventPage{Gap: true})
			case "event":
				position, err := strconv.ParseInt(e.id, 10, 64)
				if err != nil {
					return false, perdure.Refuse(perdure.CodeUnavailable, "an event has no position")
				}
				if err := see(&operate.EventPage{Events: []operate.Event{{Position: position, Body: e.data}}}); err != nil {
					return false, err
				}
				after = position
			case "problem":
				_, err := deliver(e.name, e.data, nil)
				return false, err
			}
			return false, nil
		})
		gone := awayIn(err)
		if gone == nil {
			return err
		}
		again, err := lost.pause(gone, c.patience)
		if err != nil {
			return err
		}
		if err := sleep(ctx, again); err != nil {
			return err
		}
	}
}
