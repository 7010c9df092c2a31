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

// Layer 1: every order of events in small worlds. A state is the rows of one job (without the numbers that
// only grow) and what may be true out there; from each state every event is tried, the refused ones too.

// event is something that happens to a world, by name and to a step.
type event struct {
	name string
	step int
}

// happening plays one event. It says whether it did anything, and whether it should have: an event that must be
// refused is tried all the same.
type happening struct {
	name   string
	each   bool // of a step
	try    func(x *explored, i int) (did bool)
	should func(x *explored, i int) bool // nil: the rules say
}

var happenings = []happening{
	{"claim", true, claim(protocol.Claim{}), isReady},
	{"claim with heartbeat", true, claim(protocol.Claim{Heartbeat: tick / 2}), isReady},
	{"claim by another agent", true, claim(protocol.Claim{Agent: "other"}), never},
	{"done", true, answer(protocol.Report{Outcome: perdure.OutcomeDone}), isOut},
	{"done with output", true, answer(protocol.Report{Outcome: perdure.OutcomeDone, Output: []byte(`1`)}), isOut},
	{"done with a bad output", true, answer(protocol.Report{Outcome: perdure.OutcomeDone, Output: []byte(`"bad"`)}), isOut},
	{"failed", true, answer(protocol.Report{Outcome: perdure.OutcomeFailed}), isOut},
	{"failed without effect", true, answer(protocol.Report{Outcome: perdure.OutcomeFailed, Effect: protocol.EffectNone}), isOut},
	{"rejected", true, answer(protocol.Report{Outcome: perdure.OutcomeRejected}), isOut},
	{"rejected without effect", true, answer(protocol.Report{Outcome: perdure.OutcomeRejected, Effect: protocol.EffectNone}), isOut},
	{"returned", true, answer(protocol.Report{Outcome: perdure.OutcomeReturned}), isOut},
	{"cut short", true, answer(protocol.Report{Outcome: perdure.OutcomeReturned, Effect: protocol.EffectUnknown}), isOut},
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
	{"doubled report", true, again, nil},
	{"late or second answer", true, otherwise, never},
	{"heartbeat", true, heartbeat, isOut},
	{"expired", true, func(x *explored, i int) bool { ok, c := x.expireAs(i, "", CauseTime); return x.took(ok, c) }, hasLapsed},
	{"holder lost", true, lose, isRunning},
	{"another holder lost", true, func(x *explored, i int) bool { ok, c := x.expireAs(i, "other", CauseLost); return x.took(ok, c) }, never},
	{"due", true, func(x *explored, i int) bool { ok, c := x.dueAt(i); return x.took(ok, c) }, isDue},
	{"overdue", false, func(x *explored, _ int) bool { ok, c := x.overdue(); return x.took(ok, c) }, isOverdue},
	{"time", false, pass, nil},
	{"undo", false, act(perdure.Act{Verb: perdure.VerbUndo}), nil},
	{"redo", false, act(perdure.Act{Verb: perdure.VerbRedo}), nil},
	{"resume", false, act(perdure.Act{Verb: perdure.VerbResume}), nil},
	{"resume step", true, act(perdure.Act{Verb: perdure.VerbResume}), isParked},
	{"give up", false, act(perdure.Act{Verb: perdure.VerbGiveUp}), nil},
	{"settle as done", true, act(perdure.Act{Verb: perdure.VerbSettle, As: new(perdure.Done)}), nil},
	{"settle as done with output", true, act(perdure.Act{Verb: perdure.VerbSettle, As: new(perdure.Done), Output: []byte(`1`)}), nil},
	{"settle as undone", true, act(perdure.Act{Verb: perdure.VerbSettle, As: new(perdure.Undone)}), nil},
	{"skip", true, act(perdure.Act{Verb: perdure.VerbSkip}), nil},
	{"edit", true, act(perdure.Act{Verb: perdure.VerbEdit, Input: []byte(`"other"`)}), nil},
	{"edit with a new key", true, act(perdure.Act{Verb: perdure.VerbEdit, NewKey: true}), nil},
}

// explored is a world with what may be true of the far side, step by step.
type explored struct {
	world
	far []far
}

