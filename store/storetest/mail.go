package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Mail is the contract of a store as a kernel.Mailbox. post writes a submission as the store's SubmitTx does, in a
// transaction that commits.
func Mail(t *testing.T, open func(t *testing.T) (kernel.Store, func(*kernel.Plan) (perdure.Submitted, error))) {
	for name, run := range map[string]func(*mailSuite){"InOrder": mailInOrder, "TakenAndClosed": mailTakenAndClosed, "RollbackKeepsMail": mailRolledBack,
		"OnlyClosedMailIsDeleted": mailForgotten, "KeysOfWaitingMail": mailKeys, "NumberIsBounded": mailBounded, "WaitingMailIsCounted": mailWaiting} {
		t.Run(name, func(t *testing.T) {
			store, post := open(t)
			run(&mailSuite{suite: &suite{T: t, store: store}, post: post})
		})
	}
}

type mailSuite struct {
	*suite
	post func(*kernel.Plan) (perdure.Submitted, error)
}

// plan returns a plan with the fields that a mailbox uses.
func (b *mailSuite) plan(key string, size int) *kernel.Plan {
	return &kernel.Plan{Shape: &kernel.Shape{}, Hash: [32]byte{1, byte(len(key))},
		Definition: &kernel.Definition{Type: "t", Key: key, Input: fmt.Appendf(nil, `"%0*d"`, size, 0)}}
}

func (b *mailSuite) put(key string, size int) perdure.JobID {
	b.Helper()
	submission, err := b.post(b.plan(key, size))
	b.must(err)
	if !submission.Created {
		b.Fatalf("%q: %+v", key, submission)
	}
	return submission.ID
}

func (b *mailSuite) waiting(max, bytes int) (ids []perdure.JobID) {
	b.Helper()
	mail, err := b.store.Mail(ctx, max, bytes)
	b.must(err)
	for _, m := range mail {
		ids = append(ids, m.To)
	}
	return ids
}

func (b *mailSuite) close(closed ...kernel.ClosedMail) {
	b.Helper()
	b.update(func(tx kernel.Tx) {
		var ids []kernel.MailID
		for _, c := range closed {
			ids = append(ids, c.MailID)
		}
		taken, err := tx.TakeMail(ids)
		b.must(err)
		b.equal("taken", taken, ids)
		b.must(tx.CloseMail(closed))
	})
}

// closedAsJob closes the submission of a job as applied; closedAsRefused closes one as refused.
func closedAsJob(of, job perdure.JobID) kernel.ClosedMail {
	return kernel.ClosedMail{MailID: kernel.SubmissionOf(of), Job: job}
}

func closedAsRefused(of perdure.JobID, reason []byte) kernel.ClosedMail {
	return kernel.ClosedMail{MailID: kernel.SubmissionOf(of), Refusal: reason}
}

// Waiting mails are read in the order in which they were sent, up to a number and a size. The first is read whatever its
// size.
func mailInOrder(b *mailSuite) {
	b.equal("an empty mailbox", b.waiting(9, 1), nil)
	one, two, three := b.put("k", 1000), b.put("", 10), b.put("", 10)
	b.equal("all mail", b.waiting(9, 1<<20), []perdure.JobID{one, two, three})
	b.equal("at most two mails", b.waiting(2, 1<<20), []perdure.JobID{one, two})
	b.equal("the first mail, which exceeds the size", b.waiting(9, 10), []perdure.JobID{one})
	mail, err := b.store.Mail(ctx, 1, 1)
	b.must(err)
	want, err := kernel.Post(one, b.plan("k", 1000))
	b.must(err)
	b.equal("mail as it was posted", mail, []kernel.Mail{want})
}

// A mail that was taken and closed does not wait any more, cannot be taken again, and has its outcome.
func mailTakenAndClosed(b *mailSuite) {
	applied, refused := b.put("a", 1), b.put("b", 1)
	open, err := b.store.Submission(ctx, applied)
	b.must(err)
	if open == nil || open.PostedAt.IsZero() || !open.ClosedAt.IsZero() || open.Refused() != nil {
		b.Errorf("%+v", open)
	}
	reason := kernel.RefusalJSON(perdure.Refuse(perdure.CodeInvalid, "a \"reason\""))
	b.close(closedAsJob(applied, id(7)), closedAsRefused(refused, reason))
	b.equal("no mail waits", b.waiting(9, 1<<20), nil)
	checkTx(b.suite, "closed mail cannot be taken", nil, func(tx kernel.Tx) ([]kernel.MailID, error) {
		return tx.TakeMail([]kernel.MailID{kernel.SubmissionOf(applied), kernel.SubmissionOf(refused), kernel.SubmissionOf(id(9)), {To: applied, ID: "other"}})
	})
	taken, err := b.store.Submission(ctx, applied)
	b.must(err)
	if taken.Job != id(7) || taken.ClosedAt.IsZero() || taken.Refused() != nil {
		b.Errorf("%+v", taken)
	}
	closed, err := b.store.Submission(ctx, refused)
	b.must(err)
	if err := closed.Refused(); !closed.Job.IsZero() || perdure.CodeOf(err) != perdure.CodeInvalid || err.Error() != "a \"reason\"" {
		b.Errorf("%+v, %v", closed, err)
	}
	none, err := b.store.Submission(ctx, id(9))
	b.must(err)
	if none != nil {
		b.Errorf("%+v", none)
	}
}

