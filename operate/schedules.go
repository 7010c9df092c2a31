package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Schedules starts jobs at given times.
//
// A schedule has a rule of times and a job. Each time of the rule is a nominal time. The leader of the role supervisor
// submits one job for it, under the key @schedule:NAME:NOMINAL, so that there is never a second one for the same time.
type Schedules interface {
	// PutSchedule creates a schedule, or replaces the settings of one. Its state and its history are kept.
	PutSchedule(context.Context, ScheduleRequest) (v *ScheduleView, created bool, err error)
	GetSchedule(ctx context.Context, name string) (*ScheduleView, error)
	// ListSchedules returns schedules in the order of their names.
	ListSchedules(context.Context, ScheduleQuery) (*perdure.Page[ScheduleView], error)
	// DeleteSchedule deletes a schedule and its history. Its jobs stay.
	DeleteSchedule(ctx context.Context, name, author string) error
	// PauseSchedule ends the firings, also those of a backfill. ResumeSchedule starts them again.
	PauseSchedule(context.Context, SchedulePause) (*ScheduleView, error)
	ResumeSchedule(context.Context, ScheduleResume) (*ScheduleView, error)
	// TriggerSchedule submits the job of one time at once, whatever the overlap rule says, and also while the schedule is
	// paused. If that time has a job already, it returns that one.
	TriggerSchedule(context.Context, ScheduleTrigger) (*ScheduleFired, error)
	// BackfillSchedule submits the jobs of past times that have none. Only one backfill of a schedule runs at a time.
	BackfillSchedule(context.Context, ScheduleBackfill) (*BackfillView, error)
	// NextTimes returns the next n nominal times; fewer if the rule ends.
	NextTimes(ctx context.Context, name string, n int) ([]time.Time, error)
	// ListFirings returns the history of a schedule, newest first.
	ListFirings(context.Context, FiringQuery) (*perdure.Page[Firing], error)
}

// Bounds of schedules.
const (
	MaxSchedules         = 10_000
	MaxScheduleName      = 64
	MaxScheduleBytes     = 256 << 10 // the settings of one schedule, with its definition
	MaxScheduleRules     = 20        // texts of cron
	MaxScheduleTimes     = 1000      // elements of at
	MinSchedulePeriod    = time.Second
	MaxScheduleJitter    = 24 * time.Hour
	MaxScheduleQueue     = 100  // nominal times that wait for the job before them
	MaxScheduleFailures  = 1000 // pauseAfter
	MaxCatchUp           = 1000
	DefaultCatchUp       = 1
	DefaultCatchUpWithin = time.Hour
	DefaultNextTimes     = 5
	MaxNextTimes         = 100
	MaxFiringsASecond    = 1000   // of all schedules together
	MaxBackfill          = 10_000 // nominal times of one backfill
	DefaultParallel      = 4
	MaxParallel          = 100 // unsettled jobs of one backfill
	FiringKept           = 90 * 24 * time.Hour
)

// ScheduleOverlap says what happens at a nominal time while an earlier job of the schedule has not settled.
type ScheduleOverlap string

// The rules for overlaps.
const (
	OverlapSkip    ScheduleOverlap = "skip"    // the time gets no job, and that is recorded
	OverlapQueue   ScheduleOverlap = "queue"   // the job is submitted when the one before has settled
	OverlapAllow   ScheduleOverlap = "allow"   // the job is submitted
	OverlapReplace ScheduleOverlap = "replace" // the earlier job is undone, and the new one submitted when it has settled
)

// ScheduleOverlaps are all rules for overlaps.
var ScheduleOverlaps = []ScheduleOverlap{OverlapSkip, OverlapQueue, OverlapAllow, OverlapReplace}

// ScheduleCron is one cron text or several. A schedule fires at the times of all of them. In JSON it is a text or a list.
type ScheduleCron []string

// MarshalJSON implements json.Marshaler.
func (c ScheduleCron) MarshalJSON() ([]byte, error) {
	if len(c) == 1 {
		return json.Marshal(c[0])
	}
	return json.Marshal([]string(c))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *ScheduleCron) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(c))
	}
	var one string
	if err := json.Unmarshal(b, &one); err != nil {
		return fmt.Errorf("cron is a text or a list of texts: %w", err)
	}
	*c = ScheduleCron{one}
	return nil
}

