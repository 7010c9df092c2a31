package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"perdure"
)

// This file turns jobs into lines of text, as pure functions: the live tree and `get` show the same.

// row is one step as text. Its rank is its urgency: what a person must see comes first.
type row struct {
	glyph, word, detail string
	tone                func(style, string) string
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
		return row{"■", "parked", whyText(s, now), style.bad, rankParked}
	case perdure.Running:
		return runningRow(s, now)
	case perdure.Ready:
		return row{"◌", "ready", toward(s) + whyText(s, now), style.busy, rankReady}
	}
	r := row{"○", "waiting", toward(s) + whyText(s, now), style.dim, rankWaiting}
	switch {
	case s.Failures > 0 && s.Why != nil && s.Why.Kind == perdure.WhyBackoff:
		r.glyph, r.tone, r.rank = "↻", style.warn, rankFailing
	case s.Why != nil && s.Why.Kind == perdure.WhyApproval:
		r.glyph, r.tone, r.rank = "?", style.warn, rankParked
	}
	return r
}

func settledRow(v *perdure.JobView, s *perdure.StepView) row {
	r := row{"✓", v.States.Name(s.Current), ranFor(s), style.good, rankSettled}
	switch {
	case s.GivenUp:
		r.glyph, r.word, r.tone = "×", "given up", style.bad
	case s.Skipped:
		r.glyph, r.word, r.tone = "–", "skipped", style.dim
	case s.Current == perdure.Undone && s.Run > 0:
		r.glyph, r.tone = "↺", style.warn
	case s.Current == perdure.Undone:
		r.glyph, r.tone = "·", style.dim
	case s.Current == perdure.Unsure:
		r.glyph, r.tone = "?", style.bad
	}
	return r
}

