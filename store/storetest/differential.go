package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Poster is a store whose database a caller shares. Post submits a job with this id as the store's SubmitTx does, in a
// transaction that commits.
type Poster interface {
	kernel.Store
	Post(context.Context, perdure.JobID, *kernel.Plan) (perdure.Submitted, error)
}

// Differential does the same random operations on each store, at least as many as steps. All must give the answers of
// the first. It goes on until each operation has had an effect, because one without an effect was not tested. The test
// fails if one has none within four times as many steps.
func Differential(t *testing.T, seed uint64, steps int, stores ...Poster) {
	t.Helper()
	d := &differential{T: t, rnd: rand.New(rand.NewPCG(seed, 0)), stores: stores, effective: map[string]int{}}
	d.do(0, "put an agent", putAgent(agentWithSettings, time.Minute, 2))
	for n := 0; n < steps || n < 4*steps && len(d.withoutEffect()) > 0; n++ {
		op := operations[d.rnd.IntN(len(operations))]
		d.do(n, op.name, op.make(d))
		if t.Failed() {
			t.Fatalf("seed %d, step %d: %s", seed, n, op.name)
		}
	}
	for _, store := range stores {
		(&suite{T: t, store: store}).checkConsistent()
	}
	for _, name := range d.withoutEffect() {
		t.Errorf("seed %d: %s never had an effect in %d steps", seed, name, 4*steps)
	}
}

// withoutEffect returns the names of the operations that have had no effect so far.
func (d *differential) withoutEffect() (names []string) {
	for _, op := range operations {
		if d.effective[op.name] == 0 {
			names = append(names, op.name)
		}
	}
	return names
}

type differential struct {
	*testing.T
	rnd       *rand.Rand
	stores    []Poster
	jobs      int             // number of jobs submitted so far
	posted    []perdure.JobID // ids submitted by Post
	notified  int             // number of notifications that were made so far
	streamed  int             // the latest position in a stream
	effective map[string]int
}

// act does one operation on one store. It draws no random numbers, so that all stores do the same.
type act func(kernel.Store) (answer any, err error)

func (d *differential) do(n int, name string, act act) {
	var want any
	var wantErr error
	for i, store := range d.stores {
		got, err := act(store)
		got = normalize(got)
		if i == 0 {
			want, wantErr = got, err
			if err != nil && !errors.Is(err, kernel.ErrStale) && !errors.Is(err, errOops) {
				d.Fatalf("step %d, %s: %v", n, name, err)
			}
			if hadEffect(got, err) {
				d.effective[name]++
			}
			continue
		}
		for _, known := range []error{kernel.ErrStale, errOops, nil} {
			if errors.Is(wantErr, known) != errors.Is(err, known) {
				d.Errorf("%s: store %d (%T) returns error %v, the first %v", name, i, store, err, wantErr)
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), bytesEqual); diff != "" {
			d.Errorf("%s: store %d (%T) returns another result (-first +this):\n%s", name, i, store, diff)
		}
	}
}

// hadEffect reports whether an operation had an effect: rows found, a change made, or an error that was expected.
func hadEffect(answer any, err error) bool {
	if err != nil || answer == nil {
		return true
	}
	switch v := reflect.ValueOf(answer); v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	default:
		return !v.IsZero()
	}
}

// normalize removes what may differ between stores: ids of alerts, and the times at which they were closed.
func normalize(answer any) any {
	if alerts, ok := answer.([]kernel.Alert); ok {
		for i := range alerts {
			alerts[i].ID = 0
			if !alerts[i].ClosedAt.IsZero() {
				alerts[i].ClosedAt = epoch
			}
		}
	}
	return answer
}

// inTx returns an act that runs fn in a transaction.
func inTx[T any](fn func(kernel.Tx) (T, error)) act {
	return func(store kernel.Store) (any, error) {
		var answer T
		err := store.Update(ctx, func(tx kernel.Tx) (err error) {
			answer, err = fn(tx)
			return err
		})
		return answer, err
	}
}

func reads[T any](fn func(kernel.Store) (T, error)) act {
	return func(store kernel.Store) (any, error) { return fn(store) }
}

func saves(fn func(kernel.Tx) (*kernel.Changes, error)) act {
	return func(store kernel.Store) (any, error) {
		return nil, store.Update(ctx, func(tx kernel.Tx) error {
			c, err := fn(tx)
			if err != nil {
				return err
			}
			return tx.Save(c)
		})
	}
}

