package scheduler

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/dispatch"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// Act carries out an operator's act.
func (s *Scheduler) Act(ctx context.Context, id perdure.JobID, act perdure.Act) error {
	_, err := s.ActOnce(ctx, id, act)
	return err
}

// ActOnce is Act. It also reports whether the act found nothing to do, because its result already held. If an earlier
// try of this call may have been committed, it reports false.
func (s *Scheduler) ActOnce(ctx context.Context, id perdure.JobID, act perdure.Act) (unneeded bool, err error) {
	if err := act.Check(); err != nil {
		return false, err
	}
	crashpoint.Here(crashpoint.ActQueue)
	audit := kernel.AuditOf(ctx, act.Author, string(act.Verb))
	audit.Job, audit.Target, audit.Reason = id, act.Step, act.Reason
	o := &actOp{id: id, act: act, audit: &audit, caller: operate.IdentityOf(ctx)}
	err = s.do(ctx, o, 1)
	crashpoint.Here(crashpoint.ActDone)
	if err != nil {
		return false, err // a caller that has given up must not read o: the writer may be at work on it
	}
	return o.unneeded && !o.indeterminate, nil
}

type actOp struct {
	id    perdure.JobID
	act   perdure.Act
	audit *operate.AuditEntry // nil: the act is part of a bulk act, whose start is in the audit log

	caller *operate.Identity // nil: the program that embeds the node

	unneeded      bool      // the latest try found nothing to do
	indeterminate bool      // an earlier try's commit was indeterminate
	rowTime       time.Time // when the row was last written before the latest try
	tryTime       time.Time // the store's time at the latest try
}

func (o *actOp) jobs() []perdure.JobID { return []perdure.JobID{o.id} }

func (o *actOp) refs(b *batch) []kernel.StepRef {
	if ref, ok := b.ref(o.id, o.act.Step); ok {
		return b.w.ReportRefs(nil, ref)
	}
	return nil
}

func (o *actOp) commitIndeterminate() { o.indeterminate = true }

func (o *actOp) apply(b *batch) error {
	if err := b.checkJob(o.id); err != nil {
		return err
	}
	index := 0
	if o.act.Step != "" {
		ref, ok := b.ref(o.id, o.act.Step)
		if !ok {
			return perdure.Refuse(perdure.CodeNotFound, "job %s has no step %s", o.id, o.act.Step)
		}
		index = ref.Index
	}
	if committed, err := o.committed(b, index); committed || err != nil {
		return err
	}
	if o.act.Verb == perdure.VerbApprove || o.act.Verb == perdure.VerbReject {
		if err := kernel.MayDecide(b.w.Job(o.id), b.w.Step(kernel.StepRef{Job: o.id, Index: index}), o.act.Author, o.caller); err != nil {
			return err
		}
	}
	if kernel.NeedsWholeJob(&o.act) {
		if err := b.loadWhole(o.id); err != nil {
			return err
		}
	}
	var refusal error
	if err := b.Fold(o.id, func() {
		refusal = b.w.Act(o.id, index, &o.act)
		o.unneeded = b.w.ActUnneeded()
	}); err != nil {
		return err
	}
	if refusal == nil && !o.unneeded && o.audit != nil {
		b.addAudit(*o.audit)
	}
	return refusal
}

// committed reports whether an earlier try with an indeterminate commit was committed after all (F006).
//
// Acts like undo only request a state, and can simply be repeated. Others must not be repeated: an edit
// that is applied twice would change a step's key twice. For these the row shows what happened. If the row has not been
// written since the earlier try met it, that try was not committed. If the row has the time of that try, it was. If it
// has another time, another transaction has written it since, and it cannot be known whether the act was committed: the
// error then asks the operator to check.
func (o *actOp) committed(b *batch, index int) (bool, error) {
	var step kernel.Step
	at := b.w.Job(o.id).UpdatedAt
	if o.act.Step != "" {
		step = *b.w.Step(kernel.StepRef{Job: o.id, Index: index})
		at = step.UpdatedAt
	}
	before, wrote := o.rowTime, o.tryTime
	o.rowTime, o.tryTime = at, b.w.Now()
	switch o.act.Verb {
	case perdure.VerbResume, perdure.VerbSettle, perdure.VerbEdit, perdure.VerbApprove, perdure.VerbReject:
	default:
		return false, nil
	}
	switch {
	case !o.indeterminate || at.Equal(before):
		return false, nil
	case at.Equal(wrote), step.ReadyAt.Equal(wrote), step.EndedAt.Equal(wrote):
		o.rowTime, o.tryTime = before, wrote
		return true, nil
	}
	return false, perdure.Refuse(perdure.CodeUnavailable, "the outcome of the commit is unknown, and another transaction has changed the job since: check the job's history for this %s before you repeat it", o.act.Verb)
}

