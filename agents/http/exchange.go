package http

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/redact"
	"github.com/perdure/perdure/internal/retryafter"
	"github.com/perdure/perdure/internal/secret"
	"github.com/perdure/perdure/internal/targets"
)

// exchange is one request and its answer.
type exchange struct {
	in      *Input
	run     *perdure.Run
	secrets *secret.Redactor
	stop    func()      // ends the context of the request
	sent    atomic.Bool // a connection was established, so the request may have had an effect
}

// request builds the request.
func (x *exchange) request(ctx context.Context) (*http.Request, error) {
	body, contentType, err := x.in.payload()
	if err != nil {
		return nil, err
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { x.sent.Store(true) },
	})
	ctx = context.WithValue(ctx, exchangeKey{}, x)
	req, err := http.NewRequestWithContext(ctx, x.in.Method, x.in.target.String(), body)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	x.setDefaults(req.Header)
	for name, v := range x.in.Headers {
		if len(v) == 0 {
			leaveOut(req.Header, name)
			continue
		}
		req.Header.Del(name)
		for _, s := range v {
			req.Header.Add(name, s)
		}
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	hideKey(req.Header)
	identify(ctx, req.Header, x.run)
	return req, nil
}

// identify sets the headers that identify the run.
func identify(ctx context.Context, h http.Header, run *perdure.Run) {
	h.Set("Perdure-Job", run.Job.String())
	h.Set("Perdure-Step", run.Step)
	h.Set("Perdure-Run", strconv.FormatInt(run.Number, 10))
	h.Set("Perdure-Direction", run.Direction.String())
	if run.DoKey != "" {
		h.Set("Perdure-Do-Key", run.DoKey)
	}
	if deadline, ok := ctx.Deadline(); ok {
		h.Set("Perdure-Remaining-Ms", strconv.FormatInt(max(time.Until(deadline).Milliseconds(), 0), 10))
	}
}

// payload returns the body as it is sent, and its content type if the input names none.
func (in *Input) payload() (io.Reader, string, error) {
	if in.Body == nil {
		return nil, "", nil
	}
	if in.Body[0] == '"' {
		var s string
		if err := json.Unmarshal(in.Body, &s); err != nil {
			return nil, "", fmt.Errorf("body: %w", err)
		}
		return strings.NewReader(s), "text/plain; charset=utf-8", nil
	}
	return bytes.NewReader(in.Body), "application/json", nil
}

// do sends the request and returns the result of the run. failing means that the host is in trouble, for the circuit
// breaker.
func (x *exchange) do(client *http.Client, req *http.Request) (out json.RawMessage, failing health, err error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, x.healthOf(err), x.failure(req.Context(), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols { // then the body is the connection, whose reading the context does not end
		resp.Body.Close()
		resp.Body = http.NoBody
	}
	failing = healthy
	if resp.StatusCode >= 500 {
		failing = unhealthy
	}
	outcome := x.in.Expect.of(resp.StatusCode, x.run.Direction)
	if outcome == perdure.OutcomeDone {
		out, err = x.output(resp)
		if err != nil && !errors.Is(err, errTooLarge) {
			return nil, x.healthOf(err), x.failure(req.Context(), err)
		}
		return out, failing, err
	}
	err = fmt.Errorf("%s%s", status{resp.StatusCode, resp.StatusCode, false}.text(), x.excerpt(resp.Body))
	code := "http_" + strconv.Itoa(resp.StatusCode)
	if outcome == perdure.OutcomeRejected {
		return nil, failing, perdure.Rejected(err, code)
	}
	err = perdure.Failed(err, code)
	if after := retryafter.Of(resp.Header, time.Now(), perdure.MaxRetryAfter); after > 0 {
		err = perdure.RetryAfter(after, err)
	}
	return nil, failing, err
}

func (s status) text() string {
	return strings.TrimSpace(strconv.Itoa(s.from) + " " + http.StatusText(s.from))
}

// failure returns the error of a request without an answer.
func (x *exchange) failure(ctx context.Context, err error) error {
	var forbidden *targets.ForbiddenError
	var verification *tls.CertificateVerificationError
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = redact.Error(u.Err) // url.Error repeats the URL; the error that it wraps may contain that of a proxy or a redirect
	}
	err = x.withoutSecretHost(err)
	switch {
	case !x.sent.Load() && lacksDescriptor(err):
		return perdure.Returned(err)
	case errors.As(err, &forbidden):
		err = perdure.Rejected(forbidden, "forbiddenTarget")
	case errors.Is(err, errScheme):
		err = perdure.Rejected(err, "redirect")
	case ctx.Err() != nil || isTimeout(err) && x.sent.Load():
		err = perdure.Failed(fmt.Errorf("no answer in time: %w", err), "timeout")
	case errors.As(err, &verification):
		err = perdure.Failed(err, "tls")
	case !x.sent.Load():
		err = perdure.Failed(err, "connect")
	default:
		err = perdure.Failed(err, "disconnected")
	}
	if !x.sent.Load() {
		err = perdure.NoEffect(err)
	}
	return err
}

