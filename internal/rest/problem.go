package rest

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Problem is the answer to a request that failed (RFC 9457). It has a stable code, and the place of each fault. Hint says
// how to mend it.
type Problem struct {
	Type   string               `json:"type" doc:"A URI that stands for the code"`
	Title  string               `json:"title" doc:"What the code means"`
	Status int                  `json:"status"`
	Detail string               `json:"detail" doc:"What is wrong with this request"`
	Code   perdure.Code         `json:"code" doc:"Stable name of the kind of problem"`
	Hint   string               `json:"hint,omitempty" doc:"How to mend it"`
	Errors []perdure.FieldError `json:"errors" doc:"Each fault with its place. Pointers are into the body; those of other parts of the request begin with /path, /query or /header"`

	retryAfter int // seconds; 0: none
}

// The codes of HTTP itself, beside those of package perdure.
const (
	codeInternal   perdure.Code = "internal"
	codeMethod     perdure.Code = "methodNotAllowed"
	codeMedia      perdure.Code = "unsupportedMediaType"
	codeTimeout    perdure.Code = "timeout"
	problemTypes                = "urn:perdure:problem:"
	problemType                 = "application/problem+json"
	retryShort                  = 1 // seconds, if the store or the node is not available
	retryBacklog                = 5
	statusGone                  = 499 // the client has disconnected; in logs and metrics only
	maxFieldErrors              = 100
)

var errInternal = errors.New("internal")

type kind struct {
	status int
	title  string
	retry  int
}

var kinds = map[perdure.Code]kind{
	perdure.CodeInvalid:         {http.StatusUnprocessableEntity, "Invalid", 0},
	perdure.CodeMalformed:       {http.StatusBadRequest, "Not readable", 0},
	perdure.CodeTooLarge:        {http.StatusRequestEntityTooLarge, "Too large", 0},
	perdure.CodeNotFound:        {http.StatusNotFound, "Not found", 0},
	perdure.CodeConflict:        {http.StatusConflict, "Conflict", 0},
	perdure.CodeBacklogFull:     {http.StatusTooManyRequests, "Backlog full", retryBacklog},
	perdure.CodeTooManyRequests: {http.StatusTooManyRequests, "Too many requests", retryShort},
	perdure.CodeUnauthenticated: {http.StatusUnauthorized, "Not identified", 0},
	perdure.CodeForbidden:       {http.StatusForbidden, "Forbidden", 0},
	perdure.CodeMisdirected:     {http.StatusMisdirectedRequest, "Misdirected", 0},
	perdure.CodeUnavailable:     {http.StatusServiceUnavailable, "Unavailable", retryShort},
	perdure.CodeNoSpace:         {http.StatusInsufficientStorage, "No space", 0},
	perdure.CodeSchema:          {http.StatusServiceUnavailable, "Schema does not fit", 0},
	perdure.CodeInUse:           {http.StatusServiceUnavailable, "Store in use", 0},
	codeInternal:                {http.StatusInternalServerError, "Internal error", 0},
	codeMethod:                  {http.StatusMethodNotAllowed, "Method not allowed", 0},
	codeMedia:                   {http.StatusUnsupportedMediaType, "Unsupported media type", 0},
	codeTimeout:                 {http.StatusRequestTimeout, "Too slow", 0},
}

// badParameter marks a refusal because of the path, the query or a header. Its status is 400; that of a refused body is
// 422.
type badParameter struct{ refusal *perdure.Error }

func (e badParameter) Error() string { return e.refusal.Error() }
func (e badParameter) Unwrap() error { return e.refusal }

func (e badParameter) hint(mend string) badParameter {
	e.refusal.Hint = mend
	return e
}

// problemOf returns the answer for err. The text of an error that is not a refusal is only logged.
func problemOf(r *http.Request, err error) *Problem {
	e := refusal(err)
	k, ok := kinds[e.Code]
	if !ok {
		k = kinds[codeInternal]
	}
	p := &Problem{Type: problemTypes + string(e.Code), Title: k.title, Status: k.status, Detail: e.Message,
		Code: e.Code, Hint: e.Hint, Errors: e.Fields, retryAfter: k.retry}
	if e.Code == perdure.CodeInvalid && (errors.As(err, new(badParameter)) || bodyless(r)) {
		p.Status = http.StatusBadRequest
	}
	if p.Detail == "" && len(p.Errors) > 0 {
		p.Detail = p.Errors[0].Message
	}
	if p.Detail == "" {
		p.Detail = k.title
	}
	if p.Errors == nil {
		p.Errors = []perdure.FieldError{}
	}
	p.Errors = p.Errors[:min(len(p.Errors), maxFieldErrors)]
	return p
}

// bodyless reports whether a request has no body by its method, so that something else of it must be invalid.
func bodyless(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodDelete
}

func refusal(err error) *perdure.Error {
	var e *perdure.Error
	switch {
	case errors.As(err, &e):
		return e
	case storeTrouble(err):
		return perdure.Refuse(perdure.CodeUnavailable, "the store did not answer; nothing is known to have changed")
	}
	return perdure.Refuse(codeInternal, "the node has logged what went wrong")
}

// storeTrouble reports whether err is temporary: a timeout, a lost connection, or a commit whose outcome is not known.
func storeTrouble(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, kernel.ErrStale) || errors.Is(err, kernel.ErrUnknown) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &network)
}

// fail answers a request that failed, and logs the error if it is not the caller's.
func (a *api) fail(w *answer, r *http.Request, err error) {
	p := problemOf(r, err)
	if r.Context().Err() != nil && w.status == 0 {
		writeProblem(w, p) // most likely the client does not read it
		w.status = statusGone
		return
	}
	switch {
	case p.Status < http.StatusInternalServerError:
	case isSurplus(r.Context()): // the warning was logged when the connection was accepted
	case r.URL.Path == "/readyz": // load balancers ask every second, and see the 503
		a.Log.DebugContext(r.Context(), "not ready", "error", err)
	case a.Shutdown.Err() != nil && p.Code == perdure.CodeUnavailable:
		a.Log.InfoContext(r.Context(), "request refused: the node is draining", "method", r.Method, "path", r.URL.Path, "code", p.Code)
	default:
		a.Log.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "code", p.Code, "error", err)
	}
	if w.status != 0 {
		return // the answer had begun
	}
	writeProblem(w, p)
}

func writeProblem(w *answer, p *Problem) {
	if p.retryAfter > 0 && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	var b bytes.Buffer
	_ = encodeJSON(&b, p) // it cannot fail: a problem has texts and numbers only
	writeBody(w, p.Status, problemType, b.Bytes())
}

func noSuchPath(r *http.Request) error {
	e := perdure.Refuse(perdure.CodeNotFound, "there is no %s", printable(r.URL.Path))
	e.Hint = "see /openapi.json"
	return e
}