func (d *differential) pick(of ...string) string { return of[d.rnd.IntN(len(of))] }
func (d *differential) chance(percent int) bool  { return d.rnd.IntN(100) < percent }
func (d *differential) time() time.Time          { return at(time.Duration(d.rnd.IntN(100)) * time.Second) }
func (d *differential) agent() string            { return d.pick("http", "shell", "ftp", limitedAgent) }
func (d *differential) typ() string              { return d.pick("order", "import", "a") }
func (d *differential) holder() string           { return d.pick("h1", "h2", "@n1", "@n2/x") }
func (d *differential) request() string          { return d.pick("", "r1", "r2") }
func (d *differential) limit() string {
	return d.pick("job:order", "job:http", "job:shell", "agent:order", "agent:http", "agent:shell", "ads-api", "mail")
}
func (d *differential) limitKey() kernel.LimitKey {
	return kernel.LimitKey{Name: d.pick("ads-api", "mail"), Key: d.pick("", "a", "b")}
}
func (d *differential) topic() kernel.Topic { return kernel.Topic(d.pick("paid/a", "paid/b", "x/a")) }
func (d *differential) topicOrNone() kernel.Topic {
	if d.chance(50) {
		return ""
	}
	return d.topic()
}
func (d *differential) needs() kernel.Needs {
	return kernel.Needs(d.pick("", "", `[{"name":"ads-api","key":"a"}]`, `[{"name":"ads-api","key":"b","amount":2}]`, `[{"name":"mail"}]`, `[{"name":"ads-api","key":"a"},{"name":"mail","key":"a"}]`,
		`[{"name":"ads-api","key":"a","line":1}]`, `[{"name":"ads-api","key":"a","line":2},{"name":"mail","key":"a","line":2}]`,
		`[{"name":"host:cpu=1000;;"}]`, `[{"name":"mail"},{"name":"host:slots=1;gpu=*;"}]`))
}
func (d *differential) serves() kernel.Serves {
	if d.chance(50) {
		return nil
	}
	served := map[kernel.Demand]bool{"": d.chance(50), "cpu=1000;;": d.chance(70), "slots=1;gpu=*;": d.chance(70)}
	return func(demand kernel.Demand) bool { return served[demand] }
}
func (d *differential) max() int { return []int{0, 1, 3, 1000}[d.rnd.IntN(4)] }

// maybeTime returns t or the zero time.
func (d *differential) maybeTime(t time.Time) time.Time {
	if d.chance(40) {
		return time.Time{}
	}
	return t
}

// someJob returns a job that was submitted, or rarely one that does not exist.
func (d *differential) someJob() int {
	if d.jobs == 0 || d.chance(3) {
		return 9999
	}
	return d.rnd.IntN(d.jobs)
}

func (d *differential) someRefs() []kernel.StepRef {
	var refs []kernel.StepRef
	for range d.rnd.IntN(20) {
		refs = append(refs, ref(d.someJob(), d.rnd.IntN(4)))
	}
	return refs
}

func (d *differential) someIDs() []perdure.JobID {
	var all []perdure.JobID
	for range d.rnd.IntN(20) {
		all = append(all, id(d.someJob()))
	}
	return all
}

// newJob returns a submission with unusual values in all fields.
func (d *differential) newJob() kernel.NewJob {
	n := d.jobs
	d.jobs++
	nj := newJob(n, 0, typed(d.typ()), priority(d.rnd.IntN(10)), labelled("zone", d.pick("eu", "us", ""), "n", fmt.Sprint(n%3)))
	if d.chance(50) {
		nj.Job.Key = fmt.Sprintf("key-%d", n)
	}
	nj.Job.Hash = [32]byte{byte(d.rnd.IntN(4))}
	nj.Job.Shape = kernel.ShapeID{byte(d.rnd.IntN(5))}
	if d.chance(60) {
		nj.Job.Input = bytes.Repeat([]byte("7"), 1+d.rnd.IntN(perdure.MaxInlineInput+500))
	}
	d.scrambleJob(nj.Job)
	if d.chance(40) {
		return d.waitingSteps(nj)
	}
	for i := range 1 + d.rnd.IntN(4) {
		st := &kernel.Step{StepRef: ref(n, i), Name: fmt.Sprintf("s%d", i), Type: nj.Job.Type, Priority: nj.Job.Priority}
		if d.chance(70) {
			st.Desired, st.Phase, st.Turn, st.Agent, st.ReadyAt = perdure.Done, perdure.Ready, 1, d.agent(), d.time()
			limitStep(st)
			d.shareStep(st)
		} else {
			d.scrambleStep(st)
		}
		nj.Steps = append(nj.Steps, st)
	}
	return nj
}

