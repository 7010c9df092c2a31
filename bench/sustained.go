package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/node"
	pgstore "github.com/perdure/perdure/store/postgres"
)

// What a user can plan with: jobs arrive at a given rate whether or not the system keeps up (open loop), agents stop for a
// while, handlers take their time, and several nodes work for one database.
func init() {
	calls := func(s System) bool { _, ok := s.(handler); return ok }
	batches := func(s System) bool { _, ok := s.(batcher); return ok && calls(s) }
	chains := func(s System) bool { _, ok := s.(chainer); return ok && calls(s) }
	slots := func(s System) bool { _, ok := s.(slotted); return ok && batches(s) }
	nodes := func(s System) bool { p, ok := s.(*perdureNode); return ok && p.store == "PostgreSQL" }
	ours := func(s System) bool { _, ok := s.(*perdureNode); return ok }
	trips := func(s System) bool { _, ok := s.(tripper); return ok }
	workloads = append(workloads,
		Workload{Name: "stall", Title: "agents stop for 2 s while one-step jobs arrive at 85 % of the peak: backlog gone after", Unit: "s", Lower: true, Long: true,
			Size: sized(800_000, 600_000, 80_000), Can: batches, Run: func(ctx context.Context, m *measure) error {
				return stall(ctx, m, 1, m.sys.(batcher).SubmitBatch)
			}},
		Workload{Name: "stall-three", Title: "the same with three steps in a row", Unit: "s", Lower: true, Long: true,
			Size: sized(200_000, 150_000, 30_000), Can: chains, Run: func(ctx context.Context, m *measure) error {
				return stall(ctx, m, 3, func(ctx context.Context, n int) error { return m.sys.(chainer).SubmitChains(ctx, n, 3) })
			}},
		Workload{Name: "queue", Title: "processor time of a job through the queue, of one dispatched at once", Unit: "%", Lower: true, Ours: true, Long: true,
			Size: sized(200_000, 50_000, 80_000), Can: ours, Run: queue},
		Workload{Name: "nodes", Title: "backlog drained by two nodes, of the rate of one", Unit: "%", Ours: true, Long: true,
			Size: func(Kind, bool) int { return 400_000 }, Can: nodes, Run: nodesDrain},
		Workload{Name: "slots", Title: "handlers of 1 ms, 16 at once", Unit: "jobs/s", Long: true,
			Size: sized(40_000, 40_000, 20_000), Can: slots, Run: func(ctx context.Context, m *measure) error { return withSlots(ctx, m, 16, time.Millisecond) }},
		Workload{Name: "slots-10ms", Title: "handlers of 10 ms, 16 at once", Unit: "jobs/s", Long: true,
			Size: sized(5_000, 5_000, 3_000), Can: slots, Run: func(ctx context.Context, m *measure) error { return withSlots(ctx, m, 16, 10*time.Millisecond) }},
		Workload{Name: "slots-1000", Title: "handlers of 1 ms, 1,000 at once", Unit: "jobs/s", Long: true,
			Size: sized(150_000, 50_000, 80_000), Can: slots, Run: func(ctx context.Context, m *measure) error { return withSlots(ctx, m, 1000, time.Millisecond) }},
		Workload{Name: "latency", Title: "three steps in a row, one by one at 50 % of the peak: submit to the last handler's end, p50", Unit: "ms", Lower: true, Long: true,
			Size: sized(200_000, 150_000, 15_000), Can: chains, Run: latency},
		Workload{Name: "alone", Title: "one job alone, the next at once, p50", Unit: "ms", Lower: true, Long: true,
			Size: func(_ Kind, quick bool) int { // River takes a quarter of a second for each
				if quick {
					return 100
				}
				return 500
			}, Can: trips, Run: alone},
	)
}

// openLoop submits jobs at a rate, each set in a goroutine of its own, whatever becomes of those before.
type openLoop struct {
	submit func(ctx context.Context, n int) error
	single bool // one job a goroutine

	sent    atomic.Int64
	under   atomic.Int64 // sets that are not answered
	refused atomic.Int64
	failed  chan error
	wait    sync.WaitGroup
}

const (
	arrivalEvery = 2 * time.Millisecond
	maxUnder     = 100_000 // sets that are not answered
)

