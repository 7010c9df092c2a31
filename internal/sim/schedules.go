package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/timetable"
	"github.com/perdure/perdure/operate"
)

// plannedSchedule is a schedule that a client creates, and what operators do with it.
type plannedSchedule struct {
	name string
	at   time.Duration
	set  operate.ScheduleSettings
	rule *kernel.TimeRule
	acts []scheduleAct
}

// scheduleAct is an act on a schedule.
type scheduleAct struct {
	at   time.Duration
	kind string
	pick uint64
}

func (p *plannedSchedule) String() string {
	return fmt.Sprintf("schedule %s: at %s every %s, overlap %s, %d acts", p.name, p.at, p.set.Every, p.set.OverlapRule(), len(p.acts))
}

// drawSchedules draws the schedules of a seed: mostly none.
func (w *world) drawSchedules(r *rand.Rand) error {
	n := 0
	if r.IntN(3) == 0 {
		n = 1 + r.IntN(2)
	}
	if slices.Contains(w.cfg.Without, "schedules") {
		n = 0
	}
	for i := range n {
		d, err := drawJob(r, 1000+i, func(map[string]any, *recipe) {}, func(map[string]any) {}, func(_, _ map[string]any) map[string]*offspring { return nil })
		if err != nil {
			return err
		}
		keyless := *d.plan.Definition
		keyless.Key, keyless.Unique = "", nil
		d.plan.Definition = &keyless
		text := definition.Canonical(d.plan)
		plans, err := compiler.Parse(text, definition.JSON, definition.Options{})
		if err != nil {
			return err
		}
		recipes := map[string]recipe{}
		for i := range d.plan.Steps {
			recipes[d.plan.Steps[i].Name] = d.recipes[i]
		}
		plan := *plans[0]
		plan.Shape = w.watch(plan.Shape)
		d = &draft{plan: &plan, output: d.output}
		for i := range plan.Steps {
			d.recipes = append(d.recipes, recipes[plan.Steps[i].Name])
		}
		w.drafts[plan.Hash] = d
		until := startTime.Add(chaos - time.Duration(r.IntN(10))*time.Second).Truncate(time.Second)
		p := plannedSchedule{name: fmt.Sprintf("s%d", i), at: time.Duration(r.Int64N(int64(5 * time.Second))),
			set: operate.ScheduleSettings{Every: perdure.Duration(time.Duration(3+r.IntN(6)) * time.Second), Until: &until, Job: operate.ScheduleJob{Definition: text},
				Overlap: operate.ScheduleOverlaps[r.IntN(len(operate.ScheduleOverlaps))], Jitter: perdure.Duration(time.Duration(r.IntN(3)) * 500 * time.Millisecond)}}
		if r.IntN(2) == 0 {
			p.set.CatchUp = &operate.ScheduleCatchUp{Max: new(r.IntN(4))}
		}
		if r.IntN(3) == 0 {
			p.set.PauseAfter = 1 + r.IntN(3)
		}
		for range r.IntN(5) {
			p.acts = append(p.acts, scheduleAct{at: time.Duration(r.Int64N(int64(chaos))), kind: []string{"pause", "resume", "resume", "catch up", "trigger", "trigger", "backfill", "replace", "delete"}[r.IntN(9)], pick: r.Uint64()})
		}
		if p.rule, err = timetable.RuleOf(&p.set); err != nil {
			return err
		}
		w.schedules = append(w.schedules, p)
	}
	return nil
}

// schedulesText describes the schedules of the seed.
func (w *world) schedulesText() (text string) {
	for i := range w.schedules {
		text += "\n  " + w.schedules[i].String()
	}
	return text
}

// startSchedules lets clients create the schedules of the seed, and operators act on them.
func (w *world) startSchedules() {
	for i := range w.schedules {
		p := &w.schedules[i]
		w.After(p.at, w.clients, func() { w.clients.Go(func() { w.putSchedule(p, &p.set) }) })
		for _, a := range p.acts {
			w.After(max(a.at, p.at+time.Second), w.clients, func() { w.clients.Go(func() { w.actOnSchedule(p, a) }) })
		}
	}
}

// putSchedule repeats the call until it is answered.
func (w *world) putSchedule(p *plannedSchedule, set *operate.ScheduleSettings) {
	for range 8 {
		_, err := ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (*operate.ScheduleView, error) {
			v, _, err := n.real.PutSchedule(ctx, operate.ScheduleRequest{Name: p.name, Author: operator, ScheduleSettings: *set})
			return v, err
		})
		w.logLine("schedule %s is put: %v", p.name, err)
		if err == nil || perdure.CodeOf(err) == perdure.CodeInvalid {
			return
		}
		w.clients.Wait(context.Background(), w.upTo(2*time.Second), nil)
	}
}

