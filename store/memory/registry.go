package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// forgetAfter is the age at which nodes and holders are deleted. Otherwise the registry would grow with every restart.
const forgetAfter = 24 * time.Hour

func (s *Store) ReportNode(ctx context.Context, p kernel.NodeReport) (kernel.NodeAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return kernel.NodeAnswer{}, err
	}
	now := s.clock.now()
	n := copyNode(p.Node)
	n.SeenAt = now
	s.nodes[n.ID] = n
	for _, seen := range p.Seen {
		s.seen[seenBy{seen.Agent, seen.Holder}] = storedTime(seen.At)
	}
	if p.Forget {
		s.forget(now.Add(-forgetAfter))
	}
	for name, r := range s.roles {
		s.roles[name] = renewPlaces(r, n.ID, now, p.TTL)
	}
	return kernel.NodeAnswer{Now: now, Fence: s.fence, Roles: s.rolesByName()}, nil
}

func (s *Store) forget(before time.Time) {
	maps.DeleteFunc(s.nodes, func(_ string, old kernel.Node) bool { return old.SeenAt.Before(before) })
	maps.DeleteFunc(s.seen, func(_ seenBy, old time.Time) bool { return old.Before(before) })
}

func (s *Store) DropNode(ctx context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	delete(s.nodes, id)
	return nil
}

func (s *Store) Nodes(ctx context.Context) ([]kernel.Node, error) {
	return view(ctx, s, func() []kernel.Node {
		var nodes []kernel.Node
		for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
			nodes = append(nodes, copyNode(s.nodes[id]))
		}
		return nodes
	})
}

func (s *Store) LastClaims(ctx context.Context) ([]kernel.LastClaim, error) {
	return view(ctx, s, func() []kernel.LastClaim {
		var seen []kernel.LastClaim
		for by, t := range s.seen {
			seen = append(seen, kernel.LastClaim{Agent: by.agent, Holder: by.holder, At: t})
		}
		slices.SortFunc(seen, func(a, b kernel.LastClaim) int { return b.At.Compare(a.At) })
		seen = firstN(perdure.MaxSeen, seen)
		slices.SortFunc(seen, func(a, b kernel.LastClaim) int {
			return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Holder, b.Holder))
		})
		return seen
	})
}
