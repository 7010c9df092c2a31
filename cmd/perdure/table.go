package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/perdure/perdure/internal/columns"
)

// table aligns columns. Colors do not count as width.
type table struct {
	st   style
	rows [][]string
	more map[int]string // text below a row: further lines of an error
	top  bool           // the first row is a heading
	fit  int            // columns of the terminal; 0: the output is not a terminal, and nothing is shortened
}

// Columns of tables are shortened to leastColumn characters at most. Ids are complete always. Names by which commands find
// something are shortened last, and to leastName characters at most.
const (
	leastColumn = 12
	leastName   = 32
)

var (
	neverShortened = []string{"ID", "JOB", "TIME", "SINCE"}
	lastShortened  = []string{"NODE", "AGENT", "LIMIT"}
)

// newTable returns a table that fits the terminal, if stdout is one.
func (a *app) newTable() table {
	t := table{st: a.st}
	if a.tty != nil {
		if width, _, err := term.GetSize(int(a.tty.Fd())); err == nil {
			t.fit = width
		}
	}
	return t
}

// shorten cuts the last wide column, and then the wide columns before it, until the table fits the terminal. Names come
// last.
func (t *table) shorten(widths []int) {
	over := -t.fit + 2*(len(widths)-1)
	for _, w := range widths {
		over += w
	}
	for _, names := range []bool{false, true} {
		for i := len(widths) - 1; t.fit > 0 && over > 0 && i >= 0; i-- {
			head, least := "", leastColumn
			if t.top && i < len(t.rows[0]) {
				head = t.rows[0][i]
			}
			if names {
				least = leastName
			}
			if widths[i] <= least || slices.Contains(neverShortened, head) || slices.Contains(lastShortened, head) != names {
				continue
			}
			width := max(widths[i]-over, least)
			over -= widths[i] - width
			widths[i] = width
			for _, r := range t.rows {
				if i < len(r) && visible(r[i]) > width {
					r[i] = clip(r[i], width)
				}
			}
		}
	}
}

func (t *table) head(cells ...string) { t.top = true; t.row(cells...) }
func (t *table) row(cells ...string)  { t.rows = append(t.rows, cells) }

// below adds lines below the latest row.
func (t *table) below(lines string) {
	if lines == "" {
		return
	}
	if t.more == nil {
		t.more = map[int]string{}
	}
	t.more[len(t.rows)-1] = lines
}

func (t *table) print(w io.Writer) {
	var widths []int
	for _, r := range t.rows {
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], visible(c))
		}
	}
	t.shorten(widths)
	for n, r := range t.rows {
		var b strings.Builder
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-visible(c)+2))
			}
		}
		line := strings.TrimRight(b.String(), " ")
		if n == 0 && t.top {
			line = t.st.dim(line)
		}
		fmt.Fprintln(w, t.st.safe(line))
		for l := range strings.Lines(t.more[n]) {
			fmt.Fprintln(w, fit(errorLine(l), t.fit)) // as the first line, which is in the row
		}
	}
}

// visible returns the columns of s without its colors.
func visible(s string) int { return columns.Of(sgr.ReplaceAllString(s, "")) }
