package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var findChecks = []check{
	{"Find/JobsByKey", findJobsByKey},
	{"Find/JobByHash", findJobByHash},
	{"Find/Ready", findReady},
	{"Find/ReadyByAgeing", findReadyByAgeing},
	{"Find/ReadyByPriority", findReadyByPriority},
	{"Find/ReadySkipsFullType", findReadySkipsFullType},
	{"Find/ReadySkipsClosedLanes", findReadySkipsClosedLanes},
	{"Find/ReadyInOrderOverManyLanes", findReadyInOrderOverManyLanes},
	{"Find/ReadyRepeatedInOneTransaction", findReadyRepeatedInOneTransaction},
	{"Find/ReadyWithEqualOrderNumbers", findReadyWithEqualOrderNumbers},
	{"Find/ReadySkipsFullLanes", findReadySkipsFullLanes},
	{"Find/Due", findDue},
	{"Find/Expired", findExpired},
	{"Find/Overdue", findOverdue},
	{"Find/HeldBy", findHeldBy},
	{"Find/EmbeddedHolders", findEmbeddedHolders},
}

func findJobsByKey(s *suite) {
	s.submit(newJob(1, 1, keyed("a")), newJob(2, 1, keyed("A")), newJob(3, 1), newJob(4, 1, keyed("b"), typed("other")))
	s.changeJob(4, settleJob) // keys are unique among all types and all stored jobs
	checkTx(s, "by key", map[string]kernel.Keyed{"a": keyedJob(1), "A": keyedJob(2), "b": keyedJob(4)},
		func(tx kernel.Tx) (map[string]kernel.Keyed, error) {
			return tx.JobsByKey([]string{"b", "a", "A", "c", "", "a"})
		})
}

// keyedJob returns the result of JobsByKey for job n.
func keyedJob(n int) kernel.Keyed {
	j := newJob(n, 1).Job
	return kernel.Keyed{ID: j.ID, Hash: j.Hash}
}

// The newest unsettled job without a key is found.
func findJobByHash(s *suite) {
	hash := func(j *kernel.Job) { j.Hash = [32]byte{7} }
	s.submit(newJob(1, 1, hash), newJob(2, 1, hash), newJob(3, 1, hash, keyed("k")), newJob(4, 1, hash), newJob(5, 1), newJob(6, 1, hash, typed("other")))
	s.changeJob(4, settleJob)
	s.update(func(tx kernel.Tx) {
		newest, ok, err := tx.JobByHash("order", [32]byte{7})
		s.must(err)
		if newest != id(2) || !ok {
			s.Errorf("JobByHash returns %v, %v", newest, ok)
		}
		_, ok, err = tx.JobByHash("order", [32]byte{8})
		s.must(err)
		s.equal("unknown", ok, false)
	})
	s.changeJob(2, settleJob)
	s.changeJob(1, func(j *kernel.Job) { j.Phase = perdure.Parked }) // parked is unsettled too
	s.update(func(tx kernel.Tx) {
		newest, ok, err := tx.JobByHash("order", [32]byte{7})
		s.must(err)
		if newest != id(1) || !ok {
			s.Errorf("JobByHash returns %v, %v", newest, ok)
		}
	})
}

func (s *suite) ready(what, agent string, max int, full []string, want []kernel.StepRef) {
	s.Helper()
	checkTx(s, what, want, func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Ready(agent, max, full, nil) })
}

// Ready returns the ready steps of the agent: the oldest job first, then by index.
func findReady(s *suite) {
	s.submit(newJob(2, 3, typed("a")), newJob(1, 3, typed("b")), newJob(3, 3, typed("a")))
	s.changeStep(ref(1, 1), func(st *kernel.Step) { st.Agent = "shell" })
	s.changeStep(ref(2, 0), run("h", "", at(time.Minute)))
	s.changeStep(ref(2, 1), settle)
	s.changeStep(ref(3, 0), func(st *kernel.Step) { st.Phase = perdure.Parked })
	s.changeStep(ref(3, 2), waitUntil(at(0)))
	s.ready("http", "http", 100, nil, refs(1, 0, 1, 2, 2, 2, 3, 1))
	s.ready("with a limit", "http", 2, nil, refs(1, 0, 1, 2))
	s.ready("a limit of zero", "http", 0, nil, nil)
	s.ready("shell", "shell", 100, nil, refs(1, 1))
	s.ready("an agent without steps", "ftp", 100, nil, nil)
}