// far is what may be so out there: that the step has not acted (bit 0), that it has (bit 1); before the latest
// run; and until when runs in flight, whose holders died, may still act.
type far struct {
	may, before uint8
	zombie      [2]time.Time
	hand        bool // a person said so, and a person may say what is out of order
}

const (
	maybeUndone uint8 = 1 << perdure.Undone
	maybeDone   uint8 = 1 << perdure.Done
)

func poleBit(d perdure.Direction) uint8 { return 1 << d.Pole() }

func never(*explored, int) bool         { return false }
func isRunning(x *explored, i int) bool { return x.steps[i].Phase == perdure.Running }
func isParked(x *explored, i int) bool  { return x.steps[i].Phase == perdure.Parked && !x.job.GivenUp() }
func isReady(x *explored, i int) bool {
	return x.steps[i].Phase == perdure.Ready && !(x.job.Desired == perdure.Done && !x.job.CompleteBy.IsZero() && !x.now.Before(x.job.CompleteBy))
}
func isOut(x *explored, i int) bool {
	return isRunning(x, i) && x.now.Before(x.steps[i].LockedUntil)
}
func hasLapsed(x *explored, i int) bool { return isRunning(x, i) && !isOut(x, i) }
func isDue(x *explored, i int) bool {
	s := x.steps[i]
	return s.Phase == perdure.Waiting && !s.AvailableAt.IsZero() && !s.AvailableAt.After(x.now)
}
func isOverdue(x *explored, _ int) bool {
	j := x.job
	return !j.AtRest() && !j.Overdue && !j.CompleteBy.IsZero() && !j.CompleteBy.After(x.now)
}

func (x *explored) took(ok bool, c *Changes) bool {
	if ok == c.Empty() {
		x.t.Fatalf("took: %v, and the changes are %+v", ok, *c)
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
		was := *x.steps[i]
		job := *x.job
		run, c := x.claimAs(i, req)
		if run == nil {
			return x.took(!c.Empty(), c) // an expression that failed is something, too
		}
		x.orderly(&job, &was, run)
		f := &x.far[i]
		f.before, f.hand = f.may, f.hand && run.Direction == perdure.Undo
		f.may |= poleBit(run.Direction)
		return true
	}
}

// orderly: I4, I6, I9, I10, as the far side sees them when a run is dispatched.
func (x *explored) orderly(job *Job, was *Step, run *perdure.Run) {
	s := x.steps[was.Index]
	if run.Number != was.Run+1 || s.Run != run.Number {
		x.t.Fatalf("I6: run %d came after run %d", run.Number, was.Run)
	}
	turned := was.Run > 0 && run.Direction != was.Direction
	switch {
	case was.Run > 0 && !turned && run.Key != was.Key():
		x.t.Fatalf("I4: key %s became %s within a turn", was.Key(), run.Key)
	case turned && run.Key == was.Key():
		x.t.Fatalf("I4: key %s in both directions", run.Key)
	case turned && run.Direction == perdure.Do && (was.Current != perdure.Undone || x.far[was.Index].may != maybeUndone):
		x.t.Fatalf("I4: done under a new key from %s", was.Current)
	case run.Direction == perdure.Undo && run.DoKey == run.Key:
		x.t.Fatalf("I4: undone under the key of the do")
	case x.now.Before(x.far[was.Index].zombie[1-run.Direction]):
		x.t.Fatalf("I10: let out to %s while an earlier run may act the other way", run.Direction)
	}
	for i := range x.plan.Steps {
		o := x.steps[i]
		switch {
		case run.Direction == perdure.Do && x.comesAfter(was.Index, i):
			if slices.Contains(x.plan.Steps[was.Index].After, i) && (o.Phase != perdure.Settled || o.Current != perdure.Done && !o.Skipped) {
				x.t.Fatalf("I9: %s is dispatched, and %s is %s and %s", was.Name, o.Name, o.Current, o.Phase)
			}
		case run.Direction == perdure.Undo && x.comesAfter(i, was.Index):
			if x.far[i].hand {
				continue
			}
			if o.Phase == perdure.Running || job.Desired == perdure.Undone && (o.Phase != perdure.Settled || o.Current != perdure.Undone) {
				x.t.Fatalf("I10: %s is undone, and %s is %s and %s", was.Name, o.Name, o.Current, o.Phase)
			}
		}
	}
}

