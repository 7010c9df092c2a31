package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

func copySchedule(s *kernel.Schedule) kernel.Schedule {
	c := *s
	c.Settings = slices.Clone(s.Settings)
	for _, t := range []*time.Time{&c.Next, &c.DueAt, &c.Last, &c.Backfill.From, &c.Backfill.Until, &c.Backfill.Next, &c.CreatedAt, &c.UpdatedAt} {
		*t = storedTime(*t)
	}
	return c
}

func copyFiring(f kernel.Firing) kernel.Firing {
	for _, t := range []*time.Time{&f.Nominal, &f.To, &f.At} {
		*t = storedTime(*t)
	}
	return f
}

func (d *data) schedule(name string) *kernel.Schedule {
	if s, ok := d.schedules[name]; ok {
		return new(copySchedule(&s))
	}
	return nil
}

// schedulesWhere returns schedules in the order of their names.
func (d *data) schedulesWhere(where func(*kernel.Schedule) bool) (found []*kernel.Schedule) {
	for _, name := range slices.Sorted(maps.Keys(d.schedules)) {
		if s := d.schedule(name); where(s) {
			found = append(found, s)
		}
	}
	return found
}

// firingsWhere returns lines in the order of their keys.
func (d *data) firingsWhere(where func(*kernel.Firing) bool) (found []kernel.Firing) {
	for _, f := range d.firings {
		if where(&f) {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b kernel.Firing) int { return a.Key().Compare(b.Key()) })
	return found
}

func (d *data) openFirings(schedule string, max int) []kernel.Firing {
	return kernel.NewsFirst(d.firingsWhere(func(f *kernel.Firing) bool { return f.Schedule == schedule && (f.News || f.Unsettled()) }), max)
}

func (tx *tx) LockSchedules(names []string) (found []*kernel.Schedule, err error) {
	for _, name := range unique(slices.Clone(names), strings.Compare) {
		if s := tx.schedule(name); s != nil {
			found = append(found, s)
		}
	}
	return found, nil
}

func (tx *tx) CountSchedules() (int, error) { return len(tx.schedules), nil }

func (tx *tx) PutSchedule(s *kernel.Schedule) error {
	set(tx, tx.schedules, s.Name, copySchedule(s))
	return nil
}

func (tx *tx) DeleteSchedule(name string) (bool, error) {
	for _, f := range tx.firingsWhere(func(f *kernel.Firing) bool { return f.Schedule == name }) {
		remove(tx, tx.firings, f.Key())
	}
	_, had := tx.schedules[name]
	remove(tx, tx.schedules, name)
	return had, nil
}

func (tx *tx) OpenFirings(schedule string, max int) ([]kernel.Firing, error) {
	return tx.openFirings(schedule, max), nil
}

func (tx *tx) PutFirings(lines []kernel.Firing) error {
	for _, f := range lines {
		f = copyFiring(f)
		set(tx, tx.firings, f.Key(), f)
	}
	return nil
}

func (tx *tx) changeFirings(changes []kernel.FiringChange) {
	for _, ch := range changes {
		ch.Nominal = storedTime(ch.Nominal)
		if f, ok := tx.firings[ch.FiringKey]; ok && f.Unsettled() {
			f.State, f.News = ch.State, true
			set(tx, tx.firings, ch.FiringKey, f)
		}
	}
}

// Schedule implements kernel.ScheduleReader.
func (s *Store) Schedule(ctx context.Context, name string) (*kernel.Schedule, error) {
	return view(ctx, s, func() *kernel.Schedule { return s.schedule(name) })
}

// Schedules implements kernel.ScheduleReader.
func (s *Store) Schedules(ctx context.Context, after string, max int) ([]*kernel.Schedule, error) {
	return view(ctx, s, func() []*kernel.Schedule {
		return firstN(max, s.schedulesWhere(func(s *kernel.Schedule) bool { return s.Name > after }))
	})
}

// DueSchedules implements kernel.ScheduleReader.
func (s *Store) DueSchedules(ctx context.Context, now time.Time, max int) (due []*kernel.Schedule, next time.Time, err error) {
	now = storedTime(now)
	due, err = view(ctx, s, func() []*kernel.Schedule {
		due := s.schedulesWhere(func(s *kernel.Schedule) bool { return !s.DueAt.IsZero() && !s.DueAt.After(now) })
		slices.SortStableFunc(due, func(a, b *kernel.Schedule) int { return a.DueAt.Compare(b.DueAt) })
		news := map[string]bool{}
		for _, f := range s.firings {
			if f.News {
				news[f.Schedule] = true
			}
		}
		named := firstN(max, slices.Sorted(maps.Keys(news)))
		for _, x := range s.schedules {
			if x.DueAt.After(now) && (next.IsZero() || x.DueAt.Before(next)) {
				next = x.DueAt
			}
		}
		return kernel.AddSchedules(firstN(max, due), s.schedulesWhere(func(s *kernel.Schedule) bool { return slices.Contains(named, s.Name) }))
	})
	return due, next, err
}

// OpenFiringsOf implements kernel.ScheduleReader.
func (s *Store) OpenFiringsOf(ctx context.Context, schedule string, max int) ([]kernel.Firing, error) {
	return view(ctx, s, func() []kernel.Firing { return s.openFirings(schedule, max) })
}

// Firings implements kernel.ScheduleReader.
func (s *Store) Firings(ctx context.Context, schedule string, before kernel.FiringKey, max int) ([]kernel.Firing, error) {
	before.Schedule = schedule
	return view(ctx, s, func() []kernel.Firing {
		found := s.firingsWhere(func(f *kernel.Firing) bool {
			return f.Schedule == schedule && (before.Nominal.IsZero() || f.Key().Compare(before) < 0)
		})
		slices.Reverse(found)
		return firstN(max, found)
	})
}

// ForgetFirings implements kernel.ScheduleReader.
func (s *Store) ForgetFirings(ctx context.Context, before time.Time, max int) (n int, err error) {
	err = s.Update(ctx, func(t kernel.Tx) error {
		tx := t.(*tx)
		old := tx.firingsWhere(func(f *kernel.Firing) bool { return !f.News && !f.Unsettled() && f.At.Before(before) })
		slices.SortStableFunc(old, func(a, b kernel.Firing) int { return cmp.Compare(a.At.UnixMicro(), b.At.UnixMicro()) })
		n = 0
		for _, f := range firstN(max, old) {
			remove(tx, tx.firings, f.Key())
			n++
		}
		return nil
	})
	return n, err
}
