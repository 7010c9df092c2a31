package agenthost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/runcontext"
	"github.com/perdure/perdure/protocol"
)

// A handler may start work that outlives this process, such as a command with a keeper. The next process on the machine
// has the same Holder then, and adopts the runs: its handlers find the work that goes on. Such a handler needs the end of
// the lock (Left, Config.Extended), because it must see to it that the work ends by then, and the end of its context tells
// it what to do with the work (EndingOf).

// EndingOf returns what a cause (context.Cause of a handler's context) demands.
func EndingOf(cause error) runcontext.Ending {
	switch {
	case errors.Is(cause, errStopped), errors.Is(cause, errDraining):
		return runcontext.Stop
	case errors.Is(cause, errLockExpired), errors.Is(cause, errRunLost), errors.Is(cause, context.DeadlineExceeded):
		return runcontext.Kill
	}
	return runcontext.Leave
}

// Left returns for how long a run belongs to this host; 0 if it does not.
func (h *Host) Left(run *perdure.Run) time.Duration {
	h.mu.Lock()
	defer h.unlock()
	l := h.live[handleOf(run)]
	if l == nil || l.lost {
		return 0
	}
	return l.left(h.now())
}

// left returns the time until the lock ends, by the clock that says less.
func (l *live) left(now instant) time.Duration {
	return max(min(l.lock.mono.Sub(now.mono), l.lock.wall.Sub(now.wall)), 0)
}

// notifyExtended makes the calls of Config.Extended.
func (h *Host) notifyExtended(all []*live) {
	if h.cfg.Extended == nil {
		return
	}
	for _, l := range all {
		h.mu.Lock()
		lost, left := l.lost, l.left(h.now())
		h.unlock()
		if !lost {
			h.cfg.Extended(l.run, left)
		}
	}
}

// Pause stops or resumes claims. Claims in progress may still bring runs.
func (h *Host) Pause(paused bool) {
	h.mu.Lock()
	defer h.unlock()
	h.paused = paused
	for _, a := range h.agents {
		a.freed.ring()
	}
}

// claimSize returns how many runs a claim may ask for, and what of the host's capacity it offers; 0: no claim should be sent
// now. mu must be held.
func (h *Host) claimSize(a *hosted) (n int, free perdure.Amounts) {
	switch {
	case h.paused:
		return 0, nil
	case h.cfg.HostName == "":
		return a.claimSize(h.env.Now()), nil
	}
	free = h.freeCapacity()
	return h.offer(a, free), free
}

// Adopt takes over runs that an earlier process with this Holder has claimed. A heartbeat finds out for how long each of
// them still belongs to the holder; it is repeated until it is answered. Runs that do are executed as if they had just been
// claimed, whether or not a slot is free. Adopt returns the others. It may be called while Run is running.
func (h *Host) Adopt(ctx context.Context, agent string, runs []perdure.Run) (over []perdure.Run, err error) {
	i := slices.IndexFunc(h.agents, func(a *hosted) bool { return a.Name == agent })
	if i < 0 {
		return nil, fmt.Errorf("there is no agent %q here", agent)
	}
	for batch := range slices.Chunk(runs, perdure.MaxBatch) {
		refused, err := h.adoptBatch(ctx, h.agents[i], batch)
		if over = append(over, refused...); err != nil {
			return over, err
		}
	}
	return over, nil
}

func (h *Host) adoptBatch(ctx context.Context, a *hosted, runs []perdure.Run) (over []perdure.Run, err error) {
	heartbeats := make([]protocol.Heartbeat, len(runs))
	at := make(map[handle]*perdure.Run, len(runs))
	for i := range runs {
		heartbeats[i] = protocol.Heartbeat{Job: runs[i].Job, Step: runs[i].Step, Run: runs[i].Number}
		at[handleOf(&runs[i])] = &runs[i]
	}
	retry := backoff{env: h.env, base: 100 * time.Millisecond, most: 2 * time.Second}
	for failed := 0; ; failed++ {
		call, cancel := env.WithTimeout(h.env, ctx, claimMargin)
		sent := h.now()
		results, err := h.cfg.Exchange.Heartbeat(call, h.cfg.Holder, heartbeats)
		cancel()
		if err == nil {
			for i := range results {
				r := &results[i]
				run := at[handle{r.Job, r.Step, r.Run}]
				switch {
				case run == nil:
				case r.Stop && invalid(r.Reason):
					over = append(over, *run)
				default:
					t := termOf(run, sent, r.RemainingMs, r.LockedUntil)
					t.unwanted = r.Stop
					h.adopt(a, run, t)
				}
			}
			return over, nil
		}
		if failed == 0 {
			h.log.Warn("runs of the earlier process not confirmed; retrying", "runs", len(runs), "err", err, "action", actionFor(err))
		}
		if !retry.pause(ctx) {
			return over, context.Cause(ctx)
		}
	}
}

// adopt starts a run of an earlier process.
func (h *Host) adopt(a *hosted, run *perdure.Run, t term) {
	h.mu.Lock()
	defer h.unlock()
	if h.live[handleOf(run)] != nil {
		return
	}
	l := &live{run: run, agent: a, since: h.env.Now(), lock: t.lock, deadline: t.deadline, adopted: true}
	h.live[handleOf(run)] = l
	a.held++
	h.occupy(l)
	if t.unwanted {
		l.cancel(errStopped)
	}
	select {
	case h.checkSooner <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Quiesce prepares the end of a process whose work goes on: it stops claiming, returns runs that have not started, and
// waits until all reports are answered, or ctx ends. After it, the context of Run should end.
func (h *Host) Quiesce(ctx context.Context) {
	h.stop()
	h.mu.Lock()
	for _, a := range h.agents {
		h.clearLine(a)
	}
	h.unlock()
	h.await(ctx, &h.finished, func() bool { return h.claimers == 0 && h.unreported() == 0 })
}
