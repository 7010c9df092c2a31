package storetest

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"perdure"
)

// BenchmarkWays measures the two ways that a job of one step goes, so many in a transaction; ns/op is for one
// job, all of its transactions together.
//
//	out      it is let out as it is submitted; then its report
//	backlog  it is submitted; let out later; then its report
func BenchmarkWays(b *testing.B, open func(b *testing.B) perdure.Store) {
	for _, size := range []int{1, 100, 500, 1000} {
		b.Run(fmt.Sprintf("out/%d", size), func(b *testing.B) {
			bench(b, open, size, func(m *mill) {
				m.submitOne(func(j *perdure.Job, st *perdure.Step) { letOut(j, st, at(0)) })
				m.report()
			})
		})
		b.Run(fmt.Sprintf("backlog/%d", size), func(b *testing.B) {
			bench(b, open, size, func(m *mill) {
				m.submitOne(func(*perdure.Job, *perdure.Step) {})
				m.claim()
				m.report()
			})
		})
	}
}

// letOut is what the rules make of a job whose only step is let out.
func letOut(j *perdure.Job, st *perdure.Step, now time.Time) {
	st.Phase, st.Current, st.Run, st.StartedAt, st.UpdatedAt = perdure.Running, perdure.Unsure, 1, now, now
	st.LockedBy, st.Request = "@node-1/http", "0198c0de-7a5b-7c3d-9e8f-0123456789ab"
	st.CompleteBy = now.Add(5 * time.Minute)
	st.LockedUntil = st.CompleteBy
	j.Current, j.Phase, j.Active, j.Running, j.Permit, j.UpdatedAt = perdure.Unsure, perdure.Running, 0, 1, true, now
}

// submitOne is submit for jobs of one step and one shape, as edited.
func (m *mill) submitOne(edit func(*perdure.Job, *perdure.Step)) {
	c := perdure.Changes{NewJobs: make([]perdure.NewJob, m.size)}
	m.batch = m.batch[:0]
	for i := range m.size {
		m.made++
		id := id(0)
		binary.BigEndian.PutUint32(id[12:], uint32(m.made))
		j := &perdure.Job{
			ID: id, Type: "order", Priority: 5, Desired: perdure.Done, Phase: perdure.Waiting, Unsettled: 1, Active: 1,
			CreatedAt: at(0), UpdatedAt: at(0), Shape: perdure.ShapeID{1}, Input: []byte(`{"amount":4200,"sku":"tea-12"}`),
		}
		binary.BigEndian.PutUint32(j.Hash[4:], uint32(m.made))
		st := &perdure.Step{
			StepRef: perdure.StepRef{Job: id}, Name: "s0", Type: "order", Priority: 5, Desired: perdure.Done,
			Phase: perdure.Ready, Turn: 1, Agent: "http", ReadyAt: at(0), UpdatedAt: at(0),
		}
		edit(j, st)
		m.batch = append(m.batch, id)
		c.NewJobs[i] = perdure.NewJob{Job: j, Steps: []*perdure.Step{st}, Shape: []byte(`{"type":"order","steps":{"s0":{"agent":"http"}}}`)}
	}
	m.update(func(tx perdure.Tx) error {
		if _, err := tx.LockJobs(m.batch); err != nil { // none is there: so does the scheduler ask
			return err
		}
		return tx.Save(&c)
	})
}
