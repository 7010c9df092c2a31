package kernel

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// Schedule is the row of a schedule. Its methods are the rules: they change the row in memory, and write nothing. The
// caller holds the lock of the row.
type Schedule struct {
	Name     string
	Settings []byte // operate.ScheduleSettings as JSON; Paused is not in it
	Version  int64  // grows with each change of the settings

	Paused      bool
	PausedCause string
	// Next is the first nominal time that was not handled; zero: the rule has ended. All times before it have a job or a
	// line of the history. It never goes back, so that a clock that is set back repeats nothing.
	Next time.Time
	// DueAt is when there is something to do; zero: not before a job settles or a user acts.
	DueAt time.Time

	Last    time.Time // the latest nominal time that has got a job
	LastJob perdure.JobID

	Failures       int // jobs in a row that were undone, given up or parked
	Fired          int64
	SkippedOverlap int64
	SkippedCatchUp int64

	Backfill Backfill

	CreatedAt, UpdatedAt time.Time
}

// Backfill is the backfill of a schedule that runs.
type Backfill struct {
	From, Until time.Time
	Next        time.Time // all nominal times before it were handled; zero: no backfill runs
	Parallel    int
	Again       int // 0: times that have a job get no other one
	Agains      int // how many backfills with Again there were: the next one gets a new number
}

// Firing is a line of the history of a schedule. Its key is the schedule, the nominal time, and Again.
type Firing struct {
	Schedule string
	Nominal  time.Time
	Again    int       // 0: the first job of the time; SkipLine: the time has got none
	To       time.Time // the last nominal time, if the line stands for several; else zero
	Times    int64     // how many

	State  operate.FiringState
	Reason operate.FiringReason
	Job    perdure.JobID // zero: none yet
	At     time.Time     // when the line was written

	// News is set by the transaction that changes State because the job has changed, and cleared when the schedule has
	// counted that. Counted: the job counts as a failure.
	News, Counted bool
}

// SkipLine is Firing.Again of lines that say that nominal times have got no job. So they never replace the line of a job.
const SkipLine = -1

// open reports whether the job of the line has not settled.
func (f *Firing) open() bool {
	return f.State == operate.FiringRunning || f.State == operate.FiringParked
}

// Replaceable reports whether the next job of the schedule may take the place of the job.
func (f *Firing) Replaceable() bool {
	return f.open() && f.Job != (perdure.JobID{}) && f.Reason != operate.FiringReplaced && f.Reason != operate.FiringBackfill
}

// Unsettled reports whether the line waits, or its job has not settled.
func (f *Firing) Unsettled() bool { return f.State == operate.FiringWaiting || f.open() }

// NewsFirst returns at most max lines: those with news first, and else in their order.
func NewsFirst(lines []Firing, max int) []Firing {
	slices.SortStableFunc(lines, func(a, b Firing) int {
		switch {
		case a.News == b.News:
			return 0
		case a.News:
			return -1
		}
		return 1
	})
	return lines[:min(len(lines), max)]
}

// AddSchedules adds the schedules that are not in a list yet.
func AddSchedules(list, more []*Schedule) []*Schedule {
	for _, s := range more {
		if !slices.ContainsFunc(list, func(x *Schedule) bool { return x.Name == s.Name }) {
			list = append(list, s)
		}
	}
	return list
}

// FiringKey names a line of the history of a schedule.
type FiringKey struct {
	Schedule string
	Nominal  time.Time
	Again    int
}

// Compare compares two keys, by schedule, nominal time and Again.
func (k FiringKey) Compare(other FiringKey) int {
	return cmp.Or(strings.Compare(k.Schedule, other.Schedule), k.Nominal.Compare(other.Nominal), cmp.Compare(k.Again, other.Again))
}

// Key returns the key of the line.
func (f *Firing) Key() FiringKey { return FiringKey{f.Schedule, f.Nominal, f.Again} }

// Check returns an error with CodeInvalid if the time cannot be a nominal time.
func (k FiringKey) Check() error {
	if !isNominal(k.Nominal) {
		return refuseRule("/at", "a time is a whole second, from 1970 to %d", maxYear)
	}
	return nil
}

// schedulePrefix begins the keys of jobs of schedules. Users' keys cannot begin with @ (perdure.CheckKey).
const schedulePrefix = "@schedule:"

