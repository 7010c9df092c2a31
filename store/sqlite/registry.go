package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
)

// What has not been seen for so long is forgotten, or the registry would grow with every restart.
const forgetAfter = 24 * time.Hour

func (s *Store) Attend(ctx context.Context, p kernel.Presence) (roll kernel.Roll, err error) {
	n := p.Node
	agents, err := json.Marshal(n.Agents)
	if err != nil {
		return roll, err
	}
	slots, err := json.Marshal(n.Slots)
	if err != nil {
		return roll, err
	}
	err = s.note(ctx, func() error {
		roll.Now = s.clock.now()
		if err := s.hints.exec(`
			INSERT OR REPLACE INTO perdure_node (id, host, pid, version, listen, agents, slots, since, seen_at) VALUES (?,?,?,?,?,?,?,?,?)`,
			n.ID, n.Host, n.PID, n.Version, n.Listen, string(agents), string(slots), micros(n.Since), micros(roll.Now)); err != nil {
			return err
		}
		for _, seen := range p.Seen {
			if err := s.hints.exec(`INSERT OR REPLACE INTO perdure_seen (agent, holder, at) VALUES (?,?,?)`, seen.Agent, seen.Holder, micros(seen.At)); err != nil {
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
		if roll.Fence, err = one(s.hints, (*row).num, fenceSQL); err != nil {
			return err
		}
		roll.Roles, err = all(s.hints, readRole, rolesSQL)
		return err
	})
	if err != nil {
		return roll, err
	}
	return roll, s.durable.settle() // fence and roles are what others have committed
}

func (s *Store) forget(before time.Time) error {
	if err := s.hints.exec(`DELETE FROM perdure_node WHERE seen_at < ?`, micros(before)); err != nil {
		return err
	}
	return s.hints.exec(`DELETE FROM perdure_seen WHERE at < ?`, micros(before))
}

func (s *Store) DropNode(ctx context.Context, id string) error {
	return s.note(ctx, func() error {
		return s.hints.exec(`DELETE FROM perdure_node WHERE id = ?`, id)
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

func (s *Store) Seen(ctx context.Context) ([]kernel.Seen, error) {
	return view(ctx, s, func(r *row) kernel.Seen { return kernel.Seen{Agent: r.text(), Holder: r.text(), At: r.time()} },
		`SELECT agent, holder, at FROM (SELECT agent, holder, at FROM perdure_seen ORDER BY at DESC LIMIT ?) ORDER BY agent, holder`, perdure.MaxSeen)
}

// note writes a hint, in a transaction that does not wait for the disk.
func (s *Store) note(ctx context.Context, write func() error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if err := begin(s.hints); err != nil {
		return s.wrap(err)
	}
	err := s.expect(func() error {
		if err := write(); err != nil {
			return err
		}
		crashpoint.Here(crashpoint.SQLiteNote)
		return s.hints.exec(`COMMIT`)
	})
	crashpoint.Here(crashpoint.SQLiteNoted)
	if err != nil {
		rollback(s.hints)
	}
	return s.wrap(err)
}
