// Package courier applies mail: durable requests from one transaction to another (kernel.Mail). It reads the mail that
// waits, oldest first, and calls the scheduler to apply it. It decides nothing.
//
// Each node has a courier. The courier that leads the role reads mail as soon as a wake-up arrives. The others wait a moment
// longer, so that the leader has usually applied the mail before; if there is no leader, they apply it. Several couriers at
// once do no harm: the transaction that closes a mail locks it, so each mail is applied once.
package courier

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Store keeps the mail.
type Store interface {
	kernel.Mailbox
	Now(context.Context) (time.Time, error)
	Update(ctx context.Context, fn func(kernel.Tx) error) error
	ForgetAccess(ctx context.Context, expired, unused, audit time.Time, max int) (int, error)
}

// Scheduler applies mail. It sets the result of each delivery.
type Scheduler interface {
	Deliver(context.Context, []*kernel.Delivery) error
}

// Config configures a courier.
type Config struct {
	Store     Store
	Scheduler Scheduler
	Compile   func(kernel.Mail) (*kernel.Plan, error) // compiles and checks the definition of a submission
	MaxMail   int                                     // how many mails may wait; 0: kernel.DefaultMaxMail
	Poll      func() time.Duration                    // the longest time between two reads without a wake-up; nil: DefaultPoll
	Applied   func(refused bool)                      // called for each mail that was closed; nil: no call
	Waiting   func(kernel.MailWaiting)                // called by the leader with the mail that waits, and once with zero when it stops leading; nil: no call
	Log       *slog.Logger
	Env       env.Env // nil: env.Real
}

const (
	// DefaultPoll is the time between two reads if the store sends no wake-ups.
	DefaultPoll = 250 * time.Millisecond
	retry       = time.Second // the pause after an error of the store

	// followerDelay is how long a courier that does not lead lets the leader go first after a wake-up.
	followerDelay = time.Second

	// MaxPage and MaxPageBytes bound one read.
	MaxPage      = 100
	MaxPageBytes = 32 << 20

	measureEvery = 5 * time.Second

	// Closed mail is kept for a while. A transaction with an old snapshot may submit a key again, and must find the mail
	// that was applied. Senders may look up why a mail was refused.
	appliedKept  = time.Hour
	refusedKept  = 14 * 24 * time.Hour
	forgetEvery  = time.Minute
	forgetAtOnce = 1000 // in one round
)

// Courier applies mail.
type Courier struct {
	cfg     Config
	lead    atomic.Pointer[context.Context] // nil: this courier does not lead
	elected chan struct{}                   // receives when this courier becomes the leader
	wakeups chan struct{}                   // receives when mail may have been sent

	// Only the goroutine of Run uses these:
	wasLeader   bool      // it led in the previous round
	boundStored bool      // MaxMail was stored since this courier became the leader
	deletedAt   time.Time // when closed mail was last deleted; zero: not since this courier became the leader
	measuredAt  time.Time // when the waiting mail was last counted; zero: not since this courier became the leader
}

