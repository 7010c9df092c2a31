package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"syscall"
	"time"
)

// Order is the request to a process that measures; Result is its answer.
type Order struct {
	System, Workload string
	N                int
	Within           time.Duration
	Env              Env
	Options          Options
	Profile          string // where profiles go, less their ends; "": none
}

type Result struct {
	System, Workload string
	Round            int
	N                int
	Value            float64
	Unit             string
	Extra            map[string]float64 // by name: what was counted beside
	Series           []float64          `json:",omitempty"` // over time, where that is asked for
	Fault            string             `json:",omitempty"`
}

// measure is one measurement under way.
type measure struct {
	Result
	sys  System
	kind Kind
	env  Env
	opts Options
	n    int

	profile string // where profiles go, less their ends

	done int64 // jobs that were done before the clock started
	ran  int64 // and handlers

	look  *look
	began mark
	spent mark // before the clock started, on the jobs that are measured
}

// mark is where the counters stood.
type mark struct {
	at       time.Time
	own, srv float64 // processor seconds of this process and of PostgreSQL
	wal      int64
}

func (k mark) minus(o mark) mark {
	return mark{own: k.own - o.own, srv: k.srv - o.srv, wal: k.wal - o.wal}
}

// carryOut measures what the order says. It is run in a process of its own, so that no system sees another's
// garbage, and one that hangs can be killed.
func carryOut(ctx context.Context, o Order) (r Result) {
	m := &measure{Result: Result{System: o.System, Workload: o.Workload, N: o.N, Extra: map[string]float64{}},
		env: o.Env, opts: o.Options, n: o.N, profile: o.Profile}
	ctx, cancel := context.WithTimeout(ctx, o.Within)
	defer cancel()
	kind, ok1 := kindOf(o.System)
	w, ok2 := workloadOf(o.Workload)
	if !ok1 || !ok2 {
		m.Fault = "there is no such system or workload"
		return m.Result
	}
	m.kind, m.Unit = kind, w.Unit
	m.sys = kind.New(&m.env)
	defer func() {
		if p := recover(); p != nil {
			r.Fault = fmt.Sprint("panic: ", p)
		}
	}()
	if err := w.Run(ctx, m); err != nil {
		m.Fault = err.Error()
	}
	// What is answered is settled; a system that does not close in time is left to the end of the process.
	closed := make(chan struct{})
	go func() {
		defer func() { _ = recover(); close(closed) }()
		m.look.close()
		m.sys.Close()
	}()
	select {
	case <-closed:
	case <-time.After(15 * time.Second):
	}
	return m.Result
}

// ready opens the system, starts its workers, and lets it run warm.
func (m *measure) ready(ctx context.Context) error {
	if err := m.sys.Open(ctx); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := m.sys.Work(ctx); err != nil {
		return fmt.Errorf("work: %w", err)
	}
	if err := m.observe(ctx); err != nil {
		return err
	}
	n := min(warmUp, m.kind.Pace)
	switch s := m.sys.(type) {
	case submitter:
		if err := spread(ctx, n, submitters, s.Submit); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
	case batcher:
		if err := s.SubmitBatch(ctx, n); err != nil {
			return fmt.Errorf("warm-up: %w", err)
		}
	default:
		n = 0
	}
	if err := finished(ctx, m.sys, int64(n), int64(n)); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	m.done, m.ran = int64(n), max(m.sys.Handled(), 0)
	return m.settle(ctx)
}

// observe opens the connection that looks on.
func (m *measure) observe(ctx context.Context) (err error) {
	if m.kind.Store == "PostgreSQL" {
		m.look, err = lookAtPostgres(ctx, m.env.Postgres)
	}
	return err
}

// settle brings the database to where it would be after a while: analysed, and written out.
func (m *measure) settle(ctx context.Context) error {
	if m.look == nil {
		return nil
	}
	if err := m.look.exec(ctx, "vacuum analyze"); err != nil {
		return err
	}
	return m.look.exec(ctx, "checkpoint")
}

// rate measures how long it takes until so many jobs are done, from the moment that f starts.
func (m *measure) rate(ctx context.Context, jobs, handlers int, f func(context.Context) error) error {
	profiled, err := startProfile(m.profile)
	if err != nil {
		return err
	}
	m.from()
	if err := f(ctx); err != nil {
		return err
	}
	submitted := m.since()
	if err := finished(ctx, m.sys, m.done+int64(jobs), m.ran+int64(handlers)); err != nil {
		return err
	}
	took := m.since()
	if err := profiled(); err != nil {
		return err
	}
	m.Value = float64(jobs) / took
	m.Extra["seconds"] = took
	m.Extra["submitted after"] = submitted
	m.count(ctx, jobs)
	return m.check(ctx, m.done+int64(jobs))
}

func (m *measure) from() {
	m.began = m.mark(context.Background())
	m.began.at = time.Now()
}

func (m *measure) since() float64 { return time.Since(m.began.at).Seconds() }

func (m *measure) mark(ctx context.Context) (k mark) {
	k.own = ownCPU()
	if m.look != nil {
		k.srv = treeCPU(m.env.PostgresPID)
		k.wal, _ = m.look.number(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
	}
	return k
}

// count notes what a job has cost since from.
func (m *measure) count(ctx context.Context, jobs int) {
	k := m.mark(ctx).minus(m.began)
	m.Extra["own µs/job"] = 1e6 * (k.own + m.spent.own) / float64(jobs)
	if m.look != nil {
		m.Extra["PostgreSQL µs/job"] = 1e6 * (k.srv + m.spent.srv) / float64(jobs)
		m.Extra["WAL bytes/job"] = float64(k.wal+m.spent.wal) / float64(jobs)
	}
}

// check compares what the database says is done with what was submitted.
func (m *measure) check(ctx context.Context, want int64) error {
	got, err := m.sys.Done(ctx)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%w: %d submitted, %d done", errLost, want, got)
	}
	return nil
}

func ownCPU() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return math.NaN()
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// carryOutOrder is the other process: the order comes on stdin, the answer goes into a file, and the end of
// stdin is the end of the process.
func carryOutOrder(ctx context.Context, answer string) error {
	in := json.NewDecoder(os.Stdin)
	var o Order
	if err := in.Decode(&o); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	r := carryOut(ctx, o)
	for k, v := range r.Extra { // JSON knows no NaN
		if math.IsNaN(v) || math.IsInf(v, 0) {
			delete(r.Extra, k)
		}
	}
	runtime.KeepAlive(in)
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(answer, b, 0o644)
}
