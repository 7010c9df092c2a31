package supervisor_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/supervisor"
	"github.com/perdure/perdure/protocol"
)

var runs = flag.Int("runs", 2000, "how many runs expire at once")

// L2, F079, F086, I15: many runs expire at the same time, and two supervisors find them. All are dispatched again within
// the period, a second and the backoff, and not all at the same moment.
func TestRunsThatExpireTogetherAreDispatchedAgain(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		const backoff, period = time.Second, time.Second
		s := scheduler.New(scheduler.Config{Store: store, Compiler: &definition.Compiler{}, Writers: 2})
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { s.Run(ctx) })

		lock := time.Second + time.Duration(*runs)*time.Millisecond/2
		var b strings.Builder
		b.WriteString("type: t\nsteps:\n")
		for i := range 100 {
			fmt.Fprintf(&b, "  s%d: {agent: a, completeWithin: %s, retry: {backoff: 1s}}\n", i, lock)
		}
		plans, err := definition.Parse([]byte(b.String()), definition.YAML, definition.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range *runs / 100 {
			if _, err := s.Submit(ctx, plans[0]); err != nil {
				t.Fatal(err)
			}
		}
		for left := *runs; left > 0; {
			out, err := s.Claim(ctx, protocol.Claim{Agent: "a", Holder: "dead", Max: 1000})
			if err != nil || len(out) == 0 {
				t.Fatal(left, err)
			}
			left -= len(out)
		}
		time.Sleep(lock) // all locks have expired when the supervisors start, as after a pause
		moment := time.Now()
		for range 2 {
			sup := supervisor.New(supervisor.Config{Scheduler: s, Store: store, Period: period, Log: slog.New(slog.DiscardHandler)})
			running.Go(func() { sup.Run(ctx) })
		}
		var last time.Time
		most := 0
		for left := *runs; left > 0; {
			out, err := s.Claim(ctx, protocol.Claim{Agent: "a", Holder: "alive", Max: 1000, Wait: 20 * time.Second})
			if err != nil || len(out) == 0 {
				t.Fatalf("%d are left: %v", left, err)
			}
			left -= len(out)
			last, most = time.Now(), max(most, len(out))
		}
		t.Logf("%d runs are out again %v after they were found expired; at most %d in one claim", *runs, last.Sub(moment).Round(time.Millisecond), most)
		limit := period + time.Second + backoff
		if racedetector.On {
			limit *= 5
		}
		if late := last.Sub(moment); late > limit {
			t.Errorf("L2: %v", late)
		}
	})
}
