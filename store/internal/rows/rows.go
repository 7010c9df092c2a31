// Package rows is the table of the columns in which both SQL stores keep a job and its steps: the name of each column,
// its kind, and the position of its value in kernel.Job or kernel.Step. The diffs, writers and readers of both stores
// are driven by it. So a new field of a step is one line here, and one in each store's migration.
package rows

import (
	"iter"
	"math/bits"
	"time"
	"unsafe"

	"github.com/perdure/perdure/internal/kernel"
)

// Column is one column of table step. The job's columns are only in the row of its first step.
type Column struct {
	Name string
	Kind Kind
	Job  bool // it belongs to the job, otherwise to the step
	Full bool // the zero value is stored, too; of other columns it is stored as null

	offset uintptr
}

// Kind is the Go type of a value.
type Kind uint8

const (
	Special Kind = iota // never changes; each store has code of its own for it
	Small               // uint8: State, Phase, Direction, Outcome, Edited
	Flag                // bool
	Int                 // int
	Number              // int64
	Text                // string
	Word                // string with few different values
	Time                // time.Time, to the microsecond
	Span                // time.Duration, to the microsecond
)

// ID is the position of a column in Columns.
type ID uint8

// The columns that never change. A job and its steps have the same Type and Priority.
const (
	Job ID = iota
	Index
	Priority
	Apart
	CreatedAt
	Shape
	Hash
	Name
	Type
	Key
	Input
	Labels
	States

	firstChanging
)

var (
	step kernel.Step
	job  kernel.Job
)

