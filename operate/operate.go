// Package operate is what a console needs of a node, in addition to perdure.Service: drawings of jobs. A node implements
// Service, and so does a client of a node.
package operate

import "context"

// Service is what a node offers to consoles.
type Service interface {
	// Graph returns a drawing of a job's steps. ref names the job, as in perdure.Service.
	Graph(ctx context.Context, ref string) (*Graph, error)
	// ShapeGraph returns a drawing by its Hash, which every job with the same steps has.
	ShapeGraph(ctx context.Context, hash string) (*Graph, error)
}
