package dispatch

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/speed"
	"github.com/perdure/perdure/protocol"
)

// Holding submissions.
//
// If a transaction stores a job and dispatches its first steps at once, this costs less than to store the job, to find
// its steps in the store later, and to dispatch them then. So a submission for an agent that claims often is held for up
// to holdTime, until a transaction has claims with room for its first steps. Its caller waits a little longer for the
// answer, but the job is done earlier.
//
// For example, an agent sends 50 claims a second, each for up to 100 runs, and a caller submits 1,000 jobs of one step.
// The jobs are held. The next transaction that brings a claim for 100 runs takes 100 of them from the list of held
// submissions, stores and dispatches them in one commit, and answers their submissions.
//
// If the agent keeps up with its work, only submissions in large sets are held (HoldMinRuns). Nothing is held for an
// agent that claims rarely or for few runs (HoldMinPace), or that does not claim what is held for it (pause).
const (
	HoldMinRuns  = 100                    // a caller's set of submissions is held if it has at least so many first runs
	HoldMinPace  = 1000                   // submissions are held for an agent only if it asks for at least so many runs in holdTime
	holdShare    = 10                     // a job is held only if at least one of so many of its steps is a first step
	holdTime     = 250 * time.Millisecond // how long a submission is held if no transaction takes held submissions of the agent
	roomWait     = 30 * time.Millisecond  // how long a held job waits for room for all of its first runs
	maxHoldTime  = time.Second            // how long a submission is held at most, while others of the agent are being taken
	recentClaim  = 250 * time.Millisecond // submissions are held only if the agent's latest claim is not older than this
	maxHoldPause = 5 * time.Second        // the longest time without holding for an agent that did not claim in time
	maxHoldings  = 1000                   // bound on agents for which submissions are held
)

// holding is the submissions that are held for one agent, and the pace of its claims.
type holding struct {
	held     []*Request // in order of arrival
	runs     int        // number of their first runs
	takenAt  time.Time  // when a transaction last took some
	timerSet bool       // a timer is set that calls review

	lastClaim   time.Time     // when the latest claim arrived, or was last seen waiting
	pausedUntil time.Time     // until then, nothing is held
	pauseTime   time.Duration // length of the latest pause

	countedFrom                time.Time // start of the current counting period
	runsAsked, runsAskedBefore int       // runs that claims asked for, in this period and in the one before

	maxRoom, maxRoomBefore int // the most room for held submissions that a transaction had, in this period and in the one before
}

// countClaim counts the runs that a claim asks for.
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

// isOver reports whether a submission has been held for as long as it may be. inVain is true if no transaction has taken
// held submissions of this agent for holdTime.
func (h *holding) isOver(r *Request, now time.Time) (over, inVain bool) {
	duration := now.Sub(r.since)
	inVain = duration >= holdTime && now.Sub(h.takenAt) >= holdTime
	return inVain || duration >= maxHoldTime || now.Sub(h.lastClaim) > recentClaim, inVain
}

// waitsForRoom reports whether the first held job should wait for a transaction with more room. This is so if the
// present claims have no room for all of its first runs, another transaction had so much room lately, and the job has
// not waited for roomWait yet. The steps that do not fit would go through the store.
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

// pause stops holding for a while. Each pause is twice as long as the one before, unless that was long ago. So a short
// gap between claims costs only a short pause.
func (h *holding) pause(now time.Time) {
	if h.pauseTime = min(2*h.pauseTime, maxHoldPause); now.Sub(h.pausedUntil) >= maxHoldPause {
		h.pauseTime = holdTime
	}
	h.pausedUntil = now.Add(h.pauseTime)
}

// maxRuns returns how many first runs may be held: as many as the agent asks for in maxHoldTime, or none if it asks for
// fewer than pace in holdTime.
func (h *holding) maxRuns(pace int) int {
	requested := max(h.runsAsked, h.runsAskedBefore)
	if requested < pace {
		return 0
	}
	return int(maxHoldTime/holdTime) * requested
}

// countClaim counts a claim for the pace of its agent.
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

// hold holds a submission if that is worth it, and returns whether it did.
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

// noteWaitingClaims treats a waiting claim like one that arrives now.
func (h *holding) noteWaitingClaims(a *agentQueue, now time.Time) {
	if len(a.waiting) > 0 {
		h.lastClaim = now
	}
}

// TakeHeld returns held submissions for which the claims of a transaction have room. ready are the steps that the
// transaction has made ready, by agent: they use up room first. requests and weight are what the transaction carries
// already. A job is taken only if all of its first steps have room, because the others would go through the store. There
// is one exception: if the claims would otherwise get nothing, they take a part of the first job, unless that job waits
// for more room.
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

// removeHeld removes the first n submissions that are held for an agent.
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

// review stores submissions that have been held for long enough, or whose claim does not come. It also wakes writers,
// which check whether the first held job still waits for more room.
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

// releaseHeld moves the first n submissions that are held for an agent to the head of the queue. They are not held
// again.
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

// FirstRuns returns the agent of a job's first step, and how many first steps of the job name this agent. It returns 0
// runs if the job is not to be held.
func FirstRuns(p *kernel.Plan) (agent string, runs int) {
	if d := p.Definition; d.StartIn > 0 || !d.StartAt.IsZero() {
		return "", 0
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if len(s.After) > 0 || s.Form != kernel.ByAgent {
			continue
		}
		if s.Demand(perdure.Do) != "" { // few claims can take it
			return "", 0
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
