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
)

// Store is where the mail is.
type Store interface {
	kernel.Mailbox
	Now(context.Context) (time.Time, error)
	Update(ctx context.Context, fn func(kernel.Tx) error) error
}

// Scheduler applies mail. It sets the result of each delivery.
type Scheduler interface {
	Deliver(context.Context, []*kernel.Delivery) error
}

// Config is what a courier is made of.
type Config struct {
	Store     Store
	Scheduler Scheduler
	Compile   func(kernel.Mail) (*kernel.Plan, error) // checks the definition of a submission
	MaxMail   int                                     // how many mails may wait; 0: kernel.DefaultMaxMail
	Poll      func() time.Duration                    // the longest time between two reads without a wake-up; nil: DefaultPoll
	Applied   func(refused bool)                      // called for each mail that was closed; nil: no call
	Waiting   func(kernel.MailWaiting)                // called with the mail that waits, while it leads; and once with zero when it stops leading; nil: no call
	Log       *slog.Logger
	Env       env.Env // nil: env.Real
}

const (
	// DefaultPoll is the time between two reads if the store sends no wake-ups.
	DefaultPoll = 250 * time.Millisecond
	retry       = time.Second // after an error of the store

	// followerDelay is how long a courier that does not lead waits after a wake-up.
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
	cfg  Config
	lead atomic.Pointer[context.Context] // nil: this courier does not lead
	took chan struct{}                   // a token: it has begun to lead
	news chan struct{}                   // a token: mail may have been sent

	// Of the goroutine that runs:
	led      bool      // it led in the previous round
	limited  bool      // MaxMail was stored since it leads
	forgotAt time.Time // when closed mail was last deleted; zero: not since it leads
	measured time.Time // when the mail that waits was last counted; zero: not since it leads
}

// New makes a courier.
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
	return &Courier{cfg: cfg, took: make(chan struct{}, 1), news: make(chan struct{}, 1)}
}

// Wake wakes the courier up. It never blocks.
func (c *Courier) Wake() { signal(c.news) }

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // a token is there
	}
}

// Lead makes this courier the leader until ctx ends, and returns then.
func (c *Courier) Lead(ctx context.Context) {
	c.lead.Store(&ctx)
	signal(c.took)
	signal(c.news)
	c.cfg.Env.Wait(ctx, env.Forever, nil)
	c.lead.Store(nil)
	signal(c.news) // so that Waiting is called
}

// leads reports whether the courier leads now. After a change it resets what it keeps as the leader.
func (c *Courier) leads() bool {
	lead := c.lead.Load()
	leads := lead != nil && (*lead).Err() == nil
	if leads != c.led {
		c.led, c.limited, c.forgotAt, c.measured = leads, false, time.Time{}, time.Time{}
		c.cfg.Waiting(kernel.MailWaiting{})
	}
	return leads
}

// Run applies mail until ctx ends. It is called once.
func (c *Courier) Run(ctx context.Context) {
	if hints := c.cfg.Store.MailHints(); hints != nil {
		c.cfg.Env.Go(func() {
			for c.cfg.Env.Wait(ctx, env.Forever, hints) == env.Got && ctx.Err() == nil {
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
		if c.cfg.Env.Wait(ctx, c.drawn(wait), c.news) == env.Got && !leads {
			c.cfg.Env.Wait(ctx, c.drawn(followerDelay), c.took)
		}
	}
}

// drawn returns a random duration between max/2 and max, so that couriers do not read all at once.
func (c *Courier) drawn(max time.Duration) time.Duration {
	return max/2 + time.Duration(float64(max/2)*c.cfg.Env.Float64())
}

// round applies a page of mail, and forgets some. more reports that there may be more to do.
func (c *Courier) round(ctx context.Context, leads bool) (more bool, err error) {
	if leads && !c.limited {
		if err := c.cfg.Store.Update(ctx, func(tx kernel.Tx) error { return tx.SetMaxMail(c.cfg.MaxMail) }); err != nil {
			return false, err
		}
		c.limited = true
	}
	crashpoint.Here(crashpoint.CourierLook)
	mail, err := c.cfg.Store.Mail(ctx, MaxPage, MaxPageBytes)
	if err != nil {
		return false, err
	}
	crashpoint.Here(crashpoint.CourierLooked)
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

// measure calls Waiting: with zero if no mail waits, else with the numbers of the store, once every measureEvery.
func (c *Courier) measure(ctx context.Context, some bool) error {
	if !some {
		c.cfg.Waiting(kernel.MailWaiting{})
		return nil
	}
	now := c.cfg.Env.Now()
	if !c.measured.IsZero() && now.Sub(c.measured) < measureEvery {
		return nil
	}
	waiting, err := c.cfg.Store.MailWaiting(ctx)
	if err == nil {
		c.measured = now
		c.cfg.Waiting(waiting)
	}
	return err
}

// apply applies a page of mail. more reports that some of it was closed, so that another page may follow. If none was closed,
// because there is no room or because other couriers apply it, the next round comes after a pause.
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
		if d.Err != nil && !d.Left && d.Refused == nil && perdure.CodeOf(d.Err) == "" { // panic in the rules
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

// closed reports whether a mail was closed, and tells of it.
func (c *Courier) closed(d *kernel.Delivery) bool {
	if d.Left {
		return false
	}
	c.cfg.Applied(d.Err != nil)
	if d.Err != nil {
		c.cfg.Log.Info("posted submission refused", "submission", d.ID.To, "error", d.Err)
	}
	return true
}

// forget deletes old closed mail, once every forgetEvery. more reports that there may be more of it, for the next round. A courier
// that begins to lead forgets at once, since some nodes run for less than a minute.
func (c *Courier) forget(ctx context.Context) (more bool, err error) {
	at := c.cfg.Env.Now()
	if !c.forgotAt.IsZero() && at.Sub(c.forgotAt) <= forgetEvery {
		return false, nil
	}
	crashpoint.Here(crashpoint.CourierForget)
	defer crashpoint.Here(crashpoint.CourierForgot)
	now, err := c.cfg.Store.Now(ctx)
	if err != nil {
		return false, err
	}
	did, err := c.cfg.Store.ForgetMail(ctx, now.Add(-appliedKept), now.Add(-refusedKept), forgetAtOnce)
	if err != nil {
		return false, err
	}
	if more = did == forgetAtOnce; !more {
		c.forgotAt = at
	}
	return more, nil
}
