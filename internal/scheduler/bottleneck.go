package scheduler

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/dispatch"
)

// Bottleneck is what work waits for.
type Bottleneck = dispatch.Bottleneck

// The causes of a bottleneck.
const (
	ForStore  = dispatch.ForStore
	ForAgents = dispatch.ForAgents
	ForLimit  = dispatch.ForLimit
)

// Bottlenecks says what work waits for, as far as this node knows. It is to be called every few seconds. Of agents that may be
// behind it asks the store whether anything is ready for them.
func (s *Scheduler) Bottlenecks(ctx context.Context) []Bottleneck {
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
	look, err := s.cfg.Store.Look(ctx, agents)
	nothing := func(b Bottleneck) bool { return b.Agent != "" && (err != nil || !slices.Contains(look.Ready, b.Agent)) }
	for i := range all {
		if err == nil && nothing(all[i]) {
			s.queue.NothingWaits(all[i].Agent)
		}
	}
	return slices.DeleteFunc(all, nothing)
}
