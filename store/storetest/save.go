package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var saveChecks = []check{
	{"Save/StaleRowIsRefused", saveStaleRow},
	{"Save/StaleRowRefusesAll", saveStaleRowRefusesAll},
	{"Save/IgnoredErrorPreventsCommit", saveIgnoredError},
	{"Save/ManyJobsAtOnce", saveManyJobs},
	{"Save/PayloadsAreSetSeparately", savePayloads},
	{"Save/TimesToTheMicrosecond", saveTimes},
	{"Save/RowsAreCopied", saveCopies},
	{"Update/ErrorUndoesEverything", updateError},
	{"Update/PanicUndoesEverything", updatePanic},
	{"Update/RetriesStale", updateRetriesStale},
	{"Update/CancelledStoresNothing", updateCancelled},
	{"Update/ReadsItsOwnWrites", updateReadsItsOwnWrites},
	{"Update/AfterLoadingWholeJob", updateAfterLoadingWholeJob},
}

// A row that differs from the loaded one refuses the change (F072).
func saveStaleRow(s *suite) {
	s.submit(newJob(1, 1))
	steps := map[string]func(*kernel.Step){
		"run":     func(st *kernel.Step) { st.Run++ },
		"phase":   func(st *kernel.Step) { st.Phase = perdure.Parked },
		"current": func(st *kernel.Step) { st.Current = perdure.Unsure },
		"desired": func(st *kernel.Step) { st.Desired = perdure.Undone },
		"gone":    func(st *kernel.Step) { st.Index = 7 },
	}
	for what, differs := range steps {
		loaded := s.steps(1)[0]
		differs(loaded)
		s.refused("step "+what, &kernel.Changes{Steps: []kernel.StepChange{editStep(loaded, settle)}})
	}
	jobs := map[string]func(*kernel.Job){
		"current":   func(j *kernel.Job) { j.Current = perdure.Unsure },
		"desired":   func(j *kernel.Job) { j.Desired = perdure.Undone },
		"phase":     func(j *kernel.Job) { j.Phase = perdure.Parked },
		"unsettled": func(j *kernel.Job) { j.Unsettled++ },
		"running":   func(j *kernel.Job) { j.Running++ },
		"active":    func(j *kernel.Job) { j.Active++ },
		"gone":      func(j *kernel.Job) { j.ID = id(9) },
	}
	for what, differs := range jobs {
		loaded := s.job(1)
		differs(loaded)
		s.refused("job "+what, &kernel.Changes{Jobs: []kernel.JobChange{editJob(loaded, settleJob)}})
	}
	s.equal("job", s.job(1), newJob(1, 1).Job)
	s.equal("steps", s.steps(1), newJob(1, 1).Steps)
}

func (s *suite) refused(what string, c *kernel.Changes) {
	s.Helper()
	err := s.store.Update(ctx, func(tx kernel.Tx) error { return tx.Save(c) })
	if !errors.Is(err, kernel.ErrStale) {
		s.Errorf("%s: got %v, want ErrStale", what, err)
	}
}

// One stale row refuses everything that the transaction wrote, before it and in the same call.
func saveStaleRowRefusesAll(s *suite) {
	s.submit(newJob(1, 2))
	stale := s.steps(1)[1]
	stale.Run = 5
	err := s.store.Update(ctx, func(tx kernel.Tx) error {
		s.must(tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{newJob(2, 1)}}))
		s.must(tx.PutLimit(atMost("agent:http", 3)))
		return tx.Save(&kernel.Changes{
			NewJobs:  []kernel.NewJob{newJob(3, 1, keyed("k"))},
			Jobs:     []kernel.JobChange{editJob(s.jobIn(tx, 1), settleJob)},
			Steps:    []kernel.StepChange{editStep(s.one(ref(1, 0), tx), settle), editStep(stale, settle)},
			Payloads: []kernel.PayloadChange{{StepRef: ref(1, 0), SetInput: true, Input: []byte("1")}},
			Alerts:   []kernel.Alert{{Job: id(1), Kind: perdure.AlertNamed, RaisedAt: at(0)}},
			History:  []kernel.Entry{{Job: id(1), At: at(0), Event: "failed"}},
		})
	})
	if !errors.Is(err, kernel.ErrStale) {
		s.Errorf("got %v, want ErrStale", err)
	}
	s.checkUntouched(1, 2)
}

