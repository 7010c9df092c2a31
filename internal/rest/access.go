package rest

import (
	"cmp"
	"context"
	"fmt"
	"mime"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Registry identifies callers. Package access has one.
type Registry interface {
	Identify(ctx context.Context, text string, kind kernel.CredentialKind, address string) (*operate.Identity, error)
	StillValid(context.Context, *operate.Identity) bool
	HasAdmin(context.Context) (bool, error)
	Login(ctx context.Context, token, address string) (cookie string, id *operate.Identity, err error)
	Start(ctx context.Context, of *operate.Identity, address string) (cookie string, id *operate.Identity, err error)
	Logout(context.Context, *operate.Identity) error
	Refused(e operate.AuditEntry, job string)
}

// Tokens says which callers need a token or a session.
type Tokens uint8

// Which callers need a token or a session.
const (
	TokensOnceAdmin Tokens = iota // all; but callers on this machine only once the store has an admin token
	TokensAlways                  // all
	TokensNever                   // none (serve --insecure)
)

// permit says who may make a call.
type permit struct {
	public bool               // anyone, and the caller is not identified
	roles  []operate.UserRole // beside admin, which may make each call
}

func (p permit) allows(role operate.UserRole) bool {
	return role == operate.Admin || slices.Contains(p.roles, role)
}

// isForOperators reports whether only operators and admins may make the call.
func (p permit) isForOperators() bool {
	return !p.public && (len(p.roles) == 0 || slices.Equal(p.roles, doers.roles))
}

var (
	anyone   = permit{public: true}
	everyone = permit{roles: []operate.UserRole{operate.Viewer, operate.Submitter, operate.Agent, operate.Operator}}
	viewers  = permit{roles: []operate.UserRole{operate.Viewer, operate.Operator}}
	readers  = permit{roles: []operate.UserRole{operate.Viewer, operate.Submitter, operate.Operator}}
	senders  = permit{roles: []operate.UserRole{operate.Submitter, operate.Operator}}
	makers   = permit{roles: []operate.UserRole{operate.Submitter, operate.Agent, operate.Operator}}
	workers  = permit{roles: []operate.UserRole{operate.Agent}}
	leaders  = permit{roles: []operate.UserRole{operate.Agent, operate.Operator}}
	doers    = permit{roles: []operate.UserRole{operate.Operator}}
	admins   = permit{}
)

// permissions say who may make each call, by operationId. docs/access.md has the same table: a test
// compares them, and requests each route with each role.
var permissions = map[string]permit{
	"health": anyone, "ready": anyone, "openapi": anyone, "jobSchema": anyone, "login": anyone,
	"getMe": everyone, "logout": everyone,

	"listJobs": readers, "getJob": readers, "getStep": readers, "getDefinition": readers, "getOutput": readers, "getHistory": readers, "getRuns": readers, "getLogs": readers, "getArtifact": everyone, "putArtifact": makers,
	"getGraph": readers, "getShapeGraph": readers, "followJob": readers,

	"metrics": viewers, "getStats": viewers, "listAlerts": viewers, "listAgents": viewers, "getAgent": viewers, "listLimits": viewers, "listLimitKeys": viewers, "getLimit": viewers,
	"listNodes": viewers, "listBulk": viewers, "getBulk": viewers, "listBulkRefusals": viewers,

	"listWebhooks": viewers, "getWebhook": viewers, "listDeliveries": viewers, "readEvents": viewers,
	"pauseWebhook": doers, "resumeWebhook": doers, "testWebhook": doers, "resendWebhook": doers,
	"createWebhook": admins, "putWebhook": admins, "deleteWebhook": admins, "rotateWebhook": admins,

	"registerHost": workers, "listHosts": viewers, "getHost": viewers, "drainHost": doers, "readyHost": doers, "deleteHost": doers,

	"listSchedules": viewers, "getSchedule": viewers, "nextTimes": viewers, "listFirings": viewers,
	"putSchedule": doers, "deleteSchedule": doers, "pauseSchedule": doers, "resumeSchedule": doers, "triggerSchedule": doers, "backfillSchedule": doers,

	"listDefinitions": readers, "getStoredDefinition": readers, "putDefinition": doers, "promoteDefinition": doers, "deleteDefinition": doers,

	"submitJob": senders, "submitBatch": senders, "validate": senders,

	"claim": workers, "report": workers, "heartbeat": workers, "appendLogs": workers,

	"holdRole": leaders, "releaseRole": leaders, "listRoles": viewers,

	"undoJob": doers, "redoJob": doers, "resumeJob": doers, "giveUpJob": doers, "resumeStep": doers, "settleStep": doers, "skipStep": doers, "editStep": doers, "stopStep": doers,
	"approveStep": everyone, "rejectStep": everyone, "sendSignal": senders, "signalJob": senders,
	"startBulk": doers, "stopBulk": doers, "resumeBulk": doers, "closeAlert": doers, "putLimit": doers, "deleteLimit": doers, "putAgent": doers, "deleteAgent": doers,

	"listTokens": admins, "createToken": admins, "rotateToken": admins, "deleteToken": admins, "listSessions": admins, "deleteSession": admins, "getAudit": admins,
}

// checkPermissions panics if a route has no line in permissions.
func checkPermissions(routes []route) {
	for _, rt := range routes {
		if _, ok := permissions[rt.id]; !ok {
			panic(fmt.Sprintf("rest: permissions has no line for the call %s", rt.id))
		}
	}
}

// The names of the session's cookie: browsers accept __Host- only over TLS, and then from this host only.
const (
	plainCookie  = "perdure"
	secureCookie = "__Host-perdure"
)

var errNoToken = &perdure.Error{Code: perdure.CodeUnauthenticated, Message: "this call needs a token",
	Hint: "send Authorization: Bearer TOKEN; the command line takes it from --token-file or PERDURE_TOKEN"}

// identify finds out who makes the call, adds the identity to the context, and refuses a call that the identity may not
// make.
func (c *call) identify(rt *route) error {
	if c.Access == nil || rt.id == "" {
		return nil
	}
	allowed := permissions[rt.id]
	address := c.address()
	if allowed.public || rt.id == "metrics" && isLoopback(address) { // a scraper on this machine needs no token
		return nil
	}
	id, err := c.caller(address)
	if err != nil {
		return c.unidentified(err)
	}
	caller := *id
	caller.Address, caller.AdminsLogIn = address, c.OIDC != nil && c.OIDC.GivesAdmin()
	if header := c.r.Header.Get(authorHeader); misnamed(header, perdure.MaxHolderLength) == "" {
		caller.OnBehalfOf = header
	}
	c.r = c.r.WithContext(operate.WithIdentity(c.r.Context(), &caller))
	if !allowed.allows(caller.Role) {
		return forbidden(rt, caller.Role, allowed.roles)
	}
	return nil
}

// unidentified adds the headers of the answer to a call whose caller was not identified.
func (c *call) unidentified(err error) error {
	switch perdure.CodeOf(err) {
	case perdure.CodeUnauthenticated:
		c.w.Header().Set("WWW-Authenticate", `Bearer realm="perdure"`)
		if c.OIDC != nil {
			c.w.Header().Set(loginHeader, "oidc")
		}
	case perdure.CodeTooManyRequests: // clients must not repeat a wrong token every second
		c.w.Header().Set("Retry-After", "60")
	}
	return err
}

// forbidden names the user roles that may make the call.
func forbidden(rt *route, role operate.UserRole, allowed []operate.UserRole) error {
	var names []string
	for _, r := range append(slices.Clone(allowed), operate.Admin) {
		names = append(names, string(r))
	}
	last := len(names) - 1
	list := names[last]
	if last > 0 {
		list = strings.Join(names[:last], ", ") + " or " + list
	}
	e := perdure.Refuse(perdure.CodeForbidden, "the user role %s may not make this call (%s)", role, rt.id)
	e.Hint = "it needs the user role " + list
	return e
}

// caller returns the identity of the caller; nil and an error if it has none.
func (c *call) caller(address string) (*operate.Identity, error) {
	ctx := c.r.Context()
	if len(c.r.Header.Values("Authorization")) > 1 { // a proxy may have checked another one
		return nil, badPart("header", "Authorization", "is given more than once").hint("send one token")
	}
	if header := c.r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, &perdure.Error{Code: perdure.CodeUnauthenticated, Message: "the Authorization header has another scheme than Bearer", Hint: errNoToken.Hint}
		}
		return c.Access.Identify(ctx, strings.TrimSpace(token), kernel.TokenCredential, address)
	}
	if cookie := c.cookie(); cookie != "" {
		if err := c.sameSite(); err != nil {
			return nil, err
		}
		return c.Access.Identify(ctx, cookie, kernel.SessionCredential, address)
	}
	switch {
	case c.Tokens == TokensNever:
		return &operate.Identity{Rights: operate.Rights{Role: operate.Admin}, Via: operate.ViaInsecure}, nil
	case c.Tokens == TokensOnceAdmin && isLoopback(address):
		if has, err := c.Access.HasAdmin(ctx); has || err != nil {
			return nil, cmp.Or(err, error(errNoToken))
		}
		return &operate.Identity{Rights: operate.Rights{Role: operate.Admin}, Via: operate.ViaLoopback}, nil
	}
	return nil, errNoToken
}

