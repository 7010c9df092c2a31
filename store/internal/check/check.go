// Package check compares the queue tables of a SQL store with its rows, for `perdure check`.
//
// A queue table (ready, due, ...) has an entry for each row that searches must find there. Which entries a row must have
// follows from the row: the kernel computes them (PlacesOf, PermitsOf, LaneFor), and for table open the store (Source.Open). Run reads all rows and all entries, page by page,
// and reports entries that are missing, entries that belong to no row, and bundles that contradict themselves. It decides; a store
// only reads, as a Source. Run changes nothing.
package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/bundle"
)

const (
	// MaxFaults is how many faults Run reports.
	MaxFaults = 1000
	pageRows  = 5000
	// pageBundles is smaller than pageRows, because a bundle has up to bundle.MaxJobs jobs.
	pageBundles = 20
)

// Table is a queue table. A store may keep the entries of a table as columns of the row.
type Table uint8

const (
	Open      Table = iota // jobs that are not settled, with their deadlines
	Exception              // jobs that operators look for
	Ready                  // ready steps
	Lane                   // lanes of ready steps that need limits, each with the place of its first step
	Due                    // steps that wait for a time
	InFlight               // runs in flight
	Permit                 // permits that are held
	Waiter                 // steps that wait for a signal
	Line                   // steps that stand in line for a key of a limit
	tables
)

func (t Table) String() string {
	return [...]string{"open", "exception", "ready", "lane", "due", "out", "permit", "waiter", "line"}[t]
}

// Entry is one entry of a queue table. Which of the values it has depends on the table.
type Entry struct {
	Table Table
	kernel.StepRef
	At    time.Time // Open: when the deadline passes, or zero; Due
	Kind  kernel.Exception
	Ready kernel.ReadyKey
	Lane  kernel.Lane
	Run   kernel.InFlightKey
	Need  kernel.Need // Permit; Line, without an amount
	Topic kernel.Topic
}

// Row is a row of table step.
type Row struct {
	Step    kernel.Step
	Job     *kernel.Job // if the step is the job's first, else nil
	Entries []Entry     // those that the store keeps as columns of the row
}

// Bundle is a bundle with the columns that are derived from its jobs.
type Bundle struct {
	bundle.Open
	First, Last perdure.JobID
	Lane        kernel.LaneID
	Order       int64
	Size        int
	HasRow      []bool // for each job of the bundle: whether it has a row
}

// Source is one snapshot of a store.
type Source interface {
	// Rows returns the rows after a step, at most max, in the order of their steps.
	Rows(after kernel.StepRef, max int) ([]Row, error)
	// RowsOf returns the rows of these steps, without those that do not exist.
	RowsOf(refs []kernel.StepRef) ([]Row, error)
	// Open returns the entry that a job must have in table open; ok is false if it must have none.
	Open(j *kernel.Job) (deadline time.Time, ok bool)
	// Stored calls has for each of these entries that the store has, with the stored values. It leaves out entries that
	// are columns of the row.
	Stored(want []Entry, has func(Entry)) error
	// Entries returns the entries of a table after one, or the first ones, at most max. It returns none for tables whose
	// entries are columns of the row, or may outlive what they are for.
	Entries(t Table, after *Entry, max int) ([]Entry, error)
	// Limits returns the names of the limits that are defined.
	Limits() (map[string]bool, error)
	// Bundles returns the bundles after a first job, at most max, in the order of their first jobs.
	Bundles(after perdure.JobID, max int) ([]Bundle, error)
}

// Run checks a store. Each page is read in a snapshot, so that rows that change meanwhile cause no fault; the store decides
// whether the snapshots are the same one. Faults are sentences; there are at most MaxFaults, and then one that says "and more".
func Run(snapshot func(func(Source) error) error) ([]string, error) {
	c := &checking{}
	err := c.pages(snapshot, c.rows())
	for t := range tables {
		if err == nil {
			err = c.pages(snapshot, c.entries(t))
		}
	}
	if err == nil {
		err = c.pages(snapshot, c.bundles())
	}
	return c.faults, err
}

type checking struct{ faults []string }