func findReadyByPriority(s *suite) {
	s.submit(
		newJob(1, 2, typed("a"), priority(0)), newJob(2, 1, typed("b"), priority(9)), newJob(3, 1, typed("a"), priority(5)),
		newJob(4, 1, typed("b"), priority(5)), newJob(5, 1, typed("a"), priority(9)), newJob(6, 1, typed("c"), priority(5)),
	)
	s.ready("by priority, then age", "http", 100, nil, refs(2, 0, 5, 0, 3, 0, 4, 0, 6, 0, 1, 0, 1, 1))
	s.ready("with a limit", "http", 3, nil, refs(2, 0, 5, 0, 3, 0))
}

// If the limit of a job type is full, only jobs that hold its permit are returned. The others do not hide steps of other
// types (F029).
func findReadySkipsFullType(s *suite) {
	var c kernel.Changes
	for i := range 300 {
		c.NewJobs = append(c.NewJobs, newJob(i, 2, typed("full"), priority(9)))
	}
	c.NewJobs = append(c.NewJobs,
		newJob(400, 2, typed("full"), priority(3), permitted), newJob(401, 2, typed("full"), priority(4), permitted),
		newJob(402, 1, typed("free"), priority(1)), newJob(403, 1, typed("open"), priority(4)))
	s.save(&c)
	s.changeStep(ref(400, 0), run("h", "", at(time.Minute)))
	for _, name := range []string{"job:full", "job:free", "job:open"} {
		s.limit(name, 1)
	}
	full := []string{"job:full", "job:unknown"}
	s.ready("full", "http", 100, full, refs(401, 0, 401, 1, 403, 0, 400, 1, 402, 0))
	s.ready("with a limit", "http", 2, full, refs(401, 0, 401, 1))
	s.ready("not full", "http", 2, []string{"job:open"}, refs(0, 0, 0, 1))
	s.ready("all full", "http", 100, []string{"job:full", "job:free", "job:open"}, refs(401, 0, 401, 1, 400, 1))
}

// withNeeds sets the needs of all steps of a new job.
func withNeeds(needs kernel.Needs, nj kernel.NewJob) kernel.NewJob {
	for _, st := range nj.Steps {
		st.Needs = needs
	}
	return nj
}

// adsNeed is a need of one permit of limit ads, with a key.
func adsNeed(key string) kernel.Needs { return kernel.Needs(`[{"name":"ads","key":"` + key + `"}]`) }

func laneOf(key string) kernel.LaneRef {
	return kernel.LaneRef{Agent: "http", Lane: kernel.LaneOf("order", adsNeed(key))}
}

// closeLane closes the lane of steps that need this key.
func (s *suite) closeLane(key string) {
	s.Helper()
	s.save(&kernel.Changes{CloseLanes: []kernel.ClosedLane{{LaneRef: laneOf(key), For: kernel.LimitKey{Name: "ads", Key: key}}}})
}

// openLanes opens lanes that are closed for these keys.
func (s *suite) openLanes(max int, keys ...string) (agents []string) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		var of []kernel.LimitKey
		for _, key := range keys {
			of = append(of, kernel.LimitKey{Name: "ads", Key: key})
		}
		var err error
		agents, err = tx.OpenLanes(of, max)
		s.must(err)
	})
	return agents
}