// Columns are all of them: those that never change, those of steps, those of jobs.
var Columns = [...]Column{
	Job:       {Name: "job"},
	Index:     {Name: "idx"},
	Priority:  {Name: "priority"},
	Apart:     {Name: "apart", Job: true},
	CreatedAt: {Name: "created_at", Job: true},
	Shape:     {Name: "shape", Job: true},
	Hash:      {Name: "hash", Job: true},
	Name:      {Name: "name"},
	Type:      {Name: "type"},
	Key:       {Name: "job_key", Job: true},
	Input:     {Name: "input", Job: true},
	Labels:    {Name: "labels", Job: true},
	States:    {Name: "states", Job: true},

	{"run", Number, false, true, unsafe.Offsetof(step.Run)},
	{"current", Small, false, true, unsafe.Offsetof(step.Current)},
	{"desired", Small, false, true, unsafe.Offsetof(step.Desired)},
	{"phase", Small, false, true, unsafe.Offsetof(step.Phase)},
	{"direction", Small, false, false, unsafe.Offsetof(step.Direction)},
	{"was", Small, false, false, unsafe.Offsetof(step.CurrentBeforeRun)},
	{"turn", Int, false, false, unsafe.Offsetof(step.Turn)},
	{"agent", Word, false, false, unsafe.Offsetof(step.Agent)},
	{"locked_by", Word, false, false, unsafe.Offsetof(step.LockedBy)},
	{"request", Word, false, false, unsafe.Offsetof(step.Request)},
	{"complete_by", Time, false, false, unsafe.Offsetof(step.CompleteBy)},
	{"locked_until", Time, false, false, unsafe.Offsetof(step.LockedUntil)},
	{"heartbeat", Span, false, false, unsafe.Offsetof(step.Heartbeat)},
	{"available_at", Time, false, false, unsafe.Offsetof(step.AvailableAt)},
	{"outcome", Small, false, false, unsafe.Offsetof(step.Outcome)},
	{"has_output", Flag, false, false, unsafe.Offsetof(step.HasOutput)},
	{"own_input", Flag, false, false, unsafe.Offsetof(step.OwnInput)},
	{"ageing", Span, false, false, unsafe.Offsetof(step.Ageing)},
	{"limits", Text, false, false, unsafe.Offsetof(step.Needs)},
	{"blockers", Int, false, false, unsafe.Offsetof(step.Blockers)},
	{"ready_at", Time, false, false, unsafe.Offsetof(step.ReadyAt)},
	{"started_at", Time, false, false, unsafe.Offsetof(step.StartedAt)},
	{"ended_at", Time, false, false, unsafe.Offsetof(step.EndedAt)},
	{"updated_at", Time, false, false, unsafe.Offsetof(step.UpdatedAt)},
	{"skipped", Flag, false, false, unsafe.Offsetof(step.Skipped)},
	{"failures", Int, false, false, unsafe.Offsetof(step.Failures)},
	{"rung", Int, false, false, unsafe.Offsetof(step.Rung)},
	{"waits", Int, false, false, unsafe.Offsetof(step.Waits)},
	{"returns", Int, false, false, unsafe.Offsetof(step.Returns)},
	{"error_code", Text, false, false, unsafe.Offsetof(step.ErrorCode)},
	{"last_error", Text, false, false, unsafe.Offsetof(step.LastError)},
	{"progress", Text, false, false, unsafe.Offsetof(step.Progress)},
	{"progress_at", Time, false, false, unsafe.Offsetof(step.ProgressAt)},
	{"stop_requested_at", Time, false, false, unsafe.Offsetof(step.StopRequestedAt)},
	{"host", Word, false, false, unsafe.Offsetof(step.Host)},
	{"topic", Text, false, false, unsafe.Offsetof(step.Topic)},
	{"approval", Text, false, false, unsafe.Offsetof(step.Approval)},
	{"children", Text, false, false, unsafe.Offsetof(step.Children)},
	{"owns", Flag, false, false, unsafe.Offsetof(step.Owns)},
	{"edited", Small, false, false, unsafe.Offsetof(step.Edited)},
	{"given_up", Flag, false, false, unsafe.Offsetof(step.GivenUp)},

	{"job_current", Small, true, true, unsafe.Offsetof(job.Current)},
	{"job_desired", Small, true, true, unsafe.Offsetof(job.Desired)},
	{"job_phase", Small, true, true, unsafe.Offsetof(job.Phase)},
	{"unsettled", Int, true, true, unsafe.Offsetof(job.Unsettled)},
	{"running", Int, true, true, unsafe.Offsetof(job.Running)},
	{"active", Int, true, true, unsafe.Offsetof(job.Active)},
	{"permit", Flag, true, false, unsafe.Offsetof(job.HasPermit)},
	{"job_complete_by", Time, true, false, unsafe.Offsetof(job.CompleteBy)},
	{"parked_at", Time, true, false, unsafe.Offsetof(job.ParkedAt)},
	{"overdue", Flag, true, false, unsafe.Offsetof(job.Overdue)},
	{"alerted", Flag, true, false, unsafe.Offsetof(job.Alerted)},
	{"job_then", Flag, true, false, unsafe.Offsetof(job.RestartPending)},
	{"restarts", Int, true, false, unsafe.Offsetof(job.Restarts)},
	{"given_up_by", Text, true, false, unsafe.Offsetof(job.GivenUpBy)},
	{"given_up_reason", Text, true, false, unsafe.Offsetof(job.GivenUpReason)},
	{"job_updated_at", Time, true, false, unsafe.Offsetof(job.UpdatedAt)},
	{"settled_at", Time, true, false, unsafe.Offsetof(job.SettledAt)},
	{"reopened_at", Time, true, false, unsafe.Offsetof(job.ReopenedAt)},
	{"traceparent", Text, true, false, unsafe.Offsetof(job.Traceparent)},
	{"job_limits", Text, true, false, unsafe.Offsetof(job.Needs)},
	{"submitter", Text, true, false, unsafe.Offsetof(job.Submitter)},
	{"start_at", Time, true, false, unsafe.Offsetof(job.StartAt)},
	{"start_by", Time, true, false, unsafe.Offsetof(job.StartBy)},
	{"job_has_output", Flag, true, false, unsafe.Offsetof(job.HasOutput)},
	{"made_from", Text, true, false, unsafe.Offsetof(job.MadeFrom)},
	{"parent", Text, true, false, unsafe.Offsetof(job.Parent)},
	{"output_error", Text, true, false, unsafe.Offsetof(job.OutputError)},
}

// All is the number of columns. A store may use the IDs from All to MaxID for columns of its own.
const (
	All   = ID(len(Columns))
	MaxID = 127
)

// Of returns the column with a name.
func Of(name string) ID {
	for id := range All {
		if Columns[id].Name == name {
			return id
		}
	}
	panic("rows: there is no column " + name)
}

// firstOfJob is the first column of the job among the changing columns.
var firstOfJob = Of("job_current")

// OfStep and OfJob are the columns that change.
func OfStep() iter.Seq[ID] { return between(firstChanging, firstOfJob) }
func OfJob() iter.Seq[ID]  { return between(firstOfJob, All) }

func between(from, to ID) iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for id := from; id < to; id++ {
			if !yield(id) {
				return
			}
		}
	}
}

// Changes reports whether the column may change.
func (id ID) Changes() bool { return id >= firstChanging }

// Set is a set of columns.
type Set [2]uint64

// SetOf returns the set of these columns.
func SetOf(ids ...ID) (s Set) {
	for _, id := range ids {
		s.Add(id, true)
	}
	return s
}

func (s Set) Has(id ID) bool { return s[id/64]&(1<<(id%64)) != 0 }

// Add adds a column if cond is true.
func (s *Set) Add(id ID, cond bool) {
	if cond {
		s[id/64] |= 1 << (id % 64)
	}
}

