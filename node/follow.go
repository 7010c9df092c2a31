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

// nextNews waits for the job to move, and for as long as reading it costs.
func (n *Node) nextNews(ctx context.Context, p *picture, moved <-chan struct{}) (*perdure.JobView, error) {
	last := p.read
	for look := 0; ; look++ {
		if err := n.pause(ctx, moved, look); err != nil {
			return nil, err
		}
		began := time.Now()
		view, err := p.news(ctx)
		if err != nil {
			return nil, err
		}
		rest := max(followPause, followShare*time.Since(began))
		if len(view.Steps) > 0 || view.AtRest() || view.UpdatedAt.After(last) {
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
