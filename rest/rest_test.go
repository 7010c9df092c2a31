package rest_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/rest"
	"github.com/perdure/perdure/store/memory"
	"github.com/perdure/perdure/store/sqlite"
)

// program is a program that embeds a node and serves its API below a path of its own server.
func program(t *testing.T, options ...rest.Option) (url string) {
	t.Helper()
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	echo := perdure.NewAgent("echo")
	perdure.Handle(echo, "say", perdure.Op[string, string]{Do: func(_ context.Context, in string) (string, error) { return in, nil }})
	n := node.New(store, node.Config{Agents: []*perdure.Agent{echo}})
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/perdure/", http.StripPrefix("/perdure", rest.Handler(n, options...)))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.URL + "/perdure"
}

// A client of another process uses the node of a program through the handler.
func TestHandlerBelowAPath(t *testing.T) {
	url := program(t)
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	job, _, err := perdure.Submit(t.Context(), c, perdure.Define("greeting").Step("say", "echo").With("hello"))
	if err != nil {
		t.Fatal(err)
	}
	done, err := perdure.Wait(t.Context(), c, job.ID.String())
	if err != nil || done.Current != perdure.Done {
		t.Fatalf("%+v, %v", done, err)
	}
	for path, want := range map[string]string{"/readyz": "ok", "/metrics": "perdure_jobs_submitted_total", "/openapi.json": "/v1/jobs", "/v1/schema/job.json": "steps"} {
		answer, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s without %q: %.200s", path, answer.Status, want, body)
		}
	}
}

// The address of a new job is below the path at which the program has mounted the handler.
func TestLocationHasTheMountedPath(t *testing.T) {
	url := program(t)
	answer, err := http.Post(url+"/v1/jobs", "application/json", strings.NewReader(`{"type": "t", "steps": {"s": {"agent": "sleep", "with": {"for": "1ms"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	at, err := answer.Location()
	if err != nil || !strings.HasPrefix(at.Path, "/perdure/v1/jobs/job_") {
		t.Fatalf("%s: location %v, %v", answer.Status, at, err)
	}
	got, err := http.Get(at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	var job perdure.JobView
	if err := json.NewDecoder(got.Body).Decode(&job); err != nil || !strings.HasSuffix(at.Path, job.ID.String()) {
		t.Errorf("%+v, %v", job, err)
	}
}

func TestAllowedHosts(t *testing.T) {
	get := func(h http.Handler, host string) int {
		r := httptest.NewRequest(http.MethodGet, "http://"+host+"/v1/jobs", nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	n := node.New(memory.New(), node.Config{})
	defer func() { _ = n.Stop(t.Context()) }()
	if code := get(rest.Handler(n, rest.Insecure()), "orders.example.com"); code != http.StatusMisdirectedRequest {
		t.Errorf("an unknown host is answered %d", code)
	}
	if code := get(rest.Handler(n, rest.Insecure(), rest.AllowedHosts("orders.example.com")), "orders.example.com"); code != http.StatusOK {
		t.Errorf("an allowed host is answered %d", code)
	}
	defer func() {
		if recover() == nil {
			t.Error("a name with a port is taken")
		}
	}()
	rest.Handler(n, rest.AllowedHosts("orders.example.com:80"))
}
