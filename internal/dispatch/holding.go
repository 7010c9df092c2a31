package dispatch

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
	"github.com/perdure/perdure/protocol"
)

// A job that is dispatched by the transaction that stores it costs less than one that goes through the store's queue. So
// submissions for an agent that claims often are held until a transaction has claims that take their first steps, if that is soon:
// their callers wait, and what they wait for is done earlier. If the agent keeps up, only those are held that come in sets.
// If it claims rarely, or for few runs, or does not take what is held, nothing is held for it.
const (
	HoldMinRuns  = 100                    // first runs of one caller's submissions from which on these may be held
	HoldMinPace  = 1000                   // for how many runs an agent asks in holdTime, at least, if anything is held for it
	holdShare    = 10                     // one of so many steps of a job, at least, is a first one
	holdTime     = 250 * time.Millisecond // how long a submission is held
	roomWait     = 30 * time.Millisecond  // how long a job waits for room for all of its first runs while claims have nothing else
	maxHoldTime  = time.Second            // how long a submission is held while others that are held for the agent are taken
	recentClaim  = 250 * time.Millisecond // how long ago the agent's latest claim may be
	maxHoldPause = 5 * time.Second        // how long nothing is held for an agent that did not claim in time, at most
	maxHoldings  = 1000                   // agents for which anything is held
)

// holding is the submissions that are held for one agent, and how often it claims.
type holding struct {
	held     []*Request // in the order in which they came
	runs     int        // first runs of these
	takenAt  time.Time  // when a transaction took some
	timerSet bool       // a timer runs that reviews them

	lastClaim   time.Time     // when the latest claim came, or was last seen to wait
	pausedUntil time.Time     // nothing is held until then
	pauseTime   time.Duration // how long that is

	countedFrom                time.Time // since when runs are counted
	runsAsked, runsAskedBefore int       // runs that claims asked for since then, and in the period before

	maxRoom, maxRoomBefore int // the most room that a transaction had for what is held since countedFrom, and in the period before
}

// claim counts a claim.
func (h *holding) countClaim(c *protocol.Claim, now time.Time) {
	h.lastClaim = now
	if period := now.Sub(h.countedFrom); period >= holdTime {
		h.runsAskedBefore, h.runsAsked, h.countedFrom = h.runsAsked, 0, now
		h.maxRoomBefore, h.maxRoom = h.maxRoom, 0
		if period >= 2*holdTime {
			h.runsAskedBefore, h.maxRoomBefore = 0, 0
		}
	}
	h.runsAsked += c.Max
}

// over reports whether a submission has been held for as long as it may be. inVain says that nothing was taken for holdTime.
func (h *holding) isOver(r *Request, now time.Time) (over, inVain bool) {
	held := now.Sub(r.since)
	inVain = held >= holdTime && now.Sub(h.takenAt) >= holdTime
	return inVain || held >= maxHoldTime || now.Sub(h.lastClaim) > recentClaim, inVain
}

// waits reports whether claims with room for so many runs leave the first job that is held to others: those that have room for all of
// its first runs, as a transaction has lately had.
func (h *holding) waitsForRoom(room int, now time.Time) bool {
	if len(h.held) == 0 {
		return false
	}
	first := h.held[0]
	since := first.since
	if h.takenAt.After(since) {
		since = h.takenAt
	}
	return room < first.Runs && max(h.maxRoom, h.maxRoomBefore) >= first.Runs && now.Sub(since) < roomWait
}

// giveUp holds nothing for a while, and for longer each time, unless the last time is long ago. A moment without claims
// costs no more than such a moment.
func (h *holding) pause(now time.Time) {
	if h.pauseTime = min(2*h.pauseTime, maxHoldPause); now.Sub(h.pausedUntil) >= maxHoldPause {
		h.pauseTime = holdTime
	}
	h.pausedUntil = now.Add(h.pauseTime)
}

// most is how many runs may be held: none for an agent that asked for fewer than pace, else as many as it asks for in holdMost.
func (h *holding) maxRuns(pace int) int {
	asked := max(h.runsAsked, h.runsAskedBefore)
	if asked < pace {
		return 0
	}
	return int(maxHoldTime/holdTime) * asked
}

// claimed counts a claim of an agent.
func (q *Queue) countClaim(c *protocol.Claim) {
	a := q.agent(c.Agent)
	if a.holding == nil {
		if q.holdings >= maxHoldings {
			return
		}
		a.holding = &holding{}
		q.holdings++
	}
	a.holding.countClaim(c, q.env.Now())
}

