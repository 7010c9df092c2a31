package scheduler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// Claim lets out up to c.Max runs, waiting up to c.Wait for the first. The answer is empty where there
// were none, and when the node drains.
func (s *Scheduler) Claim(ctx context.Context, c protocol.Claim) ([]perdure.Run, error) {
	w := s.waiter(ctx, c)
	patience := env.Forever // a claim that does not wait is answered after one look
	if c.Wait > 0 {
		patience = c.Wait
	}
	if w.named {
		name := w.name()
		if !s.turns.take(ctx, name, patience) {
			return nil, cmp.Or(ctx.Err(), error(errUnderWay))
		}
		defer s.turns.end(name)
		if c.Wait > 0 {
			patience = max(c.Wait-s.env.Now().Sub(w.since), 0)
		}
	}
	crashpoint.Here(crashpoint.ClaimQueue)
	if err := s.queue.wait(w); err != nil {
		return nil, err
	}
	switch s.env.Wait(ctx, patience, w.answered) {
	case env.Late:
		a := s.leave(w)
		return a.runs, a.err
	case env.Gone: // nobody is there to take them (F020)
		s.giveBack(w, s.leave(w).runs)
		return nil, ctx.Err()
	}
	crashpoint.Here(crashpoint.ClaimDone)
	return w.answer.runs, w.answer.err
}

func (s *Scheduler) waiter(ctx context.Context, c protocol.Claim) *waiter {
	w := &waiter{req: c, space: admission.Room(ctx), since: s.env.Now(), answered: make(chan struct{}, 1), named: c.RequestID != "", again: c.RequestID != "" && !c.First}
	if c.RequestID == "" {
		w.req.RequestID = uuid.NewString() // by it the claim is found again if the commit's answer is lost
	}
	s.seen.note(c.Agent, c.Holder)
	return w
}

func (w *waiter) name() claimName { return claimName{w.req.Agent, w.req.Holder, w.req.RequestID} }

const (
	leaveTime = 8 * time.Second        // how long who leaves waits for what is just being let out for him
	lookTime  = 500 * time.Millisecond // a claim that has waited for so long without a look is not answered that there was nothing
)

var (
	errCrowded = &perdure.Error{Code: perdure.CodeTooManyRequests, Message: "the node has reached its bound on bytes of answers", Hint: "try again later"}
	errUnseen  = &perdure.Error{Code: perdure.CodeUnavailable, Message: "no transaction has come to the claim in time", Hint: "ask another node, or again later"}
	errAway    = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the store does not answer", Hint: "ask another node, or again later"}
	// Nobody may be told that there was nothing while it is not known what the other was given (F019).
	errUnderWay = &perdure.Error{Code: perdure.CodeUnavailable, Message: "another claim with this requestId is in progress", Hint: "ask another node, or again later"}
)

// leave ends the waiting: with nothing, or with what is just being let out. That there was nothing can be said
// only by who has looked: a claim that is repeated may have been given something, and others than a node that
// is cut off from its store may have work (F019, F120).
func (s *Scheduler) leave(w *waiter) (a answer) {
	switch {
	case s.queue.leave(w):
		if a.err = w.failed; a.err == nil && w.looked == 0 && s.env.Now().Sub(w.since) >= lookTime {
			a.err = errUnseen // all writers are at work, or wait for the store
		}
	case s.env.Wait(context.Background(), leaveTime, w.answered) == env.Late:
		s.env.Go(func() {
			s.env.Wait(context.Background(), env.Forever, w.answered)
			s.giveBack(w, w.answer.runs)
		})
		return answer{err: errAway}
	default:
		a = w.answer
	}
	if len(a.runs) == 0 && a.err == nil && s.failing.Load() {
		a.err = errAway
	}
	return a
}

// giveBack returns runs that were let out to somebody who has gone.
func (s *Scheduler) giveBack(w *waiter, runs []perdure.Run) {
	if len(runs) == 0 || w.named {
		return // by its requestId the claim can be repeated
	}
	reports := make([]protocol.Report, len(runs))
	for i, r := range runs {
		reports[i] = protocol.Report{Job: r.Job, Step: r.Step, Run: r.Number, Outcome: perdure.OutcomeReturned,
			Error: &perdure.RunError{Message: "the claim's caller had gone"}}
	}
	ctx, cancel := env.WithTimeout(s.env, context.Background(), 5*time.Second)
	defer cancel()
	if _, _, err := s.Report(ctx, w.req.Holder, reports, nil); err != nil {
		s.log.Warn("runs of a claim whose caller had gone could not be given back", "runs", len(runs), "error", err)
	}
}

