package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// canvas collects what a picture shows, writes it as SVG, and finds what overlaps. The text sizes that it assumes are a
// little larger than those of the usual fonts, so that a picture that is free of overlaps here is so in a browser.
type canvas struct {
	width, height float64
	title, desc   string
	body          strings.Builder
	boxes         []shape
	texts         []shape
	lines         []shape  // one for each straight piece of an arrow
	codes         []string // texts in the style of code
	wrong         []string
}

// shape is the place of something on a canvas.
type shape struct {
	what           string
	x0, y0, x1, y1 float64
}

type point struct{ x, y float64 }

// style is how a text looks.
type style struct {
	class string
	size  float64
	mono  bool
	bold  bool
}

var (
	plain   = style{class: "t", size: 13}
	name    = style{class: "n", size: 13, bold: true}
	small   = style{class: "s", size: 11.5}
	code    = style{class: "c", size: 11.5, mono: true}
	heading = style{class: "h", size: 14, bold: true}

	// Labels of calls and answers, which cover the thin lines behind them.
	call   = style{class: "c over", size: 11.5, mono: true}
	answer = style{class: "s over", size: 11.5}
)

const css = `
    text { fill: #1f2328; font: 13px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; text-anchor: middle; }
    .n { font-weight: 600; }
    .h { font-size: 14px; font-weight: 600; }
    .s { font-size: 11.5px; fill: #59636e; }
    .c { font: 11.5px ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; fill: #0550ae; }
    .over { paint-order: stroke; stroke: #fff; stroke-width: 4; }
    .l { text-anchor: start; } .r { text-anchor: end; }
    .box { fill: #f6f8fa; stroke: #8c959f; stroke-width: 1.2; }
    .main { fill: #ddf4ff; stroke: #0969da; stroke-width: 1.2; }
    .end { fill: #dafbe1; stroke: #1a7f37; stroke-width: 1.2; }
    .stop { fill: #fff1e5; stroke: #bc4c00; stroke-width: 1.2; }
    .area { fill: none; stroke: #8c959f; stroke-dasharray: 5 4; }
    .band { fill: #8c959f; fill-opacity: .12; stroke: none; }
    .rule { fill: none; stroke: #8c959f; stroke-opacity: .5; }
    .a { fill: none; stroke: #59636e; stroke-width: 1.4; marker-end: url(#tip); }
    .answer { fill: none; stroke: #59636e; stroke-width: 1.4; stroke-dasharray: 5 3; marker-end: url(#tip); }
    .tip { fill: #59636e; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; } .s { fill: #9198a1; } .c { fill: #79c0ff; }
      .over { stroke: #0d1117; }
      .box { fill: #151b23; stroke: #656c76; }
      .main { fill: #0c2d6b; stroke: #4493f8; }
      .end { fill: #04260f; stroke: #3fb950; }
      .stop { fill: #3d1300; stroke: #db6d28; }
      .area, .rule { stroke: #656c76; }
      .a, .answer { stroke: #9198a1; } .tip { fill: #9198a1; }
    }
  `

func newCanvas(width, height float64, title, desc string) *canvas {
	return &canvas{width: width, height: height, title: title, desc: desc}
}

// box draws a rectangle with centred lines of text; the first one is its name.
func (c *canvas) box(class string, x, y, w, h float64, lines ...line) {
	c.rect(class, x, y, w, h, 6)
	c.boxes = append(c.boxes, shape{fmt.Sprintf("box %q", textsOf(lines)), x, y, x + w, y + h})
	const gap = 16
	at := y + h/2 - gap*float64(len(lines)-1)/2 + 4.5
	for _, l := range lines {
		c.text(x+w/2, at, "", l.style, l.text)
		at += gap
	}
}

// line is one line of text in a box.
type line struct {
	style style
	text  string
}

func textsOf(lines []line) (all []string) {
	for _, l := range lines {
		all = append(all, l.text)
	}
	return all
}

// rect draws a rectangle that may have others in it.
func (c *canvas) rect(class string, x, y, w, h, round float64) {
	fmt.Fprintf(&c.body, "  <rect class=%q x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" rx=\"%s\"/>\n", class, num(x), num(y), num(w), num(h), num(round))
	c.inside(shape{class, x, y, x + w, y + h})
}

// text draws a text. anchor is "" (x is its middle), "l" (its left end) or "r" (its right end).
func (c *canvas) text(x, y float64, anchor string, s style, text string) {
	class := s.class
	if anchor != "" {
		class += " " + anchor
	}
	fmt.Fprintf(&c.body, "  <text class=%q x=\"%s\" y=\"%s\">%s</text>\n", class, num(x), num(y), escape(text))
	if s == code {
		c.codes = append(c.codes, text)
	}
	w := s.width(text)
	left := x - w/2
	switch anchor {
	case "l":
		left = x
	case "r":
		left = x - w
	}
	t := shape{fmt.Sprintf("text %q", text), left, y - 0.78*s.size, left + w, y + 0.22*s.size}
	c.texts = append(c.texts, t)
	c.inside(t)
}

