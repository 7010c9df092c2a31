package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// table aligns columns. Colors do not count as width.
type table struct {
	st   style
	rows [][]string
	top  bool // the first row is a heading
}

func (t *table) head(cells ...string) { t.top = true; t.row(cells...) }
func (t *table) row(cells ...string)  { t.rows = append(t.rows, cells) }

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
	}
}

// visible counts the visible runes of s.
func visible(s string) int {
	n := utf8.RuneCountInString(s)
	for rest := s; ; {
		_, after, ok := strings.Cut(rest, "\x1b[")
		if !ok {
			return n
		}
		code, tail, _ := strings.Cut(after, "m")
		n -= len(code) + 3
		rest = tail
	}
}
