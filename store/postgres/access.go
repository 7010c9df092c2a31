package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	credentialColumns  = "id, kind, hash, previous, previous_until, name, rights, token, created_by, created_at, rotated_at, expires_at, used_at"
	findCredentialsSQL = "select " + credentialColumns + " from perdure.credential where id = any($1)"
	lockCredentialSQL  = "select " + credentialColumns + " from perdure.credential where id = $1 for update"
	credentialsSQL     = "select " + credentialColumns + " from perdure.credential where kind = $1 and id > $2 order by id limit $3"
	credentialsOfSQL   = "select count(*)::int from perdure.credential where kind = $1"
	hasAdminSQL        = "select exists (select from perdure.credential where kind = 'token' and role = 'admin')"
	otherAdminSQL      = "select exists (select from perdure.credential where kind = 'token' and role = 'admin' and id <> $1 and (expires_at is null or expires_at > $2))"
	sessionsOfSQL      = "select id from perdure.credential where kind = 'session' and token = $1 and ($1 <> '' or name = $2) order by created_at desc nulls last, id desc limit $3"
	addCredentialSQL   = "insert into perdure.credential (" + credentialColumns + ", role) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) on conflict do nothing"
	saveCredentialSQL  = "update perdure.credential set hash = $2, previous = $3, previous_until = $4, rotated_at = $5, expires_at = $6, used_at = $7 where id = $1"
	touchSQL           = "update perdure.credential set used_at = $2 where id = $1 and (used_at is null or used_at < $2)"
	deleteSessionsSQL  = "delete from perdure.credential where token = $1 and token <> ''"
	deleteSQL          = "delete from perdure.credential where id = $1"
	auditColumns       = "id, at, author, on_behalf_of, via, credential, address, act, job, target, reason, outcome, code, count"
	forgetSessionsSQL  = `delete from perdure.credential where id in (
	select id from perdure.credential where kind = 'session' and (expires_at < $1 or used_at < $2) order by id limit $3)`
	forgetAuditSQL = "delete from perdure.audit_entry where id in (select id from perdure.audit_entry where at < $1 order by at, id limit $2)"
)

func scanCredential(r *pgwire.Reader) *kernel.Credential {
	c := &kernel.Credential{ID: r.Text(), Kind: kernel.CredentialKind(r.Text())}
	copy(c.Hash[:], r.Next())
	copy(c.Previous[:], r.Next())
	c.PreviousUntil, c.Name = r.Time(), r.Text()
	if err := json.Unmarshal(r.Next(), &c.Rights); err != nil {
		r.Failed = err
	}
	c.Token, c.CreatedBy, c.CreatedAt, c.RotatedAt, c.ExpiresAt, c.UsedAt = r.Text(), r.Text(), r.Time(), r.Time(), r.Time(), r.Time()
	return c
}

