package scheduler

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/protocol"
)

// Claim dispatches up to c.Max runs to the claim. If no step is ready, it waits for up to c.Wait. The answer has no runs
// if no step became ready, or if the node drains.
func (s *Scheduler) Claim(ctx context.Context, c protocol.Claim) ([]perdure.Run, error) {
	w := s.newClaim(ctx, c)
	maxWait := env.Forever // a claim that does not wait is answered after one transaction
	if c.Wait > 0 {
		maxWait = c.Wait
	}
	if w.HasRequestID {
		if !s.turns.Take(ctx, w.Name(), maxWait) {
			return nil, cmp.Or(ctx.Err(), error(errInProgress))
		}
		defer s.turns.End(w.Name())
		if c.Wait > 0 {
			maxWait = max(c.Wait-s.env.Now().Sub(w.Since), 0)
		}
	}
	waited, slowed, ok := s.allow(ctx, w, maxWait)
	ended := func(granted int) {
		if slowed {
			s.health.slowedEnded(c.Agent, c.Holder, granted)
		}
	}
	switch {
	case !ok:
		return nil, ctx.Err()
	case maxWait != env.Forever:
		maxWait -= waited
	}
	crashpoint.Here(crashpoint.ClaimQueue)
	if err := s.queue.Wait(w); err != nil {
		ended(0)
		return nil, err
	}
	switch s.env.Wait(ctx, maxWait, w.Answered) {
	case env.Late:
		runs, err := s.stopWaiting(w, ended)
		return s.traced(runs), err
	case env.Gone: // the caller has gone and cannot receive the runs (F020)
		runs, _ := s.stopWaiting(w, ended)
		s.returnRuns(w, runs)
		return nil, ctx.Err()
	}
	ended(len(w.Runs))
	crashpoint.Here(crashpoint.ClaimDone)
	return s.traced(w.Runs), w.Err
}

// allowEvery is how often a claim that may have no run yet looks whether it may have one, and whether the node drains.
const allowEvery = time.Second

// allow bounds the new runs of a claim by the weight of its holder. If it may have none yet, the claim waits until it may. ok
// is false if its wait ends before. A repeated claim does not wait, because it may have been granted runs before. slowed is
// that of mostRuns.
func (s *Scheduler) allow(ctx context.Context, w *dispatch.Claim, maxWait time.Duration) (waited time.Duration, slowed, ok bool) {
	for {
		most, wait, slowed := s.health.mostRuns(w.Request.Agent, w.Request.Holder, w.Request.Max)
		if most == 0 && w.Repeated {
			most = 1
		}
		if w.Most = most; most > 0 {
			return waited, slowed, true
		}
		left := maxWait - waited
		if maxWait == env.Forever {
			left = 0
		}
		if s.queue.Closed() { // it is refused
			return waited, false, true
		}
		if wait = min(wait, left, allowEvery); wait <= 0 || s.env.Wait(ctx, wait, nil) == env.Gone {
			return waited, false, false
		}
		if waited += wait; waited >= maxWait {
			return waited, false, false
		}
	}
}

func (s *Scheduler) newClaim(ctx context.Context, c protocol.Claim) *dispatch.Claim {
	w := dispatch.NewClaim(c, s.env.Now(), admission.Room(ctx))
	if c.RequestID == "" {
		w.Request.RequestID = uuid.NewString() // after an indeterminate commit, the runs of this claim are found by it
	}
	s.seen.note(c.Agent, c.Holder)
	return w
}

// leaveTime is how long a claim whose time has ended waits for the transaction that has it.
const leaveTime = 8 * time.Second

var (
	errNotSearched = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the node or its store is too busy: it has not searched for work of this claim in time", Hint: "try another node, or try again later"}
	errNoStore     = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the store does not answer", Hint: "try another node, or try again later"}
	// The other claim may be granted runs, so the answer must not be "no work" (F019).
	errInProgress = &perdure.Error{Code: perdure.CodeUnavailable, Message: "another claim with this requestId is in progress", Hint: "try another node, or try again later"}
)

// stopWaiting ends the waiting of a claim. If the claim is in the queue, it is removed; if a transaction has it, the
// answer of that transaction is awaited. ended is called with the number of its runs when no transaction has it any more.
//
// The answer may be "no work" only if a transaction has searched for the claim. A repeated claim may have been granted
// runs before, and other nodes may have work while this one is cut off from the store (F019, F120).
func (s *Scheduler) stopWaiting(w *dispatch.Claim, ended func(granted int)) (runs []perdure.Run, err error) {
	switch {
	case s.queue.Leave(w):
		ended(0)
		if err = w.Failed(); err == nil && !w.Searched() && s.env.Now().Sub(w.Since) >= dispatch.SearchTime {
			err = errNotSearched // all writers are busy, or wait for the store
		}
	case s.env.Wait(context.Background(), leaveTime, w.Answered) == env.Late:
		s.env.Go(func() {
			s.env.Wait(context.Background(), env.Forever, w.Answered)
			ended(len(w.Runs))
			s.returnRuns(w, w.Runs)
		})
		return nil, errNoStore
	default:
		ended(len(w.Runs))
		runs, err = w.Runs, w.Err
	}
	if len(runs) == 0 && err == nil && s.failing.Load() {
		err = errNoStore
	}
	return runs, err
}

// returnRuns returns runs that were granted to a caller who has gone.
func (s *Scheduler) returnRuns(w *dispatch.Claim, runs []perdure.Run) {
	if len(runs) == 0 || w.HasRequestID {
		return // the caller can repeat the claim by its requestId
	}
	reports := make([]protocol.Report, len(runs))
	for i, r := range runs {
		reports[i] = protocol.Report{Job: r.Job, Step: r.Step, Run: r.Number, Outcome: perdure.OutcomeReturned,
			Error: &perdure.RunError{Message: "the claim's caller disconnected"}}
	}
	ctx, cancel := env.WithTimeout(s.env, context.Background(), 5*time.Second)
	defer cancel()
	if _, _, err := s.Report(ctx, w.Request.Holder, reports, nil); err != nil {
		s.log.Warn("cannot return the runs of a claim whose caller disconnected; they expire at the end of their locks", "runs", len(runs), "error", err)
	}
}
