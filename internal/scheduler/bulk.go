package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Bounds of one transaction of a bulk act. A page of 500 jobs does not fit into one transaction: an act may load all steps
// of a job, of which there are up to 10,000, and every claim and report on these jobs waits until the transaction ends.
const (
	maxBulkJobs  = 50
	maxBulkSteps = 2000 // of all its jobs, except that one job is always allowed
)

// BulkStep performs a bulk act on the first jobs of a page, in one transaction, and moves its cursor behind them. act is
// the row for which the page was read: if another transaction has stopped it or moved its cursor since, nothing is done.
// If the context has a leadership (kernel.LeadershipOf) that is no longer valid, the error is kernel.ErrDeposed.
func (s *Scheduler) BulkStep(ctx context.Context, act *kernel.BulkAct, page kernel.BulkPage) (kernel.BulkResult, error) {
	request, err := act.Decode()
	if err != nil {
		return kernel.BulkResult{}, err
	}
	o := &bulkOp{s: s, id: act.ID, from: act.Cursor, page: page, act: request.PerJob()}
	if len(page.Jobs) > maxBulkJobs {
		o.page.Jobs, o.page.Last = page.Jobs[:maxBulkJobs], false
		o.page.End = page.Jobs[maxBulkJobs-1]
	}
	if m, ok := kernel.LeadershipOf(ctx); ok {
		o.leadership = &m
	}
	crashpoint.Here(crashpoint.BulkQueue)
	if err := s.do(ctx, o, o.weight()); err != nil {
		return kernel.BulkResult{}, err // the step may still be carried out
	}
	crashpoint.Here(crashpoint.BulkDone)
	return kernel.BulkResult{Act: o.row, Took: o.took}, nil
}

// Working reports whether a transaction of this node is in progress.
func (s *Scheduler) Working() bool { return s.working.Load() > 0 }

type bulkOp struct {
	s          *Scheduler
	id         string
	from       perdure.JobID // the cursor for which the page was read
	page       kernel.BulkPage
	act        perdure.Act
	leadership *kernel.Leadership // nil if it needs none

	batch  *batch // the latest one that it was applied in
	beside int32  // transactions in progress at its beginning, with its own
	took   time.Duration
	row    *kernel.BulkAct // as it is written; nil: nothing was done
}

func (o *bulkOp) jobs() []perdure.JobID { return o.page.Jobs }

func (o *bulkOp) refs(b *batch) (refs []kernel.StepRef) {
	for _, id := range o.page.Jobs {
		refs = append(refs, (&actOp{id: id, act: o.act}).refs(b)...)
	}
	return refs
}

// answered measures for how long the writers worked on this: its share of the transaction, by weight. Transactions at the
// same time slow each other down, so that this one has taken only a part of that time from the others.
func (o *bulkOp) answered(error) {
	b := o.batch
	if b == nil {
		return
	}
	whole := o.s.env.Now().Sub(b.began)
	if !o.s.cfg.SingleWriter {
		whole = 2 * whole / time.Duration(max(2, o.beside+o.s.working.Load()))
	}
	o.took = whole * time.Duration(o.weight()) / time.Duration(max(o.weight(), b.weight+b.serving.Granted()))
}

func (o *bulkOp) weight() int { return 1 + len(o.page.Jobs) }

