// Package client calls a Perdure server over its REST API. It needs the standard library alone, so that a program that
// carries an agent stays small.
//
//	c, err := client.New("http://127.0.0.1:7420", client.Author("anna"))
//	job, created, err := c.Submit(ctx, body, "application/yaml")
//
// New takes the URLs of several nodes of one grid, divided by commas. Calls go to the first of them. If that cannot be
// reached, does not answer or answers 503, calls go to the next one, and stay there until that fails, too.
//
// A Client is a perdure.Service and a protocol.Server: what is written for a node works with a Client too. Its methods
// submit jobs, read them and act on them. Serve carries agents: it claims runs at the server and executes them in this
// process.
//
// If the server refuses a call, the error is the *perdure.Error that the server answered. Other errors are these:
//
//   - The server cannot be reached, or does not answer: *perdure.Error with perdure.CodeUnavailable. A call that reads is
//     tried three times. A call that waits for a job or follows it is continued for a minute (see Patience). A call that
//     changes something is not repeated, because the server may have carried it out; Submit with a key, and an act, are
//     safe to repeat. If there are several servers, and no connection to one of them can be made, each call goes to the
//     next one at once.
//   - The server is too busy (429): nothing of the call was carried out. It is repeated for a minute (see BusyPatience),
//     after the time that the server asks for and a random pause. SubmitAll is repeated only if all of its jobs were
//     refused; if some were accepted, each job has its own answer.
//   - The caller's context ends: the error of the context.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/redact"
	"github.com/perdure/perdure/internal/tlsfiles"
	"github.com/perdure/perdure/internal/traceid"
	"github.com/perdure/perdure/protocol"
)

// How long a server may take to accept a connection, to answer (in addition to the time that it was asked to wait), and
// to send anything on a stream, where it sends a comment every 15 seconds.
const (
	connectTimeout = 5 * time.Second
	answerTimeout  = 30 * time.Second
	silentTimeout  = 50 * time.Second
	idleConns      = 64 // claims, reports and heartbeats of many agents are in progress at the same time
)

// Client calls a server, or several nodes of one grid. It may be used by many goroutines.
type Client struct {
	servers      []server
	current      atomic.Int32 // index of the server that is called
	http         *http.Client
	author       string
	token        func() (string, error)
	files        tlsfiles.ClientConfig
	patience     time.Duration
	busyPatience time.Duration
	onBusy       func(error, time.Duration)
}

var _ protocol.Server = (*Client)(nil)

// Option is a setting of a Client.
type Option func(*Client)

// Author sets the author of acts that do not name one. The history of a job shows it.
func Author(name string) Option { return func(c *Client) { c.author = name } }

// Token sets the token of each call (perdure tokens create). It is sent only to the servers that New was given: redirects
// are not followed.
func Token(token string) Option {
	return func(c *Client) { c.token = func() (string, error) { return token, nil } }
}

// TokenFile reads the token of each call from a file, so that a token that is replaced there takes effect at once. Space
// around the token is ignored.
func TokenFile(path string) Option {
	return func(c *Client) { c.token = func() (string, error) { return readToken(path) } }
}

// ServerCA sets a PEM file with the authorities of the server's certificate, in place of those of the system.
func ServerCA(path string) Option { return func(c *Client) { c.files.CA = path } }

// Certificate sets the PEM files with this client's own certificate and private key, for a server that requires client
// certificates. They are read again for each connection, so that a renewed certificate takes effect.
func Certificate(cert, key string) Option {
	return func(c *Client) { c.files.Cert, c.files.Key = cert, key }
}

// HTTPClient sets the http.Client that sends the requests. Its Timeout must be 0: it would cut off calls that wait. It
// has its own TLS settings, so that ServerCA and Certificate are refused with it.
func HTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// Patience sets for how long a call that waits for a job, or follows it, continues while the server cannot be reached.
// Without this option it is a minute. With 0, the first failure is returned.
func Patience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// BusyPatience sets for how long a call is repeated that the server refuses because it is too busy (429). Without this
// option it is a minute. With 0, the call is not repeated.
func BusyPatience(d time.Duration) Option { return func(c *Client) { c.busyPatience = d } }

// OnBusy sets a function that is called before a call is repeated because the server is too busy, with the server's
// answer and the pause until the call is repeated.
func OnBusy(f func(reason error, again time.Duration)) Option {
	return func(c *Client) { c.onBusy = f }
}

// New returns a Client of the server at baseURL, such as http://127.0.0.1:7420, or of several nodes of one grid:
// http://a:7420,http://b:7420. It does not connect yet.
func New(baseURL string, options ...Option) (*Client, error) {
	servers, err := readServers(baseURL)
	if err != nil {
		return nil, err
	}
	c := &Client{servers: servers, patience: longestOutage, busyPatience: longestOutage, onBusy: func(error, time.Duration) {}}
	for _, set := range options {
		set(c)
	}
	files, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	if c.http == nil {
		c.http = &http.Client{Transport: transport(files), CheckRedirect: noRedirect}
	}
	return c, nil
}