// JobKey returns the key of the job. It is unique, so that a nominal time never gets a second job.
func (k FiringKey) JobKey() string {
	key := schedulePrefix + k.Schedule + ":" + k.Nominal.UTC().Format(time.RFC3339)
	if k.Again > 0 {
		key += ":again:" + strconv.Itoa(k.Again)
	}
	return key
}

// FiringOf returns the line of the history to which the job with this key belongs; false: to none.
func FiringOf(jobKey string) (k FiringKey, ok bool) {
	rest, ok := strings.CutPrefix(jobKey, schedulePrefix)
	if !ok {
		return k, false
	}
	rest, again, repeated := strings.Cut(rest, ":again:")
	var nominal string
	if k.Schedule, nominal, ok = strings.Cut(rest, ":"); !ok {
		return k, false
	}
	if repeated {
		n, err := strconv.Atoi(again)
		if err != nil {
			return k, false
		}
		k.Again = n
	}
	t, err := time.Parse(time.RFC3339, nominal)
	k.Nominal = t.UTC()
	return k, err == nil
}

// FiringChange is the new state of a line whose job has changed. A line whose job had settled before keeps its state.
type FiringChange struct {
	FiringKey
	State operate.FiringState
}

// firingState returns the state of the line of a job.
func firingState(j *Job) operate.FiringState {
	switch {
	case j.Phase == perdure.Parked:
		return operate.FiringParked
	case j.Phase != perdure.Settled:
		return operate.FiringRunning
	case j.Current == perdure.Done:
		return operate.FiringDone
	case j.Current == perdure.Undone:
		return operate.FiringUndone
	}
	return operate.FiringUnsure
}

// noteFiring adds the change of the schedule's line if a job of a schedule is parked, goes on, or settles. was is nil for
// a new job.
func (c *Changes) noteFiring(was, now *Job) {
	if !strings.HasPrefix(now.Key, schedulePrefix) {
		return
	}
	before := operate.FiringRunning
	if was != nil {
		before = firingState(was)
	}
	if k, ok := FiringOf(now.Key); ok && firingState(now) != before {
		c.Firings = append(c.Firings, FiringChange{k, firingState(now)})
	}
}

// ScheduleTx is what transactions do with schedules.
type ScheduleTx interface {
	// LockSchedules locks the rows of schedules in the order of their names, and waits for locks that other transactions
	// hold. Rows that do not exist are left out. names has no name twice.
	LockSchedules(names []string) ([]*Schedule, error)
	CountSchedules() (int, error)
	// PutSchedule stores a schedule; if it is new, the transaction has locked the role supervisor (Locker.LockRoles).
	PutSchedule(*Schedule) error
	// DeleteSchedule deletes a schedule with its history, and reports whether it existed.
	DeleteSchedule(name string) (bool, error)
	// OpenFirings returns lines of a schedule that wait, whose jobs have not settled, or that have news: at most max, those
	// with news first, and then in the order of their nominal times.
	OpenFirings(schedule string, max int) ([]Firing, error)
	// PutFirings stores lines of the history. An existing line with the same key is replaced.
	PutFirings([]Firing) error
}

// ScheduleReader reads schedules.
type ScheduleReader interface {
	// Schedule returns a schedule; nil if there is none.
	Schedule(ctx context.Context, name string) (*Schedule, error)
	// Schedules returns schedules in the order of their names: at most max of those after a name.
	Schedules(ctx context.Context, after string, max int) ([]*Schedule, error)
	// DueSchedules returns schedules that are due at a time, the earliest first, and then those whose lines have news: at
	// most max of each. next is when the first schedule is due that is not yet; zero: none.
	DueSchedules(ctx context.Context, now time.Time, max int) (due []*Schedule, next time.Time, err error)
	// OpenFiringsOf is ScheduleTx.OpenFirings outside of a transaction.
	OpenFiringsOf(ctx context.Context, schedule string, max int) ([]Firing, error)
	// Firings returns lines of the history of a schedule, newest first by nominal time and Again: at most max of those before
	// a key.
	Firings(ctx context.Context, schedule string, before FiringKey, max int) ([]Firing, error)
	// ForgetFirings deletes at most max lines that were written before a time, and neither wait, nor have news, nor have a job
	// that has not settled.
	ForgetFirings(ctx context.Context, before time.Time, max int) (int, error)
}

