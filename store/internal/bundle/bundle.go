// Package bundle is what the SQL stores share about bundles. A bundle is one row for many jobs that were submitted in
// the same transaction and have not changed since: each of them waits for the first run of its first step. When a job
// changes, it leaves its bundle and gets rows of its own. As a rule that happens in the transaction that dispatches it.
//
// So a job that waits for agents costs little more than one that is dispatched by the transaction that stores it.
package bundle

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/internal/rows"
)

// Common is what all jobs of a bundle have in common.
type Common struct {
	Agent     string // of the first step
	Type      string
	Step      string // name of the first step
	Priority  int
	Ageing    time.Duration // of the first step
	Shape     kernel.ShapeID
	Steps     int // how many steps each job has
	CreatedAt time.Time
}

// Job is what differs between the jobs of a bundle.
type Job struct {
	ID    perdure.JobID
	Hash  [32]byte
	Input json.RawMessage
}

// Bundle is a list of jobs that were submitted together, in the order of their ids, which is also the order of their
// dispatch. It never changes: the number of jobs that have left it is stored beside it.
type Bundle struct {
	Common
	Jobs []Job
}

const (
	// MinJobs is how many jobs make a bundle, at least, by default. Fewer jobs get rows, which are easier to read.
	MinJobs = 8
	// MaxJobs and MaxBytes bound a bundle, because a transaction that reads one of its jobs reads it completely.
	MaxJobs  = 250
	MaxBytes = 256 << 10

	// spanBits: the ids of a bundle differ only in these lowest bits of their milliseconds, and in the bits after these.
	// So the bundle of a job can be found from its id.
	spanBits = 10
)

// Low returns an id that is not greater than the first id of any bundle that may contain this id.
func Low(id perdure.JobID) (low perdure.JobID) {
	binary.BigEndian.PutUint64(low[:], binary.BigEndian.Uint64(id[:])>>(16+spanBits)<<(16+spanBits))
	return low
}

// High returns an id that is greater than the first id of any bundle that may contain this id.
func High(id perdure.JobID) (high perdure.JobID) {
	binary.BigEndian.PutUint64(high[:], (binary.BigEndian.Uint64(id[:])>>(16+spanBits)+1)<<(16+spanBits))
	return high
}

// May reports whether a list may have jobs in bundles.
func May(f kernel.JobFilter) bool {
	return f.Key == "" && len(f.Labels) == 0 && f.ErrorCode == "" && f.Alert == "" &&
		(len(f.Phases) == 0 || slices.Contains(f.Phases, perdure.Waiting)) &&
		(f.Current == nil || *f.Current == perdure.Undone) && (f.Desired == nil || *f.Desired == perdure.Done)
}

// First returns the id of the first job, which is the key of the bundle.
func (b *Bundle) First() perdure.JobID { return b.Jobs[0].ID }

// Lane returns the lane of the first steps.
func (b *Bundle) Lane() kernel.LaneID { return kernel.LaneOf(b.Type, "") }

// Candidate returns the first step of a job.
func (b *Bundle) Candidate(at int) kernel.Candidate {
	id := b.Jobs[at].ID
	return kernel.Candidate{StepRef: kernel.StepRef{Job: id}, Order: kernel.OrderOf(id, b.Priority, b.Ageing)}
}

// Find returns the index of a job.
func (b *Bundle) Find(id perdure.JobID) (at int, found bool) {
	return slices.BinarySearchFunc(b.Jobs, id, func(j Job, id perdure.JobID) int { return j.ID.Compare(id) })
}

// Make sets a job and its first step as they were submitted.
func (b *Bundle) Make(at int, j *kernel.Job, s *kernel.Step) {
	of := &b.Jobs[at]
	*j = kernel.Job{ID: of.ID, Type: b.Type, Priority: b.Priority, Hash: of.Hash, Shape: b.Shape, Input: of.Input,
		Desired: perdure.Done, Phase: perdure.Waiting, Unsettled: b.Steps, Active: 1, CreatedAt: b.CreatedAt, UpdatedAt: b.CreatedAt}
	*s = kernel.InitialStep(j, 0, b.Step, 0)
	s.Phase, s.Agent, s.Ageing, s.ReadyAt = perdure.Ready, b.Agent, b.Ageing, b.CreatedAt
}