// comesAfter says whether step i comes after step j, over any number of steps.
func (w *world) comesAfter(i, j int) bool {
	return slices.ContainsFunc(w.plan.Steps[i].After, func(a int) bool { return a == j || w.comesAfter(a, j) })
}

func answer(rep protocol.Report) func(*explored, int) bool {
	return func(x *explored, i int) bool {
		s := x.steps[i]
		out := isOut(x, i)
		rep := rep
		rep.Run = s.Run
		if string(rep.Output) == `1` { // unlike those of other runs
			rep.Output = fmt.Appendf(nil, `"%s of run %d"`, s.Name, s.Run)
		}
		if s.Run == 0 || !isRunning(x, i) {
			return false // doubled, late and second answers are tried apart
		}
		res, c := x.reportAs(i, "host", rep)
		if !out {
			if res.Reason != protocol.RefusedLate {
				x.t.Fatalf("I7: a late report got %+v", res)
			}
			return x.refused(res, c, false)
		}
		f := &x.far[i]
		switch {
		case rep.Outcome == perdure.OutcomeDone:
			f.may = poleBit(s.Direction)
		case rep.Effect == protocol.EffectNone || rep.Outcome == perdure.OutcomeReturned && rep.Effect == "":
			f.may = f.before
		}
		return x.took(res.Accepted, c)
	}
}

func again(x *explored, i int) bool {
	s := x.steps[i]
	if s.Phase == perdure.Running || s.Outcome == perdure.NoOutcome || s.Outcome == perdure.OutcomeExpired {
		return false
	}
	res, c := x.reportAs(i, "host", protocol.Report{Run: s.Run, Outcome: s.Outcome})
	x.refused(res, c, true)
	return true
}

func otherwise(x *explored, i int) bool {
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
	res, c := x.beat(i, "host", s.Run)
	if out := isOut(x, i); out != (res.Reason == "" || res.Reason == string(perdure.VerbUndo)) || !out && !c.Empty() {
		x.t.Fatalf("a heartbeat of a run that is out: %v, got %+v", out, res)
	}
	return isOut(x, i) && res.Reason != "late"
}

func lose(x *explored, i int) bool {
	s := *x.steps[i]
	ok, c := x.expireAs(i, "host", CauseLost)
	if ok && s.LockedUntil.After(x.far[i].zombie[s.Direction]) {
		x.far[i].zombie[s.Direction] = s.LockedUntil
	}
	return x.took(ok, c)
}

func pass(x *explored, _ int) bool {
	at, ok := x.next()
	if ok {
		x.now = at
	}
	return ok
}

func act(a perdure.Act) func(*explored, int) bool {
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
			x.far[i] = far{may: 1 << *a.As, before: 1 << *a.As, hand: true, zombie: x.far[i].zombie}
		}
		if a.NewKey {
			x.far[i] = far{may: maybeUndone, before: maybeUndone}
		}
		return true
	}
}

// truthful: what the rows say of a step is what may be so out there (I5, I10, I11).
func (x *explored) truthful() {
	for i, s := range x.steps {
		ps, may := &x.plan.Steps[i], x.far[i].may
		switch {
		case ps.Form != ByAgent:
		case s.Current == perdure.Undone && may != maybeUndone && ps.Undo != nil:
			x.t.Fatalf("I10: step %s says undone, and may have acted", s.Name)
		case s.Current == perdure.Done && may != maybeDone:
			x.t.Fatalf("I11: step %s says done, and may not have acted", s.Name)
		}
		if ps.Undo == nil && s.Current == perdure.Undone {
			x.far[i] = far{may: maybeUndone, before: maybeUndone}
		}
	}
}

