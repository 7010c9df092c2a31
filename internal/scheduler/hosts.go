package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// RegisterHost creates or replaces a host, and returns its row and the number of its runs, up to 1. renews: the process has
// registered the host before; if it was removed since, the error has CodeNotFound.
func (s *Scheduler) RegisterHost(ctx context.Context, r *kernel.Host, renews bool) (row kernel.Host, runs int, created bool, err error) {
	notified := false
	err = s.update(ctx, func(tx kernel.Tx) error {
		notified = false
		was, err := tx.LockHost(r.Name)
		if err != nil {
			return err
		}
		if was == nil && !renews {
			n, err := tx.CountHosts()
			if err != nil {
				return err
			}
			if n >= perdure.MaxHosts {
				return &perdure.Error{Code: perdure.CodeConflict, Message: fmt.Sprintf("there are %d hosts, which is the maximum", n), Hint: "remove hosts that are silent: perdure hosts rm NAME"}
			}
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		if row, err = kernel.Register(was, r, renews, now); err != nil {
			return err
		}
		created = was == nil
		if err := endReservation(tx, &row, now); err != nil {
			return err
		}
		if runs, err = runsOfHost(tx, &row); err != nil {
			return err
		}
		if err := tx.PutHost(&row, was); err != nil {
			return err
		}
		notified, err = s.saveHostAlerts(tx, was, &row, now)
		return err
	})
	if err == nil && notified {
		s.cfg.OnNotify()
	}
	return row, runs, created, err
}

// endReservation removes the reservation of a host that does not hold any more.
func endReservation(tx kernel.Tx, h *kernel.Host, now time.Time) error {
	if h.Reservation.Since.IsZero() {
		return nil
	}
	steps, err := tx.Steps([]kernel.StepRef{h.Reservation.StepRef})
	if err == nil && (len(steps) == 0 || !h.Reserves(steps[0], now)) {
		h.Reservation = kernel.Reservation{}
	}
	return err
}

// maxForgotten bounds how many silent hosts one call of SweepHosts looks at.
const maxForgotten = 100

// SweepHosts removes hosts that have been silent for long (kernel.Host.Forgotten).
func (s *Scheduler) SweepHosts(ctx context.Context) error {
	m, leads := kernel.LeadershipOf(ctx)
	var removed []string
	err := s.update(ctx, func(tx kernel.Tx) error {
		removed = nil
		now, err := tx.Now()
		if err != nil {
			return err
		}
		names, err := tx.SilentHosts(now.Add(-perdure.ForgetHostAfter), maxForgotten)
		if err != nil || len(names) == 0 {
			return err
		}
		if leads {
			if err := m.Admit(tx); err != nil {
				return err
			}
		}
		for _, name := range names {
			h, err := tx.LockHost(name)
			if err != nil {
				return err
			}
			if h == nil {
				continue
			}
			runs, err := runsOfHost(tx, h)
			if err != nil {
				return err
			}
			if !h.Forgotten(now, runs) {
				continue
			}
			if err := tx.DeleteHost(h); err != nil {
				return err
			}
			if _, err := s.saveHostAlerts(tx, h, nil, now); err != nil { // it closes them: receivers are not notified of that
				return err
			}
			audit := kernel.AuditOf(ctx, "perdure", "deleteHost")
			audit.Target, audit.Reason = name, "silent since "+h.SeenAt.UTC().Format(time.RFC3339)
			if err := saveAudit(tx, audit); err != nil {
				return err
			}
			removed = append(removed, name)
		}
		return nil
	})
	if errors.Is(err, kernel.ErrDeposed) {
		s.meter.Deposed(m.Role)
	}
	if err == nil {
		for _, name := range removed {
			s.log.InfoContext(ctx, "host removed", "host", name, "reason", "silent")
		}
	}
	return err
}

// saveHostAlerts raises and closes the alerts of a host whose row changes.
func (s *Scheduler) saveHostAlerts(tx kernel.Tx, was, h *kernel.Host, now time.Time) (notified bool, err error) {
	c := &kernel.Changes{}
	if c.Alerts, c.CloseAlerts = kernel.AlertsOfHost(was, h, now); c.Empty() {
		return false, nil
	}
	routing, err := tx.Routing()
	if err != nil {
		return false, err
	}
	w := kernel.NewWorkset(now, s.env.Float64)
	w.UseRouting(routing)
	w.NotifyAlerts(c)
	return len(c.Notifications) > 0, tx.Save(c)
}

// runsOfHost returns the number of runs of a host, up to 1.
func runsOfHost(tx kernel.Tx, h *kernel.Host) (int, error) {
	held, err := tx.HeldBy(h.Holder(), "", "", 1)
	return len(held), err
}

// ChangeHost changes a host, and records the change as act in the audit log.
func (s *Scheduler) ChangeHost(ctx context.Context, act, name, author, reason string, change func(h *kernel.Host, now time.Time)) (row kernel.Host, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		was, err := tx.LockHost(name)
		if err != nil {
			return err
		}
		if was == nil {
			return kernel.ErrNoHost(name)
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		row = *was
		change(&row, now)
		if err := tx.PutHost(&row, was); err != nil {
			return err
		}
		audit := kernel.AuditOf(ctx, author, act)
		audit.Target, audit.Reason = name, reason
		return saveAudit(tx, audit)
	})
	if err == nil {
		s.queue.WakeAll() // claims of the host may be granted runs now
	}
	return row, err
}

// DeleteHost removes a host.
func (s *Scheduler) DeleteHost(ctx context.Context, name, author string) error {
	gone := false // an earlier try of this call, whose commit was indeterminate, may have removed it
	return s.update(ctx, func(tx kernel.Tx) error {
		was, err := tx.LockHost(name)
		if err != nil {
			return err
		}
		switch {
		case was == nil && gone:
			return nil
		case was == nil:
			return kernel.ErrNoHost(name)
		}
		runs, err := runsOfHost(tx, was)
		if err != nil {
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		if err := was.CheckRemoval(now, runs); err != nil {
			return err
		}
		if err := tx.DeleteHost(was); err != nil {
			return err
		}
		gone = true
		if _, err := s.saveHostAlerts(tx, was, nil, now); err != nil {
			return err
		}
		return auditSetting(ctx, tx, author, "deleteHost", name)
	})
}
