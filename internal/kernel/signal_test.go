package kernel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

const goTopic = Topic("go/k")

// addKept does what the scheduler does for a step that begins to wait.
func (w *world) addKept(ws *Workset, want SignalWant) {
	var found *Signal
	for _, s := range w.signals {
		if s.Topic == want.Topic && s.mayReach(want.Job) && s.Kept() && w.now.Before(s.Until) && !slices.Contains(ws.TakenSignals(want.Topic), s.Number) {
			c := *s
			found = &c
			break
		}
	}
	ws.AddKept(want, found, 0)
}

func (w *world) saveSignals(changes []SignalChange) {
	if len(changes) == 0 {
		return
	}
	w.signals = slices.Clone(w.signals)
	for _, c := range changes {
		now := *c.Signal
		if now.Number == 0 {
			now.Number = int64(len(w.signals)) + 1
			w.signals = append(w.signals, &now)
		} else {
			w.signals[now.Number-1] = &now
		}
	}
}

// waiting returns the steps that the store has as waiting for the topic.
func (w *world) waiting() (refs []StepRef) {
	for _, s := range w.steps {
		if WaitingOf(s) == goTopic {
			refs = append(refs, s.StepRef)
		}
	}
	return refs
}

// send sends a signal: to the first step that waits, or to all.
func (w *world) send(id string, toAll bool) (taken []string) {
	w.t.Helper()
	w.event(func(ws *Workset) { taken = w.sendIn(ws, id, toAll) })
	return taken
}

func (w *world) sendIn(ws *Workset, id string, toAll bool) []string {
	to := ws.Waiting(goTopic, perdure.JobID{}, w.waiting())
	if !toAll {
		to = to[:min(1, len(to))]
	}
	s := NewSignal(&operate.Signal{Name: "go", Key: "k", ID: id, Data: json.RawMessage(`{"n":1.0}`)}, perdure.JobID{}, "own", w.now)
	ws.Send(s, toAll, 0)
	for _, ref := range to {
		w.ensureLoaded(ws, ref.Index)
		if !ws.Deliver(ref, s) {
			w.t.Fatalf("step %d does not receive the signal", ref.Index)
		}
		w.settleMissing(ws)
	}
	return s.Taken
}

// signalTo sends a signal if the step waits for one.
func (w *world) signalTo(i int) (ok bool, c *Changes) {
	c = w.event(func(ws *Workset) {
		w.ensureLoaded(ws, i)
		if ok = ws.Awaits(w.ref(i), goTopic); ok {
			s := NewSignal(&operate.Signal{Name: "go", Key: "k"}, perdure.JobID{}, "own", w.now)
			ws.Send(s, false, 0)
			ws.Deliver(w.ref(i), s)
		}
	})
	w.signals = nil // what was received has no effect any more
	return ok, c
}

func (w *world) outputOf(step string) string { return string(w.kept[w.index(step)].Output) }

func TestSignalReachesTheStepThatWaits(t *testing.T) {
	w := submit(t, "a undo; s after a signal; b after s undo")
	w.run("a")
	w.stepIs("s", "undone waiting")
	w.jobIs("unsure waiting") // it is not parked: no operator is needed
	w.cannotClaim("s")
	w.conflict(w.tryAct(perdure.VerbResume, "s"))
	w.conflict(w.tryAct(perdure.VerbSettle, "s", as(perdure.Undone)))
	if taken := w.send("e1", false); len(taken) != 1 || !strings.HasSuffix(taken[0], "/s") {
		t.Fatalf("received by %v", taken)
	}
	w.stepIs("s", "done settled")
	want := fmt.Sprintf(`{"data":{"n":1.0},"id":"e1","at":%q}`, w.now.Format(time.RFC3339Nano))
	w.require(w.outputOf("s") == want, "output %s, want %s", w.outputOf("s"), want)
	w.require(w.step("s").Topic == "" && w.signals[0].Data == nil && len(w.signals[0].Taken) == 1, "%+v", w.signals[0])
	w.run("b")
	w.jobIs("done settled")

	w.undo() // nothing of the wait is undone
	w.run("b")
	w.run("a")
	w.jobIs("undone settled")
	w.redo() // the signal was consumed: the step waits again
	w.run("a")
	w.stepIs("s", "undone waiting")
	w.require(w.step("s").Topic == goTopic, "topic %q", w.step("s").Topic)
	w.send("e2", false)
	w.run("b")
	w.jobIs("done settled")
}

