package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Hosts registers hosts, shows them, and drains them.
type Hosts interface {
	// RegisterHost creates or replaces a host, and is its sign of life: the host's process repeats it at least every
	// HostRequest.Heartbeat. If another incarnation is alive, the error has CodeConflict; if HostRequest.Renews, and the
	// host was removed, CodeNotFound.
	RegisterHost(ctx context.Context, r HostRequest) (*HostRegistered, error)
	// ListHosts returns a page of hosts, in the order of their names, without their runs.
	ListHosts(context.Context, HostQuery) (*perdure.Page[HostView], error)
	// GetHost returns a host with its runs.
	GetHost(ctx context.Context, name string) (*HostView, error)
	// DrainHost makes the host get no more runs. Its runs may end until the deadline.
	DrainHost(ctx context.Context, d HostDrain) (*HostView, error)
	// ReadyHost ends a drain.
	ReadyHost(ctx context.Context, name, author string) (*HostView, error)
	// DeleteHost removes a host that is silent or drained and has no runs.
	DeleteHost(ctx context.Context, name, author string) error
}

// Bounds and defaults of hosts.
const (
	DefaultHostHeartbeat = time.Minute
	MinHostHeartbeat     = time.Second
	MaxHostHeartbeat     = time.Hour
	DefaultDrain         = 10 * time.Minute
	MaxDrain             = 30 * 24 * time.Hour
	MaxIncarnation       = 64  // characters of an incarnation or a boot id
	MaxHostVersion       = 128 // characters of a version
)

// HostSettings is what a host's process says of the host.
type HostSettings struct {
	Incarnation string            `json:"incarnation" maxLength:"64" doc:"Made once for each state directory of the host, and the same after a restart"`
	Boot        string            `json:"boot,omitempty" maxLength:"64" doc:"The boot id of the machine"`
	Grid        string            `json:"grid,omitempty" maxLength:"64" doc:"The grid to which the host belongs"`
	Labels      map[string]string `json:"labels,omitempty" maxProperties:"64" doc:"Labels that steps may require or prefer"`
	Capacity    perdure.Amounts   `json:"capacity" maxProperties:"32" doc:"What the host has"`
	Version     string            `json:"version,omitempty" maxLength:"128" doc:"The version of the host's program"`
	Heartbeat   perdure.Duration  `json:"heartbeat,omitempty" doc:"The host registers again at least this often, else it is silent: 1s to 1h, default 1m"`
}

// HostRequest registers a host.
type HostRequest struct {
	Name string `json:"-"`
	HostSettings
	Renews bool `json:"renews,omitempty" doc:"This process has registered the host before, within its heartbeat. If it was removed since, it is not registered again: the answer is notFound"`
}

// HostRegistered is the answer to a registration.
type HostRegistered struct {
	Holder  string    `json:"holder" doc:"The holder with which the host claims runs, reports and sends heartbeats"`
	State   HostState `json:"state"`
	DrainBy time.Time `json:"drainBy,omitzero" doc:"Of a host that is drained: when its runs are to be stopped"`
	// DrainInMs is the time until DrainBy when the host registered. A host counts from its registration, because its clock may
	// differ from that of the store.
	DrainInMs int64 `json:"drainInMs,omitempty" doc:"Of a host that is drained: milliseconds from this registration until drainBy, 0 if that is past. Hosts use this, because clocks may differ"`
	Created   bool  `json:"-"`
}

// HostState is the state of a host.
type HostState string

// The states of hosts.
const (
	HostReady    HostState = "ready"
	HostDraining HostState = "draining" // it gets no more runs, and has some
	HostDrained  HostState = "drained"  // it gets no more runs, and has none
	HostSilent   HostState = "silent"   // it did not register again in time
)

// HostStates are all states of hosts.
var HostStates = []HostState{HostReady, HostDraining, HostDrained, HostSilent}

// HostQuery selects hosts.
type HostQuery struct {
	Grid  string
	State HostState
	Label string // NAME or NAME=VALUE

	Limit  int // 1 to perdure.MaxListLimit; 0: perdure.DefaultListLimit
	Cursor string
}

// HostDrain is the request to drain a host.
type HostDrain struct {
	Name     string
	Deadline time.Duration // how long the runs may go on, up to MaxDrain
	Author   string
	Reason   string
}

// HostView is a host as operators see it.
type HostView struct {
	Name   string    `json:"name"`
	State  HostState `json:"state"`
	Holder string    `json:"holder"`
	HostSettings
	Used         perdure.Amounts  `json:"used" doc:"What its runs take"`
	NoSpace      bool             `json:"noSpace,omitempty" doc:"It can take nothing at present: all of its capacities are 0, as when its state directory is full"`
	Runs         int              `json:"runs" doc:"The number of its runs, at most 1,000"`
	Drain        *HostDrainView   `json:"drain,omitempty"`
	Reservation  *HostReservation `json:"reservation,omitempty" doc:"The step for which it is kept: it gets only runs that do not delay this step"`
	RegisteredAt time.Time        `json:"registeredAt"`
	SeenAt       time.Time        `json:"seenAt"`
	InFlight     []HostRun        `json:"inFlight,omitempty" doc:"Its runs. A list of hosts does not have them"`
}

