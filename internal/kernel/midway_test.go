package kernel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// A transaction applies many events to one workset, and may save between them: it calls Changes and continues. The
// results must not depend on when it saves.

// move is one event of a transaction, with everything that is needed to play it again.
type move struct {
	name  string
	step  int
	run   int64
	value string // an input or an output
}

func (m move) String() string { return fmt.Sprintf("%s s%d %d %s", m.name, m.step, m.run, m.value) }

// transaction is a world with an open workset.
type transaction struct {
	*world
	ws      *Workset
	saves   map[int]bool // points at which it saves. A claim has two: before its payloads are loaded, and before it is granted
	at      int
	results []string // the results of the moves
}

func (w *world) begin(saves map[int]bool) *transaction {
	x := &transaction{world: w, ws: NewWorkset(w.now, func() float64 { return 1 }), saves: saves}
	if w.job != nil {
		j := *w.job
		x.ws.AddJob(&j, w.plan)
	}
	return x
}

// maybeSave is called at each point at which the transaction may save.
func (x *transaction) maybeSave() {
	if x.saves[x.at] && x.ws.Missing().Empty() {
		x.write(x.ws.Changes())
	}
	x.at++
}

// commit saves the remaining changes.
func (x *transaction) commit() {
	x.addResult("readied %v, ended %v", x.ws.NewlyReady(), x.ws.EndedRuns())
	x.write(x.ws.FinalChanges())
	x.compare(x.ws)
	clear(x.loadedCopies)
}

func (x *transaction) addResult(format string, args ...any) {
	x.results = append(x.results, fmt.Sprintf(format, args...))
}

var jobRef = perdure.JobID{15: 1}

// currentStep returns the present state of a step in the transaction.
func (x *transaction) currentStep(i int) *Step {
	if s := x.ws.Step(StepRef{jobRef, i}); s != nil || x.job == nil {
		return s
	}
	return x.steps[i]
}

// play plays a move, and loads only what the rules request.
func (x *transaction) play(m move) {
	x.maybeSave()
	ref := StepRef{jobRef, m.step}
	if m.name == "submit" {
		x.ws.Submit(jobRef, x.plan)
		x.settleMissing(x.ws)
		return
	}
	if x.job != nil && m.step >= 0 {
		x.ensureLoaded(x.ws, m.step)
	}
	switch m.name {
	case "claim", "claim again":
		req := &protocol.Claim{Agent: x.ws.Step(ref).Agent, Holder: "host", RequestID: "r"}
		x.loadForClaim(x.ws, ref)
		x.maybeSave() // a scheduler that locks limits at this point may save
		var run *perdure.Run
		if m.name == "claim" {
			run = x.claimIn(x.ws, ref, req)
		} else {
			run = x.againIn(x.ws, ref, req)
		}
		x.settleMissing(x.ws)
		if run == nil {
			x.addResult("%s: nothing", m)
		} else {
			x.addResult("%s: %s", m, runText(run))
		}
		return
	case "expire":
		x.addResult("%s: %v", m, x.ws.Expire(ref, "", CauseTime))
	case "lose":
		x.addResult("%s: %v", m, x.ws.Expire(ref, "host", CauseLost))
	case "due":
		x.addResult("%s: %v", m, x.ws.Due(ref))
	case "overdue":
		x.addResult("%s: %v", m, x.ws.ExpireJob(jobRef))
	default:
		if rep, ok := m.report(); ok {
			for _, r := range x.ws.ReportRefs(nil, ref) {
				if x.job != nil {
					x.ensureLoaded(x.ws, r.Index)
				}
			}
			x.addResult("%s: %+v", m, x.ws.Report(ref, "host", &rep))
			break
		}
		a := m.act(x.plan)
		if x.job != nil && NeedsWholeJob(&a) {
			x.ws.AddWhole(jobRef, x.load(x.all()...))
		}
		x.addResult("%s: %v", m, x.ws.Act(jobRef, m.step, &a))
	}
	x.settleMissing(x.ws)
}

// runText formats all fields of a run.
func runText(r *perdure.Run) string {
	input, output := r.Input, r.Output
	rest := *r
	rest.Job, rest.Input, rest.Output = perdure.JobID{}, nil, nil
	return fmt.Sprintf("input %s, output %s, %+v", input, output, rest)
}

func (m move) report() (rep protocol.Report, ok bool) {
	rep, ok = map[string]protocol.Report{"done": {Outcome: perdure.OutcomeDone}, "failed": {Outcome: perdure.OutcomeFailed}, "rejected": {Outcome: perdure.OutcomeRejected},
		"failed without effect": {Outcome: perdure.OutcomeFailed, Effect: protocol.EffectNone}, "returned": {Outcome: perdure.OutcomeReturned}}[m.name]
	rep.Run = m.run
	if m.name == "done" {
		rep.Output = []byte(m.value)
	}
	return rep, ok
}

func (m move) act(p *Plan) perdure.Act {
	a := map[string]perdure.Act{"undo": {Verb: perdure.VerbUndo}, "redo": {Verb: perdure.VerbRedo}, "resume": {Verb: perdure.VerbResume}, "give up": {Verb: perdure.VerbGiveUp},
		"resume step": {Verb: perdure.VerbResume, Input: []byte(m.value)}, "skip": {Verb: perdure.VerbSkip}, "edit": {Verb: perdure.VerbEdit, Input: []byte(m.value)},
		"edit with a new key": {Verb: perdure.VerbEdit, NewKey: true}, "settle as undone": {Verb: perdure.VerbSettle, As: new(perdure.Undone)},
		"settle as done": {Verb: perdure.VerbSettle, As: new(perdure.Done), Output: []byte(m.value)}}[m.name]
	if m.step >= 0 {
		a.Step = p.Steps[m.step].Name
	}
	a.Author = "op"
	return a
}

