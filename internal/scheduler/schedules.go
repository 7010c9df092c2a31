package scheduler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// FireSchedules handles schedules that are due: it submits at most room jobs. Each schedule is decided in one transaction,
// which submits its jobs and writes its row. So a nominal time has its job exactly if the row has passed it, whenever a
// node dies. If the context has a leadership that is no longer valid, the error is kernel.ErrDeposed.
func (s *Scheduler) FireSchedules(ctx context.Context, due []*kernel.Schedule, room int, book kernel.ScheduleBook) (kernel.Fired, error) {
	var leadership *kernel.Leadership
	if m, ok := kernel.LeadershipOf(ctx); ok {
		leadership = &m
	}
	due = slices.SortedFunc(slices.Values(due), func(a, b *kernel.Schedule) int { return strings.Compare(a.Name, b.Name) })
	admitted := 0
	for ; admitted < room; admitted++ {
		if err := s.backlog.admit(ctx); err != nil {
			if perdure.CodeOf(err) != perdure.CodeBacklogFull {
				return kernel.Fired{}, err
			}
			break
		}
	}
	ops, requests, done := make([]fireOp, len(due)), make([]*request, len(due)), make(chan struct{}, len(due))
	left := admitted
	for i, sched := range due {
		replaced, err := s.replaceable(ctx, sched, book)
		if err == nil {
			err = book.Load(ctx, sched)
		}
		if err != nil {
			for range admitted {
				s.backlog.answered(false)
			}
			return kernel.Fired{}, err
		}
		// The room is divided before it is known who needs it. A schedule that gets too little is due again at once.
		share := (left + len(due) - i - 1) / (len(due) - i)
		left -= share
		ops[i] = fireOp{name: sched.Name, room: share, book: book, leadership: leadership, replaced: replaced}
		requests[i] = newRequest(&ops[i], 1+len(replaced)+share, done)
	}
	err := s.doAll(ctx, requests, done)
	if err != nil {
		return kernel.Fired{}, err // the requests may still be carried out; the backlog counts itself again
	}
	var out kernel.Fired
	for i := range ops {
		if rerr := requests[i].err; rerr != nil {
			err = cmp.Or(err, rerr)
			continue
		}
		out.Jobs += len(ops[i].submitted)
		out.Late = max(out.Late, ops[i].late)
		out.Left = out.Left || ops[i].left
	}
	for n := range admitted {
		s.backlog.answered(n < out.Jobs)
	}
	if admitted < room {
		out.Left = true
	}
	return out, err
}

// replaceable returns the jobs that a schedule may undo in favour of the next one. They are locked before the others.
func (s *Scheduler) replaceable(ctx context.Context, sched *kernel.Schedule, book kernel.ScheduleBook) (jobs []perdure.JobID, err error) {
	set, _, err := book.Rule(sched)
	if err != nil || set.OverlapRule() != operate.OverlapReplace {
		return nil, nil // a rule that cannot be read is handled in the transaction
	}
	store, ok := s.cfg.Store.(interface {
		OpenFiringsOf(ctx context.Context, schedule string, max int) ([]kernel.Firing, error)
	})
	if !ok {
		return nil, nil
	}
	open, err := store.OpenFiringsOf(ctx, sched.Name, kernel.MaxOpenFirings)
	for i := range open {
		if open[i].Replaceable() {
			jobs = append(jobs, open[i].Job)
		}
	}
	return jobs, err
}

// fireOp decides one schedule.
type fireOp struct {
	name       string
	room       int
	book       kernel.ScheduleBook
	leadership *kernel.Leadership
	replaced   []perdure.JobID // jobs that may be undone

	submitted []*submitOp
	late      time.Duration
	left      bool
}

func (o *fireOp) jobs() []perdure.JobID { return o.replaced }

func (o *fireOp) refs(b *batch) (refs []kernel.StepRef) {
	for _, id := range o.replaced {
		refs = append(refs, (&actOp{id: id}).refs(b)...)
	}
	return refs
}

