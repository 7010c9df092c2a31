package scheduler_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/racedetector"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// arrivals counts how new jobs are stored: dispatched at once, or ready for a later claim. Each transaction takes a few
// milliseconds, so that more work arrives meanwhile.
type arrivals struct {
	kernel.Store
	out, queued atomic.Int64
}

type arrivalsTx struct {
	kernel.Tx
	s *arrivals
}

func (s *arrivals) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	time.Sleep(3 * time.Millisecond)
	return s.Store.Update(ctx, func(tx kernel.Tx) error { return fn(arrivalsTx{tx, s}) })
}

func (tx arrivalsTx) Save(c *kernel.Changes) error {
	for i := range c.NewJobs {
		if c.NewJobs[i].Steps[0].Phase == perdure.Running {
			tx.s.out.Add(1)
		} else {
			tx.s.queued.Add(1)
		}
	}
	return tx.Tx.Save(c)
}

// held runs a test with a scheduler in virtual time.
func held(t *testing.T, what func(t *testing.T, d *harness, s *arrivals)) {
	synctest.Test(t, func(t *testing.T) {
		s := &arrivals{Store: memory.New()}
		what(t, open(t, s, scheduler.Config{Writers: 3}), s)
	})
}

func (d *harness) submitSet(size int) { d.submitSetOf(plan(d.t, one), size) }

func (d *harness) submitSetOf(p *kernel.Plan, size int) {
	set := make([]*kernel.Plan, size)
	for i := range set {
		set[i] = p
	}
	all, err := d.SubmitAll(d.t.Context(), set)
	if err != nil {
		d.t.Error(err)
	}
	for i := range all {
		if all[i].Err != nil {
			d.t.Error(all[i].Err)
		}
	}
}

// claimAndReport claims and reports until so many runs are done.
func (d *harness) claimAndReport(most, total int, done *atomic.Int64, duration time.Duration) {
	d.claimAndReportWaiting(100*time.Millisecond, most, total, done, duration)
}

func (d *harness) claimAndReportWaiting(wait time.Duration, most, total int, done *atomic.Int64, duration time.Duration) {
	for done.Load() < int64(total) {
		runs, err := d.Claim(d.t.Context(), protocol.Claim{Agent: "a", Holder: "h", Max: most, Wait: wait})
		if err != nil {
			d.t.Error(err)
			return
		}
		time.Sleep(duration)
		done.Add(int64(len(runs)))
		reports := make([]protocol.Report, len(runs))
		for i, r := range runs {
			reports[i] = protocol.Report{Job: r.Job, Step: r.Step, Run: r.Number, Outcome: perdure.OutcomeDone}
		}
		if _, _, err := d.Report(d.t.Context(), "h", reports, nil); err != nil {
			d.t.Error(err)
			return
		}
	}
}

// Eight callers submit in sets, faster than the agent claims: most jobs are dispatched by the transaction that stores
// them.
func TestJobsOfSetsAreDispatchedAtOnce(t *testing.T) {
	held(t, func(t *testing.T, d *harness, s *arrivals) {
		const sets, size = 80, 200
		var left, done atomic.Int64
		left.Store(sets)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { d.claimAndReport(500, sets*size, &done, 5*time.Millisecond) })
		}
		for range 8 {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					d.submitSet(size)
				}
			})
		}
		all.Wait()
		if out, queued := s.out.Load(), s.queued.Load(); out+queued != sets*size || queued > sets*size/10 {
			t.Errorf("%d dispatched at once, %d stored as ready", out, queued)
		}
	})
}

// parallelJob returns a job of parallel steps and a join.
func parallelJob(t *testing.T, steps int) *kernel.Plan {
	all, names := "", ""
	for i := range steps {
		all += fmt.Sprintf(`"s%d":{"agent":"a"},`, i)
		names += fmt.Sprintf(`,"s%d"`, i)
	}
	return plan(t, `{"type":"fan","steps":{`+all+`"join":{"agent":"a","after":[`+names[1:]+`]}}}`)
}

