package node

import (
	"context"
	"time"

	"github.com/perdure/perdure"
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
	var moved <-chan struct{}
	stop := func() {}
	p, err := arrived(ctx, n, ref, 0, func(ctx context.Context, id perdure.JobID) (*picture, error) {
		stop()
		moved, stop = n.scheduler.Follow(id) // before the job is read
		return n.look(ctx, id)
	})
	defer func() { stop() }()
	if err != nil {
		return unreachable(err)
	}
	view, err := p.whole(ctx)
	for {
		if err != nil {
			return err
		}
		if err := see(view); err != nil || view.AtRest() {
			return err
		}
		if view, err = n.nextNews(ctx, p, moved); err == nil && view.AtRest() {
			view, err = p.whole(ctx) // with the last outputs and alerts
		}
	}
}

// nextNews waits for as long as the reading before it cost, and for the job to move.
func (n *Node) nextNews(ctx context.Context, p *picture, moved <-chan struct{}) (*perdure.JobView, error) {
	last := p.read
	for look := 0; ; look++ {
		sleep(ctx, p.rest)
		if err := n.pause(ctx, moved, look); err != nil {
			return nil, err
		}
		began := time.Now()
		view, err := p.news(ctx)
		if err != nil {
			return nil, err
		}
		p.rest = max(followPause, followShare*(time.Since(began)-p.waited))
		if len(view.Steps) > 0 || view.AtRest() || view.UpdatedAt.After(last) {
			return view, ctx.Err()
		}
		last = p.read
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
