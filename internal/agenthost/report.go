package agenthost

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/protocol"
)

const (
	reportTimeout = 10 * time.Second
	batchBytes    = 4 << 20                // of outputs in one call; one report alone may be larger
	shareWait     = 250 * time.Millisecond // how long reports are kept back for a call that reports others of the same job
)

// queueReport queues a report for the senders. mu must be held.
func (h *Host) queueReport(l *live, r protocol.Report) {
	l.report = &r
	l.agent.unsent++
	if !h.holdBack(l) {
		h.outbox = append(h.outbox, l)
		h.ready.Signal()
	}
}

// holdBack keeps a report back while a call reports several runs of the same job, and reports whether it did. In another
// call, its transaction would only wait for the first one's lock on the job, and so would all other reports of that
// transaction. mu must be held.
func (h *Host) holdBack(l *live) bool {
	if len(h.sharing) == 0 {
		return false
	}
	waiting, shared := h.sharing[l.run.Job]
	if shared {
		h.sharing[l.run.Job] = append(waiting, l)
	}
	return shared
}

// call is a set of reports that are sent together.
type call struct {
	runs   []*live
	next   *reportsClaim
	shared []perdure.JobID // jobs of which it reports several runs; further reports of these are kept back
}

// sendLoop sends reports, in as few calls as possible.
func (h *Host) sendLoop() {
	for c := h.take(); c != nil; c = h.take() {
		h.deliver(c)
	}
}

// take waits for reports, and returns the next call, with a claim if one should go with it; nil at the end of the host's
// life.
func (h *Host) take() *call {
	h.mu.Lock()
	defer h.unlock()
	for {
		for len(h.outbox) == 0 && h.life.Err() == nil {
			h.env.WaitCond(h.ready)
		}
		h.unlock()
		h.yielder.Yield() // the reports of goroutines that are about to run join the same call
		h.mu.Lock()
		if h.life.Err() != nil {
			return nil
		}
		if c := h.gather(); len(c.runs) > 0 {
			c.next = h.claimWithReports(c.runs)
			return c
		}
	}
}

// gather takes reports from the outbox for one call. mu must be held.
func (h *Host) gather() *call {
	c := &call{}
	n, bytes := 0, 0
	for ; n < len(h.outbox) && len(c.runs) < perdure.MaxBatch; n++ {
		l := h.outbox[n]
		if !l.lost {
			if h.holdBack(l) {
				continue
			}
			if bytes += len(l.report.Output); bytes > batchBytes && len(c.runs) > 0 {
				break
			}
		}
		l.agent.unsent--
		l.agent.freed.ring()
		if !l.lost {
			c.runs = append(c.runs, l)
		}
	}
	if h.outbox = h.outbox[n:]; len(h.outbox) == 0 {
		h.outbox = nil // otherwise the array would grow without bound
	} else {
		h.ready.Signal()
	}
	for i, l := range c.runs { // runs of one job usually end one after the other
		if job := l.run.Job; i > 0 && job == c.runs[i-1].run.Job {
			if _, shared := h.sharing[job]; !shared {
				h.sharing[job] = nil
				c.shared = append(c.shared, job)
			}
		}
	}
	return c
}

// releaseKept queues the reports that a call has kept back.
func (h *Host) releaseKept(c *call) {
	h.mu.Lock()
	defer h.unlock()
	var kept []*live
	for _, job := range c.shared {
		kept = append(kept, h.sharing[job]...)
		delete(h.sharing, job)
	}
	if c.shared = nil; len(kept) > 0 {
		h.outbox = append(kept, h.outbox...)
		h.ready.Broadcast()
	}
}

// reportsClaim is a claim that goes with reports.
type reportsClaim struct {
	a   *hosted
	req protocol.Claim
}

// claimWithReports returns a claim for as many runs as these reports make room for, if claims were filled at once recently; nil
// otherwise. The next step of a job is usually ready with the report of the previous one. mu must be held.
func (h *Host) claimWithReports(batch []*live) *reportsClaim {
	a := batch[0].agent
	if !a.filledAtOnce || h.paused || h.claiming.Err() != nil || h.now().mono.Before(h.noClaimsUntil) {
		return nil
	}
	n, free := 0, perdure.Amounts(nil)
	if h.cfg.HostName != "" {
		free = takenBy(slices.Values(batch))
		n = h.offer(a, free)
	} else {
		for _, l := range batch {
			if l.agent == a {
				n++
			}
		}
		n = max(min(n, a.freeAfter(n, h.env.Now())), 0)
		a.claimed += n
	}
	if n == 0 {
		return nil
	}
	h.claimers++
	req := h.claimOf(a, n, free, 0)
	h.complete.opened(&req)
	return &reportsClaim{a, req}
}

