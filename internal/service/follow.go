package service

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
)

const (
	// followPause is the least time between two events of one follower: many changes of a job are one event.
	followPause = 50 * time.Millisecond
	// followShare is the pause of a follower, in multiples of the time that its last read took. So a follower of a large
	// job uses at most a tenth of a processor.
	followShare = 10
)

// Follow implements perdure.Jobs.
func (svc *Service) Follow(ctx context.Context, ref string, see func(*perdure.JobView) error) error {
	var changed <-chan struct{}
	stop := func() {}
	defer func() { stop() }()
	p, err := onceMade(ctx, svc, ref, 0, func(ctx context.Context, id perdure.JobID) (*picture, error) {
		stop()
		changed, stop = svc.Scheduler.Follow(id) // before the job is read
		return svc.look(ctx, id)
	})
	if err != nil {
		return Unreachable(err)
	}
	view, err := p.whole(ctx)
	for {
		if err != nil {
			return err
		}
		if err := see(view); err != nil || view.AtRest() {
			return err
		}
		if view, err = svc.nextNews(ctx, p, changed); err == nil && view.AtRest() {
			view, err = p.whole(ctx) // the last event has all outputs and alerts
		}
	}
}

// nextNews waits until the job changes, and returns the changes.
func (svc *Service) nextNews(ctx context.Context, p *picture, changed <-chan struct{}) (*perdure.JobView, error) {
	last := p.read
	for reads := 0; ; reads++ {
		env.Sleep(svc.Env, ctx, p.rest)
		if err := svc.awaitChange(ctx, changed, reads); err != nil {
			return nil, err
		}
		began := svc.Env.Now()
		view, err := p.news(ctx)
		if err != nil {
			return nil, err
		}
		p.rest = max(followPause, followShare*(svc.Env.Now().Sub(began)-p.waited))
		if len(view.Steps) > 0 || view.AtRest() || view.UpdatedAt.After(last) {
			return view, ctx.Err()
		}
		last = p.read
	}
}