// checkUntouched checks that the store holds job n as newJob made it, and nothing else.
func (s *suite) checkUntouched(n, steps int) {
	s.Helper()
	s.equal("job", s.job(n), newJob(n, steps).Job)
	s.equal("steps", s.steps(n), newJob(n, steps).Steps)
	jobs, _, err := s.store.ListJobs(ctx, kernel.JobFilter{})
	s.must(err)
	s.equal("jobs", len(jobs), 1)
	payloads, err := s.store.Payloads(ctx, id(n), 1<<20, 1<<20)
	s.must(err)
	s.equal("payloads", payloads, nil)
	alerts, err := s.store.Alerts(ctx, kernel.AlertFilter{Closed: true})
	s.must(err)
	s.equal("alerts", alerts, nil)
	history, err := s.store.History(ctx, id(n), 0, 10)
	s.must(err)
	s.equal("history", history, nil)
	limits, err := s.store.ListLimits(ctx)
	s.must(err)
	s.equal("limits", limits, nil)
}

func (s *suite) jobIn(tx kernel.Tx, n int) *kernel.Job {
	s.Helper()
	jobs, err := tx.LockJobs(ids(n))
	s.must(err)
	return jobs[0]
}

// After Save has returned an error nothing can be committed, even if fn ignores the error.
func saveIgnoredError(s *suite) {
	s.submit(newJob(1, 1))
	stale := s.steps(1)[0]
	stale.Run = 5
	err := s.store.Update(ctx, func(tx kernel.Tx) error {
		_ = tx.Save(&kernel.Changes{
			Jobs:  []kernel.JobChange{editJob(s.jobIn(tx, 1), settleJob)},
			Steps: []kernel.StepChange{editStep(stale, settle)},
		})
		return nil
	})
	if !errors.Is(err, kernel.ErrStale) {
		s.Errorf("got %v, want ErrStale", err)
	}
	s.checkUntouched(1, 1)
}

// One Save writes the events of many jobs (group commit).
func saveManyJobs(s *suite) {
	const n = 1200
	var c kernel.Changes
	for i := range n {
		c.NewJobs = append(c.NewJobs, newJob(i, 2))
	}
	s.save(&c)
	var all []perdure.JobID
	var firsts []kernel.StepRef
	for i := range n {
		all, firsts = append(all, id(i)), append(firsts, ref(i, 0))
	}
	s.update(func(tx kernel.Tx) {
		jobs, err := tx.LockJobs(all)
		s.must(err)
		steps, err := tx.Steps(firsts)
		s.must(err)
		var c kernel.Changes
		for _, j := range jobs {
			c.Jobs = append(c.Jobs, editJob(j, func(j *kernel.Job) { j.Unsettled, j.Active = 1, 1 }))
		}
		for _, st := range steps {
			c.Steps = append(c.Steps, editStep(st, settle))
			c.Payloads = append(c.Payloads, kernel.PayloadChange{StepRef: st.StepRef, SetOutput: true, Output: fmt.Appendf(nil, "%d", st.Index)})
			c.History = append(c.History, kernel.Entry{Job: st.Job, Step: st.Name, At: at(0), Event: "failed"})
		}
		s.must(tx.Save(&c))
	})
	s.update(func(tx kernel.Tx) {
		steps, err := tx.Steps(firsts)
		s.must(err)
		jobs, err := tx.LockJobs(all)
		s.must(err)
		payloads, err := tx.Payloads(firsts, math.MaxInt)
		s.must(err)
		if len(steps) != n || len(jobs) != n || len(payloads) != n {
			s.Fatalf("%d steps, %d jobs, %d payloads", len(steps), len(jobs), len(payloads))
		}
		for i := range n {
			if steps[i].Job != id(i) || steps[i].Phase != perdure.Settled || jobs[i].ID != id(i) || jobs[i].Unsettled != 1 || payloads[i].Job != id(i) {
				s.Fatalf("row %d: %+v %+v", i, steps[i], jobs[i])
			}
		}
	})
}

