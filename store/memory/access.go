package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

func copyCredential(c *kernel.Credential) *kernel.Credential {
	if c == nil {
		return nil
	}
	row := *c
	row.Rights.Hosts = slices.Clone(c.Rights.Hosts)
	row.Rights.Types, row.Rights.Agents, row.Rights.Groups = slices.Clone(c.Rights.Types), slices.Clone(c.Rights.Agents), slices.Clone(c.Rights.Groups)
	for _, t := range []*time.Time{&row.PreviousUntil, &row.CreatedAt, &row.RotatedAt, &row.ExpiresAt, &row.UsedAt} {
		*t = storedTime(*t)
	}
	return &row
}

func (tx *tx) LockCredential(id string) (*kernel.Credential, error) {
	return copyCredential(tx.credentials[id]), nil
}

func (tx *tx) CountCredentials(kind kernel.CredentialKind) (n int, err error) {
	for _, c := range tx.credentials {
		if c.Kind == kind {
			n++
		}
	}
	return n, nil
}

func (tx *tx) SessionsOf(token, name string, max int) (ids []string, err error) {
	var found []*kernel.Credential
	for _, c := range tx.credentials {
		if c.Kind == kernel.SessionCredential && c.Token == token && (token != "" || c.Name == name) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *kernel.Credential) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	for _, c := range firstN(max, found) {
		ids = append(ids, c.ID)
	}
	return ids, nil
}

func (tx *tx) HasOtherAdmin(id string, at time.Time) (bool, error) {
	for _, c := range tx.credentials {
		if c.Kind == kernel.TokenCredential && c.Rights.Role == operate.Admin && c.ID != id && c.ValidAt(at) {
			return true, nil
		}
	}
	return false, nil
}

func (tx *tx) AddCredential(c *kernel.Credential) error {
	if tx.credentials[c.ID] != nil {
		tx.failed = kernel.ErrStale
		return tx.failed
	}
	set(tx, tx.credentials, c.ID, copyCredential(c))
	return nil
}

func (tx *tx) SaveCredential(c *kernel.Credential) error {
	old := tx.credentials[c.ID]
	if old == nil {
		tx.failed = kernel.ErrStale
		return tx.failed
	}
	row := copyCredential(c)
	row.Kind, row.Name, row.Rights, row.Token, row.CreatedBy, row.CreatedAt = old.Kind, old.Name, old.Rights, old.Token, old.CreatedBy, old.CreatedAt
	set(tx, tx.credentials, c.ID, row)
	return nil
}

func (tx *tx) DeleteCredential(id string) error {
	remove(tx, tx.credentials, id)
	for other, c := range tx.credentials {
		if id != "" && c.Token == id {
			remove(tx, tx.credentials, other)
		}
	}
	return nil
}

func (tx *tx) addAudit(entries []operate.AuditEntry) {
	if len(entries) == 0 {
		return
	}
	audit, last := tx.audit, tx.lastAudit
	tx.addUndo(func() { tx.audit, tx.lastAudit = audit, last })
	tx.audit = slices.Clip(tx.audit)
	for _, e := range entries {
		tx.lastAudit++
		e.ID, e.At = tx.lastAudit, storedTime(e.At)
		tx.audit = append(tx.audit, e)
	}
}

// FindCredentials implements kernel.AccessReader.
func (s *Store) FindCredentials(ctx context.Context, ids []string) ([]*kernel.Credential, error) {
	return view(ctx, s, func() (found []*kernel.Credential) {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
			if c := s.credentials[id]; c != nil {
				found = append(found, copyCredential(c))
			}
		}
		return found
	})
}

// Credentials implements kernel.AccessReader.
func (s *Store) Credentials(ctx context.Context, kind kernel.CredentialKind, after string, max int) ([]*kernel.Credential, error) {
	return view(ctx, s, func() (found []*kernel.Credential) {
		for _, id := range slices.Sorted(maps.Keys(s.credentials)) {
			if c := s.credentials[id]; c.Kind == kind && id > after && len(found) < max {
				found = append(found, copyCredential(c))
			}
		}
		return found
	})
}

// HasAdminToken implements kernel.AccessReader.
func (s *Store) HasAdminToken(ctx context.Context) (bool, error) {
	return view(ctx, s, func() bool {
		for _, c := range s.credentials {
			if c.Kind == kernel.TokenCredential && c.Rights.Role == operate.Admin {
				return true
			}
		}
		return false
	})
}

// TouchCredential implements kernel.AccessReader.
func (s *Store) TouchCredential(ctx context.Context, id string, at time.Time) error {
	return s.Update(ctx, func(t kernel.Tx) error {
		tx := t.(*tx)
		if c := tx.credentials[id]; c != nil && c.UsedAt.Before(at) {
			row := copyCredential(c)
			row.UsedAt = storedTime(at)
			set(tx, tx.credentials, id, row)
		}
		return nil
	})
}

// AuditLog implements kernel.AccessReader.
func (s *Store) AuditLog(ctx context.Context, f kernel.AuditFilter) ([]operate.AuditEntry, error) {
	return view(ctx, s, func() (found []operate.AuditEntry) {
		for i := range slices.Backward(s.audit) {
			if f.Matches(&s.audit[i]) && len(found) < cmp.Or(f.Limit, perdure.DefaultListLimit) {
				found = append(found, s.audit[i])
			}
		}
		return found
	})
}

// ForgetAccess implements kernel.AccessReader.
func (s *Store) ForgetAccess(ctx context.Context, expired, unused, audit time.Time, max int) (n int, err error) {
	err = s.Update(ctx, func(t kernel.Tx) error {
		tx := t.(*tx)
		n = 0
		for _, id := range slices.Sorted(maps.Keys(tx.credentials)) {
			c := tx.credentials[id]
			if n < max && c.Kind == kernel.SessionCredential && (c.ExpiresAt.Before(expired) || c.UsedAt.Before(unused)) {
				remove(tx, tx.credentials, id)
				n++
			}
		}
		entries := tx.audit
		old := slices.DeleteFunc(slices.Clone(entries), func(e operate.AuditEntry) bool { return !e.At.Before(audit) })
		slices.SortStableFunc(old, func(a, b operate.AuditEntry) int { return a.At.Compare(b.At) })
		old = firstN(max, old)
		tx.addUndo(func() { tx.audit = entries })
		tx.audit = slices.DeleteFunc(slices.Clone(entries), func(e operate.AuditEntry) bool {
			return slices.ContainsFunc(old, func(o operate.AuditEntry) bool { return o.ID == e.ID })
		})
		n += len(old)
		return nil
	})
	return n, err
}
