package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// A job that is let out where it is stored costs two thirds of one that goes through the store's queue. So
// submissions that come in sets (of jobs, or of steps beside each other in one), faster than an agent claims, are held
// until it claims again, if that is soon: their callers wait, and what they wait for is done earlier. Where an agent
// claims rarely or little, or cannot keep up at all, nothing is held: what is stored for want of room is claimed before
// what is held.
const (
	holdSet    = 100                    // Config.HoldFrom, unless told otherwise
	holdShare  = 10                     // one of so many steps of a job, at least, is a first one
	holdTime   = 250 * time.Millisecond // for how long as a rule
	holdMost   = time.Second            // and for how long while others are let in that are held for the same agent
	holdPace   = 1000                   // Config.HoldPace, unless told otherwise
	holdLately = 250 * time.Millisecond // how long ago the agent's latest claim may be
	holdVain   = 5 * time.Second        // how long nothing is held, at most, for an agent that did not take it in time
	maxPaces   = 1000                   // agents for which anything is held
)

// pace is how an agent's claims come, and what is held for it.
type pace struct {
	claimed time.Time     // when the latest came, or was last seen to wait
	vain    time.Time     // nothing is held until then
	pause   time.Duration // how long that is
	held    []*request    // in the order in which they were held first
	runs    int           // that these begin with
	atHead  int           // and those that were let in, and stand at the head of the queue
	letInAt time.Time     // when claims had room for some of them
	timed   bool          // a timer runs for them

	counted       time.Time // since when it is counted
	asked, before int       // for how many runs claims have asked since, and in the time before

	seen   int       // on the queue's clock: the latest look
	seenAt time.Time // when it was over
	next   time.Time // when there is one for those that need not look at once
}

// lookPause is how long ago a look may be for a claim that comes now not to look at once, but so much later: as
// far as is known nothing has become ready since, and what does is told to those who wait. An agent that asks anew
// after each run would else be looked for after each run. What is not known (another node's hint that was lost)
// waits for no longer than this.
const lookPause = 20 * time.Millisecond

// saw notes that an agent was looked for.
func (q *queue) saw(agent string, began int) {
	if p := q.paces[agent]; p != nil {
		p.seen, p.seenAt = began, q.env.Now()
	}
}

// lookedLately says that an agent was looked for just now, and that nothing is known to have become ready since.
func (q *queue) lookedLately(agent string) bool {
	p := q.paces[agent]
	return p != nil && max(q.all, q.news[agent]) <= p.seen && q.env.Now().Sub(p.seenAt) <= lookPause
}

// mayLookLater says whether a claim need not look at once, and then sees to it that it does soon.
func (q *queue) mayLookLater(w *waiter) bool {
	agent := w.req.Agent
	p := q.paces[agent]
	if w.again || w.req.Wait < 2*lookPause || q.behind[agent] || q.limited[agent] || q.hot[agent] || !q.lookedLately(agent) {
		return false
	}
	w.looked = p.seen
	if now := q.env.Now(); !now.Before(p.next) {
		p.next = now.Add(lookPause)
		q.env.AfterFunc(lookPause, func() { q.wakeAgents([]string{agent}) })
	}
	return true
}

// claimed notes that a claim has come, and lets in what it has room for.
func (q *queue) claimed(c *protocol.Claim) {
	p := q.paces[c.Agent]
	if p == nil {
		if len(q.paces) >= maxPaces {
			return
		}
		p = &pace{}
		q.paces[c.Agent] = p
	}
	p.claimed = q.env.Now()
	if took := p.claimed.Sub(p.counted); took >= holdTime {
		p.before, p.asked, p.counted = p.asked, 0, p.claimed
		if took >= 2*holdTime {
			p.before = 0
		}
	}
	p.asked += c.Max
	q.letIn(c.Agent)
}

