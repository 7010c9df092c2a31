package kernel

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// These tests try every order of events in small worlds. A state is the rows of one job (without the numbers that only
// grow) and what may be true at the receivers of its steps. From each state every event is tried, also those that must
// be refused.

// event is an event of a kind, at a step or (-1) at the job.
type event struct {
	name string
	step int
}

// eventKind is a kind of event. try plays it, and reports whether it changed anything. expected reports whether it must:
// an event that must be refused is tried all the same.
type eventKind struct {
	name     string
	ofStep   bool // tried for each step, not for the job
	try      func(x *explored, i int) (did bool)
	expected func(x *explored, i int) bool // nil: the rules decide
}

var eventKinds = []eventKind{
	{"claim", true, claim(protocol.Claim{}), isReady},
	{"claim with heartbeat", true, claim(protocol.Claim{Heartbeat: tick / 2}), isReady},
	{"claim by another agent", true, claim(protocol.Claim{Agent: "other"}), never},
	{"done", true, reportEvent(protocol.Report{Outcome: perdure.OutcomeDone}), isInFlight},
	{"done with output", true, reportEvent(protocol.Report{Outcome: perdure.OutcomeDone, Output: []byte(`1`)}), isInFlight},
	{"done with a bad output", true, reportEvent(protocol.Report{Outcome: perdure.OutcomeDone, Output: []byte(`"bad"`)}), isInFlight},
	{"failed", true, reportEvent(protocol.Report{Outcome: perdure.OutcomeFailed}), isInFlight},
	{"failed without effect", true, reportEvent(protocol.Report{Outcome: perdure.OutcomeFailed, Effect: protocol.EffectNone}), isInFlight},
	{"rejected", true, reportEvent(protocol.Report{Outcome: perdure.OutcomeRejected}), isInFlight},
	{"rejected without effect", true, reportEvent(protocol.Report{Outcome: perdure.OutcomeRejected, Effect: protocol.EffectNone}), isInFlight},
	{"returned", true, reportEvent(protocol.Report{Outcome: perdure.OutcomeReturned}), isInFlight},
	{"cut short", true, reportEvent(protocol.Report{Outcome: perdure.OutcomeReturned, Effect: protocol.EffectUnknown}), isInFlight},
	{"answered by another holder", true, func(x *explored, i int) bool {
		res, c := x.reportAs(i, "thief", protocol.Report{Run: x.steps[i].Run, Outcome: perdure.OutcomeDone})
		return x.refused(res, c, x.steps[i].Phase != perdure.Running && x.steps[i].Outcome == perdure.OutcomeDone)
	}, never},
	{"stale report", true, func(x *explored, i int) bool {
		res, c := x.reportAs(i, "host", protocol.Report{Run: x.steps[i].Run - 1, Outcome: perdure.OutcomeDone})
		return x.refused(res, c, false)
	}, never},
	{"unknown report", true, func(x *explored, i int) bool {
		res, c := x.reportAs(i, "host", protocol.Report{Run: x.steps[i].Run + 1, Outcome: perdure.OutcomeDone})
		return x.refused(res, c, false)
	}, never},
	{"doubled report", true, repeatReport, nil},
	{"late or second answer", true, reportOtherOutcome, never},
	{"heartbeat", true, heartbeat, isInFlight},
	{"expired", true, func(x *explored, i int) bool { ok, c := x.expireAs(i, "", CauseTime); return x.checkChanges(ok, c) }, hasExpired},
	{"holder lost", true, loseHolder, isRunning},
	{"another holder lost", true, func(x *explored, i int) bool {
		ok, c := x.expireAs(i, "other", CauseLost)
		return x.checkChanges(ok, c)
	}, never},
	{"due", true, func(x *explored, i int) bool { ok, c := x.dueAt(i); return x.checkChanges(ok, c) }, isDue},
	{"overdue", false, func(x *explored, _ int) bool { ok, c := x.overdue(); return x.checkChanges(ok, c) }, isOverdue},
	{"time", false, passTime, nil},
	{"undo", false, operatorAct(perdure.Act{Verb: perdure.VerbUndo}), nil},
	{"redo", false, operatorAct(perdure.Act{Verb: perdure.VerbRedo}), nil},
	{"resume", false, operatorAct(perdure.Act{Verb: perdure.VerbResume}), nil},
	{"resume step", true, operatorAct(perdure.Act{Verb: perdure.VerbResume}), isParkedOrWaitsForRetry},
	{"give up", false, operatorAct(perdure.Act{Verb: perdure.VerbGiveUp}), nil},
	{"settle as done", true, operatorAct(perdure.Act{Verb: perdure.VerbSettle, As: new(perdure.Done)}), nil},
	{"settle as done with output", true, operatorAct(perdure.Act{Verb: perdure.VerbSettle, As: new(perdure.Done), Output: []byte(`1`)}), nil},
	{"settle as undone", true, operatorAct(perdure.Act{Verb: perdure.VerbSettle, As: new(perdure.Undone)}), nil},
	{"skip", true, operatorAct(perdure.Act{Verb: perdure.VerbSkip}), nil},
	{"stop", true, operatorAct(perdure.Act{Verb: perdure.VerbStop}), nil},
	{"approve", true, operatorAct(perdure.Act{Verb: perdure.VerbApprove, Data: []byte(`1`)}), nil},
	{"reject", true, operatorAct(perdure.Act{Verb: perdure.VerbReject}), nil},
	{"signal", true, func(x *explored, i int) bool { ok, c := x.signalTo(i); return x.checkChanges(ok, c) }, awaitsSignal},
	{"edit", true, operatorAct(perdure.Act{Verb: perdure.VerbEdit, Input: []byte(`"other"`)}), nil},
	{"edit with a new key", true, operatorAct(perdure.Act{Verb: perdure.VerbEdit, NewKey: true}), nil},
}

