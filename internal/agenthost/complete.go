package agenthost

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// A complete heartbeat lists every run of this host, so the scheduler expires at once what the host does not have: for example
// a run whose claim an earlier process with this Holder sent, and to which the answer never arrived.
//
// The list is taken under mu. A claim is open from before it is sent until its runs are in Host.live. So at each instant each
// run that the scheduler has dispatched to this process is in the list, or belongs to an open claim, or its report was
// answered.

// completer is the state of complete heartbeats. Host.mu protects it.
type completer struct {
	on     bool
	open   map[string]bool // requestIds of claims in progress
	asOf   time.Time       // of the latest answer
	idleAt time.Time       // when an idle host sends the next one
}

// CompleteHeartbeats makes the heartbeats complete from now on, if the exchange is a protocol.Completer. If an earlier process
// had the same Holder, its runs must have been adopted before: others expire.
func (h *Host) CompleteHeartbeats() {
	if _, ok := h.cfg.Exchange.(protocol.Completer); !ok || h.cfg.Heartbeat <= 0 {
		return
	}
	h.mu.Lock()
	h.complete.on = true
	h.unlock()
	select {
	case h.heartbeatSooner <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// opened and closed note the begin and the end of a claim. mu must be held.
func (c *completer) opened(req *protocol.Claim) {
	if c.open == nil {
		c.open = map[string]bool{}
	}
	c.open[req.RequestID] = true
}

func (c *completer) closed(req *protocol.Claim) { delete(c.open, req.RequestID) }

// completeRuns returns all runs of this host if a complete heartbeat should be sent now. It should not:
//
//   - while a handler continues whose run is lost: its step must not be dispatched again before the end of the lock;
//   - while runs have just arrived, unless this is a registered host: they would cost the scheduler a write each (see
//     freshPart), and usually end before the next heartbeat;
//   - on an idle host that has sent one within the promised interval.
//
// mu must be held.
func (h *Host) completeRuns(now time.Time) (all []*live, ok bool) {
	c := &h.complete
	if !c.on || len(h.live) > perdure.MaxBatch || len(c.open) > perdure.MaxOpenClaims {
		return nil, false
	}
	for _, l := range h.live {
		if l.lost || h.cfg.HostName == "" && h.isFresh(l, now) {
			return nil, false
		}
		all = append(all, l)
	}
	if len(all) == 0 && now.Before(c.idleAt) {
		return nil, false
	}
	slices.SortFunc(all, func(a, b *live) int {
		return cmp.Or(a.run.Job.Compare(b.run.Job), cmp.Compare(a.run.Step, b.run.Step))
	})
	return all, true
}

// answered notes the answer to a complete heartbeat. An idle host sends the next one at idleAt; but at once after the first
// one, which could not end any run.
func (c *completer) answered(sent *protocol.CompleteHeartbeat, asOf, idleAt time.Time) {
	if asOf.After(c.asOf) {
		c.asOf = asOf
	}
	if !sent.AsOf.IsZero() {
		c.idleAt = idleAt
	}
}

// endComplete sends no more complete heartbeats, because the exchange refuses them: it is a server of an earlier version.
func (h *Host) endComplete() {
	h.mu.Lock()
	defer h.unlock()
	h.complete.on = false
}

// listOf returns a complete heartbeat without its runs. mu must be held.
func (h *Host) listOf() *protocol.CompleteHeartbeat {
	return &protocol.CompleteHeartbeat{Holder: h.cfg.Holder, AsOf: h.complete.asOf, OpenClaims: slices.Sorted(maps.Keys(h.complete.open))}
}
