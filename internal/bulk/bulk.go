// Package bulk carries out bulk acts: acts on many jobs, by a filter or by a list of ids (kernel.BulkAct).
//
// The worker runs on the node that leads the role courier. For each running bulk act in turn it reads a page of jobs, and
// has the scheduler perform the act on the first of them in one transaction, which also moves the cursor of the bulk act.
// So a node that dies leaves a bulk act between two transactions, and the next leader goes on from there.
//
// The worker decides nothing: the service finds the jobs, and the scheduler applies the rules. It keeps the rows that it
// has read only until the next transaction, and leaves most of the writers' time to claims and reports (share).
package bulk

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Store keeps the bulk acts.
type Store interface {
	BulkActs(context.Context, kernel.BulkFilter) ([]*kernel.BulkAct, error)
	ForgetBulkActs(ctx context.Context, before time.Time, max int) (int, error)
	Now(context.Context) (time.Time, error)
	Busy(context.Context) (bool, error)
}

// Scheduler performs a bulk act on the first jobs of a page.
type Scheduler interface {
	BulkStep(context.Context, *kernel.BulkAct, kernel.BulkPage) (kernel.BulkResult, error)
	Working() bool // whether a transaction of this node is in progress
}

// Config configures a worker.
type Config struct {
	Store     Store
	Scheduler Scheduler
	// Find returns the jobs that follow the cursor of a bulk act: at most max, in the order of their ids.
	Find func(ctx context.Context, act *kernel.BulkAct, max int) (kernel.BulkPage, error)
	Poll time.Duration // the time between two searches for bulk acts without a wake-up; 0: DefaultPoll
	Log  *slog.Logger
	Env  env.Env // nil: env.Real
}

const (
	// DefaultPoll is the time between two searches for bulk acts without a wake-up: those that were started on other nodes.
	DefaultPoll = 5 * time.Second
	// PageSize is how many jobs are found at once.
	PageSize = 500

	retry = time.Second // the pause after an error

	// While others write, a worker uses at most one part in share of one writer's time: after each transaction it rests for
	// share-1 times as long as the writer worked on it. If no other writes, it rests only as long as the writer worked.
	share = 10
	// looks is how often it looks, in the time for which the writer worked, whether others write: at most every minLook.
	looks   = 4
	minLook = time.Millisecond
	maxLook = time.Second
	maxRest = 10 * time.Second

	forgetEvery  = time.Minute
	forgetAtOnce = 100
)

// Worker carries out bulk acts.
type Worker struct {
	cfg     Config
	wakeups chan struct{}

	// Only the goroutine of Lead uses these; a new leadership begins with none:
	pages    map[string]*page
	paces    map[string]*kernel.BulkPace // of bulk acts with a bound on their jobs per second
	forgotAt time.Time                   // when old bulk acts were last deleted; zero: not yet
}

// page is what is left of the jobs that were found for a bulk act.
type page struct {
	kernel.BulkPage
	from *kernel.BulkAct // the row that they follow
}

