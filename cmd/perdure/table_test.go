package main

import (
	"strings"
	"testing"
)

// A table that is wider than the terminal has its last wide column shortened, and never a column of ids. Without a
// terminal nothing is shortened.
func TestTableFitsTheTerminal(t *testing.T) {
	id, message := "job_"+strings.Repeat("0", 32), strings.Repeat("message ", 20)
	print := func(fit int) []string {
		tb := table{st: style{on: true}, fit: fit}
		tb.head("ID", "KIND", "JOB", "MESSAGE", "N")
		tb.row("1", "parked", id, style{on: true}.bad(message), "7")
		tb.row("2", "approval", id, "short", "8")
		var b strings.Builder
		tb.print(&b)
		return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	}
	if got := print(0); !strings.Contains(got[1], message) {
		t.Errorf("shortened without a terminal: %q", got[1])
	}
	for _, width := range []int{80, 100, 140} {
		lines := print(width)
		for _, l := range lines {
			if visible(l) > width || !strings.Contains(lines[1], id) {
				t.Errorf("width %d: %d columns: %q", width, visible(l), l)
			}
		}
		if !strings.Contains(lines[1], "…") || !strings.HasSuffix(lines[1], "7") || visible(lines[1]) != width {
			t.Errorf("width %d: %d columns: %q", width, visible(lines[1]), lines[1])
		}
		if !strings.Contains(lines[2], "short ") {
			t.Errorf("a cell that fits is shortened: %q", lines[2])
		}
	}
	name := strings.Repeat("n", 128)
	tb := table{fit: 100}
	tb.head("AGENT", "LATEST CLAIM", "LAST HOUR")
	tb.row(name, "1s ago", "-")
	tb.row("payments", "2s ago", strings.Repeat("503 ", 20))
	var b strings.Builder
	tb.print(&b)
	for l := range strings.Lines(b.String()) {
		if visible(strings.TrimSuffix(l, "\n")) > 100 {
			t.Errorf("a long name makes a row of %d columns: %q", visible(l), l)
		}
	}
	if !strings.Contains(b.String(), name[:leastName-1]) {
		t.Errorf("a name is cut to less than %d columns: %q", leastName, b.String())
	}
	tb = table{fit: 20}
	tb.head("AGENT", "HOLDERS")
	tb.row(name[:leastName], "1")
	b.Reset()
	if tb.print(&b); !strings.Contains(b.String(), name[:leastName]) {
		t.Errorf("a short name is cut: %q", b.String())
	}
	if got := print(20); !strings.Contains(got[1], id) {
		t.Errorf("an id is cut: %q", got[1])
	}
}

// All lines of a text in a table are cut at the width of the terminal, or none is.
func TestTableCutsAllLinesOfAText(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, fit := range []int{0, 60} {
		tb := table{fit: fit}
		tb.head("STEP", "ERROR")
		tb.row("charge", "first "+long)
		tb.below("second " + long + "\nthird " + long)
		var b strings.Builder
		tb.print(&b)
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if len(lines) != 4 {
			t.Fatalf("%d lines: %q", len(lines), lines)
		}
		for _, l := range lines[1:] {
			if fit > 0 && visible(l) != fit || fit == 0 && !strings.HasSuffix(l, long) {
				t.Errorf("on a terminal of %d columns: %q", fit, l)
			}
		}
	}
}
