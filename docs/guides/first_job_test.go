// Package guides contains the code that the guides show. All of it is executed by tests.
package guides

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/rest"
	"github.com/perdure/perdure/store/sqlite"
)

// show: types
type Order struct {
	SKU    string `json:"sku"`
	Amount int    `json:"amount"` // cents
}

type Charge struct {
	Amount int `json:"amount"`
}

type Receipt struct {
	ID string `json:"id"`
}

// end

type bank struct{ log []string }

// show: agent
func payments(b *bank) *perdure.Agent {
	a := perdure.NewAgent("payments")
	perdure.Handle(a, "charge", perdure.Op[Charge, Receipt]{
		Do: func(ctx context.Context, in Charge) (Receipt, error) {
			return b.Charge(ctx, in.Amount, perdure.RunOf(ctx).Key)
		},
		Undo: func(ctx context.Context, in Charge, out Receipt) error {
			return b.Refund(ctx, perdure.RunOf(ctx).DoKey)
		},
	})
	return a
}

// end

// show: define
func order(id string, o Order) perdure.Definable {
	job := perdure.Define("order").Key(id).Input(o).OnFailure(perdure.UndoRung())
	job.Step("reserve", "stock").With(map[string]string{"sku": "${input.sku}"}).Undo()
	job.Step("charge", "payments").After("reserve").With(map[string]string{"amount": "${input.amount}"}).Undo()
	return job
}

// end

func (b *bank) Charge(_ context.Context, amount int, key string) (Receipt, error) {
	b.log = append(b.log, fmt.Sprint("charge ", amount))
	return Receipt{ID: key}, nil
}

func (b *bank) Refund(_ context.Context, key string) error {
	b.log = append(b.log, "refund")
	return nil
}

func stock(done func(string)) *perdure.Agent {
	a := perdure.NewAgent("stock")
	perdure.Handle(a, "reserve", perdure.Op[Order, string]{
		Do:   func(_ context.Context, in Order) (string, error) { done("reserve " + in.SKU); return "shelf 7", nil },
		Undo: func(_ context.Context, in Order, _ string) error { done("release " + in.SKU); return nil },
	})
	return a
}

func TestFirstJob(t *testing.T) {
	b := &bank{}
	path, log := t.TempDir()+"/shop.db", slog.New(slog.DiscardHandler)
	run := func(ctx context.Context) error {
		// show: embed
		db, err := sqlite.Open(path)
		if err != nil {
			return err
		}
		defer db.Close()
		n := node.New(db, node.Config{Log: log, Agents: []*perdure.Agent{payments(b), stock(b.note)}})
		if err := n.Start(ctx); err != nil {
			return err
		}
		defer func() {
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			if err := n.Stop(grace); err != nil {
				log.Error("node did not stop cleanly", "error", err)
			}
		}()
		// end
		// show: submit
		if _, _, err := perdure.Submit(ctx, n, order("order-1042", Order{SKU: "tea-12", Amount: 4200})); err != nil {
			return err
		}
		done, err := perdure.Wait(ctx, n, "order-1042")
		if err != nil {
			return err
		}
		if done.Current != perdure.Done { // it was undone, or is parked: the steps say why
			return fmt.Errorf("order-1042 is %s and %s", done.Current, done.Phase)
		}
		receipt, err := perdure.OutputOf[Receipt](done, "charge")
		// end
		if err != nil || receipt.ID == "" {
			return fmt.Errorf("%+v, %w", receipt, err)
		}
		// show: undo
		_, err = n.Act(ctx, "order-1042", perdure.Act{Verb: perdure.VerbUndo, Author: "anna", Reason: "ordered twice"})
		if err != nil {
			return err
		}
		undone, err := perdure.Wait(ctx, n, "order-1042")
		// end
		if err == nil && undone.Current != perdure.Undone {
			err = fmt.Errorf("%+v", undone)
		}
		if err != nil {
			return err
		}
		address := "127.0.0.1:0"
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		// show: operate
		serving, stopServing := context.WithCancel(ctx)
		mux := http.NewServeMux() // of your program, which serves it on 127.0.0.1:8080, for example
		mux.Handle("/perdure/", http.StripPrefix("/perdure", rest.Handler(n, rest.Until(serving))))
		// end
		server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
		go func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				log.Error("HTTP server failed", "error", err)
			}
		}()
		defer func() { // deferred later than n.Stop, so it runs first
			stopServing()
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			if err := server.Shutdown(grace); err != nil {
				log.Error("HTTP server did not stop in time", "error", err)
			}
		}()
		url := "http://" + listener.Addr().String() + "/perdure/v1/jobs/order-1042"
		answer, err := http.Get(url)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s is answered %s", url, answer.Status)
		}
		return nil
	}
	if err := run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(b.log); got != "[reserve tea-12 charge 4200 refund release tea-12]" {
		t.Error(got)
	}
}

func (b *bank) note(line string) { b.log = append(b.log, line) }
