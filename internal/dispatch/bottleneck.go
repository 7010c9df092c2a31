package dispatch

import (
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// Bottleneck is what work of an agent waits for.
type Bottleneck struct {
	Agent  string
	Cause  Cause
	Limits []string      // those that are full, for ForLimit
	Queued int           // requests that wait to be stored, for ForStore
	Since  time.Duration // for how long that has been so
}

// Cause is a kind of bottleneck.
type Cause string

// ForStore: transactions follow each other without a pause, so the store takes no more, or this machine. ForAgents: the slots of the
// agent's processes are busy. ForLimit: a limit has no room.
const (
	ForStore  Cause = "store"
	ForAgents Cause = "agents"
	ForLimit  Cause = "limit"
)

// busyShare is the part of the time in which transactions are under way, from which on the store is the bottleneck.
const busyShare = 0.95

// usage is how much of the time transactions were under way, their commits included.
type usage struct {
	from        time.Time                 // since when that is measured
	active      map[int]activeTransaction // transactions, by their numbers
	activeSince time.Time                 // since when there are some; zero: there are none
	busy        time.Duration             // before that
}

// inProgress is a transaction whose outcome is not known yet.
type activeTransaction struct {
	since    time.Time // when its oldest request was queued
	requests int
}

func (u *usage) begin(number int, now, oldest time.Time, requests int) {
	if u.active == nil {
		u.active = map[int]activeTransaction{}
	}
	if len(u.active) == 0 {
		u.activeSince = now
	}
	u.active[number] = activeTransaction{oldest, requests}
}

func (u *usage) end(number int, now time.Time) {
	if delete(u.active, number); len(u.active) == 0 && !u.activeSince.IsZero() {
		u.busy += now.Sub(u.activeSince)
		u.activeSince = time.Time{}
	}
}

// late counts the requests of transactions whose oldest one has waited for long.
func (u *usage) lateRequests(now time.Time) (requests int) {
	for _, t := range u.active {
		if now.Sub(t.since) > lateAfter {
			requests += t.requests
		}
	}
	return requests
}

// lateAfter is for how long a request waits to be stored until the store is called a bottleneck.
const lateAfter = time.Second

// Committed says that the transaction of this number, which Take has begun, is over, committed or not.
func (q *Queue) Finished(turn int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.usage.end(turn, q.env.Now())
}

// share is the part of the time since the latest call.
func (u *usage) takeBusyShare(now time.Time) float64 {
	if !u.activeSince.IsZero() {
		u.busy += now.Sub(u.activeSince)
		u.activeSince = now
	}
	took := now.Sub(u.from)
	share := float64(u.busy) / float64(max(took, 1))
	u.from, u.busy = now, 0
	return share
}

// NothingWaits says that the store has nothing ready for an agent that may have been behind.
func (q *Queue) NothingReady(agent string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a := q.agents[agent]; a != nil {
		a.backlogSince = time.Time{}
	}
}

// Bottlenecks says what the work of agents waits for that this node knows of, in the order of their names: those that may be behind,
// and those that wait for a limit. If requests wait to be stored, that comes first, with no agent. It is to be called every few seconds.
func (q *Queue) Bottlenecks() (all []Bottleneck) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.env.Now()
	saturated := q.usage.takeBusyShare(now) >= busyShare
	late := q.usage.lateRequests(now)
	if q.entrantRequests > 0 || len(q.otherRequests) > 0 && now.Sub(q.otherRequests[0].since) > lateAfter || late > 0 {
		if q.storeLateSince.IsZero() {
			q.storeLateSince = now
		}
		all = append(all, Bottleneck{Cause: ForStore, Queued: q.entrantRequests + len(q.otherRequests) + q.held + late, Since: now.Sub(q.storeLateSince)})
	} else {
		q.storeLateSince = time.Time{}
	}
	var agents []Bottleneck
	for _, a := range q.agents {
		b := Bottleneck{Agent: a.name}
		switch {
		case a.lastResult == nothingReady:
			a.backlogSince = time.Time{}
			continue
		case a.lastResult == limitFull:
			b.Cause, b.Limits = ForLimit, slices.Clone(a.fullLimits)
			if a.ownLimitFull {
				b.Limits = append(b.Limits, kernel.AgentLimit(a.name))
			}
			slices.Sort(b.Limits)
		case saturated:
			b.Cause = ForStore
		default:
			b.Cause = ForAgents
		}
		if a.backlogSince.IsZero() {
			a.backlogSince = now
		}
		b.Since = now.Sub(a.backlogSince)
		agents = append(agents, b)
	}
	slices.SortFunc(agents, func(x, y Bottleneck) int { return strings.Compare(x.Agent, y.Agent) })
	return append(all, agents...)
}