func (s Set) Or(o Set) Set { return Set{s[0] | o[0], s[1] | o[1]} }
func (s Set) Empty() bool  { return s == Set{} }
func (s Set) Len() int     { return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) }

// IDs are the columns of the set, in order.
func (s Set) IDs(yield func(ID) bool) {
	for id, ok := s.Take(); ok && yield(id); id, ok = s.Take() {
	}
}

// Take removes the first column of the set.
func (s *Set) Take() (id ID, ok bool) {
	for word := range s {
		if set := s[word]; set != 0 {
			s[word] = set & (set - 1)
			return ID(64*word + bits.TrailingZeros64(set)), true
		}
	}
	return 0, false
}

// DiffSteps returns the columns in which two states of a step differ.
func DiffSteps(a, b *kernel.Step) Set { return stepFields.diff(unsafe.Pointer(a), unsafe.Pointer(b)) }

// DiffJobs returns the columns in which two states of a job differ.
func DiffJobs(a, b *kernel.Job) Set { return jobFields.diff(unsafe.Pointer(a), unsafe.Pointer(b)) }

// fields groups columns by how their values are compared. Checking the kind of each column in turn takes twice the time.
type fields struct{ bytes, ints, numbers, texts, times []field }

type field struct {
	id     ID
	offset uintptr
}

var stepFields, jobFields = fieldsOf(OfStep()), fieldsOf(OfJob())

func fieldsOf(ids iter.Seq[ID]) (f fields) {
	for id := range ids {
		c := &Columns[id]
		var of *[]field
		switch c.Kind {
		case Small, Flag:
			of = &f.bytes
		case Int:
			of = &f.ints
		case Number, Span:
			of = &f.numbers
		case Text, Word:
			of = &f.texts
		case Time:
			of = &f.times
		}
		*of = append(*of, field{id, c.offset})
	}
	return f
}

func (f *fields) diff(a, b unsafe.Pointer) (s Set) {
	for _, c := range f.bytes {
		s.Add(c.id, *(*uint8)(unsafe.Add(a, c.offset)) != *(*uint8)(unsafe.Add(b, c.offset)))
	}
	for _, c := range f.ints {
		s.Add(c.id, *(*int)(unsafe.Add(a, c.offset)) != *(*int)(unsafe.Add(b, c.offset)))
	}
	for _, c := range f.numbers {
		s.Add(c.id, *(*int64)(unsafe.Add(a, c.offset)) != *(*int64)(unsafe.Add(b, c.offset)))
	}
	for _, c := range f.texts {
		s.Add(c.id, *(*string)(unsafe.Add(a, c.offset)) != *(*string)(unsafe.Add(b, c.offset)))
	}
	for _, c := range f.times {
		x, y := (*time.Time)(unsafe.Add(a, c.offset)), (*time.Time)(unsafe.Add(b, c.offset))
		s.Add(c.id, *x != *y && !x.Equal(*y)) // mostly not even a bit differs
	}
	return s
}

// Row is a job, a step, or both, as the location of values.
type Row struct {
	job, step unsafe.Pointer
}

// RowOf returns the location of the values of a job and a step. One of them may be nil if its columns are not used.
func RowOf(j *kernel.Job, s *kernel.Step) Row { return Row{unsafe.Pointer(j), unsafe.Pointer(s)} }

func (r Row) at(c *Column) unsafe.Pointer {
	if c.Job {
		return unsafe.Add(r.job, c.offset)
	}
	return unsafe.Add(r.step, c.offset)
}

// Int returns a value of kind Small, Flag, Int, Number, or Span (in microseconds).
func (r Row) Int(c *Column) int64 {
	at := r.at(c)
	switch c.Kind {
	case Small, Flag:
		return int64(*(*uint8)(at))
	case Int:
		return int64(*(*int)(at))
	case Span:
		return (*(*time.Duration)(at)).Microseconds()
	}
	return *(*int64)(at)
}

// SetInt sets such a value.
func (r Row) SetInt(c *Column, v int64) {
	at := r.at(c)
	switch c.Kind {
	case Small:
		*(*uint8)(at) = uint8(v)
	case Flag:
		*(*bool)(at) = v != 0
	case Int:
		*(*int)(at) = int(v)
	case Span:
		*(*time.Duration)(at) = time.Duration(v) * time.Microsecond
	case Number:
		*(*int64)(at) = v
	}
}

// Text returns a value of kind Text or Word, and Time one of kind Time.
func (r Row) Text(c *Column) string          { return *(*string)(r.at(c)) }
func (r Row) SetText(c *Column, v string)    { *(*string)(r.at(c)) = v }
func (r Row) Time(c *Column) time.Time       { return *(*time.Time)(r.at(c)) }
func (r Row) SetTime(c *Column, v time.Time) { *(*time.Time)(r.at(c)) = v }
