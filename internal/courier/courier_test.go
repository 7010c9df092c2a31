package courier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/courier"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/memory"
)

// fakeStore is a store of mail and a scheduler in one. The test sets what happens to each mail.
type fakeStore struct {
	*memory.Store
	t      *testing.T
	resign func()

	mu      sync.Mutex
	reads   int
	fails   error // the error of Mail
	calls   [][]perdure.JobID
	apply   func(*kernel.Delivery)
	told    []kernel.MailWaiting
	refused int
	applied int
	forgot  int
	log     bytes.Buffer
}

func (o *fakeStore) Mail(ctx context.Context, max, maxBytes int) ([]kernel.Mail, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reads++; o.fails != nil {
		return nil, o.fails
	}
	return o.Store.Mail(ctx, max, maxBytes)
}

func (o *fakeStore) ForgetMail(ctx context.Context, applied, refused time.Time, max int) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgot++
	return o.Store.ForgetMail(ctx, applied, refused, max)
}

func (o *fakeStore) Deliver(ctx context.Context, mail []*kernel.Delivery) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ids []perdure.JobID
	for _, d := range mail {
		ids = append(ids, d.ID.To)
	}
	o.calls = append(o.calls, ids)
	return o.Update(ctx, func(tx kernel.Tx) error {
		for _, d := range mail {
			if d.Err = d.Refused; d.Err == nil && o.apply != nil {
				o.apply(d)
			}
			if d.Waiting || d.Err != nil && perdure.CodeOf(d.Err) == "" && d.Refused == nil {
				continue
			}
			c := kernel.ClosedMail{MailID: d.ID, Job: d.ID.To}
			if d.Err != nil {
				c = kernel.ClosedMail{MailID: d.ID, Refusal: kernel.RefusalJSON(d.Err)}
			}
			if err := tx.CloseMail([]kernel.ClosedMail{c}); err != nil {
				return err
			}
		}
		return nil
	})
}

// lines collects the log.
type lines struct{ *fakeStore }

func (l lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(line)
}

// run starts a courier that leads, calls test, and stops the courier.
func run(t *testing.T, set func(*fakeStore, *courier.Config), test func(*fakeStore, *courier.Courier)) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeStore{Store: memory.New(), t: t}
		cfg := courier.Config{Store: o, Scheduler: o, Poll: func() time.Duration { return time.Minute },
			Compile: func(m kernel.Mail) (*kernel.Plan, error) { return &kernel.Plan{}, nil },
			Applied: func(refused bool) {
				o.mu.Lock()
				defer o.mu.Unlock()
				if o.applied++; refused {
					o.refused++
				}
			},
			Waiting: func(w kernel.MailWaiting) {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.told = append(o.told, w)
			},
			Log: slog.New(slog.NewTextHandler(lines{o}, nil))}
		if set != nil {
			set(o, &cfg)
		}
		c := courier.New(cfg)
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { c.Run(ctx); close(ended) }()
		o.lead(c)
		test(o, c)
		o.resign()
		time.Sleep(2 * time.Minute)
		end()
		<-ended
	})
}

func (o *fakeStore) post(n int) (ids []perdure.JobID) {
	o.t.Helper()
	for i := range n {
		plan := &kernel.Plan{Shape: &kernel.Shape{}, Definition: &kernel.Definition{Type: "t"}}
		submitted, err := o.Post(o.t.Context(), perdure.JobID{1, byte(i >> 8), byte(i)}, plan)
		if err != nil {
			o.t.Fatal(err)
		}
		ids = append(ids, submitted.ID)
	}
	synctest.Wait()
	return ids
}

// lead makes the courier lead until the office resigns.
func (o *fakeStore) lead(c *courier.Courier) {
	synctest.Wait()
	ctx, end := context.WithCancel(o.t.Context())
	ended := make(chan struct{})
	go func() { c.Lead(ctx); close(ended) }()
	o.resign = func() { end(); <-ended }
	synctest.Wait()
}

// state returns a copy of the counts, once all goroutines are blocked.
func (o *fakeStore) state() (s struct {
	looks, applied, refused, forgot int
	calls                           [][]perdure.JobID
	log                             string
	told                            kernel.MailWaiting // the latest call of Waiting
}) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	s.looks, s.applied, s.refused, s.forgot, s.calls, s.log = o.reads, o.applied, o.refused, o.forgot, o.calls, o.log.String()
	if len(o.told) > 0 {
		s.told = o.told[len(o.told)-1]
	}
	return s
}

