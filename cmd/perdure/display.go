package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/perdure/perdure"
)

// display shows jobs as they change. It is used by one goroutine.
type display interface {
	begin(jobs []*tracker)
	moved(t *tracker, v *perdure.JobView, changes []change)
	say(line string) // prints a line without disturbing the picture
	tick()
	end()
}

// redrawEvery is the minimum time between two redraws of the live picture.
const redrawEvery = 100 * time.Millisecond

// displayFor returns the live picture for a terminal, lines for other outputs, and nothing with --quiet.
func (a *app) displayFor() display {
	switch {
	case a.json() || a.quiet:
		return silent{a}
	case a.tty != nil && os.Getenv("TERM") != "dumb":
		return &live{a: a}
	}
	return &plainLines{a: a}
}

// silent prints nothing but messages.
type silent struct{ a *app }

func (silent) begin([]*tracker)                           {}
func (silent) moved(*tracker, *perdure.JobView, []change) {}
func (d silent) say(line string)                          { d.a.talk("%s", line) }
func (silent) tick()                                      {}
func (silent) end()                                       {}

// stream prints each change as a JSON object.
type stream struct{ silent }

func (d stream) begin(jobs []*tracker) {
	for _, t := range jobs {
		if t.atRest() { // there will be no further changes
			_ = d.a.object(&t.view)
		}
	}
}

func (d stream) moved(_ *tracker, v *perdure.JobView, _ []change) { _ = d.a.object(v) }

// plainLines prints a line for each change of a step.
type plainLines struct {
	a      *app
	many   bool
	late   []lateLine
	causes map[*tracker]string // the undos that were reported
}

// lateLine is the line of a step that waits for an agent. It is printed only if no agent comes within a moment.
type lateLine struct {
	t    *tracker
	step int
	at   time.Time
}

const agentMayCome = time.Second

func (d *plainLines) begin(jobs []*tracker) {
	d.many = len(jobs) > 1
	for _, t := range jobs {
		note := t.note
		if note != "" {
			note = ", " + note
		}
		if t.atRest() {
			for _, l := range t.lines(d.a.st, time.Now(), 0, 0, -1) {
				d.a.printf("%s\n", l)
			}
			continue
		}
		d.line(t, fmt.Sprintf("%s%s: %s", stateText(d.a.st, &t.view), note, t.progress()))
		d.cause(t)
		for _, i := range t.order {
			s := &t.view.Steps[i]
			switch {
			case s.Phase == perdure.Running:
				d.step(t, s.Name, started(s))
			case s.Phase == perdure.Parked:
				d.step(t, s.Name, event{"parked", whyText(s, time.Time{})})
			case wantsAgent(s):
				d.later(t, i)
			case s.Why != nil && waitsAnew(&perdure.StepView{}, s):
				d.step(t, s.Name, event{s.Phase.String(), toward(s) + whyText(s, time.Time{})})
			}
		}
	}
}

func (d *plainLines) moved(t *tracker, _ *perdure.JobView, changes []change) {
	d.cause(t)
	for _, c := range changes {
		if wantsAgent(&c.after) {
			d.later(t, t.index[c.after.Name])
		}
		for _, what := range happened(&t.view, c) {
			d.step(t, c.after.Name, what)
		}
	}
}

// cause prints, once, why the definition of the job has undone it. The failed run may have no line, because the undo of
// its step began in the same transaction.
func (d *plainLines) cause(t *tracker) {
	if !t.past.policy || t.past.cause == d.causes[t] {
		return
	}
	if d.causes == nil {
		d.causes = map[*tracker]string{}
	}
	d.causes[t] = t.past.cause
	if t.past.step == "" {
		d.line(t, t.past.cause)
		return
	}
	d.step(t, t.past.step, event{"failed", t.past.cause})
}

func (d *plainLines) step(t *tracker, step string, what event) {
	if d.many {
		step = t.name() + "/" + step
	}
	d.a.printf("%s  %s  %s\n", d.a.st.dim(time.Now().Format(time.TimeOnly)), pad(plain(step), 16), what)
}