// run submits until ctx ends.
func (o *openLoop) run(ctx context.Context, rate float64) {
	began, sent := time.Now(), 0
	for ctx.Err() == nil {
		due := int(rate * time.Since(began).Seconds())
		for n := due - sent; n > 0; {
			k := n
			if o.single {
				k = 1
			}
			if n -= k; o.under.Load() >= maxUnder {
				o.refused.Add(int64(k))
				continue
			}
			o.sent.Add(int64(k))
			o.under.Add(1)
			o.wait.Go(func() {
				defer o.under.Add(-1)
				if err := o.submit(context.WithoutCancel(ctx), k); err != nil {
					select {
					case o.failed <- err:
					default:
					}
				}
			})
		}
		sent = due
		time.Sleep(arrivalEvery)
	}
	o.wait.Wait()
}

// peak is the rate of a closed loop, which is what the other workloads measure, after so many jobs that do not count.
func peak(ctx context.Context, m *measure, before, steps int, submit func(context.Context, int) error) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	if before > 0 {
		if err := inBatches(ctx, before, submit); err != nil {
			return err
		}
		m.done, m.ran = m.done+int64(before), m.ran+int64(steps*before)
		if err := finished(ctx, m.sys, m.done, m.ran); err != nil {
			return err
		}
	}
	if err := m.rate(ctx, m.n, steps*m.n, func(ctx context.Context) error { return inBatches(ctx, m.n, submit) }); err != nil {
		return err
	}
	for _, name := range []string{"own µs/job", "PostgreSQL µs/job", "WAL bytes/job"} {
		if v, ok := m.Extra[name]; ok {
			m.Extra["peak "+name] = v
			delete(m.Extra, name)
		}
	}
	delete(m.Extra, "seconds")
	delete(m.Extra, "submitted after")
	m.Extra["peak jobs/s"] = m.Value
	return nil
}

const (
	stallFor   = 2 * time.Second
	stallAhead = 4 * time.Second  // work before the stall
	stallMost  = 30 * time.Second // and after it
)

// stall measures the peak, lets jobs arrive at a part of it, stops all handlers once, and measures how long the backlog
// lasts while jobs go on arriving. Before that, twice as many jobs run that are not measured, and there is no
// vacuum after them: a PostgreSQL whose table fits into shared_buffers, or has free space, is faster than one that has run for a while.
func stall(ctx context.Context, m *measure, steps int, submit func(context.Context, int) error) error {
	if err := peak(ctx, m, 2*m.n, steps, submit); err != nil {
		return err
	}
	h := m.sys.(handler).own()
	rate := m.Value * float64(m.opts.Load) / 100
	start := h.Handled()
	loop := &openLoop{submit: submit, failed: make(chan error, 1)}
	behind := func() float64 { return float64(loop.sent.Load()) - float64(h.Handled()-start)/float64(steps) }
	life, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan struct{})
	go func() { defer close(ended); loop.run(life, rate) }()

	// look watches for so long, or until there is no backlog of more than so many jobs.
	look := func(name string, most time.Duration, until float64) (took time.Duration, highest float64, err error) {
		began, done, at := m.mark(ctx), h.Handled(), time.Now()
		for took = 0; took < most; took = time.Since(at) {
			select {
			case <-ctx.Done():
				return 0, 0, ctx.Err()
			case err := <-loop.failed:
				return 0, 0, err
			case <-time.After(10 * time.Millisecond):
			}
			now := behind()
			m.Series = append(m.Series, now)
			if highest = max(highest, now); now <= until {
				break
			}
		}
		jobs := float64(h.Handled()-done) / float64(steps)
		k := m.mark(ctx).minus(began)
		if jobs > 0 {
			m.Extra[name+" own µs/job"] = 1e6 * k.own / jobs
			if m.look != nil {
				m.Extra[name+" PostgreSQL µs/job"], m.Extra[name+" WAL bytes/job"] = 1e6*k.srv/jobs, float64(k.wal)/jobs
			}
			m.Extra[name+" jobs/s"] = jobs / took.Seconds()
		}
		return took, highest, nil
	}
	if _, _, err := look("warm", stallAhead/4, -1); err != nil {
		return err
	}
	_, usual, err := look("before", stallAhead*3/4, -1)
	if err != nil {
		return err
	}
	gate := make(chan struct{})
	h.gate.Store(&gate)
	_, _, err = look("stalled", stallFor, -1)
	h.gate.Store(nil)
	close(gate)
	if err != nil {
		return err
	}
	took, _, err := look("after", stallMost, max(usual, rate/20))
	if err != nil {
		return err
	}
	m.Value = took.Seconds()
	m.Extra["usual backlog"], m.Extra["backlog left"], m.Extra["arrivals/s"] = usual, behind(), rate
	end()
	<-ended
	m.Extra["refused"] = float64(loop.refused.Load())
	jobs := m.done + int64(m.n) + loop.sent.Load()
	if err := finished(ctx, m.sys, jobs, start+int64(steps)*loop.sent.Load()); err != nil {
		return err
	}
	return m.check(ctx, jobs)
}

