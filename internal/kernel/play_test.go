package kernel

import (
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// The words that plays are written in. Each plays one event, fails the test where the rules do not let it
// happen, checks the rows, and writes a line of the transcript with what changed.

type said func(*protocol.Report)

func done(r *protocol.Report) { r.Outcome = perdure.OutcomeDone }
func failed(r *protocol.Report) {
	r.Outcome, r.Error = perdure.OutcomeFailed, &perdure.RunError{Code: "E", Message: "it broke"}
}
func rejected(r *protocol.Report) {
	r.Outcome, r.Error = perdure.OutcomeRejected, &perdure.RunError{Code: "NO", Message: "never"}
}
func returned(r *protocol.Report) { r.Outcome = perdure.OutcomeReturned }
func noEffect(r *protocol.Report) { r.Effect = protocol.EffectNone }
func cutShort(r *protocol.Report) { r.Effect = protocol.EffectUnknown }
func output(json string) said {
	return func(r *protocol.Report) { r.Output = []byte(json) }
}
func code(c string) said { return func(r *protocol.Report) { r.Error.Code = c } }
func retryAfter(d time.Duration) said {
	return func(r *protocol.Report) { r.Error.RetryAfter = perdure.Duration(d) }
}

func sayAll(says []said) (rep protocol.Report) {
	for _, s := range says {
		s(&rep)
	}
	return rep
}

// claim lets a step out and remembers the run.
func (w *world) claim(step string) *perdure.Run { return w.claimBeating(step, 0) }

func (w *world) claimBeating(step string, every time.Duration) *perdure.Run {
	w.t.Helper()
	run, c := w.claimAs(w.index(step), protocol.Claim{Heartbeat: every})
	if run == nil {
		w.t.Fatalf("%s is not dispatched: it is %s", step, w.step(step).Phase)
	}
	w.runs[step] = run
	extra := ""
	if run.Direction == perdure.Undo {
		extra = fmt.Sprintf(" · of %s, output %s", tail(run.DoKey), run.Output)
	}
	w.tell(c, "claim %s → run %d %s, key %s, input %s%s", step, run.Number, run.Direction, tail(run.Key), run.Input, extra)
	return run
}

// cannotClaim: there is no run to be had; where an expression failed that itself is an event.
func (w *world) cannotClaim(step string) {
	w.t.Helper()
	run, c := w.claimAs(w.index(step), protocol.Claim{})
	if run != nil {
		w.t.Fatalf("%s is dispatched: %s", step, run.Direction)
	}
	w.tell(c, "claim %s → nothing", step)
}

// report answers the latest run of a step.
func (w *world) report(step string, says ...said) {
	w.t.Helper()
	if res := w.tries(step, w.step(step).Run, says...); !res.Accepted {
		w.t.Fatalf("the report on %s is refused: %s", step, res.Reason)
	}
}

// tries reports on any run, and gives the answer back.
func (w *world) tries(step string, run int64, says ...said) protocol.ReportResult {
	rep := sayAll(says)
	rep.Run = run
	res, c := w.reportAs(w.index(step), "host", rep)
	text := fmt.Sprintf("report %s/%d %s", step, run, rep.Outcome)
	if rep.Effect != "" {
		text += ", effect " + rep.Effect
	}
	if !res.Accepted {
		text += " → refused, " + string(res.Reason)
	} else if c.Empty() {
		text += " → accepted before"
	}
	w.tell(c, "%s", text)
	return res
}

// run claims and reports done: the happy way.
func (w *world) run(steps ...string) {
	w.t.Helper()
	for _, s := range steps {
		w.claim(s)
		w.report(s, done, output(`"`+s+`'s"`))
	}
}

// wait lets time pass, and the supervisor look at what has come due.
func (w *world) wait(d time.Duration) {
	w.t.Helper()
	w.now = w.now.Add(d)
	w.tell(&Changes{}, "%s later", span(d))
	w.sweep()
}

// sweep is one round of the supervisor.
func (w *world) sweep() {
	w.t.Helper()
	for i, s := range w.steps {
		if ok, c := w.expireAs(i, "", CauseTime); ok {
			w.tell(c, "the supervisor: run %d of %s has expired", s.Run, s.Name)
		}
		if ok, c := w.dueAt(i); ok {
			w.tell(c, "the supervisor: %s is due", s.Name)
		}
	}
	if ok, c := w.overdue(); ok {
		w.tell(c, "the supervisor: the job is overdue")
	}
}

// lose: the holder of the step's run is known to be dead.
func (w *world) lose(step string) {
	w.t.Helper()
	ok, c := w.expireAs(w.index(step), "host", CauseLost)
	if !ok {
		w.t.Fatalf("%s is not out", step)
	}
	w.tell(c, "the holder of %s is dead", step)
}

func (w *world) act(verb perdure.Verb, step string, set ...func(*perdure.Act)) {
	w.t.Helper()
	if err := w.tryAct(verb, step, set...); err != nil {
		w.t.Fatalf("%s %s: %v", verb, step, err)
	}
}

func (w *world) tryAct(verb perdure.Verb, step string, set ...func(*perdure.Act)) error {
	w.t.Helper()
	a := perdure.Act{Verb: verb, Step: step, Author: "ann", Reason: "said so"}
	for _, s := range set {
		s(&a)
	}
	c, err := w.actAs(a)
	text := strings.TrimSpace(fmt.Sprintf("ann: %s %s", verb, step))
	switch {
	case a.As != nil:
		text += " as " + a.As.String()
	case a.NewKey:
		text += " with a new key"
	case a.Input != nil:
		text += " input " + string(a.Input)
	}
	if err != nil {
		text += " → refused: " + err.Error()
	} else if c.Empty() {
		text += " → it is so already"
	}
	w.tell(c, "%s", text)
	return err
}

func as(s perdure.State) func(*perdure.Act) { return func(a *perdure.Act) { a.As = &s } }
func input(json string) func(*perdure.Act)  { return func(a *perdure.Act) { a.Input = []byte(json) } }
func with0(json string) func(*perdure.Act)  { return func(a *perdure.Act) { a.Output = []byte(json) } }
func newKey(a *perdure.Act)                 { a.NewKey = true }
func (w *world) undo()                      { w.t.Helper(); w.act(perdure.VerbUndo, "") }
func (w *world) redo()                      { w.t.Helper(); w.act(perdure.VerbRedo, "") }
func (w *world) resume()                    { w.t.Helper(); w.act(perdure.VerbResume, "") }
func (w *world) conflict(err error)         { w.t.Helper(); w.refusedAs(err, perdure.CodeConflict) }

func (w *world) refusedAs(err error, code perdure.Code) {
	w.t.Helper()
	if perdure.CodeOf(err) != code {
		w.t.Fatalf("not refused as %s: %v", code, err)
	}
}

// is compares a step with "current phase".
func (w *world) is(step, want string) {
	w.t.Helper()
	if s := w.step(step); fmt.Sprintf("%s %s", s.Current, s.Phase) != want {
		w.t.Fatalf("%s is %s %s, not %s", step, s.Current, s.Phase, want)
	}
}

// jobIs compares the job with "current phase".
func (w *world) jobIs(want string) {
	w.t.Helper()
	if j := w.job; fmt.Sprintf("%s %s", j.Current, j.Phase) != want {
		w.t.Fatalf("the job is %s %s, not %s", j.Current, j.Phase, want)
	}
}

func (w *world) that(ok bool, format string, args ...any) {
	w.t.Helper()
	if !ok {
		w.t.Fatalf(format, args...)
	}
}

// open are the kinds of the open alerts of a step, or of the job.
func (w *world) open(step string) (kinds []perdure.AlertKind) {
	for _, a := range w.alerts {
		if a.Step == step {
			kinds = append(kinds, a.Kind)
		}
	}
	return kinds
}

// tell checks the rows, and writes what happened and what it changed.
func (w *world) tell(c *Changes, format string, args ...any) {
	w.t.Helper()
	for _, f := range CheckJob(w.job, w.plan, w.steps, w.alerts, w.now) {
		w.t.Fatalf("after %s: %s: step %q: %s", fmt.Sprintf(format, args...), f.Rule, f.Step, f.Message)
	}
	if w.lines == nil {
		return
	}
	fmt.Fprintf(w.lines, "%7s  %s\n", span(w.now.Sub(dawn)), fmt.Sprintf(format, args...))
	for _, n := range c.NewJobs {
		for _, s := range n.Steps {
			w.moved(&Step{Name: s.Name, Turn: 1}, s)
		}
		w.movedJob(&Job{}, n.Job)
	}
	for _, ch := range c.Steps {
		w.moved(ch.Was, ch.Now)
	}
	for _, a := range w.closed {
		fmt.Fprintf(w.lines, "           alert %s of %s closed\n", a.Kind, cmpOr(a.Step, "the job"))
	}
	w.closed = nil
	for _, a := range c.Alerts {
		fmt.Fprintf(w.lines, "           ALERT %s: %s\n", a.Kind, a.Message)
	}
	for _, ch := range c.Jobs {
		w.movedJob(ch.Was, ch.Now)
	}
}

func (w *world) moved(was, now *Step) {
	text := ""
	if was.Current != now.Current {
		text += fmt.Sprintf(", %s → %s", was.Current, now.Current)
	}
	switch {
	case now.Phase == perdure.Waiting && now.Blockers > 0 && (was.Blockers != now.Blockers || was.Phase != now.Phase):
		text += ", waiting for " + plural(now.Blockers, "neighbour")
	case now.Phase == perdure.Waiting && !now.AvailableAt.Equal(was.AvailableAt):
		text += ", waiting " + span(now.AvailableAt.Sub(w.now))
	case was.Phase != now.Phase:
		text += ", " + now.Phase.String()
	}
	if was.Skipped != now.Skipped {
		text += fmt.Sprintf(", skipped: %v", now.Skipped)
	}
	if was.Turn != now.Turn {
		text += fmt.Sprintf(", turn %d", now.Turn)
	}
	if was.Failures != now.Failures {
		text += fmt.Sprintf(", failures %d", now.Failures)
	}
	if was.GivenUp != now.GivenUp {
		text += fmt.Sprintf(", given up: %v", now.GivenUp)
	}
	if text != "" {
		fmt.Fprintf(w.lines, "           %s: %s\n", now.Name, text[2:])
	}
}

func (w *world) movedJob(was, now *Job) {
	if was.Current == now.Current && was.Desired == now.Desired && was.Phase == now.Phase {
		return
	}
	text := fmt.Sprintf("%s, desired %s, %s", now.Current, now.Desired, now.Phase)
	if now.Then {
		text += ", then done again"
	}
	fmt.Fprintf(w.lines, "           the job: %s\n", text)
}