// Bounds of what one transaction decides for one schedule.
const (
	// MaxOpenFirings is how many open lines are read.
	MaxOpenFirings = 1000
	// maxWalk bounds the nominal times that are looked at.
	maxWalk = 10_000
	// onTime is how late a nominal time may be and still count as on time: a change of the leader takes so long. Times that
	// are later are subject to catchUp.
	onTime = time.Minute
)

// Firings is what is to be done for a schedule, besides writing its row.
type Firings struct {
	Start []Firing        // lines whose jobs are to be submitted
	Lines []Firing        // lines to write
	Undo  []perdure.JobID // jobs to undo
	// Cause is why the schedule was paused now; empty: it was not.
	Cause string
	// Late is how late the latest start is, beyond its jitter.
	Late time.Duration
}

// Empty reports whether there is nothing to do.
func (f *Firings) Empty() bool {
	return len(f.Start)+len(f.Lines)+len(f.Undo) == 0 && f.Cause == ""
}

// Parse returns the settings of the schedule.
func (s *Schedule) Parse() (*operate.ScheduleSettings, error) {
	set := new(operate.ScheduleSettings)
	err := json.Unmarshal(s.Settings, set)
	return set, err
}

// ScheduleState is what a decision depends on, besides the row and the time.
type ScheduleState struct {
	Settings *operate.ScheduleSettings
	Rule     *TimeRule
	Open     []Firing                             // what OpenFirings returns
	HaveJobs func([]FiringKey) map[FiringKey]bool // which of these lines have jobs
}

// Decide handles the nominal times that are due at now. It changes the row, and returns what else is to be done. At
// most room jobs are started.
//
// The same row, lines, jobs and time give the same result on every node.
func (s *Schedule) Decide(in *ScheduleState, now time.Time, room int) *Firings {
	d := &decision{Schedule: s, set: in.Settings, rule: in.Rule, haveJobs: in.HaveJobs, now: now, room: room, out: &Firings{}}
	open := in.Open
	d.count(open)
	s.DueAt = time.Time{}
	if !s.Paused {
		d.pass()
		d.release()
		d.backfill()
	}
	s.UpdatedAt = now
	return d.out
}

type decision struct {
	*Schedule
	set  *operate.ScheduleSettings
	rule *TimeRule

	haveJobs func([]FiringKey) map[FiringKey]bool
	now      time.Time
	room     int
	out      *Firings

	active    []Firing // lines whose jobs have not settled, without those of backfills
	waiting   []Firing // in the order of their nominal times
	backfills int      // unsettled jobs of backfills
}

// count counts the news of the lines, and pauses the schedule after too many failures.
func (d *decision) count(open []Firing) {
	open = slices.Clone(open)
	slices.SortFunc(open, func(a, b Firing) int { return a.Key().Compare(b.Key()) })
	for _, f := range open {
		if f.News {
			f.News = false
			switch {
			case f.State == operate.FiringDone:
				d.Failures = 0
			case f.State == operate.FiringRunning || f.Reason == operate.FiringReplaced || f.Counted:
			default:
				f.Counted = true
				d.Failures++
			}
			d.out.Lines = append(d.out.Lines, f)
		}
		switch {
		case f.State == operate.FiringWaiting:
			d.waiting = append(d.waiting, f)
		case !f.open():
		case f.Reason == operate.FiringBackfill:
			d.backfills++
		default:
			d.active = append(d.active, f)
		}
	}
	if n := d.set.PauseAfter; n > 0 && d.Failures >= n && !d.Paused {
		d.Paused = true
		d.PausedCause = strconv.Itoa(d.Failures) + " jobs in a row have failed, which is the maximum (pauseAfter)"
		d.out.Cause = d.PausedCause
	}
}

