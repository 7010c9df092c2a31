package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/env"
)

// Turns lets claims of one name take turns on this node. A caller whose connection broke repeats its claim while the
// first one still waits. If both searched, each would be granted its own runs, and one of the two answers would never be
// read. The second one finds what the first was granted.
type Turns struct {
	env   env.Env
	mu    sync.Mutex
	taken map[ClaimName]*claimTurn
}

type claimTurn struct {
	free  chan struct{} // holds a token while the turn is free
	users int           // claims that have the turn, or wait for it
}

// NewTurns makes turns of which none is taken.
func NewTurns(e env.Env) *Turns { return &Turns{env: e, taken: map[ClaimName]*claimTurn{}} }

// Take waits for the turn, as long as the claim has patience. A claim that does not wait (env.Forever) waits for
// SearchTime, because the other one may be in its search. After true, End must be called.
func (t *Turns) Take(ctx context.Context, name ClaimName, patience time.Duration) bool {
	t.mu.Lock()
	own := t.taken[name]
	if own == nil {
		own = &claimTurn{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		t.taken[name] = own
	}
	own.users++
	t.mu.Unlock()
	if patience == env.Forever {
		patience = SearchTime
	}
	if t.env.Wait(ctx, patience, own.free) == env.Got {
		return true
	}
	t.forget(name, own)
	return false
}

// End passes the turn on.
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

// SearchTime is how long a claim waits without a search before it is not answered that there was nothing.
const SearchTime = 500 * time.Millisecond
