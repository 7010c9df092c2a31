package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/columns"
)

// event is a line about a step: a word for what has happened, and the rest.
type event struct{ word, detail string }

func (e event) String() string {
	if e.detail == "" {
		return e.word
	}
	return pad(e.word, 8) + " " + e.detail
}

// happened describes a change of a step in words; nothing if it is not worth a line.
func happened(v *perdure.JobView, c change) []event {
	var said []event
	b, s := &c.before, &c.after
	if e := ended(b, s); e.word != "" {
		said = append(said, e)
	}
	switch {
	case s.Phase == perdure.Running && (b.Phase != perdure.Running || b.Run != s.Run):
		said = append(said, started(s))
	case s.Phase == perdure.Settled && (b.Phase != s.Phase || b.Current != s.Current || b.Run != s.Run || b.Skipped != s.Skipped || b.GivenUp != s.GivenUp):
		said = append(said, settledLine(v, s))
	case s.Phase == perdure.Parked && b.Phase != perdure.Parked:
		said = append(said, event{"parked", whyText(s, time.Time{})})
	case (s.Phase == perdure.Waiting || s.Phase == perdure.Ready) && waitsAnew(b, s):
		said = append(said, event{s.Phase.String(), toward(s) + whyText(s, time.Time{})})
	}
	return said
}

// ended describes how a run has ended, if it has not succeeded; else its word is empty. Success follows from the state of the step.
func ended(b, s *perdure.StepView) event {
	news := s.Run > b.Run || s.Run == b.Run && b.Outcome != s.Outcome || s.Failures > b.Failures
	switch s.Outcome {
	case perdure.OutcomeFailed, perdure.OutcomeRejected, perdure.OutcomeExpired, perdure.OutcomeReturned:
	default:
		return event{}
	}
	if !news {
		return event{}
	}
	detail := fmt.Sprintf("run %d", s.Run)
	if s.LastError != nil {
		detail += ": " + errorText(s.LastError)
	}
	return event{s.Outcome.String(), detail}
}

func errorText(e *perdure.RunError) string {
	message := brief(e.Message)
	if e.Code != "" && !strings.Contains(message, e.Code) {
		message = e.Code + ": " + message
	}
	return plain(message)
}

func started(s *perdure.StepView) event {
	what := "running"
	if s.Direction == perdure.Undo {
		what = "undoing"
	}
	detail := fmt.Sprintf("run %d", s.Run) + holder(s)
	if !s.CompleteBy.IsZero() && !s.StartedAt.IsZero() {
		detail += ", for at most " + span(s.CompleteBy.Sub(s.StartedAt))
	}
	return event{what, detail}
}

func settledLine(v *perdure.JobView, s *perdure.StepView) event {
	r := settledRow(v, s)
	return event{r.word, r.detail}
}

// waitsAnew reports whether the reason why a step waits is worth a line: a new one that does not follow from the order
// of the steps.
func waitsAnew(b, s *perdure.StepView) bool {
	if s.Why == nil || b.Why != nil && b.Why.Kind == s.Why.Kind && b.Failures == s.Failures {
		return false
	}
	switch s.Why.Kind {
	case perdure.WhyAfterSteps, perdure.WhyAgentBusy, perdure.WhyNoAgent, perdure.WhyRunning, perdure.WhyExpired:
		return false
	}
	return true
}

// ending is the last line about a job: its final state and, if it was undone, why.
func (t *tracker) ending(st style, now time.Time) string {
	v := &t.view
	who := t.title()
	counts := t.progress()
	if v.Phase == perdure.Settled {
		counts = strings.TrimSuffix(counts+", "+t.clock(now), ", ")
	}
	switch {
	case v.GivenUp != nil:
		return fmt.Sprintf("%s %s: %s by %s%s", st.bad("×"), st.bad("given up"), who, plain(v.GivenUp.By), because(v.GivenUp.Reason))
	case v.Phase == perdure.Parked:
		return fmt.Sprintf("%s %s: %s, %s", st.bad("■"), st.bad("parked"), who, counts)
	case needsOperator(v):
		return fmt.Sprintf("%s %s: %s, %s", st.bad("■"), st.bad("waits for parked children"), who, counts)
	case v.Phase == perdure.Settled && v.Current == perdure.Done:
		return fmt.Sprintf("%s %s: %s, %s", st.good("✓"), st.good(plain(v.States.Name(v.Current))), who, counts)
	case v.Phase == perdure.Settled:
		return fmt.Sprintf("%s %s: %s, %s%s", st.warn("↺"), st.warn(plain(v.States.Name(v.Current))), who, counts, t.cause())
	}
	return fmt.Sprintf("%s %s: %s, %s", st.busy("●"), "open", who, counts)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + plain(reason)
}

