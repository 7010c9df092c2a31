package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

const (
	hostColumns = `name, incarnation, boot, grid, version, labels, capacity, heartbeat, draining, drain_by, drain_author, drain_reason, registered_at, seen_at,
		reserved_job, reserved_idx, reserved_step, reserved_ready_at, reserved_at, reserved_until`
	hostSQL     = `SELECT ` + hostColumns + ` FROM perdure_host WHERE name = ?`
	hostsSQL    = `SELECT ` + hostColumns + ` FROM perdure_host WHERE name > ? ORDER BY name ` + limitTo
	addHostSQL  = `INSERT INTO perdure_host (` + hostColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	saveHostSQL = `UPDATE perdure_host SET incarnation = ?, boot = ?, grid = ?, version = ?, labels = ?, capacity = ?, heartbeat = ?,
		draining = ?, drain_by = ?, drain_author = ?, drain_reason = ?, registered_at = ?, seen_at = ?,
		reserved_job = ?, reserved_idx = ?, reserved_step = ?, reserved_ready_at = ?, reserved_at = ?, reserved_until = ?
		WHERE name = ? AND incarnation = ? AND draining = ? AND seen_at = ?`
	reservedForSQL = `SELECT ` + hostColumns + ` FROM perdure_host WHERE reserved_job = ?`
	silentHostsSQL = `SELECT name FROM perdure_host WHERE seen_at < ? ORDER BY name ` + limitTo
	deleteHostSQL  = `DELETE FROM perdure_host WHERE name = ? AND incarnation = ? AND draining = ? AND seen_at = ?`
)

func readHost(r *row) kernel.Host {
	h := kernel.Host{Name: r.text(), Incarnation: r.text(), Boot: r.text(), Grid: r.text(), Version: r.text()}
	r.json(&h.Labels)
	amounts := map[string]int64{}
	if r.json(&amounts); len(amounts) > 0 {
		h.Capacity = amounts
	}
	h.Heartbeat = time.Duration(r.num()) * time.Microsecond
	h.Draining = r.flag()
	h.DrainBy, h.DrainAuthor, h.DrainReason = r.time(), r.text(), r.text()
	h.RegisteredAt, h.SeenAt = r.time(), r.time()
	v := &h.Reservation
	v.Job, v.Index, v.Step = r.id(), r.int(), r.text()
	v.ReadyAt, v.Since, v.Until = r.time(), r.time(), r.time()
	return h
}

// oneHost returns a host; nil if there is none.
func oneHost(c *conn, name string) (*kernel.Host, error) {
	found, err := all(c, readHost, hostSQL, name)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func (tx *tx) Hosts(names []string) (hosts []kernel.Host, err error) {
	for _, name := range unique(slices.Clone(names), cmp.Compare[string]) {
		found, err := all(tx.c, readHost, hostSQL, name)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, found...)
	}
	return hosts, nil
}

// ShareHosts is Hosts: there is no other transaction in progress.
func (tx *tx) ShareHosts(names []string) ([]kernel.Host, error) { return tx.Hosts(names) }

func (tx *tx) LockHost(name string) (*kernel.Host, error) { return oneHost(tx.c, name) }

func (tx *tx) CountHosts() (int, error) {
	return one(tx.c, (*row).int, `SELECT count(*) FROM perdure_host`)
}

func (tx *tx) PutHost(h, was *kernel.Host) error {
	labels, err := json.Marshal(h.Labels)
	capacity, capacityErr := json.Marshal(map[string]int64(h.Capacity))
	if err = errors.Join(err, capacityErr); err != nil {
		return err
	}
	values := []any{h.Incarnation, h.Boot, h.Grid, h.Version, string(labels), string(capacity), h.Heartbeat.Microseconds(),
		flag(h.Draining), micros(h.DrainBy), h.DrainAuthor, h.DrainReason, micros(h.RegisteredAt), micros(h.SeenAt)}
	v, job := &h.Reservation, any(nil)
	if !v.Since.IsZero() {
		job = v.Job[:]
	}
	values = append(values, job, v.Index, v.Step, micros(v.ReadyAt), micros(v.Since), micros(v.Until))
	var n int
	if was == nil {
		n, err = tx.changed(addHostSQL, append([]any{h.Name}, values...)...)
	} else {
		n, err = tx.changed(saveHostSQL, append(values, was.Name, was.Incarnation, flag(was.Draining), micros(was.SeenAt))...)
	}
	return tx.exactlyOne(n, err)
}

func (tx *tx) DeleteHost(was *kernel.Host) error {
	n, err := tx.changed(deleteHostSQL, was.Name, was.Incarnation, flag(was.Draining), micros(was.SeenAt))
	return tx.exactlyOne(n, err)
}

func (tx *tx) ReservedFor(refs []kernel.StepRef) (hosts []kernel.Host, err error) {
	jobs := make([]perdure.JobID, len(refs))
	for i, ref := range refs {
		jobs[i] = ref.Job
	}
	for _, job := range unique(jobs, perdure.JobID.Compare) {
		found, err := all(tx.c, readHost, reservedForSQL, job[:])
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, found...)
	}
	hosts = slices.DeleteFunc(hosts, func(h kernel.Host) bool { return !slices.Contains(refs, h.Reservation.StepRef) })
	slices.SortFunc(hosts, func(a, b kernel.Host) int { return cmp.Compare(a.Name, b.Name) })
	return hosts, nil
}

func (tx *tx) SilentHosts(since time.Time, max int) ([]string, error) {
	return all(tx.c, (*row).text, silentHostsSQL, micros(since), atMost(max))
}

func flag(set bool) int64 {
	if set {
		return 1
	}
	return 0
}

func (s *Store) Host(ctx context.Context, name string) (h *kernel.Host, err error) {
	err = s.with(ctx, func(c *conn) error {
		h, err = oneHost(c, name)
		return err
	})
	return h, err
}

func (s *Store) ListHosts(ctx context.Context, after string, max int) (hosts []kernel.Host, err error) {
	err = s.with(ctx, func(c *conn) error {
		hosts, err = all(c, readHost, hostsSQL, after, atMost(max))
		return err
	})
	return hosts, err
}

func (s *Store) HostRuns(ctx context.Context, holder string, max int) (found []kernel.HostRun, err error) {
	err = s.with(ctx, func(c *conn) error {
		found, err = hostRuns(c, holder, int(atMost(max)))
		return err
	})
	return found, err
}

func hostRuns(c *conn, holder string, max int) (found []kernel.HostRun, err error) {
	runs, err := runsInFlight(c, `WHERE locked_by = ?`, holder)
	if err != nil {
		return nil, err
	}
	refs := refsOf(runs)
	for _, ref := range refs[:min(len(refs), max)] {
		steps, err := all(c, readStep, `SELECT `+stepSelect+` FROM perdure_step WHERE job = ? AND idx = ?`, ref.Job[:], ref.Index)
		if err != nil {
			return nil, err
		}
		for _, step := range steps {
			found = append(found, kernel.HostRunOf(step))
		}
	}
	return found, nil
}

func (s *Store) HostUses(ctx context.Context, holders []string) (uses []kernel.HostUse, err error) {
	err = s.with(ctx, func(c *conn) error {
		uses = nil
		for _, holder := range slices.Compact(slices.Sorted(slices.Values(holders))) {
			runs, err := hostRuns(c, holder, math.MaxInt)
			if err != nil {
				return err
			}
			uses = append(uses, kernel.HostUsesOf(holder, runs)...)
		}
		return nil
	})
	return uses, err
}
