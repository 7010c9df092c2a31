package service

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// Claim implements protocol.Exchange.
func (svc *Service) Claim(ctx context.Context, c protocol.Claim) ([]perdure.Run, error) {
	if err := svc.Refuse(); err != nil {
		return nil, err // after an empty list, agents would claim again at once
	}
	if err := mayClaim(ctx, &c); err != nil {
		return nil, err
	}
	return svc.Scheduler.Claim(ctx, c)
}

// mayClaim returns why the caller may not claim runs of an agent; nil if it may.
func mayClaim(ctx context.Context, c *protocol.Claim) error {
	id := operate.IdentityOf(ctx)
	if id == nil || id.MayCarryOut(c.Agent) {
		return mayHold(ctx, c.Holder)
	}
	e := perdure.Refuse(perdure.CodeForbidden, "the token %s is not for agent %s", id.Name, c.Agent)
	e.Hint = "use a token that was created with --agent " + c.Agent
	return e
}

// mayHold returns why the caller may not be this holder; nil if it may.
func mayHold(ctx context.Context, holder string) error {
	id := operate.IdentityOf(ctx)
	if id == nil || id.MayHold(holder) {
		return nil
	}
	return &perdure.Error{Code: perdure.CodeForbidden, Message: fmt.Sprintf("the token %s is only for the holders of the hosts %s", id.Name, strings.Join(id.Hosts, ", ")),
		Hint: "use a token that was created without --host, or for this host"}
}

// Report implements protocol.Exchange.
func (svc *Service) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	if err := svc.Refuse(); next != nil && err != nil {
		return nil, nil, err // the host sends the reports again without a claim. "No work" would not be true of the claim (F019)
	}
	if err := mayHold(ctx, holder); err != nil {
		return nil, nil, err
	}
	if next != nil {
		if err := mayClaim(ctx, next); err != nil {
			return nil, nil, err
		}
	}
	reports, err := svc.keepOutputs(ctx, reports)
	if err != nil {
		return nil, nil, err
	}
	return svc.Scheduler.Report(ctx, holder, reports, next)
}

// Heartbeat implements protocol.Exchange.
func (svc *Service) Heartbeat(ctx context.Context, holder string, beats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	if err := mayHold(ctx, holder); err != nil {
		return nil, err
	}
	return svc.Scheduler.Heartbeat(ctx, holder, beats)
}

// HeartbeatAll implements protocol.Completer.
func (svc *Service) HeartbeatAll(ctx context.Context, c protocol.CompleteHeartbeat) ([]protocol.HeartbeatResult, time.Time, error) {
	if err := mayHold(ctx, c.Holder); err != nil {
		return nil, time.Time{}, err
	}
	return svc.Scheduler.HeartbeatAll(ctx, c)
}
