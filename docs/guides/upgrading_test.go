package guides

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// show: tolerant
type ChargeV2 struct {
	Amount   int    `json:"amount"`
	Currency string `json:"currency"` // new
}

func paymentsV2(charge func(ChargeV2) Receipt) *perdure.Agent {
	a := perdure.NewAgent("payments")
	perdure.Handle(a, "charge", perdure.Op[ChargeV2, Receipt]{
		Do: func(_ context.Context, in ChargeV2) (Receipt, error) {
			if in.Currency == "" { // of a job that was submitted before
				in.Currency = "EUR"
			}
			return charge(in), nil
		},
		Undo: func(context.Context, ChargeV2, Receipt) error { return nil },
	})
	return a
}

// end

func paymentsV3(charge, chargeNet perdure.Handler) *perdure.Agent {
	a := perdure.NewAgent("payments")
	a.HandleRaw("charge", charge)
	a.HandleRaw("chargeNet", chargeNet)
	return a
}

func TestNewCodeRunsOldJobs(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		var mu sync.Mutex
		var got []ChargeV2
		old := w.SubmitText("type: order\nsteps:\n  charge: {agent: payments, with: {amount: 1}, undo: {}}\n")
		now := w.SubmitText("type: order\nsteps:\n  charge: {agent: payments, with: {amount: 2, currency: CHF}, undo: {}}\n")
		w.Carry(paymentsV2(func(in ChargeV2) Receipt {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, in)
			return Receipt{}
		}))
		old.Done()
		now.Done()
		if len(got) != 2 || got[0] != (ChargeV2{1, "EUR"}) && got[1] != (ChargeV2{1, "EUR"}) {
			t.Errorf("%+v", got)
		}
	})
	perduretest.Run(t, func(w *perduretest.World) {
		called := ""
		record := func(name string) perdure.Handler {
			return func(context.Context, *perdure.Run) (json.RawMessage, error) { called += name; return nil, nil }
		}
		job := w.SubmitText("type: order\nflow: chain\nsteps:\n  charge: {agent: payments}\n  again: {agent: payments, action: chargeNet}\n")
		w.Carry(paymentsV3(record("old "), record("new")))
		job.Done()
		if called != "old new" {
			t.Error(called)
		}
	})
}
