package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/columns"
)

func TestColumnsOfWideAndCombiningCharacters(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "é": 1, "e\u0301": 1, "注文": 4, "한글": 4, "🚚x": 3, "Ω…→": 3, "ｱ": 1} {
		if got := columns.Of(text); got != want {
			t.Errorf("%q: %d columns, not %d", text, got, want)
		}
	}
}

func TestCutTextEndsWithAnEllipsis(t *testing.T) {
	for _, test := range []struct {
		text  string
		width int
		want  string
	}{
		{"order", 5, "order"}, {"orders", 5, "orde…"}, {"注文書", 6, "注文書"}, {"注文書", 5, "注文…"}, {"注文書", 4, "注…"},
		{"\x1b[1morders\x1b[0m", 5, "\x1b[1morde…\x1b[0m"}, {"\x1b[1morder\x1b[0m", 5, "\x1b[1morder\x1b[0m"}, {"ab", 1, "…"},
	} {
		got := clip(test.text, test.width)
		if got != test.want {
			t.Errorf("clip(%q, %d) = %q, not %q", test.text, test.width, got, test.want)
		}
		if visible(got) > test.width {
			t.Errorf("%q takes %d columns of %d", got, visible(got), test.width)
		}
	}
}

func TestTablesWithWideCharactersAreAligned(t *testing.T) {
	tb := table{}
	tb.head("KEY", "STATE")
	tb.row("注文-1", "done")
	tb.row("order-1042", "done")
	var b strings.Builder
	tb.print(&b)
	for l := range strings.Lines(b.String()) {
		before, _, found := strings.Cut(l, "done")
		if found && columns.Of(before) != len("order-1042")+2 {
			t.Errorf("the column begins at %d in %q", columns.Of(before), l)
		}
	}
}

func TestHeaderIsCutWithAnEllipsis(t *testing.T) {
	v := sample()
	lines := newTracker(v, perdure.Done).lines(style{}, noon, 40, 0, -1)
	if got := lines[0]; columns.Of(got) != 40 || !strings.HasSuffix(got, "…") {
		t.Errorf("%q", got)
	}
}

// Flags that have an effect only with a store are listed below the others, and no line of a text or a flag is wider than
// a terminal of 80 columns.
func TestHelpFitsTheTerminal(t *testing.T) {
	root := new(app).tree()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for l := range strings.Lines(cmd.Long + "\n" + localFlags(cmd)) {
			if l = strings.TrimSuffix(l, "\n"); columns.Of(l) > helpWidth {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), columns.Of(l), l)
			}
		}
		for _, c := range cmd.Commands() {
			if c.Name() != "completion" {
				visit(c)
			}
		}
	}
	visit(root)
	undo, _, err := root.Find([]string{"undo"})
	if err != nil {
		t.Fatal(err)
	}
	own, store, found := strings.Cut(localFlags(undo), "only with --store:")
	if !found || !strings.Contains(own, "--reason") || strings.Contains(own, "--agents") || !strings.Contains(store, "--agents") || strings.Contains(store, "--reason") {
		t.Errorf("flags of undo:\n%s", localFlags(undo))
	}
}

func TestBriefErrorsShowWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"one line": "one line",
		"exit_4: exit code 4: Traceback (most recent call last):\n  File x\nValueError: bad\n": "exit_4: exit code 4: … ValueError: bad",
		"Traceback (most recent call last):\n  File x\nValueError: bad":                        "ValueError: bad",
		"2 fields are invalid\n  amount: missing\n  key: too long":                             "2 fields are invalid … key: too long",
		"exit code 1: no space\n": "exit code 1: no space",
		"\n\n":                    "",
	} {
		if got := brief(text); got != want {
			t.Errorf("brief(%q) = %q, not %q", text, got, want)
		}
	}
}
