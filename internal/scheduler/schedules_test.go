package scheduler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
	"github.com/perdure/perdure/internal/timetable"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// clocked is a harness with a timetable.
type clocked struct {
	*harness
	book  *timetable.Book
	table *timetable.Timetable
	late  atomic.Int64 // the latest firing, in ns
}

func withTimetable(t *testing.T, store kernel.Store, cfg scheduler.Config) *clocked {
	d := &clocked{book: timetable.NewBook(func(body, _ []byte) (*kernel.Plan, error) {
		plans, err := definition.Parse(body, definition.JSON, definition.Options{})
		if err != nil {
			return nil, err
		}
		return plans[0], nil
	}, store.StoredDefinition)}
	time.Sleep(100 * time.Millisecond) // the clock of synctest begins with a full hour, which is a nominal time
	var table *timetable.Timetable
	waiting := make(chan struct{})
	cfg.OnSchedule = func() { <-waiting; table.Wake() }
	d.harness = open(t, store, cfg)
	table = timetable.New(timetable.Config{Store: store, Scheduler: d.Scheduler, Book: d.book, Fired: func(_ int, late time.Duration) { d.late.Store(max(d.late.Load(), int64(late))) }})
	close(waiting)
	d.table = table
	return d
}

// lead starts the timetable.
func (d *clocked) lead() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.table.Lead(ctx) })
	d.t.Cleanup(func() { cancel(); running.Wait() })
}

const tick = `{"type":"tick","steps":{"s":{"agent":"a"}}}`

func (d *clocked) put(name string, set operate.ScheduleSettings) {
	d.t.Helper()
	if set.Job.Definition == nil {
		set.Job.Definition = json.RawMessage(tick)
	}
	rule, err := timetable.RuleOf(&set)
	if err != nil {
		d.t.Fatal(err)
	}
	text, err := json.Marshal(&set)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, _, err := d.PutSchedule(d.t.Context(), name, "anna", text, &set, rule); err != nil {
		d.t.Fatal(err)
	}
}

func (d *clocked) schedule(name string) *kernel.Schedule {
	d.t.Helper()
	s, err := d.store.Schedule(d.t.Context(), name)
	if err != nil || s == nil {
		d.t.Fatalf("schedule %s: %v, %v", name, s, err)
	}
	return s
}

func (d *clocked) lines(name string) []kernel.Firing {
	d.t.Helper()
	lines, err := d.store.Firings(d.t.Context(), name, kernel.FiringKey{}, 1000)
	if err != nil {
		d.t.Fatal(err)
	}
	return lines
}

// words returns the states and reasons of the lines, oldest first.
func (d *clocked) words(name string) string {
	d.t.Helper()
	var all []string
	for _, f := range slices.Backward(d.lines(name)) {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s", f.State, f.Reason)))
	}
	return strings.Join(all, ", ")
}

// work claims all runs and reports them with an outcome.
func (d *clocked) work(outcome perdure.Outcome) int {
	d.t.Helper()
	runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 100})
	for _, run := range runs {
		d.report("h", run, outcome)
	}
	return len(runs)
}

func (d *clocked) want(got, want string) {
	d.t.Helper()
	if got != want {
		d.t.Errorf("got %q, want %q", got, want)
	}
}

// A schedule fires at its time, without polling for it, and a change of it is noticed at once. Each time has one job with
// its key.
func TestScheduleFiresAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := withTimetable(t, memory.New(), scheduler.Config{})
		d.lead()
		time.Sleep(300 * time.Millisecond)
		d.put("s", operate.ScheduleSettings{Every: perdure.Duration(2 * time.Second), Overlap: operate.OverlapAllow, Job: operate.ScheduleJob{Definition: json.RawMessage(tick), Input: json.RawMessage(`{"at":"${schedule.time}"}`)}})
		time.Sleep(10*time.Second + 5*time.Millisecond)
		lines := d.lines("s")
		if len(lines) != 5 || d.schedule("s").Fired != 5 {
			t.Fatalf("%d lines, row %+v", len(lines), d.schedule("s"))
		}
		for _, f := range lines {
			job := d.job(f.Job)
			if want := fmt.Sprintf(`{"at":"%s"}`, f.Nominal.Format(time.RFC3339)); string(job.Input) != want || job.Key != f.Key().JobKey() {
				t.Errorf("job %s of %s has input %s", job.Key, f.Nominal, job.Input)
			}
			if late := f.At.Sub(f.Nominal); late < 0 || late > 100*time.Millisecond {
				t.Errorf("%s late", late)
			}
		}
		if late := time.Duration(d.late.Load()); late > 100*time.Millisecond {
			t.Errorf("%s late", late)
		}
	})
}