// apply decides the schedule. After an indeterminate commit the row shows what was done. apply returns no error with a
// code after it has written something: the request would be refused, and the writing kept.
func (o *fireOp) apply(b *batch) error {
	o.submitted, o.late, o.left = nil, 0, false
	if err := b.admit(o.leadership); err != nil {
		return err
	}
	rows, err := b.tx.LockSchedules([]string{o.name})
	if err != nil || len(rows) == 0 {
		return err
	}
	row := rows[0]
	set, rule, err := o.book.Rule(row)
	if err != nil {
		row.Pause("its settings cannot be read on this node: " + err.Error())
		b.refusals = append(b.refusals, kernel.AlertOfSchedule(row, b.w.Now()))
		return b.tx.PutSchedule(row)
	}
	open, err := b.tx.OpenFirings(o.name, kernel.MaxOpenFirings)
	if err != nil {
		return err
	}
	version, err := kernel.CurrentVersion(b.tx, &set.Job)
	if err != nil {
		return err
	}
	if set.OverlapRule() == operate.OverlapReplace && o.lacks(b, open) || !o.book.Loaded(row, version) {
		o.left = true
		return nil
	}
	haveJobs, failed := b.haveJobs()
	did := row.Decide(&kernel.ScheduleState{Settings: set, Rule: rule, Open: open, HaveJobs: haveJobs}, b.w.Now(), o.room)
	if *failed != nil {
		return *failed
	}
	lines := did.Lines
	for _, f := range did.Start {
		plan, err := o.book.Plan(row, f.Key(), version)
		if err != nil {
			if did.Cause == "" {
				did.Cause = err.Error()
			}
			lines = append(lines, row.Refuse(f, err.Error()))
			continue
		}
		sub, err := b.submit(plan)
		if err != nil {
			return err
		}
		o.submitted = append(o.submitted, sub)
		lines = append(lines, row.Started(f, sub.id))
	}
	for _, id := range did.Undo {
		act := &actOp{id: id, act: perdure.Act{Verb: perdure.VerbUndo, Author: "schedule " + o.name, Reason: "replaced by the next job of the schedule"}}
		if err := act.apply(b); err != nil && perdure.CodeOf(err) == "" {
			return err
		}
	}
	if did.Cause != "" {
		b.refusals = append(b.refusals, kernel.AlertOfSchedule(row, b.w.Now()))
	}
	o.late = did.Late
	if err := b.tx.PutSchedule(row); err != nil {
		return err
	}
	return b.tx.PutFirings(lines)
}

// lacks reports whether a job that may have to be undone was not locked. The next round locks it.
func (o *fireOp) lacks(b *batch, open []kernel.Firing) bool {
	return slices.ContainsFunc(open, func(f kernel.Firing) bool {
		return f.Replaceable() && !b.w.Has(f.Job) && b.s.Quarantined(f.Job) == nil
	})
}

// haveJobs returns a function that reports which lines have jobs. Its first error is kept in failed.
func (b *batch) haveJobs() (have func([]kernel.FiringKey) map[kernel.FiringKey]bool, failed *error) {
	failed = new(error)
	have = func(keys []kernel.FiringKey) map[kernel.FiringKey]bool {
		has := map[kernel.FiringKey]bool{}
		for some := range slices.Chunk(keys, perdure.MaxBatch) {
			texts := make([]string, len(some))
			for i, k := range some {
				texts[i] = k.JobKey()
			}
			found, err := b.tx.JobsByKey(texts)
			*failed = cmp.Or(*failed, err)
			for i, k := range some {
				_, stored := found[texts[i]]
				_, here := b.keys[texts[i]]
				if stored || here {
					has[k] = true
				}
			}
		}
		return has
	}
	return have, failed
}