// WasJob and WasStep compare the values that stores compare before they write with those of a job in a bundle.
func (b *Bundle) WasJob(j *kernel.Job) bool {
	return j.Current == perdure.Undone && j.Desired == perdure.Done && j.Phase == perdure.Waiting && j.Unsettled == b.Steps && j.Running == 0 && j.Active == 1
}

func WasStep(s *kernel.Step) bool {
	return s.Run == 0 && s.Phase == perdure.Ready && s.Current == perdure.Undone && s.Desired == perdure.Done
}

// Of returns what a new job has in common with others; ok is false if it cannot be in a bundle. The store decides
// whether its further steps can be implicit.
func Of(n *kernel.NewJob) (c Common, ok bool) {
	j, s := n.Job, n.Steps[0]
	if j.Key != "" || len(j.Labels) > 0 || j.States != nil || j.LargeInput() || s.Phase != perdure.Ready || s.Needs != "" {
		return c, false
	}
	c = Common{Agent: s.Agent, Type: j.Type, Step: s.Name, Priority: j.Priority, Ageing: s.Ageing, Shape: j.Shape, Steps: len(n.Steps), CreatedAt: j.CreatedAt}
	b := Bundle{c, []Job{{j.ID, j.Hash, j.Input}}}
	var job kernel.Job
	var step kernel.Step
	b.Make(0, &job, &step)
	return c, step == *s && rows.DiffJobs(&job, j).Empty() && job.CreatedAt.Equal(j.CreatedAt)
}

// Collect makes bundles of new jobs. It also returns the rest: jobs that cannot be in a bundle, and jobs of which there
// are fewer than least of a kind. If least is 0, all of them are the rest. later reports whether the store needs no rows
// for the further steps of a job.
func Collect(all []kernel.NewJob, least int, later func(*kernel.NewJob) bool) (bundles []*Bundle, rest []kernel.NewJob) {
	if len(all) < least || least == 0 {
		return nil, all
	}
	of := map[Common][]int{}
	var order []Common
	left := make([]bool, len(all))
	for i := range all {
		c, ok := Of(&all[i])
		if !ok || !later(&all[i]) {
			left[i] = true
			continue
		}
		if of[c] == nil {
			order = append(order, c)
		}
		of[c] = append(of[c], i)
	}
	for _, c := range order {
		places := of[c]
		slices.SortFunc(places, func(x, y int) int { return all[x].Job.ID.Compare(all[y].Job.ID) })
		for len(places) > 0 {
			n := fitting(all, places)
			if n < least {
				for _, i := range places[:n] {
					left[i] = true
				}
			} else {
				b := &Bundle{c, make([]Job, n)}
				for k, i := range places[:n] {
					j := all[i].Job
					b.Jobs[k] = Job{j.ID, j.Hash, j.Input}
				}
				bundles = append(bundles, b)
			}
			places = places[n:]
		}
	}
	for i := range all {
		if left[i] {
			rest = append(rest, all[i])
		}
	}
	return bundles, rest
}

// fitting returns how many of these jobs, in the order of their ids, fit into one bundle.
func fitting(all []kernel.NewJob, places []int) (n int) {
	low, bytes := Low(all[places[0]].Job.ID), 0
	for n < len(places) && n < MaxJobs {
		j := all[places[n]].Job
		if bytes += len(j.Input); n > 0 && (bytes > MaxBytes || Low(j.ID) != low) {
			break
		}
		n++
	}
	return n
}

// Open is a bundle, and how many jobs have left it.
type Open struct {
	*Bundle
	Taken int // the jobs before this index have left
}

// Next returns the first steps of the jobs that are still in these bundles, at most max of them, in the order of
// dispatch.
func Next(open []Open, max int) []Place {
	n := 0
	for _, o := range open {
		n += min(len(o.Jobs)-o.Taken, max)
	}
	next := make([]Place, 0, n)
	for _, o := range open {
		for at := o.Taken; at < min(len(o.Jobs), o.Taken+max); at++ {
			next = append(next, Place{o.Bundle, at})
		}
	}
	inOrder := func(a, b Place) int { return kernel.ClaimLess(a.Candidate(), b.Candidate()) }
	if !slices.IsSortedFunc(next, inOrder) {
		slices.SortFunc(next, inOrder)
	}
	return next[:min(len(next), max)]
}

// Place is a job in a bundle.
type Place struct {
	*Bundle
	At int
}

// Candidate returns the first step of the job.
func (p Place) Candidate() kernel.Candidate { return p.Bundle.Candidate(p.At) }
