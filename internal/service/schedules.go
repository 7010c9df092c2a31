package service

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/timetable"
	"github.com/perdure/perdure/operate"
)

// CompileWith returns a function that compiles a definition in JSON, for a timetable.Book.
func CompileWith(c Compiler) timetable.Compile {
	return func(body, values []byte) (*kernel.Plan, error) {
		if values != nil {
			return c.ParseStored(body, values, definition.Options{})
		}
		plans, err := c.Parse(body, definition.JSON, definition.Options{})
		if err != nil {
			return nil, err
		}
		return plans[0], nil // JSON has one
	}
}

// PutSchedule implements operate.Schedules.
func (svc *Service) PutSchedule(ctx context.Context, r operate.ScheduleRequest) (*operate.ScheduleView, bool, error) {
	if err := cmp.Or(svc.ended(), checkAuthor(r.Author), r.Check()); err != nil {
		return nil, false, err
	}
	set := r.ScheduleSettings
	if err := plainDefinition(&set.Job); err != nil {
		return nil, false, err
	}
	rule, err := timetable.RuleOf(&set)
	if err != nil {
		return nil, false, err
	}
	now, err := svc.Store.Now(ctx)
	if err != nil {
		return nil, false, Unreachable(err)
	}
	sample, ok := rule.Next(now)
	if !ok {
		sample = now.Truncate(time.Second)
	}
	plan, err := svc.Schedules.Check(ctx, &set.Job, r.Name, sample)
	if err != nil {
		return nil, false, err
	}
	if err := svc.maySubmit(ctx, plan); err != nil {
		return nil, false, err
	}
	if err := svc.keepPlan(ctx, plan); err != nil {
		return nil, false, err
	}
	text, err := encodeSettings(&set)
	if err != nil {
		return nil, false, err
	}
	put := svc.Scheduler.PutSchedule
	if r.DryRun {
		put = svc.Scheduler.PreviewSchedule
	}
	row, created, err := put(ctx, r.Name, r.Author, text, &set, rule)
	if err != nil {
		return nil, false, Unreachable(err)
	}
	if !r.DryRun {
		svc.Log.InfoContext(ctx, "schedule set", "schedule", r.Name, "author", r.Author)
	}
	v, err := svc.scheduleView(ctx, row)
	return v, created, err
}

// plainDefinition replaces the text of a job file by the definition that it has. The name of a stored definition stays.
func plainDefinition(job *operate.ScheduleJob) error {
	var file string
	if json.Unmarshal(job.Definition, &file) == nil {
		if ref, err := kernel.ParseDefinitionRef(strings.TrimSpace(file)); err == nil {
			job.Definition, err = json.Marshal(ref.String())
			return err
		}
		read, err := definition.ToJSON([]byte(file), definition.YAML)
		if err != nil {
			return err
		}
		if read[0] == '"' { // one word is a name, not a file
			_, err := kernel.ParseDefinitionRef(strings.TrimSpace(file))
			return timetable.RefuseDefinition(err)
		}
		job.Definition = read
	}
	return nil
}

