// Package courier applies mail: what one transaction wants of a job that another transaction does (kernel.Mail). It reads
// what waits, oldest first, and has the scheduler apply it. It decides nothing.
//
// Each node has a courier. The one that leads looks as soon as it hears of mail. The others let it go first, and look a
// moment later, so that no mail waits for a leader. Any number of couriers at once do no harm: a mail is locked by the
// transaction that closes it, so that it is applied once.
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

// Scheduler makes jobs of submissions, and says of each what became of it.
type Scheduler interface {
	Deliver(context.Context, []*kernel.Delivery) error
}

// Config is what a courier is made of.
type Config struct {
	Store     Store
	Scheduler Scheduler
	Compile   func(kernel.Mail) (*kernel.Plan, error) // checks a submission as every other is checked
	MaxMail   int                                     // how many mails may wait; 0: kernel.DefaultMaxMail
	Poll      func() time.Duration                    // how long it may wait for news before it looks; nil: DefaultPoll
	Applied   func(refused bool)                      // told of each mail that was applied or refused; nil: nobody
	Waiting   func(kernel.MailWaiting)                // told how much waits, while it leads, and that nothing does when it does not; nil: nobody
	Log       *slog.Logger
	Env       env.Env // nil: env.Real
}

const (
	// DefaultPoll is how long a courier waits that nobody tells of mail.
	DefaultPoll = 250 * time.Millisecond
	retry       = time.Second // where the store did not answer

	// patience is how long a courier that does not lead lets the leader go first.
	patience = time.Second

	// MaxPage and MaxPageBytes bound what is read at once.
	MaxPage      = 100
	MaxPageBytes = 32 << 20

	measureEvery = 5 * time.Second

	// What is closed is kept: the applied for as long as a transaction may last that began before, the refused
	// for as long as somebody may ask.
	appliedKept  = time.Hour
	refusedKept  = 14 * 24 * time.Hour
	forgetEvery  = time.Minute
	forgetAtOnce = 1000 // in one transaction
	forgetRounds = 1000
)

// Courier applies mail.
type Courier struct {
	cfg  Config
	lead atomic.Pointer[context.Context] // nil: another courier leads, or none
	took chan struct{}                   // this one has begun to lead
	news chan struct{}                   // mail may have been sent

	// Of the goroutine that runs:
	led      bool      // in the round before
	limited  bool      // MaxMail is stored, since it leads
	forgotAt time.Time // zero: not since it leads
	measured time.Time // when Waiting was last told of what waits
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

// Wake has the courier look: at once if it leads. It never waits.
func (c *Courier) Wake() { tell(c.news) }

func tell(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // it is about to look
	}
}

// Lead makes it the courier that looks at once, until ctx ends. It returns then.
func (c *Courier) Lead(ctx context.Context) {
	c.lead.Store(&ctx)
	tell(c.took)
	tell(c.news)
	c.cfg.Env.Wait(ctx, env.Forever, nil)
	c.lead.Store(nil)
	tell(c.news) // so that Waiting is told
}

// leads reports whether it leads now, and notes what is new about that.
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
				c.cfg.Log.Warn("the courier cannot apply mail, and tries again", "error", err)
			}
		} else if failed {
			c.cfg.Log.Info("the courier can apply mail again")
		}
		if failed = err != nil; more {
			continue
		}
		if c.cfg.Env.Wait(ctx, c.drawn(wait), c.news) == env.Got && !leads {
			c.cfg.Env.Wait(ctx, c.drawn(patience), c.took)
		}
	}
}

// drawn is random, so that couriers do not look all at once, and never longer than max.
func (c *Courier) drawn(max time.Duration) time.Duration {
	return max/2 + time.Duration(float64(max/2)*c.cfg.Env.Float64())
}

// round does all that is to be done now, up to a page of mail. It says whether to do so again at once.
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
	if more, err = c.apply(ctx, mail); err == nil && !more && leads {
		err = c.forget(ctx)
	}
	return more, err
}

// measure tells how much waits: often that nothing does, and now and then how much.
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

// apply says whether to look for another page at once. One of which nothing could be applied, because there is no room
// or because other couriers are at it, is left for a moment.
func (c *Courier) apply(ctx context.Context, mail []kernel.Mail) (more bool, err error) {
	deliveries := make([]*kernel.Delivery, 0, len(mail))
	for _, m := range mail {
		if m.Kind != kernel.MailSubmit { // a newer program has sent it, and applies it
			c.cfg.Log.Error("mail of a kind that this program does not know is left", "kind", m.Kind, "recipient", m.To)
			continue
		}
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
	closed := 0
	var broken []*kernel.Delivery
	for _, d := range deliveries {
		if d.Err != nil && !d.Left && d.Refused == nil && perdure.CodeOf(d.Err) == "" { // the rules failed
			broken = append(broken, &kernel.Delivery{ID: d.ID, Refused: d.Err})
		}
		if d.Left {
			continue
		}
		closed++
		c.cfg.Applied(d.Err != nil)
		if d.Err != nil {
			c.cfg.Log.Info("posted submission refused", "submission", d.ID.To, "error", d.Err)
		}
	}
	if len(broken) > 0 {
		err = c.cfg.Scheduler.Deliver(ctx, broken)
	}
	return closed > 0, err
}

// forget deletes mail that was closed long ago.
func (c *Courier) forget(ctx context.Context) error {
	if at := c.cfg.Env.Now(); c.forgotAt.IsZero() || at.Sub(c.forgotAt) > forgetEvery {
		c.forgotAt = at // the first time at once: nodes that never live for a minute forget, too
	} else {
		return nil
	}
	crashpoint.Here(crashpoint.CourierForget)
	defer crashpoint.Here(crashpoint.CourierForgot)
	now, err := c.cfg.Store.Now(ctx)
	for did, round := forgetAtOnce, 0; err == nil && did == forgetAtOnce && round < forgetRounds; round++ {
		did, err = c.cfg.Store.ForgetMail(ctx, now.Add(-appliedKept), now.Add(-refusedKept), forgetAtOnce)
	}
	return err
}