// arrow draws an arrow along these points, with round corners.
func (c *canvas) arrow(class string, points ...point) {
	var d strings.Builder
	fmt.Fprintf(&d, "M%s %s", num(points[0].x), num(points[0].y))
	for i := 1; i < len(points); i++ {
		p := points[i]
		if i+1 < len(points) {
			in, out := shorten(p, points[i-1], 7), shorten(p, points[i+1], 7)
			fmt.Fprintf(&d, "L%s %sQ%s %s %s %s", num(in.x), num(in.y), num(p.x), num(p.y), num(out.x), num(out.y))
		} else {
			fmt.Fprintf(&d, "L%s %s", num(p.x), num(p.y))
		}
		q := points[i-1]
		c.lines = append(c.lines, shape{fmt.Sprintf("arrow %v", points), q.x, q.y, p.x, p.y})
	}
	fmt.Fprintf(&c.body, "  <path class=%q d=%q/>\n", class, d.String())
}

// rule draws a straight thin line that texts may not cross either.
func (c *canvas) rule(a, b point) {
	fmt.Fprintf(&c.body, "  <path class=\"rule\" d=\"M%s %sL%s %s\"/>\n", num(a.x), num(a.y), num(b.x), num(b.y))
	c.lines = append(c.lines, shape{"thin line", a.x, a.y, b.x, b.y})
}

// lifeline draws a vertical thin line; texts that cross it cover it.
func (c *canvas) lifeline(x, y0, y1 float64) {
	fmt.Fprintf(&c.body, "  <path class=\"rule\" d=\"M%s %sV%s\"/>\n", num(x), num(y0), num(y1))
}

// shorten is the point at most d from p on the way to q.
func shorten(p, q point, d float64) point {
	length := math.Hypot(q.x-p.x, q.y-p.y)
	d = min(d, length/2)
	return point{p.x + (q.x-p.x)*d/length, p.y + (q.y-p.y)*d/length}
}

func (c *canvas) svg() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %s %s\" role=\"img\" aria-labelledby=\"t d\">\n", num(c.width), num(c.height))
	b.WriteString("  <!-- Drawn by internal/pictures: change the program and run `make pictures`. -->\n")
	fmt.Fprintf(&b, "  <title id=\"t\">%s</title>\n  <desc id=\"d\">%s</desc>\n", escape(c.title), escape(c.desc))
	fmt.Fprintf(&b, "  <style>%s</style>\n", css)
	b.WriteString("  <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path class=\"tip\" d=\"M0 0 8 4 0 8Z\"/></marker></defs>\n")
	b.WriteString(c.body.String())
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

func num(f float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.1f", f), "0"), ".")
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder never fails
	return b.String()
}

// width is about how wide a text is.
func (s style) width(text string) float64 {
	sum := 0.0
	for _, r := range text {
		switch {
		case s.mono:
			sum += 0.61
		case strings.ContainsRune("iljtfrI.,:;'|! ()", r):
			sum += 0.34
		case strings.ContainsRune("mwMW→", r):
			sum += 0.92
		case r >= 'A' && r <= 'Z':
			sum += 0.72
		default:
			sum += 0.58
		}
	}
	if s.bold {
		sum *= 1.06
	}
	return sum * s.size
}

// overlaps returns what covers something else on the canvas, or is outside of it.
func (c *canvas) overlaps() (found []string) {
	found = append(found, c.wrong...)
	for i, t := range c.texts {
		for _, o := range c.texts[i+1:] {
			if t.meets(o, 0) {
				found = append(found, t.what+" overlaps "+o.what)
			}
		}
		for _, l := range c.lines {
			if l.crosses(t) {
				found = append(found, l.what+" crosses "+t.what)
			}
		}
		for _, b := range c.boxes {
			if t.meets(b, 0) && !t.within(b) {
				found = append(found, t.what+" crosses the border of "+b.what)
			}
		}
	}
	for i, b := range c.boxes {
		for _, o := range c.boxes[i+1:] {
			if b.meets(o, 0) {
				found = append(found, b.what+" overlaps "+o.what)
			}
		}
		for _, l := range c.lines {
			if l.crosses(b.grown(-2)) {
				found = append(found, l.what+" crosses "+b.what)
			}
		}
	}
	return found
}

func (c *canvas) inside(s shape) {
	if s.x0 < 0 || s.y0 < 0 || s.x1 > c.width || s.y1 > c.height {
		c.wrong = append(c.wrong, fmt.Sprintf("%s is outside of the picture: %.0f,%.0f to %.0f,%.0f", s.what, s.x0, s.y0, s.x1, s.y1))
	}
}

func (s shape) grown(by float64) shape {
	return shape{s.what, s.x0 - by, s.y0 - by, s.x1 + by, s.y1 + by}
}

// meets reports whether two rectangles come closer than gap.
func (s shape) meets(o shape, gap float64) bool {
	return s.x0 < o.x1+gap && o.x0 < s.x1+gap && s.y0 < o.y1+gap && o.y0 < s.y1+gap
}

func (s shape) within(o shape) bool {
	return s.x0 >= o.x0 && s.x1 <= o.x1 && s.y0 >= o.y0 && s.y1 <= o.y1
}

// crosses reports whether the straight line from (x0,y0) to (x1,y1) comes through a rectangle (Liang and Barsky).
func (s shape) crosses(r shape) bool {
	if r.x0 >= r.x1 || r.y0 >= r.y1 {
		return false
	}
	from, to := 0.0, 1.0
	for _, e := range [][2]float64{{s.x0 - s.x1, s.x0 - r.x0}, {s.x1 - s.x0, r.x1 - s.x0}, {s.y0 - s.y1, s.y0 - r.y0}, {s.y1 - s.y0, r.y1 - s.y0}} {
		switch p, q := e[0], e[1]; {
		case p == 0 && q <= 0:
			return false
		case p < 0:
			from = max(from, q/p)
		case p > 0:
			to = min(to, q/p)
		}
	}
	return from < to
}
