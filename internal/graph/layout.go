// Package graph draws the steps of a job as a graph in columns: each step stands in a column to the right of all steps
// that it follows. It is pure: the same steps give the same bytes, on every machine.
//
// The method is that of Sugiyama, Tagawa and Toda ("Methods for Visual Understanding of Hierarchical System
// Structures", 1981), in five parts:
//
//	columns    by the longest path from a step without parents (columns.go)
//	bends      an edge over several columns gets a bend in each of them; edges from one step share their bends
//	order      in each column, by the barycentre of the neighbours, in a fixed number of sweeps (order.go)
//	heights    each vertex as near as possible to the mean of its neighbours; this is an isotonic regression (heights.go)
//	edges      the points of each edge
//
// render.go writes a finished drawing as SVG, and its steps in the languages of Graphviz and Mermaid.
//
// All work is bounded: MaxEdges edges are drawn, and edges that would need more than maxBends bends are drawn straight.
package graph

import "slices"

// Sizes of a drawing, in pixels.
const (
	NodeWidth  = 168
	NodeHeight = 44
	columnGap  = 64 // between two columns of nodes
	nodeGap    = 18 // between two nodes of one column
	bendGap    = 10 // between a bend and its neighbour
	flat       = 4  // a smaller step between two bends is not drawn
	Margin     = 24 // around the drawing
)

// Bounds of a drawing.
const (
	MaxEdges = 50_000 // edges that are drawn; of more, the longest are left out
	maxBends = 30_000 // bends of long edges; the longest edges beyond them are drawn straight
)

// Step is a step to be drawn: its direct predecessors, as indexes of steps.
type Step struct{ After []int }

// Layout is a finished drawing, in pixels. The origin is the upper left corner.
type Layout struct {
	Width   int
	Height  int
	Nodes   []Point // of each step: the upper left corner of its box of NodeWidth by NodeHeight
	Edges   []Edge  // by From, then by To
	LeftOut int     // number of edges that are not drawn
}

// Point is a place in a drawing.
type Point struct{ X, Y int }

// Edge leads from a step to one that follows it. Its points begin at the right side of From and end at the left side of
// To.
type Edge struct {
	From, To int
	Points   []Point
}

// Lay draws steps. Their graph has no cycle.
func Lay(steps []Step) *Layout {
	d := newDrawing(steps)
	d.sortColumns()
	d.setHeights()
	return d.layout()
}

// drawing is a graph in columns. The vertices are the steps, followed by the bends. Between two neighbouring columns,
// lines join vertices.
type drawing struct {
	steps   int   // number of steps
	edges   []hop // the edges that are drawn
	leftOut int

	column  []int   // of each vertex
	columns [][]int // the vertices of each column, from top to bottom
	place   []int   // of each vertex: its index in its column
	left    [][]int // of each vertex: its neighbours in the column before
	right   [][]int // and in the column after
	bends   []map[int]int
	height  []float64 // of each vertex: the middle
}

// hop is an edge of the graph, from a step to one that follows it.
type hop struct{ from, to int }

func (d *drawing) isBend(vertex int) bool { return vertex >= d.steps }

func (d *drawing) addVertex(column int) int {
	v := len(d.column)
	d.column = append(d.column, column)
	d.left, d.right = append(d.left, nil), append(d.right, nil)
	return v
}

func (d *drawing) join(a, b int) {
	d.right[a] = append(d.right[a], b)
	d.left[b] = append(d.left[b], a)
}

func (d *drawing) layout() *Layout {
	l := &Layout{LeftOut: d.leftOut, Nodes: make([]Point, d.steps), Edges: make([]Edge, 0, len(d.edges))}
	top := 0.0
	for _, h := range d.height {
		top = min(top, h)
	}
	middle := func(v int) int { return int(d.height[v]-top+0.5) + Margin + NodeHeight/2 }
	for v := range d.steps {
		x, y := d.x(v), middle(v)-NodeHeight/2
		l.Nodes[v] = Point{x, y}
		l.Width, l.Height = max(l.Width, x+NodeWidth+Margin), max(l.Height, y+NodeHeight+Margin)
	}
	for _, e := range d.edges {
		points := []Point{{d.x(e.from) + NodeWidth, middle(e.from)}}
		if d.column[e.to] > d.column[e.from]+1 {
			for c := d.column[e.from] + 1; c < d.column[e.to]; c++ {
				if bend, ok := d.bends[e.from][c]; ok {
					y := middle(bend)
					if before := points[len(points)-1].Y; len(points) > 1 && max(y-before, before-y) <= flat {
						y = before
					}
					points = append(points, Point{d.x(bend), y}, Point{d.x(bend) + NodeWidth, y})
					l.Height = max(l.Height, y+Margin)
				}
			}
		}
		points = append(points, Point{d.x(e.to), middle(e.to)})
		l.Edges = append(l.Edges, Edge{e.from, e.to, straightened(points)})
	}
	return l
}

func (d *drawing) x(vertex int) int { return Margin + d.column[vertex]*(NodeWidth+columnGap) }

// straightened leaves out points in the middle of a horizontal line.
func straightened(points []Point) []Point {
	kept := points[:1]
	for i := 1; i < len(points)-1; i++ {
		if points[i].Y != kept[len(kept)-1].Y || points[i].Y != points[i+1].Y {
			kept = append(kept, points[i])
		}
	}
	return slices.Clip(append(kept, points[len(points)-1]))
}