// withoutSecretHost returns an error that does not name the host of the request, if the host is in a secret.
func (x *exchange) withoutSecretHost(err error) error {
	u, parseErr := url.Parse(x.in.URL)
	if parseErr != nil || u.Hostname() == "" || strings.Contains(x.secrets.Text(x.in.URL), u.Hostname()) {
		return err
	}
	return &hiddenHost{err, u.Hostname()}
}

type hiddenHost struct {
	error
	host string
}

func (e *hiddenHost) Error() string {
	return strings.ReplaceAll(e.error.Error(), e.host, "[host of a secret]")
}
func (e *hiddenHost) Unwrap() error { return e.error }

// healthOf returns what a request without an answer shows about the host. A timeout does not show that the host is in
// trouble, because the step sets the time.
func (x *exchange) healthOf(err error) health {
	var forbidden *targets.ForbiddenError
	switch {
	case errors.As(err, &forbidden), errors.Is(err, errScheme), errors.Is(err, context.Canceled), lacksDescriptor(err):
		return unknownHealth
	case x.sent.Load() && isTimeout(err):
		return unknownHealth
	}
	return unhealthy
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// shown returns the URL of the request without the parts that may be secret: user, password and query. A secret in it is
// replaced before these parts are left out, because a part of a secret is not recognized.
func (x *exchange) shown(u *url.URL) string {
	text := x.secrets.Text(x.in.URL)
	if text == x.in.URL {
		return u.Scheme + "://" + u.Host + u.EscapedPath()
	}
	if i := strings.IndexAny(text, "?#"); i >= 0 {
		text = text[:i]
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + rest[strings.LastIndexByte(host, '@')+1:]
}

// quietKey is Idempotency-Key in a case that net/http does not know. Under its canonical name the transport
// repeats a request by itself when a reused connection breaks, and one run must not be two requests.
const quietKey = "idempotency-key"

// setDefaults sets the headers that a request has unless the step's headers replace them. Content-Type depends on the
// body, and is set by request.
func (x *exchange) setDefaults(h http.Header) {
	h.Set("User-Agent", "perdure")
	h.Set("Idempotency-Key", x.run.Key)
	if x.run.Traceparent != "" {
		h.Set("Traceparent", x.run.Traceparent)
	}
}

// leaveOut removes a default header, because the step's headers have null for it.
func leaveOut(h http.Header, name string) {
	h.Del(name)
	switch http.CanonicalHeaderKey(name) {
	case "User-Agent":
		h.Set("User-Agent", "") // without it net/http would send its own
	case "Accept-Encoding":
		h.Set("Accept-Encoding", "identity") // net/http would ask for gzip; identity means the same as no header
	}
}

// hideKey renames Idempotency-Key to quietKey.
func hideKey(h http.Header) {
	key := h.Values("Idempotency-Key")
	h.Del("Idempotency-Key")
	if len(key) > 0 {
		h[quietKey] = key
	}
}
