package rest

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/operate"
)

// The types of the bodies, for the documentation. They are read field by field.
type (
	tokenBody struct {
		Name      string            `json:"name" maxLength:"100" doc:"What the token is for; the author of the acts that are performed with it"`
		Role      operate.UserRole  `json:"role"`
		Types     []string          `json:"types,omitempty" doc:"Of a submitter: the types of jobs that it may submit; missing: all"`
		Agents    []string          `json:"agents,omitempty" doc:"Of an agent, and required there: those whose runs it may carry out"`
		Hosts     []string          `json:"hosts,omitempty" doc:"Of an agent: the hosts that it may register, and whose runs it may carry out; missing: all"`
		Groups    []string          `json:"groups,omitempty" doc:"For approvals"`
		ExpiresIn *perdure.Duration `json:"expiresIn,omitempty" doc:"At most 10 years; missing: it does not expire"`
	}
	rotateBody struct {
		Overlap *perdure.Duration `json:"overlap,omitempty" doc:"For how long the secret before it stays valid, at most 30d; missing: it ends at once"`
	}
	loginBody struct {
		Token string `json:"token"`
	}
	userRoleWord string
	viaWord      string
	auditWord    string
)

func (userRoleWord) Schema(huma.Registry) *huma.Schema { return words(operate.UserRoles...) }
func (auditWord) Schema(huma.Registry) *huma.Schema {
	return words(operate.AuditDone, operate.AuditRefused)
}
func (viaWord) Schema(huma.Registry) *huma.Schema {
	return words(operate.ViaToken, operate.ViaSession, operate.ViaLoopback, operate.ViaInsecure)
}

