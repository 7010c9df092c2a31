package scheduler_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// down is a store that can be switched off: its transactions fail before they begin.
type down struct {
	kernel.Store
	off atomic.Bool
}

var errDown = errors.New("switched off")

func (d *down) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	if d.off.Load() {
		return errDown
	}
	return d.Store.Update(ctx, fn)
}

// F009, F097: if the store is down from the first transaction on, callers get an error, and nothing else goes wrong.
func TestCallersGetErrorsIfTheStoreIsDownFromTheStart(t *testing.T) {
	store := &down{Store: memory.New()}
	d := open(t, store, scheduler.Config{})
	store.off.Store(true)
	if _, err := d.Submit(t.Context(), plan(t, one)); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("submit: %v", err)
	}
	if _, err := d.Claim(t.Context(), protocol.Claim{Agent: "a", Holder: "h", Max: 1}); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("claim: %v", err)
	}
	store.off.Store(false)
	d.submit(one)
	if runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Wait: time.Minute}); len(runs) != 1 {
		t.Errorf("%+v", runs)
	}
}

// F019: a claim is repeated at a node that is cut off from the store and then stops. It is not answered "no work".
// (Found by the simulation.)
func TestNodeEndsWithoutAnsweringAClaimThatWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &down{Store: memory.New()}
		other := open(t, store.Store, scheduler.Config{})
		other.submit(one)
		claim := protocol.Claim{Agent: "a", Holder: "h", Max: 1, Wait: time.Minute, RequestID: "r"}
		other.claim(claim) // the answer is lost
		store.off.Store(true)
		s := scheduler.New(scheduler.Config{Store: store, Compiler: &definition.Compiler{}})
		ctx, end := context.WithCancel(t.Context())
		go s.Run(ctx)
		answered := make(chan error, 1)
		go func() {
			_, err := s.Claim(t.Context(), claim)
			answered <- err
		}()
		time.Sleep(5 * time.Second)
		end()
		if err := <-answered; perdure.CodeOf(err) != perdure.CodeUnavailable {
			t.Errorf("answer: %v", err)
		}
	})
}

// F019, F120: a claim is repeated at a node that is cut off from the store. However long it waits, it is not answered
// "no work". (Found by the simulation.)
func TestClaimIsNotAnsweredWhileTheStoreIsDown(t *testing.T) {
	store := &down{Store: memory.New()}
	d, other := open(t, store, scheduler.Config{}), open(t, store.Store, scheduler.Config{})
	other.submit(one)
	claim := protocol.Claim{Agent: "a", Holder: "h", Max: 1, Wait: time.Minute, RequestID: "r"}
	first := other.claim(claim) // the answer is lost
	store.off.Store(true)
	short := claim
	short.Wait = 20 * time.Millisecond
	if runs, err := d.Claim(t.Context(), short); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("%+v, %v", runs, err)
	}
	store.off.Store(false)
	if again := d.claim(claim); len(again) != 1 || again[0].Number != first[0].Number {
		t.Errorf("%+v, and was given %+v", again, first)
	}
}

// F032: if the input of a step cannot be rendered, the claim gets another step.
func TestStepWhoseInputFailsTakesNoClaim(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{})
		id := d.submit("type: t\nflow: chain\nonFailure: park\nsteps:\n  s: {agent: a}\n  r: {agent: a, with: {x: \"${steps.s.output.no.such.thing}\"}}\n")
		run := d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0]
		d.report("h", run, perdure.OutcomeDone)
		if runs := d.claim(protocol.Claim{Agent: "a", Holder: "h"}); len(runs) != 0 {
			t.Fatalf("%+v", runs)
		}
		if j := d.job(id); j.Phase != perdure.Parked {
			t.Errorf("%+v", j)
		}
	})
}
