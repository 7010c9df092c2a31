package bundle

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Highest is the highest id.
var Highest = perdure.JobID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Range is a range of bundles, whose first jobs have ids from Low on and below High, and of the jobs in them between
// After and Before.
type Range struct{ Low, High, After, Before perdure.JobID }

// Reader reads bundles for a list, in the list's order.
type Reader interface {
	// Firsts returns the next first jobs of bundles: from an id on or, if the list is descending, before it.
	Firsts(bound perdure.JobID, max int) ([]perdure.JobID, error)
	// Jobs returns the jobs of a range, at most max.
	Jobs(in Range, max int) ([]*kernel.Job, error)
}

// atOnce is how many bundles a list reads at once, or a few more.
const atOnce = 20

// List returns the jobs of a list that are in bundles. It reads bundles in the order of their ids until there are enough
// jobs. A caller that reads both bundles and rows reads the bundles first: a job that leaves its bundle in between is
// found there, or its rows are visible by then.
func List(f kernel.JobFilter, r Reader) (jobs []*kernel.Job, err error) {
	if !May(f) {
		return nil, nil
	}
	limit, before := cmp.Or(f.Limit, perdure.DefaultListLimit), f.Before
	if limit < 0 {
		return nil, nil
	}
	if before.IsZero() {
		before = Highest
	}
	from, to := Low(f.After), Highest
	if !f.Ascending && !f.Before.IsZero() {
		to = High(f.Before)
	}
	for {
		bound := to
		if f.Ascending {
			bound = from
		}
		firsts, err := r.Firsts(bound, atOnce)
		if err != nil || len(firsts) == 0 {
			return Merge(jobs, nil, f.Ascending, limit), err
		}
		// The ids of bundles of the same time may overlap, so these are read together.
		in := Range{Low: from, High: to, After: f.After, Before: before}
		var done bool
		if last := firsts[len(firsts)-1]; f.Ascending {
			in.High = High(last)
			from, done = in.High, in.High.Compare(before) > 0
		} else {
			in.Low = Low(last)
			to, done = in.Low, in.Low.Compare(f.After) <= 0
		}
		part, err := r.Jobs(in, limit-len(jobs))
		jobs = append(jobs, part...)
		if err != nil || done || len(jobs) >= limit || len(firsts) < atOnce {
			return Merge(jobs, nil, f.Ascending, limit), err
		}
	}
}

// Merge merges jobs in bundles and jobs with rows into one list. If a job is in both, its row counts.
func Merge(bundled, withRows []*kernel.Job, ascending bool, limit int) []*kernel.Job {
	all := append(slices.Clone(withRows), bundled...)
	slices.SortStableFunc(all, func(a, b *kernel.Job) int {
		if ascending {
			return a.ID.Compare(b.ID)
		}
		return b.ID.Compare(a.ID)
	})
	all = slices.CompactFunc(all, func(a, b *kernel.Job) bool { return a.ID == b.ID })
	return all[:min(len(all), max(limit, 0))]
}

// Before and After return the adjacent ids. The lowest id has none before it and the Highest none after it: these are
// returned unchanged.
func Before(id perdure.JobID) perdure.JobID { return next(id, 0x00, 0xff, 0xff) }
func After(id perdure.JobID) perdure.JobID  { return next(id, 0xff, 0x00, 1) }

// next adds 1 to an id, or 0xff, which subtracts 1. If a byte overflows, the byte before it changes too.
func next(id perdure.JobID, end, begin, add byte) perdure.JobID {
	n := id
	for i := len(n) - 1; i >= 0; i-- {
		if n[i] != end {
			n[i] += add
			return n
		}
		n[i] = begin
	}
	return id
}

// A search for a list may stop at a job before it has found enough: jobs after it in the order of the list are not read.
// A zero id stands for a search that did not stop.

// First returns the one of two jobs that comes first in the order of a list.
func First(a, b perdure.JobID, ascending bool) perdure.JobID {
	switch {
	case a.IsZero() || !b.IsZero() && (a.Compare(b) < 0) != ascending:
		return b
	}
	return a
}

// UpTo leaves out the jobs after the one at which the search has stopped.
func UpTo(jobs []*kernel.Job, stopped perdure.JobID, ascending bool) []*kernel.Job {
	for i, j := range jobs {
		if order := j.ID.Compare(stopped); !stopped.IsZero() && (ascending && order > 0 || !ascending && order < 0) {
			return jobs[:i]
		}
	}
	return jobs
}

// Until returns a filter without the jobs after the one at which the search has stopped.
func Until(f kernel.JobFilter, stopped perdure.JobID) kernel.JobFilter {
	switch {
	case stopped.IsZero():
	case f.Ascending:
		f.Before = After(stopped)
	default:
		f.After = Before(stopped)
	}
	return f
}
