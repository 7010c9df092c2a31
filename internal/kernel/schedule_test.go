package kernel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// book plays a schedule without a store: it keeps the row and the lines, and starts the jobs.
type book struct {
	t     *testing.T
	row   *Schedule
	set   operate.ScheduleSettings
	rule  *TimeRule
	lines map[FiringKey]Firing
	jobs  map[string]perdure.JobID
	now   time.Time
	room  int
}

func newBook(t *testing.T, set operate.ScheduleSettings) *book {
	t.Helper()
	b := &book{t: t, set: set, rule: ruleOf(t, set, time.UTC), lines: map[FiringKey]Firing{}, jobs: map[string]perdure.JobID{}, now: at(t, "2026-06-01T00:00:30Z"), room: 1000}
	b.row = &Schedule{Name: "s"}
	b.row.Replace([]byte("{}"), &set, b.rule, "anna", b.now)
	return b
}

// decide decides at the present time, and starts the jobs. It returns what happened as words: the minutes of the times.
func (b *book) decide() string {
	var open []Firing
	for _, f := range b.lines {
		if f.News || f.Unsettled() {
			open = append(open, f)
		}
	}
	out := b.row.Decide(&ScheduleState{Settings: &b.set, Rule: b.rule, Open: open, HaveJobs: b.haveJobs}, b.now, b.room)
	var words []string
	for _, f := range out.Lines {
		if old := b.lines[f.Key()]; old.State != f.State || old.Reason != f.Reason {
			words = append(words, fmt.Sprintf("%s %s", f.State, minutes(f)))
		}
		b.lines[f.Key()] = f
	}
	for _, f := range out.Start {
		key := f.Key().JobKey()
		if b.hasJob(f.Key()) {
			b.t.Errorf("%s has a job already", key)
		}
		b.jobs[key] = perdure.JobID{byte(len(b.jobs) + 1)}
		b.lines[f.Key()] = b.row.Started(f, b.jobs[key])
		words = append(words, "start "+minutes(f))
	}
	for _, id := range out.Undo {
		words = append(words, fmt.Sprintf("undo %d", id[0]))
	}
	if out.Cause != "" {
		words = append(words, "paused")
	}
	return strings.Join(words, ", ")
}

func minutes(f Firing) string {
	text := f.Nominal.Format("4")
	if f.Times > 1 && !f.To.IsZero() {
		text += "-" + f.To.Format("4")
	}
	return text
}

func (b *book) haveJobs(keys []FiringKey) map[FiringKey]bool {
	has := map[FiringKey]bool{}
	for _, k := range keys {
		has[k] = b.hasJob(k)
	}
	return has
}

func (b *book) hasJob(k FiringKey) bool { _, has := b.jobs[k.JobKey()]; return has }

// settle changes the line of a job, as the transaction of the job does.
func (b *book) settle(minute int, s operate.FiringState) {
	b.t.Helper()
	for k, f := range b.lines {
		if f.Nominal.Minute() == minute && f.Unsettled() {
			f.State, f.News = s, true
			b.lines[k] = f
			return
		}
	}
	b.t.Fatalf("no job of minute %d", minute)
}

func (b *book) after(d time.Duration) string {
	b.now = b.now.Add(d)
	return b.decide()
}

func (b *book) want(got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("got %q, want %q", got, want)
	}
}

var everyMinute = operate.ScheduleCron{"* * * * *"}

// TestOverlapSkip records a time that comes while the job before it has not settled; a parked job has not (F168).
func TestOverlapSkip(t *testing.T) {
	b := newBook(t, operate.ScheduleSettings{Cron: everyMinute})
	b.want(b.after(20*time.Second), "")
	b.want(b.after(20*time.Second), "start 1")
	b.want(b.after(time.Minute), "skipped 2")
	b.settle(1, operate.FiringParked)
	b.want(b.after(time.Minute), "skipped 3")
	b.settle(1, operate.FiringDone)
	b.want(b.after(time.Minute), "start 4")
	if b.row.SkippedOverlap != 2 || b.row.Fired != 2 || !b.row.Last.Equal(at(t, "2026-06-01T00:04:00Z")) {
		t.Errorf("row: %+v", b.row)
	}
}