// secure reports whether browsers reach this node over TLS.
func (c *call) secure() bool { return c.r.TLS != nil || c.Secure }

func (c *call) cookieName() string {
	if c.secure() {
		return secureCookie
	}
	return plainCookie
}

func (c *call) cookie() string {
	cookie, err := c.r.Cookie(c.cookieName())
	if err != nil {
		return ""
	}
	return cookie.Value
}

// sameSite refuses a call with a cookie that a form of another site could make a browser send. Requests of browsers that
// say where they come from were refused before (api.admit); this is for those that do not.
func (c *call) sameSite() error {
	mediaType, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	sends := c.r.Method != http.MethodGet && c.r.Method != http.MethodHead
	if !sends || mediaType == mediaJSON || mediaType == "application/yaml" || mediaType == "" && c.r.ContentLength == 0 {
		return nil
	}
	return perdure.Refuse(perdure.CodeForbidden, "a call with a session's cookie has a body of application/json, or none")
}

// address returns the IP address of the caller.
func (c *call) address() string {
	return c.Proxies.address(c.r.RemoteAddr, c.r.Header.Values("X-Forwarded-For"))
}

func isLoopback(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.Unmap().IsLoopback()
}

// revalidateEvery is the time between two checks whether the credential of a waiting call is still valid. A check may be
// answered with a credential that was read up to 4 s before, so that both together are at most operate.CredentialCached.
const revalidateEvery = time.Second

