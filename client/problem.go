package client

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/redact"
)

// problem is RFC 9457, as the server writes it.
type problem struct {
	Status int                  `json:"status"`
	Title  string               `json:"title"`
	Detail string               `json:"detail"`
	Code   perdure.Code         `json:"code"`
	Hint   string               `json:"hint"`
	Errors []perdure.FieldError `json:"errors"`
}

const maxProblem = 1 << 20

// refused turns an answer that is not what was asked for into the error that it was at the server; *away, if
// it was not for what was asked.
func (c *Client) refused(resp *http.Response) error {
	var p problem
	var err error
	if !isJSON(resp) || json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(&p) != nil || p.Code == "" {
		err = c.stranger(resp)
	} else {
		err = p.err()
	}
	if resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusTooManyRequests {
		return err
	}
	return passing(err, retryAfter(resp))
}

func (p *problem) err() error {
	e := &perdure.Error{Code: p.Code, Message: orElse(p.Detail, p.Title), Hint: p.Hint}
	if len(p.Errors) > 0 {
		e.Fields = p.Errors
	}
	return e
}

// stranger is for answers that no Perdure server gives: something stands between, or something else
// listens there.
func (c *Client) stranger(resp *http.Response) error {
	e := perdure.Refuse(perdure.CodeUnavailable, "%s answered %s, which is not Perdure's", c.shown, resp.Status)
	e.Hint = "is this the server's URL?"
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode < 400 {
		e.Hint = fmt.Sprintf("it points to %s: use that", redact.URL(to))
	}
	return e
}

func isJSON(resp *http.Response) bool {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && (t == "application/json" || strings.HasSuffix(t, "+json"))
}
