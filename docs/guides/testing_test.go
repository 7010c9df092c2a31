package guides

import (
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// show: crash
func TestAnOrderSurvivesACrash(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		stock, bank := w.Fake("stock"), w.Fake("payments")
		w.Inject("charge", perduretest.CrashAfter) // charged, and nobody has heard of it
		job := w.Submit(order("order-1", Order{SKU: "tea-12", Amount: 4200}))
		job.Done()
		bank.Once("charge") // asked twice, under one key
		job.Undo().Undone()
		bank.Gone("charge")
		stock.Gone("reserve")
	})
}

// end

// show: outage
func TestAnOrderIsUndoneIfTheBankIsDown(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		stock, bank := w.Fake("stock"), w.Fake("payments")
		bank.Fail("charge", 99, perdure.RetryAfter(time.Hour, errors.New("down")))
		w.Submit(order("order-1", Order{SKU: "tea-12", Amount: 4200})).Undone()
		stock.Gone("reserve")
		if took := w.Elapsed(); took < 4*time.Hour { // of virtual time: the test takes milliseconds
			t.Errorf("it gave up after %v", took)
		}
	})
}

// end

// show: own
func TestMyHandlers(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		p := &post{shipped: map[string]string{}}
		w.Carry(shipping(p)) // the agent that production has, with a carrier of the test's
		w.Inject("ship", perduretest.CrashBefore)
		w.Inject("ship", perduretest.Late, perduretest.OfRuns(2))
		w.Inject("ship", perduretest.Twice, perduretest.OfRuns(3))
		job := w.Submit(perdure.Define("order").Step("ship", "shipping").With(Parcel{"Lisbon", 400}).Undo())
		job.Done()
		if len(p.shipped) != 1 {
			t.Errorf("%d parcels", len(p.shipped))
		}
	})
}

// end