// standsBy notes that claims of an agent wait: they are as good as one that comes now.
func (q *queue) standsBy(agent string, now time.Time) {
	if p := q.paces[agent]; p != nil && len(q.waiting[agent]) > 0 {
		p.claimed = now
	}
}

// room is how many runs the waiting claims of an agent would take of what a transaction makes ready.
func (q *queue) room(agent string) (room int) {
	if q.behind[agent] || q.limited[agent] {
		return 0
	}
	for _, w := range q.waiting[agent] {
		room += w.req.Max
	}
	return room
}

// hold keeps a submission back that no waiting claim has room for, if that is of use.
func (q *queue) hold(r *request, now time.Time) bool {
	p := q.paces[r.agent]
	if p == nil || q.limited[r.agent] || now.Sub(p.claimed) > holdLately || now.Before(p.vain) {
		return false
	}
	switch {
	case r.nth == 0 && p.runs >= p.most(q.holdPace):
		return false
	case r.nth == 0:
		q.nth++
		r.since, r.nth = now, q.nth
	case p.inVain(r, now):
		p.giveUp(now)
		return false
	}
	at, _ := slices.BinarySearchFunc(p.held, r, func(a, b *request) int { return cmp.Compare(a.nth, b.nth) })
	p.held = slices.Insert(p.held, at, r)
	p.runs += r.runs
	q.held++
	if !p.timed {
		q.reviewLater(p)
	}
	return true
}

// inVain says whether a submission has been held for as long as it may be.
func (p *pace) inVain(r *request, now time.Time) bool {
	held := now.Sub(r.since)
	return held >= holdMost || held >= holdTime && now.Sub(p.letInAt) >= holdTime
}

// giveUp holds nothing for a while: for longer each time, unless the last time is long ago. A moment in which nobody
// claims is to cost no more than such a moment.
func (p *pace) giveUp(now time.Time) {
	if p.pause = min(2*p.pause, holdVain); now.Sub(p.vain) >= holdVain {
		p.pause = holdTime
	}
	p.vain = now.Add(p.pause)
}

// most is how many runs may be held: none for an agent that asked for few when it did last, else as many as it asks for
// in holdMost.
func (p *pace) most(least int) int {
	asked := max(p.asked, p.before)
	if asked < least {
		return 0
	}
	return int(holdMost/holdTime) * asked
}

// letIn lets in what is held for an agent, as far as the waiting claims have room beside those that were let in before.
func (q *queue) letIn(agent string) {
	if p := q.paces[agent]; p != nil && len(p.held) > 0 {
		n := 0
		for room := q.room(agent) - p.atHead; n < len(p.held) && room > 0; n++ {
			room -= p.held[n].runs
		}
		if n > 0 {
			p.letInAt = q.env.Now()
			q.front(p, n)
		}
	}
}

// front puts the first n that are held back to the head of the queue, behind those that were put there before.
func (q *queue) front(p *pace, n int) {
	if n == 0 {
		return
	}
	q.requests = slices.Insert(q.requests, q.first, p.held[:n]...)
	for _, r := range p.held[:n] {
		p.atHead += r.runs
		p.runs -= r.runs
	}
	q.first += n
	if p.held = p.held[n:]; len(p.held) == 0 {
		p.held = nil
	}
	q.held -= n
	q.wake.Signal()
}

// review lets in what has been held for long enough, or for a claim that does not come.
func (q *queue) review(p *pace) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.env.Now()
	n := 0
	for n < len(p.held) && (p.inVain(p.held[n], now) || now.Sub(p.claimed) > holdLately) {
		n++
	}
	q.front(p, n)
	if p.timed = false; len(p.held) > 0 {
		q.reviewLater(p)
	}
}

func (q *queue) reviewLater(p *pace) {
	p.timed = true
	q.env.AfterFunc(holdTime/4, func() { q.review(p) })
}

// firstRuns are those of a job's first steps that one agent's claims let out, the agent of the first of them; none
// where the job is not to be held.
func firstRuns(p *kernel.Plan) (agent string, runs int) {
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
