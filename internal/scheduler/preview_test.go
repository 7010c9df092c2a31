package scheduler_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

func noneDead(string) bool { return false }

// If the rules panic, the preview is refused and the job is not quarantined: the act would do that.
func TestPreviewOfAPoisonedJob(t *testing.T) {
	store := memory.New()
	before := open(t, store, scheduler.Config{})
	panics := before.submit("type: panics\nflow: chain\nsteps:\n  a: {agent: a}\n  b: {agent: a}\n")
	unreadable := before.submit("type: unreadable\nsteps:\n  a: {agent: a}\n")

	after := scheduler.New(scheduler.Config{Store: store, Compiler: &panickingCompiler{}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go after.Run(ctx)
	act := perdure.Act{Verb: perdure.VerbSettle, Step: "a", As: new(perdure.Done), Author: "op"}
	_, err := after.Preview(ctx, panics, act, noneDead)
	if perdure.CodeOf(err) != perdure.CodeConflict || !strings.Contains(err.Error(), "the act would quarantine it: internal error: boom") {
		t.Error(err)
	}
	if why := after.Quarantined(panics); why != nil {
		t.Errorf("the preview has quarantined the job: %v", why)
	}
	if err := after.Act(ctx, panics, act); perdure.CodeOf(err) != perdure.CodeConflict {
		t.Error(err)
	}
	for _, id := range []perdure.JobID{panics, unreadable} {
		_, err := after.Preview(ctx, id, act, noneDead)
		if of := after.Act(ctx, id, act); err == nil || of == nil || err.Error() != of.Error() {
			t.Errorf("the preview is refused with %v, the act with %v", err, of)
		}
	}
}

// A wait of random length is shown with its latest end.
func TestPreviewShowsTheLatestEndOfAWait(t *testing.T) {
	d := open(t, memory.New(), scheduler.Config{})
	id := d.submit("type: t\nsteps:\n  s: {agent: a, completeWithin: 20ms, retry: {backoff: 10s, attempts: 3}}\n")
	d.claim(protocol.Claim{Agent: "a", Holder: "h"})
	time.Sleep(30 * time.Millisecond)
	p, err := d.Preview(t.Context(), id, perdure.Act{Verb: perdure.VerbEdit, Step: "s", Input: []byte(`1`), Author: "op"}, noneDead)
	if err != nil {
		t.Fatal(err)
	}
	if w := p.Effects.WaitFor; len(w) != 1 || w[0].Until.Sub(p.Job.UpdatedAt) != 10*time.Second {
		t.Errorf("%+v, the act at %s", w, p.Job.UpdatedAt)
	}
}

// renderings counts the renderings outside of transactions.
type renderings struct {
	scheduler.NoMeter
	n atomic.Int64
}

func (r *renderings) RenderedOutside(string) { r.n.Add(1) }

// A condition that takes too much work is not rendered for a preview, which shows the step as due at once.
func TestPreviewPostponesNoRendering(t *testing.T) {
	meter := &renderings{}
	d := open(t, memory.New(), scheduler.Config{RenderWork: 1, Meter: meter})
	id := d.submit("type: t\nsteps:\n  a: {agent: a}\n  b: {agent: a, after: [a], when: \"len(steps.a.output) > 3\"}\n")
	act := perdure.Act{Verb: perdure.VerbSettle, Step: "a", As: new(perdure.Done), Output: listOfOnes(1000), Author: "op"}
	p, err := d.Preview(t.Context(), id, act, noneDead)
	if err != nil {
		t.Fatal(err)
	}
	if w := p.Effects.WaitFor; len(w) != 1 || w[0] != (kernel.StepWait{Step: "b", Until: p.Job.UpdatedAt}) {
		t.Errorf("%+v", p.Effects)
	}
	time.Sleep(50 * time.Millisecond)
	if n := meter.n.Load(); n > 0 {
		t.Errorf("%d renderings after the preview", n)
	}
	if err := d.Act(t.Context(), id, act); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); meter.n.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no rendering after the act")
		}
	}
}

// Previews are made beside acts, reports and claims of the same job, and spoil none of them.
func TestPreviewsBesideOtherRequests(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{Writers: 2})
		id := d.submit("type: t\nflow: chain\nsteps:\n  a: {agent: a, undo: {}}\n  b: {agent: a, undo: {}}\n  c: {agent: a, undo: {}}\n")
		ctx, stop := context.WithCancel(t.Context())
		previewing, previewed := make(chan int), make(chan int)
		for range 3 {
			go func() {
				n := 0
				for ctx.Err() == nil {
					if n == 1 {
						previewing <- n
					}
					p, err := d.Preview(ctx, id, perdure.Act{Verb: perdure.VerbUndo, Author: "op"}, noneDead)
					if err == nil && p.Job.Desired != perdure.Undone {
						t.Errorf("the preview of an undo desires %s", p.Job.Desired)
					} else if err != nil && ctx.Err() == nil {
						t.Error(err)
					}
					n++
				}
				previewed <- n
			}()
		}
		for range 3 {
			<-previewing
		}
		for _, verb := range []perdure.Verb{"", perdure.VerbUndo, perdure.VerbRedo, perdure.VerbUndo} {
			if verb != "" {
				if err := d.Act(t.Context(), id, perdure.Act{Verb: verb, Author: "op"}); err != nil {
					t.Error(err)
				}
			}
			for range 3 {
				runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Wait: 10 * time.Second})
				if len(runs) != 1 {
					t.Fatalf("%s: %d runs", verb, len(runs))
				}
				if res := d.report("h", runs[0], perdure.OutcomeDone); !res.Accepted {
					t.Errorf("%s: %+v", verb, res)
				}
			}
		}
		stop()
		for range 3 {
			if n := <-previewed; n < 2 {
				t.Error("no preview was made beside the other requests")
			}
		}
		if j := d.job(id); j.Phase != perdure.Settled || j.Current != perdure.Undone {
			t.Errorf("%s, %s", j.Phase, j.Current)
		}
		entries, err := store.History(t.Context(), id, 0, 100)
		acts := slices.DeleteFunc(entries, func(e kernel.Entry) bool { return e.IsRun() })
		if err != nil || len(acts) != 3 {
			t.Errorf("%d acts in the history, %v", len(acts), err)
		}
	})
}

// F013: Run ends after the last preview, and no preview begins after it: the store may be closed then.
func TestNoPreviewBeginsAfterTheEnd(t *testing.T) {
	store := memory.New()
	s := scheduler.New(scheduler.Config{Store: store, Compiler: &definition.Compiler{}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	submitted, err := s.Submit(ctx, plan(t, "type: t\nsteps:\n  s: {agent: a}\n"))
	if err != nil {
		t.Fatal(err)
	}
	preview := func() error {
		_, err := s.Preview(t.Context(), submitted.ID, perdure.Act{Verb: perdure.VerbUndo, Author: "op"}, noneDead)
		return err
	}
	if err := preview(); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	if err := preview(); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Errorf("after the end: %v", err)
	}
}
