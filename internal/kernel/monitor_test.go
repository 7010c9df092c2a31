package kernel

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// monitored submits a step whose runs have an hour, and the given fields.
func monitored(t *testing.T, set func(*StepDefinition)) *world {
	w := newWorld(t, "a undo attempts 2")
	ps := w.plan.Steps[0].StepDefinition
	ps.CompleteWithin = perdure.Duration(time.Hour)
	set(ps)
	w.plan.Definition.Steps[0] = *ps
	w.submitPlan()
	return w
}

// beat sends a heartbeat, with progress if it is not empty.
func (w *world) beat(progress string) (res protocol.HeartbeatResult) {
	w.event(func(ws *Workset) {
		w.ensureLoaded(ws, 0)
		res = ws.Heartbeat(w.ref(0), "host", &protocol.Heartbeat{Job: w.job.ID, Step: "a", Run: w.step("a").Run, Progress: json.RawMessage(progress)})
	})
	return res
}

func (w *world) later(d time.Duration) { w.now = w.now.Add(d) }

// F197, F198: a run is stopped when its progress has not changed for progressWithin. A repeated value is no progress. Its lock
// ends one heartbeat later, so that a heartbeat with progress may be lost.
func TestRunWithoutProgressIsStopped(t *testing.T) {
	w := monitored(t, func(s *StepDefinition) { s.ProgressWithin = perdure.Duration(time.Minute) })
	w.claimWithHeartbeat("a", 10*time.Second)
	for range 11 {
		w.later(5 * time.Second)
		w.require(!w.beat("").Stop, "stopped at %s", w.now)
	}
	w.require(!w.beat(`{"done":1}`).Stop, "progress in time")
	for range 11 {
		w.later(5 * time.Second)
		w.require(!w.beat(`{"done":1}`).Stop, "stopped at %s", w.now)
	}
	w.later(4 * time.Second)
	w.require(!w.beat(`{"done":2}`).Stop, "progress in time")
	w.later(56 * time.Second)
	w.require(w.beat("").Reason == string(protocol.RefusedLate), "its holder was silent for longer than a heartbeat")

	w = monitored(t, func(s *StepDefinition) { s.ProgressWithin = perdure.Duration(time.Minute) })
	w.claimWithHeartbeat("a", 10*time.Second)
	for range 11 {
		w.later(5 * time.Second)
		w.beat("")
	}
	w.later(5 * time.Second)
	res := w.beat("")
	w.require(res.Stop && res.Reason == protocol.StopStalled, "%+v", res)
	w.require(res.LockedUntil.Equal(startTime.Add(70*time.Second)), "locked until %s", res.LockedUntil)
	w.later(5 * time.Second)
	if res = w.beat(`{"done":1}`); res.Stop { // it was on its way
		t.Errorf("late progress: %+v", res)
	}
	w.require(w.step("a").LockedUntil.Equal(w.now.Add(10*time.Second)), "progress does not extend the lock")

	w = monitored(t, func(s *StepDefinition) { s.ProgressWithin = perdure.Duration(time.Minute) })
	w.claimWithHeartbeat("a", 10*time.Second)
	for range 12 {
		w.later(5 * time.Second)
		res = w.beat(`{"done":1}`)
	}
	w.require(!res.Stop, "progress in time: %+v", res)
	w.later(5 * time.Second)
	if res = w.beat(`{"done":1}`); res.Reason != protocol.StopStalled {
		t.Errorf("the same progress again: %+v", res)
	}
}