// explored is a world, and for each step what may be true at its receiver.
type explored struct {
	world
	receivers []receiverState
}

// receiverState is what may be true at the receiver of a step. possible has a bit (see maybeUndone, maybeDone) for each
// state that the receiver may be in; possibleBefore is possible before the latest run. zombieUntil is the time, for each
// direction, until which runs whose holders died may still act.
type receiverState struct {
	possible, possibleBefore uint8
	zombieUntil              [2]time.Time
	setByOperator            bool // set by an operator, who may ignore the order
}

const (
	maybeUndone uint8 = 1 << perdure.Undone
	maybeDone   uint8 = 1 << perdure.Done
)

func poleBit(d perdure.Direction) uint8 { return 1 << d.Pole() }

func never(*explored, int) bool         { return false }
func isRunning(x *explored, i int) bool { return x.steps[i].Phase == perdure.Running }
func isParked(x *explored, i int) bool  { return x.steps[i].Phase == perdure.Parked && !x.job.GivenUp() }
func isParkedOrWaitsForRetry(x *explored, i int) bool {
	s := x.steps[i]
	sleepsOrAsks := x.plan.Steps[i].Form != ByAgent && !s.StartedAt.IsZero()
	held := s.mustReverse() && s.AvailableAt.Equal(s.LockedUntil)
	return isParked(x, i) || s.Phase == perdure.Waiting && x.now.Before(s.AvailableAt) && !sleepsOrAsks && !held
}
func isReady(x *explored, i int) bool {
	return x.steps[i].Phase == perdure.Ready && !x.job.startsTooLate(x.now) && !(x.job.Desired == perdure.Done && !x.job.CompleteBy.IsZero() && !x.now.Before(x.job.CompleteBy))
}
func isInFlight(x *explored, i int) bool {
	return isRunning(x, i) && x.now.Before(x.steps[i].LockedUntil)
}
func hasExpired(x *explored, i int) bool { return isRunning(x, i) && !isInFlight(x, i) }
func awaitsSignal(x *explored, i int) bool {
	s := x.steps[i]
	return s.Topic != "" && (s.AvailableAt.IsZero() || x.now.Before(s.AvailableAt))
}
func isDue(x *explored, i int) bool {
	s := x.steps[i]
	return s.Phase == perdure.Waiting && !s.AvailableAt.IsZero() && !s.AvailableAt.After(x.now)
}
func isOverdue(x *explored, _ int) bool {
	at := x.job.OverdueAt()
	return !x.job.AtRest() && !at.IsZero() && !at.After(x.now)
}

