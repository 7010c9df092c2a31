package guides

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

type mailer interface {
	Send(ctx context.Context, to, id string) error
}

// show: river
type WelcomeArgs struct {
	To string `json:"to"`
}

func mail(m mailer) *perdure.Agent {
	a := perdure.NewAgent("mail")
	perdure.Handle(a, "welcome", perdure.Op[WelcomeArgs, any]{
		Do: func(ctx context.Context, args WelcomeArgs) (any, error) {
			return nil, m.Send(ctx, args.To, perdure.RunOf(ctx).Key)
		},
	})
	return a
}

func welcome(to string) perdure.Definable {
	return perdure.Define("welcome").Key("welcome-"+to).
		Step("welcome", "mail").With(perdure.Literal(WelcomeArgs{to})).
		CompleteWithin(time.Minute).Retry(perdure.Retry{Attempts: 25, MaxBackoff: perdure.Duration(time.Hour)})
}

// end

// show: temporal
// A saga in workflow code:
//
//	err = workflow.ExecuteActivity(ctx, Reserve, order).Get(ctx, &reservation)
//	defer func() { if err != nil { workflow.ExecuteActivity(ctx, Release, reservation) } }()
//	err = workflow.ExecuteActivity(ctx, ChargeCard, order).Get(ctx, &receipt)
//
// becomes a definition:
func saga(o Order) perdure.Definable {
	job := perdure.Define("order").Input(o).OnFailure(perdure.UndoRung())
	job.Step("reserve", "stock").With(map[string]string{"sku": "${input.sku}"}).Undo()
	job.Step("charge", "payments").After("reserve").When("input.amount > 0").
		With(map[string]string{"amount": "${input.amount}", "from": "${steps.reserve.output}"}).Undo()
	return job
}

// end

type outbox []string

func (o *outbox) Send(_ context.Context, to, id string) error {
	if len(*o) == 0 {
		*o = append(*o, "")
		return errors.New("try again")
	}
	*o = append(*o, to)
	return nil
}

func TestMigratedJobsRun(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		var sent outbox
		w.Carry(mail(&sent))
		w.Submit(welcome("anna@example.org")).Done()
		if len(sent) != 2 || sent[1] != "anna@example.org" {
			t.Error(sent)
		}
	})
	perduretest.Run(t, func(w *perduretest.World) {
		stock, bank := w.Fake("stock"), w.Fake("payments")
		w.Submit(saga(Order{"tea-12", 0})).Done()
		stock.Once("reserve")
		if bank.Effects("charge") != 0 {
			t.Error("charge had an effect although its condition is false")
		}
		bank.Fail("charge", 9, perdure.Rejected(errors.New("declined"), "declined"))
		w.Submit(saga(Order{"tea-12", 1})).Undone()
		if stock.Net("reserve") != 1 { // the one of the first order
			t.Errorf("%d reservations are left, want 1", stock.Net("reserve"))
		}
	})
}
