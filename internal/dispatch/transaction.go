package dispatch

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
)

// Tx is what dispatch needs of a store's transaction: searches, and locks of limits. kernel.Tx describes the methods.
type Tx interface {
	Ready(agent string, max int, full []string, serves kernel.Serves) ([]kernel.StepRef, error)
	Hosts(names []string) ([]kernel.Host, error)
	ShareHosts(names []string) ([]kernel.Host, error)
	LockHost(name string) (*kernel.Host, error)
	PutHost(h, was *kernel.Host) error
	ReservedFor([]kernel.StepRef) ([]kernel.Host, error)
	Agents() (map[string]perdure.AgentSettings, error)
	AnnounceDispatch(agent string)
	HeldBy(holder, agent, request string, max int) ([]kernel.StepRef, error)
	Granted(holder, agent, request string, max int) ([]kernel.StepRef, error)
	Steps([]kernel.StepRef) ([]*kernel.Step, error)
	Limits() ([]kernel.Limit, error)
	LockLimits(names []string) ([]kernel.Limit, error)
	KeyUse([]kernel.LimitKey) (map[kernel.LimitKey]kernel.Taken, error)
	OpenLanes(keys []kernel.LimitKey, max int) (agents []string, err error)
	OpenFirst(lanes []kernel.ClosedLane) (agents []string, err error)
}

// Batch is the scheduler's transaction: it loads, applies the rules and saves. A Transaction serves claims in it.
type Batch interface {
	Tx() Tx
	Workset() *kernel.Workset
	Began() time.Time // by this node's clock, before the store's clock was read

	// TryLock locks the jobs of the steps. It skips jobs that other transactions have locked, and reports whether it
	// skipped any.
	TryLock([]kernel.StepRef) (skipped bool, err error)
	LoadSteps([]kernel.StepRef) error
	// LoadPayloads loads inputs and outputs in order, until the budget is used up. all is true if all were loaded.
	LoadPayloads([]kernel.StepRef) (all bool, err error)
	// Fold applies a rule to one job. If the rule panics, the error makes the next try leave out the job.
	Fold(job perdure.JobID, rule func()) error
	// Damaged returns an error that makes the next try leave out the job, because its rows are damaged.
	Damaged(job perdure.JobID, why error) error
	// Save writes all changes so far, so that the next search finds them.
	Save() error

	Budget() *kernel.Budget   // for rendering
	SetBudget(*kernel.Budget) // sets the budget
	// MaxBytes returns how many bytes of inputs and outputs a new budget has.
	MaxBytes() int
	// Postpone gives a rendering that costs too much to the renderers, after the transaction. more is false once the
	// renderers have enough work.
	Postpone(x *kernel.Rendering, agent string) (more bool)
}

// Transaction serves claims in one try of a transaction. doc.go describes its life.
type Transaction struct {
	q              *Queue
	b              Batch
	grants         []*grant // by agent, and in order of arrival
	searches       []*search
	limits         limits
	searchedAgents []string           // agents for which this writer searches the store
	opened         []string           // agents of lanes that were opened
	openedLate     []string           // agents of lanes that were opened after their searches
	reopened       []kernel.Reopening // keys whose lanes were opened because their rates have room
	granted        int                // number of new runs
	places         places
	reserving      map[string]bool // agents for which this transaction searches for steps that may reserve a host
}

// Begin returns a Transaction that serves these claims.
func (q *Queue) Begin(b Batch, claims []*Claim) *Transaction {
	t := &Transaction{q: q, b: b, searchedAgents: searchedAgents(claims), grants: make([]*grant, len(claims))}
	for i, c := range claims {
		t.grants[i] = &grant{Claim: c}
	}
	return t
}

// Granted returns how many claims were granted runs.
func (t *Transaction) Granted() (n int) {
	for _, g := range t.grants {
		if len(g.runs) > 0 {
			n++
		}
	}
	return n
}

