package service

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// openAlertsShown bounds the alerts that a job's view carries.
const openAlertsShown = 100

func (svc *Service) openAlerts(ctx context.Context, id perdure.JobID) ([]perdure.AlertView, error) {
	alerts, err := svc.Store.Alerts(ctx, kernel.AlertFilter{Job: id, Limit: openAlertsShown})
	if err != nil {
		return nil, Unreachable(err)
	}
	views := make([]perdure.AlertView, len(alerts))
	for i, a := range alerts {
		views[i] = alertView(a)
	}
	return views, nil
}

// alertKinds are all kinds of alerts.
var alertKinds = append(operate.AlertKinds(), operate.StoreAlertKinds()...)

func alertView(a kernel.Alert) perdure.AlertView {
	return perdure.AlertView{ID: a.ID, Job: a.Job, Type: a.Type, JobKey: a.JobKey, Step: a.OfStep(), Kind: a.Kind, Code: a.Code, Attempts: a.Attempts, Name: a.Name, Message: a.Message,
		RaisedAt: a.RaisedAt, ClosedAt: a.ClosedAt, ClosedBy: a.ClosedBy}
}

// ListAlerts implements perdure.Operations.
func (svc *Service) ListAlerts(ctx context.Context, q perdure.AlertQuery) (*perdure.Page[perdure.AlertView], error) {
	if q.Kind != "" && !slices.Contains(alertKinds, q.Kind) {
		return nil, perdure.Refuse(perdure.CodeInvalid, "unknown kind of alerts %q", q.Kind)
	}
	f := kernel.AlertFilter{Closed: q.Closed, Kind: q.Kind, Type: q.Type, Step: q.Step, Code: q.Code}
	if q.Job != "" {
		id, err := svc.resolve(ctx, q.Job)
		if err != nil {
			return nil, err
		}
		f.Job = id
	}
	var err error
	if f.Before, err = alertList.position(q.Cursor); err != nil {
		return nil, err
	}
	limit := pageSize(q.Limit)
	if err := admission.Ask(ctx, limit*entryRoom); err != nil {
		return nil, err
	}
	f.Limit = limit + 1
	alerts, err := svc.Store.Alerts(ctx, f)
	if err != nil {
		return nil, Unreachable(err)
	}
	page := &perdure.Page[perdure.AlertView]{Items: []perdure.AlertView{}}
	for i, a := range alerts {
		if i == limit {
			page.NextCursor = alertList.cursor(alerts[i-1].ID)
			break
		}
		page.Items = append(page.Items, alertView(a))
	}
	return page, nil
}

// CloseAlert implements perdure.Operations.
func (svc *Service) CloseAlert(ctx context.Context, id int64, by string) (*perdure.AlertView, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	a, err := svc.Scheduler.CloseAlert(ctx, id, by)
	if err != nil {
		return nil, Unreachable(err)
	}
	v := alertView(*a)
	return &v, nil
}

// ListLimits implements perdure.Operations.
func (svc *Service) ListLimits(ctx context.Context) ([]perdure.LimitView, error) {
	limits, err := svc.Store.ListLimits(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	if err := admission.Ask(ctx, len(limits)*limitRoom); err != nil {
		return nil, err
	}
	return svc.limitViews(ctx, limits)
}

func (svc *Service) limitViews(ctx context.Context, limits []kernel.Limit) (views []perdure.LimitView, err error) {
	views = make([]perdure.LimitView, len(limits))
	for i, l := range limits {
		if views[i], err = svc.limitView(ctx, l); err != nil {
			return nil, err
		}
	}
	return views, nil
}

func (svc *Service) limitView(ctx context.Context, l kernel.Limit) (perdure.LimitView, error) {
	f, err := svc.limitFacts(ctx, l)
	if err != nil {
		return perdure.LimitView{}, err
	}
	v := perdure.LimitView{Name: l.Name, LimitSettings: l.Settings(), Used: f.Used, Holders: f.Holders}
	if !l.Rate.Bounds() {
		return v, nil
	}
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return v, Unreachable(err)
	}
	if at := l.Rate.RoomAt(f.Bucket, now, 1); at.After(now) {
		v.RoomAt = at
	}
	return v, nil
}

