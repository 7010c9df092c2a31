package rest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/operate"
)

// sso is a provider that accepts every browser with its cookie.
type sso struct{ to *string }

func (s sso) Start(_ context.Context, to string, _ time.Time) (location, cookie string, err error) {
	*s.to = to
	return "https://login.example.com/auth?x=y", "kept", nil
}

func (s sso) GivesAdmin() bool { return false }

func (s sso) Finish(_ context.Context, query url.Values, cookie string, _ time.Time) (*operate.Identity, string, error) {
	if cookie == "no role" {
		return &operate.Identity{Name: "ben"}, query.Get("to"), perdure.Refuse(perdure.CodeForbidden, "no")
	}
	if cookie != "kept" {
		return nil, "", perdure.Refuse(perdure.CodeUnauthenticated, "no")
	}
	return &operate.Identity{Name: "anna", Rights: operate.Rights{Role: operate.Viewer}}, query.Get("to"), nil
}

// A login returns to a page of this console, whatever address it is asked to return to.
func TestLoginReturnsToThisConsoleOnly(t *testing.T) {
	for to, want := range map[string]string{
		"/perdure/ui/jobs?phase=parked":  "/perdure/ui/jobs?phase=parked",
		"/perdure/ui/":                   "/perdure/ui/",
		"":                               "/perdure/ui/",
		"/perdure/ui/jobs#x":             "/perdure/ui/jobs#x",
		"https://evil.example/":          "/perdure/ui/",
		"//evil.example/perdure/ui/":     "/perdure/ui/",
		"/\\evil.example/perdure/ui/":    "/perdure/ui/",
		"\\\\evil.example":               "/perdure/ui/",
		"/perdure/ui/../../evil":         "/perdure/ui/",
		"/perdure/ui/..%2f..%2fevil":     "/perdure/ui/",
		"/other":                         "/perdure/ui/",
		"javascript:alert(1)":            "/perdure/ui/",
		"/perdure/ui/oidc/start":         "/perdure/ui/",
		"/perdure/ui/x\r\nSet-Cookie: a": "/perdure/ui/",
	} {
		started := ""
		h := New(Config{Service: resttest.Full(), Log: quiet, Access: resttest.Registry{}, OIDC: sso{&started}, Console: "/perdure/ui/"})
		w := exchange(h, "GET /ui/oidc/start?to="+url.QueryEscape(to), "")
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "https://login.example.com/auth?x=y" || started != want {
			t.Errorf("%q: a login began that returns to %q (%d)", to, started, w.Code)
		}
		w = exchange(h, "GET /ui/oidc/callback?to="+url.QueryEscape(to), "", "Cookie: perdure-login=kept")
		if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != want {
			t.Errorf("%q: the login returns to %q (%d)", to, got, w.Code)
		}
		w = exchange(h, "GET /ui/oidc/callback?to="+url.QueryEscape(to), "", "Cookie: perdure-login=no role")
		if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != strings.TrimSuffix(want, "#x")+"#login=forbidden" {
			t.Errorf("%q: the refused login returns to %q (%d)", to, got, w.Code)
		}
	}
}

