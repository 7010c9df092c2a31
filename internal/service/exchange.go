package service

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// Claim implements protocol.Exchange.
func (svc *Service) Claim(ctx context.Context, c protocol.Claim) ([]perdure.Run, error) {
	if err := svc.Refuse(); err != nil {
		return nil, err // after an empty list, agents would claim again at once
	}
	return svc.Scheduler.Claim(ctx, c)
}

// Report implements protocol.Exchange.
func (svc *Service) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	if err := svc.Refuse(); next != nil && err != nil {
		return nil, nil, err // the host sends the reports again without a claim. "No work" would not be true of the claim (F019)
	}
	return svc.Scheduler.Report(ctx, holder, reports, next)
}

// Heartbeat implements protocol.Exchange.
func (svc *Service) Heartbeat(ctx context.Context, holder string, beats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	return svc.Scheduler.Heartbeat(ctx, holder, beats)
}