// TestOverlapQueue starts each waiting time when the job before it has settled, and has a bound.
func TestOverlapQueue(t *testing.T) {
	b := newBook(t, operate.ScheduleSettings{Cron: everyMinute, Overlap: operate.OverlapQueue})
	b.want(b.after(40*time.Second), "start 1")
	b.want(b.after(time.Minute), "waiting 2")
	b.want(b.after(time.Minute), "waiting 3")
	b.settle(1, operate.FiringUndone)
	b.want(b.after(time.Second), "start 2")
	b.want(b.after(time.Second), "")
	b.settle(2, operate.FiringDone)
	b.want(b.after(time.Second), "start 3")
	for range operate.MaxScheduleQueue {
		b.after(time.Minute)
	}
	if b.row.SkippedOverlap != 0 {
		t.Errorf("%d times are skipped before the queue is full", b.row.SkippedOverlap)
	}
	if got := b.after(time.Minute); !strings.HasPrefix(got, "skipped") || b.row.SkippedOverlap != 1 {
		t.Errorf("with a full queue: %q", got)
	}
}

func TestOverlapAllow(t *testing.T) {
	b := newBook(t, operate.ScheduleSettings{Cron: everyMinute, Overlap: operate.OverlapAllow})
	b.want(b.after(40*time.Second), "start 1")
	b.want(b.after(time.Minute), "start 2")
}

// TestOverlapReplace undoes the earlier job, and starts the latest time when that job has settled. An undone job that was
// replaced is no failure (F169).
func TestOverlapReplace(t *testing.T) {
	b := newBook(t, operate.ScheduleSettings{Cron: everyMinute, Overlap: operate.OverlapReplace, PauseAfter: 1})
	b.want(b.after(40*time.Second), "start 1")
	b.want(b.after(time.Minute), "running 1, waiting 2, undo 1")
	b.want(b.after(time.Minute), "skipped 2, waiting 3")
	b.settle(1, operate.FiringUndone)
	b.want(b.after(time.Second), "start 3")
	if b.row.Failures != 0 || b.row.Paused {
		t.Errorf("row: %+v", b.row)
	}
}

// TestCatchUp gives jobs to the latest of the times that have passed, and records the others (F130, F170).
func TestCatchUp(t *testing.T) {
	for _, tt := range []struct {
		within time.Duration
		max    int
		want   string
	}{
		{time.Hour, 1, "skipped 1-29, start 30"},
		{time.Hour, 3, "skipped 1-27, start 28, start 29, start 30"},
		{5 * time.Minute, 100, "skipped 1-25, start 26, start 27, start 28, start 29, start 30"},
		{0, 0, "skipped 1-29, start 30"}, // it is not late
	} {
		b := newBook(t, operate.ScheduleSettings{Cron: everyMinute, Overlap: operate.OverlapAllow, CatchUp: &operate.ScheduleCatchUp{Within: new(perdure.Duration(tt.within)), Max: &tt.max}})
		b.want(b.after(30*time.Minute), tt.want)
	}
	b := newBook(t, operate.ScheduleSettings{At: []time.Time{at(t, "2026-06-01T00:10:00Z")}, CatchUp: &operate.ScheduleCatchUp{Max: new(int)}})
	b.want(b.after(12*time.Minute), "skipped 10")
	if b.row.SkippedCatchUp != 1 || b.row.State() != operate.ScheduleEnded {
		t.Errorf("row: %+v", b.row)
	}
}

