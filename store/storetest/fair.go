package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var fairChecks = []check{
	{"Fair/SharesTakeTurns", fairSharesTakeTurns},
	{"Fair/ReturningShareBeginsAtFloor", fairReturningShare},
	{"Fair/Weights", fairWeights},
	{"Fair/ShareOfManyLanesIsOneShare", fairManyLanes},
	{"Fair/ClosedAndFull", fairClosedAndFull},
	{"Fair/DeleteShares", fairDelete},
	{"Fair/ManyShares", fairManyShares},
	{"Fair/WithoutSetting", fairOff},
	{"Fair/ConcurrentCharges", fairConcurrent},
}

// shared makes the steps of a job those of a share.
func shared(value string, nj kernel.NewJob) kernel.NewJob {
	for _, st := range nj.Steps {
		st.Needs = st.Needs.WithShare(value)
	}
	return nj
}

func (s *suite) fair(weights map[string]int) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutAgent("http", perdure.AgentSettings{Ageing: perdure.Duration(perdure.DefaultAgeing), FairBy: "job.labels.customer", Weights: weights}))
	})
}

// charge counts runs of weight 1.
func (s *suite) charge(runs map[string]int) {
	s.Helper()
	c := &kernel.Changes{}
	for value, n := range runs {
		c.Served = append(c.Served, kernel.Charge{Agent: "http", ID: kernel.ShareIDOf(value), Value: value, Amount: int64(n) * kernel.FairUnit})
	}
	s.save(c)
}

// shares compares the shares of the agent, each with the number of runs above the floor, and the number of ready steps.
func (s *suite) shares(what string, want map[string][2]int64) {
	s.Helper()
	found, floor, err := s.store.Shares(ctx, "http", 100, true)
	s.must(err)
	got := map[string][2]int64{}
	for _, f := range found {
		got[f.Value] = [2]int64{f.Served - floor, int64(f.Ready)}
	}
	s.equal(what, got, want)
}

func fairSharesTakeTurns(s *suite) {
	s.fair(nil)
	settings, err := s.store.ListAgents(ctx)
	s.must(err)
	s.equal("setting", settings["http"].FairBy, "job.labels.customer")
	for n := range 6 { // a has the oldest jobs
		s.submit(shared("a", newJob(1+n, 1)))
	}
	s.submit(shared("b", newJob(11, 2)), newJob(21, 1), shared("c", newJob(31, 1, typed("other"))))
	checkFirstOf := func(what string, max int, want map[int]bool) {
		s.Helper()
		s.update(func(tx kernel.Tx) {
			found, err := tx.Ready("http", max, nil, nil)
			s.must(err)
			got := map[int]bool{}
			for _, ref := range found {
				for n := range 40 {
					if ref.Job == id(n) {
						got[n] = true
					}
				}
			}
			s.equal(what, got, want)
		})
	}
	checkFirstOf("one of each share", 4, map[int]bool{1: true, 11: true, 21: true, 31: true})
	checkFirstOf("two of each share", 6, map[int]bool{1: true, 2: true, 11: true, 21: true, 31: true})
	s.charge(map[string]int{"b": 1, "c": 1, "": 1})
	checkFirstOf("a has been served least", 1, map[int]bool{1: true})
	s.charge(map[string]int{"a": 3})
	s.ready("then comes the share without a value", "http", 1, nil, refs(21, 0))
	s.changeStep(ref(21, 0), run("h", "", at(time.Minute)))
	s.charge(map[string]int{"c": 5})
	s.ready("both are below the floor: they take turns", "http", 4, nil, refs(11, 0, 1, 0, 11, 1, 2, 0))
	s.changeStep(ref(31, 0), run("h", "", at(time.Minute)))
	s.ready("a share whose steps are dispatched is left out", "http", 9, nil, refs(11, 0, 1, 0, 11, 1, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0))
	s.checkConsistent()
}

