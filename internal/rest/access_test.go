package rest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/rest/resttest"
)

// A request has one token: a proxy in front may read another one than the node.
func TestSeveralAuthorizationHeadersAreRefused(t *testing.T) {
	h := New(Config{Service: resttest.Full(), Log: quiet, Access: resttest.Registry{}, Tokens: TokensAlways})
	for _, c := range []struct {
		headers []string
		status  int
	}{{[]string{"Bearer a"}, 200}, {[]string{"Bearer a", "Bearer b"}, 400}, {[]string{"", "Bearer b"}, 400}, {[]string{"Bearer a", "Bearer a"}, 400}, {[]string{"Bearer a", "Basic b"}, 400}} {
		for _, line := range []string{"GET /v1/limits", "POST /v1/jobs/j/undo"} {
			method, path, _ := strings.Cut(line, " ")
			r := httptest.NewRequest(method, "http://localhost"+path, nil)
			r.Header["Authorization"] = c.headers
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != c.status {
				t.Errorf("%s with %q: %d %s", line, c.headers, w.Code, w.Body)
			}
		}
	}
}

// A page of http:// is of another origin than a node that browsers reach over https, although it has the same host.
func TestPageOfPlainHTTPIsOfAnotherOrigin(t *testing.T) {
	for _, c := range []struct {
		secure  bool
		line    string
		headers []string
		refused bool
	}{
		{true, "POST /v1/jobs/j/undo", []string{"Origin: http://perdure:7420"}, true},
		{true, "POST /v1/jobs/j/undo", []string{"Origin: HTTP://perdure:7420"}, true},
		{true, "GET /v1/jobs/j/events", []string{"Origin: http://perdure:7420"}, true},
		{true, "GET /v1/limits", []string{"Origin: http://perdure:7420"}, false},
		{true, "POST /v1/jobs/j/undo", []string{"Origin: https://perdure:7420"}, false},
		{true, "POST /v1/jobs/j/undo", []string{"Origin: http://perdure:7420", "Sec-Fetch-Site: same-origin"}, false}, // localhost
		{true, "POST /v1/jobs/j/undo", nil, false},
		{false, "POST /v1/jobs/j/undo", []string{"Origin: http://perdure:7420"}, false},
	} {
		h := New(Config{Service: resttest.Full(), Log: quiet, Secure: c.secure})
		if w := exchange(h, c.line, "", c.headers...); (w.Code == http.StatusForbidden) != c.refused {
			t.Errorf("https %v, %s with %q: %d", c.secure, c.line, c.headers, w.Code)
		}
	}
}

// The names of acts in the audit log are those of the documentation: each call has one, by which a refusal is recorded and
// found, and each name is that of a call or is listed.
func TestNamesOfActsAreDocumented(t *testing.T) {
	named := map[string]bool{}
	a := &api{Config: Config{Service: resttest.Full(), Metrics: http.NotFoundHandler()}}
	for _, rt := range a.routes() {
		if permissions[rt.id].public && rt.id != "login" {
			continue
		}
		named[rt.actName()] = true
		if !slices.Contains(kernel.AuditActs, rt.actName()) {
			t.Errorf("%s is not in kernel.AuditActs", rt.actName())
		}
	}
	text, err := os.ReadFile("../../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Audit log\n")
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(section, -1) {
		listed[m[1]] = true
	}
	for _, act := range kernel.AuditActs {
		if !named[act] && act != kernel.ActRaiseFence && act != kernel.ActRefusals {
			t.Errorf("%s is no call", act)
		}
		verb := slices.ContainsFunc(verbs, func(v verb) bool { return v.Verb == perdure.Verb(act) })
		if !listed[act] && (verb || !named[act]) {
			t.Errorf("the section of the audit log in docs/access.md does not list %s", act)
		}
		if strings.Count(string(text), "`"+act+"`") == 0 {
			t.Errorf("docs/access.md does not have %s", act)
		}
	}
}