func runningRow(s *perdure.StepView, now time.Time) row {
	r := row{"●", "running", fmt.Sprintf("run %d", s.Run), style.busy, rankRunning}
	if s.Direction == perdure.Undo {
		r.glyph, r.word = "◐", "undoing"
	}
	r.detail += holder(s)
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

// holder names who has the run, where that is not a node itself.
func holder(s *perdure.StepView) string {
	if s.LockedBy == "" || s.LockedBy[0] == '@' {
		return ""
	}
	return " by " + plain(s.LockedBy)
}

// toward says that a step that waits does so on the way back.
func toward(s *perdure.StepView) string {
	if s.Desired == perdure.Undone && s.Current != perdure.Undone {
		return "to be undone: "
	}
	return ""
}

// whyText is the rules' own sentence, with the time left as of now.
func whyText(s *perdure.StepView, now time.Time) string {
	w := s.Why
	if w == nil {
		return ""
	}
	if !w.Until.IsZero() && !now.IsZero() {
		switch w.Kind {
		case perdure.WhyBackoff:
			_, rest, _ := strings.Cut(w.Text, ", ")
			return plain("again in " + span(w.Until.Sub(now)) + ", " + rest)
		case perdure.WhyNotYet:
			return "sleeps for another " + span(w.Until.Sub(now))
		}
	}
	return plain(w.Text)
}

func ranFor(s *perdure.StepView) string {
	if s.Run == 0 {
		return ""
	}
	d := fmt.Sprintf("run %d", s.Run)
	if !s.EndedAt.IsZero() && !s.StartedAt.IsZero() {
		d += ", " + span(s.EndedAt.Sub(s.StartedAt))
	}
	return d
}

// progressText reads {done, total, message}, any of which may be missing; other shapes are not shown.
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

// header is the job on one line.
func (t *tracker) header(st style, now time.Time) string {
	v := &t.view
	parts := []string{st.bold(plain(v.Type))}
	if v.Key != "" {
		parts = append(parts, st.bold(plain(v.Key)))
	}
	parts = append(parts, st.dim(shortID(v.ID)), stateText(st, v), t.progress())
	if !now.IsZero() {
		parts = append(parts, t.clock(now))
	}
	return strings.Join(parts, "  ")
}

// stateText is current → desired, and the phase; or the one state of a job at rest.
func stateText(st style, v *perdure.JobView) string {
	current, desired := v.States.Name(v.Current), v.States.Name(v.Desired)
	switch {
	case v.GivenUp != nil:
		return st.bad("given up") + " (" + current + ")"
	case v.Phase == perdure.Settled && v.Current == perdure.Done:
		return st.good(current)
	case v.Phase == perdure.Settled:
		return st.warn(current)
	case v.Phase == perdure.Parked:
		return current + " → " + desired + ", " + st.bad("parked")
	}
	if v.Then != nil && *v.Then != v.Desired {
		desired += " → " + v.States.Name(*v.Then)
	}
	return current + " → " + desired + ", " + st.busy(v.Phase.String())
}

func (t *tracker) progress() string {
	return fmt.Sprintf("%d of %s %s", t.settled(), plural(len(t.view.Steps), "step"), t.view.States.Name(t.view.Desired))
}

func (t *tracker) clock(now time.Time) string {
	v := &t.view
	if v.Phase == perdure.Settled && !v.SettledAt.IsZero() {
		if v.SettledAt.Before(t.since) { // it was so before anybody looked
			return "since " + v.SettledAt.Local().Format(time.DateTime)
		}
		return span(v.SettledAt.Sub(t.since))
	}
	s := span(now.Sub(t.since))
	if !v.CompleteBy.IsZero() {
		s += ", " + span(v.CompleteBy.Sub(now)) + " left"
	}
	return s
}

// lines are the header and the steps, in at most height lines (0: all of them) of at most width runes.
func (t *tracker) lines(st style, now time.Time, width, height int, frame int) []string {
	out := []string{clip(t.header(st, now), width)}
	if height == 1 {
		return out
	}
	shown, rest := t.choose(height - 1)
	names := 0
	for _, i := range shown {
		names = max(names, utf8.RuneCountInString(t.view.Steps[i].Name))
	}
	names = min(names, 32)
	for _, i := range shown {
		out = append(out, t.line(st, &t.view.Steps[i], now, names, width, frame))
	}
	if len(rest) > 0 {
		out = append(out, clip(st.dim("  … "+restText(t.tally(rest), len(rest))), width))
	}
	return out
}

const spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

func (t *tracker) line(st style, s *perdure.StepView, now time.Time, names, width, frame int) string {
	r := rowOf(&t.view, s, now)
	glyph := r.glyph
	if r.rank == rankRunning && frame >= 0 {
		turning := []rune(spinner)
		glyph = string(turning[frame%len(turning)])
	}
	left := fmt.Sprintf("  %s %s  %s", glyph, pad(fit(s.Name, names), names), pad(r.word, 8))
	if r.detail == "" {
		left = strings.TrimRight(left, " ")
	}
	detail := ""
	if room := width - utf8.RuneCountInString(left) - 2; r.detail != "" && (width == 0 || room > 3) {
		detail = "  " + fit(r.detail, max(room, 0))
	}
	return strings.Replace(left, glyph, r.tone(st, glyph), 1) + st.dim(detail)
}

// choose picks the steps that fit into n lines: all in order, or the most urgent of those that are not
// settled, and a line that counts the rest.
func (t *tracker) choose(n int) (shown, rest []int) {
	if n < 0 || len(t.order) <= n {
		return t.order, nil
	}
	urgent := slices.Clone(t.order)
	rank := make([]int, len(t.view.Steps))
	for i := range t.view.Steps {
		rank[i] = rowOf(&t.view, &t.view.Steps[i], time.Time{}).rank
	}
	slices.SortStableFunc(urgent, func(a, b int) int { return rank[a] - rank[b] })
	n = max(n-1, 0)
	for n > 0 && rank[urgent[n-1]] == rankSettled { // what is over is counted, not shown
		n--
	}
	shown, rest = urgent[:n], urgent[n:]
	place := make([]int, len(t.view.Steps))
	for at, i := range t.order {
		place[i] = at
	}
	slices.SortFunc(shown, func(a, b int) int { return place[a] - place[b] })
	return shown, rest
}

func restText(counts []count, n int) string {
	parts := make([]string, len(counts))
	for i, c := range counts {
		parts[i] = fmt.Sprintf("%d %s", c.n, c.word)
	}
	return fmt.Sprintf("%d more: %s", n, strings.Join(parts, ", "))
}

// clip cuts a line that may hold color to width visible runes.
func clip(s string, width int) string {
	if width <= 0 {
		return s
	}
	var b strings.Builder
	seen, colored := 0, false
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			end := strings.IndexByte(s[i:], 'm')
			b.WriteString(s[i : i+end+1])
			i, colored = i+end+1, true
			continue
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		if seen++; seen > width {
			break
		}
		b.WriteString(s[i : i+size])
		i += size
	}
	if seen > width && colored {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// screen is the live picture of all jobs in at most height lines.
func screen(jobs []*tracker, st style, now time.Time, width, height, frame int) []string {
	if len(jobs) == 1 {
		return jobs[0].lines(st, now, width, height, frame)
	}
	need := len(jobs)
	for _, t := range jobs {
		need += len(t.order)
	}
	if height <= 0 || need <= height {
		var out []string
		for _, t := range jobs {
			out = append(out, t.lines(st, now, width, 0, frame)...)
		}
		return out
	}
	return crowded(jobs, st, now, width, height, frame)
}

// crowded shows the jobs that move, each with as many lines as there are for it, and counts the rest.
func crowded(jobs []*tracker, st style, now time.Time, width, height, frame int) []string {
	moving := slices.Clone(jobs)
	rank := func(t *tracker) int {
		switch t.view.Phase {
		case perdure.Parked:
			return 0
		case perdure.Running:
			return 1
		case perdure.Settled:
			return 3
		}
		return 2
	}
	slices.SortStableFunc(moving, func(a, b *tracker) int { return rank(a) - rank(b) })
	var out []string
	n := 0
	for ; n < len(moving); n++ {
		room := height - 1 - len(out)
		if room < 1 {
			break
		}
		lines := 1
		if rank(moving[n]) < 3 {
			left := min(len(moving)-n, max(room/4, 1)) // so that a few jobs share the room
			lines = max(room/left, 1)
		}
		out = append(out, moving[n].lines(st, now, width, lines, frame)...)
	}
	if n < len(moving) {
		by := map[string]int{}
		for _, t := range moving[n:] {
			by[t.view.Phase.String()]++
		}
		var parts []string
		for _, p := range []string{"parked", "running", "waiting", "settled"} {
			if by[p] > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", by[p], p))
			}
		}
		out = append(out, clip(st.dim(fmt.Sprintf("… %s: %s", plural(len(moving)-n, "more job"), strings.Join(parts, ", "))), width))
	}
	return out
}
