// Package operate is what a console needs of a node, in addition to perdure.Service: drawings of jobs, previews of acts,
// acts on many jobs, and what a job of a definition would do. A node implements Service, and so does a client of a node.
package operate

import (
	"context"

	"github.com/perdure/perdure"
)

// Service is what a node offers to consoles.
type Service interface {
	// Graph returns a drawing of a job's steps. ref names the job, as in perdure.Service.
	Graph(ctx context.Context, ref string) (*Graph, error)
	// ShapeGraph returns a drawing by its Hash, which every job with the same steps has.
	ShapeGraph(ctx context.Context, hash string) (*Graph, error)
	// Preview applies the rules of an act to a job, and stores nothing. If the act would be refused, Preview returns the
	// same error. The job may change before the act is performed: then the act may do something else.
	Preview(ctx context.Context, ref string, act perdure.Act) (*Preview, error)
	// Validate checks a definition (mediaType application/json or application/yaml), and stores nothing. If its
	// submission would be refused because the definition is invalid, Validate returns the same error.
	Validate(ctx context.Context, body []byte, mediaType string) (*Validation, error)
	Bulk
}
