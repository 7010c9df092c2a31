// Package storetest is the contract of a perdure.Store: one suite that each store runs, and a
// differential test in which stores have to give the same answers.
//
// The suite is written against changes made by hand, not by the rules, so that it says what a store
// does with rows of any kind.
package storetest

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perdure/perdure"
)

// Run is the contract. open gives a store with nothing in it; the suite closes it.
func Run(t *testing.T, open func(t *testing.T) perdure.Store) {
	for _, c := range slices.Concat(submitting, saving, locking, finding, alerting, reading, registering, electing, fencing, keeping, sharing, racing) {
		t.Run(c.name, func(t *testing.T) {
			store := open(t)
			t.Cleanup(func() {
				if err := store.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			s := &suite{T: t, store: store}
			c.run(s)
			s.sound()
		})
	}
}

// check is one clause of the contract.
type check struct {
	name string
	run  func(*suite)
}

// suite is one check's store, with short words for what every check does.
type suite struct {
	*testing.T
	store perdure.Store
}

var ctx = context.Background()

// epoch is the time at which the rows of the suite are made; only their order matters.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)

func at(after time.Duration) time.Time { return epoch.Add(after) }

// id is the n-th job's: a UUID of version 7 whose time is n milliseconds after the epoch.
func id(n int) perdure.JobID {
	ms := uint64(epoch.UnixMilli()) + uint64(n)
	return perdure.JobID{
		byte(ms >> 40), byte(ms >> 32), byte(ms >> 24), byte(ms >> 16), byte(ms >> 8), byte(ms),
		0x70, 0, 0x80, 0, 0, 0, 0, 0, byte(n >> 8), byte(n),
	}
}

func ref(job, step int) perdure.StepRef { return perdure.StepRef{Job: id(job), Index: step} }

func refs(pairs ...int) []perdure.StepRef {
	var refs []perdure.StepRef
	for p := range slices.Chunk(pairs, 2) {
		refs = append(refs, ref(p[0], p[1]))
	}
	return refs
}

func ids(ns ...int) []perdure.JobID {
	var ids []perdure.JobID
	for _, n := range ns {
		ids = append(ids, id(n))
	}
	return ids
}

// newJob is a submission as the rules would make it: unsettled, all of its steps ready.
func newJob(n, steps int, edits ...func(*perdure.Job)) perdure.NewJob {
	j := &perdure.Job{
		ID: id(n), Type: "order", Priority: 5,
		Hash:    [32]byte{byte(n), byte(n >> 8), 1},
		Shape:   perdure.ShapeID{byte(n), byte(n >> 8)},
		Desired: perdure.Done, Phase: perdure.Waiting, Unsettled: steps, Active: steps,
		CreatedAt: at(0), UpdatedAt: at(0),
	}
	for _, edit := range edits {
		edit(j)
	}
	nj := perdure.NewJob{Job: j, Shape: fmt.Appendf(nil, `{"type":"order", "n":%d}`, n)}
	for i := range steps {
		nj.Steps = append(nj.Steps, &perdure.Step{
			StepRef: perdure.StepRef{Job: j.ID, Index: i},
			Name:    fmt.Sprintf("s%d", i), Type: j.Type, Priority: j.Priority,
			Desired: perdure.Done, Phase: perdure.Ready, Turn: 1, Agent: "http",
			ReadyAt: at(0), UpdatedAt: at(0),
		})
	}
	return nj
}

func keyed(key string) func(*perdure.Job) { return func(j *perdure.Job) { j.Key = key } }
func typed(typ string) func(*perdure.Job) { return func(j *perdure.Job) { j.Type = typ } }
func priority(p int) func(*perdure.Job)   { return func(j *perdure.Job) { j.Priority = p } }
func permitted(j *perdure.Job)            { j.Permit = true }
func labelled(kv ...string) func(*perdure.Job) {
	return func(j *perdure.Job) {
		j.Labels = map[string]string{}
		for p := range slices.Chunk(kv, 2) {
			j.Labels[p[0]] = p[1]
		}
	}
}

// submit stores new jobs in one transaction.
func (s *suite) submit(jobs ...perdure.NewJob) {
	s.Helper()
	s.save(&perdure.Changes{NewJobs: jobs})
}

func (s *suite) save(c *perdure.Changes) {
	s.Helper()
	s.update(func(tx perdure.Tx) { s.must(tx.Save(c)) })
}

// update runs fn in a transaction that has to succeed.
func (s *suite) update(fn func(perdure.Tx)) {
	s.Helper()
	s.must(s.store.Update(ctx, func(tx perdure.Tx) error { fn(tx); return nil }))
}

// changeStep edits one stored step.
func (s *suite) changeStep(r perdure.StepRef, edit func(*perdure.Step)) {
	s.Helper()
	s.update(func(tx perdure.Tx) {
		s.must(tx.Save(&perdure.Changes{Steps: []perdure.StepChange{editStep(s.one(r, tx), edit)}}))
	})
}

func (s *suite) one(r perdure.StepRef, tx perdure.Tx) *perdure.Step {
	s.Helper()
	_, err := tx.LockJobs([]perdure.JobID{r.Job})
	s.must(err)
	steps, err := tx.Steps([]perdure.StepRef{r})
	s.must(err)
	if len(steps) != 1 {
		s.Fatalf("step %v: %d rows", r, len(steps))
	}
	return steps[0]
}

// changeJob edits one stored job.
func (s *suite) changeJob(n int, edit func(*perdure.Job)) {
	s.Helper()
	s.update(func(tx perdure.Tx) {
		jobs, err := tx.LockJobs(ids(n))
		s.must(err)
		if len(jobs) != 1 {
			s.Fatalf("job %d is not there", n)
		}
		s.must(tx.Save(&perdure.Changes{Jobs: []perdure.JobChange{editJob(jobs[0], edit)}}))
	})
}

func editStep(was *perdure.Step, edit func(*perdure.Step)) perdure.StepChange {
	now := *was
	edit(&now)
	return perdure.StepChange{Now: &now, Was: was}
}

func editJob(was *perdure.Job, edit func(*perdure.Job)) perdure.JobChange {
	now := *was
	edit(&now)
	return perdure.JobChange{Now: &now, Was: was}
}

// run lets a step out.
func run(holder, request string, until time.Time) func(*perdure.Step) {
	return func(s *perdure.Step) {
		s.Phase, s.Current, s.Run = perdure.Running, perdure.Unsure, s.Run+1
		s.LockedBy, s.Request, s.LockedUntil, s.CompleteBy = holder, request, until, until
	}
}

func waitUntil(t time.Time) func(*perdure.Step) {
	return func(s *perdure.Step) { s.Phase, s.AvailableAt = perdure.Waiting, t }
}

func settle(s *perdure.Step) { s.Phase, s.Current = perdure.Settled, perdure.Done }

func settleJob(j *perdure.Job) {
	j.Phase, j.Current, j.Unsettled, j.Active, j.SettledAt = perdure.Settled, perdure.Done, 0, 0, at(time.Hour)
}

func (s *suite) job(n int) *perdure.Job {
	s.Helper()
	j, _, err := s.store.Job(ctx, id(n), 0)
	s.must(err)
	return j
}

func (s *suite) steps(n int) []*perdure.Step {
	s.Helper()
	steps, err := s.store.StepsOf(ctx, id(n), time.Time{})
	s.must(err)
	return steps
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// asWhole compares bytes at once: one by one, a megabyte takes minutes.
var asWhole = cmp.FilterValues(func(a, b []byte) bool { return len(a)+len(b) > 0 }, cmp.Comparer(bytes.Equal))

// equal compares. A want of nil is no rows.
func (s *suite) equal(what string, got, want any) {
	s.Helper()
	if want == nil && reflect.ValueOf(got).Len() == 0 {
		return
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), asWhole); diff != "" {
		s.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// found compares what a Finder's or Locker's method gives, inside a transaction.
func found[T any](s *suite, what string, want T, find func(perdure.Tx) (T, error)) {
	s.Helper()
	s.update(func(tx perdure.Tx) {
		got, err := find(tx)
		s.must(err)
		s.equal(what, got, want)
	})
}
