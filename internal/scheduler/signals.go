package scheduler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// SendSignal gives a signal to the step that waits for it, or to all of them, or keeps it for the next one. If job is given,
// only its steps receive the signal.
//
// Which jobs have to be locked is known once the topic is locked. To wait for their locks then could be a deadlock. So the
// operation locks them if it need not wait; if it must, it is tried again, and locks them first.
func (s *Scheduler) SendSignal(ctx context.Context, in operate.Signal, job perdure.JobID) (*operate.SignalResult, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	audit := kernel.AuditOf(ctx, in.Author, "sendSignal")
	audit.Job, audit.Target = job, in.Name+"/"+in.Key
	topic, ownID := kernel.TopicOf(in.Name, in.Key), s.cfg.NewID().String()
	var lock []perdure.JobID
	if !job.IsZero() {
		lock = append(lock, job)
	}
	for range maxSignalTries {
		o := &signalOp{in: &in, topic: topic, job: job, ownID: ownID, rights: rightsOf(ctx), lock: lock, audit: audit}
		if err := s.do(ctx, o, max(1, len(lock))); err != nil {
			return nil, err
		}
		if len(o.more) == 0 {
			return &o.result, nil
		}
		lock = append(lock, o.more...)
	}
	return nil, &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("the steps that wait for %s change too fast", topic), Hint: "try again later"}
}

// maxSignalTries bounds how often an operation is tried again because it has to lock another job.
const maxSignalTries = 20

func maxReceivers(in *operate.Signal) int {
	if in.To == operate.ToAll {
		return operate.MaxWaiters
	}
	return 1
}

type signalOp struct {
	in     *operate.Signal
	topic  kernel.Topic
	job    perdure.JobID // zero: any
	ownID  string
	rights *operate.Rights
	lock   []perdure.JobID
	audit  operate.AuditEntry

	more   []perdure.JobID // jobs that have to be locked, too; nothing was done
	result operate.SignalResult
}

func (o *signalOp) jobs() []perdure.JobID { return o.lock }

func (o *signalOp) refs(*batch) []kernel.StepRef { return nil }

func (o *signalOp) apply(b *batch) error {
	o.more, o.result = nil, operate.SignalResult{}
	if !o.job.IsZero() {
		if err := b.checkJob(o.job); err != nil {
			return err
		}
		if typ := b.w.Job(o.job).Type; o.rights != nil && !o.rights.MaySubmit(typ) {
			return perdure.Refuse(perdure.CodeForbidden, "the caller may not send signals to jobs of type %s", typ)
		}
	}
	if err := b.lockTopics([]kernel.Topic{o.topic}); err != nil {
		return err
	}
	now := b.w.Now()
	s := kernel.NewSignal(o.in, o.job, o.ownID, now)
	before := b.w.SignalHere(o.topic, o.job, s.ID)
	if before == nil {
		var err error
		if before, err = b.tx.FindSignal(o.topic, o.job, s.ID); err != nil {
			return err
		}
	}
	replaces := int64(0)
	if before != nil {
		if now.Before(before.Until) {
			o.result = operate.SignalResult{ID: s.ID, Matched: slices.Clone(before.Taken), Repeated: true}
			return nil
		}
		replaces = before.Number
	}
	receivers, err := o.receivers(b)
	if err != nil || len(o.more) > 0 {
		return err
	}
	toAll := o.in.To == operate.ToAll
	if err := b.s.signalRoom.take(b.tx, b.s.env.Now(), len(receivers) == 0 && !toAll); err != nil {
		return err
	}
	b.w.Send(s, toAll, replaces)
	for _, ref := range receivers {
		if err := b.Fold(ref.Job, func() { b.w.Deliver(ref, s) }); err != nil {
			return err
		}
	}
	o.result = operate.SignalResult{ID: s.ID, Matched: slices.Clone(s.Taken)}
	b.addAudit(o.audit)
	return nil
}

// receivers returns the steps that receive the signal, with their jobs locked. If a job has to be locked first, more has it.
// Quarantined jobs receive nothing.
func (o *signalOp) receivers(b *batch) ([]kernel.StepRef, error) {
	found, err := b.tx.Waiters(o.topic, o.job, operate.MaxWaiters)
	if err != nil {
		return nil, err
	}
	for {
		refs := slices.DeleteFunc(b.w.Waiting(o.topic, o.job, found), func(ref kernel.StepRef) bool { return b.s.Quarantined(ref.Job) != nil })
		if refs = refs[:min(len(refs), maxReceivers(o.in))]; len(refs) == 0 {
			return nil, nil
		}
		fresh := slices.DeleteFunc(slices.Clone(refs), b.w.HasStep)
		if len(fresh) == 0 {
			return refs, nil
		}
		if _, err := b.TryLock(fresh); err != nil {
			return nil, err
		}
		for _, ref := range fresh {
			if !b.w.Has(ref.Job) && b.s.Quarantined(ref.Job) == nil {
				o.more = append(o.more, ref.Job)
			}
		}
		if len(o.more) > 0 {
			return nil, nil
		}
		fresh = slices.DeleteFunc(fresh, func(ref kernel.StepRef) bool { return !b.w.Has(ref.Job) })
		if err := b.LoadSteps(fresh); err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(ref kernel.StepRef) bool { // its row is missing: see perdure check
			return slices.Contains(fresh, ref) && !b.w.HasStep(ref)
		})
	}
}

