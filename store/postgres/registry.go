package postgres

import (
	"context"
	"time"

	"perdure"
)

// What has not been seen for so long is forgotten, or the registry would grow with every restart.
const forgetAfter = 24 * time.Hour

const (
	putNodeSQL = `insert into perdure.node (id, host, pid, version, listen, agents, since, seen_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8)
		on conflict (id) do update set host = excluded.host, pid = excluded.pid, version = excluded.version,
			listen = excluded.listen, agents = excluded.agents, since = excluded.since, seen_at = excluded.seen_at`
	forgetNodesSQL = "delete from perdure.node where seen_at < $1"
	dropNodeSQL    = "delete from perdure.node where id = $1"
	nodesSQL       = "select id, host, pid, version, listen, agents, since, seen_at from perdure.node order by id"

	// In their order, so that two nodes that put the same ones do not wait for each other.
	putSeenSQL = `insert into perdure.seen (agent, holder, at)
		select agent, holder, max(at) from unnest($1::text[], $2::text[], $3::timestamptz[]) as u (agent, holder, at)
		group by agent, holder order by agent, holder
		on conflict (agent, holder) do update set at = excluded.at`
	forgetSeenSQL = "delete from perdure.seen where at < $1"
	seenSQL       = "select agent, holder, at from perdure.seen order by agent, holder"
)

func (s *Store) PutNode(ctx context.Context, n perdure.Node) error {
	return s.send(ctx, func() []*statement {
		return []*statement{
			q(putNodeSQL).text(n.ID).text(n.Host).int(n.PID).text(n.Version).text(n.Listen).texts(n.Agents).time(n.Since).time(n.SeenAt),
			q(forgetNodesSQL).time(n.SeenAt.Add(-forgetAfter)),
		}
	})
}

func (s *Store) DropNode(ctx context.Context, id string) error {
	return s.send(ctx, func() []*statement { return []*statement{q(dropNodeSQL).text(id)} })
}

func (s *Store) Nodes(ctx context.Context) ([]perdure.Node, error) {
	return query(ctx, s, q(nodesSQL), func(r *reader) perdure.Node {
		return perdure.Node{ID: r.text(), Host: r.text(), PID: r.int(), Version: r.text(), Listen: r.text(), Agents: r.texts(),
			Since: r.time(), SeenAt: r.time()}
	})
}

func (s *Store) PutSeen(ctx context.Context, seen []perdure.Seen) error {
	if len(seen) == 0 {
		return nil
	}
	var latest time.Time
	for _, n := range seen {
		latest = later(latest, n.At)
	}
	var agents, holders, times cells
	for _, n := range seen {
		agents.text(n.Agent)
		holders.text(n.Holder)
		times.moment(n.At)
	}
	return s.send(ctx, func() []*statement {
		return []*statement{
			q(putSeenSQL).array(tText, len(seen), agents).array(tText, len(seen), holders).array(tTime, len(seen), times),
			q(forgetSeenSQL).time(latest.Add(-forgetAfter)),
		}
	})
}

func (s *Store) Seen(ctx context.Context) ([]perdure.Seen, error) {
	return query(ctx, s, q(seenSQL), func(r *reader) perdure.Seen {
		return perdure.Seen{Agent: r.text(), Holder: r.text(), At: r.time()}
	})
}
