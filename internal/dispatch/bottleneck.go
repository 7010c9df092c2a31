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
	from     time.Time          // since when that is measured
	underWay map[int]inProgress // transactions, by their numbers
	since    time.Time          // since when there are some; zero: there are none
	busy     time.Duration      // before that
}

// inProgress is a transaction whose outcome is not known yet.
type inProgress struct {
	since    time.Time // when its oldest request was queued
	requests int
}

func (u *usage) begin(number int, now, oldest time.Time, requests int) {
	if u.underWay == nil {
		u.underWay = map[int]inProgress{}
	}
	if len(u.underWay) == 0 {
		u.since = now
	}
	u.underWay[number] = inProgress{oldest, requests}
}

func (u *usage) end(number int, now time.Time) {
	if delete(u.underWay, number); len(u.underWay) == 0 && !u.since.IsZero() {
		u.busy += now.Sub(u.since)
		u.since = time.Time{}
	}
}

// late counts the requests of transactions whose oldest one has waited for long.
func (u *usage) late(now time.Time) (requests int) {
	for _, t := range u.underWay {
		if now.Sub(t.since) > lateAfter {
			requests += t.requests
		}
	}
	return requests
}

// lateAfter is for how long a request waits to be stored until the store is called a bottleneck.
const lateAfter = time.Second

// Committed says that the transaction of this number, which Take has begun, is over, committed or not.
func (q *Queue) Committed(turn int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.usage.end(turn, q.env.Now())
}

// share is the part of the time since the latest call.
func (u *usage) share(now time.Time) float64 {
	if !u.since.IsZero() {
		u.busy += now.Sub(u.since)
		u.since = now
	}
	took := now.Sub(u.from)
	share := float64(u.busy) / float64(max(took, 1))
	u.from, u.busy = now, 0
	return share
}

// NothingWaits says that the store has nothing ready for an agent that may have been behind.
func (q *Queue) NothingWaits(agent string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a := q.agents[agent]; a != nil {
		a.hindered = time.Time{}
	}
}

// Bottlenecks says what the work of agents waits for that this node knows of, in the order of their names: those that may be behind,
// and those that wait for a limit. If requests wait to be stored, that comes first, with no agent. It is to be called every few seconds.
func (q *Queue) Bottlenecks() (all []Bottleneck) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.env.Now()
	saturated := q.usage.share(now) >= busyShare
	late := q.usage.late(now)
	if q.entering > 0 || len(q.others) > 0 && now.Sub(q.others[0].since) > lateAfter || late > 0 {
		if q.storedLate.IsZero() {
			q.storedLate = now
		}
		all = append(all, Bottleneck{Cause: ForStore, Queued: q.entering + len(q.others) + q.held + late, Since: now.Sub(q.storedLate)})
	} else {
		q.storedLate = time.Time{}
	}
	var agents []Bottleneck
	for _, a := range q.agents {
		b := Bottleneck{Agent: a.name}
		switch {
		case a.left == nothing:
			a.hindered = time.Time{}
			continue
		case a.left == forLimit:
			b.Cause, b.Limits = ForLimit, slices.Clone(a.full)
			if a.ownFull {
				b.Limits = append(b.Limits, kernel.AgentLimit(a.name))
			}
			slices.Sort(b.Limits)
		case saturated:
			b.Cause = ForStore
		default:
			b.Cause = ForAgents
		}
		if a.hindered.IsZero() {
			a.hindered = now
		}
		b.Since = now.Sub(a.hindered)
		agents = append(agents, b)
	}
	slices.SortFunc(agents, func(x, y Bottleneck) int { return strings.Compare(x.Agent, y.Agent) })
	return append(all, agents...)
}