// A closed lane is not searched until it is opened; a step that becomes ready in it does not open it. Steps of other
// lanes are found in their order, as if there were one lane (I12).
func findReadySkipsClosedLanes(s *suite) {
	s.limit("ads", 9)
	s.submit(withNeeds(adsNeed("a"), newJob(1, 2)), withNeeds(adsNeed("b"), newJob(2, 1)), newJob(3, 1), withNeeds(adsNeed("a"), newJob(4, 1)), withNeeds(adsNeed("c"), newJob(5, 1, priority(9))))
	s.ready("all", "http", 9, nil, refs(5, 0, 1, 0, 1, 1, 2, 0, 3, 0, 4, 0))
	s.ready("with a limit", "http", 3, nil, refs(5, 0, 1, 0, 1, 1))
	someClosed := func(want bool) {
		s.Helper()
		l, err := s.store.Poll(ctx, nil)
		s.must(err)
		s.equal("some lane is closed", l.LanesClosed, want)
	}
	someClosed(false)
	s.closeLane("a")
	someClosed(true)
	s.ready("lane a is closed", "http", 9, nil, refs(5, 0, 2, 0, 3, 0))
	s.submit(withNeeds(adsNeed("a"), newJob(6, 1, priority(9))))
	s.ready("lane a is still closed", "http", 9, nil, refs(5, 0, 2, 0, 3, 0))
	s.closeLane("b")
	checkTx(s, "closed for", []kernel.LimitKey{{Name: "ads", Key: "a"}, {Name: "ads", Key: "b"}}, func(tx kernel.Tx) ([]kernel.LimitKey, error) { return tx.ClosedFor(kernel.LimitKey{}, 9) })
	checkTx(s, "closed for, with a limit", []kernel.LimitKey{{Name: "ads", Key: "a"}}, func(tx kernel.Tx) ([]kernel.LimitKey, error) { return tx.ClosedFor(kernel.LimitKey{}, 1) })
	checkTx(s, "closed for, next page", []kernel.LimitKey{{Name: "ads", Key: "b"}}, func(tx kernel.Tx) ([]kernel.LimitKey, error) {
		return tx.ClosedFor(kernel.LimitKey{Name: "ads", Key: "a"}, 9)
	})
	s.equal("opened", s.openLanes(0, "a", "b"), nil)
	s.equal("opened", s.openLanes(9, "a", "none"), []string{"http"})
	someClosed(true)
	s.ready("lane b is closed", "http", 9, nil, refs(5, 0, 6, 0, 1, 0, 1, 1, 3, 0, 4, 0))
	s.checkConsistent()

	// Steps that leave a closed lane do not open it, and steps that leave an open lane may leave it empty.
	for _, r := range refs(2, 0, 1, 0, 1, 1, 4, 0, 6, 0) {
		s.changeStep(r, settle)
	}
	s.ready("lanes a and b are empty", "http", 9, nil, refs(5, 0, 3, 0))
	s.submit(withNeeds(adsNeed("b"), newJob(7, 1)), withNeeds(adsNeed("a"), newJob(8, 1)))
	s.ready("lane b is closed, lane a is open", "http", 9, nil, refs(5, 0, 3, 0, 8, 0))
	s.changeStep(ref(7, 0), settle)
	s.equal("an empty lane was opened", s.openLanes(9, "b"), []string{"http"})
	s.checkConsistent()
	s.submit(withNeeds(adsNeed("b"), newJob(17, 1)))
	s.closeLane("b")
	s.closeLane("unused")
	s.submit(withNeeds(adsNeed("unused"), newJob(9, 1)))
	s.ready("an empty lane is not closed", "http", 9, nil, refs(5, 0, 3, 0, 8, 0, 9, 0))
	s.equal("opened", s.openLanes(9, "b"), []string{"http"})
	s.ready("all", "http", 9, nil, refs(5, 0, 3, 0, 8, 0, 9, 0, 17, 0))
	s.checkConsistent()
}