// The two values of a payload are set and deleted separately; null is a value; bytes are kept unchanged (I8).
func savePayloads(s *suite) {
	s.submit(newJob(1, 5))
	big := append(append([]byte(`"`), bytes.Repeat([]byte("x"), perdure.MaxPayloadBytes-2)...), '"')
	values := []byte("{ \"b\":1.0,\n\t\"a\" : \"\\u00e4ä\", \"a\":12345678901234567890 }")
	s.save(&kernel.Changes{Payloads: []kernel.PayloadChange{
		{StepRef: ref(1, 3), SetInput: true, Input: big, SetOutput: true, Output: []byte("null")},
		{StepRef: ref(1, 0), SetInput: true, Input: values, Output: []byte("not set")},
		{StepRef: ref(1, 1), SetOutput: true, Output: values},
		{StepRef: ref(1, 2), SetInput: true, Input: nil},
	}})
	s.save(&kernel.Changes{Payloads: []kernel.PayloadChange{
		{StepRef: ref(1, 1), SetInput: true, Input: []byte("7")},
		{StepRef: ref(1, 3), SetOutput: true},
	}})
	want := []kernel.Payload{
		{StepRef: ref(1, 0), Input: values},
		{StepRef: ref(1, 1), Input: []byte("7"), Output: values},
		{StepRef: ref(1, 3), Input: big},
	}
	wanted := refs(1, 3, 1, 0, 1, 1, 1, 2, 1, 4, 2, 0, 1, 0)
	inOrder := []kernel.Payload{want[2], want[0], want[1]}
	for n, most := range map[int]int{3: 4 << 20, 2: len(big) + 1, 1: 1, 0: 0} {
		checkTx(s, fmt.Sprintf("payloads up to %d bytes", most), inOrder[:n:n], func(tx kernel.Tx) ([]kernel.Payload, error) {
			return tx.Payloads(wanted, most)
		})
	}
	checkTx(s, "payloads, the second of which reaches the bound", inOrder[:2:2], func(tx kernel.Tx) ([]kernel.Payload, error) {
		return tx.Payloads(wanted, len(big)+len(values))
	})
	sized := func(read ...string) []kernel.SizedPayload { // with the named values read
		all := make([]kernel.SizedPayload, len(want))
		for i, p := range want {
			all[i] = kernel.SizedPayload{Payload: kernel.Payload{StepRef: p.StepRef}, InputBytes: len(p.Input), OutputBytes: len(p.Output)}
			if slices.Contains(read, fmt.Sprint("input ", p.Index)) {
				all[i].Input = p.Input
			}
			if slices.Contains(read, fmt.Sprint("output ", p.Index)) {
				all[i].Output = p.Output
			}
		}
		return all
	}
	for _, c := range []struct {
		max, total int
		read       []kernel.SizedPayload
	}{
		{perdure.MaxPayloadBytes, 4 << 20, sized("input 0", "input 1", "output 1", "input 3")},
		{perdure.MaxPayloadBytes - 1, 4 << 20, sized("input 0", "input 1", "output 1")},
		{len(values), 4 << 20, sized("input 0", "input 1", "output 1")},
		{len(values) - 1, 4 << 20, sized("input 1")},
		{len(values), 2*len(values) + 1, sized("input 0", "input 1", "output 1")},
		{len(values), 2 * len(values), sized("input 0", "input 1")},
		{len(values), len(values) + 1, sized("input 0", "input 1")},
		{len(values), len(values), sized("input 0")},
		{len(values), len(values) - 1, sized()},
		{len(values) - 1, 1, sized("input 1")}, // a value that is too large by itself does not count for the total
		{perdure.MaxPayloadBytes, 0, sized()},
		{0, 4 << 20, sized()},
	} {
		got, err := s.store.Payloads(ctx, id(1), c.max, c.total)
		s.must(err)
		s.equal(fmt.Sprintf("values of at most %d bytes, %d in all", c.max, c.total), got, c.read)
	}
	none, err := s.store.Payloads(ctx, id(9), 1, 1)
	s.must(err)
	s.equal("of a job that does not exist", none, nil)
	for i, p := range []*kernel.Payload{&want[0], &want[1], nil, &want[2], nil} {
		got, err := s.store.Payload(ctx, ref(1, i))
		s.must(err)
		s.equal(fmt.Sprint("of step ", i), got, p)
	}
	s.save(&kernel.Changes{Payloads: []kernel.PayloadChange{{StepRef: ref(1, 0), SetInput: true}}})
	want = want[1:]
	got, err := s.store.Payloads(ctx, id(1), perdure.MaxPayloadBytes, 4<<20)
	s.must(err)
	s.equal("without the deleted value", got, sized("input 1", "output 1", "input 3"))
}

