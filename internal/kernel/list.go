package kernel

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// JobFilter selects jobs for a list, newest first. A field that is empty selects all.
type JobFilter struct {
	Phases  []perdure.Phase // any of these; none of them twice
	Type    string
	Current *perdure.State
	Desired *perdure.State
	Key     string
	Labels  map[string]string // all of them

	// Agent, Step and ErrorCode select unsettled jobs with a step in front (Step.InFront) that has all of these values.
	// ErrorCode is that of the step's latest failure.
	Agent     string
	Step      string
	ErrorCode string
	// Alert selects jobs with an open alert of this kind.
	Alert perdure.AlertKind

	Before    perdure.JobID // only jobs older than this one; zero: from the newest
	After     perdure.JobID // only jobs newer than this one; zero: to the oldest
	Ascending bool          // oldest first
	Limit     int           // 0: DefaultListLimit
	// MaxRead bounds the entries that are read from each source of the list (SourcesOf); 0: no bound.
	MaxRead int
}

// MaxLabelNames is how many names of labels SearchJobs searches.
const MaxLabelNames = 100

// OfSteps reports whether the filter concerns steps.
func (f *JobFilter) OfSteps() bool { return f.Agent != "" || f.Step != "" || f.ErrorCode != "" }

// InFront reports whether the step is open and waits for no other step: it waits for a time, is ready, runs, or is
// parked.
func (s *Step) InFront() bool { return s.Phase != perdure.Settled && s.Blockers == 0 }

// Matches reports whether a job matches the filter, apart from Before and After. steps and alerts are those of the job;
// they are needed only if the filter concerns them.
func (f *JobFilter) Matches(j *Job, steps []*Step, alerts []Alert) bool {
	for name, value := range f.Labels {
		if have, ok := j.Labels[name]; !ok || have != value {
			return false
		}
	}
	return (len(f.Phases) == 0 || slices.Contains(f.Phases, j.Phase)) &&
		(f.Current == nil || j.Current == *f.Current) &&
		(f.Desired == nil || j.Desired == *f.Desired) &&
		(f.Type == "" || j.Type == f.Type) &&
		(f.Key == "" || j.Key == f.Key) &&
		(!f.OfSteps() || j.Phase != perdure.Settled && slices.ContainsFunc(steps, f.matchesStep)) &&
		(f.Alert == "" || slices.ContainsFunc(alerts, func(a Alert) bool { return a.Kind == f.Alert && a.ClosedAt.IsZero() }))
}

func (f *JobFilter) matchesStep(s *Step) bool {
	return s.InFront() &&
		(f.Agent == "" || s.Agent == f.Agent) &&
		(f.Step == "" || s.Name == f.Step) &&
		(f.ErrorCode == "" || s.ErrorCode == f.ErrorCode)
}

// Exception is a reason why a job is listed in table exception of a SQL store. Most jobs are never listed there, so
// operators find the few among many.
type Exception uint8

const (
	ExceptionParked  Exception = iota + 1 // the job is parked
	ExceptionUndoing                      // the job is to be undone, and is not settled
	ExceptionNotDone                      // the job has settled, and not as a job that is wanted done and is done
)

func (x Exception) String() string {
	return [...]string{"", "parked", "being undone", "not done"}[x]
}

// Exceptions are the reasons for which a job is listed in table exception: at most two.
type Exceptions struct{ Parked, Undoing, NotDone bool }

// ExceptionsOf returns the reasons for which a job is listed in table exception.
func ExceptionsOf(j *Job) Exceptions {
	settled := j.Phase == perdure.Settled
	return Exceptions{
		Parked:  j.Phase == perdure.Parked,
		Undoing: !settled && j.Desired == perdure.Undone,
		NotDone: settled && (j.Current != perdure.Done || j.Desired != perdure.Done),
	}
}

// List returns the reasons that hold, in order.
func (e Exceptions) List() (list []Exception) {
	for _, x := range []struct {
		holds bool
		kind  Exception
	}{{e.Parked, ExceptionParked}, {e.Undoing, ExceptionUndoing}, {e.NotDone, ExceptionNotDone}} {
		if x.holds {
			list = append(list, x.kind)
		}
	}
	return list
}

// Source is a set of jobs that a store can read in the order of their ids, through an index.
type Source uint8

const (
	AllJobs      Source = iota
	JobOfKey            // the job with the key
	JobsOfLabel         // the jobs with the first label, in the order of names
	JobsOfType          // the jobs of the type
	JobsOfAlert         // the jobs with an open alert of the kind
	JobsInFlight        // the jobs with a run in flight
	JobsIdle            // the unsettled jobs without a run in flight
	JobsExcepted        // not a source: the sources after it are the jobs with one exception each (Source.Exception)
	jobsParked   = JobsExcepted + Source(ExceptionParked)
	jobsUndoing  = JobsExcepted + Source(ExceptionUndoing)
	jobsNotDone  = JobsExcepted + Source(ExceptionNotDone)
)

