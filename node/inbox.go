package node

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/scheduler"
)

// What others have submitted in transactions of their own lies in the store's inbox. Each node that has
// started looks there: when it is told, and at the latest after this, for what nobody has told.
const (
	mailPoll       = 250 * time.Millisecond // on a file, of which nobody tells
	mailPollShared = 500 * time.Millisecond // where no hints come through
	mailPollTold   = 10 * time.Second       // where they do
	mailRetry      = time.Second            // where the store did not answer
	mailPage       = 100
	mailBytes      = 32 << 20

	// What is closed is kept: the taken for as long as a transaction may last that began before, the refused
	// for as long as somebody may ask.
	takenKept    = time.Hour
	refusedKept  = 14 * 24 * time.Hour
	clearEvery   = time.Minute
	forgetAtOnce = 1000 // in one transaction
	forgetRounds = 1000
)

// Wake has the node look into the inbox at once: for programs that have committed a SubmitTx on SQLite, which
// tells nobody. It never waits.
func (n *Node) Wake() {
	select {
	case n.woken <- struct{}{}:
	default: // it is about to look
	}
}

// collect takes submissions out of the inbox until ctx ends.
func (n *Node) collect(ctx context.Context, box kernel.Inbox) {
	mail, forgot := box.Mail(), time.Time{} // the first time at once: nodes that never live for a minute clear, too
	for ctx.Err() == nil {
		wait := n.mailPoll()
		switch more, err := n.collectSome(ctx, box); {
		case err != nil:
			n.log.Debug("could not look into the inbox", "error", err)
			wait = mailRetry
		case more:
			continue
		}
		if time.Since(forgot) > clearEvery {
			forgot = time.Now()
			n.forget(ctx, box)
		}
		timer := time.NewTimer(drawn(wait))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-mail:
		case <-n.woken:
		}
		timer.Stop()
	}
}

// drawn is by lot, so that nodes do not look all at once, and never longer than most.
func drawn(most time.Duration) time.Duration { return most/2 + rand.N(most/2) }

func (n *Node) mailPoll() time.Duration {
	switch store, ok := n.store.(shared); {
	case !ok:
		return mailPoll
	case store.Heard():
		return mailPollTold
	}
	return mailPollShared
}

// collectSome takes a page, and says whether to look for another one at once. One of which nothing could be
// taken, because there is no room or because other nodes are at it, is left for a moment.
func (n *Node) collectSome(ctx context.Context, box kernel.Inbox) (more bool, err error) {
	posted, err := box.Posted(ctx, mailPage, mailBytes)
	if err != nil || len(posted) == 0 {
		return false, err
	}
	mail := make([]*scheduler.Delivery, len(posted))
	for i, p := range posted {
		mail[i] = &scheduler.Delivery{ID: p.ID}
		mail[i].Plan, mail[i].Refused = n.unpack(p)
	}
	if err := n.scheduler.Deliver(ctx, mail); err != nil {
		return false, err
	}
	closed := 0
	var broken []*scheduler.Delivery
	for _, m := range mail {
		if m.Err != nil && !m.Left && m.Refused == nil && perdure.CodeOf(m.Err) == "" { // the rules failed
			broken = append(broken, &scheduler.Delivery{ID: m.ID, Refused: m.Err})
		}
		n.account(m)
		if !m.Left {
			closed++
		}
	}
	if len(broken) > 0 {
		err = n.scheduler.Deliver(ctx, broken)
	}
	return closed > 0, err
}

func (n *Node) account(m *scheduler.Delivery) {
	switch {
	case m.Left:
	case m.Err != nil:
		n.meter.delivered.WithLabelValues("refused").Inc()
		n.log.Info("posted submission refused", "submission", m.ID, "error", m.Err)
	default:
		n.meter.delivered.WithLabelValues("taken").Inc()
	}
}

// unpack checks a submission as every other is checked.
func (n *Node) unpack(p kernel.Posted) (*kernel.Plan, error) {
	plans, err := n.plans.Parse(p.Body, definition.JSON, definition.Options{Key: p.Key})
	if err != nil {
		return nil, err
	}
	return plans[0], nil
}

func (n *Node) forget(ctx context.Context, box kernel.Inbox) {
	crashpoint.Here(crashpoint.InboxClear)
	defer crashpoint.Here(crashpoint.InboxCleared)
	now, err := n.store.Now(ctx)
	for did, round := forgetAtOnce, 0; err == nil && did == forgetAtOnce && round < forgetRounds; round++ {
		did, err = box.ForgetPosted(ctx, now.Add(-takenKept), now.Add(-refusedKept), forgetAtOnce)
	}
	if err != nil {
		n.log.Debug("could not clear the inbox", "error", err)
	}
}

// arrived does something with the job that ref names. Where that is not there, and was posted, it waits until a
// node has taken it; then once more.
func arrived[T any](ctx context.Context, n *Node, ref string, patience time.Duration, do func(context.Context, perdure.JobID) (T, error)) (T, error) {
	var none T
	id, err := n.named(ctx, ref)
	if err != nil {
		return none, err
	}
	did, err := do(ctx, id)
	if box, ok := n.store.(kernel.Inbox); ok && perdure.CodeOf(err) == perdure.CodeNotFound {
		timed, cancel := context.WithTimeout(ctx, max(patience, mailPatience))
		defer cancel()
		if job, perr := n.posted(timed, box, id); perr != nil {
			return none, perr
		} else if !job.IsZero() {
			return do(ctx, job)
		}
	}
	return did, err
}

const (
	mailFirst    = 2 * time.Millisecond
	mailPatience = 2 * time.Second // of who does not say that they would wait
)

// posted finds the job that was made of a submission, and waits for it; zero where there is no such submission.
func (n *Node) posted(ctx context.Context, box kernel.Inbox, id perdure.JobID) (none perdure.JobID, err error) {
	for pause := mailFirst; ; pause = min(2*pause, mailPoll) {
		s, err := box.Submission(ctx, id)
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
