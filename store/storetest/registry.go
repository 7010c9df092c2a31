package storetest

import (
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var registryChecks = []check{
	{"Registry/NodesAreListed", nodes},
	{"Registry/LastClaimsAreListed", seen},
	{"Registry/ForgetDeletesOldRows", forget},
}

// attend calls ReportNode, with the time of the store.
func (s *suite) attend(p kernel.NodeReport) kernel.NodeAnswer {
	s.Helper()
	roll, err := s.store.ReportNode(ctx, p)
	s.must(err)
	return roll
}

func nodes(s *suite) {
	list := func(want ...kernel.Node) {
		s.Helper()
		got, err := s.store.Nodes(ctx)
		s.must(err)
		for i := range got {
			if i < len(want) {
				want[i].SeenAt = got[i].SeenAt
			}
		}
		s.equal("nodes", got, want)
	}
	list()
	one := kernel.Node{ID: "n1", Host: "h", PID: 77, Version: "v1", Listen: "127.0.0.1:7420", Agents: []string{"http", "shell"}, Slots: []int{16, 4}, Since: at(0)}
	two := kernel.Node{ID: "n2", Host: "h"}
	before, err := s.store.Now(ctx)
	s.must(err)
	s.attend(kernel.NodeReport{Node: two})
	roll := s.attend(kernel.NodeReport{Node: one})
	list(one, two)
	got, err := s.store.Nodes(ctx)
	s.must(err)
	for _, n := range got {
		if n.SeenAt.Before(before) || n.SeenAt.After(roll.Now.Add(time.Second)) {
			s.Errorf("seen at %v, between %v and %v", n.SeenAt, before, roll.Now)
		}
	}
	one.Agents, one.Slots, one.Listen = nil, nil, ""
	s.attend(kernel.NodeReport{Node: one})
	list(one, two)
	s.must(s.store.DropNode(ctx, "n1"))
	s.must(s.store.DropNode(ctx, "n9"))
	list(two)
}

func seen(s *suite) {
	list := func(want ...kernel.LastClaim) {
		s.Helper()
		got, err := s.store.LastClaims(ctx)
		s.must(err)
		s.equal("seen", got, want)
	}
	row := func(agent, holder string, after time.Duration) kernel.LastClaim {
		return kernel.LastClaim{Agent: agent, Holder: holder, At: at(after)}
	}
	put := func(seen ...kernel.LastClaim) {
		s.Helper()
		s.attend(kernel.NodeReport{Node: kernel.Node{ID: "n"}, Seen: seen})
	}
	list()
	put()
	put(row("shell", "b", 1), row("http", "b", time.Second), row("http", "a", 0))
	list(row("http", "a", 0), row("http", "b", time.Second), row("shell", "b", 0))
	put(row("http", "a", time.Minute))
	list(row("http", "a", time.Minute), row("http", "b", time.Second), row("shell", "b", 0))

	// Callers choose the names of holders, so only those that claimed last are listed, however many there are (F157).
	many := make([]kernel.LastClaim, perdure.MaxSeen)
	for i := range many {
		many[i] = row("many", fmt.Sprintf("%05d", i), time.Hour)
	}
	put(many...)
	list(many...)
}

// Nodes and holders that were not seen for more than a day are deleted on request.
func forget(s *suite) {
	now, err := s.store.Now(ctx)
	s.must(err)
	now = now.Truncate(time.Second)
	seen := func(holder string, ago time.Duration) kernel.LastClaim {
		return kernel.LastClaim{Agent: "a", Holder: holder, At: now.Add(-ago)}
	}
	old, recent := seen("old", 25*time.Hour), seen("young", 23*time.Hour)
	p := kernel.NodeReport{Node: kernel.Node{ID: "n"}, Seen: []kernel.LastClaim{old, recent}}
	s.attend(p)
	got, err := s.store.LastClaims(ctx)
	s.must(err)
	s.equal("without Forget", got, []kernel.LastClaim{old, recent})
	p.Seen, p.Forget = nil, true
	s.attend(p)
	got, err = s.store.LastClaims(ctx)
	s.must(err)
	s.equal("forgotten", got, []kernel.LastClaim{recent})
	if nodes, err := s.store.Nodes(ctx); err != nil || len(nodes) != 1 {
		s.Errorf("the calling node was deleted: %v, %v", nodes, err)
	}
}
