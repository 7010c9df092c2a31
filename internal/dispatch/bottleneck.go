package dispatch

import (
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

// Bottleneck says what the ready work of an agent waits for.
type Bottleneck struct {
	Agent  string
	Cause  Cause
	Limits []string      // the full limits, for ForLimit
	Queued int           // requests that wait to be stored, for ForStore
	Since  time.Duration // how long this has lasted
}

// Cause is the kind of a bottleneck.
type Cause string

// ForStore: transactions follow each other without a pause, so the store or this machine is at its limit. ForAgents: all
// slots of the agent's processes are busy. ForLimit: a limit has no room.
const (
	ForStore  Cause = "store"
	ForAgents Cause = "agents"
	ForLimit  Cause = "limit"
)

// If transactions are in progress for at least this share of the time, the store is the bottleneck.
const busyShare = 0.95

// usage measures the share of time in which transactions, including their commits, are in progress.
type usage struct {
	from        time.Time                 // start of the measurement
	active      map[int]activeTransaction // by transaction number
	activeSince time.Time                 // since when at least one is in progress; zero if none is
	busy        time.Duration             // time with transactions in progress, before activeSince
}

// activeTransaction is a transaction whose outcome is not known yet.
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

// lateRequests returns the number of requests in transactions whose oldest request has waited for longer than lateAfter.
func (u *usage) lateRequests(now time.Time) (requests int) {
	for _, t := range u.active {
		if now.Sub(t.since) > lateAfter {
			requests += t.requests
		}
	}
	return requests
}

// If a request has waited to be stored for longer than lateAfter, the store is a bottleneck.
const lateAfter = time.Second

// Finished records that the transaction with this number has ended, committed or not.
func (q *Queue) Finished(number int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.usage.end(number, q.env.Now())
}

// takeBusyShare returns the share of time since the previous call in which transactions were in progress.
func (u *usage) takeBusyShare(now time.Time) float64 {
	if !u.activeSince.IsZero() {
		u.busy += now.Sub(u.activeSince)
		u.activeSince = now
	}
	duration := now.Sub(u.from)
	share := float64(u.busy) / float64(max(duration, 1))
	u.from, u.busy = now, 0
	return share
}

// NothingReady records that the store has no ready steps of the agent.
func (q *Queue) NothingReady(agent string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a := q.agents[agent]; a != nil {
		a.backlogSince = time.Time{}
	}
}

// Bottlenecks returns what the work of agents waits for, as far as this node knows, sorted by agent: agents that may
// have a backlog, and agents that wait for a limit. If requests wait for long to be stored, that comes first, without an
// agent. The caller should call it every few seconds.
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
