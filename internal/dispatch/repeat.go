package dispatch

import (
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// Repeated claims.
//
// If a caller has not received the answer to a claim, it repeats the claim with the same requestId. The repeated claim
// returns the runs that the first one was granted (F019). The first transaction that takes the claim from the queue
// searches for these runs, and locks them if their locks are free. If there are none, the claim may be granted new runs.
// But another node may grant runs to the same claim at the same time. So before a transaction grants new runs, it locks
// the claim and searches once more. A claim that is granted nothing is not locked: it returns to the queue before the
// transaction is saved, and the next transaction may grant it runs (ReturnEarly).
//
// These transactions do not wait for locks, because they serve other claims as well. If another transaction has locked
// the claim or one of its runs, the claim is set aside: it gets neither some of its runs nor new ones. After the commit
// a repeater answers it, in a transaction of its own that waits for the locks, for at most repeatTime (F155). A claim is
// also set aside if its runs take more rendering than the budget of the transaction allows. The rendering in its own
// transaction has no bound, because it was bounded when the runs were granted (F156).
const (
	repeatTime = 2 * time.Second // how long a claim that was set aside waits for locks
	maxAsides  = 1000            // bound on claims that are set aside
)

var (
	errNoRoom = &perdure.Error{Code: perdure.CodeTooManyRequests, Message: "the node has reached its bound on bytes of answers", Hint: "try again later"}
	errLocked = &perdure.Error{Code: perdure.CodeUnavailable, Message: "another transaction has locked a run that was granted to this claim before",
		Hint: "repeat the claim with the same requestId"}
)

// Aside is a repeated claim that is set aside: another transaction has locked the claim or some of its runs, or there is
// no room for its answer.
type Aside struct {
	Claim *Claim
	Jobs  []perdure.JobID // the jobs of its runs; empty if the claim itself is locked
	Until time.Time       // by this node's clock; set when it is queued
	Err   error           // the answer if it cannot be answered in time
}

// repeat answers repeated claims with the runs that they were granted before, and sets those aside that it cannot
// answer.
func (t *Transaction) repeat() error {
	for _, g := range t.grants {
		if g.hasNoRuns || !g.Repeated {
			continue
		}
		found, err := t.repeatOne(g, t.b.Tx().Granted)
		if err != nil {
			return err
		}
		g.hasNoRuns = !found
	}
	return nil
}

// mayGrant reports whether a claim may be granted new runs. For a repeated claim, it locks the claim and searches for
// its runs: if there are none, no other transaction can grant it any before this one ends. If there are some, the claim
// is answered with them, or set aside.
func (t *Transaction) mayGrant(g *grant) (bool, error) {
	if !g.Repeated || g.locked {
		return true, nil
	}
	if _, err := t.repeatOne(g, t.b.Tx().HeldBy); err != nil {
		return false, err
	}
	g.locked = g.aside == nil && len(g.runs) == 0
	return g.locked, nil
}

// runsOf returns the steps whose runs were granted to a claim. It is a method of the store's transaction.
type runsOf func(holder, agent, request string, max int) ([]kernel.StepRef, error)

// repeatOne gives a claim all of its runs that are still valid. If another transaction has locked some of them, or there
// is no room for all, it gives none and sets the claim aside. found is false if the claim was never granted any.
func (t *Transaction) repeatOne(g *grant, search runsOf) (found bool, err error) {
	refs, err := search(g.Request.Holder, g.Request.Agent, g.Request.RequestID, perdure.MaxBatch)
	switch {
	case errors.Is(err, kernel.ErrLocked):
		g.aside = &Aside{Claim: g.Claim, Err: errLocked}
		return true, nil
	case err != nil || len(refs) == 0:
		return false, err
	}
	g.aside, err = t.regrant(g, refs)
	return true, err
}

// regrant gives a claim those of its runs that are still valid. It returns an Aside if it cannot.
func (t *Transaction) regrant(g *grant, refs []kernel.StepRef) (*Aside, error) {
	jobs := make([]perdure.JobID, len(refs))
	for i, ref := range refs {
		jobs[i] = ref.Job
	}
	refs, skipped, err := t.load(refs)
	if err != nil {
		return nil, err
	}
	if skipped {
		return &Aside{Claim: g.Claim, Jobs: jobs, Err: errLocked}, nil
	}
	if err := t.loadInputs(refs); err != nil {
		return nil, err
	}
	runs, room := make([]*perdure.Run, 0, len(refs)), g.Room()
	var ref kernel.StepRef
	repeat := newRuleCall(func() (*perdure.Run, error) { return t.b.Workset().RepeatedClaim(ref, &g.Request) })
	for _, ref = range refs {
		// Each run is rendered with an empty cache, as when it was granted. A cache that the runs before have filled
		// would make the rendering cost more.
		t.b.Budget().Memory = nil
		run, err := t.runOf(ref, repeat)
		if errors.Is(err, kernel.ErrOverBudget) || errors.As(err, new(*kernel.Postponed)) {
			return &Aside{Claim: g.Claim, Jobs: jobs, Err: errLocked}, nil
		}
		if err != nil {
			return nil, err
		}
		if run == nil {
			continue
		}
		if room -= runBytes + len(run.Input) + len(run.Output); room < 0 && len(runs) > 0 {
			return &Aside{Claim: g.Claim, Jobs: jobs, Err: errNoRoom}, nil
		}
		runs = append(runs, run)
	}
	for _, run := range runs {
		g.add(run, t.b.Began(), len(runs))
	}
	return nil, nil
}

// Repeat answers one claim that was set aside, in a transaction of its own that waits for locks. If the claim needs a
// further lock, again is not nil.
func (q *Queue) Repeat(b Batch, c *Claim) (runs []perdure.Run, aside *Aside, err error) {
	g := &grant{Claim: c}
	t := &Transaction{q: q, b: b, grants: []*grant{g}}
	_, err = t.repeatOne(g, b.Tx().HeldBy)
	return g.runs, g.aside, err
}

// asides is the queue of claims that were set aside.
type asides struct {
	env     env.Env
	mu      sync.Mutex
	wake    sync.Cond
	waiting []*Aside
	closed  bool
}

func (r *asides) put(a *Aside) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		a.Claim.Answer(nil, ErrDraining)
	case len(r.waiting) >= maxAsides:
		a.Claim.Answer(nil, a.Err)
	default:
		a.Until = r.env.Now().Add(repeatTime)
		r.waiting = append(r.waiting, a)
		r.wake.Signal()
	}
}

// TakeAside waits for a claim that was set aside, and returns it. It returns nil once the queue is closed.
func (q *Queue) TakeAside() *Aside {
	r := &q.asides
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed && len(r.waiting) == 0 {
		r.env.WaitCond(&r.wake)
	}
	if r.closed {
		return nil
	}
	a := r.waiting[0]
	r.waiting = r.waiting[1:]
	return a
}

// close refuses the claims that are set aside.
func (r *asides) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, a := range r.waiting {
		a.Claim.Answer(nil, ErrDraining)
	}
	r.waiting = nil
	r.wake.Broadcast()
}
