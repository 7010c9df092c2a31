package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Workload is one column of the table.
type Workload struct {
	Name  string
	Title string
	Unit  string
	Lower bool // less is better
	Long  bool // only when it is asked for, or in the full run
	Ours  bool // Perdure alone: it checks a bound, and has no other system to compare with
	Size  func(k Kind, quick bool) int
	Can   func(System) bool
	Run   func(ctx context.Context, m *measure) error
}

const (
	batchSize  = 1000 // jobs in one submission, for those that take batches
	batchers   = 4    // submit batches at once
	submitters = 64
	fanWidth   = 1000
	warmUp     = 500 // jobs before the clock starts: connections, plans, pages
)

// sized is the number of jobs by store, cut to what a slow system does in about ten seconds, or three.
func sized(pg, sqlite, quick int) func(Kind, bool) int {
	return func(k Kind, isQuick bool) int {
		n := pg
		if k.Store == "SQLite" {
			n = sqlite
		}
		seconds := 10
		if isQuick {
			n, seconds = min(n, quick), 3
		}
		return max(min(n, seconds*k.Pace), 1)
	}
}

var workloads = []Workload{
	{
		Name: "batch", Title: "one-step jobs, submitted in batches while worked", Unit: "jobs/s",
		Size: sized(200_000, 50_000, 80_000),
		Can:  func(s System) bool { _, ok := s.(batcher); return ok },
		Run: func(ctx context.Context, m *measure) error {
			if err := m.ready(ctx); err != nil {
				return err
			}
			return m.rate(ctx, m.n, m.n, func(ctx context.Context) error { return inBatches(ctx, m.n, m.sys.(batcher).SubmitBatch) })
		},
	},
	{
		Name: "backlog", Title: "backlog drained", Unit: "jobs/s",
		Size: sized(100_000, 20_000, 60_000),
		Can:  func(s System) bool { _, ok := s.(batcher); return ok },
		Run:  drain,
	},
	{
		Name: "single", Title: "one-step jobs, one by one, 64 submitters", Unit: "jobs/s",
		Size: sized(50_000, 20_000, 3_000),
		Can:  func(s System) bool { _, ok := s.(submitter); return ok },
		Run: func(ctx context.Context, m *measure) error {
			if err := m.ready(ctx); err != nil {
				return err
			}
			return m.rate(ctx, m.n, m.n, func(ctx context.Context) error {
				return spread(ctx, m.n, submitters, m.sys.(submitter).Submit)
			})
		},
	},
	{
		Name: "three", Title: "three durable steps in a row", Unit: "jobs/s",
		Size: func(k Kind, quick bool) int {
			k.Pace = (k.Pace + 2) / 3
			return sized(30_000, 15_000, 15_000)(k, quick)
		},
		Can: func(s System) bool { _, ok := s.(chainer); return ok },
		Run: func(ctx context.Context, m *measure) error {
			if err := m.ready(ctx); err != nil {
				return err
			}
			return m.rate(ctx, m.n, 3*m.n, func(ctx context.Context) error {
				return m.sys.(chainer).SubmitChains(ctx, m.n, 3)
			})
		},
	},
	{
		Name: "fan", Title: "1,000 parallel steps and a join", Unit: "steps/s",
		Size: func(k Kind, quick bool) int { // steps of a slow system are about twice as many a second as its jobs
			full := sized(30, 20, 16)(k, quick)
			return max(min(full, 20*k.Pace/fanWidth), 1)
		},
		Can: func(s System) bool { _, ok := s.(fanner); return ok },
		Run: func(ctx context.Context, m *measure) error {
			if err := m.ready(ctx); err != nil {
				return err
			}
			err := m.rate(ctx, m.n, m.n*(fanWidth+1), func(ctx context.Context) error {
				return m.sys.(fanner).SubmitFans(ctx, m.n, fanWidth)
			})
			m.Value *= fanWidth + 1
			return err
		},
	},
	{
		Name: "children", Title: "1,000 child jobs and a join", Unit: "children/s",
		Size: func(k Kind, quick bool) int { // children of a slow system are about half as many a second as its jobs
			full := sized(30, 20, 10)(k, quick)
			return max(min(full, 5*k.Pace/fanWidth), 1)
		},
		Can: func(s System) bool { _, ok := s.(parent); return ok },
		Run: func(ctx context.Context, m *measure) error {
			if err := m.ready(ctx); err != nil {
				return err
			}
			err := m.rate(ctx, m.n*(fanWidth+1), m.n*fanWidth, func(ctx context.Context) error {
				return m.sys.(parent).SubmitParents(ctx, m.n, fanWidth)
			})
			m.Value *= float64(fanWidth) / (fanWidth + 1) // the parents are no children
			return err
		},
	},
	{
		Name: "rate", Title: fmt.Sprintf("jobs that wait for a rate of %d/s: starts, of those that it allows", benchRate), Unit: "%",
		Size: func(k Kind, quick bool) int {
			if quick {
				return 5 * benchRate
			}
			return 20 * benchRate
		},
		Can: func(s System) bool { _, ok := s.(limited); return ok },
		Run: limitedRate,
	},
	{
		Name: "idle", Title: "one job at idle, submit to done, p50", Unit: "ms", Lower: true,
		Size: func(k Kind, quick bool) int {
			if quick {
				return 20
			}
			return 200
		},
		Can: func(s System) bool { _, ok := s.(tripper); return ok },
		Run: idle,
	},
}

func workloadOf(name string) (Workload, bool) {
	for _, w := range append(slices.Clone(workloads), curves...) {
		if w.Name == name {
			return w, true
		}
	}
	return Workload{}, false
}

