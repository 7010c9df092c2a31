package client

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// maxToken is the size of a token file above which it is not read: it must be another file.
const maxToken = 4 << 10

func readToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxToken {
		return "", perdure.Refuse(perdure.CodeInvalid, "the token file %s is larger than %d bytes", path, maxToken)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return "", perdure.Refuse(perdure.CodeInvalid, "the token cannot be read: %v", err)
	}
	return CheckToken(string(text), "the token file "+path)
}

// CheckToken returns a token without the space around it, or an error if the text cannot be a token. what names the text
// in the error, which does not repeat it.
func CheckToken(text, what string) (string, error) {
	token := strings.TrimSpace(text)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", perdure.Refuse(perdure.CodeInvalid, "%s has no token: a token is one word, such as pdr_…", what)
	}
	return token, nil
}

// Me returns the identity that the server sees in this client.
func (c *Client) Me(ctx context.Context) (*operate.Identity, error) {
	id := new(operate.Identity)
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/me"}, id)
	return id, err
}

const tokensPath = "/v1/tokens"

// CreateToken implements operate.Access. It is not repeated if the answer is lost: then a token may exist whose secret is
// not known.
func (c *Client) CreateToken(ctx context.Context, r operate.TokenRequest) (*operate.NewToken, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	body, err := encode(&r)
	if err != nil {
		return nil, err
	}
	return c.newToken(ctx, &request{method: http.MethodPost, path: tokensPath, body: body, author: r.Author})
}

// RotateToken implements operate.Access.
func (c *Client) RotateToken(ctx context.Context, id string, overlap time.Duration, author string) (*operate.NewToken, error) {
	body, err := encode(map[string]perdure.Duration{"overlap": perdure.Duration(overlap)})
	if err != nil {
		return nil, err
	}
	return c.newToken(ctx, &request{method: http.MethodPost, path: tokensPath + "/" + segment(id) + "/rotate", body: body, author: author})
}

func (c *Client) newToken(ctx context.Context, req *request) (*operate.NewToken, error) {
	t := new(operate.NewToken)
	_, err := c.ask(ctx, req, t)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// DeleteToken implements operate.Access.
func (c *Client) DeleteToken(ctx context.Context, id, author string) error {
	_, err := c.ask(ctx, &request{method: http.MethodDelete, path: tokensPath + "/" + segment(id), author: author}, nil)
	return err
}

// DeleteSession implements operate.Access.
func (c *Client) DeleteSession(ctx context.Context, id, author string) error {
	_, err := c.ask(ctx, &request{method: http.MethodDelete, path: "/v1/sessions/" + segment(id), author: author}, nil)
	return err
}

// ListTokens implements operate.Access.
func (c *Client) ListTokens(ctx context.Context, q operate.PageQuery) (*perdure.Page[operate.TokenView], error) {
	page := new(perdure.Page[operate.TokenView])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: tokensPath, query: pageOf(q)}, page)
	return page, err
}

// ListSessions implements operate.Access.
func (c *Client) ListSessions(ctx context.Context, q operate.PageQuery) (*perdure.Page[operate.SessionView], error) {
	page := new(perdure.Page[operate.SessionView])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/sessions", query: pageOf(q)}, page)
	return page, err
}

func pageOf(q operate.PageQuery) url.Values {
	query := url.Values{}
	setPage(query, q.Limit, q.Cursor)
	return query
}

// Audit implements operate.Access.
func (c *Client) Audit(ctx context.Context, q operate.AuditQuery) (*perdure.Page[operate.AuditEntry], error) {
	query := pageOf(operate.PageQuery{Limit: q.Limit, Cursor: q.Cursor})
	set(query, "author", q.Author)
	set(query, "act", q.Act)
	set(query, "job", q.Job)
	set(query, "since", timeText(q.Since))
	page := new(perdure.Page[operate.AuditEntry])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/audit", query: query}, page)
	return page, err
}