// jobOfKey returns the job with a key, of this transaction or of the store.
func (b *batch) jobOfKey(key string) (perdure.JobID, bool, error) {
	if job, known := b.keys[key]; known {
		return job.ID, true, nil
	}
	found, err := b.tx.JobsByKey([]string{key})
	job, known := found[key]
	return job.ID, known, err
}

// submit submits a job whose key is new.
func (b *batch) submit(plan *kernel.Plan) (*submitOp, error) {
	if b.keys == nil {
		b.keys = map[string]kernel.Keyed{}
	}
	sub := &submitOp{plan: plan, backlog: b.s.backlog}
	if err := sub.apply(b); err != nil {
		return nil, err
	}
	return sub, b.complete()
}

// TriggerSchedule submits the job of a nominal time at once; zero: of the present second.
func (s *Scheduler) TriggerSchedule(ctx context.Context, r operate.ScheduleTrigger, book kernel.ScheduleBook) (*operate.ScheduleFired, error) {
	if err := s.backlog.admit(ctx); err != nil {
		return nil, err
	}
	o := &triggerOp{r: r, book: book, audit: kernel.AuditOf(ctx, r.Author, "triggerSchedule"), backlog: s.backlog}
	o.audit.Target = r.Name
	for range definitionTries {
		if err := s.load(ctx, r.Name, book); err != nil {
			s.backlog.answered(false)
			return nil, err
		}
		o.stale = false
		if err := s.do(ctx, o, 1); err != nil {
			return nil, err
		}
		if !o.stale {
			return &o.out, nil
		}
		if err := s.backlog.admit(ctx); err != nil { // it was answered
			return nil, err
		}
	}
	s.backlog.answered(false)
	return nil, perdure.Refuse(perdure.CodeUnavailable, "the definition of schedule %s is being promoted: try again", r.Name)
}

// definitionTries is how often a job is made from a stored definition if another version is promoted meanwhile.
const definitionTries = 5

// load loads the stored definition that a schedule names.
func (s *Scheduler) load(ctx context.Context, name string, book kernel.ScheduleBook) error {
	row, err := s.cfg.Store.Schedule(ctx, name)
	if err != nil || row == nil {
		return err // the transaction finds that there is none
	}
	return book.Load(ctx, row)
}

type triggerOp struct {
	r       operate.ScheduleTrigger
	book    kernel.ScheduleBook
	audit   operate.AuditEntry
	backlog *backlog
	id      perdure.JobID // of an earlier try
	out     operate.ScheduleFired
	stale   bool // another version of the stored definition is the current one since it was loaded
}

func (o *triggerOp) jobs() []perdure.JobID        { return nil }
func (o *triggerOp) refs(*batch) []kernel.StepRef { return nil }
func (o *triggerOp) answered(err error)           { o.backlog.answered(err == nil && o.out.Created) }

func (o *triggerOp) apply(b *batch) error {
	rows, err := b.tx.LockSchedules([]string{o.r.Name})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return kernel.ErrNoSchedule(o.r.Name)
	}
	row := rows[0]
	nominal := o.r.At.UTC()
	if o.r.At.IsZero() {
		nominal = b.w.Now().UTC().Truncate(time.Second)
		o.r.At = nominal // a repeated try is for the same time
	}
	key := kernel.FiringKey{Schedule: row.Name, Nominal: nominal}
	if err := key.Check(); err != nil {
		return err
	}
	id, known, err := b.jobOfKey(key.JobKey())
	if err != nil {
		return err
	}
	o.out = operate.ScheduleFired{Time: nominal, Job: id, Created: id == o.id}
	set, rule, err := o.book.Rule(row)
	o.out.Unscheduled = err == nil && !rule.Names(nominal)
	if known {
		return nil
	}
	if err != nil {
		return err
	}
	version, err := kernel.CurrentVersion(b.tx, &set.Job)
	if err != nil {
		return err
	}
	if !o.book.Loaded(row, version) {
		o.stale = true
		return nil
	}
	plan, err := o.book.Plan(row, key, version)
	if err != nil {
		return err
	}
	sub, err := b.submit(plan)
	if err != nil {
		return err
	}
	o.id = sub.id
	o.out.Job, o.out.Created = sub.id, true
	f := row.Started(kernel.Firing{Schedule: row.Name, Nominal: nominal, Times: 1, State: operate.FiringRunning, Reason: operate.FiringTrigger, At: b.w.Now()}, sub.id)
	row.UpdatedAt = b.w.Now()
	b.addAudit(o.audit)
	if err := b.tx.PutSchedule(row); err != nil {
		return err
	}
	return b.tx.PutFirings([]kernel.Firing{f})
}