func (o *fakeStore) waiting() int {
	o.t.Helper()
	w, err := o.MailWaiting(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	return w.Number
}

// Mail is applied at once, page by page, in the order in which it was sent. After that, the courier reads after a
// wake-up, and after a poll interval.
func TestMailIsAppliedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeStore{Store: memory.New(), t: t}
		ids := o.post(courier.MaxPage + 5)
		c := courier.New(courier.Config{Store: o, Scheduler: o, Compile: func(kernel.Mail) (*kernel.Plan, error) { return &kernel.Plan{}, nil }})
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { c.Run(ctx); close(ended) }()
		o.lead(c)
		defer o.resign()
		first := o.state()
		if len(first.calls) != 2 || fmt.Sprint(slices.Concat(first.calls...)) != fmt.Sprint(ids) {
			t.Errorf("applied in %d calls", len(first.calls))
		}
		time.Sleep(10 * courier.DefaultPoll)
		if n := o.state().looks - first.looks; n < 10 || n > 20 {
			t.Errorf("%d looks in ten times the pause", n)
		}
		end()
		<-ended
	})
}

// A wake-up makes the courier read at once, whether the store or the program sends it.
func TestWakeUpMakesTheCourierRead(t *testing.T) {
	run(t, nil, func(o *fakeStore, c *courier.Courier) {
		o.post(3)
		if o.waiting() != 0 {
			t.Error("the store's news did not wake it")
		}
		reads := o.state().looks
		c.Wake()
		c.Wake()
		if n := o.state().looks - reads; n < 1 || n > 2 {
			t.Errorf("%d looks after it was woken", n)
		}
	})
}

// F119: while the store does not respond, the courier reads at most once a second and logs one line. Afterwards it
// applies mail again.
func TestCourierRetriesWhileTheStoreIsDown(t *testing.T) {
	run(t, func(o *fakeStore, _ *courier.Config) { o.fails = errors.New("gone fishing") }, func(o *fakeStore, _ *courier.Courier) {
		time.Sleep(20 * time.Second)
		if s := o.state(); s.looks < 20 || s.looks > 45 || strings.Count(s.log, "gone fishing") != 1 {
			t.Errorf("%d looks in 20s; the log is %s", s.looks, s.log)
		}
		o.mu.Lock()
		o.fails = nil
		o.mu.Unlock()
		o.post(1)
		time.Sleep(2 * time.Second)
		if s := o.state(); o.waiting() != 0 || !strings.Contains(s.log, "works again") {
			t.Errorf("%d wait; the log is %s", o.waiting(), s.log)
		}
	})
}

// Mail that cannot be applied yet stays, and does not keep the courier busy. A refused mail is counted. If the rules
// panic, the mail is refused, so that it is not tried for ever.
func TestMailThatCannotBeAppliedIsLeftOrRefused(t *testing.T) {
	run(t, func(o *fakeStore, _ *courier.Config) {
		o.apply = func(d *kernel.Delivery) { d.Err, d.Waiting = perdure.Refuse(perdure.CodeBacklogFull, "no room"), true }
	}, func(o *fakeStore, _ *courier.Courier) {
		o.post(2)
		before := o.state()
		time.Sleep(10 * time.Minute)
		after := o.state()
		if n := after.looks - before.looks; n < 10 || n > 20 {
			t.Errorf("%d looks in ten minutes", n)
		}
		if after.applied != 0 || o.waiting() != 2 {
			t.Errorf("%d were applied, and %d wait", after.applied, o.waiting())
		}
		o.mu.Lock()
		o.apply = func(d *kernel.Delivery) {
			if d.ID.To == (perdure.JobID{1}) {
				d.Err = perdure.Refuse(perdure.CodeConflict, "another")
			} else {
				d.Err = errors.New("the rules fail")
			}
		}
		o.mu.Unlock()
		time.Sleep(time.Minute)
		end := o.state()
		last := end.calls[len(end.calls)-1]
		if o.waiting() != 0 || len(last) != 1 || last[0] != (perdure.JobID{1, 0, 1}) {
			t.Errorf("%d wait, and at last these were handed over: %v", o.waiting(), last)
		}
		for id, want := range map[perdure.JobID]string{{1}: "another", {1, 0, 1}: "the rules fail"} {
			s, err := o.Submission(t.Context(), id)
			if err != nil || s.Refused() == nil || s.Refused().Error() != want {
				t.Errorf("%s: %+v, %v", id, s, err)
			}
		}
		if end.applied != 2 || end.refused != 2 {
			t.Errorf("%d counted, %d as refused", end.applied, end.refused)
		}
	})
}