// F168, F169: overlap rules with real jobs. The news of a job that settles comes with its transaction.
func TestOverlapsOfRealJobs(t *testing.T) {
	for rule, want := range map[operate.ScheduleOverlap][]string{
		operate.OverlapSkip:    {"running, skipped overlap", "done, skipped overlap, running"},
		operate.OverlapQueue:   {"running, waiting, waiting", "done, running, waiting, waiting"},
		operate.OverlapReplace: {"undone replaced, skipped overlap, running", "undone replaced, skipped overlap, done, running"},
	} {
		t.Run(string(rule), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := withTimetable(t, memory.New(), scheduler.Config{})
				d.lead()
				d.put("s", operate.ScheduleSettings{Every: perdure.Duration(10 * time.Second), Overlap: rule})
				time.Sleep(11 * time.Second)
				d.want(d.words("s"), "running")
				if rule == operate.OverlapReplace {
					runs := d.claim(protocol.Claim{Agent: "a", Holder: "h", Max: 1})
					if len(runs) != 1 {
						t.Fatalf("%d runs", len(runs))
					}
					time.Sleep(10 * time.Second)
					d.want(d.words("s"), "running replaced, waiting")
					time.Sleep(10 * time.Second)
					d.want(d.words("s"), "running replaced, skipped overlap, waiting")
					d.report("h", runs[0], perdure.OutcomeReturned)
					time.Sleep(time.Second)
				} else {
					time.Sleep(20 * time.Second)
				}
				d.want(strings.Replace(d.words("s"), "skipped overlap, skipped overlap", "skipped overlap", 1), want[0])
				if n := d.work(perdure.OutcomeDone); n != 1 {
					t.Fatalf("%d runs", n)
				}
				time.Sleep(10 * time.Second)
				d.want(strings.Replace(d.words("s"), "skipped overlap, skipped overlap", "skipped overlap", 1), want[1])
			})
		})
	}
}

// F172: a schedule whose jobs fail is paused, with an alert that is closed when it is resumed.
func TestFailuresPauseASchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := withTimetable(t, memory.New(), scheduler.Config{})
		d.lead()
		d.put("s", operate.ScheduleSettings{Every: perdure.Duration(10 * time.Second), PauseAfter: 2, Overlap: operate.OverlapAllow,
			Job: operate.ScheduleJob{Definition: json.RawMessage(`{"type":"tick","steps":{"s":{"agent":"a","retry":{"attempts":1}}}}`)}})
		for range 2 {
			time.Sleep(10*time.Second + 100*time.Millisecond)
			d.work(perdure.OutcomeFailed)
		}
		time.Sleep(time.Minute)
		row := d.schedule("s")
		if !row.Paused || row.Fired != 2 || row.Failures != 2 {
			t.Errorf("row %+v", row)
		}
		alerts := func(closed bool) (found []kernel.Alert) {
			all, err := d.store.Alerts(t.Context(), kernel.AlertFilter{Kind: perdure.AlertSchedule, Closed: closed, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		if open := alerts(false); len(open) != 1 || open[0].Name != "s" || open[0].OfStep() != "" || !strings.Contains(open[0].Message, "perdure schedules resume s") {
			t.Errorf("alerts: %+v", open)
		}
		if _, err := d.ChangeSchedule(t.Context(), "resumeSchedule", "s", "anna", "", func(_ kernel.Tx, row *kernel.Schedule, now time.Time) (bool, error) {
			_, rule, err := d.book.Rule(row)
			row.Resume(rule, false, now)
			return true, err
		}); err != nil {
			t.Fatal(err)
		}
		if open := alerts(false); len(open) != 0 {
			t.Errorf("alerts after resume: %+v", open)
		}
		time.Sleep(11 * time.Second)
		if row := d.schedule("s"); row.Fired != 3 {
			t.Errorf("row %+v", row)
		}
	})
}

