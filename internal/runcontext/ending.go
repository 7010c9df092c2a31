package runcontext

// Ending is what the end of a handler's context demands of work that outlives the process.
type Ending uint8

const (
	Leave Ending = iota // the process ends: the work goes on, and the handler returns
	Stop                // the run is no longer wanted here; its end is reported
	Kill                // the run no longer belongs to this host: its work must end at once
)