// ScheduleSettings are what a user sets of a schedule. It has exactly one of Cron, Every and At.
type ScheduleSettings struct {
	Cron       ScheduleCron     `json:"cron,omitempty"`     // five fields, or a word such as @daily
	Every      perdure.Duration `json:"every,omitempty"`    // counted from From; without it, from the beginning of 1970 in UTC
	At         []time.Time      `json:"at,omitempty"`       // single times
	Timezone   string           `json:"timezone,omitempty"` // of cron: a name of the IANA database; empty: UTC
	Job        ScheduleJob      `json:"job"`
	Overlap    ScheduleOverlap  `json:"overlap,omitempty"` // empty: OverlapSkip
	CatchUp    *ScheduleCatchUp `json:"catchUp,omitempty"` // nil: the latest time of the last hour
	Jitter     perdure.Duration `json:"jitter,omitempty"`  // each firing is late by a part of it, which depends on its name and time only
	PauseAfter int              `json:"pauseAfter,omitempty"`
	From       *time.Time       `json:"from,omitempty"`  // no nominal time is earlier
	Until      *time.Time       `json:"until,omitempty"` // all nominal times are earlier
	// Paused pauses or resumes the schedule. nil: a new schedule is not paused, and an existing one stays as it is.
	Paused *bool `json:"paused,omitempty"`
}