func TestKeptSignalIsTakenOldestFirst(t *testing.T) {
	w := newWorld(t, "s signal; r after s signal; q after r signal lasts or skip")
	for _, id := range []string{"e1", "e2"} {
		w.job, w.steps = &Job{ID: perdure.JobID{15: 1}}, nil
		ws := NewWorkset(w.now, nil)
		w.sendIn(ws, id, false)
		w.saveSignals(ws.Changes().Signals)
	}
	w.job = nil
	w.submitPlan() // two steps receive both in one transaction, the third waits
	w.stepIs("s", "done settled")
	w.stepIs("r", "done settled")
	w.stepIs("q", "undone waiting")
	w.require(strings.Contains(w.outputOf("s"), `"id":"e1"`) && strings.Contains(w.outputOf("r"), `"id":"e2"`), "outputs %s, %s", w.outputOf("s"), w.outputOf("r"))
	for _, s := range w.signals {
		w.require(len(s.Taken) == 1 && s.Data == nil, "%+v", s)
	}
	w.wait(tick)
	w.jobIs("done settled")
	w.require(w.step("q").Skipped && w.step("q").ErrorCode == "expired", "%+v", w.step("q"))
}

// F292: a signal does not reach a step whose time has passed, and is kept.
func TestSignalAndTimerNeverBoth(t *testing.T) {
	w := submit(t, "s signal lasts or undo")
	w.now = w.now.Add(tick) // its time has passed, and the supervisor has not acted on it
	if taken := w.send("e1", false); len(taken) != 0 {
		t.Fatalf("a step whose time has passed has received a signal: %v", taken)
	}
	w.dueScan()
	w.jobIs("undone settled")
	w.require(w.job.Desired == perdure.Undone && w.step("s").ErrorCode == "expired" && w.step("s").Topic == "", "%+v", w.step("s"))
	w.redo() // the signal was kept
	w.jobIs("done settled")
}

// F290: steps that begin to wait in one event receive different signals.
func TestStepsReceiveDifferentSignals(t *testing.T) {
	w := newWorld(t, "s signal; r signal; q signal")
	w.job = &Job{ID: perdure.JobID{15: 1}}
	for _, id := range []string{"e1", "e2"} {
		ws := NewWorkset(w.now, nil)
		w.sendIn(ws, id, false)
		w.saveSignals(ws.Changes().Signals)
	}
	w.job = nil
	w.submitPlan()
	w.require(strings.Contains(w.outputOf("s"), `"id":"e1"`) && strings.Contains(w.outputOf("r"), `"id":"e2"`), "outputs %s, %s", w.outputOf("s"), w.outputOf("r"))
	w.stepIs("q", "undone waiting")
	w.require(len(w.signals[0].Taken) == 1 && len(w.signals[1].Taken) == 1, "%+v, %+v", w.signals[0], w.signals[1])
}

func TestSignalToAllWakesThoseThatWait(t *testing.T) {
	w := submit(t, "s signal; r signal; q after s signal")
	if taken := w.send("e1", true); len(taken) != 2 {
		t.Fatalf("received by %v", taken)
	}
	w.stepIs("s", "done settled")
	w.stepIs("r", "done settled")
	w.stepIs("q", "undone waiting") // it did not wait yet
	w.undo()
	if taken := w.send("e2", true); taken == nil || len(taken) != 0 {
		t.Fatalf("received by %v", taken)
	}
	w.require(!w.signals[1].Kept(), "a signal to all is kept")
}

