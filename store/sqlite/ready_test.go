package sqlite

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
)

// A full lane of a hundred thousand steps slows down neither the search for steps of other types, nor that for steps of
// its own jobs that hold a permit.
func TestSearchSkipsAFullLane(t *testing.T) {
	racedetector.Skip(t)
	s := open(t, filepath.Join(t.TempDir(), "perdure.db"))
	n := 0
	submit := func(typ string, jobs, steps, priority int, permit bool) {
		var c kernel.Changes
		for range jobs {
			n++
			j := &kernel.Job{Type: typ, Priority: priority, HasPermit: permit, Desired: perdure.Done, Phase: perdure.Waiting}
			binary.BigEndian.PutUint32(j.ID[12:], uint32(n))
			nj := kernel.NewJob{Job: j}
			for i := range steps {
				nj.Steps = append(nj.Steps, &kernel.Step{StepRef: kernel.StepRef{Job: j.ID, Index: i}, Name: fmt.Sprint(i),
					Type: typ, Priority: priority, Desired: perdure.Done, Phase: perdure.Ready, Agent: "http"})
			}
			c.NewJobs = append(c.NewJobs, nj)
		}
		if err := save(s, &c); err != nil {
			t.Fatal(err)
		}
	}
	submit("full", 10, 10_000, 9, false)
	submit("full", 3, 2, 5, true)
	submit("other", 50, 2, 1, false)
	if err := s.Update(ctx, func(tx kernel.Tx) error {
		return tx.PutLimit(kernel.Limit{Name: "job:full", Max: 3, PerKey: kernel.Unbounded})
	}); err != nil {
		t.Fatal(err)
	}
	ready := func(full ...string) (refs []kernel.StepRef, took time.Duration) {
		took = time.Hour
		for range 10 { // the fastest search counts, because the machine may delay others
			start := time.Now()
			err := s.Update(ctx, func(tx kernel.Tx) (err error) {
				refs, err = tx.Ready("http", 20, full, nil)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			took = min(took, time.Since(start))
		}
		return refs, took
	}
	refs, took := ready("job:full")
	if len(refs) != 20 || binary.BigEndian.Uint32(refs[0].Job[12:]) != 11 || binary.BigEndian.Uint32(refs[6].Job[12:]) != 14 {
		t.Errorf("got %v", refs)
	}
	free, took2 := ready()
	if len(free) != 20 || binary.BigEndian.Uint32(free[0].Job[12:]) != 1 {
		t.Errorf("got %v", free)
	}
	t.Logf("search past a full lane: %v, without a full lane: %v", took, took2)
	if took > 50*time.Millisecond || took2 > 50*time.Millisecond {
		t.Errorf("search past a full lane: %v, without a full lane: %v", took, took2)
	}
}