// F197, F199: a stalled run ends failed with the code stalled, whether its agent reports that it has stopped it, or is silent
// or does not heed.
func TestStalledRunsFail(t *testing.T) {
	stall := func(every time.Duration) *world {
		w := monitored(t, func(s *StepDefinition) { s.ProgressWithin = perdure.Duration(time.Minute) })
		w.claimWithHeartbeat("a", every)
		if every > 0 {
			for range 12 {
				w.later(5 * time.Second)
				w.beat("")
			}
		}
		return w
	}
	w := stall(10 * time.Second)
	w.report("a", failed, code("stopped"))
	w.require(w.step("a").ErrorCode == "stalled" && w.step("a").Failures == 1, "%+v", w.step("a"))
	w.stepIs("a", "unsure waiting") // for its retry

	w = stall(10 * time.Second)
	w.report("a", failed, code("exit_3")) // it failed by itself
	w.require(w.step("a").ErrorCode == "exit_3", "%+v", w.step("a"))

	w = stall(10 * time.Second)
	w.report("a", done)
	w.stepIs("a", "done settled")

	w = stall(10 * time.Second)
	w.later(9 * time.Second)
	w.beat("")
	ok, _ := w.expireAs(0, "", CauseTime)
	w.require(!ok, "expired before the end of its lock")
	w.later(time.Second)
	ok, _ = w.expireAs(0, "", CauseTime)
	w.require(ok && w.step("a").ErrorCode == "stalled" && w.step("a").LastError == "no progress for 1m (progressWithin)", "%v %+v", ok, w.step("a"))

	w = stall(0) // its agent sends no heartbeats, and so no progress
	w.later(time.Minute)
	ok, _ = w.expireAs(0, "", CauseTime)
	w.require(ok && w.step("a").ErrorCode == "stalled", "%v %+v", ok, w.step("a"))

	w = monitored(t, func(s *StepDefinition) { s.ProgressWithin = perdure.Duration(time.Minute) })
	w.claimWithHeartbeat("a", 10*time.Second)
	w.later(10 * time.Second)
	ok, _ = w.expireAs(0, "", CauseTime)
	w.require(ok && w.step("a").ErrorCode == "expired", "a dead holder: %v %+v", ok, w.step("a"))
}

// A run that was stopped says why, and what its agent has said beside that.
func TestMessageOfARunSaysWhyItWasStopped(t *testing.T) {
	for said, want := range map[string]string{"": "why", "stopped": "why", "stopped: exit code 0 after TERM": "why: exit code 0 after TERM", "context canceled": "why: context canceled"} {
		if got := because("why", said); got != want {
			t.Errorf("%q: %q", said, got)
		}
	}
	w := monitored(t, func(s *StepDefinition) { s.CompleteWithin = perdure.Duration(8 * time.Second) })
	w.claimWithHeartbeat("a", time.Minute)
	w.later(8 * time.Second)
	ok, _ := w.expireAs(0, "", CauseTime)
	w.require(ok && w.step("a").ErrorCode == "expired" && w.step("a").LastError == "no report within completeWithin (8s)", "%v %+v", ok, w.step("a"))
}

// An undo run needs no progress, and the next run counts from its own start.
func TestProgressIsOfOneDoRun(t *testing.T) {
	w := monitored(t, func(s *StepDefinition) { s.ProgressWithin = perdure.Duration(time.Minute) })
	w.claimWithHeartbeat("a", time.Minute)
	w.beat(`1`)
	w.report("a", failed)
	w.wait(time.Hour)
	w.claimWithHeartbeat("a", time.Minute)
	w.require(w.step("a").ProgressAt.IsZero() && w.step("a").Progress == "", "progress of the earlier run is kept")
	w.later(59 * time.Second)
	w.require(!w.beat("").Stop, "counted from the earlier run")
	w.report("a", done)
	w.undo()
	w.claimWithHeartbeat("a", time.Minute)
	for range 10 {
		w.later(50 * time.Second)
		w.require(!w.beat("").Stop, "an undo is stopped at %s", w.now)
	}
}

// The lock lasts for what the step demands, if its holder promises less, and has room for stopWithin.
func TestHeartbeatOfAStep(t *testing.T) {
	for name, test := range map[string]struct {
		set      func(*StepDefinition)
		promised time.Duration
		want     time.Duration
	}{
		"as promised":               {func(*StepDefinition) {}, 10 * time.Second, 10 * time.Second},
		"longer":                    {func(s *StepDefinition) { s.Heartbeat = perdure.Duration(time.Minute) }, 10 * time.Second, time.Minute},
		"promised longer":           {func(s *StepDefinition) { s.Heartbeat = perdure.Duration(time.Second) }, 10 * time.Second, 10 * time.Second},
		"with time to stop":         {func(s *StepDefinition) { s.StopWithin = perdure.Duration(20 * time.Second) }, 10 * time.Second, 40 * time.Second},
		"an agent without any":      {func(s *StepDefinition) { s.Heartbeat = perdure.Duration(time.Minute) }, 0, time.Hour},
		"not beyond completeWithin": {func(s *StepDefinition) { s.Heartbeat = perdure.Duration(2 * time.Hour) }, 10 * time.Second, time.Hour},
	} {
		w := monitored(t, test.set)
		run := w.claimWithHeartbeat("a", test.promised)
		if got := run.LockedUntil.Sub(startTime); got != test.want {
			t.Errorf("%s: %s, not %s", name, got, test.want)
		}
		if run.StopWithin != w.plan.Steps[0].StopWithin {
			t.Errorf("%s: stopWithin %s", name, run.StopWithin)
		}
	}
}

