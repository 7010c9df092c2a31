package kernel

import (
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
)

// Reservation keeps a host for a step that has waited for longer than its agent's patience, so that small steps do not
// take each part of the host that becomes free. It is in the host's row, and a host has one at most.
//
// Nothing needs to release it. It holds only while the step is ready, as it was when the host was reserved (Reserves). So it
// ends when the step is dispatched, to whichever host, when it is undone, and when the host is lost or drained.
type Reservation struct {
	StepRef
	Step    string    // the name of the step
	ReadyAt time.Time // when the step became ready
	Since   time.Time // when the host was reserved; zero: there is no reservation
	Until   time.Time // it ends by then
}

// Same reports whether two reservations are the same.
func (v Reservation) Same(o Reservation) bool {
	return v.StepRef == o.StepRef && v.Since.Equal(o.Since)
}

// Reserves reports whether the host is reserved at now. s is the step of its reservation; nil if there is no such step.
func (h *Host) Reserves(s *Step, now time.Time) bool {
	v := &h.Reservation
	return s != nil && !v.Since.IsZero() && now.Before(v.Until) && !h.Silent(now) && s.StepRef == v.StepRef &&
		s.Phase == perdure.Ready && s.ReadyAt.Equal(v.ReadyAt) && Fits(h, h.Capacity, s.Needs.Demand().Requires())
}

// Starves reports whether a step has waited for room on a host for so long that it may reserve one.
func Starves(s *Step, patience time.Duration, now time.Time) bool {
	return s.Phase == perdure.Ready && s.Needs.Demand() != "" && now.Sub(s.ReadyAt) > patience
}

// StarvesAt returns when a ready step may reserve a host.
func StarvesAt(s *Step, patience time.Duration) time.Time { return s.ReadyAt.Add(patience) }

// PatienceOf returns the patience of an agent's steps.
func PatienceOf(settings map[string]perdure.AgentSettings, agent string) time.Duration {
	if set := settings[agent].Patience; set > 0 {
		return time.Duration(set)
	}
	return perdure.DefaultPatience
}

// Use is a run in flight of a host: what it takes, since when, and until when at most.
type Use struct {
	Demand       Demand
	Since, Until time.Time
}

// UseOf returns the use by a running step.
func UseOf(s *Step) Use { return Use{s.Needs.Demand(), s.StartedAt, s.CompleteBy} }

func covers(free perdure.Amounts, r *perdure.Requires) bool {
	for name, n := range r.Amounts {
		if free[name] < n {
			return false
		}
	}
	return true
}

// freeAt returns what is free when the runs that end by a time have ended.
func freeAt(free perdure.Amounts, uses []Use, at time.Time) perdure.Amounts {
	left := maps.Clone(free)
	if left == nil {
		left = perdure.Amounts{}
	}
	for _, u := range uses {
		if u.Until.After(at) {
			continue
		}
		for name, n := range u.Demand.Requires().Amounts {
			left[name] += n
		}
	}
	return left
}

// roomAt returns when there is room for r, if all runs take the time that they may. ok is false if there is none even then.
func roomAt(free perdure.Amounts, uses []Use, r *perdure.Requires, now time.Time) (at time.Time, ok bool) {
	if covers(free, r) {
		return now, true
	}
	ends := make([]time.Time, len(uses))
	for i, u := range uses {
		ends[i] = u.Until
	}
	slices.SortFunc(ends, time.Time.Compare)
	for _, end := range ends {
		if covers(freeAt(free, uses, end), r) {
			return end, true
		}
	}
	return at, false
}

// Unused returns what of the host's capacity its runs in flight leave. Usually a claim offers only a part of it: other claims
// of the host offer the rest.
func (h *Host) Unused(uses []Use) perdure.Amounts {
	left := maps.Clone(h.Capacity)
	for _, u := range uses {
		for name, n := range u.Demand.Requires().Amounts {
			left[name] -= n
		}
	}
	return left
}

// RoomFor returns when the host has room for a step with this demand, if the step may reserve it by a claim that offers free:
// the host is large enough, the claim has no room, and the host has a run that takes less than the step of what the claim
// lacks. Without such a run, each run that ends makes room for the step, which gets it in its turn: then it waits because
// there is much work, and not because it is large.
func (h *Host) RoomFor(d Demand, free perdure.Amounts, uses []Use, now time.Time) (at time.Time, ok bool) {
	r := d.Requires()
	if !Fits(h, h.Capacity, r) || covers(free, r) || !slices.ContainsFunc(uses, func(u Use) bool { return u.smaller(free, r) }) {
		return at, false
	}
	return roomAt(h.Unused(uses), uses, r, now)
}

// IsPartialOffer reports whether a claim offers too little for the step that has reserved its host, although the host has room
// for it: other claims of the host offer the rest.
func IsPartialOffer(reserved Demand, free, unused perdure.Amounts) bool {
	r := reserved.Requires()
	return covers(unused, r) && !covers(free, r)
}

// smaller reports whether the run takes less than r of something of which not enough is free for r.
func (u Use) smaller(free perdure.Amounts, r *perdure.Requires) bool {
	takes := u.Demand.Requires().Amounts
	for name, n := range r.Amounts {
		if free[name] < n && takes[name] > 0 && takes[name] < n {
			return true
		}
	}
	return false
}

// Admits reports whether a host that is reserved for a step with the demand reserved gets a run that requires r and ends by
// end. It does if the run ends before there is room for the step, or leaves room for it. unused is what the host's runs
// leave (Host.Unused), and not what one claim offers.
//
// For example, a host has 4 slots, of which one is free, and is reserved for a step that takes all of them. The latest of
// its runs ends in 10 minutes. A run of at most 10 minutes is admitted. Any other would delay the step.
//
// So the time of room never moves later: what is admitted ends by then, or is not in the way. If the host is too small for
// the step even without its runs, no run is refused.
func Admits(reserved Demand, unused perdure.Amounts, uses []Use, r *perdure.Requires, end, now time.Time) bool {
	wanted := reserved.Requires()
	at, ok := roomAt(unused, uses, wanted, now)
	if !ok || !end.After(at) {
		return true
	}
	left := freeAt(unused, uses, at)
	for name, n := range r.Amounts {
		if want := wanted.Amounts[name]; want > 0 && left[name]-n < want {
			return false
		}
	}
	return true
}

// ReservationFor returns the reservation of a host with these runs for a step. It ends after twice the time that the
// longest of the runs may take: by half of that they have all ended.
func ReservationFor(s *Step, uses []Use, patience time.Duration, now time.Time) Reservation {
	last := patience
	for _, u := range uses {
		last = max(last, 2*u.Until.Sub(u.Since))
	}
	return Reservation{StepRef: s.StepRef, Step: s.Name, ReadyAt: s.ReadyAt, Since: now, Until: now.Add(last)}
}

// Forgotten reports whether a host with this number of runs is removed: it has been silent for so long.
func (h *Host) Forgotten(now time.Time, runs int) bool {
	return runs == 0 && h.Silent(now) && now.Sub(h.SeenAt) > perdure.ForgetHostAfter
}