// All ready steps are found, in order, whatever the number of lanes and the distribution of steps over them.
func findReadyInOrderOverManyLanes(s *suite) {
	var c kernel.Changes
	var want []kernel.StepRef
	for i := range 300 {
		key := fmt.Sprint(i) // 200 lanes with one step each
		if i%3 == 0 {
			key = "large" // and one lane with a hundred
		}
		c.NewJobs = append(c.NewJobs, withNeeds(adsNeed(key), newJob(i, 1)))
		want = append(want, ref(i, 0))
	}
	s.save(&c)
	s.ready("all", "http", 1000, nil, want)
	s.ready("half", "http", 150, nil, want[:150])
	s.ready("one", "http", 1, nil, want[:1])
	for i := range 299 {
		if i%3 != 0 {
			s.closeLane(fmt.Sprint(i))
		}
	}
	var large []kernel.StepRef
	for i := 0; i < 300; i += 3 {
		large = append(large, ref(i, 0))
	}
	s.ready("one large lane, and a small one", "http", 90, nil, large[:90])
	s.ready("all of them", "http", 101, nil, append(large, ref(299, 0)))
	s.checkConsistent()
}

// If one transaction searches, dispatches and searches again, it finds all steps, each once and in order: also those
// that it makes ready in between, at the head of a lane, in its middle and at its end. The next transaction finds what
// this one left, and new lanes.
func findReadyRepeatedInOneTransaction(s *suite) {
	lane := func(i int) kernel.Needs { // of every ten steps one has its own lane, and the others share three
		if i%10 == 9 {
			return adsNeed(fmt.Sprint("own", i))
		}
		return adsNeed(fmt.Sprint("shared", i%3))
	}
	var c kernel.Changes
	for i := 100; i < 200; i++ {
		c.NewJobs = append(c.NewJobs, withNeeds(lane(i), newJob(i, 1)))
	}
	s.save(&c)
	s.update(func(tx kernel.Tx) {
		var found []kernel.StepRef
		search := func(max, want int) {
			refs, err := tx.Ready("http", max, nil, nil)
			s.must(err)
			if len(refs) != want {
				s.Errorf("found %d steps, want %d", len(refs), want)
			}
			ids := make([]perdure.JobID, len(refs))
			for i := range refs {
				ids[i] = refs[i].Job
			}
			_, err = tx.TryLockJobs(ids)
			s.must(err)
			steps, err := tx.Steps(refs)
			s.must(err)
			var c kernel.Changes
			for _, st := range steps {
				c.Steps = append(c.Steps, editStep(st, settle))
			}
			s.must(tx.Save(&c))
			found = append(found, refs...)
		}
		search(20, 20)
		s.must(tx.Save(&kernel.Changes{NewJobs: []kernel.NewJob{withNeeds(lane(0), newJob(1, 1)), withNeeds(lane(0), newJob(150, 1, func(j *kernel.Job) { j.ID[15]++ })),
			withNeeds(adsNeed("new"), newJob(301, 1)), withNeeds(lane(0), newJob(300, 1))}}))
		search(20, 20)
		search(20, 20)
		search(30, 30)
		want := refs()
		for i := 100; i < 120; i++ {
			want = append(want, ref(i, 0))
		}
		want = append(want, ref(1, 0))
		for i := 120; len(want) < 90; i++ {
			if want = append(want, ref(i, 0)); i == 150 {
				later := id(150)
				later[15]++
				want = append(want, kernel.StepRef{Job: later})
			}
		}
		s.equal("found", found, want)
	})
	var rest []kernel.StepRef
	for i := 188; i < 200; i++ {
		rest = append(rest, ref(i, 0))
	}
	s.ready("the rest", "http", 100, nil, append(rest, ref(300, 0), ref(301, 0)))
	s.checkConsistent()
}