// HostDrainView says who drains a host, why and until when.
type HostDrainView struct {
	By     time.Time `json:"by" doc:"When its runs are to be stopped"`
	Author string    `json:"author,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// HostReservation is the step for which a host is kept, because the step has waited long for room.
type HostReservation struct {
	Job   perdure.JobID `json:"job"`
	Step  string        `json:"step"`
	Since time.Time     `json:"since"`
	Until time.Time     `json:"until" doc:"It ends by then"`
}

// HostRun is a run of a host.
type HostRun struct {
	Job       perdure.JobID    `json:"job"`
	Step      string           `json:"step"`
	Run       int64            `json:"run"`
	Agent     string           `json:"agent"`
	Requires  perdure.Requires `json:"requires"`
	StartedAt time.Time        `json:"startedAt"`
}

// Check returns what is wrong with the request; nil if it is valid.
func (r *HostRequest) Check() error {
	var faults []perdure.FieldError
	fault := func(pointer, format string, args ...any) {
		faults = append(faults, perdure.FieldError{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
	}
	if err := plain.CheckHostWord(r.Name); err != nil {
		return perdure.Refuse(perdure.CodeInvalid, "the name of a host %s", err.Error())
	}
	if r.Incarnation == "" {
		fault("/incarnation", "is required")
	}
	for _, word := range []struct{ name, value string }{{"incarnation", r.Incarnation}, {"boot", r.Boot}, {"grid", r.Grid}} {
		if err := plain.CheckHostWord(word.value); word.value != "" && err != nil {
			fault("/"+word.name, "%s", err.Error())
		}
	}
	if len(r.Version) > MaxHostVersion || !plain.IsText(r.Version) {
		fault("/version", "has more than %d bytes, or is no text", MaxHostVersion)
	}
	if h := time.Duration(r.Heartbeat); h != 0 && (h < MinHostHeartbeat || h > MaxHostHeartbeat) {
		fault("/heartbeat", "is 1s to 1h")
	}
	if len(r.Labels) > perdure.MaxLabels {
		fault("/labels", "has %d labels; at most %d", len(r.Labels), perdure.MaxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		if err := cmp.Or(plain.CheckHostWord(name), plain.CheckHostWord(r.Labels[name])); err != nil {
			fault("/labels/"+name, "%s", err.Error())
		} else if name == plain.HostLabel {
			fault("/labels/"+name, "is a label that each host has: its name")
		}
	}
	checkAmounts(r.Capacity, "/capacity", fault)
	if len(faults) == 0 {
		return nil
	}
	return (&perdure.Error{Code: perdure.CodeInvalid, Fields: faults}).WithoutLines()
}

// checkAmounts reports amounts of a host that are not valid.
func checkAmounts(of perdure.Amounts, pointer string, fault func(pointer, format string, args ...any)) {
	if len(of) > perdure.MaxAmounts {
		fault(pointer, "has %d amounts; at most %d", len(of), perdure.MaxAmounts)
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		switch err := plain.CheckHostWord(name); {
		case err != nil:
			fault(pointer+"/"+name, "the name %s", err.Error())
		case name == "labels" || name == "grid":
			fault(pointer+"/"+name, "cannot be the name of an amount")
		case of[name] < 0 || of[name] > plain.MaxAmount:
			fault(pointer+"/"+name, "is 0 to %s", plain.AmountText(name, plain.MaxAmount))
		}
	}
}

// CheckFree returns what is wrong with the amounts that a claim says are free; nil if nothing is.
func CheckFree(free perdure.Amounts) error {
	var faults []perdure.FieldError
	checkAmounts(free, "/free", func(pointer, format string, args ...any) {
		faults = append(faults, perdure.FieldError{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
	})
	if len(faults) == 0 {
		return nil
	}
	return (&perdure.Error{Code: perdure.CodeInvalid, Fields: faults}).WithoutLines()
}

// Check returns what is wrong with the request; nil if it is valid.
func (d *HostDrain) Check() error {
	switch {
	case d.Deadline < 0 || d.Deadline > MaxDrain:
		return perdure.Refuse(perdure.CodeInvalid, "deadline is 0s to %s", plain.Duration(MaxDrain))
	case len(d.Reason) > perdure.MaxReasonBytes || !plain.IsText(d.Reason):
		return perdure.Refuse(perdure.CodeInvalid, "reason has more than %d bytes, or is no text", perdure.MaxReasonBytes)
	}
	return nil
}

// AmountText returns an amount as people write it: 1500 of cpu is "1.5", and 1 << 30 of memory is "1GiB".
func AmountText(name string, n int64) string { return plain.AmountText(name, n) }