// actOnSchedule is an operator who acts once, and may get no answer.
func (w *world) actOnSchedule(p *plannedSchedule, a scheduleAct) {
	if a.kind == "replace" {
		set := p.set
		set.Overlap = operate.ScheduleOverlaps[a.pick%4]
		w.putSchedule(p, &set)
		return
	}
	_, err := ask(context.Background(), w, w.clients, callAct, func(ctx context.Context, n *node) (bool, error) {
		var err error
		switch a.kind {
		case "pause":
			_, err = n.real.PauseSchedule(ctx, operate.SchedulePause{Name: p.name, Author: operator})
		case "resume", "catch up":
			_, err = n.real.ResumeSchedule(ctx, operate.ScheduleResume{Name: p.name, Author: operator, CatchUp: a.kind == "catch up"})
		case "trigger":
			r := operate.ScheduleTrigger{Name: p.name, Author: operator}
			if a.pick%2 == 0 { // a time of the rule: one that was handled, or one of the future
				r.At, _ = p.rule.Next(startTime.Add(time.Duration(a.pick >> 8 % uint64(chaos))))
			}
			_, err = n.real.TriggerSchedule(ctx, r)
		case "backfill":
			_, err = n.real.BackfillSchedule(ctx, operate.ScheduleBackfill{Name: p.name, Author: operator, From: startTime.Add(-20 * time.Second), To: startTime, Parallel: 1 + int(a.pick%2), Again: a.pick>>8%3 == 0})
		case "delete":
			err = n.real.DeleteSchedule(ctx, p.name, operator)
		}
		return true, err
	})
	w.logLine("schedule %s: %s: %v", p.name, a.kind, err)
}

// resumeSchedules lets an operator resume the schedules that are paused, long after some of their times. It returns false if
// there are none.
func (w *world) resumeSchedules() (any bool) {
	for i := range w.schedules {
		p := &w.schedules[i]
		row, err := w.inner.Schedule(context.Background(), p.name)
		w.must(err)
		if row == nil || !row.Paused {
			continue
		}
		any = true
		w.clients.Go(func() { w.actOnSchedule(p, scheduleAct{kind: "catch up"}) })
	}
	w.Settle(w.clients)
	return any
}

// scheduled is what a transaction has done to schedules.
type scheduled struct {
	before map[string]*kernel.Schedule // as they were locked; nil: there was none
	rows   map[string]*kernel.Schedule // as they were written
	lines  []kernel.Firing
}

func (t *watchedTx) LockSchedules(names []string) ([]*kernel.Schedule, error) {
	rows, err := t.Tx.LockSchedules(names)
	for _, row := range rows {
		if _, known := t.scheduled.before[row.Name]; !known {
			if t.scheduled.before == nil {
				t.scheduled.before = map[string]*kernel.Schedule{}
			}
			t.scheduled.before[row.Name] = new(*row)
		}
	}
	return rows, err
}

func (t *watchedTx) PutSchedule(s *kernel.Schedule) error {
	if t.scheduled.rows == nil {
		t.scheduled.rows = map[string]*kernel.Schedule{}
	}
	t.scheduled.rows[s.Name] = new(*s)
	return t.Tx.PutSchedule(s)
}

func (t *watchedTx) PutFirings(lines []kernel.Firing) error {
	for _, f := range lines {
		earlier := func(o kernel.Firing) bool { return o.Key() == f.Key() } // an operator triggers a time that has just come
		t.scheduled.lines = append(slices.DeleteFunc(t.scheduled.lines, earlier), f)
	}
	return t.Tx.PutFirings(lines)
}