// endWhenRevoked checks the credential of a waiting call in intervals, and cancels the call when the credential is no
// longer valid. The function that it returns ends the checks.
func (c *call) endWhenRevoked(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	id := operate.IdentityOf(ctx)
	if c.Access == nil || id == nil || id.Credential == "" {
		return func() {}
	}
	var timer *time.Timer
	ready := make(chan struct{}) // closed when timer is set: the function may run before AfterFunc has returned
	timer = time.AfterFunc(revalidateEvery, func() {
		<-ready
		switch {
		case ctx.Err() != nil:
		case !c.Access.StillValid(ctx, id):
			cancel(&perdure.Error{Code: perdure.CodeUnauthenticated, Message: "the token or session is no longer valid"})
		default:
			timer.Reset(revalidateEvery)
		}
	})
	close(ready)
	return func() { timer.Stop() }
}

// orRevoked returns why a waiting call was ended, if its credential is no longer valid and it has failed; otherwise err.
func orRevoked(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && perdure.CodeOf(cause) == perdure.CodeUnauthenticated {
		return cause
	}
	return err
}

// auditRefusal records a refused act, and a call that its caller may not make.
func (c *call) auditRefusal(rt *route, err error) {
	if c.Access == nil || rt.id == "" {
		return
	}
	p := problemOf(c.r, err)
	denied := p.Code == perdure.CodeUnauthenticated || p.Code == perdure.CodeForbidden || rt.id == "login"
	isAct := rt.method != http.MethodGet && permissions[rt.id].isForOperators()
	if !denied && !isAct || p.Status >= http.StatusInternalServerError {
		return
	}
	if rt.id == "getMe" && c.r.Header.Get("Authorization") == "" && c.cookie() == "" { // the console asks whether it has to log in
		return
	}
	e := kernel.AuditOf(c.r.Context(), "", rt.actName())
	if operate.IdentityOf(c.r.Context()) == nil {
		e.Author, e.Address = "unknown", c.address()
	}
	e.Outcome, e.Code = operate.AuditRefused, p.Code
	job := ""
	switch id, name := c.r.PathValue("id"), c.r.PathValue("name"); {
	case strings.HasPrefix(rt.path, "/v1/jobs/{id}"):
		if job = id; misnamed(id, perdure.MaxKeyLength) != "" {
			job = printable(id)
		}
		e.Target = printable(name)
	default:
		if e.Target = printable(cmp.Or(id, name, c.r.PathValue("agent"))); e.Target == "" {
			e.Target = printable(c.r.URL.Path)
		}
	}
	c.Access.Refused(e, job)
}
