package conform

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

const (
	step   = "step"
	author = "perdure agents test"
	margin = 500 * time.Millisecond // for the way of a call

	// silentLock is the lock of the run of Silence.
	silentLock = time.Second
	// begins is how long a run is in flight before its process gets SIGTERM, so that it has begun.
	begins = 300 * time.Millisecond
	// claimsWithin is how soon an agent that has a free slot claims again.
	claimsWithin = 30 * time.Second
)

// Run tests the points one after the other, and calls each with every result. It returns an error if the agent does not
// claim at all.
func (s *Stand) Run(ctx context.Context, each func(Result)) error {
	if p := s.cfg.Process; p != nil {
		if err := p.Start(); err != nil {
			return perdure.Refuse(perdure.CodeInvalid, "the agent cannot be started: %v", err)
		}
		defer p.Kill()
	}
	gone := false
	if !s.until(ctx, claimsWithin, func(*scene) bool { gone = s.gone(); return gone || !s.claimed.IsZero() }) || gone {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case gone:
			return &perdure.Error{Code: perdure.CodeUnavailable, Message: "the agent has ended, and has claimed no runs of agent " + s.cfg.Agent,
				Hint: "its own output says why; it finds the address of this command in PERDURE_SERVER"}
		}
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("nothing has claimed runs of agent %s within %s", s.cfg.Agent, perdure.Duration(claimsWithin)),
			Hint: "start it with the address of this command as its server, and compare the name"}
	}
	tests := map[Point]func(context.Context) (Verdict, string){Duplicate: s.duplicate, LateReport: s.lateReport, LostAnswer: s.lostAnswer,
		UndoBeforeDo: s.undoBeforeDo, Silence: s.silence, Drain: s.drain}
	for _, p := range Points {
		if len(s.cfg.Only) > 0 && !slices.Contains(s.cfg.Only, p) {
			continue
		}
		if err := s.alive(); err != nil {
			return err
		}
		v, why := tests[p](ctx)
		s.over(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s.err != nil {
			return s.err
		}
		each(Result{p, v, why})
	}
	return nil
}

// alive starts the program again if it has ended.
func (s *Stand) alive() error {
	if s.gone() {
		return s.cfg.Process.Start()
	}
	return nil
}

// gone reports whether the program has ended.
func (s *Stand) gone() bool {
	if s.cfg.Process == nil {
		return false
	}
	select {
	case <-s.cfg.Process.Ended():
		return true
	default:
		return false
	}
}

// over ends a scene: its job gets no further runs.
func (s *Stand) over(ctx context.Context) {
	s.mu.Lock()
	sc := s.scene
	s.scene = nil
	s.mu.Unlock()
	if sc != nil {
		_, _ = s.Node.Act(ctx, sc.job.String(), perdure.Act{Verb: perdure.VerbGiveUp, Author: author}) // a conflict if it is settled
	}
}

// submit begins a scene with a job of one step.
func (s *Stand) submit(ctx context.Context, input []byte, sc *scene) error {
	job := perdure.Define("agentsTest")
	st := job.Step(step, s.cfg.Agent).CompleteWithin(s.cfg.Time).Retry(perdure.Retry{Attempts: 20, Backoff: perdure.Duration(100 * time.Millisecond), MaxBackoff: perdure.Duration(100 * time.Millisecond)})
	if s.cfg.Action != "" {
		st.Action(s.cfg.Action)
	}
	if len(input) > 0 {
		st.With(json.RawMessage(input))
	}
	if !s.cfg.NoUndo {
		st.Undo()
	}
	s.mu.Lock() // what the node grants meanwhile waits for the id of the job
	defer s.mu.Unlock()
	s.scene, s.given = sc, nil
	v, _, err := perdure.Submit(ctx, s.Node, st)
	if err != nil {
		return err
	}
	sc.job = v.ID
	return nil
}

// broken ends the test: the job itself was refused.
func (s *Stand) broken(err error) (Verdict, string) {
	s.err = err
	return skipped(err.Error())
}

// settled waits until the job of the scene is done. It returns false at once if the job is parked.
func (s *Stand) settled(ctx context.Context, sc *scene, d time.Duration) (done bool) {
	s.until(ctx, d, func(*scene) bool {
		v, err := s.Node.Job(ctx, sc.job.String(), 0)
		done = err == nil && v.Phase == perdure.Settled && v.Current == perdure.Done
		return done || err == nil && v.Phase == perdure.Parked
	})
	return done
}

// first returns the first report that matches; nil if there is none. mu must be held.
func (sc *scene) first(matches func(*reported) bool) *reported {
	for i := range sc.reports {
		if matches(&sc.reports[i]) {
			return &sc.reports[i]
		}
	}
	return nil
}

// records returns the reports so far.
func (s *Stand) records(sc *scene) []reported {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(sc.reports)
}

// patience is how long the agent may take for n runs, one after the other, with the expiry of each.
func (s *Stand) patience(n int) time.Duration {
	return time.Duration(n)*(s.cfg.Time+3*time.Second) + claimsWithin/3
}