// letOut serves the waiting claims, agent by agent. fresh are the steps made ready in this transaction.
func (b *batch) letOut(claims []*waiter, fresh map[string][]kernel.StepRef) error {
	if len(claims) == 0 {
		return nil
	}
	for _, w := range claims {
		w.bytes = 0
	}
	b.s.putInTurn(claims)
	if err := b.repeat(claims); err != nil {
		return err
	}
	var counters []*counter
	for len(claims) > 0 {
		agent := claims[0].req.Agent
		n := 1
		for n < len(claims) && claims[n].req.Agent == agent {
			n++
		}
		c, err := b.counter(agent, claims[:n], fresh[agent])
		if err != nil {
			return err
		}
		if len(c.first)+len(c.stored)+len(c.full) == 0 && c.want > 0 {
			b.behind[agent] = false
		} else if c.want > 0 {
			counters = append(counters, c)
		}
		claims = claims[n:]
	}
	if len(counters) == 0 {
		return nil
	}
	if err := b.limits.open(b, counters); err != nil {
		return err
	}
	work := b.budget.Work / len(counters)
	for _, c := range counters {
		b.spend(&kernel.Budget{Work: work, Bytes: b.budget.Bytes, Read: b.budget.Read, Memory: b.budget.Memory})
		if err := b.serve(c); err != nil {
			return err
		}
	}
	return nil
}

// putInTurn sorts claims by agent; the claims of one agent stay in the order in which they came. The first agent is the
// one after the agent that used up the budget of an earlier transaction, so that large inputs of one agent do not
// starve the others; or the agent itself, if the others had left it too little for its first run. It sorts in place,
// because the claims are answered in this order, too.
func (s *Scheduler) putInTurn(claims []*waiter) {
	first, _ := s.firstAgent.Load().(string)
	slices.SortStableFunc(claims, func(a, b *waiter) int {
		x, y := a.req.Agent, b.req.Agent
		if before := x >= first; before != (y >= first) {
			if before {
				return -1
			}
			return 1
		}
		return strings.Compare(x, y)
	})
}

// counter is where the claims of one agent stand.
type counter struct {
	agent  string
	open   []*waiter // in the order in which they came
	want   int
	first  []kernel.StepRef // candidates, before any limit is known: made ready in this transaction,
	stored []kernel.StepRef // and before it
	all    bool             // there are no more than these
	enough bool             // first stand before all that was ready before, which was not read, and are enough
	full   []string         // types left out of stored: at the latest look their limit had no room
}

// counter finds the first candidates. Claims that have just looked and found nothing need no look: there
// is what this transaction has made ready, and nothing else.
func (b *batch) counter(agent string, claims []*waiter, fresh []kernel.StepRef) (*counter, error) {
	c := &counter{agent: agent, open: slices.DeleteFunc(slices.Clone(claims), func(w *waiter) bool { return w.barred || b.setAside[w] != nil || len(b.granted[w]) > 0 })}
	idle, short := true, true
	for _, w := range c.open {
		c.want += w.req.Max
		idle, short = idle && w.idle, short && w.short
	}
	b.limited[agent] = false
	if c.want == 0 {
		return c, nil
	}
	if c.first = fresh; idle {
		c.all = true
		return c, nil
	}
	var err error
	c.full = b.s.needed.full(agent, b.began)
	if short {
		c.all = true
		c.first, err = b.urgent(c)
		return c, err
	}
	ahead, none, err := b.ahead(c)
	if err != nil {
		return nil, err
	}
	b.looked[agent] = claims[0].looked
	if c.all = none; none {
		return c, nil
	}
	if len(ahead) >= c.want {
		c.first, c.enough = ahead, true
		return c, nil
	}
	ask := min(c.want-len(ahead), perdure.MaxBatch)
	c.stored, err = b.tx.Ready(agent, ask, c.full)
	c.all = len(c.stored) < ask
	return c, err
}

