package kernel

import (
	"slices"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// turns is a limit with an order.
var turns = Limit{Name: "turns", Max: Unbounded, PerKey: 1, Ordered: true}

var turnsOfA = LimitKey{"turns", "a"}

// inLine returns a world whose steps need a permit of key a of turns, unless they have other needs.
func inLine(t *testing.T, definition string, needs ...string) *world {
	w := newWorld(t, definition)
	w.ordered = []Limit{turns}
	for i := range w.plan.Steps {
		text := `[{"name":"turns","key":"a"}]`
		if i < len(needs) {
			text = needs[i]
		}
		if text != "" {
			w.plan.Steps[i].Limits = limitTemplate{text, new(int)}
		}
	}
	w.submitPlan()
	return w
}

// first sets which job is first in the line, and how many permits of the key are held. 15: 1 is the id of the world's job.
func (w *world) first(rank LineRank, id byte, used int) {
	w.limits = &Admission{}
	w.limits.Add(turns)
	w.limits.AddKey(turnsOfA, Taken{Used: used, First: FirstInLine{LinePlace: LinePlace{rank, StepRef{Job: perdure.JobID{15: id}}}}})
}

// Only the first in the line for a key is dispatched; the lanes of the others are closed. Those whose jobs have begun are
// before those whose jobs have not, then by job; steps of one job do not wait for each other (I28, F345).
func TestLineOnlyTheFirstIsDispatched(t *testing.T) {
	for _, c := range []struct {
		rank LineRank
		id   byte
		used int
		gets bool
	}{
		{NotInLine, 0, 0, true}, {RankNew, 1, 0, true}, {RankNew, 2, 0, true}, {RankNew, 0, 0, false}, {RankBegun, 2, 0, false}, {RankBegun, 1, 0, true}, {NotInLine, 0, 1, false},
	} {
		w := inLine(t, "a; b")
		w.first(c.rank, c.id, c.used)
		run, changes := w.tryClaim("a")
		if (run != nil) != c.gets {
			t.Errorf("%+v: %v", c, run)
		}
		lane := ClosedLane{LaneRef{"ag", LaneOf("order", `[{"name":"turns","key":"a","line":2}]`)}, turnsOfA}
		if len(changes.CloseLanes) != 1 || changes.CloseLanes[0] != lane {
			t.Errorf("%+v: closed %+v", c, changes.CloseLanes)
		}
		if !c.gets && c.used == 0 && w.limits.fullKeys[turnsOfA] {
			t.Errorf("%+v: the key is refused to the first in its line, too", c)
		}
	}
	w := inLine(t, "a") // the first in the line is in the same lane, and waits for something else
	w.first(RankNew, 0, 0)
	w.limits.keys[turnsOfA] = Taken{First: FirstInLine{LinePlace{RankNew, StepRef{}}, LaneRef{"ag", LaneOf("order", w.step("a").Needs)}}}
	if run, c := w.tryClaim("a"); run != nil || len(c.CloseLanes) > 0 {
		t.Errorf("%v; closed %+v", run, c.CloseLanes)
	}
	w = inLine(t, "a")
	w.limits.Add(Limit{Name: "turns", Max: Unbounded, PerKey: 2}) // the order was removed
	w.limits.AddKey(turnsOfA, Taken{First: FirstInLine{LinePlace: LinePlace{RankBegun, StepRef{}}}})
	w.claim("a")
}

// A step stands in line while it is ready and while it waits to be tried again. As its job begins, it moves forward, and so do
// the job's other steps. Priorities do not count (F345).
func TestLinePlacesFollowTheStep(t *testing.T) {
	const ofA = `[{"name":"turns","key":"a"}]`
	w := inLine(t, "a attempts 2; b; c after b; d", ofA, ofA, ofA, `[{"name":"turns","key":"d","amount":2},{"name":"mail","key":"a"},{"name":"turns"}]`)
	places := func(when string, want map[string]LineRank) {
		t.Helper()
		for i, s := range w.steps {
			var of []LineEntry
			if rank := want[s.Name]; rank != NotInLine {
				of = []LineEntry{{turnsOfA, LinePlace{rank, StepRef{w.job.ID, i}}}}
			}
			if got := LineEntries(s.StepRef, PlacesOf(s).Line); !slices.Equal(got, of) {
				t.Errorf("%s: step %s is at %v, want %v", when, s.Name, got, of)
			}
		}
	}
	places("at first", map[string]LineRank{"a": RankNew, "b": RankNew}) // one key has one permit, so d can never get two
	urgent := *w.step("a")
	urgent.Priority = perdure.MaxPriority
	if ReadyOf(&urgent) != ReadyOf(w.step("a")) || CandidateOf(&urgent) != CandidateOf(w.step("a")) {
		t.Errorf("a would be at %+v, and is at %+v", ReadyOf(&urgent), ReadyOf(w.step("a")))
	}
	w.first(RankNew, 1, 0)
	w.claim("a")
	places("a runs", map[string]LineRank{"b": RankBegun})
	w.report("a", failed)
	places("a waits", map[string]LineRank{"a": RankBegun, "b": RankBegun})
	w.first(RankBegun, 1, 0)
	w.claim("b")
	w.report("b", done)
	places("c is ready", map[string]LineRank{"a": RankBegun, "c": RankBegun})
	w.ordered = nil
	w.undo()
	for _, s := range w.steps {
		if s.Phase == perdure.Ready && s.Needs.hasLine() {
			t.Errorf("%s needs %s, although the order was removed", s.Name, s.Needs)
		}
	}
}

// Of each line the lane of the first is opened, unless it waits to be tried again.
func TestLineOpensTheLaneOfTheFirst(t *testing.T) {
	lane := LaneRef{"ag", 7}
	place := LinePlace{Rank: RankNew}
	keys := []LimitKey{turnsOfA, {"turns", "b"}, {"turns", "c"}}
	lanes, empty := FirstLanes(keys, map[LimitKey]Taken{keys[0]: {First: FirstInLine{place, lane}}, keys[1]: {First: FirstInLine{LinePlace: place}}})
	if len(lanes) != 1 || lanes[0] != (ClosedLane{lane, turnsOfA}) || len(empty) != 1 || empty[0] != keys[2] {
		t.Errorf("opens %v, and those of %v", lanes, empty)
	}
}

// The lanes of a key are opened when a step leaves its line, and when one becomes ready; not for a new job, which is behind
// all others (F345).
func TestLineOpensLanes(t *testing.T) {
	w := newWorld(t, "a attempts 2 or park; b after a")
	w.ordered = []Limit{turns}
	w.plan.Steps[0].Limits, w.plan.Steps[1].Limits = limitTemplate{`[{"name":"turns","key":"a"}]`, new(int)}, limitTemplate{`[{"name":"turns","key":"b"}]`, new(int)}
	opens := func(when string, event func(*Workset), want ...LimitKey) {
		t.Helper()
		var freed []LimitKey
		w.event(func(ws *Workset) { event(ws); freed = ws.ReleasedKeys() })
		if !slices.Equal(freed, want) {
			t.Errorf("%s: freed %v, want %v", when, freed, want)
		}
	}
	opens("submitted", func(ws *Workset) { ws.Submit(perdure.JobID{15: 1}, w.plan) })
	w.first(RankNew, 1, 0)
	w.claim("a")
	report := func(outcome perdure.Outcome) func(*Workset) {
		return func(ws *Workset) {
			run := w.runs["a"]
			ws.Report(StepRef{w.job.ID, 0}, "host", &protocol.Report{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: outcome})
		}
	}
	opens("failed", report(perdure.OutcomeFailed), turnsOfA)
	w.now = w.now.Add(tick)
	opens("tried again", func(ws *Workset) { ws.Due(StepRef{w.job.ID, 0}) }, turnsOfA)
	w.first(RankBegun, 1, 0)
	w.claim("a")
	opens("done", report(perdure.OutcomeDone), turnsOfA, LimitKey{"turns", "b"})
	opens("b is not wanted any more", func(ws *Workset) { _ = ws.Act(w.job.ID, -1, &perdure.Act{Verb: perdure.VerbUndo, Author: "ann"}) }, LimitKey{"turns", "b"})
}
