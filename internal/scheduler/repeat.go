package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// A claim that is repeated under its requestId returns the runs that it was granted before (F019). The first transaction
// that takes the claim from the queue searches for these runs, and takes their locks if they are free. Before a
// transaction grants the claim new runs, it locks the claim and searches again, because another node may grant runs to
// the same claim. A claim that is granted nothing is not locked: it returns to the queue before the transaction is saved,
// and the next one may grant it runs (batch.spare).
//
// These transactions do not wait for locks, because they serve other claims as well. If another transaction has locked
// the claim or one of its runs, the claim is set aside: it is granted nothing, neither some of its runs nor new ones.
// After the commit a repeater answers it, in a transaction of its own that waits for the locks, for at most repeatTime
// (F155). A claim whose runs take more rendering than the transaction has left is set aside, too. In its own transaction
// its rendering is not bounded, because it was bounded when the runs were granted (F156).
const (
	repeatTime      = 2 * time.Second // how long a claim that was set aside waits for locks
	repeaters       = 2               // claims that wait for locks at once: each keeps a connection to the store
	maxLockedClaims = 1000            // claims that are set aside at once
)

var errLocked = &perdure.Error{Code: perdure.CodeUnavailable, Message: "another transaction has locked a run that this claim was granted before",
	Hint: "repeat the claim with the same requestId"}

// lockedClaim is a repeated claim that is set aside: another transaction has locked the claim or some of its runs, or
// there is no room for its answer.
type lockedClaim struct {
	w     *waiter
	jobs  []perdure.JobID // of its runs; empty if the claim itself is locked
	until time.Time       // by the node's clock; zero before it waits
	why   error           // why it is refused if it cannot be answered in time
}

// repeat answers repeated claims with the runs that they were granted before, and sets aside those that it cannot
// answer.
func (b *batch) repeat(claims []*waiter) error {
	for _, w := range claims {
		if w.searched || !w.again {
			continue
		}
		found, err := b.repeatOne(w, b.tx.Granted)
		if err != nil {
			return err
		}
		w.searched = !found
	}
	return nil
}

// mayGrant says whether a claim may be granted new runs: no transaction has granted it any, and none can until this one
// is committed. Otherwise the claim is answered with the runs that it has, or set aside.
func (b *batch) mayGrant(w *waiter) (bool, error) {
	if !w.again || b.claimed[w] {
		return true, nil
	}
	if _, err := b.repeatOne(w, b.tx.HeldBy); err != nil {
		return false, err
	}
	b.claimed[w] = b.setAside[w] == nil && len(b.granted[w]) == 0
	return b.claimed[w], nil
}

// runsOf returns the steps whose runs were granted to a claim: a method of the transaction.
type runsOf func(holder, agent, request string, max int) ([]kernel.StepRef, error)

// repeatOne gives a claim all of its runs that are still valid. If another transaction has locked some of them, or there
// is no room for all, it gives none and sets the claim aside. It returns false if the claim was never granted any.
func (b *batch) repeatOne(w *waiter, search runsOf) (found bool, err error) {
	var locked *lockedClaim
	refs, err := search(w.req.Holder, w.req.Agent, w.req.RequestID, perdure.MaxBatch)
	switch {
	case errors.Is(err, kernel.ErrLocked):
		locked = &lockedClaim{w: w, why: errLocked}
	case err != nil || len(refs) == 0:
		return false, err
	default:
		if locked, err = b.regrant(w, refs); err != nil {
			return true, err
		}
	}
	if locked != nil {
		b.setAside[w] = locked
	}
	return true, nil
}

// regrant gives a claim those of its runs that are still valid.
func (b *batch) regrant(w *waiter, refs []kernel.StepRef) (*lockedClaim, error) {
	jobs := jobsOf(refs)
	refs, skipped, err := b.loadCandidates(refs)
	if err != nil {
		return nil, err
	}
	if skipped {
		return &lockedClaim{w: w, jobs: jobs, why: errLocked}, nil
	}
	if err := b.loadInputs(refs); err != nil {
		return nil, err
	}
	runs, room := make([]*perdure.Run, 0, len(refs)), w.space()
	for _, ref := range refs {
		// With a cache that the runs before have filled, a rendering takes more work than when the run was granted.
		b.budget.Memory = nil
		run, err := b.runOf(ref, func() (*perdure.Run, error) { return b.w.Again(ref, &w.req) })
		if errors.Is(err, kernel.ErrOverBudget) || errors.As(err, new(*kernel.Postponed)) {
			return &lockedClaim{w: w, jobs: jobs, why: errLocked}, nil
		}
		if err != nil {
			return nil, err
		}
		if run == nil {
			continue
		}
		if room -= runBytes + len(run.Input) + len(run.Output); room < 0 && len(runs) > 0 {
			return &lockedClaim{w: w, jobs: jobs, why: errCrowded}, nil
		}
		runs = append(runs, run)
	}
	for _, run := range runs {
		b.give(w, run, len(runs))
	}
	return nil, nil
}