// apply acts on the jobs, and moves the cursor. After an indeterminate commit, the cursor shows whether it was done.
func (o *bulkOp) apply(b *batch) error {
	o.batch, o.beside, o.row = b, o.s.working.Load(), nil
	if err := b.admit(o.leadership); err != nil {
		return err
	}
	if slices.ContainsFunc(b.bulk, func(x savedBulk) bool { return x.row.ID == o.id }) {
		return nil // another leader's request in this transaction was first, and the store does not show it yet
	}
	row, err := b.tx.LockBulkAct(o.id)
	if err != nil || row == nil || row.State != operate.BulkRunning || row.Cursor != o.from {
		return err
	}
	defer b.SetBudget(b.budget)
	b.SetBudget(b.s.budget())
	var refusals []kernel.BulkRefusal
	steps := 0
	end, last := o.page.End, o.page.Last
	for i, id := range o.page.Jobs {
		if b.w.Has(id) {
			if steps += len(b.w.Plan(id).Steps); i > 0 && steps > maxBulkSteps {
				end, last = o.page.Jobs[i-1], false
				break
			}
			if matches, err := o.matches(b, row, id); err != nil {
				return err
			} else if !matches {
				continue
			}
		}
		refusal, err := o.actOn(b, row, id)
		if err != nil {
			return err
		}
		if refusal != nil {
			if row.Refused++; row.Refused <= operate.MaxBulkRefusals {
				refusals = append(refusals, kernel.BulkRefusal{Number: row.Refused, Job: id, Code: perdure.CodeOf(refusal), Message: refusal.Error()})
			}
		}
	}
	row.Cursor, row.UpdatedAt = end, b.w.Now()
	if last {
		row.State, row.EndedAt = operate.BulkDone, b.w.Now()
	}
	b.bulk = append(b.bulk, savedBulk{row, refusals})
	o.row = row
	return nil
}

// matches compares the filter again with a job, which may have changed since the page was read, or may have been submitted
// after the start by a node whose clock is behind: then its id is below the bound.
func (o *bulkOp) matches(b *batch, row *kernel.BulkAct, id perdure.JobID) (bool, error) {
	if o.page.Filter == nil {
		return true, nil
	}
	j := b.w.Job(id)
	if j.CreatedAt.After(row.StartedAt) {
		return false, nil
	}
	f := *o.page.Filter
	f.Alert = ""
	var steps []*kernel.Step
	if f.OfSteps() {
		if err := b.loadWhole(id); err != nil {
			return false, err
		}
		for i := range b.w.Plan(id).Steps {
			steps = append(steps, b.w.Step(kernel.StepRef{Job: id, Index: i}))
		}
	}
	return f.Matches(j, steps, nil), nil
}

// actOn performs the act on one job, as a single act does, and counts it. It returns the refusal of the rules.
func (o *bulkOp) actOn(b *batch, row *kernel.BulkAct, id perdure.JobID) (refusal, err error) {
	act := &actOp{id: id, act: o.act}
	switch err := act.apply(b); {
	case perdure.CodeOf(err) != "":
		return err, nil
	case err != nil:
		return nil, err
	case act.unneeded:
		row.Unchanged++
	default:
		row.Done++
	}
	return nil, nil
}

// savedBulk is the row of a bulk act to be written, and its new refusals.
type savedBulk struct {
	row      *kernel.BulkAct
	refusals []kernel.BulkRefusal
}

// saveBulk writes the bulk acts of this transaction, and returns those that are done.
func (b *batch) saveBulk() (finished []*kernel.BulkAct, err error) {
	saved := b.bulk
	b.bulk = nil
	for _, x := range saved {
		if err := b.tx.SaveBulkAct(x.row, x.refusals); err != nil {
			return nil, err
		}
		if x.row.State == operate.BulkDone {
			finished = append(finished, x.row)
		}
	}
	return finished, nil
}

// StartBulk stores a bulk act, and the jobs that it lists. If its key was used before, StartBulk returns the earlier one,
// or a conflict if that one is different.
func (s *Scheduler) StartBulk(ctx context.Context, act *kernel.BulkAct, listed []perdure.JobID) (started *kernel.BulkAct, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		running, err := lockBulkActs(tx)
		if err != nil {
			return err
		}
		if started, err = earlierBulk(tx, act); started != nil || err != nil {
			return err
		}
		if running >= operate.MaxBulkRunning {
			return errTooManyBulkActs(running)
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		row := *act
		row.State, row.StartedAt, row.UpdatedAt, row.ResumedAt = operate.BulkRunning, now, now, now
		if below := kernel.IDAt(now.Add(time.Millisecond)); below.Compare(row.Below) > 0 {
			row.Below = below
		}
		started = &row
		if err := tx.AddBulkAct(started, listed); err != nil {
			return err
		}
		return auditBulk(ctx, tx, "startBulk", row.Author, &row)
	})
	if err != nil {
		return nil, err
	}
	return started, nil
}

