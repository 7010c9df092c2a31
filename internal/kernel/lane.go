package kernel

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/perdure/perdure"
)

// LaneID identifies a lane: the ready steps of one agent that are interchangeable for its claims, but for their order.
// Searches go lane by lane, so that steps which cannot be dispatched now do not stand in front of others. The id is a
// hash of what the steps of a lane have in common: the type of their jobs. Two lanes whose ids collide are searched as
// one; each step is checked again before it is dispatched.
type LaneID int64

// LaneOf is the lane of the steps of jobs of a type.
func LaneOf(typ string) LaneID {
	h := fnv.New64a()
	h.Write([]byte(typ))
	return LaneID(h.Sum64() >> 1)
}

// OrderOf is the place of a ready step in its lane: the time of submission, less the head start of its priority, in
// milliseconds. An ageing of 0 is the default. It is fixed when the step becomes ready: no row is rewritten as time
// passes.
func OrderOf(job perdure.JobID, priority int, ageing time.Duration) int64 {
	if ageing == 0 {
		ageing = perdure.DefaultAgeing
	}
	submitted := int64(binary.BigEndian.Uint64(job[:8]) >> 16) // in milliseconds since 1970: ids begin with it
	return submitted - int64(priority)*ageing.Milliseconds()
}
