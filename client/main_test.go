package client_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/rest/resttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers REST for svc at a real address until the test ends.
func serve(t *testing.T, cfg rest.Config) (url string) {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	return listen(t, rest.New(cfg))
}

func listen(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rest.Server("", h, slog.New(slog.DiscardHandler))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return "http://" + l.Addr().String()
}

func connect(t *testing.T, url string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// far is svc, seen through REST.
func far(t *testing.T, svc *resttest.Service, options ...client.Option) *client.Client {
	t.Helper()
	return connect(t, serve(t, rest.Config{Service: svc}), options...)
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func code(t *testing.T, err error, want perdure.Code) {
	t.Helper()
	if got := perdure.CodeOf(err); got != want {
		t.Errorf("code %q, want %q: %v", got, want, err)
	}
}
