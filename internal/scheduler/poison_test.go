package scheduler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/supervisor"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// panickingCompiler is a compiler that, after an update, compiles stored definitions of some types differently.
type panickingCompiler struct{ definition.Compiler }

type panickingTemplate struct{}

func (panickingTemplate) Eval(*kernel.Scope) (bool, error)              { panic("boom") }
func (panickingTemplate) Render(*kernel.Scope) (json.RawMessage, error) { panic("boom") }
func (panickingTemplate) Refs() []int                                   { return nil }
func (panickingTemplate) Secrets() []kernel.SecretText                  { return nil }

func (e *panickingCompiler) Compile(text []byte) (*kernel.Shape, error) {
	p, err := e.Compiler.Compile(text)
	if err != nil {
		return nil, err
	}
	switch p.Common.Type {
	case "unreadable":
		return nil, errors.New("what is this")
	case "fewer":
		p.Steps, p.Index = p.Steps[:1], map[string]int{p.Steps[0].Name: 0}
	case "panics":
		for i := range p.Steps {
			p.Steps[i].Do, p.Steps[i].Test = panickingTemplate{}, panickingTemplate{}
		}
	}
	return p, nil
}

// counting counts the calls of a store, and the lines of a log.
type counting struct {
	kernel.Store
	slog.Handler
	calls, lines atomic.Int64
}

func (c *counting) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	c.calls.Add(1)
	return c.Store.Update(ctx, fn)
}

func (c *counting) Poll(ctx context.Context, agents []string) (kernel.PollAnswer, error) {
	c.calls.Add(1)
	return c.Store.Poll(ctx, agents)
}

func (c *counting) Enabled(context.Context, slog.Level) bool { return true }
func (c *counting) Handle(context.Context, slog.Record) error {
	c.lines.Add(1)
	return nil
}