// tlsConfig reads the files of ServerCA and Certificate; nil if there are none.
func (c *Client) tlsConfig() (*tls.Config, error) {
	if c.files == (tlsfiles.ClientConfig{}) {
		return nil, nil
	}
	refuse := func(hint, format string, args ...any) (*tls.Config, error) {
		e := perdure.Refuse(perdure.CodeInvalid, format, args...)
		e.Hint = hint
		return nil, e
	}
	open := slices.IndexFunc(c.servers, func(s server) bool { return !s.encrypted() })
	switch {
	case c.http != nil:
		return refuse("set Transport.TLSClientConfig of the http.Client", "HTTPClient excludes ServerCA and Certificate")
	case open >= 0:
		return refuse("https://HOST:PORT", "certificates are set, but %s is not encrypted", c.servers[open].shown)
	case (c.files.Cert == "") != (c.files.Key == ""):
		return refuse("give both", "a client certificate and its private key belong together")
	}
	files, err := tlsfiles.NewClient(c.files)
	var unread *fs.PathError
	switch {
	case errors.As(err, &unread):
		return refuse("", "%v", err)
	case err != nil:
		return refuse("the files must be in PEM form", "%v", err)
	}
	return files, nil
}

func transport(files *tls.Config) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}).DialContext
	t.TLSHandshakeTimeout = connectTimeout
	t.TLSClientConfig = files
	t.DisableCompression = true // between programs, compressing costs more than it saves
	t.MaxIdleConns, t.MaxIdleConnsPerHost = idleConns, idleConns
	return t
}

// noRedirect prevents redirects: a redirected POST may arrive as a GET, or at another server.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// CloseIdleConnections closes the connections that are kept open for later calls. Calls in progress are not affected.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// request is one call of the server.
type request struct {
	method     string
	path       string // escaped
	query      url.Values
	body       []byte
	mediaType  string // of the body; "": JSON
	author     string
	key        string        // of a submission whose definition has no key
	wait       time.Duration // for how long the server is asked to wait
	ofAgent    bool          // the agent host repeats its calls itself
	signOfLife bool          // it is a sign of life, and may be repeated
	submits    bool          // it submits jobs, which belong to the caller's span
	seeOther   bool          // an answer 303 has a body that is read
	events     bool          // the answer is a stream of events
	lastEvent  string        // id of the event after which a stream goes on; "": none
	stream     io.ReadCloser // the body, in place of body
	length     int64         // of stream
	byteRange  string        // header Range
	// contentRange is the header Content-Range.
	contentRange string
	// repeatable marks a call that changes something, and can be repeated: carried out twice, it is the same.
	repeatable bool
}

// ask sends the request and reads the answer into out, unless that is nil. It repeats a request if the server is too busy,
// and one that only reads, or is repeatable, if the server cannot be reached. It does not repeat a request that has waited for its answer as
// long as it may.
func (c *Client) ask(ctx context.Context, req *request, out any) (status int, err error) {
	began := time.Now()
	for try := 1; ; try++ {
		status, err = c.once(ctx, req, out)
		gone := awayIn(err)
		if gone == nil {
			return status, err
		}
		wait := gone.retryAfter + spread(gone.retryAfter) + pause(try)
		code := perdure.CodeOf(err) // the 429 of a proxy does not say whether the call was carried out
		switch busy := (code == perdure.CodeBacklogFull || code == perdure.CodeTooManyRequests) && !req.ofAgent; {
		case busy:
			if time.Since(began)+wait > c.busyPatience {
				return status, gone.err
			}
			c.onBusy(gone.err, wait)
		case req.signOfLife && try < len(c.servers):
			wait = 0
		case req.method != http.MethodGet && !req.repeatable || try >= max(attempts, len(c.servers)) || gone.silent:
			return status, gone.err
		}
		if end, ok := ctx.Deadline(); ok && time.Now().Add(wait).After(end) {
			return status, gone.err // more helpful than the error of the context
		}
		if err := sleep(ctx, wait); err != nil {
			return status, err
		}
	}
}

// once is ask without repetition. Its error may be *away.
func (c *Client) once(ctx context.Context, req *request, out any) (status int, err error) {
	limit := c.limitOf(ctx, req)
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, at, err := c.send(timed, req)
	if err != nil {
		return 0, c.unreachable(ctx, at, err, limit)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && !(req.seeOther && resp.StatusCode == http.StatusSeeOther) {
		return resp.StatusCode, c.refused(at, resp)
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return resp.StatusCode, nil
	}
	if !isJSON(resp) {
		return resp.StatusCode, at.stranger(resp)
	}
	if err := read(resp, out); err != nil {
		return resp.StatusCode, c.unreachable(ctx, at, fmt.Errorf("the answer cannot be read: %w", err), limit)
	}
	return resp.StatusCode, nil
}

// maxAnswer is the most bytes of an answer, and of an event of a stream. Servers send fewer.
const maxAnswer = 128 << 20

// read reads an answer to its end, so that the connection can be reused. It stops reading an answer that is longer than
// maxAnswer.
func read(resp *http.Response, out any) error {
	var body bytes.Buffer
	body.Grow(int(min(max(resp.ContentLength, 0), 1<<20)) + bytes.MinRead)
	if n, err := body.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1)); err != nil {
		return err
	} else if n > maxAnswer {
		return tooLong()
	}
	return decode(body.Bytes(), out)
}

