package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
)

// The showcase is what `shop demo --stay` shows in the console beside the orders of the demo: jobs that wait for an
// operator, that run for a while, that are being undone, and new ones every few seconds. Its agents are in the process of
// the demo. They call no service, and the audit does not cover them.

const (
	showcaseEvery = 4 * time.Second // time between two new orders
	showcaseMost  = 500             // orders; after them nothing new arrives
	showcasePages = 998             // of the catalogue, which has 1,000 steps
	showcaseSlots = 40              // runs at once of one agent
)

// task is the input of a run of the showcase.
type task struct {
	Takes  perdure.Duration `json:"takes,omitempty"`  // how long the run takes
	Undo   perdure.Duration `json:"undo,omitempty"`   // how long its undo takes
	Fail   string           `json:"fail,omitempty"`   // the code of the error with which every do run ends
	Reject string           `json:"reject,omitempty"` // the same, and it is not tried again
	Says   string           `json:"says,omitempty"`   // the message of the error
}

// showcaseAgents returns the agents that carry out the showcase's runs.
func showcaseAgents() []*perdure.Agent {
	var agents []*perdure.Agent
	for _, name := range []string{"warehouse", "bank", "office", "carrier", "press"} {
		agent := perdure.NewAgent(name)
		agent.Slots = showcaseSlots
		agent.HandleAny(work)
		agents = append(agents, agent)
	}
	return agents
}

