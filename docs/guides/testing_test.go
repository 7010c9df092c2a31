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
		w.Inject("charge", perduretest.CrashAfter) // after the charge, before the report
		job := w.Submit(order("order-1", Order{SKU: "tea-12", Amount: 4200}))
		job.Done()
		bank.Once("charge") // called twice under one key: one effect
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
		if elapsed := w.Elapsed(); elapsed < 4*time.Hour { // virtual time
			t.Errorf("the job was undone after %v", elapsed)
		}
	})
}

// end

// show: own
func TestMyHandlers(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		c := &fakeCarrier{shipped: map[string]string{}}
		w.Carry(shipping(c)) // the production agent, with a fake carrier
		w.Inject("ship", perduretest.CrashBefore)
		w.Inject("ship", perduretest.Late, perduretest.OfRuns(2))
		w.Inject("ship", perduretest.Twice, perduretest.OfRuns(3))
		job := w.Submit(perdure.Define("order").Step("ship", "shipping").With(Parcel{"Lisbon", 400}).Undo())
		job.Done()
		if len(c.shipped) != 1 {
			t.Errorf("%d parcels, want 1", len(c.shipped))
		}
	})
}

// end
