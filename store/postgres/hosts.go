package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

const (
	hostColumns   = "name, incarnation, boot, grid, version, labels, capacity, heartbeat, draining, drain_by, drain_author, drain_reason, registered_at, seen_at, reserved_job, reserved_idx, reserved_step, reserved_ready_at, reserved_at, reserved_until"
	hostSQL       = "select " + hostColumns + " from perdure.host where name = $1"
	lockHostSQL   = hostSQL + " for update"
	hostsSQL      = "select " + hostColumns + " from perdure.host where name = any($1) order by name"
	shareHostsSQL = hostsSQL + " for share"
	listHostsSQL  = "select " + hostColumns + " from perdure.host where name > $1 order by name limit $2"
	countHostsSQL = "select count(*)::int from perdure.host"
	addHostSQL    = "insert into perdure.host (" + hostColumns + ") values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, nullif($15, '00000000-0000-0000-0000-000000000000'), $16, $17, $18, $19, $20) on conflict do nothing"
	saveHostSQL   = `update perdure.host set incarnation = $2, boot = $3, grid = $4, version = $5, labels = $6, capacity = $7, heartbeat = $8,
	draining = $9, drain_by = $10, drain_author = $11, drain_reason = $12, registered_at = $13, seen_at = $14,
	reserved_job = nullif($15, '00000000-0000-0000-0000-000000000000'), reserved_idx = $16, reserved_step = $17, reserved_ready_at = $18, reserved_at = $19, reserved_until = $20
	where name = $1 and incarnation = $21 and draining = $22 and seen_at = $23`
	reservedForSQL = "select " + hostColumns + " from perdure.host where reserved_job = any($1) order by name"
	silentHostsSQL = "select name from perdure.host where seen_at < $1 order by name limit $2"
	deleteHostSQL  = "delete from perdure.host where name = $1 and incarnation = $2 and draining = $3 and seen_at = $4"
	hostRunsSQL    = `select distinct on (s.job, s.idx) s.job, s.idx, s.name, s.run, s.agent, coalesce(s.limits, ''), s.started_at from perdure.out o` + membersSQL + `
	where o.locked_by = $1 and s.locked_by = $1 and s.phase = 3
	order by s.job, s.idx limit $2`
	hostUsesSQL = `select locked_by, needs, count(*)::int from (
	select distinct s.job, s.idx, o.locked_by, coalesce(s.limits, '') as needs from perdure.out o` + membersSQL + `
	where o.locked_by = any($1) and s.locked_by = o.locked_by and s.phase = 3) r
	group by locked_by, needs`
)

func scanHost(r *pgwire.Reader) kernel.Host {
	h := kernel.Host{Name: r.Text(), Incarnation: r.Text(), Boot: r.Text(), Grid: r.Text(), Version: r.Text()}
	amounts := map[string]int64{}
	if err := errors.Join(json.Unmarshal(r.Next(), &h.Labels), json.Unmarshal(r.Next(), &amounts)); err != nil {
		r.Failed = err
	}
	if len(amounts) > 0 {
		h.Capacity = amounts
	}
	h.Heartbeat = time.Duration(r.Int64()) * time.Microsecond
	h.Draining = r.Int() == 1
	h.DrainBy, h.DrainAuthor, h.DrainReason = r.Time(), r.Text(), r.Text()
	h.RegisteredAt, h.SeenAt = r.Time(), r.Time()
	v := &h.Reservation
	v.Job, v.Index, v.Step = r.UUID(), r.Int(), r.Text()
	v.ReadyAt, v.Since, v.Until = r.Time(), r.Time(), r.Time()
	return h
}

func scanHostRun(r *pgwire.Reader) kernel.HostRun {
	return kernel.HostRun{StepRef: scanRef(r), Name: r.Text(), Run: r.Int64(), Agent: r.Text(), Needs: kernel.Needs(r.Text()), StartedAt: r.Time()}
}

func (tx *tx) Hosts(names []string) (hosts []kernel.Host, err error) {
	err = tx.run(pgwire.Into(pgwire.New(hostsSQL).Texts(names), &hosts, scanHost))
	return hosts, err
}