// lockSchedule locks a schedule; the error has CodeNotFound if there is none.
func lockSchedule(tx kernel.Tx, name string) (*kernel.Schedule, error) {
	rows, err := tx.LockSchedules([]string{name})
	switch {
	case err != nil:
		return nil, err
	case len(rows) == 0:
		return nil, kernel.ErrNoSchedule(name)
	}
	return rows[0], nil
}

// PutSchedule creates a schedule, or replaces its settings. If it has these settings, nothing changes.
func (s *Scheduler) PutSchedule(ctx context.Context, name, author string, settings []byte, set *operate.ScheduleSettings, rule *kernel.TimeRule) (row *kernel.Schedule, created bool, err error) {
	row, created, err = s.putSchedule(ctx, name, author, settings, set, rule, false)
	s.cfg.OnSchedule()
	return row, created, err
}

// PreviewSchedule returns what PutSchedule would, and stores nothing.
func (s *Scheduler) PreviewSchedule(ctx context.Context, name, author string, settings []byte, set *operate.ScheduleSettings, rule *kernel.TimeRule) (row *kernel.Schedule, created bool, err error) {
	row, created, err = s.putSchedule(ctx, name, author, settings, set, rule, true)
	if errors.Is(err, errPreview) {
		err = nil
	}
	return row, created, err
}

// errPreview ends a transaction that is not to be committed.
var errPreview = errors.New("a preview stores nothing")

func (s *Scheduler) putSchedule(ctx context.Context, name, author string, settings []byte, set *operate.ScheduleSettings, rule *kernel.TimeRule, preview bool) (row *kernel.Schedule, created bool, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		row, err = lockSchedule(tx, name)
		if perdure.CodeOf(err) == perdure.CodeNotFound {
			row, err = newSchedule(tx, name)
		}
		if err != nil {
			return err
		}
		if bytes.Equal(row.Settings, settings) && (set.Paused == nil || *set.Paused == row.Paused) {
			return nil
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		created = created || row.Version == 0 // also if the commit of an earlier try was indeterminate
		if ref, named := kernel.StoredName(&set.Job); named {
			if err := useDefinition(tx, ref, now); err != nil {
				return err
			}
		}
		wasPaused := row.Paused
		row.Replace(settings, set, rule, author, now)
		if preview {
			return errPreview
		}
		if err := tx.PutSchedule(row); err != nil {
			return err
		}
		if wasPaused && !row.Paused {
			if err := closeScheduleAlert(tx, name, author); err != nil {
				return err
			}
		}
		return auditSetting(ctx, tx, author, "putSchedule", name)
	})
	return row, created, err
}

// useDefinition checks that a stored definition exists, and marks its name as changed: a transaction that is about to
// delete it sees that there may be another schedule.
func useDefinition(tx kernel.Tx, ref kernel.DefinitionRef, now time.Time) error {
	head, err := findVersion(tx, ref)
	if err != nil {
		return err
	}
	used := *head
	used.UpdatedAt = now
	return tx.PutDefinition(used, head, nil)
}

