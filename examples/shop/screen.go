package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// progress is how far the orders are.
type progress struct {
	open, parked, done, undone int
}

// rest is how many orders are at rest.
func (p progress) rest() int { return p.done + p.undone + p.parked }

// screen shows how far the demo is: one line that moves on a terminal, a line now and then elsewhere.
type screen struct {
	out   *os.File
	live  bool // a terminal
	began time.Time
	bar   bool // the last thing printed is the moving line
}

func newScreen(out *os.File) *screen {
	info, err := out.Stat()
	return &screen{out: out, live: err == nil && info.Mode()&os.ModeCharDevice != 0, began: time.Now()}
}

func (s *screen) elapsed() time.Duration { return time.Since(s.began).Round(time.Second) }

// line prints something that stays.
func (s *screen) line(format string, args ...any) {
	if s.bar {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.bar = false
	}
	fmt.Fprintf(s.out, "%4s  %s\n", s.elapsed(), fmt.Sprintf(format, args...))
}

const barWidth = 10 // so that the whole line fits into 80 columns

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

// bar draws what is done, what is undone and what is left.
func bar(p progress, of int) string {
	done, undone := p.done*barWidth/of, p.undone*barWidth/of
	return strings.Repeat("#", done) + strings.Repeat("-", undone) + strings.Repeat(".", max(barWidth-done-undone, 0))
}

// end leaves the moving line as it is, and begins a new part.
func (s *screen) end() {
	if s.bar {
		fmt.Fprintln(s.out)
		s.bar = false
	}
	fmt.Fprintln(s.out)
}