// New returns a courier.
func New(cfg Config) *Courier {
	if cfg.MaxMail == 0 {
		cfg.MaxMail = kernel.DefaultMaxMail
	}
	if cfg.Poll == nil {
		cfg.Poll = func() time.Duration { return DefaultPoll }
	}
	if cfg.Applied == nil {
		cfg.Applied = func(bool) {}
	}
	if cfg.Waiting == nil {
		cfg.Waiting = func(kernel.MailWaiting) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Env == nil {
		cfg.Env = env.Real{}
	}
	return &Courier{cfg: cfg, elected: make(chan struct{}, 1), wakeups: make(chan struct{}, 1)}
}

// Wake makes the courier read mail soon. It never blocks.
func (c *Courier) Wake() { signal(c.wakeups) }

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Lead makes this courier the leader until ctx ends, and then returns.
func (c *Courier) Lead(ctx context.Context) {
	c.lead.Store(&ctx)
	signal(c.elected)
	signal(c.wakeups)
	c.cfg.Env.Wait(ctx, env.Forever, nil)
	c.lead.Store(nil)
	signal(c.wakeups) // the round that follows calls Waiting with zero
}

// leads reports whether this courier leads now. If that has changed, leads resets the state that a leader keeps.
func (c *Courier) leads() bool {
	lead := c.lead.Load()
	leads := lead != nil && (*lead).Err() == nil
	if leads != c.wasLeader {
		c.wasLeader, c.boundStored, c.deletedAt, c.measuredAt = leads, false, time.Time{}, time.Time{}
		c.cfg.Waiting(kernel.MailWaiting{})
	}
	return leads
}

// Run applies mail until ctx ends. It must be called only once.
func (c *Courier) Run(ctx context.Context) {
	if wakeups := c.cfg.Store.MailWakeups(); wakeups != nil {
		c.cfg.Env.Go(func() {
			for c.cfg.Env.Wait(ctx, env.Forever, wakeups) == env.Got && ctx.Err() == nil {
				c.Wake()
			}
		})
	}
	failed := false
	for ctx.Err() == nil {
		leads := c.leads()
		more, err := c.round(ctx, leads)
		wait := c.cfg.Poll()
		if err != nil {
			wait = retry
			if !failed && ctx.Err() == nil {
				c.cfg.Log.Warn("applying mail failed; retrying", "error", err)
			}
		} else if failed {
			c.cfg.Log.Info("applying mail works again")
		}
		if failed = err != nil; more && !failed {
			continue
		}
		if c.cfg.Env.Wait(ctx, c.drawn(wait), c.wakeups) == env.Got && !leads {
			c.cfg.Env.Wait(ctx, c.drawn(followerDelay), c.elected)
		}
	}
}

// drawn returns a random duration between max/2 and max, so that the couriers of all nodes do not read at the same time.
func (c *Courier) drawn(max time.Duration) time.Duration {
	return max/2 + time.Duration(float64(max/2)*c.cfg.Env.Float64())
}

// round applies a page of mail, and deletes some closed mail if this courier leads. more reports that another round may
// have work.
func (c *Courier) round(ctx context.Context, leads bool) (more bool, err error) {
	if leads && !c.boundStored {
		if err := c.cfg.Store.Update(ctx, func(tx kernel.Tx) error { return tx.SetMaxMail(c.cfg.MaxMail) }); err != nil {
			return false, err
		}
		c.boundStored = true
	}
	crashpoint.Here(crashpoint.CourierRead)
	mail, err := c.cfg.Store.Mail(ctx, MaxPage, MaxPageBytes)
	if err != nil {
		return false, err
	}
	crashpoint.Here(crashpoint.CourierHasRead)
	if leads {
		if err := c.measure(ctx, len(mail) > 0); err != nil {
			return false, err
		}
	}
	more, err = c.apply(ctx, mail)
	if err != nil || !leads {
		return more, err
	}
	old, err := c.forget(ctx)
	return more || old, err
}

// measure calls Waiting: with zero if no mail waits, otherwise with the store's counts, at most once in measureEvery.
func (c *Courier) measure(ctx context.Context, found bool) error {
	if !found {
		c.cfg.Waiting(kernel.MailWaiting{})
		return nil
	}
	now := c.cfg.Env.Now()
	if !c.measuredAt.IsZero() && now.Sub(c.measuredAt) < measureEvery {
		return nil
	}
	waiting, err := c.cfg.Store.MailWaiting(ctx)
	if err == nil {
		c.measuredAt = now
		c.cfg.Waiting(waiting)
	}
	return err
}

// apply applies a page of mail. more reports that some of it was closed, so that another page may follow. If none was
// closed, because there is no room or because other couriers apply it, the next round follows a pause.
func (c *Courier) apply(ctx context.Context, mail []kernel.Mail) (more bool, err error) {
	deliveries := make([]*kernel.Delivery, 0, len(mail))
	for _, m := range mail {
		d := &kernel.Delivery{ID: m.MailID}
		d.Plan, d.Refused = c.cfg.Compile(m)
		deliveries = append(deliveries, d)
	}
	if len(deliveries) == 0 {
		return false, nil
	}
	if err := c.cfg.Scheduler.Deliver(ctx, deliveries); err != nil {
		return false, err
	}
	crashpoint.Here(crashpoint.CourierApplied)
	var broken []*kernel.Delivery
	for _, d := range deliveries {
		if d.Err != nil && !d.Waiting && d.Refused == nil && perdure.CodeOf(d.Err) == "" { // the rules panicked
			broken = append(broken, &kernel.Delivery{ID: d.ID, Refused: d.Err})
			continue
		}
		more = c.closed(d) || more
	}
	if len(broken) == 0 {
		return more, nil
	}
	if err := c.cfg.Scheduler.Deliver(ctx, broken); err != nil {
		return false, err
	}
	for _, d := range broken {
		more = c.closed(d) || more
	}
	return more, nil
}

// closed reports whether a mail was closed. If it was, closed counts it, and logs a refusal.
func (c *Courier) closed(d *kernel.Delivery) bool {
	if d.Waiting {
		return false
	}
	c.cfg.Applied(d.Err != nil)
	if d.Err != nil {
		c.cfg.Log.Info("submission in a transaction was refused", "submission", d.ID.To, "error", d.Err)
	}
	return true
}

// forget deletes old closed mail, sessions that have ended, and old entries of the audit log, at most once in forgetEvery.
// more reports that more of it may be left for the next round. A courier that becomes the leader deletes at once, because
// some nodes run for less than a minute.
func (c *Courier) forget(ctx context.Context) (more bool, err error) {
	at := c.cfg.Env.Now()
	if !c.deletedAt.IsZero() && at.Sub(c.deletedAt) <= forgetEvery {
		return false, nil
	}
	crashpoint.Here(crashpoint.CourierForget)
	defer crashpoint.Here(crashpoint.CourierForgot)
	now, err := c.cfg.Store.Now(ctx)
	if err != nil {
		return false, err
	}
	deleted, err := c.cfg.Store.ForgetMail(ctx, now.Add(-appliedKept), now.Add(-refusedKept), forgetAtOnce)
	if err != nil {
		return false, err
	}
	old, err := c.cfg.Store.ForgetAccess(ctx, now, now.Add(-operate.SessionIdle), now.Add(-operate.AuditKept), forgetAtOnce)
	if err != nil {
		return false, err
	}
	if more = deleted == forgetAtOnce || old >= forgetAtOnce; !more {
		c.deletedAt = at
	}
	return more, nil
}
