package kernel

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// LaneID identifies a lane: the ready steps of one agent that a claim may take interchangeably, except for their order.
// Searches go lane by lane, so that steps that cannot be dispatched now are not in the way of others. The id is a hash
// of what the steps of a lane have in common: the type of their jobs, the permits of named limits that they need, their
// demand on a host, and their share.
// Two lanes whose ids collide are searched as one; each step is checked again before it is dispatched.
//
// A plain lane is one whose steps need no named limit and have no demand and no share. Ids of plain lanes are not negative, and there are few of these
// lanes. The number of other lanes can be as large as the number of limit keys.
type LaneID int64

// LaneOf returns the lane of steps of jobs of a type that need these permits.
func LaneOf(typ string, needs Needs) LaneID {
	h := fnv.New64a()
	h.Write([]byte(typ))
	if needs == "" {
		return LaneID(h.Sum64() >> 1)
	}
	h.Write([]byte{0})
	h.Write([]byte(needs))
	return -LaneID(h.Sum64()>>1) - 1
}

// Plain reports whether the steps of the lane need no named limit and have no demand.
func (l LaneID) Plain() bool { return l >= 0 }

// Lane is a lane that is not plain, as stores keep it.
type Lane struct {
	LaneRef
	Class LaneID // common to all lanes whose steps have the same type, demand and share, and name the same limits; not negative if they have a share
	Kind  LaneID // as Class, but for all shares; as Class without a share
	Share ShareID
	Type  string
	Needs Needs
	First Candidate // its first step; in the result of LaneFor: the step given
}

// LaneFor returns the lane of a ready step; ok is false if it is a plain one.
func LaneFor(s *Step) (lane Lane, ok bool) {
	if s.Needs == "" || s.Phase != perdure.Ready {
		return Lane{}, false
	}
	lane = LaneWith(s.Agent, s.Type, s.Needs)
	lane.First = CandidateOf(s)
	return lane, true
}

// LaneWith returns the lane of an agent's steps whose jobs have this type, and that have these needs. It has no First.
func LaneWith(agent, typ string, needs Needs) Lane {
	names := make([]string, 0, perdure.MaxStepLimits+1)
	for _, n := range needs.List() {
		names = append(names, n.Name)
	}
	if d := needs.Demand(); d != "" {
		names = append(names, demandPrefix+string(d))
	}
	l := Lane{LaneRef: LaneRef{agent, LaneOf(typ, needs)}, Type: typ, Needs: needs}
	l.Kind = LaneOf(typ, Needs(strings.Join(slices.Compact(names), " ")))
	l.Class = l.Kind
	if value := needs.Share(); value != "" {
		l.Share = ShareIDOf(value)
		h := fnv.New64a()
		_ = binary.Write(h, binary.BigEndian, int64(l.Kind))
		h.Write([]byte(value))
		l.Class = LaneID(h.Sum64() >> 1)
	}
	return l
}

// NeedsAny reports whether the steps of the lane need a permit of one of these limits.
func (l *Lane) NeedsAny(limits []string) bool {
	s := Step{Type: l.Type, Needs: l.Needs}
	return s.NeedsAny(limits, false)
}

// LaneRef names a lane of an agent.
type LaneRef struct {
	Agent string
	Lane  LaneID
}

// ClosedLane is a lane that searches leave out, because a key of a limit has no permits left for its steps. It is opened
// when a permit with this key is released (Tx.OpenLanes). It is always safe to open a lane: its steps are then searched
// and checked, and the lane may be closed again.
type ClosedLane struct {
	LaneRef
	For LimitKey
}

// order returns the position of a ready step in its lane. Priorities do not change the order of a line.
func (s *Step) order() int64 {
	if s.Needs.hasLine() {
		return OrderOf(s.Job, 0, 0)
	}
	return OrderOf(s.Job, s.Priority, s.Ageing)
}

// OrderOf returns the position of a ready step in its lane, in milliseconds: the time of submission, minus ageing for
// each unit of priority. An ageing of 0 is the default. The value is fixed when the step becomes ready, so no row is
// rewritten as time passes.
func OrderOf(job perdure.JobID, priority int, ageing time.Duration) int64 {
	if ageing == 0 {
		ageing = perdure.DefaultAgeing
	}
	submitted := int64(binary.BigEndian.Uint64(job[:8]) >> 16) // in milliseconds since 1970: ids begin with it
	return submitted - int64(priority)*ageing.Milliseconds()
}
