package http

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/runcontext"
	"github.com/perdure/perdure/internal/secret"
)

const canary = `{"id":"canary-7f3a91", "pin": 4711}`

// executeSecret executes a run as an agent host does whose run has the secret KEY at a pointer.
func executeSecret(t *testing.T, a *perdure.Agent, pointer string, input m) string {
	t.Helper()
	run := aRun(input)
	run.Secrets = []string{pointer}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx = runcontext.WithSecrets(ctx, run, secret.NewRedactor([]secret.Value{{Name: "KEY", Text: canary}}), nil)
	out, err := a.Execute(ctx, run)
	return fmt.Sprint(string(out), " ", err)
}

// I18: a service that echoes its request puts a secret neither into the output nor, cut off, into a message.
func TestEchoedSecretIsRemoved(t *testing.T) {
	status, before := http.StatusOK, ""
	url, a := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, before+string(b))
	})
	for _, cut := range []int{0, excerptBytes - len(canary) - 1, excerptBytes - len(canary), excerptBytes - len(canary)/2, excerptBytes - 1} {
		for _, status = range []int{200, 400, 500} {
			before = strings.Repeat(".", cut)
			got := executeSecret(t, a, "/body", m{"method": "POST", "url": url, "body": canary})
			for _, part := range []string{"canary", "7f3a91", "4711", `{"id`, `{\"id`} {
				if strings.Contains(got, part) {
					t.Errorf("%d after %d bytes: %s has %s", status, cut, got, part)
				}
			}
			if status == 200 && !strings.Contains(got, "[secret KEY]") {
				t.Errorf("%s", got)
			}
		}
	}
}

// A redirect takes secrets to no host that the step does not name: neither in headers nor in the body nor in Referer.
func TestRedirectTakesNoSecretElsewhere(t *testing.T) {
	var got []string
	other, _ := serve(t, Config{}, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = append(got, fmt.Sprint(r.URL, r.Header, string(b)))
	})
	code := http.StatusFound
	url, a := serve(t, Config{}, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other+"/there", code) })
	executeSecret(t, a, "/query/k", m{"url": url, "query": m{"k": "canary"}, "headers": m{"X-Key": "canary"}, "followRedirects": 2})
	if len(got) != 1 || strings.Contains(got[0], "canary") {
		t.Errorf("%q", got)
	}
	code, got = http.StatusTemporaryRedirect, nil
	if result := executeSecret(t, a, "/body", m{"method": "POST", "url": url, "body": "canary", "followRedirects": 2}); len(got) != 0 || !strings.Contains(result, "307") {
		t.Errorf("%q: %s", got, result)
	}
}

// The message of a failed request has the URL without its user and query. A secret that is a URL is not cut by that: its
// path is a secret, too.
func TestFailureShowsNoPartOfASecretURL(t *testing.T) {
	url, a := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	host := strings.TrimPrefix(url, "http://")
	for _, c := range []struct{ value, url, want string }{
		{"http://usr:pass-9d1@" + host + "/hook/path-9d1?key=query-9d1&x=a b#frag-9d1", "", "GET [secret KEY]: "},
		{host + "/hook/path-9d1?key=query-9d1", "http://", "GET http://[secret KEY]: "},
		{"path-9d1?key=query-9d1", url + "/hook/", "GET " + url + "/hook/[secret KEY]: "},
		{"usr:pass-9d1", "http://KEY@" + host + "/hook/open?page=query-9d1", "GET " + url + "/hook/open: "},
	} {
		run := aRun(m{"url": strings.Replace(c.url, "KEY", c.value, 1)})
		if !strings.Contains(c.url, "KEY") {
			run = aRun(m{"url": c.url + c.value})
		}
		run.Secrets = []string{"/url"}
		ctx := runcontext.WithSecrets(t.Context(), run, secret.NewRedactor([]secret.Value{{Name: "KEY", Text: c.value}}), nil)
		_, err := a.Execute(ctx, run)
		if got := fmt.Sprint(err); !strings.Contains(got, c.want) || strings.Contains(got, "9d1") {
			t.Errorf("%s%s: %s; want %s", c.url, c.value, got, c.want)
		}
	}
}

// The host of a secret is not named by the error of a connection that fails.
func TestFailureDoesNotNameTheHostOfASecret(t *testing.T) {
	a := New(Config{})
	for _, value := range []string{"http://host-9d1.invalid/hook", "host-9d1.invalid"} {
		run := aRun(m{"url": "http://" + strings.TrimPrefix(value, "http://")})
		run.Secrets = []string{"/url"}
		ctx := runcontext.WithSecrets(t.Context(), run, secret.NewRedactor([]secret.Value{{Name: "KEY", Text: value}}), nil)
		_, err := a.Execute(ctx, run)
		if got := fmt.Sprint(err); err == nil || strings.Contains(got, "9d1") || !strings.Contains(got, "lookup [host of a secret]") {
			t.Errorf("%s: %v", value, err)
		}
		open := aRun(m{"url": "http://host-9d1.invalid/"})
		if _, err := a.Execute(t.Context(), open); !strings.Contains(fmt.Sprint(err), "host-9d1.invalid") {
			t.Errorf("a host that is no secret is hidden: %v", err)
		}
	}
}
