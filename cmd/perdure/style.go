package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/columns"
	"github.com/perdure/perdure/internal/graph"
)

// printer writes results. It keeps its first error and does not report it: the reader of a broken pipe is gone.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) Write(b []byte) (int, error) {
	if p.err == nil {
		_, p.err = p.w.Write(b)
	}
	return len(b), nil
}

func (p *printer) broken() bool { return p.err != nil }
func (p *printer) failed() bool { return p.err != nil && !errors.Is(p.err, syscall.EPIPE) }

// printf prints part of the result.
func (a *app) printf(format string, args ...any) {
	fmt.Fprint(a.out, a.st.safe(fmt.Sprintf(format, args...)))
}

// talk prints a message that is not part of the result to stderr.
func (a *app) talk(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintln(a.err, message(fmt.Sprintf(format, args...)))
	}
}

func (a *app) json() bool { return a.format == "json" }

// object prints v as one line of JSON.
func (a *app) object(v any) error {
	enc := json.NewEncoder(escaped{a.out})
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// style colors text, or does not. Color never carries information that the words do not.
type style struct{ on bool }

func styleFor(when string, f *os.File) style {
	switch {
	case when == "always":
		return style{on: true}
	case when == "never" || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb":
		return style{}
	}
	return style{on: f != nil && term.IsTerminal(int(f.Fd()))}
}

func (s style) sgr(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bad(t string) string  { return s.sgr("31", t) }
func (s style) good(t string) string { return s.sgr("32", t) }
func (s style) warn(t string) string { return s.sgr("33", t) }
func (s style) busy(t string) string { return s.sgr("36", t) }
func (s style) dim(t string) string  { return s.sgr("2", t) }
func (s style) bold(t string) string { return s.sgr("1", t) }

// toned colors the sign of a state.
func (s style) toned(tone graph.Tone, text string) string {
	switch tone {
	case graph.Busy:
		return s.busy(text)
	case graph.Good:
		return s.good(text)
	case graph.Warn:
		return s.warn(text)
	case graph.Bad:
		return s.bad(text)
	}
	return s.dim(text)
}

// fit cuts s to width columns; width 0 means no bound.
func fit(s string, width int) string {
	if width <= 0 || columns.Of(s) <= width {
		return s
	}
	return clip(s, width)
}

func pad(s string, width int) string {
	if n := width - columns.Of(s); n > 0 {
		return s + strings.Repeat(" ", n)
	}
	return s
}

// span formats a duration in suitable units.
func span(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Millisecond:
		return "1ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return perdure.Duration(d.Round(time.Second)).String()
	case d < 48*time.Hour:
		return perdure.Duration(d.Round(time.Minute)).String()
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