func (x *explored) checkChanges(ok bool, c *Changes) bool {
	if ok == c.Empty() {
		x.t.Fatalf("changed: %v, but the changes are %+v", ok, *c)
	}
	return ok
}

func (x *explored) refused(res protocol.ReportResult, c *Changes, acceptedAgain bool) bool {
	if res.Accepted != acceptedAgain || !c.Empty() {
		x.t.Fatalf("accepted: %v, changes %+v", res, *c)
	}
	return false
}

func claim(req protocol.Claim) func(*explored, int) bool {
	return func(x *explored, i int) bool {
		before := *x.steps[i]
		job := *x.job
		run, c := x.claimAs(i, req)
		if run == nil {
			return x.checkChanges(!c.Empty(), c) // an expression that failed changes the step too
		}
		x.checkDispatch(&job, &before, run)
		f := &x.receivers[i]
		f.possibleBefore, f.setByOperator = f.possible, f.setByOperator && run.Direction == perdure.Undo
		f.possible |= poleBit(run.Direction)
		return true
	}
}

// checkDispatch checks I4, I6, I9 and I10 from the receiver's view when a run is dispatched.
func (x *explored) checkDispatch(job *Job, before *Step, run *perdure.Run) {
	s := x.steps[before.Index]
	if run.Number != before.Run+1 || s.Run != run.Number {
		x.t.Fatalf("I6: run %d came after run %d", run.Number, before.Run)
	}
	turned := before.Run > 0 && run.Direction != before.Direction
	switch {
	case before.Run > 0 && !turned && run.Key != before.Key():
		x.t.Fatalf("I4: key %s became %s within a turn", before.Key(), run.Key)
	case turned && run.Key == before.Key():
		x.t.Fatalf("I4: key %s in both directions", run.Key)
	case turned && run.Direction == perdure.Do && (before.Current != perdure.Undone || x.receivers[before.Index].possible != maybeUndone):
		x.t.Fatalf("I4: do run under a new key from %s", before.Current)
	case run.Direction == perdure.Undo && run.DoKey == run.Key:
		x.t.Fatalf("I4: undo run under the key of the do")
	case x.now.Before(x.receivers[before.Index].zombieUntil[1-run.Direction]):
		x.t.Fatalf("I10: dispatched to %s while an earlier run may still act in the other direction", run.Direction)
	}
	for i := range x.plan.Steps {
		o := x.steps[i]
		switch {
		case run.Direction == perdure.Do && x.comesAfter(before.Index, i):
			if slices.Contains(x.plan.Steps[before.Index].After, i) && (o.Phase != perdure.Settled || o.Current != perdure.Done && !o.Skipped) {
				x.t.Fatalf("I9: %s is dispatched, but %s is %s and %s", before.Name, o.Name, o.Current, o.Phase)
			}
		case run.Direction == perdure.Undo && x.comesAfter(i, before.Index):
			if x.receivers[i].setByOperator {
				continue
			}
			if o.Phase == perdure.Running || job.Desired == perdure.Undone && (o.Phase != perdure.Settled || o.Current != perdure.Undone) {
				x.t.Fatalf("I10: %s is undone, but %s is %s and %s", before.Name, o.Name, o.Current, o.Phase)
			}
		}
	}
}

// comesAfter reports whether step i comes after step j, directly or not.
func (w *world) comesAfter(i, j int) bool {
	return slices.ContainsFunc(w.plan.Steps[i].After, func(a int) bool { return a == j || w.comesAfter(a, j) })
}

func reportEvent(rep protocol.Report) func(*explored, int) bool {
	return func(x *explored, i int) bool {
		s := x.steps[i]
		out := isInFlight(x, i)
		rep := rep
		rep.Run = s.Run
		if string(rep.Output) == `1` { // make it different from those of other runs
			rep.Output = fmt.Appendf(nil, `"%s of run %d"`, s.Name, s.Run)
		}
		if s.Run == 0 || !isRunning(x, i) {
			return false // repeated, late and contradicting reports are event kinds of their own
		}
		res, c := x.reportAs(i, "host", rep)
		if !out {
			if res.Reason != protocol.RefusedLate {
				x.t.Fatalf("I7: a late report got %+v", res)
			}
			return x.refused(res, c, false)
		}
		f := &x.receivers[i]
		switch {
		case rep.Outcome == perdure.OutcomeDone:
			f.possible = poleBit(s.Direction)
		case rep.Effect == protocol.EffectNone || rep.Outcome == perdure.OutcomeReturned && rep.Effect == "":
			f.possible = f.possibleBefore
		}
		return x.checkChanges(res.Accepted, c)
	}
}