// ahead are the steps made ready in this transaction that stand before all that was ready before it. Further steps of
// jobs that are older than what waits are among them as a rule, and then nothing else need be read. none says that
// nothing was ready.
func (b *batch) ahead(c *counter) (ahead []kernel.StepRef, none bool, err error) {
	if len(c.first) == 0 || len(c.full) > 0 { // of a type that was full, something older may have room now
		return nil, false, nil
	}
	head, err := b.tx.Ready(c.agent, 1, nil)
	if err != nil || len(head) == 0 {
		return c.first, err == nil, err
	}
	if head, _, err = b.loadCandidates(head); err != nil || len(head) == 0 {
		return nil, false, err
	}
	return slices.DeleteFunc(slices.Clone(c.first), func(ref kernel.StepRef) bool {
		return claimOrder(b.w.Step(ref), b.w.Step(head[0])) > 0
	}), false, nil
}

// urgent are the steps made ready in this transaction that are as urgent as what was ready before it. What is only
// older the other writer finds; but not what is locked here, nor perhaps what has lain for long, which it may not
// have heard of (L5).
func (b *batch) urgent(c *counter) ([]kernel.StepRef, error) {
	if len(c.first) == 0 {
		return nil, nil
	}
	head, err := b.tx.Ready(c.agent, 1, c.full)
	if err != nil || len(head) == 0 {
		return c.first, err
	}
	first, err := b.glance(head[0])
	if err != nil || first == nil {
		return nil, err
	}
	alone := b.w.Has(first.Job) || b.now.Sub(first.ReadyAt) > lainLong
	return slices.DeleteFunc(slices.Clone(c.first), func(ref kernel.StepRef) bool {
		s := b.w.Step(ref)
		return s.Priority < first.Priority || alone && claimOrder(s, first) > 0
	}), nil
}

// lainLong is after which a ready step is taken to have been overlooked: who looks finds it long before.
const lainLong = time.Second

// glance is a step as it is here or, where its job is not locked, as it was just now.
func (b *batch) glance(ref kernel.StepRef) (*kernel.Step, error) {
	refs := []kernel.StepRef{ref}
	if b.w.Has(ref.Job) {
		if err := b.loadSteps(refs); err != nil || !b.w.HasStep(ref) {
			return nil, err
		}
		return b.w.Step(ref), nil
	}
	steps, err := b.tx.Steps(refs)
	if err != nil || len(steps) == 0 {
		return nil, err
	}
	return steps[0], nil
}

// serve lets out to the claims of one agent what is ready for it, by priority and age. What waits for a
// limit of its job's type does not stand in front of others.
func (b *batch) serve(c *counter) error {
	if room := b.limits.room(kernel.AgentLimit(c.agent)); room < c.want {
		c.want, b.limited[c.agent] = room, true
	}
	full := b.limits.still(c.full)
	b.limited[c.agent] = b.limited[c.agent] || len(full) > 0
	passed := map[kernel.StepRef]bool{} // looked at, and not to be let out now
	found, err := b.candidates(c)
	if err != nil {
		return err
	}
	last := c.all && len(full) == len(c.full)
	b.behind[c.agent] = true
	others := len(b.postponed) // renderings for other agents
	whole, asked := b.budget.Read == perdure.MaxReadBytes && b.budget.Bytes == maxBytes, c.want
	defer func() { b.limits.full[c.agent] = full }()
	for c.want > 0 && len(c.open) > 0 && len(passed) < maxPassed {
		granted, err := b.grantOf(c, found)
		if errors.Is(err, kernel.ErrOverBudget) { // the rest is dispatched in the next transaction
			switch {
			case len(b.unserved) > 0:
			case !whole && c.want == asked && granted == 0: // the others have left it too little: it goes first
				b.s.firstAgent.Store(c.agent)
			default: // the others were left nothing: it is their turn
				b.s.firstAgent.Store(c.agent + "\x00")
			}
			b.unserved = append(b.unserved, c.agent)
			return nil
		}
		if err != nil {
			return err
		}
		for _, ref := range found {
			if s := b.w.Step(ref); s == nil || s.Phase == perdure.Ready {
				passed[ref] = true
			}
		}
		c.want -= granted
		if len(b.postponed)-others >= maxPostponed { // enough work for the renderers, which will wake the waiting claims
			return nil
		}
		known := len(full)
		full = b.fullTypes(found, full)
		b.limited[c.agent] = b.limited[c.agent] || len(full) > 0
		if served := c.want <= 0 || len(c.open) == 0; served || last && len(full) == known {
			b.behind[c.agent] = served
			b.cleared[c.agent] = c.want <= 0 && len(c.stored) > 0 && len(passed)+len(c.full)+len(full) == 0
			return nil
		}
		if err := b.save(); err != nil { // so that the next look does not find them again
			return err
		}
		ask := max(min(c.want, perdure.MaxBatch), len(passed)) + len(passed)
		if found, err = b.tx.Ready(c.agent, ask, full); err != nil {
			return err
		}
		last = len(found) < ask
		if found = slices.DeleteFunc(found, func(ref kernel.StepRef) bool { return passed[ref] }); len(found) == 0 {
			b.behind[c.agent] = false
			return nil
		}
	}
	return nil
}

