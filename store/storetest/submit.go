package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var submitChecks = []check{
	{"Submit/JobShapeAndStepsTogether", submitWhole},
	{"Submit/ShapeIsShared", submitShape},
	{"Submit/LargeInputIsStoredApart", submitInput},
	{"Submit/EveryField", submitEveryField},
	{"Submit/LargeJobs", submitLarge},
	{"Submit/TakenKeyIsRetried", submitKeyTaken},
	{"Submit/KeyTwiceInATransaction", submitKeyTwice},
	{"Submit/EmptyTransaction", submitNothing},
}

// Jobs of one shape share its text; the text that was stored first stays.
func submitShape(s *suite) {
	one, two := newJob(1, 1), newJob(2, 1)
	two.Job.Shape = one.Job.Shape
	s.submit(one)
	s.submit(two)
	three := newJob(3, 1)
	three.Job.Shape = one.Job.Shape
	four := newJob(4, 1)
	s.submit(three, four)
	checkTx(s, "shapes", map[kernel.ShapeID][]byte{one.Job.Shape: one.Shape, four.Job.Shape: four.Shape},
		func(tx kernel.Tx) (map[kernel.ShapeID][]byte, error) {
			return tx.Shapes([]kernel.ShapeID{four.Job.Shape, one.Job.Shape, {0xff}, one.Job.Shape})
		})
	s.equal("shape of the second job", s.job(2).Shape, one.Job.Shape)
}

// A small input is returned with the row of its job, a large one is stored apart. Neither changes when the row does.
func submitInput(s *suite) {
	small := []byte(fmt.Sprintf(`{"b":1,  "a":%q}`, bytes.Repeat([]byte("x"), 100)))
	edge := bytes.Repeat([]byte("1"), perdure.MaxInlineInput)
	large := append(bytes.Clone(edge), '1')
	inputs := [][]byte{nil, small, edge, large}
	for i, in := range inputs {
		nj := newJob(i+1, 1)
		nj.Job.Input = bytes.Clone(in)
		s.submit(nj)
	}
	for range 2 {
		for i, in := range inputs {
			n, apart := i+1, len(in) > perdure.MaxInlineInput
			j := s.job(n)
			s.equal(fmt.Sprintf("input %d is stored apart", n), j.InputStoredApart, apart)
			if !apart {
				s.equal(fmt.Sprintf("input %d in the row", n), string(j.Input), string(in))
			}
			for _, max := range []int{perdure.MaxPayloadBytes, len(in)} {
				got, size, err := s.store.Input(ctx, id(n), max)
				s.must(err)
				s.equal(fmt.Sprintf("input %d", n), string(got), string(in))
				s.equal(fmt.Sprintf("size of input %d", n), size, len(in))
			}
			got, size, err := s.store.Input(ctx, id(n), len(in)-1)
			s.must(err)
			s.equal(fmt.Sprintf("input %d, which is larger", n), got, nil)
			s.equal(fmt.Sprintf("size of input %d, which is larger", n), size, len(in))
			s.changeJob(n, func(j *kernel.Job) { j.Restarts++ })
		}
	}
	s.update(func(tx kernel.Tx) {
		_, err := tx.LockJobs(ids(1, 2, 3, 4))
		s.must(err)
		got, err := tx.Inputs(ids(4, 9))
		s.must(err)
		s.equal("inputs", len(got), 1)
		s.equal("the large input", string(got[id(4)]), string(large))
	})
}

// A submission stores job, shape and steps in one transaction (F005).
func submitWhole(s *suite) {
	want := newJob(1, 3, keyed("order-1"))
	s.submit(want, newJob(2, 1))
	s.equal("job", s.job(1), want.Job)
	s.equal("steps", s.steps(1), want.Steps)
	body, err := s.store.Shape(ctx, want.Job.Shape)
	s.must(err)
	s.equal("shape, byte for byte", string(body), string(want.Shape))
	s.equal("steps of the other job", len(s.steps(2)), 1)

	for steps := range 2 {
		none, no, err := s.store.Job(ctx, id(3), steps)
		if none != nil || no != nil || err != nil {
			s.Errorf("a job that does not exist: %v, %v, %v; want nil and no error", none, no, err)
		}
	}
	if body, err := s.store.Shape(ctx, kernel.ShapeID{9}); body != nil || err != nil {
		s.Errorf("a shape that does not exist: %v, %v; want nil and no error", body, err)
	}
	if in, size, err := s.store.Input(ctx, id(3), 1000); in != nil || size != 0 || err != nil {
		s.Errorf("input of a job that does not exist: %v of %d bytes, %v; want nil and no error", in, size, err)
	}
	s.equal("steps of a job that does not exist", s.steps(3), nil)
}

