package memory

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

func copyHost(h *kernel.Host) kernel.Host {
	row := *h
	row.Labels, row.Capacity = maps.Clone(h.Labels), maps.Clone(h.Capacity)
	row.DrainBy, row.RegisteredAt, row.SeenAt = storedTime(h.DrainBy), storedTime(h.RegisteredAt), storedTime(h.SeenAt)
	if v := &row.Reservation; !v.Since.IsZero() {
		v.ReadyAt, v.Since, v.Until = storedTime(v.ReadyAt), storedTime(v.Since), storedTime(v.Until)
	}
	return row
}

func (tx *tx) Hosts(names []string) (found []kernel.Host, err error) {
	for _, name := range unique(slices.Clone(names), strings.Compare) {
		if h, ok := tx.hosts[name]; ok {
			found = append(found, copyHost(&h))
		}
	}
	return found, nil
}

// ShareHosts is Hosts: transactions run one after the other.
func (tx *tx) ShareHosts(names []string) ([]kernel.Host, error) { return tx.Hosts(names) }

func (tx *tx) LockHost(name string) (*kernel.Host, error) { return tx.host(name), nil }

func (d *data) host(name string) *kernel.Host {
	if h, ok := d.hosts[name]; ok {
		return new(copyHost(&h))
	}
	return nil
}

func (tx *tx) CountHosts() (int, error) { return len(tx.hosts), nil }

func (tx *tx) ReservedFor(refs []kernel.StepRef) (found []kernel.Host, err error) {
	for _, name := range slices.Sorted(maps.Keys(tx.hosts)) {
		if h := tx.hosts[name]; !h.Reservation.Since.IsZero() && slices.Contains(refs, h.Reservation.StepRef) {
			found = append(found, copyHost(&h))
		}
	}
	return found, nil
}

func (tx *tx) SilentHosts(since time.Time, max int) (names []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(tx.hosts)) {
		if h := tx.hosts[name]; h.SeenAt.Before(since) && len(names) < max {
			names = append(names, name)
		}
	}
	return names, nil
}

// compareHost returns ErrStale if a host is not as it was.
func (tx *tx) compareHost(name string, was *kernel.Host) error {
	switch now, there := tx.hosts[name]; {
	case there != (was != nil), there && (now.Incarnation != was.Incarnation || now.Draining != was.Draining || !now.SeenAt.Equal(storedTime(was.SeenAt))):
		tx.failed = kernel.ErrStale
		return tx.failed
	}
	return nil
}

func (tx *tx) PutHost(h, was *kernel.Host) error {
	if err := tx.compareHost(h.Name, was); err != nil {
		return err
	}
	set(tx, tx.hosts, h.Name, copyHost(h))
	return nil
}

func (tx *tx) DeleteHost(was *kernel.Host) error {
	if err := tx.compareHost(was.Name, was); err != nil {
		return err
	}
	remove(tx, tx.hosts, was.Name)
	return nil
}

func (s *Store) Host(ctx context.Context, name string) (*kernel.Host, error) {
	return view(ctx, s, func() *kernel.Host { return s.host(name) })
}

func (s *Store) ListHosts(ctx context.Context, after string, max int) ([]kernel.Host, error) {
	return view(ctx, s, func() (found []kernel.Host) {
		for _, name := range slices.Sorted(maps.Keys(s.hosts)) {
			if h := s.hosts[name]; name > after && len(found) < max {
				found = append(found, copyHost(&h))
			}
		}
		return found
	})
}

func (s *Store) HostRuns(ctx context.Context, holder string, max int) ([]kernel.HostRun, error) {
	return view(ctx, s, func() []kernel.HostRun { return s.hostRuns(holder, max) })
}

func (s *Store) hostRuns(holder string, max int) (found []kernel.HostRun) {
	for _, step := range firstN(max, s.unsettledWhere(compareSteps, func(s *kernel.Step) bool {
		return kernel.InFlightOf(s).Holder == holder && kernel.InFlightOf(s).InFlight
	})) {
		found = append(found, kernel.HostRunOf(step))
	}
	return found
}

func (s *Store) HostUses(ctx context.Context, holders []string) ([]kernel.HostUse, error) {
	return view(ctx, s, func() (uses []kernel.HostUse) {
		for _, holder := range unique(slices.Clone(holders), strings.Compare) {
			uses = append(uses, kernel.HostUsesOf(holder, s.hostRuns(holder, math.MaxInt))...)
		}
		return uses
	})
}
