package agenthost

import (
	"fmt"
	"log/slog"
	"time"

	"perdure"
	"perdure/internal/crashpoint"
	"perdure/internal/env"
)

const (
	reportTimeout = 10 * time.Second
	batchBytes    = 4 << 20 // of outputs in one call; one report alone may be larger
)

// post hands a report to the senders. Called under mu.
func (h *Host) post(l *live, r perdure.Report) {
	l.report = &r
	h.outbox = append(h.outbox, l)
	h.ready.Signal()
}

// sendLoop delivers what is ready, in as few calls as that takes.
func (h *Host) sendLoop() {
	for {
		batch := h.take()
		if batch == nil {
			return
		}
		h.deliver(batch)
	}
}

// take waits for reports; nil at the end of the host's life.
func (h *Host) take() (batch []*live) {
	h.mu.Lock()
	defer h.unlock()
	for len(batch) == 0 {
		for len(h.outbox) == 0 && h.life.Err() == nil {
			h.env.WaitCond(h.ready)
		}
		if h.life.Err() != nil {
			return nil
		}
		n, bytes := 0, 0
		for ; n < len(h.outbox) && len(batch) < perdure.MaxBatch; n++ {
			l := h.outbox[n]
			if l.lost {
				continue
			}
			if bytes += len(l.report.Output); bytes > batchBytes && len(batch) > 0 {
				break
			}
			batch = append(batch, l)
		}
		if h.outbox = h.outbox[n:]; len(h.outbox) == 0 {
			h.outbox = nil // or the array behind it would grow for ever
		} else {
			h.ready.Signal()
		}
	}
	return batch
}

// deliver repeats a call until it is answered, or until none of its runs is ours any more (F055). The
// same report twice does no harm.
func (h *Host) deliver(batch []*live) {
	retry := backoff{env: h.env, base: 50 * time.Millisecond, most: 2 * time.Second}
	for failed := 0; ; failed++ {
		reports := h.ours(&batch)
		if len(batch) == 0 || h.life.Err() != nil {
			return
		}
		ctx, cancel := env.WithTimeout(h.env, h.life, reportTimeout)
		crashpoint.Here(crashpoint.AgentReport)
		results, err := h.cfg.Exchange.Report(ctx, h.cfg.Holder, reports)
		crashpoint.Here(crashpoint.AgentReported)
		cancel()
		if err == nil && len(results) != len(reports) {
			err = fmt.Errorf("%d answers to %d reports", len(results), len(reports))
		}
		switch {
		case err == nil:
			h.answered(batch, results)
			return
		case h.life.Err() != nil:
			return
		case hopeless(err) && len(batch) > 1:
			// One of them spoils the call: alone, only that one is lost.
			for _, l := range batch {
				h.deliver([]*live{l})
			}
			return
		case hopeless(err):
			h.answered(batch, []perdure.ReportResult{{Reason: perdure.RefusedInvalid, Message: err.Error()}})
			return
		}
		if failed == 0 {
			h.log.Warn("reports failed, and are repeated", "reports", len(reports), "err", err)
		}
		if !retry.pause(h.life) {
			return
		}
	}
}

// hopeless tells a refusal of the call as such, which repeating cannot mend, from a call that did not
// get through.
func hopeless(err error) bool {
	switch perdure.CodeOf(err) {
	case perdure.CodeInvalid, perdure.CodeMalformed, perdure.CodeTooLarge:
		return true
	}
	return false
}

// ours drops from batch the runs whose time has passed (F038), and returns the others' reports.
func (h *Host) ours(batch *[]*live) []perdure.Report {
	h.mu.Lock()
	defer h.unlock()
	now := h.now()
	keep := (*batch)[:0]
	var reports []perdure.Report
	for _, l := range *batch {
		if !l.lost && l.lock.reached(now) {
			h.lose(l, errTimeUp)
		}
		if !l.lost {
			keep = append(keep, l)
			reports = append(reports, *l.report)
		}
	}
	*batch = keep
	return reports
}

// answered ends the runs of a call. A refusal is final.
func (h *Host) answered(batch []*live, results []perdure.ReportResult) {
	h.mu.Lock()
	defer h.unlock()
	for i, l := range batch {
		if l.lost {
			continue // its time passed while the call was under way
		}
		if r := results[i]; !r.Accepted {
			h.say(slog.LevelWarn, "report refused", l.agent, l.run, "outcome", l.report.Outcome.String(),
				"reason", string(r.Reason), "message", r.Message)
		}
		h.forget(l)
	}
}
