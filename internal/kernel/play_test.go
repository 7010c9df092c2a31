package kernel

import (
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// Functions of which plays consist. Each plays one event, fails the test if the rules refuse it, checks the rows, and
// writes the changes into the transcript.

type reportOption func(*protocol.Report)

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
func output(json string) reportOption {
	return func(r *protocol.Report) { r.Output = []byte(json) }
}
func code(c string) reportOption { return func(r *protocol.Report) { r.Error.Code = c } }
func retryAfter(d time.Duration) reportOption {
	return func(r *protocol.Report) { r.Error.RetryAfter = perdure.Duration(d) }
}

func reportOf(says []reportOption) (rep protocol.Report) {
	for _, s := range says {
		s(&rep)
	}
	return rep
}

// claim claims a step and keeps the run.
func (w *world) claim(step string) *perdure.Run { return w.claimWithHeartbeat(step, 0) }

func (w *world) claimWithHeartbeat(step string, every time.Duration) *perdure.Run {
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
	w.logEvent(c, "claim %s → run %d %s, key %s, input %s%s", step, run.Number, run.Direction, tail(run.Key), run.Input, extra)
	return run
}

// cannotClaim checks that a claim gets no run. If an expression fails, the step may change.
func (w *world) cannotClaim(step string) {
	w.t.Helper()
	run, c := w.claimAs(w.index(step), protocol.Claim{})
	if run != nil {
		w.t.Fatalf("%s is dispatched: %s", step, run.Direction)
	}
	w.logEvent(c, "claim %s → nothing", step)
}

// report reports the latest run of a step.
func (w *world) report(step string, says ...reportOption) {
	w.t.Helper()
	if res := w.tryReport(step, w.step(step).Run, says...); !res.Accepted {
		w.t.Fatalf("the report on %s is refused: %s", step, res.Reason)
	}
}

// tryReport reports any run, and returns the result.
func (w *world) tryReport(step string, run int64, says ...reportOption) protocol.ReportResult {
	rep := reportOf(says)
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
	w.logEvent(c, "%s", text)
	return res
}

// run claims steps and reports them done, one after the other.
func (w *world) run(steps ...string) {
	w.t.Helper()
	for _, s := range steps {
		w.claim(s)
		w.report(s, done, output(`"`+s+`'s"`))
	}
}

// wait advances the clock, and runs a due scan.
func (w *world) wait(d time.Duration) {
	w.t.Helper()
	w.now = w.now.Add(d)
	w.logEvent(&Changes{}, "%s later", span(d))
	w.dueScan()
}

// dueScan is one due scan of the supervisor.
func (w *world) dueScan() {
	w.t.Helper()
	for i, s := range w.steps {
		if ok, c := w.expireAs(i, "", CauseTime); ok {
			w.logEvent(c, "the supervisor: run %d of %s has expired", s.Run, s.Name)
		}
		if ok, c := w.dueAt(i); ok {
			w.logEvent(c, "the supervisor: %s is due", s.Name)
		}
	}
	if ok, c := w.overdue(); ok {
		w.logEvent(c, "the supervisor: the job is overdue")
	}
}

// holderDies plays the event that the holder of the step's run is known to be dead.
func (w *world) holderDies(step string) {
	w.t.Helper()
	ok, c := w.expireAs(w.index(step), "host", CauseLost)
	if !ok {
		w.t.Fatalf("%s is not running", step)
	}
	w.logEvent(c, "the holder of %s is dead", step)
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
	w.logEvent(c, "%s", text)
	return err
}

func as(s perdure.State) func(*perdure.Act) { return func(a *perdure.Act) { a.As = &s } }
func input(json string) func(*perdure.Act)  { return func(a *perdure.Act) { a.Input = []byte(json) } }
func withOutput(json string) func(*perdure.Act) {
	return func(a *perdure.Act) { a.Output = []byte(json) }
}
func newKey(a *perdure.Act)         { a.NewKey = true }
func (w *world) undo()              { w.t.Helper(); w.act(perdure.VerbUndo, "") }
func (w *world) redo()              { w.t.Helper(); w.act(perdure.VerbRedo, "") }
func (w *world) resume()            { w.t.Helper(); w.act(perdure.VerbResume, "") }
func (w *world) conflict(err error) { w.t.Helper(); w.refusedAs(err, perdure.CodeConflict) }

func (w *world) refusedAs(err error, code perdure.Code) {
	w.t.Helper()
	if perdure.CodeOf(err) != code {
		w.t.Fatalf("not refused as %s: %v", code, err)
	}
}

// stepIs compares a step with "current phase".
func (w *world) stepIs(step, want string) {
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

func (w *world) require(ok bool, format string, args ...any) {
	w.t.Helper()
	if !ok {
		w.t.Fatalf(format, args...)
	}
}

// openAlerts returns the kinds of the open alerts of a step, or (for "") of the job.
func (w *world) openAlerts(step string) (kinds []perdure.AlertKind) {
	for _, a := range w.alerts {
		if a.Step == step {
			kinds = append(kinds, a.Kind)
		}
	}
	return kinds
}

// logEvent checks the rows, and writes the event and its changes into the transcript.
func (w *world) logEvent(c *Changes, format string, args ...any) {
	w.t.Helper()
	for _, f := range CheckJob(w.job, w.plan, w.steps, w.alerts, w.now) {
		w.t.Fatalf("after %s: %s: step %q: %s", fmt.Sprintf(format, args...), f.Rule, f.Step, f.Message)
	}
	if w.transcript == nil {
		return
	}
	fmt.Fprintf(w.transcript, "%7s  %s\n", span(w.now.Sub(startTime)), fmt.Sprintf(format, args...))
	for _, n := range c.NewJobs {
		for _, s := range n.Steps {
			w.logStep(&Step{Name: s.Name, Turn: 1}, s)
		}
		w.logJob(&Job{}, n.Job)
	}
	for _, ch := range c.Steps {
		w.logStep(ch.Loaded, ch.Now)
	}
	for _, a := range w.closed {
		fmt.Fprintf(w.transcript, "           alert %s of %s closed\n", a.Kind, cmpOr(a.Step, "the job"))
	}
	w.closed = nil
	for _, a := range c.Alerts {
		fmt.Fprintf(w.transcript, "           ALERT %s: %s\n", a.Kind, a.Message)
	}
	for _, ch := range c.Jobs {
		w.logJob(ch.Loaded, ch.Now)
	}
}

func (w *world) logStep(before, now *Step) {
	text := ""
	if before.Current != now.Current {
		text += fmt.Sprintf(", %s → %s", before.Current, now.Current)
	}
	switch {
	case now.Phase == perdure.Waiting && now.Blockers > 0 && (before.Blockers != now.Blockers || before.Phase != now.Phase):
		text += ", waiting for " + plural(now.Blockers, "neighbour")
	case now.Phase == perdure.Waiting && !now.AvailableAt.Equal(before.AvailableAt):
		text += ", waiting " + span(now.AvailableAt.Sub(w.now))
	case before.Phase != now.Phase:
		text += ", " + now.Phase.String()
	}
	if before.Skipped != now.Skipped {
		text += fmt.Sprintf(", skipped: %v", now.Skipped)
	}
	if before.Turn != now.Turn {
		text += fmt.Sprintf(", turn %d", now.Turn)
	}
	if before.Failures != now.Failures {
		text += fmt.Sprintf(", failures %d", now.Failures)
	}
	if before.GivenUp != now.GivenUp {
		text += fmt.Sprintf(", given up: %v", now.GivenUp)
	}
	if text != "" {
		fmt.Fprintf(w.transcript, "           %s: %s\n", now.Name, text[2:])
	}
}

func (w *world) logJob(before, now *Job) {
	if before.Current == now.Current && before.Desired == now.Desired && before.Phase == now.Phase {
		return
	}
	text := fmt.Sprintf("%s, desired %s, %s", now.Current, now.Desired, now.Phase)
	if now.RestartPending {
		text += ", then done again"
	}
	fmt.Fprintf(w.transcript, "           the job: %s\n", text)
}
