package node

import (
	"context"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/service"
)

// Ready returns nil if the node accepts work. Otherwise it returns the reason: the first error of its checks, in their
// order. A part of the node that can be a reason adds a check.
func (n *Node) Ready(ctx context.Context) error {
	for _, check := range []func(context.Context) error{
		n.lives, n.storeAccepts, n.storeAnswers, n.storeFits, n.storeTakesWrites,
	} {
		if err := check(ctx); err != nil {
			return service.Unreachable(err)
		}
	}
	return nil
}

// lives checks that the node was started, and neither drains nor has ended.
func (n *Node) lives(context.Context) error {
	if err := n.refuse(); err != nil {
		return err
	}
	if !n.started.Load() {
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: "the node has not started yet"}
	}
	return nil
}

// refuse returns why the node accepts no new work: it has ended, or it drains.
func (n *Node) refuse() error {
	switch why := context.Cause(n.life); {
	case why != nil:
		return why
	case n.draining.Load():
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: "the node is draining", Hint: "ask another node"}
	}
	return nil
}

func (n *Node) storeAnswers(ctx context.Context) error {
	_, err := n.store.Now(ctx)
	return err
}

// storeFits checks that the store has the schema of this program.
func (n *Node) storeFits(ctx context.Context) error {
	if n.shared != nil {
		return n.shared.CheckSchema(ctx)
	}
	return nil
}

// storeTakesWrites checks that the store has not refused the latest submission because its disk is full or it is
// read-only. If it has, a trial write shows when that is over: a node that is not ready may receive no submissions, so
// these cannot show it.
func (n *Node) storeTakesWrites(ctx context.Context) error {
	why := n.scheduler.Refusal()
	if why == nil {
		return nil
	}
	store, ok := n.store.(interface{ TryWrite(context.Context) error })
	if !ok || !n.trial.due(n.env.Now()) {
		return why
	}
	if err := store.TryWrite(ctx); err != nil {
		return err
	}
	n.scheduler.ClearRefusal()
	return nil
}

// storeAccepts checks that the store accepts commits. It does not while a synchronous standby does not answer.
func (n *Node) storeAccepts(context.Context) error {
	if store, ok := n.store.(interface{ Accepting() error }); ok {
		return store.Accepting()
	}
	return nil
}

// trialEvery is the least time between two trial writes, however often readiness is checked.
const trialEvery = time.Second

type trial struct {
	mu sync.Mutex
	at time.Time
}

func (t *trial) due(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.at.IsZero() && now.Sub(t.at) < trialEvery {
		return false
	}
	t.at = now
	return true
}
