package dispatch

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// search is what one transaction does for the claims of one agent: which steps it finds, how many runs it grants, and
// how it ends.
type search struct {
	agent       string
	mode        claimMode
	searchClaim *grant   // the claim by which this writer searches for the agent; nil: another one does
	open        []*grant // those that may be granted new runs
	asked       int      // runs that these ask for
	want        int      // those of them that are not granted yet

	// The candidates, before any limit is known.
	own        []kernel.StepRef        // made ready by this transaction
	wereReady  map[kernel.StepRef]bool // those of them that were ready before, with another desired state: they must not pass older steps
	younger    []kernel.StepRef        // those of them that may pass older steps in the store, unless one that is found there is held back
	stored     []kernel.StepRef        // found in the store
	exhausted  bool                    // nothing else is ready
	ownSuffice bool                    // own come before everything in the store, which was not read, and are enough

	limits []string        // hint: limits that the latest search needed
	full   []string        // limits without room; at first those of the latest search
	needed map[string]bool // limits that this search has needed; nil: there are none

	at            int  // when the claims were taken, on the queue's clock
	searchedStore bool // the store was searched
	offered       bool // candidates were offered to the claims

	limitReached bool // a limit holds steps back
	ownLimitFull bool // that of the agent has no room for all claims
	moreRemains  bool // more steps were ready than the claims took
	tookAllFound bool // all steps that were found in the store were dispatched, and others can begin behind them
	tookOlder    bool // steps that were found in the store were dispatched
	userLimits   bool // some need limits of users' own
	blocked      bool // other transactions have locked candidates
	overBudget   bool // the budget of the transaction was used up
}

// leaves is what the search left in the store.
func (s *search) result() searchResult {
	switch {
	case s.limitReached:
		return limitFull
	case s.moreRemains:
		return moreReady
	}
	return nothingReady
}

// newSearch groups grants of one agent.
func newSearch(agent string, claims []*grant) *search {
	s := &search{agent: agent, at: claims[0].searchedAt}
	for _, g := range claims {
		if g.ownsSearch {
			s.searchClaim = g
		}
		if g.isOpen() {
			s.open = append(s.open, g)
			s.asked += g.Request.Max
			s.mode = max(s.mode, g.mode)
		}
	}
	s.want = s.asked
	return s
}

// find finds the first candidates. fresh are steps that the transaction has made ready.
func (t *Transaction) find(s *search, fresh []kernel.StepRef) (err error) {
	s.own, s.wereReady, s.younger, s.stored, s.exhausted, s.ownSuffice = fresh, nil, nil, nil, false, false
	if s.want == 0 {
		return nil
	}
	var full []string
	s.limits, full = t.q.cachedLimits(s.agent, t.b.Began())
	if s.mode == ownSteps {
		s.exhausted = true
		return nil
	}
	s.full = full
	for _, ref := range s.own {
		if t.b.Workset().WasReady(ref) {
			if s.wereReady == nil {
				s.wereReady = map[kernel.StepRef]bool{}
			}
			s.wereReady[ref] = true
		}
	}
	if len(s.wereReady) > 0 { // the store has them in the places that they had before this transaction
		if err := t.b.Save(); err != nil {
			return err
		}
	}
	s.own = t.sorted(s.own)
	if s.mode == urgentSteps {
		s.exhausted = true
		s.own, err = t.ownUrgent(s)
		return err
	}
	ahead, younger, none, err := t.ahead(s)
	if err != nil {
		return err
	}
	s.searchedStore = true
	if s.exhausted = none; none {
		return nil
	}
	if len(ahead) >= s.want {
		s.own, s.ownSuffice = ahead, true
		return nil
	}
	s.younger = younger
	ask := min(s.want-len(ahead)-len(younger), MaxFound)
	s.stored, err = t.b.Tx().Ready(s.agent, ask, s.full)
	s.exhausted = len(s.stored) < ask
	return err
}

// ahead are the own steps that come before everything that was ready before. As a rule further steps of jobs that are
// older than what waits are among them, and then nothing else need be read. younger are those behind them that are as urgent: to
// dispatch them now costs much less than later. A part of the runs is left to what is older. none says that nothing was ready before.
func (t *Transaction) ahead(s *search) (ahead, younger []kernel.StepRef, none bool, err error) {
	if len(s.own) == 0 || len(s.full) > 0 { // older steps that need a limit that was full may have room now
		return nil, nil, false, nil
	}
	head, err := t.b.Tx().Ready(s.agent, 1, nil)
	if err != nil || len(head) == 0 {
		return s.own, nil, err == nil, err
	}
	first, err := t.peek(head[0])
	if err != nil || first == nil {
		return nil, nil, false, err
	}
	ahead, behind := t.split(s.own, first)
	return ahead, t.asUrgent(s, behind, first, youngerShare(s.want-len(ahead))), false, nil
}

// split divides steps in the order of claims: those that come before a ready step of the store, and those behind it.
func (t *Transaction) split(refs []kernel.StepRef, first *kernel.Step) (ahead, behind []kernel.StepRef) {
	n := 0
	for n < len(refs) && kernel.ClaimLess(t.candidate(refs[n]), kernel.CandidateOf(first)) <= 0 {
		n++
	}
	return refs[:n:n], refs[n:]
}