// fullJob and fullStep return rows without a zero field, so that a store that omits a field fails the test.
func fullJob(n int) *kernel.Job {
	return &kernel.Job{
		ID: id(n), Key: "schlüssel-1 %_'\"", Type: "order", Priority: 9,
		Labels: map[string]string{"customer": "c-77", "ü": "a\"b\\c", "empty": ""},
		States: &perdure.StateNames{Undone: "disabled", Done: "active"},
		Hash:   [32]byte{0: 1, 15: 0xff, 31: 2}, Shape: kernel.ShapeID{0: 3, 15: 0xfe},
		Input: []byte(`{"b":1.0, "a":"ü"}`), HasOutput: true, OutputError: "no 'x'", MadeFrom: "order@7", Alerted: true,

		Current: perdure.Unsure, Desired: perdure.Done, Phase: perdure.Parked, RestartPending: true, Restarts: 3, HasPermit: true,
		Unsettled: 2, Running: 1, Active: 7,
		StartAt: at(80 * time.Minute), StartBy: at(85 * time.Minute), CompleteBy: at(1 * time.Hour), ParkedAt: at(2 * time.Hour), Overdue: true,
		GivenUpBy: "anna", GivenUpReason: "no use\n— really",
		Needs:      `[{"name":"ads","key":"a","amount":2}]`,
		Parent:     "job_00000000000000000000000000000009/pages",
		ReopenedAt: at(90 * time.Minute), Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Submitter: "ben",
		CreatedAt: at(3 * time.Hour), UpdatedAt: at(4 * time.Hour), SettledAt: at(5*time.Hour + time.Microsecond),
	}
}

func fullStep(job, i int) *kernel.Step {
	return &kernel.Step{
		StepRef: ref(job, i), Name: fmt.Sprintf("step_%d", i), Type: "order", Priority: 9,
		Current: perdure.Unsure, Desired: perdure.Done, Phase: perdure.Parked, Skipped: true,
		Run: 1 << 40, Direction: perdure.Undo, CurrentBeforeRun: perdure.Done, Turn: 3,
		Agent: "payments", LockedBy: "@node-1", Request: "r-1",
		CompleteBy: at(time.Second), LockedUntil: at(2 * time.Second), Heartbeat: 15*time.Second + time.Microsecond,
		Failures: 4, Rung: 5, Waits: 6, Returns: 7, AvailableAt: at(3 * time.Second),
		Outcome: perdure.OutcomeExpired, ErrorCode: "card_declined", LastError: "it said: 'no' \U0001f600",
		Progress: `{"percent": 50}`, ProgressAt: at(8 * time.Second), StopRequestedAt: at(9 * time.Second), Host: "h1", HasOutput: true, OwnInput: true, Edited: 2, GivenUp: true, Blockers: 8, Ageing: 90 * time.Minute, Needs: `[{"name":"ads"}]`, Topic: "paid/p1", Children: `{"total":3}`, Owns: true, Approval: `{"by":[{"by":"anna"}]}`,
		ReadyAt: at(4 * time.Second), StartedAt: at(5 * time.Second), EndedAt: at(6 * time.Second), UpdatedAt: at(7 * time.Second),
	}
}

