package guides

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/perduretest"
)

// show: payment
func invoice(id string) perdure.Definable {
	job := perdure.Define("invoice").Key(id).Input(map[string]string{"paymentId": "pay_123"}).OnFailure(perdure.UndoRung())
	job.Step("reserve", "stock").Undo()
	job.Step("paid", "signal").After("reserve").
		With(map[string]string{"name": "payment.completed", "key": "${input.paymentId}"}).
		CompleteWithin(24 * time.Hour) // then the step has failed with the code expired
	job.Step("ship", "carrier").After("paid").With(map[string]string{"amount": "${steps.paid.output.data.amount}"})
	return job
}

// end

// show: approval
func refund(id string) perdure.Definable {
	job := perdure.Define("refund").Key(id).Input(map[string]any{"amount": 41200}).OnFailure(perdure.UndoRung())
	job.Step("ok", "approval").
		With(map[string]any{"group": "managers", "message": "Refund ${input.amount} cents?", "quorum": 2, "excludeSubmitter": true}).
		CompleteWithin(3 * 24 * time.Hour)
	job.Step("pay", "bank").After("ok")
	return job
}

// end

func TestSignalGuide(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		stock, carrier := w.Fake("stock"), w.Fake("carrier")
		job := w.Submit(invoice("inv-1"))
		job.Until("reserve", perdure.Settled)
		if why := job.View().Steps.Get("paid").Why; why.Kind != perdure.WhySignal || why.Signal != "payment.completed" || why.Key != "pay_123" {
			t.Errorf("why: %+v", why)
		}
		server, ctx := w.Node(), context.Background()
		// show: send
		result, err := server.SendSignal(ctx, operate.Signal{Name: "payment.completed", Key: "pay_123",
			ID:   "evt_9", // the id of the event at its source: sent again, it has no second effect
			Data: json.RawMessage(`{"amount": 4200}`)})
		// end
		if err != nil || len(result.Matched) != 1 || result.Repeated {
			t.Errorf("%+v, %v", result, err)
		}
		again, err := server.SendSignal(ctx, operate.Signal{Name: "payment.completed", Key: "pay_123", ID: "evt_9"})
		if err != nil || !again.Repeated || len(again.Matched) != 1 {
			t.Errorf("again: %+v, %v", again, err)
		}
		v := job.Done()
		if in := string(v.Steps.Get("ship").Input); in != `{"amount":4200}` {
			t.Errorf("ship has the input %s", in)
		}
		if stock.Net("reserve") != 1 || carrier.Net("ship") != 1 {
			t.Error("not done once")
		}

		late := w.Submit(invoice("inv-2"))
		v = late.Undone() // no payment in 24 hours
		if e := v.Steps.Get("paid").LastError; e == nil || e.Code != "expired" || w.Elapsed() < 24*time.Hour {
			t.Errorf("%+v after %v", e, w.Elapsed())
		}
	})
}

func TestApprovalGuide(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		w.Fake("bank")
		job := w.Submit(refund("refund-77"))
		job.Until("ok", perdure.Waiting)
		approve := func(name string, groups ...string) error {
			id := &operate.Identity{Name: name, Rights: operate.Rights{Role: operate.Viewer, Groups: groups}, Via: operate.ViaToken}
			_, err := w.Node().Act(operate.WithIdentity(context.Background(), id), "refund-77", perdure.Act{Verb: perdure.VerbApprove, Step: "ok", Author: name})
			return err
		}
		if err := approve("cleo", "sales"); perdure.CodeOf(err) != perdure.CodeForbidden {
			t.Errorf("not a member: %v", err)
		}
		if err := approve("anna", "managers"); err != nil {
			t.Error(err)
		}
		why := job.View().Steps.Get("ok").Why
		if why.Quorum != 2 || len(why.Approvals) != 1 || why.Approvals[0].By != "anna" || why.Message != "Refund 41200 cents?" || !strings.Contains(why.Text, "(1 given: anna)") {
			t.Errorf("why: %+v", why)
		}
		if err := approve("ben", "managers"); err != nil {
			t.Error(err)
		}
		job.Done()
	})
}
