package dispatch

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// search is what one transaction does for the claims of one agent: which candidates it finds, how many runs it grants,
// and how it ends.
type search struct {
	agent       string
	mode        claimMode
	searchClaim *grant   // the claim that makes this writer search the store (Claim.ownsSearch); nil if another writer does
	grants      []*grant // all claims of the agent
	open        []*grant // claims that may be granted new runs
	forHosts    bool     // one of these claims is for a host
	fair        bool     // the agent's steps are dispatched in the order of kernel.FairOrder
	asked       int      // number of runs that these claims ask for
	want        int      // number of those not granted yet

	// The candidates, before limits are considered.
	own        []kernel.StepRef        // steps that this transaction has made ready
	wereReady  map[kernel.StepRef]bool // own steps that were ready before, with the other desired state: they must not pass older steps
	younger    []kernel.StepRef        // own steps that may pass older steps in the store, unless one of those cannot be dispatched
	stored     []kernel.StepRef        // steps that were found in the store
	exhausted  bool                    // there are no candidates but these
	ownSuffice bool                    // own steps come before all steps in the store, and suffice; the store was not read further

	limits []string        // limits that the latest search needed; a guess
	full   []string        // limits without room; at first those of the latest search
	needed map[string]bool // limits that this search needed

	at            int  // Queue.clock when the claims were taken
	searchedStore bool // this search has read the store
	offered       bool // candidates were offered to the claims

	limitReached bool // a limit holds steps back
	ownLimitFull bool // the agent's own limit has no room for all claims
	moreRemains  bool // more steps were ready than the claims took
	tookAllFound bool // all steps that were found in the store were dispatched: another search can begin after them
	tookOlder    bool // steps that were found in the store were dispatched
	userLimits   bool // some candidates need limits that users have defined
	blocked      bool // other transactions have locked candidates
	hostReserved bool // the host of a claim is reserved
	overBudget   bool // the transaction's budget was used up
}

// result returns what the search left in the store.
func (s *search) result() searchResult {
	switch {
	case s.limitReached:
		return limitFull
	case s.moreRemains:
		return moreReady
	}
	return nothingReady
}

// newSearch returns a search for claims of one agent.
func newSearch(agent string, claims []*grant) *search {
	s := &search{agent: agent, at: claims[0].searchedAt, grants: claims}
	for _, g := range claims {
		if g.ownsSearch {
			s.searchClaim = g
		}
		if g.isOpen() {
			s.open = append(s.open, g)
			s.asked += g.Most
			s.forHosts = s.forHosts || g.place != nil
			s.mode = max(s.mode, g.mode)
		}
	}
	s.want = s.asked
	return s
}

// close removes an open claim: it is granted no more runs.
func (s *search) close(i int) {
	if i == 0 {
		s.open = s.open[1:]
		return
	}
	s.open = slices.Delete(s.open, i, i+1)
}

