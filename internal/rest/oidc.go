package rest

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/perdure/perdure/operate"
)

// OIDC logs users of the console in at an OpenID Connect provider. Package oidc has one.
type OIDC interface {
	Start(ctx context.Context, to string, now time.Time) (location, cookie string, err error)
	GivesAdmin() bool // users can have the user role admin
	// Finish returns the name of the user with a refusal, if the ID token gives it.
	Finish(ctx context.Context, query url.Values, cookie string, now time.Time) (id *operate.Identity, to string, err error)
}

// The paths of logins. They are the console's: OpenAPI does not describe them.
const (
	oidcStart    = "/ui/oidc/start"
	oidcCallback = "/ui/oidc/callback"

	loginHeader = "Perdure-Login" // of a 401: how the console may log in
)

func (a *api) mountOIDC() {
	a.mux.Handle("GET "+oidcStart, a.handler(route{anyQuery: true, do: (*call).startOIDC}))
	a.mux.Handle("GET "+oidcCallback, a.handler(route{anyQuery: true, do: (*call).finishOIDC}))
}

// startOIDC sends the browser to the provider.
func (c *call) startOIDC() error {
	location, cookie, err := c.OIDC.Start(c.ctx(), c.returnTo(c.r.URL.Query().Get("to")), time.Now())
	if err != nil {
		c.loginFailed(err, c.r.URL.Query().Get("to"), nil)
		return nil
	}
	c.oidcCookie(cookie, int(oidcTime.Seconds()))
	c.redirect(location)
	return nil
}

// finishOIDC ends a login: the browser comes from the provider, gets the cookie of a new session, and goes to the page
// where the login began.
func (c *call) finishOIDC() error {
	var cookie string
	if kept, err := c.r.Cookie(c.cookieName() + oidcSuffix); err == nil {
		cookie = kept.Value
	}
	c.oidcCookie("", -1)
	id, to, err := c.OIDC.Finish(c.ctx(), c.r.URL.Query(), cookie, time.Now())
	var text string
	if err == nil {
		text, _, err = c.Access.Start(c.ctx(), id, c.address())
	}
	if err != nil {
		c.loginFailed(err, to, id)
		return nil
	}
	c.setCookie(text, int(operate.SessionLongest.Seconds()))
	c.redirect(c.returnTo(to))
	return nil
}

const (
	oidcSuffix = "-login"
	oidcTime   = 10 * time.Minute
)

func (c *call) oidcCookie(value string, seconds int) {
	http.SetCookie(c.w, &http.Cookie{Name: c.cookieName() + oidcSuffix, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: c.secure(), SameSite: http.SameSiteLaxMode})
}

// loginFailed records a login that failed, and sends the browser back to the page to, which asks for a login. The page gets
// the code of the problem, and not its text: a link of another site could make it show any text.
// user is nil if it is not known.
func (c *call) loginFailed(err error, to string, user *operate.Identity) {
	p, author := problemOf(c.r, err), "unknown"
	if user != nil {
		author = user.Name
	}
	c.Log.InfoContext(c.r.Context(), "login failed", "code", p.Code, "error", printable(p.Detail), "address", c.address())
	c.Access.Refused(operate.AuditEntry{Author: author, Address: c.address(), Act: "login", Target: "oidc", Outcome: operate.AuditRefused, Code: p.Code}, "")
	to, _, _ = strings.Cut(c.returnTo(to), "#")
	c.redirect(to + "#login=" + string(p.Code))
}

func (c *call) redirect(to string) {
	c.w.Header().Set("Location", to)
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.WriteHeader(http.StatusSeeOther)
}

// returnTo returns the page of the console to which a login returns: to, if that is a path of this console, or else its
// first page. So no link of another site can use a login to send a user elsewhere.
func (c *call) returnTo(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || strings.ContainsAny(to, "\\\r\n\t") || strings.HasPrefix(to, "//") ||
		!strings.HasPrefix(path.Clean(u.Path)+"/", c.Console) || strings.Contains(u.Path, "/oidc/") {
		return c.Console
	}
	return to
}
