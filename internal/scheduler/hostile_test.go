package scheduler_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"perdure"
	"perdure/internal/everystore"
	"perdure/internal/scheduler"
	"perdure/store/memory"
)

// down is a store that can be switched off: its transactions fail before they begin.
type down struct {
	perdure.Store
	off atomic.Bool
}

var errDown = errors.New("switched off")

func (d *down) Update(ctx context.Context, fn func(perdure.Tx) error) error {
	if d.off.Load() {
		return errDown
	}
	return d.Store.Update(ctx, fn)
}

// F009, F097: a store that is away from the first transaction on is an error, and no more than that.
func TestStoreAway(t *testing.T) {
	store := &down{Store: memory.New()}
	d := open(t, store, scheduler.Config{})
	store.off.Store(true)
	if _, err := d.Submit(t.Context(), plan(t, one)); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("submit: %v", err)
	}
	if _, err := d.Claim(t.Context(), perdure.ClaimRequest{Agent: "a", Holder: "h", Max: 1}); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("claim: %v", err)
	}
	store.off.Store(false)
	d.submit(one)
	if runs := d.claim(perdure.ClaimRequest{Agent: "a", Holder: "h", Wait: time.Second}); len(runs) != 1 {
		t.Errorf("%+v", runs)
	}
}

// F032: a step whose input cannot be rendered does not keep the claim that came for it.
func TestInputFails(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store perdure.Store) {
		d := open(t, store, scheduler.Config{})
		id := d.submit("type: t\nflow: chain\nonFailure: park\nsteps:\n  s: {agent: a}\n  r: {agent: a, with: {x: \"${steps.s.output.no.such.thing}\"}}\n")
		run := d.claim(perdure.ClaimRequest{Agent: "a", Holder: "h"})[0]
		d.report("h", run, perdure.OutcomeDone)
		if runs := d.claim(perdure.ClaimRequest{Agent: "a", Holder: "h"}); len(runs) != 0 {
			t.Fatalf("%+v", runs)
		}
		if j := d.job(id); j.Phase != perdure.Parked {
			t.Errorf("%+v", j)
		}
	})
}
