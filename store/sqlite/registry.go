package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"perdure"
)

// What has not been seen for so long is forgotten, or the registry would grow with every restart.
const forgetAfter = 24 * time.Hour

func (s *Store) PutNode(ctx context.Context, n perdure.Node) error {
	agents, err := json.Marshal(n.Agents)
	if err != nil {
		return err
	}
	return s.note(ctx, func() error {
		if err := s.hints.exec(`
			INSERT OR REPLACE INTO node (id, host, pid, version, listen, agents, since, seen_at) VALUES (?,?,?,?,?,?,?,?)`,
			n.ID, n.Host, n.PID, n.Version, n.Listen, string(agents), micros(n.Since), micros(n.SeenAt)); err != nil {
			return err
		}
		return s.hints.exec(`DELETE FROM node WHERE seen_at < ?`, micros(n.SeenAt.Add(-forgetAfter)))
	})
}

func (s *Store) DropNode(ctx context.Context, id string) error {
	return s.note(ctx, func() error {
		return s.hints.exec(`DELETE FROM node WHERE id = ?`, id)
	})
}

func (s *Store) Nodes(ctx context.Context) ([]perdure.Node, error) {
	return view(ctx, s, func(r *row) perdure.Node {
		n := perdure.Node{ID: r.text(), Host: r.text(), PID: r.int(), Version: r.text(), Listen: r.text()}
		r.json(&n.Agents)
		n.Since, n.SeenAt = r.time(), r.time()
		return n
	}, `SELECT id, host, pid, version, listen, agents, since, seen_at FROM node ORDER BY id`)
}

func (s *Store) PutSeen(ctx context.Context, seen []perdure.Seen) error {
	if len(seen) == 0 {
		return nil
	}
	return s.note(ctx, func() error {
		var latest time.Time
		for _, n := range seen {
			if err := s.hints.exec(`INSERT OR REPLACE INTO seen (agent, holder, at) VALUES (?,?,?)`, n.Agent, n.Holder, micros(n.At)); err != nil {
				return err
			}
			if n.At.After(latest) {
				latest = n.At
			}
		}
		return s.hints.exec(`DELETE FROM seen WHERE at < ?`, micros(latest.Add(-forgetAfter)))
	})
}

func (s *Store) Seen(ctx context.Context) ([]perdure.Seen, error) {
	return view(ctx, s, func(r *row) perdure.Seen { return perdure.Seen{Agent: r.text(), Holder: r.text(), At: r.time()} },
		`SELECT agent, holder, at FROM seen ORDER BY agent, holder`)
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
		return s.hints.exec(`COMMIT`)
	})
	if err != nil {
		rollback(s.hints)
	}
	return s.wrap(err)
}