func (d *plainLines) line(t *tracker, what string) {
	d.a.printf("%s  %s  %s\n", d.a.st.dim(time.Now().Format(time.TimeOnly)), t.title(), what)
}

func (d *plainLines) say(line string) { d.a.talk("%s", line) }
func (d *plainLines) end()            {}

func (d *plainLines) later(t *tracker, step int) {
	for _, l := range d.late {
		if l.t == t && l.step == step {
			return
		}
	}
	d.late = append(d.late, lateLine{t, step, time.Now()})
}

func (d *plainLines) tick() {
	for len(d.late) > 0 && time.Since(d.late[0].at) >= agentMayCome {
		l := d.late[0]
		d.late = d.late[1:]
		if s := &l.t.view.Steps[l.step]; wantsAgent(s) {
			d.step(l.t, s.Name, event{s.Phase.String(), whyText(s, time.Time{})})
		}
	}
}

func wantsAgent(s *perdure.StepView) bool { return s.Why != nil && s.Why.Kind == perdure.WhyNoAgent }

// live redraws a picture in place.
type live struct {
	a     *app
	jobs  []*tracker
	drawn []string // the lines on the screen
	dirty bool
	last  time.Time
	frame int
}

const (
	hideCursor = "\x1b[?25l\x1b[?7l" // wrapping is off, so that each line takes one row whatever its width
	showCursor = "\x1b[?25h\x1b[?7h"
	clearLine  = "\x1b[K"
	clearDown  = "\x1b[J"
)

// cursor restores the terminal when the process ends, in whatever way.
var cursor struct {
	sync.Mutex
	restore func()
}

func restoreTerminal() {
	cursor.Lock()
	defer cursor.Unlock()
	if cursor.restore != nil {
		cursor.restore()
		cursor.restore = nil
	}
}

func (d *live) begin(jobs []*tracker) {
	d.jobs = jobs
	d.takeTerminal()
	d.draw()
}

// takeTerminal hides the cursor until restoreTerminal is called.
func (d *live) takeTerminal() {
	tty := d.a.tty
	cursor.Lock()
	cursor.restore = func() { fmt.Fprint(tty, showCursor) }
	cursor.Unlock()
	fmt.Fprint(d.a.out, hideCursor)
}

func (d *live) moved(*tracker, *perdure.JobView, []change) { d.dirty = true }

// tick draws what has changed, and at least once a second, because the remaining times change.
func (d *live) tick() {
	d.frame++
	if d.dirty || d.running() || time.Since(d.last) >= time.Second {
		d.draw()
	}
}

func (d *live) running() bool {
	for _, t := range d.jobs {
		if t.view.Phase == perdure.Running {
			return true
		}
	}
	return false
}

func (d *live) draw() {
	width, height, err := term.GetSize(int(d.a.tty.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	lines := screen(d.jobs, d.a.st, time.Now(), width, height-1, d.frame)
	d.paint(lines)
	d.dirty, d.last = false, time.Now()
}

// paint replaces the lines on the screen, in one write.
func (d *live) paint(lines []string) {
	var b strings.Builder
	if n := len(d.drawn); n > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", n)
	}
	b.WriteByte('\r')
	for _, l := range lines { // lines are overwritten in place to avoid flicker
		b.WriteString(d.a.st.safe(l) + clearLine + "\n")
	}
	b.WriteString(clearDown)
	d.drawn = lines
	_, _ = d.a.out.Write([]byte(b.String()))
}

// say prints a line above the picture.
func (d *live) say(line string) {
	d.paint(nil)
	d.a.talk("%s", line)
	d.draw()
}

// end leaves the complete last picture on the screen.
func (d *live) end() {
	restoreTerminal() // before the last picture, so that long lines wrap and are shown completely
	var lines []string
	for _, t := range d.jobs {
		if len(d.jobs) > 1 && len(d.jobs)*2+len(t.order) > 200 {
			break // the last lines of the jobs say the same
		}
		lines = append(lines, t.lines(d.a.st, time.Now(), 0, endHeight(len(t.order)), -1)...)
	}
	d.paint(lines)
}

// endHeight bounds the last picture of a large job.
func endHeight(steps int) int {
	if steps > 200 {
		return 50
	}
	return 0
}
