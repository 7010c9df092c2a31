package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

const (
	credentialColumns  = `id, kind, hash, previous, previous_until, name, rights, token, created_by, created_at, rotated_at, expires_at, used_at`
	credentialSQL      = `SELECT ` + credentialColumns + ` FROM perdure_credential WHERE id = ?`
	findCredentialsSQL = `SELECT ` + credentialColumns + ` FROM perdure_credential WHERE id IN (SELECT value FROM json_each(?))`
	credentialsSQL     = `SELECT ` + credentialColumns + ` FROM perdure_credential WHERE kind = ? AND id > ? ORDER BY id LIMIT ?`
	credentialsOfSQL   = `SELECT count(*) FROM perdure_credential WHERE kind = ?`
	hasAdminSQL        = `SELECT EXISTS (SELECT 1 FROM perdure_credential WHERE kind = 'token' AND role = 'admin')`
	otherAdminSQL      = `SELECT EXISTS (SELECT 1 FROM perdure_credential WHERE kind = 'token' AND role = 'admin' AND id <> ? AND (expires_at IS NULL OR expires_at > ?))`
	sessionsOfSQL      = `SELECT id FROM perdure_credential WHERE kind = 'session' AND token = ? AND (token <> '' OR name = ?) ORDER BY created_at DESC, id DESC LIMIT ?`
	auditColumns       = `id, at, author, on_behalf_of, via, credential, address, act, job, target, reason, outcome, code, count`
	forgetSessionSQL   = `DELETE FROM perdure_credential WHERE id IN (
		SELECT id FROM perdure_credential WHERE kind = 'session' AND (expires_at < ? OR used_at < ?) ORDER BY id LIMIT ?)`
	forgetAuditSQL = `DELETE FROM perdure_audit_entry WHERE id IN (SELECT id FROM perdure_audit_entry WHERE at < ? ORDER BY at, id LIMIT ?)`
)

func readCredential(r *row) *kernel.Credential {
	c := &kernel.Credential{ID: r.text(), Kind: kernel.CredentialKind(r.text())}
	r.blob(c.Hash[:])
	r.blob(c.Previous[:])
	c.PreviousUntil, c.Name = r.time(), r.text()
	r.json(&c.Rights)
	c.Token, c.CreatedBy, c.CreatedAt, c.RotatedAt, c.ExpiresAt, c.UsedAt = r.text(), r.text(), r.time(), r.time(), r.time(), r.time()
	return c
}

func (tx *tx) LockCredential(id string) (*kernel.Credential, error) {
	return one(tx.c, readCredential, credentialSQL, id)
}

func (tx *tx) CountCredentials(kind kernel.CredentialKind) (int, error) {
	return one(tx.c, (*row).int, credentialsOfSQL, string(kind))
}

func (tx *tx) SessionsOf(token, name string, max int) ([]string, error) {
	return all(tx.c, (*row).text, sessionsOfSQL, token, name, atMost(max))
}

func (tx *tx) HasOtherAdmin(id string, at time.Time) (bool, error) {
	return one(tx.c, (*row).flag, otherAdminSQL, id, micros(at))
}

func (tx *tx) AddCredential(c *kernel.Credential) error {
	rights, err := json.Marshal(&c.Rights)
	if err != nil {
		return err
	}
	n, err := tx.changed(`INSERT INTO perdure_credential (`+credentialColumns+`, role) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		c.ID, string(c.Kind), c.Hash[:], c.Previous[:], micros(c.PreviousUntil), c.Name, string(rights), c.Token, c.CreatedBy,
		micros(c.CreatedAt), micros(c.RotatedAt), micros(c.ExpiresAt), micros(c.UsedAt), string(c.Rights.Role))
	return tx.exactlyOne(n, err)
}

func (tx *tx) SaveCredential(c *kernel.Credential) error {
	n, err := tx.changed(`UPDATE perdure_credential SET hash = ?, previous = ?, previous_until = ?, rotated_at = ?, expires_at = ?, used_at = ? WHERE id = ?`,
		c.Hash[:], c.Previous[:], micros(c.PreviousUntil), micros(c.RotatedAt), micros(c.ExpiresAt), micros(c.UsedAt), c.ID)
	return tx.exactlyOne(n, err)
}

func (tx *tx) DeleteCredential(id string) error {
	if err := tx.exec(`DELETE FROM perdure_credential WHERE token = ? AND token <> ''`, id); err != nil {
		return err
	}
	return tx.exec(`DELETE FROM perdure_credential WHERE id = ?`, id)
}

func (tx *tx) addAudit(e *operate.AuditEntry) error {
	return tx.exec(`INSERT INTO perdure_audit_entry (at, author, on_behalf_of, via, credential, address, act, job, target, reason, outcome, code, count)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		micros(e.At), e.Author, e.OnBehalfOf, string(e.Via), e.Credential, e.Address, e.Act, e.Job[:], e.Target, e.Reason, string(e.Outcome), string(e.Code), e.Count)
}