// newSchedule returns the row of a new schedule. No other transaction adds one before this one ends.
func newSchedule(tx kernel.Tx, name string) (*kernel.Schedule, error) {
	if _, err := tx.LockRoles([]string{kernel.RoleSupervisor}); err != nil {
		return nil, err
	}
	row, err := lockSchedule(tx, name)
	if perdure.CodeOf(err) != perdure.CodeNotFound {
		return row, err
	}
	n, err := tx.CountSchedules()
	if err != nil {
		return nil, err
	}
	if n >= operate.MaxSchedules {
		e := perdure.Refuse(perdure.CodeConflict, "there are %d schedules, which is the maximum", n)
		e.Hint = "delete those that are not used"
		return nil, e
	}
	return &kernel.Schedule{Name: name}, nil
}

// closeScheduleAlert closes the alert that a schedule was paused. Receivers are notified of closed alerts of jobs only.
func closeScheduleAlert(tx kernel.Tx, name, author string) error {
	return tx.Save(&kernel.Changes{CloseAlerts: []kernel.CloseAlerts{kernel.ClosesOf(name, author)}})
}

// DeleteSchedule deletes a schedule with its history.
func (s *Scheduler) DeleteSchedule(ctx context.Context, name, author string) error {
	gone := false // an earlier try of this call, whose commit was indeterminate, may have deleted it
	return s.update(ctx, func(tx kernel.Tx) error {
		if _, err := lockSchedule(tx, name); err != nil {
			if gone && perdure.CodeOf(err) == perdure.CodeNotFound {
				return nil
			}
			return err
		}
		if _, err := tx.DeleteSchedule(name); err != nil {
			return err
		}
		gone = true
		if err := closeScheduleAlert(tx, name, author); err != nil {
			return err
		}
		return auditSetting(ctx, tx, author, "deleteSchedule", name)
	})
}

// ChangeSchedule changes a schedule, and records the change as act in the audit log. If change returns false, nothing is
// written. If the schedule is no longer paused, its alert is closed.
func (s *Scheduler) ChangeSchedule(ctx context.Context, act, name, author, reason string, change func(tx kernel.Tx, row *kernel.Schedule, now time.Time) (bool, error)) (row *kernel.Schedule, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		if row, err = lockSchedule(tx, name); err != nil {
			return err
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		wasPaused := row.Paused
		changed, err := change(tx, row, now)
		if err != nil || !changed {
			return err
		}
		row.UpdatedAt = now
		if err := tx.PutSchedule(row); err != nil {
			return err
		}
		if wasPaused && !row.Paused {
			if err := closeScheduleAlert(tx, name, author); err != nil {
				return err
			}
		}
		audit := kernel.AuditOf(ctx, author, act)
		audit.Target, audit.Reason = name, reason
		return saveAudit(tx, audit)
	})
	s.cfg.OnSchedule()
	return row, err
}

// errNothingStored ends the transaction of a dry run.
var errNothingStored = errors.New("a dry run stores nothing")

// BackfillSchedule starts a backfill. It returns the number of nominal times, and those that get a job.
func (s *Scheduler) BackfillSchedule(ctx context.Context, r *operate.ScheduleBackfill, rule *kernel.TimeRule) (row *kernel.Schedule, times int, ready []time.Time, err error) {
	reason := r.From.UTC().Format(time.RFC3339) + " to " + r.To.UTC().Format(time.RFC3339)
	if r.Again {
		reason += ", again"
	}
	var started kernel.Backfill
	row, err = s.ChangeSchedule(ctx, "backfillSchedule", r.Name, r.Author, reason, func(tx kernel.Tx, row *kernel.Schedule, now time.Time) (bool, error) {
		if b := row.Backfill; !b.Next.IsZero() && b.Again == started.Again && b.From.Equal(started.From) && b.Until.Equal(started.Until) {
			return false, nil // an earlier try of this call, whose commit was indeterminate
		}
		if times, ready, err = row.StartBackfill(rule, r, tx.JobsByKey, now); err != nil {
			return false, err
		}
		if r.DryRun {
			return false, errNothingStored
		}
		started = row.Backfill
		return true, nil
	})
	if errors.Is(err, errNothingStored) {
		err = nil
	}
	return row, times, ready, err
}
