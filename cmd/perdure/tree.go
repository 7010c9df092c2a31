package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/columns"
)

// A job as lines of text, by pure functions: the live tree and `get` show the same.

// header returns the job as one line.
func (t *tracker) header(st style, now time.Time) string {
	v := &t.view
	parts := []string{st.bold(plain(v.Type))}
	if v.Key != "" {
		parts = append(parts, st.bold(plain(v.Key)))
	}
	parts = append(parts, st.dim(shortID(v)), stateText(st, v), t.progress())
	if !now.IsZero() {
		parts = append(parts, t.clock(now))
	}
	return strings.Join(parts, "  ")
}

// stateText returns current → desired, and the phase; or the only state of a settled job.
func stateText(st style, v *perdure.JobView) string {
	current, desired := plain(v.States.Name(v.Current)), plain(v.States.Name(v.Desired))
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
		desired += " → " + plain(v.States.Name(*v.Then))
	}
	return current + " → " + desired + ", " + st.busy(v.Phase.String())
}

func (t *tracker) progress() string {
	return fmt.Sprintf("%d of %s %s", t.settled(), plural(len(t.view.Steps), "step"), plain(t.view.States.Name(t.view.Desired)))
}

// clock returns the time from the submission of the job until it was settled, or until now, and the time that is left
// until its deadline.
func (t *tracker) clock(now time.Time) string {
	v := &t.view
	if v.Phase == perdure.Settled {
		if v.SettledAt.IsZero() {
			return ""
		}
		return "settled " + span(v.SettledAt.Sub(v.SubmittedAt)) + " after submission"
	}
	s := "submitted " + span(now.Sub(v.SubmittedAt)) + " ago"
	if v.StartAt.After(now) && v.Desired == perdure.Done && v.Current == perdure.Undone {
		return s + ", starts in " + span(v.StartAt.Sub(now))
	}
	if !v.StartBy.IsZero() {
		return s + ", must start in " + span(v.StartBy.Sub(now))
	}
	if !v.CompleteBy.IsZero() {
		s += ", " + span(v.CompleteBy.Sub(now)) + " left"
	}
	return s
}

// lines returns the header and the steps, in at most height lines (0: all) of at most width columns.
func (t *tracker) lines(st style, now time.Time, width, height int, frame int) []string {
	out := []string{clip(t.header(st, now), width)}
	if height == 1 {
		return out
	}
	shown, rest := t.choose(height - 1)
	names := 0
	for _, i := range shown {
		names = max(names, columns.Of(plain(t.view.Steps[i].Name)))
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
	if by := t.past.settler(s); by != "" {
		r.detail = by
	}
	glyph := r.glyph
	if r.rank == rankRunning && frame >= 0 {
		turning := []rune(spinner)
		glyph = string(turning[frame%len(turning)])
	}
	left := fmt.Sprintf("  %s %s  %s", glyph, pad(fit(plain(s.Name), names), names), pad(r.word, 8))
	if r.detail == "" {
		left = strings.TrimRight(left, " ")
	}
	detail := ""
	if room := width - columns.Of(left) - 2; r.detail != "" && (width == 0 || room > 3) {
		detail = "  " + fit(r.detail, max(room, 0))
	}
	return strings.Replace(left, glyph, st.toned(r.tone, glyph), 1) + st.dim(detail)
}

// choose selects the steps that fit into n lines: all in order, or the most urgent unsettled ones and a line that counts
// the rest.
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
	for n > 0 && rank[urgent[n-1]] == rankSettled { // settled steps are counted, not shown
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

// clip cuts a line that may contain colors to width columns. The last one is then an ellipsis.
func clip(s string, width int) string {
	if width <= 0 || visible(s) <= width {
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
		r, size := utf8.DecodeRuneInString(s[i:])
		if seen += columns.OfRune(r); seen > width-1 {
			break
		}
		b.WriteString(s[i : i+size])
		i += size
	}
	b.WriteString("…")
	if colored {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}
