package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var statisticsChecks = []check{
	{"Statistics/EmptyStore", censusOfNothing},
	{"Statistics/JobsByTypeAndPhase", censusOfJobs},
	{"Statistics/ReadyStepsByAgent", censusOfReady},
	{"Statistics/ClosedLanesByLimit", censusOfClosed},
	{"Statistics/KeysThatMostStepsWaitFor", closedKeys},
	{"Statistics/WhatStepsWantOfAKey", wantsOfKeys},
	{"Statistics/StepsThatWaitForATime", censusOfDue},
	{"Statistics/AlertsByKindCodeAndType", censusOfAlerts},
	{"Statistics/SharesOfAgents", censusOfShares},
	{"Statistics/SignalsAndTheirWaiters", censusOfSignals},
	{"Statistics/CountsAreBounded", censusIsBounded},
	{"Statistics/SavedTextIsRead", savedStats},
	{"Statistics/SeriesSumsNodes", series},
	{"Statistics/SeriesIsForgotten", forgetSeries},
}

const manyRows = 1000

func (s *suite) census(max int) *kernel.Census {
	s.Helper()
	c, err := s.store.Census(ctx, max)
	s.must(err)
	sortCensus(c)
	return c
}

// sortCensus orders the lists, so that they can be compared.
func sortCensus(c *kernel.Census) {
	slices.SortFunc(c.Jobs, func(a, b kernel.JobGroup) int { return compareText(a, b) })
	slices.SortFunc(c.Ready, func(a, b kernel.ReadyGroup) int { return compareText(a, b) })
	slices.SortFunc(c.Closed, func(a, b kernel.ClosedGroup) int { return compareText(a, b) })
	slices.SortFunc(c.Needing, func(a, b kernel.NeedGroup) int { return compareText(a, b) })
	slices.SortFunc(c.Due, func(a, b kernel.DueGroup) int { return compareText(a, b) })
	slices.SortFunc(c.Runs, func(a, b kernel.RunGroup) int { return compareText(a, b) })
	slices.SortFunc(c.Alerts, func(a, b kernel.AlertGroup) int { return compareText(a, b) })
	slices.SortFunc(c.Shares, func(a, b kernel.ShareGroup) int { return compareText(a, b) })
}