// maxPassed bounds how many candidates that cannot be let out now are looked past: several of the largest
// jobs that are locked by others, or left alone (F078).
const maxPassed = 5 * perdure.MaxSteps

// grantOf locks and loads the candidates and lets out those that may be. What was found in the store may
// have been moved on by this transaction, which has not saved yet. Values are read last, in the order of dispatch and
// only for steps that the limits leave room for: the transaction reads a bounded number of bytes.
func (b *batch) grantOf(c *counter, found []kernel.StepRef) (int, error) {
	refs, skipped, err := b.loadCandidates(slices.Clone(found))
	if err != nil {
		return 0, err
	}
	if skipped {
		b.starved[c.agent] = true
	}
	refs = b.inOrder(refs)
	if err := b.limits.lockTypes(b, c.agent, refs); err != nil {
		return 0, err
	}
	if err := b.loadInputs(b.limits.admissible(b.w, refs)); err != nil {
		return 0, err
	}
	return b.grant(&c.open, refs, b.limits.counted)
}

// candidates are what was found in the store, and what this transaction has made ready. Where there is more in
// the store than was found, that stands before whatever comes after the last one that was.
func (b *batch) candidates(c *counter) ([]kernel.StepRef, error) {
	if c.all || c.enough || len(c.first) == 0 {
		return append(c.stored, c.first...), nil
	}
	loaded, _, err := b.loadCandidates(slices.Clone(c.stored))
	if err != nil {
		return nil, err
	}
	var end *kernel.Step
	for _, ref := range loaded {
		if s := b.w.Step(ref); end == nil || claimOrder(s, end) > 0 {
			end = s
		}
	}
	first := slices.DeleteFunc(slices.Clone(c.first), func(ref kernel.StepRef) bool {
		return end == nil || claimOrder(b.w.Step(ref), end) > 0
	})
	return append(c.stored, first...), nil
}

// claimOrder is that in which steps are let out: by priority, then by age of the job.
func claimOrder(x, y *kernel.Step) int {
	return cmp.Or(cmp.Compare(y.Priority, x.Priority), bytes.Compare(x.Job[:], y.Job[:]), cmp.Compare(x.Index, y.Index))
}

// inOrder are those that are ready, each once, in the order in which they are let out.
func (b *batch) inOrder(refs []kernel.StepRef) []kernel.StepRef {
	steps := make([]*kernel.Step, 0, len(refs))
	for _, ref := range refs {
		if s := b.w.Step(ref); s.Phase == perdure.Ready {
			steps = append(steps, s)
		}
	}
	slices.SortFunc(steps, claimOrder)
	steps = slices.Compact(steps)
	refs = refs[:len(steps)]
	for i, s := range steps {
		refs[i] = s.StepRef
	}
	return refs
}

// loadCandidates locks the jobs of the steps that were found, and loads the steps. Those whose job
// another transaction has locked are left out.
func (b *batch) loadCandidates(refs []kernel.StepRef) (loaded []kernel.StepRef, skipped bool, err error) {
	if skipped, err = b.lockMore(jobsOf(refs)); err != nil {
		return nil, false, err
	}
	refs = slices.DeleteFunc(refs, func(ref kernel.StepRef) bool { return !b.w.Has(ref.Job) })
	if err := b.loadSteps(refs); err != nil {
		return nil, false, err
	}
	return slices.DeleteFunc(refs, func(ref kernel.StepRef) bool { return !b.w.HasStep(ref) }), skipped, nil
}

