package scheduler

import "github.com/perdure/perdure/internal/dispatch"

// Bottleneck is what work waits for.
type Bottleneck = dispatch.Bottleneck

// The causes of a bottleneck.
const (
	ForStore  = dispatch.ForStore
	ForAgents = dispatch.ForAgents
	ForLimit  = dispatch.ForLimit
)

// Bottlenecks says what work waits for, as far as this node knows. It is to be called every second or so.
func (s *Scheduler) Bottlenecks() []Bottleneck { return s.queue.Bottlenecks() }