// drain measures how fast a backlog is worked off. What submitting it has cost is part of a job's cost, not of
// the rate.
func drain(ctx context.Context, m *measure) error { return drainBeside(ctx, m, nil) }

// drainBeside drains a backlog, after something else has begun.
func drainBeside(ctx context.Context, m *measure, begin func() (end func(), err error)) error {
	if err := m.sys.Open(ctx); err != nil {
		return err
	}
	if err := m.observe(ctx); err != nil {
		return err
	}
	m.from()
	if err := inBatches(ctx, m.n, m.sys.(batcher).SubmitBatch); err != nil {
		return err
	}
	m.Extra["insert/s"] = float64(m.n) / m.since()
	m.spent = m.mark(ctx).minus(m.began)
	m.Extra["insert own µs/job"] = 1e6 * m.spent.own / float64(m.n)
	if m.look != nil {
		m.Extra["insert PostgreSQL µs/job"], m.Extra["insert WAL bytes/job"] = 1e6*m.spent.srv/float64(m.n), float64(m.spent.wal)/float64(m.n)
	}
	// A backlog that has stood for a while has been analysed.
	if m.look != nil {
		if err := m.look.exec(ctx, "vacuum analyze"); err != nil {
			return err
		}
	}
	if begin != nil {
		end, err := begin()
		if err != nil {
			return err
		}
		defer end()
	}
	return m.rate(ctx, m.n, m.n, m.sys.Work)
}

// idle measures a job alone.
func idle(ctx context.Context, m *measure) error {
	if err := m.sys.Open(ctx); err != nil {
		return err
	}
	if err := m.sys.Work(ctx); err != nil {
		return err
	}
	if err := m.observe(ctx); err != nil {
		return err
	}
	const first = 5
	if err := m.trips(ctx, first, 10*time.Millisecond); err != nil {
		return err
	}
	if err := finished(ctx, m.sys, int64(m.n+first), 0); err != nil { // what was seen done may be on its way to the disk
		return err
	}
	return m.check(ctx, int64(m.n+first))
}

// trips measures jobs one after the other, with a pause after each. The first ones do not count.
func (m *measure) trips(ctx context.Context, first int, rest time.Duration) error {
	trip := m.sys.(tripper).RunOne
	var took []float64
	for i := range m.n + first {
		t := time.Now()
		if err := trip(ctx); err != nil {
			return err
		}
		if i >= first {
			took = append(took, float64(time.Since(t).Microseconds())/1000)
		}
		if rest == 0 {
			continue
		}
		if err := pause(ctx, rest); err != nil {
			return err
		}
	}
	slices.Sort(took)
	m.Value = percentile(took, 50)
	m.Extra["p90"], m.Extra["p99"], m.Extra["max"] = percentile(took, 90), percentile(took, 99), took[len(took)-1]
	return nil
}

func percentile(sorted []float64, p int) float64 {
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}

// limitedRate measures how much of a rate is used while enough is waiting, and how many jobs end within a second at most. Handlers
// do nothing, so a job ends when it has started.
func limitedRate(ctx context.Context, m *measure) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	s := m.sys.(limited)
	var mu sync.Mutex
	var ends []time.Time
	s.own().ended = func(int64) {
		mu.Lock()
		ends = append(ends, time.Now())
		mu.Unlock()
	}
	if err := m.rate(ctx, m.n, m.n, func(ctx context.Context) error { return s.SubmitLimited(ctx, m.n) }); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	slices.SortFunc(ends, time.Time.Compare)
	took := ends[len(ends)-1].Sub(ends[0])
	m.Value = 100 * float64(len(ends)) / (float64(s.burst()) + benchRate*took.Seconds())
	most, first := 0, 0
	for i, at := range ends {
		for at.Sub(ends[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	m.Extra["most within a second"] = float64(most)
	return nil
}

// curves are what is plotted: one point of each per size.
var curves = []Workload{
	{
		Name: "drain", Title: "rate against backlog", Unit: "jobs/s",
		Can: func(s System) bool { _, ok := s.(batcher); return ok },
		Run: drain,
	},
	{
		Name: "chain", Title: "cost of a step against steps in a row", Unit: "µs/step", Lower: true,
		Can: func(s System) bool { _, ok := s.(chainer); return ok },
		Run: func(ctx context.Context, m *measure) error {
			return m.perStep(ctx, m.n, func(ctx context.Context, jobs int) error {
				return m.sys.(chainer).SubmitChains(ctx, jobs, m.n)
			})
		},
	},
	{
		Name: "width", Title: "cost of a step against parallel steps of a job", Unit: "µs/step", Lower: true,
		Can: func(s System) bool { _, ok := s.(fanner); return ok },
		Run: func(ctx context.Context, m *measure) error {
			return m.perStep(ctx, m.n+1, func(ctx context.Context, jobs int) error {
				return m.sys.(fanner).SubmitFans(ctx, jobs, m.n)
			})
		},
	},
}

// perStep measures what a step costs in jobs of so many steps: about the same number of steps in all.
func (m *measure) perStep(ctx context.Context, steps int, submit func(context.Context, int) error) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	jobs := max(min(30_000, 3*m.kind.Pace)/steps, 1)
	if err := m.rate(ctx, jobs, jobs*steps, func(ctx context.Context) error { return submit(ctx, jobs) }); err != nil {
		return err
	}
	m.Value = 1e6 / (m.Value * float64(steps))
	return nil
}

var errLost = fmt.Errorf("jobs were lost or done twice")