func (a *api) accessRoutes() []route {
	const token, session = "/v1/tokens/{id}", "/v1/sessions/{id}"
	body := []int{http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}
	created := reflect.TypeFor[operate.NewToken]()
	return []route{
		{
			method: http.MethodGet, path: "/v1/me", id: "getMe", tag: "access", do: (*call).me,
			summary: "Get the caller's identity", doc: "Who the node takes the caller for, and what it may do.",
			results: []result{{status: http.StatusOK, doc: "The identity", of: reflect.TypeFor[operate.Identity](), example: meExample}},
		},
		{
			method: http.MethodGet, path: "/v1/tokens", id: "listTokens", tag: "access", do: (*call).listTokens,
			summary: "List tokens", doc: "In the order of their ids, expired ones too, without their secrets.", params: pageParams,
			results: []result{{status: http.StatusOK, doc: "A page of tokens", of: reflect.TypeFor[perdure.Page[operate.TokenView]](), example: `{"items":[` + tokenExample + `]}`}},
		},
		{
			method: http.MethodPost, path: "/v1/tokens", id: "createToken", tag: "access", do: (*call).createToken,
			summary: "Create a token", doc: "Its text is in the answer, and nowhere else.", headers: authorParam,
			body:     &media{of: reflect.TypeFor[tokenBody](), example: tokenBodyExample},
			results:  []result{{status: http.StatusCreated, doc: "The token", of: created, example: newTokenExample}},
			problems: append([]int{http.StatusConflict}, body...),
		},
		{
			method: http.MethodPost, path: token + "/rotate", id: "rotateToken", tag: "access", do: (*call).rotateToken,
			summary: "Give a token another secret", headers: authorParam,
			body:     &media{of: reflect.TypeFor[rotateBody](), optional: true, example: `{"overlap":"24h"}`},
			results:  []result{{status: http.StatusOK, doc: "The token with its new text", of: created, example: newTokenExample}},
			problems: append([]int{http.StatusNotFound, http.StatusConflict}, body...),
		},
		{
			method: http.MethodDelete, path: token, id: "deleteToken", tag: "access", do: (*call).deleteToken,
			summary: "Revoke a token", doc: "Also ends the sessions that were started with it. Each node refuses it within 5 seconds. The last valid token of an admin is refused with 409, unless OpenID Connect gives users the user role admin.", headers: authorParam,
			results: []result{{status: http.StatusNoContent, doc: "The token was deleted"}}, problems: []int{http.StatusNotFound, http.StatusConflict},
		},
		{
			method: http.MethodGet, path: "/v1/sessions", id: "listSessions", tag: "access", do: (*call).listSessions,
			summary: "List sessions", doc: "Logins to the console that have not ended.", params: pageParams,
			results: []result{{status: http.StatusOK, doc: "A page of sessions", of: reflect.TypeFor[perdure.Page[operate.SessionView]](), example: `{"items":[` + sessionExample + `]}`}},
		},
		{
			method: http.MethodPost, path: "/v1/sessions", id: "login", tag: "access", do: (*call).login,
			summary: "Log in to the console", doc: "Starts a session with the rights of a token. The answer sets its cookie. After 10 wrong tokens in a minute, an address is refused with 429.",
			body:     &media{of: reflect.TypeFor[loginBody](), example: `{"token":"pdr_…"}`},
			results:  []result{{status: http.StatusCreated, doc: "The identity of the session", of: reflect.TypeFor[operate.Identity](), example: meExample}},
			problems: append([]int{http.StatusConflict}, body...),
		},
		{
			method: http.MethodDelete, path: "/v1/sessions/current", id: "logout", tag: "access", literal: true, do: (*call).logout,
			summary: "Log out of the console", doc: "Ends the session of the caller's cookie.",
			results: []result{{status: http.StatusNoContent, doc: "The session has ended"}}, problems: []int{http.StatusConflict},
		},
		{
			method: http.MethodDelete, path: session, id: "deleteSession", tag: "access", do: (*call).deleteSession,
			summary: "End a session", headers: authorParam,
			results: []result{{status: http.StatusNoContent, doc: "The session was ended"}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/v1/audit", id: "getAudit", tag: "access", do: (*call).audit,
			summary: "Read the audit log", doc: "Acts, changes of access, logins, and refused requests, newest first. Entries are kept for 400 days.",
			params: append([]param{
				{name: "author", doc: "By this author", example: "anna"},
				{name: "act", doc: "With this act, performed or refused: a verb such as undo, or the operationId of another call such as putLimit", example: "undo"},
				{name: "job", doc: "On this job: an id, a key, the start of an id, or @latest", example: "order-1042"},
				{name: "since", doc: "From this time on, or this long ago", example: "24h"},
			}, pageParams...),
			results:  []result{{status: http.StatusOK, doc: "A page of entries", of: reflect.TypeFor[perdure.Page[operate.AuditEntry]](), example: auditExample}},
			problems: []int{http.StatusNotFound},
		},
	}
}

func (c *call) me() error {
	id := operate.IdentityOf(c.r.Context())
	if id == nil { // the handler has no registry
		id = &operate.Identity{Rights: operate.Rights{Role: operate.Admin}, Via: operate.ViaInsecure}
	}
	shown := *id
	if shown.Name == "" {
		shown.Name = string(id.Via)
	}
	utc(&shown.Expires)
	c.w.Header().Set("Cache-Control", "no-store")
	return c.json(http.StatusOK, &shown)
}

func (c *call) page() (operate.PageQuery, error) {
	q := reader{query: c.query}
	page := operate.PageQuery{Limit: q.limit(), Cursor: q.cursor()}
	return page, q.err
}

func (c *call) listTokens() error {
	q, err := c.page()
	if err != nil {
		return err
	}
	page, err := c.Service.ListTokens(c.ctx(), q)
	if err != nil {
		return err
	}
	for i := range page.Items {
		utcToken(&page.Items[i])
	}
	return c.json(http.StatusOK, page)
}

func utcToken(t *operate.TokenView) {
	utc(&t.CreatedAt, &t.ExpiresAt, &t.LastUsedAt, &t.RotatedAt, &t.PreviousUntil)
}

func (c *call) createToken() error {
	author, err := c.author()
	if err != nil {
		return err
	}
	doc, err := c.document(maxSmallBody, false)
	if err != nil {
		return err
	}
	r := readToken(doc)
	if err := doc.err(); err != nil {
		return err
	}
	r.Author = author
	if err := r.Check(); err != nil {
		return err
	}
	t, err := c.Service.CreateToken(c.ctx(), r)
	if err != nil {
		return err
	}
	return c.newToken(http.StatusCreated, t)
}

func (c *call) newToken(status int, t *operate.NewToken) error {
	utcToken(&t.TokenView)
	c.w.Header().Set("Cache-Control", "no-store")
	return c.json(status, t)
}

func readToken(doc *document) (r operate.TokenRequest) {
	root := doc.root()
	for name, field := range root.fields() {
		switch string(name) {
		case "name":
			r.Name = field.name(operate.MaxTokenNameRunes)
		case "role":
			r.Role = operate.UserRole(field.string())
		case "types":
			r.Types = field.someNames(operate.MaxTokenNames, perdure.MaxNameLength)
		case "agents":
			r.Agents = field.someNames(operate.MaxTokenNames, perdure.MaxNameLength)
		case "hosts":
			r.Hosts = field.someNames(operate.MaxTokenNames, perdure.MaxHostWord)
		case "groups":
			r.Groups = field.names(operate.MaxTokenNames, perdure.MaxKeyLength)
		case "expiresIn":
			r.ExpiresIn = perdure.Duration(field.duration(time.Second, operate.MaxTokenAge))
		default:
			field.unknown("name", "role", "types", "agents", "hosts", "groups", "expiresIn")
		}
	}
	root.need("name", r.Name != "")
	root.need("role", r.Role != "")
	return r
}

// names reads a list of at most most names, each of at most length characters.
func (v value) names(most, length int) (list []string) {
	if v.null() {
		return nil
	}
	for i, item := range v.items() {
		switch {
		case i < most:
			list = append(list, item.name(length))
		case i == most:
			v.fault("has more than %d elements", most)
		}
	}
	return list
}

// someNames is names for a list that restricts: an empty one is a fault, because it would allow everything.
func (v value) someNames(most, length int) []string {
	isList := v.kind() == jsontext.List
	list := v.names(most, length)
	if isList && len(list) == 0 {
		v.fault(emptyField)
	}
	return list
}

func (c *call) rotateToken() error {
	id, author, err := c.actOn("id")
	if err != nil {
		return err
	}
	doc, err := c.document(maxSmallBody, true)
	if err != nil {
		return err
	}
	var overlap time.Duration
	for name, field := range doc.root().fields() {
		if string(name) != "overlap" {
			field.unknown("overlap")
			continue
		}
		overlap = field.duration(0, operate.MaxTokenOverlap)
	}
	if err := doc.err(); err != nil {
		return err
	}
	t, err := c.Service.RotateToken(c.ctx(), id, overlap, author)
	if err != nil {
		return err
	}
	return c.newToken(http.StatusOK, t)
}

// remove deletes what a part of the path names.
func (c *call) remove(part string, del func(ctx context.Context, id, author string) error) error {
	id, err := c.path(part)
	if err != nil {
		return err
	}
	author, err := c.author()
	if err != nil {
		return err
	}
	if err := del(c.ctx(), id, author); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *call) deleteToken() error   { return c.remove("id", c.Service.DeleteToken) }
func (c *call) deleteSession() error { return c.remove("id", c.Service.DeleteSession) }

func (c *call) listSessions() error {
	q, err := c.page()
	if err != nil {
		return err
	}
	page, err := c.Service.ListSessions(c.ctx(), q)
	if err != nil {
		return err
	}
	for i := range page.Items {
		s := &page.Items[i]
		utc(&s.CreatedAt, &s.ExpiresAt, &s.LastUsedAt)
	}
	return c.json(http.StatusOK, page)
}

func (c *call) login() error {
	doc, err := c.document(maxSmallBody, false)
	if err != nil {
		return err
	}
	token, root := "", doc.root()
	for name, field := range root.fields() {
		if string(name) != "token" {
			field.unknown("token")
			continue
		}
		token = field.string()
	}
	root.need("token", token != "")
	if err := doc.err(); err != nil {
		return err
	}
	if c.Access == nil {
		return perdure.Refuse(perdure.CodeConflict, "this handler has no tokens: the program that mounts it decides who may call")
	}
	text, id, err := c.Access.Login(c.ctx(), token, c.address())
	if err != nil {
		return c.unidentified(err)
	}
	c.setCookie(text, int(operate.SessionLongest.Seconds()))
	shown := *id
	utc(&shown.Expires)
	return c.json(http.StatusCreated, &shown)
}

func (c *call) logout() error {
	id := operate.IdentityOf(c.r.Context())
	if id == nil || id.Via != operate.ViaSession {
		return perdure.Refuse(perdure.CodeConflict, "the call has no session's cookie")
	}
	if err := c.Access.Logout(c.ctx(), id); err != nil {
		return err
	}
	c.setCookie("", -1)
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *call) setCookie(value string, seconds int) {
	http.SetCookie(c.w, &http.Cookie{Name: c.cookieName(), Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: c.secure(), SameSite: http.SameSiteLaxMode})
	c.w.Header().Set("Cache-Control", "no-store")
}

func (c *call) audit() error {
	q := reader{query: c.query}
	query := operate.AuditQuery{Author: q.text("author", perdure.MaxHolderLength), Act: q.name("act", perdure.MaxNameLength), Job: q.name("job", perdure.MaxKeyLength),
		Since: q.time("since"), Limit: q.limit(), Cursor: q.cursor()}
	if q.err != nil {
		return q.err
	}
	page, err := c.Service.Audit(c.ctx(), query)
	if err != nil {
		return err
	}
	for i := range page.Items {
		utc(&page.Items[i].At)
	}
	return c.json(http.StatusOK, page)
}
