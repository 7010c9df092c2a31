package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// screen is the live picture of all jobs, in at most height lines.
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

// crowded shows the jobs that change, with a share of the lines each, and counts the others.
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
			left := min(len(moving)-n, max(room/4, 1)) // a few jobs share the space
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