// Times are kept to the microsecond, in UTC, also distant ones (F085). A zero time stays zero.
func saveTimes(s *suite) {
	zone := time.FixedZone("elsewhere", -3*3600)
	times := []time.Time{
		{},
		time.Unix(0, 0),
		at(0).Add(1999 * time.Nanosecond).In(zone),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
		time.Date(1969, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
	}
	for i, t := range times {
		nj := newJob(i, 1, func(j *kernel.Job) { j.CompleteBy = t })
		nj.Steps[0].AvailableAt = t
		s.submit(nj)
		got, step := s.job(i).CompleteBy, s.steps(i)[0].AvailableAt
		want := t
		if !t.IsZero() {
			want = time.UnixMicro(t.UnixMicro())
		}
		if !got.Equal(want) || got.IsZero() != t.IsZero() || !step.Equal(want) || got.Location() != time.UTC || step.Location() != time.UTC {
			s.Errorf("%v: got %v and %v", t, got, step)
		}
	}
}

// Rows that are passed in or returned are copies: changing them does not change what is stored.
func saveCopies(s *suite) {
	nj := newJob(1, 1, labelled("a", "b"))
	in := []byte("123")
	s.submit(nj)
	s.save(&kernel.Changes{Payloads: []kernel.PayloadChange{{StepRef: ref(1, 0), SetInput: true, Input: in}}})
	nj.Job.Type, nj.Steps[0].Name, nj.Shape[0], in[0] = "changed", "changed", 'x', 'x'
	nj.Job.Labels["a"] = "changed"
	s.job(1).Labels["a"] = "changed"
	s.steps(1)[0].Name = "changed"
	s.equal("job", s.job(1), newJob(1, 1, labelled("a", "b")).Job)
	s.equal("steps", s.steps(1), newJob(1, 1).Steps)
	payloads, err := s.store.Payloads(ctx, id(1), 100, 100)
	s.must(err)
	s.equal("payload", payloads, []kernel.SizedPayload{{Payload: kernel.Payload{StepRef: ref(1, 0), Input: []byte("123")}, InputBytes: 3}})
}

var errOops = errors.New("oops")

// An error of fn undoes everything, and is returned unchanged.
func updateError(s *suite) {
	s.submit(newJob(1, 1))
	err := s.store.Update(ctx, func(tx kernel.Tx) error {
		s.writeAll(tx)
		return errOops
	})
	if !errors.Is(err, errOops) {
		s.Errorf("got %v", err)
	}
	s.checkUntouched(1, 1)
	s.checkWritesSucceed()
}

func (s *suite) writeAll(tx kernel.Tx) {
	s.Helper()
	s.must(tx.PutLimit(atMost("job:order", 1)))
	s.must(tx.Save(&kernel.Changes{
		NewJobs:  []kernel.NewJob{newJob(2, 1, keyed("k"), labelled("a", "b"))},
		Jobs:     []kernel.JobChange{editJob(s.jobIn(tx, 1), settleJob)},
		Steps:    []kernel.StepChange{editStep(s.one(ref(1, 0), tx), settle)},
		Payloads: []kernel.PayloadChange{{StepRef: ref(1, 0), SetInput: true, Input: []byte("1")}},
		Alerts:   []kernel.Alert{{Job: id(1), Step: "s0", Kind: perdure.AlertParked, RaisedAt: at(0)}},
		History:  []kernel.Entry{{Job: id(1), At: at(0), Event: "failed"}},
	}))
}

// checkWritesSucceed checks that the same writes succeed now: the refused ones left nothing behind.
func (s *suite) checkWritesSucceed() {
	s.Helper()
	s.update(s.writeAll)
	s.equal("new job", s.job(2) != nil, true)
	s.equal("phase", s.job(1).Phase, perdure.Settled)
}

// A panic of fn undoes everything too, and the store remains usable.
func updatePanic(s *suite) {
	s.submit(newJob(1, 1))
	func() {
		defer func() {
			if r := recover(); r != "boom" {
				s.Errorf("recovered %v", r)
			}
		}()
		_ = s.store.Update(ctx, func(tx kernel.Tx) error {
			s.writeAll(tx)
			panic("boom")
		})
	}()
	s.checkUntouched(1, 1)
	s.checkWritesSucceed()
}

// A stale transaction is run again on fresh rows, a bounded number of times.
func updateRetriesStale(s *suite) {
	s.submit(newJob(1, 1))
	calls := 0
	s.must(s.store.Update(ctx, func(tx kernel.Tx) error {
		calls++
		loaded := s.one(ref(1, 0), tx)
		if calls == 1 {
			loaded.Run = 99
		}
		return tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(loaded, settle)}})
	}))
	s.equal("calls", calls, 2)
	calls = 0
	err := s.store.Update(ctx, func(kernel.Tx) error { calls++; return fmt.Errorf("stale at each attempt: %w", kernel.ErrStale) })
	if !errors.Is(err, kernel.ErrStale) || calls < 2 {
		s.Errorf("%v after %d attempts", err, calls)
	}
}