// F077, F078, F126: in every phase, jobs that cannot be read or on which the rules panic come before all others. The
// other jobs go on, and the bad ones cost almost nothing.
func TestPoisonJobsDoNotBlockOthers(t *testing.T) {
	c := &counting{Store: memory.New()}
	before := open(t, c, scheduler.Config{})
	body := "type: %s\npriority: %d\nflow: chain\nsteps:\n  a: {agent: a, completeWithin: 40ms, retry: {backoff: 1ms, attempts: 100}}\n  b: {agent: a, completeWithin: 40ms, retry: {backoff: 1ms, attempts: 100}}\n  c: {agent: a}\n"
	var ids []perdure.JobID
	for _, typ := range []string{"unreadable", "fewer", "panics"} {
		for range 4 { // a ready; a running, expires soon; b ready; b running
			ids = append(ids, before.submit(fmt.Sprintf(body, typ, 9)))
		}
		runs := before.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 3})
		before.report("h", runs[1], perdure.OutcomeDone)
		before.report("h", runs[2], perdure.OutcomeDone)
		before.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 1})
	}
	wide := "type: unreadable\npriority: 9\nsteps:\n"
	for i := range 700 { // more than one page of a due scan, all expired
		wide += fmt.Sprintf("  s%d: {agent: a, completeWithin: 40ms}\n", i)
	}
	before.submit(wide)
	for len(before.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 1000})) > 0 {
	}
	for range 10 {
		before.submit(fmt.Sprintf(body, "healthy", 0))
	}
	time.Sleep(50 * time.Millisecond)

	after := scheduler.New(scheduler.Config{Store: c, Compiler: &panickingCompiler{}, Log: slog.New(c)})
	sup := supervisor.New(supervisor.Config{Scheduler: after, Store: c, Period: 100 * time.Millisecond, Log: slog.New(c)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go after.Run(ctx)
	go sup.Run(ctx)
	for done := 0; done < 30; {
		runs, err := after.Claim(ctx, protocol.Claim{Agent: "a", Holder: "h", Max: 1, Wait: 30 * time.Second})
		if err != nil || len(runs) == 0 {
			t.Fatalf("after %d healthy runs: %v, %v", done, runs, err)
		}
		if typ := before.job(runs[0].Job).Type; typ != "healthy" {
			continue // the first step of a smaller job
		}
		time.Sleep(time.Millisecond)
		res, _, err := after.Report(ctx, "h", doneReport(runs[0]), nil)
		if err != nil {
			t.Fatal(err)
		}
		if res[0].Accepted { // and not late
			done++
		}
	}
	for _, id := range ids { // an operator's act is refused with the reason
		err := after.Act(ctx, id, perdure.Act{Verb: perdure.VerbUndo, Author: "me"})
		if why := after.Quarantined(id); (why == nil) != (err == nil) {
			t.Errorf("the act returns %v, and views show %v", err, why)
		}
	}
	if after.Quarantined(ids[0]) == nil {
		t.Error("a job that cannot be read is not shown as quarantined")
	}
	c.calls.Store(0)
	lines, began := c.lines.Load(), time.Now()
	time.Sleep(time.Second)
	if n, duration := c.calls.Load(), time.Since(began); float64(n) > 60*duration.Seconds() {
		t.Errorf("%d calls of the store in %v over quarantined jobs", n, duration)
	}
	if n := c.lines.Load(); n > 100 || n > lines {
		t.Errorf("%d lines in the log, %d of them in the last second", n, n-lines)
	}
}

// F006: an act with an indeterminate commit is carried out once, and its caller learns that.
func TestActAfterIndeterminateCommitIsCarriedOutOnce(t *testing.T) {
	for _, done := range []bool{true, false} {
		for verb, act := range map[string]perdure.Act{
			"newKey":  {Verb: perdure.VerbEdit, Step: "s", NewKey: true},
			"resume":  {Verb: perdure.VerbResume, Step: "s", NewKey: true},
			"all":     {Verb: perdure.VerbResume},
			"settle":  {Verb: perdure.VerbSettle, Step: "s", As: new(perdure.Undone)},
			"undo":    {Verb: perdure.VerbUndo},
			"skip":    {Verb: perdure.VerbSkip, Step: "s"},
			"give up": {Verb: perdure.VerbGiveUp},
		} {
			t.Run(fmt.Sprint(verb, done), func(t *testing.T) {
				store := &indeterminateStore{Store: memory.New(memory.WithClock(ticking())), done: done}
				d := open(t, store, scheduler.Config{})
				id := d.submit("type: t\nsteps:\n  s: {agent: a, undo: {}, retry: {attempts: 1}}\n")
				d.report("h", d.claim(protocol.Claim{Agent: "a", Holder: "h"})[0], perdure.OutcomeFailed)
				out := verb == "resume" || verb == "all" || verb == "settle" || verb == "undo"
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				next := make(chan []perdure.Run)
				go func() { // takes the step in the same transaction as the act
					runs, _ := d.Claim(ctx, protocol.Claim{Agent: "a", Holder: "h", Max: 1, Wait: time.Minute})
					next <- runs
				}()
				d.awaitWaitingClaim("a")
				store.lose.Store(true)
				act.Author = "me"
				if err := d.Act(t.Context(), id, act); err != nil {
					t.Errorf("%v", err)
				}
				if !out {
					time.AfterFunc(200*time.Millisecond, cancel)
				}
				runs := <-next
				history, _ := store.History(t.Context(), id, 0, 100)
				var events []string
				for _, e := range history {
					if e.Author == "me" {
						events = append(events, e.Event)
					}
				}
				want := map[string]string{"newKey": "edit", "resume": "edit resume", "all": "resume", "give up": "giveUp"}[verb]
				if want == "" {
					want = verb
				}
				if got := strings.Join(events, " "); got != want {
					t.Errorf("history %q, want %q", got, want)
				}
				turn := 1
				if strings.Contains(want, "edit") || verb == "undo" {
					turn = 2
				}
				steps, _ := store.StepsOf(t.Context(), id, time.Time{})
				if steps[0].Turn != turn {
					t.Errorf("turn %d, want %d", steps[0].Turn, turn)
				}
				if out != (len(runs) == 1) {
					t.Errorf("dispatched: %+v", runs)
				}
			})
		}
	}
}

// F006, F007: a submission with an indeterminate commit makes one job, with a key and without.
func TestSubmissionAfterIndeterminateCommitMakesOneJob(t *testing.T) {
	for _, done := range []bool{true, false} {
		for _, body := range []string{one, "key: k\n" + one} {
			store := &indeterminateStore{Store: memory.New(), done: done}
			d := open(t, store, scheduler.Config{})
			store.lose.Store(true)
			submitted, err := d.Submit(t.Context(), plan(t, body))
			if err != nil || !submitted.Created {
				t.Fatalf("%+v, %v", submitted, err)
			}
			jobs, _, err := store.ListJobs(t.Context(), kernel.JobFilter{Limit: 10})
			if err != nil || len(jobs) != 1 || jobs[0].ID != submitted.ID {
				t.Errorf("committed: %v: %d jobs, %v", done, len(jobs), err)
			}
		}
	}
}

// indeterminateStore makes one commit indeterminate, committed or not.
type indeterminateStore struct {
	kernel.Store
	done bool
	lose atomic.Bool
}

var errUndone = errors.New("not done")

func (s *indeterminateStore) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	if !s.lose.CompareAndSwap(true, false) {
		return s.Store.Update(ctx, fn)
	}
	err := s.Store.Update(ctx, func(tx kernel.Tx) error {
		if err := fn(tx); err != nil || s.done {
			return err
		}
		return errUndone
	})
	if err != nil && !errors.Is(err, errUndone) {
		return err
	}
	return kernel.ErrUnknown
}