func work(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
	var in task
	if err := json.Unmarshal(run.Input, &in); err != nil {
		return nil, perdure.Rejected(err, "badInput")
	}
	takes := in.Takes
	if run.Direction == perdure.Undo {
		takes = in.Undo
	}
	const parts = 10
	for i := range parts {
		if time.Duration(takes) >= 5*time.Second {
			if err := perdure.Progress(ctx, map[string]any{"done": i, "total": parts}); err != nil {
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, perdure.Returned(ctx.Err())
		case <-time.After(time.Duration(takes) / parts):
		}
	}
	switch {
	case run.Direction == perdure.Undo:
		return nil, nil
	case in.Reject != "":
		return nil, perdure.NoEffect(perdure.Rejected(errors.New(in.Says), in.Reject))
	case in.Fail != "":
		return nil, perdure.Failed(errors.New(in.Says), in.Fail)
	}
	return json.Marshal(map[string]any{"number": fmt.Sprintf("%s-%d", run.Step, run.Number)})
}

// showcaseOrder is the definition of an order. charge is the input of the step charge, and ship of the step ship.
func showcaseOrder(number int, onFailure, charge, ship string) string {
	customers := []string{"Ada", "Grace", "Edsger", "Barbara", "Tony", "Frances"}
	return fmt.Sprintf(`type: order
key: order-%d
labels: {customer: %s, region: %s}
input: {order: order-%d, amount: %d.90, lines: [{sku: assam, units: 2}, {sku: sencha, units: 1}]}
onFailure: %s
completeWithin: 4h
steps:
  reserve: {agent: warehouse, with: {takes: 300ms, undo: 300ms}, undo: {}}
  charge: {agent: bank, after: [reserve], with: %s, undo: {}, completeWithin: 30m, retry: {attempts: 5, backoff: 200ms, maxBackoff: 1s}}
  invoice: {agent: office, after: [reserve], with: {takes: 200ms, undo: 200ms}, undo: {}}
  ship: {agent: carrier, after: [charge, invoice], with: %s, undo: {}, completeWithin: 2h}
  mail: {agent: office, after: [ship], with: {takes: 100ms}}
`, number, customers[number%len(customers)], []string{"eu", "us"}[number%2], number, number%90+10, onFailure, charge, ship)
}

// showcaseJobs returns the definitions that the showcase begins with.
func showcaseJobs() []string {
	const (
		pays     = "{takes: 400ms, undo: 400ms}"
		ships    = "{takes: 500ms, undo: 500ms}"
		slow     = "{takes: 25m, undo: 1s}"
		declined = `{fail: card_declined, says: "the bank says no: 51 insufficient funds"}`
	)
	jobs := []string{
		showcaseOrder(1039, "park", pays, ships),
		showcaseOrder(1040, "undo", `{reject: card_expired, says: "the card has expired"}`, ships),
		showcaseOrder(1041, "park", pays, slow),
		showcaseOrder(1042, "park", declined, ships),
		showcaseOrder(1043, "undo", `{reject: card_declined, says: "the bank says no: 05 do not honour"}`, ships),
		showcaseOrder(1044, "park", declined, ships),
		showcaseOrder(1045, "park", pays, `{reject: unknown_address, says: "no carrier serves 1 Mill Street"}`),
		// Its ship fails, and the undo of its charge takes long.
		showcaseOrder(1046, "undo", "{takes: 400ms, undo: 25m}", `{reject: unknown_address, says: "no carrier serves 7 Quay"}`),
		`type: refund
key: refund-77
labels: {customer: Ada}
input: {order: order-0077, amount: 412.00}
steps:
  approve: {agent: approval, with: {message: "Refund 412.00 to Ada for order-0077?", group: finance}}
  pay: {agent: bank, after: [approve], with: {takes: 400ms, undo: 400ms}, undo: {}}
  tell: {agent: office, after: [pay], with: {takes: 100ms}}
`,
		// No process claims the runs of its second step.
		`type: newsletter
key: newsletter-2026-11
steps:
  write: {agent: office, with: {takes: 300ms}}
  send: {agent: newsletter, after: [write]}
`,
	}
	var catalogue strings.Builder
	catalogue.WriteString("type: catalogue\nkey: catalogue-2027\nsteps:\n  layout: {agent: office, with: {takes: 1s}}\n")
	names := make([]string, showcasePages)
	for i := range names {
		names[i] = fmt.Sprintf("page_%03d", i+1)
		in := "{takes: 2s}"
		if i == 416 {
			in = `{reject: missing_picture, says: "the picture assam-2027.tif is missing"}`
		}
		fmt.Fprintf(&catalogue, "  %s: {agent: press, action: print, after: [layout], with: %s}\n", names[i], in)
	}
	fmt.Fprintf(&catalogue, "  bind: {agent: press, after: [%s], with: {takes: 5s}}\n", strings.Join(names, ", "))
	return append(jobs, catalogue.String())
}

// submitShowcase submits the jobs that the showcase begins with.
func submitShowcase(ctx context.Context, node perdure.Service) error {
	press := 20
	if _, err := node.PutLimit(ctx, "agent:press", perdure.LimitSettings{Max: &press}); err != nil {
		return err
	}
	for _, job := range showcaseJobs() {
		if _, _, err := node.Submit(ctx, []byte(job), "application/yaml"); err != nil {
			return err
		}
	}
	return nil
}

// showcase runs the showcase's agents, and submits its jobs, until ctx ends.
func showcase(ctx context.Context, node *client.Client, seed uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		config := client.ServeConfig{Name: "showcase", Grace: time.Second, Log: slog.New(slog.DiscardHandler)}
		served <- node.Serve(ctx, config, showcaseAgents()...)
	}()
	if err := submitShowcase(ctx, node); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed, 0))
	tick := time.NewTicker(showcaseEvery)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
			return <-served
		case <-tick.C:
		}
		if n == showcaseMost {
			continue
		}
		charge := fmt.Sprintf("{takes: %dms, undo: 1s}", 500+random.IntN(4000))
		if random.IntN(8) == 0 {
			charge = `{reject: card_declined, says: "the bank says no: 05 do not honour"}`
		}
		job := showcaseOrder(1100+n, "undo", charge, fmt.Sprintf("{takes: %dms, undo: 1s}", 1000+random.IntN(20_000)))
		if _, _, err := node.Submit(ctx, []byte(job), "application/yaml"); err == nil {
			n++ // otherwise it is submitted again: the node may be starting
		}
	}
}
