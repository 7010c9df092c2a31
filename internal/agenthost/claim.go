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
	shortClaim   = time.Second      // a claim that started nothing and took less is not repeated at once
	retrieveTime = 2 * time.Second  // the time limit, in a drain, for retrieving the runs of a lost claim
)

// claimLoop claims as many runs as there are free slots, and some ahead, until the host stops claiming.
func (h *Host) claimLoop(a *hosted) {
	defer h.claimerEnded()
	idle := backoff{env: h.env, base: 20 * time.Millisecond, most: shortClaim}
	for {
		n, free := 0, perdure.Amounts(nil)
		if !h.await(h.claiming, &a.freed, func() bool { n, free = h.claimSize(a); return n > 0 }) || h.claiming.Err() != nil {
			return
		}
		req := h.openClaim(a, n, free)
		began := h.env.Now()
		got, ok := h.claim(a, req)
		if !ok {
			h.retrieve(a, req)
			return
		}
		duration := h.env.Now().Sub(began)
		cut := req.Wait < h.cfg.ClaimWait && duration >= req.Wait // by the end of its round
		h.endRound(&req, got, duration)
		if h.start(a, got) > 0 || duration >= shortClaim || cut {
			idle.reset()
		} else if !idle.pause(h.claiming) { // the exchange does not wait, or returns runs that are known: avoid a busy loop
			h.closeClaim(&req)
			return
		}
		h.recordClaim(a, &req, got)
	}
}

// claimerEnded notes that a claim loop, or a claim that went with reports, has ended.
func (h *Host) claimerEnded() {
	h.mu.Lock()
	defer h.unlock()
	h.claimers--
	h.finished.ring()
}

func (h *Host) claimOf(a *hosted, n int, free perdure.Amounts, wait time.Duration) protocol.Claim {
	return protocol.Claim{Agent: a.Name, Holder: h.cfg.Holder, Host: h.cfg.HostName, Free: free, Max: n, Wait: wait,
		Heartbeat: max(h.cfg.Heartbeat, 0), RequestID: rand.Text(), Secrets: true, First: true}
}

// openClaim returns a claim that is about to be sent.
func (h *Host) openClaim(a *hosted, n int, free perdure.Amounts) protocol.Claim {
	h.mu.Lock()
	defer h.unlock()
	req := h.claimOf(a, n, free, h.claimWait())
	h.complete.opened(&req)
	return req
}

// closeClaim ends a claim to which no answer is expected any more.
func (h *Host) closeClaim(req *protocol.Claim) {
	h.mu.Lock()
	defer h.unlock()
	h.complete.closed(req)
}

// recordClaim records the result of a claim. Its runs count as busy from here on.
func (h *Host) recordClaim(a *hosted, req *protocol.Claim, got arrival) {
	h.mu.Lock()
	defer h.unlock()
	requested := req.Max
	a.claimed -= requested
	h.complete.closed(req)
	if h.cfg.HostName != "" {
		h.offers--
		add(h.offered, req.Free, -1)
	}
	switch now := h.env.Now(); {
	case 2*len(got.runs) >= requested && millis(got.runs[0].WaitedMs) < maxFlowWait:
		a.filledAtOnce, a.lastFilled = true, now
		mean(&a.claimTime, got.ended.mono.Sub(got.sent.mono)-millis(got.runs[0].WaitedMs))
	case now.Sub(a.lastFilled) >= flowEndsAfter:
		a.filledAtOnce = false
	}
	a.freed.ring()
}

const (
	// maxFlowWait is the longest wait of a claim after which the next claim goes with reports. If work arrives more slowly,
	// the search with each report would find nothing.
	maxFlowWait = 100 * time.Millisecond
	// flowEndsAfter is the time without a filled claim after which claims no longer go with reports. A single empty claim says
	// little: many jobs may reach their last steps together, and the reports of these make nothing ready.
	flowEndsAfter = 250 * time.Millisecond
)

// arrival is the answer to a claim, and the bounds of the time at which the scheduler gave it.
type arrival struct {
	runs        []perdure.Run
	sent, ended instant
	lost        bool // there was no answer
}

// claim repeats a claim until it is answered, under one requestId, so that an answer that was lost is given again
// (F019). ok is false if the host stops claiming first.
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
		h.recordAnswer(err == nil || h.claiming.Err() != nil)
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
			h.log.Warn("claim failed; retrying", "agent", a.Name, "err", err, "action", actionFor(err))
		}
		if !retry.pause(h.claiming) {
			return got, false
		}
	}
}

// actionFor says what to check after a call that failed.
func actionFor(err error) string {
	switch perdure.CodeOf(err) {
	case perdure.CodeUnauthenticated, perdure.CodeForbidden:
		return "check the token"
	case perdure.CodeNotFound: // of a claim with a host
		return "was the host removed? perdure hosts lists those that are registered; a process whose host was removed ends soon"
	}
	return "check server and network"
}

// retrieve repeats a claim whose answer was lost in a drain, so that its runs can be returned at once instead of
// expiring. If the claim had got nothing, this may claim one new run, which is returned in the same way.
func (h *Host) retrieve(a *hosted, req protocol.Claim) {
	defer h.closeClaim(&req)
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

// start admits the runs of an answer, and returns the number of runs that it has started.
//
// The time at which the answer was given is known only between bounds: not before the claim was sent, and not before it
// had waited for as long as the answer says. A run's time counts from there. If that leaves much of the run's time
// uncertain, because the answer was slow or does not say how long it waited, a heartbeat returns the run's term (F022).
func (h *Host) start(a *hosted, got arrival) (started int) {
	terms := make([]term, len(got.runs))
	var open []int
	for i := range got.runs {
		run := &got.runs[i]
		duration := got.ended.mono.Sub(got.sent.mono)
		waited := min(millis(run.WaitedMs), duration)
		terms[i] = termOf(run, got.sent.add(waited), run.RemainingMs, run.LockedUntil)
		if duration-waited > millis(run.RemainingMs)/10 {
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

// term is how long a run belongs to this host, and how far that can be extended.
type term struct {
	lock, deadline instant
	over           bool // the run no longer belongs to this host
	unwanted       bool // the run belongs to this host, but the job's direction has changed
}

// termOf counts the remaining time from an instant at or before the scheduler's own reading. The difference between
// deadline and lock is taken from the scheduler. A lock beyond the deadline is cut to it.
func termOf(run *perdure.Run, from instant, remainingMs int64, lockedUntil time.Time) term {
	lock := from.add(millis(remainingMs))
	if lockedUntil.IsZero() || run.CompleteBy.IsZero() {
		return term{lock: lock, deadline: lock}
	}
	beyond := run.CompleteBy.Sub(lockedUntil)
	deadline := lock.add(min(max(beyond, -perdure.MaxDuration), perdure.MaxDuration))
	return term{lock: earlier(lock, deadline), deadline: deadline}
}
