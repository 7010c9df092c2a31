package operate

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Access manages who may call a node: tokens, sessions of the console, and the audit log.
//
// A caller is identified by a token, by a session, or because it is on the node's own machine (Identity). Its user role
// says which calls it may make; docs/access.md has the table.
type Access interface {
	// CreateToken stores a new token, and returns its secret. No other call returns the secret.
	CreateToken(context.Context, TokenRequest) (*NewToken, error)
	// ListTokens returns tokens in the order of their ids, expired ones too.
	ListTokens(context.Context, PageQuery) (*perdure.Page[TokenView], error)
	// RotateToken gives a token a new secret. The old secret stays valid for the time overlap, at most MaxTokenOverlap.
	RotateToken(ctx context.Context, id string, overlap time.Duration, author string) (*NewToken, error)
	// DeleteToken revokes a token, and ends the sessions that were started with it. Each node refuses it after
	// CredentialCached at the latest.
	DeleteToken(ctx context.Context, id, author string) error

	// ListSessions returns the sessions of the console that have not ended.
	ListSessions(context.Context, PageQuery) (*perdure.Page[SessionView], error)
	// DeleteSession ends a session.
	DeleteSession(ctx context.Context, id, author string) error

	// Audit returns what was done, and what was refused, newest first.
	Audit(context.Context, AuditQuery) (*perdure.Page[AuditEntry], error)
}

// Bounds of access control.
const (
	MaxTokens         = 10_000
	MaxSessions       = 10_000
	MaxSessionsEach   = 100 // of one token, or of one user of OpenID Connect; the oldest one ends
	MaxTokenNames     = 100 // types, agents and groups of one token, of each
	MaxTokenNameRunes = 100
	MaxTokenAge       = 10 * 365 * 24 * time.Hour
	MaxTokenOverlap   = 30 * 24 * time.Hour
	SessionLongest    = 12 * time.Hour // a session ends then
	SessionIdle       = time.Hour      // a session that is not used for so long ends
	// CredentialCached bounds the time for which a node caches a token or session, and so accepts it after it was revoked.
	CredentialCached = 5 * time.Second
	AuditKept        = 400 * 24 * time.Hour
)

// UserRole says which calls an identity may make.
type UserRole string

// The user roles.
const (
	Viewer    UserRole = "viewer"    // reads everything except audit log, tokens and sessions
	Submitter UserRole = "submitter" // submits jobs and reads them
	Agent     UserRole = "agent"     // carries out runs of named agents
	Operator  UserRole = "operator"  // what viewers and submitters may, and all acts
	Admin     UserRole = "admin"     // everything
)

// UserRoles are all user roles.
var UserRoles = []UserRole{Viewer, Submitter, Agent, Operator, Admin}

// Rights are what a token or session allows.
type Rights struct {
	Role   UserRole `json:"role"`
	Types  []string `json:"types,omitempty"`  // of a submitter: the types of jobs that it may submit; none: all
	Agents []string `json:"agents,omitempty"` // of an agent: those whose runs it may carry out
	Hosts  []string `json:"hosts,omitempty"`  // of an agent: the hosts that it may register, and whose runs it may carry out; none: all
	Groups []string `json:"groups,omitempty"` // for approvals
}

