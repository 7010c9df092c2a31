package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/memory"
)

type Charge struct {
	Amount int `json:"amount"`
}

type Receipt struct {
	ID string `json:"id"`
}

// A store, a node and an agent in one program, and a job that is done and undone.
func Example() {
	payments := perdure.NewAgent("payments")
	perdure.Handle(payments, "charge", perdure.Op[Charge, Receipt]{
		Do: func(ctx context.Context, in Charge) (Receipt, error) {
			fmt.Println("charge", in.Amount)
			return Receipt{ID: "r-1"}, nil
		},
		Undo: func(ctx context.Context, in Charge, out Receipt) error {
			fmt.Println("refund", out.ID)
			return nil
		},
	})
	ctx := context.Background()
	n := node.New(memory.New(), node.Config{Agents: []*perdure.Agent{payments}})
	if err := n.Start(ctx); err != nil {
		panic(err)
	}
	defer n.Stop(ctx)

	order := perdure.Define("order").Key("order-1042").Input(Charge{Amount: 4200}).
		Step("charge", "payments").With("${input}").Undo()
	if _, _, err := perdure.Submit(ctx, n, order); err != nil {
		panic(err)
	}
	job, err := perdure.Wait(ctx, n, "order-1042")
	fmt.Println(job.Current, err)
	if _, err := n.Act(ctx, "order-1042", perdure.Act{Verb: perdure.VerbUndo, Author: "anna", Reason: "changed my mind"}); err != nil {
		panic(err)
	}
	job, err = perdure.Wait(ctx, n, "order-1042")
	fmt.Println(job.Current, err)
	// Output:
	// charge 4200
	// done <nil>
	// refund r-1
	// undone <nil>
}

var (
	errDeclined = errors.New("card declined")
	errBusy     = errors.New("the bank is busy")
)

// A handler reads its run, and its error says how the run failed.
func ExampleHandle() {
	payments := perdure.NewAgent("payments")
	perdure.Handle(payments, "charge", perdure.Op[Charge, Receipt]{
		Do: func(ctx context.Context, in Charge) (Receipt, error) {
			run := perdure.RunOf(ctx)                                               // its Key, the same for all attempts, lets the bank recognize a repeat
			_ = perdure.Progress(ctx, map[string]any{"asking": "bank"})             // is shown, and sent with the next heartbeat
			if until, ok := ctx.Deadline(); ok && time.Until(until) < time.Second { // ends at the deadline
				return Receipt{}, perdure.NoEffect(errors.New("too little time is left"))
			}
			switch {
			case in.Amount > 10_000:
				return Receipt{}, perdure.NoEffect(perdure.Rejected(errDeclined, "declined")) // do not try again; nothing was changed
			case run.Number == 1:
				return Receipt{}, perdure.RetryAfter(10*time.Millisecond, errBusy)
			}
			return Receipt{ID: fmt.Sprint("for run ", run.Number)}, nil
		},
	})
	ctx := context.Background()
	n := node.New(memory.New(), node.Config{Agents: []*perdure.Agent{payments}})
	if err := n.Start(ctx); err != nil {
		panic(err)
	}
	defer n.Stop(ctx)
	for _, amount := range []int{4200, 42_000} {
		order := perdure.Define("order").Step("charge", "payments").With(Charge{amount}).Undo().
			Retry(perdure.Retry{Attempts: 3, Backoff: perdure.Duration(time.Millisecond)})
		job, _, err := perdure.Submit(ctx, n, order)
		if err != nil {
			panic(err)
		}
		if job, err = perdure.Wait(ctx, n, job.ID.String()); err != nil {
			panic(err)
		}
		receipt, err := perdure.OutputOf[Receipt](job, "charge")
		fmt.Println(job.Phase, job.Steps.Get("charge").Current, receipt.ID, err != nil)
	}
	// Output:
	// settled done for run 2 false
	// parked undone  true
}

// Watch shows the changes of a job as they happen.
func ExampleWatch() {
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	a := perdure.NewAgent("a")
	perdure.Handle(a, "step", perdure.Op[any, any]{Do: func(ctx context.Context, in any) (any, error) { <-gate; return nil, nil }})
	ctx := context.Background()
	n := node.New(memory.New(), node.Config{Agents: []*perdure.Agent{a}})
	if err := n.Start(ctx); err != nil {
		panic(err)
	}
	defer n.Stop(ctx)
	job, _, err := perdure.Submit(ctx, n, perdure.Define("t").Step("step", "a"))
	if err != nil {
		panic(err)
	}
	for view, err := range perdure.Watch(ctx, n, job.ID.String()) {
		if err != nil {
			panic(err)
		}
		if s := view.Steps.Get("step"); s != nil && s.Phase == perdure.Running {
			open()
		}
		if view.AtRest() {
			fmt.Println(view.Current)
		}
	}
	// Output: done
}

// All lists jobs by type and state, newest first.
func ExampleAll() {
	ctx := context.Background()
	n := node.New(memory.New(), node.Config{})
	defer n.Stop(ctx)
	for _, key := range []string{"a", "b", "c"} {
		if _, _, err := perdure.Submit(ctx, n, perdure.Define("t").Key(key).Label("kind", "x").Step("s", "absent")); err != nil {
			panic(err)
		}
	}
	for job, err := range perdure.All(ctx, n, perdure.JobQuery{Labels: map[string]string{"kind": "x"}, Limit: 2}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(job.Key)
	}
	// Output:
	// c
	// b
	// a
}
