package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure"
)

// interruptible returns a context that ends with the first SIGINT, SIGTERM or SIGHUP. The second signal ends the process
// at once: nothing is lost, because the state is in the store.
func (a *app) interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // a closed terminal; under nohup the process must continue
		signal.Notify(signals, syscall.SIGHUP)
	}
	done := make(chan struct{})
	go func() {
		for first := true; ; first = false {
			select {
			case <-signals:
			case <-done:
				return
			}
			if !first {
				restoreTerminal()
				os.Exit(exitInterrupted)
			}
			cancel(errInterrupted)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// bounded applies --timeout to ctx.
func (a *app) bounded(ctx context.Context) (context.Context, func()) {
	if a.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, time.Duration(a.timeout), errTimeout)
}

// news is one message of a follower.
type news struct {
	t     *tracker
	view  *perdure.JobView // nil: no change
	past  *past            // nil: not looked up
	lost  error            // the server does not answer at present
	ended bool
	stuck bool // ended, because it needs an operator
	err   error
}

// follow shows the jobs until all are settled or need an operator. Its error is errTimeout, errInterrupted, or another failure.
func (a *app) follow(ctx context.Context, svc perdure.Jobs, jobs []*tracker, show display) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := make(chan news)
	open := 0
	for _, t := range jobs {
		t.past = pastOf(ctx, svc, &t.view)
		if !t.atRest() {
			open++
			go followOne(ctx, svc, t, in)
		}
	}
	show.begin(jobs)
	defer show.end()
	ticker := time.NewTicker(redrawEvery)
	defer ticker.Stop()
	var failed error
	for open > 0 {
		select {
		case n := <-in:
			switch {
			case n.view != nil:
				if n.past != nil {
					n.t.past = *n.past
				}
				show.moved(n.t, n.view, n.t.take(n.view))
			case n.lost != nil:
				show.say(fmt.Sprintf("%v; trying again", n.lost))
			}
			if n.ended {
				open--
				n.t.stuck = n.stuck
				failed = worse(failed, n.err)
			}
		case <-ticker.C:
			show.tick()
			if t, ok := svc.(*target); ok && t.far() && a.out.broken() {
				return worse(failed, exit(exitInterrupted)) // stdout is closed, and the job continues without this process
			}
		case <-ctx.Done():
			return worse(failed, context.Cause(ctx))
		}
	}
	return failed
}

const lostFor = time.Minute // how long a server may be unreachable before its followers give up

// retries reports whether a command that waits repeats a call that has failed: for lostFor, while the server is unreachable.
// lost is since when it is; the command sets it to zero when the server has answered.
func (a *app) retries(err error, lost *time.Time) bool {
	switch {
	case perdure.CodeOf(err) != perdure.CodeUnavailable:
		return false
	case lost.IsZero():
		*lost = time.Now()
		a.talk("%v; trying again", err)
	}
	return time.Since(*lost) <= lostFor
}

var errNeedsOperator = errors.New("the job goes on only after an operator has acted")

// followOne follows one job until it is settled or needs an operator. It retries while the server is unreachable.
func followOne(ctx context.Context, svc perdure.Jobs, t *tracker, out chan<- news) {
	ref, steps := t.view.ID.String(), len(t.view.Steps)
	send := func(n news) error {
		n.t = t
		select {
		case out <- n:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	whole := false // the latest view was complete
	desired := t.view.Desired
	var lost time.Time // since when the server is unreachable; zero: it is reachable
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		life, end := context.WithCancelCause(ctx)
		patience := time.AfterFunc(stuckFor, func() { end(errNeedsOperator) })
		patience.Stop() // until the job needs an operator
		err := svc.Follow(life, ref, func(v *perdure.JobView) error {
			lost, pause, whole = time.Time{}, 100*time.Millisecond, len(v.Steps) == steps
			n := news{view: v}
			if v.Desired != desired || whole && v.Phase == perdure.Settled {
				p := pastOf(ctx, svc, v)
				n.past, desired = &p, v.Desired
			}
			if whole && needsOperator(v) && v.Phase == perdure.Waiting { // the server does not end the stream
				patience.Reset(stuckFor)
			} else {
				patience.Stop()
			}
			return send(n)
		})
		patience.Stop()
		stuck := errors.Is(context.Cause(life), errNeedsOperator)
		end(nil)
		if stuck {
			_ = send(news{ended: true, stuck: true})
			return
		}
		if err == nil && !whole { // the last picture needs all outputs and alerts
			var v *perdure.JobView
			if v, err = svc.Job(ctx, ref, 0); err == nil {
				p := pastOf(ctx, svc, v)
				err = send(news{view: v, past: &p})
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			_ = send(news{ended: true})
			return
		case perdure.CodeOf(err) == perdure.CodeUnavailable && lost.IsZero(): // reported once
			lost = time.Now()
			_ = send(news{lost: err})
		case perdure.CodeOf(err) != perdure.CodeUnavailable || time.Since(lost) > lostFor:
			_ = send(news{ended: true, err: err})
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// worse returns the error with the higher exit code.
func worse(a, b error) error {
	if codeOf(b) > codeOf(a) {
		return b
	}
	return a
}

// drive starts the target's node, if it has one, and follows the jobs. The node is always drained before drive returns.
func (a *app) drive(ctx context.Context, t *target, jobs []*tracker, show display, grace time.Duration) error {
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	if t.far() {
		return a.follow(ctx, t, jobs, show)
	}
	if err := t.start(ctx); err != nil {
		return err
	}
	err := a.follow(ctx, t, jobs, show)
	if errors.Is(err, errInterrupted) {
		a.talk("draining, for at most %s; once more to leave at once", span(grace))
	}
	if serr := t.stop(grace); serr != nil {
		a.talk("the drain was cut short: %v", serr)
	}
	return err
}

// finish prints how the jobs have ended and what to do next, and returns the exit code as an error. again is the command
// that continues with them.
func (a *app) finish(t *target, jobs []*tracker, err error, again string) error {
	now := time.Now()
	code := codeOf(err)
	for _, j := range jobs {
		if a.json() {
			if oerr := a.object(&j.view); oerr != nil {
				return oerr
			}
		} else {
			a.printf("%s\n", j.ending(a.st, now))
		}
		if j.atRest() {
			code = max(code, stateCode(&j.view, j.want))
			for _, line := range advice(&j.view, t.where) {
				a.talk("  %s", line)
			}
		}
	}
	switch {
	case errors.Is(err, errInterrupted), errors.Is(err, errTimeout):
		a.goOn(t, jobs, err, again)
	case err != nil:
		complain(a.err, a.errSt, err)
	}
	return quietly(code)
}

// goOn tells a user who interrupts the command that the jobs continue, and how to follow them.
func (a *app) goOn(t *target, jobs []*tracker, err error, again string) {
	goes := "goes on"
	if !t.far() {
		goes = "is safe in " + t.place
	}
	what := "the job"
	var open *tracker
	for _, j := range jobs {
		if !j.atRest() {
			if open != nil {
				what, goes = "the jobs", strings.Replace(strings.Replace(goes, "goes", "go", 1), "is ", "are ", 1)
			}
			open = j
		}
	}
	a.talk("%v: %s %s", err, what, goes)
	if open == nil {
		return
	}
	ref := refOf(&open.view)
	if again != "" {
		a.talk("  go on:    %s", again)
	}
	a.talk("  look:     perdure get %s%s", ref, t.where)
	a.talk("  go back:  perdure undo %s%s", ref, t.where)
}
