package graph

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/perdure/perdure/internal/columns"
	"github.com/perdure/perdure/operate"
)

// Mark is the state of a step in a drawing: a shape, a word and a colour each say it.
type Mark struct {
	Sign string // one character
	Word string
	Tone Tone
}

// text returns the sign and the word.
func (m Mark) text() string { return strings.TrimSpace(m.Sign + " " + m.Word) }

// Tone is the colour of a mark.
type Tone string

const (
	Calm Tone = ""     // not begun, or nothing to do
	Busy Tone = "busy" // running or ready
	Good Tone = "good" // done
	Warn Tone = "warn" // undone, or about to be tried again
	Bad  Tone = "bad"  // waits for an operator, or given up
)

// css has the colours of the console.
const css = `
.box{fill:#fff;stroke:#8a94a3;stroke-width:1.2}
.busy .box{fill:#e8f1fd;stroke:#1d66c9}.good .box{fill:#e7f5ec;stroke:#1b7a43}.warn .box{fill:#fdf3dc;stroke:#96640a}.bad .box{fill:#fdebea;stroke:#c2302a}
.busy .state{fill:#1d59ad}.good .state{fill:#166538}.warn .state{fill:#7d5206}.bad .state{fill:#ac241e}
.edge{fill:none;stroke:#8a94a3;stroke-width:1.4}
.tip{fill:#8a94a3}
.paper{fill:#f7f8fa}
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",Arial,sans-serif;fill:#1c2430}
.name{font-weight:600}
.state{font-size:12px;fill:#566070}
@media (prefers-color-scheme:dark){
.paper{fill:#11151b}.box{fill:#1a2029;stroke:#6b7686}text{fill:#e6eaf0}.state{fill:#a3adbb}.edge{stroke:#6b7686}.tip{fill:#6b7686}
.busy .box{fill:#12294a;stroke:#5b9cf0}.good .box{fill:#10301e;stroke:#4fb57b}.warn .box{fill:#382a0c;stroke:#d9a441}.bad .box{fill:#431a19;stroke:#ef7670}
.busy .state{fill:#8cbcf8}.good .state{fill:#79cf9d}.warn .state{fill:#e8bf6d}.bad .state{fill:#f79d98}
}`

