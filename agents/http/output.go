package http

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agents/internal/with"
	"github.com/perdure/perdure/internal/plain"
)

var errTooLarge = errors.New("the body of the answer is too large")

func tooLarge() error {
	return perdure.Rejected(fmt.Errorf("%w: over %d bytes", errTooLarge, MaxBody), "bodyTooLarge")
}

// output returns the output of the step for an answer.
func (x *exchange) output(resp *http.Response) (json.RawMessage, error) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, MaxBody+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > MaxBody {
		return nil, tooLarge()
	}
	raw = x.secrets.JSON(raw) // the host does not recognize a secret that is itself JSON once it is a part of the output
	headers := make(map[string]string, len(resp.Header))
	for name, v := range resp.Header {
		headers[strings.ToLower(name)] = with.Plain(v[0])
	}
	out, err := json.Marshal(struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Body    any               `json:"body"`
	}{resp.StatusCode, headers, bodyOf(raw, resp.Header.Get("Content-Type"))})
	if err != nil {
		return nil, err
	}
	// Escaping makes some bodies larger than they came.
	if len(out) > perdure.MaxPayloadBytes {
		return nil, tooLarge()
	}
	return out, nil
}

// bodyOf returns a body as JSON if its content type says so, or if it is an object or a list whatever its content type
// (many servers send these as text/plain); otherwise as a string.
func bodyOf(raw []byte, contentType string) any {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 {
		return nil
	}
	if c := trimmed[0]; c == '{' || c == '[' || isJSON(contentType) {
		// A value that contains a byte which no text column accepts, or that is nested too deeply, stays a string. One
		// level of nesting is added by the output.
		if nested := append(append([]byte{'['}, trimmed...), ']'); plain.CheckJSON(nested) == nil && json.Valid(trimmed) {
			return json.RawMessage(trimmed)
		}
	}
	return with.Plain(string(raw))
}

func isJSON(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "application/json" || t == "text/json" || strings.HasSuffix(t, "+json"))
}

const (
	excerptBytes = 512
	excerptTime  = 2 * time.Second
)

// excerpt returns the beginning of an unexpected answer, for people to read. The outcome is known already, so it does
// not wait for a body that arrives slowly (F053). It reads the rest up to a bound, so that the connection can be reused.
func (x *exchange) excerpt(body io.Reader) string {
	defer time.AfterFunc(excerptTime, x.stop).Stop()
	head, _ := io.ReadAll(io.LimitReader(body, excerptBytes))
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	shown := x.secrets.Part(string(head), false, len(head) == excerptBytes)
	if s := strings.TrimSpace(with.Plain(shown)); s != "" {
		return ": " + s
	}
	return ""
}
