package graph

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure/operate"
)

// Bar is a run in a drawing of time.
type Bar struct {
	Row      string // the step
	From, To time.Duration
	Mark     Mark
	Title    string
}

// Measures of a timeline, in pixels.
const (
	timelineName   = 170 // width of the column of names
	timelineWidth  = 760 // width of the scale
	timelineRow    = 24
	timelineBar    = 12
	timelineHead   = 34
	timelineMargin = 14
	timelineTicks  = 4
	leastBar       = 3 // width of a run that takes no time
	timelineRows   = 200
	timelineBars   = 5000
)

// WithTimeline writes the drawing of SVG, and below it a row for each step with its runs as bars, on a scale from 0 to end.
// offset writes the times of the scale. Rows and bars above a bound are left out, and the picture says so.
func WithTimeline(v *operate.Graph, title string, mark func(step string) Mark, bars []Bar, end time.Duration, offset func(time.Duration) string) []byte {
	steps := make([]string, 0, len(v.Nodes))
	for _, i := range Order(v) {
		steps = append(steps, v.Nodes[i].Name)
	}
	more := ""
	if n := len(steps) - timelineRows; n > 0 {
		steps, more = steps[:timelineRows], fmt.Sprintf("%d more steps are not drawn", n)
	}
	if n := len(bars) - timelineBars; n > 0 {
		bars, more = bars[:timelineBars], strings.TrimPrefix(more+fmt.Sprintf("; %d more runs are not drawn", n), "; ")
	}
	rows := map[string]int{}
	for i, name := range steps {
		rows[name] = i
	}
	top := max(v.Height, 1)
	width := max(v.Width, timelineName+timelineWidth+2*timelineMargin)
	height := top + timelineHead + timelineRow*len(steps) + 2*timelineMargin
	end = max(end, 1)
	x := func(t time.Duration) float64 {
		return timelineName + timelineMargin + timelineWidth*min(max(float64(t)/float64(end), 0), 1)
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="%[3]s">`+"\n", width, height, escape(title))
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s\n%s\n</style>\n", escape(title), css, timelineCSS)
	fmt.Fprintf(&b, `<rect class="paper" width="%d" height="%d"/>`+"\n", width, height)
	b.Write(SVG(v, title, mark))
	y := top + timelineHead
	for i := range timelineTicks + 1 {
		at := end * time.Duration(i) / timelineTicks
		anchor := "middle"
		if i == timelineTicks {
			anchor = "end"
		}
		fmt.Fprintf(&b, `<path class="tick" d="M%.1f %dV%d"/><text class="state" x="%.1f" y="%d" text-anchor="%s">%s</text>`+"\n", x(at), y-8, height-timelineMargin, x(at), y-14, anchor, escape(offset(at)))
	}
	for i, name := range steps {
		fmt.Fprintf(&b, `<text class="name" x="%d" y="%d">%s</text>`+"\n", timelineMargin, y+timelineRow*i+15, escape(shorten(name, nameColumns)))
	}
	for i := range bars {
		bar := &bars[i]
		row, drawn := rows[bar.Row]
		if !drawn {
			continue
		}
		from := x(bar.From)
		fmt.Fprintf(&b, `<g class="%s"><title>%s</title><rect class="box" x="%.1f" y="%d" width="%.1f" height="%d" rx="2"/>`, bar.Mark.Tone, escape(bar.Title), from, y+timelineRow*row+4, max(x(bar.To)-from, leastBar), timelineBar)
		fmt.Fprintf(&b, `<text class="sign state" x="%.1f" y="%d">%s</text></g>`+"\n", from+1, y+timelineRow*row+14, escape(bar.Mark.Sign))
	}
	if more != "" {
		fmt.Fprintf(&b, `<text class="state" x="%d" y="%d">%s</text>`+"\n", timelineMargin, height-4, escape(more))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

const timelineCSS = `.tick{fill:none;stroke:#d5dae1;stroke-width:1}
.sign{font-size:11px}
@media (prefers-color-scheme:dark){.tick{stroke:#2c3542}}`
