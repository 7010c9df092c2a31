package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/definition"
)

// Measurements of Perdure alone: they check a bound, and have no other system to compare with.
func init() {
	one := func(Kind, bool) int { return 1 }
	node := func(s System) bool { _, ok := s.(*perdureNode); return ok }
	postgres := func(s System) bool { p, ok := s.(*perdureNode); return ok && p.store == "PostgreSQL" }
	server := func(s System) bool { _, ok := s.(*perdureServer); return ok }
	withKeys := func(s System) bool { _, ok := s.(keyer); return ok }
	workloads = append(workloads,
		Workload{Name: "rest", Title: "idle node: its processor time", Unit: "% of a core", Lower: true, Ours: true, Long: true, Size: one, Can: node, Run: rest},
		Workload{Name: "memory", Title: "node with a million jobs waiting: resident memory", Unit: "MiB", Lower: true, Ours: true, Long: true, Size: one, Can: node, Run: memory},
		Workload{Name: "million", Title: "a million waiting, 50 types with limits, 5 million finished: drained", Unit: "jobs/s", Ours: true, Long: true,
			Size: func(Kind, bool) int { return 100_000 }, Can: node, Run: million},
		Workload{Name: "keys", Title: "steps of 10,000 keys of a limit, two runs of each at once, drained", Unit: "jobs/s", Ours: true, Long: true,
			Size: sized(60_000, 20_000, 20_000), Can: withKeys, Run: keys},
		Workload{Name: "held", Title: "minutes beside an old transaction: rate in the last", Unit: "jobs/s", Ours: true, Long: true, Size: one, Can: postgres,
			Run: func(ctx context.Context, m *measure) error { return minutes(ctx, m, true) }},
		Workload{Name: "held-backlog", Title: "backlog drained beside an old transaction", Unit: "jobs/s", Ours: true, Long: true, Size: sized(200_000, 100_000, 60_000), Can: postgres,
			Run: func(ctx context.Context, m *measure) error {
				return drainBeside(ctx, m, func() (func(), error) { return holdSnapshot(ctx, m.env.Postgres) })
			}},
		Workload{Name: "unheld", Title: "as many minutes without one: rate in the last", Unit: "jobs/s", Ours: true, Long: true, Size: one, Can: postgres,
			Run: func(ctx context.Context, m *measure) error { return minutes(ctx, m, false) }},
		Workload{Name: "nebula", Title: "100 hosts, 1,000 runs at once with heartbeats: time lost", Unit: "%", Lower: true, Ours: true, Long: true,
			Size: func(Kind, bool) int { return 2000 }, Can: server, Run: nebula},
	)
}

// nodeProcess is a node in a process of its own, to be looked at from outside.
type nodeProcess struct {
	cmd *exec.Cmd
	in  interface{ Close() error }
}

func startNode(ctx context.Context, env *Env) (*nodeProcess, error) {
	cmd := exec.CommandContext(ctx, env.Self, "-node", env.Dir, env.Postgres)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &nodeProcess{cmd: cmd, in: in}
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "ready" {
		p.stop()
		return nil, fmt.Errorf("the node does not start: %w", err)
	}
	return p, nil
}

func (p *nodeProcess) stop() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

func (p *nodeProcess) usage() usage { return usageOf(p.cmd.Process.Pid) }

// pause waits, or says why not.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// rest watches a node that has nothing to do.
func rest(ctx context.Context, m *measure) error {
	if err := m.observe(ctx); err != nil {
		return err
	}
	p, err := startNode(ctx, &m.env)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := pause(ctx, 3*time.Second); err != nil { // its start is not rest
		return err
	}
	if m.look != nil {
		if err := m.look.exec(ctx, "create extension if not exists pg_stat_statements"); err != nil {
			return err
		}
	}
	statements := func() (n int64, err error) {
		if m.look == nil {
			return 0, nil
		}
		return m.look.number(ctx, "select coalesce(sum(calls), 0)::bigint from pg_stat_statements where dbid = (select oid from pg_database where datname = current_database())")
	}
	before, err := statements()
	if err != nil {
		return err
	}
	u, srv, at := p.usage(), treeCPU(m.env.PostgresPID), time.Now()
	if err := pause(ctx, m.opts.Settle); err != nil {
		return err
	}
	v, took := p.usage(), time.Since(at).Seconds()
	m.Value = 100 * (v.cpu - u.cpu) / took
	m.Extra["resident MiB"] = float64(v.rss) / (1 << 20)
	if m.look != nil {
		after, err := statements()
		if err != nil {
			return err
		}
		m.Extra["PostgreSQL % of a core"] = 100 * (treeCPU(m.env.PostgresPID) - srv) / took
		m.Extra["statements/s"] = float64(after-before-1) / took // the question itself is one
	}
	return nil
}

