package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/rest"
)

// maxScrapers bounds the connections of --metrics-listen.
const maxScrapers = 100

// metricsWriteTime bounds the answer to a scraper that does not read.
const metricsWriteTime = 30 * time.Second

// listenForMetrics opens the listener of --metrics-listen; nil if it is not set.
func (o *serveFlags) listenForMetrics() (net.Listener, error) {
	if o.metricsListen == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", o.metricsListen)
	if err != nil {
		return nil, notListening("metrics-listen", o.metricsListen, err)
	}
	return l, nil
}

// serveMetrics serves /metrics, and nothing else, to every caller on a listener, until ctx ends.
func (o *serveFlags) serveMetrics(ctx context.Context, n engine, l net.Listener, log *slog.Logger) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", n.Metrics())
	server := rest.Server("", o.hosts.hosts.Handler(mux), log)
	server.WriteTimeout = metricsWriteTime
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	log.InfoContext(ctx, "serving metrics", "url", "http://"+l.Addr().String()+"/metrics")
	if err := server.Serve(rest.Bound(l, server, maxScrapers, log)); !errors.Is(err, http.ErrServerClosed) {
		log.ErrorContext(ctx, "serving of metrics has ended", "error", err)
	}
}