// A few jobs of many steps each are held because of the number of their runs, also for claims that have waited for long.
func TestJobsOfManyStepsAreDispatchedAtOnce(t *testing.T) {
	held(t, func(t *testing.T, d *harness, s *arrivals) {
		const first, sets, size, steps = 2000, 3, 20, 100
		var done atomic.Int64
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				d.claimAndReportWaiting(time.Minute, 300, first+sets*size*(steps+1), &done, 5*time.Millisecond)
			})
		}
		time.Sleep(time.Second)
		for range 10 {
			d.submitSet(first / 10) // so that the agent's pace is known
		}
		s.out.Store(0)
		s.queued.Store(0)
		fan := parallelJob(t, steps)
		for range sets {
			time.Sleep(10 * time.Second)
			d.submitSetOf(fan, size)
		}
		all.Wait()
		if out, queued := s.out.Load(), s.queued.Load(); out != sets*size || queued > 0 {
			t.Errorf("%d dispatched at once, %d stored as ready", out, queued)
		}
	})
}

// Many callers submit more than an agent takes in a quarter of a second. As long as the agent takes held submissions,
// submissions are held.
func TestSubmissionsAreHeldWhileOthersAreTaken(t *testing.T) {
	held(t, func(t *testing.T, d *harness, s *arrivals) {
		const callers, size, slots = 16, 1000, 4000
		var left, done atomic.Int64
		left.Store(3 * callers)
		var all sync.WaitGroup
		for range slots / perdure.MaxBatch {
			all.Go(func() { d.claimAndReport(perdure.MaxBatch, 3*callers*size, &done, 100*time.Millisecond) })
		}
		for range callers {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					d.submitSet(size)
				}
			})
		}
		all.Wait()
		if out, queued := s.out.Load(), s.queued.Load(); out+queued != 3*callers*size || queued > 3*callers*size/10 {
			t.Errorf("%d dispatched at once, %d stored as ready", out, queued)
		}
	})
}

// Submissions do not wait for an agent that does not claim or asks for little. For an agent that cannot keep up, they
// wait no longer than a second.
func TestHoldingEndsWithoutClaims(t *testing.T) {
	answered := func(d *harness, size int, within time.Duration) {
		d.t.Helper()
		began := time.Now()
		d.submitSet(size)
		if duration := time.Since(began); duration > within {
			d.t.Errorf("answered after %v", duration)
		}
	}
	const quick = 20 * time.Millisecond
	held(t, func(t *testing.T, d *harness, _ *arrivals) {
		answered(d, 300, quick) // no claim yet
		d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 1000})
		answered(d, 300, 400*time.Millisecond)
		answered(d, 300, quick) // the latest claim is too old
	})
	held(t, func(t *testing.T, d *harness, _ *arrivals) {
		var done atomic.Int64
		const total = 2000
		go d.claimAndReport(10, total, &done, 30*time.Millisecond)
		for range 6 {
			time.Sleep(time.Millisecond)
			answered(d, 300, quick)
		}
		done.Store(total)
		time.Sleep(time.Second)
	})
	held(t, func(t *testing.T, d *harness, _ *arrivals) {
		var done atomic.Int64
		const total, callers, size = 20_000, 10, 1000 // 4,000 a second
		for range 2 {
			go d.claimAndReport(250, total, &done, 110*time.Millisecond)
		}
		time.Sleep(300 * time.Millisecond) // so that the agent's pace is known
		var all sync.WaitGroup
		for range callers {
			all.Go(func() { answered(d, size, 1100*time.Millisecond) })
		}
		all.Wait()
		for range 4 {
			answered(d, size, 1100*time.Millisecond)
		}
		done.Store(total)
		time.Sleep(time.Second)
	})
}