// ticking returns a wall clock that never returns a time twice.
func ticking() func() time.Time {
	var last atomic.Int64
	return func() time.Time {
		for {
			before := last.Load()
			now := max(time.Now().UnixMicro(), before+1)
			if last.CompareAndSwap(before, now) {
				return time.UnixMicro(now)
			}
		}
	}
}

// F068: with several writers, no wake-up is lost. There is no supervisor here, and a claim waits for longer than the
// test may take.
func TestNoWakeUpIsLost(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		d := open(t, store, scheduler.Config{Writers: 3})
		if err := d.PutLimit(t.Context(), "agent:b", perdure.LimitSettings{Max: new(2)}); err != nil {
			t.Fatal(err)
		}
		const jobs, hands = 30, 6
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		var left atomic.Int64
		left.Store(jobs * 4)
		for i := range 2 * hands {
			go func() {
				agent, holder := string("ab"[i%2]), fmt.Sprint("h", i)
				for left.Load() > 0 {
					runs, err := d.Claim(ctx, protocol.Claim{Agent: agent, Holder: holder, Max: 2, Wait: time.Minute})
					for _, r := range runs {
						res, _, err := d.Report(ctx, holder, doneReport(r), nil)
						if err == nil && res[0].Accepted && left.Add(-1) == 0 {
							cancel()
						}
					}
					if err != nil {
						return
					}
				}
			}()
		}
		for range jobs {
			go func() {
				_, _ = d.Submit(ctx, plan(t, "type: t\nflow: chain\nsteps:\n  p: {agent: a}\n  q: {agent: b}\n  r: {agent: a}\n  s: {agent: b}\n"))
			}()
		}
		<-ctx.Done()
		if n := left.Load(); n > 0 {
			t.Errorf("%d runs are left, and no waiting claim has been woken", n)
		}
		t.Log("took", time.Since(began))
	})
}

// On one node the bound is exact, with any number of callers and even if callers go away.
func TestBacklogIsExact(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		const bound = 100
		d := open(t, store, scheduler.Config{MaxBacklog: bound})
		submit := func() (accepted int64) {
			var n atomic.Int64
			done := make(chan bool)
			for i := range 64 {
				go func() {
					for try := range 5 {
						ctx, cancel := context.WithCancel(context.Background())
						if (i+try)%7 == 0 {
							cancel() // the job may be stored or not
						}
						if submitted, err := d.Submit(ctx, plan(t, one)); err == nil && submitted.Created {
							n.Add(1)
						}
						cancel()
					}
					done <- true
				}()
			}
			for range 64 {
				<-done
			}
			return n.Load()
		}
		count := func() int {
			n, err := store.Backlog(t.Context(), 10*bound)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		submit()
		if n := count(); n != bound {
			t.Errorf("%d jobs, and %d may be", n, bound)
		}
		for range 3 {
			for _, r := range d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 10}) {
				d.report("h", r, perdure.OutcomeDone)
			}
			if submit(); count() != bound {
				t.Errorf("%d jobs, and %d may be", count(), bound)
			}
		}
	})
}
