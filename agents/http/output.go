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

// output is what an answer leaves for the steps that come after.
func output(resp *http.Response) (json.RawMessage, error) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, MaxBody+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > MaxBody {
		return nil, tooLarge()
	}
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

// bodyOf is JSON where the answer says so or is an object or a list, whatever it calls itself (many
// servers send those as text/plain); a string otherwise.
func bodyOf(raw []byte, contentType string) any {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 {
		return nil
	}
	if c := trimmed[0]; c == '{' || c == '[' || isJSON(contentType) {
		// Valid up to a byte that no text column takes, or nested too deep: then it stays a string.
		// One level is ours.
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

// excerpt is the begin of an answer that was not hoped for, for people to read. What it means is known
// already, so that a body which drips (F053) is not waited for. The rest is read too, up to a bound,
// so that the connection can be used again.
func (x *exchange) excerpt(body io.Reader) string {
	defer time.AfterFunc(excerptTime, x.stop).Stop()
	head, _ := io.ReadAll(io.LimitReader(body, excerptBytes))
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	if s := strings.TrimSpace(with.Plain(string(head))); s != "" {
		return ": " + s
	}
	return ""
}
