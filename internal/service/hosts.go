package service

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// hostRoom is about the size of a host's view without its runs, in bytes. hostRunRoom is that of a run.
const (
	hostRoom    = 4 << 10
	hostRunRoom = 1 << 10
)

// RegisterHost implements operate.Hosts.
func (svc *Service) RegisterHost(ctx context.Context, r operate.HostRequest) (*operate.HostRegistered, error) {
	if err := cmp.Or(svc.ended(), mayRegister(ctx, r.Name), r.Check()); err != nil {
		return nil, err
	}
	h := kernel.Host{Name: r.Name, Incarnation: r.Incarnation, Boot: r.Boot, Grid: r.Grid, Version: r.Version,
		Labels: r.Labels, Capacity: r.Capacity, Heartbeat: cmp.Or(time.Duration(r.Heartbeat), operate.DefaultHostHeartbeat)}
	row, runs, created, err := svc.Scheduler.RegisterHost(ctx, &h, r.Renews)
	if err != nil {
		return nil, Unreachable(err)
	}
	if created {
		svc.Log.InfoContext(ctx, "host registered", "host", row.Name, "holder", row.Holder())
	}
	out := &operate.HostRegistered{Holder: row.Holder(), State: row.StateAt(row.SeenAt, runs), DrainBy: row.DrainBy, Created: created}
	if row.Draining {
		out.DrainInMs = max(row.DrainBy.Sub(row.SeenAt).Milliseconds(), 0)
	}
	return out, nil
}

// mayRegister returns why the caller may not register a host; nil if it may.
func mayRegister(ctx context.Context, name string) error {
	id := operate.IdentityOf(ctx)
	switch {
	case id == nil:
		return nil
	case !id.MayBeHost(name):
		e := perdure.Refuse(perdure.CodeForbidden, "the token %s is only for %s %s", id.Name, map[bool]string{true: "the host", false: "the hosts"}[len(id.Hosts) == 1], strings.Join(id.Hosts, ", "))
		e.Hint = "use a token that was created with --host " + plain.Clip(name, perdure.MaxHostWord) + ", or without --host"
		return e
	case id.MayCarryOut(kernel.AgentExec):
		return nil
	}
	e := perdure.Refuse(perdure.CodeForbidden, "the token %s is not for hosts", id.Name)
	e.Hint = "use a token that was created with --agent " + kernel.AgentExec
	return e
}

// hostView returns the view of a host. With runs, it has them.
func (svc *Service) hostView(ctx context.Context, h *kernel.Host, now time.Time, runs bool) (*operate.HostView, error) {
	held, err := svc.Store.HostRuns(ctx, h.Holder(), perdure.MaxHostRuns)
	if err != nil {
		return nil, Unreachable(err)
	}
	v := &operate.HostView{Name: h.Name, State: h.StateAt(now, len(held)), Holder: h.Holder(), NoSpace: h.NoSpace(), Runs: len(held), RegisteredAt: h.RegisteredAt, SeenAt: h.SeenAt,
		HostSettings: operate.HostSettings{Incarnation: h.Incarnation, Boot: h.Boot, Grid: h.Grid, Labels: h.Labels, Capacity: h.Capacity, Version: h.Version, Heartbeat: perdure.Duration(h.Heartbeat)}}
	if h.Draining {
		v.Drain = &operate.HostDrainView{By: h.DrainBy, Author: h.DrainAuthor, Reason: h.DrainReason}
	}
	if r := h.Reservation; now.Before(r.Until) && !h.Draining && !h.Silent(now) {
		v.Reservation = &operate.HostReservation{Job: r.Job, Step: r.Step, Since: r.At, Until: r.Until}
	}
	demands := make([]kernel.Demand, len(held))
	for i := range held {
		demands[i] = held[i].Needs.Demand()
		if runs {
			v.InFlight = append(v.InFlight, operate.HostRun{Job: held[i].Job, Step: held[i].Name, Run: held[i].Run, Agent: held[i].Agent, Requires: *demands[i].Requires(), StartedAt: held[i].StartedAt})
		}
	}
	v.Used = kernel.UsedBy(demands)
	return v, nil
}

// recentHosts are the hosts for the reasons why steps wait. They are up to a second old, as the facts in recent.
type recentHosts struct {
	lock  env.Lock
	at    time.Time
	hosts []kernel.Host
}

func newRecentHosts() *recentHosts { return &recentHosts{lock: env.NewLock()} }

// fill adds the hosts to the facts if one of the steps is ready and has a demand.
func (r *recentHosts) fill(ctx context.Context, svc *Service, f *kernel.Facts, steps []*kernel.Step) error {
	if !slices.ContainsFunc(steps, func(s *kernel.Step) bool { return s.Phase == perdure.Ready && s.Needs.Demand() != "" }) {
		return nil
	}
	if !r.lock.Acquire(ctx, svc.Env) {
		return ctx.Err()
	}
	defer r.lock.Release()
	if now := svc.Env.Now(); r.at.IsZero() || now.Sub(r.at) > recentFor {
		hosts, err := svc.Store.ListHosts(ctx, "", perdure.MaxHosts)
		if err != nil {
			return Unreachable(err)
		}
		r.hosts, r.at = hosts, now
	}
	f.Hosts, f.HostsKnown = r.hosts, true
	return nil
}