// Steps of one job, and of jobs that were submitted in the same millisecond, have the same order number. They are
// returned in the order of job and index, also if they are in different lanes and the search returns fewer than there
// are (L5).
func findReadyWithEqualOrderNumbers(s *suite) {
	same := func(n int) kernel.NewJob {
		nj := newJob(1, 10, func(j *kernel.Job) { j.ID[15] = byte(n) })
		for i, st := range nj.Steps {
			st.Needs = adsNeed(fmt.Sprint(n, i))
		}
		return nj
	}
	s.submit(same(7), same(3))
	var want []kernel.StepRef
	for _, n := range []int{3, 7} {
		for i := range 10 {
			want = append(want, kernel.StepRef{Job: same(n).Job.ID, Index: i})
		}
	}
	inOrder := func() {
		s.Helper()
		for max := range len(want) + 2 {
			s.ready(fmt.Sprint(max), "http", max, nil, want[:min(max, len(want))])
		}
		s.checkConsistent()
	}
	inOrder()
	left, back := want[0], want[11]
	s.changeStep(left, settle)
	s.changeStep(back, settle)
	want = slices.DeleteFunc(want, func(ref kernel.StepRef) bool { return ref == left || ref == back })
	inOrder()
	s.changeStep(back, func(st *kernel.Step) { st.Phase = perdure.Ready })
	want = slices.Insert(want, 10, back)
	inOrder()

	// One lane has the steps of several jobs. Its position is that of the first step that is left.
	for n := range 4 {
		s.submit(withNeeds(adsNeed("shared"), newJob(1, 1, func(j *kernel.Job) { j.ID[15] = byte(20 - n) })), withNeeds(adsNeed(fmt.Sprint("own", n)), newJob(1, 1, func(j *kernel.Job) { j.ID[15] = byte(40 - n) })))
	}
	for _, n := range []int{17, 18, 19, 20, 37, 38, 39, 40} {
		want = append(want, kernel.StepRef{Job: perdure.JobID(slices.Concat(want[0].Job[:15], []byte{byte(n)}))})
	}
	inOrder()
	s.changeStep(want[len(want)-8], settle)
	want = slices.Delete(want, len(want)-8, len(want)-7)
	inOrder()
}

// The lanes of a limit that is full as a whole are not searched, however many there are. If the limit of a type is full,
// only jobs that hold its permit are found.
func findReadySkipsFullLanes(s *suite) {
	s.limit("ads", 1)
	s.limit("job:order", 1)
	both := kernel.Needs(`[{"name":"ads","key":"a"},{"name":"mail"}]`)
	s.submit(withNeeds(adsNeed("a"), newJob(1, 1)), withNeeds(`[{"name":"mail"}]`, newJob(2, 1, permitted)), withNeeds(both, newJob(3, 1, permitted)),
		newJob(4, 1, permitted), withNeeds(adsNeed("b"), newJob(5, 1, typed("import"))), newJob(6, 1))
	s.ready("nothing is full", "http", 9, nil, refs(1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0))
	s.ready("ads is full", "http", 9, []string{"ads"}, refs(2, 0, 4, 0, 6, 0))
	s.ready("a limit that does not exist", "http", 9, []string{"mail", "none"}, refs(1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0))
	s.limit("mail", 1)
	s.ready("mail is full", "http", 9, []string{"mail"}, refs(1, 0, 4, 0, 5, 0, 6, 0))
	s.ready("the type is full", "http", 9, []string{"job:order"}, refs(2, 0, 3, 0, 4, 0, 5, 0))
	s.ready("the type and ads are full", "http", 9, []string{"job:order", "ads"}, refs(2, 0, 4, 0))
	s.save(&kernel.Changes{CloseLanes: []kernel.ClosedLane{{LaneRef: kernel.LaneRef{Agent: "http", Lane: kernel.LaneOf("order", both)}, For: kernel.LimitKey{Name: "ads", Key: "a"}}}})
	s.ready("the type is full, and a lane is closed", "http", 9, []string{"job:order"}, refs(2, 0, 4, 0, 5, 0))
	s.checkConsistent()
}

