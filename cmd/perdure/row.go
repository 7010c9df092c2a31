package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/graph"
)

// A step as a line of text, which the live tree, plain lines and `get` share.

// row is one step as text. Its rank is its urgency: rows that need attention come first.
type row struct {
	glyph, word, detail string
	tone                graph.Tone
	rank                int
}

const (
	rankParked = iota
	rankRunning
	rankFailing
	rankReady
	rankWaiting
	rankSettled
)

func rowOf(v *perdure.JobView, s *perdure.StepView, now time.Time) row {
	switch s.Phase {
	case perdure.Settled:
		return settledRow(v, s)
	case perdure.Parked:
		return row{"■", "parked", whyText(s, now), graph.Bad, rankParked}
	case perdure.Running:
		return runningRow(s, now)
	case perdure.Ready:
		return row{"◌", "ready", toward(s) + whyText(s, now), graph.Busy, rankReady}
	}
	r := row{"○", "waiting", toward(s) + whyText(s, now), graph.Calm, rankWaiting}
	switch {
	case s.Failures > 0 && s.Why != nil && s.Why.Kind == perdure.WhyBackoff:
		r.glyph, r.tone, r.rank = "↻", graph.Warn, rankFailing
	case s.Why != nil && s.Why.Kind == perdure.WhyApproval:
		r.glyph, r.tone, r.rank = "?", graph.Warn, rankParked
	}
	return r
}

func settledRow(v *perdure.JobView, s *perdure.StepView) row {
	r := row{"✓", plain(v.States.Name(s.Current)), ranFor(s), graph.Good, rankSettled}
	switch {
	case s.NoUndo:
		r.glyph, r.tone, r.detail = "·", graph.Calm, "no undo in its definition: nothing was undone"
	case s.GivenUp:
		r.glyph, r.word, r.tone = "×", "given up", graph.Bad
		r.detail = strings.TrimSuffix(plain(v.States.Name(s.Current))+", "+ranFor(s), ", ")
	case s.Skipped && s.Desired == perdure.Undone && s.Run > 0 && s.Direction == perdure.Undo:
		r.glyph, r.tone, r.detail = "↺", graph.Warn, "was skipped; "+ranFor(s)
	case s.Skipped:
		r.glyph, r.word, r.tone = "–", "skipped", graph.Calm
	case s.Current == perdure.Undone && s.Run > 0:
		r.glyph, r.tone = "↺", graph.Warn
	case s.Current == perdure.Undone:
		r.glyph, r.tone = "·", graph.Calm
	case s.Current == perdure.Unsure:
		r.glyph, r.tone = "?", graph.Bad
	}
	if s.Children != nil && s.Run > 0 {
		r.detail += "; " + childrenText(s)
	}
	return r
}

// childrenText returns how far the children of a step are.
func childrenText(s *perdure.StepView) string {
	n := s.Children
	var parts []string
	add := func(count int, what string) {
		if count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count, what))
		}
	}
	if s.Desired == perdure.Undone {
		parts = append(parts, fmt.Sprintf("%d of %s undone", n.Undone, plural(n.Submitted, "child job")))
		add(n.Done, "done")
	} else {
		parts = append(parts, fmt.Sprintf("%d of %s done", n.Done, plural(n.Total, "child job")))
		add(n.Failed, "failed")
	}
	add(n.Active, "not settled")
	add(n.Parked, "parked")
	return strings.Join(parts, ", ")
}

func runningRow(s *perdure.StepView, now time.Time) row {
	r := row{"●", "running", fmt.Sprintf("run %d", s.Run), graph.Busy, rankRunning}
	if s.Direction == perdure.Undo {
		r.glyph, r.word = "◐", "undoing"
	}
	r.detail += holder(s)
	if s.Direction.Pole() != s.Desired || !s.StopRequestedAt.IsZero() {
		r.detail += ", stop requested"
	}
	if s.Why != nil && s.Why.Kind == perdure.WhyExpired {
		r.detail = plain(s.Why.Text)
	} else if !s.CompleteBy.IsZero() && !now.IsZero() {
		r.detail += ", " + span(s.CompleteBy.Sub(now)) + " left"
	}
	if p := progressText(s.Progress); p != "" {
		r.detail += ", " + p
	}
	return r
}

// holder names the holder of the run, if that is not a node itself.
func holder(s *perdure.StepView) string {
	if s.LockedBy == "" || s.LockedBy[0] == '@' {
		return ""
	}
	return " by " + plain(s.LockedBy)
}

// toward says that a waiting step waits for its undo.
func toward(s *perdure.StepView) string {
	if s.Desired == perdure.Undone && s.Current != perdure.Undone {
		return "to be undone: "
	}
	return ""
}

// whyText returns the reason as text, with the time that is left now.
func whyText(s *perdure.StepView, now time.Time) string {
	w := s.Why
	if w == nil {
		return ""
	}
	if w.Kind == perdure.WhyApproval {
		return approvalText(s)
	}
	if s.LastError != nil && strings.Contains(strings.TrimSpace(s.LastError.Message), "\n") {
		if before, after, found := strings.Cut(w.Text, ", last: "); found { // there, only the first line of the error
			_, try, _ := strings.Cut(after, "; try: ")
			short := *w
			short.Text = strings.TrimSuffix(before+", last: "+errorText(s.LastError)+"; try: "+try, "; try: ")
			w = &short
		}
	}
	if !w.Until.IsZero() && !now.IsZero() {
		switch w.Kind {
		case perdure.WhyBackoff:
			_, rest, _ := strings.Cut(w.Text, ", ")
			return plain("again in " + span(w.Until.Sub(now)) + ", " + rest)
		case perdure.WhyNotYet:
			if s.StartedAt.IsZero() { // no sleep has begun
				return "the job starts in " + span(w.Until.Sub(now)) + "; to start it now: resume"
			}
			return "sleeps for another " + span(w.Until.Sub(now))
		}
	}
	return plain(w.Text)
}

// approvalText returns what an approval asks, and of whom. Without a message, it is the reason why it waits.
func approvalText(s *perdure.StepView) string {
	if s.Why.Message == "" {
		return plain(s.Why.Text)
	}
	return plain(strings.TrimSuffix(s.Why.Text, ": approve or reject it") + ": " + strings.Join(strings.Fields(s.Why.Message), " "))
}

func ranFor(s *perdure.StepView) string {
	if s.Run == 0 {
		return ""
	}
	d := fmt.Sprintf("run %d", s.Run)
	switch s.Outcome {
	case perdure.OutcomeFailed, perdure.OutcomeRejected, perdure.OutcomeExpired:
		d += " " + s.Outcome.String()
	}
	if !s.EndedAt.IsZero() && !s.StartedAt.IsZero() {
		d += ", " + span(s.EndedAt.Sub(s.StartedAt))
	}
	return d
}

// progressText reads {done, total, message}, each of which is optional. Other forms are not shown.
func progressText(raw json.RawMessage) string {
	var p struct {
		Done, Total json.Number
		Message     string
	}
	if len(raw) == 0 || json.Unmarshal(raw, &p) != nil {
		return ""
	}
	var parts []string
	switch {
	case p.Done != "" && p.Total != "":
		parts = append(parts, p.Done.String()+"/"+p.Total.String())
	case p.Done != "":
		parts = append(parts, p.Done.String())
	}
	if p.Message != "" {
		parts = append(parts, plain(p.Message))
	}
	return strings.Join(parts, " ")
}