// A share that had nothing to dispatch does not catch up.
func fairReturningShare(s *suite) {
	s.fair(nil)
	for n := range 6 {
		s.submit(shared("a", newJob(1+n, 1)))
	}
	s.charge(map[string]int{"a": 100})
	s.submit(shared("b", newJob(11, 3)))
	s.shares("b begins", map[string][2]int64{"a": {kernel.FairUnit, 6}, "b": {-99 * kernel.FairUnit, 3}})
	found := s.readyAt("http", 5)
	s.equal("b is one run ahead", found[0], ref(11, 0))
	n := 0
	for _, r := range found {
		if r.Job == id(11) {
			n++
		}
	}
	s.equal("of five", n, 3)
	s.charge(map[string]int{"b": 1})
	s.shares("after a run", map[string][2]int64{"a": {kernel.FairUnit, 6}, "b": {kernel.FairUnit, 3}})
}

// readyAt returns what Ready finds.
func (s *suite) readyAt(agent string, max int) (found []kernel.StepRef) {
	s.Helper()
	s.update(func(tx kernel.Tx) {
		var err error
		found, err = tx.Ready(agent, max, nil, nil)
		s.must(err)
	})
	return found
}

func fairWeights(s *suite) {
	s.fair(map[string]int{"a": 4})
	s.submit(shared("a", newJob(1, 20)), shared("b", newJob(2, 20)))
	ofA := 0
	for _, r := range s.readyAt("http", 10) {
		if r.Job == id(1) {
			ofA++
		}
	}
	s.equal("of ten", ofA, 8)
	s.fair(map[string]int{"b": 4}) // takes effect at once
	ofA = 0
	for _, r := range s.readyAt("http", 10) {
		if r.Job == id(1) {
			ofA++
		}
	}
	s.equal("of ten, with other weights", ofA, 2)
}

// Lanes by type and by key do not give a share more than one turn.
func fairManyLanes(s *suite) {
	s.fair(nil)
	for n := range 30 {
		nj := newJob(1+n, 1, typed(fmt.Sprintf("t%d", n%3)))
		nj.Steps[0].Needs = kernel.Needs(fmt.Sprintf(`[{"name":"ads","key":"k%d"}]`, n))
		s.submit(shared("a", nj))
	}
	s.submit(shared("b", newJob(101, 10)))
	for _, max := range []int{2, 8, 20} {
		ofA := 0
		found := s.readyAt("http", max)
		for _, r := range found {
			if r.Job.Compare(id(100)) < 0 {
				ofA++
			}
		}
		s.equal("half of them", [2]int{len(found), ofA}, [2]int{max, max / 2})
	}
	s.ready("those of a share are in order", "http", 30, []string{"job:nothing"}, s.readyAt("http", 30))
	s.charge(map[string]int{"b": 100})
	s.ready("a goes first", "http", 5, nil, refs(1, 0, 2, 0, 101, 0, 3, 0, 101, 1))
	s.shares("counts", map[string][2]int64{"a": {-99 * kernel.FairUnit, 30}, "b": {kernel.FairUnit, 10}})
	s.checkConsistent()
}

