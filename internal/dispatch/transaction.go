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

// Tx is what dispatch needs of a transaction of the store: searches, and the locks of limits. kernel.Tx describes the methods.
type Tx interface {
	Ready(agent string, max int, full []string) ([]kernel.StepRef, error)
	Pass(agent string)
	HeldBy(holder, agent, request string, max int) ([]kernel.StepRef, error)
	Granted(holder, agent, request string, max int) ([]kernel.StepRef, error)
	Steps([]kernel.StepRef) ([]*kernel.Step, error)
	Limits() ([]kernel.Limit, error)
	LockLimits(names []string) ([]kernel.Limit, error)
	KeyUse([]kernel.LimitKey) (map[kernel.LimitKey]int, error)
	OpenLanes(keys []kernel.LimitKey, max int) (agents []string, err error)
}

// Batch is the scheduler's transaction: it loads, applies the rules and saves. Transaction serves claims in it.
type Batch interface {
	Tx() Tx
	Workset() *kernel.Workset
	Began() time.Time // by the node's clock, before the store's clock was read

	// TryLock locks the jobs of steps, leaves out those that other transactions have locked, and says whether there were
	// some.
	TryLock([]kernel.StepRef) (skipped bool, err error)
	LoadSteps([]kernel.StepRef) error
	// LoadPayloads loads values in order, until the budget is used up. all says that all were loaded.
	LoadPayloads([]kernel.StepRef) (all bool, err error)
	// Fold runs a rule on one job. If it panics, the error takes the job out of the next try.
	Fold(job perdure.JobID, rule func()) error
	// Damaged is the error that takes a job out, because its rows are damaged.
	Damaged(job perdure.JobID, why error) error
	// Save writes what there is so far, so that the next search sees it.
	Save() error

	Budget() *kernel.Budget // for rendering
	Spend(*kernel.Budget)   // sets it
	// MaxBytes is how many bytes of inputs and outputs a budget begins with.
	MaxBytes() int
	// Postpone hands a rendering that takes too much work to the renderers, after the transaction. It returns false once
	// they have enough.
	Postpone(x *kernel.Rendering, agent string) (more bool)
}

// Transaction serves claims in one try of one transaction. doc.go describes its life.
type Transaction struct {
	q              *Queue
	b              Batch
	grants         []*grant // by agent, and in the order in which the claims came
	searches       []*search
	limits         limits
	searchedAgents []string // agents for which this writer searches
	opened         []string // agents of which lanes were opened
	granted        int      // new runs
}

// Begin makes a transaction that serves these claims.
func (q *Queue) Begin(b Batch, claims []*Claim) *Transaction {
	t := &Transaction{q: q, b: b, searchedAgents: searchedAgents(claims), grants: make([]*grant, len(claims))}
	for i, c := range claims {
		t.grants[i] = &grant{Claim: c}
	}
	return t
}

// Granted is how many claims were granted runs.
func (t *Transaction) Granted() (n int) {
	for _, g := range t.grants {
		if len(g.runs) > 0 {
			n++
		}
	}
	return n
}

