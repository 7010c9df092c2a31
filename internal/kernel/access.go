package kernel

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// Credential is a token, or a session of the console. The store has a hash of its secret, never the secret.
type Credential struct {
	ID   string
	Kind CredentialKind
	Hash [32]byte // SHA-256 of the secret
	// Previous is the hash of the secret before the latest rotation, which is valid until PreviousUntil.
	Previous      [32]byte
	PreviousUntil time.Time

	Name   string
	Rights operate.Rights
	Token  string // of a session: the id of the token with which it was started; "": OpenID Connect

	CreatedBy                               string
	CreatedAt, RotatedAt, ExpiresAt, UsedAt time.Time // ExpiresAt is zero: never
}

// CredentialKind says what a credential is for. Its text is stored.
type CredentialKind string

// The kinds of credentials.
const (
	TokenCredential   CredentialKind = "token"
	SessionCredential CredentialKind = "session"
)

// ValidAt reports whether the credential is valid at a time. A session also ends if it is not used.
func (c *Credential) ValidAt(now time.Time) bool {
	return (c.ExpiresAt.IsZero() || now.Before(c.ExpiresAt)) &&
		(c.Kind != SessionCredential || now.Before(c.UsedAt.Add(operate.SessionIdle)))
}

// TouchAfter is for how long the time of the last use may be behind: a use is recorded if the recorded one is older.
func (c *Credential) TouchAfter() time.Duration {
	if c.Kind == SessionCredential {
		return time.Minute
	}
	return 5 * time.Minute
}

// AuditOf returns an entry of the audit log for an act of the caller of ctx. If the caller has no name of its own, because
// the program that embeds the node makes the call or the node asks for no token, author is recorded.
func AuditOf(ctx context.Context, author, act string) operate.AuditEntry {
	e := operate.AuditEntry{Author: cmp.Or(author, "program"), Act: act, Outcome: operate.AuditDone}
	if id := operate.IdentityOf(ctx); id != nil {
		e.Via, e.Credential, e.Address = id.Via, id.Credential, id.Address
		if e.Author, e.OnBehalfOf = id.Name, id.OnBehalfOf; id.Name == "" {
			e.Author, e.OnBehalfOf = cmp.Or(author, id.OnBehalfOf, "rest"), ""
		}
	}
	return e
}

// AuditActs are the names of acts in the audit log: an act has the same name whether it was performed or refused. They are
// the verbs of acts on jobs, and the names of the other calls that can be refused or are recorded.
var AuditActs = []string{
	string(perdure.VerbUndo), string(perdure.VerbRedo), string(perdure.VerbResume), string(perdure.VerbGiveUp), string(perdure.VerbSettle), string(perdure.VerbSkip), string(perdure.VerbEdit), string(perdure.VerbStop),
	string(perdure.VerbApprove), string(perdure.VerbReject), "sendSignal",
	"startBulk", "stopBulk", "resumeBulk", "closeAlert", "putLimit", "deleteLimit", "putAgent", "deleteAgent",
	"createWebhook", "putWebhook", "deleteWebhook", "rotateWebhook", "pauseWebhook", "resumeWebhook", "testWebhook", "resendWebhook", "holdRole", "releaseRole",
	"drainHost", "readyHost", "deleteHost", "putSchedule", "deleteSchedule", "pauseSchedule", "resumeSchedule", "triggerSchedule", "backfillSchedule",
	"putDefinition", "promoteDefinition", "deleteDefinition",
	"login", "logout", "createToken", "rotateToken", "deleteToken", "deleteSession",
	ActRaiseFence, ActRefusals,

	// These are recorded only if they are refused because of the caller.
	"submitJob", "submitBatch", "validate", "claim", "report", "heartbeat", "appendLogs", "putArtifact", "getArtifact",
	"listJobs", "getJob", "getStep", "getDefinition", "getOutput", "listDefinitions", "getStoredDefinition", "getHistory", "getRuns", "getLogs", "getGraph", "getShapeGraph", "followJob",
	"metrics", "getStats", "listAlerts", "listAgents", "getAgent", "listLimits", "listLimitKeys", "getLimit", "listNodes", "listBulk", "getBulk", "listBulkRefusals",
	"listWebhooks", "getWebhook", "listDeliveries", "readEvents", "listRoles", "registerHost", "listHosts", "getHost", "listSchedules", "getSchedule", "nextTimes", "listFirings", "listTokens", "listSessions", "getAudit", "getMe",
}

