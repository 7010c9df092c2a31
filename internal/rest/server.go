// Package rest answers HTTP for a protocol.Server: the calls of design.md section 4, an OpenAPI
// document of them, and a problem (RFC 9457) for whatever goes wrong.
//
//	Server     an http.Server with limits fit for strangers and for long polls
//	server.go  the layers that every request passes: panics, metrics, hosts, browsers, tidy paths
//	hosts.go   the host names under which requests are served
//	conns.go   the bound on connections, and which one is closed for a new one
//	flow.go    the bound on bytes of requests, and of answers, in memory
//	body.go    reading a request, answer.go writing an answer: as long as they make progress
//	route.go   the one table of calls; it feeds the router and the OpenAPI document
//	call.go    one request: its parameters, body and answer
//	fields.go  strict reading of JSON, with a place for every fault
//
// It decides nothing: what it refuses is what no Service could understand.
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

// Config is what the handler needs. Only Service is required.
type Config struct {
	Service   protocol.Server
	Ready     func(context.Context) error // nil: always; asked by /readyz, which allows it two seconds
	Metrics   http.Handler                // answers /metrics; nil: there is none
	Registry  prometheus.Registerer       // requests are counted there; nil: they are not
	JobSchema []byte                      // the definition's JSON Schema; nil: it is not served
	Log       *slog.Logger                // nil: slog.Default
	Version   string
	Shutdown  context.Context // its end ends long polls and streams early, and well; nil: never
	Hosts     Hosts           // the allowed host names; the zero value allows those that need no configuration

	Connections int // the server's bound: three quarters of them may wait in long polls and streams; 0: the default of Server
}

// The server's patience. There is no limit on reading and writing as such, since a large body may take minutes: each
// body sets its own while it is read (body.go), and each answer while it is written (answer.go).
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
)

// Server makes the http.Server that New's handler is meant for.
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
	mux      *http.ServeMux
	browsers *http.CrossOriginProtection
	requests *requestMetrics
	openapi  []byte
	inbound  *flow  // bodies of requests
	outbound *flow  // answers
	waits    places // long polls and streams
	streams  places
}

// New makes the handler. It panics where the table of calls contradicts itself, which no
// configuration can cause.
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
		waits: places{max: int64(max(cfg.Connections*3/4, 1))}, streams: places{max: maxStreams}}
	routes := a.routes()
	a.openapi = describe(routes, cfg.Version)
	a.mount(routes)
	return a
}

// ServeHTTP leads a request through the layers to its call.
func (a *api) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &answer{ResponseWriter: rw}
	begin := time.Now()
	defer func() {
		if p := recover(); p != nil {
			a.panicked(w, r, p)
		}
		took := time.Since(begin)
		a.requests.count(r.Pattern, w.status, took)
		a.Log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("method", r.Method),
			slog.String("path", r.URL.Path), slog.Int("status", w.status), slog.Duration("took", took))
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
	if err := a.browsers.Check(r); err != nil {
		return perdure.Refuse(perdure.CodeForbidden, "refused as %v", err)
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

// isProbe reports whether a path is for monitoring of this process.
func isProbe(path string) bool { return path == "/healthz" || path == "/readyz" || path == "/metrics" }

// panicked answers for a call that fell over. What it says goes to the log alone.
func (a *api) panicked(w *answer, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	a.Log.ErrorContext(r.Context(), "panic", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if w.status != 0 {
		panic(http.ErrAbortHandler) // half an answer is out: cut the connection
	}
	writeProblem(w, problemOf(r, errInternal))
}