// Serve serves the claims, agent by agent. fresh are the steps that the transaction has made ready.
func (t *Transaction) Dispatch(fresh map[string][]kernel.StepRef) (err error) {
	if len(t.grants) > 0 {
		t.orderByAgent()
		if err := t.repeat(); err != nil {
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
		if s.want > 0 && slices.Contains(t.opened, s.agent) { // there may be steps in the lanes that are open now which come first
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
		t.b.Spend(&kernel.Budget{Work: work, Bytes: t.b.Budget().Bytes, Read: t.b.Budget().Read, Memory: t.b.Budget().Memory})
		asked := s.want
		s.want = min(asked, MaxGranted-t.granted)
		none := s.want == 0
		if err := t.serve(s); err != nil {
			return err
		}
		if s.want == 0 && t.granted == MaxGranted {
			t.endOverBudget(s, none)
		}
	}
	return nil
}

// MaxGranted bounds how many runs one transaction grants. The claims that are still open are served by the next one.
const MaxGranted = MaxWeight

// Opened are agents with lanes that the transaction has opened: steps in them can be dispatched now.
func (t *Transaction) Opened() []string { return t.opened }

// takeTurns sorts the claims by agent; those of one agent stay in the order in which they came. The first agent is the
// one after that which used up the budget of an earlier transaction, so that large inputs of one agent do not starve the
// others; or that agent itself, if the others had left it too little for its first run. Claims are answered in this
// order, too.
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

// serve grants runs of the candidates to the claims of one agent. Steps that wait for a limit do not stand in front of
// others: the store is searched again without those that need it.
func (t *Transaction) serve(s *search) error {
	if room := t.limits.counted.Room(kernel.AgentLimit(s.agent)); room < s.want {
		s.want, s.limitReached, s.ownLimitFull = room, true, true
	}
	leftOut := len(s.full)
	s.full = t.limits.withoutRoom(s.full)
	s.limitReached = s.limitReached || len(s.full) > 0
	s.offered, s.moreRemains = true, true
	last := s.exhausted && len(s.full) == leftOut // there are no candidates but these
	found, err := t.candidates(s)
	if err != nil {
		return err
	}
	budget := t.b.Budget()
	whole, asked := budget.Read == perdure.MaxReadBytes && budget.Bytes == t.b.MaxBytes(), s.want
	offered := map[kernel.StepRef]bool{} // by this search; true: it is ready, and cannot be dispatched now
	passed := 0                          // how many are
	for s.want > 0 && len(s.open) > 0 && passed < MaxSkipped {
		granted, more, err := t.offer(s, found)
		if younger := s.younger; err == nil && more && granted == len(found) && len(younger) > 0 { // no older one is held back
			s.younger = nil
			var n int
			n, more, err = t.offer(s, younger)
			granted, found = granted+n, append(found, younger...)
		}
		if errors.Is(err, kernel.ErrOverBudget) { // the rest is dispatched in the next transaction
			t.endOverBudget(s, !whole && s.want == asked && granted == 0)
			return nil
		}
		if err != nil {
			return err
		}
		w, dispatched := t.b.Workset(), granted == len(found) // as a rule all, and nothing is offered again
		for i := 0; i < len(found) && !dispatched; i++ {
			step := w.Step(found[i])
			if offered[found[i]] = step == nil || step.Phase == perdure.Ready; offered[found[i]] {
				passed++
			}
		}
		if s.want -= granted; !more { // enough work for the renderers, which wake the waiting claims
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
		if found, err = t.b.Tx().Ready(s.agent, ask, s.full); err != nil {
			return err
		}
		last = len(found) < ask
		found = slices.DeleteFunc(found, func(ref kernel.StepRef) bool {
			ready, again := offered[ref]
			s.blocked = s.blocked || again && !ready // what the store finds is not what there is: the search is repeated
			return again
		})
		if len(found) == 0 {
			s.moreRemains = false
			return nil
		}
	}
	return nil
}

// MaxFound bounds how many candidates a search asks the store for at once. The larger it is, the fewer searches a backlog takes.
const MaxFound = 4 * perdure.MaxBatch

// MaxPassed bounds how many candidates that cannot be dispatched now are looked past: some of the largest jobs that are
// locked by other transactions, or quarantined (F078).
const MaxSkipped = 5 * perdure.MaxSteps

// unpaid ends a search because the budget of the transaction is used up. The agents that go first in the next
// transaction are those that had nothing of it.
func (t *Transaction) endOverBudget(s *search, hadNothing bool) {
	s.overBudget = true
	for _, other := range t.searches {
		if other != s && other.overBudget {
			return
		}
	}
	if hadNothing { // the others have left it too little: it goes first
		t.q.firstAgent.Store(s.agent)
	} else { // the others were left nothing: they go first
		t.q.firstAgent.Store(s.agent + "\x00")
	}
}

// addFull adds the limits of candidates that have no room left.
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

// offer locks and loads candidates and grants runs of those that may be dispatched. Candidates from the store may have
// been moved on by this transaction, which has not saved yet. Values are read last, in the order of dispatch, and only
// for steps that the limits leave room for: the transaction reads a bounded number of bytes. more is false once the
// renderers have enough work.
func (t *Transaction) offer(s *search, found []kernel.StepRef) (granted int, more bool, err error) {
	refs, skipped, err := t.load(slices.Clone(found))
	if err != nil {
		return 0, true, err
	}
	s.blocked = s.blocked || skipped
	refs = t.inOrder(refs)
	if err := t.limits.lockNeeded(t, s, refs); err != nil {
		return 0, true, err
	}
	if err := t.loadInputs(t.limits.admissible(t.b.Workset(), refs)); err != nil {
		return 0, true, err
	}
	return t.grant(s, refs)
}

// loadInputs loads the values that the next inputs of these steps read, until the budget is used up. If an unused budget
// is too small for the first step, that step reads too much.
func (t *Transaction) loadInputs(refs []kernel.StepRef) error {
	w := t.b.Workset()
	var payloads []kernel.StepRef
	var ref kernel.StepRef   // the step whose needs are read
	var first kernel.StepRef // the first that needs values
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

// grant dispatches candidates to the claims in their order. A claim whose answer has no room for another run is done. A
// step whose input takes too much work is handed to the renderers, and passed over. Once the budget is used up, the search ends.
func (t *Transaction) grant(s *search, refs []kernel.StepRef) (granted int, more bool, err error) {
	more = true
	var ref kernel.StepRef
	var g *grant
	claim := newRuleCall(func() (*perdure.Run, error) { return t.b.Workset().Claim(ref, &g.Request, &t.limits.counted, g.room()) })
	for _, ref = range refs {
		for len(s.open) > 0 {
			g = s.open[0]
			if may, err := t.mayGrant(g); err != nil {
				return granted, more, err
			} else if !may {
				s.open = s.open[1:]
				continue
			}
			run, err := t.runOf(ref, claim)
			if err != nil {
				if errors.Is(err, kernel.ErrNoRoom) {
					g.lacksRoom = len(g.runs) == 0
					s.open = s.open[1:]
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
				if len(g.runs) >= g.Request.Max {
					s.open = s.open[1:]
				}
			}
			break
		}
	}
	return granted, more, nil
}

// ruling is a call of the rules for a run, with its result. One ruling serves all steps of a search, which saves an allocation for
// each.
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

// runOf calls the rules for a run of the step. If its input reads values that are not loaded, it loads them and calls
// the rules once more; loadInputs has loaded only the values that were known to be needed then. The error is a
// *Postponed, ErrOverBudget or ErrNoRoom if the step has to wait for a renderer, another transaction, or another claim.
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

// ReturnEarly puts claims that were granted nothing back into the queue, while the transaction is being saved: another
// one may make steps ready meanwhile, and has to find them waiting. It returns the claims that stay: those with an
// answer, the one by which the agent is served, and all claims of an agent for which a limit or a lock was in the way,
// because the queue does not know that yet.
func (t *Transaction) ReturnEarly() (stay []*Claim) {
	hindered := map[string]bool{}
	for _, s := range t.searches {
		hindered[s.agent] = s.limitReached || s.blocked
	}
	var back []*Claim
	t.grants = slices.DeleteFunc(t.grants, func(g *grant) bool {
		if g.ownsSearch || g.Request.Wait <= 0 || g.aside != nil || g.lacksRoom || len(g.runs) > 0 || hindered[g.Request.Agent] {
			stay = append(stay, g.Claim)
			return false
		}
		g.failed = nil
		back = append(back, g.Claim)
		return true
	})
	if len(back) > 0 {
		t.q.giveBack(back, nil, nil, false)
	}
	return stay
}

// PassOn lets other writers search for the agents of which there is more than this transaction dispatches, while it is
// being saved: a backlog is worked off by one search after the other, and to save one takes as long as to make it.
func (t *Transaction) ReleaseSearches() {
	if !speed.Pass.On() {
		return
	}
	var agents []string
	for _, s := range t.searches {
		if s.searchClaim != nil && s.tookAllFound && !s.limitReached && !s.blocked {
			s.searchClaim.ownsSearch = false
			t.b.Tx().Pass(s.agent)
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
	blockedPause = 20 * time.Millisecond // other transactions have locked its candidates, and are over soon
	blockedLong  = time.Second           // or they are not: then the supervisor's search is often enough

	noRoomPause = 100 * time.Millisecond // its server had no room for the answer
	failedPause = 500 * time.Millisecond
)

// Outcome is how the transaction ended, for End.
type Outcome struct {
	Err   error    // why it failed, as the callers see it
	Woken []string // agents for which it has made steps ready, and not dispatched them
	Freed bool     // runs have ended or jobs have settled: there may be room under limits
}

// End answers the claims, hands those that were set aside to the repeaters, and puts claims that were granted nothing
// and may wait back into the queue.
func (t *Transaction) End(o Outcome) {
	var back []*Claim
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
		case g.Request.Wait > 0:
			back = append(back, g.Claim)
		default:
			g.Answer(nil, g.failed)
		}
	}
	if o.Err != nil {
		t.q.pauseHeld(agents)
		t.q.giveBack(back, nil, nil, false)
		t.q.WakeLater(agents, failedPause) // also of claims that do not wait: other searches may have begun behind their runs
	} else {
		t.q.cacheLimits(t.searches, t.b.Began())
		t.q.giveBack(back, t.searches, o.Woken, o.Freed)
		if unpaid := t.overBudgetAgents(); len(unpaid) > 0 {
			t.q.Wake(unpaid)
		}
		t.q.WakeLater(crowded, noRoomPause)
		t.q.WakeLater(t.q.recordBlocked(t.searches), blockedPause)
	}
	t.q.releaseSearches(t.searchedAgents)
}

func (t *Transaction) overBudgetAgents() (agents []string) {
	for _, s := range t.searches {
		if s.overBudget {
			agents = append(agents, s.agent)
		}
	}
	return agents
}

// failed makes a pause before the claims of these agents are taken for what is held.
func (q *Queue) pauseHeld(agents []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range agents {
		q.agent(name).pausedUntil = q.env.Now().Add(failedPause)
	}
}

// Hint spreads what a transaction may have done whose commit has an unknown outcome.
func (q *Queue) WakeAfterIndeterminate(woken []string, freed bool) {
	q.giveBack(nil, nil, woken, freed)
}

// blocked are the agents to search for again soon: other transactions have locked what they could have, and have not
// done so for long.
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