// The head start of a priority is the one that the agent had when the step became ready.
func findReadyByAgeing(s *suite) {
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutAgent("http", perdure.AgentSettings{Ageing: perdure.Duration(time.Hour)}))
		s.must(tx.PutAgent("http", perdure.AgentSettings{Ageing: perdure.Duration(10 * time.Millisecond), Patience: perdure.Duration(90 * time.Second)}))
		s.must(tx.PutAgent("shell", perdure.AgentSettings{Ageing: perdure.Duration(1500 * time.Microsecond)}))
		agents, err := tx.Agents()
		s.must(err)
		s.equal("settings", agents, map[string]perdure.AgentSettings{"http": {Ageing: perdure.Duration(10 * time.Millisecond), Patience: perdure.Duration(90 * time.Second)}, "shell": {Ageing: perdure.Duration(1500 * time.Microsecond)}})
	})
	agents, err := s.store.ListAgents(ctx)
	s.must(err)
	s.equal("settings, from Reader", agents["http"], perdure.AgentSettings{Ageing: perdure.Duration(10 * time.Millisecond), Patience: perdure.Duration(90 * time.Second)})
	aged := func(ageing time.Duration, nj kernel.NewJob) kernel.NewJob {
		for _, st := range nj.Steps {
			st.Ageing = ageing
		}
		return nj
	}
	const ageing = 10 * time.Millisecond // ids are one millisecond apart
	s.submit(
		aged(ageing, newJob(1, 1, typed("a"), priority(0))), aged(ageing, newJob(85, 1, typed("a"), priority(9), permitted)), aged(ageing, newJob(95, 1, typed("b"), priority(9))),
		aged(0, newJob(200, 1, typed("a"), priority(1), permitted)), aged(ageing, newJob(6, 1, typed("a"), priority(0), permitted)),
	)
	s.ready("a head start of 90 ms", "http", 100, nil, refs(200, 0, 85, 0, 1, 0, 95, 0, 6, 0))
	s.ready("with a limit", "http", 2, nil, refs(200, 0, 85, 0))
	s.update(func(tx kernel.Tx) { s.must(tx.PutLimit(atMost("job:a", 9))) })
	s.ready("a type whose limit is full", "http", 100, []string{"job:a"}, refs(200, 0, 85, 0, 95, 0, 6, 0))
	s.checkConsistent()
}

// Due steps are returned earliest first, each from its time on and not before.
func findDue(s *suite) {
	s.submit(newJob(1, 5), newJob(2, 2))
	for r, t := range map[kernel.StepRef]time.Duration{ref(1, 0): 3, ref(1, 1): 1, ref(1, 2): 1, ref(2, 0): 2, ref(2, 1): 1} {
		s.changeStep(r, waitUntil(at(t*time.Second)))
	}
	s.changeStep(ref(1, 3), waitUntil(time.Time{})) // waits for a neighbour, not for a time
	s.changeStep(ref(1, 4), func(st *kernel.Step) { st.AvailableAt = at(time.Second) })
	due := func(now time.Duration, max int, want []kernel.StepRef) {
		s.Helper()
		checkTx(s, "due", want, func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Due(at(now), max) })
	}
	due(time.Minute, 100, refs(1, 1, 1, 2, 2, 1, 2, 0, 1, 0))
	due(time.Minute, 2, refs(1, 1, 1, 2))
	due(time.Minute, 0, nil)
	due(2*time.Second, 100, refs(1, 1, 1, 2, 2, 1, 2, 0))
	due(2*time.Second-time.Microsecond, 100, refs(1, 1, 1, 2, 2, 1))
	due(0, 100, nil)
}

func findExpired(s *suite) {
	s.submit(newJob(1, 4), newJob(2, 1))
	for r, t := range map[kernel.StepRef]time.Duration{ref(1, 0): 3, ref(1, 1): 1, ref(2, 0): 1} {
		s.changeStep(r, run("h", "", at(t*time.Second)))
	}
	s.changeStep(ref(1, 2), func(st *kernel.Step) { // the lock is longer than the run
		st.Phase, st.LockedUntil, st.AvailableAt = perdure.Waiting, at(0), at(0)
	})
	expired := func(now time.Duration, max int, want []kernel.StepRef) {
		s.Helper()
		checkTx(s, "expired", want, func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Expired(at(now), max) })
	}
	expired(time.Minute, 100, refs(1, 1, 2, 0, 1, 0))
	expired(time.Minute, 1, refs(1, 1))
	expired(3*time.Second, 100, refs(1, 1, 2, 0, 1, 0))
	expired(3*time.Second-time.Microsecond, 100, refs(1, 1, 2, 0))
	expired(0, 100, nil)
	expired(time.Minute, 0, nil)
}

