package service

import (
	"cmp"
	"context"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// HoldRole implements operate.Roles.
func (svc *Service) HoldRole(ctx context.Context, r operate.RoleRequest) (*operate.RoleHold, error) {
	if err := cmp.Or(svc.ended(), kernel.CheckHeldRole(r.Name), r.Check()); err != nil {
		return nil, err
	}
	v, err := svc.Scheduler.HoldRole(ctx, r.Name, r.Holder, time.Duration(r.TTL))
	if err != nil {
		return nil, Unreachable(err)
	}
	return v, nil
}

// ReleaseRole implements operate.Roles.
func (svc *Service) ReleaseRole(ctx context.Context, name, holder string) (*operate.RoleHold, error) {
	if err := cmp.Or(svc.ended(), kernel.CheckHeldRole(name), operate.CheckRoleHolder(holder)); err != nil {
		return nil, err
	}
	v, err := svc.Scheduler.ReleaseRole(ctx, name, holder)
	if err != nil {
		return nil, Unreachable(err)
	}
	return v, nil
}

// ListRoles implements operate.Roles.
func (svc *Service) ListRoles(ctx context.Context) ([]operate.RoleState, error) {
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	roles, err := svc.Store.Roles(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	held, err := svc.Store.HeldRoles(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	views := make([]operate.RoleState, 0, len(roles)+len(held))
	for _, r := range roles {
		v := operate.RoleState{Name: r.Name, Kind: operate.NodeRole, Epoch: r.Epoch}
		if r.Led(now) {
			v.Leader, v.LeaderHost, v.Until = r.Leader, r.LeaderHost, r.LeaderUntil
		}
		if r.StoodBy(now) {
			v.Standby, v.StandbyHost, v.StandbyUntil = r.Standby, r.StandbyHost, r.StandbyUntil
		}
		views = append(views, v)
	}
	for _, r := range held {
		v := operate.RoleState{Name: r.Name, Kind: operate.HeldRole, Epoch: r.Epoch}
		if r.Led(now, 0) {
			v.Leader, v.Until = r.Holder, r.Until
		}
		views = append(views, v)
	}
	return views, nil
}
