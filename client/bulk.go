package client

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// PreviewBulk implements operate.Bulk.
func (c *Client) PreviewBulk(ctx context.Context, r operate.BulkRequest) (*operate.BulkPreview, error) {
	req, err := bulkRequest(&r)
	if err != nil {
		return nil, err
	}
	req.query, req.repeatable = url.Values{"dryRun": {"true"}}, true
	var p struct {
		Count     *perdure.Count       `json:"count"`
		Samples   []perdure.JobView    `json:"samples"`
		Refused   map[perdure.Code]int `json:"refused"`
		Unchanged int                  `json:"unchanged"`
	}
	if _, err := c.ask(ctx, req, &p); err != nil {
		return nil, err
	}
	if p.Count == nil {
		return nil, perdure.Refuse(perdure.CodeUnavailable, "%s did not answer with a preview: it may have started the bulk act", c.at().shown)
	}
	return &operate.BulkPreview{Count: *p.Count, Samples: p.Samples, Refused: p.Refused, Unchanged: p.Unchanged}, nil
}

// StartBulk implements operate.Bulk. If the request has no key, it draws one, so that it can repeat the call without
// starting a second bulk act if the answer is lost.
func (c *Client) StartBulk(ctx context.Context, r operate.BulkRequest) (*operate.BulkView, error) {
	if r.Key == "" {
		r.Key = rand.Text()
	}
	req, err := bulkRequest(&r)
	if err != nil {
		return nil, err
	}
	req.repeatable = true
	return c.bulk(ctx, req)
}

func bulkRequest(r *operate.BulkRequest) (*request, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	body, err := encode(r)
	if err != nil {
		return nil, err
	}
	return &request{method: http.MethodPost, path: "/v1/bulk", body: body, author: r.Author}, nil
}

func (c *Client) bulk(ctx context.Context, req *request) (*operate.BulkView, error) {
	v := new(operate.BulkView)
	if _, err := c.ask(ctx, req, v); err != nil {
		return nil, err
	}
	return v, nil
}

// ListBulks implements operate.Bulk.
func (c *Client) ListBulks(ctx context.Context, q operate.BulkQuery) (*perdure.Page[operate.BulkView], error) {
	query := url.Values{}
	set(query, "state", string(q.State))
	setPage(query, q.Limit, q.Cursor)
	page := new(perdure.Page[operate.BulkView])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/bulk", query: query}, page)
	return page, err
}

func bulkPath(id string) string { return "/v1/bulk/" + segment(id) }

// GetBulk implements operate.Bulk.
func (c *Client) GetBulk(ctx context.Context, id string) (*operate.BulkView, error) {
	return c.bulk(ctx, &request{method: http.MethodGet, path: bulkPath(id)})
}

// BulkRefusals implements operate.Bulk.
func (c *Client) BulkRefusals(ctx context.Context, q operate.BulkRefusalQuery) (*perdure.Page[operate.BulkRefusal], error) {
	query := url.Values{}
	setPage(query, q.Limit, q.Cursor)
	page := new(perdure.Page[operate.BulkRefusal])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: bulkPath(q.ID) + "/refusals", query: query}, page)
	return page, err
}

// StopBulk implements operate.Bulk. It may be repeated: a bulk act that is stopped already stays as it is.
func (c *Client) StopBulk(ctx context.Context, id, author string) (*operate.BulkView, error) {
	return c.bulk(ctx, &request{method: http.MethodPost, path: bulkPath(id) + "/stop", author: author, repeatable: true})
}

// ResumeBulk implements operate.Bulk. It may be repeated, too.
func (c *Client) ResumeBulk(ctx context.Context, id, author string) (*operate.BulkView, error) {
	return c.bulk(ctx, &request{method: http.MethodPost, path: bulkPath(id) + "/resume", author: author, repeatable: true})
}
