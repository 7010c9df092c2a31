package service

import (
	"context"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// RaiseFence makes the numbers of runs go on from the time in milliseconds, which is above all that were
// counted up from 1 and above all fences before: for a store that was put back from a backup, and cannot know
// which numbers it has given since. It gives that number, and leaves an alert.
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
		message := fmt.Sprintf("%s has raised the fence: what was acknowledged before may be missing, and numbers of runs go on from %d", author, fence)
		if reason != "" {
			message += ": " + reason
		}
		return tx.RaiseFence(fence, kernel.Alert{Kind: perdure.AlertSetback, Message: message, RaisedAt: now})
	})
	if err != nil {
		return 0, Unreachable(err)
	}
	return fence, nil
}
