package graph

import (
	"cmp"
	"slices"
)

// newDrawing puts the steps and the bends of long edges in columns, in the order in which a walk from the first step
// meets them.
func newDrawing(steps []Step) *drawing {
	d := &drawing{steps: len(steps), bends: make([]map[int]int, len(steps))}
	for _, c := range longestPaths(steps) {
		d.addVertex(c)
	}
	d.chooseEdges(steps)
	d.bend()
	d.fillColumns()
	return d
}

// longestPaths returns, for each step, the number of steps on the longest path that leads to it.
func longestPaths(steps []Step) []int {
	columns, open := make([]int, len(steps)), make([]int, len(steps))
	followers := make([][]int, len(steps))
	var next []int
	for i, s := range steps {
		for _, parent := range s.After {
			followers[parent] = append(followers[parent], i)
		}
		if open[i] = len(s.After); open[i] == 0 {
			next = append(next, i)
		}
	}
	for len(next) > 0 {
		step := next[len(next)-1]
		next = next[:len(next)-1]
		for _, f := range followers[step] {
			columns[f] = max(columns[f], columns[step]+1)
			if open[f]--; open[f] == 0 {
				next = append(next, f)
			}
		}
	}
	return columns
}

func (d *drawing) span(e hop) int { return d.column[e.to] - d.column[e.from] }

// chooseEdges takes at most MaxEdges edges, the shortest first.
func (d *drawing) chooseEdges(steps []Step) {
	n := 0
	for _, s := range steps {
		n += len(s.After)
	}
	d.edges = make([]hop, 0, n)
	for i, s := range steps {
		for _, parent := range s.After {
			d.edges = append(d.edges, hop{parent, i})
		}
	}
	d.sortEdges(func(a, b hop) int { return cmp.Compare(d.span(a), d.span(b)) })
	if len(d.edges) > MaxEdges {
		d.leftOut = len(d.edges) - MaxEdges
		d.edges = d.edges[:MaxEdges]
	}
}

// sortEdges sorts by first, then by the steps that the edges join.
func (d *drawing) sortEdges(first func(a, b hop) int) {
	slices.SortFunc(d.edges, func(a, b hop) int {
		return cmp.Or(first(a, b), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
}

// bend joins each edge to its neighbours in each column that it crosses. It takes the shortest edges first, and leaves
// an edge without bends if there would be more than maxBends.
func (d *drawing) bend() {
	for _, e := range d.edges { // the shortest first
		from := e.from
		if d.span(e) > 1 {
			if d.bends[e.from] == nil {
				d.bends[e.from] = map[int]int{}
			}
			bends := d.bends[e.from]
			if len(d.column)-d.steps+d.span(e)-1-len(bends) > maxBends {
				continue
			}
			for c := d.column[e.from] + 1; c < d.column[e.to]; c++ {
				bend, ok := bends[c]
				if !ok {
					bend = d.addVertex(c)
					bends[c] = bend
					d.join(from, bend)
				}
				from = bend
			}
		}
		d.join(from, e.to)
	}
	d.sortEdges(func(hop, hop) int { return 0 })
}

// fillColumns lists the vertices of each column in the order of a walk in depth, which keeps the parts of a graph
// together.
func (d *drawing) fillColumns() {
	d.place = make([]int, len(d.column))
	last := -1
	for _, c := range d.column {
		last = max(last, c)
	}
	d.columns = make([][]int, last+1)
	met := make([]bool, len(d.column))
	var open []int
	for v := range d.column {
		if len(d.left[v]) > 0 {
			continue
		}
		open = append(open, v)
		for len(open) > 0 {
			v := open[len(open)-1]
			open = open[:len(open)-1]
			if met[v] {
				continue
			}
			met[v] = true
			c := d.column[v]
			d.place[v] = len(d.columns[c])
			d.columns[c] = append(d.columns[c], v)
			for _, next := range slices.Backward(d.right[v]) {
				open = append(open, next)
			}
		}
	}
}