func readAudit(r *row) operate.AuditEntry {
	return operate.AuditEntry{ID: r.num(), At: r.time(), Author: r.text(), OnBehalfOf: r.text(), Via: operate.Via(r.text()), Credential: r.text(), Address: r.text(),
		Act: r.text(), Job: r.id(), Target: r.text(), Reason: r.text(), Outcome: operate.AuditOutcome(r.text()), Code: perdure.Code(r.text()), Count: r.int()}
}

// FindCredentials implements kernel.AccessReader.
func (s *Store) FindCredentials(ctx context.Context, ids []string) ([]*kernel.Credential, error) {
	if len(ids) == 1 {
		return view(ctx, s, readCredential, credentialSQL, ids[0])
	}
	list, _ := json.Marshal(ids) // it cannot fail
	return view(ctx, s, readCredential, findCredentialsSQL, string(list))
}

// Credentials implements kernel.AccessReader.
func (s *Store) Credentials(ctx context.Context, kind kernel.CredentialKind, after string, max int) ([]*kernel.Credential, error) {
	return view(ctx, s, readCredential, credentialsSQL, string(kind), after, atMost(max))
}

// HasAdminToken implements kernel.AccessReader.
func (s *Store) HasAdminToken(ctx context.Context) (bool, error) {
	return viewOne(ctx, s, (*row).flag, hasAdminSQL)
}

// TouchCredential implements kernel.AccessReader.
func (s *Store) TouchCredential(ctx context.Context, id string, at time.Time) error {
	return s.writeRegistry(ctx, func() error {
		return s.registry.exec(`UPDATE perdure_credential SET used_at = ? WHERE id = ? AND coalesce(used_at, 0) < ?`, micros(at), id, micros(at))
	})
}

// AuditLog implements kernel.AccessReader.
func (s *Store) AuditLog(ctx context.Context, f kernel.AuditFilter) ([]operate.AuditEntry, error) {
	query, args := auditQuery(f)
	return view(ctx, s, readAudit, query, args...)
}

// auditQuery selects entries. A + hides a column from the planner, so that the first value that is given chooses the index.
func auditQuery(f kernel.AuditFilter) (query string, args []any) {
	q := source{from: "perdure_audit_entry", id: "id"}
	hide := ""
	if !f.Job.IsZero() {
		q.and(`job = ? AND job <> x'00000000000000000000000000000000'`, f.Job[:])
		hide = "+"
	}
	if f.Author != "" {
		q.and(hide+`author = ?`, f.Author)
		hide = "+"
	}
	if f.Act != "" {
		q.and(hide+`act = ?`, f.Act)
	}
	if !f.Since.IsZero() {
		q.and(`+at >= ?`, micros(f.Since))
	}
	if f.Before != 0 {
		q.and(`id < ?`, f.Before)
	}
	return q.text(auditColumns, cmp.Or(f.Limit, perdure.DefaultListLimit))
}

// ForgetAccess implements kernel.AccessReader.
func (s *Store) ForgetAccess(ctx context.Context, expired, unused, audit time.Time, max int) (n int, err error) {
	err = s.Update(ctx, func(t kernel.Tx) error {
		tx := t.(*tx)
		sessions, err := tx.changed(forgetSessionSQL, micros(expired), micros(unused), atMost(max))
		if err != nil {
			return err
		}
		entries, err := tx.changed(forgetAuditSQL, micros(audit), atMost(max))
		n = sessions + entries
		return err
	})
	return n, err
}