// encodeSettings returns settings as they are stored. Equal settings give equal texts.
func encodeSettings(set *operate.ScheduleSettings) ([]byte, error) {
	stored := *set
	stored.Paused = nil
	stored.At = slices.Clone(set.At)
	for i := range stored.At {
		stored.At[i] = stored.At[i].UTC()
	}
	for _, t := range []**time.Time{&stored.From, &stored.Until} {
		if *t != nil {
			*t = new((*t).UTC())
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(&stored); err != nil {
		return nil, err
	}
	text := bytes.TrimSpace(b.Bytes())
	if len(text) > operate.MaxScheduleBytes {
		return nil, perdure.Refuse(perdure.CodeTooLarge, "the settings of a schedule have %d bytes; at most %d", len(text), operate.MaxScheduleBytes)
	}
	return text, nil
}

// scheduleView returns a schedule as it is shown.
func (svc *Service) scheduleView(ctx context.Context, s *kernel.Schedule) (*operate.ScheduleView, error) {
	set, rule, err := svc.Schedules.Rule(s)
	if err != nil { // another version of the program may have stored it
		if set, err = s.Parse(); err != nil {
			return nil, err
		}
	}
	v := &operate.ScheduleView{Name: s.Name, Version: s.Version, ScheduleSettings: *set, State: s.State(), PausedReason: s.PausedCause,
		Next: []time.Time{}, Running: []perdure.JobID{}, Fired: s.Fired, Failures: s.Failures,
		Skipped: operate.ScheduleSkipped{Overlap: s.SkippedOverlap, CatchUp: s.SkippedCatchUp}, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt}
	v.Paused, v.Overlap = &s.Paused, set.OverlapRule()
	if rule != nil {
		v.Next = append(v.Next, s.Upcoming(rule, operate.DefaultNextTimes)...)
	}
	if !s.Last.IsZero() {
		v.Last = &operate.ScheduleLast{Time: s.Last, Job: s.LastJob}
	}
	if b := &s.Backfill; !b.Next.IsZero() {
		v.Backfill = &operate.BackfillView{From: b.From, To: b.Until, Parallel: b.Parallel, Again: b.Again, Next: b.Next}
	}
	open, err := svc.Store.OpenFiringsOf(ctx, s.Name, kernel.MaxOpenFirings)
	if err != nil {
		return nil, Unreachable(err)
	}
	slices.SortFunc(open, func(a, b kernel.Firing) int { return a.Key().Compare(b.Key()) })
	for i := range open {
		switch f := &open[i]; {
		case f.State == operate.FiringWaiting:
			v.Waiting = append(v.Waiting, f.Nominal)
		case f.Unsettled() && len(v.Running) < operate.MaxNextTimes:
			v.Running = append(v.Running, f.Job)
		}
	}
	return v, nil
}

func (svc *Service) schedule(ctx context.Context, name string) (*kernel.Schedule, error) {
	s, err := svc.Store.Schedule(ctx, name)
	switch {
	case err != nil:
		return nil, Unreachable(err)
	case s == nil:
		return nil, kernel.ErrNoSchedule(name)
	}
	return s, nil
}

// GetSchedule implements operate.Schedules.
func (svc *Service) GetSchedule(ctx context.Context, name string) (*operate.ScheduleView, error) {
	s, err := svc.schedule(ctx, name)
	if err != nil {
		return nil, err
	}
	return svc.scheduleView(ctx, s)
}

// scheduleCursor begins the cursors of lists of schedules.
const scheduleCursor = "schedule:"

// ListSchedules implements operate.Schedules.
func (svc *Service) ListSchedules(ctx context.Context, q operate.ScheduleQuery) (*perdure.Page[operate.ScheduleView], error) {
	limit := min(cmp.Or(max(q.Limit, 0), perdure.DefaultListLimit), perdure.MaxListLimit)
	after, ok := strings.CutPrefix(q.Cursor, scheduleCursor)
	if q.Cursor != "" && !ok {
		return nil, perdure.Refuse(perdure.CodeInvalid, "the cursor is not one of a list of schedules")
	}
	page := &perdure.Page[operate.ScheduleView]{Items: []operate.ScheduleView{}}
	for {
		rows, err := svc.Store.Schedules(ctx, after, limit)
		if err != nil {
			return nil, Unreachable(err)
		}
		for _, s := range rows {
			after = s.Name
			if q.State != "" && s.State() != q.State {
				continue
			}
			v, err := svc.scheduleView(ctx, s)
			if err != nil {
				return nil, err
			}
			if page.Items = append(page.Items, *v); len(page.Items) == limit {
				page.NextCursor = scheduleCursor + after
				return page, nil
			}
		}
		if len(rows) < limit {
			return page, nil
		}
	}
}

// DeleteSchedule implements operate.Schedules.
func (svc *Service) DeleteSchedule(ctx context.Context, name, author string) error {
	if err := cmp.Or(svc.ended(), checkAuthor(author)); err != nil {
		return err
	}
	if err := svc.Scheduler.DeleteSchedule(ctx, name, author); err != nil {
		return Unreachable(err)
	}
	svc.Log.InfoContext(ctx, "schedule deleted", "schedule", name, "author", author)
	return nil
}

// PauseSchedule implements operate.Schedules.
func (svc *Service) PauseSchedule(ctx context.Context, r operate.SchedulePause) (*operate.ScheduleView, error) {
	if err := cmp.Or(svc.ended(), checkAuthor(r.Author), r.Check()); err != nil {
		return nil, err
	}
	return svc.changeSchedule(ctx, "pauseSchedule", "schedule paused", r.Name, r.Author, r.Reason, func(_ kernel.Tx, row *kernel.Schedule, _ time.Time) (bool, error) {
		if row.Paused {
			return false, nil
		}
		cause := "paused by " + r.Author
		if r.Reason != "" {
			cause += ": " + r.Reason
		}
		row.Pause(cause)
		return true, nil
	})
}

// ResumeSchedule implements operate.Schedules.
func (svc *Service) ResumeSchedule(ctx context.Context, r operate.ScheduleResume) (*operate.ScheduleView, error) {
	if err := cmp.Or(svc.ended(), checkAuthor(r.Author)); err != nil {
		return nil, err
	}
	reason := ""
	if r.CatchUp {
		reason = "with catch-up"
	}
	return svc.changeSchedule(ctx, "resumeSchedule", "schedule resumed", r.Name, r.Author, reason, func(_ kernel.Tx, row *kernel.Schedule, now time.Time) (bool, error) {
		_, rule, err := svc.Schedules.Rule(row)
		if err != nil || !row.Paused {
			return false, err
		}
		row.Resume(rule, r.CatchUp, now)
		return true, nil
	})
}

func (svc *Service) changeSchedule(ctx context.Context, act, message, name, author, reason string, change func(kernel.Tx, *kernel.Schedule, time.Time) (bool, error)) (*operate.ScheduleView, error) {
	row, err := svc.Scheduler.ChangeSchedule(ctx, act, name, author, reason, change)
	if err != nil {
		return nil, Unreachable(err)
	}
	svc.Log.InfoContext(ctx, message, "schedule", name, "author", author)
	return svc.scheduleView(ctx, row)
}

// TriggerSchedule implements operate.Schedules.
func (svc *Service) TriggerSchedule(ctx context.Context, r operate.ScheduleTrigger) (*operate.ScheduleFired, error) {
	if err := cmp.Or(svc.ended(), checkAuthor(r.Author), svc.Refuse()); err != nil {
		return nil, err
	}
	fired, err := svc.Scheduler.TriggerSchedule(ctx, r, svc.Schedules)
	if err != nil {
		return nil, Unreachable(err)
	}
	svc.Log.InfoContext(ctx, "schedule triggered", "schedule", r.Name, "job", fired.Job, "author", r.Author)
	return fired, nil
}

// BackfillSchedule implements operate.Schedules.
func (svc *Service) BackfillSchedule(ctx context.Context, r operate.ScheduleBackfill) (*operate.BackfillView, error) {
	if err := cmp.Or(svc.ended(), checkAuthor(r.Author), r.Check()); err != nil {
		return nil, err
	}
	s, err := svc.schedule(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	_, rule, err := svc.Schedules.Rule(s)
	if err != nil {
		return nil, err
	}
	row, times, ready, err := svc.Scheduler.BackfillSchedule(ctx, &r, rule)
	if err != nil {
		return nil, Unreachable(err)
	}
	if !r.DryRun {
		svc.Log.InfoContext(ctx, "backfill started", "schedule", r.Name, "times", len(ready), "author", r.Author)
	}
	b := &row.Backfill
	return &operate.BackfillView{From: b.From, To: b.Until, Parallel: b.Parallel, Again: b.Again, Times: times, Ready: len(ready), First: ready[:min(len(ready), operate.MaxNextTimes)], Next: b.Next}, nil
}

// NextTimes implements operate.Schedules.
func (svc *Service) NextTimes(ctx context.Context, name string, n int) ([]time.Time, error) {
	if n = cmp.Or(n, operate.DefaultNextTimes); n < 1 || n > operate.MaxNextTimes {
		return nil, perdure.Refuse(perdure.CodeInvalid, "n is 1 to %d, not %d", operate.MaxNextTimes, n)
	}
	s, err := svc.schedule(ctx, name)
	if err != nil {
		return nil, err
	}
	_, rule, err := svc.Schedules.Rule(s)
	if err != nil {
		return nil, err
	}
	return append([]time.Time{}, s.Upcoming(rule, n)...), nil
}

// ListFirings implements operate.Schedules.
func (svc *Service) ListFirings(ctx context.Context, q operate.FiringQuery) (*perdure.Page[operate.Firing], error) {
	limit := min(cmp.Or(max(q.Limit, 0), perdure.DefaultListLimit), perdure.MaxListLimit)
	before, err := firingAt(q.Cursor)
	if err != nil {
		return nil, err
	}
	if _, err := svc.schedule(ctx, q.Name); err != nil {
		return nil, err
	}
	lines, err := svc.Store.Firings(ctx, q.Name, before, limit+1)
	if err != nil {
		return nil, Unreachable(err)
	}
	page := &perdure.Page[operate.Firing]{Items: []operate.Firing{}}
	for i := range lines {
		if i == limit {
			page.NextCursor = firingCursor(lines[i-1].Key())
			break
		}
		f := &lines[i]
		item := operate.Firing{Time: f.Nominal, To: f.To, Again: max(f.Again, 0), State: f.State, Reason: f.Reason, Job: f.Job, At: f.At}
		if f.Times > 1 {
			item.Times = f.Times
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}

// firingPrefix begins the cursors of histories of schedules. A nominal time and the number of the repetition follow.
const firingPrefix = "firing:"

func firingCursor(k kernel.FiringKey) string {
	return firingPrefix + strconv.FormatInt(k.Nominal.Unix(), 10) + ":" + strconv.Itoa(k.Again)
}

func firingAt(cursor string) (k kernel.FiringKey, err error) {
	if cursor == "" {
		return k, nil
	}
	rest, ok := strings.CutPrefix(cursor, firingPrefix)
	at, again, cut := strings.Cut(rest, ":")
	seconds, secondsErr := strconv.ParseInt(at, 10, 64)
	n, againErr := strconv.Atoi(again)
	if !ok || !cut || secondsErr != nil || againErr != nil || seconds <= 0 {
		return k, perdure.Refuse(perdure.CodeInvalid, "the cursor is not one of a history of a schedule")
	}
	return kernel.FiringKey{Nominal: time.Unix(seconds, 0).UTC(), Again: n}, nil
}
