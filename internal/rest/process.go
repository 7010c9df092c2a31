package rest

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/perdure/perdure"
)

// readyTimeout is how long the store may take to answer before the node counts as not ready.
const readyTimeout = 2 * time.Second

type healthAnswer struct {
	Status  string `json:"status" example:"ok"`
	Version string `json:"version,omitempty"`
}

// processRoutes are the calls about this process, for operators and monitoring.
func (a *api) processRoutes() []route {
	health, text := reflect.TypeFor[healthAnswer](), reflect.TypeFor[string]()
	routes := []route{
		{
			method: http.MethodGet, path: healthPath, id: "health", tag: "process", anyQuery: true, do: (*call).healthz,
			summary: "Whether the process serves requests", results: []result{{status: http.StatusOK, doc: "It does", of: health, example: healthExample}},
		},
		{
			method: http.MethodGet, path: "/readyz", id: "ready", tag: "process", anyQuery: true, do: (*call).readyz,
			summary: "Whether the node accepts work", doc: "Not while it drains, nor while its store does not answer, has another schema, refuses submissions (disk full, read-only), or accepts no commits because its synchronous standby does not answer.",
			results: []result{{status: http.StatusOK, doc: "It does", of: health, example: healthExample}},
		},
		{
			method: http.MethodGet, path: "/openapi.json", id: "openapi", tag: "process", anyQuery: true,
			summary: "This document", results: []result{{status: http.StatusOK, doc: "OpenAPI 3.1", of: reflect.TypeFor[map[string]any]()}},
			do: func(c *call) error {
				writeBody(c.w, http.StatusOK, mediaJSON, c.openapi)
				return nil
			},
		},
	}
	if a.Metrics != nil {
		routes = append(routes, route{
			method: http.MethodGet, path: "/metrics", id: "metrics", tag: "process", anyQuery: true,
			summary: "Metrics for Prometheus", results: []result{{status: http.StatusOK, doc: "In the text format", types: []string{"text/plain"}, of: text}},
			do: func(c *call) error {
				c.Metrics.ServeHTTP(c.w, c.r)
				return nil
			},
		})
	}
	if a.JobSchema != nil {
		routes = append(routes, route{
			method: http.MethodGet, path: "/v1/schema/job.json", id: "jobSchema", tag: "jobs", anyQuery: true,
			summary: "The JSON Schema of a definition", results: []result{{status: http.StatusOK, doc: "For editors", types: []string{mediaSchema}, of: reflect.TypeFor[map[string]any]()}},
			do: func(c *call) error {
				writeBody(c.w, http.StatusOK, mediaSchema, c.JobSchema)
				return nil
			},
		})
	}
	return routes
}

const mediaSchema = "application/schema+json"

func (c *call) healthz() error {
	return c.json(http.StatusOK, healthAnswer{"ok", c.Version})
}

func (c *call) readyz() error {
	if c.shuttingDown() {
		return perdure.Refuse(perdure.CodeUnavailable, "the node is shutting down")
	}
	if c.Ready != nil {
		ctx, cancel := context.WithTimeout(c.ctx(), readyTimeout)
		defer cancel()
		if err := checkReady(ctx, c.Ready); err != nil {
			return err
		}
	}
	return c.json(http.StatusOK, healthAnswer{"ok", c.Version})
}

// checkReady returns in time even if a database driver ignores its context.
func checkReady(ctx context.Context, ready func(context.Context) error) error {
	answered := make(chan error, 1)
	go func() { answered <- ready(ctx) }()
	select {
	case err := <-answered:
		if err != nil && perdure.CodeOf(err) == "" {
			return perdure.Refuse(perdure.CodeUnavailable, "the store does not answer as it should")
		}
		return err
	case <-ctx.Done():
		return perdure.Refuse(perdure.CodeUnavailable, "the store did not answer within %s", readyTimeout)
	}
}
