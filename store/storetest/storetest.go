// Package storetest is the contract of a kernel.Store: a suite of checks that each store runs (Run, Mail, Clock,
// Reopen), and a test that does the same random operations on several stores and compares their answers (Differential).
//
// The suite edits rows directly instead of applying the rules of package kernel. So it tests what a store does with rows
// of any kind.
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
	"github.com/perdure/perdure/internal/kernel"
)

// Run runs the contract. open returns an empty store; the suite closes it.
func Run(t *testing.T, open func(t *testing.T) kernel.Store) {
	for _, c := range slices.Concat(submitChecks, togetherChecks, saveChecks, lockChecks, findChecks, fairChecks, alertChecks, readChecks, registryChecks, hostChecks, roleChecks, fenceChecks, inFlightChecks, statisticsChecks, sharedChecks, raceChecks, bulkChecks, accessChecks, outboxChecks, logChecks, artifactChecks, scheduleChecks, signalChecks, storedChecks) {
		t.Run(c.name, func(t *testing.T) {
			store := open(t)
			t.Cleanup(func() {
				if err := store.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			s := &suite{T: t, store: store}
			c.run(s)
			s.checkConsistent()
		})
	}
}

// check is one clause of the contract.
type check struct {
	name string
	run  func(*suite)
}

// suite is the store of one check, with helper methods.
type suite struct {
	*testing.T
	store kernel.Store
}

var ctx = context.Background()

// epoch is the time at which the rows of the suite are created. Only the order of times matters.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)

func at(after time.Duration) time.Time { return epoch.Add(after) }

// id returns the id of job n: a UUID of version 7 whose time is n milliseconds after the epoch.
func id(n int) perdure.JobID {
	ms := uint64(epoch.UnixMilli()) + uint64(n)
	return perdure.JobID{
		byte(ms >> 40), byte(ms >> 32), byte(ms >> 24), byte(ms >> 16), byte(ms >> 8), byte(ms),
		0x70, 0, 0x80, 0, 0, 0, 0, 0, byte(n >> 8), byte(n),
	}
}

func ref(job, step int) kernel.StepRef { return kernel.StepRef{Job: id(job), Index: step} }

func refs(pairs ...int) []kernel.StepRef {
	var refs []kernel.StepRef
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

// newJob returns a submission like those of the rules: unsettled, and with all steps ready.
func newJob(n, steps int, edits ...func(*kernel.Job)) kernel.NewJob {
	j := &kernel.Job{
		ID: id(n), Type: "order", Priority: 5,
		Hash:    [32]byte{byte(n), byte(n >> 8), 1},
		Shape:   kernel.ShapeID{byte(n), byte(n >> 8)},
		Desired: perdure.Done, Phase: perdure.Waiting, Unsettled: steps, Active: steps,
		CreatedAt: at(0), UpdatedAt: at(0),
	}
	for _, edit := range edits {
		edit(j)
	}
	nj := kernel.NewJob{Job: j, Shape: fmt.Appendf(nil, `{"type":"order", "n":%d}`, n)}
	for i := range steps {
		nj.Steps = append(nj.Steps, &kernel.Step{
			StepRef: kernel.StepRef{Job: j.ID, Index: i},
			Name:    fmt.Sprintf("s%d", i), Type: j.Type, Priority: j.Priority,
			Desired: perdure.Done, Phase: perdure.Ready, Turn: 1, Agent: "http",
			ReadyAt: at(0), UpdatedAt: at(0),
		})
	}
	return nj
}

func keyed(key string) func(*kernel.Job) { return func(j *kernel.Job) { j.Key = key } }
func typed(typ string) func(*kernel.Job) { return func(j *kernel.Job) { j.Type = typ } }
func priority(p int) func(*kernel.Job)   { return func(j *kernel.Job) { j.Priority = p } }
func permitted(j *kernel.Job)            { j.HasPermit = true }
func labelled(kv ...string) func(*kernel.Job) {
	return func(j *kernel.Job) {
		j.Labels = map[string]string{}
		for p := range slices.Chunk(kv, 2) {
			j.Labels[p[0]] = p[1]
		}
	}
}

// submit stores new jobs in one transaction.
func (s *suite) submit(jobs ...kernel.NewJob) {
	s.Helper()
	s.save(&kernel.Changes{NewJobs: jobs})
}

func (s *suite) save(c *kernel.Changes) {
	s.Helper()
	s.update(func(tx kernel.Tx) { s.must(tx.Save(c)) })
}

// update runs fn in a transaction that must succeed.
func (s *suite) update(fn func(kernel.Tx)) {
	s.Helper()
	s.must(s.store.Update(ctx, func(tx kernel.Tx) error { fn(tx); return nil }))
}

// changeStep edits one stored step.
func (s *suite) changeStep(r kernel.StepRef, edit func(*kernel.Step)) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		s.must(tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(s.one(r, tx), edit)}}))
	})
}