// notDone describes a report that is not the success that was expected.
func notDone(r *reported) string {
	text := fmt.Sprintf("run %d was reported as %s", r.Run, r.Outcome)
	if r.Error != nil && r.Error.Message != "" {
		text += ": " + shown([]byte(r.Error.Message))
	}
	return text
}

// differs says how a report differs from an earlier one of the same key; empty if it does not.
func differs(a, b *reported) string {
	switch {
	case a.Outcome != perdure.OutcomeDone:
		return notDone(a)
	case b.Outcome != perdure.OutcomeDone:
		return notDone(b)
	case !same(a.Output, b.Output):
		return fmt.Sprintf("run %d has the output %s, and run %d of the same key %s: was the effect repeated?", a.Run, shown(a.Output), b.Run, shown(b.Output))
	}
	return ""
}

// duplicate: the agent gets the same run twice, and its report is lost, so that another run with the same key follows.
func (s *Stand) duplicate(ctx context.Context) (Verdict, string) {
	sc := &scene{}
	var run perdure.Run
	sc.deliver = func(r *perdure.Run) bool {
		if r.Number == 1 {
			run = *r
		}
		return true
	}
	sc.report = func(r *protocol.Report) way {
		if r.Run == 1 {
			return swallow
		}
		return forward
	}
	if err := s.submit(ctx, s.cfg.Input, sc); err != nil {
		return s.broken(err)
	}
	if !s.until(ctx, s.patience(1), func(*scene) bool { return len(sc.reports) > 0 }) {
		return failed("run 1 was not reported")
	}
	s.give(run, s.cfg.Time)
	if !s.settled(ctx, sc, s.patience(3)) {
		return failed(unsettled(s.records(sc), "the second run with the same key"))
	}
	all := s.records(sc)
	for i := range all[1:] {
		if text := differs(&all[0], &all[i+1]); text != "" {
			return failed(text)
		}
	}
	return passed(fmt.Sprintf("%d reports of one key, all with the same output", len(all)))
}

// unsettled says which run did not bring the job to its end.
func unsettled(all []reported, what string) string {
	if len(all) == 0 {
		return what + " was not reported"
	}
	if last := &all[len(all)-1]; last.Outcome != perdure.OutcomeDone {
		return notDone(last)
	}
	return what + " was not reported"
}

// lateReport: the report of the first run arrives after that has expired, and is refused.
func (s *Stand) lateReport(ctx context.Context) (Verdict, string) {
	sc := &scene{}
	sc.report = func(r *protocol.Report) way {
		if r.Run == 1 {
			return hold
		}
		return forward
	}
	if err := s.submit(ctx, s.cfg.Input, sc); err != nil {
		return s.broken(err)
	}
	settled := s.settled(ctx, sc, s.patience(3))
	all := s.records(sc)
	late := slices.IndexFunc(all, func(r reported) bool { return r.Run == 1 && !r.result.Accepted })
	switch {
	case late < 0:
		return failed("run 1 was not reported")
	case all[late].Outcome != perdure.OutcomeDone:
		return failed(notDone(&all[late]))
	case !settled:
		return failed(fmt.Sprintf("the report of run 1 was refused (%s), and no later run was reported as done", all[late].result.Reason))
	}
	for i := range all {
		if text := differs(&all[late], &all[i]); text != "" {
			return failed(text)
		}
	}
	return passed(fmt.Sprintf("the late report was refused (%s), and a later run was done", all[late].result.Reason))
}

// lostAnswer: the first report arrives, and its answer does not.
func (s *Stand) lostAnswer(ctx context.Context) (Verdict, string) {
	sc := &scene{}
	lost := false
	sc.report = func(r *protocol.Report) way {
		if !lost {
			lost = true
			return cut
		}
		return forward
	}
	if err := s.submit(ctx, s.cfg.Input, sc); err != nil {
		return s.broken(err)
	}
	repeated := s.until(ctx, s.patience(1)+s.slack, func(*scene) bool { return len(sc.reports) > 1 })
	all := s.records(sc)
	switch {
	case len(all) == 0:
		return failed("run 1 was not reported")
	case all[0].Outcome != perdure.OutcomeDone:
		return failed(notDone(&all[0]))
	case !repeated:
		return failed("the report whose answer was lost was not repeated")
	case all[1].result.Reason == protocol.RefusedConflict || all[1].Outcome != all[0].Outcome:
		return failed(fmt.Sprintf("the repeated report says %s, and the first one said %s", all[1].Outcome, all[0].Outcome))
	}
	return passed("the report was repeated, with the same outcome")
}