// A login that fails leads to the login page, with the code of the problem and without a session. The cookie of a login is
// used once.
func TestLoginThatFailsHasNoSession(t *testing.T) {
	started := ""
	h := New(Config{Service: resttest.Full(), Log: quiet, Access: resttest.Registry{}, OIDC: sso{&started}, Console: "/ui/", Secure: true})
	w := exchange(h, "GET /ui/oidc/start", "")
	if c := w.Result().Cookies(); len(c) != 1 || c[0].Name != "__Host-perdure-login" || !c[0].HttpOnly || !c[0].Secure || c[0].SameSite != http.SameSiteLaxMode || c[0].MaxAge != 600 {
		t.Errorf("%+v", c)
	}
	w = exchange(h, "GET /ui/oidc/callback", "", "Cookie: perdure-login=kept")
	if got := w.Header().Get("Location"); got != "/ui/#login=unauthenticated" || strings.Contains(strings.Join(w.Header().Values("Set-Cookie"), ";"), "__Host-perdure=") {
		t.Errorf("%q, cookies %q", got, w.Header().Values("Set-Cookie"))
	}
	w = exchange(h, "GET /ui/oidc/callback", "", "Cookie: __Host-perdure-login=kept")
	cookies := map[string]*http.Cookie{}
	for _, c := range w.Result().Cookies() {
		cookies[c.Name] = c
	}
	if s := cookies["__Host-perdure"]; s == nil || s.Value != "cookie" || !s.Secure || !s.HttpOnly || cookies["__Host-perdure-login"] == nil || cookies["__Host-perdure-login"].MaxAge >= 0 {
		t.Errorf("%+v", w.Header())
	}
	if w = exchange(h, "GET /v1/me", ""); w.Code != http.StatusOK { // the test's requests come from 192.0.2.1
		if w.Header().Get("Perdure-Login") != "oidc" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
}

// recorded is a registry that keeps refusals.
type recorded struct {
	resttest.Registry
	entries *[]operate.AuditEntry
}

func (r recorded) Refused(e operate.AuditEntry, _ string) { *r.entries = append(*r.entries, e) }

// A refused login is recorded with the name of the user, if the provider has identified the user.
func TestRefusedLoginNamesTheUser(t *testing.T) {
	for cookie, want := range map[string]string{"no role": "ben", "nonsense": "unknown"} {
		var entries []operate.AuditEntry
		h := New(Config{Service: resttest.Full(), Log: quiet, Access: recorded{entries: &entries}, OIDC: sso{new(string)}, Console: "/ui/"})
		exchange(h, "GET /ui/oidc/callback?to=/ui/", "", "Cookie: perdure-login="+cookie)
		if len(entries) != 1 || entries[0].Author != want || entries[0].Act != "login" {
			t.Errorf("%s: %+v", cookie, entries)
		}
	}
}

// X-Forwarded-For names the caller only if the connection is one of a trusted proxy.
func TestForwardedAddressIsOfTrustedProxiesOnly(t *testing.T) {
	proxies, err := ParseProxies([]string{"10.0.0.0/8", "192.0.2.7", "fd00::/8"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ remote, forwarded, want string }{
		{"203.0.113.9:1", "198.51.100.1", "203.0.113.9"},
		{"10.1.2.3:1", "198.51.100.1", "198.51.100.1"},
		{"10.1.2.3:1", "6.6.6.6, 198.51.100.1", "198.51.100.1"}, // the first was sent by the client
		{"10.1.2.3:1", "198.51.100.1, 10.9.9.9", "198.51.100.1"},
		{"10.1.2.3:1", "10.9.9.9", "10.9.9.9"},
		{"10.1.2.3:1", "", "10.1.2.3"},
		{"10.1.2.3:1", " ", "10.1.2.3"},
		{"10.1.2.3:1", "198.51.100.1:5555", "198.51.100.1"},
		{"10.1.2.3:1", "6.6.6.6, 198.51.100.1:5555 ,10.9.9.9:80", "198.51.100.1"},
		{"10.1.2.3:1", "[2001:db8::1]:5555", "2001:db8::1"},
		{"10.1.2.3:1", "[2001:db8::1]", "2001:db8::1"},
		{"10.1.2.3:1", "[::ffff:198.51.100.1]:5", "198.51.100.1"},
		{"10.1.2.3:1", "nonsense", unreadable},
		{"10.1.2.3:1", "unknown", unreadable},
		{"10.1.2.3:1", "[2001:db8::1]x", unreadable},
		{"10.1.2.3:1", "2001:db8::1]", unreadable},
		{"10.1.2.3:1", "198.51.100.1:port", unreadable},
		{"10.1.2.3:1", "198.51.100.1, nonsense", unreadable},
		{"10.1.2.3:1", "198.51.100.1,", unreadable},
		{"10.1.2.3:1", "nonsense, 10.9.9.9", unreadable},
		{"10.1.2.3:1", "nonsense, 198.51.100.1", "198.51.100.1"}, // the first was sent by the client
		{"192.0.2.7:1", "2001:db8::1", "2001:db8::1"},
		{"192.0.2.8:1", "2001:db8::1", "192.0.2.8"},
		{"[fd00::1]:1", "127.0.0.1", "127.0.0.1"},
		{"@", "127.0.0.1", "@"},
	} {
		if got := proxies.address(c.remote, []string{c.forwarded}); got != c.want {
			t.Errorf("%s for %s: %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
	if isLoopback(unreadable) {
		t.Error("a caller whose address cannot be read is a local one")
	}
	if got := Proxies(nil).address("127.0.0.1:1", []string{"8.8.8.8"}); got != "127.0.0.1" {
		t.Error(got)
	}
	for _, bad := range []string{"", "10.0.0.0/33", "proxy.example.com", "10.0.0"} {
		if _, err := ParseProxies([]string{bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if _, err := ParseProxies(make([]string, maxProxies+1)); err == nil {
		t.Error("too many are accepted")
	}
}

// Behind a proxy on this machine, a caller whose address cannot be read has no more rights than one elsewhere.
func TestUnreadableForwardedAddressIsNotLocal(t *testing.T) {
	proxies, err := ParseProxies([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	h := New(Config{Service: resttest.Full(), Log: quiet, Access: resttest.Registry{}, Proxies: proxies, Metrics: http.NotFoundHandler()})
	for forwarded, open := range map[string]bool{"": true, "127.0.0.1": true, "203.0.113.9": false, "203.0.113.9:5555": false, "unknown": false, "_hidden": false, "127.0.0.1, x": false} {
		for _, path := range []string{"/v1/limits", "/metrics"} {
			r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
			r.RemoteAddr = "127.0.0.1:1"
			if forwarded != "" {
				r.Header.Set("X-Forwarded-For", forwarded)
			}
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); (w.Code != http.StatusUnauthorized) != open {
				t.Errorf("%s, forwarded for %q: %d", path, forwarded, w.Code)
			}
		}
	}
}