func repeatReport(x *explored, i int) bool {
	s := x.steps[i]
	if s.Phase == perdure.Running || s.Outcome == perdure.NoOutcome || s.Outcome == perdure.OutcomeExpired {
		return false
	}
	res, c := x.reportAs(i, "host", protocol.Report{Run: s.Run, Outcome: s.Outcome})
	x.refused(res, c, true)
	return true
}

func reportOtherOutcome(x *explored, i int) bool {
	s := x.steps[i]
	if s.Phase == perdure.Running || s.Run == 0 {
		return false
	}
	want := protocol.RefusedConflict
	if s.Outcome == perdure.OutcomeExpired {
		want = protocol.RefusedLate
	}
	for o := perdure.OutcomeDone; o <= perdure.OutcomeReturned; o++ {
		if o == s.Outcome {
			continue
		}
		res, c := x.reportAs(i, "host", protocol.Report{Run: s.Run, Outcome: o})
		if x.refused(res, c, false); res.Reason != want {
			x.t.Fatalf("I8: %s after %s got %+v", o, s.Outcome, res)
		}
	}
	return false
}

func heartbeat(x *explored, i int) bool {
	s := x.steps[i]
	res, c := x.heartbeat(i, "host", s.Run)
	if out := isInFlight(x, i); out != (res.Reason == "" || res.Reason == protocol.StopUndo || res.Reason == protocol.StopOperator) || !out && !c.Empty() {
		x.t.Fatalf("heartbeat, run in flight: %v, got %+v", out, res)
	}
	return isInFlight(x, i) && res.Reason != "late"
}

func loseHolder(x *explored, i int) bool {
	s := *x.steps[i]
	ok, c := x.expireAs(i, "host", CauseLost)
	if ok && s.LockedUntil.After(x.receivers[i].zombieUntil[s.Direction]) {
		x.receivers[i].zombieUntil[s.Direction] = s.LockedUntil
	}
	return x.checkChanges(ok, c)
}

func passTime(x *explored, _ int) bool {
	at, ok := x.nextTime()
	if ok {
		x.now = at
	}
	return ok
}

func operatorAct(a perdure.Act) func(*explored, int) bool {
	return func(x *explored, i int) bool {
		a := a
		if i >= 0 {
			s := x.steps[i]
			a.Step = s.Name
			if a.Output != nil {
				a.Output = fmt.Appendf(nil, `"%s by hand after run %d"`, s.Name, s.Run)
			}
			if a.Input != nil {
				a.Input = fmt.Appendf(nil, `"%s edited after run %d"`, s.Name, s.Run)
			}
		}
		c, err := x.actAs(a)
		if err != nil {
			if perdure.CodeOf(err) != perdure.CodeConflict || !c.Empty() {
				x.t.Fatalf("%s: %v, changes %+v", a.Verb, err, *c)
			}
			return false
		}
		if c.Empty() {
			return false
		}
		if a.Verb == perdure.VerbSettle {
			x.receivers[i] = receiverState{possible: 1 << *a.As, possibleBefore: 1 << *a.As, setByOperator: true, zombieUntil: x.receivers[i].zombieUntil}
		}
		if a.NewKey {
			x.receivers[i] = receiverState{possible: maybeUndone, possibleBefore: maybeUndone}
		}
		return true
	}
}

// checkCurrent checks that the recorded state of each step is possible at its receiver (I5, I10, I11).
func (x *explored) checkCurrent() {
	for i, s := range x.steps {
		ps, may := &x.plan.Steps[i], x.receivers[i].possible
		switch {
		case ps.Form != ByAgent:
		case s.Current == perdure.Undone && may != maybeUndone && ps.Undo != nil:
			x.t.Fatalf("I10: step %s is undone, but may have acted", s.Name)
		case s.Current == perdure.Done && may != maybeDone:
			x.t.Fatalf("I11: step %s is done, but may not have acted", s.Name)
		}
		if ps.Undo == nil && s.Current == perdure.Undone {
			x.receivers[i] = receiverState{possible: maybeUndone, possibleBefore: maybeUndone}
		}
	}
}

