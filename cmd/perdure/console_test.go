package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/memory"
)

// The address of a node leads a browser to its console, below the path of --public-url.
func TestServeHasTheConsole(t *testing.T) {
	o := serveFlags{hosts: hostNameFlags{public: "https://jobs.example.com/perdure"}, maxConns: 10}
	if err := o.hosts.check(); err != nil {
		t.Fatal(err)
	}
	store := memory.New()
	defer store.Close()
	h := newServer(node.New(store, node.Config{}), context.Background(), &o, false, slog.New(slog.DiscardHandler)).Handler
	get := func(path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "http://jobs.example.com"+path, nil)
		r.Header.Set("Accept", "text/html")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := get("/"); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/perdure/ui/" {
		t.Errorf("%d, Location %q", w.Code, w.Header().Get("Location"))
	}
	if w := get("/ui/jobs"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `<base href="/perdure/ui/">`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