// F293: a step that has stopped waiting receives nothing.
func TestStopsWaitingForASignal(t *testing.T) {
	for name, stop := range map[string]func(*world){
		"undo":    func(w *world) { w.undo() },
		"skip":    func(w *world) { w.act(perdure.VerbSkip, "s") },
		"settle":  func(w *world) { w.act(perdure.VerbSettle, "s", as(perdure.Done)) },
		"give up": func(w *world) { w.act(perdure.VerbGiveUp, "") },
		"overdue": func(w *world) { w.wait(2 * tick) },
	} {
		t.Run(name, func(t *testing.T) {
			w := submit(t, "within 15s; s signal")
			stop(w)
			w.require(w.step("s").Topic == "" && WaitingOf(w.step("s")) == "", "%+v", w.step("s"))
			if taken := w.send("e", false); len(taken) != 0 {
				t.Errorf("received by %v", taken)
			}
		})
	}
}

// A signal that was sent and one that is kept for a step of another job are not taken.
func TestSignalForAnotherJob(t *testing.T) {
	w := submit(t, "s signal")
	w.event(func(ws *Workset) {
		s := NewSignal(&operate.Signal{Name: "go", Key: "k"}, perdure.JobID{15: 2}, "own", w.now)
		ws.Send(s, false, 0)
		if ws.Deliver(w.ref(0), s) {
			t.Error("a step of another job has received it")
		}
	})
	w.undo()
	w.redo()
	w.stepIs("s", "undone waiting")
	w.require(w.signals[0].ID == "sig_own" && w.signals[0].Kept(), "%+v", w.signals[0])
}

// F296: a step beyond the bound fails, and is tried again.
func TestTooManyWaiters(t *testing.T) {
	w := newWorld(t, "s signal or undo") // its only attempt has failed
	ws := NewWorkset(w.now, func() float64 { return 1 })
	ws.Submit(perdure.JobID{15: 1}, w.plan)
	want := ws.Missing().Signals
	if len(want) != 1 {
		t.Fatalf("wants %+v", want)
	}
	ws.AddKept(want[0], nil, operate.MaxWaiters)
	ws.Continue()
	s := ws.Step(StepRef{perdure.JobID{15: 1}, 0})
	if s.ErrorCode != "tooManyRequests" || s.Topic != "" || s.Current != perdure.Undone || s.Phase != perdure.Settled {
		t.Errorf("%+v", s)
	}
}

func TestTopicOfAStep(t *testing.T) {
	for with, want := range map[string]string{
		`{"name":"go","key":"k"}`:         "go/k",
		`{"name":"go","key":12345678901}`: "go/12345678901",
		`{"name":"go","key":true}`:        "neither text nor a number",
		`{"name":"go"}`:                   "neither text nor a number",
		`{"key":"k"}`:                     "name is no text",
		`{"name":"go to","key":"k"}`:      "name: is not 1 to 128",
		`{"name":"go","key":"a/b"}`:       "cannot contain a /",
		`{"name":"go","key":""}`:          "is empty",
	} {
		w := newWorld(t, "s signal")
		w.plan.Steps[0].Do = script{text: with}
		w.submitPlan()
		if s := w.step("s"); !strings.Contains(string(s.Topic)+s.LastError, want) || s.Topic != "" && s.ErrorCode != "" {
			t.Errorf("%s: topic %q, error %q; want %q", with, s.Topic, s.LastError, want)
		}
	}
}