// waitingSteps sets the steps of a job to the state in which they are submitted. Most wait for the same number of
// neighbours in each job of the shape, so that a store may treat them as implicit rows.
func (d *differential) waitingSteps(nj kernel.NewJob) kernel.NewJob {
	nj.Job.Shape, nj.Shape = waits, []byte("waits")
	keepUnsettled(nj.Job)
	for i := range 4 {
		st := &kernel.Step{StepRef: kernel.StepRef{Job: nj.Job.ID, Index: i}, Name: fmt.Sprintf("s%d", i), Type: nj.Job.Type, Priority: nj.Job.Priority,
			Desired: perdure.Done, Phase: perdure.Waiting, Turn: 1, Blockers: i, UpdatedAt: nj.Job.CreatedAt}
		if i == 0 {
			st.Phase, st.Agent, st.ReadyAt, st.Needs = perdure.Ready, d.agent(), d.time(), d.needs()
			limitStep(st)
			d.shareStep(st)
		} else if d.chance(10) {
			st.Blockers = d.rnd.IntN(3)
		}
		nj.Steps = append(nj.Steps, st)
	}
	return nj
}

var waits = kernel.ShapeID{7}

// keepUnsettled makes a job unsettled, because it has waiting steps.
func keepUnsettled(j *kernel.Job) {
	if j.Shape == waits && j.Phase == perdure.Settled {
		j.Phase = perdure.Waiting
	}
}