// pass handles the nominal times that have come.
func (d *decision) pass() {
	times, complete := d.dueTimes()
	if len(times) == 0 {
		d.wait()
		return
	}
	within, most := d.set.Catches()
	first := 0 // of those that get a job
	for i, t := range times {
		late := d.now.Sub(d.rule.DueAt(d.Name, t))
		if late > onTime && (late > within || len(times)-i > most) {
			first = i + 1
		}
	}
	if !complete && first == 0 { // the present walk has no time that is surely left out: it has too many that are on time
		complete = true
	}
	d.leaveOut(times[:first])
	if !complete {
		d.Next, d.DueAt = times[first-1], d.now
		d.Next, _ = d.rule.Next(d.Next)
		return
	}
	for _, t := range times[first:] {
		if d.hasJob(FiringKey{d.Name, t, 0}) { // an operator has triggered it before its time
			continue
		}
		if !d.fire(t) {
			d.Next, d.DueAt = t, d.now
			return
		}
	}
	d.Next, _ = d.rule.Next(times[len(times)-1])
	d.wait()
}

// wait sets when the next nominal time fires.
func (d *decision) wait() {
	if !d.Next.IsZero() {
		d.DueAt = d.rule.DueAt(d.Name, d.Next)
	}
}

// dueTimes returns the nominal times that have come, up to maxWalk. complete: these are all.
func (d *decision) dueTimes() (times []time.Time, complete bool) {
	for t, ok := d.Next, !d.Next.IsZero(); ok && !d.rule.DueAt(d.Name, t).After(d.now); t, ok = d.rule.Next(t) {
		if len(times) == maxWalk {
			return times, false
		}
		times = append(times, t)
	}
	return times, true
}

// hasJob reports whether a line has a job.
func (d *decision) hasJob(k FiringKey) bool { return d.haveJobs([]FiringKey{k})[k] }

// leaveOut records the nominal times that get no job, because they have passed for too long. One that an operator has triggered
// has a job.
func (d *decision) leaveOut(times []time.Time) {
	keys := make([]FiringKey, len(times))
	for i, t := range times {
		keys[i] = FiringKey{d.Name, t, 0}
	}
	begin := 0
	add := func(end int) {
		d.skip(times[begin:end], operate.FiringCatchUp)
		d.SkippedCatchUp += int64(end - begin)
	}
	has := d.haveJobs(keys)
	for i, k := range keys {
		if has[k] {
			add(i)
			begin = i + 1
		}
	}
	add(len(times))
}

// skip records nominal times that follow each other, and get no job.
func (d *decision) skip(times []time.Time, reason operate.FiringReason) {
	if len(times) == 0 {
		return
	}
	f := Firing{Schedule: d.Name, Nominal: times[0], Again: SkipLine, State: operate.FiringSkipped, Reason: reason, At: d.now, Times: int64(len(times))}
	if len(times) > 1 {
		f.To = times[len(times)-1]
	}
	d.out.Lines = append(d.out.Lines, f)
}

func (d *decision) skipOverlap(t time.Time) {
	d.SkippedOverlap++
	if n := len(d.out.Lines); n > 0 { // one line for times that follow each other
		f := &d.out.Lines[n-1]
		last := f.Nominal
		if f.Times > 1 {
			last = f.To
		}
		next, _ := d.rule.Next(last) // one between them may have a job
		if f.Again == SkipLine && f.Reason == operate.FiringOverlap && next.Equal(t) {
			f.To, f.Times = t, f.Times+1
			return
		}
	}
	d.skip([]time.Time{t}, operate.FiringOverlap)
}

// fire handles one nominal time by the overlap rule. It returns false if there is no room for its job.
func (d *decision) fire(t time.Time) bool {
	busy := len(d.active)+len(d.waiting) > 0
	switch d.set.OverlapRule() {
	case operate.OverlapAllow:
		return d.start(Firing{Schedule: d.Name, Nominal: t, Times: 1})
	case operate.OverlapQueue:
		if len(d.waiting) >= operate.MaxScheduleQueue {
			d.skipOverlap(t)
			return true
		}
	case operate.OverlapReplace:
		for _, w := range d.waiting {
			d.giveWay(w)
		}
		d.waiting = nil
		for i := range d.active {
			if f := &d.active[i]; f.Replaceable() {
				f.Reason = operate.FiringReplaced
				d.line(*f)
				d.out.Undo = append(d.out.Undo, f.Job)
			}
		}
		busy = len(d.active) > 0
	default:
		if busy {
			d.skipOverlap(t)
			return true
		}
	}
	if busy {
		w := Firing{Schedule: d.Name, Nominal: t, Times: 1, State: operate.FiringWaiting, At: d.now}
		d.waiting = append(d.waiting, w)
		d.line(w)
		return true
	}
	return d.start(Firing{Schedule: d.Name, Nominal: t, Times: 1})
}