// F287: a job that is refused pauses its schedule with an alert, and the time is recorded.
func TestRefusedJobPausesItsSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := withTimetable(t, memory.New(), scheduler.Config{})
		d.lead()
		d.put("s", operate.ScheduleSettings{Every: perdure.Duration(10 * time.Second), Job: operate.ScheduleJob{Definition: json.RawMessage(`{"type":"tick","steps":{"s":{"agnt":"a"}}}`)}})
		time.Sleep(time.Minute)
		d.want(d.words("s"), "skipped refused")
		if row := d.schedule("s"); !row.Paused || !strings.Contains(row.PausedCause, "was refused") || row.Fired != 0 {
			t.Errorf("row %+v", row)
		}
	})
}

// I13, I27, F129, F285: any number of leaders decide the same schedules at once, and each time has one job.
func TestLeadersAtOnceFireOnce(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		const leaders, schedules = 3, 5
		var all []*clocked
		for range leaders {
			all = append(all, withTimetable(t, store, scheduler.Config{}))
		}
		for i := range schedules {
			all[0].put(fmt.Sprintf("s%d", i), operate.ScheduleSettings{Every: perdure.Duration(time.Second), Overlap: operate.OverlapAllow})
		}
		for _, d := range all {
			d.lead()
		}
		time.Sleep(4 * time.Second)
		for i := range schedules {
			name := fmt.Sprintf("s%d", i)
			lines, row := all[0].lines(name), all[0].schedule(name)
			if len(lines) < 3 || int64(len(lines)) > row.Fired {
				t.Errorf("%s: %d lines, row %+v", name, len(lines), row)
			}
			for j, f := range lines {
				if j > 0 && lines[j-1].Nominal.Sub(f.Nominal) != time.Second {
					t.Errorf("%s: no time between %s and %s", name, f.Nominal, lines[j-1].Nominal)
				}
				found := map[string]kernel.Keyed{}
				if err := store.Update(t.Context(), func(tx kernel.Tx) (err error) {
					found, err = tx.JobsByKey([]string{f.Key().JobKey()})
					return err
				}); err != nil || found[f.Key().JobKey()].ID != f.Job {
					t.Errorf("%s at %s: job %s, and the key has %v (%v)", name, f.Nominal, f.Job, found, err)
				}
			}
		}
	})
}

// A leader whose leadership has ended fires nothing.
func TestFormerLeaderFiresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := withTimetable(t, memory.New(), scheduler.Config{})
		d.put("s", operate.ScheduleSettings{Every: perdure.Duration(10 * time.Second)})
		time.Sleep(11 * time.Second)
		ctx := kernel.WithLeadership(t.Context(), kernel.Leadership{Role: kernel.RoleSupervisor, Node: "n", Epoch: 1})
		if _, err := d.table.Round(ctx); !errors.Is(err, kernel.ErrDeposed) {
			t.Errorf("got %v", err)
		}
		if row := d.schedule("s"); row.Fired != 0 {
			t.Errorf("row %+v", row)
		}
	})
}

// F286: while the backlog is full, no time is lost: it fires when there is room.
func TestFullBacklogDelaysFirings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := withTimetable(t, memory.New(), scheduler.Config{MaxBacklog: 1})
		d.lead()
		d.submit("type: t\nsteps:\n  s: {agent: a}\n")
		d.put("s", operate.ScheduleSettings{Every: perdure.Duration(30 * time.Second)})
		time.Sleep(40 * time.Second)
		d.want(d.words("s"), "")
		d.work(perdure.OutcomeDone)
		time.Sleep(5 * time.Second)
		d.want(d.words("s"), "running")
	})
}

// No more than operate.MaxFiringsASecond jobs start in a second, and none is lost.
func TestFiringsASecondAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := withTimetable(t, memory.New(), scheduler.Config{})
		const schedules = operate.MaxFiringsASecond + 200
		for i := range schedules {
			d.put(fmt.Sprintf("s%04d", i), operate.ScheduleSettings{Every: perdure.Duration(time.Minute)})
		}
		fired := func() (n int64) {
			rows, err := d.store.Schedules(t.Context(), "", schedules)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range rows {
				n += s.Fired
			}
			return n
		}
		time.Sleep(time.Minute)
		d.lead()
		time.Sleep(500 * time.Millisecond)
		if n := fired(); n != operate.MaxFiringsASecond {
			t.Errorf("%d fired in the first half of a second", n)
		}
		time.Sleep(time.Second)
		if n := fired(); n != schedules {
			t.Errorf("%d of %d fired", n, schedules)
		}
	})
}