// SVG writes a drawing as a picture that needs nothing else. mark returns the state of a step; if it is nil, each box
// shows the step's agent and action instead.
func SVG(v *operate.Graph, title string, mark func(step string) Mark) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="%[3]s">`+"\n", max(v.Width, 1), max(v.Height, 1), escape(title))
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s\n</style>\n", escape(title), css)
	b.WriteString(`<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>` + "\n")
	fmt.Fprintf(&b, `<rect class="paper" width="%d" height="%d"/>`+"\n", max(v.Width, 1), max(v.Height, 1))
	for _, e := range v.Edges {
		fmt.Fprintf(&b, `<path class="edge" marker-end="url(#tip)" d="%s"/>`+"\n", Path(e.Points))
	}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		m := Mark{Word: n.Agent + " · " + n.Action}
		if n.Agent == n.Action || n.Action == "" {
			m.Word = n.Agent
		}
		if mark != nil {
			m = mark(n.Name)
		}
		fmt.Fprintf(&b, `<g class="%s" transform="translate(%d %d)"><title>%s</title><rect class="box" width="%d" height="%d" rx="6"/><text class="name" x="12" y="19">%s</text><text class="state" x="12" y="35">%s</text></g>`+"\n",
			m.Tone, n.X, n.Y, escape(n.Name), v.NodeWidth, v.NodeHeight, escape(shorten(n.Name, nameColumns)), escape(shorten(m.text(), wordColumns)))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// Columns of text that fit in a box.
const (
	nameColumns = 19
	wordColumns = 22
)

// Path returns the curve of an edge in the language of SVG paths: straight through columns, curved between them.
func Path(points []int) string {
	var b strings.Builder
	for i := 0; i+1 < len(points); i += 2 {
		x, y := points[i], points[i+1]
		switch {
		case i == 0:
			fmt.Fprintf(&b, "M%d %d", x, y)
		case y == points[i-1]:
			fmt.Fprintf(&b, "H%d", x)
		default:
			middle := (points[i-2] + x) / 2
			fmt.Fprintf(&b, "C%[1]d %[2]d %[1]d %[3]d %[4]d %[3]d", middle, points[i-1], y, x)
		}
	}
	return b.String()
}

// shorten cuts a text that is wider than a number of columns.
func shorten(s string, width int) string {
	if columns.Of(s) <= width {
		return s
	}
	end, wide := 0, 0
	for i, r := range s {
		if wide += columns.OfRune(r); wide > width-1 {
			break
		}
		end = i + len(string(r))
	}
	return s[:end] + "…"
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder returns no error
	return b.String()
}

// paint has the colours of boxes in css, for light pages.
var paint = map[Tone]struct{ name, fill, stroke string }{
	Calm: {"calm", "#fff", "#8a94a3"},
	Busy: {"busy", "#e8f1fd", "#1d66c9"},
	Good: {"good", "#e7f5ec", "#1b7a43"},
	Warn: {"warn", "#fdf3dc", "#96640a"},
	Bad:  {"bad", "#fdebea", "#c2302a"},
}

// ink is the colour of text on these boxes.
const ink = "#1c2430"

// DOT writes the steps in the language of Graphviz. mark returns the state of a step; if it is nil, there are none.
func DOT(v *operate.Graph, title string, mark func(step string) Mark) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "digraph %s {\n  rankdir=LR;\n  node [shape=box, style=rounded];\n", quoted(title))
	for i := range v.Nodes {
		name := quoted(v.Nodes[i].Name)
		if mark == nil {
			fmt.Fprintf(&b, "  %s;\n", name)
			continue
		}
		m := mark(v.Nodes[i].Name)
		p, label := paint[m.Tone], strings.TrimSuffix(name, `"`)+`\n`+strings.TrimPrefix(quoted(m.text()), `"`)
		fmt.Fprintf(&b, "  %s [label=%s, style=\"rounded,filled\", fillcolor=\"%s\", color=\"%s\", fontcolor=\"%s\"];\n", name, label, p.fill, p.stroke, ink)
	}
	for _, e := range v.Edges {
		fmt.Fprintf(&b, "  %s -> %s;\n", quoted(v.Nodes[e.From].Name), quoted(v.Nodes[e.To].Name))
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// quoted is a text between quotation marks, as Graphviz reads it.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ", "\r", " ").Replace(s) + `"`
}

// Mermaid writes the steps in the language of Mermaid, which Markdown pages on many sites show as a picture. mark is as
// for DOT.
func Mermaid(v *operate.Graph, mark func(step string) Mark) []byte {
	var b bytes.Buffer
	b.WriteString("flowchart LR\n")
	tones := map[Tone]bool{}
	for i := range v.Nodes {
		name := entities(v.Nodes[i].Name)
		if mark == nil {
			fmt.Fprintf(&b, "  s%d[\"%s\"]\n", i, name)
			continue
		}
		m := mark(v.Nodes[i].Name)
		tones[m.Tone] = true
		fmt.Fprintf(&b, "  s%d[\"%s<br/>%s\"]:::%s\n", i, name, entities(m.text()), paint[m.Tone].name)
	}
	for _, e := range v.Edges {
		fmt.Fprintf(&b, "  s%d --> s%d\n", e.From, e.To)
	}
	for _, tone := range slices.Sorted(maps.Keys(tones)) {
		p := paint[tone]
		fmt.Fprintf(&b, "  classDef %s fill:%s,stroke:%s,color:%s\n", p.name, p.fill, p.stroke, ink)
	}
	return b.Bytes()
}

// entities writes what is not a letter, digit, dash or dot as a number, so that it has no meaning for Mermaid.
func entities(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" -_.", r) {
			b.WriteRune(r)
		} else {
			b.WriteString("#" + strconv.Itoa(int(r)) + ";")
		}
	}
	return b.String()
}