// loadInputs loads the values that the next inputs of these steps read, until the budget is used up. If an unused
// budget is too small for the first step, that step reads too much.
func (b *batch) loadInputs(refs []kernel.StepRef) error {
	var payloads []kernel.StepRef
	var first kernel.StepRef // the first that needs values
	for _, ref := range refs {
		needed := len(payloads)
		if err := b.fold(ref.Job, func() { payloads = append(payloads, b.w.ClaimRefs(ref)...) }); err != nil {
			return err
		}
		if needed == 0 {
			first = ref
		}
	}
	unused := b.budget.Read == perdure.MaxReadBytes
	all, err := b.loadPayloads(payloads)
	if err == nil && !all && unused && len(b.w.ClaimRefs(first)) > 0 {
		b.w.ReadsTooMuch(first)
	}
	return err
}

// grant dispatches candidates to the waiting claims in their order. A claim whose answer has no room for another run is
// done. A step whose input takes more work than the transaction has left is passed over.
func (b *batch) grant(open *[]*waiter, refs []kernel.StepRef, limits kernel.Admission) (granted int, err error) {
	for _, ref := range refs {
		for len(*open) > 0 {
			w := (*open)[0]
			if may, err := b.mayGrant(w); err != nil {
				return granted, err
			} else if !may {
				*open = (*open)[1:]
				continue
			}
			run, err := b.runOf(ref, func() (*perdure.Run, error) { return b.w.Claim(ref, &w.req, limits, w.room()) })
			if errors.Is(err, kernel.ErrNoRoom) {
				b.crowded[w] = len(b.granted[w]) == 0
				*open = (*open)[1:]
				continue
			}
			if err != nil {
				if more := (*kernel.Postponed)(nil); errors.As(err, &more) {
					b.postponed = append(b.postponed, postponed{more.Rendering, w.req.Agent})
					break
				}
				return granted, err
			}
			if run != nil {
				granted++
				b.give(w, run, len(refs))
				if len(b.granted[w]) >= w.req.Max {
					*open = (*open)[1:]
				}
			}
			break
		}
	}
	return granted, nil
}

// runBytes is an upper bound on the size of a run in the answer to a claim, without its input and output.
const runBytes = 1 << 10

// largestRun is an upper bound on the size of a run with both.
const largestRun = runBytes + 2*perdure.MaxPayloadBytes

// room is how many bytes of input and output the answer to a claim has left. It always has room for one run, unless the
// server has none left, because many callers do not read their answers (F157).
func (w *waiter) room() int {
	space := w.space()
	if w.bytes == 0 && space >= largestRun {
		return math.MaxInt
	}
	return min(perdure.MaxAnswerBytes, max(space, admission.Free)) - w.bytes - runBytes
}

// give notes a run for the claim's answer, with how long the claim had waited when the run's remaining time
// was read: what is left of a claim's duration is the way, and counts against the run.
// At most so many may come in all.
func (b *batch) give(w *waiter, run *perdure.Run, most int) {
	run.WaitedMs = max(0, b.began.Sub(w.since)).Milliseconds()
	runs := b.granted[w]
	if runs == nil {
		runs = make([]perdure.Run, 0, min(most, w.req.Max))
	}
	b.granted[w] = append(runs, *run)
	w.bytes += runBytes + len(run.Input) + len(run.Output)
}

// runOf calls the rules for a run of the step. If its input reads values that are not loaded, it loads them and calls
// the rules once more; loadInputs has loaded only the values that were known to be needed then. A job for which the
// rules panic is quarantined, and does not stop the others. The error is a *Postponed, ErrOverBudget or ErrNoRoom if
// the step has to wait for a renderer, another transaction, or another claim.
func (b *batch) runOf(ref kernel.StepRef, rule func() (*perdure.Run, error)) (run *perdure.Run, err error) {
	var failed error
	ask := func() { run, failed = rule() }
	if err := b.fold(ref.Job, ask); err != nil {
		return nil, err
	}
	if failed == nil {
		return run, nil
	}
	if missing := (*kernel.NotLoaded)(nil); errors.As(failed, &missing) {
		all, err := b.loadPayloads(missing.Steps)
		switch {
		case err != nil:
			return nil, err
		case !all:
			return nil, kernel.ErrOverBudget
		}
		if err := b.fold(ref.Job, ask); err != nil {
			return nil, err
		}
	}
	switch {
	case failed == nil, errors.Is(failed, kernel.ErrOverBudget), errors.Is(failed, kernel.ErrNoRoom), errors.As(failed, new(*kernel.Postponed)):
		return run, failed
	}
	return nil, &poisoned{job: ref.Job, err: failed}
}