// memory compares a node on an empty store with one that has a million jobs waiting.
func memory(ctx context.Context, m *measure) error {
	resident := func() (float64, error) {
		p, err := startNode(ctx, &m.env)
		if err != nil {
			return 0, err
		}
		defer p.stop()
		if err := pause(ctx, m.opts.Settle); err != nil {
			return 0, err
		}
		return float64(p.usage().rss) / (1 << 20), nil
	}
	empty, err := resident()
	if err != nil {
		return err
	}
	p := m.sys.(*perdureNode)
	if err := p.Open(ctx); err != nil {
		return err
	}
	m.from()
	if err := inBatches(ctx, m.opts.Waiting, m.sys.(batcher).SubmitBatch); err != nil {
		return err
	}
	m.Extra["inserted/s"] = float64(m.opts.Waiting) / m.since()
	bytes, err := p.look.number(ctx, sizeOf(p.look))
	if err != nil {
		return err
	}
	m.Extra["database MB"] = float64(bytes) / 1e6
	p.Close() // SQLite is one process's
	m.sys = closed{}
	if m.Value, err = resident(); err != nil {
		return err
	}
	m.Extra["empty MiB"], m.Extra["jobs waiting"] = empty, float64(m.opts.Waiting)
	return nil
}

// sizeOf is the query for the size of the whole database in bytes.
func sizeOf(l *look) string {
	if l.pg != nil {
		return "select pg_database_size(current_database())"
	}
	return "select page_count * page_size from pragma_page_count, pragma_page_size"
}

// keyRounds is how often workload keys drains each of its two backlogs, in turns.
const keyRounds = 3

// keyed are jobs of one step that needs a limit with a key: the input's.
var keyed = templateOf("keyed", `"s1":{"agent":"bench","action":"work","limits":[{"name":"ads","key":"${input.order}"}]}`)

// keyer is a system that has limits with keys.
type keyer interface {
	System
	setLimit(ctx context.Context, name string, settings perdure.LimitSettings) error
	submitWith(ctx context.Context, def *template, inputs []json.RawMessage) error
}

func (p *perdureNode) setLimit(ctx context.Context, name string, settings perdure.LimitSettings) error {
	_, err := p.node.PutLimit(ctx, name, settings)
	return err
}

func (p *perdureServer) setLimit(ctx context.Context, name string, settings perdure.LimitSettings) error {
	_, err := p.client.PutLimit(ctx, name, settings)
	return err
}

func (p *perdureNode) submitWith(ctx context.Context, def *template, inputs []json.RawMessage) error {
	base, err := def.plan()
	if err != nil {
		return err
	}
	plans := make([]*definition.Plan, len(inputs))
	for i, in := range inputs {
		if plans[i], err = def.compiler.With(base, definition.Values{Input: in}); err != nil {
			return err
		}
	}
	_, err = p.node.SubmitPlans(ctx, plans)
	return err
}

// keys compares a backlog whose steps have 10,000 keys of a limit, each with two runs in flight at most, with a backlog
// whose steps have the same key, which bounds nothing.
func keys(ctx context.Context, m *measure) error {
	p := m.sys.(keyer)
	if err := p.Open(ctx); err != nil {
		return err
	}
	if err := m.observe(ctx); err != nil {
		return err
	}
	if err := p.Work(ctx); err != nil {
		return err
	}
	drained := func(keys, perKey int) (float64, error) {
		if err := p.setLimit(ctx, "ads", perdure.LimitSettings{Max: new(0)}); err != nil {
			return 0, err
		}
		var next atomic.Int64
		err := spread(ctx, (m.n+batchSize-1)/batchSize, batchers, func(ctx context.Context) error {
			inputs := make([]json.RawMessage, batchSize)
			for i := range inputs {
				inputs[i] = fmt.Appendf(nil, `{"order":"k%d"}`, next.Add(1)%int64(keys))
			}
			return p.submitWith(ctx, keyed, inputs)
		})
		if err != nil {
			return 0, err
		}
		m.from()
		if err := p.setLimit(ctx, "ads", perdure.LimitSettings{PerKey: &perdure.KeyLimit{Max: &perKey}}); err != nil {
			return 0, err
		}
		for left := true; left; {
			if err := pause(ctx, 5*time.Millisecond); err != nil {
				return 0, err
			}
			if left, err = p.Left(ctx); err != nil {
				return 0, err
			}
		}
		return float64(next.Load()) / m.since(), nil
	}
	var one, many float64
	for range keyRounds {
		a, err := drained(1, 1_000_000)
		if err != nil {
			return err
		}
		b, err := drained(10_000, 2)
		if err != nil {
			return err
		}
		one, many = one+a/keyRounds, many+b/keyRounds
	}
	m.Value = many
	m.Extra["one key jobs/s"] = one
	m.Extra["% of the rate with one key"] = 100 * many / one
	return nil
}

