package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

const (
	author   = "simulated operator"
	retryIn  = time.Second // until the next search for ready steps that no claim has got, as behind a rate
	sweepMax = perdure.MaxBatch
	sweepIn  = 10 * time.Millisecond // until the next sweep, if something is due that the latest one has left
)

// awaited is a step that waits for a signal or an approval, in one turn.
type awaited struct {
	step string
	turn int
}

// drive submits the job, and lets time pass until nothing more happens. It returns nil if the simulation has failed.
func (s *simulation) drive(ctx context.Context) *Result {
	res, err := s.play(ctx)
	if err != nil {
		s.err = err
		return nil
	}
	return res
}

func (s *simulation) play(ctx context.Context) (*Result, error) {
	changed, stop := s.sched.FollowAll()
	defer stop()
	if err := s.crew.start(ctx); err != nil {
		return nil, err
	}
	first, _, err := s.svc.SubmitPlan(ctx, s.plan)
	if err != nil {
		return nil, err
	}
	s.job = first.ID
	undone := s.o.UndoAt == 0
	come := map[awaited]time.Duration{} // when the signals and approvals come; once they have come: -1
	for {
		left, err := s.sweep(ctx)
		if err != nil {
			return nil, err
		}
		v, err := s.look(ctx)
		if err != nil {
			return nil, err
		}
		if !undone && s.loop.Now >= s.o.UndoAt {
			undone = true
			if _, err := s.svc.Act(ctx, s.job.String(), perdure.Act{Verb: perdure.VerbUndo, Author: author, Reason: "--undo-at"}); err != nil {
				return nil, err
			}
			s.crew.ring()
			continue
		}
		acted, err := s.answer(ctx, v, come)
		if err != nil {
			return nil, err
		}
		if acted {
			s.crew.ring()
			continue
		}
		next, busy, err := s.next(ctx, v)
		if err != nil {
			return nil, err
		}
		at := func(t time.Duration) {
			if next < 0 || t < next {
				next = t
			}
		}
		for _, t := range come {
			if t >= 0 {
				at(t)
			}
		}
		if !undone {
			at(s.o.UndoAt)
		}
		switch {
		case v.Phase == perdure.Settled && undone:
			s.ending = Settled
		case v.Phase == perdure.Parked && next < 0 && !busy: // nothing will change that by itself, such as a deadline
			s.ending = Parked
		case s.crew.claimed >= MaxRuns:
			s.ending = RunsOver
		case s.loop.Now >= s.o.Horizon:
			s.ending = TimeOver
		case next < 0 && !busy && v.Phase != perdure.Settled:
			s.ending = Waiting
		}
		if s.ending != "" {
			return s.result(ctx, v)
		}
		if next < 0 || next > s.o.Horizon {
			next = s.o.Horizon
		}
		wait := next - s.loop.Now
		if left || wait <= 0 {
			wait = sweepIn
		}
		s.proc.Wait(ctx, wait, changed)
		s.crew.ring()
	}
}

// sweep applies what has become due by the passing of time. left reports that something may still be due.
func (s *simulation) sweep(ctx context.Context) (left bool, err error) {
	for _, sweep := range []func(context.Context, int) (int, error){s.sched.SweepExpired, s.sched.SweepDue, s.sched.SweepOverdue} {
		for {
			n, err := sweep(ctx, sweepMax)
			if err != nil {
				return false, err
			}
			if n < sweepMax {
				break
			}
		}
	}
	p, err := s.store.Poll(ctx, nil)
	if err == nil && p.LanesClosed {
		err = s.sched.SweepLanes(ctx)
	}
	return !p.Next.IsZero() && !p.Next.After(p.Now), err
}

// next returns the time at which something is due, or below 0 if nothing is. busy reports whether a run is in flight or a
// step is about to be dispatched.
func (s *simulation) next(ctx context.Context, v *perdure.JobView) (next time.Duration, busy bool, err error) {
	p, err := s.store.Poll(ctx, nil)
	if err != nil {
		return 0, false, err
	}
	next = -1
	if !p.Next.IsZero() {
		next = s.loop.Now + max(p.Next.Sub(p.Now), 0)
	}
	for i := range v.Steps {
		switch st := &v.Steps[i]; st.Phase {
		case perdure.Running:
			busy = true
		case perdure.Ready:
			busy = true
			if soon := s.loop.Now + retryIn; next < 0 || soon < next {
				next = soon
			}
		}
	}
	return next, busy, nil
}

// look reads the job, and passes it on if it has changed.
func (s *simulation) look(ctx context.Context) (*perdure.JobView, error) {
	v, err := s.svc.Job(ctx, s.job.String(), 0)
	if err != nil || s.o.Changed == nil {
		return v, err
	}
	now, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(now, s.last) {
		s.last = now
		s.o.Changed(ctx, s.loop.Now, v, s.svc)
	}
	return v, nil
}

// answer sends the signals and approvals whose time has come, and notes the times of those that a step has begun to wait
// for.
func (s *simulation) answer(ctx context.Context, v *perdure.JobView, come map[awaited]time.Duration) (acted bool, err error) {
	for i := range v.Steps {
		st := &v.Steps[i]
		if st.Phase != perdure.Waiting || st.Why == nil || st.Why.Kind != perdure.WhySignal && st.Why.Kind != perdure.WhyApproval {
			continue
		}
		b, approval := s.o.Steps[st.Name], st.Why.Kind == perdure.WhyApproval
		if b.Fail != 0 && !approval {
			continue // it does not come
		}
		w := awaited{st.Name, st.Turn}
		at, known := come[w]
		if !known {
			at = s.loop.Now + lastsOf(b)
			come[w] = at
		}
		if at < 0 || at > s.loop.Now {
			continue
		}
		come[w] = -1
		if approval {
			err = s.approve(ctx, st, b)
		} else {
			err = s.signal(ctx, st, b)
		}
		if err != nil {
			return acted, fmt.Errorf("step %s: %w", st.Name, err)
		}
		acted = true
	}
	return acted, nil
}

func (s *simulation) signal(ctx context.Context, st *perdure.StepView, b Behaviour) error {
	_, err := s.svc.SendSignal(ctx, operate.Signal{Name: st.Why.Signal, Key: st.Why.Key, Data: b.Output, Job: s.job.String(), Author: author})
	return err
}

// approve gives as many approvals as the step asks for, or one rejection.
func (s *simulation) approve(ctx context.Context, st *perdure.StepView, b Behaviour) error {
	if b.Fail != 0 {
		_, err := s.svc.Act(ctx, s.job.String(), perdure.Act{Verb: perdure.VerbReject, Step: st.Name, Author: author, Reason: "simulated rejection"})
		return err
	}
	for n := 1; n <= operate.MaxQuorum; n++ {
		act := perdure.Act{Verb: perdure.VerbApprove, Step: st.Name, Author: fmt.Sprintf("%s %d", author, n), Data: b.Output}
		v, err := s.svc.Act(ctx, s.job.String(), act)
		if err != nil {
			return err
		}
		if now := v.Steps.Get(st.Name); now == nil || now.Phase != perdure.Waiting || now.Why == nil || now.Why.Kind != perdure.WhyApproval {
			return nil
		}
	}
	return nil
}