// TestLongOutageIsWalkedInParts loses no time, although one decision looks at a bounded number (F130, F170).
func TestLongOutageIsWalkedInParts(t *testing.T) {
	b := newBook(t, operate.ScheduleSettings{Every: perdure.Duration(time.Second), Overlap: operate.OverlapAllow, CatchUp: &operate.ScheduleCatchUp{Within: new(perdure.Duration(24 * time.Hour)), Max: new(1000)}})
	first := b.row.Next
	b.now = b.now.Add(10 * time.Hour)
	for range 100 {
		if b.decide(); b.row.DueAt.After(b.now) {
			break
		}
	}
	times := int64(0)
	for _, f := range b.lines {
		times += f.Times
	}
	if want := int64(b.row.Next.Sub(first) / time.Second); times != want || b.row.Fired != 1000 || b.row.SkippedCatchUp != want-1000 {
		t.Errorf("%d times of %d; %d fired, %d left out", times, want, b.row.Fired, b.row.SkippedCatchUp)
	}
	if !b.row.Next.Add(-time.Second).Equal(b.now.Truncate(time.Second)) {
		t.Errorf("next %s at %s", b.row.Next, b.now)
	}
}

// TestClockSetBack repeats no time, and goes on when the clock comes there again (F132, F171).
func TestClockSetBack(t *testing.T) {
	b := newBook(t, operate.ScheduleSettings{Cron: everyMinute, Overlap: operate.OverlapAllow})
	b.want(b.after(40*time.Second), "start 1")
	b.want(b.after(-30*time.Minute), "")
	b.want(b.after(20*time.Minute), "")
	b.want(b.after(11*time.Minute), "start 2")
}

// TestNoRoom leaves times that cannot be started for the next decision, in their order.
func TestNoRoom(t *testing.T) {
	b := newBook(t, operate.ScheduleSettings{Cron: everyMinute, Overlap: operate.OverlapAllow, CatchUp: &operate.ScheduleCatchUp{Max: new(5)}})
	b.room = 2
	b.want(b.after(4*time.Minute), "start 1, start 2")
	b.want(b.decide(), "start 3, start 4")
	b.want(b.decide(), "")
}

// TestPauseAfter pauses after failures in a row, once for each job (F172).
func TestPauseAfter(t *testing.T) {
	b := newBook(t, operate.ScheduleSettings{Cron: everyMinute, Overlap: operate.OverlapAllow, PauseAfter: 2})
	b.want(b.after(40*time.Second), "start 1")
	b.settle(1, operate.FiringParked)
	b.want(b.after(time.Minute), "start 2")
	b.settle(1, operate.FiringUndone)
	b.want(b.after(time.Minute), "start 3")
	b.settle(2, operate.FiringDone)
	b.settle(3, operate.FiringUnsure)
	b.want(b.after(time.Minute), "start 4")
	if b.row.Failures != 1 {
		t.Errorf("%d failures", b.row.Failures)
	}
	b.settle(4, operate.FiringParked)
	b.want(b.after(time.Minute), "paused")
	b.want(b.after(10*time.Minute), "")
	b.row.Resume(b.rule, false, b.now)
	b.want(b.after(time.Minute), "start 16")
	if b.row.Failures != 0 {
		t.Errorf("%d failures after resume", b.row.Failures)
	}
}

// TestResume leaves out what has passed, or catches it up.
func TestResume(t *testing.T) {
	for _, catchUp := range []bool{false, true} {
		b := newBook(t, operate.ScheduleSettings{Cron: everyMinute, Overlap: operate.OverlapAllow})
		b.want(b.after(40*time.Second), "start 1")
		b.row.Pause("paused by anna")
		b.want(b.after(10*time.Minute), "")
		b.row.Resume(b.rule, catchUp, b.now)
		want := map[bool]string{true: "skipped 2-10, start 11", false: ""}[catchUp]
		b.want(b.decide(), want)
		b.want(b.after(time.Minute), "start 12")
	}
}