// deliver repeats a call until it is answered, or until none of its runs belongs to this host (F055). A report that
// arrives twice does no harm. The claim goes with the first attempt only. If it had no answer, and is of a registered host, it
// is repeated after the reports: what it offers is in use for the scheduler until it has them (F276).
func (h *Host) deliver(c *call) {
	var lost *reportsClaim
	defer func() {
		if lost != nil {
			h.endClaimWithReports(lost, arrival{lost: true})
		}
	}()
	if len(c.shared) > 0 {
		defer h.releaseKept(c)
		defer h.env.AfterFunc(shareWait, func() { h.releaseKept(c) }).Stop()
	}
	retry := backoff{env: h.env, base: 50 * time.Millisecond, most: 2 * time.Second}
	for failed := 0; ; failed++ {
		next := c.next
		c.next = nil
		reports := h.ownReports(&c.runs)
		if len(c.runs) == 0 || h.life.Err() != nil {
			if next != nil {
				h.endClaimWithReports(next, arrival{})
			}
			return
		}
		results, got, err := h.sendCall(reports, next)
		h.recordAnswer(err == nil || refusesCall(err) || h.life.Err() != nil)
		if err == nil {
			h.endReported(c.runs, results)
		}
		switch {
		case next != nil && got.lost && h.cfg.HostName != "":
			lost = next
		case next != nil:
			h.endClaimWithReports(next, got)
		}
		h.releaseKept(c)
		switch {
		case err == nil, h.life.Err() != nil:
			return
		case refusesCall(err) && next != nil: // perhaps because of the claim: the server may not support it
			h.pauseClaims()
			continue
		case refusesCall(err) && len(c.runs) > 1:
			// One report breaks the call. If each is sent alone, only that one is lost.
			for _, l := range c.runs {
				h.deliver(&call{runs: []*live{l}})
			}
			return
		case refusesCall(err):
			h.endReported(c.runs, []protocol.ReportResult{{Reason: protocol.RefusedInvalid, Message: err.Error()}})
			return
		}
		if failed == 0 {
			h.log.Warn("report failed; retrying", "reports", len(reports), "err", err, "action", actionFor(err))
		}
		if !retry.pause(h.life) {
			return
		}
	}
}

// sendCall makes one call.
func (h *Host) sendCall(reports []protocol.Report, next *reportsClaim) (results []protocol.ReportResult, got arrival, err error) {
	var claim *protocol.Claim
	if next != nil {
		claim = &next.req
	}
	ctx, cancel := env.WithTimeout(h.env, h.life, reportTimeout)
	defer cancel()
	got.sent = h.now()
	crashpoint.Here(crashpoint.AgentReport)
	results, got.runs, err = h.cfg.Exchange.Report(ctx, h.cfg.Holder, reports, claim)
	crashpoint.Here(crashpoint.AgentReported)
	if got.ended = h.now(); err == nil && len(results) != len(reports) {
		err = fmt.Errorf("%d answers to %d reports", len(results), len(reports))
	}
	if got.lost = err != nil; got.lost && next != nil {
		next.req.First = false
	}
	return results, got, err
}

// endClaimWithReports ends a claim that went with reports. If there was no answer, the claim is repeated in a call of its own, so
// that its runs wait for nothing else.
func (h *Host) endClaimWithReports(f *reportsClaim, got arrival) {
	if !got.lost {
		h.start(f.a, got)
		h.recordClaim(f.a, &f.req, got)
		h.claimerEnded()
		return
	}
	h.env.Go(func() {
		defer h.claimerEnded()
		got, ok := h.claim(f.a, f.req)
		if !ok {
			h.retrieve(f.a, f.req)
			return
		}
		h.start(f.a, got)
		h.recordClaim(f.a, &f.req, got)
	})
}

// noClaimsFor is how long reports go without claims after a call with a claim was refused.
const noClaimsFor = time.Minute

func (h *Host) pauseClaims() {
	h.mu.Lock()
	defer h.unlock()
	h.noClaimsUntil = h.now().mono.Add(noClaimsFor)
}

// refusesCall reports whether an error is a refusal of the call as such, which a repetition cannot change. Other errors
// mean that the call did not get through.
func refusesCall(err error) bool {
	switch perdure.CodeOf(err) {
	case perdure.CodeInvalid, perdure.CodeMalformed, perdure.CodeTooLarge:
		return true
	}
	return false
}

// ownReports removes the runs whose lock has expired from batch (F038), and returns the reports of the others.
func (h *Host) ownReports(batch *[]*live) []protocol.Report {
	h.mu.Lock()
	defer h.unlock()
	now := h.now()
	keep := (*batch)[:0]
	reports := make([]protocol.Report, 0, len(*batch))
	for _, l := range *batch {
		if !l.lost && l.lock.reached(now) {
			h.lose(l, errLockExpired)
		}
		if !l.lost {
			keep = append(keep, l)
			reports = append(reports, *l.report)
		}
	}
	*batch = keep
	return reports
}

// endReported ends the runs of a call. A refusal is final.
func (h *Host) endReported(batch []*live, results []protocol.ReportResult) {
	h.mu.Lock()
	defer h.unlock()
	for i, l := range batch {
		if l.lost {
			continue // its lock expired while the call was in progress
		}
		if r := results[i]; !r.Accepted {
			h.logRun(slog.LevelWarn, "report refused", l.agent, l.run, "outcome", l.report.Outcome.String(),
				"reason", string(r.Reason), "message", r.Message)
		}
		h.forget(l)
	}
}