// signalRoom bounds the signals of a store. It counts them, and then not before a tenth of what was free has been used: so
// the bound may be exceeded by a tenth for each node, and a count is rare.
type signalRoom struct {
	mu              sync.Mutex
	known           bool
	kept, all       int // how many may be stored before the next count
	full            error
	refuseUntil     time.Time
	maxKept, maxAll int // 0: operate.MaxKeptSignals and MaxSignals
}

// recountAfter is how long signals are refused without another count.
const recountAfter = time.Second

// take takes the place of one signal, which is kept or only remembered. It returns a refusal if there is none.
func (r *signalRoom) take(tx kernel.Tx, now time.Time, kept bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full != nil && now.Before(r.refuseUntil) && kept {
		return r.full
	}
	if !r.known || r.all <= 0 || kept && r.kept <= 0 {
		maxKept, maxAll := r.maxKept, r.maxAll
		if maxKept == 0 {
			maxKept, maxAll = operate.MaxKeptSignals, operate.MaxSignals
		}
		nKept, nAll, err := tx.CountSignals(maxKept, maxAll)
		if err != nil {
			return err
		}
		r.full = nil
		switch {
		case nAll >= maxAll:
			return &perdure.Error{Code: perdure.CodeTooManyRequests, Message: fmt.Sprintf("%d signals are stored, which is the maximum", nAll),
				Hint: "use a shorter keep: so long is the id of a signal remembered"}
		case nKept >= maxKept && kept:
			r.full = &perdure.Error{Code: perdure.CodeTooManyRequests, Message: fmt.Sprintf("%d signals are kept for steps, which is the maximum", nKept),
				Hint: "check why no step waits for them, and use a shorter keep"}
			r.refuseUntil = now.Add(recountAfter)
			return r.full
		}
		free := func(n, most int) int { return max(1, (most-n)/10) }
		r.known, r.kept, r.all = true, free(nKept, maxKept), free(nAll, maxAll)
	}
	r.all--
	if kept {
		r.kept--
	}
	return nil
}

// maxSignalsSwept bounds how many signals one transaction deletes.
const maxSignalsSwept = 10_000

// SweepSignals deletes signals that are over.
func (s *Scheduler) SweepSignals(ctx context.Context) error {
	for n := maxSignalsSwept; n == maxSignalsSwept; {
		err := s.update(ctx, func(tx kernel.Tx) error {
			if m, leads := kernel.LeadershipOf(ctx); leads {
				if err := m.Admit(tx); err != nil {
					return err
				}
			}
			now, err := tx.Now()
			if err != nil {
				return err
			}
			n, err = tx.DeleteSignals(now, maxSignalsSwept)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// topicOrderError asks for a transaction that locks these topics before anything else but jobs.
type topicOrderError struct{ topics []kernel.Topic }

func (e *topicOrderError) Error() string { return "topics were locked out of order" }

// lockTopics locks topics that the transaction has not locked. Two transactions that lock topics in different orders, or
// after limits, could wait for each other. So a transaction that would do that is tried again, and locks them first.
func (b *batch) lockTopics(topics []kernel.Topic) error {
	topics = slices.DeleteFunc(slices.Clone(topics), func(t kernel.Topic) bool { return slices.Contains(b.topics, t) })
	if len(topics) == 0 || b.reads {
		return nil
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	if b.serving != nil || len(b.topics) > 0 && topics[0] < b.topics[len(b.topics)-1] {
		return &topicOrderError{slices.Concat(b.topics, topics)}
	}
	b.topics = append(b.topics, topics...)
	return b.tx.LockTopics(topics)
}

// findSignals looks for signals that are kept for steps which begin to wait.
func (b *batch) findSignals(wants []kernel.SignalWant) error {
	var topics []kernel.Topic
	for _, want := range wants {
		topics = append(topics, want.Topic)
	}
	if err := b.lockTopics(topics); err != nil {
		return err
	}
	for _, want := range wants {
		s, err := b.tx.KeptSignal(want.Topic, want.Job, b.w.Now(), b.w.TakenSignals(want.Topic))
		if err != nil {
			return err
		}
		waiters := 0
		if s == nil {
			refs, err := b.tx.Waiters(want.Topic, perdure.JobID{}, operate.MaxWaiters)
			if err != nil {
				return err
			}
			waiters = len(refs)
		}
		b.w.AddKept(want, s, waiters)
	}
	return nil
}