// TestReplaceKeepsDueTimesOfTheSameRule, and a new rule begins now, after all times that have a job (F133).
func TestReplaceKeepsDueTimesOfTheSameRule(t *testing.T) {
	b := newBook(t, operate.ScheduleSettings{Cron: everyMinute})
	b.row.Settings = []byte(`{"cron":"* * * * *"}`)
	b.now = b.now.Add(40 * time.Second)
	next := b.row.Next
	b.row.Replace([]byte(`{"cron":"* * * * *","pauseAfter":3}`), &operate.ScheduleSettings{Cron: everyMinute, PauseAfter: 3}, b.rule, "anna", b.now)
	if !b.row.Next.Equal(next) || b.row.Version != 2 || !b.row.DueAt.Equal(b.now) {
		t.Errorf("row: %+v", b.row)
	}
	b.row.Last = b.now.Add(5 * time.Minute) // the clock was set back
	other := operate.ScheduleSettings{Cron: operate.ScheduleCron{"*/2 * * * *"}, Paused: new(true)}
	b.row.Replace([]byte(`{"cron":"*/2 * * * *"}`), &other, ruleOf(t, other, time.UTC), "anna", b.now)
	if !b.row.Next.After(b.row.Last) || !b.row.Paused || b.row.PausedCause != "paused by anna" || !b.row.DueAt.IsZero() {
		t.Errorf("row: %+v", b.row)
	}
}

// TestTriggeredTimeHasNoSecondJob (F173).
func TestTriggeredTimeHasNoSecondJob(t *testing.T) {
	b := newBook(t, operate.ScheduleSettings{Cron: everyMinute, Overlap: operate.OverlapAllow})
	b.jobs[FiringKey{"s", at(t, "2026-06-01T00:02:00Z"), 0}.JobKey()] = perdure.JobID{9}
	b.want(b.after(40*time.Second), "start 1")
	b.want(b.after(time.Minute), "")
	b.want(b.after(time.Minute), "start 3")
}

// A line of skipped times does not cover a time that an operator has triggered (F173).
func TestTriggeredTimeIsNotSkipped(t *testing.T) {
	most := 10
	b := newBook(t, operate.ScheduleSettings{Cron: everyMinute, CatchUp: &operate.ScheduleCatchUp{Max: &most}})
	b.want(b.after(40*time.Second), "start 1")
	b.jobs[FiringKey{"s", at(t, "2026-06-01T00:04:00Z"), 0}.JobKey()] = perdure.JobID{9}
	b.want(b.after(5*time.Minute), "skipped 2-3, skipped 5-6")
	if b.row.SkippedOverlap != 4 {
		t.Errorf("row: %+v", b.row)
	}
}

// A time that was triggered ahead, and is too late when the schedule goes on, has its job, and no line says that it has none (I27).
func TestTriggeredTimeIsNotLeftOut(t *testing.T) {
	b := newBook(t, operate.ScheduleSettings{Cron: everyMinute, Overlap: operate.OverlapAllow})
	b.jobs[FiringKey{"s", at(t, "2026-06-01T00:05:00Z"), 0}.JobKey()] = perdure.JobID{9}
	b.want(b.after(10*time.Minute), "skipped 1-4, skipped 6-9, start 10")
	if b.row.SkippedCatchUp != 8 {
		t.Errorf("%d are counted", b.row.SkippedCatchUp)
	}
}

