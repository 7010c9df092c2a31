// Package rest serves the REST API of a node (docs/rest.md) in the HTTP server of your own program. So an operator can use the
// command line, and agents in other processes can work, on a store that your program has open:
//
//	n := node.New(store, node.Config{Agents: agents})
//	http.Handle("/perdure/", http.StripPrefix("/perdure", rest.Handler(n)))
//	go http.ListenAndServe("127.0.0.1:8080", nil)
//
// Then "perdure list --server http://127.0.0.1:8080/perdure" shows the jobs of the program.
//
// The API has no authentication: whoever reaches the handler can read every job and act on it. Mount it where only operators and
// agents reach it.
package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/protocol"
)

// Option changes how a Handler serves.
type Option func(*rest.Config) error

// AllowedHosts are further host names under which clients reach the handler. Without this option, requests are served that name an
// IP address, localhost, or a host that cannot be registered in public DNS: otherwise a page of another site could read the API
// through DNS rebinding. "*" alone allows every host, for servers that check the host themselves.
func AllowedHosts(names ...string) Option {
	return func(c *rest.Config) (err error) {
		c.Hosts, err = rest.ParseHosts("", names)
		return err
	}
}

// Log takes one line for each request, at level debug, and for each failure. Without this option it is slog.Default.
func Log(log *slog.Logger) Option {
	return func(c *rest.Config) error {
		c.Log = log
		return nil
	}
}

// Until ends long polls and streams when ctx ends, so that a shutdown of the server need not wait for them.
func Until(ctx context.Context) Option {
	return func(c *rest.Config) error {
		c.Shutdown = ctx
		return nil
	}
}

// Version is what /healthz and /openapi.json show as the version of the program.
func Version(version string) Option {
	return func(c *rest.Config) error {
		c.Version = version
		return nil
	}
}

// Handler serves the REST API of a node, or of another implementation of protocol.Server, such as a client of a node elsewhere. If
// it is a node, /readyz and /metrics answer for it. Handler panics if an option is not valid.
func Handler(service protocol.Server, options ...Option) http.Handler {
	c := rest.Config{Service: service, JobSchema: definition.Schema()}
	if s, ok := service.(interface{ Ready(context.Context) error }); ok {
		c.Ready = s.Ready
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
