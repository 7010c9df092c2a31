package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// executor is a holder that sends several claims at the same time, and complete heartbeats. Its network loses, doubles,
// delays and reorders calls and answers.
type executor struct {
	*harness
	has     []perdure.Run // not reported, or the answer to the report was lost
	lost    []perdure.Run // it has forgotten these
	open    []*claiming
	asOf    time.Time
	way     []protocol.CompleteHeartbeat
	answers []time.Time // to complete heartbeats, on their way
	claims  int
}

// claiming is a claim that is repeated until it is answered.
type claiming struct {
	claim   protocol.Claim
	granted []perdure.Run // by an answer that was lost
}

func (x *executor) heartbeat() protocol.CompleteHeartbeat {
	c := protocol.CompleteHeartbeat{Holder: "h", AsOf: x.asOf}
	for _, o := range x.open {
		c.OpenClaims = append(c.OpenClaims, o.claim.RequestID)
	}
	for _, r := range x.has {
		c.Runs = append(c.Runs, protocol.Heartbeat{Job: r.Job, Step: r.Step, Run: r.Number})
	}
	return c
}

func (x *executor) deliver(c protocol.CompleteHeartbeat) {
	x.t.Helper()
	_, asOf, err := x.HeartbeatAll(x.t.Context(), c)
	if err != nil {
		x.t.Fatal(err)
	}
	x.answers = append(x.answers, asOf)
}

// receive takes an answer to a complete heartbeat, perhaps an old one.
func (x *executor) receive(i int) {
	if x.answers[i].After(x.asOf) {
		x.asOf = x.answers[i]
	}
	x.answers = slices.Delete(x.answers, i, i+1)
}

func (x *executor) newClaim() {
	x.claims++
	x.open = append(x.open, &claiming{claim: protocol.Claim{Agent: "a", Holder: "h", Max: 2, RequestID: fmt.Sprint("r", x.claims)}})
}

// tryClaim sends an open claim, perhaps once more.
func (x *executor) tryClaim(i int, answered bool) {
	o := x.open[i]
	o.granted = x.claim(o.claim)
	if answered {
		x.has = append(x.has, o.granted...)
		x.open = slices.Delete(x.open, i, i+1)
	}
}

// running reports whether the store still has the run for the holder.
func (x *executor) running(r perdure.Run) bool {
	x.t.Helper()
	steps, err := x.store.StepsOf(x.t.Context(), r.Job, time.Time{})
	if err != nil {
		x.t.Fatal(err)
	}
	i := slices.IndexFunc(steps, func(s *kernel.Step) bool { return s.Name == r.Step })
	return steps[i].Phase == perdure.Running && steps[i].Run == r.Number && steps[i].LockedBy == "h"
}

// No complete heartbeat ends a run that its holder executes, or whose grant is on its way to the holder; however late it
// arrives, and how often (F185). A run that the holder has forgotten ends with the next but one (F184).
func TestCompleteHeartbeatsEndLostRunsOnly(t *testing.T) {
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		x := &executor{harness: open(t, memory.New(), scheduler.Config{})}
		for range 60 {
			x.submit("type: t\nsteps:\n  s: {agent: a, completeWithin: 1h, retry: {attempts: 50, backoff: 1ms}}\n")
		}
		for range 200 {
			switch rnd.IntN(9) {
			case 0:
				if len(x.open) < 3 {
					x.newClaim()
				}
			case 1, 2:
				if len(x.open) > 0 {
					x.tryClaim(rnd.IntN(len(x.open)), rnd.IntN(3) > 0)
				}
			case 3:
				x.way = append(x.way, x.heartbeat())
			case 4, 5: // some arrive late, twice, or in another order
				if len(x.way) > 0 {
					i := rnd.IntN(len(x.way))
					x.deliver(x.way[i])
					if rnd.IntN(3) > 0 {
						x.way = slices.Delete(x.way, i, i+1)
					}
				}
			case 6:
				if len(x.answers) > 0 {
					x.receive(rnd.IntN(len(x.answers)))
				}
			case 7:
				if len(x.has) > 0 {
					i := rnd.IntN(len(x.has))
					x.report("h", x.has[i], perdure.OutcomeFailed)
					if rnd.IntN(3) > 0 { // else the answer is lost
						x.has = slices.Delete(x.has, i, i+1)
					}
				}
			case 8:
				if i := len(x.has) - 1; i >= 0 && rnd.IntN(3) == 0 {
					x.lost = append(x.lost, x.has[i])
					x.has = x.has[:i]
				}
			}
			owned := slices.Clone(x.has)
			for _, o := range x.open {
				owned = append(owned, o.granted...)
			}
			for _, r := range owned {
				if x.expired(r) {
					t.Fatalf("seed %d: run %d of %s has expired, and its holder executes it, or will", seed, r.Number, r.Job)
				}
			}
		}
		for len(x.open) > 0 {
			x.tryClaim(0, true)
		}
		for range 2 {
			time.Sleep(2 * time.Millisecond)
			x.deliver(x.heartbeat())
			x.receive(len(x.answers) - 1)
		}
		for _, r := range x.lost {
			if x.running(r) {
				t.Errorf("seed %d: run %d of %s was forgotten by its holder, and goes on", seed, r.Number, r.Job)
			}
		}
	}
}

