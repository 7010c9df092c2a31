package agenthost

import (
	"iter"
	"maps"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// If the runs are those of a registered host (Config.HostName), a claim says what of the host's capacity is free. Several
// claims may be in progress, and each offers another part: so the runs that they bring fit together.
//
// A step that needs more than one of these parts must not wait for ever. Therefore claims are in rounds: those of one round end
// together, and the first claim of the next round offers everything that is free. The scheduler ends a round early by an answer
// without runs, if a step waits for what several claims offer.

// roundGrace is how long the next round waits for claims of the last one, which may be without an answer.
const roundGrace = time.Second

// freeCapacity returns what of the capacity neither a run takes nor a claim in progress offers. mu must be held.
func (h *Host) freeCapacity() perdure.Amounts {
	free := maps.Clone(h.cfg.Capacity)
	add(free, takenBy(maps.Values(h.live)), -1)
	add(free, h.offered, -1)
	maps.DeleteFunc(free, func(_ string, n int64) bool { return n <= 0 })
	return free
}

func add(to, of perdure.Amounts, times int64) {
	for name, n := range of {
		to[name] += times * n
	}
}

// offer takes a part of the capacity for a claim that is about to be sent, and returns how many runs the claim should ask
// for. mu must be held.
func (h *Host) offer(a *hosted, free perdure.Amounts) (n int) {
	for name, amount := range free {
		switch name {
		case "memory":
		case "cpu": // in thousandths
			n += int(min((amount+999)/1000, perdure.MaxBatch))
		default:
			n += int(min(amount, perdure.MaxBatch))
		}
	}
	if n == 0 && len(free) > 0 {
		n = 1
	}
	n = min(n, a.slots-a.held, perdure.MaxBatch)
	if n <= 0 || !h.inRound() {
		return 0
	}
	h.offers++
	if h.offered == nil {
		h.offered = perdure.Amounts{}
	}
	add(h.offered, free, 1)
	a.claimed += n
	return n
}

// inRound reports whether a claim may be sent, and begins a round if there is none. mu must be held.
func (h *Host) inRound() bool {
	now := h.env.Now()
	switch over := now.Sub(h.roundEnd); {
	case h.offers == 0, over >= roundGrace:
		h.roundEnd = now.Add(h.cfg.ClaimWait)
		h.env.AfterFunc(h.cfg.ClaimWait+roundGrace, func() { // claims without an answer hold back no others
			h.mu.Lock()
			defer h.unlock()
			for _, a := range h.agents {
				a.freed.ring()
			}
		})
	case over >= 0:
		return false
	}
	return true
}

// endRound ends the round if a claim was answered without runs before its time: the scheduler has done so because a step needs
// more than this part of what is free, or because it ends. What is free is offered together then.
func (h *Host) endRound(req *protocol.Claim, got arrival, duration time.Duration) {
	if h.cfg.HostName == "" || len(got.runs) > 0 || duration >= req.Wait {
		return
	}
	h.mu.Lock()
	defer h.unlock()
	if now := h.env.Now(); now.Before(h.roundEnd) {
		h.roundEnd = now
	}
}

// claimWait returns how long a claim may wait that is about to be sent. mu must be held.
func (h *Host) claimWait() time.Duration {
	if h.cfg.HostName == "" {
		return h.cfg.ClaimWait
	}
	return min(max(h.roundEnd.Sub(h.env.Now()), time.Millisecond), h.cfg.ClaimWait)
}

// takenBy returns what runs take of the capacity until their reports are answered.
func takenBy(runs iter.Seq[*live]) perdure.Amounts {
	taken := perdure.Amounts{}
	for l := range runs {
		if r := l.run.Requires; r != nil {
			add(taken, r.Amounts, 1)
		}
	}
	return taken
}
