// Package simulate plays one job in virtual time: what would happen with a definition if these runs failed, if that agent
// died, or if an operator undid the job after an hour.
//
// The rules, the scheduler, the service and the agent hosts are the production code, on a store in memory. Only the agents
// are fakes: each run lasts for a given time, and has one effect, which the fake recognizes by its key. Time jumps to the
// next event (package virtual), so a backoff of a day takes no time. The same options and the same seed are the same
// simulation.
//
//	simulate.go   options, result, and the beginning and end
//	drive.go      what a node does beside its scheduler: it sweeps, sends signals, and observes the job
//	agents.go     the fake agents, their effects, and the faults of their runs
//
// It never calls an agent, reads no secret, and reaches no network and no file.
package simulate

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/service"
	"github.com/perdure/perdure/internal/timetable"
	"github.com/perdure/perdure/internal/virtual"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// Bounds of a simulation.
const (
	MaxSteps       = 1000                  // of the definition
	DefaultHorizon = 30 * 24 * time.Hour   // virtual time
	MaxHorizon     = 3650 * 24 * time.Hour // virtual time
	MaxRuns        = 2000                  // runs of all steps
	DefaultLasts   = perdure.Duration(1e9) // of a run, and until a signal or an approval comes
	maxEvents      = 5_000_000             // of the clock, against a simulation that makes no progress
	Always         = -1                    // as a number of runs
	stopCheck      = 1000                  // events between two looks at the caller's context
)

// Behaviour is what happens to a step. A signal or an approval comes after Lasts; if Fail is set, it does not come, or is a
// rejection.
type Behaviour struct {
	Lasts       perdure.Duration // 0: DefaultLasts
	Fail        int              // so many of the first do runs fail; Always: all of them
	FailUndo    int              // the same of undo runs
	CrashBefore int              // so many of the first do runs end by the death of the agent, before the effect
	CrashAfter  int              // the same after the effect, and before the report
	Output      json.RawMessage  // of a run, a signal or an approval; nil: null
}

// Options say what happens.
type Options struct {
	Steps   map[string]Behaviour
	UndoAt  time.Duration // an operator requests the undo of the job then; 0: never
	Horizon time.Duration // 0: DefaultHorizon
	Seed    uint64
	Start   time.Time // the time at which the simulation begins
	// Changed is called with the whole job after each change; jobs has its history. It may be nil.
	Changed func(ctx context.Context, at time.Duration, v *perdure.JobView, jobs perdure.Jobs)
}

// Ending is how a simulation has ended.
type Ending string

const (
	Settled  Ending = "settled"  // the job is settled
	Parked   Ending = "parked"   // it needs an operator
	Waiting  Ending = "waiting"  // nothing more would happen: it waits for something that does not come
	TimeOver Ending = "timeOver" // it is neither settled nor parked at the horizon
	RunsOver Ending = "runsOver" // MaxRuns runs were dispatched
)

// Effect is what the runs of a step have done at its service.
type Effect struct {
	Step    string `json:"step"`
	Done    int    `json:"done"`    // effects that were ever made
	Undone  int    `json:"undone"`  // of these
	Repeats int    `json:"repeats"` // runs that found their effect made before, by its key
}

// Remains reports how many effects are left.
func (e *Effect) Remains() int { return e.Done - e.Undone }

// Result is what would happen.
type Result struct {
	Ending  Ending
	Elapsed time.Duration
	Job     *perdure.JobView
	Runs    []operate.RunRecord
	Alerts  []perdure.AlertView // all that were raised, the closed ones too
	Effects []Effect            // of steps that have had one, in the order of the definition
}

// Check returns an error that names a step or a value with which nothing can be simulated.
func (o *Options) Check(plan *kernel.Plan) error {
	if n := len(plan.Steps); n > MaxSteps {
		return perdure.Refuse(perdure.CodeTooLarge, "the definition has %d steps, and at most %d can be simulated", n, MaxSteps)
	}
	for name := range o.Steps {
		if err := CheckStep(plan, name); err != nil {
			return err
		}
	}
	if o.Horizon < 0 || o.Horizon > MaxHorizon {
		return &perdure.Error{Code: perdure.CodeInvalid, Message: "the simulated time is not between 0s and " + plain.Duration(MaxHorizon), Hint: "shorten --for"}
	}
	if o.UndoAt < 0 || o.UndoAt >= cmp.Or(o.Horizon, DefaultHorizon) {
		return &perdure.Error{Code: perdure.CodeInvalid, Message: fmt.Sprintf("the undo is not within the simulated time of %s", plain.Duration(cmp.Or(o.Horizon, DefaultHorizon))), Hint: "let it come earlier, or lengthen --for"}
	}
	return nil
}