// closed is a system that is closed already.
type closed struct{ System }

func (closed) Close() {}

const (
	types   = 50
	permits = 200 // of each type: not what bounds the rate
)

// million drains jobs of many types with limits: first from a store that holds nothing else, then from one
// that is full. Half of the types are stopped (a limit of 0), so that half of what waits stands in the way.
func million(ctx context.Context, m *measure) error {
	p := m.sys.(*perdureNode)
	if err := p.Open(ctx); err != nil {
		return err
	}
	if err := m.observe(ctx); err != nil {
		return err
	}
	for i := range types {
		if _, err := p.node.PutLimit(ctx, "job:"+typeName(i), perdure.LimitSettings{Max: new(permits)}); err != nil {
			return err
		}
	}
	if err := p.Work(ctx); err != nil {
		return err
	}
	done := int64(0)
	all := func(from, to int) func() *template {
		var next atomic.Int64
		defs := make([]*template, 0, types)
		for i := from; i < to; i++ {
			defs = append(defs, templateOf(typeName(i), step("s1")))
		}
		return func() *template { return defs[int(next.Add(1))%len(defs)] }
	}
	work := func(n int, def func() *template) (float64, error) {
		m.from()
		ran := p.Handled()
		if err := spread(ctx, (n+batchSize-1)/batchSize, batchers, func(ctx context.Context) error { return p.submit(ctx, def(), batchSize) }); err != nil {
			return 0, err
		}
		n = (n + batchSize - 1) / batchSize * batchSize
		for p.Handled() < ran+int64(n) {
			if err := pause(ctx, time.Millisecond); err != nil {
				return 0, err
			}
		}
		took := m.since()
		done += int64(n)
		return float64(n) / took, nil
	}
	open := all(types/2, types)
	if _, err := work(10_000, open); err != nil { // warm
		return err
	}
	if err := m.settle(ctx); err != nil {
		return err
	}
	empty, err := work(m.n, open)
	if err != nil {
		return err
	}
	if _, err := work(m.opts.Finished, all(0, types)); err != nil {
		return err
	}
	for i := range types / 2 {
		if _, err := p.node.PutLimit(ctx, "job:"+typeName(i), perdure.LimitSettings{Max: new(0)}); err != nil {
			return err
		}
	}
	stopped := all(0, types/2)
	if err := spread(ctx, m.opts.Waiting/batchSize, batchers, func(ctx context.Context) error { return p.submit(ctx, stopped(), batchSize) }); err != nil {
		return err
	}
	if err := m.settle(ctx); err != nil {
		return err
	}
	if m.Value, err = work(m.n, open); err != nil {
		return err
	}
	m.Extra["empty store jobs/s"] = empty
	m.Extra["% of the empty store's rate"] = 100 * m.Value / empty
	m.Extra["jobs waiting"], m.Extra["jobs finished"] = float64(m.opts.Waiting/batchSize*batchSize), float64(done)
	if err := finishedButFor(ctx, p, done); err != nil {
		return err
	}
	return nil
}

// finishedButFor waits until the last reports are durable: so many jobs are done, others wait.
func finishedButFor(ctx context.Context, p *perdureNode, done int64) error {
	return await(ctx, time.Minute, func(ctx context.Context) error {
		got, err := p.Done(ctx)
		if err == nil && got != done {
			err = fmt.Errorf("%w: %d were to be done, %d are", errLost, done, got)
		}
		return err
	})
}

func typeName(i int) string { return fmt.Sprintf("type%02d", i) }

