package postgres

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// Nodes and holders that were not seen for a day are deleted, so that the registry does not grow with every restart.
const (
	// nowSQL is the store's time (see clock.go), computed from the latest mark and the rest of a lead.
	nowSQL = `select greatest(t.at - least(greatest(t.at - k.mark, '0') / 10, k.ahead * interval '1 microsecond'), k.mark) as now
		from perdure.clock k cross join lateral (select clock_timestamp() + k.ahead * interval '1 microsecond' as at) t where k.one`

	// rollCallSQL is one statement, because every node executes it every few seconds. It extends the roles of the node
	// that have not lapsed. The new end is computed from a time that is read before any lock is waited for, so it may be
	// early but not late. Rows of table seen are locked in order, so that two nodes that write the same rows do not wait
	// for each other.
	rollCallSQL = `
with c as materialized (
	` + nowSQL + `
), r as (
	update perdure.role r set
		leader_until = case when r.leader = $1 and r.leader_until > c.now then c.now + $9::bigint * interval '1 microsecond' else r.leader_until end,
		standby_until = case when r.standby = $1 and r.standby_until > c.now then c.now + $9::bigint * interval '1 microsecond' else r.standby_until end
	from c where r.leader = $1 and r.leader_until > c.now or r.standby = $1 and r.standby_until > c.now
	returning r.*
), n as (
	insert into perdure.node (id, host, pid, version, listen, agents, slots, since, seen_at, origin)
	select $1, $2, $3, $4, $5, $6, $7, $8, c.now, $13 from c
	on conflict (id) do update set host = excluded.host, pid = excluded.pid, version = excluded.version, listen = excluded.listen,
		agents = excluded.agents, slots = excluded.slots, since = excluded.since, seen_at = excluded.seen_at, origin = excluded.origin
), s as (
	insert into perdure.seen (agent, holder, at)
	select agent, holder, max(at) from unnest($10::text[], $11::text[], $12::timestamptz[]) as u (agent, holder, at)
	group by agent, holder order by agent, holder
	on conflict (agent, holder) do update set at = excluded.at
)
select ` + readingSQL + `, a.name, a.epoch, a.leader, a.leader_host, a.leader_until, a.standby, a.standby_host, a.standby_until
from perdure.clock k left join (
	select * from r union all select * from perdure.role where name not in (select name from r)) a on true
where k.one order by a.name`

	forgetNodesSQL = "delete from perdure.node where seen_at < (" + nowSQL + ") - interval '1 day'"
	forgetSeenSQL  = "delete from perdure.seen where at < (" + nowSQL + ") - interval '1 day'"
	dropNodeSQL    = "delete from perdure.node where id = $1"
	nodesSQL       = "select id, host, pid, version, listen, agents, slots, since, seen_at from perdure.node order by id"
	seenSQL        = "select * from (select agent, holder, at from perdure.seen order by at desc limit $1) s order by agent, holder"
)

func (s *Store) ReportNode(ctx context.Context, p kernel.NodeReport) (roll kernel.NodeAnswer, err error) {
	n := p.Node
	var slots, agents, holders, times pgwire.Cells
	for _, of := range n.Slots {
		slots.Int4(of)
	}
	for _, seen := range p.Seen {
		agents.Text(seen.Agent)
		holders.Text(seen.Holder)
		times.Moment(seen.At)
	}
	most := len(p.Seen)
	var w witness
	sent := s.witnesses.sent()
	origin, changed := s.clock.confirmedOrigin()
	err = s.write(ctx, func() []*pgwire.Statement {
		roll = kernel.NodeAnswer{}
		list := []*pgwire.Statement{pgwire.New(rollCallSQL).Text(n.ID).Text(n.Host).Int(n.PID).Text(n.Version).Text(n.Listen).Texts(n.Agents).
			Array(pgwire.Int4, len(n.Slots), slots).Time(n.Since).Int64(p.TTL.Microseconds()).
			Array(pgwire.Text, most, agents).Array(pgwire.Text, most, holders).Array(pgwire.Time, most, times).Text(origin).Each(s.readRoles(&roll)),
			pgwire.New(witnessSQL).Each(w.scan)}
		if changed {
			list = append(list, pgwire.New(closeSetbackSQL).Text(origin))
		}
		if p.Forget {
			list = append(list, pgwire.New(forgetNodesSQL), pgwire.New(forgetSeenSQL))
		}
		return list
	})
	if err == nil {
		s.witnesses.acknowledged(w, sent)
	}
	return roll, err
}

func (s *Store) DropNode(ctx context.Context, id string) error {
	return s.write(ctx, func() []*pgwire.Statement { return []*pgwire.Statement{pgwire.New(dropNodeSQL).Text(id)} })
}

func (s *Store) Nodes(ctx context.Context) ([]kernel.Node, error) {
	return query(ctx, s, pgwire.New(nodesSQL), func(r *pgwire.Reader) kernel.Node {
		return kernel.Node{ID: r.Text(), Host: r.Text(), PID: r.Int(), Version: r.Text(), Listen: r.Text(), Agents: r.Texts(), Slots: r.Ints(),
			Since: r.Time(), SeenAt: r.Time()}
	})
}

func (s *Store) LastClaims(ctx context.Context) ([]kernel.LastClaim, error) {
	return query(ctx, s, pgwire.New(seenSQL).Int(perdure.MaxSeen), func(r *pgwire.Reader) kernel.LastClaim {
		return kernel.LastClaim{Agent: r.Text(), Holder: r.Text(), At: r.Time()}
	})
}
