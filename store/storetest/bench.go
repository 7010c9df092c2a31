package storetest

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"perdure"
)

// Benchmark measures jobs of one step through a store, so many in a transaction; ns/op is for one job.
func Benchmark(b *testing.B, open func(b *testing.B) perdure.Store) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("submit/%d", size), func(b *testing.B) { bench(b, open, size, func(m *mill) { m.submit() }) })
		b.Run(fmt.Sprintf("update/%d", size), func(b *testing.B) {
			bench(b, open, size, func(m *mill) {
				b.StopTimer()
				m.submit()
				b.StartTimer()
				m.claim()
				m.report()
			})
		})
	}
	b.Run("submit/steps=10000", func(b *testing.B) {
		store := open(b)
		defer store.Close()
		m := &mill{b: b, store: store, steps: perdure.MaxSteps, size: 1}
		b.ReportAllocs()
		for b.Loop() {
			m.submit()
		}
	})
}

func bench(b *testing.B, open func(b *testing.B) perdure.Store, size int, round func(*mill)) {
	store := open(b)
	defer store.Close()
	m := &mill{b: b, store: store, steps: 1, size: size}
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += size {
		round(m)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// mill pushes jobs through a store, size at a time: submit, claim, report done.
type mill struct {
	b           *testing.B
	store       perdure.Store
	steps, size int
	made        int
	batch       []perdure.JobID
}

func (m *mill) update(fn func(perdure.Tx) error) {
	if err := m.store.Update(ctx, fn); err != nil {
		m.b.Fatal(err)
	}
}

func (m *mill) submit() {
	var c perdure.Changes
	m.batch = m.batch[:0]
	for range m.size {
		m.made++
		nj := newJob(m.made, 0)
		binary.BigEndian.PutUint32(nj.Job.ID[12:], uint32(m.made))
		binary.BigEndian.PutUint32(nj.Job.Hash[4:], uint32(m.made))
		nj.Job.Input = []byte(`{"amount":4200,"sku":"tea-12"}`)
		nj.Shape = []byte(`{"type":"order","steps":{"s0":{"agent":"http","with":{"url":"http://127.0.0.1:9001"}}}}`)
		nj.Job.Unsettled, nj.Job.Active = m.steps, m.steps
		for i := range m.steps {
			nj.Steps = append(nj.Steps, &perdure.Step{
				StepRef: perdure.StepRef{Job: nj.Job.ID, Index: i}, Name: fmt.Sprintf("s%d", i), Type: "order", Priority: 5,
				Desired: perdure.Done, Phase: perdure.Ready, Turn: 1, Agent: "http", ReadyAt: at(0), UpdatedAt: at(0),
			})
		}
		m.batch = append(m.batch, nj.Job.ID)
		c.NewJobs = append(c.NewJobs, nj)
	}
	m.update(func(tx perdure.Tx) error { return tx.Save(&c) })
}

// claim lets the batch's steps out, in one transaction.
func (m *mill) claim() {
	m.update(func(tx perdure.Tx) error {
		refs, err := tx.Ready("http", m.size, nil)
		if err != nil {
			return err
		}
		ids := make([]perdure.JobID, len(refs))
		for i, r := range refs {
			ids[i] = r.Job
		}
		return m.move(tx, ids, refs, func(j *perdure.Job, st *perdure.Step, now time.Time) {
			run("host-1", "request-1", now.Add(time.Minute))(st)
			st.StartedAt, st.UpdatedAt = now, now
			j.Current, j.Phase, j.Active, j.Running, j.Permit, j.UpdatedAt = perdure.Unsure, perdure.Running, 0, 1, true, now
		})
	})
}

// report ends the batch's runs, in one transaction.
func (m *mill) report() {
	m.update(func(tx perdure.Tx) error {
		var refs []perdure.StepRef
		for _, id := range m.batch {
			refs = append(refs, perdure.StepRef{Job: id})
		}
		return m.move(tx, m.batch, refs, func(j *perdure.Job, st *perdure.Step, now time.Time) {
			settle(st)
			st.Outcome, st.LockedBy, st.EndedAt, st.UpdatedAt = perdure.OutcomeDone, "", now, now
			settleJob(j)
			j.Running, j.Permit, j.UpdatedAt = 0, false, now
		})
	})
}

func (m *mill) move(tx perdure.Tx, ids []perdure.JobID, refs []perdure.StepRef, edit func(*perdure.Job, *perdure.Step, time.Time)) error {
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
	var c perdure.Changes
	for i := range jobs { // both in the order of ids
		job, step := *jobs[i], *steps[i]
		edit(&job, &step, now)
		c.Jobs = append(c.Jobs, perdure.JobChange{Now: &job, Was: jobs[i]})
		c.Steps = append(c.Steps, perdure.StepChange{Now: &step, Was: steps[i]})
	}
	return tx.Save(&c)
}