// giveWay records that a nominal time that waits gets no job, because a later one takes its place.
func (d *decision) giveWay(w Firing) {
	d.SkippedOverlap++
	w.State, w.Reason = operate.FiringSkipped, operate.FiringOverlap
	d.line(w)
}

// line writes a line, in place of an earlier state of it.
func (d *decision) line(f Firing) {
	for i := range d.out.Lines {
		if d.out.Lines[i].Key() == f.Key() {
			d.out.Lines[i] = f
			return
		}
	}
	d.out.Lines = append(d.out.Lines, f)
}

// start lets a job be submitted, if there is room.
func (d *decision) start(f Firing) bool {
	if len(d.out.Start) >= d.room {
		return false
	}
	f.State, f.At = operate.FiringRunning, d.now
	d.out.Start = append(d.out.Start, f)
	if f.Reason == "" {
		d.active = append(d.active, f)
		d.out.Late = max(d.out.Late, d.now.Sub(d.rule.DueAt(d.Name, f.Nominal)))
	}
	return true
}

// release starts the first job that waits, if all before it have settled.
func (d *decision) release() {
	if len(d.active) > 0 || len(d.waiting) == 0 {
		return
	}
	if !d.start(d.waiting[0]) {
		d.DueAt = d.now
		return
	}
	d.waiting = d.waiting[1:]
}

// maxPassed bounds the nominal times with a job that one decision of a backfill passes over.
const maxPassed = 100

// backfill starts the next jobs of a backfill.
func (d *decision) backfill() {
	b := &d.Backfill
	for passed := 0; !b.Next.IsZero() && d.backfills < b.Parallel && passed <= maxPassed; {
		f := Firing{Schedule: d.Name, Nominal: b.Next, Again: b.Again, Times: 1, Reason: operate.FiringBackfill}
		switch {
		case b.Again == 0 && d.hasJob(f.Key()):
			passed++
		case d.start(f):
			d.backfills++
		default:
			d.DueAt = d.now
			return
		}
		next, ok := d.rule.Next(b.Next)
		if b.Next = next; !ok || !next.Before(b.Until) {
			b.Next = time.Time{}
		}
	}
	if !b.Next.IsZero() && d.backfills < b.Parallel {
		d.DueAt = d.now
	}
}

// StartBackfill starts a backfill of the nominal times in [from, to). It returns their number, and those of them that get a
// job. jobsByKey finds jobs by their keys.
func (s *Schedule) StartBackfill(rule *TimeRule, r *operate.ScheduleBackfill, jobsByKey func([]string) (map[string]Keyed, error), now time.Time) (times int, ready []time.Time, err error) {
	switch {
	case r.To.After(now):
		return 0, nil, refuseRule("/to", "%s is later than now: a backfill is of the past", r.To.UTC().Format(time.RFC3339))
	case !s.Backfill.Next.IsZero():
		e := perdure.Refuse(perdure.CodeConflict, "a backfill of schedule %s runs: it is at %s", s.Name, s.Backfill.Next.UTC().Format(time.RFC3339))
		e.Hint = "wait until it is done"
		return 0, nil, e
	}
	b := Backfill{From: r.From.UTC(), Until: r.To.UTC(), Parallel: cmp.Or(r.Parallel, operate.DefaultParallel), Agains: s.Backfill.Agains}
	if r.Again {
		b.Agains++
		b.Again = b.Agains
	}
	var all []time.Time
	for t, ok := rule.Next(b.From.Add(-time.Nanosecond)); ok && t.Before(b.Until); t, ok = rule.Next(t) {
		if all = append(all, t); len(all) > operate.MaxBackfill {
			e := perdure.Refuse(perdure.CodeInvalid, "there are more than %d times from %s to %s, which is the maximum", operate.MaxBackfill, b.From.Format(time.RFC3339), b.Until.Format(time.RFC3339))
			e.Hint = "backfill a shorter span at a time"
			return 0, nil, e
		}
	}
	for chunk := range slices.Chunk(all, keysAtOnce) {
		known := map[string]Keyed{}
		if b.Again == 0 {
			keys := make([]string, len(chunk))
			for i, t := range chunk {
				keys[i] = FiringKey{s.Name, t, 0}.JobKey()
			}
			if known, err = jobsByKey(keys); err != nil {
				return 0, nil, err
			}
		}
		for _, t := range chunk {
			if _, has := known[FiringKey{s.Name, t, 0}.JobKey()]; !has {
				ready = append(ready, t)
			}
		}
	}
	if len(ready) > 0 {
		b.Next = ready[0]
		if !s.Paused {
			s.DueAt = now
		}
	}
	s.Backfill = b
	return len(all), ready, nil
}

