// Package operate is what a console needs of a node, in addition to perdure.Service: the numbers of an overview, drawings
// of jobs, their recorded runs, previews of acts, acts on many jobs, what a job of a definition would do, lists as they change, logs, artifacts, and who may call the node. A node
// implements Service, and so does a client of a node.
package operate

import (
	"context"
	"time"

	"github.com/perdure/perdure"
)

// Service is what a node offers to consoles.
type Service interface {
	// Stats returns the numbers of an overview. It reads what was computed last, and counts nothing.
	Stats(context.Context) (*Stats, error)
	// Graph returns a drawing of a job's steps. ref names the job, as in perdure.Service.
	Graph(ctx context.Context, ref string) (*Graph, error)
	// ShapeGraph returns a drawing by its Hash, which every job with the same steps has.
	ShapeGraph(ctx context.Context, hash string) (*Graph, error)
	// Preview applies the rules of an act to a job, and stores nothing. If the act would be refused, Preview returns the
	// same error. The job may change before the act is performed: then the act may do something else.
	Preview(ctx context.Context, ref string, act perdure.Act) (*Preview, error)
	// Runs returns the recorded runs of a job in the order of their starts: those that have ended, and those in flight.
	// A run that starts between two calls is on the last page.
	Runs(context.Context, RunsQuery) (*perdure.Page[RunRecord], error)
	// Validate checks a definition (mediaType application/json or application/yaml), and stores nothing. If its
	// submission would be refused because the definition is invalid, Validate returns the same error.
	Validate(ctx context.Context, body []byte, mediaType string) (*Validation, error)
	// LimitKeys returns the keys of a limit for which most steps wait, those with the most steps first.
	LimitKeys(context.Context, LimitKeyQuery) ([]LimitKeyView, error)
	// JobPart is perdure.Jobs.Job for a view with some of the steps. Of a job with very many steps, it is much smaller.
	JobPart(ctx context.Context, ref string, wait time.Duration, steps Steps) (*perdure.JobView, error)
	// FollowJobs calls see with the first page of a list of jobs, and then with what changes, at most once a second, until
	// see returns an error or ctx ends. The query has no cursor, and a limit of at most MaxLiveRows.
	FollowJobs(ctx context.Context, q perdure.JobQuery, see func(*JobsChange) error) error
	// FollowAlerts is FollowJobs for a list of alerts.
	FollowAlerts(ctx context.Context, q perdure.AlertQuery, see func(*AlertsChange) error) error
	Logs
	Artifacts
	Bulk
	Webhooks
	Roles
	Signals
	Hosts
	Schedules
	Definitions
	Access
}

// Steps says which steps the view of a job has.
type Steps string

const (
	AllSteps  Steps = "all"
	OpenSteps Steps = "open" // that are not settled
	NoSteps   Steps = "none"
)
