package rest

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/rest/resttest"
)

func TestConsoleIsServedBesideTheAPI(t *testing.T) {
	h := New(Config{Service: resttest.Full(), Console: "/perdure/ui/"})
	for _, c := range []struct {
		method, path, accept string
		status               int
		location, mediaType  string
	}{
		{"GET", "/", "text/html,application/xhtml+xml,*/*;q=0.8", 303, "/perdure/ui/", ""},
		{"GET", "/", "application/json", 404, "", problemType},
		{"GET", "/", "", 404, "", problemType},
		{"POST", "/", "text/html", 404, "", problemType},
		{"GET", "/ui", "text/html", 303, "/perdure/ui/", ""},
		{"GET", "/ui/", "text/html", 200, "", "text/html; charset=utf-8"},
		{"GET", "/ui/jobs/order-1042", "text/html", 200, "", "text/html; charset=utf-8"},
		{"GET", "/ui/assets/none.js", "*/*", 404, "", "text/plain; charset=utf-8"},
		{"GET", "/uix", "text/html", 404, "", problemType},
	} {
		r := httptest.NewRequest(c.method, "http://localhost"+c.path, nil)
		if c.accept != "" {
			r.Header.Set("Accept", c.accept)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || w.Header().Get("Location") != c.location || c.mediaType != "" && w.Header().Get("Content-Type") != c.mediaType {
			t.Errorf("%s %s (Accept %q): %d, Location %q, Content-Type %q", c.method, c.path, c.accept, w.Code, w.Header().Get("Location"), w.Header().Get("Content-Type"))
		}
	}
}

func TestConsoleIsServedForAllowedHostsOnly(t *testing.T) {
	w := httptest.NewRecorder()
	New(Config{Service: resttest.Full(), Console: "/ui/"}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://evil.example/ui/", nil))
	if w.Code != http.StatusMisdirectedRequest {
		t.Errorf("status %d", w.Code)
	}
}

func TestWithoutConsoleThereAreNoPages(t *testing.T) {
	w := httptest.NewRecorder()
	New(Config{Service: resttest.Full()}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/ui/", nil))
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "notFound") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestConsolePathFollowsThePublicURL(t *testing.T) {
	for url, want := range map[string]string{
		"":                                  "/ui/",
		"https://jobs.example.com":          "/ui/",
		"https://jobs.example.com/":         "/ui/",
		"https://jobs.example.com/perdure":  "/perdure/ui/",
		"https://jobs.example.com/a/b/":     "/a/b/ui/",
		"https://jobs.example.com//evil/":   "/evil/ui/",
		"https://jobs.example.com/a/../b c": "/b%20c/ui/",
	} {
		if got := ConsolePath(url); got != want {
			t.Errorf("%q: %q, want %q", url, got, want)
		}
	}
}

// A proxy may serve the API below a path that it removes: the redirect to a drawing leads to the right place there.
func TestRedirectToADrawingIsRelative(t *testing.T) {
	w := httptest.NewRecorder()
	New(Config{Service: resttest.Full()}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/v1/jobs/order-1042/graph", nil))
	for _, prefix := range []string{"", "/perdure", "/a/b"} {
		asked, err := url.Parse("https://ops.example" + prefix + "/v1/jobs/order-1042/graph")
		if err != nil {
			t.Fatal(err)
		}
		to, err := asked.Parse(w.Header().Get("Location"))
		if err != nil || w.Code != http.StatusSeeOther {
			t.Fatalf("%d, Location %q: %v", w.Code, w.Header().Get("Location"), err)
		}
		if want := "https://ops.example" + prefix + "/v1/shapes/" + resttest.Graph().Hash + "/graph"; to.String() != want {
			t.Errorf("%s leads to %s", asked, to)
		}
	}
}
