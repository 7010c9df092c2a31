package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// A job that is dispatched by the transaction that stores it costs two thirds of one that goes through the store's
// queue. So submissions that come in sets, faster than an agent claims, are held until the agent claims again, if that
// is soon: their callers wait, and what they wait for is done earlier. If an agent claims rarely, or for few runs, or
// cannot keep up, nothing is held: what is already stored is dispatched before what is held.
const (
	HoldFrom    = 100                    // first runs of one caller's submissions from which on these may be held
	HoldPace    = 1000                   // for how many runs an agent asks in holdTime, at least, if anything is held for it
	holdShare   = 10                     // one of so many steps of a job, at least, is a first one
	holdTime    = 250 * time.Millisecond // how long a submission is held
	holdMost    = time.Second            // the same, while others that are held for the agent are let in
	holdLately  = 250 * time.Millisecond // how long ago the agent's latest claim may be
	holdVain    = 5 * time.Second        // how long nothing is held for an agent that did not claim in time, at most
	maxHoldings = 1000                   // agents for which anything is held
)

// holding is the submissions that are held for one agent, and how often it claims.
type holding struct {
	held    []*Request // in the order in which they were held first
	runs    int        // first runs of these
	letIn   int        // first runs of submissions that were let in, and are at the head of the queue
	letInAt time.Time  // when claims had room for some
	timed   bool       // a timer runs that reviews them

	claimed time.Time     // when the latest claim came, or was last seen to wait
	vainTo  time.Time     // nothing is held until then
	vain    time.Duration // how long that is

	countedFrom   time.Time // since when runs are counted
	asked, before int       // runs that claims asked for since then, and in the period before
}

// claim counts a claim.
func (h *holding) claim(c *protocol.Claim, now time.Time) {
	h.claimed = now
	if period := now.Sub(h.countedFrom); period >= holdTime {
		h.before, h.asked, h.countedFrom = h.asked, 0, now
		if period >= 2*holdTime {
			h.before = 0
		}
	}
	h.asked += c.Max
}

// inVain reports whether a submission has been held for as long as it may be.
func (h *holding) inVain(r *Request, now time.Time) bool {
	held := now.Sub(r.heldSince)
	return held >= holdMost || held >= holdTime && now.Sub(h.letInAt) >= holdTime
}

// giveUp holds nothing for a while, and for longer each time, unless the last time is long ago. A moment without claims
// costs no more than such a moment.
func (h *holding) giveUp(now time.Time) {
	if h.vain = min(2*h.vain, holdVain); now.Sub(h.vainTo) >= holdVain {
		h.vain = holdTime
	}
	h.vainTo = now.Add(h.vain)
}

// most is how many runs may be held: none for an agent that asked for few, else as many as it asks for in holdMost.
func (h *holding) most(pace int) int {
	asked := max(h.asked, h.before)
	if asked < pace {
		return 0
	}
	return int(holdMost/holdTime) * asked
}

func (h *holding) insert(r *Request) {
	at, _ := slices.BinarySearchFunc(h.held, r, func(a, b *Request) int { return cmp.Compare(a.turn, b.turn) })
	h.held = slices.Insert(h.held, at, r)
	h.runs += r.Runs
}

// claimed counts a claim of an agent, and lets in what it has room for.
func (q *Queue) claimed(c *protocol.Claim) {
	a := q.agent(c.Agent)
	if a.holding == nil {
		if q.holdings >= maxHoldings {
			return
		}
		a.holding = &holding{}
		q.holdings++
	}
	a.holding.claim(c, q.env.Now())
	q.letIn(a)
}

// hold keeps a submission back for which no waiting claim has room, if that is of use.
func (q *Queue) hold(r *Request, now time.Time) bool {
	a := q.agents[r.Agent]
	if a == nil || a.holding == nil {
		return false
	}
	h := a.holding
	if a.left == forLimit || now.Sub(h.claimed) > holdLately || now.Before(h.vainTo) {
		return false
	}
	switch {
	case r.turn == 0 && h.runs >= h.most(q.holdPace):
		return false
	case r.turn == 0:
		q.heldEver++
		r.heldSince, r.turn = now, q.heldEver
	case h.inVain(r, now):
		h.giveUp(now)
		return false
	}
	h.insert(r)
	q.held++
	if !h.timed {
		q.reviewLater(h)
	}
	return true
}

// letIn lets in what is held for an agent, as far as the waiting claims have room beside what was let in before.
func (q *Queue) letIn(a *agentQueue) {
	h := a.holding
	if h == nil || len(h.held) == 0 {
		return
	}
	n := 0
	for room := a.room() - h.letIn; n < len(h.held) && room > 0; n++ {
		room -= h.held[n].Runs
	}
	if n > 0 {
		h.letInAt = q.env.Now()
		q.front(h, n)
	}
}

// front moves the first n that are held to the head of the queue, behind those that were let in before.
func (q *Queue) front(h *holding, n int) {
	if n == 0 {
		return
	}
	q.others = slices.Insert(q.others, q.first, h.held[:n]...)
	for _, r := range h.held[:n] {
		h.letIn += r.Runs
		h.runs -= r.Runs
	}
	q.first += n
	if h.held = h.held[n:]; len(h.held) == 0 {
		h.held = nil
	}
	q.held -= n
	q.signal()
}

// review lets in what has been held for long enough, or for a claim that does not come.
func (q *Queue) review(h *holding) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.env.Now()
	n := 0
	for n < len(h.held) && (h.inVain(h.held[n], now) || now.Sub(h.claimed) > holdLately) {
		n++
	}
	q.front(h, n)
	if h.timed = false; len(h.held) > 0 {
		q.reviewLater(h)
	}
}

func (q *Queue) reviewLater(h *holding) {
	h.timed = true
	q.env.AfterFunc(holdTime/4, func() { q.review(h) })
}

// FirstRuns are the first steps of a job that the claims of one agent dispatch, which is the agent of the first of them;
// none if the job is not to be held.
func FirstRuns(p *kernel.Plan) (agent string, runs int) {
	for i := range p.Steps {
		s := &p.Steps[i]
		if len(s.After) > 0 || s.Form != kernel.ByAgent {
			continue
		}
		if agent == "" {
			agent = s.Agent
		}
		if s.Agent == agent {
			runs++
		}
	}
	if len(p.Steps) > holdShare*runs {
		return "", 0
	}
	return agent, runs
}
