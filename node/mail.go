package node

import (
	"context"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/courier"
	"github.com/perdure/perdure/internal/kernel"
)

// How long the courier waits for news before it looks for mail of which nobody tells.
const (
	mailPollShared = 500 * time.Millisecond // where no hints come through
	mailPollTold   = 10 * time.Second       // where they do
)

// newCourier makes the one that applies mail.
func (n *Node) newCourier() *courier.Courier {
	return courier.New(courier.Config{Store: n.store, Scheduler: n.scheduler, Compile: n.compile, MaxMail: n.cfg.MaxMail, Poll: n.mailPoll,
		Applied: n.meter.delivered, Waiting: n.meter.waiting, Log: n.log})
}

// Wake has the node look for mail at once: for programs that have committed a SubmitTx on SQLite, which tells nobody. It
// never waits.
func (n *Node) Wake() { n.courier.Wake() }

func (n *Node) mailPoll() time.Duration {
	switch store, ok := n.store.(shared); {
	case !ok:
		return courier.DefaultPoll
	case store.Heard():
		return mailPollTold
	}
	return mailPollShared
}

// compile checks a submission as every other is checked.
func (n *Node) compile(m kernel.Mail) (*kernel.Plan, error) {
	plans, err := n.plans.Parse(m.Body, definition.JSON, definition.Options{Key: m.Key})
	if err != nil {
		return nil, err
	}
	return plans[0], nil
}

// arrived does something with the job that ref names. Where that is not there, and was posted, it waits until the courier
// has made it; then once more.
func arrived[T any](ctx context.Context, n *Node, ref string, patience time.Duration, do func(context.Context, perdure.JobID) (T, error)) (T, error) {
	var none T
	id, err := n.named(ctx, ref)
	if err != nil {
		return none, err
	}
	did, err := do(ctx, id)
	if perdure.CodeOf(err) == perdure.CodeNotFound {
		timed, cancel := context.WithTimeout(ctx, max(patience, mailPatience))
		defer cancel()
		if job, perr := n.posted(timed, id); perr != nil {
			return none, perr
		} else if !job.IsZero() {
			return do(ctx, job)
		}
	}
	return did, err
}

const (
	mailFirst    = 2 * time.Millisecond
	mailPause    = 250 * time.Millisecond
	mailPatience = 2 * time.Second // of who does not say that they would wait
)

// posted finds the job that was made of a submission, and waits for it; zero where there is no such submission.
func (n *Node) posted(ctx context.Context, id perdure.JobID) (none perdure.JobID, err error) {
	for pause := mailFirst; ; pause = min(2*pause, mailPause) {
		s, err := n.store.Submission(ctx, id)
		switch {
		case ctx.Err() != nil:
			return none, &perdure.Error{Code: perdure.CodeNotFound, Message: "submission " + id.String() + " was posted, and no node has taken it yet",
				Hint: "ask again, with more time to wait"}
		case err != nil:
			return none, unreachable(err)
		case s == nil:
			return none, nil
		case s.ClosedAt.IsZero():
			n.Wake()
			sleep(ctx, pause)
		case s.Job.IsZero():
			return none, s.Refused()
		default:
			return s.Job, nil
		}
	}
}