// repeats is the queue of claims that were set aside.
type repeats struct {
	env     env.Env
	mu      sync.Mutex
	wake    sync.Cond
	waiting []*lockedClaim
	closed  bool
}

func newRepeats(e env.Env) *repeats {
	r := &repeats{env: e}
	r.wake.L = &r.mu
	return r
}

func (r *repeats) put(c *lockedClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		c.w.tell(answer{err: errDraining})
	case len(r.waiting) >= maxLockedClaims:
		c.w.tell(answer{err: c.why})
	default:
		c.until = r.env.Now().Add(repeatTime)
		r.waiting = append(r.waiting, c)
		r.wake.Signal()
	}
}

// take waits for a claim; nil if the queue is closed.
func (r *repeats) take() *lockedClaim {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed && len(r.waiting) == 0 {
		r.env.WaitCond(&r.wake)
	}
	if r.closed {
		return nil
	}
	c := r.waiting[0]
	r.waiting = r.waiting[1:]
	return c
}

// close refuses the claims that wait.
func (r *repeats) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, c := range r.waiting {
		c.w.tell(answer{err: errDraining})
	}
	r.waiting = nil
	r.wake.Broadcast()
}

// repeatLocked is a repeater: it answers claims that were set aside until ctx ends.
func (s *Scheduler) repeatLocked(ctx context.Context) {
	for c := s.repeats.take(); c != nil; c = s.repeats.take() {
		runs, err := s.waitFor(ctx, c)
		switch {
		case err == nil && len(runs) == 0: // they have ended: it may be granted others
			s.queue.waitAgain(c.w)
		case err != nil && ctx.Err() != nil:
			c.w.tell(answer{err: errDraining})
		default:
			c.w.tell(answer{runs, err})
		}
	}
}

// waitFor waits for the locks of a claim's runs and returns those of them that are valid.
func (s *Scheduler) waitFor(ctx context.Context, c *lockedClaim) ([]perdure.Run, error) {
	ctx, cancel := s.env.WithDeadline(ctx, c.until)
	defer cancel()
	for s.env.Now().Before(c.until) {
		op := &repeating{w: c.w, ids: c.jobs}
		err := s.alone(ctx, op)
		switch {
		case err == nil && op.locked == nil:
			return op.runs, nil
		case ctx.Err() != nil:
			return nil, c.why
		case err != nil:
			return nil, unavailable(err)
		}
		c.jobs, c.why = op.locked.jobs, op.locked.why
		env.Sleep(s.env, ctx, lockedPause)
	}
	return nil, c.why
}

// alone performs one operation in a transaction of its own.
func (s *Scheduler) alone(ctx context.Context, op operation) error {
	a := &attempt{s: s, requests: []*request{{op: op}}, b: s.newBatch(nil), poison: map[operation]error{}}
	err := a.try(ctx)
	for a.again(ctx, err) {
		err = a.try(ctx)
	}
	if err != nil {
		return err
	}
	return a.results[0]
}

// repeating is one repeated claim, as an operation that waits for the locks of its runs.
type repeating struct {
	w      *waiter
	ids    []perdure.JobID
	locked *lockedClaim // set if the transaction has to wait for another lock
	runs   []perdure.Run
}

func (o *repeating) jobs() []perdure.JobID        { return o.ids }
func (o *repeating) refs(*batch) []kernel.StepRef { return nil }

func (o *repeating) apply(b *batch) error {
	b.spend(unbounded())
	_, err := b.repeatOne(o.w, b.tx.HeldBy)
	o.locked, o.runs = b.setAside[o.w], b.granted[o.w]
	return err
}
