package oidc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/oidc/oidctest"
	"github.com/perdure/perdure/operate"
)

// provider is an OpenID Connect provider at which the user anna logs in, with the claims of the test.
type provider struct {
	*oidctest.Provider
	claims map[string]any // of anna
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	return &provider{Provider: oidctest.New(t)}
}

func (p *provider) client(t *testing.T) *Provider {
	t.Helper()
	c, err := New(Config{Issuer: p.URL, ClientID: "perdure", ClientSecret: "s", Redirect: "https://perdure.example.com/ui/oidc/callback",
		Rules: []Rule{{operate.Viewer, "groups", "all"}, {operate.Operator, "groups", "sre"}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// begin starts a login. It returns the query with which the provider sends the browser back, and the cookie.
func (p *provider) begin(t *testing.T, c *Provider) (query url.Values, cookie string) {
	t.Helper()
	location, cookie, err := c.Start(t.Context(), "/ui/jobs", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(location)
	if err != nil || !strings.HasPrefix(location, p.URL+"/auth?") {
		t.Fatal(location, err)
	}
	q := u.Query()
	if q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || q.Get("redirect_uri") != c.Redirect || !strings.Contains(q.Get("scope"), "openid") {
		t.Errorf("the provider is asked %v", q)
	}
	p.claims = map[string]any{"groups": []string{"all", "sre", "bad\nname"}}
	p.Users["anna"] = p.claims
	return url.Values{"state": {q.Get("state")}, "code": {p.Code(q, "anna")}}, cookie
}

func TestScopeGroupsIsLeftOutIfTheProviderDoesNotListIt(t *testing.T) {
	for _, c := range []struct {
		listed []string
		want   string
	}{
		{nil, "openid profile email groups"},
		{[]string{"openid", "email", "profile", "groups"}, "openid profile email groups"},
		{[]string{"openid", "email", "profile"}, "openid profile email"},
	} {
		p := newProvider(t)
		p.Scopes = c.listed
		location, _, err := p.client(t).Start(t.Context(), "/ui/", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(location)
		if err != nil {
			t.Fatal(err)
		}
		if got := u.Query().Get("scope"); got != c.want {
			t.Errorf("with %q listed, the scopes are %q, want %q", c.listed, got, c.want)
		}
	}
}

func TestLogin(t *testing.T) {
	p := newProvider(t)
	c := p.client(t)
	query, cookie := p.begin(t, c)
	id, to, err := c.Finish(t.Context(), query, cookie, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if id.Name != "anna" || id.Role != operate.Operator || !slices.Equal(id.Groups, []string{"all", "sre"}) || to != "/ui/jobs" {
		t.Errorf("%+v, to %q", id, to)
	}
	p.Rotate("k2") // the library reads the keys again
	query, cookie = p.begin(t, c)
	if _, _, err := c.Finish(t.Context(), query, cookie, time.Now()); err != nil {
		t.Errorf("after the provider has rotated its key: %v", err)
	}
}

// A login with any part wrong is refused.
func TestWrongLoginsAreRefused(t *testing.T) {
	p := newProvider(t)
	c, other := p.client(t), p.client(t)
	type attempt struct {
		query  url.Values
		cookie string
		now    time.Time
	}
	for name, spoil := range map[string]func(*attempt){
		"another state":          func(a *attempt) { a.query.Set("state", "x") },
		"no state":               func(a *attempt) { a.query.Del("state") },
		"no cookie":              func(a *attempt) { a.cookie = "" },
		"a cookie that is none":  func(a *attempt) { a.cookie = "e30" },
		"another login's cookie": func(a *attempt) { _, a.cookie = p.begin(t, other) },
		"another login's code": func(a *attempt) { // it was stolen: PKCE
			query, _ := p.begin(t, other)
			a.query.Set("code", query.Get("code"))
		},
		"too late":     func(a *attempt) { a.now = a.now.Add(LoginTime + time.Second) },
		"another code": func(a *attempt) { a.query.Set("code", "x") },
		"a code that was used": func(a *attempt) {
			if _, _, err := c.Finish(t.Context(), a.query, a.cookie, a.now); err != nil {
				t.Error(err)
			}
		},
		"the provider's refusal":   func(a *attempt) { a.query.Set("error", "access_denied") },
		"another nonce":            func(*attempt) { p.claims["nonce"] = "x" },
		"no nonce":                 func(*attempt) { p.claims["nonce"] = nil },
		"another audience":         func(*attempt) { p.claims["aud"] = "other" },
		"another issuer":           func(*attempt) { p.claims["iss"] = "https://evil.example" },
		"an expired token":         func(*attempt) { p.claims["exp"] = time.Now().Add(-time.Minute).Unix() },
		"a key that is not served": func(*attempt) { p.SignWithUnknownKey() },
	} {
		t.Run(name, func(t *testing.T) {
			p.Rotate("of " + name)
			query, cookie := p.begin(t, c)
			a := attempt{query, cookie, time.Now()}
			spoil(&a)
			id, to, err := c.Finish(t.Context(), a.query, a.cookie, a.now)
			if perdure.CodeOf(err) != perdure.CodeUnauthenticated || to != "" && to != "/ui/jobs" {
				t.Errorf("%+v, %q, %v", id, to, err)
			}
		})
	}
}

// The user role is the highest that a rule gives. Without one, the login is forbidden.
func TestUserRolesFollowTheRules(t *testing.T) {
	c := &Provider{Config: Config{GroupsClaim: "groups", Rules: []Rule{{operate.Viewer, "groups", "all"}, {operate.Operator, "groups", "sre"}, {operate.Admin, "email", "root@example.com"}}}}
	for _, test := range []struct {
		claims string
		want   operate.UserRole
	}{
		{`{"groups": ["all"]}`, operate.Viewer},
		{`{"groups": "sre"}`, operate.Operator},
		{`{"groups": ["sre", "all", 3]}`, operate.Operator},
		{`{"email": "root@example.com", "email_verified": true}`, operate.Admin},
		{`{"email": "root@example.com", "email_verified": false}`, ""},
		{`{"email": "root@example.com"}`, ""},
		{`{"groups": ["other"]}`, ""},
		{`{"groups": {"sre": true}}`, ""},
		{`{}`, ""},
	} {
		claims := map[string]any{}
		if err := json.Unmarshal([]byte(test.claims), &claims); err != nil {
			t.Fatal(err)
		}
		id, err := c.identify("17", claims)
		switch {
		case test.want == "" && perdure.CodeOf(err) != perdure.CodeForbidden:
			t.Errorf("%s: %+v, %v", test.claims, id, err)
		case test.want != "" && (err != nil || id.Role != test.want):
			t.Errorf("%s: %+v, %v", test.claims, id, err)
		}
	}
}

// The author of a user's acts is a verified name that can be printed.
func TestNamesOfUsers(t *testing.T) {
	c := &Provider{Config: Config{GroupsClaim: "groups", Rules: []Rule{{operate.Viewer, "groups", "all"}}}}
	for _, test := range []struct{ subject, claims, want string }{
		{"17", `{"preferred_username": "anna", "email": "a@example.com", "email_verified": true}`, "anna"},
		{"17", `{"email": "a@example.com", "email_verified": true}`, "a@example.com"},
		{"17", `{"email": "root@example.com", "email_verified": false}`, "17"},
		{"17", `{"email": "root@example.com"}`, "17"},
		{"17", `{"email": "root@example.com", "email_verified": "true"}`, "17"},
		{"17", `{"preferred_username": "anna\u202e", "email": "a@example.com", "email_verified": true}`, "a@example.com"},
		{"17", `{"preferred_username": "an\nna"}`, "17"},
		{"17", `{"preferred_username": ["anna", "root"]}`, "17"},
		{"1\n7\x1b\u202e", `{}`, "1\ufffd7\ufffd\ufffd"},
		{strings.Repeat("ü", 100), `{}`, strings.Repeat("ü", 50)},
		{"", `{}`, ""},
		{" ", `{}`, ""},
	} {
		claims := map[string]any{"groups": "all"}
		if err := json.Unmarshal([]byte(test.claims), &claims); err != nil {
			t.Fatal(err)
		}
		id, err := c.identify(test.subject, claims)
		switch {
		case test.want == "" && perdure.CodeOf(err) != perdure.CodeUnauthenticated:
			t.Errorf("%q, %s: %+v, %v", test.subject, test.claims, id, err)
		case test.want != "" && (err != nil || id.Name != test.want):
			t.Errorf("%q, %s: %+v, %v", test.subject, test.claims, id, err)
		}
	}
	if id, err := c.identify("17", map[string]any{"preferred_username": "anna"}); perdure.CodeOf(err) != perdure.CodeForbidden || id == nil || id.Name != "anna" || id.Role != "" {
		t.Errorf("without a user role: %+v, %v", id, err)
	}
}

// If the provider does not answer, a login is refused as unavailable, and the next one asks it again.
func TestProviderThatIsDownIsAskedAgain(t *testing.T) {
	p := newProvider(t)
	down := true
	inner := p.Config.Handler
	p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		inner.ServeHTTP(w, r)
	})
	c := p.client(t)
	if _, _, err := c.Start(t.Context(), "/ui/", time.Now()); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("down: %v", err)
	}
	down = false
	if _, _, err := c.Start(t.Context(), "/ui/", time.Now()); err != nil {
		t.Errorf("up again: %v", err)
	}
}

// Logins wait for a provider that does not answer only as long as one request to it takes, and a caller that gives up does
// not wait.
func TestLoginsShareTheReadingOfTheSettings(t *testing.T) {
	p := newProvider(t)
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	inner := p.Config.Handler
	p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-answer
		inner.ServeHTTP(w, r)
	})
	c := p.client(t)
	const logins = 5
	errs := make(chan error, logins)
	start := func(ctx context.Context) {
		_, _, err := c.Start(ctx, "/ui/", time.Now())
		errs <- err
	}
	for range logins {
		go start(t.Context())
	}
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := c.Start(ctx, "/ui/", time.Now()); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("given up: %v", err)
	}
	close(answer)
	for range logins {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := len(asked); n > 1 { // one that began after the answer
		t.Errorf("the provider was asked %d times more", n)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	good := Config{Issuer: "https://login.example.com", ClientID: "perdure", Rules: []Rule{{operate.Viewer, "groups", "all"}}}
	for name, edit := range map[string]func(*Config){
		"no issuer":      func(c *Config) { c.Issuer = "" },
		"a path":         func(c *Config) { c.Issuer = "/x" },
		"a password":     func(c *Config) { c.Issuer = "https://u:p@login.example.com" },
		"no client":      func(c *Config) { c.ClientID = "" },
		"no rules":       func(c *Config) { c.Rules = nil },
		"too many rules": func(c *Config) { c.Rules = make([]Rule, MaxRules+1) },
	} {
		c := good
		edit(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
	for text, ok := range map[string]bool{"operator=groups:sre": true, "admin=email:a@b": true, "viewer=x:y:z": true, "agent=groups:x": false,
		"root=groups:x": false, "operator": false, "operator=groups": false, "operator=:x": false, "operator=x:": false} {
		if r, err := ParseRule(text); (err == nil) != ok {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
	if r, _ := ParseRule("viewer=x:y:z"); fmt.Sprint(r) != "{viewer x y:z}" {
		t.Error(r)
	}
}