// New returns a worker.
func New(cfg Config) *Worker {
	if cfg.Poll <= 0 {
		cfg.Poll = DefaultPoll
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Env == nil {
		cfg.Env = env.Real{}
	}
	return &Worker{cfg: cfg, wakeups: make(chan struct{}, 1)}
}

// Wake makes the worker look for bulk acts soon. It never blocks.
func (w *Worker) Wake() {
	select {
	case w.wakeups <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Lead carries out bulk acts until ctx ends. ctx carries the leadership of the role courier.
func (w *Worker) Lead(ctx context.Context) {
	w.pages, w.paces, w.forgotAt = map[string]*page{}, map[string]*kernel.BulkPace{}, time.Time{}
	failed := false
	for ctx.Err() == nil {
		done, err := w.round(ctx)
		switch {
		case errors.Is(err, kernel.ErrDeposed): // the election ends ctx soon
		case err != nil:
			if !failed && ctx.Err() == nil {
				w.cfg.Log.Warn("bulk acts failed; retrying", "error", err)
			}
			clear(w.pages)
			failed = true
		case failed:
			w.cfg.Log.Info("bulk acts work again")
			failed = false
		}
		switch {
		case err != nil:
			w.cfg.Env.Wait(ctx, retry, nil)
		case !done.running:
			w.cfg.Env.Wait(ctx, w.cfg.Poll, w.wakeups)
		case done.wait > 0:
			w.cfg.Env.Wait(ctx, done.wait, nil)
		default:
			w.rest(ctx, done.took)
		}
	}
}

// roundDone is what a round did.
type roundDone struct {
	running bool          // there are bulk acts that run
	took    time.Duration // how long writers worked on them
	wait    time.Duration // until the first of them may go on, if perSecond holds all back
}

// round moves on each running bulk act by one transaction.
func (w *Worker) round(ctx context.Context) (done roundDone, err error) {
	if err := w.forget(ctx); err != nil {
		return done, err
	}
	acts, err := w.cfg.Store.BulkActs(ctx, kernel.BulkFilter{State: operate.BulkRunning, Limit: operate.MaxBulkRunning})
	if err != nil {
		return done, err
	}
	pages := map[string]*page{}
	for _, act := range acts { // forget the pages of those that were stopped
		if p := w.pages[act.ID]; p != nil && p.from.Cursor == act.Cursor {
			pages[act.ID] = p
		}
	}
	w.pages = pages
	paces := map[string]*kernel.BulkPace{}
	free := false // one was not held back
	for _, act := range acts {
		most, wait, err := w.room(act, paces)
		if err != nil {
			return done, err
		}
		if most == 0 {
			if done.wait == 0 || wait < done.wait {
				done.wait = wait
			}
			continue
		}
		d, err := w.step(ctx, act, most)
		if p := paces[act.ID]; p != nil { // after an error, too: it may have been carried out
			p.Use(w.cfg.Env.Now(), most)
		}
		if err != nil {
			return done, err
		}
		free = true
		done.took += d
	}
	w.paces = paces
	if done.running = len(acts) > 0; free {
		done.wait = 0
	}
	return done, nil
}

// rest leaves the writers to others after a round on which they worked for so long. It ends when no other has written for
// as long, and at the latest after share-1 times as long.
func (w *Worker) rest(ctx context.Context, took time.Duration) {
	look := min(max(took/looks, minLook), maxLook)
	least, most := max(took, look), min((share-1)*took, maxRest)
	for rested, quiet := time.Duration(0), time.Duration(0); quiet < least && (rested < most || rested < look) && ctx.Err() == nil; rested += look {
		w.cfg.Env.Wait(ctx, look, nil)
		if quiet += look; w.busy(ctx) {
			quiet = 0
		}
	}
}

// busy reports whether others write now. A store that does not answer has enough to do.
func (w *Worker) busy(ctx context.Context) bool {
	if w.cfg.Scheduler.Working() {
		return true
	}
	busy, err := w.cfg.Store.Busy(ctx)
	return busy || err != nil
}

// room returns how many jobs a bulk act may meet now, and if none, how long it has to wait. What it has met under an
// earlier leader is not known: a bulk act that has begun there waits for a second.
func (w *Worker) room(act *kernel.BulkAct, paces map[string]*kernel.BulkPace) (most int, wait time.Duration, err error) {
	r, err := act.Decode()
	if err != nil {
		return 0, 0, err
	}
	if r.PerSecond == 0 {
		return PageSize, 0, nil
	}
	now := w.cfg.Env.Now()
	p := w.paces[act.ID]
	if p == nil {
		p = &kernel.BulkPace{PerSecond: r.PerSecond}
		if !act.Cursor.IsZero() {
			p.Use(now, r.PerSecond)
		}
		w.paces[act.ID] = p
	}
	paces[act.ID] = p
	most, wait = p.Room(now)
	return most, wait, nil
}

// step performs a bulk act on its next jobs, at most so many, and returns how long a writer worked on that.
func (w *Worker) step(ctx context.Context, act *kernel.BulkAct, most int) (time.Duration, error) {
	p := w.pages[act.ID]
	if p == nil {
		crashpoint.Here(crashpoint.BulkRead)
		found, err := w.cfg.Find(ctx, act, PageSize)
		if err != nil {
			return 0, err
		}
		crashpoint.Here(crashpoint.BulkHasRead)
		p = &page{BulkPage: found}
	}
	delete(w.pages, act.ID)
	part := p.BulkPage
	if len(part.Jobs) > most {
		part.Jobs, part.End, part.Last = part.Jobs[:most], part.Jobs[most-1], false
	}
	done, err := w.cfg.Scheduler.BulkStep(ctx, act, part)
	if err != nil || done.Act == nil {
		return done.Took, err
	}
	if rest := p.after(done.Act); rest != nil {
		w.pages[act.ID] = rest
	}
	if done.Act.State == operate.BulkDone {
		w.cfg.Log.Info("bulk act done", "bulk", act.ID, "done", done.Act.Done, "unchanged", done.Act.Unchanged, "refused", done.Act.Refused)
	}
	return done.Took, nil
}

// after returns what is left of the page behind the cursor; nil if nothing is.
func (p *page) after(act *kernel.BulkAct) *page {
	n := 0
	for n < len(p.Jobs) && p.Jobs[n].Compare(act.Cursor) <= 0 {
		n++
	}
	if n == len(p.Jobs) {
		return nil
	}
	rest := &page{BulkPage: p.BulkPage, from: act}
	rest.Jobs = p.Jobs[n:]
	return rest
}

// forget deletes old bulk acts, at most once in forgetEvery, a bounded number at a time.
func (w *Worker) forget(ctx context.Context) error {
	at := w.cfg.Env.Now()
	if !w.forgotAt.IsZero() && at.Sub(w.forgotAt) < forgetEvery {
		return nil
	}
	crashpoint.Here(crashpoint.BulkForget)
	defer crashpoint.Here(crashpoint.BulkForgot)
	now, err := w.cfg.Store.Now(ctx)
	if err != nil {
		return err
	}
	deleted, err := w.cfg.Store.ForgetBulkActs(ctx, now.Add(-operate.BulkKept), forgetAtOnce)
	if err == nil && deleted < forgetAtOnce {
		w.forgotAt = at
	}
	return err
}