// checkReasons checks that every unsettled step has a reason, and that a step that is not ready has none of the reasons
// of ready steps.
func (x *explored) checkReasons() {
	for _, s := range x.steps {
		r := Why(x.job, s, x.plan, func(i int) bool { return x.steps[i].Phase != perdure.Settled }, &Facts{Now: x.now})
		switch {
		case s.Phase == perdure.Settled:
			if r != nil {
				x.t.Fatalf("%s is settled, but has a reason: %s", s.Name, r.Text)
			}
		case r == nil || r.Text == "":
			x.t.Fatalf("no reason for %s, which is %s", s.Name, s.Phase)
		case s.Phase != perdure.Ready && slices.Contains([]perdure.ReasonKind{perdure.WhyNoAgent, perdure.WhyAgentBusy, perdure.WhyLimit, perdure.WhyDeadline}, r.Kind):
			x.t.Fatalf("%s is %s because of %s", s.Name, s.Phase, r.Kind)
		case r.Kind == perdure.WhyAfterSteps && len(r.Steps) == 0:
			x.t.Fatalf("%s waits for no step", s.Name)
		}
	}
}

// checkSettledUnchanged checks that only undo and redo change a settled job (I3).
func (x *explored) checkSettledUnchanged(before *world, name string) {
	if before.job != nil && before.job.Phase == perdure.Settled && name != "undo" && name != "redo" && x.job != before.job {
		x.t.Fatalf("I3: %s changed a settled job", name)
	}
}

// The search through all states.

// smallWorld is a world to search: a definition, the event kinds to try beside the usual ones (their names, separated by
// commas), and an upper bound of the number of states.
type smallWorld struct {
	definition string
	acts       string // names of event kinds, separated by commas
	states     int
}

var smallWorlds = []smallWorld{
	{"a undo attempts 2", refusals + "undo,redo,edit,edit with a new key,resume step,claim with heartbeat,heartbeat,returned,cut short,rejected,rejected without effect,holder lost,give up", 20_000},
	{"a undo attempts 2", refusals + "undo,redo,stop,claim with heartbeat,heartbeat,returned,cut short,holder lost", 20_000},
	{"a undo or alert:ops,wait:2", refusals + "undo,redo,resume,skip,rejected,settle as done,settle as undone", 20_000},
	{"onFailure undo; a undo; b after a undo", refusals + "undo,redo,resume", 20_000},
	{"onFailure undo; a undo; b after a undo", "undo,redo,holder lost", 20_000},
	{"a undo; b after a", "undo,redo,settle as done,settle as undone,skip,resume step,give up", 20_000},
	{"onFailure undo; a undo; b after a; c after b undo", "undo,redo", 20_000},
	{"onFailure undo; a undo; b after a undo; c after a undo; d after b c undo", "undo,redo", 40_000},
	{"onFailure restart:1; a undo; b after a undo", "undo,redo,resume", 20_000},
	{"onFailure undo; a undo; b after a; c after a undo; d after b c", "undo,redo,resume", 40_000},
	{"a undo; b after a undo or skip; c after b", "undo,redo,resume", 20_000},
	{"a undo; b after a reads a or undo; c after a when a or restart:1", "undo,redo,done with output,done with a bad output", 30_000},
	{"a undo; b after a undo when a or skip; c after b reads b", "undo,redo,done with output", 20_000},
	{"a undo; b after a reads a undo; c after b reads b revert", "undo,redo,done with output", 20_000},
	{"a undo; b after a reads a undo", "undo,redo,done with output,edit", 20_000},
	{"a; b after a reads a revert", "undo,redo,done with output,settle as done with output", 20_000},
	{"a undo; b after a reads a undo", "undo,redo,done with output,skip", 20_000},
	{"a revert", "undo,redo,done with output,edit,edit with a new key,settle as done with output", 20_000},
	{"onFailure undo; a undo; s after a sleep; b after s", "undo,redo,skip,give up", 20_000},
	{"a undo; p after a approval; b after p", "undo,redo,settle as done,skip,resume,give up", 20_000},
	{"a undo; p after a approval lasts or undo; b after p", "undo,redo,approve,reject,settle as done,skip", 20_000},
	{"a undo; s after a signal lasts or wait:1,undo; b after s", "undo,redo,signal,settle as done,skip,resume", 20_000},
	{"within 30s; a undo; s after a signal; b after s undo", "undo,redo,signal,resume,give up", 20_000},
	{"p approval lasts or wait:1,undo; q after p approval lasts or skip", "undo,redo,settle as done,resume", 20_000},
	{"onFailure undo; within 30s; a undo; b after a undo", "undo,redo,resume", 20_000},
	{"within 30s; a undo attempts 2; s after a sleep; p after s approval lasts", "undo,redo,resume,resume step,settle as done,skip", 40_000},
	{"onFailure restart:1,undo; within 30s; a undo; b after a", "redo,resume", 20_000},
	{"a undo; b after a; output a b", "undo,redo,skip,done with output,done with a bad output,settle as done with output", 20_000},
	{"startIn 20s; a undo; b after a", "undo,redo,resume,resume step,skip,settle as done,give up", 20_000},
	{"startWithin 5s; a undo; b after a undo", "undo,redo,resume,skip,settle as done,give up", 20_000},
	{"onFailure alert:late,park; startIn 5s; startWithin 10s; within 30s; s sleep; a after s undo; p approval", "undo,redo,resume,settle as done", 40_000},
}

