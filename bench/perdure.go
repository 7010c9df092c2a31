package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/node"
	pgstore "github.com/perdure/perdure/store/postgres"
	"github.com/perdure/perdure/store/sqlite"
)

func init() {
	for _, store := range []string{"PostgreSQL", "SQLite"} {
		kinds = append(kinds, Kind{
			Name: "perdure-" + short(store), Store: store, Ours: true, Pace: 60_000,
			Settings: []string{fmt.Sprintf("a node and an agent of %d slots in process; else as it comes", benchSlots), ourDurability(store)},
			New:      func(env *Env) System { return &perdureNode{env: env, store: store} },
		})
	}
}

func short(store string) string {
	if store == "PostgreSQL" {
		return "pg"
	}
	return strings.ToLower(store)
}

// ourDurability is what Perdure does: on SQLite it syncs by itself.
func ourDurability(store string) string {
	if store == "SQLite" {
		return "WAL, synced before each answer"
	}
	return durabilityOf(store)
}

func durabilityOf(store string) string {
	if store == "SQLite" {
		return "synchronous=FULL, WAL"
	}
	return "synchronous_commit=on"
}

// benchSlots is how many runs the agent takes at once: as many as four submitters bring in batches, as
// docs/performance.md advises for runs of microseconds.
const benchSlots = 8 * batchSize

// perdureNode is a node in this process, with an agent whose handler does nothing.
type perdureNode struct {
	handled
	env   *Env
	store string

	kept     node.Store
	node     *node.Node
	look     *look
	agent    *perdure.Agent
	slots    int                                 // 0: benchSlots
	lastStep string                              // of the jobs whose ends are notified
	work     func(context.Context, *perdure.Run) // what the handler does; nil: nothing
	deafen   func()                              // ends the receiver of notifications; nil: not open
}

func (p *perdureNode) Open(ctx context.Context) (err error) {
	if p.kept, p.look, err = openStore(ctx, p.env, p.store); err != nil {
		return err
	}
	p.agent = perdure.NewAgent("bench")
	if p.agent.Slots = p.slots; p.slots == 0 {
		p.agent.Slots = benchSlots
	}
	p.agent.HandleAny(func(ctx context.Context, run *perdure.Run) (json.RawMessage, error) {
		if p.work != nil {
			p.work(ctx, run)
		}
		order := int64(0)
		if p.ended != nil {
			order = orderOf(run.Input)
		}
		p.handle(order, run.Step == p.lastStep)
		return nil, nil
	})
	p.node = node.New(p.kept, node.Config{Agents: []*perdure.Agent{p.agent}, MaxBacklog: 20_000_000})
	p.deafen, err = notify(ctx, p.node)
	return err
}

// openStore opens Perdure's store in an empty database, and a connection beside it.
func openStore(ctx context.Context, env *Env, kind string) (node.Store, *look, error) {
	if kind == "SQLite" {
		path := filepath.Join(env.Dir, "perdure.db")
		s, err := sqlite.Open(path)
		if err != nil {
			return nil, nil, err
		}
		l, err := lookAtSQLite(path)
		return s, l, err
	}
	if _, _, err := pgstore.Migrate(ctx, env.Postgres); err != nil {
		return nil, nil, err
	}
	s, err := pgstore.Open(ctx, env.Postgres)
	if err != nil {
		return nil, nil, err
	}
	l, err := lookAtPostgres(ctx, env.Postgres)
	return s, l, err
}

func (p *perdureNode) setSlots(n int) { p.slots = n }

// orderOf reads payload.Order.
func orderOf(input json.RawMessage) (order int64) {
	const name = `"order":`
	at := bytes.Index(input, []byte(name))
	for _, c := range input[at+len(name):] {
		if c < '0' || c > '9' {
			break
		}
		order = 10*order + int64(c-'0')
	}
	return order
}

func (p *perdureNode) Work(ctx context.Context) error { return p.node.Start(ctx) }

func (p *perdureNode) Left(ctx context.Context) (bool, error) {
	n, err := p.kept.Backlog(ctx, 1)
	return n > 0, err
}

func (p *perdureNode) Done(ctx context.Context) (int64, error) { return doneJobs(ctx, p.look) }

// doneJobs counts with the view that users count with.
func doneJobs(ctx context.Context, l *look) (int64, error) {
	return l.number(ctx, "select count(*) from "+jobsView(l)+" where phase = 'settled' and current = 'done'")
}

func jobsView(l *look) string {
	if l.pg != nil {
		return "perdure.jobs"
	}
	return "jobs"
}

func (p *perdureNode) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = p.node.Stop(ctx)
	p.deafen()
	_ = p.kept.Close()
	p.look.close()
}

// submit is how many jobs of one definition are submitted.
func (p *perdureNode) submit(ctx context.Context, def *template, n int) error {
	base, err := def.plan()
	if err != nil {
		return err
	}
	plans := make([]*definition.Plan, n)
	for i := range plans {
		if plans[i], err = def.compiler.With(base, definition.Values{Input: input()}); err != nil {
			return err
		}
	}
	jobs, err := p.node.SubmitPlans(ctx, plans)
	for i := range jobs {
		err = errors.Join(err, jobs[i].Err)
	}
	return err
}

