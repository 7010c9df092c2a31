package graph

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkLayout checks what each drawing must hold.
func checkLayout(t interface{ Fatalf(string, ...any) }, steps []Step, l *Layout) {
	columns := map[int][]Point{}
	for i, s := range steps {
		n := l.Nodes[i]
		columns[n.X] = append(columns[n.X], n)
		if n.X < Margin || n.Y < Margin || n.X+NodeWidth+Margin > l.Width || n.Y+NodeHeight+Margin > l.Height {
			t.Fatalf("step %d at %v is not within %d by %d", i, n, l.Width, l.Height)
		}
		for _, parent := range s.After {
			if l.Nodes[parent].X >= n.X {
				t.Fatalf("step %d is not to the right of step %d, which it follows", i, parent)
			}
		}
	}
	for _, nodes := range columns {
		slices.SortFunc(nodes, func(a, b Point) int { return a.Y - b.Y })
		for i := 1; i < len(nodes); i++ {
			if nodes[i].Y-nodes[i-1].Y < NodeHeight+nodeGap-1 { // rounded
				t.Fatalf("nodes at %v and %v overlap", nodes[i-1], nodes[i])
			}
		}
	}
	for _, e := range l.Edges {
		first, last := e.Points[0], e.Points[len(e.Points)-1]
		from, to := l.Nodes[e.From], l.Nodes[e.To]
		if first != (Point{from.X + NodeWidth, from.Y + NodeHeight/2}) || last != (Point{to.X, to.Y + NodeHeight/2}) {
			t.Fatalf("edge %v does not join %v and %v", e, from, to)
		}
		if !slices.Contains(steps[e.To].After, e.From) {
			t.Fatalf("edge %v is not in the graph", e)
		}
		if !slices.IsSortedFunc(e.Points, func(a, b Point) int { return a.X - b.X }) {
			t.Fatalf("edge %v goes back", e)
		}
	}
}

func randomSteps(t *rapid.T) []Step {
	steps := make([]Step, rapid.IntRange(0, 60).Draw(t, "steps"))
	for i := range steps {
		if i > 0 {
			steps[i].After = rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 0, min(i, 4), rapid.ID[int]).Draw(t, "after")
		}
	}
	// Definitions may list steps in any order.
	order := rapid.Permutation(slices.Collect(seq(len(steps)))).Draw(t, "order")
	mixed := make([]Step, len(steps))
	for i, s := range steps {
		for _, parent := range s.After {
			mixed[order[i]].After = append(mixed[order[i]].After, order[parent])
		}
	}
	return mixed
}

func seq(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

func TestLayoutOfRandomGraphs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := randomSteps(t)
		l := Lay(steps)
		checkLayout(t, steps, l)
		edges := 0
		for _, s := range steps {
			edges += len(s.After)
		}
		if len(l.Edges) != edges || l.LeftOut != 0 {
			t.Fatalf("%d edges of %d", len(l.Edges), edges)
		}
		if again := Lay(steps); fmt.Sprint(again) != fmt.Sprint(l) {
			t.Fatalf("the second drawing differs")
		}
	})
}

func chain(n int) []Step {
	steps := make([]Step, n)
	for i := 1; i < n; i++ {
		steps[i].After = []int{i - 1}
	}
	return steps
}

func TestChainIsStraight(t *testing.T) {
	l := Lay(chain(20))
	for _, n := range l.Nodes {
		if n.Y != l.Nodes[0].Y {
			t.Errorf("a step at %v, the first at %v", n, l.Nodes[0])
		}
	}
	for _, e := range l.Edges {
		if len(e.Points) != 2 {
			t.Errorf("edge %v is not straight", e)
		}
	}
}

func TestForkAndJoinIsSymmetric(t *testing.T) {
	l := Lay([]Step{{}, {After: []int{0}}, {After: []int{0}}, {After: []int{0}}, {After: []int{1, 2, 3}}})
	if l.Nodes[0].Y != l.Nodes[2].Y || l.Nodes[4].Y != l.Nodes[2].Y {
		t.Errorf("not in line: %v", l.Nodes)
	}
}

func TestCrossingsAreAvoided(t *testing.T) {
	// Three chains, given in an order that crosses them.
	l := Lay([]Step{{}, {}, {}, {After: []int{2}}, {After: []int{0}}, {After: []int{1}}})
	for i, parent := range map[int]int{3: 2, 4: 0, 5: 1} {
		if l.Nodes[i].Y != l.Nodes[parent].Y {
			t.Errorf("step %d at %v is not beside step %d at %v", i, l.Nodes[i], parent, l.Nodes[parent])
		}
	}
}

// dense is two columns of n steps each, all joined to all.
func dense(n int) []Step {
	steps := make([]Step, 2*n)
	for i := n; i < 2*n; i++ {
		for parent := range n {
			steps[i].After = append(steps[i].After, parent)
		}
	}
	return steps
}

// far is a chain in which each step also follows all those ten, twenty, thirty … steps before it, so that each edge
// crosses many columns.
func far(n int) []Step {
	steps := chain(n)
	for i := range steps {
		for parent := i - 10; parent >= 0; parent -= 10 {
			steps[i].After = append(steps[i].After, parent)
		}
	}
	return steps
}

func TestDrawingIsBounded(t *testing.T) {
	for name, steps := range map[string][]Step{"dense": dense(400), "far": far(2000)} {
		l := Lay(steps)
		edges := 0
		for _, s := range steps {
			edges += len(s.After)
		}
		if edges <= MaxEdges || len(l.Edges) != MaxEdges || l.LeftOut != edges-MaxEdges {
			t.Errorf("%s: %d of %d edges drawn, %d left out", name, len(l.Edges), edges, l.LeftOut)
		}
		checkLayout(t, steps, l)
	}
	d := newDrawing(far(2000))
	if bends := len(d.column) - d.steps; bends == 0 || bends > maxBends {
		t.Errorf("%d bends", bends)
	}
}

// layered is a graph as large jobs have it: columns of width steps, each with up to three parents in the two columns
// before it.
func layered(n, width int) []Step {
	steps := make([]Step, n)
	for i := width; i < n; i++ {
		first := (i/width - 1) * width
		for k := range i%3 + 1 {
			steps[i].After = append(steps[i].After, first+(i*7+k*3)%width)
		}
		if i >= 2*width && i%5 == 0 {
			steps[i].After = append(steps[i].After, first-width+i%width)
		}
		slices.Sort(steps[i].After)
		steps[i].After = slices.Compact(steps[i].After)
	}
	return steps
}

func BenchmarkLay(b *testing.B) {
	for _, bb := range []struct {
		name  string
		steps []Step
	}{{"chain1000", chain(1000)}, {"layered1000", layered(1000, 20)}, {"layered10000", layered(10000, 100)}, {"dense800", dense(400)}, {"far2000", far(2000)}, {"far10000", far(10000)}} {
		b.Run(bb.name, func(b *testing.B) {
			for b.Loop() {
				Lay(bb.steps)
			}
		})
	}
}