// wideWorlds are searched only if PERDURE_WIDE is set. This takes minutes.
var wideWorlds = []smallWorld{
	{"onFailure undo; a undo; b after a undo; c after a undo; d after b c undo", "undo,redo,holder lost,resume", 400_000},
	{"a undo; b after a undo; c after b", "undo,redo,settle as undone,skip,resume step", 400_000},
	{"onFailure restart:1; a undo; b after a undo; c after a", "undo,redo,resume", 400_000},
	{"within 30s; a undo attempts 2; b after a undo", "undo,resume,resume step,settle as undone", 400_000},
}

// alwaysTried are tried in every world, refusals only in some: they do not lead to another state.
const (
	alwaysTried = "claim,done,failed,failed without effect,expired,due,overdue,time"
	refusals    = "stale report,unknown report,doubled report,late or second answer,answered by another holder," +
		"claim by another agent,another holder lost,"
)

func TestEveryOrderOfEvents(t *testing.T) { // I3 to I12, L1; F018 F025 F042 F044 F045 F046 F056 F057 F066 F084 F087 F090 F093 F094 F096
	succeeded := map[string]int{}
	states, events := 0, 0
	all := smallWorlds
	if os.Getenv("PERDURE_WIDE") != "" {
		all = slices.Concat(smallWorlds, wideWorlds)
	}
	for _, s := range all {
		t.Run(s.definition, func(t *testing.T) {
			began := time.Now()
			walk := &walk{t: t, smallWorld: s, known: map[uint64]int32{}, succeeded: succeeded}
			walk.run()
			t.Logf("%6d states, %7d events, %s", len(walk.parents), walk.events, time.Since(began).Round(time.Millisecond))
			states, events = states+len(walk.parents), events+walk.events
		})
	}
	t.Logf("%d states, %d events; succeeded: %v", states, events, succeeded)
	for _, h := range eventKinds {
		if succeeded[h.name] == 0 && (h.expected == nil || !isNever(h)) && !t.Failed() {
			t.Errorf("%q never succeeded", h.name)
		}
	}
}

func isNever(h eventKind) bool {
	switch h.name {
	case "claim by another agent", "answered by another holder", "stale report", "unknown report", "late or second answer", "another holder lost":
		return true
	}
	return false
}

type walk struct {
	smallWorld
	t         *testing.T
	known     map[uint64]int32
	parents   []int32
	by        []event
	fair      []int32 // the next state if nothing fails any more; -1: parked or settled
	queue     []*explored
	events    int
	succeeded map[string]int
	seed      maphash.Seed
	buf       []byte
	playing   []event // for the message of a failure
}