func (s *suite) one(r kernel.StepRef, tx kernel.Tx) *kernel.Step {
	s.Helper()
	_, err := tx.LockJobs([]perdure.JobID{r.Job})
	s.must(err)
	steps, err := tx.Steps([]kernel.StepRef{r})
	s.must(err)
	if len(steps) != 1 {
		s.Fatalf("step %v: %d rows", r, len(steps))
	}
	return steps[0]
}

// changeJob edits one stored job.
func (s *suite) changeJob(n int, edit func(*kernel.Job)) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		jobs, err := tx.LockJobs(ids(n))
		s.must(err)
		if len(jobs) != 1 {
			s.Fatalf("job %d does not exist", n)
		}
		s.must(tx.Save(&kernel.Changes{Jobs: []kernel.JobChange{editJob(jobs[0], edit)}}))
	})
}

func editStep(loaded *kernel.Step, edit func(*kernel.Step)) kernel.StepChange {
	now := *loaded
	edit(&now)
	return kernel.StepChange{Now: &now, Loaded: loaded}
}

func editJob(loaded *kernel.Job, edit func(*kernel.Job)) kernel.JobChange {
	now := *loaded
	edit(&now)
	return kernel.JobChange{Now: &now, Loaded: loaded}
}

// run returns an edit that dispatches a step.
func run(holder, request string, until time.Time) func(*kernel.Step) {
	return func(s *kernel.Step) {
		s.Phase, s.Current, s.Run = perdure.Running, perdure.Unsure, s.Run+1
		s.LockedBy, s.Request, s.LockedUntil, s.CompleteBy = holder, request, until, until
	}
}

func waitUntil(t time.Time) func(*kernel.Step) {
	return func(s *kernel.Step) { s.Phase, s.AvailableAt = perdure.Waiting, t }
}

func settle(s *kernel.Step) { s.Phase, s.Current = perdure.Settled, perdure.Done }

func settleJob(j *kernel.Job) {
	j.Phase, j.Current, j.Unsettled, j.Active, j.SettledAt = perdure.Settled, perdure.Done, 0, 0, at(time.Hour)
}

func (s *suite) job(n int) *kernel.Job {
	s.Helper()
	j, _, err := s.store.Job(ctx, id(n), 0)
	s.must(err)
	return j
}

func (s *suite) steps(n int) []*kernel.Step {
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

// bytesEqual compares byte slices as a whole. Compared byte by byte, a megabyte takes minutes.
var bytesEqual = cmp.FilterValues(func(a, b []byte) bool { return len(a)+len(b) > 0 }, cmp.Comparer(bytes.Equal))

// equal compares got with want. A want of nil stands for no rows.
func (s *suite) equal(what string, got, want any) {
	s.Helper()
	if want == nil && reflect.ValueOf(got).Len() == 0 {
		return
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), bytesEqual); diff != "" {
		s.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// checkTx compares the result of a method of Finder or Locker, called in a transaction.
func checkTx[T any](s *suite, what string, want T, find func(kernel.Tx) (T, error)) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		got, err := find(tx)
		s.must(err)
		s.equal(what, got, want)
	})
}