// undoBeforeDo: the undo arrives first, and the do that it undoes afterwards.
func (s *Stand) undoBeforeDo(ctx context.Context) (Verdict, string) {
	if s.cfg.NoUndo {
		return skipped("the action has no undo (--no-undo)")
	}
	sc := &scene{}
	var do *perdure.Run
	sc.deliver = func(r *perdure.Run) bool {
		if r.Direction == perdure.Do {
			if do == nil {
				kept := *r
				do = &kept
			}
			return false
		}
		return true
	}
	if err := s.submit(ctx, s.cfg.Input, sc); err != nil {
		return s.broken(err)
	}
	if !s.until(ctx, claimsWithin, func(*scene) bool { return do != nil }) {
		return failed("the agent does not claim any more")
	}
	if _, err := s.Node.Act(ctx, sc.job.String(), perdure.Act{Verb: perdure.VerbUndo, Author: author}); err != nil {
		return failed(err.Error())
	}
	isUndo := func(r *reported) bool { return r.Run > do.Number }
	if !s.until(ctx, s.patience(2), func(*scene) bool { return sc.first(isUndo) != nil }) {
		return failed("the undo run was not reported")
	}
	s.mu.Lock()
	undo := *sc.first(isUndo)
	s.mu.Unlock()
	if undo.Outcome != perdure.OutcomeDone {
		return failed("the undo of what was never done must succeed; " + notDone(&undo))
	}
	s.give(*do, s.cfg.Time)
	isDo := func(r *reported) bool { return r.Run == do.Number }
	if !s.until(ctx, s.cfg.Time+margin, func(*scene) bool { return sc.first(isDo) != nil }) {
		return passed("the undo was done, and the do that came after it was not reported")
	}
	s.mu.Lock()
	late := *sc.first(isDo)
	s.mu.Unlock()
	if late.Outcome == perdure.OutcomeDone {
		return failed("a do run was done after the undo of its key had been done: remember the keys that were undone (a tombstone)")
	}
	return passed(fmt.Sprintf("the undo was done, and the do that came after it was reported as %s", late.Outcome))
}

// silence: heartbeats are not answered, and the lock ends while the run goes on.
func (s *Stand) silence(ctx context.Context) (Verdict, string) {
	sc := &scene{}
	var until time.Time
	silent := true
	sc.deliver = func(r *perdure.Run) bool {
		if r.Number == 1 {
			until = time.Now().Add(silentLock)
			r.LockedUntil, r.RemainingMs, r.WaitedMs = until, silentLock.Milliseconds(), 0
		}
		return true
	}
	sc.beat = func() error {
		if silent && !until.IsZero() {
			return errSilent
		}
		return nil
	}
	input := s.cfg.LongInput
	if len(input) == 0 {
		input = s.cfg.Input
	}
	if err := s.submit(ctx, input, sc); err != nil {
		return s.broken(err)
	}
	if !s.until(ctx, claimsWithin, func(*scene) bool { return !until.IsZero() }) {
		return failed("the agent does not claim any more")
	}
	first := func(r *reported) bool { return r.Run == 1 }
	s.until(ctx, s.cfg.Time+margin, func(*scene) bool { return sc.first(first) != nil })
	s.mu.Lock()
	silent = false
	r := sc.first(first)
	s.mu.Unlock()
	switch {
	case r != nil && r.at.Before(until):
		return skipped(fmt.Sprintf("the run ended before its lock of %s: give an input with which it takes longer (--long-input)", perdure.Duration(silentLock)))
	case r != nil && r.at.After(until.Add(margin)):
		return failed(fmt.Sprintf("run 1 was reported as %s, %s after its lock had ended", r.Outcome, r.at.Sub(until).Round(100*time.Millisecond)))
	}
	if !s.settled(ctx, sc, s.patience(2)) {
		return failed(unsettled(s.records(sc), "a run after the one whose lock had ended"))
	}
	return passed("nothing was reported after the lock had ended, and the next run was done")
}

// drain: the process gets SIGTERM while it has a run.
func (s *Stand) drain(ctx context.Context) (Verdict, string) {
	p := s.cfg.Process
	if p == nil {
		return skipped("the agent was started elsewhere: give its command after --")
	}
	sc := &scene{}
	input := s.cfg.LongInput
	if len(input) == 0 {
		input = s.cfg.Input
	}
	if err := s.submit(ctx, input, sc); err != nil {
		return s.broken(err)
	}
	if !s.until(ctx, claimsWithin, func(*scene) bool { return len(sc.deliveries) > 0 }) {
		return failed("the agent does not claim any more")
	}
	if s.until(ctx, begins, func(*scene) bool { return len(sc.reports) > 0 }) {
		return skipped(fmt.Sprintf("the run ended within %s: give an input with which it takes longer (--long-input)", perdure.Duration(begins)))
	}
	asked := time.Now()
	p.Terminate()
	select {
	case <-p.Ended():
	case <-time.After(s.cfg.Grace):
		p.Kill()
		return failed(fmt.Sprintf("the process has not ended %s after SIGTERM", perdure.Duration(s.cfg.Grace)))
	case <-ctx.Done():
		return failed("interrupted")
	}
	took := time.Since(asked).Round(10 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range sc.deliveries {
		if sc.first(func(r *reported) bool { return r.Run == d.Number }) == nil {
			return failed(fmt.Sprintf("the process ended %s after SIGTERM, and run %d was not reported: finish it, or report it as returned", took, d.Number))
		}
	}
	return passed(fmt.Sprintf("the process ended %s after SIGTERM, and had reported its runs", took))
}