// minutes measures for a while, and then for as long as the order says: with a snapshot held open, which keeps
// PostgreSQL from removing dead rows, or without one, because growing tables lower the rate in any case.
func minutes(ctx context.Context, m *measure, held bool) error {
	p := m.sys.(*perdureNode)
	if err := m.ready(ctx); err != nil {
		return err
	}
	const step = 5 * time.Second
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	var sent atomic.Int64
	sent.Store(p.Handled())
	var submitting sync.WaitGroup
	for range batchers {
		submitting.Go(func() {
			for life.Err() == nil {
				if sent.Load()-p.Handled() > 10*batchSize { // worked off as fast as it comes: there is no backlog to speak of
					time.Sleep(time.Millisecond)
					continue
				}
				if err := p.SubmitBatch(life, batchSize); err != nil {
					if life.Err() == nil {
						end(err)
					}
					return
				}
				sent.Add(batchSize)
			}
		})
	}
	work := func(d time.Duration) (rates []float64, err error) {
		for range int(d / step) {
			n, t := p.Handled(), time.Now()
			if err := pause(life, step); err != nil {
				return nil, context.Cause(life)
			}
			rates = append(rates, float64(p.Handled()-n)/time.Since(t).Seconds())
		}
		return rates, nil
	}
	before, err := work(max(m.opts.Held/5, 2*step))
	if err != nil {
		return err
	}
	if held {
		letGo, err := holdSnapshot(ctx, m.env.Postgres)
		if err != nil {
			return err
		}
		defer letGo()
	}
	after, err := work(max(m.opts.Held, 2*step))
	if err != nil {
		return err
	}
	end(nil)
	submitting.Wait()
	m.Series = append(before, after...)
	last := after[max(0, len(after)-12):]
	m.Value = mean(last)
	m.Extra["before jobs/s"], m.Extra["all of it jobs/s"], m.Extra["last to before %"] = mean(before), mean(after), 100*mean(last)/mean(before)
	if err := finished(ctx, p, 0, 0); err != nil {
		return err
	}
	// A batch that was broken off may have been stored in part: what is stored is done, and not less than was answered.
	got, err := p.Done(ctx)
	if err == nil && got < sent.Load() {
		err = fmt.Errorf("%w: %d submitted, %d done", errLost, sent.Load(), got)
	}
	return err
}

func holdSnapshot(ctx context.Context, url string) (letGo func(), err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	letGo = func() { _ = conn.Close(context.WithoutCancel(ctx)) }
	if _, err = conn.Exec(ctx, "begin isolation level repeatable read"); err == nil {
		_, err = conn.Exec(ctx, "select count(*) from perdure.limits") // takes the snapshot
	}
	if err != nil {
		letGo()
	}
	return letGo, err
}

func mean(v []float64) (sum float64) {
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(len(v), 1))
}

// nebula is the size of the system that Perdure was made for: many hosts, long runs, heartbeats. Time is lost
// where a slot is free though there is work.
func nebula(ctx context.Context, m *measure) error {
	const (
		hosts = 100
		slots = 10
		most  = hosts * slots
		least = 3 * time.Second // a run is that long, and up to two seconds more
		beat  = 3 * time.Second
	)
	p := m.sys.(*perdureServer)
	if err := p.Open(ctx); err != nil {
		return err
	}
	if err := m.observe(ctx); err != nil {
		return err
	}
	jobs := max(m.n, 2*most) // three steps each: there is work until after the last look
	if err := p.submit(ctx, chainOf(3), jobs); err != nil {
		return err
	}
	var busy, ran atomic.Int64
	life, end := context.WithCancel(ctx)
	defer end()
	var serving sync.WaitGroup
	m.from()
	for i := range hosts {
		c, err := client.New(p.url())
		if err != nil {
			return err
		}
		a := perdure.NewAgent("bench")
		a.Slots = slots
		a.HandleAny(func(ctx context.Context, _ *perdure.Run) (json.RawMessage, error) {
			busy.Add(1)
			defer busy.Add(-1)
			err := pause(ctx, least+rand.N(2*time.Second))
			ran.Add(1)
			return nil, err
		})
		serving.Go(func() {
			_ = c.Serve(life, client.ServeConfig{Name: fmt.Sprintf("host%d", i), Heartbeat: beat, Grace: time.Second}, a)
		})
	}
	if err := pause(ctx, least); err != nil { // the start is not what is asked about
		return err
	}
	sum, looks, from := 0.0, 0.0, time.Now()
	for time.Since(from) < 10*time.Second {
		sum, looks = sum+float64(busy.Load()), looks+1
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	m.Value = 100 * (1 - sum/looks/most)
	m.Extra["runs at once"] = sum / looks
	m.count(ctx, int(ran.Load()))
	for left := true; left; {
		var err error
		if left, err = p.Left(ctx); err != nil {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return errors.Join(err, fmt.Errorf("%d runs of %d", ran.Load(), 3*jobs))
		}
	}
	m.Extra["seconds"], m.Extra["runs"] = m.since(), float64(ran.Load())
	end()
	serving.Wait()
	return m.check(ctx, int64(jobs))
}
