package service

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/access"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// credentialRoom is about how many bytes a token or session has in a list.
const credentialRoom = 1 << 10

// CreateToken implements operate.Access.
func (svc *Service) CreateToken(ctx context.Context, r operate.TokenRequest) (*operate.NewToken, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	secret := access.NewSecret()
	audit := kernel.AuditOf(ctx, r.Author, "createToken")
	audit.Target = secret.ID
	c := &kernel.Credential{ID: secret.ID, Kind: kernel.TokenCredential, Hash: secret.Hash, Name: r.Name, Rights: r.Rights, CreatedBy: audit.Author}
	err := svc.Scheduler.AddCredential(ctx, c, operate.MaxTokens, func(c *kernel.Credential, now time.Time) {
		if c.CreatedAt = now; r.ExpiresIn > 0 {
			c.ExpiresAt = now.Add(time.Duration(r.ExpiresIn))
		}
	}, audit)
	if err != nil {
		return nil, Unreachable(err)
	}
	svc.Log.InfoContext(ctx, "token created", "token", c.ID, "name", c.Name, "role", string(c.Rights.Role), "author", audit.Author)
	return &operate.NewToken{TokenView: tokenView(c), Token: secret.Text}, nil
}

// RotateToken implements operate.Access.
func (svc *Service) RotateToken(ctx context.Context, id string, overlap time.Duration, author string) (*operate.NewToken, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	if overlap < 0 || overlap > operate.MaxTokenOverlap {
		return nil, perdure.Refuse(perdure.CodeInvalid, "overlap must be 0s to %s", plain.Duration(operate.MaxTokenOverlap))
	}
	secret := access.NewSecretOf(id)
	audit := kernel.AuditOf(ctx, author, "rotateToken")
	audit.Target = id
	c, err := svc.Scheduler.RotateToken(ctx, id, secret.Hash, overlap, audit)
	if err != nil {
		return nil, Unreachable(err)
	}
	svc.Log.InfoContext(ctx, "token rotated", "token", id, "author", audit.Author)
	return &operate.NewToken{TokenView: tokenView(c), Token: secret.Text}, nil
}

// DeleteToken implements operate.Access.
func (svc *Service) DeleteToken(ctx context.Context, id, author string) error {
	return svc.deleteCredential(ctx, id, kernel.TokenCredential, author, "deleteToken", "token deleted")
}

// DeleteSession implements operate.Access.
func (svc *Service) DeleteSession(ctx context.Context, id, author string) error {
	return svc.deleteCredential(ctx, id, kernel.SessionCredential, author, "deleteSession", "session deleted")
}

func (svc *Service) deleteCredential(ctx context.Context, id string, kind kernel.CredentialKind, author, act, message string) error {
	if err := svc.ended(); err != nil {
		return err
	}
	audit := kernel.AuditOf(ctx, author, act)
	audit.Target = id
	if err := svc.Scheduler.DeleteCredential(ctx, id, kind, audit); err != nil {
		return Unreachable(err)
	}
	svc.Log.InfoContext(ctx, message, string(kind), id, "author", audit.Author)
	return nil
}

// ListTokens implements operate.Access.
func (svc *Service) ListTokens(ctx context.Context, q operate.PageQuery) (*perdure.Page[operate.TokenView], error) {
	return credentialPage(ctx, svc, kernel.TokenCredential, q, tokenView)
}

// ListSessions implements operate.Access. Sessions that have ended and are still stored are left out, so that a page may
// be shorter than its limit.
func (svc *Service) ListSessions(ctx context.Context, q operate.PageQuery) (*perdure.Page[operate.SessionView], error) {
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	page, err := credentialPage(ctx, svc, kernel.SessionCredential, q, func(c *kernel.Credential) *kernel.Credential { return c })
	if err != nil {
		return nil, err
	}
	views := &perdure.Page[operate.SessionView]{Items: []operate.SessionView{}, NextCursor: page.NextCursor}
	for _, c := range page.Items {
		if c.ValidAt(now) {
			views.Items = append(views.Items, operate.SessionView{ID: c.ID, Name: c.Name, Rights: c.Rights, Token: c.Token,
				CreatedAt: c.CreatedAt, ExpiresAt: c.ExpiresAt, LastUsedAt: c.UsedAt})
		}
	}
	return views, nil
}

func credentialPage[T any](ctx context.Context, svc *Service, kind kernel.CredentialKind, q operate.PageQuery, view func(*kernel.Credential) T) (*perdure.Page[T], error) {
	if q.Cursor != "" && !access.IsID(q.Cursor) {
		return nil, errCursor
	}
	limit := pageSize(q.Limit)
	if err := admission.Ask(ctx, limit*credentialRoom); err != nil {
		return nil, err
	}
	rows, err := svc.Store.Credentials(ctx, kind, q.Cursor, limit+1)
	if err != nil {
		return nil, Unreachable(err)
	}
	page := &perdure.Page[T]{Items: []T{}}
	for i, c := range rows {
		if i == limit {
			page.NextCursor = rows[i-1].ID
			break
		}
		page.Items = append(page.Items, view(c))
	}
	return page, nil
}

func tokenView(c *kernel.Credential) operate.TokenView {
	return operate.TokenView{ID: c.ID, Name: c.Name, Rights: c.Rights, CreatedAt: c.CreatedAt, CreatedBy: c.CreatedBy, ExpiresAt: c.ExpiresAt,
		LastUsedAt: c.UsedAt, RotatedAt: c.RotatedAt, PreviousUntil: c.PreviousUntil}
}

// Audit implements operate.Access.
func (svc *Service) Audit(ctx context.Context, q operate.AuditQuery) (*perdure.Page[operate.AuditEntry], error) {
	f := kernel.AuditFilter{Author: q.Author, Act: q.Act, Since: q.Since}
	if q.Act != "" && !slices.Contains(kernel.AuditActs, q.Act) {
		hint := "a verb such as undo, or the name of a call such as putLimit: docs/access.md lists them"
		if near := plain.Nearest(q.Act, kernel.AuditActs); near != "" {
			hint = "did you mean " + near + "?"
		}
		return nil, refuseParam("act", fmt.Sprintf("%q is no act", plain.Clip(q.Act, perdure.MaxNameLength)), hint)
	}
	var err, noJob error
	if q.Job != "" {
		if f.Job, noJob = svc.resolve(ctx, q.Job); noJob != nil {
			// Entries are kept longer than jobs: with its id, a job that was deleted is found here.
			if f.Job, err = perdure.ParseJobID(q.Job); err != nil || perdure.CodeOf(noJob) != perdure.CodeNotFound {
				return nil, noJob
			}
		}
	}
	if f.Before, err = auditList.position(q.Cursor); err != nil {
		return nil, err
	}
	limit := pageSize(q.Limit)
	if err := admission.Ask(ctx, limit*entryRoom); err != nil {
		return nil, err
	}
	f.Limit = limit + 1
	entries, err := svc.Store.AuditLog(ctx, f)
	if err != nil {
		return nil, Unreachable(err)
	}
	if noJob != nil && len(entries) == 0 && q.Cursor == "" {
		return nil, noJob
	}
	page := &perdure.Page[operate.AuditEntry]{Items: []operate.AuditEntry{}}
	if len(entries) > limit {
		entries = entries[:limit]
		page.NextCursor = auditList.cursor(entries[limit-1].ID)
	}
	page.Items = append(page.Items, entries...)
	return page, nil
}
