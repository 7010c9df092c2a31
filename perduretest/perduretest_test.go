package perduretest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
	"github.com/perdure/perdure/protocol"
)

var errBusy = errors.New("the bank is busy")

func order() perdure.Definable {
	return perdure.Define("order").OnFailure(perdure.UndoRung()).Chain().
		Step("reserve", "stock").Undo().
		Step("charge", "payments").Undo().Retry(perdure.Retry{Attempts: 3, Backoff: perdure.Duration(time.Minute), MaxBackoff: perdure.Duration(time.Hour)}).
		Step("ship", "carrier")
}

// fakes are the three services.
func fakes(w *perduretest.World) (stock, bank, carrier *perduretest.Fake) {
	return w.Fake("stock"), w.Fake("payments"), w.Fake("carrier")
}

func TestDone(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		stock, bank, carrier := fakes(w)
		job := w.Submit(order())
		job.Done()
		stock.Once("reserve")
		bank.Once("charge")
		carrier.Once("ship")
		job.Undo().Undone()
		stock.Gone("reserve")
		bank.Gone("charge")
		job.Redo().Done()
		if n := bank.Effects("charge"); n != 2 || bank.Net("charge") != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

// Fakes count the effects of all children. A test acts on a child as on any job.
func TestChildren(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		storage := w.Fake("storage")
		broken := true
		storage.On("one", func(run *perdure.Run) (any, error) {
			if broken && string(run.Input) == "2" {
				return nil, perdure.Rejected(errBusy)
			}
			return "small " + string(run.Input), nil
		})
		one := perdure.Define("one")
		one.Step("one", "storage").With("${input}").Undo()
		one.Output("${steps.one.output}")
		album := perdure.Define("album")
		album.Child("resize", one).ForEach([]int{1, 2, 3}, "image").With("${image}").MaxParallel(2).CollectList().UndoReversed()
		job := w.Submit(album)
		job.Until("resize", perdure.Waiting)
		for len(job.Children("resize")) < 3 || job.View().Steps.Get("resize").Children.Done < 2 {
			w.Sleep(time.Second)
		}
		kids := job.Children("resize")
		broken = false
		kids[1].Parked("one")
		kids[1].Resume().Done()
		v := job.Done()
		if got := string(v.Steps.Get("resize").Output); got != `{"total":3,"done":3,"failed":0,"items":["small 1","small 2","small 3"]}` {
			t.Error(got)
		}
		if n := storage.Net("one"); n != 3 {
			t.Errorf("%d effects", n)
		}
		job.Undo().Undone()
		storage.Gone("one")
	})
}

// F035, F036: a crash before or after the effect, on the way there and back: one effect, or none.
func TestCrashes(t *testing.T) {
	for _, fault := range []perduretest.Fault{perduretest.CrashBefore, perduretest.CrashAfter, perduretest.Late, perduretest.Twice} {
		t.Run(string(fault), func(t *testing.T) {
			perduretest.Run(t, func(w *perduretest.World) {
				_, bank, _ := fakes(w)
				w.Inject("charge", fault)
				w.Inject("charge", fault, perduretest.OfUndo)
				job := w.Submit(order())
				job.Done()
				bank.Once("charge")
				runs := bank.Attempts("charge", perdure.Do)
				if want := map[perduretest.Fault]int{perduretest.CrashBefore: 1, perduretest.Twice: 1}[fault]; runs != want && (want > 0 || runs != 2) {
					t.Errorf("%d attempts", runs)
				}
				job.Undo().Undone()
				bank.Gone("charge")
				if refused := w.Refused(); (fault == perduretest.Late) != (len(refused) == 2) {
					t.Errorf("refused: %+v", refused)
				}
			})
		})
	}
}

// Backoffs of minutes and an outage of hours pass in no time, and what cannot be done is undone.
func TestTimePasses(t *testing.T) {
	began := time.Now()
	perduretest.Run(t, func(w *perduretest.World) {
		stock, bank, carrier := fakes(w)
		bank.Fail("charge", 99, errBusy)
		w.Submit(order()).Undone()
		stock.Gone("reserve")
		if bank.Attempts("charge", perdure.Do) != 3 || bank.Effects("charge") != 0 || carrier.Attempts("ship", perdure.Do) != 0 {
			t.Error("charge has three attempts, and nothing comes after it")
		}
		bank.Fail("charge", 1, perdure.RetryAfter(6*time.Hour, errBusy))
		before := w.Elapsed()
		w.Submit(order()).Done()
		if took := w.Elapsed() - before; took < 6*time.Hour || took > 7*time.Hour {
			t.Errorf("it took %v", took)
		}
	})
	t.Logf("it took %v", time.Since(began))
}