func TestApprovals(t *testing.T) {
	ask := func(with string) *world {
		w := newWorld(t, "p approval lasts attempts 3 or undo; b after p") // it is not tried again
		w.plan.Steps[0].Do = script{text: with}
		w.submitPlan()
		return w
	}
	by := func(name string) func(*perdure.Act) { return func(a *perdure.Act) { a.Author = name } }
	data := func(text string) func(*perdure.Act) { return func(a *perdure.Act) { a.Data = []byte(text) } }

	w := ask(`{"group":"managers","message":"Ship?","quorum":2}`)
	w.act(perdure.VerbApprove, "p", by("anna"), data(`{"n":1.0}`))
	w.stepIs("p", "undone waiting")
	before := w.step("p").Approval
	w.act(perdure.VerbApprove, "p", by("anna"))
	w.require(w.step("p").Approval == before, "anna counts twice: %s", w.step("p").Approval)
	w.act(perdure.VerbApprove, "p", by("ben"))
	w.stepIs("p", "done settled")
	w.require(len(w.alerts) == 0 && w.step("p").Approval == "", "alerts %v, %q", w.alerts, w.step("p").Approval)
	out := w.outputOf("p")
	w.require(strings.HasPrefix(out, `{"data":{"n":1.0},"approvals":[{"by":"anna",`) && strings.Contains(out, `{"by":"ben",`), "output %s", out)
	w.conflict(w.tryAct(perdure.VerbApprove, "p", by("cleo")))
	w.conflict(w.tryAct(perdure.VerbReject, "b", by("cleo")))

	w = ask(`{}`)
	w.act(perdure.VerbReject, "p", by("anna"))
	w.jobIs("undone settled")
	w.require(w.step("p").ErrorCode == "rejected" && w.step("p").LastError == "rejected by anna: said so" && w.job.Desired == perdure.Undone, "%+v", w.step("p"))

	w = ask(`{"quorum":2}`)
	w.act(perdure.VerbApprove, "p", by("anna"))
	w.now = w.now.Add(tick)
	w.conflict(w.tryAct(perdure.VerbApprove, "p", by("ben"))) // too late
	w.dueScan()
	w.jobIs("undone settled")
	w.redo() // asks again
	w.act(perdure.VerbApprove, "p", by("ben"))
	w.stepIs("p", "undone waiting")

	for with, want := range map[string]string{`{"quorum":0}`: "from 1 to 20", `{"quorum":21}`: "from 1 to 20", `{"quorum":1.5}`: "from 1 to 20", `{"group":"a\nb"}`: "can be printed", `{"message":5}`: "cannot unmarshal"} {
		if s := ask(with).step("p"); !strings.Contains(s.LastError, want) || s.ErrorCode != "expression" {
			t.Errorf("%s: %s %q", with, s.ErrorCode, s.LastError)
		}
	}
}

func TestWhoMayDecide(t *testing.T) {
	asked := func(group string, exclude bool) *Step {
		a := Approval{Group: group, ExcludeSubmitter: exclude}
		return &Step{Name: "p", Phase: perdure.Waiting, StartedAt: startTime, Approval: a.state()}
	}
	caller := func(role operate.UserRole, via operate.Via, groups ...string) *operate.Identity {
		return &operate.Identity{Name: "anna", Rights: operate.Rights{Role: role, Groups: groups}, Via: via}
	}
	j := &Job{Submitter: "anna"}
	for _, c := range []struct {
		name string
		s    *Step
		by   *operate.Identity
		may  bool
	}{
		{"a member, whatever the role", asked("managers", false), caller(operate.Viewer, operate.ViaToken, "x", "managers"), true},
		{"an admin outside the group", asked("managers", false), caller(operate.Admin, operate.ViaToken), false},
		{"an operator without a group", asked("", false), caller(operate.Operator, operate.ViaSession), true},
		{"an admin without a group", asked("", false), caller(operate.Admin, operate.ViaSession), true},
		{"a submitter without a group", asked("", false), caller(operate.Submitter, operate.ViaToken, "managers"), false},
		{"a step that was decided, so that another error says it", &Step{Name: "p", Phase: perdure.Settled, StartedAt: startTime}, caller(operate.Viewer, operate.ViaToken), true},
		{"an approval of an older version", &Step{Name: "p", Phase: perdure.Waiting, StartedAt: startTime}, caller(operate.Operator, operate.ViaToken), true},
		{"on this machine", asked("managers", false), caller(operate.Admin, operate.ViaLoopback), true},
		{"on an open node", asked("managers", false), caller(operate.Admin, operate.ViaInsecure), true},
		{"the program itself", asked("managers", false), nil, true},
		{"the submitter", asked("managers", true), caller(operate.Operator, operate.ViaToken, "managers"), false},
		{"the submitter, on this machine", asked("", true), caller(operate.Admin, operate.ViaLoopback), false},
	} {
		err := MayDecide(j, c.s, "anna", c.by)
		if (err == nil) != c.may || err != nil && perdure.CodeOf(err) != perdure.CodeForbidden {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := MayDecide(j, asked("", true), "ben", caller(operate.Operator, operate.ViaToken)); err != nil {
		t.Error(err)
	}
}
