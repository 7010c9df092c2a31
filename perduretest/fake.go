package perduretest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/perdure/perdure"
)

// Fake is an agent with a service behind it that behaves as one should: it recognizes a repeat by its key, undoes by the
// key of the do, and refuses an action that was undone before. It counts its effects.
type Fake struct {
	w    *World
	name string

	mu       sync.Mutex
	behave   map[string]func(*perdure.Run) (any, error) // by step
	set      map[string]string                          // by step: the method that set its behaviour, On or Fail
	effects  map[string]*effect                         // by the key of the do run
	attempts map[attempt]int
}

type effect struct {
	step   string
	output json.RawMessage
	did    int
	undid  int
	closed bool // undone, even if it was never done
}

type attempt struct {
	step string
	way  perdure.Direction
}

var errUndone = errors.New("it was undone before it came")

// Fake adds a fake agent with this name, which accepts every action.
func (w *World) Fake(name string) *Fake {
	f := &Fake{w: w, name: name, behave: map[string]func(*perdure.Run) (any, error){}, set: map[string]string{}, effects: map[string]*effect{}, attempts: map[attempt]int{}}
	a := perdure.NewAgent(name)
	a.HandleAny(f.serve)
	w.Carry(a)
	w.fakes = append(w.fakes, f)
	return f
}

// unknown returns the steps for which On or Fail was called, and that are not among the known steps.
func (f *Fake) unknown(known map[string]bool) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(func(yield func(string) bool) {
		for step := range f.set {
			if !known[step] && !yield(step) {
				return
			}
		}
	})
}

// On sets the result of runs of a step: an output or an error. An error comes before any effect. answer is called for
// each run in either direction. A second On for the step replaces the first. On and Fail for one step exclude each
// other: the second of them fails the test. If no job of the test has such a step, the test fails at its end.
func (f *Fake) On(step string, answer func(*perdure.Run) (any, error)) *Fake {
	f.w.Helper()
	return f.behaves(step, "On", answer)
}

// behaves sets how runs of a step behave. It fails the test instead of replacing what the other method has set.
func (f *Fake) behaves(step, method string, answer func(*perdure.Run) (any, error)) *Fake {
	f.w.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if before := f.set[step]; before != "" && before != method {
		f.w.Fatalf("fake %s: %s(%q) would replace %[4]s(%[3]q): give both the errors and the output in one On", f.name, method, step, before)
	}
	f.behave[step], f.set[step] = answer, method
	return f
}

// Fail makes the step's first n do runs fail with err. See On for a step that has both.
func (f *Fake) Fail(step string, n int, err error) *Fake {
	f.w.Helper()
	return f.behaves(step, "Fail", func(run *perdure.Run) (any, error) {
		if run.Direction == perdure.Do && n > 0 {
			n--
			return nil, err
		}
		return nil, nil
	})
}

func (f *Fake) serve(_ context.Context, run *perdure.Run) (json.RawMessage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempts[attempt{run.Step, run.Direction}]++
	var out any
	if answer := f.behave[run.Step]; answer != nil {
		var err error
		if out, err = answer(run); err != nil {
			return nil, err
		}
	}
	key := run.Key
	if run.Direction == perdure.Undo {
		key = run.DoKey
	}
	e := f.effects[key]
	if e == nil {
		e = &effect{step: run.Step}
		f.effects[key] = e
	}
	switch {
	case run.Direction == perdure.Undo:
		if e.did > e.undid {
			e.undid++
		}
		e.closed = true
		return nil, nil
	case e.closed:
		return nil, perdure.NoEffect(perdure.Rejected(errUndone, "undone"))
	case e.did == 0:
		raw, err := json.Marshal(out)
		if err != nil {
			return nil, err
		}
		e.did, e.output = 1, raw
	}
	return e.output, nil
}

// Attempts returns how many runs of a step there were in a direction.
func (f *Fake) Attempts(step string, way perdure.Direction) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.attempts[attempt{step, way}]
}

// Net returns how many effects of a step exist: done, and not undone.
func (f *Fake) Net(step string) int {
	did, undid := f.counts(step)
	return did - undid
}

// Effects returns how many effects of a step there have ever been.
func (f *Fake) Effects(step string) int {
	did, _ := f.counts(step)
	return did
}

func (f *Fake) counts(step string) (did, undid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.effects {
		if e.step == step {
			did, undid = did+e.did, undid+e.undid
		}
	}
	return did, undid
}

// Once fails the test unless the step has exactly one effect, and has never had another.
func (f *Fake) Once(step string) {
	f.w.Helper()
	if did, undid := f.counts(step); did != 1 || undid != 0 {
		f.w.Errorf("%s: %s was done %d times and undone %d times, want one effect", f.name, step, did, undid)
	}
}

// Gone fails the test unless every effect of the step was undone.
func (f *Fake) Gone(step string) {
	f.w.Helper()
	if did, undid := f.counts(step); did != undid {
		f.w.Errorf("%s: %s was done %d times and undone %d times", f.name, step, did, undid)
	}
}