// Check returns an error with CodeInvalid if the rights contradict themselves.
func (r *Rights) Check() error {
	switch {
	case !slices.Contains(UserRoles, r.Role):
		return refuseField("/role", "use viewer, submitter, agent, operator or admin", "is not a user role: %q", r.Role)
	case r.Types != nil && len(r.Types) == 0: // not all types: a program may have filtered its list down to nothing
		return refuseField("/types", "leave it out for all types", "has no names")
	case len(r.Types) > 0 && r.Role != Submitter:
		return refuseField("/types", "leave it out, or use the role submitter", "restricts submitters only")
	case len(r.Agents) > 0 && r.Role != Agent:
		return refuseField("/agents", "leave it out, or use the role agent", "restricts agents only")
	case r.Hosts != nil && len(r.Hosts) == 0:
		return refuseField("/hosts", "leave it out for all hosts", "has no names")
	case len(r.Hosts) > 0 && r.Role != Agent:
		return refuseField("/hosts", "leave it out, or use the role agent", "restricts agents only")
	case len(r.Agents) == 0 && r.Role == Agent:
		return refuseField("/agents", "name the agents whose runs it may carry out", "is required for the role agent")
	}
	isName := func(s string) bool { return len(s) <= perdure.MaxNameLength && plain.IsName(s) }
	isHost := func(s string) bool { return plain.CheckHostWord(s) == nil }
	isGroup := func(s string) bool { return plain.IsLine(s, perdure.MaxKeyLength) }
	for _, list := range []struct {
		pointer string
		names   []string
		valid   func(string) bool
	}{{"/types", r.Types, isName}, {"/agents", r.Agents, isName}, {"/hosts", r.Hosts, isHost}, {"/groups", r.Groups, isGroup}} {
		if len(list.names) > MaxTokenNames {
			return refuseField(list.pointer, "", "has %d names; at most %d", len(list.names), MaxTokenNames)
		}
		for _, name := range list.names {
			if !list.valid(name) {
				return refuseField(list.pointer, "", "%q is not a name", plain.Clip(name, perdure.MaxNameLength))
			}
		}
	}
	return nil
}

// MaySubmit reports whether a caller with these rights may submit jobs of a type. The role alone is checked elsewhere.
func (r *Rights) MaySubmit(typ string) bool {
	return r.Role != Submitter || len(r.Types) == 0 || slices.Contains(r.Types, typ)
}

// MayCarryOut reports whether a caller with these rights may claim runs of an agent and report them.
func (r *Rights) MayCarryOut(agent string) bool {
	return r.Role != Agent || slices.Contains(r.Agents, agent)
}

// MayBeHost reports whether a caller with these rights may register a host, and claim runs for it.
func (r *Rights) MayBeHost(name string) bool {
	return r.Role != Agent || len(r.Hosts) == 0 || slices.Contains(r.Hosts, name)
}

// MayHold reports whether a caller with these rights may be a holder. A token for certain hosts is only for their holders,
// host/NAME/INCARNATION.
func (r *Rights) MayHold(holder string) bool {
	name, of := strings.CutPrefix(holder, "host/")
	name, _, whole := strings.Cut(name, "/")
	return r.Role != Agent || len(r.Hosts) == 0 || of && whole && slices.Contains(r.Hosts, name)
}

// Via is the way in which a caller was identified.
type Via string

// The ways in which a caller is identified.
const (
	ViaToken    Via = "token"
	ViaSession  Via = "session"
	ViaLoopback Via = "loopback" // a call from the node's own machine, while the store has no admin token
	ViaInsecure Via = "insecure" // any caller of a node that was started with --insecure
)

// Identity is a caller, as the node has identified it.
type Identity struct {
	Name string `json:"name"`
	Rights
	Via     Via       `json:"via"`
	Expires time.Time `json:"expires,omitzero"` // of the token or session

	Credential string `json:"-"` // the id of the token or session; "": none
	// Secret is the hash of the token's text, so that a call that waits ends when the secret is replaced. The zero value is
	// not compared.
	Secret     [32]byte `json:"-"`
	Address    string   `json:"-"` // from which the call came
	OnBehalfOf string   `json:"-"` // whom the caller names as the author of the act; "": it names none
	// AdminsLogIn reports whether admins can log in to the node without a token. If not, its last admin token is kept.
	AdminsLogIn bool `json:"-"`
}

type identityKey struct{}

