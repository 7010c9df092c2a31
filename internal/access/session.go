package access

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Login starts a session for the holder of a token. It returns the text of the session's cookie, and the identity.
func (r *Registry) Login(ctx context.Context, token, address string) (cookie string, id *operate.Identity, err error) {
	of, err := r.Identify(ctx, token, kernel.TokenCredential, address)
	if err != nil {
		return "", nil, err
	}
	return r.Start(ctx, of, address)
}

// Start starts a session with the name and the rights of an identity: of a token, or of a login with OpenID Connect.
func (r *Registry) Start(ctx context.Context, of *operate.Identity, address string) (cookie string, id *operate.Identity, err error) {
	secret := NewSecret()
	audit := operate.AuditEntry{Author: of.Name, Via: operate.ViaSession, Credential: secret.ID, Address: address, Act: "login", Outcome: operate.AuditDone}
	c := &kernel.Credential{ID: secret.ID, Kind: kernel.SessionCredential, Hash: secret.Hash, Name: of.Name, Rights: of.Rights, CreatedBy: of.Name, Token: of.Credential}
	err = r.Scheduler.AddCredential(ctx, c, operate.MaxSessions, func(c *kernel.Credential, now time.Time) {
		c.CreatedAt, c.UsedAt, c.ExpiresAt = now, now, now.Add(operate.SessionLongest)
		if !of.Expires.IsZero() && of.Expires.Before(c.ExpiresAt) {
			c.ExpiresAt = of.Expires
		}
	}, audit)
	if err != nil {
		return "", nil, unavailable(err)
	}
	return secret.Text, &operate.Identity{Name: c.Name, Rights: c.Rights, Via: operate.ViaSession, Expires: c.ExpiresAt, Credential: c.ID}, nil
}

// Logout ends the session of an identity.
func (r *Registry) Logout(ctx context.Context, id *operate.Identity) error {
	audit := kernel.AuditOf(operate.WithIdentity(ctx, id), "", "logout")
	err := r.Scheduler.DeleteCredential(ctx, id.Credential, kernel.SessionCredential, audit)
	r.mu.Lock()
	delete(r.cache, id.Credential)
	r.mu.Unlock()
	if perdure.CodeOf(err) == perdure.CodeNotFound {
		return nil
	}
	return unavailable(err)
}
