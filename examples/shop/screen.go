package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// progress counts orders by state.
type progress struct {
	open, parked, done, undone int
}

// rest returns how many orders are settled or parked.
func (p progress) rest() int { return p.done + p.undone + p.parked }

// screen shows the progress of the demo: one line that is redrawn on a terminal, a line from time to time elsewhere.
type screen struct {
	out   *os.File
	live  bool // stdout is a terminal
	began time.Time
	bar   bool // the last output is the line that is redrawn
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	return &screen{out: out, live: err == nil && info.Mode()&os.ModeCharDevice != 0, began: time.Now()}
}

func (s *screen) elapsed() time.Duration { return time.Since(s.began).Round(time.Second) }

// line prints a line that remains.
func (s *screen) line(format string, args ...any) {
	if s.bar {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.bar = false
	}
	fmt.Fprintf(s.out, "%4s  %s\n", s.elapsed(), fmt.Sprintf(format, args...))
}

const barWidth = 10 // the whole line fits into 80 columns

func (s *screen) progress(p progress, d *Demo) {
	killed, died := d.keeper.Count()
	text := fmt.Sprintf("[%s] %d done, %d undone, %d open, %d to come; %d killed, %d died",
		bar(p, d.Orders), p.done, p.undone, p.open, d.Orders-p.open-p.rest(), killed, died)
	if p.parked > 0 {
		text += fmt.Sprintf("; %d PARKED", p.parked)
	}
	if !s.live {
		s.line("%s", text)
		return
	}
	fmt.Fprintf(s.out, "\r\x1b[K%4s  %s", s.elapsed(), text)
	s.bar = true
}

// bar draws the shares that are done, undone and open.
func bar(p progress, of int) string {
	done, undone := p.done*barWidth/of, p.undone*barWidth/of
	return strings.Repeat("#", done) + strings.Repeat("-", undone) + strings.Repeat(".", max(barWidth-done-undone, 0))
}

// end leaves the redrawn line as it is, and begins a new section.
func (s *screen) end() {
	if s.bar {
		fmt.Fprintln(s.out)
		s.bar = false
	}
	fmt.Fprintln(s.out)
}
