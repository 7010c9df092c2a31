package agenthost

import (
	"crypto/rand"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/protocol"
)

const (
	claimMargin  = 15 * time.Second // how much longer than its wait a claim may take
	fruitless    = time.Second      // a claim that started nothing and took less is not repeated at once
	retrieveTime = 2 * time.Second  // for asking, in a drain, what a lost claim has brought
)

// claimLoop asks for as many runs as there are free slots, and some ahead, for as long as the host claims.
func (h *Host) claimLoop(a *hosted) {
	defer h.claimed()
	idle := backoff{env: h.env, base: 20 * time.Millisecond, most: fruitless}
	for {
		n := 0
		if !h.await(h.claiming, &a.freed, func() bool { n = a.ask(h.env.Now()); return n > 0 }) || h.claiming.Err() != nil {
			return
		}
		req := h.claimOf(a, n, h.cfg.ClaimWait)
		began := h.env.Now()
		got, ok := h.claim(a, req)
		if !ok {
			h.retrieve(a, req)
			return
		}
		if h.start(a, got) > 0 || h.env.Now().Sub(began) >= fruitless {
			idle.reset()
		} else if !idle.pause(h.claiming) { // an exchange that does not wait, or brings again what is known: never a busy loop
			return
		}
		h.came(a, n, got)
	}
}

// claimed is the end of a claim loop, or of a claim that went with reports.
func (h *Host) claimed() {
	h.mu.Lock()
	defer h.unlock()
	h.claimers--
	h.left.ring()
}

func (h *Host) claimOf(a *hosted, n int, wait time.Duration) protocol.Claim {
	return protocol.Claim{Agent: a.Name, Holder: h.cfg.Holder, Max: n, Wait: wait,
		Heartbeat: max(h.cfg.Heartbeat, 0), RequestID: rand.Text(), First: true}
}

// came ends a claim: what it has brought counts as busy from here on.
func (h *Host) came(a *hosted, asked int, got arrival) {
	h.mu.Lock()
	defer h.unlock()
	a.asked -= asked
	switch now := h.env.Now(); {
	case 2*len(got.runs) >= asked && millis(got.runs[0].WaitedMs) < flowing:
		a.flows, a.filled = true, now
		mean(&a.trip, got.ended.mono.Sub(got.sent.mono)-millis(got.runs[0].WaitedMs))
	case now.Sub(a.filled) >= ebbing:
		a.flows = false
	}
	a.freed.ring()
}

const (
	// flowing is how long a claim may have waited for its runs, if the next is to come with reports: who gives an
	// agent work more slowly than that would be looked at in vain.
	flowing = 100 * time.Millisecond
	// ebbing is for how long none was filled, when that ends. A claim that came back empty says little: jobs come to
	// their last steps by the hundred, whose reports make nothing ready, and the next reports would go without a
	// claim, and what they make ready through the queue.
	ebbing = 250 * time.Millisecond
)

// arrival is the answer to a claim, and the bounds between which the scheduler gave it.
type arrival struct {
	runs        []perdure.Run
	sent, ended instant
	lost        bool // no answer came
}

// claim asks until it has an answer: under one requestId, so that the runs of an answer that was lost
// come again (F019). False if the host stops claiming before that.
func (h *Host) claim(a *hosted, req protocol.Claim) (got arrival, ok bool) {
	retry := backoff{env: h.env, base: 100 * time.Millisecond, most: 5 * time.Second}
	for failed := 0; ; failed++ {
		req.First = req.First && failed == 0
		ctx, cancel := env.WithTimeout(h.env, h.claiming, req.Wait+claimMargin)
		got.sent = h.now()
		crashpoint.Here(crashpoint.AgentClaim)
		runs, err := h.cfg.Exchange.Claim(ctx, req)
		cancel()
		crashpoint.Here(crashpoint.AgentClaimed)
		got.runs, got.ended = runs, h.now()
		h.answers(err == nil || h.claiming.Err() != nil)
		if err == nil {
			if failed > 0 {
				h.log.Info("claims work again", "agent", a.Name, "failed", failed)
			}
			return got, true
		}
		if h.claiming.Err() != nil {
			return got, false
		}
		if failed == 0 {
			h.log.Warn("claim failed; retrying", "agent", a.Name, "err", err)
		}
		if !retry.pause(h.claiming) {
			return got, false
		}
	}
}

// retrieve asks what a claim whose answer is not known has brought, so that it can be given back at
// once instead of expiring. If it has brought nothing, this may claim one run anew, which is given
// back the same way.
func (h *Host) retrieve(a *hosted, req protocol.Claim) {
	ctx, cancel := env.WithTimeout(h.env, h.life, retrieveTime)
	defer cancel()
	crashpoint.Here(crashpoint.AgentRetrieve)
	req.Max, req.Wait, req.First = 1, 0, false
	got := arrival{sent: h.now()}
	runs, err := h.cfg.Exchange.Claim(ctx, req)
	if err != nil {
		h.log.Debug("result of the last claim before the drain is unknown", "agent", a.Name, "err", err)
		return
	}
	got.runs, got.ended = runs, h.now()
	crashpoint.Here(crashpoint.AgentRetrieved)
	h.start(a, got)
}

// start admits what a claim has brought, and says how many runs it started.
//
// When the answer was given is known only between bounds: not before the claim was sent, nor before
// it had waited for as long as the answer says. Time counts from there. Where that leaves open much of
// the time that a run has, because the answer was slow or does not say how long it waited, a
// heartbeat tells how the run stands (F022).
func (h *Host) start(a *hosted, got arrival) (started int) {
	terms := make([]term, len(got.runs))
	var open []int
	for i := range got.runs {
		run := &got.runs[i]
		took := got.ended.mono.Sub(got.sent.mono)
		waited := min(millis(run.WaitedMs), took)
		terms[i] = termOf(run, got.sent.add(waited), run.RemainingMs, run.LockedUntil)
		if took-waited > millis(run.RemainingMs)/10 {
			open = append(open, i)
		}
	}
	if len(open) > 0 {
		h.confirm(a, got.runs, terms, open)
	}
	for i := range got.runs {
		if !terms[i].over && h.admit(a, &got.runs[i], terms[i]) {
			started++
		}
	}
	return started
}

// term is until when a run is ours, and how far that can be moved.
type term struct {
	lock, ultimatum instant
	over            bool // it is not ours any more
	unwanted        bool // it is ours, and the job has turned meanwhile
}

// termOf counts the remaining time from an instant at or before the scheduler's own reading. How far
// the ultimatum is from the lock's end is the scheduler's to say; a lock beyond the ultimatum is none.
func termOf(run *perdure.Run, from instant, remainingMs int64, lockedUntil time.Time) term {
	lock := from.add(millis(remainingMs))
	if lockedUntil.IsZero() || run.CompleteBy.IsZero() {
		return term{lock: lock, ultimatum: lock}
	}
	beyond := run.CompleteBy.Sub(lockedUntil)
	ultimatum := lock.add(min(max(beyond, -perdure.MaxDuration), perdure.MaxDuration))
	return term{lock: earlier(lock, ultimatum), ultimatum: ultimatum}
}