// A run that hangs ends at its deadline.
func TestUltimatum(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		a := perdure.NewAgent("a")
		perdure.Handle(a, "hang", perdure.Op[any, any]{Do: func(ctx context.Context, _ any) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		w.Carry(a)
		job := w.SubmitText("type: t\nsteps:\n  hang: {agent: a, completeWithin: 2h, retry: {attempts: 2}}\n")
		job.Until("hang", perdure.Running)
		v := job.Parked("hang")
		if s := v.Steps.Get("hang"); s.Failures != 2 || s.Current != perdure.Unsure || w.Elapsed() < 4*time.Hour {
			t.Errorf("after %v: %s", w.Elapsed(), perduretest.Describe(v))
		}
		job.Act(perdure.Act{Verb: perdure.VerbSettle, Step: "hang", As: new(perdure.Done), Reason: "it was done"})
		job.Done()
	})
}

// I10: a job is not called undone while it has an effect that is not undone. If the agent has no undo, the step is
// parked as it is, and a deploy that has one ends it. A step without an undo in its definition needs none.
func TestUndoIsMissing(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		charged, undo := 0, false
		pay := func() *perdure.Agent {
			a := perdure.NewAgent("payments")
			op := perdure.Op[int, int]{Do: func(context.Context, int) (int, error) { charged++; return charged, nil }}
			if undo {
				op.Undo = func(context.Context, int, int) error { charged--; return nil }
			}
			perdure.Handle(a, "charge", op)
			perdure.Handle(a, "note", perdure.Op[any, any]{Do: func(context.Context, any) (any, error) { return nil, nil }})
			return a
		}
		a := perdure.NewAgent("payments")
		a.HandleAny(func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) { return pay().Execute(ctx, run) })
		w.Carry(a)
		job := w.Submit(perdure.Define("order").Chain().Step("charge", "payments").With(5).Undo().Step("note", "payments"))
		job.Done()
		v := job.Undo().Parked("charge")
		s := v.Steps.Get("charge")
		if charged != 1 || s.Current != perdure.Done || s.LastError == nil || s.LastError.Code != "noUndo" || s.Failures != 1 ||
			!strings.Contains(s.Why.Text, `no undo for "charge"`) || v.Steps.Get("note").Current != perdure.Undone {
			t.Errorf("%d are charged: %s", charged, perduretest.Describe(v))
		}
		undo = true
		if job.Resume().Undone(); charged != 0 {
			t.Errorf("%d are charged", charged)
		}
	})
}

// A fault that is not met, a job that does not rest and an end that is another fail the test.
func TestItFails(t *testing.T) {
	for name, test := range map[string]func(w *perduretest.World){
		"never met": func(w *perduretest.World) { w.Inject("nothing", perduretest.Late) },
		"another end": func(w *perduretest.World) {
			w.Fake("a")
			w.SubmitText("type: t\nsteps: {s: {agent: a}}\n").Undone()
		},
		"no rest": func(w *perduretest.World) {
			w.Patience = time.Minute
			w.SubmitText("type: t\nsteps: {s: {agent: sleep, with: {for: 1h}}}\n").Rest()
		},
		"a fake of another step": func(w *perduretest.World) {
			w.Fake("a").Fail("charg", 1, errors.New("down"))
			w.SubmitText("type: t\nsteps: {charge: {agent: a}}\n").Done()
		},
		"a definition": func(w *perduretest.World) { w.SubmitText("type: t\n") },
	} {
		failed := &failing{}
		perduretest.Run(t, func(w *perduretest.World) {
			failed.TB = w.TB
			w.TB = failed
			done := make(chan struct{})
			go func() { defer close(done); test(w) }()
			<-done
		})
		if !failed.failed {
			t.Errorf("%s: the test did not fail", name)
		}
	}
}

// On and Fail do not silently replace each other for one step. Repeating one of them, and other steps, are fine.
func TestFakeRefusesOnAndFailForOneStep(t *testing.T) {
	answer := func(*perdure.Run) (any, error) { return 7, nil }
	for name, c := range map[string]struct {
		set  func(f *perduretest.Fake)
		says string
	}{
		"On after Fail": {func(f *perduretest.Fake) { f.Fail("s", 1, errBusy).On("s", answer) }, `fake a: On("s") would replace Fail("s")`},
		"Fail after On": {func(f *perduretest.Fake) { f.On("s", answer).Fail("s", 1, errBusy) }, `fake a: Fail("s") would replace On("s")`},
		"repeated":      {func(f *perduretest.Fake) { f.On("s", answer).On("s", answer).Fail("z", 1, errBusy).Fail("z", 0, nil) }, ""},
	} {
		failed := &failing{}
		perduretest.Run(t, func(w *perduretest.World) {
			failed.TB = w.TB
			w.TB = failed
			done := make(chan struct{})
			go func() { defer close(done); c.set(w.Fake("a")) }()
			<-done
		})
		if failed.failed != (c.says != "") || !strings.Contains(failed.said, c.says) {
			t.Errorf("%s: it says %q", name, failed.said)
		}
	}
}