// CloseAlert closes an alert by hand. The alert of a parked step cannot be closed so: the act that unparks the step
// closes it.
func (s *Scheduler) CloseAlert(ctx context.Context, id int64, author string) (*kernel.Alert, error) {
	var alert *kernel.Alert
	notified := false
	err := s.update(ctx, func(tx kernel.Tx) error {
		notified = false
		now, err := tx.Now()
		if err != nil {
			return err
		}
		if alert, err = tx.Alert(id); err != nil {
			return err
		}
		switch {
		case alert == nil:
			return perdure.Refuse(perdure.CodeNotFound, "there is no alert %d", id)
		case !alert.ClosedAt.IsZero():
			return nil
		case alert.Kind.Holds():
			return perdure.Refuse(perdure.CodeConflict, "alert %d belongs to a parked step or job and closes when that goes on: use resume, settle, skip, undo or redo", id)
		}
		closed, err := tx.CloseAlert(id, author, now)
		if err != nil {
			return err
		}
		if !closed { // by another transaction, since it was read
			alert, err = tx.Alert(id)
			return err
		}
		alert.ClosedAt, alert.ClosedBy = now, author
		if notified, err = s.notifyClosed(tx, alert, now); err != nil {
			return err
		}
		audit := kernel.AuditOf(ctx, author, "closeAlert")
		audit.Job, audit.Target = alert.Job, strconv.FormatInt(id, 10)
		return saveAudit(tx, audit)
	})
	if err == nil {
		s.hub.notify(nil)
		if notified {
			s.cfg.OnNotify()
		}
	}
	return alert, err
}

// notifyClosed stores the notifications of an alert that an operator has closed.
func (s *Scheduler) notifyClosed(tx kernel.Tx, alert *kernel.Alert, now time.Time) (notified bool, err error) {
	routing, err := tx.Routing()
	if err != nil {
		return false, err
	}
	var c kernel.Changes
	w := kernel.NewWorkset(now, s.env.Float64)
	w.UseRouting(routing)
	w.NotifyClosedAlert(&c, alert, alert.ClosedBy)
	return len(c.Notifications) > 0, tx.Save(&c)
}

// PutAgent sets the settings of an agent. Its ageing holds for steps that become ready afterwards.
func (s *Scheduler) PutAgent(ctx context.Context, name string, settings perdure.AgentSettings) error {
	settings, err := s.newSettings(settings, perdure.AgentSettings{})
	if err != nil {
		return err
	}
	ageing, patience := time.Duration(settings.Ageing), time.Duration(settings.Patience)
	switch {
	case !plain.IsName(name) || len(name) > perdure.MaxNameLength:
		return perdure.Refuse(perdure.CodeInvalid, "invalid agent name %q: use letters, digits, \".\", \"_\" and \"-\", at most %d characters", name, perdure.MaxNameLength)
	case ageing < perdure.MinAgeing || ageing > perdure.DefaultAgeing:
		return perdure.Refuse(perdure.CodeInvalid, "ageing: %s is out of range; use %s to %s", plain.Duration(time.Duration(settings.Ageing)), plain.Duration(perdure.MinAgeing), plain.Duration(perdure.DefaultAgeing))
	case patience < perdure.MinPatience || patience > perdure.MaxPatience:
		return perdure.Refuse(perdure.CodeInvalid, "patience: %s is not possible; use %s to %s", plain.Duration(time.Duration(settings.Patience)), plain.Duration(perdure.MinPatience), plain.Duration(perdure.MaxPatience))
	}
	return s.update(ctx, func(tx kernel.Tx) error {
		all, err := tx.Agents()
		if err != nil {
			return err
		}
		if _, known := all[name]; !known && len(all) >= perdure.MaxAgents {
			return perdure.Refuse(perdure.CodeConflict, "%d agents have settings, which is the maximum", len(all))
		}
		stored, err := s.newSettings(settings, all[name])
		if err != nil {
			return err
		}
		if err := tx.PutAgent(name, stored); err != nil {
			return err
		}
		return auditSetting(ctx, tx, "", "putAgent", name)
	})
}