// The leader stores the bound on waiting mail, and reports how much mail waits, while it leads.
func TestLeaderStoresTheBoundAndCountsMail(t *testing.T) {
	var last *fakeStore
	run(t, func(o *fakeStore, cfg *courier.Config) {
		last, cfg.MaxMail = o, 2
		o.apply = func(d *kernel.Delivery) { d.Err, d.Waiting = perdure.Refuse(perdure.CodeBacklogFull, "no room"), true }
	}, func(o *fakeStore, c *courier.Courier) {
		o.post(2)
		if _, err := o.Post(t.Context(), perdure.JobID{9}, &kernel.Plan{Shape: &kernel.Shape{}, Definition: &kernel.Definition{}}); perdure.CodeOf(err) != perdure.CodeBacklogFull {
			t.Errorf("a third mail: %v", err)
		}
		time.Sleep(6 * time.Second)
		c.Wake()
		if w := o.state().told; w.Number != 2 || w.Oldest < 6*time.Second || w.Oldest > 7*time.Second {
			t.Errorf("told of %+v", w)
		}
	})
	if w := last.told[len(last.told)-1]; w != (kernel.MailWaiting{}) {
		t.Errorf("after it led: %+v", w)
	}
}

// Old closed mail is deleted in parts, and other mail is applied between them.
func TestOldClosedMailIsDeletedInParts(t *testing.T) {
	run(t, func(*fakeStore, *courier.Config) {}, func(o *fakeStore, _ *courier.Courier) {
		const parts = 3
		for i := range parts*1000 + 1 {
			plan := &kernel.Plan{Shape: &kernel.Shape{}, Definition: &kernel.Definition{Type: "t"}}
			if _, err := o.Post(t.Context(), perdure.JobID{2, byte(i >> 8), byte(i)}, plan); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(59 * time.Minute)
		if o.waiting() != 0 {
			t.Fatalf("%d wait", o.waiting())
		}
		before := o.state().forgot
		time.Sleep(3 * time.Minute)
		s, err := o.Submission(t.Context(), perdure.JobID{2, 0, 1})
		if err != nil || s != nil {
			t.Errorf("it is still there: %+v, %v", s, err)
		}
		if n := o.state().forgot - before; n < parts+1 || n > parts+4 {
			t.Errorf("forgot in %d parts", n)
		}
	})
}

// Mail that was closed long ago is deleted: at once, and then every minute.
func TestOldClosedMailIsDeleted(t *testing.T) {
	run(t, nil, func(o *fakeStore, _ *courier.Courier) {
		id := o.post(1)[0]
		if n := o.state().forgot; n != 1 {
			t.Errorf("forgot %d times at the beginning", n)
		}
		time.Sleep(50 * time.Minute)
		synctest.Wait()
		if s, err := o.Submission(t.Context(), id); s == nil || err != nil {
			t.Errorf("after 50 minutes: %v, %v", s, err)
		}
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if s, err := o.Submission(t.Context(), id); s != nil || err != nil {
			t.Errorf("after 65 minutes: %v, %v", s, err)
		}
		if n := o.state().forgot; n < 30 || n > 66 {
			t.Errorf("forgot %d times in 65 minutes", n)
		}
	})
}

// I15: a courier that does not lead lets the leader go first, and applies the remaining mail a moment later. It neither
// measures nor deletes mail.
func TestFollowerLetsTheLeaderGoFirst(t *testing.T) {
	run(t, nil, func(o *fakeStore, c *courier.Courier) {
		o.resign()
		before := o.state()
		o.post(3)
		if n := o.waiting(); n != 3 {
			t.Errorf("the leader was not let go first: %d wait", n)
		}
		time.Sleep(time.Second)
		if after := o.state(); o.waiting() != 0 || after.forgot != before.forgot || after.told.Number != 0 {
			t.Errorf("%d wait after a second; %+v", o.waiting(), after)
		}
		time.Sleep(time.Second)
		o.post(4)
		o.lead(c)
		if n := o.waiting(); n != 0 {
			t.Errorf("a new leader lets others go first: %d wait", n)
		}
	})
}