// hostsAtOnce is how many hosts a list reads at once.
const hostsAtOnce = 500

// ListHosts implements operate.Hosts.
func (svc *Service) ListHosts(ctx context.Context, q operate.HostQuery) (*perdure.Page[operate.HostView], error) {
	after, err := hex.DecodeString(q.Cursor)
	if err != nil {
		return nil, perdure.Refuse(perdure.CodeInvalid, "the cursor is not one of a list of hosts")
	}
	limit := pageSize(q.Limit)
	if err := admission.Ask(ctx, limit*hostRoom+hostsAtOnce*hostRoom); err != nil {
		return nil, err
	}
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	page := &perdure.Page[operate.HostView]{Items: []operate.HostView{}}
	for from := string(after); ; {
		hosts, err := svc.Store.ListHosts(ctx, from, hostsAtOnce)
		if err != nil {
			return nil, Unreachable(err)
		}
		for i := range hosts {
			h := &hosts[i]
			from = h.Name
			if q.Grid != "" && h.Grid != q.Grid || !hasLabel(h, q.Label) {
				continue
			}
			v, err := svc.hostView(ctx, h, now, false)
			if err != nil {
				return nil, err
			}
			if q.State != "" && v.State != q.State {
				continue
			}
			if len(page.Items) == limit {
				page.NextCursor = hex.EncodeToString([]byte(page.Items[limit-1].Name))
				return page, nil
			}
			page.Items = append(page.Items, *v)
		}
		if len(hosts) < hostsAtOnce {
			return page, nil
		}
	}
}

// hasLabel reports whether a host has a label, NAME or NAME=VALUE; empty: any host.
func hasLabel(h *kernel.Host, label string) bool {
	name, value, given := strings.Cut(label, "=")
	has, ok := h.Labels[name]
	return label == "" || ok && (!given || has == value)
}

// GetHost implements operate.Hosts.
func (svc *Service) GetHost(ctx context.Context, name string) (*operate.HostView, error) {
	if err := admission.Ask(ctx, hostRoom+perdure.MaxHostRuns*hostRunRoom); err != nil {
		return nil, err
	}
	h, err := svc.Store.Host(ctx, name)
	switch {
	case err != nil:
		return nil, Unreachable(err)
	case h == nil:
		return nil, kernel.ErrNoHost(name)
	}
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return nil, Unreachable(err)
	}
	return svc.hostView(ctx, h, now, true)
}

// DrainHost implements operate.Hosts.
func (svc *Service) DrainHost(ctx context.Context, d operate.HostDrain) (*operate.HostView, error) {
	if err := cmp.Or(svc.ended(), checkAuthor(d.Author), d.Check()); err != nil {
		return nil, err
	}
	_, err := svc.Scheduler.ChangeHost(ctx, "drainHost", d.Name, d.Author, d.Reason, func(h *kernel.Host, now time.Time) {
		h.Draining, h.DrainBy, h.DrainAuthor, h.DrainReason = true, now.Add(d.Deadline), d.Author, d.Reason
		h.Reservation = kernel.Reservation{}
	})
	if err != nil {
		return nil, Unreachable(err)
	}
	svc.Log.InfoContext(ctx, "host drained", "host", d.Name, "author", d.Author, "deadline", d.Deadline)
	return svc.GetHost(ctx, d.Name)
}

// ReadyHost implements operate.Hosts.
func (svc *Service) ReadyHost(ctx context.Context, name, author string) (*operate.HostView, error) {
	if err := cmp.Or(svc.ended(), checkAuthor(author)); err != nil {
		return nil, err
	}
	_, err := svc.Scheduler.ChangeHost(ctx, "readyHost", name, author, "", func(h *kernel.Host, _ time.Time) {
		h.Draining, h.DrainBy, h.DrainAuthor, h.DrainReason = false, time.Time{}, "", ""
	})
	if err != nil {
		return nil, Unreachable(err)
	}
	svc.Log.InfoContext(ctx, "host ready", "host", name, "author", author)
	return svc.GetHost(ctx, name)
}

// DeleteHost implements operate.Hosts.
func (svc *Service) DeleteHost(ctx context.Context, name, author string) error {
	if err := cmp.Or(svc.ended(), checkAuthor(author)); err != nil {
		return err
	}
	if err := svc.Scheduler.DeleteHost(ctx, name, author); err != nil {
		return Unreachable(err)
	}
	svc.Log.InfoContext(ctx, "host removed", "host", name, "author", author)
	return nil
}
