package scheduler

import (
	"sync"
	"time"
)

// turns makes claims of one name take turns on this node. A caller whose connection broke repeats its claim
// while the first still waits: let both look, and each would be given runs of its own, of which one answer is
// read by nobody. The one that comes second finds what the first was given.
type turns struct {
	mu    sync.Mutex
	taken map[claimName]*turn
}

// claimName is what a repeated claim is known by.
type claimName struct{ agent, holder, request string }

type turn struct {
	free  chan struct{} // holds a token while nobody has the turn
	users int           // who has it, or waits for it
}

func newTurns() *turns { return &turns{taken: map[claimName]*turn{}} }

// oneLook is how long a claim that does not wait for work waits for its turn: the other may be at its look.
const oneLook = 500 * time.Millisecond

// take waits for the turn, at most until one of the two channels says that it is over; a nil timeout is
// oneLook. It must be ended if it was had.
func (t *turns) take(name claimName, timeout <-chan time.Time, gone <-chan struct{}) (had bool) {
	t.mu.Lock()
	own := t.taken[name]
	if own == nil {
		own = &turn{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		t.taken[name] = own
	}
	own.users++
	t.mu.Unlock()
	if timeout == nil {
		timer := time.NewTimer(oneLook)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-own.free:
		return true
	case <-timeout:
	case <-gone:
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