// queue compares what a job costs that goes through the queue with one that is dispatched by the transaction that stores it: in
// turns, and each from its submission to its end.
func queue(ctx context.Context, m *measure) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	h := m.sys.(handler).own()
	costs := func(n int, direct bool) (k mark, rate float64, err error) {
		if err := m.settle(ctx); err != nil {
			return k, 0, err
		}
		var gate chan struct{}
		ran := h.Handled()
		busy := 0
		if !direct { // all slots are busy: what is submitted waits in the queue
			gate = make(chan struct{})
			h.gate.Store(&gate)
			busy = benchSlots
			if err := m.sys.(batcher).SubmitBatch(ctx, busy); err != nil {
				return k, 0, err
			}
			if err := pause(ctx, time.Second); err != nil {
				return k, 0, err
			}
		}
		m.from()
		if err := inBatches(ctx, n, m.sys.(batcher).SubmitBatch); err != nil {
			return k, 0, err
		}
		if !direct {
			k = m.mark(ctx).minus(m.began)
			h.gate.Store(nil)
			close(gate)
			for h.Handled() < ran+int64(busy) {
				time.Sleep(100 * time.Microsecond)
			}
			m.from() // without those that were in the slots, but for their reports
		}
		at := time.Now()
		m.done += int64(n + busy)
		if err := finished(ctx, m.sys, m.done, ran+int64(n+busy)); err != nil {
			return k, 0, err
		}
		more := m.mark(ctx).minus(m.began)
		k.own, k.srv, k.wal = k.own+more.own, k.srv+more.srv, k.wal+more.wal
		return k, float64(n) / time.Since(at).Seconds(), nil
	}
	const rounds = 3
	var ratios, logs []float64
	if _, _, err := costs(m.n, true); err != nil { // warm
		return err
	}
	for range rounds {
		direct, _, err := costs(m.n, true)
		if err != nil {
			return err
		}
		queued, rate, err := costs(m.n, false)
		if err != nil {
			return err
		}
		ratios = append(ratios, 100*(queued.own+queued.srv)/(direct.own+direct.srv))
		logs = append(logs, 100*float64(queued.wal)/float64(max(direct.wal, 1)))
		for name, k := range map[string]mark{"direct": direct, "queued": queued} {
			m.Extra[name+" own µs/job"] += 1e6 * k.own / float64(m.n) / rounds
			m.Extra[name+" PostgreSQL µs/job"] += 1e6 * k.srv / float64(m.n) / rounds
			m.Extra[name+" WAL bytes/job"] += float64(k.wal) / float64(m.n) / rounds
		}
		m.Extra["drained jobs/s"] += rate / rounds
	}
	m.Value = summarise(ratios).median
	if m.look != nil {
		m.Extra["log %"] = summarise(logs).median
	}
	return m.check(ctx, m.done)
}

// nodesDrain drains backlogs by one, two and three nodes in turns.
func nodesDrain(ctx context.Context, m *measure) error {
	p := m.sys.(*perdureNode)
	if err := p.Open(ctx); err != nil {
		return err
	}
	if err := m.observe(ctx); err != nil {
		return err
	}
	const rounds = 3
	var done int64
	drained := func(n int) (rate float64, err error) {
		if err := inBatches(ctx, m.n, p.SubmitBatch); err != nil { // by the first node, which has no agent yet
			return 0, err
		}
		if err := m.settle(ctx); err != nil {
			return 0, err
		}
		var nodes []*node.Node
		defer func() {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			for _, n := range nodes {
				err = errors.Join(err, n.Stop(stop))
			}
		}()
		for range n {
			kept, err := pgstore.Open(ctx, m.env.Postgres)
			if err != nil {
				return 0, err
			}
			defer kept.Close()
			one := node.New(kept, node.Config{Agents: []*perdure.Agent{p.agent}, MaxBacklog: 20_000_000})
			nodes = append(nodes, one)
		}
		ran := p.Handled()
		for _, one := range nodes {
			if err := one.Start(ctx); err != nil {
				return 0, err
			}
		}
		for p.Handled() == ran {
			time.Sleep(100 * time.Microsecond)
		}
		from, at := p.Handled(), time.Now()
		m.from()
		done += int64(m.n)
		if err := finished(ctx, m.sys, done, ran+int64(m.n)); err != nil {
			return 0, err
		}
		rate = float64(ran+int64(m.n)-from) / time.Since(at).Seconds()
		k := m.mark(ctx).minus(m.began)
		m.Extra[fmt.Sprintf("%d nodes: own µs/job", n)] += 1e6 * k.own / float64(m.n) / rounds
		m.Extra[fmt.Sprintf("%d nodes: PostgreSQL µs/job", n)] += 1e6 * k.srv / float64(m.n) / rounds
		m.Extra[fmt.Sprintf("%d nodes: WAL bytes/job", n)] += float64(k.wal) / float64(m.n) / rounds
		return rate, nil
	}
	if _, err := drained(1); err != nil { // warm
		return err
	}
	for n := range 3 {
		for _, kind := range []string{"own µs/job", "PostgreSQL µs/job", "WAL bytes/job"} {
			m.Extra[fmt.Sprintf("%d nodes: %s", n+1, kind)] = 0
		}
	}
	var two, three []float64
	for range rounds {
		var rates [4]float64
		for n := 1; n <= 3; n++ {
			r, err := drained(n)
			if err != nil {
				return err
			}
			rates[n] = r
			m.Extra[fmt.Sprintf("%d nodes: jobs/s", n)] += r / rounds
		}
		two, three = append(two, rates[2]/rates[1]), append(three, rates[3]/rates[1])
	}
	m.Value = 100 * summarise(two).median
	m.Extra["three nodes %"] = 100 * summarise(three).median
	return m.check(ctx, done)
}