// moves are the possible events of a transaction, each with the steps to which it applies.
var moves = []struct {
	name string
	fits func(*Step) bool // nil: the event is for the job
}{
	{"claim", isInPhase(perdure.Ready)}, {"claim", isInPhase(perdure.Ready)}, {"claim", isInPhase(perdure.Ready)}, {"claim again", isInPhase(perdure.Running)},
	{"done", isInPhase(perdure.Running)}, {"done", isInPhase(perdure.Running)}, {"done", isInPhase(perdure.Running)}, {"failed", isInPhase(perdure.Running)},
	{"failed without effect", isInPhase(perdure.Running)}, {"rejected", isInPhase(perdure.Running)}, {"returned", isInPhase(perdure.Running)},
	{"expire", isInPhase(perdure.Running)}, {"lose", isInPhase(perdure.Running)}, {"due", isInPhase(perdure.Waiting)}, {"overdue", nil},
	{"undo", nil}, {"redo", nil}, {"resume", nil}, {"resume step", isInPhase(perdure.Parked)}, {"give up", nil},
	{"skip", unsettled}, {"edit", unsettled}, {"edit", unsettled}, {"edit with a new key", unsettled},
	{"settle as done", unsettled}, {"settle as undone", unsettled},
}

func isInPhase(p perdure.Phase) func(*Step) bool { return func(s *Step) bool { return s.Phase == p } }
func unsettled(s *Step) bool                     { return s.Phase != perdure.Settled }

// draw draws a move that may have an effect in the present state. It prefers moves that follow from the move before: a
// step is claimed after it was made ready.
func (x *transaction) draw(t *rapid.T, n int) (m move, ok bool) {
	one := moves[rapid.IntRange(0, len(moves)-1).Draw(t, "move")]
	m = move{name: one.name, step: -1, value: fmt.Sprintf(`"v%d"`, n)}
	if one.fits != nil {
		var steps []int
		for i := range x.plan.Steps {
			if one.fits(x.currentStep(i)) {
				steps = append(steps, i)
			}
		}
		if len(steps) == 0 {
			return m, false
		}
		m.step = rapid.SampledFrom(steps).Draw(t, "step")
		m.run = x.currentStep(m.step).Run
	}
	if m.name == "done" {
		m.value = rapid.SampledFrom([]string{m.value, m.value, m.value, "null", `"bad"`}).Draw(t, "output")
	}
	return m, true
}

// smallJob draws a job whose steps read each other's outputs.
func smallJob(t *rapid.T) string {
	var b strings.Builder
	fmt.Fprintf(&b, "onFailure %s", rapid.SampledFrom([]string{"park", "undo", "restart:1", "skip"}).Draw(t, "ladder"))
	for i := range rapid.IntRange(2, 6).Draw(t, "steps") {
		fmt.Fprintf(&b, "; s%d", i)
		if i > 0 {
			before := fmt.Sprintf("s%d", rapid.IntRange(0, i-1).Draw(t, "after"))
			b.WriteString(" after " + before + rapid.SampledFrom([]string{"", " reads " + before, " reads " + before, " reads " + before, " when " + before}).Draw(t, "reads"))
		}
		b.WriteString(rapid.SampledFrom([]string{"", " undo", " undo", " revert", " revert", " sleep", " approval"}).Draw(t, "kind"))
	}
	return b.String()
}

// When a transaction saves does not change its results (I19, F149).
func TestPropertySavesBetweenEventsChangeNoResult(tb *testing.T) {
	rapid.Check(tb, func(t *rapid.T) {
		text := smallJob(t)
		once, often := newWorld(rapidTB{tb, t}, text), newWorld(rapidTB{tb, t}, text)
		var past []string
		for n := range rapid.IntRange(1, 6).Draw(t, "transactions") {
			x := once.begin(nil)
			var played []move
			if n == 0 {
				played = append(played, move{name: "submit", step: -1})
				x.play(played[0])
			}
			for i := range rapid.IntRange(1, 12).Draw(t, "moves") {
				if m, ok := x.draw(t, 100*n+i); ok {
					played = append(played, m)
					x.play(m)
				}
			}
			x.commit()

			saves := map[int]bool{}
			for at := range x.at {
				saves[at] = rapid.Bool().Draw(t, "save")
			}
			y := often.begin(saves)
			for _, m := range played {
				y.play(m)
			}
			y.commit()
			for i := range x.results {
				past = append(past, x.results[i])
				if i >= len(y.results) || x.results[i] != y.results[i] {
					t.Fatalf("with saves at %v the result is\n%[3]s\nwant\n%[2]s\nafter\n%[4]s\n%[5]s", saves, x.results[i], y.results[i], text, strings.Join(past[:len(past)-1], "\n"))
				}
			}
			if d := (&explored{world: *once}).difference(&explored{world: *often}); d != "" {
				t.Fatalf("with saves at %v the rows differ:\n%s\nafter\n%s\n%s", saves, d, text, strings.Join(past, "\n"))
			}
			once.now = once.now.Add(rapid.SampledFrom([]time.Duration{0, tick, 5 * tick}).Draw(t, "time"))
			often.now = once.now
		}
	})
}