// sorted are steps in the order of claims.
func (t *Transaction) sorted(refs []kernel.StepRef) []kernel.StepRef {
	all := make([]kernel.Candidate, len(refs))
	for i, ref := range refs {
		all[i] = t.candidate(ref)
	}
	if slices.IsSortedFunc(all, kernel.ClaimLess) {
		return refs
	}
	slices.SortFunc(all, kernel.ClaimLess)
	refs = make([]kernel.StepRef, len(all))
	for i := range all {
		refs[i] = all[i].StepRef
	}
	return refs
}

// urgent are the own steps that are as urgent as what is ready in the store. Another writer searches there, and finds
// what is only older. It does not find what this transaction has locked, nor perhaps a step that has been ready for
// long, of which it may not know (L5).
func (t *Transaction) ownUrgent(s *search) ([]kernel.StepRef, error) {
	if len(s.own) == 0 {
		return nil, nil
	}
	head, err := t.b.Tx().Ready(s.agent, 1, s.full)
	if err != nil || len(head) == 0 {
		return s.own, err
	}
	first, err := t.peek(head[0])
	if err != nil || first == nil {
		return nil, err
	}
	w, most := t.b.Workset(), youngerShare(s.want)
	if w.Has(first.Job) || w.Now().Sub(first.ReadyAt) > overlookedAfter && !t.q.dispatchedOlderLately(s.agent) {
		most = 0
	}
	ahead, behind := t.split(s.own, first)
	return append(ahead, t.asUrgent(s, behind, first, most)...), nil
}

// overlookedAfter is after how long a ready step is taken to have been overlooked, if no search has dispatched older steps for so long.
const overlookedAfter = time.Second

// servedOlder reports whether a search has dispatched steps of an agent lately that had been ready before.
func (q *Queue) dispatchedOlderLately(agent string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agents[agent]
	return a != nil && q.env.Now().Sub(a.olderDispatchedAt) <= overlookedAfter
}

// olderShare is the part of the runs that goes to older steps while others that are as urgent have just become ready: one of
// so many.
const olderShare = 16

// newest is how many of so many runs may be of steps that have just become ready, while older ones that are as urgent wait.
func youngerShare(runs int) int { return runs - (runs+olderShare-1)/olderShare }

// asUrgent are those own steps, most at most, that may be dispatched before an older step: a permit that they take, or an ageing, would
// make that unfair. A step that was ready before, and has another desired state now, keeps its place in the order.
func (t *Transaction) asUrgent(s *search, refs []kernel.StepRef, older *kernel.Step, most int) (younger []kernel.StepRef) {
	for _, ref := range refs {
		own := t.b.Workset().Step(ref)
		if len(younger) < most && !s.wereReady[ref] && own.Ageing == older.Ageing && own.Ageing == 0 && own.Needs == "" && own.Priority >= older.Priority {
			younger = append(younger, ref)
		}
	}
	return younger
}

// peek is a step as it is in this transaction or, if its job is not locked, as it was just now.
func (t *Transaction) peek(ref kernel.StepRef) (*kernel.Step, error) {
	refs := []kernel.StepRef{ref}
	if w := t.b.Workset(); w.Has(ref.Job) {
		if err := t.b.LoadSteps(refs); err != nil || !w.HasStep(ref) {
			return nil, err
		}
		return w.Step(ref), nil
	}
	steps, err := t.b.Tx().Steps(refs)
	if err != nil || len(steps) == 0 {
		return nil, err
	}
	return steps[0], nil
}

// candidates are the steps that were found in the store, and own steps. If there are more in the store than were found,
// those come before any own step that comes after the last one that was found.
func (t *Transaction) candidates(s *search) ([]kernel.StepRef, error) {
	if s.exhausted || s.ownSuffice || len(s.own) == 0 {
		return append(s.stored, s.own...), nil
	}
	loaded, _, err := t.load(slices.Clone(s.stored))
	if err != nil {
		return nil, err
	}
	if len(loaded) == 0 {
		return s.stored, nil
	}
	last := t.candidate(loaded[0])
	for _, ref := range loaded[1:] {
		if c := t.candidate(ref); kernel.ClaimLess(c, last) > 0 {
			last = c
		}
	}
	own := slices.DeleteFunc(slices.Clone(s.own), func(ref kernel.StepRef) bool { return kernel.ClaimLess(t.candidate(ref), last) > 0 })
	return append(s.stored, own...), nil
}

// candidate is a step that is loaded.
func (t *Transaction) candidate(ref kernel.StepRef) kernel.Candidate {
	return kernel.CandidateOf(t.b.Workset().Step(ref))
}

// inOrder are those that are ready, each once, in the order of claims.
func (t *Transaction) inOrder(refs []kernel.StepRef) []kernel.StepRef {
	refs = slices.DeleteFunc(refs, func(ref kernel.StepRef) bool { return t.b.Workset().Step(ref).Phase != perdure.Ready })
	return slices.Compact(t.sorted(refs))
}

// load locks the jobs of steps and loads the steps. Steps whose job another transaction has locked are left out.
func (t *Transaction) load(refs []kernel.StepRef) (loaded []kernel.StepRef, skipped bool, err error) {
	if skipped, err = t.b.TryLock(refs); err != nil {
		return nil, false, err
	}
	w := t.b.Workset()
	refs = slices.DeleteFunc(refs, func(ref kernel.StepRef) bool { return !w.Has(ref.Job) })
	if err := t.b.LoadSteps(refs); err != nil {
		return nil, false, err
	}
	return slices.DeleteFunc(refs, func(ref kernel.StepRef) bool { return !w.HasStep(ref) }), skipped, nil
}
