package scheduler

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Delivery is a submission that lies in the inbox, on its way to be a job: with the plan that was made of it,
// or why none could be.
type Delivery struct {
	ID      perdure.JobID
	Plan    *kernel.Plan
	Refused error

	Job perdure.JobID // the answer: the job that was made, or is the same. Zero: none (see Err)
	Err error         // why it is none: the rules' refusal, which was written down, unless Left
	// Left says that it still lies there: there is no room, or the store does not answer; or that another
	// node has taken it.
	Left bool
}

// Deliver makes jobs of submissions that lie in the store's inbox: out of there and into the jobs in one
// transaction. What the rules refuse is closed with the reason, and an alert.
func (s *Scheduler) Deliver(ctx context.Context, mail []*Delivery) error {
	done := make(chan struct{}, len(mail))
	var requests []*request
	var ops []*delivery
	for _, m := range mail {
		op := &delivery{mail: m, submission: submission{id: m.ID, plan: m.Plan, backlog: s.backlog}}
		weight := 1
		if m.Refused == nil {
			if m.Err = s.backlog.admit(ctx); m.Err != nil {
				m.Left = true
				continue
			}
			weight = len(m.Plan.Steps)
		}
		ops, requests = append(ops, op), append(requests, newRequest(op, weight, done))
	}
	if err := s.doAll(ctx, requests, done); err != nil {
		return err
	}
	for i, op := range ops {
		op.tell(requests[i].err)
	}
	return nil
}

// delivery is a submission that is in the inbox until it is carried out.
type delivery struct {
	submission
	mail    *Delivery
	taken   bool
	refused error
}

// answered ends it. What was refused before was never admitted.
func (o *delivery) answered(err error) {
	if o.mail.Refused == nil {
		o.backlog.answered(err == nil && o.taken && o.refused == nil && o.answer.Created)
	}
}

func (o *delivery) tell(err error) {
	switch m := o.mail; {
	case err != nil:
		code := perdure.CodeOf(err)
		m.Err, m.Left = err, code == perdure.CodeUnavailable || code == perdure.CodeBacklogFull
	case !o.taken:
		m.Left = true
	case o.refused != nil:
		m.Err = o.refused
	default:
		m.Job = o.answer.ID
	}
}

func (o *delivery) apply(b *batch) error {
	o.taken, o.refused = b.mail[o.id], nil
	if !o.taken {
		return nil
	}
	delete(b.mail, o.id)
	if o.refused = o.mail.Refused; o.refused == nil {
		if err := o.submission.apply(b); perdure.CodeOf(err) != "" {
			o.refused = err
		} else if err != nil {
			return err
		}
	}
	closed := kernel.ClosedPost{ID: o.id}
	if o.refused != nil {
		closed.Refusal = kernel.RefusalJSON(o.refused)
		b.refusals = append(b.refusals, kernel.Alert{Job: o.id, Kind: perdure.AlertRefused, Message: "the submission was refused: " + o.refused.Error(), RaisedAt: b.w.Now()})
	} else {
		closed.Job = o.answer.ID
	}
	b.closed = append(b.closed, closed)
	return nil
}

// takeMail locks what this batch's deliveries are about. What is not there any more another node has taken.
func (b *batch) takeMail(requests []*request) error {
	var ids []perdure.JobID
	for _, r := range requests {
		if o, ok := r.op.(*delivery); ok {
			ids = append(ids, o.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	box, ok := b.tx.(kernel.InboxTx)
	if !ok {
		return perdure.Refuse(perdure.CodeUnavailable, "the store has no inbox")
	}
	taken, err := box.TakePosted(ids)
	b.mail = map[perdure.JobID]bool{}
	for _, id := range taken {
		b.mail[id] = true
	}
	return err
}

// closeMail writes what became of it.
func (b *batch) closeMail() error {
	if len(b.closed) == 0 {
		return nil
	}
	closed := b.closed
	b.closed = nil
	return b.tx.(kernel.InboxTx).ClosePosted(closed)
}