// reasonable: every step that is not settled has a reason, and one that is not ready has another than those of the ready.
func (x *explored) reasonable() {
	for _, s := range x.steps {
		r := Why(x.job, s, x.plan, func(i int) bool { return x.steps[i].Phase != perdure.Settled }, &Facts{Now: x.now})
		switch {
		case s.Phase == perdure.Settled:
			if r != nil {
				x.t.Fatalf("%s is settled, and why: %s", s.Name, r.Text)
			}
		case r == nil || r.Text == "":
			x.t.Fatalf("no reason for %s, which is %s", s.Name, s.Phase)
		case s.Phase != perdure.Ready && slices.Contains([]perdure.ReasonKind{perdure.WhyNoAgent, perdure.WhyAgentBusy, perdure.WhyLimit, perdure.WhyDeadline}, r.Kind):
			x.t.Fatalf("%s is %s because of %s", s.Name, s.Phase, r.Kind)
		case r.Kind == perdure.WhyAfterSteps && len(r.Steps) == 0:
			x.t.Fatalf("%s waits for nobody", s.Name)
		}
	}
}

// still: a job at its end changes by an operator's undo or redo alone (I3).
func (x *explored) still(before *world, name string) {
	if before.job != nil && before.job.Phase == perdure.Settled && name != "undo" && name != "redo" && x.job != before.job {
		x.t.Fatalf("I3: %s changed a job that was settled", name)
	}
}

// ——— the walk ———

// small is a world to walk through: a definition, the acts that its operators may do, and how many states it has at most.
type small struct {
	definition string
	acts       string // names of happenings that are not tried otherwise, by comma
	states     int
}

var walks = []small{
	{"a undo attempts 2", refusals + "undo,redo,edit,edit with a new key,resume step,claim with heartbeat,heartbeat,returned,cut short,rejected,rejected without effect,holder lost,give up", 20_000},
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
	{"p approval lasts or wait:1,undo; q after p approval lasts or skip", "undo,redo,settle as done,resume", 20_000},
	{"onFailure undo; within 30s; a undo; b after a undo", "undo,redo,resume", 20_000},
	{"within 30s; a undo attempts 2; s after a sleep; p after s approval lasts", "undo,redo,resume,resume step,settle as done,skip", 40_000},
	{"onFailure restart:1,undo; within 30s; a undo; b after a", "redo,resume", 20_000},
}

// wide are walked through where PERDURE_WIDE is set: minutes.
var wide = []small{
	{"onFailure undo; a undo; b after a undo; c after a undo; d after b c undo", "undo,redo,holder lost,resume", 400_000},
	{"a undo; b after a undo; c after b", "undo,redo,settle as undone,skip,resume step", 400_000},
	{"onFailure restart:1; a undo; b after a undo; c after a", "undo,redo,resume", 400_000},
	{"within 30s; a undo attempts 2; b after a undo", "undo,resume,resume step,settle as undone", 400_000},
}

// always are tried in every world, refusals in some: they lead nowhere.
const (
	always   = "claim,done,failed,failed without effect,expired,due,overdue,time"
	refusals = "stale report,unknown report,doubled report,late or second answer,answered by another holder," +
		"claim by another agent,another holder lost,"
)

func TestEveryOrderOfEvents(t *testing.T) { // I3 to I12, L1; F018 F025 F042 F044 F045 F046 F056 F057 F066 F084 F087 F090 F093 F094 F096
	succeeded := map[string]int{}
	states, events := 0, 0
	all := walks
	if os.Getenv("PERDURE_WIDE") != "" {
		all = slices.Concat(walks, wide)
	}
	for _, s := range all {
		t.Run(s.definition, func(t *testing.T) {
			began := time.Now()
			walk := &walk{t: t, small: s, known: map[uint64]int32{}, did: succeeded}
			walk.run()
			t.Logf("%6d states, %7d events, %s", len(walk.parents), walk.events, time.Since(began).Round(time.Millisecond))
			states, events = states+len(walk.parents), events+walk.events
		})
	}
	t.Logf("%d states, %d events; succeeded: %v", states, events, succeeded)
	for _, h := range happenings {
		if succeeded[h.name] == 0 && (h.should == nil || !isNever(h)) && !t.Failed() {
			t.Errorf("%q never succeeded", h.name)
		}
	}
}

func isNever(h happening) bool {
	switch h.name {
	case "claim by another agent", "answered by another holder", "stale report", "unknown report", "late or second answer", "another holder lost":
		return true
	}
	return false
}

