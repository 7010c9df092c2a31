package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/protocol"
)

// weather is what happens to a message in the network, by chance.
type weather struct {
	lose, double, slow float64
}

var (
	errReset   = errors.New("connection reset")
	errRefused = errors.New("connection refused")
)

// call is a call to a node over the network. Request and answer can be lost, doubled and late independently, and the
// node can die or be cut off meanwhile. rows are the names of these faults in the matrix.
type call struct {
	kind   string // submit, claim, report, heartbeat, act, limit
	lost   []string
	unsaid []string // the answer was lost
	twice  []string
}

var (
	callSubmit    = &call{kind: "submit", lost: []string{"F001"}, unsaid: []string{"F008"}, twice: []string{"F002"}}
	callClaim     = &call{kind: "claim", unsaid: []string{"F019"}, twice: []string{"F021"}}
	callReport    = &call{kind: "report", lost: []string{"F055"}, unsaid: []string{"F037"}, twice: []string{"F056", "F136"}}
	callHeartbeat = &call{kind: "heartbeat", lost: []string{"F042"}, unsaid: []string{"F042"}, twice: []string{"F042"}}
	callRegister  = &call{kind: "registration"}
	callAct       = &call{kind: "act"}
	callSignal    = &call{kind: "signal"}
	callGet       = &call{kind: "get"}
)

// open is a call in progress.
type open[T any] struct {
	got  T
	err  error
	over bool
	done chan struct{}
}

func (o *open[T]) answer(got T, err error) {
	if !o.over {
		o.got, o.err, o.over = got, err, true
		o.done <- struct{}{}
	}
}

// ask makes a call from a process. serve runs in the node that it reaches.
func ask[T any](ctx context.Context, w *world, p *process, c *call, serve func(context.Context, *node) (T, error)) (T, error) {
	var none T
	o := &open[T]{done: make(chan struct{}, 1)}
	n := w.anyNode()
	p.Wait(ctx, w.latency(), nil)
	if w.cutOff[p] || w.grid.cutOff(p) {
		w.hit("F040")
		p.Wait(ctx, w.upTo(3*time.Second), nil)
		return none, errReset
	}
	copies := 1
	switch {
	case w.chanced(w.net, w.weather.lose):
		copies = 0
		w.hit(c.lost...)
		w.logLine("%s of %s is lost", c.kind, p.Name)
	case w.chanced(w.net, w.weather.double):
		copies = 2
		w.hit(c.twice...)
		w.logLine("%s of %s is doubled", c.kind, p.Name)
	}
	for i := range copies {
		to := n
		if i > 0 {
			to = w.anyNode()
		}
		send(ctx, w, p, c, o, to, serve)
	}
	if copies == 0 && w.chanced(w.net, 0.7) {
		w.After(w.latency(), p, func() { o.answer(none, errReset) })
	}
	if why := p.Wait(ctx, 2*time.Minute, o.done); why != env.Got {
		if c == callSubmit {
			w.hit("F011")
		}
		return none, context.DeadlineExceeded
	}
	return o.got, o.err
}

// send delivers one copy of a request to a node, and its answer back.
func send[T any](ctx context.Context, w *world, p *process, c *call, o *open[T], n *node, serve func(context.Context, *node) (T, error)) {
	var none T
	answer := func(got T, err error) {
		delay := w.latency()
		if w.chanced(w.net, w.weather.lose) {
			w.hit(c.unsaid...)
			w.logLine("the answer to a %s of %s is lost", c.kind, p.Name)
			if w.chanced(w.net, 0.5) {
				return
			}
			got, err = none, errReset
		} else if w.chanced(w.net, w.weather.slow) {
			delay += w.upTo(20 * time.Second)
			if runs, ok := any(got).([]perdure.Run); ok && len(runs) > 0 && delay.Milliseconds() > runs[0].RemainingMs {
				w.hit("F022")
			}
		}
		w.After(delay, p, func() { o.answer(got, err) })
	}
	delay := w.latency()
	if w.chanced(w.net, w.weather.slow) {
		delay += w.upTo(10 * time.Second)
	}
	proc := n.proc
	if proc.Dead {
		w.After(delay, p, func() { o.answer(none, errRefused) })
		return
	}
	w.After(delay, proc, func() {
		nodeCtx := n.life
		if c == callClaim || c == callGet {
			nodeCtx = n.polls
		}
		callCtx, cancel := context.WithCancel(nodeCtx)
		proc.Go(func() {
			answered := false
			defer func() { // a connection breaks when its process dies, and mostly the other side notices
				cancel()
				if !answered && w.chanced(w.net, 0.8) {
					w.After(w.latency(), p, func() { o.answer(none, errReset) })
				}
			}()
			got, err := serve(callCtx, n)
			if proc.Dead {
				return
			}
			answered = true
			answer(got, err)
		})
		watch(w, p, proc, ctx, o, cancel)
	})
}

