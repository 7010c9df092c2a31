package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/kernel"
)

// Bottleneck says what ready work waits for.
type Bottleneck = dispatch.Bottleneck

// The causes of a bottleneck.
const (
	ForStore  = dispatch.ForStore
	ForAgents = dispatch.ForAgents
	ForLimit  = dispatch.ForLimit
)

// Bottlenecks returns what the ready work of agents waits for, as far as this node knows. For agents that may have a
// backlog, it asks the store whether steps are ready. It also returns agents with ready steps for which no process
// claims, on any node. The caller should call it every few seconds.
func (s *Scheduler) Bottlenecks(ctx context.Context) []Bottleneck {
	all := s.queueBottlenecks(ctx)
	for _, b := range s.unclaimed.find(ctx, s) {
		if !slices.ContainsFunc(all, func(other Bottleneck) bool { return other.Agent == b.Agent }) {
			all = append(all, b)
		}
	}
	return all
}

func (s *Scheduler) queueBottlenecks(ctx context.Context) []Bottleneck {
	all := s.queue.Bottlenecks()
	var agents []string
	for i := range all {
		if all[i].Agent != "" {
			agents = append(agents, all[i].Agent)
		}
	}
	if len(agents) == 0 {
		return all
	}
	poll, err := s.cfg.Store.Poll(ctx, agents)
	notReady := func(b Bottleneck) bool { return b.Agent != "" && (err != nil || !slices.Contains(poll.Ready, b.Agent)) }
	for i := range all {
		if err == nil && notReady(all[i]) {
			s.queue.NothingReady(all[i].Agent)
		}
	}
	return slices.DeleteFunc(all, notReady)
}

const (
	unclaimedEvery = 10 * time.Second
	unclaimedAfter = 30 * time.Second // an agent without a claim for this long has no process
	maxUnclaimed   = 100              // bound on agents that are checked
)

// unclaimed remembers the agents with ready steps for which no process claims. Only the goroutine that calls Bottlenecks
// uses it.
type unclaimed struct {
	readAt time.Time            // when the store was last read
	agents map[string]time.Time // and since when
}

func (u *unclaimed) find(ctx context.Context, s *Scheduler) (all []Bottleneck) {
	now := s.env.Now()
	if u.readAt.IsZero() || now.Sub(u.readAt) >= unclaimedEvery {
		found, err := u.read(ctx, s)
		if err != nil {
			return nil
		}
		agents := map[string]time.Time{}
		for _, agent := range found {
			agents[agent] = now
			if since, known := u.agents[agent]; known {
				agents[agent] = since
			}
		}
		u.readAt, u.agents = now, agents
	}
	for _, agent := range slices.Sorted(maps.Keys(u.agents)) {
		all = append(all, Bottleneck{Agent: agent, Cause: ForAgents, Since: now.Sub(u.agents[agent])})
	}
	return all
}

func (u *unclaimed) read(ctx context.Context, s *Scheduler) ([]string, error) {
	agents, err := s.cfg.Store.ReadyAgents(ctx, maxUnclaimed)
	if err != nil || len(agents) == 0 {
		return nil, err
	}
	seen, err := s.cfg.Store.LastClaims(ctx)
	if err != nil {
		return nil, err
	}
	now, err := s.cfg.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	seen = append(seen, s.AllSeen(now)...)
	return slices.DeleteFunc(agents, func(agent string) bool {
		return slices.ContainsFunc(seen, func(o kernel.LastClaim) bool { return o.Agent == agent && now.Sub(o.At) < unclaimedAfter })
	}), nil
}