// Acts that are no calls of the API.
const (
	ActRaiseFence = "raiseFence"
	ActRefusals   = "refusedRequests" // an entry that counts refused requests that have no entries of their own
)

// Summary says what the credential allows and until when, for the audit log.
func (c *Credential) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", c.Name, c.Rights.Role)
	for _, list := range []struct {
		of    string
		names []string
	}{{"types", c.Rights.Types}, {"agents", c.Rights.Agents}, {"hosts", c.Rights.Hosts}, {"groups", c.Rights.Groups}} {
		if len(list.names) > 0 {
			fmt.Fprintf(&b, ", %s %s", list.of, strings.Join(list.names, " "))
		}
	}
	if c.ExpiresAt.IsZero() {
		b.WriteString(", does not expire")
	} else {
		b.WriteString(", expires " + c.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return plain.Shorten(b.String(), perdure.MaxReasonBytes-len("…"))
}

// AccessTx is what transactions do with credentials. A transaction that adds a credential has locked
// the role courier (Locker.LockRoles), so that no other one adds one at the same time, and CountCredentials is exact.
type AccessTx interface {
	// LockCredential locks a credential, and waits for a lock that another transaction holds; nil: there is none.
	LockCredential(id string) (*Credential, error)
	CountCredentials(CredentialKind) (int, error)
	// SessionsOf returns the ids of at most max sessions, the newest first: of those that were started with a token, or,
	// if token is "", of those that users with this name started with OpenID Connect.
	SessionsOf(token, name string, max int) ([]string, error)
	// HasOtherAdmin reports whether there is a token of the user role admin, other than id, that is valid at a time.
	HasOtherAdmin(id string, at time.Time) (bool, error)
	// AddCredential stores a new credential, and returns ErrStale if its id is taken. SaveCredential writes the hashes
	// and times of one that this transaction has locked; nothing else of it ever changes.
	AddCredential(*Credential) error
	SaveCredential(*Credential) error
	// DeleteCredential deletes a credential, and the sessions that were started with it.
	DeleteCredential(id string) error
}

// AccessReader reads credentials and the audit log.
type AccessReader interface {
	// FindCredentials returns those of the credentials that exist, each once, in any order.
	FindCredentials(ctx context.Context, ids []string) ([]*Credential, error)
	// Credentials returns at most max credentials of a kind in the order of their ids, beginning after an id.
	Credentials(ctx context.Context, kind CredentialKind, after string, max int) ([]*Credential, error)
	// HasAdminToken reports whether there is a token of the user role admin, expired or not.
	HasAdminToken(context.Context) (bool, error)
	// TouchCredential records a use, unless a later one is recorded. Nothing happens if there is no such credential.
	TouchCredential(ctx context.Context, id string, at time.Time) error
	// AuditLog returns the entries that match the filter, newest first.
	AuditLog(context.Context, AuditFilter) ([]operate.AuditEntry, error)
	// ForgetAccess deletes at most max sessions that expired before the time expired or were used last before the time
	// unused, and at most max entries of the audit log from before the time audit. It returns how many rows it has deleted.
	ForgetAccess(ctx context.Context, expired, unused, audit time.Time, max int) (int, error)
}

// AuditFilter selects entries of the audit log, newest first. A field that is empty selects all.
type AuditFilter struct {
	Author string
	Act    string
	Job    perdure.JobID
	Since  time.Time
	Before int64 // only ids below; 0: from the newest
	Limit  int   // 0: perdure.DefaultListLimit
}

// Matches reports whether an entry matches the filter, apart from Limit.
func (f *AuditFilter) Matches(e *operate.AuditEntry) bool {
	return (f.Author == "" || e.Author == f.Author) && (f.Act == "" || e.Act == f.Act) && (f.Job.IsZero() || e.Job == f.Job) &&
		(f.Since.IsZero() || !e.At.Before(f.Since)) && (f.Before == 0 || e.ID < f.Before)
}
