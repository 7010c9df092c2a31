package storetest

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Benchmark measures jobs of one step, with several in one transaction. ns/op is the time for one job. If logged is
// given, it returns the length of the store's log, and the bytes per job are reported too.
func Benchmark(b *testing.B, open func(b *testing.B) kernel.Store, logged ...func(b *testing.B) int64) {
	for _, size := range []int{1, 100, 1000} {
		for _, way := range lifecycles {
			b.Run(fmt.Sprintf("%s/%d", way.name, size), func(b *testing.B) { bench(b, open, logged, size, way.round) })
		}
	}
	b.Run("submit/steps=10000", func(b *testing.B) {
		store := open(b)
		defer store.Close()
		m := &driver{b: b, store: store, steps: perdure.MaxSteps, size: 1}
		b.ReportAllocs()
		for b.Loop() {
			m.submit()
		}
	})
}

// lifecycles are what the measured jobs go through: only submitted; dispatched with the submission, and reported; or
// submitted, claimed from the queue, and reported.
var lifecycles = []struct {
	name  string
	round func(*driver)
}{
	{"submit", func(m *driver) { m.submit() }},
	{"at-once", func(m *driver) { m.dispatchOnSubmit = true; m.submit(); m.report() }},
	{"backlog", func(m *driver) { m.submit(); m.claim(); m.report() }},
}

func bench(b *testing.B, open func(b *testing.B) kernel.Store, logged []func(b *testing.B) int64, size int, round func(*driver)) {
	store := open(b)
	defer store.Close()
	m := &driver{b: b, store: store, steps: 1, size: size}
	for range 3 { // so that statements are prepared, and pages allocated
		round(m)
	}
	var log int64
	for _, l := range logged {
		log = -l(b)
	}
	b.ReportAllocs()
	b.ResetTimer()
	done := 0
	for ; done < b.N; done += size {
		round(m)
	}
	b.StopTimer()
	b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/job")
	for _, l := range logged {
		b.ReportMetric(float64(log+l(b))/float64(done), "log-B/job")
	}
}

// driver moves jobs through a store, size of them at a time: submit, claim, report done.
type driver struct {
	b                *testing.B
	store            kernel.Store
	steps, size      int
	dispatchOnSubmit bool // dispatch in the transaction of the submission
	submitted        int
	batch            []perdure.JobID
}

func (m *driver) update(fn func(kernel.Tx) error) {
	if err := m.store.Update(ctx, fn); err != nil {
		m.b.Fatal(err)
	}
}

func (m *driver) submit() {
	var c kernel.Changes
	m.batch = m.batch[:0]
	for range m.size {
		m.submitted++
		nj := newJob(m.submitted, 0)
		binary.BigEndian.PutUint32(nj.Job.ID[12:], uint32(m.submitted))
		binary.BigEndian.PutUint32(nj.Job.Hash[4:], uint32(m.submitted))
		nj.Job.Input = []byte(`{"amount":4200,"sku":"tea-12"}`)
		nj.Shape = []byte(`{"type":"order","steps":{"s0":{"agent":"http","with":{"url":"http://127.0.0.1:9001"}}}}`)
		nj.Job.Shape = kernel.ShapeID{1} // one definition for all
		nj.Job.Unsettled, nj.Job.Active = m.steps, m.steps
		for i := range m.steps {
			nj.Steps = append(nj.Steps, &kernel.Step{
				StepRef: kernel.StepRef{Job: nj.Job.ID, Index: i}, Name: fmt.Sprintf("s%d", i), Type: "order", Priority: 5,
				Desired: perdure.Done, Phase: perdure.Ready, Turn: 1, Agent: "http", ReadyAt: at(0), UpdatedAt: at(0),
			})
		}
		if m.dispatchOnSubmit {
			dispatch(nj.Job, nj.Steps[0], at(0))
		}
		m.batch = append(m.batch, nj.Job.ID)
		c.NewJobs = append(c.NewJobs, nj)
	}
	m.update(func(tx kernel.Tx) error { return tx.Save(&c) })
}

// claim dispatches the steps of the batch in one transaction.
func (m *driver) claim() {
	m.update(func(tx kernel.Tx) error {
		refs, err := tx.Ready("http", m.size, nil, nil)
		if err != nil {
			return err
		}
		ids := make([]perdure.JobID, len(refs))
		for i, r := range refs {
			ids[i] = r.Job
		}
		return m.move(tx, ids, refs, dispatch)
	})
}

func dispatch(j *kernel.Job, st *kernel.Step, now time.Time) {
	run("host-1", "request-1", now.Add(time.Minute))(st)
	st.StartedAt, st.UpdatedAt = now, now
	j.Current, j.Phase, j.Active, j.Running, j.HasPermit, j.UpdatedAt = perdure.Unsure, perdure.Running, 0, 1, true, now
}

// report ends the runs of the batch in one transaction.
func (m *driver) report() {
	m.update(func(tx kernel.Tx) error {
		var refs []kernel.StepRef
		for _, id := range m.batch {
			refs = append(refs, kernel.StepRef{Job: id})
		}
		return m.move(tx, m.batch, refs, func(j *kernel.Job, st *kernel.Step, now time.Time) {
			settle(st)
			st.Outcome, st.LockedBy, st.Request, st.Agent, st.EndedAt, st.UpdatedAt = perdure.OutcomeDone, "", "", "", now, now
			st.CompleteBy, st.LockedUntil = time.Time{}, time.Time{}
			settleJob(j)
			j.Running, j.HasPermit, j.UpdatedAt, j.SettledAt = 0, false, now, now
		})
	})
}

func (m *driver) move(tx kernel.Tx, ids []perdure.JobID, refs []kernel.StepRef, edit func(*kernel.Job, *kernel.Step, time.Time)) error {
	jobs, err := tx.LockJobs(ids)
	if err != nil {
		return err
	}
	steps, err := tx.Steps(refs)
	if err != nil {
		return err
	}
	now, err := tx.Now()
	if err != nil {
		return err
	}
	if len(jobs) != len(steps) || len(jobs) != m.size {
		return fmt.Errorf("%d jobs and %d steps of %d", len(jobs), len(steps), m.size)
	}
	var c kernel.Changes
	for i := range jobs { // both are in the order of ids
		job, step := *jobs[i], *steps[i]
		edit(&job, &step, now)
		c.Jobs = append(c.Jobs, kernel.JobChange{Now: &job, Loaded: jobs[i]})
		c.Steps = append(c.Steps, kernel.StepChange{Now: &step, Loaded: steps[i]})
	}
	return tx.Save(&c)
}
