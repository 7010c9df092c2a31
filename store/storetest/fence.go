package storetest

import (
	"errors"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var fenceChecks = []check{{"Fence", fence}, {"Cell", cell}}

// The fence only rises, and raises an alert that belongs to no job.
func fence(s *suite) {
	read := func() (f int64) {
		s.Helper()
		s.update(func(tx kernel.Tx) {
			var err error
			f, err = tx.Fence()
			s.must(err)
		})
		return f
	}
	raise := func(to int64) kernel.Alert {
		a := kernel.Alert{Kind: perdure.AlertSetback, Message: "put back", RaisedAt: at(time.Minute)}
		s.update(func(tx kernel.Tx) {
			s.must(tx.RaiseFence(to, a))
			now, err := tx.Fence()
			s.must(err)
			if now < to {
				s.Errorf("raised to %d, but is %d", to, now)
			}
		})
		return a
	}
	if got := read(); got != 0 {
		s.Errorf("at first: %d", got)
	}
	want := raise(1_000_000_000_000)
	if got := read(); got != 1_000_000_000_000 {
		s.Errorf("raised: %d", got)
	}
	if roll := s.attend(kernel.NodeReport{Node: kernel.Node{ID: "n"}}); roll.Fence != 1_000_000_000_000 {
		s.Errorf("returned by ReportNode: %d", roll.Fence)
	}
	alerts := s.alerts(kernel.AlertFilter{})
	if len(alerts) == 1 {
		want.ID = alerts[0].ID
	}
	s.equal("alert", alerts, []kernel.Alert{want})
	raise(7)
	failed := errors.New("failed")
	if err := s.store.Update(ctx, func(tx kernel.Tx) error {
		s.must(tx.RaiseFence(2_000_000_000_000, want))
		return failed
	}); !errors.Is(err, failed) {
		s.Errorf("got %v", err)
	}
	if got := read(); got != 1_000_000_000_000 {
		s.Errorf("fence is %d: lowered, or raised by a transaction that was rolled back", got)
	}
	if alerts := s.alerts(kernel.AlertFilter{}); len(alerts) != 2 {
		s.Errorf("%d alerts", len(alerts))
	}
	s.update(func(tx kernel.Tx) {
		_, err := tx.CloseAlert(want.ID, "anna", at(time.Hour))
		s.must(err)
	})
	if alerts := s.alerts(kernel.AlertFilter{}); len(alerts) != 1 {
		s.Errorf("%d alerts are open after one was closed", len(alerts))
	}
}

// A store gets the number of its cell once. Another number, or one that no cell can have, is refused, and nothing of
// that transaction is stored.
func cell(s *suite) {
	is := func(want int) {
		s.Helper()
		got, err := s.store.Cell(ctx)
		s.must(err)
		s.equal("cell", got, want)
	}
	refused := func(cell int, code perdure.Code) {
		s.Helper()
		if err := s.store.Update(ctx, func(tx kernel.Tx) error {
			s.must(tx.PutLimit(atMost("agent:beside", 1)))
			return tx.SetCell(cell)
		}); perdure.CodeOf(err) != code {
			s.Errorf("cell %d: %v, want %s", cell, err, code)
		}
	}
	is(0)
	for _, bad := range []int{-1, kernel.MaxCell + 1} {
		refused(bad, perdure.CodeInvalid)
	}
	failed := errors.New("failed")
	if err := s.store.Update(ctx, func(tx kernel.Tx) error {
		s.must(tx.SetCell(7))
		return failed
	}); !errors.Is(err, failed) {
		s.Errorf("got %v", err)
	}
	is(0)
	for range 2 {
		s.update(func(tx kernel.Tx) { s.must(tx.SetCell(kernel.MaxCell)) })
		is(kernel.MaxCell)
	}
	for _, other := range []int{1, 0, kernel.MaxCell - 1} {
		refused(other, perdure.CodeConflict)
	}
	is(kernel.MaxCell)
	limits, err := s.store.ListLimits(ctx)
	s.must(err)
	s.equal("limits of refused transactions", len(limits), 0)
}
