package kernel

import (
	"strings"

	"github.com/perdure/perdure"
)

// Limit is a typed bound on what may be out at once: "job:TYPE" or "agent:NAME". Its permits are the
// rows of the jobs and steps that hold one, counted when they are needed, never a counter.
type Limit struct {
	Name string
	Max  int
	Used int
}

const (
	jobLimitPrefix   = "job:"
	agentLimitPrefix = "agent:"
)

func JobLimit(typ string) string     { return jobLimitPrefix + typ }
func AgentLimit(agent string) string { return agentLimitPrefix + agent }

// SplitLimit tells what a limit's name bounds: kind is "job" or "agent".
func SplitLimit(name string) (kind, of string, ok bool) {
	kind, of, ok = strings.Cut(name, ":")
	return kind, of, ok && of != "" && (kind == "job" || kind == "agent")
}

// LimitHolder is a row that holds a permit.
type LimitHolder struct {
	Job  perdure.JobID
	Step string
	Run  int64
}