// F200, F202: a run that an operator stops gets that as the answer to each heartbeat, and its failure has the code stopped, whatever its
// agent says. A second stop changes nothing. Done is done.
func TestStopEndsTheRun(t *testing.T) {
	stop := func() *world {
		w := monitored(t, func(*StepDefinition) {})
		w.conflict(w.tryAct(perdure.VerbStop, "a")) // it is ready
		w.claimWithHeartbeat("a", 10*time.Second)
		w.act(perdure.VerbStop, "a")
		at := w.step("a").StopRequestedAt
		w.later(time.Second)
		w.act(perdure.VerbStop, "a")
		w.require(w.step("a").StopRequestedAt.Equal(at) && len(w.history) == 1 && w.history[0].Event == "stop" && w.history[0].Author == "ann", "%+v", w.history)
		for range 2 {
			res := w.beat("")
			w.require(res.Stop && res.Reason == protocol.StopOperator, "%+v", res)
		}
		return w
	}
	for _, said := range []string{"", "stopped", "signal_TERM"} {
		w := stop()
		w.report("a", failed, code(said))
		w.stepIs("a", "unsure waiting")
		s := w.step("a")
		w.require(s.ErrorCode == "stopped" && s.Failures == 1 && s.StopRequestedAt.IsZero(), "%+v", s)
		w.conflict(w.tryAct(perdure.VerbStop, "a"))
		w.wait(time.Hour)
		w.claimWithHeartbeat("a", 10*time.Second)
		w.require(!w.beat("").Stop, "the next run is stopped, too")
	}
	w := stop()
	w.report("a", done)
	w.stepIs("a", "done settled")

	// It was stopped before it started: it does not start again at once. A repeated report is accepted again.
	w = stop()
	w.report("a", returned)
	w.report("a", returned)
	w.stepIs("a", "undone waiting")
	w.require(w.step("a").Failures == 1 && w.step("a").ErrorCode == "stopped", "%+v", w.step("a"))

	w = stop()
	w.undo()
	res := w.beat("")
	w.require(res.Stop && res.Reason == protocol.StopUndo, "%+v", res)
	w.report("a", failed, code("stopped"))
	w.stepIs("a", "unsure ready")
}

// F201: a run that is stopped ends soon, also if its agent is gone, or sends heartbeats and does not heed.
func TestStoppedRunExpires(t *testing.T) {
	w := monitored(t, func(*StepDefinition) {})
	w.claimWithHeartbeat("a", 10*time.Second)
	w.act(perdure.VerbStop, "a")
	w.later(10 * time.Second)
	ok, _ := w.expireAs(0, "", CauseTime)
	w.require(ok && w.step("a").Failures == 1, "a silent agent: %v %+v", ok, w.step("a"))

	w = monitored(t, func(s *StepDefinition) { s.StopWithin = perdure.Duration(30 * time.Second) })
	w.claimWithHeartbeat("a", 10*time.Second) // in fact 60 s
	w.act(perdure.VerbStop, "a")
	for range 8 {
		w.later(10 * time.Second)
		w.require(w.beat(`{"done":1}`).Reason == protocol.StopOperator, "at %s", w.now)
	}
	w.require(w.step("a").LockedUntil.Equal(startTime.Add(90*time.Second)), "locked until %s", w.step("a").LockedUntil)
	w.later(10 * time.Second)
	ok, _ = w.expireAs(0, "", CauseTime)
	w.require(ok && w.step("a").Outcome == perdure.OutcomeExpired, "%v %+v", ok, w.step("a"))
}