// fullTypes adds the types whose limit has no room left.
func (b *batch) fullTypes(refs []kernel.StepRef, full []string) []string {
	for _, ref := range refs {
		j := b.w.Job(ref.Job)
		if j == nil {
			continue
		}
		typ := j.Type
		if l := b.limits.counted[kernel.JobLimit(typ)]; l != nil && l.Used >= l.Max && !slices.Contains(full, typ) {
			full = append(full, typ)
		}
	}
	return full
}

// pass lets another writer look for the agents of which there is more than this one lets out, while that is being
// saved: a backlog is worked off by looks one after the other, and to save one takes as long as to make it.
func (b *batch) pass(claims []*waiter) {
	var agents []string
	for _, w := range claims {
		if agent := w.req.Agent; w.serves && b.cleared[agent] && !b.limited[agent] && !b.starved[agent] {
			w.serves = false
			b.tx.Pass(agent)
			agents = append(agents, agent)
		}
	}
	b.s.queue.release(agents)
}

// spare returns the claims that got nothing as soon as that is known: while this transaction is being saved,
// another may make steps ready, and has to find them waiting. The one by which an agent is served stays; so do
// all where a limit or a lock was in the way: that this is over is told to those only of whom it is known.
func (b *batch) spare(claims *[]*waiter) {
	back := map[string][]*waiter{}
	*claims = slices.DeleteFunc(*claims, func(w *waiter) bool {
		agent := w.req.Agent
		if w.serves || w.req.Wait <= 0 || b.setAside[w] != nil || b.crowded[w] || len(b.granted[w]) > 0 || b.limited[agent] || b.starved[agent] {
			return false
		}
		w.failed = nil
		back[agent] = append(back[agent], w)
		return true
	})
	if len(back) > 0 {
		b.s.queue.bringBack(&look{back: back})
	}
}

// answerClaims returns the granted runs, hands the claims that were set aside to the repeaters, and puts claims that
// were granted nothing and may wait back into the queue.
func (s *Scheduler) answerClaims(b *batch, claims []*waiter, err error) {
	back, crowded := map[string][]*waiter{}, []string(nil)
	for _, w := range claims {
		switch w.failed = nil; {
		case err != nil:
			w.failed = unavailable(err)
		case b.crowded[w] && !w.reports:
			w.failed = errCrowded
			crowded = append(crowded, w.req.Agent)
		}
		switch runs := b.granted[w]; {
		case err == nil && b.setAside[w] != nil:
			s.repeats.put(b.setAside[w])
		case err == nil && len(runs) > 0:
			w.tell(answer{runs: runs})
		case w.req.Wait > 0:
			back[w.req.Agent] = append(back[w.req.Agent], w)
		default:
			w.tell(answer{err: w.failed})
		}
	}
	if err != nil {
		s.queue.bringBack(&look{back: back})
		agents := map[string]bool{} // also those whose claims do not wait: others may have looked past what they were to be given
		for _, w := range claims {
			agents[w.req.Agent] = true
		}
		s.lookAgain(slices.Sorted(maps.Keys(agents)), failedPause)
		return
	}
	s.needed.learn(&b.limits, b.began)
	s.queue.bringBack(&look{back: back, limited: b.limited, behind: b.behind, looked: b.looked, woken: b.woken, freed: b.freed})
	if len(b.unserved) > 0 {
		s.queue.wakeAgents(b.unserved)
	}
	s.lookAgain(crowded, crowdedPause)
	s.lookAgain(slices.DeleteFunc(slices.Collect(maps.Keys(b.limited)), func(agent string) bool { return !s.impatient(agent, b.starved[agent]) }), lockedPause)
}

// impatient says whether to look again soon for an agent: where others hold the locks of what it could
// have, and have not done so for long. After that the supervisor's look is often enough.
func (s *Scheduler) impatient(agent string, starved bool) bool {
	if !starved {
		s.starving.Delete(agent)
		return false
	}
	since, _ := s.starving.LoadOrStore(agent, s.env.Now())
	return s.env.Now().Sub(since.(time.Time)) < lockedLong
}

const (
	lockedPause = 20 * time.Millisecond // others' transactions are over soon
	lockedLong  = time.Second           // or they are not

	crowdedPause = 100 * time.Millisecond // until a claim is served again whose server had no room for its answer
	failedPause  = 500 * time.Millisecond
)

func (s *Scheduler) lookAgain(agents []string, after time.Duration) {
	if len(agents) > 0 {
		s.env.AfterFunc(after, func() { s.queue.wakeAgents(agents) })
	}
}