// hold keeps a submission back, if that is of use.
func (q *Queue) hold(r *Request, now time.Time) bool {
	a := q.agents[r.Agent]
	if !speed.Hold.On() || r.Agent == "" || a == nil || a.holding == nil || a.lastResult == limitFull || r.SmallSet && a.lastResult != moreReady {
		return false
	}
	h := a.holding
	h.noteWaitingClaims(a, now)
	if now.Sub(h.lastClaim) > recentClaim || now.Before(h.pausedUntil) || h.runs >= h.maxRuns(q.holdPace) {
		return false
	}
	if len(h.held) == 0 {
		q.holdingAgents = append(q.holdingAgents, a)
	}
	h.held = append(h.held, r)
	h.runs += r.Runs
	q.held++
	if !h.timerSet {
		q.scheduleReview(a)
	}
	return true
}

// see notes claims that wait: such a one is as good as one that comes now.
func (h *holding) noteWaitingClaims(a *agentQueue, now time.Time) {
	if len(a.waiting) > 0 {
		h.lastClaim = now
	}
}

// TakeHeld hands over what is held for the agents of a transaction's claims, as far as these have room beside the steps that it has
// made ready: so many of each agent. It carries so many requests, of so much weight. A job is taken only if all of its first steps have
// room: those without would go through the store. But if claims would be left with nothing, they take a part of the first job, unless
// that waits for more room.
func (q *Queue) TakeHeld(claims []*Claim, ready map[string][]kernel.StepRef, requests, weight int) (more []*Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held == 0 {
		return nil
	}
	rooms := map[string]int{}
	for _, c := range claims {
		if c.mode != repeatOnly && c.mayGetNewRuns() {
			rooms[c.Request.Agent] += c.Request.Max
		}
	}
	p := &selection{room: MaxRequests - requests, weight: MaxWeight - weight}
	for _, a := range slices.Clone(q.holdingAgents) {
		room := rooms[a.name] - len(ready[a.name])
		if a.lastResult != nothingReady {
			room = youngerShare(room)
		}
		h, n, idle := a.holding, 0, a.lastResult == nothingReady && len(ready[a.name]) == 0
		h.maxRoom = max(h.maxRoom, room)
		part := idle && !h.waitsForRoom(room, q.env.Now())
		for ; n < len(h.held) && room > 0 && (h.held[n].Runs <= room || part && n == 0) && p.fits(h.held[n], 0, 0); n++ {
			p.add(h.held[n])
			room -= h.held[n].Runs
			h.takenAt = q.env.Now()
		}
		q.removeHeld(a, n)
	}
	q.admitEntrants()
	return p.requests
}

// unhold forgets the first n that are held for an agent.
func (q *Queue) removeHeld(a *agentQueue, n int) {
	h := a.holding
	for i, r := range h.held[:n] {
		h.runs -= r.Runs
		h.held[i] = nil
	}
	q.held -= n
	if h.held = h.held[n:]; n > 0 && len(h.held) == 0 {
		h.held = nil
		q.holdingAgents = slices.DeleteFunc(q.holdingAgents, func(other *agentQueue) bool { return other == a })
	}
}

// review lets go of what has been held for long enough, or for a claim that does not come: it is stored. And writers look again
// whether the first job that is held has waited for long enough for more room.
func (q *Queue) review(a *agentQueue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h, now, n, vain := a.holding, q.env.Now(), 0, false
	h.noteWaitingClaims(a, now)
	for n < len(h.held) {
		over, inVain := h.isOver(h.held[n], now)
		if !over {
			break
		}
		vain = vain || inVain
		n++
	}
	if vain {
		h.pause(now)
	}
	q.releaseHeld(a, n)
	if h.timerSet = false; len(h.held) > 0 {
		q.scheduleReview(a)
	}
}

// letGo moves the first n that are held for an agent to the head of the queue. They are not held again.
func (q *Queue) releaseHeld(a *agentQueue, n int) {
	first := a.holding.held[:n]
	for _, r := range first {
		r.Agent, r.since = "", q.env.Now()
	}
	q.otherRequests = slices.Insert(q.otherRequests, 0, first...)
	q.removeHeld(a, n)
	q.signal()
}

func (q *Queue) scheduleReview(a *agentQueue) {
	a.holding.timerSet = true
	q.env.AfterFunc(holdTime/4, func() { q.review(a) })
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
