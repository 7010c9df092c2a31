package storetest

import (
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var finding = []check{
	{"Find/JobsByKey", findJobsByKey},
	{"Find/JobByHash", findJobByHash},
	{"Find/Ready", findReady},
	{"Find/ReadyAged", findReadyAged},
	{"Find/ReadyByPriority", findReadyByPriority},
	{"Find/ReadyFull", findReadyFull},
	{"Find/Due", findDue},
	{"Find/Expired", findExpired},
	{"Find/Overdue", findOverdue},
	{"Find/HeldBy", findHeldBy},
	{"Find/EmbeddedHolders", findEmbeddedHolders},
}

func findJobsByKey(s *suite) {
	s.submit(newJob(1, 1, keyed("a")), newJob(2, 1, keyed("A")), newJob(3, 1), newJob(4, 1, keyed("b"), typed("other")))
	s.changeJob(4, settleJob) // keys are unique over all types and all retained jobs
	found(s, "by key", map[string]kernel.Keyed{"a": keyedJob(1), "A": keyedJob(2), "b": keyedJob(4)},
		func(tx kernel.Tx) (map[string]kernel.Keyed, error) {
			return tx.JobsByKey([]string{"b", "a", "A", "c", "", "a"})
		})
}

// keyedJob is what JobsByKey tells of job n.
func keyedJob(n int) kernel.Keyed {
	j := newJob(n, 1).Job
	return kernel.Keyed{ID: j.ID, Hash: j.Hash}
}

// The newest unsettled job without a key.
func findJobByHash(s *suite) {
	hash := func(j *kernel.Job) { j.Hash = [32]byte{7} }
	s.submit(newJob(1, 1, hash), newJob(2, 1, hash), newJob(3, 1, hash, keyed("k")), newJob(4, 1, hash), newJob(5, 1), newJob(6, 1, hash, typed("other")))
	s.changeJob(4, settleJob)
	s.update(func(tx kernel.Tx) {
		newest, ok, err := tx.JobByHash("order", [32]byte{7})
		s.must(err)
		if newest != id(2) || !ok {
			s.Errorf("got %v, %v", newest, ok)
		}
		_, ok, err = tx.JobByHash("order", [32]byte{8})
		s.must(err)
		s.equal("unknown", ok, false)
	})
	s.changeJob(2, settleJob)
	s.changeJob(1, func(j *kernel.Job) { j.Phase = perdure.Parked }) // unsettled too
	s.update(func(tx kernel.Tx) {
		newest, ok, err := tx.JobByHash("order", [32]byte{7})
		s.must(err)
		if newest != id(1) || !ok {
			s.Errorf("got %v, %v", newest, ok)
		}
	})
}

func (s *suite) ready(what, agent string, max int, full []string, want []kernel.StepRef) {
	s.Helper()
	found(s, what, want, func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Ready(agent, max, full) })
}

// What an agent may claim: ready and its own, the oldest job first, then by place.
func findReady(s *suite) {
	s.submit(newJob(2, 3, typed("a")), newJob(1, 3, typed("b")), newJob(3, 3, typed("a")))
	s.changeStep(ref(1, 1), func(st *kernel.Step) { st.Agent = "shell" })
	s.changeStep(ref(2, 0), run("h", "", at(time.Minute)))
	s.changeStep(ref(2, 1), settle)
	s.changeStep(ref(3, 0), func(st *kernel.Step) { st.Phase = perdure.Parked })
	s.changeStep(ref(3, 2), waitUntil(at(0)))
	s.ready("http", "http", 100, nil, refs(1, 0, 1, 2, 2, 2, 3, 1))
	s.ready("bounded", "http", 2, nil, refs(1, 0, 1, 2))
	s.ready("none asked for", "http", 0, nil, nil)
	s.ready("shell", "shell", 100, nil, refs(1, 1))
	s.ready("nobody", "ftp", 100, nil, nil)
}

func findReadyByPriority(s *suite) {
	s.submit(
		newJob(1, 2, typed("a"), priority(0)), newJob(2, 1, typed("b"), priority(9)), newJob(3, 1, typed("a"), priority(5)),
		newJob(4, 1, typed("b"), priority(5)), newJob(5, 1, typed("a"), priority(9)), newJob(6, 1, typed("c"), priority(5)),
	)
	s.ready("by priority, then age", "http", 100, nil, refs(2, 0, 5, 0, 3, 0, 4, 0, 6, 0, 1, 0, 1, 1))
	s.ready("bounded", "http", 3, nil, refs(2, 0, 5, 0, 3, 0))
}

// Of a type whose limit is full only the jobs go on that hold a permit; the others do not stand in
// the way of anybody else (F029).
func findReadyFull(s *suite) {
	var c kernel.Changes
	for i := range 300 {
		c.NewJobs = append(c.NewJobs, newJob(i, 2, typed("full"), priority(9)))
	}
	c.NewJobs = append(c.NewJobs,
		newJob(400, 2, typed("full"), priority(3), permitted), newJob(401, 2, typed("full"), priority(4), permitted),
		newJob(402, 1, typed("free"), priority(1)), newJob(403, 1, typed("open"), priority(4)))
	s.save(&c)
	s.changeStep(ref(400, 0), run("h", "", at(time.Minute)))
	full := []string{"full", "unheard of"}
	s.ready("full", "http", 100, full, refs(401, 0, 401, 1, 403, 0, 400, 1, 402, 0))
	s.ready("bounded", "http", 2, full, refs(401, 0, 401, 1))
	s.ready("not full", "http", 2, []string{"open"}, refs(0, 0, 0, 1))
	s.ready("all full", "http", 100, []string{"full", "free", "open"}, refs(401, 0, 401, 1, 400, 1))
}