// limitFacts reads what is taken of a limit, and some holders of its permits.
func (svc *Service) limitFacts(ctx context.Context, l kernel.Limit) (f kernel.LimitFacts, err error) {
	k := kernel.LimitKey{Name: l.Name}
	used, holders, err := svc.Store.LimitUse(ctx, k, perdure.MaxHoldersShown)
	if err != nil {
		return f, Unreachable(err)
	}
	f = kernel.LimitFacts{Limit: l, Holders: holderViews(holders)}
	f.Used = used
	if !l.Rate.Bounds() {
		return f, nil
	}
	full, err := svc.Store.Buckets(ctx, []kernel.LimitKey{k})
	if err != nil {
		return f, Unreachable(err)
	}
	f.Bucket = full[k]
	return f, nil
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
func (svc *Service) GetLimit(ctx context.Context, name string) (*perdure.LimitView, error) {
	l, err := svc.limit(ctx, name)
	if err != nil {
		return nil, err
	}
	v, err := svc.limitView(ctx, *l)
	return &v, err
}

func (svc *Service) limit(ctx context.Context, name string) (*kernel.Limit, error) {
	limits, err := svc.Store.ListLimits(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	for i := range limits {
		if limits[i].Name == name {
			return &limits[i], nil
		}
	}
	return nil, perdure.Refuse(perdure.CodeNotFound, "there is no limit %q", name)
}

// LimitKeys implements operate.Service.
func (svc *Service) LimitKeys(ctx context.Context, q operate.LimitKeyQuery) ([]operate.LimitKeyView, error) {
	if q.Limit < 0 || q.Limit > operate.MaxKeysShown {
		return nil, refuseParam("limit", fmt.Sprintf("must be from 1 to %d", operate.MaxKeysShown), "")
	}
	l, err := svc.limit(ctx, q.Name)
	if err != nil {
		return nil, err
	}
	if kind, _, _ := kernel.SplitLimit(q.Name); kind != kernel.LimitNamed {
		e := perdure.Refuse(perdure.CodeInvalid, "limit %s has no keys: only limits of your own have some", q.Name)
		e.Fields = []perdure.FieldError{{Pointer: "/path/name", Message: e.Message}}
		return nil, e
	}
	most := cmp.Or(q.Limit, operate.MaxKeysShown)
	if err := admission.Ask(ctx, limitRoom+most*holderRoom); err != nil {
		return nil, err
	}
	if q.Key != "" {
		if err := kernel.CheckLimitKey(q.Key); err != nil {
			return nil, refuseParam("key", err.Error(), "")
		}
		most = kernel.MaxKeyLanes
	}
	closed, err := svc.Store.ClosedKeys(ctx, q.Name, most)
	if err != nil {
		return nil, Unreachable(err)
	}
	closed = slices.DeleteFunc(closed, func(c kernel.ClosedKey) bool { return c.Key == "" })
	if q.Key != "" {
		i := slices.IndexFunc(closed, func(c kernel.ClosedKey) bool { return c.Key == q.Key })
		if i < 0 {
			closed, i = []kernel.ClosedKey{{Key: q.Key}}, 0
		}
		closed = closed[i : i+1]
	}
	return svc.limitKeyViews(ctx, l, closed, q.Key != "")
}

func (svc *Service) limitKeyViews(ctx context.Context, l *kernel.Limit, closed []kernel.ClosedKey, withHolders bool) ([]operate.LimitKeyView, error) {
	refs := make([]kernel.LimitKey, len(closed))
	for i, c := range closed {
		refs[i] = kernel.LimitKey{Name: l.Name, Key: c.Key}
	}
	buckets, err := svc.Store.Buckets(ctx, refs)
	if err != nil {
		return nil, Unreachable(err)
	}
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	views, shown := make([]operate.LimitKeyView, len(closed)), 0
	if withHolders {
		shown = perdure.MaxHoldersShown
	}
	for i, c := range closed {
		used, holders, err := svc.Store.LimitUse(ctx, refs[i], shown)
		if err != nil {
			return nil, Unreachable(err)
		}
		bound := l.ForKey(c.Key)
		views[i] = operate.LimitKeyView{Key: c.Key, KeyLimit: bound.Settings(), Used: used, Ready: c.Ready, ReadyCapped: c.Ready >= kernel.MaxKeyReady,
			NeverFit: l.NeverFit(&c), RoomAt: l.KeyRoomAt(&c, buckets[refs[i]], now)}
		if withHolders {
			views[i].Holders = holderViews(holders)
		}
	}
	return views, nil
}

// PutLimit implements perdure.Operations.
func (svc *Service) PutLimit(ctx context.Context, name string, settings perdure.LimitSettings) (*perdure.LimitView, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	if err := svc.Scheduler.PutLimit(ctx, name, settings); err != nil {
		return nil, Unreachable(err)
	}
	return svc.GetLimit(ctx, name)
}

// DeleteLimit implements perdure.Operations.
func (svc *Service) DeleteLimit(ctx context.Context, name string) error {
	if err := svc.ended(); err != nil {
		return err
	}
	if err := svc.Scheduler.DeleteLimit(ctx, name); err != nil {
		return Unreachable(err)
	}
	return nil
}

// ListAgents implements perdure.Operations.
func (svc *Service) ListAgents(ctx context.Context) ([]perdure.AgentView, error) {
	settings, err := svc.Store.ListAgents(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	seen, err := svc.Store.LastClaims(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	views := map[string]*perdure.AgentView{}
	agent := func(name string) *perdure.AgentView {
		if views[name] == nil {
			of, set := settings[name]
			if !set {
				of.Ageing, of.Patience = perdure.Duration(perdure.DefaultAgeing), perdure.Duration(perdure.DefaultPatience)
			}
			if of.FairBy == kernel.FairOff { // what is left of a setting that was removed
				of.FairBy = ""
			}
			views[name] = &perdure.AgentView{Name: name, AgentSettings: of}
		}
		return views[name]
	}
	for name := range settings {
		agent(name)
	}
	latest := map[[2]string]time.Time{}
	for _, s := range append(seen, svc.Scheduler.AllSeen(now)...) {
		if by := [2]string{s.Agent, s.Holder}; s.At.After(latest[by]) {
			latest[by] = s.At
		}
		if v := agent(s.Agent); s.At.After(v.SeenAt) {
			v.SeenAt = s.At
		}
	}
	for by, at := range latest {
		if now.Sub(at) > perdure.NotSeenFor {
			agent(by[0]).Gone++
		} else {
			agent(by[0]).Holders++
		}
	}
	stats, err := svc.Stats(ctx)
	if err != nil {
		return nil, err
	}
	for i := range stats.Agents {
		s := &stats.Agents[i]
		v := agent(s.Agent)
		v.AsOf, v.Nodes, v.Slots, v.Running, v.Ready, v.ReadyCapped = stats.AsOf, s.Nodes, s.Slots, s.Running, s.Ready, s.ReadyCapped
		v.OldestReady, v.Refused, v.Errors = s.OldestReady, s.Refused, s.Errors
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
func (svc *Service) GetAgent(ctx context.Context, name string) (*perdure.AgentView, error) {
	all, err := svc.ListAgents(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Name == name {
			all[i].Health = svc.Scheduler.Health(name)
			return &all[i], svc.addShares(ctx, &all[i])
		}
	}
	return nil, &perdure.Error{Code: perdure.CodeNotFound, Message: fmt.Sprintf("agent %q has no settings and no ready steps, and has not claimed runs in the last day", name)}
}

// PutAgent implements perdure.Operations.
func (svc *Service) PutAgent(ctx context.Context, name string, settings perdure.AgentSettings) (*perdure.AgentView, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	if err := svc.Scheduler.PutAgent(ctx, name, settings); err != nil {
		return nil, Unreachable(err)
	}
	return svc.GetAgent(ctx, name)
}

// DeleteAgent implements perdure.Operations.
func (svc *Service) DeleteAgent(ctx context.Context, name string) error {
	if err := svc.ended(); err != nil {
		return err
	}
	if err := svc.Scheduler.DeleteAgent(ctx, name); err != nil {
		return Unreachable(err)
	}
	return nil
}

// addShares adds the shares that go first.
func (svc *Service) addShares(ctx context.Context, v *perdure.AgentView) error {
	settings, err := svc.Store.ListAgents(ctx)
	if err != nil {
		return Unreachable(err)
	}
	set := settings[v.Name]
	if !kernel.IsFair(set) {
		return nil
	}
	shares, floor, err := svc.Store.Shares(ctx, v.Name, perdure.MaxHealth, true)
	if err != nil {
		return Unreachable(err)
	}
	for _, s := range shares {
		v.Shares = append(v.Shares, kernel.ViewOfShare(&s, floor, &set))
	}
	return nil
}

// ListNodes implements perdure.Operations.
func (svc *Service) ListNodes(ctx context.Context) ([]perdure.NodeView, error) {
	nodes, err := svc.Store.Nodes(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	roles, err := svc.Store.Roles(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	views := make([]perdure.NodeView, len(nodes))
	for i, of := range nodes {
		views[i] = nodeView(of, roles, now)
		views[i].State = svc.stateOf(&of, now)
	}
	return views, nil
}

// stateOf returns whether a node is alive.
func (svc *Service) stateOf(n *kernel.Node, now time.Time) perdure.NodeState {
	if !svc.Shared && n.ID != svc.Node { // no other process has the store open
		return perdure.NodeDead
	}
	return n.StateAt(now, svc.RoleTTL)
}

func nodeView(n kernel.Node, roles []kernel.Role, now time.Time) perdure.NodeView {
	v := perdure.NodeView{ID: n.ID, Host: n.Host, PID: n.PID, Version: n.Version, Listen: n.Listen, Agents: n.Agents,
		Slots: map[string]int{}, Leads: []perdure.RoleView{}, StandsBy: []perdure.RoleView{}, Since: n.Since, SeenAt: n.SeenAt}
	for i := range min(len(n.Agents), len(n.Slots)) {
		v.Slots[n.Agents[i]] = n.Slots[i]
	}
	for _, r := range roles {
		if r.Leader == n.ID && r.Led(now) {
			v.Leads = append(v.Leads, perdure.RoleView{Role: r.Name, Epoch: r.Epoch, Until: r.LeaderUntil})
		}
		if r.Standby == n.ID && r.StoodBy(now) {
			v.StandsBy = append(v.StandsBy, perdure.RoleView{Role: r.Name, Epoch: r.Epoch, Until: r.StandbyUntil})
		}
	}
	return v
}