// schedulesCommitted checks a committed transaction: each nominal time that it has passed has a job, or waits, or is recorded
// as skipped, and only one of these (I27). Only an operator who resumes a schedule, or deletes it, may leave times out.
func (w *world) schedulesCommitted(n *node, t *watchedTx) {
	for _, name := range slices.Sorted(maps.Keys(t.scheduled.rows)) {
		now, before := t.scheduled.rows[name], t.scheduled.before[name]
		w.logLine("%s writes schedule %s: next %s, due %s, paused %v, fired %d", n.proc.Name, name, now.Next.Format(time.TimeOnly), now.DueAt.Format("15:04:05.000"), now.Paused, now.Fired)
		w.mix(uint64(now.Next.Unix()), uint64(now.Fired), uint64(now.SkippedCatchUp+now.SkippedOverlap))
		if before == nil || before.Next.IsZero() {
			continue
		}
		if !now.Next.IsZero() && now.Next.Before(before.Next) {
			w.wrong("I27", "schedule %s goes back from %s to %s", name, before.Next, now.Next)
		}
		if w.clockOffset < 0 && now.Fired > before.Fired {
			w.hit("F171")
		}
		if !before.Paused && now.Paused && now.Failures > 0 {
			w.hit("F172")
		}
		if before.Paused && !now.Paused || before.Version != now.Version {
			w.hit("F288")
			continue
		}
		set, err := now.Parse()
		w.must(err)
		rule, err := timetable.RuleOf(set)
		w.must(err)
		for at, ok := before.Next, true; ok && (now.Next.IsZero() || at.Before(now.Next)); at, ok = rule.Next(at) {
			w.checkNominal(t, name, at)
		}
	}
	for i := range t.scheduled.lines {
		f := &t.scheduled.lines[i]
		switch {
		case f.Reason == operate.FiringTrigger:
			w.hit("F173")
		case f.Reason == operate.FiringBackfill:
			w.hit("F174")
		case f.Reason == operate.FiringReplaced:
			w.hit("F169")
		case f.State == operate.FiringSkipped && f.Reason == operate.FiringOverlap:
			w.hit("F168")
		case f.State == operate.FiringSkipped && f.Reason == operate.FiringCatchUp:
			w.hit("F170")
		}
		if !w.faultsEnded && n.born > 1 && f.State == operate.FiringRunning {
			w.hit("F285")
		}
	}
}

// checkNominal checks that a nominal time that a schedule has passed has exactly one job, or one line that says why not.
func (w *world) checkNominal(t *watchedTx, name string, at time.Time) {
	key := kernel.FiringKey{Schedule: name, Nominal: at}
	jobs := 0
	for _, j := range w.book.jobs {
		if j.plan.Definition.Key == key.JobKey() {
			jobs++
		}
	}
	lines := 0
	for i := range t.scheduled.lines {
		f := &t.scheduled.lines[i]
		switch {
		case f.Schedule != name:
		case f.Again == kernel.SkipLine && !at.Before(f.Nominal) && (f.Nominal.Equal(at) || !at.After(f.To)):
			lines++
		case f.Again == 0 && f.Nominal.Equal(at) && (f.State == operate.FiringWaiting || f.State == operate.FiringSkipped):
			lines++
		}
	}
	if jobs+lines != 1 {
		w.wrong("I27", "schedule %s has passed %s, which has %d jobs, and %d lines say that it has none", name, at, jobs, lines)
	}
}

// ownSchedule returns the draft of a job of a schedule, with the key of the job.
func ownSchedule(d *draft, key string) *draft {
	if _, ok := kernel.FiringOf(key); !ok {
		return d
	}
	return &draft{plan: timetable.WithKey(d.plan, key), recipes: d.recipes, output: d.output}
}

// auditSchedules checks that no schedule was left behind: its times were handled, the news of its jobs are counted, and the
// lines agree with the jobs.
func (w *world) auditSchedules() {
	ctx := context.Background()
	for i := range w.schedules {
		name := w.schedules[i].name
		row, err := w.inner.Schedule(ctx, name)
		w.must(err)
		if row == nil {
			continue
		}
		now := w.storeNow()
		if !row.Paused && !row.DueAt.IsZero() && now.Sub(row.DueAt) > slack {
			w.wrong("I27", "schedule %s has been due since %s", name, now.Sub(row.DueAt))
		}
		lines, err := w.inner.Firings(ctx, name, kernel.FiringKey{}, 1000)
		w.must(err)
		for _, f := range lines {
			switch {
			case f.News:
				w.wrong("I27", "schedule %s has not counted the job of %s", name, f.Nominal)
			case f.State == operate.FiringWaiting || f.State == operate.FiringSkipped:
				if f.Job != (perdure.JobID{}) {
					w.wrong("I27", "schedule %s: %s is %s, and has job %s", name, f.Nominal, f.State, f.Job)
				}
			case w.book.jobs[f.Job] == nil || w.book.jobs[f.Job].plan.Definition.Key != f.Key().JobKey():
				w.wrong("I27", "schedule %s: %s has job %s, which is not its own", name, f.Nominal, f.Job)
			case f.Unsettled() && w.job(f.Job).Phase == perdure.Settled:
				w.wrong("I27", "schedule %s: the job of %s is settled, and its line is %s", name, f.Nominal, f.State)
			}
		}
	}
}
