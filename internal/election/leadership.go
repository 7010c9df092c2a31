package election

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// leadership is one epoch during which this node leads a role.
type leadership struct {
	kernel.Leadership
	end          context.CancelFunc
	expiry       env.Timer
	serviceEnded chan struct{} // closed when the service has returned
}

// follow begins and ends leaderships, so that this node leads exactly the roles that the roll call returned. calledAt is
// when the roll call was made.
func (e *Elector) follow(ctx context.Context, roles []kernel.Role, now, calledAt time.Time) {
	for _, r := range roles {
		if r.Leader == e.cfg.Node && r.Led(now) {
			e.lead(ctx, r, calledAt)
		} else {
			e.end(r.Name, "another node leads", anyLeadership)
		}
	}
}

// lead begins a leadership, or extends it: until TTL, less a margin, after the roll call was made.
func (e *Elector) lead(ctx context.Context, r kernel.Role, calledAt time.Time) {
	left := calledAt.Add(e.cfg.TTL - e.cfg.TTL/marginShare).Sub(e.cfg.Env.Now())
	m := kernel.Leadership{Role: r.Name, Node: e.cfg.Node, Epoch: r.Epoch}
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.leaderships[r.Name]
	if before != nil && before.Leadership == m && !before.ended() && before.expiry.Stop() {
		before.expiry.Reset(left)
		return
	}
	if before != nil && !before.ended() {
		e.finish(before, "another epoch has begun")
	}
	serviceCtx, end := context.WithCancel(kernel.WithLeadership(ctx, m))
	l := &leadership{Leadership: m, end: end, serviceEnded: make(chan struct{})}
	l.expiry = e.cfg.Env.AfterFunc(left, func() { e.expire(l) })
	e.leaderships[r.Name] = l
	e.cfg.Log.Info("role gained", "role", r.Name, "epoch", r.Epoch)
	e.cfg.Changed(r.Name, true)
	serve := e.cfg.Roles[r.Name]
	e.cfg.Env.Go(func() {
		defer close(l.serviceEnded)
		if before != nil {
			e.cfg.Env.Wait(context.Background(), env.Forever, before.serviceEnded)
		}
		if serviceCtx.Err() == nil {
			serve(serviceCtx)
		}
	})
}

// expire ends a leadership whose time is over by this node's own clock.
func (e *Elector) expire(l *leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leaderships[l.Role] == l && !l.ended() {
		e.finish(l, "no roll call succeeded in time")
	}
}

// end ends this node's leadership of a role, if there is one and which accepts it.
func (e *Elector) end(role, why string, matches func(kernel.Leadership) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.leaderships[role]; l != nil && !l.ended() && matches(l.Leadership) {
		e.finish(l, why)
	}
}

func anyLeadership(kernel.Leadership) bool { return true }

// finish ends a leadership. mu must be held. The leadership stays in led until the next one begins, which waits for its
// service to return.
func (e *Elector) finish(l *leadership, why string) {
	l.expiry.Stop()
	l.end()
	l.end = nil
	e.cfg.Log.Info("role lost", "role", l.Role, "epoch", l.Epoch, "reason", why)
	e.cfg.Changed(l.Role, false)
}

func (l *leadership) ended() bool { return l.end == nil }

func (e *Elector) allLeaderships() (all []*leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, role := range slices.Sorted(maps.Keys(e.leaderships)) {
		all = append(all, e.leaderships[role])
	}
	return all
}