func tooLong() error {
	return perdure.Refuse(perdure.CodeTooLarge, "the server's answer is over %d bytes", maxAnswer)
}

const authorHeader = "Perdure-Author"

func (c *Client) sendTo(ctx context.Context, at *server, req *request) (*http.Response, error) {
	target := at.base + req.path
	if len(req.query) > 0 {
		target += "?" + req.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, req.method, target, bytes.NewReader(req.body))
	if err != nil {
		return nil, perdure.Refuse(perdure.CodeInvalid, "%s", redact.Text(cause(err).Error()))
	}
	if req.stream != nil {
		r.Body, r.ContentLength = req.stream, req.length
	}
	for name, value := range map[string]string{"Range": req.byteRange, "Content-Range": req.contentRange} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	if req.body != nil || req.stream != nil {
		r.Header.Set("Content-Type", orElse(req.mediaType, "application/json"))
	}
	if req.lastEvent != "" {
		r.Header.Set("Last-Event-ID", req.lastEvent)
	}
	if req.events {
		r.Header.Set("Accept", "text/event-stream")
	}
	if author := orElse(req.author, c.author); author != "" {
		if strings.ContainsFunc(author, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, perdure.Refuse(perdure.CodeInvalid, "author %q holds a character that cannot be printed", author)
		}
		r.Header.Set(authorHeader, author)
	}
	if req.key != "" {
		r.Header.Set("Idempotency-Key", req.key)
	}
	if req.submits {
		if parent := traceid.Of(ctx); parent != "" {
			r.Header.Set("Traceparent", parent)
		}
	}
	if c.token != nil {
		token, err := c.token()
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	crashpoint.Here(crashpoint.ClientSend)
	resp, err := c.http.Do(r)
	crashpoint.Here(crashpoint.ClientReceived)
	return resp, err
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// unreachable returns the error of a call that has no answer, as *away. If the caller's context has ended, it returns the
// error of the context. The next calls go to the next server.
func (c *Client) unreachable(ctx context.Context, at *server, err error, limit time.Duration) error {
	if ctx.Err() != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.leave(at)
		}
		return ctx.Err()
	}
	if perdure.CodeOf(err) != "" {
		return err
	}
	c.leave(at)
	if errors.Is(err, context.DeadlineExceeded) {
		e := perdure.Refuse(perdure.CodeUnavailable, "%s did not answer within %s", at.shown, limit)
		e.Hint = "a process accepts connections there: is the server stopped, overloaded, or cut off from its store?"
		return &away{err: e, silent: true}
	}
	e := perdure.Refuse(perdure.CodeUnavailable, "%s cannot be reached: %s", at.shown, redact.Text(cause(err).Error()))
	if none := (*noneReached)(nil); errors.As(err, &none) && len(none.failures) > 1 {
		e.Message = "none of the servers can be reached: " + strings.Join(none.failures, "; ")
	}
	e.Hint = at.hintFor(err)
	return &away{err: e}
}

// hintFor says how to mend what keeps a server from being reached.
func (s *server) hintFor(err error) string {
	var refused *net.OpError
	switch {
	case errors.As(err, &refused) && refused.Op == "remote error": // an alert of TLS
		return clientCertHint
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "is the certificate from an authority of your own? name it: --server-ca FILE, client.ServerCA"
	case errors.As(err, new(x509.HostnameError)), errors.As(err, new(x509.CertificateInvalidError)):
		return "the server needs another certificate, or has another name"
	case (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) && s.encrypted():
		return clientCertHint // the alert may be lost when the server closes the connection
	}
	return "is a server running there? perdure serve starts one"
}

const clientCertHint = "does the server require client certificates? --client-cert FILE and --client-key FILE, client.Certificate"

// cause removes the method and the URL, which net/http adds to an error and which the message has already.
func cause(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// segment escapes one part of a path. Dots are escaped too: a router would resolve "." and "..".
func segment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}

func number(n int) string { return strconv.Itoa(n) }

// encode returns v as JSON. Inputs and outputs keep their bytes: HTML characters are not escaped.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := encoder(&b).Encode(v); err != nil {
		return nil, unsendable(err)
	}
	return b.Bytes(), nil
}

func encoder(b *bytes.Buffer) *json.Encoder {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	return enc
}

func unsendable(err error) error {
	return perdure.Refuse(perdure.CodeInvalid, "cannot be sent: %v", err)
}
