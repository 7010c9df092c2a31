// Package rest serves a protocol.Server over HTTP: the calls of docs/rest.md, an OpenAPI document of them, and a problem
// (RFC 9457) as the answer to every request that fails. The public package rest wraps it for users' programs.
//
// A request passes these layers:
//
//   - Bound limits the connections, and chooses which one to close when another arrives (conns.go).
//   - ServeHTTP recovers from panics, counts and logs the request, and refuses requests for unknown hosts, requests that a
//     page of another site makes a browser send, and paths that are not canonical (server.go, hosts.go).
//   - The router finds the call. One table of routes feeds the router and the OpenAPI document (route.go, openapi.go).
//   - Paths below /ui/ are the console's, if it is configured (console.go).
//   - The call finds out who makes it, and whether its user role may (access.go).
//   - The call reads the path, the query and the body, asks the service, and writes the answer (call.go, and a file for
//     each group of calls).
//
// Bodies are read and answers are written as long as they make progress, and the bytes of all of them in memory are
// bounded (body.go, answer.go, flow.go). JSON bodies are read strictly, with the place of every fault (fields.go).
//
// The package decides nothing about jobs. It refuses only what no service could understand.
package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/descriptors"
	"github.com/perdure/perdure/protocol"
)

// Config configures a handler. Only Service is required.
type Config struct {
	Service   protocol.Server
	Ready     func(context.Context) error // called by /readyz, which gives it two seconds; nil: the node is always ready
	Metrics   http.Handler                // serves /metrics; nil: there is no such path
	Registry  prometheus.Registerer       // the metrics of requests are registered there; nil: they are not counted
	JobSchema []byte                      // the definition's JSON Schema; nil: it is not served
	Log       *slog.Logger                // nil: slog.Default
	Version   string
	Shutdown  context.Context // when it ends, long polls and streams end with a regular answer; nil: it never ends
	Hosts     Hosts           // the allowed host names; the zero value allows those that need no configuration

	Access  Registry // identifies the callers; nil: each caller may make each call
	Tokens  Tokens   // which callers need a token
	OIDC    OIDC     // where users of the console log in; nil: with a token only
	Proxies Proxies  // whose X-Forwarded-For names the caller
	Secure  bool     // browsers reach the node over TLS although it does not serve TLS itself: a proxy does

	Console string // the path of the console as browsers see it, such as /ui/, which is served below /ui/; "": there is none

	Connections int // the server's bound on connections, of which three quarters may wait in long polls and streams; 0: descriptors.Connections
}

// Bounds of a server. There is no bound on the time to read a body or to write an answer, because a large one may take
// minutes. Instead, each body and each answer has deadlines for its next bytes (body.go, answer.go).
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
)

// Server returns an http.Server for the handler of New, with bounds that fit untrusted callers and long polls.
func Server(addr string, h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.Default()
	}
	return &http.Server{
		Addr:              addr,
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// Otherwise net/http answers OPTIONS * by itself, for every host.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// api is the handler.
type api struct {
	Config
	mux       *http.ServeMux
	browsers  *http.CrossOriginProtection
	requests  *requestMetrics
	openapi   []byte
	inbound   *flow     // bodies of requests
	outbound  *flow     // answers
	waits     callBound // long polls and streams
	streams   callBound // of single jobs
	lists     callBound // streams of lists
	transfers callBound // uploads and downloads of artifacts
}

// New returns the handler. It panics if the table of routes is inconsistent, which no configuration can cause.
func New(cfg Config) http.Handler {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Shutdown == nil {
		cfg.Shutdown = context.Background()
	}
	if cfg.Connections <= 0 {
		cfg.Connections = descriptors.Connections(descriptors.Limit())
	}
	a := &api{Config: cfg, mux: http.NewServeMux(), browsers: http.NewCrossOriginProtection(), requests: newRequestMetrics(cfg.Registry),
		inbound: newFlow(maxRequestBytes), outbound: newFlow(maxAnswerBytes),
		waits: callBound{max: int64(max(cfg.Connections*3/4, 1))}, streams: callBound{max: maxStreams}, lists: callBound{max: maxListStreams}, transfers: callBound{max: maxTransfers}}
	routes := a.routes()
	checkPermissions(routes)
	a.openapi = describe(routes, cfg.Version)
	a.mount(routes)
	if a.Console != "" {
		a.mountConsole()
		if a.OIDC != nil {
			a.mountOIDC()
		}
	}
	return a
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &answer{ResponseWriter: rw, gzip: readsGzip(r), known: r.Header.Values("If-None-Match")}
	begin := time.Now()
	defer func() {
		if p := recover(); p != nil {
			a.panicked(w, r, p)
		}
		duration := time.Since(begin)
		a.requests.count(r.Pattern, w.status, duration)
		a.Log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("method", r.Method),
			slog.String("path", r.URL.Path), slog.Int("status", w.status), slog.Duration("took", duration))
	}()
	control := http.NewResponseController(rw)
	_ = control.SetWriteDeadline(time.Time{}) // clears the deadline of an earlier request on this connection
	if r.ContentLength != 0 {
		// If no call reads the body, net/http does, before or after the answer: this deadline bounds it.
		_ = control.SetReadDeadline(time.Now().Add(slowTime))
	}
	err := a.admit(r)
	if isSurplus(r.Context()) {
		w.Header().Set("Connection", "close")
		if err == nil && !isProbe(r.URL.Path) {
			err = perdure.Refuse(perdure.CodeUnavailable, "all connections of this node are in use")
		}
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// admit refuses requests that must not reach the router: requests for other hosts, requests that a page of another site
// makes a browser send, and paths that the router would answer with a redirect.
func (a *api) admit(r *http.Request) error {
	if err := a.Hosts.check(r); err != nil {
		return err
	}
	if err := a.crossOrigin(r); err != nil {
		return err
	}
	p := r.URL.EscapedPath()
	tidy := path.Clean(p)
	if strings.HasSuffix(p, "/") && tidy != "/" {
		tidy += "/"
	}
	if p != tidy || p[0] != '/' {
		return noSuchPath(r)
	}
	return nil
}

// crossOrigin refuses a write that a page of another origin makes a browser send. A page of http:// is one if browsers reach
// this node over TLS: CrossOriginProtection compares hosts only, if the browser does not send Sec-Fetch-Site.
func (a *api) crossOrigin(r *http.Request) error {
	if err := a.browsers.Check(r); err != nil {
		return errOtherSite
	}
	scheme, _, _ := strings.Cut(r.Header.Get("Origin"), "://")
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	if !reads && r.Header.Get("Sec-Fetch-Site") == "" && (r.TLS != nil || a.Secure) && strings.EqualFold(scheme, "http") {
		return errOtherSite
	}
	return nil
}

// errOtherSite refuses a request that a browser says, by its headers Sec-Fetch-Site and Origin, to send for another site.
var errOtherSite = &perdure.Error{Code: perdure.CodeForbidden, Message: "refused: a page of another site makes the browser send this request",
	Hint: "pages of the address at which this node is reached may send it, and programs that are no browsers"}

// isProbe reports whether a path is for monitoring of this process.
func isProbe(path string) bool { return path == "/healthz" || path == "/readyz" || path == "/metrics" }

// panicked answers a request whose call has panicked. The panic is logged and not shown to the caller.
func (a *api) panicked(w *answer, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	a.Log.ErrorContext(r.Context(), "panic", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // a part of the answer was sent: close the connection
	}
	writeProblem(w, problemOf(r, errInternal))
}
