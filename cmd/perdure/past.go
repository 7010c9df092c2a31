package main

import (
	"context"
	"strings"

	"github.com/perdure/perdure"
)

// past is what only a job's history says about its present state.
type past struct {
	byHand map[string]string // by step: the operator who settled or skipped it, and why; also before the undo of the job
	cause  string            // of a job that is being or was undone: the author of the undo, and why
	policy bool              // the definition undid the job, because of a failure or its deadline
	step   string            // the step because of which it did
}

// maxPastPages bounds the pages of a job's history that are read for its past.
const maxPastPages = 5

// pastOf reads the history of a job if it can say more than the view: who settled its steps, and why it is undone. Errors
// leave the past incomplete.
func pastOf(ctx context.Context, svc perdure.Jobs, v *perdure.JobView) past {
	p := past{byHand: map[string]string{}}
	open := v.Desired == perdure.Undone
	for i := range v.Steps {
		open = open || settledWithoutRun(&v.Steps[i])
	}
	if !open {
		return p
	}
	lastRun := map[string]string{} // by step: its latest error
	overdue := ""
	q := perdure.HistoryQuery{Job: v.ID.String(), Limit: perdure.MaxListLimit}
	for range maxPastPages {
		page, err := svc.History(ctx, q)
		if err != nil {
			break
		}
		for i := range page.Items {
			e := &page.Items[i]
			switch perdure.Verb(e.Event) {
			case perdure.VerbUndo:
				p.wasUndone()
				p.policy, p.step, overdue = e.Step != "", e.Step, ""
				p.cause = undoneText(e, lastRun[e.Step])
			case perdure.VerbRedo:
				p, overdue = past{byHand: map[string]string{}}, ""
			case perdure.VerbSettle, perdure.VerbSkip:
				p.byHand[e.Step] = byHandText(e)
			case "overdue":
				overdue = e.Detail
			case "failed", "rejected", "expired":
				lastRun[e.Step] = e.Detail
			}
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	if v.Desired == perdure.Undone && p.cause == "" && overdue != "" { // the deadline has no entry for its undo
		p.wasUndone()
		p.policy, p.cause = true, "undone by policy: "+plain(overdue)
	}
	if v.Desired != perdure.Undone {
		p.cause, p.policy, p.step = "", false, ""
	}
	return p
}

// settler returns who settled or skipped a step, if that is why it is in its state.
func (p *past) settler(s *perdure.StepView) string {
	if !settledWithoutRun(s) || s.NoUndo {
		return ""
	}
	return p.byHand[s.Name]
}

// wasUndone marks acts as older than the undo of the job.
func (p *past) wasUndone() {
	for step, text := range p.byHand {
		p.byHand[step] = "was " + strings.TrimPrefix(text, "was ")
	}
}

// settledWithoutRun reports whether the state of a settled step may have been recorded by an operator, and not by the
// step's latest run.
func settledWithoutRun(s *perdure.StepView) bool {
	byRun := s.Run > 0 && s.Outcome == perdure.OutcomeDone && s.Direction.Pole() == s.Current && !s.Skipped
	return s.Phase == perdure.Settled && !byRun && !s.GivenUp
}

// undoneText describes an undo by its entry in the history. failure is the latest error of the entry's step.
func undoneText(e *perdure.EntryView, failure string) string {
	if e.Step == "" {
		return "undone by " + plain(e.Author) + because(e.Detail)
	}
	text := "step " + e.Step + " failed"
	if _, count, found := strings.Cut(e.Detail, ": "); found {
		if n, _, many := strings.Cut(count, " failures"); many {
			text += " " + n + " times"
		}
	}
	if failure != "" {
		text += ": " + brief(failure)
	}
	return "undone by " + plain(e.Author) + ": " + plain(text)
}

// byHandText describes a settle or skip by its entry in the history.
func byHandText(e *perdure.EntryView) string {
	word, reason := "skipped", e.Detail
	if perdure.Verb(e.Event) == perdure.VerbSettle { // as done: reason
		word = "settled"
		_, reason, _ = strings.Cut(e.Detail, ": ")
	}
	return word + " by " + plain(e.Author) + because(reason)
}

// brief returns an error as one line. Of the output of a program, the last line says what is wrong (below a traceback,
// for example). Of other messages of several lines, the first and the last line are shown.
func brief(text string) string {
	var lines []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	if len(lines) < 2 {
		return strings.TrimSpace(text)
	}
	first, last := lines[0], lines[len(lines)-1]
	if at := strings.Index(first, "exit code "); at >= 0 { // exit_4: exit code 4: the end of stderr
		if code, _, found := strings.Cut(first[at:], ": "); found {
			return first[:at] + code + ": … " + last
		}
	}
	if strings.HasPrefix(first, "Traceback (most recent call last)") {
		return last
	}
	return first + " … " + last
}
