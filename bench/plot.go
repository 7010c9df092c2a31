package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// curve is a workload that is measured at several sizes, and plotted.
type curve struct {
	workload, file, title, x, y string
	sizes                       []int
	most                        func(Kind) int // beyond which a system is not asked: it would take too long
}

var points = []curve{
	{"drain", "backlog.svg", "Rate against backlog", "jobs waiting", "jobs/s", []int{1000, 10_000, 100_000, 1_000_000},
		func(k Kind) int { return 100 * k.Pace }},
	{"chain", "chain.svg", "What a step costs, in a row", "steps of a job", "µs per step", []int{1, 3, 10, 30, 100, 1000},
		func(k Kind) int { return k.Pace }},
	{"width", "width.svg", "What a step costs, beside each other", "parallel steps of a job", "µs per step", []int{1, 10, 100, 1000, 9999},
		func(k Kind) int { return 10 * k.Pace }},
}

// plots draws what there is to draw, by file name.
func (r *runner) plots() map[string]string {
	files := map[string]string{}
	for _, c := range points {
		var lines []line
		for _, k := range kinds {
			l := line{name: k.Name, strong: k.Ours}
			for _, res := range r.results {
				if res.System == k.Name && res.Workload == c.workload && res.Fault == "" {
					l.points = append(l.points, [2]float64{float64(res.N), res.Value})
				}
			}
			if len(l.points) > 0 {
				slices.SortFunc(l.points, func(a, b [2]float64) int { return int(a[0] - b[0]) })
				lines = append(lines, l)
			}
		}
		if len(lines) > 0 {
			files[c.file] = draw(c.title, c.x, c.y, lines)
		}
	}
	return files
}

type line struct {
	name   string
	strong bool
	points [][2]float64
}

var colours = []string{"#1f4e99", "#b3261e", "#2e7d32", "#8e5a00", "#6a3d9a", "#00788a", "#c2185b", "#5d6d00", "#37474f", "#e07b00"}

const (
	plotWidth, plotHeight          = 820, 460
	left, right, topEdge, baseEdge = 80, 190, 50, 60
)

// draw makes an SVG with both axes logarithmic: what differs by powers of ten is seen at one look.
func draw(title, xName, yName string, lines []line) string {
	xLow, xHigh, yLow, yHigh := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		for _, p := range l.points {
			xLow, xHigh = min(xLow, p[0]), max(xHigh, p[0])
			yLow, yHigh = min(yLow, p[1]), max(yHigh, p[1])
		}
	}
	x := scale(math.Floor(math.Log10(xLow)), math.Ceil(math.Log10(xHigh)), left, plotWidth-right)
	y := scale(math.Floor(math.Log10(yLow)), math.Ceil(math.Log10(yHigh)), plotHeight-baseEdge, topEdge)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%d" y="28" font-size="16">%s</text>`+"\n", left, html.EscapeString(title))
	for _, d := range x.decades() {
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x.at(d), topEdge, plotHeight-baseEdge, x.at(d), plotHeight-baseEdge+18, power(d))
	}
	for _, d := range y.decades() {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, y.at(d), plotWidth-right, left-8, y.at(d)+4, power(d))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (left+plotWidth-right)/2, plotHeight-18, html.EscapeString(xName))
	fmt.Fprintf(&b, `<text transform="translate(20 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", plotHeight/2, html.EscapeString(yName))
	for i, l := range lines {
		colour, width := colours[i%len(colours)], 1.5
		if l.strong {
			width = 3
		}
		var path strings.Builder
		for j, p := range l.points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], x.at(p[0]), y.at(p[1]))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x.at(p[0]), y.at(p[1]), colour)
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="%g"/>`+"\n", &path, colour, width)
		at := topEdge + 18*i
		fmt.Fprintf(&b, `<path d="M%d %dh22" stroke="%s" stroke-width="%g"/><text x="%d" y="%d">%s</text>`+"\n",
			plotWidth-right+14, at, colour, width, plotWidth-right+42, at+4, html.EscapeString(l.name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// axis maps powers of ten onto a stretch of the picture.
type axis struct{ low, high, from, to float64 }

func scale(low, high float64, from, to int) axis {
	if high <= low {
		high = low + 1
	}
	return axis{low, high, float64(from), float64(to)}
}

func (a axis) at(v float64) float64 {
	return a.from + (math.Log10(v)-a.low)/(a.high-a.low)*(a.to-a.from)
}

func (a axis) decades() (all []float64) {
	for d := a.low; d <= a.high; d++ {
		all = append(all, math.Pow(10, d))
	}
	return all
}

// power writes a power of ten.
func power(v float64) string {
	if v >= 1 {
		return strings.TrimSuffix(figure(1000*v), ",000")
	}
	return fmt.Sprint(v)
}