// PutLimit sets a limit. It takes effect at once, but runs that are in flight go on.
func (s *Scheduler) PutLimit(ctx context.Context, name string, settings perdure.LimitSettings) error {
	limit, err := kernel.LimitOf(name, settings)
	if err != nil {
		return err
	}
	err = s.update(ctx, func(tx kernel.Tx) error {
		all, err := tx.Limits()
		if err != nil {
			return err
		}
		known := slices.ContainsFunc(all, func(l kernel.Limit) bool { return l.Name == name })
		if !known && len(all) >= perdure.MaxLimits {
			return perdure.Refuse(perdure.CodeConflict, "there are %d limits, which is the maximum: delete one that is not used", len(all))
		}
		if err := tx.PutLimit(limit); err != nil {
			return err
		}
		if err := auditSetting(ctx, tx, "", "putLimit", name); err != nil {
			return err
		}
		return openAll(tx, name)
	})
	s.queue.WakeAll()
	return err
}

// openAll opens the lanes that are closed for keys of a changed limit, up to a bound. The supervisor opens the rest.
func openAll(tx kernel.Tx, name string) error {
	keys, err := tx.ClosedFor(kernel.LimitKey{Name: name}, maxLaneKeys)
	if err != nil {
		return err
	}
	keys = slices.DeleteFunc(keys, func(k kernel.LimitKey) bool { return k.Name != name })
	if len(keys) == 0 {
		return nil
	}
	_, err = tx.OpenLanes(keys, dispatch.MaxOpened)
	return err
}

// DeleteLimit deletes a limit.
func (s *Scheduler) DeleteLimit(ctx context.Context, name string) error {
	if _, err := kernel.LimitOf(name, perdure.LimitSettings{Max: new(int)}); err != nil {
		return err
	}
	tries := 0
	err := s.update(ctx, func(tx kernel.Tx) error {
		tries++
		found, err := tx.DeleteLimit(name)
		if err == nil && !found && tries == 1 { // a later try: the first one may have deleted it
			return perdure.Refuse(perdure.CodeNotFound, "there is no limit %s", name)
		}
		if err != nil {
			return err
		}
		if found {
			if err := auditSetting(ctx, tx, "", "deleteLimit", name); err != nil {
				return err
			}
		}
		return openAll(tx, name)
	})
	s.queue.WakeAll()
	return err
}

// FindSame returns an unsettled job without a key that has the same definition.
func (s *Scheduler) FindSame(ctx context.Context, plan *kernel.Plan) (id perdure.JobID, found bool, err error) {
	err = s.update(ctx, func(tx kernel.Tx) error {
		id, found, err = tx.JobByHash(plan.Definition.Type, plan.Hash)
		return err
	})
	return id, found, err
}

// update runs a transaction that may be repeated as it is if its commit is indeterminate.
func (s *Scheduler) update(ctx context.Context, fn func(kernel.Tx) error) (err error) {
	crashpoint.Here(crashpoint.UpdateBegin)
	defer crashpoint.Here(crashpoint.UpdateDone)
	for range maxLookups {
		if err = s.cfg.Store.Update(ctx, fn); !errors.Is(err, kernel.ErrUnknown) || ctx.Err() != nil {
			break
		}
	}
	if errors.Is(err, kernel.ErrBroken) {
		s.cfg.OnBroken(err)
	}
	return err
}
