// Package rest serves the REST API of a node (docs/rest.md) in the HTTP server of your own program. Operators can then use
// the command line, and agents in other processes can work, on a store that your program has open.
//
//	import (
//		"net/http"
//
//		"github.com/perdure/perdure/node"
//		"github.com/perdure/perdure/rest"
//	)
//
//	n := node.New(store, node.Config{Agents: agents})
//	// start n
//	serving, stopServing := context.WithCancel(ctx)
//	mux := http.NewServeMux()
//	mux.Handle("/perdure/", http.StripPrefix("/perdure", rest.Handler(n, rest.Until(serving))))
//	server := &http.Server{Addr: "127.0.0.1:8080", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
//	go server.ListenAndServe()
//	…
//	stopServing() // ends long polls and event streams, for which Shutdown would wait
//	err := server.Shutdown(grace)
//	// stop n
//
// Then "perdure list --server http://127.0.0.1:8080/perdure" shows the jobs of the program. The example of Handler is this
// code in full.
//
// Package console adds the web console beside the API: mux.Handle("/perdure/ui/", console.Handler("/perdure/ui/")).
//
// Callers from other machines need a token (perdure tokens create). Callers on this machine need none until the store has a
// token of the user role admin. A program that identifies its callers itself switches this off with Insecure. Handler bounds the bodies, answers and waiting calls that it holds in memory; the number
// of connections is up to your server.
package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/protocol"
)

// Option is a setting of a Handler.
type Option func(*rest.Config) error

// AllowedHosts names further hosts under which clients reach the handler: host names or IP addresses, without a port.
//
// The handler answers only requests whose Host header it allows. It always allows IP addresses, localhost, names without
// a dot, and names that end in .localhost, .local, .internal, .svc or .cluster.local: such names cannot be registered in
// public DNS. It refuses any other host with 421, unless it is listed here. The check prevents DNS rebinding, by which
// the page of another site could read the API in a user's browser.
//
// "*" alone allows every host, for programs that check the host themselves.
func AllowedHosts(names ...string) Option {
	return func(c *rest.Config) (err error) {
		c.Hosts, err = rest.ParseHosts("", names)
		return err
	}
}

// Log sets the logger of the handler. It logs each request at level debug, each refused change at level info, and each
// request that failed at level error. Without this option, and with nil, it is slog.Default.
func Log(log *slog.Logger) Option {
	return func(c *rest.Config) error {
		c.Log = log
		return nil
	}
}

// Insecure lets every caller make every call without a token. It is for programs that identify callers themselves, before
// a request reaches the handler.
func Insecure() Option {
	return func(c *rest.Config) error {
		c.Tokens = rest.TokensNever
		return nil
	}
}

// Until ends the calls that wait (long polls and event streams) when ctx ends. Cancel ctx before http.Server.Shutdown,
// which waits until all calls have ended. From then on /readyz answers 503. Without this option calls wait for as long as
// their clients asked for.
func Until(ctx context.Context) Option {
	return func(c *rest.Config) error {
		c.Shutdown = ctx
		return nil
	}
}

// Version sets the version of the program, which /healthz and /openapi.json show.
func Version(version string) Option {
	return func(c *rest.Config) error {
		c.Version = version
		return nil
	}
}

// Handler returns a handler of the REST API for service: a node, or another protocol.Server such as a client of a node
// elsewhere. If service is a node, /readyz and /metrics answer for it, and its tokens are checked; with another service no
// token is asked for. Handler panics if an option is not valid.
func Handler(service protocol.Server, options ...Option) http.Handler {
	c := rest.Config{Service: service, JobSchema: definition.Schema()}
	if s, ok := service.(interface{ Ready(context.Context) error }); ok {
		c.Ready = s.Ready
	}
	if s, ok := service.(interface{ Access() *access.Registry }); ok {
		c.Access = s.Access()
	}
	if s, ok := service.(interface{ Metrics() http.Handler }); ok {
		c.Metrics = s.Metrics()
	}
	if s, ok := service.(interface{ Registry() *prometheus.Registry }); ok {
		c.Registry = s.Registry()
	}
	for _, o := range options {
		if err := o(&c); err != nil {
			panic(fmt.Sprintf("rest: %v", err))
		}
	}
	return rest.New(c)
}