// pages calls fn until there are no more pages, each time with a new snapshot.
func (c *checking) pages(snapshot func(func(Source) error) error, fn func(Source) (more bool, err error)) error {
	for more := true; more; {
		if err := snapshot(func(src Source) (err error) {
			more, err = fn(src)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (c *checking) fault(ref kernel.StepRef, format string, args ...any) {
	switch n := len(c.faults); {
	case n < MaxFaults:
		c.faults = append(c.faults, fmt.Sprintf("%s, step %d, ", ref.Job, ref.Index)+fmt.Sprintf(format, args...))
	case n == MaxFaults:
		c.faults = append(c.faults, "and more")
	}
}

// wanted returns the entries that a row must have.
func wanted(src Source, r *Row, limits map[string]bool) (want []Entry) {
	ref := r.Step.StepRef
	if r.Job != nil {
		if at, ok := src.Open(r.Job); ok {
			want = append(want, Entry{Table: Open, StepRef: ref, At: at})
		}
		for _, kind := range kernel.ExceptionsOf(r.Job).List() {
			want = append(want, Entry{Table: Exception, StepRef: ref, Kind: kind})
		}
	}
	places := kernel.PlacesOf(&r.Step)
	if places.Ready.Ready {
		want = append(want, Entry{Table: Ready, StepRef: ref, Ready: places.Ready})
	}
	if lane, ok := kernel.LaneFor(&r.Step); ok {
		want = append(want, Entry{Table: Lane, StepRef: ref, Lane: lane})
	}
	if !places.DueAt.IsZero() {
		want = append(want, Entry{Table: Due, StepRef: ref, At: places.DueAt})
	}
	if places.InFlight.InFlight {
		want = append(want, Entry{Table: InFlight, StepRef: ref, Run: places.InFlight})
	}
	if places.Waiting != "" {
		want = append(want, Entry{Table: Waiter, StepRef: ref, Topic: places.Waiting})
	}
	for _, l := range kernel.LineEntries(ref, places.Line) {
		want = append(want, Entry{Table: Line, StepRef: ref, Need: kernel.Need{LimitKey: l.LimitKey, Line: l.Rank}})
	}
	for _, n := range kernel.PermitsOf(&r.Step, r.Job).List() {
		if n.Kept(limits) {
			want = append(want, Entry{Table: Permit, StepRef: ref, Need: n})
		}
	}
	return want
}

// equals reports whether an entry has the values that are wanted.
func (e *Entry) equals(want *Entry) bool {
	return e.Table == want.Table && e.StepRef == want.StepRef && e.At.Equal(want.At) && e.Kind == want.Kind && e.Ready == want.Ready && e.Lane == want.Lane &&
		e.Run.Covers(want.Run) && e.Need == want.Need && e.Topic == want.Topic
}

// among reports whether an entry equals one of those that are wanted.
func (e *Entry) among(want []Entry) bool {
	return slices.ContainsFunc(want, func(w Entry) bool { return e.equals(&w) })
}

// suffices reports whether searches find the row by this entry. A lane may have a place before its first step.
func (e Entry) suffices(want *Entry) bool {
	if e.Table == Lane && kernel.ClaimLess(e.Lane.First, want.Lane.First) < 0 {
		e.Lane.First = want.Lane.First
	}
	return e.equals(want)
}

// key is what two entries of the same thing have in common.
type key struct {
	Table
	kernel.StepRef
	kernel.Exception
	kernel.Need
}

func (e *Entry) key() key { return key{e.Table, e.StepRef, e.Kind, e.Need} }

// rows looks for the entries of each row.
func (c *checking) rows() func(Source) (bool, error) {
	after := kernel.StepRef{Index: -1}
	return func(src Source) (more bool, err error) {
		rows, err := src.Rows(after, pageRows)
		if err != nil || len(rows) == 0 {
			return false, err
		}
		after = rows[len(rows)-1].Step.StepRef
		limits, err := src.Limits()
		if err != nil {
			return false, err
		}
		var want []Entry
		for i := range rows {
			of := wanted(src, &rows[i], limits)
			want = append(want, of...)
			for _, e := range rows[i].Entries {
				if !e.among(of) {
					c.stray(e)
				}
			}
		}
		missing := make(map[key]*Entry, len(want))
		for i := range want {
			missing[want[i].key()] = &want[i]
		}
		has := func(e Entry) {
			if w := missing[e.key()]; w != nil && e.suffices(w) {
				delete(missing, e.key())
			}
		}
		for i := range rows {
			for _, e := range rows[i].Entries {
				has(e)
			}
		}
		if err := src.Stored(want, has); err != nil {
			return false, err
		}
		for i := range want {
			if w := &want[i]; missing[w.key()] != nil {
				c.fault(w.StepRef, "%s, and is missing in %s or has other values there", w.reason(), w.Table)
			}
		}
		return len(rows) == pageRows, nil
	}
}

// reason says why a row must have this entry.
func (e *Entry) reason() string {
	switch e.Table {
	case Open:
		return "is not settled"
	case Exception:
		return "is " + e.Kind.String()
	case Due:
		return "waits for a time"
	case InFlight:
		return "is running"
	case Waiter:
		return "waits for a signal"
	case Permit:
		return "holds a permit of " + e.Need.LimitKey.String()
	case Line:
		return "stands in line for " + e.Need.LimitKey.String()
	case Lane:
		return "is ready and needs limits"
	default:
		return "is ready"
	}
}

func (c *checking) stray(e Entry) {
	if e.Table == Permit {
		c.fault(e.StepRef, "is in permit, and holds none of %s", e.Need.LimitKey)
	} else {
		c.fault(e.StepRef, "is in %s, and does not belong there with these values", e.Table)
	}
}

// entries looks for the row of each entry of a table.
func (c *checking) entries(t Table) func(Source) (bool, error) {
	var after *Entry
	return func(src Source) (more bool, err error) {
		page, err := src.Entries(t, after, pageRows)
		if err != nil || len(page) == 0 {
			return false, err
		}
		after = &page[len(page)-1]
		limits, err := src.Limits()
		if err != nil {
			return false, err
		}
		refs := make([]kernel.StepRef, len(page))
		for i := range page {
			refs[i] = page[i].StepRef
		}
		rows, err := src.RowsOf(refs)
		if err != nil {
			return false, err
		}
		want := make(map[kernel.StepRef][]Entry, len(rows))
		for i := range rows {
			want[rows[i].Step.StepRef] = wanted(src, &rows[i], limits)
		}
		for _, e := range page {
			if !e.among(want[e.StepRef]) {
				c.stray(e)
			}
		}
		return len(page) == pageRows, nil
	}
}

// bundles compares the columns of each bundle with its jobs, and looks for the rows of its jobs: those that have left the bundle
// have one.
func (c *checking) bundles() func(Source) (bool, error) {
	var after perdure.JobID
	return func(src Source) (more bool, err error) {
		page, err := src.Bundles(after, pageBundles)
		for i := range page {
			b := &page[i]
			after = b.First
			if !b.consistent() {
				c.fault(kernel.StepRef{Job: b.First}, "is the first of a bundle whose columns do not agree with its jobs")
				continue
			}
			for n, j := range b.Jobs {
				if b.HasRow[n] != (n < b.Taken) {
					c.fault(kernel.StepRef{Job: j.ID}, "is in a bundle and has a row, or has left it and has none")
				}
			}
		}
		return len(page) == pageBundles, err
	}
}

func (b *Bundle) consistent() bool {
	n := len(b.Jobs)
	sorted := slices.IsSortedFunc(b.Jobs, func(a, b bundle.Job) int { return a.ID.Compare(b.ID) })
	return n > 0 && sorted && n == b.Size && b.Taken >= 0 && b.Taken < n && b.Bundle.First() == b.First && b.Jobs[n-1].ID == b.Last &&
		b.Bundle.Lane() == b.Lane && b.Candidate(0).Order == b.Order && bundle.Low(b.Last) == bundle.Low(b.First) && len(b.HasRow) == n
}

// WrongShare says what is wrong with a share, which is given by the needs of one of its lanes or by its value: two of its rows have
// different counts, or it has open lanes and no search reads it.
func WrongShare(agent, needs, value string, counts bool) string {
	if counts {
		return fmt.Sprintf("share %s of agent %s has rows with different counts", value, agent)
	}
	return fmt.Sprintf("share %s of agent %s has open lanes, and is not marked as waiting", kernel.Needs(needs).Share(), agent)
}
