package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

var scheduleChecks = []check{
	{"Schedules/RowsAndLines", schedules},
	{"Schedules/Due", dueSchedules},
	{"Schedules/Firings", firings},
}

func newSchedule(name string, edits ...func(*kernel.Schedule)) *kernel.Schedule {
	s := &kernel.Schedule{Name: name, Settings: []byte(`{"cron":"@daily","job":{"definition":{}}}`), Version: 3, Next: at(time.Hour), DueAt: at(time.Hour), CreatedAt: at(0), UpdatedAt: at(time.Second)}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func newFiring(schedule string, minute int, state operate.FiringState, edits ...func(*kernel.Firing)) kernel.Firing {
	f := kernel.Firing{Schedule: schedule, Nominal: at(time.Duration(minute) * time.Minute), Times: 1, State: state, At: at(time.Duration(minute) * time.Minute)}
	for _, edit := range edits {
		edit(&f)
	}
	return f
}

func news(f *kernel.Firing) { f.News = true }

// schedules: a row and its lines are read as they were written; the lists are in order and bounded; a failed transaction
// writes nothing.
func schedules(s *suite) {
	full := newSchedule("b", func(s *kernel.Schedule) {
		s.Paused, s.PausedCause, s.Last, s.LastJob, s.Failures, s.Fired, s.SkippedOverlap, s.SkippedCatchUp = true, "paused by anna", at(0), id(7), 2, 31, 4, 5
		s.Backfill = kernel.Backfill{From: at(0), Until: at(time.Hour), Next: at(time.Minute), Parallel: 4, Again: 1, Agains: 2}
	})
	a, c := newSchedule("a", func(s *kernel.Schedule) { s.DueAt = at(2 * time.Minute) }), newSchedule("c", func(s *kernel.Schedule) { s.DueAt, s.Next = time.Time{}, time.Time{} })
	s.update(func(tx kernel.Tx) {
		for _, row := range []*kernel.Schedule{c, a, full} {
			s.must(tx.PutSchedule(row))
		}
		n, err := tx.CountSchedules()
		s.must(err)
		s.equal("counted", n, 3)
	})
	one, err := s.store.Schedule(ctx, "b")
	s.must(err)
	s.equal("one", one, full)
	none, err := s.store.Schedule(ctx, "x")
	s.must(err)
	s.equal("none", none == nil, true)
	list, err := s.store.Schedules(ctx, "a", 1)
	s.must(err)
	s.equal("list", list, []*kernel.Schedule{full})
	full.Version, full.Paused, full.PausedCause, full.LastJob, full.Backfill = 4, false, "", id(8), kernel.Backfill{}
	failed := errors.New("failed")
	if err := s.store.Update(ctx, func(tx kernel.Tx) error {
		s.must(tx.PutSchedule(newSchedule("b")))
		s.must(tx.PutFirings([]kernel.Firing{newFiring("b", 1, operate.FiringDone)}))
		_, err := tx.DeleteSchedule("a")
		s.must(err)
		return failed
	}); !errors.Is(err, failed) {
		s.Errorf("failed transaction: %v", err)
	}
	s.update(func(tx kernel.Tx) {
		locked, err := tx.LockSchedules([]string{"x", "b", "a"})
		s.must(err)
		s.equal("locked names", []string{locked[0].Name, locked[1].Name}, []string{"a", "b"})
		s.equal("unchanged", locked[1].Fired, int64(31))
		s.must(tx.PutSchedule(full))
	})
	one, err = s.store.Schedule(ctx, "b")
	s.must(err)
	s.equal("replaced", one, full)
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutFirings([]kernel.Firing{newFiring("b", 1, operate.FiringDone), newFiring("c", 1, operate.FiringDone)}))
		had, err := tx.DeleteSchedule("b")
		s.must(err)
		again, err := tx.DeleteSchedule("b")
		s.must(err)
		s.equal("deleted", []bool{had, again}, []bool{true, false})
	})
	for name, want := range map[string]int{"b": 0, "c": 1} {
		lines, err := s.store.Firings(ctx, name, kernel.FiringKey{}, 10)
		s.must(err)
		s.equal("lines of "+name, len(lines), want)
	}
}

// dueSchedules: those that are due come first, in the order of their times; then those with news. The time of the next one
// is that of the first that is not due.
func dueSchedules(s *suite) {
	due := func(name string, at time.Time) *kernel.Schedule {
		return newSchedule(name, func(s *kernel.Schedule) { s.DueAt = at })
	}
	s.update(func(tx kernel.Tx) {
		for _, row := range []*kernel.Schedule{due("a", at(3*time.Minute)), due("b", at(time.Minute)), due("c", at(5*time.Minute)), due("d", time.Time{}), due("e", time.Time{})} {
			s.must(tx.PutSchedule(row))
		}
		s.must(tx.PutFirings([]kernel.Firing{newFiring("e", 1, operate.FiringDone, news), newFiring("b", 1, operate.FiringDone, news), newFiring("d", 2, operate.FiringRunning)}))
	})
	for _, tt := range []struct {
		now  time.Time
		max  int
		want string
		next time.Time
	}{
		{at(3 * time.Minute), 10, "[b a e]", at(5 * time.Minute)},
		{at(3 * time.Minute), 1, "[b]", at(5 * time.Minute)},
		{at(0), 10, "[b e]", at(time.Minute)},
		{at(time.Hour), 10, "[b a c e]", time.Time{}},
	} {
		rows, next, err := s.store.DueSchedules(ctx, tt.now, tt.max)
		s.must(err)
		names := []string{}
		for _, row := range rows {
			names = append(names, row.Name)
		}
		s.equal("due", fmt.Sprint(names), tt.want)
		s.equal("next", next, tt.next)
	}
}

