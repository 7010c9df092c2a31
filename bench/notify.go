package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
)

// What receives a notification of the end of each job in a variant of Perdure.
const (
	notifyPaused  = "paused-stream" // its notifications are stored, and not delivered
	notifyStream  = "stream"        // a stream that no program reads
	notifyWebhook = "webhook"       // an HTTP server in the process that measures, which takes everything at once
)

// notifyVariable tells the process that measures.
const notifyVariable = "PERDURE_BENCH_NOTIFY"

// notify registers the receiver that the environment asks for. stop ends it.
func notify(ctx context.Context, n *node.Node) (stop func(), err error) {
	stop = func() {}
	settings := operate.WebhookSettings{On: []operate.EventKind{operate.EventDone}}
	switch os.Getenv(notifyVariable) {
	case "":
		return stop, nil
	case notifyStream, notifyPaused:
		settings.Stream = true
	default:
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return stop, err
		}
		server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })}
		go func() { _ = server.Serve(l) }()
		stop = func() { _ = server.Close() }
		settings.URL = "http://" + l.Addr().String() + "/"
	}
	if _, err = n.CreateWebhook(ctx, operate.WebhookRequest{Name: "bench", WebhookSettings: settings, Author: "bench"}); err == nil && os.Getenv(notifyVariable) == notifyPaused {
		_, err = n.PauseWebhook(ctx, "bench", "bench")
	}
	return stop, err
}