type walk struct {
	small
	t       *testing.T
	known   map[uint64]int32
	parents []int32
	by      []event
	fair    []int32 // where each state goes when nothing fails any more; -1: at rest
	queue   []*explored
	events  int
	did     map[string]int
	seed    maphash.Seed
	buf     []byte
	playing []event // for the message of a failure
}

func (k *walk) run() {
	k.seed = maphash.MakeSeed()
	x := &explored{world: *newWorld(k.t, k.definition)}
	x.t = &teller{TB: k.t, walk: k}
	x.partial = true
	x.accept()
	x.far = make([]far, len(x.steps))
	for i := range x.far {
		x.far[i].may = maybeUndone
	}
	k.meet(x, -1, event{"submit", -1})
	menu := k.menu()
	for n := 0; n < len(k.queue); n++ {
		from := k.queue[n]
		k.queue[n] = nil
		fair := k.fairly(from)
		k.fair = append(k.fair, -1)
		for _, h := range menu {
			steps := []int{-1}
			if h.each {
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
			k.fail(int32(n), fair, "what should move it did nothing")
		}
		if len(k.parents) > k.states {
			k.t.Fatalf("more than %d states", k.states)
		}
	}
	k.everyStateComesToRest()
}

func (k *walk) menu() (menu []happening) {
	acts := strings.Split(always+","+k.acts, ",")
	for _, h := range happenings {
		if slices.Contains(acts, h.name) {
			menu = append(menu, h)
		}
	}
	return menu
}

// try plays one event from a state and returns the state that it leads to; -1 where nothing happened.
func (k *walk) try(from *explored, id int32, h happening, ev event) int32 {
	k.playing = append(k.playing[:0], event{fmt.Sprint(id), -2}, ev)
	x := *from
	x.far = slices.Clone(from.far)
	did := h.try(&x, ev.step)
	k.events++
	if h.should != nil && did != h.should(from, ev.step) {
		x.t.Fatalf("did something: %v, and should have: %v", did, !did)
	}
	if !did {
		if x.job != from.job || x.now != from.now || !slices.Equal(x.steps, from.steps) {
			x.t.Fatalf("what was refused changed something")
		}
		return -1
	}
	k.did[h.name]++
	x.still(&from.world, h.name)
	if id := k.meet(&x, id, ev); id >= 0 {
		return id
	}
	return -1
}

// meet gives a state its number, and checks it when it is new.
func (k *walk) meet(x *explored, parent int32, by event) int32 {
	x.past, x.runs = nil, nil
	x.truthful()
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
	x.reasonable()
	k.queue = append(k.queue, x)
	return id
}

// fairly is the one event that moves a state on when all goes well; none at rest.
func (k *walk) fairly(x *explored) event {
	if isOverdue(x, -1) {
		return event{"overdue", -1}
	}
	for _, m := range []struct {
		name string
		is   func(*explored, int) bool
	}{{"expired", hasLapsed}, {"due", isDue}, {"claim", isReady}, {"done", isOut}} {
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

// everyStateComesToRest is L1: from any state, when nothing fails any more, the job comes to rest.
func (k *walk) everyStateComesToRest() {
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
			k.fail(at, event{}, "L1: it goes round for ever")
		}
		for _, id := range path {
			mark[id] = rests
		}
	}
}

// encode writes what of a state the future depends on: numbers that only grow are left out, times are
// relative, and one that has passed is like another.
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
	flag(j.Then, j.Permit, j.Overdue, j.GivenUp())
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
			b = append(b, byte(s.Was))
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
		f := &x.far[i]
		b = append(b, f.may)
		flag(f.hand)
		if s.Phase == perdure.Running {
			b = append(b, f.before)
		}
		for _, z := range f.zombie {
			flag(z.After(x.now))
			if z.After(x.now) {
				rel(z)
			}
		}
	}
	for _, a := range x.alerts {
		if a.Kind.Holds() {
			b = append(b, a.Kind[0], byte(len(a.Step)))
			b = append(b, a.Step...)
		}
	}
	k.buf = b
	return b
}

// teller ends a failure with the way that led to it.
type teller struct {
	testing.TB
	walk *walk
}

func (t *teller) Fatalf(format string, args ...any) {
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
