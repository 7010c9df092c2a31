package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/graph"
	"github.com/perdure/perdure/operate"
)

// runs prints the recorded runs of a job: one page, or all pages.
func (a *app) runs(ctx context.Context, t *target, q operate.RunsQuery, all bool) error {
	for first := true; ; first = false {
		page, err := t.Runs(ctx, q)
		if err != nil {
			return err
		}
		if a.json() {
			for i := range page.Items {
				if err := a.object(&page.Items[i]); err != nil {
					return err
				}
			}
		} else {
			a.runTable(page.Items, first, q.Cursor == "" && page.NextCursor == "", time.Now(), time.Time{})
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" || a.out.broken() {
			return nil
		}
		if !all {
			a.talk("more: --cursor %s", quoted(q.Cursor))
			return nil
		}
	}
}

// wideTerminal is the width in columns from which runs are also drawn as bars.
const wideTerminal = 130

// runTable prints runs as rows. If these are all runs of the job, and the terminal is wide, a last column shows them as
// bars on one scale of time.
func (a *app) runTable(runs []operate.RunRecord, head, whole bool, now, since time.Time) {
	tb := a.newTable()
	var scale runScale
	if whole && tb.fit >= wideTerminal {
		scale = scaleOf(runs, now)
	}
	heads := []string{"TIME", "STEP", "RUN", "DIRECTION", "TURN", "TOOK", "OUTCOME"}
	if since.IsZero() {
		heads = slices.Insert(heads, 5, "BY")
	}
	if scale.length > 0 {
		heads = append(heads, pad("BAR", barWidth))
	}
	if head {
		tb.head(append(heads, "ERROR")...)
	}
	for i := range runs {
		r := &runs[i]
		started, direction, took := "-", "-", "-"
		switch {
		case r.StartedAt.IsZero():
		case since.IsZero():
			started = r.StartedAt.Local().Format(time.DateTime)
		default:
			started = offset(r.StartedAt.Sub(since))
		}
		if r.Direction != nil {
			direction = r.Direction.String()
		}
		if end := endOf(r, now); !r.StartedAt.IsZero() {
			took = span(end.Sub(r.StartedAt))
		}
		first, rest, _ := strings.Cut(strings.TrimSpace(r.Error), "\n")
		row := []string{started, plain(r.Step), number(r.Run), direction, orDash(number(int64(r.Turn))), took, a.st.toned(outcomeOf(r))}
		if since.IsZero() {
			row = slices.Insert(row, 5, orDash(plain(r.Holder)))
		}
		if scale.length > 0 {
			row = append(row, scale.bar(a.st, r, now))
		}
		tb.row(append(row, orDash(plain(first)))...)
		tb.below(rest)
	}
	tb.print(a.out)
}

// endOf returns the end of a run; now while it is in flight.
func endOf(r *operate.RunRecord, now time.Time) time.Time {
	if r.EndedAt.IsZero() {
		return now
	}
	return r.EndedAt
}

func outcomeOf(r *operate.RunRecord) (graph.Tone, string) {
	switch r.Outcome {
	case perdure.NoOutcome:
		return graph.Busy, "running"
	case perdure.OutcomeDone:
		return graph.Good, r.Outcome.String()
	case perdure.OutcomeReturned:
		return graph.Warn, r.Outcome.String()
	}
	return graph.Bad, r.Outcome.String()
}

// runScale is the time that a bar of barWidth characters stands for.
type runScale struct {
	from   time.Time
	length time.Duration // 0: there is nothing to draw
}

const barWidth = 24

func scaleOf(runs []operate.RunRecord, now time.Time) (s runScale) {
	var to time.Time
	for i := range runs {
		r := &runs[i]
		if r.StartedAt.IsZero() {
			continue
		}
		if s.from.IsZero() || r.StartedAt.Before(s.from) {
			s.from = r.StartedAt
		}
		if end := endOf(r, now); end.After(to) {
			to = end
		}
	}
	s.length = to.Sub(s.from)
	return s
}

// bar draws a run. A short run has one character.
func (s runScale) bar(st style, r *operate.RunRecord, now time.Time) string {
	if r.StartedAt.IsZero() {
		return strings.Repeat("·", barWidth)
	}
	at := func(t time.Time) int { return int(float64(barWidth) * float64(t.Sub(s.from)) / float64(s.length)) }
	first := min(max(at(r.StartedAt), 0), barWidth-1)
	last := min(max(at(endOf(r, now)), first+1), barWidth)
	tone, _ := outcomeOf(r)
	return st.dim(strings.Repeat("·", first)) + st.toned(tone, strings.Repeat("█", last-first)) + st.dim(strings.Repeat("·", barWidth-last))
}