func (k *walk) run() {
	k.seed = maphash.MakeSeed()
	x := &explored{world: *newWorld(k.t, k.definition)}
	x.t = &failureReporter{TB: k.t, walk: k}
	x.loadOnDemand = true
	x.submitPlan()
	x.receivers = make([]receiverState, len(x.steps))
	for i := range x.receivers {
		x.receivers[i].possible = maybeUndone
	}
	k.visit(x, -1, event{"submit", -1})
	candidates := k.eventsToTry()
	for n := 0; n < len(k.queue); n++ {
		from := k.queue[n]
		k.queue[n] = nil
		fair := k.fairEvent(from)
		k.fair = append(k.fair, -1)
		for _, h := range candidates {
			steps := []int{-1}
			if h.ofStep {
				steps = steps[:0]
				for i := range from.steps {
					steps = append(steps, i)
				}
			}
			for _, i := range steps {
				ev := event{h.name, i}
				id := k.try(from, int32(n), h, ev)
				if ev == fair {
					k.fair[n] = id
				}
			}
		}
		if fair.name != "" && k.fair[n] < 0 {
			k.fail(int32(n), fair, "the event that should move the state on changed nothing")
		}
		if len(k.parents) > k.states {
			k.t.Fatalf("more than %d states", k.states)
		}
	}
	k.checkTermination()
}

func (k *walk) eventsToTry() (candidates []eventKind) {
	acts := strings.Split(alwaysTried+","+k.acts, ",")
	for _, h := range eventKinds {
		if slices.Contains(acts, h.name) {
			candidates = append(candidates, h)
		}
	}
	return candidates
}

// try plays one event in a state, and returns the next state; -1 if nothing changed.
func (k *walk) try(from *explored, id int32, h eventKind, ev event) int32 {
	k.playing = append(k.playing[:0], event{fmt.Sprint(id), -2}, ev)
	x := *from
	x.receivers = slices.Clone(from.receivers)
	applied := h.try(&x, ev.step)
	k.events++
	if h.expected != nil && applied != h.expected(from, ev.step) {
		x.t.Fatalf("changed something: %v, want %v", applied, !applied)
	}
	if !applied {
		if x.job != from.job || x.now != from.now || !slices.Equal(x.steps, from.steps) {
			x.t.Fatalf("a refused event changed something")
		}
		return -1
	}
	k.succeeded[h.name]++
	x.checkSettledUnchanged(&from.world, h.name)
	if id := k.visit(&x, id, ev); id >= 0 {
		return id
	}
	return -1
}

// visit returns the number of a state. A new state is checked and queued.
func (k *walk) visit(x *explored, parent int32, by event) int32 {
	x.history, x.dispatched, x.runs = nil, nil, nil
	x.checkCurrent()
	sum := maphash.Bytes(k.seed, k.encode(x))
	if id, ok := k.known[sum]; ok {
		return id
	}
	id := int32(len(k.parents))
	k.known[sum] = id
	k.parents, k.by = append(k.parents, parent), append(k.by, by)
	for _, f := range CheckJob(x.job, x.plan, x.steps, x.alerts, x.now) {
		x.t.Fatalf("%s: step %q: %s", f.Rule, f.Step, f.Message)
	}
	x.checkReasons()
	k.queue = append(k.queue, x)
	return id
}

// fairEvent returns the event that moves a state on if nothing fails; none if the job is parked or settled.
func (k *walk) fairEvent(x *explored) event {
	if isOverdue(x, -1) {
		return event{"overdue", -1}
	}
	for _, m := range []struct {
		name string
		is   func(*explored, int) bool
	}{{"expired", hasExpired}, {"due", isDue}, {"claim", isReady}, {"done", isInFlight}} {
		for i := range x.steps {
			if m.is(x, i) {
				return event{m.name, i}
			}
		}
	}
	if x.job.AtRest() {
		return event{}
	}
	return event{"time", -1}
}

// checkTermination checks L1: from any state, if nothing fails any more, the job becomes parked or settled.
func (k *walk) checkTermination() {
	const unknown, walking, rests = 0, 1, 2
	mark := make([]uint8, len(k.fair))
	for start := range k.fair {
		var path []int32
		at := int32(start)
		for mark[at] == unknown {
			mark[at] = walking
			path = append(path, at)
			if k.fair[at] < 0 {
				break
			}
			at = k.fair[at]
		}
		if k.fair[at] >= 0 && mark[at] == walking {
			k.fail(at, event{}, "L1: the job never becomes parked or settled")
		}
		for _, id := range path {
			mark[id] = rests
		}
	}
}