// Every field is returned as it was stored, from a new row and from a changed one.
func submitEveryField(s *suite) {
	full := *fullJob(1)
	full.InputStoredApart = true // see submitInput
	allSet(s.T, full)
	allSet(s.T, *fullStep(1, 1))
	s.submit(kernel.NewJob{Job: fullJob(1), Steps: []*kernel.Step{fullStep(1, 0), fullStep(1, 1)}, Shape: []byte("{}")})
	s.equal("new job", s.job(1), fullJob(1))
	s.equal("new steps", s.steps(1), []*kernel.Step{fullStep(1, 0), fullStep(1, 1)})

	s.submit(newJob(2, 1, func(j *kernel.Job) {
		f := fullJob(2)
		j.Key, j.Type, j.Priority, j.Labels, j.States, j.Hash, j.Shape, j.Input, j.CreatedAt =
			"other", f.Type, f.Priority, f.Labels, f.States, f.Hash, f.Shape, f.Input, f.CreatedAt
	}))
	s.changeJob(2, func(j *kernel.Job) { *j = *fullJob(2); j.Key = "other" })
	s.changeStep(ref(2, 0), func(st *kernel.Step) { *st = *fullStep(2, 0); st.Name = "s0" })
	changed := fullJob(2)
	changed.Key = "other"
	s.equal("changed job", s.job(2), changed)
	step := fullStep(2, 0)
	step.Name = "s0"
	s.equal("changed step", s.steps(2), []*kernel.Step{step})

	// Fields that are cleared are returned as zero.
	s.changeJob(2, func(j *kernel.Job) {
		j.HasOutput, j.OutputError, j.MadeFrom = false, "", ""
		j.StartAt, j.StartBy, j.CompleteBy, j.ParkedAt, j.SettledAt, j.GivenUpBy, j.GivenUpReason, j.ReopenedAt, j.Traceparent, j.Needs, j.Submitter = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}, "", "", time.Time{}, "", "", ""
	})
	s.changeStep(ref(2, 0), func(st *kernel.Step) {
		*st = kernel.Step{StepRef: st.StepRef, Name: "s0", Type: st.Type, Priority: st.Priority}
	})
	if j := s.job(2); !j.StartAt.IsZero() || !j.StartBy.IsZero() || !j.CompleteBy.IsZero() || !j.ParkedAt.IsZero() || !j.SettledAt.IsZero() || j.GivenUp() {
		s.Errorf("a cleared job has fields left: %+v", j)
	}
	s.equal("cleared step", s.steps(2), []*kernel.Step{{StepRef: ref(2, 0), Name: "s0", Type: "order", Priority: 9}})
}

func allSet(t *testing.T, row any) {
	t.Helper()
	v := reflect.ValueOf(row)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Fatalf("the suite does not set %s.%s: give it a value, and check that each store keeps it", v.Type(), v.Type().Field(i).Name)
		}
	}
}

// Jobs of ten thousand steps, and definitions of some megabytes, are ordinary.
func submitLarge(s *suite) {
	nj := newJob(1, perdure.MaxSteps)
	nj.Shape = append(append([]byte(`"`), bytes.Repeat([]byte("ä"), 2<<20)...), '"')
	s.submit(nj)
	steps := s.steps(1)
	if len(steps) != perdure.MaxSteps {
		s.Fatalf("%d steps", len(steps))
	}
	for i, st := range steps {
		if st.Index != i {
			s.Fatalf("step %d is at position %d", st.Index, i)
		}
	}
	body, err := s.store.Shape(ctx, nj.Job.Shape)
	s.must(err)
	if !bytes.Equal(body, nj.Shape) {
		s.Error("the definition was changed")
	}
}

// A key that is taken makes the transaction stale: it is run again, and then finds the key (F002).
func submitKeyTaken(s *suite) {
	s.submit(newJob(1, 1, keyed("k")), newJob(2, 1), newJob(3, 1))
	calls := 0
	err := s.store.Update(ctx, func(tx kernel.Tx) error {
		calls++
		if calls > 1 { // in the second call it looks the key up
			byKey, err := tx.JobsByKey([]string{"k"})
			s.equal("known", byKey, map[string]kernel.Keyed{"k": keyedJob(1)})
			return err
		}
		return tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{newJob(4, 1), newJob(5, 1, keyed("k"))}})
	})
	s.must(err)
	s.equal("calls", calls, 2)
	if s.job(4) != nil || s.job(5) != nil {
		s.Error("the refused transaction stored something")
	}
}

func submitKeyTwice(s *suite) {
	err := s.store.Update(ctx, func(tx kernel.Tx) error {
		return tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{newJob(1, 1, keyed("k")), newJob(2, 1, keyed("k"))}})
	})
	if !errors.Is(err, kernel.ErrStale) {
		s.Errorf("got %v", err)
	}
	if s.job(1) != nil || s.job(2) != nil || s.steps(1) != nil {
		s.Error("the refused transaction stored something")
	}
}

func submitNothing(s *suite) { s.save(&kernel.Changes{}) }
