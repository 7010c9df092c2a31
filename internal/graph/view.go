package graph

import (
	"cmp"
	"encoding/hex"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Of draws the steps of a definition.
func Of(shape *kernel.Shape) *operate.Graph {
	steps := make([]Step, len(shape.Steps))
	for i := range shape.Steps {
		steps[i].After = shape.Steps[i].After
	}
	l := Lay(steps)
	v := &operate.Graph{Hash: hex.EncodeToString(shape.ID[:]), Width: l.Width, Height: l.Height, NodeWidth: NodeWidth, NodeHeight: NodeHeight,
		Nodes: make([]operate.GraphNode, len(steps)), Edges: make([]operate.GraphEdge, len(l.Edges)), EdgesLeftOut: l.LeftOut}
	for i := range shape.Steps {
		s := &shape.Steps[i]
		v.Nodes[i] = operate.GraphNode{Name: s.Name, X: l.Nodes[i].X, Y: l.Nodes[i].Y, Agent: s.Agent, Undo: s.Undo != nil}
		if s.Action != s.Name {
			v.Nodes[i].Action = s.Action
		}
	}
	for i, e := range l.Edges {
		points := make([]int, 0, 2*len(e.Points))
		for _, p := range e.Points {
			points = append(points, p.X, p.Y)
		}
		v.Edges[i] = operate.GraphEdge{From: e.From, To: e.To, Points: points}
	}
	return v
}

// Order returns the indexes of nodes as they are read: column by column, each from top to bottom.
func Order(v *operate.Graph) []int {
	order := make([]int, len(v.Nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(v.Nodes[a].X, v.Nodes[b].X), cmp.Compare(v.Nodes[a].Y, v.Nodes[b].Y))
	})
	return order
}
