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
	if got := print(20); !strings.Contains(got[1], id) {
		t.Errorf("an id is cut: %q", got[1])
	}
}