func fairClosedAndFull(s *suite) {
	s.fair(nil)
	s.limit("ads", 1)
	need := func(value, key string, nj kernel.NewJob) kernel.NewJob {
		nj.Steps[0].Needs = kernel.Needs(fmt.Sprintf(`[{"name":"ads","key":%q}]`, key))
		return shared(value, nj)
	}
	s.submit(need("a", "x", newJob(1, 1)), need("a", "y", newJob(2, 1)), need("b", "x", newJob(3, 1)), shared("c", newJob(4, 1)), newJob(5, 1))
	s.charge(map[string]int{"a": 10, "b": 12, "c": 13, "": 14})
	s.ready("all", "http", 9, nil, refs(1, 0, 3, 0, 4, 0, 2, 0, 5, 0))
	s.ready("full", "http", 9, []string{"ads"}, refs(4, 0, 5, 0))
	lane := func(value, key string) kernel.LaneRef {
		return kernel.LaneRef{Agent: "http", Lane: kernel.LaneOf("order", kernel.Needs(fmt.Sprintf(`[{"name":"ads","key":%q}]`, key)).WithShare(value))}
	}
	x := kernel.LimitKey{Name: "ads", Key: "x"}
	s.save(&kernel.Changes{CloseLanes: []kernel.ClosedLane{{LaneRef: lane("a", "x"), For: x}, {LaneRef: lane("b", "x"), For: x}}})
	s.ready("x is closed", "http", 9, nil, refs(2, 0, 4, 0, 5, 0))
	s.shares("b has no open lane", map[string][2]int64{"a": {-3 * kernel.FairUnit, 1}, "c": {0, 1}})
	s.submit(need("b", "x", newJob(6, 1)))
	s.ready("x remains closed", "http", 9, nil, refs(2, 0, 4, 0, 5, 0))
	s.update(func(tx kernel.Tx) {
		waiting, err := tx.DeleteShares("http", 100)
		s.must(err)
		s.equal("waiting", waiting, true)
		agents, err := tx.OpenLanes([]kernel.LimitKey{x}, 100)
		s.must(err)
		s.equal("agents", agents, []string{"http"})
	})
	s.ready("x is open; b was forgotten, as it was below the floor", "http", 9, nil, refs(3, 0, 1, 0, 4, 0, 6, 0, 2, 0, 5, 0))
	s.update(func(tx kernel.Tx) { s.must(tx.PutLimit(atMost("job:order", 9))) })
	s.submit(need("b", "z", newJob(7, 1, permitted)), newJob(8, 1, permitted))
	s.ready("a full type: only jobs with its permit", "http", 9, []string{"job:order"}, refs(7, 0, 8, 0))
	s.checkConsistent()
}

func fairDelete(s *suite) {
	s.fair(nil)
	s.submit(shared("a", newJob(1, 2)), shared("b", newJob(2, 1)), shared("c", newJob(3, 1)))
	s.charge(map[string]int{"a": 10, "b": 3, "c": 10})
	for _, n := range []int{2, 3} {
		s.changeStep(ref(n, 0), run("h", "", at(time.Minute)))
	}
	s.update(func(tx kernel.Tx) {
		waiting, err := tx.DeleteShares("http", 100)
		s.must(err)
		s.equal("waiting", waiting, true)
	})
	s.submit(shared("b", newJob(4, 1)), shared("c", newJob(5, 1)))
	s.shares("b was forgotten", map[string][2]int64{"a": {kernel.FairUnit, 2}, "b": {-9 * kernel.FairUnit, 1}, "c": {kernel.FairUnit, 1}})
	for _, r := range []kernel.StepRef{ref(1, 0), ref(1, 1), ref(4, 0), ref(5, 0)} {
		s.changeStep(r, run("h", "", at(time.Minute)))
	}
	s.update(func(tx kernel.Tx) {
		waiting, err := tx.DeleteShares("http", 100)
		s.must(err)
		s.equal("nothing waits", waiting, false)
	})
	_, floor, err := s.store.Shares(ctx, "http", 9, false)
	s.must(err)
	s.equal("floor without shares", floor, int64(0))
}

// A search of few steps among many shares takes those that have been served least.
func fairManyShares(s *suite) {
	s.fair(nil)
	var jobs []kernel.NewJob
	for n := range 300 {
		jobs = append(jobs, shared(fmt.Sprintf("c%d", n), newJob(1+n, 2)))
	}
	s.submit(jobs...)
	c := &kernel.Changes{}
	for n := range 300 {
		value := fmt.Sprintf("c%d", n)
		c.Served = append(c.Served, kernel.Charge{Agent: "http", ID: kernel.ShareIDOf(value), Value: value, Amount: 1000*kernel.FairUnit - int64(n)*1000})
	}
	s.save(c)
	s.ready("the last", "http", 3, nil, refs(300, 0, 299, 0, 298, 0))
	s.equal("all of them, with both steps", len(s.readyAt("http", 1000)), 600)
	found := s.readyAt("http", 301)
	s.equal("each share once, and then the first again", found[300], ref(300, 1))
}

