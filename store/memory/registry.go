package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"perdure"
)

// What has not been seen for so long is forgotten, or the registry would grow with every restart.
const forgetAfter = 24 * time.Hour

func (s *Store) PutNode(ctx context.Context, n perdure.Node) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	s.nodes[n.ID] = copyNode(n)
	maps.DeleteFunc(s.nodes, func(_ string, old perdure.Node) bool {
		return old.SeenAt.Before(n.SeenAt.Add(-forgetAfter))
	})
	return nil
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

func (s *Store) Nodes(ctx context.Context) ([]perdure.Node, error) {
	return view(ctx, s, func() []perdure.Node {
		var nodes []perdure.Node
		for _, id := range slices.Sorted(maps.Keys(s.nodes)) {
			nodes = append(nodes, copyNode(s.nodes[id]))
		}
		return nodes
	})
}

func (s *Store) PutSeen(ctx context.Context, seen []perdure.Seen) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	var latest time.Time
	for _, n := range seen {
		s.seen[seenBy{n.Agent, n.Holder}] = at(n.At)
		if n.At.After(latest) {
			latest = n.At
		}
	}
	maps.DeleteFunc(s.seen, func(_ seenBy, old time.Time) bool { return old.Before(latest.Add(-forgetAfter)) })
	return nil
}

func (s *Store) Seen(ctx context.Context) ([]perdure.Seen, error) {
	return view(ctx, s, func() []perdure.Seen {
		var seen []perdure.Seen
		for by, t := range s.seen {
			seen = append(seen, perdure.Seen{Agent: by.agent, Holder: by.holder, At: t})
		}
		slices.SortFunc(seen, func(a, b perdure.Seen) int {
			return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Holder, b.Holder))
		})
		return seen
	})
}