// cause returns the error because of which a job was undone, as far as the steps still have it.
func (t *tracker) cause() string {
	if t.past.policy {
		return "; " + fit(t.past.cause, maxCauseShown)
	}
	for _, i := range t.order {
		if s := &t.view.Steps[i]; s.LastError != nil && t.want == perdure.Done {
			return "; " + plain(s.Name) + ": " + fit(errorText(s.LastError), 200)
		}
	}
	return ""
}

// advice lists commands for a job that needs an operator, each with its purpose.
func advice(v *perdure.JobView, where string) []string {
	ref := refOf(v)
	var cmds, why []string
	add := func(purpose, format string, args ...any) {
		cmds = append(cmds, "perdure "+fmt.Sprintf(format, args...)+where)
		why = append(why, purpose)
	}
	parked := 0
	for i := range v.Steps {
		s := &v.Steps[i]
		name := plain(s.Name)
		step := ref + "/" + name
		switch {
		case s.Phase == perdure.Parked && s.Desired == perdure.Done:
			if parked++; parked > 1 { // repeating the same command for each step would hide the others
				continue
			}
			if s.Agent == "" {
				advisedOfChildren(v, s, add)
				continue
			}
			add("the error of "+name+" in full, and its input", "get %s", step)
			add("try "+name+" again", "resume %s", step)
			add("try it again with another input", "resume %s --input '{…}'", step)
			add("it was done by hand", "settle %s --as done --reason '…'", step)
			add("go on without it", "skip %s --reason '…'", step)
		case s.Phase == perdure.Parked:
			if parked++; parked > 1 {
				continue
			}
			add("the error of "+name+" in full, and its input", "get %s", step)
			add("try to undo "+name+" again", "resume %s", step)
			add("it was undone by hand", "settle %s --as undone --reason '…'", step)
		case s.Children != nil && s.Children.Parked > 0 && s.Phase == perdure.Waiting:
			add("its parked children", "list --parent %s --phase parked", step)
			add("try all of them again", "resume --parent %s", step)
		case s.Why != nil && s.Why.Kind == perdure.WhyApproval:
			add("approve "+name, "approve %s --reason '…'", step)
			add("reject "+name, "reject %s --reason '…'", step)
		}
	}
	if len(cmds) > 0 && v.Desired == perdure.Done {
		add("take everything back", "undo %s", ref)
	} else if len(cmds) > 0 {
		add("go forward again", "redo %s", ref)
	}
	width := 0
	for _, c := range cmds {
		width = max(width, columns.Of(c))
	}
	for i := range cmds {
		cmds[i] = pad(cmds[i], width) + "  # " + why[i]
	}
	return cmds
}

// advisedOfChildren adds what an operator can do about a step with children that is parked.
func advisedOfChildren(v *perdure.JobView, s *perdure.StepView, add func(purpose, format string, args ...any)) {
	step := refOf(v) + "/" + plain(s.Name)
	if n := s.Children; n != nil && n.Failed > 0 {
		add("its children that have failed", "list --parent %s --phase settled --current undone", step)
		add("do the children that have failed again, and then the rest", "resume %s", step)
		add("go on without the children that have failed", "skip %s --reason '…'", step)
	} else {
		add("the error of "+plain(s.Name)+" in full", "get %s", step)
		add("try "+plain(s.Name)+" again", "resume %s", step)
		add("go on without it", "skip %s --reason '…'", step)
	}
}

// quoted returns s quoted for a shell.
func quoted(s string) string {
	for _, r := range s {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,.%@/", r) {
			return "'" + strings.ReplaceAll(plain(s), "'", `'\''`) + "'"
		}
	}
	return s
}