// After the setting is removed, the steps that have a share remain in the order of shares.
func fairOff(s *suite) {
	s.fair(nil)
	s.submit(shared("a", newJob(1, 2)), shared("b", newJob(2, 1)))
	s.charge(map[string]int{"a": 5})
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutAgent("http", perdure.AgentSettings{Ageing: perdure.Duration(perdure.DefaultAgeing), FairBy: kernel.FairOff}))
	})
	s.submit(newJob(3, 1))
	s.charge(map[string]int{"": 7})
	s.ready("in the order of shares", "http", 9, nil, refs(2, 0, 1, 0, 1, 1, 3, 0))
	s.update(func(tx kernel.Tx) {
		had, err := tx.DeleteAgent("http")
		s.must(err)
		s.equal("had settings", had, true)
		had, err = tx.DeleteAgent("http")
		s.must(err)
		s.equal("has none", had, false)
		s.must(tx.PutAgent("http", perdure.AgentSettings{Ageing: perdure.Duration(perdure.DefaultAgeing), FairBy: kernel.FairOff}))
	})
}

// Transactions that charge the same shares at the same time, and make steps ready in them, all count, in whichever order they
// name the shares; those that fail do not count (F333).
func fairConcurrent(s *suite) {
	s.fair(nil)
	s.submit(shared("a", newJob(1, 1)), shared("b", newJob(2, 1)))
	const writers, each = 8, 5
	var all sync.WaitGroup
	errs := make(chan error, writers*each*3)
	for w := range writers {
		all.Go(func() {
			for n := range each {
				c := &kernel.Changes{}
				for i := range 6 {
					value := string(rune('a' + (i+w)%6))
					c.Served = append(c.Served, kernel.Charge{Agent: "http", ID: kernel.ShareIDOf(value), Value: value, Amount: kernel.FairUnit})
				}
				c.NewJobs = []kernel.NewJob{shared(string(rune('c'+(n+w)%6)), newJob(100+each*w+n, 1))}
				errs <- s.store.Update(ctx, func(tx kernel.Tx) error { return tx.Save(c) })
				first := []kernel.Charge{{Agent: fmt.Sprint("new-", n), ID: 7, Value: "v", Amount: kernel.FairUnit}}
				errs <- s.store.Update(ctx, func(tx kernel.Tx) error { return tx.Save(&kernel.Changes{Served: first}) })
				if err := s.store.Update(ctx, func(tx kernel.Tx) error {
					return cmp.Or(tx.Save(&kernel.Changes{Served: c.Served}), errOops)
				}); !errors.Is(err, errOops) {
					errs <- err
				}
			}
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		s.must(err)
	}
	for n := range each {
		_, floor, err := s.store.Shares(ctx, fmt.Sprint("new-", n), 1, false)
		s.must(err)
		s.equal("charges of a share that had no row", floor, int64(writers-1)*kernel.FairUnit)
	}
	shares, floor, err := s.store.Shares(ctx, "http", 100, true)
	s.must(err)
	served, ready := map[string]int64{}, 0
	for _, f := range shares {
		served[f.Value] = f.Served / kernel.FairUnit
		ready += f.Ready
	}
	s.equal("floor", floor, int64(writers*each-1)*kernel.FairUnit)
	s.equal("served", served, map[string]int64{"a": writers * each, "b": writers * each, "c": writers * each, "d": writers * each, "e": writers * each, "f": writers * each, "g": 0, "h": 0})
	s.equal("ready", ready, writers*each+2)
}
