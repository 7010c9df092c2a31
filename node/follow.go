package node

import (
	"context"
	"time"

	"perdure"
)

const (
	// followPause bounds how often a follower is told: many moves of a job are one event.
	followPause = 50 * time.Millisecond
	// followShare is how much longer than reading took a follower waits: one watcher of a large job
	// costs no more than a tenth of a core.
	followShare = 10
)

// Follow implements perdure.Jobs.
func (n *Node) Follow(ctx context.Context, ref string, see func(*perdure.JobView) error) error {
	id, err := n.named(ctx, ref)
	if err != nil {
		return err
	}
	moved, stop := n.scheduler.Follow(id)
	defer stop()
	p, err := n.look(ctx, id)
	if err != nil {
		return unreachable(err)
	}
	view, err := p.whole(ctx)
	for {
		if err != nil {
			return err
		}
		if err := see(view); err != nil || atRest(view) {
			return err
		}
		if view, err = n.nextNews(ctx, p, moved); err == nil && atRest(view) {
			view, err = p.whole(ctx) // with the last outputs and alerts
		}
	}
}

func atRest(v *perdure.JobView) bool { return v.Phase == perdure.Settled || v.Phase == perdure.Parked }

// nextNews waits for the job to move, and for as long as reading it costs.
func (n *Node) nextNews(ctx context.Context, p *picture, moved <-chan struct{}) (*perdure.JobView, error) {
	for last := p.read; ; {
		if err := n.pause(ctx, moved); err != nil {
			return nil, err
		}
		began := time.Now()
		view, err := p.news(ctx)
		if err != nil {
			return nil, err
		}
		rest := max(followPause, followShare*time.Since(began))
		if len(view.Steps) > 0 || atRest(view) || view.UpdatedAt.After(last) {
			sleep(ctx, rest)
			return view, ctx.Err()
		}
		last = p.read
		sleep(ctx, rest)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
