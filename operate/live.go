package operate

import "github.com/perdure/perdure"

// Bounds of lists that are followed.
const (
	MaxLiveRows = 100 // rows of the page that is followed
	MaxNewer    = 100 // a count of rows that are not on the page ends there
)

// ListChange is one change of a list that is followed. One of its fields is set.
type ListChange[T, ID any] struct {
	// Page is the first page: at the beginning, after an interruption, and when an empty page is no longer empty. It
	// replaces what was shown before.
	Page    *perdure.Page[T]
	Changed []T    // rows of the page that have changed, or match again
	Gone    []ID   // rows of the page that no longer match
	Newer   *Newer // the number of rows that match, belong on the page or before it, and are not on it
	// Problem says why the list is not read at present. A Page follows when it is.
	Problem *perdure.Error
}

// JobsChange is a change of a list of jobs. AlertsChange is a change of a list of alerts.
type (
	JobsChange   = ListChange[perdure.JobView, perdure.JobID]
	AlertsChange = ListChange[perdure.AlertView, int64]
)

// Newer is a number of rows, up to MaxNewer.
type Newer struct {
	N      int  `json:"n"`
	Capped bool `json:"capped,omitempty"` // there may be more than N
}
