package node

import (
	"context"
	"sync"
	"time"

	"perdure"
)

// Ready says whether the node takes work, and if not, why: the first reason of its parts, in the order of checks. A part
// that has a reason of its own adds a check there.
func (n *Node) Ready(ctx context.Context) error {
	for _, check := range []func(context.Context) error{
		n.lives, n.storeAccepts, n.storeAnswers, n.storeFits, n.storeTakesWrites,
	} {
		if err := check(ctx); err != nil {
			return unreachable(err)
		}
	}
	return nil
}

// lives: it has been started, and neither drains nor has ended.
func (n *Node) lives(context.Context) error {
	switch why := context.Cause(n.life); {
	case why != nil:
		return why
	case n.draining.Load():
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: "the node is draining", Hint: "ask another node"}
	case !n.started.Load():
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: "the node has not started yet"}
	}
	return nil
}

func (n *Node) storeAnswers(ctx context.Context) error {
	_, err := n.store.Now(ctx)
	return err
}

// storeFits: it has the schema of this program.
func (n *Node) storeFits(ctx context.Context) error {
	if store, ok := n.store.(shared); ok {
		return store.CheckSchema(ctx)
	}
	return nil
}

// storeTakesWrites: the latest submission was not refused for want of space, or because the store may only be read. If it
// was, a trial shows when that is over: a node that is not ready may get no submission that would.
func (n *Node) storeTakesWrites(ctx context.Context) error {
	why := n.scheduler.Refusal()
	if why == nil {
		return nil
	}
	store, ok := n.store.(interface{ TryWrite(context.Context) error })
	if !ok || !n.trial.due() {
		return why
	}
	if err := store.TryWrite(ctx); err != nil {
		return err
	}
	n.scheduler.Trust()
	return nil
}

// storeAccepts: it does not refuse commits that it could carry out, as it does while a synchronous standby is away.
func (n *Node) storeAccepts(context.Context) error {
	if store, ok := n.store.(interface{ Accepting() error }); ok {
		return store.Accepting()
	}
	return nil
}

// trialEvery is how often it is tried whether a store takes writes again, however many ask.
const trialEvery = time.Second

type trial struct {
	mu sync.Mutex
	at time.Time
}

func (t *trial) due() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.at) < trialEvery {
		return false
	}
	t.at = time.Now()
	return true
}