// keysAtOnce is how many keys are looked up at once.
const keysAtOnce = 1000

// Started records the job of a line, and returns the line to write.
func (s *Schedule) Started(f Firing, job perdure.JobID) Firing {
	f.Job = job
	s.Fired++
	if f.Reason == "" && !f.Nominal.Before(s.Last) {
		s.Last, s.LastJob = f.Nominal, job
	}
	return f
}

// Refuse pauses the schedule because its job was refused, and returns the line to write.
func (s *Schedule) Refuse(f Firing, cause string) Firing {
	s.Pause("the job of " + f.Nominal.UTC().Format(time.RFC3339) + " was refused: " + cause)
	f.State, f.Reason = operate.FiringSkipped, operate.FiringRefused
	return f
}

// Pause pauses the schedule. A schedule that is paused keeps its cause.
func (s *Schedule) Pause(cause string) {
	if !s.Paused {
		s.Paused, s.PausedCause = true, plain.Clip(cause, perdure.MaxReasonBytes)
	}
	s.DueAt = time.Time{}
}

// Resume resumes the schedule. Unless catchUp, the nominal times that have passed are left out.
func (s *Schedule) Resume(rule *TimeRule, catchUp bool, now time.Time) {
	if !s.Paused {
		return
	}
	s.Paused, s.PausedCause, s.Failures = false, "", 0
	if !catchUp && !s.Next.IsZero() && s.Next.Before(now) {
		s.Next, _ = rule.Next(now.Add(-time.Nanosecond))
	}
	s.DueAt = now
}

// Replace gives the schedule other settings. If the rule of times stays the same, nominal times that are due stay due. A new
// rule begins now, and after all times that were handled.
func (s *Schedule) Replace(settings []byte, set *operate.ScheduleSettings, rule *TimeRule, author string, now time.Time) {
	before, err := s.Parse()
	if s.Version == 0 || err != nil || !sameTimes(before, set) {
		after := now.Add(-time.Nanosecond)
		if last := s.Last; !last.Before(now) {
			after = last
		}
		s.Next, _ = rule.Next(after)
	}
	s.Settings = settings
	s.Version++
	switch {
	case set.Paused == nil:
	case *set.Paused:
		s.Pause("paused by " + author)
	default:
		s.Resume(rule, false, now)
	}
	if s.Version == 1 {
		s.CreatedAt = now
	}
	s.UpdatedAt, s.DueAt = now, time.Time{}
	if !s.Paused {
		s.DueAt = now // the next decision sets it
	}
}

// Upcoming returns the next n nominal times that were not handled.
func (s *Schedule) Upcoming(rule *TimeRule, n int) []time.Time {
	if s.Next.IsZero() {
		return nil
	}
	return rule.Upcoming(s.Next.Add(-time.Nanosecond), n)
}

// sameTimes reports whether two settings have the same rule of times.
func sameTimes(a, b *operate.ScheduleSettings) bool {
	return slices.Equal(a.Cron, b.Cron) && a.Every == b.Every && slices.EqualFunc(a.At, b.At, time.Time.Equal) && a.Timezone == b.Timezone &&
		sameTime(a.From, b.From) && sameTime(a.Until, b.Until)
}

func sameTime(a, b *time.Time) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(*b)
}

// State returns the state of the schedule.
func (s *Schedule) State() operate.ScheduleState {
	switch {
	case s.Paused:
		return operate.SchedulePaused
	case s.Next.IsZero() && s.Backfill.Next.IsZero():
		return operate.ScheduleEnded
	}
	return operate.ScheduleActive
}

