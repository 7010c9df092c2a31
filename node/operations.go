package node

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/kernel"
)

// openAlertsShown bounds the alerts that a job's view carries.
const openAlertsShown = 100

func (n *Node) openAlerts(ctx context.Context, id perdure.JobID) ([]perdure.AlertView, error) {
	alerts, err := n.store.Alerts(ctx, kernel.AlertFilter{Job: id, Limit: openAlertsShown})
	if err != nil {
		return nil, unreachable(err)
	}
	views := make([]perdure.AlertView, len(alerts))
	for i, a := range alerts {
		views[i] = alertView(a)
	}
	return views, nil
}

func alertView(a kernel.Alert) perdure.AlertView {
	return perdure.AlertView{ID: a.ID, Job: a.Job, Step: a.Step, Kind: a.Kind, Name: a.Name, Message: a.Message,
		RaisedAt: a.RaisedAt, ClosedAt: a.ClosedAt, ClosedBy: a.ClosedBy}
}

// ListAlerts implements perdure.Operations.
func (n *Node) ListAlerts(ctx context.Context, q perdure.AlertQuery) (*perdure.Page[perdure.AlertView], error) {
	f := kernel.AlertFilter{Closed: q.Closed}
	if q.Job != "" {
		id, err := n.resolve(ctx, q.Job)
		if err != nil {
			return nil, err
		}
		f.Job = id
	}
	var err error
	if f.Before, err = position(q.Cursor); err != nil {
		return nil, err
	}
	limit := pageSize(q.Limit)
	if err := admission.Ask(ctx, limit*entryRoom); err != nil {
		return nil, err
	}
	f.Limit = limit + 1
	alerts, err := n.store.Alerts(ctx, f)
	if err != nil {
		return nil, unreachable(err)
	}
	page := &perdure.Page[perdure.AlertView]{Items: []perdure.AlertView{}}
	for i, a := range alerts {
		if i == limit {
			page.NextCursor = cursorOf(alerts[i-1].ID)
			break
		}
		page.Items = append(page.Items, alertView(a))
	}
	return page, nil
}

// CloseAlert implements perdure.Operations.
func (n *Node) CloseAlert(ctx context.Context, id int64, by string) (*perdure.AlertView, error) {
	a, err := n.scheduler.CloseAlert(ctx, id, by)
	if err != nil {
		return nil, unreachable(err)
	}
	v := alertView(*a)
	return &v, nil
}

// ListLimits implements perdure.Operations.
func (n *Node) ListLimits(ctx context.Context) ([]perdure.LimitView, error) {
	limits, err := n.store.ListLimits(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	if err := admission.Ask(ctx, len(limits)*limitRoom); err != nil {
		return nil, err
	}
	return n.limitViews(ctx, limits)
}

func (n *Node) limitViews(ctx context.Context, limits []kernel.Limit) (views []perdure.LimitView, err error) {
	views = make([]perdure.LimitView, len(limits))
	for i, l := range limits {
		if views[i], err = n.limitView(ctx, l); err != nil {
			return nil, err
		}
	}
	return views, nil
}

func (n *Node) limitView(ctx context.Context, l kernel.Limit) (perdure.LimitView, error) {
	v := perdure.LimitView{Name: l.Name, LimitSettings: l.Settings()}
	used, holders, err := n.store.LimitUse(ctx, kernel.LimitKey{Name: l.Name}, perdure.MaxHoldersShown)
	if err != nil {
		return v, unreachable(err)
	}
	v.Used, v.Holders = used, holderViews(holders)
	return v, nil
}

func holderViews(holders []kernel.LimitHolder) []perdure.HolderView {
	views := make([]perdure.HolderView, len(holders))
	for i, h := range holders {
		views[i] = perdure.HolderView{Job: h.Job, Step: h.Step, Run: h.Run, Key: h.Key}
		if h.Amount != 1 {
			views[i].Amount = h.Amount
		}
	}
	return views
}

// GetLimit implements perdure.Operations.
func (n *Node) GetLimit(ctx context.Context, name string) (*perdure.LimitView, error) {
	limits, err := n.store.ListLimits(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	for _, l := range limits {
		if l.Name == name {
			v, err := n.limitView(ctx, l)
			return &v, err
		}
	}
	return nil, perdure.Refuse(perdure.CodeNotFound, "there is no limit %q", name)
}

// PutLimit implements perdure.Operations.
func (n *Node) PutLimit(ctx context.Context, name string, settings perdure.LimitSettings) (*perdure.LimitView, error) {
	if err := n.scheduler.PutLimit(ctx, name, settings); err != nil {
		return nil, unreachable(err)
	}
	return n.GetLimit(ctx, name)
}

// DeleteLimit implements perdure.Operations.
func (n *Node) DeleteLimit(ctx context.Context, name string) error {
	if err := n.scheduler.DeleteLimit(ctx, name); err != nil {
		return unreachable(err)
	}
	return nil
}

// ListAgents implements perdure.Operations.
func (n *Node) ListAgents(ctx context.Context) ([]perdure.AgentView, error) {
	settings, err := n.store.ListAgents(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	seen, err := n.store.Seen(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	now, err := n.store.Now(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	views := map[string]*perdure.AgentView{}
	agent := func(name string) *perdure.AgentView {
		if views[name] == nil {
			of, set := settings[name]
			if !set {
				of.Ageing = perdure.Duration(perdure.DefaultAgeing)
			}
			views[name] = &perdure.AgentView{Name: name, AgentSettings: of}
		}
		return views[name]
	}
	for name := range settings {
		agent(name)
	}
	holders := map[[2]string]bool{}
	for _, s := range append(seen, n.scheduler.SeenNow(now)...) {
		v := agent(s.Agent)
		if by := [2]string{s.Agent, s.Holder}; !holders[by] {
			holders[by] = true
			v.Holders++
		}
		if s.At.After(v.SeenAt) {
			v.SeenAt = s.At
		}
	}
	if err := admission.Ask(ctx, len(views)*entryRoom); err != nil {
		return nil, err
	}
	list := make([]perdure.AgentView, 0, len(views))
	for _, name := range slices.Sorted(maps.Keys(views)) {
		list = append(list, *views[name])
	}
	return list, nil
}

// GetAgent implements perdure.Operations.
func (n *Node) GetAgent(ctx context.Context, name string) (*perdure.AgentView, error) {
	all, err := n.ListAgents(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, &perdure.Error{Code: perdure.CodeNotFound, Message: fmt.Sprintf("agent %q has no settings, and has not claimed runs in the last day", name)}
}

// PutAgent implements perdure.Operations.
func (n *Node) PutAgent(ctx context.Context, name string, settings perdure.AgentSettings) (*perdure.AgentView, error) {
	if err := n.scheduler.PutAgent(ctx, name, settings); err != nil {
		return nil, unreachable(err)
	}
	return n.GetAgent(ctx, name)
}