// withSlots works jobs off whose handlers take a while, so many at once.
func withSlots(ctx context.Context, m *measure, slots int, takes time.Duration) error {
	s := m.sys.(slotted)
	s.setSlots(slots)
	s.own().takes = takes
	if err := m.ready(ctx); err != nil {
		return err
	}
	err := m.rate(ctx, m.n, m.n, func(ctx context.Context) error { return inBatches(ctx, m.n, m.sys.(batcher).SubmitBatch) })
	m.Extra["slots used %"] = 100 * m.Value * takes.Seconds() / float64(slots)
	if took := m.Extra["seconds"]; took > 0 {
		m.Extra["cores used"] = (m.Extra["own µs/job"] + m.Extra["PostgreSQL µs/job"]) * m.Value / 1e6
	}
	return err
}

// latency measures the peak, and then how long a job takes at a tenth and at half of it, each submitted by itself.
func latency(ctx context.Context, m *measure) error {
	if p, ok := m.sys.(*perdureNode); ok {
		p.lastStep = "s3"
	}
	one := func(ctx context.Context, n int) error { return m.sys.(chainer).SubmitChains(ctx, n, 3) }
	if err := peak(ctx, m, 0, 3, one); err != nil {
		return err
	}
	if err := m.settle(ctx); err != nil {
		return err
	}
	h := m.sys.(handler).own()
	top, jobs := m.Value, m.done+int64(m.n)
	for _, share := range []int{10, 50} {
		const lasts = 5 * time.Second
		base := orders.Load() + 1
		began := make([]time.Time, int(top*float64(share)/100*lasts.Seconds())+10_000)
		took := make([]float64, len(began))
		sent = func(order int64) { began[order-base] = time.Now() }
		h.ended = func(order int64) {
			took[order-base] = float64(time.Since(began[order-base]).Microseconds()) / 1000
		}
		start := h.Handled()
		loop := &openLoop{submit: one, single: true, failed: make(chan error, 1)}
		life, end := context.WithTimeout(ctx, lasts)
		m.from()
		loop.run(life, top*float64(share)/100)
		end()
		select {
		case err := <-loop.failed:
			return err
		default:
		}
		n := loop.sent.Load()
		jobs += n
		if err := finished(ctx, m.sys, jobs, start+3*n); err != nil {
			return err
		}
		m.count(ctx, int(n))
		sorted := slices.Sorted(slices.Values(took[n/5 : n])) // the first second is the start
		m.Value = percentile(sorted, 50)
		for _, p := range []int{50, 90, 99} {
			m.Extra[fmt.Sprintf("at %d %%: p%d", share, p)] = percentile(sorted, p)
		}
		m.Extra[fmt.Sprintf("at %d %%: max", share)] = sorted[len(sorted)-1]
	}
	sent, h.ended = nil, nil
	if m.Value == 0 {
		return errors.New("the ends of jobs were not reported")
	}
	return m.check(ctx, jobs)
}

// alone measures one job after the other, without a pause.
func alone(ctx context.Context, m *measure) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	const first = 20
	if err := m.trips(ctx, first, 0); err != nil {
		return err
	}
	jobs := m.done + int64(m.n+first)
	if err := finished(ctx, m.sys, jobs, 0); err != nil {
		return err
	}
	return m.check(ctx, jobs)
}