// find finds the first candidates. fresh are the steps that the transaction has made ready.
func (t *Transaction) find(s *search, fresh []kernel.StepRef) (err error) {
	s.own, s.wereReady, s.younger, s.stored, s.exhausted, s.ownSuffice = t.served(s, fresh), nil, nil, nil, false, false
	if s.want == 0 {
		return nil
	}
	var full []string
	s.limits, full = t.q.cachedLimits(s.agent, t.b.Began())
	agents, err := t.b.Tx().Agents()
	if err != nil {
		return err
	}
	if s.fair = kernel.IsFair(agents[s.agent]); s.fair {
		s.full = full
		return t.findFair(s)
	}
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
	if len(s.wereReady) > 0 { // so that the store finds them at their places in the order
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
	max := min(s.want-len(ahead)-len(younger), MaxFound)
	s.stored, err = t.b.Tx().Ready(s.agent, max, s.full, s.serves())
	s.exhausted = len(s.stored) < max
	return err
}

// findFair is find for a fair agent. Own steps do not pass others: they are dispatched if there is nothing else in the store and
// all of them get a run. Otherwise they are left to the next search, which compares their shares.
func (t *Transaction) findFair(s *search) (err error) {
	own := s.own
	if s.own = nil; s.mode == urgentSteps {
		s.exhausted = true
		return nil
	}
	if s.mode == searchStore {
		max := min(s.want, MaxFound)
		if s.stored, err = t.b.Tx().Ready(s.agent, max, s.full, s.serves()); err != nil {
			return err
		}
		s.searchedStore, s.exhausted = true, len(s.stored) < max
		if !s.exhausted {
			return nil
		}
	}
	s.exhausted = true
	if len(own)+len(s.stored) <= s.want {
		s.own = t.sorted(own)
	}
	return nil
}

// ahead divides the own steps by their place in the order. ahead are those that come before everything that was ready
// before this transaction. Often these are further steps of old jobs, and then the store need not be read further.
// younger are later ones that are equally urgent: to dispatch them now costs much less than later, but a part of the
// runs is left for older steps. none is true if nothing was ready before.
//
// For example, the claims ask for 16 runs, and the store has ready steps of job 5. The transaction has made ready a step
// of job 3 and twenty of job 9, all with the same priority. The step of job 3 is in ahead. Of the other 15 runs, up to
// 14 may go to steps of job 9 (younger), and at least one goes to job 5.
func (t *Transaction) ahead(s *search) (ahead, younger []kernel.StepRef, none bool, err error) {
	if len(s.own) == 0 || len(s.full) > 0 { // older steps that need a limit may have room now, so the order has to be read from the store
		return nil, nil, false, nil
	}
	head, err := t.b.Tx().Ready(s.agent, 1, nil, s.serves())
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

// split divides steps, in the order of dispatch, into those that come before a ready step of the store, and those after
// it.
func (t *Transaction) split(refs []kernel.StepRef, first *kernel.Step) (ahead, behind []kernel.StepRef) {
	n := 0
	for n < len(refs) && kernel.ClaimLess(t.candidate(refs[n]), kernel.CandidateOf(first)) <= 0 {
		n++
	}
	return refs[:n:n], refs[n:]
}

// sorted returns the steps in the order of dispatch.
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

// ownUrgent returns the own steps that are at least as urgent as the ready steps in the store. Another writer searches
// the store at the same time, and finds steps that are equally urgent and older. It cannot find steps of jobs that this
// transaction has locked, and may have missed a step that has been ready for long (L5). In these two cases only steps
// that come first in the order are returned.
func (t *Transaction) ownUrgent(s *search) ([]kernel.StepRef, error) {
	if len(s.own) == 0 {
		return nil, nil
	}
	head, err := t.b.Tx().Ready(s.agent, 1, s.full, s.serves())
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

// If a step has been ready for longer than overlookedAfter, and no search has dispatched older steps meanwhile, the step
// is taken to have been missed by all searches.
const overlookedAfter = time.Second

// dispatchedOlderLately reports whether a search has dispatched steps of an agent within overlookedAfter that had been
// ready before.
func (q *Queue) dispatchedOlderLately(agent string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.agents[agent]
	return a != nil && q.env.Now().Sub(a.olderDispatchedAt) <= overlookedAfter
}

// One of olderShare runs goes to older steps, while equally urgent steps have just become ready.
const olderShare = 16

// youngerShare returns how many of the runs may go to steps that have just become ready, while equally urgent older ones
// wait.
func youngerShare(runs int) int { return runs - (runs+olderShare-1)/olderShare }

// asUrgent returns up to most of the steps that may be dispatched before an older step. Steps that need a permit, or
// whose agent has ageing, may not, because that would be unfair to the older step. A step that was ready before, and
// whose desired state has changed, keeps its place in the order.
func (t *Transaction) asUrgent(s *search, refs []kernel.StepRef, older *kernel.Step, most int) (younger []kernel.StepRef) {
	for _, ref := range refs {
		own := t.b.Workset().Step(ref)
		if len(younger) < most && !s.wereReady[ref] && own.Ageing == older.Ageing && own.Ageing == 0 && own.Needs == "" && own.Priority >= older.Priority {
			younger = append(younger, ref)
		}
	}
	return younger
}

// peek returns a step as it is in this transaction or, if its job is not locked, as it was when it was read.
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

// candidates returns the steps found in the store and own steps. If the store has more ready steps than were found, own
// steps after the last one found are left out, because the unread steps come before them.
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

// candidate returns the place in the order of a step that is loaded.
func (t *Transaction) candidate(ref kernel.StepRef) kernel.Candidate {
	return kernel.CandidateOf(t.b.Workset().Step(ref))
}

// inOrder returns the steps that are ready, each once, in the order of dispatch.
func (t *Transaction) inOrder(s *search, refs []kernel.StepRef) []kernel.StepRef {
	refs = slices.DeleteFunc(refs, func(ref kernel.StepRef) bool { return t.b.Workset().Step(ref).Phase != perdure.Ready })
	if s.fair { // they are in order, but a step that was found may also be one that was made ready
		seen := make(map[kernel.StepRef]bool, len(refs))
		return slices.DeleteFunc(refs, func(ref kernel.StepRef) bool {
			met := seen[ref]
			seen[ref] = true
			return met
		})
	}
	return slices.Compact(t.sorted(refs))
}

// load locks the jobs of the steps and loads the steps. It leaves out steps whose jobs other transactions have locked.
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
