package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

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
	agents := n.Agents
	if agents == nil {
		agents = []string{}
	}
	return s.send(ctx, func(b *pgx.Batch) {
		b.Queue(putNodeSQL, n.ID, n.Host, n.PID, n.Version, n.Listen, agents, notZero(&n.Since), notZero(&n.SeenAt))
		b.Queue(forgetNodesSQL, n.SeenAt.Add(-forgetAfter))
	})
}

func (s *Store) DropNode(ctx context.Context, id string) error {
	return s.send(ctx, func(b *pgx.Batch) { b.Queue(dropNodeSQL, id) })
}

func (s *Store) Nodes(ctx context.Context) ([]perdure.Node, error) {
	return query(ctx, s, func(row pgx.CollectableRow) (n perdure.Node, err error) {
		err = row.Scan(&n.ID, &n.Host, &n.PID, &n.Version, &n.Listen, &n.Agents, instant{&n.Since}, instant{&n.SeenAt})
		return n, err
	}, nodesSQL)
}

func (s *Store) PutSeen(ctx context.Context, seen []perdure.Seen) error {
	if len(seen) == 0 {
		return nil
	}
	var latest time.Time
	for _, n := range seen {
		latest = later(latest, n.At)
	}
	return s.send(ctx, func(b *pgx.Batch) {
		b.Queue(putSeenSQL,
			gather(seen, func(n perdure.Seen) string { return n.Agent }),
			gather(seen, func(n perdure.Seen) string { return n.Holder }),
			gather(seen, func(n perdure.Seen) time.Time { return n.At }))
		b.Queue(forgetSeenSQL, latest.Add(-forgetAfter))
	})
}

func (s *Store) Seen(ctx context.Context) ([]perdure.Seen, error) {
	return query(ctx, s, func(row pgx.CollectableRow) (n perdure.Seen, err error) {
		return n, row.Scan(&n.Agent, &n.Holder, instant{&n.At})
	}, seenSQL)
}