// A transaction that fails leaves the mail waiting.
func mailRolledBack(b *mailSuite) {
	one := b.put("k", 1)
	err := b.store.Update(ctx, func(tx kernel.Tx) error {
		taken, err := tx.TakeMail([]kernel.MailID{kernel.SubmissionOf(one)})
		b.must(err)
		b.equal("taken", taken, []kernel.MailID{kernel.SubmissionOf(one)})
		b.must(tx.CloseMail([]kernel.ClosedMail{closedAsJob(one, one)}))
		return errOops
	})
	if !errors.Is(err, errOops) {
		b.Error(err)
	}
	b.equal("waiting mail", b.waiting(9, 1), []perdure.JobID{one})
}

// Only closed mail is deleted; refused mail is kept longer than applied mail.
func mailForgotten(b *mailSuite) {
	open, taken, refused := b.put("", 1), b.put("", 1), b.put("", 1)
	b.close(closedAsJob(taken, taken), closedAsRefused(refused, kernel.RefusalJSON(errOops)))
	ago, soon := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, c := range []struct {
		taken, refused time.Time
		max, want      int
	}{{ago, ago, 9, 0}, {soon, ago, 9, 1}, {soon, ago, 9, 0}, {soon, soon, 0, 0}, {soon, soon, 9, 1}, {soon, soon, 9, 0}} {
		n, err := b.store.ForgetMail(ctx, c.taken, c.refused, c.max)
		b.must(err)
		b.equal("deleted mails", n, c.want)
	}
	b.equal("waiting mail", b.waiting(9, 1), []perdure.JobID{open})
}

// The key of a waiting submission is found like that of a job. If both exist, the job is returned.
func mailKeys(b *mailSuite) {
	one := b.put("k", 1)
	keyOf := func(want kernel.Keyed) {
		b.Helper()
		checkTx(b.suite, "key", map[string]kernel.Keyed{"k": want}, func(tx kernel.Tx) (map[string]kernel.Keyed, error) {
			return tx.JobsByKey([]string{"k", "other"})
		})
		ids, err := b.store.FindJobs(ctx, "k", 2)
		b.must(err)
		b.equal("FindJobs", ids, []perdure.JobID{want.ID})
	}
	keyOf(kernel.Keyed{ID: one, Hash: b.plan("k", 1).Hash})
	b.submit(newJob(3, 1, keyed("k")))
	keyOf(kernel.Keyed{ID: id(3), Hash: [32]byte{3, 0, 1}})
	b.close(closedAsJob(one, id(3)))
	keyOf(kernel.Keyed{ID: id(3), Hash: [32]byte{3, 0, 1}})
	// A closed submission whose job was deleted does not reserve its key.
	deleted := b.put("gone", 1)
	b.close(closedAsJob(deleted, deleted))
	again := b.put("gone", 1)
	if again == deleted {
		b.Errorf("%s", again)
	}
	// A refused submission does not reserve its key.
	b.close(closedAsRefused(again, kernel.RefusalJSON(errOops)))
	b.put("gone", 1)
}

// As many mails may wait as the bound says; one more is refused, and closing one makes room. A lower bound does not
// remove mails. The separate bound on submissions holds as well.
func mailBounded(b *mailSuite) {
	limit := func(max int) {
		b.Helper()
		b.update(func(tx kernel.Tx) { b.must(tx.SetMaxMail(max)) })
	}
	full := func() {
		b.Helper()
		if submission, err := b.post(b.plan("", 1)); perdure.CodeOf(err) != perdure.CodeBacklogFull {
			b.Errorf("%+v, %v; want %s", submission, err, perdure.CodeBacklogFull)
		}
	}
	limit(2)
	one, two := b.put("k", 1), b.put("", 1)
	full()
	if submission, err := b.post(b.plan("k", 1)); err != nil || submission.Created || submission.ID != one {
		b.Errorf("a repeated key: %+v, %v", submission, err)
	}
	b.equal("refused mail is not stored", b.waiting(9, 1<<20), []perdure.JobID{one, two})
	b.close(closedAsJob(one, one))
	three := b.put("", 1)
	full()
	limit(1)
	full()
	b.equal("a lower bound keeps waiting mail", b.waiting(9, 1<<20), []perdure.JobID{two, three})
	b.close(closedAsJob(two, two))
	full()
	b.close(closedAsRefused(three, kernel.RefusalJSON(errOops)))
	b.put("", 1)
	full()
	limit(kernel.DefaultMaxMail)
	b.put("", 1)
}

// Waiting mails are counted, up to the bound, and the oldest has an age. Closed mails are not counted.
func mailWaiting(b *mailSuite) {
	count := func(want int) time.Duration {
		b.Helper()
		w, err := b.store.MailWaiting(ctx)
		b.must(err)
		b.equal("waiting mails", w.Number, want)
		return w.Oldest
	}
	b.equal("age without waiting mail", count(0), time.Duration(0))
	one, two := b.put("", 1), b.put("", 1)
	time.Sleep(2 * time.Millisecond)
	if age := count(2); age < time.Millisecond || age > time.Minute {
		b.Errorf("the oldest mail has waited for %s", age)
	}
	b.update(func(tx kernel.Tx) { b.must(tx.SetMaxMail(1)) })
	count(1)
	b.close(closedAsJob(one, one))
	count(1)
	b.close(closedAsJob(two, two))
	b.equal("age without waiting mail", count(0), time.Duration(0))
}