func (tx *tx) LockCredential(id string) (*kernel.Credential, error) {
	var found []*kernel.Credential
	if err := tx.run(pgwire.Into(pgwire.New(lockCredentialSQL).Text(id), &found, scanCredential)); err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

func (tx *tx) CountCredentials(kind kernel.CredentialKind) (n int, err error) {
	err = tx.run(pgwire.New(credentialsOfSQL).Text(string(kind)).Each(func(r *pgwire.Reader) error {
		n = r.Int()
		return r.Failed
	}))
	return n, err
}

func (tx *tx) SessionsOf(token, name string, max int) (ids []string, err error) {
	err = tx.run(pgwire.Into(pgwire.New(sessionsOfSQL).Text(token).Text(name).Int(max), &ids, (*pgwire.Reader).Text))
	return ids, err
}

func (tx *tx) HasOtherAdmin(id string, at time.Time) (has bool, err error) {
	err = tx.run(pgwire.New(otherAdminSQL).Text(id).Moment(at).Each(func(r *pgwire.Reader) error {
		has = r.Bool()
		return r.Failed
	}))
	return has, err
}

func (tx *tx) AddCredential(c *kernel.Credential) error {
	tx.wrote = true
	rights, err := json.Marshal(&c.Rights)
	if err != nil {
		return err
	}
	return tx.run(pgwire.New(addCredentialSQL).Text(c.ID).Text(string(c.Kind)).Bytes(c.Hash[:]).Bytes(c.Previous[:]).Time(c.PreviousUntil).Text(c.Name).
		Text(string(rights)).Text(c.Token).Text(c.CreatedBy).Time(c.CreatedAt).Time(c.RotatedAt).Time(c.ExpiresAt).Time(c.UsedAt).
		Text(string(c.Rights.Role)).Exact(1))
}

func (tx *tx) SaveCredential(c *kernel.Credential) error {
	tx.wrote = true
	return tx.run(pgwire.New(saveCredentialSQL).Text(c.ID).Bytes(c.Hash[:]).Bytes(c.Previous[:]).Time(c.PreviousUntil).
		Time(c.RotatedAt).Time(c.ExpiresAt).Time(c.UsedAt).Exact(1))
}

func (tx *tx) DeleteCredential(id string) error {
	tx.wrote = true
	return tx.run(pgwire.New(deleteSessionsSQL).Text(id), pgwire.New(deleteSQL).Text(id))
}

func (w *writing) audit(all []operate.AuditEntry) {
	if len(all) == 0 {
		return
	}
	g := pgwire.NewGrid(pgwire.Time.Named("at"), pgwire.Text.Named("author"), pgwire.Text.Named("on_behalf_of"), pgwire.Text.Named("via"),
		pgwire.Text.Named("credential"), pgwire.Text.Named("address"), pgwire.Text.Named("act"), pgwire.UUID.Named("job"), pgwire.Text.Named("target"),
		pgwire.Text.Named("reason"), pgwire.Text.Named("outcome"), pgwire.Text.Named("code"), pgwire.Int4.Named("count")).Classes(1)
	for i := range all {
		e := &all[i]
		g.Row()
		g.At(0).Time(e.At)
		for column, text := range []string{e.Author, e.OnBehalfOf, string(e.Via), e.Credential, e.Address, e.Act} {
			g.At(1 + column).Text(text)
		}
		g.At(7).UUID(e.Job)
		for column, text := range []string{e.Target, e.Reason, string(e.Outcome), string(e.Code)} {
			g.At(8 + column).Text(text)
		}
		g.At(12).Int4(e.Count)
	}
	w.add(g.Insert("audit_entry", "").Exact(g.Len()))
}

func scanAudit(r *pgwire.Reader) operate.AuditEntry {
	return operate.AuditEntry{ID: r.Int64(), At: r.Time(), Author: r.Text(), OnBehalfOf: r.Text(), Via: operate.Via(r.Text()), Credential: r.Text(), Address: r.Text(),
		Act: r.Text(), Job: r.UUID(), Target: r.Text(), Reason: r.Text(), Outcome: operate.AuditOutcome(r.Text()), Code: perdure.Code(r.Text()), Count: r.Int()}
}

// FindCredentials implements kernel.AccessReader.
func (s *Store) FindCredentials(ctx context.Context, ids []string) ([]*kernel.Credential, error) {
	return query(ctx, s, pgwire.New(findCredentialsSQL).Texts(ids), scanCredential)
}

// Credentials implements kernel.AccessReader.
func (s *Store) Credentials(ctx context.Context, kind kernel.CredentialKind, after string, max int) ([]*kernel.Credential, error) {
	return query(ctx, s, pgwire.New(credentialsSQL).Text(string(kind)).Text(after).Int(max), scanCredential)
}

// HasAdminToken implements kernel.AccessReader.
func (s *Store) HasAdminToken(ctx context.Context) (bool, error) {
	return first(query(ctx, s, pgwire.New(hasAdminSQL), (*pgwire.Reader).Bool))
}

// TouchCredential implements kernel.AccessReader.
func (s *Store) TouchCredential(ctx context.Context, id string, at time.Time) error {
	return s.write(ctx, func() []*pgwire.Statement { return []*pgwire.Statement{pgwire.New(touchSQL).Text(id).Moment(at)} })
}

// AuditLog implements kernel.AccessReader.
func (s *Store) AuditLog(ctx context.Context, f kernel.AuditFilter) ([]operate.AuditEntry, error) {
	return query(ctx, s, auditQuery(f), scanAudit)
}

func auditQuery(f kernel.AuditFilter) *pgwire.Statement {
	l := &list{Statement: &pgwire.Statement{}, from: " from perdure.audit_entry", order: "id desc"}
	if !f.Job.IsZero() {
		l.UUID(f.Job)
		l.and("job = ? and job <> '00000000-0000-0000-0000-000000000000'")
	}
	if f.Author != "" {
		l.Text(f.Author)
		l.and("author = ?")
	}
	if f.Act != "" {
		l.Text(f.Act)
		l.and("act = ?")
	}
	if !f.Since.IsZero() {
		l.Moment(f.Since)
		l.and("at >= ?")
	}
	if f.Before != 0 {
		l.Int64(f.Before)
		l.and("id < ?")
	}
	return l.finish("select "+auditColumns, f.Limit)
}

// ForgetAccess implements kernel.AccessReader.
func (s *Store) ForgetAccess(ctx context.Context, expired, unused, audit time.Time, max int) (n int, err error) {
	err = s.write(ctx, func() []*pgwire.Statement {
		n = 0
		count := func(met int64) { n += int(met) }
		return []*pgwire.Statement{pgwire.New(forgetSessionsSQL).Moment(expired).Moment(unused).Int(max).Counted(count),
			pgwire.New(forgetAuditSQL).Moment(audit).Int(max).Counted(count)}
	})
	return n, err
}