// firings: the state of a line changes with its job until that has settled; open lines and the history are in order.
func firings(s *suite) {
	running := newFiring("a", 3, operate.FiringRunning, func(f *kernel.Firing) { f.Job = id(1) })
	lines := []kernel.Firing{running, newFiring("a", 1, operate.FiringWaiting), newFiring("a", 2, operate.FiringParked, news),
		newFiring("a", 2, operate.FiringDone, func(f *kernel.Firing) { f.Again = 1 }),
		newFiring("a", 5, operate.FiringSkipped, func(f *kernel.Firing) {
			f.Again, f.To, f.Times, f.Reason, f.Counted = kernel.SkipLine, at(9*time.Minute), 5, operate.FiringCatchUp, true
		}),
		newFiring("b", 3, operate.FiringRunning)}
	s.update(func(tx kernel.Tx) { s.must(tx.PutFirings(lines)) })
	history := func(before kernel.FiringKey, max int) []kernel.Firing {
		found, err := s.store.Firings(ctx, "a", before, max)
		s.must(err)
		return found
	}
	s.equal("history", history(kernel.FiringKey{}, 10), []kernel.Firing{lines[4], lines[0], lines[3], lines[2], lines[1]})
	s.equal("page", history(lines[0].Key(), 2), []kernel.Firing{lines[3], lines[2]})
	open := func(max int) (found []kernel.Firing) {
		s.update(func(tx kernel.Tx) {
			var err error
			found, err = tx.OpenFirings("a", max)
			s.must(err)
		})
		also, err := s.store.OpenFiringsOf(ctx, "a", max)
		s.must(err)
		s.equal("outside of a transaction", also, found)
		return found
	}
	s.equal("open", open(10), []kernel.Firing{lines[2], lines[1], lines[0]})
	s.equal("open, two", open(2), []kernel.Firing{lines[2], lines[1]})
	change := func(state operate.FiringState, of ...kernel.Firing) {
		var c kernel.Changes
		for _, f := range of {
			c.Firings = append(c.Firings, kernel.FiringChange{FiringKey: f.Key(), State: state})
		}
		s.save(&c)
	}
	change(operate.FiringDone, running, lines[3], newFiring("a", 77, operate.FiringRunning))
	running.State, running.News = operate.FiringDone, true
	s.equal("with news", open(10), []kernel.Firing{lines[2], running, lines[1]})
	change(operate.FiringUndone, running) // it has settled before
	s.equal("settled once", open(10), []kernel.Firing{lines[2], running, lines[1]})
	running.News = false
	s.update(func(tx kernel.Tx) { s.must(tx.PutFirings([]kernel.Firing{running})) })
	s.equal("counted", open(10), []kernel.Firing{lines[2], lines[1]})
	n, err := s.store.ForgetFirings(ctx, at(4*time.Minute), 1)
	s.must(err)
	s.equal("forgotten", n, 1)
	n, err = s.store.ForgetFirings(ctx, at(4*time.Minute), 10)
	s.must(err)
	s.equal("forgotten, the others", n, 1)
	s.equal("kept", history(kernel.FiringKey{}, 10), []kernel.Firing{lines[4], lines[2], lines[1]})
}

// scheduleRead is what a random operation reads.
type scheduleRead struct {
	One       *kernel.Schedule
	List, Due []*kernel.Schedule
	Next      time.Time
	Open      []kernel.Firing
	Lines     []kernel.Firing
}

func (d *differential) scheduleName() string { return d.pick("s1", "s2", "s3", "s4") }

func (d *differential) schedule() *kernel.Schedule {
	return newSchedule(d.scheduleName(), func(s *kernel.Schedule) {
		s.Version, s.Paused, s.Fired, s.Failures = int64(d.rnd.IntN(9)), d.chance(20), int64(d.rnd.IntN(9)), d.rnd.IntN(3)
		s.DueAt, s.Next, s.Last = d.time(), d.time(), d.time()
		if d.chance(30) {
			s.DueAt, s.LastJob = time.Time{}, id(d.someJob())
			s.Backfill = kernel.Backfill{From: d.time(), Until: d.time(), Next: d.time(), Parallel: d.rnd.IntN(5)}
		}
	})
}

func (d *differential) firing() kernel.Firing {
	states := []operate.FiringState{operate.FiringWaiting, operate.FiringRunning, operate.FiringParked, operate.FiringDone, operate.FiringUndone, operate.FiringSkipped}
	return newFiring(d.scheduleName(), 1+d.rnd.IntN(12), states[d.rnd.IntN(len(states))], func(f *kernel.Firing) {
		f.Again, f.News, f.Counted, f.At = d.rnd.IntN(3)-1, d.chance(30), d.chance(30), d.time()
		if d.chance(50) {
			f.Job = id(d.someJob())
		}
	})
}
