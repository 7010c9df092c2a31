package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
)

// Nodes and holders that were not seen for this long are deleted, so that the registry does not grow with every restart.
const forgetAfter = 24 * time.Hour

func (s *Store) ReportNode(ctx context.Context, p kernel.NodeReport) (roll kernel.NodeAnswer, err error) {
	n := p.Node
	agents, err := json.Marshal(n.Agents)
	if err != nil {
		return roll, err
	}
	slots, err := json.Marshal(n.Slots)
	if err != nil {
		return roll, err
	}
	err = s.writeRegistry(ctx, func() error {
		roll.Now = s.clock.now()
		if err := s.registry.exec(`
			INSERT OR REPLACE INTO perdure_node (id, host, pid, version, listen, agents, slots, since, seen_at) VALUES (?,?,?,?,?,?,?,?,?)`,
			n.ID, n.Host, n.PID, n.Version, n.Listen, string(agents), string(slots), micros(n.Since), micros(roll.Now)); err != nil {
			return err
		}
		for _, seen := range p.Seen {
			if err := s.registry.exec(`INSERT OR REPLACE INTO perdure_seen (agent, holder, at) VALUES (?,?,?)`, seen.Agent, seen.Holder, micros(seen.At)); err != nil {
				return err
			}
		}
		if p.Forget {
			if err := s.forget(roll.Now.Add(-forgetAfter)); err != nil {
				return err
			}
		}
		if err := s.renew(n.ID, roll.Now, p.TTL); err != nil {
			return err
		}
		if roll.Fence, err = one(s.registry, (*row).num, fenceSQL); err != nil {
			return err
		}
		roll.Roles, err = all(s.registry, readRole, rolesSQL)
		return err
	})
	if err != nil {
		return roll, err
	}
	return roll, s.durable.settle() // other transactions may have committed the fence and the roles that were read
}

func (s *Store) forget(before time.Time) error {
	if err := s.registry.exec(`DELETE FROM perdure_node WHERE seen_at < ?`, micros(before)); err != nil {
		return err
	}
	return s.registry.exec(`DELETE FROM perdure_seen WHERE at < ?`, micros(before))
}

func (s *Store) DropNode(ctx context.Context, id string) error {
	return s.writeRegistry(ctx, func() error {
		return s.registry.exec(`DELETE FROM perdure_node WHERE id = ?`, id)
	})
}

func (s *Store) Nodes(ctx context.Context) ([]kernel.Node, error) {
	return view(ctx, s, func(r *row) kernel.Node {
		n := kernel.Node{ID: r.text(), Host: r.text(), PID: r.int(), Version: r.text(), Listen: r.text()}
		r.json(&n.Agents)
		r.json(&n.Slots)
		n.Since, n.SeenAt = r.time(), r.time()
		return n
	}, `SELECT id, host, pid, version, listen, agents, slots, since, seen_at FROM perdure_node ORDER BY id`)
}

func (s *Store) LastClaims(ctx context.Context) ([]kernel.LastClaim, error) {
	return view(ctx, s, func(r *row) kernel.LastClaim {
		return kernel.LastClaim{Agent: r.text(), Holder: r.text(), At: r.time()}
	},
		`SELECT agent, holder, at FROM (SELECT agent, holder, at FROM perdure_seen ORDER BY at DESC LIMIT ?) ORDER BY agent, holder`, perdure.MaxSeen)
}

// writeRegistry writes in a transaction that does not wait for the disk.
func (s *Store) writeRegistry(ctx context.Context, write func() error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := begin(s.registry); err != nil {
		return s.wrap(err)
	}
	err := s.ownWrite(func() error {
		if err := write(); err != nil {
			return err
		}
		crashpoint.Here(crashpoint.SQLiteNote)
		return s.registry.exec(`COMMIT`)
	})
	crashpoint.Here(crashpoint.SQLiteNoted)
	if err != nil {
		rollback(s.registry)
	}
	return s.wrap(err)
}