// ScheduleBook reads the settings of schedules, and makes their jobs.
type ScheduleBook interface {
	Rule(*Schedule) (*operate.ScheduleSettings, *TimeRule, error)
	// Plan returns the plan of a job of a schedule, with its key. version is that of the stored definition which the schedule
	// names, as CurrentVersion has returned it. An error with a code says why there is no such job.
	Plan(s *Schedule, k FiringKey, version int) (*Plan, error)
	// Load reads the stored definition that a schedule names, as it is now, outside of a transaction.
	Load(context.Context, *Schedule) error
	// Loaded reports whether Plan has what it needs for a version; else the caller calls Load, and tries again.
	Loaded(s *Schedule, version int) bool
}

// StoredName returns the stored definition that a job of a schedule is made from; ok is false if the schedule has the
// definition itself.
func StoredName(job *operate.ScheduleJob) (ref DefinitionRef, ok bool) {
	var text string
	if json.Unmarshal(job.Definition, &text) != nil {
		return ref, false
	}
	ref, err := ParseDefinitionRef(text)
	return ref, err == nil
}

// CurrentVersion returns the version of the stored definition from which a job of a schedule is made in this transaction.
// It locks the name, so that no other version becomes the current one before the transaction ends. 0: the schedule has the
// definition itself, or there is no such definition, so that Plan refuses.
func CurrentVersion(tx DefinitionTx, job *operate.ScheduleJob) (int, error) {
	ref, named := StoredName(job)
	if !named || ref.Version > 0 {
		return ref.Version, nil
	}
	head, err := tx.LockDefinition(ref.Name)
	if err != nil || head == nil {
		return 0, err
	}
	return head.Current, nil
}

// DefinitionUse is a schedule that makes its jobs from a stored definition.
type DefinitionUse struct {
	Schedule string
	Version  int // 0: the current one
}

// Fired counts what one round of the timetable has done.
type Fired struct {
	Jobs int           // that were submitted
	Late time.Duration // how late the latest of them was, beyond its jitter
	Left bool          // some schedules could not be decided, and are still due
}

// ErrNoSchedule returns the error for a schedule that does not exist.
func ErrNoSchedule(name string) error {
	return perdure.Refuse(perdure.CodeNotFound, "there is no schedule %s", name)
}

// AlertOfSchedule returns the alert that a schedule was paused by a rule, and ClosesOf closes it. The stores close alerts by
// job and step, so the alert has the name of the schedule in Step, too.
func AlertOfSchedule(s *Schedule, now time.Time) Alert {
	return Alert{Kind: perdure.AlertSchedule, Name: s.Name, Step: s.Name, RaisedAt: now,
		Message: plain.Clip("schedule "+s.Name+" was paused: "+s.PausedCause+"; mend it, then: perdure schedules resume "+s.Name, perdure.MaxReasonBytes)}
}

// ClosesOf closes the alert of a schedule.
func ClosesOf(name, by string) CloseAlerts {
	return CloseAlerts{Step: name, Kinds: []perdure.AlertKind{perdure.AlertSchedule}, By: by}
}

// FillSchedule replaces ${schedule.time}, ${schedule.previous} and ${schedule.name} in the texts of a job. $${ stays as it
// is: it is an escaped text. The values have no characters that JSON escapes.
func FillSchedule(job []byte, name string, nominal, previous time.Time) ([]byte, error) {
	const open = "${schedule."
	values := map[string]string{"time": nominal.UTC().Format(time.RFC3339), "previous": "", "name": name}
	if !previous.IsZero() {
		values["previous"] = previous.UTC().Format(time.RFC3339)
	}
	var b []byte
	for rest := string(job); ; {
		i := strings.Index(rest, open)
		if i < 0 {
			return append(b, rest...), nil
		}
		if i > 0 && rest[i-1] == '$' {
			b, rest = append(b, rest[:i+len(open)]...), rest[i+len(open):]
			continue
		}
		word, after, found := strings.Cut(rest[i+len(open):], "}")
		value, known := values[word]
		if !found || !known {
			return nil, perdure.Refuse(perdure.CodeInvalid, "unknown ${schedule.%s}: use ${schedule.time}, ${schedule.previous} or ${schedule.name}, without operators", plain.Clip(word, perdure.MaxClippedText))
		}
		b = append(append(b, rest[:i]...), value...)
		rest = after
	}
}
