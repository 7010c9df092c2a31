package graph

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/operate"
)

// hostile is a drawing whose texts mean something in each of the languages.
func hostile() *operate.Graph {
	return &operate.Graph{Width: 448, Height: 92, NodeWidth: NodeWidth, NodeHeight: NodeHeight,
		Nodes: []operate.GraphNode{
			{Name: `<script>alert("1")</script>`, X: 24, Y: 24, Agent: `a"]; x`, Action: "do & dare"},
			{Name: strings.Repeat("数", 100), X: 256, Y: 24, Agent: "שלום"},
		},
		Edges: []operate.GraphEdge{{From: 0, To: 1, Points: []int{192, 46, 256, 46}}}}
}

func TestSVGHoldsNamesAsText(t *testing.T) {
	marks := func(string) Mark { return Mark{Sign: "✓", Word: "done <b>", Tone: Good} }
	for _, mark := range []func(string) Mark{nil, marks} {
		picture := SVG(hostile(), `a "title" <x>`, mark)
		dec, elements, texts := xml.NewDecoder(strings.NewReader(string(picture))), map[string]int{}, ""
		for {
			token, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, picture)
			}
			switch x := token.(type) {
			case xml.StartElement:
				elements[x.Name.Local]++
			case xml.CharData:
				texts += string(x)
			}
		}
		if elements["script"] > 0 || elements["b"] > 0 || elements["g"] != 2 {
			t.Errorf("elements %v", elements)
		}
		if want := `<script>alert("1")</script>`; !strings.Contains(texts, want) {
			t.Errorf("%q is not in the texts: %s", want, texts)
		}
		if long := strings.Repeat("数", 9); !strings.Contains(texts, long+"…") || strings.Contains(string(picture), ">"+long+"数…") {
			t.Errorf("the long name is not shortened: %s", texts)
		}
	}
}

func TestDOTAndMermaidHoldNamesAsText(t *testing.T) {
	dot := string(DOT(hostile(), `x"y\`, nil))
	for _, want := range []string{`digraph "x\"y\\" {`, `"<script>alert(\"1\")</script>" -> "数`} {
		if !strings.Contains(dot, want) {
			t.Errorf("no %s in %s", want, dot)
		}
	}
	mermaid := string(Mermaid(hostile(), nil))
	for _, want := range []string{"flowchart LR\n", `s0["#60;script#62;alert#40;#34;1#34;#41;#60;#47;script#62;"]`, "s0 --> s1\n"} {
		if !strings.Contains(mermaid, want) {
			t.Errorf("no %s in %s", want, mermaid)
		}
	}
}

// With a job, each step has the word and the colour of its state, as in the picture.
func TestDOTAndMermaidHaveStates(t *testing.T) {
	mark := func(step string) Mark {
		if strings.HasPrefix(step, "<") {
			return Mark{Sign: "■", Word: `par"ked\`, Tone: Bad}
		}
		return Mark{Sign: "○", Word: "waiting"}
	}
	dot := string(DOT(hostile(), "x", mark))
	for _, want := range []string{`\")</script>\n■ par\"ked\\", style="rounded,filled", fillcolor="#fdebea", color="#c2302a"`, `数\n○ waiting", style="rounded,filled", fillcolor="#fff", color="#8a94a3"`} {
		if !strings.Contains(dot, want) {
			t.Errorf("no %s in %s", want, dot)
		}
	}
	mermaid := string(Mermaid(hostile(), mark))
	for _, want := range []string{`<br/>#9632; par#34;ked#92;"]:::bad`, `<br/>#9675; waiting"]:::calm`, "  classDef bad fill:#fdebea,stroke:#c2302a,color:", "  classDef calm fill:#fff,"} {
		if !strings.Contains(mermaid, want) {
			t.Errorf("no %s in %s", want, mermaid)
		}
	}
	for tone, p := range paint {
		box := ".box{fill:" + p.fill + ";stroke:" + p.stroke
		if tone != Calm {
			box = "." + string(tone) + " " + box
		}
		if !strings.Contains(css, box) {
			t.Errorf("the picture has other colours than %s", box)
		}
	}
}

func TestPathCurvesBetweenColumns(t *testing.T) {
	if got, want := Path([]int{10, 5, 30, 9, 60, 9, 90, 1}), "M10 5C20 5 20 9 30 9H60C75 9 75 1 90 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Each run has a bar with its outcome, at its place on the scale. Texts are escaped, and what is over a bound is left out.
func TestTimelineHasTheRuns(t *testing.T) {
	offset := func(d time.Duration) string { return "<" + d.String() }
	v := &operate.Graph{Width: 100, Height: 60, NodeWidth: 50, NodeHeight: 40, Nodes: []operate.GraphNode{{Name: "a<b"}, {Name: "c"}}}
	bars := []Bar{{Row: "a<b", From: 0, To: 10 * time.Second, Mark: Mark{Sign: "×", Word: "failed", Tone: Bad}, Title: "a<b, run 1"}, {Row: "c", From: 20 * time.Second, To: 40 * time.Second, Mark: Mark{Sign: "✓", Tone: Good}}, {Row: "gone"}}
	got := string(WithTimeline(v, "t&t", nil, bars, 40*time.Second, offset))
	for _, want := range []string{`aria-label="t&amp;t"`, `<g class="bad"><title>a&lt;b, run 1</title><rect class="box" x="184.0"`, `width="190.0"`, `<g class="good"><title></title><rect class="box" x="564.0"`, "&lt;10s</text>", "&lt;40s</text>"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if err := xml.Unmarshal([]byte(got), new(struct{})); err != nil {
		t.Error(err)
	}
	if strings.Count(got, `class="sign state"`) != 2 {
		t.Errorf("a run of a step that is not drawn: %s", got)
	}
	many := &operate.Graph{}
	for i := range timelineRows + 2 {
		many.Nodes = append(many.Nodes, operate.GraphNode{Name: fmt.Sprint("s", i)})
	}
	text := string(WithTimeline(many, "t", nil, slices.Repeat(bars[1:2], timelineBars+3), 0, offset))
	if want := "2 more steps are not drawn; 3 more runs are not drawn"; !strings.Contains(text, want) {
		t.Errorf("no %q in %s", want, text[len(text)-300:])
	}
}