// Exception returns the exception by which the source is found; 0: it is another source.
func (s Source) Exception() Exception {
	if s > JobsExcepted {
		return Exception(s - JobsExcepted)
	}
	return 0
}

// SourcesOf returns sources which together contain all jobs that may match a filter. No job is in two of them. They are
// the smallest ones, as far as the filter alone says. A store compares the filter with each job that it reads from them.
func SourcesOf(f *JobFilter) []Source {
	byState := sourcesByState(f)
	few := len(byState) > 0 && !slices.Contains(byState, JobsIdle) && !slices.Contains(byState, jobsNotDone)
	switch {
	case f.Key != "":
		return []Source{JobOfKey}
	case few:
		return byState
	case f.Alert != "":
		return []Source{JobsOfAlert}
	case len(f.Labels) > 0:
		return []Source{JobsOfLabel}
	case len(byState) > 0:
		return byState
	case f.Type != "":
		return []Source{JobsOfType}
	}
	return []Source{AllJobs}
}

// sourcesByState returns sources that contain all jobs which the states of the filter allow. It returns none if these
// allow jobs that are settled, done and wanted done: only AllJobs contains those.
func sourcesByState(f *JobFilter) (sources []Source) {
	phases := f.Phases
	if len(phases) == 0 {
		phases = []perdure.Phase{perdure.Settled, perdure.Waiting, perdure.Running, perdure.Parked}
		if f.OfSteps() { // a settled job has no open step
			phases = phases[1:]
		}
	}
	undoing := f.Desired != nil && *f.Desired == perdure.Undone
	idle := !undoing && slices.Contains(phases, perdure.Waiting)
	for _, p := range phases {
		switch {
		case p == perdure.Settled && !undoing && (f.Current == nil || *f.Current == perdure.Done):
			return nil
		case p == perdure.Settled:
			sources = append(sources, jobsNotDone)
		case undoing:
			if !slices.Contains(sources, jobsUndoing) {
				sources = append(sources, jobsUndoing)
			}
		case p == perdure.Running:
			sources = append(sources, JobsInFlight)
		case p == perdure.Parked && !idle:
			sources = append(sources, jobsParked)
		case p == perdure.Waiting:
			sources = append(sources, JobsIdle)
		}
	}
	return sources
}

// Covers reports whether all jobs of the source match the filter, apart from Before and After. Then a page of a list
// reads no more jobs than it has.
func (s Source) Covers(f *JobFilter) bool {
	rest := *f
	switch s {
	case AllJobs:
	case JobOfKey:
		rest.Key = ""
	case JobsOfType:
		rest.Type = ""
	case JobsOfLabel:
		if len(f.Labels) == 1 {
			rest.Labels = nil
		}
	case jobsParked:
		rest.Phases = nil
	default:
		return false
	}
	return len(rest.Phases) == 0 && rest.Type == "" && rest.Current == nil && rest.Desired == nil && rest.Key == "" && len(rest.Labels) == 0 && !rest.OfSteps() && rest.Alert == ""
}

// NewestFirst sorts ids, without repeated ones.
func NewestFirst(ids []perdure.JobID) []perdure.JobID {
	slices.SortFunc(ids, func(a, b perdure.JobID) int { return b.Compare(a) })
	return slices.Compact(ids)
}

// IDRange returns the first and the last id that begin with a text, with or without "job_". ok is false if none can.
func IDRange(text string) (low, high perdure.JobID, ok bool) {
	digits := strings.TrimPrefix(text, "job_")
	rest := 2*len(low) - len(digits)
	if digits == "" || rest < 0 {
		return low, high, false
	}
	low, err := perdure.ParseJobID("job_" + digits + strings.Repeat("0", rest))
	if err != nil {
		return low, high, false
	}
	high, err = perdure.ParseJobID("job_" + digits + strings.Repeat("f", rest))
	return low, high, err == nil
}

// IDAt returns an id that is lower than those of all jobs submitted at a time or later, to the millisecond, and higher
// than those of all jobs submitted earlier: ids begin with the time (UUIDv7).
func IDAt(t time.Time) (id perdure.JobID) {
	binary.BigEndian.PutUint64(id[:], uint64(max(t.UnixMilli(), 0))<<16)
	return id
}

// TimeOf returns when a job was submitted, to the millisecond, from its id.
func TimeOf(id perdure.JobID) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:]) >> 16)).UTC()
}