func (tx *tx) ShareHosts(names []string) (hosts []kernel.Host, err error) {
	err = tx.run(pgwire.Into(pgwire.New(shareHostsSQL).Texts(names), &hosts, scanHost))
	return hosts, err
}

func (tx *tx) LockHost(name string) (*kernel.Host, error) {
	var found []kernel.Host
	if err := tx.run(pgwire.Into(pgwire.New(lockHostSQL).Text(name), &found, scanHost)); err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func (tx *tx) CountHosts() (n int, err error) {
	err = tx.run(pgwire.New(countHostsSQL).Each(func(r *pgwire.Reader) error {
		n = r.Int()
		return r.Failed
	}))
	return n, err
}

func (tx *tx) ReservedFor(refs []kernel.StepRef) (hosts []kernel.Host, err error) {
	jobs := make([]perdure.JobID, len(refs))
	for i, ref := range refs {
		jobs[i] = ref.Job
	}
	err = tx.run(pgwire.Into(uuids(pgwire.New(reservedForSQL), jobs), &hosts, scanHost))
	return slices.DeleteFunc(hosts, func(h kernel.Host) bool { return !slices.Contains(refs, h.Reservation.StepRef) }), err
}

func (tx *tx) SilentHosts(since time.Time, max int) (names []string, err error) {
	err = tx.run(pgwire.Into(pgwire.New(silentHostsSQL).Time(since).Int(max), &names, (*pgwire.Reader).Text))
	return names, err
}

func drainingInt(h *kernel.Host) int {
	if h.Draining {
		return 1
	}
	return 0
}

func (tx *tx) PutHost(h, was *kernel.Host) error {
	tx.wrote = true
	labels, err := json.Marshal(h.Labels)
	capacity, capacityErr := json.Marshal(map[string]int64(h.Capacity))
	if err = errors.Join(err, capacityErr); err != nil {
		return err
	}
	sql := addHostSQL
	if was != nil {
		sql = saveHostSQL
	}
	st := pgwire.New(sql).Text(h.Name).Text(h.Incarnation).Text(h.Boot).Text(h.Grid).Text(h.Version).Text(string(labels)).Text(string(capacity)).
		Int64(h.Heartbeat.Microseconds()).Int(drainingInt(h)).Time(h.DrainBy).Text(h.DrainAuthor).Text(h.DrainReason).Time(h.RegisteredAt).Time(h.SeenAt)
	v := &h.Reservation
	st = st.UUID(v.Job).Int(v.Index).Text(v.Step).Time(v.ReadyAt).Time(v.Since).Time(v.Until)
	if was != nil {
		st = st.Text(was.Incarnation).Int(drainingInt(was)).Time(was.SeenAt)
	}
	return tx.run(st.Exact(1))
}

func (tx *tx) DeleteHost(was *kernel.Host) error {
	tx.wrote = true
	return tx.run(pgwire.New(deleteHostSQL).Text(was.Name).Text(was.Incarnation).Int(drainingInt(was)).Time(was.SeenAt).Exact(1))
}

func (s *Store) Host(ctx context.Context, name string) (*kernel.Host, error) {
	found, err := query(ctx, s, pgwire.New(hostSQL).Text(name), scanHost)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func (s *Store) ListHosts(ctx context.Context, after string, max int) ([]kernel.Host, error) {
	return query(ctx, s, pgwire.New(listHostsSQL).Text(after).Int(max), scanHost)
}

func (s *Store) HostRuns(ctx context.Context, holder string, max int) ([]kernel.HostRun, error) {
	return query(ctx, s, pgwire.New(hostRunsSQL).Text(holder).Int(max), scanHostRun)
}

func (s *Store) HostUses(ctx context.Context, holders []string) ([]kernel.HostUse, error) {
	if len(holders) == 0 {
		return nil, nil
	}
	return query(ctx, s, pgwire.New(hostUsesSQL).Texts(holders), func(r *pgwire.Reader) kernel.HostUse {
		return kernel.HostUse{Holder: r.Text(), Needs: kernel.Needs(r.Text()), Runs: r.Int()}
	})
}