// WithIdentity returns a context in which calls of a Service are made on behalf of an identity.
func WithIdentity(ctx context.Context, id *Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// IdentityOf returns the identity of a call; nil if the program that embeds the node makes it.
func IdentityOf(ctx context.Context) *Identity {
	id, _ := ctx.Value(identityKey{}).(*Identity)
	return id
}

// TokenRequest describes a new token.
type TokenRequest struct {
	Name string `json:"name"`
	Rights
	ExpiresIn perdure.Duration `json:"expiresIn,omitempty"` // 0: never
	Author    string           `json:"-"`
}

// Check returns an error with CodeInvalid if the request is incomplete or contradicts itself.
func (r *TokenRequest) Check() error {
	switch {
	case !plain.IsLine(r.Name, MaxTokenNameRunes):
		return refuseField("/name", "", "is not 1 to %d characters that can be printed", MaxTokenNameRunes)
	case r.ExpiresIn != 0 && time.Duration(r.ExpiresIn) < time.Second || time.Duration(r.ExpiresIn) > MaxTokenAge:
		return refuseField("/expiresIn", "leave it out for a token that does not expire", "is not between 1s and 10 years")
	}
	return r.Rights.Check()
}

// TokenView is a token without its secret.
type TokenView struct {
	ID   string `json:"id"` // 12 letters and digits, the first part of the token
	Name string `json:"name"`
	Rights
	CreatedAt  time.Time `json:"createdAt"`
	CreatedBy  string    `json:"createdBy"`
	ExpiresAt  time.Time `json:"expiresAt,omitzero"`
	LastUsedAt time.Time `json:"lastUsedAt,omitzero"` // to within five minutes
	RotatedAt  time.Time `json:"rotatedAt,omitzero"`
	// PreviousUntil is until when the secret before the latest rotation is valid.
	PreviousUntil time.Time `json:"previousUntil,omitzero"`
}

// NewToken is a token with its secret.
type NewToken struct {
	TokenView
	Token string `json:"token"` // pdr_ID_SECRET; shown once
}

// SessionView is a login to the console.
type SessionView struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Rights
	Token      string    `json:"token,omitempty"` // the id of the token with which it was started; missing: started with OpenID Connect
	CreatedAt  time.Time `json:"createdAt"`
	ExpiresAt  time.Time `json:"expiresAt"`  // at the latest
	LastUsedAt time.Time `json:"lastUsedAt"` // to within a minute
}

// PageQuery selects a page of a list that has no filter.
type PageQuery struct {
	Limit  int // 0: perdure.DefaultListLimit
	Cursor string
}

// AuditOutcome is the outcome of an act.
type AuditOutcome string

// The outcomes of an act.
const (
	AuditDone    AuditOutcome = "done"
	AuditRefused AuditOutcome = "refused"
)

// AuditEntry is an act, a login, a change of access, or a refused request.
type AuditEntry struct {
	ID         int64         `json:"id"`
	At         time.Time     `json:"at"`
	Author     string        `json:"author"`
	OnBehalfOf string        `json:"onBehalfOf,omitempty"` // the caller's Perdure-Author
	Via        Via           `json:"via,omitempty"`        // missing: the program that embeds the node, or a command with --store
	Credential string        `json:"credential,omitempty"` // id of the token or session
	Address    string        `json:"address,omitempty"`    // from which the request came
	Act        string        `json:"act"`                  // a verb such as undo, or the name of another call such as putLimit
	Job        perdure.JobID `json:"job,omitzero"`
	Target     string        `json:"target,omitempty"` // a step of the job, or what the act was on: the name of a limit, the id of a token
	Reason     string        `json:"reason,omitempty"` // given by the author; of a token: its name, and what it allows
	Outcome    AuditOutcome  `json:"outcome"`
	Code       perdure.Code  `json:"code,omitempty"`  // of a refusal
	Count      int           `json:"count,omitempty"` // of an entry refusedRequests: how many requests of that second it stands for
}

// AuditQuery selects entries of the audit log, newest first. An empty field selects all.
type AuditQuery struct {
	Author string
	Act    string
	Job    string // as in perdure.Service
	Since  time.Time
	Limit  int // 0: perdure.DefaultListLimit
	Cursor string
}