// expired reports whether the run has expired.
func (x *executor) expired(r perdure.Run) bool {
	x.t.Helper()
	entries, err := x.store.History(x.t.Context(), r.Job, 0, 1000)
	if err != nil {
		x.t.Fatal(err)
	}
	return slices.ContainsFunc(entries, func(e kernel.Entry) bool { return e.Run == r.Number && e.Event == "expired" })
}

// On each store: the run that is not listed expires with the code lost, those of other holders and agents of other tokens
// stay, and an empty complete heartbeat of an idle holder does the same.
func TestCompleteHeartbeatExpiresWhatIsNotListed(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		for range 3 {
			d.submit("type: t\nsteps:\n  s: {agent: a, completeWithin: 1h, retry: {backoff: 1h}}\n")
		}
		mine := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 2, RequestID: "r1"})
		other := d.claim(protocol.Claim{Agent: "a", Holder: "g", Max: 1, RequestID: "r1"})
		listed := []protocol.Heartbeat{{Job: mine[0].Job, Step: "s", Run: mine[0].Number}}
		all := func(runs []protocol.Heartbeat, asOf time.Time, open ...string) protocol.CompleteHeartbeat {
			return protocol.CompleteHeartbeat{Holder: "h", Runs: runs, AsOf: asOf, OpenClaims: open}
		}
		now := mine[0].LockedUntil.Add(-time.Hour + time.Millisecond) // after the claims, by the store's clock
		foreign := operate.WithIdentity(t.Context(), &operate.Identity{Name: "ci", Rights: operate.Rights{Role: operate.Agent, Agents: []string{"b"}}})
		if _, _, err := d.HeartbeatAll(foreign, all(nil, now)); err != nil {
			t.Fatal(err)
		}
		phases := func() (all []perdure.Phase) {
			for _, r := range append(slices.Clone(mine), other...) {
				steps, err := store.StepsOf(t.Context(), r.Job, time.Time{})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, steps[0].Phase)
			}
			return all
		}
		if got := phases(); !slices.Equal(got, []perdure.Phase{perdure.Running, perdure.Running, perdure.Running}) {
			t.Errorf("with a token for another agent: %v", got)
		}
		results, asOf, err := d.HeartbeatAll(t.Context(), all(listed, time.Time{}))
		if err != nil || len(results) != 1 || results[0].Stop || asOf.IsZero() {
			t.Fatalf("%+v, %v, %v", results, asOf, err)
		}
		if _, _, err := d.HeartbeatAll(t.Context(), all(nil, asOf, "r0", "r1")); err != nil {
			t.Fatal(err)
		}
		if got := phases(); !slices.Equal(got, []perdure.Phase{perdure.Running, perdure.Running, perdure.Running}) {
			t.Errorf("the claim may be on its way: %v", got)
		}
		for _, list := range [][]protocol.Heartbeat{listed, nil} {
			if _, _, err := d.HeartbeatAll(t.Context(), all(list, asOf)); err != nil {
				t.Fatal(err)
			}
		}
		if got := phases(); !slices.Equal(got, []perdure.Phase{perdure.Waiting, perdure.Waiting, perdure.Running}) {
			t.Errorf("not listed: %v", got)
		}
		entries, err := store.History(t.Context(), mine[1].Job, 0, 10)
		if err != nil || !slices.ContainsFunc(entries, func(e kernel.Entry) bool { return e.Event == "expired" && strings.HasPrefix(e.Detail, "lost") }) {
			t.Errorf("%+v, %v", entries, err)
		}
		if res := d.report("h", mine[1], perdure.OutcomeDone); res.Accepted {
			t.Errorf("a report of a run that its holder had lost: %+v", res)
		}
	})
}

// heldBy is a store whose transactions call a function before they read all runs of a holder.
type heldBy struct {
	kernel.Store
	before func()
}

func (s heldBy) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return s.Store.Update(ctx, func(tx kernel.Tx) error { return fn(heldByTx{tx, s}) })
}

type heldByTx struct {
	kernel.Tx
	s heldBy
}

func (tx heldByTx) HeldBy(holder, agent, request string, max int) ([]kernel.StepRef, error) {
	if request == "" {
		tx.s.before()
	}
	return tx.Tx.HeldBy(holder, agent, request, max)
}

// F185: the sender of a complete heartbeat gives up while the transaction is under way. It gets no time, which only a
// transaction that was committed may give; and the run that is lost expires.
func TestCompleteHeartbeatWhoseSenderGivesUp(t *testing.T) {
	store := memory.New()
	ctx, giveUp := context.WithCancel(t.Context())
	left := make(chan struct{})
	d := open(t, heldBy{store, func() { giveUp(); <-left }}, scheduler.Config{})
	d.submit("type: t\nsteps:\n  s: {agent: a, completeWithin: 1h, retry: {backoff: 1h}}\n")
	run := d.claim(protocol.Claim{Agent: "a", Holder: "h", RequestID: "r"})[0]
	c := protocol.CompleteHeartbeat{Holder: "h", AsOf: run.LockedUntil.Add(-time.Hour + time.Millisecond)}
	_, asOf, err := d.HeartbeatAll(ctx, c)
	close(left)
	if !errors.Is(err, context.Canceled) || !asOf.IsZero() {
		t.Errorf("%v, %v", asOf, err)
	}
	d.submit(one) // after the transaction
	if steps, err := store.StepsOf(t.Context(), run.Job, time.Time{}); err != nil || steps[0].Phase != perdure.Waiting {
		t.Errorf("%+v, %v", steps, err)
	}
}