// scrambleJob sets a job to any state.
func (d *differential) scrambleJob(j *kernel.Job) {
	j.Current, j.Desired, j.Phase = perdure.State(d.rnd.IntN(3)), perdure.State(d.rnd.IntN(2)), d.pickPhase()
	j.Alerted = d.chance(30)
	j.RestartPending, j.Restarts, j.HasPermit, j.Overdue = d.chance(20), d.rnd.IntN(3), d.chance(40), d.chance(30)
	j.HasPermit = j.HasPermit && j.Phase != perdure.Settled // settled jobs hold no permit: stores may search only unsettled jobs for holders
	// Running stays 0: a store may search the runs in flight for a job that has some.
	j.Unsettled, j.Active = d.rnd.IntN(5), d.rnd.IntN(5)
	j.CompleteBy, j.ParkedAt, j.UpdatedAt, j.SettledAt = d.maybeTime(d.time()), d.maybeTime(d.time()), d.time(), d.maybeTime(d.time())
	j.MadeFrom = d.pick("", "order@2")
	j.HasOutput, j.OutputError = d.chance(20), d.pick("", "", "no output")
	j.StartAt, j.StartBy = d.maybeTime(d.time()), d.maybeTime(d.time())
	j.GivenUpBy, j.GivenUpReason = d.pick("", "anna"), d.pick("", "so")
	j.Needs = kernel.Needs(d.pick("", "", `[{"name":"mail"}]`, `[{"name":"ads-api","key":"a","amount":2},{"name":"mail","key":"a"}]`))
	j.Submitter = d.pick("", "", "anna")
	j.Traceparent = d.pick("", "", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
}

// pickPhase returns a phase of a job without runs in flight.
func (d *differential) pickPhase() perdure.Phase {
	return []perdure.Phase{perdure.Settled, perdure.Waiting, perdure.Parked}[d.rnd.IntN(3)]
}

// scrambleStep sets a step to any state, also those that the rules never produce.
func (d *differential) scrambleStep(s *kernel.Step) {
	s.Current, s.Desired, s.Phase = perdure.State(d.rnd.IntN(3)), perdure.State(d.rnd.IntN(2)), perdure.Phase(d.rnd.IntN(5))
	s.Skipped, s.Run, s.Direction, s.CurrentBeforeRun, s.Turn = d.chance(10), s.Run+int64(d.rnd.IntN(2)), perdure.Direction(d.rnd.IntN(2)), perdure.State(d.rnd.IntN(3)), d.rnd.IntN(4)
	s.Agent, s.LockedBy, s.Request = d.agent(), d.holder(), d.request()
	s.CompleteBy, s.LockedUntil, s.Heartbeat = d.maybeTime(d.time()), d.time(), time.Duration(d.rnd.IntN(3))*time.Second
	s.Failures, s.Rung, s.Waits, s.Returns, s.AvailableAt = d.rnd.IntN(5), d.rnd.IntN(3), d.rnd.IntN(3), d.rnd.IntN(3), d.maybeTime(d.time())
	s.Outcome, s.ErrorCode, s.LastError, s.Progress = perdure.Outcome(d.rnd.IntN(6)), d.pick("", "503"), d.pick("", "no\nway"), d.pick("", `{"p": 1}`)
	s.ProgressAt, s.StopRequestedAt = d.maybeTime(d.time()), d.maybeTime(d.time())
	s.Host = d.pick("", "", "h1", "h2")
	s.HasOutput, s.OwnInput, s.Edited, s.GivenUp, s.Blockers = d.chance(50), d.chance(50), kernel.Edited(d.rnd.IntN(3)), d.chance(5), d.rnd.IntN(3)
	s.ReadyAt, s.StartedAt, s.EndedAt, s.UpdatedAt = d.maybeTime(d.time()), d.maybeTime(d.time()), d.maybeTime(d.time()), d.time()
	s.Topic, s.Approval = d.topicOrNone(), kernel.ApprovalState(d.pick("", `{"quorum":2}`))
	s.Needs = d.needs()
	limitStep(s)
	d.shareStep(s)
	if s.Ageing = 0; s.Agent == agentWithSettings { // other agents have no settings
		s.Ageing = []time.Duration{0, time.Second, time.Minute}[d.rnd.IntN(3)]
	}
}

// agentWithSettings is the only agent that has settings.
const agentWithSettings = "shell"

// limitedAgent is an agent whose steps all need a user's own limit, so that a store has no plain lane of it.
const limitedAgent = "ads"

// limitStep makes a step of limitedAgent need a limit.
func limitStep(s *kernel.Step) {
	if s.Agent == limitedAgent && s.Needs == "" {
		s.Needs = `[{"name":"mail"}]`
	}
}

// shareStep gives a share to some steps of agentWithSettings. Other agents are not fair.
func (d *differential) shareStep(s *kernel.Step) {
	if s.Agent == agentWithSettings {
		s.Needs = s.Needs.WithShare(d.shareValue())
	}
}

func (d *differential) shareValue() string { return d.pick("", "gold", "iron", "tin", "zinc") }

// putAgent makes the agent fair. Gold has a larger weight.
func putAgent(name string, ageing time.Duration, gold int) act {
	return inTx(func(tx kernel.Tx) (any, error) {
		return nil, tx.PutAgent(name, perdure.AgentSettings{Ageing: perdure.Duration(ageing), FairBy: "job.labels.metal", Weights: map[string]int{"gold": gold}})
	})
}

// charges returns random charges of shares.
func (d *differential) charges() (all []kernel.Charge) {
	for _, value := range []string{"", "gold", "iron", "tin", "zinc"} {
		if d.chance(40) {
			all = append(all, kernel.Charge{Agent: agentWithSettings, ID: kernel.ShareIDOf(value), Value: value, Amount: int64(1+d.rnd.IntN(5)) * kernel.FairUnit / int64(1+d.rnd.IntN(3))})
		}
	}
	return all
}

// A random edit is drawn once, into a row of its own, and then copied into the row of each store.

func jobEdit(from *kernel.Job) func(*kernel.Job) {
	return func(to *kernel.Job) {
		fixed := *to
		*to = *from
		to.ID, to.Key, to.Type, to.Priority, to.Labels, to.States, to.Hash, to.Shape, to.CreatedAt =
			fixed.ID, fixed.Key, fixed.Type, fixed.Priority, fixed.Labels, fixed.States, fixed.Hash, fixed.Shape, fixed.CreatedAt
		to.Input, to.InputStoredApart = fixed.Input, fixed.InputStoredApart
		keepUnsettled(to)
	}
}

func stepEdit(from *kernel.Step) func(*kernel.Step) {
	return func(to *kernel.Step) {
		fixed := *to
		*to = *from
		to.StepRef, to.Name, to.Type, to.Priority, to.Run = fixed.StepRef, fixed.Name, fixed.Type, fixed.Priority, fixed.Run+from.Run
	}
}

// alertAt returns the id of a store's n-th alert, counted from the newest.
func alertAt(store kernel.Store, n int) (int64, error) {
	alerts, err := store.Alerts(ctx, kernel.AlertFilter{Closed: true, Limit: n + 1})
	if len(alerts) == 0 {
		return 0, err
	}
	return alerts[min(n, len(alerts)-1)].ID, err
}

// alertKinds returns a random choice of the kinds of alerts.
func (d *differential) alertKinds() []perdure.AlertKind {
	all := []perdure.AlertKind{perdure.AlertParked, perdure.AlertApproval, perdure.AlertWaiting, perdure.AlertUndo, perdure.AlertNamed}
	return slices.DeleteFunc(all, func(perdure.AlertKind) bool { return d.chance(50) })
}
