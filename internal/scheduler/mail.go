package scheduler

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Deliver turns submissions that wait in the mail into jobs. One transaction closes the mail and creates the job. If the
// rules refuse a submission, its mail is closed with the reason, and an alert is raised.
func (s *Scheduler) Deliver(ctx context.Context, mail []*kernel.Delivery) error {
	done := make(chan struct{}, len(mail))
	var requests []*request
	var ops []*deliverOp
	for _, m := range mail {
		op := &deliverOp{mail: m, submitOp: submitOp{id: m.ID.To, plan: m.Plan, backlog: s.backlog}}
		weight := 1
		if m.Refused == nil {
			if m.Err = s.backlog.admit(ctx); m.Err != nil {
				m.Waiting = true
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
		op.setResult(requests[i].err)
	}
	return nil
}

// deliverOp delivers one submission from the mail.
type deliverOp struct {
	submitOp
	mail    *kernel.Delivery
	taken   bool
	refused error
}

// answered ends the delivery. A submission that was refused before was not admitted.
func (o *deliverOp) answered(err error) {
	if o.mail.Refused == nil {
		o.backlog.answered(err == nil && o.taken && o.refused == nil && o.answer.Created)
	}
}

func (o *deliverOp) setResult(err error) {
	switch m := o.mail; {
	case err != nil:
		code := perdure.CodeOf(err)
		m.Err, m.Waiting = err, code == perdure.CodeUnavailable || code == perdure.CodeBacklogFull
	case !o.taken:
		m.Waiting = true
	case o.refused != nil:
		m.Err = o.refused
	default:
		m.Job = o.answer.ID
	}
}

func (o *deliverOp) apply(b *batch) error {
	o.taken, o.refused = b.mail[o.mail.ID], nil
	if !o.taken {
		return nil
	}
	delete(b.mail, o.mail.ID)
	if o.refused = o.mail.Refused; o.refused == nil {
		if err := o.submitOp.apply(b); perdure.CodeOf(err) != "" {
			o.refused = err
		} else if err != nil {
			return err
		}
	}
	closed := kernel.ClosedMail{MailID: o.mail.ID}
	if o.refused != nil {
		closed.Refusal = kernel.RefusalJSON(o.refused)
		b.refusals = append(b.refusals, kernel.Alert{Job: o.id, Kind: perdure.AlertRefused, Message: "submission refused: " + o.refused.Error(), RaisedAt: b.w.Now()})
	} else {
		closed.Job = o.answer.ID
	}
	b.closed = append(b.closed, closed)
	return nil
}

// takeMail locks the mail of this batch's deliveries. Mail that is missing was taken by another node.
func (b *batch) takeMail(requests []*request) error {
	var ids []kernel.MailID
	for _, r := range requests {
		if o, ok := r.op.(*deliverOp); ok {
			ids = append(ids, o.mail.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	locked, err := b.tx.TakeMail(ids)
	b.mail = map[kernel.MailID]bool{}
	for _, id := range locked {
		b.mail[id] = true
	}
	return err
}

// closeMail writes the results of the deliveries.
func (b *batch) closeMail() error {
	if len(b.closed) == 0 {
		return nil
	}
	closed := b.closed
	b.closed = nil
	return b.tx.CloseMail(closed)
}