func findOverdue(s *suite) {
	by := func(t time.Duration) func(*kernel.Job) {
		return func(j *kernel.Job) { j.CompleteBy = at(t * time.Second) }
	}
	s.submit(newJob(1, 1, by(3)), newJob(2, 1, by(1)), newJob(3, 1, by(1)), newJob(4, 1),
		newJob(5, 1, by(1), func(j *kernel.Job) { j.Overdue = true }),
		newJob(6, 1, by(1), func(j *kernel.Job) { j.ParkedAt = at(0) }),
		newJob(7, 1, by(1), settleJob))
	overdue := func(now time.Duration, max int, want []perdure.JobID) {
		s.Helper()
		checkTx(s, "overdue", want, func(tx kernel.Tx) ([]perdure.JobID, error) { return tx.Overdue(at(now), max) })
	}
	overdue(time.Minute, 100, ids(2, 3, 1))
	overdue(time.Minute, 1, ids(2))
	overdue(time.Second, 100, ids(2, 3))
	overdue(time.Second-1000, 100, nil)
	s.changeJob(2, func(j *kernel.Job) { j.Overdue = true })
	overdue(time.Minute, 100, ids(3, 1))
}

// A repeated claim finds the runs that it was granted (F019).
func findHeldBy(s *suite) {
	s.submit(newJob(2, 3), newJob(1, 3))
	s.changeStep(ref(1, 0), run("h", "r2", at(time.Minute)))
	s.changeStep(ref(1, 1), run("h", "r1", at(time.Minute)))
	s.changeStep(ref(1, 2), run("h", "r1", at(time.Minute)))
	s.changeStep(ref(1, 2), settle)
	s.changeStep(ref(2, 0), func(st *kernel.Step) { run("h", "r1", at(time.Minute))(st); st.Agent = "shell" })
	s.changeStep(ref(2, 1), run("h", "r1", at(time.Minute)))
	s.changeStep(ref(2, 2), run("other", "r1", at(time.Minute)))
	held := func(holder, agent, request string, max int, want []kernel.StepRef) {
		s.Helper()
		checkTx(s, "held", want, func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.HeldBy(holder, agent, request, max) })
	}
	held("h", "http", "r1", 10, refs(1, 1, 2, 1))
	checkTx(s, "granted", refs(1, 1, 2, 1), func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Granted("h", "http", "r1", 10) })
	checkTx(s, "granted", refs(1, 1), func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Granted("h", "http", "r1", 1) })
	held("h", "http", "", 10, refs(1, 0, 1, 1, 2, 1))
	held("h", "", "", 10, refs(1, 0, 1, 1, 2, 0, 2, 1))
	held("h", "", "r1", 10, refs(1, 1, 2, 0, 2, 1))
	held("h", "", "", 2, refs(1, 0, 1, 1))
	held("h", "", "", 0, nil)
	held("h", "http", "r3", 10, nil)
	held("unknown", "", "", 10, nil)
}

func findEmbeddedHolders(s *suite) {
	checkTx(s, "none", nil, kernel.Tx.EmbeddedHolders)
	s.submit(newJob(1, 6))
	for i, holder := range []string{"@b/http", "@a", "host-1", "@b/http", "h@a", "@gone"} {
		s.changeStep(ref(1, i), run(holder, "", at(time.Minute)))
	}
	s.changeStep(ref(1, 5), settle)
	checkTx(s, "holders", []string{"@a", "@b/http"}, kernel.Tx.EmbeddedHolders)
}
