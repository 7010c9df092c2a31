package scheduler

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
)

// health keeps how the latest runs of each holder have ended at this node. It is in memory only: after a restart, all
// holders have their full weight until enough of their runs have ended.
type health struct {
	env    env.Env
	mu     sync.Mutex
	agents map[string]*agentHealth
	size   int // number of holders
}

// maxHealthHolders bounds how many holders are remembered, of about 1.3 KiB each.
const maxHealthHolders = 10_000

// normFor is for how long the norm of an agent is used before it is computed again.
const normFor = time.Second

type agentHealth struct {
	holders map[string]*holderHealth
	norm    kernel.Norm
	normAt  time.Time
}

type holderHealth struct {
	ends      []runEnd // a ring once it has kernel.HealthRuns entries
	next      int      // the oldest entry of the ring
	latest    time.Time
	slowed    bool      // a claim of it is in progress, for fewer runs than it asks for because its weight is low
	grantedAt time.Time // when such a claim got runs last
}

// runEnd is the end of a run.
type runEnd struct {
	at      uint32  // in seconds since 1970
	seconds float32 // its duration
	done    bool
}

func newHealth(e env.Env) *health { return &health{env: e, agents: map[string]*agentHealth{}} }

// counts reports whether a run that ended so says something about its holder. One that was returned or cancelled does not.
func counts(o perdure.Outcome) bool {
	return o == perdure.OutcomeDone || o == perdure.OutcomeFailed || o == perdure.OutcomeRejected || o == perdure.OutcomeExpired
}

// note notes the ends of runs.
func (h *health) note(r *kernel.RunEnd) {
	if r.Holder == "" || !counts(r.Outcome) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.env.Now()
	a := h.agents[r.Agent]
	if a == nil {
		a = &agentHealth{holders: map[string]*holderHealth{}}
		h.agents[r.Agent] = a
	}
	one := a.holders[r.Holder]
	if one == nil {
		if h.size >= maxHealthHolders {
			h.forget(now)
		}
		if h.size >= maxHealthHolders {
			return
		}
		one = &holderHealth{}
		a.holders[r.Holder] = one
		h.size++
	}
	one.latest = now
	end := runEnd{at: uint32(now.Unix()), seconds: float32(r.Duration.Seconds()), done: r.Outcome == perdure.OutcomeDone}
	if len(one.ends) < kernel.HealthRuns {
		one.ends = append(one.ends, end)
		return
	}
	one.ends[one.next] = end
	one.next = (one.next + 1) % kernel.HealthRuns
}

// forget removes the holders whose runs have all ended too long ago to count.
func (h *health) forget(now time.Time) {
	for agent, a := range h.agents {
		for holder, one := range a.holders {
			if now.Sub(one.latest) > kernel.HealthTime {
				delete(a.holders, holder)
				h.size--
			}
		}
		if len(a.holders) == 0 {
			delete(h.agents, agent)
		}
	}
}

func (one *holderHealth) window(now time.Time) (w kernel.Window) {
	var seconds float64
	for _, end := range one.ends {
		if now.Unix()-int64(end.at) > int64(kernel.HealthTime/time.Second) {
			continue
		}
		w.Runs++
		if seconds += float64(end.seconds); end.done {
			w.Done++
		}
	}
	w.Took = time.Duration(seconds * float64(time.Second))
	return w
}

// normOf returns the norm of an agent's holders.
func (a *agentHealth) normOf(now time.Time) kernel.Norm {
	if a.normAt.IsZero() || now.Sub(a.normAt) > normFor {
		windows := make([]kernel.Window, 0, len(a.holders))
		for _, one := range a.holders {
			windows = append(windows, one.window(now))
		}
		a.norm, a.normAt = kernel.NormOf(windows), now
	}
	return a.norm
}

// mostRuns returns how many runs a claim of a holder gets at most. wait is the time after which it may get one, if most is 0.
// slowed is true if the weight of the holder is low, and the claim may have runs: then its end must be noted (slowedEnded),
// and until then no other claim of the holder gets any.
func (h *health) mostRuns(agent, holder string, max int) (most int, wait time.Duration, slowed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.agents[agent]
	if a == nil || a.holders[holder] == nil {
		return max, 0, false
	}
	now, one := h.env.Now(), a.holders[holder]
	norm := a.normOf(now)
	weight := norm.Weight(one.window(now))
	if weight < 1 && one.slowed {
		return 0, allowEvery, false
	}
	most, wait = norm.MostRuns(weight, max, now.Sub(one.grantedAt))
	one.slowed = one.slowed || weight < 1 && most > 0
	return most, wait, weight < 1 && most > 0
}

// slowedEnded notes the end of a claim for which mostRuns has returned slowed.
func (h *health) slowedEnded(agent, holder string, granted int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.agents[agent]; a != nil && a.holders[holder] != nil {
		one := a.holders[holder]
		if one.slowed = false; granted > 0 {
			one.grantedAt = h.env.Now()
		}
	}
}

// Health returns the health of the holders of an agent at this node: those of low weight first, at most perdure.MaxHealth.
func (s *Scheduler) Health(agent string) (all []perdure.HolderHealth) {
	h := s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	a, now := h.agents[agent], h.env.Now()
	if a == nil {
		return nil
	}
	norm := a.normOf(now)
	for holder, one := range a.holders {
		if w := one.window(now); w.Runs > 0 {
			all = append(all, perdure.HolderHealth{Holder: holder, Runs: w.Runs, Done: w.Done, MeanDuration: perdure.Duration(w.Mean().Round(time.Microsecond)), Weight: norm.Weight(w)})
		}
	}
	slices.SortFunc(all, func(a, b perdure.HolderHealth) int {
		return cmp.Or(cmp.Compare(a.Weight, b.Weight), cmp.Compare(a.Holder, b.Holder))
	})
	return all[:min(len(all), perdure.MaxHealth)]
}