// If an agent does not take held submissions in time, nothing is held for it for a while. Each pause is longer than the
// one before, up to five seconds, unless the latest one was long ago.
func TestPausesOfHoldingGrow(t *testing.T) {
	racedetector.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		d := open(t, &arrivals{Store: memory.New()}, scheduler.Config{Writers: 3, HoldMinPace: 1})
		d.submitSet(1000)
		ctx, stop := context.WithCancel(context.Background())
		go func() { // there are more jobs than the agent takes, so that held ones are not taken in time
			for ctx.Err() == nil {
				d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 1})
				time.Sleep(50 * time.Millisecond)
			}
		}()
		time.Sleep(300 * time.Millisecond)
		isHeld := func(want bool) {
			t.Helper()
			began := time.Now()
			d.submitSet(100)
			if duration := time.Since(began); duration > 100*time.Millisecond != want {
				t.Errorf("answered after %v", duration)
			}
		}
		isHeld(true)
		for range 2 {
			for _, pause := range []time.Duration{250, 500, 1000, 2000, 4000, 5000, 5000} {
				time.Sleep((pause - 50) * time.Millisecond)
				isHeld(false)
				time.Sleep(50 * time.Millisecond)
				isHeld(true)
			}
			time.Sleep(10 * time.Second)
			isHeld(true)
		}
		stop()
		time.Sleep(time.Second)
	})
}

// If the node stops, held submissions are refused, so that their callers know that they are not stored (F117).
func TestHeldSubmissionsAreRefusedWhenTheNodeStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &arrivals{Store: memory.New()}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		other := scheduler.New(scheduler.Config{Store: s, Compiler: &definition.Compiler{}})
		var running sync.WaitGroup
		running.Go(func() { other.Run(ctx) })
		if _, err := other.Claim(ctx, protocol.Claim{Agent: "a", Holder: "h", Max: 1000}); err != nil {
			t.Fatal(err)
		}
		set := make([]*kernel.Plan, 200)
		for i := range set {
			set[i] = plan(t, one)
		}
		var all []scheduler.Submitted
		running.Go(func() { all, _ = other.SubmitAll(t.Context(), set) })
		time.Sleep(20 * time.Millisecond)
		stop()
		running.Wait()
		for i := range all {
			if perdure.CodeOf(all[i].Err) != perdure.CodeUnavailable {
				t.Fatalf("answer %d: %v", i, all[i])
			}
		}
		if stored := s.out.Load() + s.queued.Load(); len(all) != len(set) || stored != 0 {
			t.Errorf("%d answers, %d stored", len(all), stored)
		}
	})
}

// A held submission is answered after its commit. If its transaction fails, its caller gets an error, and the job does
// not exist (F005).
func TestHeldSubmissionIsNotAnsweredBeforeTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fullDisk{Store: memory.New()}
		d := open(t, s, scheduler.Config{Writers: 1})
		d.submitSet(2000) // so that the agent's pace is known
		d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 2000})
		set := make([]*kernel.Plan, 200)
		for i := range set {
			set[i] = plan(t, one)
		}
		var all []scheduler.Submitted
		var going sync.WaitGroup
		going.Go(func() { all, _ = d.SubmitAll(t.Context(), set) })
		time.Sleep(20 * time.Millisecond)
		if all != nil {
			t.Fatal("not held")
		}
		s.fails.Store(true)
		going.Go(func() {
			_, _ = d.Claim(t.Context(), protocol.Claim{Agent: "a", Holder: "h", Max: 1000, Wait: 10 * time.Millisecond})
		})
		going.Wait()
		s.fails.Store(false)
		if len(all) != len(set) {
			t.Fatalf("%d answers", len(all))
		}
		for i := range all {
			if perdure.CodeOf(all[i].Err) != perdure.CodeUnavailable {
				t.Fatalf("answer %d: %v", i, all[i])
			}
			if all[i].ID != (perdure.JobID{}) {
				t.Fatalf("answer %d: %v", i, all[i])
			}
		}
	})
}

// fullDisk is a store in which, from some time on, every transaction that stores jobs is rolled back.
type fullDisk struct {
	kernel.Store
	fails atomic.Bool
}

func (s *fullDisk) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return s.Store.Update(ctx, func(tx kernel.Tx) error {
		watched := &savingTx{Tx: tx}
		if err := fn(watched); err != nil {
			return err
		}
		if watched.jobs && s.fails.Load() {
			return &perdure.Error{Code: perdure.CodeUnavailable, Message: "the disk is full"}
		}
		return nil
	})
}

type savingTx struct {
	kernel.Tx
	jobs bool
}

func (tx *savingTx) Save(c *kernel.Changes) error {
	tx.jobs = tx.jobs || len(c.NewJobs) > 0
	return tx.Tx.Save(c)
}
