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
// The new code is handed what the old one has written: inputs of jobs that were submitted before, and outputs of
// runs that it did. Fields are added and become optional; none changes its meaning.
type ChargeV2 struct {
	Amount   int    `json:"amount"`
	Currency string `json:"currency"` // new
}

func paymentsV2(charge func(ChargeV2) Receipt) *perdure.Agent {
	a := perdure.NewAgent("payments")
	perdure.Handle(a, "charge", perdure.Op[ChargeV2, Receipt]{
		Do: func(_ context.Context, in ChargeV2) (Receipt, error) {
			if in.Currency == "" {
				in.Currency = "EUR" // as it was before there were others
			}
			return charge(in), nil
		},
		Undo: func(context.Context, ChargeV2, Receipt) error { return nil },
	})
	return a
}

// end

// show: both
// Where the meaning does change, the new meaning gets a new action: jobs in flight ask for the old one until the
// last of them is gone.
func paymentsV3(old, now perdure.Handler) *perdure.Agent {
	a := perdure.NewAgent("payments")
	a.HandleRaw("charge", old)
	a.HandleRaw("chargeNet", now)
	return a
}

// end

func TestUpgrading(t *testing.T) {
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
		asked := ""
		say := func(what string) perdure.Handler {
			return func(context.Context, *perdure.Run) (json.RawMessage, error) { asked += what; return nil, nil }
		}
		job := w.SubmitText("type: order\nflow: chain\nsteps:\n  charge: {agent: payments}\n  again: {agent: payments, action: chargeNet}\n")
		w.Carry(paymentsV3(say("old "), say("new")))
		job.Done()
		if asked != "old new" {
			t.Error(asked)
		}
	})
}