// A job that waits for an agent which the test does not carry fails the test at once, with a message that says so. A job
// that can still move, if only by its own deadline, goes on.
func TestAgentThatIsNotThere(t *testing.T) {
	for name, c := range map[string]struct {
		test func(w *perduretest.World)
		says string
	}{
		"rest": {func(w *perduretest.World) { w.SubmitText("type: t\nsteps: {s: {agent: absent}}\n").Done() }, `step s waits for agent absent, which this test does not carry`},
		"until": {func(w *perduretest.World) {
			w.SubmitText("type: t\nsteps: {s: {agent: absent}}\n").Until("s", perdure.Running)
		}, `w.Fake("absent")`},
		"later": {func(w *perduretest.World) {
			w.Fake("a")
			w.SubmitText("type: t\nflow: chain\nsteps: {a: {agent: a}, b: {agent: absent}, c: {agent: a}}\n").Done()
		}, "step b waits for agent absent"},
		"ready": {func(w *perduretest.World) {
			w.SubmitText("type: t\nsteps: {s: {agent: absent}}\n").Until("s", perdure.Ready)
		}, ""},
		"its own deadline": {func(w *perduretest.World) {
			w.SubmitText("type: t\ncompleteWithin: 1h\nsteps: {s: {agent: absent}}\n").Parked("s")
		}, ""},
		"a neighbour that fails": {func(w *perduretest.World) {
			w.Fake("a").Fail("a", 9, errBusy)
			w.SubmitText("type: t\nonFailure: undo\nsteps: {a: {agent: a, retry: {attempts: 3, backoff: 1m}}, b: {agent: absent}}\n").Undone()
		}, ""},
	} {
		failed := &failing{}
		perduretest.Run(t, func(w *perduretest.World) {
			failed.TB = w.TB
			w.TB = failed
			done := make(chan struct{})
			go func() { defer close(done); c.test(w) }()
			<-done
			if c.says != "" && w.Elapsed() > 10*time.Minute {
				t.Errorf("%s: it took %v", name, w.Elapsed())
			}
		})
		if failed.failed != (c.says != "") || !strings.Contains(failed.said, c.says) {
			t.Errorf("%s: it says %q", name, failed.said)
		}
	}
}

// failing is a test that may fail.
type failing struct {
	testing.TB
	failed bool
	said   string
}

func (f *failing) Error(...any) { f.failed = true }
func (f *failing) Errorf(format string, args ...any) {
	f.failed, f.said = true, fmt.Sprintf(format, args...)
}
func (f *failing) Fatal(...any) { f.failed = true; runtime.Goexit() }
func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// A process that claims no more is shown as gone, and a step whose agent has only such processes says so. An agent whose
// slots are all in use has no slot free.
func TestProcessesThatClaimNoMore(t *testing.T) {
	perduretest.Run(t, func(w *perduretest.World) {
		ctx, n := context.Background(), w.Node()
		claim := func(holder string) []perdure.Run {
			runs, err := n.Claim(ctx, protocol.Claim{Agent: "courier", Holder: holder, Max: 1})
			if err != nil {
				w.Fatal(err)
			}
			return runs
		}
		agents := func(holders, gone int) {
			w.Helper()
			v, err := n.GetAgent(ctx, "courier")
			if err != nil || v.Holders != holders || v.Gone != gone {
				w.Errorf("%+v, %v: want %d holders and %d gone", v, err, holders, gone)
			}
		}
		waits := func(j *perduretest.Job, text string) {
			w.Helper()
			if why := j.View().Steps[0].Why; why == nil || !strings.Contains(why.Text, text) {
				w.Errorf("%+v, want %q", why, text)
			}
		}
		claim("one")
		job := w.SubmitText("type: t\nsteps: {s: {agent: courier}}\n")
		waits(job, "no slot free")
		w.Sleep(10 * time.Second)
		waits(job, "no process of agent courier claims runs; the latest claim was 10s ago")
		agents(1, 0)
		if len(claim("two")) != 1 {
			w.Fatal("the step was not dispatched")
		}
		w.Sleep(10 * time.Second)
		second := w.SubmitText("type: t\nsteps: {s: {agent: courier}}\n")
		waits(second, "no slot free")
		w.Sleep(80 * time.Second)
		agents(1, 1)
		w.Sleep(10 * time.Minute)
		agents(0, 2)
	})
}
