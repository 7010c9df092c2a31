package scheduler

import (
	"context"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/env"
)

// turns makes claims of one name take turns on this node. A caller whose connection broke repeats its claim
// while the first still waits: let both look, and each would be given runs of its own, of which one answer is
// read by nobody. The one that comes second finds what the first was given.
type turns struct {
	env   env.Env
	mu    sync.Mutex
	taken map[claimName]*turn
}

// claimName is what a repeated claim is known by.
type claimName struct{ agent, holder, request string }

type turn struct {
	free  chan struct{} // holds a token while nobody has the turn
	users int           // who has it, or waits for it
}

func newTurns(e env.Env) *turns { return &turns{env: e, taken: map[claimName]*turn{}} }

// take waits for the turn, for as long as the claim has patience; where that is for one look only, it is
// lookTime: the other may be at its look. It must be ended if it was had.
func (t *turns) take(ctx context.Context, name claimName, patience time.Duration) (had bool) {
	t.mu.Lock()
	own := t.taken[name]
	if own == nil {
		own = &turn{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		t.taken[name] = own
	}
	own.users++
	t.mu.Unlock()
	if patience == env.Forever {
		patience = lookTime
	}
	if t.env.Wait(ctx, patience, own.free) == env.Got {
		return true
	}
	t.forget(name, own)
	return false
}

func (t *turns) end(name claimName) {
	t.mu.Lock()
	own := t.taken[name]
	t.mu.Unlock()
	own.free <- struct{}{}
	t.forget(name, own)
}

func (t *turns) forget(name claimName, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(t.taken, name)
	}
}
