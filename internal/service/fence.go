package service

import (
	"context"
	"fmt"
	"strconv"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// RaiseFence raises the fence to the current time in milliseconds since 1970, and raises an alert. All later runs have
// numbers from there on, which are above all numbers that were counted from 1, and above all earlier fences. It is for a
// store that was restored from a backup, and does not contain the numbers that were given since. It returns the fence.
func (svc *Service) RaiseFence(ctx context.Context, author, reason string) (fence int64, err error) {
	if err := svc.ended(); err != nil {
		return 0, err
	}
	err = svc.Store.Update(ctx, func(tx kernel.Tx) error {
		now, err := tx.Now()
		if err != nil {
			return err
		}
		fence = now.UnixMilli()
		message := fmt.Sprintf("%s has raised the fence: what was acknowledged before may be missing. New run numbers begin at %d", author, fence)
		if reason != "" {
			message += ": " + reason
		}
		if err := tx.RaiseFence(fence, kernel.Alert{Kind: perdure.AlertSetback, Message: message, RaisedAt: now}); err != nil {
			return err
		}
		audit := kernel.AuditOf(ctx, author, kernel.ActRaiseFence)
		audit.At, audit.Target, audit.Reason = now, strconv.FormatInt(fence, 10), reason
		return tx.Save(&kernel.Changes{Audit: []operate.AuditEntry{audit}})
	})
	if err != nil {
		return 0, Unreachable(err)
	}
	return fence, nil
}
