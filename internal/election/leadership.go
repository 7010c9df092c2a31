package election

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// leadership is one epoch of this node at the head of a role.
type leadership struct {
	mandate kernel.Mandate
	end     context.CancelFunc
	expiry  env.Timer
	over    chan struct{} // closed once its service has returned
}

// follow makes this node lead what it was found to lead, by a question that was asked then, and nothing else.
func (e *Elector) follow(ctx context.Context, roles []kernel.Role, now, asked time.Time) {
	for _, r := range roles {
		if r.Leader == e.cfg.Node && r.Led(now) {
			e.lead(ctx, r, asked)
		} else {
			e.end(r.Name, "another node leads", whichever)
		}
	}
}

// lead begins an epoch, or lets it go on, until some time after the question was asked.
func (e *Elector) lead(ctx context.Context, r kernel.Role, asked time.Time) {
	left := asked.Add(e.cfg.TTL - e.cfg.TTL/earlierShare).Sub(e.cfg.Env.Now())
	m := kernel.Mandate{Role: r.Name, Node: e.cfg.Node, Epoch: r.Epoch}
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.led[r.Name]
	if before != nil && before.mandate == m && !before.ended() && before.expiry.Stop() {
		before.expiry.Reset(left)
		return
	}
	if before != nil && !before.ended() {
		e.finish(before, "another epoch has begun")
	}
	life, end := context.WithCancel(kernel.WithMandate(ctx, m))
	l := &leadership{mandate: m, end: end, over: make(chan struct{})}
	l.expiry = e.cfg.Env.AfterFunc(left, func() { e.expire(l) })
	e.led[r.Name] = l
	e.cfg.Log.Info("leads", "role", r.Name, "epoch", r.Epoch)
	e.cfg.Changed(r.Name, true)
	serve := e.cfg.Roles[r.Name]
	e.cfg.Env.Go(func() {
		defer close(l.over)
		if before != nil {
			e.cfg.Env.Wait(context.Background(), env.Forever, before.over)
		}
		if life.Err() == nil {
			serve(life)
		}
	})
}

// expire ends an epoch whose time is over by this node's own clock.
func (e *Elector) expire(l *leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.led[l.mandate.Role] == l && !l.ended() {
		e.finish(l, "its time is over, and the store has not been heard of")
	}
}

// end ends what this node leads of a role, if it does, and if which says so.
func (e *Elector) end(role, why string, which func(kernel.Mandate) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.led[role]; l != nil && !l.ended() && which(l.mandate) {
		e.finish(l, why)
	}
}

func whichever(kernel.Mandate) bool { return true }

// finish is under mu. The leadership stays known until another begins, which waits for its service.
func (e *Elector) finish(l *leadership, why string) {
	l.expiry.Stop()
	l.end()
	l.end = nil
	e.cfg.Log.Info("leads no more", "role", l.mandate.Role, "epoch", l.mandate.Epoch, "because", why)
	e.cfg.Changed(l.mandate.Role, false)
}

func (l *leadership) ended() bool { return l.end == nil }

func (e *Elector) leaderships() (all []*leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, role := range slices.Sorted(maps.Keys(e.led)) {
		all = append(all, e.led[role])
	}
	return all
}
