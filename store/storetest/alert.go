package storetest

import (
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var alertChecks = []check{
	{"Alert/ListedNewestFirst", alertsNewestFirst},
	{"Alert/FoundByTheirValues", alertsByValue},
	{"Alert/CloseOfStepKeepsOthers", closeAlertsOfStep},
	{"Alert/CloseOfJobIncludesSteps", closeAlertsOfJob},
	{"Alert/SaveClosesBeforeItRaises", closeAlertsBeforeRaise},
	{"Alert/ClosedOnlyOnce", closeAlertOnce},
	{"Alert/LockReturnsThoseThatSaveCloses", lockAlerts},
	{"History", history},
	{"Runs", runs},
}

func (s *suite) alerts(f kernel.AlertFilter) []kernel.Alert {
	s.Helper()
	alerts, err := s.store.Alerts(ctx, f)
	s.must(err)
	return alerts
}

func alert(job int, step string, kind perdure.AlertKind) kernel.Alert {
	return kernel.Alert{Job: id(job), Step: step, Kind: kind, RaisedAt: at(0)}
}

func (s *suite) raise(alerts ...kernel.Alert) {
	s.Helper()
	s.save(&kernel.Changes{Alerts: alerts})
}

// checkOpenAlerts compares the open alerts, as "job/step kind", newest first.
func (s *suite) checkOpenAlerts(what string, want ...string) {
	s.Helper()
	var got []string
	for _, a := range s.alerts(kernel.AlertFilter{}) {
		got = append(got, fmt.Sprintf("%d/%s %s", int(a.Job[14])<<8|int(a.Job[15]), a.Step, a.Kind))
	}
	s.equal(what, got, want)
}

// Alerts get rising ids and are listed newest first.
func alertsNewestFirst(s *suite) {
	full := kernel.Alert{Job: id(1), Type: "order", JobKey: "k-1", Step: "s0", Kind: perdure.AlertNamed, Code: "503", Attempts: 5, Name: "duty", Message: "5 failures: \"x\"", RaisedAt: at(time.Second)}
	s.submit(newJob(1, 1), newJob(2, 1))
	s.raise(full, alert(2, "", perdure.AlertOverdue))
	s.raise(alert(1, "s0", perdure.AlertParked))
	all := s.alerts(kernel.AlertFilter{})
	if len(all) != 3 || all[0].ID <= all[1].ID || all[1].ID <= all[2].ID || all[2].ID <= 0 {
		s.Fatalf("got %+v", all)
	}
	full.ID = all[2].ID
	s.equal("the first alert", all[2], full)
	s.equal("with a limit", s.alerts(kernel.AlertFilter{Limit: 1}), all[:1])
	s.equal("before an id", s.alerts(kernel.AlertFilter{Before: all[0].ID, Limit: 1}), all[1:2])
	s.equal("of a job", s.alerts(kernel.AlertFilter{Job: id(2)}), all[1:2])
	s.equal("of no job", s.alerts(kernel.AlertFilter{Job: id(3)}), nil)
	s.update(func(tx kernel.Tx) {
		a, err := tx.Alert(full.ID)
		s.must(err)
		s.equal("by id", a, &full)
		a, err = tx.Alert(all[0].ID + 100)
		if a != nil || err != nil {
			s.Errorf("an alert that does not exist: %v, %v; want nil and no error", a, err)
		}
	})
}

// Alerts are found by each of their values, and by several of them, in pages.
func alertsByValue(s *suite) {
	var all []kernel.Alert
	jobs := make([]kernel.NewJob, 6)
	for i := range jobs {
		jobs[i] = newJob(i+1, 1)
	}
	s.submit(jobs...)
	for i := range 48 {
		all = append(all, kernel.Alert{Job: id(i%6 + 1), Type: []string{"", "order", "trip"}[i%3], JobKey: fmt.Sprint("k-", i%6), Step: []string{"", "s0"}[i/3%2],
			Kind: []perdure.AlertKind{perdure.AlertParked, perdure.AlertNamed}[i/6%2], Code: []string{"", "503"}[i/12%2], Attempts: i, RaisedAt: at(0)})
	}
	s.raise(all...)
	open := s.alerts(kernel.AlertFilter{Limit: 100})
	s.update(func(tx kernel.Tx) {
		for i, a := range open {
			if i%2 == 0 {
				_, err := tx.CloseAlert(a.ID, "anna", at(time.Minute))
				s.must(err)
			}
		}
	})
	stored := s.alerts(kernel.AlertFilter{Closed: true, Limit: 100})
	s.equal("number of alerts", len(stored), len(all))
	for i := range 128 {
		pick := func(bit int, f func()) {
			if i>>bit&1 == 1 {
				f()
			}
		}
		f := kernel.AlertFilter{Limit: 100}
		pick(0, func() { f.Closed = true })
		pick(1, func() { f.Job = id(2) })
		pick(2, func() { f.Type = "order" })
		pick(3, func() { f.Step = "s0" })
		pick(4, func() { f.Code = "503" })
		pick(5, func() { f.Kind = perdure.AlertNamed })
		pick(6, func() { f.After, f.Before = stored[40].ID, stored[3].ID })
		var want []kernel.Alert
		for _, a := range stored {
			if f.Matches(&a) {
				want = append(want, a)
			}
		}
		s.equal(fmt.Sprintf("%+v", f), s.alerts(f), want)
		f.Limit = 2
		s.equal(fmt.Sprintf("%+v", f), s.alerts(f), want[:min(len(want), 2)])
	}
}

// Only alerts of the given kinds of the given step are closed.
func closeAlertsOfStep(s *suite) {
	s.submit(newJob(1, 2), newJob(2, 1))
	s.raise(alert(1, "s0", perdure.AlertParked), alert(1, "s0", perdure.AlertWaiting), alert(1, "s1", perdure.AlertParked),
		alert(1, "s0", perdure.AlertApproval), alert(2, "s0", perdure.AlertParked), alert(1, "", perdure.AlertParked))
	before, err := s.store.Now(ctx)
	s.must(err)
	s.save(&kernel.Changes{CloseAlerts: []kernel.CloseAlerts{{Job: id(1), Step: "s0", By: "anna", Kinds: []perdure.AlertKind{perdure.AlertParked, perdure.AlertApproval}}}})
	s.checkOpenAlerts("after two kinds of the step were closed", "1/ parked", "2/s0 parked", "1/s1 parked", "1/s0 waiting")
	closed := 0
	for _, a := range s.alerts(kernel.AlertFilter{Job: id(1), Closed: true}) {
		if a.ClosedBy == "anna" && !a.ClosedAt.Before(before) {
			closed++
		}
	}
	s.equal("alerts closed by anna at the store's time", closed, 2)
	s.save(&kernel.Changes{CloseAlerts: []kernel.CloseAlerts{{Job: id(1), Step: "s0", By: "bert", Kinds: []perdure.AlertKind{perdure.AlertWaiting}}}})
	s.checkOpenAlerts("after a third kind of the step was closed", "1/ parked", "2/s0 parked", "1/s1 parked")
	for _, a := range s.alerts(kernel.AlertFilter{Job: id(1), Closed: true}) {
		if a.Kind.Holds() && a.Step == "s0" && a.ClosedBy != "anna" {
			s.Errorf("an alert was closed a second time: %+v", a)
		}
	}
}

// Without a step, the given kinds are closed for the job and all its steps.
func closeAlertsOfJob(s *suite) {
	s.submit(newJob(1, 2), newJob(2, 1))
	s.raise(alert(1, "s0", perdure.AlertParked), alert(1, "s0", perdure.AlertWaiting), alert(1, "", perdure.AlertUndo),
		alert(2, "", perdure.AlertUndo), alert(1, "s1", perdure.AlertNamed), alert(1, "", perdure.AlertOverdue))
	s.save(&kernel.Changes{CloseAlerts: []kernel.CloseAlerts{{Job: id(1), Kinds: []perdure.AlertKind{
		perdure.AlertUndo, perdure.AlertWaiting, perdure.AlertOverdue,
	}}}})
	s.checkOpenAlerts("after three kinds of the job were closed", "1/s1 alert", "2/ undo", "1/s0 parked")
	s.save(&kernel.Changes{CloseAlerts: []kernel.CloseAlerts{{Job: id(1)}}})
	s.checkOpenAlerts("without kinds no alert is closed", "1/s1 alert", "2/ undo", "1/s0 parked")
}

// LockAlerts returns the open alerts that Save closes, each once, in the order of their ids, also those that the transaction
// has raised itself.
func lockAlerts(s *suite) {
	s.submit(newJob(1, 2), newJob(2, 1), newJob(3, 1))
	s.raise(alert(2, "s0", perdure.AlertParked), alert(1, "s0", perdure.AlertWaiting), alert(1, "s1", perdure.AlertParked),
		alert(1, "s0", perdure.AlertParked), alert(1, "", perdure.AlertOverdue), alert(3, "s0", perdure.AlertParked))
	s.save(&kernel.Changes{CloseAlerts: []kernel.CloseAlerts{{Job: id(1), Step: "s1", Kinds: []perdure.AlertKind{perdure.AlertParked}}}})
	closes := []kernel.CloseAlerts{
		{Job: id(2), Kinds: []perdure.AlertKind{perdure.AlertParked, perdure.AlertApproval}},
		{Job: id(1), Step: "s0", By: "anna", Kinds: []perdure.AlertKind{perdure.AlertParked}},
		{Job: id(1), Kinds: []perdure.AlertKind{perdure.AlertOverdue, perdure.AlertParked}},
		{Job: id(3)},
	}
	lock := func(tx kernel.Tx, of ...kernel.CloseAlerts) (got []string) {
		open, err := tx.LockAlerts(of)
		s.must(err)
		for _, a := range open {
			got = append(got, fmt.Sprintf("%v %s %s", a.Job == id(1), a.Step, a.Kind))
		}
		return got
	}
	s.update(func(tx kernel.Tx) {
		want := []string{"false s0 parked", "true s0 parked", "true  overdue"}
		s.equal("open", lock(tx, closes...), want)
		s.must(tx.Save(&kernel.Changes{Alerts: []kernel.Alert{alert(2, "s0", perdure.AlertApproval)}}))
		s.equal("with its own", lock(tx, closes...), append(want, "false s0 approval"))
		s.must(tx.Save(&kernel.Changes{CloseAlerts: closes}))
		s.equal("after they were closed", lock(tx, closes...), []string(nil))
		s.equal("of nothing", lock(tx), []string(nil))
	})
	s.checkOpenAlerts("others", "3/s0 parked", "1/s0 waiting")
}

func closeAlertsBeforeRaise(s *suite) {
	s.submit(newJob(1, 1))
	s.raise(alert(1, "s0", perdure.AlertParked))
	s.save(&kernel.Changes{
		Alerts:      []kernel.Alert{alert(1, "s0", perdure.AlertApproval)},
		CloseAlerts: []kernel.CloseAlerts{{Job: id(1), Step: "s0", Kinds: []perdure.AlertKind{perdure.AlertParked}}},
	})
	s.checkOpenAlerts("an alert raised by the same Save stays open", "1/s0 approval")
}

func closeAlertOnce(s *suite) {
	s.submit(newJob(1, 1))
	s.raise(alert(1, "", perdure.AlertNamed), alert(1, "", perdure.AlertUndo))
	a := s.alerts(kernel.AlertFilter{})[1]
	s.update(func(tx kernel.Tx) {
		check := func(id int64, by string, when time.Time, want bool) {
			closed, err := tx.CloseAlert(id, by, when)
			s.must(err)
			s.equal("closed by "+by, closed, want)
		}
		check(a.ID, "anna", at(time.Minute), true)
		check(a.ID, "bert", at(time.Hour), false) // it is closed already, so this changes nothing (F138)
		check(a.ID+100, "bert", at(time.Hour), false)
	})
	s.checkOpenAlerts("other alerts stay open", "1/ undo")
	a.ClosedBy, a.ClosedAt = "anna", at(time.Minute)
	s.equal("closed alert", s.alerts(kernel.AlertFilter{Closed: true})[1], a)
}

// The runs of a job are returned in the order of their starts, page by page, without its other entries. A run of an
// older program, whose start is not known, has the place of its end.
func runs(s *suite) {
	s.submit(newJob(1, 1), newJob(2, 1))
	run := func(step string, n int64, started, ended time.Duration, event string) kernel.Entry {
		return kernel.Entry{Job: id(1), Step: step, Run: n, At: at(ended), Event: event, Author: "h", Turn: 2, Direction: perdure.Undo, ReadyAt: at(0), StartedAt: at(started)}
	}
	first, second, third := run("b", 1, time.Second, 9*time.Second, "done"), run("a", 7, 2*time.Second, 3*time.Second, "failed"), run("b", 2, 2*time.Second, 3*time.Second, "returned")
	old := kernel.Entry{Job: id(1), Step: "a", Run: 6, At: at(5 * time.Second), Event: "expired", Author: "h"}
	last := run("a", 8, 6*time.Second, 7*time.Second, "rejected")
	last.ReadyAt = time.Time{}
	s.save(&kernel.Changes{History: []kernel.Entry{last, third, {Job: id(1), Step: "a", Run: 7, At: at(0), Event: "resume", Author: "anna"}, old}})
	s.save(&kernel.Changes{History: []kernel.Entry{
		{Job: id(1), Step: "a", At: at(0), Event: "rejected", Author: "policy"}, second, {Job: id(2), Step: "a", Run: 1, At: at(0), Event: "failed", StartedAt: at(0)}, first,
	}})
	all, err := s.store.Runs(ctx, id(1), kernel.RunPlace{}, 10)
	s.must(err)
	entries := []kernel.Entry{first, second, third, old, last}
	for i := range min(len(all), len(entries)) {
		entries[i].ID = all[i].ID
	}
	s.equal("all", all, entries)
	for i, e := range entries {
		got, err := s.store.Runs(ctx, id(1), e.Place(), 2)
		s.must(err)
		s.equal(fmt.Sprintf("two after run %d of step %s", e.Run, e.Step), got, entries[i+1:min(i+3, len(entries))])
	}
	none, err := s.store.Runs(ctx, id(1), kernel.RunPlace{}, 0)
	s.must(err)
	s.equal("none", none, entries[:0])
}

// The history of a job is returned in the order in which it was written, page by page. Ids grow in this order.
func history(s *suite) {
	s.submit(newJob(1, 1), newJob(2, 1))
	entries := []kernel.Entry{
		{Job: id(1), Step: "s0", Run: 1, At: at(2 * time.Second), Event: "failed", Author: "h", Detail: "503: no"},
		{Job: id(1), At: at(time.Second), Event: "undo", Author: "anna", Detail: "why\nnot"},
		{Job: id(1), Step: "s0", Run: 2, At: at(time.Second), Event: "expired", Author: "h"},
	}
	s.save(&kernel.Changes{History: []kernel.Entry{entries[0], {Job: id(2), At: at(0), Event: "redo"}, entries[1]}})
	s.save(&kernel.Changes{History: entries[2:]})
	all, err := s.store.History(ctx, id(1), 0, 10)
	s.must(err)
	for i := range all {
		if i > 0 && all[i].ID <= all[i-1].ID || all[i].ID <= 0 {
			s.Errorf("entry %d has id %d; ids must grow", i, all[i].ID)
		}
		entries[i].ID = all[i].ID
	}
	s.equal("all", all, entries)
	for _, c := range []struct {
		after int64
		max   int
		want  []kernel.Entry
	}{
		{0, 3, entries}, {0, 2, entries[:2]}, {0, 1, entries[:1]}, {0, 0, nil},
		{entries[0].ID, 10, entries[1:]}, {entries[0].ID, 1, entries[1:2]}, {entries[1].ID, 1, entries[2:]}, {entries[2].ID, 10, nil},
		{entries[2].ID + 1000, 10, nil},
	} {
		got, err := s.store.History(ctx, id(1), c.after, c.max)
		s.must(err)
		s.equal(fmt.Sprintf("after %d, at most %d", c.after, c.max), got, c.want)
	}
}
