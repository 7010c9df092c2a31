package client

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/redact"
	"github.com/perdure/perdure/internal/retryafter"
)

// problem is a refusal as the server writes it (RFC 9457).
type problem struct {
	Status int                  `json:"status"`
	Title  string               `json:"title"`
	Detail string               `json:"detail"`
	Code   perdure.Code         `json:"code"`
	Hint   string               `json:"hint"`
	Errors []perdure.FieldError `json:"errors"`
}

const (
	maxProblem = 1 << 20
	maxPlain   = 1 << 10 // read of an answer that is not a problem
)

// refused returns the error that an answer with an error status has. It is *away if the server could not handle any call
// at the moment: unless it is only too busy, the next calls go to the next server.
func (c *Client) refused(at *server, resp *http.Response) error {
	var p problem
	var err error
	if !isJSON(resp) || json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(&p) != nil || p.Code == "" {
		err = at.stranger(resp)
	} else {
		err = p.err()
	}
	if resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusTooManyRequests {
		return err
	}
	err = passing(err, retryafter.Of(resp.Header, time.Now(), maxRetryAfter))
	if awayIn(err) != nil && resp.StatusCode != http.StatusTooManyRequests {
		c.leave(at)
	}
	return err
}

func (p *problem) err() error {
	e := &perdure.Error{Code: p.Code, Message: orElse(p.Detail, p.Title), Hint: p.Hint}
	if len(p.Errors) > 0 {
		e.Fields = p.Errors
	}
	return e
}

// stranger returns the error for an answer that no Perdure server gives: it comes from a proxy, or from another program
// that listens there.
func (s *server) stranger(resp *http.Response) error {
	e := perdure.Refuse(perdure.CodeUnavailable, "%s answered %s, which no Perdure server does", s.shown, resp.Status)
	e.Hint = "check the URL: a proxy or another program may listen there, or the API may be mounted below a path"
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode < 400 {
		e.Hint = fmt.Sprintf("it redirects to %s: use that URL", redact.URL(to))
	}
	if resp.StatusCode == http.StatusBadRequest && resp.TLS == nil { // as net/http and proxies answer what is not TLS
		if b, _ := io.ReadAll(io.LimitReader(resp.Body, maxPlain)); strings.Contains(strings.ToLower(string(b)), "https") {
			e.Hint = "the server expects HTTPS: write https:// in place of http://"
		}
	}
	return e
}

func isJSON(resp *http.Response) bool {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && (t == "application/json" || strings.HasSuffix(t, "+json"))
}
