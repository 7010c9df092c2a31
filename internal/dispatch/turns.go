package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/env"
)

// Turns makes claims with one name take turns on this node. If a connection breaks, the caller repeats its claim while
// the first one may still wait. If both searched, each would be granted its own runs, and one of the two answers would
// never be read. So the second one waits for the first, and then finds the runs that were granted to it.
type Turns struct {
	env   env.Env
	mu    sync.Mutex
	taken map[ClaimName]*claimTurn
}

type claimTurn struct {
	free  chan struct{} // holds a token while no claim has the turn
	users int           // claims that have the turn, or wait for it
}

// NewTurns returns Turns in which no claim has its turn.
func NewTurns(e env.Env) *Turns { return &Turns{env: e, taken: map[ClaimName]*claimTurn{}} }

// Take waits for the turn, for up to patience. A claim without a wait (env.Forever) waits for SearchTime, because the
// other claim may be in its search. If Take returns true, the caller must call End.
func (t *Turns) Take(ctx context.Context, name ClaimName, maxWait time.Duration) bool {
	t.mu.Lock()
	own := t.taken[name]
	if own == nil {
		own = &claimTurn{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		t.taken[name] = own
	}
	own.users++
	t.mu.Unlock()
	if maxWait == env.Forever {
		maxWait = SearchTime
	}
	if t.env.Wait(ctx, maxWait, own.free) == env.Got {
		return true
	}
	t.forget(name, own)
	return false
}

// End gives the turn to the next claim.
func (t *Turns) End(name ClaimName) {
	t.mu.Lock()
	own := t.taken[name]
	t.mu.Unlock()
	own.free <- struct{}{}
	t.forget(name, own)
}

func (t *Turns) forget(name ClaimName, own *claimTurn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(t.taken, name)
	}
}

// SearchTime is how long a claim waits for a search. After that it is answered with an error instead of "no work".
const SearchTime = 500 * time.Millisecond