// The head start of a priority is that which its agent had when the step became ready.
func findReadyAged(s *suite) {
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutAgent("http", perdure.AgentSettings{Ageing: perdure.Duration(time.Hour)}))
		s.must(tx.PutAgent("http", perdure.AgentSettings{Ageing: perdure.Duration(10 * time.Millisecond)}))
		s.must(tx.PutAgent("shell", perdure.AgentSettings{Ageing: perdure.Duration(1500 * time.Microsecond)}))
		agents, err := tx.Agents()
		s.must(err)
		s.equal("settings", agents, map[string]perdure.AgentSettings{"http": {Ageing: perdure.Duration(10 * time.Millisecond)}, "shell": {Ageing: perdure.Duration(1500 * time.Microsecond)}})
	})
	agents, err := s.store.ListAgents(ctx)
	s.must(err)
	s.equal("settings, for screens", agents["http"], perdure.AgentSettings{Ageing: perdure.Duration(10 * time.Millisecond)})
	aged := func(ageing time.Duration, nj kernel.NewJob) kernel.NewJob {
		for _, st := range nj.Steps {
			st.Ageing = ageing
		}
		return nj
	}
	const ageing = 10 * time.Millisecond // ids are a millisecond apart
	s.submit(
		aged(ageing, newJob(1, 1, typed("a"), priority(0))), aged(ageing, newJob(85, 1, typed("a"), priority(9), permitted)), aged(ageing, newJob(95, 1, typed("b"), priority(9))),
		aged(0, newJob(200, 1, typed("a"), priority(1), permitted)), aged(ageing, newJob(6, 1, typed("a"), priority(0), permitted)),
	)
	s.ready("a head start of 90 ms", "http", 100, nil, refs(200, 0, 85, 0, 1, 0, 95, 0, 6, 0))
	s.ready("bounded", "http", 2, nil, refs(200, 0, 85, 0))
	s.ready("of a full type", "http", 100, []string{"a"}, refs(200, 0, 85, 0, 95, 0, 6, 0))
	s.update(func(tx kernel.Tx) { s.must(tx.PutLimit("job:a", 9)) })
	s.ready("of a type whose limit is full", "http", 100, []string{"a"}, refs(200, 0, 85, 0, 95, 0, 6, 0))
	s.sound()
}

// The earliest first, each from its time on, not before.
func findDue(s *suite) {
	s.submit(newJob(1, 5), newJob(2, 2))
	for r, t := range map[kernel.StepRef]time.Duration{ref(1, 0): 3, ref(1, 1): 1, ref(1, 2): 1, ref(2, 0): 2, ref(2, 1): 1} {
		s.changeStep(r, waitUntil(at(t*time.Second)))
	}
	s.changeStep(ref(1, 3), waitUntil(time.Time{})) // for a neighbour
	s.changeStep(ref(1, 4), func(st *kernel.Step) { st.AvailableAt = at(time.Second) })
	due := func(now time.Duration, max int, want []kernel.StepRef) {
		s.Helper()
		found(s, "due", want, func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Due(at(now), max) })
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
	s.changeStep(ref(1, 2), func(st *kernel.Step) { // the lock outlives the run
		st.Phase, st.LockedUntil, st.AvailableAt = perdure.Waiting, at(0), at(0)
	})
	expired := func(now time.Duration, max int, want []kernel.StepRef) {
		s.Helper()
		found(s, "expired", want, func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Expired(at(now), max) })
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
		found(s, "overdue", want, func(tx kernel.Tx) ([]perdure.JobID, error) { return tx.Overdue(at(now), max) })
	}
	overdue(time.Minute, 100, ids(2, 3, 1))
	overdue(time.Minute, 1, ids(2))
	overdue(time.Second, 100, ids(2, 3))
	overdue(time.Second-1000, 100, nil)
	s.changeJob(2, func(j *kernel.Job) { j.Overdue = true })
	overdue(time.Minute, 100, ids(3, 1))
}

// A claim that is repeated finds what it let out (F019).
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
		found(s, "held", want, func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.HeldBy(holder, agent, request, max) })
	}
	held("h", "http", "r1", 10, refs(1, 1, 2, 1))
	found(s, "granted", refs(1, 1, 2, 1), func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Granted("h", "http", "r1", 10) })
	found(s, "granted", refs(1, 1), func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Granted("h", "http", "r1", 1) })
	held("h", "http", "", 10, refs(1, 0, 1, 1, 2, 1))
	held("h", "", "", 10, refs(1, 0, 1, 1, 2, 0, 2, 1))
	held("h", "", "r1", 10, refs(1, 1, 2, 0, 2, 1))
	held("h", "", "", 2, refs(1, 0, 1, 1))
	held("h", "", "", 0, nil)
	held("h", "http", "r3", 10, nil)
	held("nobody", "", "", 10, nil)
}

func findEmbeddedHolders(s *suite) {
	found(s, "none", nil, kernel.Tx.EmbeddedHolders)
	s.submit(newJob(1, 6))
	for i, holder := range []string{"@b/http", "@a", "host-1", "@b/http", "h@a", "@gone"} {
		s.changeStep(ref(1, i), run(holder, "", at(time.Minute)))
	}
	s.changeStep(ref(1, 5), settle)
	found(s, "holders", []string{"@a", "@b/http"}, kernel.Tx.EmbeddedHolders)
}
