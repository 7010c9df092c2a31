package operate

import (
	"time"

	"github.com/perdure/perdure"
)

// RunsQuery selects the recorded runs of a job, in the order of their starts.
type RunsQuery struct {
	Job    string // a ref
	Limit  int    // 0: perdure.DefaultListLimit
	Cursor string // NextCursor of the previous page
}

// RunRecord is a run as it is recorded. A value that was not recorded is missing: the holder of a run that is done and has no log, the
// time at which a step became ready for an earlier run that is done, and turn, direction and start of a run that ended
// under a version without them.
type RunRecord struct {
	Step      string             `json:"step"`
	Run       int64              `json:"run"`
	Turn      int                `json:"turn,omitempty"`
	Direction *perdure.Direction `json:"direction,omitempty"`
	Holder    string             `json:"holder,omitempty"`
	ReadyAt   time.Time          `json:"readyAt,omitzero"`
	StartedAt time.Time          `json:"startedAt,omitzero"`
	EndedAt   time.Time          `json:"endedAt,omitzero"` // missing: the run is in flight
	Outcome   perdure.Outcome    `json:"outcome,omitempty"`
	Error     string             `json:"error,omitempty"` // code and message of a run that is not done
}