// ScheduleJob is the job that a schedule submits. ${schedule.time}, ${schedule.previous} and ${schedule.name} in its texts are
// replaced by the nominal time, the nominal time before it by the rule (empty if there is none), and the name of the schedule.
type ScheduleJob struct {
	Definition json.RawMessage   `json:"definition"` // an object, or the text of a job file; it has no key
	Input      json.RawMessage   `json:"input,omitempty"`
	Priority   *int              `json:"priority,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// ScheduleCatchUp says which nominal times that passed without a firing still get a job: of those within a time, the latest.
type ScheduleCatchUp struct {
	Within *perdure.Duration `json:"within,omitempty"` // nil: DefaultCatchUpWithin
	Max    *int              `json:"max,omitempty"`    // nil: DefaultCatchUp
}

// OverlapRule returns the rule for overlaps, with its default.
func (s *ScheduleSettings) OverlapRule() ScheduleOverlap {
	if s.Overlap == "" {
		return OverlapSkip
	}
	return s.Overlap
}

// Catches returns the bounds of what is caught up, with their defaults.
func (s *ScheduleSettings) Catches() (within time.Duration, max int) {
	within, max = DefaultCatchUpWithin, DefaultCatchUp
	if c := s.CatchUp; c != nil && c.Within != nil {
		within = time.Duration(*c.Within)
	}
	if c := s.CatchUp; c != nil && c.Max != nil {
		max = *c.Max
	}
	return within, max
}

// ScheduleRequest creates a schedule or replaces its settings.
type ScheduleRequest struct {
	Name   string
	Author string
	DryRun bool // apply all rules, store nothing, and return the schedule as it would be; created then has no meaning
	ScheduleSettings
}

// CheckScheduleName returns an error with CodeInvalid if name cannot be the name of a schedule.
func CheckScheduleName(name string) error {
	if len(name) > MaxScheduleName || !plain.IsName(name) {
		e := perdure.Refuse(perdure.CodeInvalid, "invalid name of a schedule: use 1 to %d letters, digits, \".\", \"_\" and \"-\", the first a letter or digit", MaxScheduleName)
		e.Fields = []perdure.FieldError{{Pointer: "/path/name", Message: e.Message}}
		return e
	}
	return nil
}

// Check returns an error with CodeInvalid if the name or the settings are not possible. It does not read the rule of times
// or the definition: the node does.
func (r *ScheduleRequest) Check() error {
	if err := CheckScheduleName(r.Name); err != nil {
		return err
	}
	rules := 0
	for _, given := range []bool{r.Cron != nil, r.Every != 0, r.At != nil} {
		if given {
			rules++
		}
	}
	within, most := r.Catches()
	switch {
	case rules == 0:
		return refuseField("/cron", "give cron, every or at", "is missing: a schedule needs a rule of times")
	case rules > 1:
		return refuseField("/cron", "give one of cron, every and at", "a schedule has one rule of times, not %d", rules)
	case r.Timezone != "" && r.Cron == nil:
		return refuseField("/timezone", "leave it out", "only cron has a time zone: every and at are points in time")
	case len(r.Timezone) > perdure.MaxNameLength:
		return refuseField("/timezone", "", "is longer than %d bytes", perdure.MaxNameLength)
	case len(r.Job.Definition) == 0:
		return refuseField("/job/definition", "give the definition of the job, as in a submission", "is missing")
	case r.Job.Priority != nil && (*r.Job.Priority < 0 || *r.Job.Priority > perdure.MaxPriority):
		return refuseField("/job/priority", "", "is %d; a priority is 0 to %d", *r.Job.Priority, perdure.MaxPriority)
	case r.Overlap != "" && !contains(ScheduleOverlaps, r.Overlap):
		return refuseField("/overlap", "use skip, queue, allow or replace", "is not a rule for overlaps")
	case within < 0 || within > perdure.MaxDuration:
		return refuseField("/catchUp/within", "", "is %s; it is 0s to %s", plain.Duration(within), plain.Duration(perdure.MaxDuration))
	case most < 0 || most > MaxCatchUp:
		return refuseField("/catchUp/max", "", "is %d; it is 0 to %d", most, MaxCatchUp)
	case r.Jitter < 0 || time.Duration(r.Jitter) > MaxScheduleJitter:
		return refuseField("/jitter", "", "is %s; it is 0s to %s", plain.Duration(time.Duration(r.Jitter)), plain.Duration(MaxScheduleJitter))
	case r.PauseAfter < 0 || r.PauseAfter > MaxScheduleFailures:
		return refuseField("/pauseAfter", "", "is %d; it is 0 (never) to %d", r.PauseAfter, MaxScheduleFailures)
	case r.From != nil && r.Until != nil && !r.From.Before(*r.Until):
		return refuseField("/until", "give a later time, or leave it out", "is not later than from: there is no time between them")
	}
	return nil
}

func contains[T comparable](all []T, one T) bool {
	for _, x := range all {
		if x == one {
			return true
		}
	}
	return false
}

// SchedulePause pauses a schedule.
type SchedulePause struct {
	Name   string `json:"-"`
	Author string `json:"-"`
	Reason string `json:"reason,omitempty"`
}

// Check returns an error with CodeInvalid if the reason is not possible.
func (p *SchedulePause) Check() error {
	if len(p.Reason) > perdure.MaxReasonBytes || !utf8.ValidString(p.Reason) {
		return refuseField("/reason", "", "is not UTF-8 of at most %d bytes", perdure.MaxReasonBytes)
	}
	return nil
}

// ScheduleResume resumes a schedule. The nominal times that have passed meanwhile are left out. With CatchUp they are
// caught up as after an outage.
type ScheduleResume struct {
	Name    string `json:"-"`
	Author  string `json:"-"`
	CatchUp bool   `json:"catchUp,omitempty"`
}

// ScheduleTrigger submits a job of a schedule at once, for a nominal time; zero: now, in whole seconds.
type ScheduleTrigger struct {
	Name   string    `json:"-"`
	Author string    `json:"-"`
	At     time.Time `json:"at,omitzero"`
}

// ScheduleFired is the job that was submitted for a nominal time.
type ScheduleFired struct {
	Time    time.Time     `json:"time"`
	Job     perdure.JobID `json:"job"`
	Created bool          `json:"created"` // false: the time had this job already
	// Unscheduled: the rule does not name the time.
	Unscheduled bool `json:"unscheduled,omitempty"`
}

// ScheduleBackfill submits the jobs of the nominal times in [From, To) that have none.
type ScheduleBackfill struct {
	Name     string    `json:"-"`
	Author   string    `json:"-"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Parallel int       `json:"parallel,omitempty"` // unsettled jobs at once; 0: DefaultParallel
	DryRun   bool      `json:"dryRun,omitempty"`   // store nothing
	Again    bool      `json:"again,omitempty"`    // all times get a new job, also those that have one
}

// Check returns an error with CodeInvalid if the backfill is not possible.
func (b *ScheduleBackfill) Check() error {
	switch {
	case b.From.IsZero():
		return refuseField("/from", "give the first nominal time", "is missing")
	case b.To.IsZero():
		return refuseField("/to", "give a time after the last nominal time", "is missing")
	case !b.From.Before(b.To):
		return refuseField("/to", "give a later time", "is not later than from: there is no time between them")
	case b.Parallel < 0 || b.Parallel > MaxParallel:
		return refuseField("/parallel", "", "is %d; it is 1 to %d", b.Parallel, MaxParallel)
	}
	return nil
}

// BackfillView is a backfill: how many nominal times it has, and how far it is.
type BackfillView struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Parallel int       `json:"parallel"`
	Again    int       `json:"again,omitempty"` // the number in the keys of its jobs; 0: they have the keys of the first firing
	Times    int       `json:"times,omitempty"` // nominal times
	Ready    int       `json:"ready,omitempty"` // of these, those that get a job
	// First are the first of these times, at most MaxNextTimes.
	First []time.Time `json:"first,omitempty"`
	Next  time.Time   `json:"next,omitzero"` // all times before it have got their job; zero: all have
}

