package agenthost

import (
	"iter"
	"maps"

	"github.com/perdure/perdure"
)

// If the runs are those of a registered host (Config.HostName), a claim says what of the host's capacity is free. Several
// claims may be in progress, and each offers another part: so the runs that they bring fit together.

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
	if n <= 0 {
		return 0
	}
	if h.offered == nil {
		h.offered = perdure.Amounts{}
	}
	add(h.offered, free, 1)
	a.claimed += n
	return n
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