// TestBackfill starts the times without a job, at most so many at once (F174).
func TestBackfill(t *testing.T) {
	b := newBook(t, operate.ScheduleSettings{Cron: operate.ScheduleCron{"*/10 * * * *"}})
	b.now = at(t, "2026-06-01T02:05:00Z")
	b.row.Next, _ = b.rule.Next(b.now)
	b.jobs[FiringKey{"s", at(t, "2026-06-01T01:10:00Z"), 0}.JobKey()] = perdure.JobID{9}
	find := func(keys []string) (map[string]Keyed, error) {
		found := map[string]Keyed{}
		for _, k := range keys {
			if id, has := b.jobs[k]; has {
				found[k] = Keyed{ID: id}
			}
		}
		return found, nil
	}
	r := &operate.ScheduleBackfill{From: at(t, "2026-06-01T01:00:00Z"), To: at(t, "2026-06-01T01:50:00Z"), Parallel: 2}
	times, ready, err := b.row.StartBackfill(b.rule, r, find, b.now)
	if err != nil || times != 5 || len(ready) != 4 {
		t.Fatalf("%d times, %v, %v", times, ready, err)
	}
	if _, _, err := b.row.StartBackfill(b.rule, r, find, b.now); perdure.CodeOf(err) != perdure.CodeConflict {
		t.Errorf("a second backfill: %v", err)
	}
	b.want(b.decide(), "start 0, start 20")
	b.want(b.decide(), "")
	b.settle(0, operate.FiringDone)
	b.want(b.decide(), "start 30")
	b.settle(20, operate.FiringDone)
	b.settle(30, operate.FiringDone)
	b.want(b.decide(), "start 40")
	if !b.row.Backfill.Next.IsZero() || !b.row.Last.IsZero() {
		t.Errorf("row: %+v", b.row)
	}
	r.Again = true
	if times, ready, err = b.row.StartBackfill(b.rule, r, find, b.now); err != nil || times != 5 || len(ready) != 5 || b.row.Backfill.Again != 1 {
		t.Errorf("again: %d times, %v, %v", times, ready, err)
	}
	b.settle(40, operate.FiringDone)
	b.want(b.decide(), "start 0, start 10")
	if !slices.ContainsFunc(ready, func(t time.Time) bool { return b.hasJob(FiringKey{"s", t, 1}) }) {
		t.Error("no job has a key of its own")
	}
	b.row.Backfill.Next = time.Time{}
	r.From = at(t, "2020-01-01T00:00:00Z")
	if _, _, err := b.row.StartBackfill(b.rule, r, find, b.now); perdure.CodeOf(err) != perdure.CodeInvalid {
		t.Errorf("more than %d times: %v", operate.MaxBackfill, err)
	}
	r.To = b.now.Add(time.Second)
	if _, _, err := b.row.StartBackfill(b.rule, r, find, b.now); perdure.CodeOf(err) != perdure.CodeInvalid {
		t.Errorf("the future: %v", err)
	}
}

func TestKeysOfFirings(t *testing.T) {
	for _, again := range []int{0, 1, 12} {
		k := FiringKey{"nightly", at(t, "2026-12-01T01:30:00Z"), again}
		key := k.JobKey()
		if got, ok := FiringOf(key); !ok || got != k {
			t.Errorf("%s: %+v", key, got)
		}
		if perdure.CheckKey(key) == nil {
			t.Errorf("users can give a job the key %s", key)
		}
		if strings.Contains(key, "/") || len(key) > perdure.MaxKeyLength {
			t.Errorf("key %s", key)
		}
	}
	for _, key := range []string{"", "nightly", "@schedule:x", "@schedule:x:y", "@schedule:x:2026-12-01T01:30:00Z:again:x", "@latest"} {
		if k, ok := FiringOf(key); ok {
			t.Errorf("%q is the key of %+v", key, k)
		}
	}
}

func TestFillSchedule(t *testing.T) {
	nominal, before := at(t, "2026-12-01T01:30:00Z"), at(t, "2026-11-30T01:30:00Z")
	got, err := FillSchedule([]byte(`{"a":"${schedule.time}/${schedule.previous}","b":"$${schedule.time}","c":"${schedule.name}${input.x}"}`), "nightly", nominal, before)
	if want := `{"a":"2026-12-01T01:30:00Z/2026-11-30T01:30:00Z","b":"$${schedule.time}","c":"nightly${input.x}"}`; string(got) != want || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := FillSchedule([]byte(`"${schedule.previous}"`), "n", nominal, time.Time{}); string(got) != `""` || err != nil {
		t.Errorf("without a time before: %s, %v", got, err)
	}
	for _, wrong := range []string{`"${schedule.tme}"`, `"${schedule.time + 1}"`, `"${schedule.time"`} {
		if got, err := FillSchedule([]byte(wrong), "n", nominal, before); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("%s: %s, %v", wrong, got, err)
		}
	}
}