// Dispatch serves the claims, agent by agent. fresh are the steps that the transaction has made ready, by agent.
func (t *Transaction) Dispatch(fresh map[string][]kernel.StepRef) error {
	if err := t.dispatch(fresh); err != nil {
		return err
	}
	if len(t.places) == 0 {
		return nil
	}
	if err := t.reserve(true); err != nil {
		return err
	}
	t.answerPartialOffers()
	return t.confirmHosts()
}

func (t *Transaction) dispatch(fresh map[string][]kernel.StepRef) (err error) {
	t.limits.counted.Now = t.b.Workset().Now()
	if len(t.grants) > 0 {
		t.orderByAgent()
		if err := t.repeat(); err != nil {
			return err
		}
		if err := t.loadHosts(); err != nil {
			return err
		}
		if err := t.reserve(false); err != nil {
			return err
		}
	}
	for rest := t.grants; len(rest) > 0; {
		agent, n := rest[0].Request.Agent, 1
		for n < len(rest) && rest[n].Request.Agent == agent {
			n++
		}
		s := newSearch(agent, rest[:n])
		t.searches = append(t.searches, s)
		if err := t.find(s, fresh[agent]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if t.opened, err = t.limits.openLanes(t); err != nil {
		return err
	}
	var serving []*search
	for _, s := range t.searches {
		if s.want > 0 && slices.Contains(t.opened, s.agent) { // steps in the opened lanes may come first
			if s.mode = max(s.mode, urgentSteps); s.searchClaim != nil {
				s.mode = searchStore
			}
			if err := t.find(s, fresh[s.agent]); err != nil {
				return err
			}
		}
		if s.want > 0 && len(s.own)+len(s.stored)+len(s.full) > 0 {
			serving = append(serving, s)
		}
	}
	if len(serving) == 0 {
		return nil
	}
	if err := t.limits.lockKnown(t, serving); err != nil {
		return err
	}
	budget := t.b.Budget()
	work := budget.Work / len(serving)
	for _, s := range serving {
		t.b.SetBudget(&kernel.Budget{Work: work, Full: t.b.Budget().Full, Bytes: t.b.Budget().Bytes, Read: t.b.Budget().Read, Memory: t.b.Budget().Memory})
		wanted := s.want
		s.want = min(wanted, MaxGranted-t.granted)
		none := s.want == 0
		if err := t.serve(s); err != nil {
			return err
		}
		if s.want == 0 && t.granted == MaxGranted {
			t.endOverBudget(s, none)
		}
	}
	t.openedLate, err = t.limits.openFor(t, nil) // a step that cannot be dispatched, because its input has an error, has left its lines
	return err
}

// MaxGranted bounds how many runs one transaction grants. The next transaction serves the remaining claims.
const MaxGranted = MaxWeight

// Opened returns the agents of lanes that the transaction has opened. Steps in these lanes can be dispatched now.
func (t *Transaction) Opened() []string { return t.opened }

// orderByAgent sorts the claims by agent. Claims of one agent stay in order of arrival. Agents take turns, so that large
// inputs of one agent do not starve the others: if an agent has used up the budget of an earlier transaction, the agents
// after it come first. If the others had left an agent too little for its first run, this agent comes first. Claims are
// answered in this order, too.
func (t *Transaction) orderByAgent() {
	first, _ := t.q.firstAgent.Load().(string)
	slices.SortStableFunc(t.grants, func(a, b *grant) int {
		x, y := a.Request.Agent, b.Request.Agent
		if before := x >= first; before != (y >= first) {
			if before {
				return -1
			}
			return 1
		}
		return strings.Compare(x, y)
	})
}

// serve grants runs of the candidates to the claims of one agent. A step that waits for a limit does not hold up other
// steps: the store is searched again without the steps that need this limit.
func (t *Transaction) serve(s *search) error {
	if room := t.limits.counted.Room(kernel.AgentLimit(s.agent)); room < s.want {
		s.want, s.limitReached, s.ownLimitFull = room, true, true
	}
	leftOut := len(s.full)
	s.full = t.limits.withoutRoom(s.full)
	s.limitReached = s.limitReached || len(s.full) > 0
	s.offered, s.moreRemains = true, true
	last := s.exhausted && len(s.full) == leftOut // there are no other candidates
	found, err := t.candidates(s)
	if err != nil {
		return err
	}
	budget := t.b.Budget()
	fullBudget, wanted := budget.Read == perdure.MaxReadBytes && budget.Bytes == t.b.MaxBytes(), s.want
	offered := map[kernel.StepRef]bool{} // candidates that were offered; true: still ready, and cannot be dispatched now
	passed := 0                          // how many of them are true
	for s.want > 0 && len(s.open) > 0 && passed < MaxSkipped {
		granted, more, err := t.offer(s, found)
		if younger := s.younger; err == nil && more && granted == len(found) && len(younger) > 0 { // no older step is held back
			s.younger = nil
			var n int
			n, more, err = t.offer(s, younger)
			granted, found = granted+n, append(found, younger...)
		}
		if errors.Is(err, kernel.ErrOverBudget) { // the next transaction dispatches the rest
			t.endOverBudget(s, !fullBudget && s.want == wanted && granted == 0)
			return nil
		}
		if err != nil {
			return err
		}
		w, dispatched := t.b.Workset(), granted == len(found) // usually all were dispatched, and none is offered again
		for i := 0; i < len(found) && !dispatched; i++ {
			step := w.Step(found[i])
			if offered[found[i]] = step == nil || step.Phase == perdure.Ready; offered[found[i]] {
				passed++
			}
		}
		if s.want -= granted; !more { // the renderers have enough work, and wake the waiting claims when they have done it
			return nil
		}
		s.tookOlder = s.tookOlder || granted > 0 && len(s.stored) > 0
		known := len(s.full)
		t.addFull(s, found)
		if satisfied := s.want <= 0 || len(s.open) == 0; satisfied || last && len(s.full) == known {
			s.moreRemains = satisfied
			s.tookAllFound = s.want <= 0 && len(s.stored) > 0 && passed+leftOut+len(s.full) == 0 && !s.userLimits
			return nil
		}
		if err := t.b.Save(); err != nil { // so that the next search does not find them again
			return err
		}
		ask := max(min(s.want, MaxFound), passed) + passed
		if found, err = t.b.Tx().Ready(s.agent, ask, s.full, s.serves()); err != nil {
			return err
		}
		last = len(found) < ask
		found = slices.DeleteFunc(found, func(ref kernel.StepRef) bool {
			ready, again := offered[ref]
			s.blocked = s.blocked || again && !ready // the search has found a step that is not ready any more: its rows have changed meanwhile
			return again
		})
		if len(found) == 0 {
			s.moreRemains = false
			return nil
		}
	}
	return nil
}

// MaxFound bounds how many candidates a search reads from the store at once. The larger it is, the fewer searches a
// backlog takes.
const MaxFound = 4 * perdure.MaxBatch

// MaxSkipped bounds how many candidates a search skips that cannot be dispatched now. It allows for a few of the largest
// jobs that are locked by other transactions, or quarantined (F078).
const MaxSkipped = 5 * perdure.MaxSteps

// endOverBudget ends a search because the budget of the transaction is used up. Agents that got nothing go first in the
// next transaction.
func (t *Transaction) endOverBudget(s *search, hadNothing bool) {
	s.overBudget = true
	for _, other := range t.searches {
		if other != s && other.overBudget {
			return
		}
	}
	if hadNothing { // the other agents had left too little: this agent goes first
		t.q.firstAgent.Store(s.agent)
	} else { // nothing is left for the other agents: they go first
		t.q.firstAgent.Store(s.agent + "\x00")
	}
}

// addFull adds the limits of the candidates that have no room left.
func (t *Transaction) addFull(s *search, refs []kernel.StepRef) {
	w := t.b.Workset()
	for _, ref := range refs {
		step := w.Step(ref)
		if step == nil {
			continue
		}
		s.userLimits = s.userLimits || step.Needs != ""
		if t.limits.counted.Empty() {
			continue
		}
		names := []string{kernel.JobLimit(step.Type)}
		for _, n := range step.Needs.List() {
			names = append(names, n.Name)
		}
		for _, name := range t.limits.withoutRoom(names) {
			if !slices.Contains(s.full, name) {
				s.full = append(s.full, name)
			}
		}
	}
	s.limitReached = s.limitReached || len(s.full) > 0
}

// offer locks and loads candidates, and grants runs of those that may be dispatched. Candidates from the store may be
// outdated, because this transaction has changed their steps and not saved yet. Inputs and outputs are read last, in the
// order of dispatch, and only for steps for which the limits have room, because a transaction reads a bounded number of
// bytes. more is false once the renderers have enough work.
func (t *Transaction) offer(s *search, found []kernel.StepRef) (granted int, more bool, err error) {
	refs, skipped, err := t.load(slices.Clone(found))
	if err != nil {
		return 0, true, err
	}
	s.blocked = s.blocked || skipped
	refs = t.inOrder(s, refs)
	if err := t.limits.lockNeeded(t, s, refs); err != nil {
		return 0, true, err
	}
	if err := t.loadInputs(t.limits.admissible(t.b.Workset(), refs)); err != nil {
		return 0, true, err
	}
	return t.grant(s, refs)
}

// loadInputs loads the values that the inputs of these steps read, until the budget is used up. If a whole budget is too
// small for the first step, the step is marked as one that reads too much.
func (t *Transaction) loadInputs(refs []kernel.StepRef) error {
	w := t.b.Workset()
	var payloads []kernel.StepRef
	var ref kernel.StepRef   // the step whose values are listed
	var first kernel.StepRef // the first step that needs values
	needs := func() { payloads = append(payloads, w.ClaimRefs(ref)...) }
	for _, ref = range refs {
		needed := len(payloads)
		if err := t.b.Fold(ref.Job, needs); err != nil {
			return err
		}
		if needed == 0 {
			first = ref
		}
	}
	unused := t.b.Budget().Read == perdure.MaxReadBytes
	all, err := t.b.LoadPayloads(payloads)
	if err == nil && !all && unused && len(w.ClaimRefs(first)) > 0 {
		w.ReadsTooMuch(first)
	}
	return err
}

// grant grants runs of the steps to the claims, in order. If the answer to a claim has no room for another run, the next
// claim gets it. If an input takes too much work, it is given to the renderers, and the step is skipped. If the budget
// is used up, the search ends.
func (t *Transaction) grant(s *search, refs []kernel.StepRef) (granted int, more bool, err error) {
	more = true
	var ref kernel.StepRef
	var g *grant
	claim := newRuleCall(func() (*perdure.Run, error) { return t.b.Workset().Claim(ref, &g.Request, &t.limits.counted, g.room()) })
	for _, ref = range refs {
		for len(s.open) > 0 {
			i := t.choose(s, ref)
			if i < 0 {
				break
			}
			g = s.open[i]
			if may, err := t.mayGrant(g); err != nil {
				return granted, more, err
			} else if !may {
				s.close(i)
				continue
			}
			if full, err := t.hostFull(g); err != nil {
				return granted, more, err
			} else if full {
				s.close(i)
				continue
			}
			run, err := t.runOf(ref, claim)
			if err != nil {
				if errors.Is(err, kernel.ErrNoRoom) {
					g.lacksRoom = len(g.runs) == 0
					s.close(i)
					continue
				}
				if postponed := (*kernel.Postponed)(nil); errors.As(err, &postponed) {
					more = t.b.Postpone(postponed.Rendering, s.agent) && more
					break
				}
				return granted, more, err
			}
			if run != nil {
				granted++
				t.granted++
				g.add(run, t.b.Began(), len(refs))
				if g.place != nil {
					g.addRun(t.b.Workset().Step(ref))
				}
				if len(g.runs) >= g.Most {
					s.close(i)
				}
			}
			break
		}
	}
	return granted, more, nil
}

// ruleCall is a call of a rule that returns a run, with its result. One ruleCall serves all steps of a search, which
// saves an allocation for each.
type ruleCall struct {
	apply func()
	run   *perdure.Run
	err   error
}

func newRuleCall(rule func() (*perdure.Run, error)) *ruleCall {
	r := &ruleCall{}
	r.apply = func() { r.run, r.err = rule() }
	return r
}

// runOf calls the rule for a run of the step. If the rule needs values that are not loaded, runOf loads them and calls
// it once more: loadInputs could load only the values that were known to be needed. The error is a *Postponed,
// ErrOverBudget or ErrNoRoom if the step has to wait for a renderer, another transaction, or another claim.
func (t *Transaction) runOf(ref kernel.StepRef, r *ruleCall) (*perdure.Run, error) {
	if err := t.b.Fold(ref.Job, r.apply); err != nil {
		return nil, err
	}
	if r.err == nil {
		return r.run, nil
	}
	if missing := (*kernel.NotLoaded)(nil); errors.As(r.err, &missing) {
		all, err := t.b.LoadPayloads(missing.Steps)
		switch {
		case err != nil:
			return nil, err
		case !all:
			return nil, kernel.ErrOverBudget
		}
		if err := t.b.Fold(ref.Job, r.apply); err != nil {
			return nil, err
		}
	}
	switch {
	case r.err == nil, errors.Is(r.err, kernel.ErrOverBudget), errors.Is(r.err, kernel.ErrNoRoom), errors.As(r.err, new(*kernel.Postponed)):
		return r.run, r.err
	}
	return nil, t.b.Damaged(ref.Job, r.err)
}

// ——— before the commit ———

// ReturnEarly puts claims that were granted nothing back into the queue before the transaction is saved. So another
// transaction that makes steps ready meanwhile finds these claims waiting. ReturnEarly returns the other claims: those
// with an answer, the one that owns the search, and all claims of an agent for which a limit or a lock was in the way,
// because the queue does not know of that until End. So it is where a host is reserved.
func (t *Transaction) ReturnEarly() (kept []*Claim) {
	blocked := map[string]bool{}
	for _, s := range t.searches {
		blocked[s.agent] = s.limitReached || s.blocked || s.hostReserved
	}
	var returned []*Claim
	t.grants = slices.DeleteFunc(t.grants, func(g *grant) bool {
		if g.ownsSearch || g.Request.Wait <= 0 || g.aside != nil || g.lacksRoom || g.partialOffer || g.refused != nil || len(g.runs) > 0 || blocked[g.Request.Agent] {
			kept = append(kept, g.Claim)
			return false
		}
		g.failed = nil
		returned = append(returned, g.Claim)
		return true
	})
	if len(returned) > 0 {
		t.q.giveBack(returned, nil, nil, false)
	}
	return kept
}

// ReleaseSearches allows other writers to search for agents that have more ready steps than this transaction dispatches,
// before it is saved. A backlog is worked off by one search after the other, and to save a transaction takes as long as
// to search.
func (t *Transaction) ReleaseSearches() {
	if !speed.Pass.On() {
		return
	}
	var agents []string
	for _, s := range t.searches {
		if s.searchClaim != nil && s.tookAllFound && !s.limitReached && !s.blocked {
			s.searchClaim.ownsSearch = false
			t.b.Tx().AnnounceDispatch(s.agent)
			agents = append(agents, s.agent)
		}
	}
	if len(agents) > 0 {
		t.q.releaseEarly(agents)
		t.searchedAgents = slices.DeleteFunc(t.searchedAgents, func(agent string) bool { return slices.Contains(agents, agent) })
	}
}

// ——— after the commit ———

// Pauses before the next search for an agent.
const (
	blockedPause = 20 * time.Millisecond // other transactions have locked the candidates, and probably end soon
	blockedLong  = time.Second           // if they have not ended after this, the supervisor's periodic search suffices

	noRoomPause = 100 * time.Millisecond // the server had no room for the answer
	failedPause = 500 * time.Millisecond
)

// Outcome says how the transaction ended.
type Outcome struct {
	Err   error    // why it failed, as callers see it; nil if it was committed
	Woken []string // agents for which it made steps ready that it did not dispatch
	Freed bool     // runs have ended or jobs have settled: limits may have room
}

// End answers the claims, gives those that were set aside to the repeaters, and puts claims that were granted nothing
// and may wait back into the queue.
func (t *Transaction) End(o Outcome) {
	var returned []*Claim
	var crowded, agents []string
	for _, g := range t.grants {
		agent := g.Request.Agent
		if !slices.Contains(agents, agent) {
			agents = append(agents, agent)
		}
		switch g.failed = o.Err; {
		case o.Err == nil && g.lacksRoom && !g.WithReports:
			g.failed = errNoRoom
			crowded = append(crowded, agent)
		}
		switch {
		case o.Err == nil && g.aside != nil:
			t.q.asides.put(g.aside)
		case o.Err == nil && len(g.runs) > 0:
			g.Answer(g.runs, nil)
		case o.Err == nil && g.refused != nil && g.WithReports: // a claim of its own is answered with the reason
			g.Answer(nil, nil)
		case o.Err == nil && g.refused != nil:
			g.Answer(nil, g.refused)
		case g.Request.Wait > 0 && !(g.partialOffer && o.Err == nil):
			returned = append(returned, g.Claim)
		default:
			g.Answer(nil, g.failed)
		}
	}
	if o.Err != nil {
		t.q.pauseHeld(agents)
		t.q.giveBack(returned, nil, nil, false)
		t.q.WakeLater(agents, failedPause) // for all claims: other searches may have begun after runs that were not committed
	} else {
		t.q.cacheLimits(t.searches, t.b.Began())
		t.noteRates()
		t.q.giveBack(returned, t.searches, o.Woken, o.Freed)
		if len(t.openedLate) > 0 {
			t.q.Wake(t.openedLate)
		}
		if unpaid := t.overBudgetAgents(); len(unpaid) > 0 {
			t.q.Wake(unpaid)
		}
		t.q.WakeLater(crowded, noRoomPause)
		t.q.WakeLater(t.q.recordBlocked(t.searches), blockedPause)
	}
	t.q.releaseSearches(t.searchedAgents)
}

// noteRates tells the queue when rates have room for which steps wait.
func (t *Transaction) noteRates() {
	closed, agents := t.limits.counted.Reopenings(), map[string]time.Time{}
	for _, s := range t.searches {
		if at, waits := t.limits.rateRoom(s); waits && s.offered {
			agents[s.agent] = at
		}
	}
	if now := t.limits.counted.Now; !now.IsZero() {
		t.q.noteRates(t.reopened, closed, agents, now)
	}
}

func (t *Transaction) overBudgetAgents() (agents []string) {
	for _, s := range t.searches {
		if s.overBudget {
			agents = append(agents, s.agent)
		}
	}
	return agents
}

// pauseHeld sets a pause in which no claims of these agents are taken for held submissions.
func (q *Queue) pauseHeld(agents []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range agents {
		q.agent(name).pausedUntil = q.env.Now().Add(failedPause)
	}
}

// WakeAfterIndeterminate wakes claims for what a transaction may have done whose commit is indeterminate.
func (q *Queue) WakeAfterIndeterminate(woken []string, freed bool) {
	q.giveBack(nil, nil, woken, freed)
}

// recordBlocked returns the agents to search for again soon: other transactions have locked their candidates, and for
// less than blockedLong.
func (q *Queue) recordBlocked(searches []*search) (agents []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.env.Now()
	for _, s := range searches {
		a := q.agent(s.agent)
		switch {
		case !s.blocked:
			a.blockedSince = time.Time{}
			continue
		case a.blockedSince.IsZero():
			a.blockedSince = now
		}
		if now.Sub(a.blockedSince) < blockedLong {
			agents = append(agents, s.agent)
		}
	}
	return agents
}