// encode returns everything in a state that determines its future. Numbers that only grow are left out, times are
// relative, and all times that have passed are equal.
func (k *walk) encode(x *explored) []byte {
	b := k.buf[:0]
	flag := func(vs ...bool) {
		for _, v := range vs {
			if v {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	}
	rel := func(t time.Time) {
		d := int32(0)
		if !t.IsZero() {
			d = int32(max(t.Sub(x.now), 0)/time.Millisecond) + 1
		}
		b = binary.AppendVarint(b, int64(d))
	}
	j := x.job
	b = append(b, byte(j.Current), byte(j.Desired), byte(j.Phase), byte(j.Restarts))
	flag(j.RestartPending, j.HasPermit, j.Overdue, j.GivenUp(), j.StartBy.IsZero(), j.HasOutput, j.OutputError != "")
	rel(j.StartAt)
	rel(j.StartBy)
	switch {
	case j.Phase == perdure.Settled:
	case !j.ParkedAt.IsZero() && !j.CompleteBy.IsZero():
		b = binary.AppendVarint(b, int64(j.CompleteBy.Sub(j.ParkedAt)/time.Millisecond))
	default:
		rel(j.CompleteBy)
	}
	for i, s := range x.steps {
		b = append(b, byte(s.Current), byte(s.Phase), byte(s.Direction), byte(min(s.Run, 1)), byte(s.Edited), byte(s.Blockers))
		flag(s.Skipped, s.OwnInput, s.HasOutput, s.GivenUp, s.Outcome == perdure.NoOutcome)
		if s.HasOutput {
			flag(string(x.kept[i].Output) == `"bad"`)
		}
		if s.Phase == perdure.Running {
			b = append(b, byte(s.CurrentBeforeRun))
			rel(s.CompleteBy)
			flag(s.Heartbeat > 0)
		}
		if s.Phase != perdure.Settled {
			b = append(b, byte(s.Failures), byte(s.Rung), byte(s.Waits), byte(min(s.Returns, 6)))
		}
		if s.Phase == perdure.Running || s.LockedUntil.After(x.now) {
			rel(s.LockedUntil)
		}
		rel(s.AvailableAt)
		if x.plan.Steps[i].Form != ByAgent && s.Phase != perdure.Settled {
			rel(s.StartedAt)
		}
		f := &x.receivers[i]
		b = append(b, f.possible)
		flag(f.setByOperator)
		if s.Phase == perdure.Running {
			b = append(b, f.possibleBefore)
		}
		for _, z := range f.zombieUntil {
			flag(z.After(x.now))
			if z.After(x.now) {
				rel(z)
			}
		}
	}
	for _, a := range x.alerts {
		if a.Kind.Holds() || a.Kind == perdure.AlertOutput {
			b = append(b, a.Kind[0], byte(len(a.Step)))
			b = append(b, a.Step...)
		}
	}
	k.buf = b
	return b
}

// failureReporter adds the events that led to a failure to its message.
type failureReporter struct {
	testing.TB
	walk *walk
}

func (t *failureReporter) Fatalf(format string, args ...any) {
	t.TB.Helper()
	var id int32
	fmt.Sscan(t.walk.playing[0].name, &id)
	t.walk.fail(id, t.walk.playing[1], fmt.Sprintf(format, args...))
}

func (k *walk) fail(id int32, last event, message string) {
	k.t.Helper()
	var way []string
	tell := func(ev event) string {
		if ev.step >= 0 {
			return ev.name + " " + k.stepName(ev.step)
		}
		return ev.name
	}
	for at := id; at >= 0; at = k.parents[at] {
		way = append(way, tell(k.by[at]))
	}
	slices.Reverse(way)
	k.t.Fatalf("%s\n  after: %s\n  then: %s", message, strings.Join(way, " · "), tell(last))
}

func (k *walk) stepName(i int) string { return words(k.t, k.definition).Steps[i].Name }