// If the caller's context ends, before or during the transaction, nothing is stored.
func updateCancelled(s *suite) {
	s.submit(newJob(1, 1))
	ended, cancel := context.WithCancel(ctx)
	err := s.store.Update(ended, func(tx kernel.Tx) error {
		s.writeAll(tx)
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		s.Errorf("cancelled inside: %v", err)
	}
	err = s.store.Update(ended, func(kernel.Tx) error { s.Error("fn was run"); return nil })
	if !errors.Is(err, context.Canceled) {
		s.Errorf("cancelled before: %v", err)
	}
	if _, _, err := s.store.Job(ended, id(1), 0); !errors.Is(err, context.Canceled) {
		s.Errorf("a read: %v", err)
	}
	s.checkUntouched(1, 1)
	s.checkWritesSucceed()
}

// Writes are visible inside their transaction, and outside only after the commit.
func updateReadsItsOwnWrites(s *suite) {
	s.submit(newJob(1, 2))
	s.update(func(tx kernel.Tx) {
		s.must(tx.Save(&kernel.Changes{
			NewJobs: []kernel.NewJob{newJob(2, 1, keyed("k"))},
			Steps:   []kernel.StepChange{editStep(s.one(ref(1, 0), tx), run("h", "", at(time.Minute)))},
		}))
		s.equal("step", s.one(ref(1, 0), tx).Phase, perdure.Running)
		byKey, err := tx.JobsByKey([]string{"k"})
		s.must(err)
		s.equal("key", byKey, map[string]kernel.Keyed{"k": keyedJob(2)})
		ready, err := tx.Ready("http", 10, nil, nil)
		s.must(err)
		s.equal("ready", ready, refs(1, 1, 2, 0))
		s.must(tx.Save(&kernel.Changes{Steps: []kernel.StepChange{editStep(s.one(ref(1, 0), tx), settle)}}))
	})
	s.equal("after", s.steps(1)[0].Phase, perdure.Settled)
}

// If a transaction has loaded a whole job and changed a step, the next transaction reads the changed step, however often
// the step was read before. (Found by the simulation.)
func updateAfterLoadingWholeJob(s *suite) {
	s.submit(newJob(1, 3, permitted))
	s.changeJob(1, permitted)
	for i := range 3 { // running
		s.changeStep(ref(1, i), func(st *kernel.Step) { st.Phase, st.Agent = perdure.Ready, "a" })
	}
	s.update(func(tx kernel.Tx) {
		s.jobIn(tx, 1)
		steps, err := tx.StepsOf(id(1))
		s.must(err)
		var c kernel.Changes
		for _, st := range steps[1:] {
			c.Steps = append(c.Steps, editStep(st, settle))
		}
		s.must(tx.Save(&c))
	})
	s.update(func(tx kernel.Tx) {
		s.jobIn(tx, 1)
		for i := 1; i < 3; i++ {
			if st := s.one(ref(1, i), tx); st.Phase != perdure.Settled {
				s.Errorf("step %d is %s", i, st.Phase)
			}
		}
	})
}
