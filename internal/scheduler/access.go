package scheduler

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// addAudit adds an entry to the audit log, with the time of the transaction.
func (b *batch) addAudit(e operate.AuditEntry) {
	e.At = b.w.Now()
	b.audit = append(b.audit, e)
}

// saveAudit is addAudit for transactions without a batch.
func saveAudit(tx kernel.Tx, e operate.AuditEntry) error {
	now, err := tx.Now()
	if err != nil {
		return err
	}
	e.At = now
	return tx.Save(&kernel.Changes{Audit: []operate.AuditEntry{e}})
}

// auditSetting records a change of a limit, of an agent's settings, or of a receiver of notifications. author is empty if
// the call does not name one.
func auditSetting(ctx context.Context, tx kernel.Tx, author, act, name string) error {
	audit := kernel.AuditOf(ctx, author, act)
	audit.Target = name
	return saveAudit(tx, audit)
}

// AddAudit appends entries to the audit log that belong to no change: refused requests, and failed logins.
func (s *Scheduler) AddAudit(ctx context.Context, entries []operate.AuditEntry) error {
	return s.update(ctx, func(tx kernel.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		for i := range entries {
			entries[i].At = now
		}
		return tx.Save(&kernel.Changes{Audit: entries})
	})
}

// AddCredential stores a new token or session with the times that set gives it, and records it. At most max of its kind
// are stored. A session ends the oldest ones of its token or user beyond operate.MaxSessionsEach.
func (s *Scheduler) AddCredential(ctx context.Context, c *kernel.Credential, max int, set func(c *kernel.Credential, now time.Time), audit operate.AuditEntry) error {
	return s.update(ctx, func(tx kernel.Tx) error {
		if _, err := tx.LockRoles([]string{kernel.RoleCourier}); err != nil { // see kernel.AccessTx
			return err
		}
		earlier, err := tx.LockCredential(c.ID)
		if err != nil {
			return err
		}
		if earlier != nil && earlier.Hash == c.Hash {
			*c = *earlier // an earlier try of this call, whose commit was indeterminate (F006)
			return nil
		}
		if c.Kind == kernel.SessionCredential {
			if err := endOldSessions(tx, c); err != nil {
				return err
			}
		}
		n, err := tx.CountCredentials(c.Kind)
		if err != nil {
			return err
		}
		if n >= max {
			e := perdure.Refuse(perdure.CodeConflict, "there are %d %ss, which is the maximum", n, c.Kind)
			e.Hint = "delete those that are not used"
			return e
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		set(c, now)
		if err := tx.AddCredential(c); err != nil {
			return err
		}
		if c.Kind == kernel.TokenCredential {
			audit.Reason = c.Summary()
		}
		audit.At = now
		return tx.Save(&kernel.Changes{Audit: []operate.AuditEntry{audit}})
	})
}

// endOldSessions makes room for a session, so that one token or user cannot use up the sessions of all.
func endOldSessions(tx kernel.Tx, c *kernel.Credential) error {
	ids, err := tx.SessionsOf(c.Token, c.Name, 2*operate.MaxSessionsEach)
	if err != nil || len(ids) < operate.MaxSessionsEach {
		return err
	}
	for _, id := range ids[operate.MaxSessionsEach-1:] {
		if err := tx.DeleteCredential(id); err != nil {
			return err
		}
	}
	return nil
}

// RotateToken replaces the secret of a token by the one with this hash. The secret before it is valid for the time
// overlap.
func (s *Scheduler) RotateToken(ctx context.Context, id string, hash [32]byte, overlap time.Duration, audit operate.AuditEntry) (c *kernel.Credential, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		if c, err = lockKind(tx, id, kernel.TokenCredential); err != nil || c.Hash == hash { // as in AddCredential
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		if !c.ValidAt(now) {
			e := perdure.Refuse(perdure.CodeConflict, "token %s has expired", id)
			e.Hint = "create another one"
			return e
		}
		c.Previous, c.PreviousUntil, c.Hash, c.RotatedAt = c.Hash, now.Add(overlap), hash, now
		if err := tx.SaveCredential(c); err != nil {
			return err
		}
		audit.At, audit.Reason = now, c.Name
		return tx.Save(&kernel.Changes{Audit: []operate.AuditEntry{audit}})
	})
	return c, err
}

// DeleteCredential deletes a token, with its sessions, or a session. A caller with an identity may delete the last valid
// admin token only if admins can log in without one: it would lock all admins out.
func (s *Scheduler) DeleteCredential(ctx context.Context, id string, kind kernel.CredentialKind, audit operate.AuditEntry) error {
	tries := 0
	return s.update(ctx, func(tx kernel.Tx) error {
		tries++
		if kind == kernel.TokenCredential { // of the last two admin tokens, one call deletes one, and another call the other
			if _, err := tx.LockRoles([]string{kernel.RoleCourier}); err != nil {
				return err
			}
		}
		c, err := lockKind(tx, id, kind)
		if tries > 1 && perdure.CodeOf(err) == perdure.CodeNotFound { // an earlier try may have deleted it
			return nil
		}
		if err != nil {
			return err
		}
		if err := keepAdmin(ctx, tx, c); err != nil {
			return err
		}
		if err := tx.DeleteCredential(id); err != nil {
			return err
		}
		audit.Reason = c.Name
		return saveAudit(tx, audit)
	})
}

// keepAdmin refuses to delete the last valid admin token.
func keepAdmin(ctx context.Context, tx kernel.Tx, c *kernel.Credential) error {
	id := operate.IdentityOf(ctx)
	if id == nil || id.AdminsLogIn || c.Kind != kernel.TokenCredential || c.Rights.Role != operate.Admin {
		return nil
	}
	now, err := tx.Now()
	if err != nil || !c.ValidAt(now) {
		return err
	}
	if has, err := tx.HasOtherAdmin(c.ID, now); has || err != nil {
		return err
	}
	e := perdure.Refuse(perdure.CodeConflict, "token %s is the last valid token of an admin", c.ID)
	e.Hint = "create another one first; or delete it in the store: perdure tokens rm " + c.ID + " --store URL"
	return e
}

func lockKind(tx kernel.Tx, id string, kind kernel.CredentialKind) (*kernel.Credential, error) {
	c, err := tx.LockCredential(id)
	if err == nil && (c == nil || c.Kind != kind) {
		e := perdure.Refuse(perdure.CodeNotFound, "there is no %s %s", kind, id)
		if kind == kernel.TokenCredential {
			e.Hint = "a token is named by its ID; list them with: perdure tokens"
		}
		return nil, e
	}
	return c, err
}