// watch notifies the server from time to time that its caller is gone (F020).
func watch[T any](w *world, p, server *process, ctx context.Context, o *open[T], cancel func()) {
	w.After(2*time.Second, server, func() {
		switch {
		case o.over:
		case ctx.Err() != nil || p.Dead:
			cancel()
		default:
			watch(w, p, server, ctx, o, cancel)
		}
	})
}

// remoteExchange is the Exchange of a host in another process.
type remoteExchange struct{ h *host }

func (x remoteExchange) Claim(ctx context.Context, req protocol.Claim) ([]perdure.Run, error) {
	w := x.h.w
	req.First = false // this field is not sent over the network
	return ask(ctx, w, x.h.proc, callClaim, func(ctx context.Context, n *node) ([]perdure.Run, error) {
		began := w.Now
		runs, err := n.real.Claim(ctx, req)
		if ctx.Err() != nil {
			w.hit("F020")
		}
		if err == nil && !n.proc.Dead {
			w.compareRuns(runs)
			w.book.granted(&req, began, runs)
		}
		return runs, err
	})
}

func (x remoteExchange) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	type answer struct {
		results []protocol.ReportResult
		runs    []perdure.Run
	}
	w := x.h.w
	x.h.says(reports)
	got, err := ask(ctx, w, x.h.proc, callReport, func(ctx context.Context, n *node) (got answer, err error) {
		began := w.Now
		var req *protocol.Claim
		if next != nil {
			claim := *next
			claim.First = false
			req = &claim
		}
		got.results, got.runs, err = n.real.Report(ctx, holder, slices.Clone(reports), req)
		if req != nil && err == nil && !n.proc.Dead {
			w.compareRuns(got.runs)
			w.book.granted(req, began, got.runs)
		}
		return got, err
	})
	if err == nil {
		w.checkReportAnswers(false, reports, got.results)
		x.h.contradict(reports, got.results)
	}
	return got.results, got.runs, err
}

func (x remoteExchange) Heartbeat(ctx context.Context, holder string, heartbeats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	sortBeats(heartbeats)
	return ask(ctx, x.h.w, x.h.proc, callHeartbeat, func(ctx context.Context, n *node) ([]protocol.HeartbeatResult, error) {
		return n.real.Heartbeat(ctx, holder, slices.Clone(heartbeats))
	})
}

// localExchange is the Exchange of a host in its node's own process.
type localExchange struct {
	h    *host
	real protocol.Exchange
}

func (x localExchange) Claim(ctx context.Context, req protocol.Claim) ([]perdure.Run, error) {
	runs, err := x.h.in.real.Claim(ctx, req)
	x.h.w.compareRuns(runs)
	return runs, err
}

func (x localExchange) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	x.h.says(reports)
	results, runs, err := x.h.in.real.Report(ctx, holder, reports, next)
	if err == nil {
		x.h.w.checkReportAnswers(true, reports, results)
		x.h.w.compareRuns(runs)
	}
	return results, runs, err
}

func (x localExchange) Heartbeat(ctx context.Context, holder string, heartbeats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	sortBeats(heartbeats)
	return x.h.in.real.Heartbeat(ctx, holder, heartbeats)
}

// HeartbeatAll implements protocol.Completer.
func (x remoteExchange) HeartbeatAll(ctx context.Context, all protocol.CompleteHeartbeat) ([]protocol.HeartbeatResult, time.Time, error) {
	type answer struct {
		results []protocol.HeartbeatResult
		asOf    time.Time
	}
	sortBeats(all.Runs)
	got, err := ask(ctx, x.h.w, x.h.proc, callHeartbeat, func(ctx context.Context, n *node) (got answer, err error) {
		list := all
		list.Runs = slices.Clone(all.Runs)
		got.results, got.asOf, err = n.real.HeartbeatAll(ctx, list)
		return got, err
	})
	return got.results, got.asOf, err
}