func compareText[T any](a, b T) int {
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func censusOfNothing(s *suite) {
	c := s.census(manyRows)
	now, err := s.store.Now(ctx)
	s.must(err)
	if c.Now.IsZero() || now.Before(c.Now) {
		s.Errorf("counted at %v, and it is %v", c.Now, now)
	}
	c.Now = time.Time{}
	s.equal("census", c, &kernel.Census{})
	stats, err := s.store.Stats(ctx)
	s.must(err)
	s.equal("stats", stats, nil)
}

// Jobs that wait together, in a bundle or not, are counted as those that have changed.
func censusOfJobs(s *suite) {
	var many []kernel.NewJob
	for n := range 30 {
		many = append(many, newJob(n, 1, typed("import")))
	}
	s.submit(many...)
	s.submit(newJob(100, 3), newJob(101, 2, keyed("k")), newJob(102, 1), newJob(103, 1), newJob(104, 1))
	s.changeJob(102, settleJob)
	s.changeJob(103, func(j *kernel.Job) {
		j.Phase, j.Active, j.ParkedAt, j.Current = perdure.Parked, 0, at(0), perdure.Unsure
	})
	s.changeJob(104, func(j *kernel.Job) { j.Desired, j.HasPermit = perdure.Undone, true })
	s.changeJob(100, func(j *kernel.Job) { j.Active = 1 })
	c := s.census(manyRows)
	s.equal("jobs", c.Jobs, sorted([]kernel.JobGroup{
		{Type: "import", Phase: perdure.Waiting, Agent: "http", Jobs: 30, Active: 30, Oldest: at(0)},
		{Type: "order", Phase: perdure.Waiting, Agent: "http", Jobs: 2, Active: 3, Blocked: 2, Oldest: at(0)},
		{Type: "order", Phase: perdure.Parked, Agent: "http", Jobs: 1, Blocked: 1, Oldest: at(0)},
		{Type: "order", Phase: perdure.Waiting, Undoing: true, Permit: true, Jobs: 1, Active: 1, Oldest: at(0)},
	}))
	if c.Settled != 1 || c.SettledEstimated || c.JobsCapped {
		s.Errorf("settled %d, estimated %v, capped %v", c.Settled, c.SettledEstimated, c.JobsCapped)
	}
}

func sorted(list []kernel.JobGroup) []kernel.JobGroup {
	slices.SortFunc(list, compareText)
	return list
}

func censusOfReady(s *suite) {
	mail := newJob(2, 2)
	mail.Steps[1].Agent, mail.Steps[1].ReadyAt = "mail", at(time.Minute)
	s.submit(newJob(1, 2), mail, newJob(3, 1))
	s.changeStep(ref(3, 0), run("h1", "r1", at(time.Hour)))
	s.changeJob(3, func(j *kernel.Job) { j.Phase, j.Running, j.Active = perdure.Running, 1, 0 })
	c := s.census(manyRows)
	s.equal("ready", c.Ready, []kernel.ReadyGroup{{Agent: "http", Steps: 3, Oldest: at(0)}, {Agent: "mail", Steps: 1, Oldest: at(time.Minute)}})
	s.equal("runs", c.Runs, []kernel.RunGroup{{Agent: "http", Runs: 1}})
	for _, g := range c.Jobs {
		if g.Phase == perdure.Running && g.Jobs != 1 {
			s.Errorf("running: %+v", g)
		}
	}
}

func censusOfClosed(s *suite) {
	s.submit(withNeeds(adsNeed("a"), newJob(1, 1)), withNeeds(adsNeed("a"), newJob(2, 1)), withNeeds(adsNeed("b"), newJob(3, 1)), newJob(4, 1))
	s.limit("ads", 1)
	s.save(&kernel.Changes{CloseLanes: []kernel.ClosedLane{{
		LaneRef: kernel.LaneRef{Agent: "http", Lane: kernel.LaneOf("order", adsNeed("a"))}, For: kernel.LimitKey{Name: "ads", Key: "a"}}}})
	c := s.census(manyRows)
	s.equal("closed", c.Closed, []kernel.ClosedGroup{{Agent: "http", Limit: "ads", Steps: 2}})
	s.equal("not closed, and in need of a limit", c.Needing, []kernel.NeedGroup{{Agent: "http", Needs: adsNeed("b"), Steps: 1}})
	s.equal("ready", c.Ready, []kernel.ReadyGroup{{Agent: "http", Steps: 4, Oldest: at(0)}})
}

// The keys of a limit that most steps wait for come first. Open lanes, other limits and steps that are not ready do not count.
func closedKeys(s *suite) {
	s.submit(withNeeds(adsNeed("a"), newJob(1, 1)), withNeeds(adsNeed("b"), newJob(2, 1)), withNeeds(adsNeed("b"), newJob(3, 1)), withNeeds(adsNeed("c"), newJob(4, 1)),
		withNeeds(adsNeed("d"), newJob(5, 1)), withNeeds(adsNeed("e"), newJob(6, 1)), newJob(7, 1))
	s.limit("ads", 1)
	closed := func(key string, by kernel.LimitKey) {
		s.save(&kernel.Changes{CloseLanes: []kernel.ClosedLane{{LaneRef: kernel.LaneRef{Agent: "http", Lane: kernel.LaneOf("order", adsNeed(key))}, For: by}}})
	}
	keys := func(limit string, max int, want ...kernel.ClosedKey) {
		s.Helper()
		got, err := s.store.ClosedKeys(ctx, limit, max)
		s.must(err)
		s.equal(fmt.Sprintf("%d keys of %s", max, limit), got, want)
	}
	keys("ads", 9)
	for _, key := range []string{"c", "a", "b", "e"} {
		closed(key, kernel.LimitKey{Name: "ads", Key: key})
	}
	closed("d", kernel.LimitKey{Name: "mail"})
	of := func(key string, ready int) kernel.ClosedKey {
		return kernel.ClosedKey{Key: key, Ready: ready, Wants: []kernel.Want{{Amount: 1, OfLimit: 1, Steps: ready}}}
	}
	a, b, c, e := of("a", 1), of("b", 2), of("c", 1), of("e", 1)
	keys("ads", 9, b, a, c, e)
	keys("ads", 2, b, a)
	keys("mail", 9, of("", 1))
	keys("none", 9)
	s.changeStep(ref(6, 0), waitUntil(at(time.Hour)))
	keys("ads", 9, b, a, c)
	s.update(func(tx kernel.Tx) {
		_, err := tx.OpenLanes([]kernel.LimitKey{{Name: "ads", Key: "b"}}, 9)
		s.must(err)
	})
	keys("ads", 9, a, c)
}

// Steps that wait for a key are counted by how many permits they need, in the order of the first steps.
func wantsOfKeys(s *suite) {
	need := func(amount int, more string) kernel.Needs {
		return kernel.Needs(fmt.Sprintf(`[{"name":"ads","key":"a","amount":%d}%s]`, amount, more))
	}
	other := need(5, `,{"name":"ads","key":"b","amount":2},{"name":"mail","amount":9}`)
	s.submit(withNeeds(need(7, ""), newJob(1, 1)), withNeeds(need(2, ""), newJob(2, 2)), withNeeds(other, newJob(3, 1)), withNeeds(need(7, `,{"name":"mail"}`), newJob(4, 1)))
	s.limit("ads", 1)
	var c kernel.Changes
	for _, needs := range []kernel.Needs{need(2, ""), need(7, ""), need(7, `,{"name":"mail"}`), other} {
		c.CloseLanes = append(c.CloseLanes, kernel.ClosedLane{LaneRef: kernel.LaneRef{Agent: "http", Lane: kernel.LaneOf("order", needs)}, For: kernel.LimitKey{Name: "ads", Key: "a"}})
	}
	s.save(&c)
	got, err := s.store.ClosedKeys(ctx, "ads", 9)
	s.must(err)
	s.equal("keys", got, []kernel.ClosedKey{{Key: "a", Ready: 5, Wants: []kernel.Want{{Amount: 7, OfLimit: 7, Steps: 2}, {Amount: 2, OfLimit: 2, Steps: 2}, {Amount: 5, OfLimit: 7, Steps: 1}}}})
}

func censusOfDue(s *suite) {
	s.submit(newJob(1, 3), newJob(2, 1))
	s.changeStep(ref(1, 0), waitUntil(at(time.Minute)))
	s.changeStep(ref(1, 1), func(st *kernel.Step) { waitUntil(at(time.Hour))(st); st.Failures = 1 })
	s.changeStep(ref(1, 2), func(st *kernel.Step) { waitUntil(at(2 * time.Hour))(st); st.LastError = "no" })
	c := s.census(manyRows)
	s.equal("due", c.Due, []kernel.DueGroup{{Steps: 1, Next: at(time.Minute)}, {Retry: true, Steps: 2, Next: at(time.Hour)}})
}

func censusOfAlerts(s *suite) {
	declined := kernel.Alert{Job: id(1), Step: "charge", Kind: perdure.AlertParked, Type: "order", Code: "card_declined", RaisedAt: at(time.Minute)}
	older := declined
	older.Job, older.RaisedAt = id(2), at(time.Second)
	closed := declined
	closed.ClosedAt, closed.ClosedBy = at(time.Hour), "anna"
	other := declined
	other.Type = "trip"
	s.submit(newJob(1, 1), newJob(2, 1))
	s.save(&kernel.Changes{Alerts: []kernel.Alert{declined, older, closed, other, {Kind: perdure.AlertClock, RaisedAt: at(0)}}})
	s.equal("alerts", s.census(manyRows).Alerts, sortedAlerts(
		kernel.AlertGroup{Kind: perdure.AlertParked, Code: "card_declined", Type: "order", Step: "charge", N: 2, Oldest: at(time.Second)},
		kernel.AlertGroup{Kind: perdure.AlertParked, Code: "card_declined", Type: "trip", Step: "charge", N: 1, Oldest: at(time.Minute)},
		kernel.AlertGroup{Kind: perdure.AlertClock, N: 1, Oldest: at(0)}))
}

func sortedAlerts(list ...kernel.AlertGroup) []kernel.AlertGroup {
	slices.SortFunc(list, compareText)
	return list
}

// A share counts once for its agent, whatever limits its steps need, and only while one of its lanes is open. Steps without a
// share do not count.
func censusOfShares(s *suite) {
	s.fair(nil)
	s.limit("ads", 1)
	s.submit(shared("a", newJob(1, 1)), shared("a", withNeeds(adsNeed("x"), newJob(2, 1))), shared("a", withNeeds(adsNeed("y"), newJob(3, 1))),
		shared("b", withNeeds(adsNeed("x"), newJob(4, 1))), shared("c", newJob(5, 1)), newJob(6, 1))
	shares := func(what string, want ...kernel.ShareGroup) {
		s.Helper()
		s.equal(what, s.census(manyRows).Shares, want)
	}
	shares("three", kernel.ShareGroup{Agent: "http", Shares: 3})
	lane := func(value string) kernel.LaneRef {
		return kernel.LaneRef{Agent: "http", Lane: kernel.LaneOf("order", adsNeed("x").WithShare(value))}
	}
	x := kernel.LimitKey{Name: "ads", Key: "x"}
	s.save(&kernel.Changes{CloseLanes: []kernel.ClosedLane{{LaneRef: lane("a"), For: x}, {LaneRef: lane("b"), For: x}}})
	shares("b has no open lane", kernel.ShareGroup{Agent: "http", Shares: 2})
	if c := s.census(3); !c.SharesCapped || len(c.Shares) > 1 || len(c.Shares) == 1 && c.Shares[0].Shares > 3 {
		s.Errorf("capped %v: %+v", c.SharesCapped, c.Shares)
	}
	s.changeStep(ref(5, 0), run("h", "", at(time.Minute)))
	shares("c is dispatched", kernel.ShareGroup{Agent: "http", Shares: 1})
	for _, n := range []int{1, 3} {
		s.changeStep(ref(n, 0), run("h", "", at(time.Minute)))
	}
	shares("none")
}

// Signals count while they are kept, and steps while they wait for one. More of them than of rows are counted.
func censusOfSignals(s *suite) {
	taken := newSignal(paid, "taken", 0)
	taken.Taken, taken.Data = []string{"x"}, nil
	changes := sends(newSignal(paid, "a", 0), newSignal("x/p1", "a", 0), taken)
	for n := range 30 {
		changes.Signals = append(changes.Signals, kernel.SignalChange{Signal: newSignal(paid, fmt.Sprint(n), 0)})
	}
	s.save(changes)
	s.submit(newJob(1, 2), newJob(2, 1))
	for _, r := range refs(1, 0, 1, 1) {
		s.changeStep(r, func(st *kernel.Step) { st.Phase, st.Topic = perdure.Waiting, paid })
	}
	count := func(what string, max int, want ...any) {
		s.Helper()
		c := s.census(max)
		s.equal(what, []any{c.SignalsKept, c.SignalsKeptCapped, c.SignalWaiters, c.SignalWaitersCapped}, want)
	}
	count("all", manyRows, 32, false, 2, false)
	count("as many steps as the bound", 2, 32, false, 2, true)
	count("more of both", 1, kernel.CensusEntries(1), true, 1, true)
	s.changeStep(ref(1, 1), func(st *kernel.Step) { st.Topic = ""; waitUntil(at(time.Hour))(st) })
	count("a step waits for a time instead", manyRows, 32, false, 1, false)
}

// Each count stops at the bound, and says so (F157).
func censusIsBounded(s *suite) {
	for n := range 12 {
		s.submit(newJob(n, 2, keyed(fmt.Sprint(n))))
	}
	var alerts []kernel.Alert
	for n := range 12 {
		s.changeStep(ref(n, 1), waitUntil(at(time.Duration(n)*time.Second)))
		alerts = append(alerts, kernel.Alert{Job: id(n), Kind: perdure.AlertNamed, RaisedAt: at(time.Duration(n) * time.Second)})
	}
	s.save(&kernel.Changes{Alerts: alerts})
	c := s.census(5)
	if !c.JobsCapped || !c.DueCapped || !c.AlertsCapped {
		s.Errorf("jobs %v, due %v, alerts %v", c.JobsCapped, c.DueCapped, c.AlertsCapped)
	}
	s.equal("jobs", c.Jobs, []kernel.JobGroup{{Type: "order", Phase: perdure.Waiting, Agent: "http", Jobs: 5, Active: 10, Oldest: at(0)}})
	s.equal("ready", c.Ready, []kernel.ReadyGroup{{Agent: "http", Steps: 5, Capped: true, Oldest: at(0)}})
	s.equal("due", c.Due, []kernel.DueGroup{{Steps: 5, Next: at(0)}})
	if c.Settled != 0 {
		s.Errorf("%d settled jobs; none is settled, and more are open than were counted", c.Settled)
	}
	s.equal("the newest alerts", c.Alerts, []kernel.AlertGroup{{Kind: perdure.AlertNamed, N: 5, Oldest: at(7 * time.Second)}})
	if c = s.census(13); c.JobsCapped || c.DueCapped || c.AlertsCapped || c.Ready[0].Capped || c.Ready[0].Steps != 12 {
		s.Errorf("a bound that is not reached: %+v", c)
	}
}

func savedStats(s *suite) {
	for _, text := range []string{`{"n": 1}`, `{"n": 2}`} {
		s.update(func(tx kernel.Tx) { s.must(tx.SaveStats(json.RawMessage(text))) })
		got, err := s.store.Stats(ctx)
		s.must(err)
		s.equal("stats", string(got), text)
	}
	if err := s.store.Update(ctx, func(tx kernel.Tx) error { return errors.Join(tx.SaveStats(json.RawMessage(`{}`)), errOops) }); !errors.Is(err, errOops) {
		s.Errorf("got %v", err)
	}
	got, err := s.store.Stats(ctx)
	s.must(err)
	s.equal("after a rollback", string(got), `{"n": 2}`)
}

// minuteOf returns the beginning of a minute after the epoch.
func minuteOf(after time.Duration) time.Time { return epoch.Add(after).Truncate(time.Minute) }

func series(s *suite) {
	minute := minuteOf(0)
	count := func(after time.Duration, name, outcome string, n int64) kernel.SeriesCount {
		return kernel.SeriesCount{Minute: minute.Add(after), Scope: kernel.SeriesOfType, Name: name, Outcome: outcome, N: n}
	}
	put := func(node string, counts ...kernel.SeriesCount) {
		s.Helper()
		s.must(s.store.PutSeries(ctx, node, counts))
	}
	list := func(what string, since time.Duration, max int, want ...kernel.SeriesCount) {
		s.Helper()
		got, err := s.store.Series(ctx, minute.Add(since), max)
		s.must(err)
		s.equal(what, got, want)
	}
	put("n1")
	list("nothing", 0, 9)
	refused := kernel.SeriesCount{Minute: minute, Scope: kernel.SeriesOfAgent, Name: "order", Outcome: kernel.SeriesRefused, N: 4}
	put("n1", count(0, "order", "done", 3), count(0, "order", "undone", 1), count(time.Minute, "a", "done", 1), refused)
	put("n2", count(0, "order", "done", 5))
	all := []kernel.SeriesCount{count(time.Minute, "a", "done", 1), count(0, "order", "done", 8), count(0, "order", "undone", 1), refused}
	list("two nodes", 0, 9, all...)
	list("a bound", 0, 2, all[:2]...)
	list("later minutes", time.Second, 9, all[0])
	put("n1", count(0, "order", "done", 7))
	all[1].N = 12
	list("a count again", 0, 9, all...)
}

func forgetSeries(s *suite) {
	minute := at(0).Truncate(time.Minute)
	var counts []kernel.SeriesCount
	for i := range 5 {
		counts = append(counts, kernel.SeriesCount{Minute: minute.Add(time.Duration(i) * time.Minute), Scope: kernel.SeriesOfType, Name: "order", Outcome: "done", N: 1})
	}
	s.must(s.store.PutSeries(ctx, "n", counts))
	for _, step := range []struct{ max, deleted, left int }{{0, 0, 5}, {2, 2, 3}, {9, 1, 2}, {9, 0, 2}} {
		n, err := s.store.ForgetSeries(ctx, minute.Add(3*time.Minute), step.max)
		s.must(err)
		left, err := s.store.Series(ctx, minute, 9)
		s.must(err)
		if n != step.deleted || len(left) != step.left {
			s.Errorf("at most %d: deleted %d and left %d; want %d and %d", step.max, n, len(left), step.deleted, step.left)
		}
	}
}