// input is another job's.
func input() json.RawMessage {
	in, err := json.Marshal(nextPayload())
	if err != nil {
		panic(err) // it is ours
	}
	return in
}

func (p *perdureNode) SubmitBatch(ctx context.Context, n int) error {
	return p.submit(ctx, oneStep, n)
}

func (p *perdureNode) Submit(ctx context.Context) error { return p.submit(ctx, oneStep, 1) }

func (p *perdureNode) SubmitChains(ctx context.Context, n, steps int) error {
	return inBatches(ctx, n, func(ctx context.Context, k int) error { return p.submit(ctx, chainOf(steps), k) })
}

func (p *perdureNode) SubmitFans(ctx context.Context, n, width int) error {
	return p.submit(ctx, fanOf(width), n)
}

func (p *perdureNode) SubmitParents(ctx context.Context, n, children int) error {
	return p.submit(ctx, parentOf(children), n)
}

// burst is a tenth of the rate.
func (p *perdureNode) burst() int { return benchRate / 10 }

func (p *perdureNode) SubmitLimited(ctx context.Context, n int) error {
	_, err := p.node.PutLimit(ctx, "rated", perdure.LimitSettings{Rate: fmt.Sprintf("%d/s", benchRate), Burst: p.burst()})
	if err != nil {
		return err
	}
	p.lastStep = "s1"
	return p.submit(ctx, ratedStep, n)
}

func (p *perdureNode) RunOne(ctx context.Context) error {
	base, err := oneStep.plan()
	if err != nil {
		return err
	}
	plan, err := oneStep.compiler.With(base, definition.Values{Input: input()})
	if err != nil {
		return err
	}
	job, _, err := p.node.SubmitPlan(ctx, plan)
	if err != nil {
		return err
	}
	job, err = p.node.Job(ctx, job.ID.String(), 10*time.Second)
	if err == nil && job.Current != perdure.Done {
		err = fmt.Errorf("%s is %v after 10 s", job.ID, job.Current)
	}
	return err
}

// template is a definition of which many jobs are made, each with an input of its own.
type template struct {
	head, tail string // of the document, around the input
	compiler   definition.Compiler
	once       func() (*definition.Plan, error)
}

func templateOf(typ, steps string) *template {
	t := &template{head: `{"type":"` + typ + `","input":`, tail: `,"steps":{` + steps + `}}`}
	t.once = sync.OnceValues(func() (*definition.Plan, error) {
		plans, err := t.compiler.Parse(t.text(), definition.JSON, definition.Options{})
		if err != nil {
			return nil, err
		}
		return plans[0], nil
	})
	return t
}

// text is the document of one job.
func (t *template) text() []byte {
	in := input()
	b := make([]byte, 0, len(t.head)+len(in)+len(t.tail))
	b = append(b, t.head...)
	b = append(b, in...)
	return append(b, t.tail...)
}

// plan is the definition, read once.
func (t *template) plan() (*definition.Plan, error) { return t.once() }

// step is one step. It is given the job's input, as the peers' workers are given theirs.
func step(name string, after ...string) string {
	s := `"` + name + `":{"agent":"bench","action":"work","with":"${input}"`
	if len(after) > 0 {
		s += `,"after":["` + strings.Join(after, `","`) + `"]`
	}
	return s + "}"
}

var oneStep = templateOf("one", step("s1"))

var ratedStep = templateOf("rated", `"s1":{"agent":"bench","action":"work","with":"${input}","limits":[{"name":"rated"}]}`)

// chainOf is a definition of steps in a row. There is one for each number of steps.
func chainOf(steps int) *template {
	if made, ok := chains.Load(steps); ok {
		return made.(*template)
	}
	var all []string
	for i := range steps {
		if i == 0 {
			all = append(all, step("s1"))
		} else {
			all = append(all, step(fmt.Sprintf("s%d", i+1), fmt.Sprintf("s%d", i)))
		}
	}
	made, _ := chains.LoadOrStore(steps, templateOf(fmt.Sprintf("chain%d", steps), strings.Join(all, ",")))
	return made.(*template)
}

var chains sync.Map // int → *template

// fanOf is a definition of steps beside each other, and one after all of them.
func fanOf(width int) *template {
	var all, names []string
	for i := range width {
		names = append(names, fmt.Sprintf("s%d", i+1))
		all = append(all, step(names[i]))
	}
	return templateOf(fmt.Sprintf("fan%d", width), strings.Join(append(all, step("join", names...)), ","))
}

// parentOf is a definition of one step with children, all of which may run at once.
func parentOf(children int) *template {
	return templateOf(fmt.Sprintf("parent%d", children), fmt.Sprintf(`"each":{"forEach":{"range":[0,%d]},"as":"i","maxParallel":%[1]d,"agent":"bench","action":"work","with":"${input}"}`, children))
}