// ScheduleState says whether a schedule fires.
type ScheduleState string

// The states of a schedule.
const (
	ScheduleActive ScheduleState = "active"
	SchedulePaused ScheduleState = "paused"
	ScheduleEnded  ScheduleState = "ended" // its rule has no more times
)

// ScheduleStates are all states of schedules.
var ScheduleStates = []ScheduleState{ScheduleActive, SchedulePaused, ScheduleEnded}

// ScheduleView is a schedule, what it does next, and what it has done.
type ScheduleView struct {
	Name    string `json:"name"`
	Version int64  `json:"version"` // grows with each change of the settings
	ScheduleSettings
	State        ScheduleState   `json:"state"`
	PausedReason string          `json:"pausedReason,omitempty"`
	Next         []time.Time     `json:"next"` // nominal times
	Last         *ScheduleLast   `json:"last,omitempty"`
	Running      []perdure.JobID `json:"running"`           // jobs that have not settled, at most MaxNextTimes
	Waiting      []time.Time     `json:"waiting,omitempty"` // nominal times that wait for the job before them
	Fired        int64           `json:"fired"`             // jobs that were submitted
	Failures     int             `json:"failures,omitempty"`
	Skipped      ScheduleSkipped `json:"skipped"`
	Backfill     *BackfillView   `json:"backfill,omitempty"` // the one that runs
	CreatedAt    time.Time       `json:"createdAt"`
	UpdatedAt    time.Time       `json:"updatedAt"`
}

// ScheduleLast is the latest nominal time that has got a job.
type ScheduleLast struct {
	Time time.Time     `json:"time"`
	Job  perdure.JobID `json:"job"`
}

// ScheduleSkipped counts nominal times that got no job.
type ScheduleSkipped struct {
	Overlap int64 `json:"overlap"` // an earlier job had not settled, or the queue was full
	CatchUp int64 `json:"catchUp"` // they had passed, and were not caught up
}

// ScheduleQuery selects schedules in the order of their names.
type ScheduleQuery struct {
	State  ScheduleState // "": all
	Limit  int           // 0: DefaultListLimit
	Cursor string
}

// FiringState says what became of a nominal time.
type FiringState string

// The states of firings.
const (
	FiringWaiting FiringState = "waiting" // for the job before it
	FiringRunning FiringState = "running" // its job has not settled
	FiringParked  FiringState = "parked"  // its job is parked
	FiringDone    FiringState = "done"    // its job has settled, as have the next two
	FiringUndone  FiringState = "undone"
	FiringUnsure  FiringState = "unsure"
	FiringSkipped FiringState = "skipped" // it got no job
)

// FiringStates are all states of firings.
var FiringStates = []FiringState{FiringWaiting, FiringRunning, FiringParked, FiringDone, FiringUndone, FiringUnsure, FiringSkipped}

// FiringReason says why a nominal time got no job, or a job in another way than by its rule.
type FiringReason string

// The reasons.
const (
	FiringOverlap  FiringReason = "overlap"  // an earlier job had not settled, or the queue was full
	FiringCatchUp  FiringReason = "catchUp"  // it had passed, and was not caught up
	FiringRefused  FiringReason = "refused"  // its job was refused
	FiringReplaced FiringReason = "replaced" // its job was undone in favour of the next one
	FiringTrigger  FiringReason = "trigger"  // an operator has triggered it
	FiringBackfill FiringReason = "backfill"
)

// FiringReasons are all reasons.
var FiringReasons = []FiringReason{FiringOverlap, FiringCatchUp, FiringRefused, FiringReplaced, FiringTrigger, FiringBackfill}

// Firing is a line of the history of a schedule: a nominal time and its job, or nominal times that got none.
type Firing struct {
	Time   time.Time     `json:"time"`            // the nominal time
	To     time.Time     `json:"to,omitzero"`     // the last one, if the line stands for several
	Times  int64         `json:"times,omitempty"` // how many, if they are several
	Again  int           `json:"again,omitempty"`
	State  FiringState   `json:"state"`
	Reason FiringReason  `json:"reason,omitempty"`
	Job    perdure.JobID `json:"job,omitzero"`
	At     time.Time     `json:"at"` // when the line was written
}

// FiringQuery selects lines of the history of a schedule, newest first.
type FiringQuery struct {
	Name   string
	Limit  int // 0: DefaultListLimit
	Cursor string
}