// earlierBulk returns the bulk act that an earlier try, or an earlier call with the same key, has stored.
func earlierBulk(tx kernel.Tx, act *kernel.BulkAct) (*kernel.BulkAct, error) {
	if row, err := tx.LockBulkAct(act.ID); row != nil || err != nil {
		return row, err // an earlier try of this call, whose commit was indeterminate (F006)
	}
	if act.Key == "" {
		return nil, nil
	}
	row, err := tx.BulkActByKey(act.Key)
	if err != nil || row == nil {
		return nil, err
	}
	if string(row.Request) != string(act.Request) || row.Reason != act.Reason {
		return nil, perdure.Refuse(perdure.CodeConflict, "key %s belongs to %s, which is another act or has other jobs: use another key", act.Key, row.ID)
	}
	return row, nil
}

// lockBulkActs returns how many bulk acts run. No other transaction starts or resumes one before this one ends.
func lockBulkActs(tx kernel.Tx) (running int, err error) {
	if _, err := tx.LockRoles([]string{kernel.RoleCourier}); err != nil {
		return 0, err
	}
	return tx.RunningBulkActs()
}

func errTooManyBulkActs(running int) error {
	e := perdure.Refuse(perdure.CodeConflict, "%d bulk acts are running, which is the maximum", running)
	e.Hint = "wait until one is done, or stop one"
	return e
}

// StopBulk stops a bulk act.
func (s *Scheduler) StopBulk(ctx context.Context, id, author string) (*kernel.BulkAct, error) {
	return s.changeBulk(ctx, id, func(tx kernel.Tx, row *kernel.BulkAct, now time.Time) error {
		if row.State != operate.BulkRunning {
			return nil
		}
		row.State, row.StoppedBy = operate.BulkStopped, author
		return auditBulk(ctx, tx, "stopBulk", author, row)
	})
}

// ResumeBulk lets a stopped bulk act go on after the last job that it has met.
func (s *Scheduler) ResumeBulk(ctx context.Context, id, author string) (*kernel.BulkAct, error) {
	return s.changeBulk(ctx, id, func(tx kernel.Tx, row *kernel.BulkAct, now time.Time) error {
		if row.State != operate.BulkStopped {
			return nil
		}
		running, err := tx.RunningBulkActs()
		if err != nil {
			return err
		}
		if running >= operate.MaxBulkRunning {
			return errTooManyBulkActs(running)
		}
		row.State, row.StoppedBy, row.ResumedAt, row.MatchedBefore = operate.BulkRunning, "", now, row.Matched()
		return auditBulk(ctx, tx, "resumeBulk", author, row)
	})
}

func auditBulk(ctx context.Context, tx kernel.Tx, act, author string, row *kernel.BulkAct) error {
	audit := kernel.AuditOf(ctx, author, act)
	audit.Target, audit.Reason = row.ID, row.Reason
	return saveAudit(tx, audit)
}

// changeBulk changes the state of a bulk act that is not done.
func (s *Scheduler) changeBulk(ctx context.Context, id string, change func(kernel.Tx, *kernel.BulkAct, time.Time) error) (row *kernel.BulkAct, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		if _, err := lockBulkActs(tx); err != nil {
			return err
		}
		if row, err = tx.LockBulkAct(id); err != nil {
			return err
		}
		switch {
		case row == nil:
			return perdure.Refuse(perdure.CodeNotFound, "there is no bulk act %s", id)
		case row.State == operate.BulkDone:
			return perdure.Refuse(perdure.CodeConflict, "bulk act %s is done: there is nothing to stop or to resume", id)
		}
		now, err := tx.Now()
		if err != nil {
			return err
		}
		was := row.State
		if err := change(tx, row, now); err != nil || row.State == was {
			return err
		}
		row.UpdatedAt = now
		return tx.SaveBulkAct(row, nil)
	})
	if err != nil {
		return nil, err
	}
	return row, nil
}
