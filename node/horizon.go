package node

import (
	"context"
	"time"
)

// horizon is a store that knows which transaction keeps it from clearing away what is overwritten (F103).
type horizon interface {
	OldestTransaction(context.Context) (age time.Duration, who string, err error)
}

const (
	// DefaultOldTransaction is the age from which on a transaction is told of that holds vacuum up.
	DefaultOldTransaction = 5 * time.Minute

	horizonEvery = 30 * time.Second // how often it is looked for
	horizonTime  = 5 * time.Second
)

// lead is what this node does while it leads the supervisors.
func (n *Node) lead(ctx context.Context) {
	if store, ok := n.store.(horizon); ok {
		n.watching.Go(func() { n.watchHorizon(ctx, store) })
	}
	n.supervisor.Lead(ctx)
}

// watchHorizon tells when there is an old transaction, and when it is gone.
func (n *Node) watchHorizon(ctx context.Context, store horizon) {
	bound := n.cfg.OldTransaction
	if bound <= 0 {
		bound = DefaultOldTransaction
	}
	defer n.meter.oldest.Set(0)
	look := time.NewTicker(min(horizonEvery, bound))
	defer look.Stop()
	for told := false; ctx.Err() == nil; {
		told = n.lookBack(ctx, store, bound, told)
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
}

func (n *Node) lookBack(ctx context.Context, store horizon, bound time.Duration, told bool) bool {
	asking, cancel := context.WithTimeout(ctx, horizonTime)
	defer cancel()
	age, who, err := store.OldestTransaction(asking)
	if err != nil {
		return told
	}
	n.meter.oldest.Set(age.Seconds())
	old := age >= bound
	switch {
	case old && !told:
		n.log.Warn("an old transaction keeps the database from clearing away what is dead, and everything becomes slower: end it",
			"age", age.Round(time.Second).String(), "whose", who)
	case told && !old:
		n.log.Info("the old transaction is gone")
	}
	return old
}