// namedSteps bounds the steps that an error lists.
const namedSteps = 10

// CheckStep returns an error with the names of the steps if the plan has no step of this name.
func CheckStep(plan *kernel.Plan, name string) error {
	if _, ok := plan.Index[name]; ok {
		return nil
	}
	names := make([]string, len(plan.Steps))
	for i := range plan.Steps {
		names[i] = plan.Steps[i].Name
	}
	e := perdure.Refuse(perdure.CodeInvalid, "the definition has no step %q", name)
	e.Hint = "its steps: " + strings.Join(names[:min(len(names), namedSteps)], ", ")
	if more := len(names) - namedSteps; more > 0 {
		e.Hint += fmt.Sprintf(", and %d more", more)
	}
	return e
}

// simulation is one job, with everything that it needs.
type simulation struct {
	o    Options
	plan *kernel.Plan
	loop *virtual.Loop
	proc *virtual.Process

	store *memory.Store
	sched *scheduler.Scheduler
	svc   *service.Service
	crew  *crew

	job    perdure.JobID
	last   []byte // the latest view that Changed has got
	ending Ending
	err    error
}

// Run plays a job of the plan. It ends early with the cause of ctx when that ends.
func Run(ctx context.Context, plan *definition.Plan, o Options) (*Result, error) {
	if err := o.Check(plan); err != nil {
		return nil, err
	}
	o.Horizon = cmp.Or(o.Horizon, DefaultHorizon)
	s := &simulation{o: o, plan: plan, loop: &virtual.Loop{}}
	s.loop.Chance = rand.New(rand.NewPCG(o.Seed, 1)).Float64
	s.loop.Failed = func(format string, args ...any) {
		if s.err == nil {
			s.err = fmt.Errorf("the simulation failed: "+format, args...)
		}
	}
	s.proc = s.loop.Spawn("node")
	s.proc.WallError = o.Start.Sub(virtual.Start)
	s.store = memory.New(memory.WithClock(s.proc.Wall))
	defer func() { _ = s.store.Close() }()
	compiler := &definition.Compiler{}
	s.sched = scheduler.New(scheduler.Config{Store: s.store, Compiler: compiler, Env: s.proc, NewID: s.newID, SingleWriter: true, Renderers: 1})
	s.svc = service.New(service.Config{Store: s.store, Scheduler: s.sched, Compiler: compiler, Schedules: timetable.NewBook(service.CompileWith(compiler), s.store.StoredDefinition),
		Life: context.Background(), Refuse: func() error { return nil }, TakeOver: func(context.Context) error { return nil },
		WakeCourier: func() {}, WakeBulk: func() {}, Node: "simulated", RoleTTL: kernel.DefaultRoleTTL, Env: s.proc})
	s.crew = newCrew(s)
	defer func() {
		s.loop.Crash(s.proc)
		s.loop.Clear()
	}()
	var res *Result
	s.proc.Go(func() { s.sched.Run(context.Background()) })
	s.proc.Go(func() { res = s.drive(context.Background()) })
	s.loop.Settle(s.proc)
	for i := 0; res == nil && s.err == nil; i++ {
		if i%stopCheck == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if i > maxEvents {
			return nil, errors.New("the simulation takes too many events: shorten --for")
		}
		if !s.loop.Step(o.Horizon + time.Hour) {
			return nil, errors.New("the simulation has ended without a result")
		}
	}
	return res, s.err
}

// newID returns the id of the one job, which is the same for the same start.
func (s *simulation) newID() (id perdure.JobID) {
	binary.BigEndian.PutUint64(id[:8], uint64(s.proc.Wall().UnixMilli())<<16)
	binary.BigEndian.PutUint64(id[8:], s.o.Seed)
	id[6], id[8] = 0x70, id[8]&0x3f|0x80
	return id
}

// result reads the end.
func (s *simulation) result(ctx context.Context, v *perdure.JobView) (*Result, error) {
	ref := s.job.String()
	res := &Result{Ending: s.ending, Elapsed: s.loop.Now, Job: v, Effects: s.crew.effects()}
	for q := (operate.RunsQuery{Job: ref, Limit: perdure.MaxListLimit}); ; {
		page, err := s.svc.Runs(ctx, q)
		if err != nil {
			return nil, err
		}
		res.Runs = append(res.Runs, page.Items...)
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	for q := (perdure.AlertQuery{Job: ref, Limit: perdure.MaxListLimit, Closed: true}); ; {
		page, err := s.svc.ListAlerts(ctx, q)
		if err != nil {
			return nil, err
		}
		res.Alerts = append(res.Alerts, page.Items...)
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	slices.SortFunc(res.Alerts, func(a, b perdure.AlertView) int { return cmp.Compare(a.ID, b.ID) })
	return res, nil
}