// F173: a trigger submits the job of a time once, and the schedule passes over that time.
func TestTriggerSubmitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := withTimetable(t, memory.New(), scheduler.Config{})
		d.put("s", operate.ScheduleSettings{Every: perdure.Duration(10 * time.Second), Overlap: operate.OverlapAllow})
		next := d.schedule("s").Next
		trigger := func(at time.Time) *operate.ScheduleFired {
			t.Helper()
			fired, err := d.TriggerSchedule(t.Context(), operate.ScheduleTrigger{Name: "s", Author: "anna", At: at}, d.book)
			if err != nil {
				t.Fatal(err)
			}
			return fired
		}
		first, second, now := trigger(next), trigger(next), trigger(time.Time{})
		if !first.Created || second.Created || first.Job != second.Job || !now.Created {
			t.Errorf("triggered %+v, %+v, %+v", first, second, now)
		}
		if between := next.Add(3 * time.Second); first.Unscheduled || second.Unscheduled || !trigger(between).Unscheduled || !trigger(between).Unscheduled {
			t.Error("only the third time is not one of the rule")
		}
		if _, err := d.TriggerSchedule(t.Context(), operate.ScheduleTrigger{Name: "x", Author: "anna"}, d.book); perdure.CodeOf(err) != perdure.CodeNotFound {
			t.Errorf("a schedule that does not exist: %v", err)
		}
		if _, err := d.TriggerSchedule(t.Context(), operate.ScheduleTrigger{Name: "s", Author: "anna", At: next.Add(time.Millisecond)}, d.book); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("a part of a second: %v", err)
		}
		d.lead()
		time.Sleep(21 * time.Second)
		if row := d.schedule("s"); row.Fired != 4 {
			t.Errorf("row %+v", row)
		}
	})
}

// F174: a backfill goes on while its jobs settle, and the new leader goes on with it.
func TestBackfillOfRealJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := withTimetable(t, memory.New(), scheduler.Config{})
		d.put("s", operate.ScheduleSettings{Cron: operate.ScheduleCron{"0 * * * *"}})
		now := time.Now()
		r := operate.ScheduleBackfill{Name: "s", Author: "anna", From: now.Add(-10 * time.Hour), To: now, Parallel: 3}
		_, rule, err := d.book.Rule(d.schedule("s"))
		if err != nil {
			t.Fatal(err)
		}
		r.DryRun = true
		if _, times, ready, err := d.BackfillSchedule(t.Context(), &r, rule); err != nil || times != 10 || len(ready) != 10 || !d.schedule("s").Backfill.Next.IsZero() {
			t.Fatalf("dry run: %d, %v, %v, %+v", times, ready, err, d.schedule("s").Backfill)
		}
		r.DryRun = false
		if _, _, _, err := d.BackfillSchedule(t.Context(), &r, rule); err != nil {
			t.Fatal(err)
		}
		d.lead()
		total := 0
		for range 10 {
			time.Sleep(time.Second)
			n := d.work(perdure.OutcomeDone)
			if total += n; n > r.Parallel {
				t.Errorf("%d at once", n)
			}
		}
		if row := d.schedule("s"); total != 10 || !row.Backfill.Next.IsZero() {
			t.Errorf("%d jobs, row %+v", total, row)
		}
	})
}

// The number of schedules is bounded.
func TestSchedulesAreBounded(t *testing.T) {
	store := memory.New()
	d := withTimetable(t, store, scheduler.Config{})
	if err := store.Update(t.Context(), func(tx kernel.Tx) error {
		for i := range operate.MaxSchedules - 1 {
			if err := tx.PutSchedule(&kernel.Schedule{Name: fmt.Sprintf("s%05d", i), Settings: []byte("{}"), Version: 1}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	d.put("last", operate.ScheduleSettings{Every: perdure.Duration(time.Hour)})
	set := operate.ScheduleSettings{Every: perdure.Duration(time.Hour)}
	rule, err := timetable.RuleOf(&set)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.PutSchedule(t.Context(), "more", "anna", []byte("{}"), &set, rule); perdure.CodeOf(err) != perdure.CodeConflict {
		t.Errorf("one more: %v", err)
	}
	d.put("last", operate.ScheduleSettings{Every: perdure.Duration(2 * time.Hour)})
}
