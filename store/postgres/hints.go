package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure/internal/crashpoint"
)

// Hints shorten the wait for the next poll, and are no more than that: they may be late, doubled or
// lost, and a pooler in transaction mode lets none through. They say nothing but "look".
//
// They are sent after the commit and not with it, since PostgreSQL lets only one transaction at a time
// commit a NOTIFY (F069); and not for each commit, but at most once in hintEvery.
const (
	hintEvery   = 20 * time.Millisecond
	hintTime    = 2 * time.Second
	listenCheck = 20 * time.Second // how long silence is believed (F100)
	listenRetry = time.Second
	deafRetry   = time.Minute // where a connection has never heard anything

	rolesChannel = "perdure_role"
	mailChannel  = "perdure_mail" // told by who sends mail, with the commit

	notifySQL = "select set_config('synchronous_commit', 'off', true), pg_notify('perdure', $1)"
)

type wakeups struct {
	ctx       context.Context // until the store is closed
	cancel    context.CancelFunc
	noted     chan struct{}
	mail      chan struct{} // mail may have been sent
	sender    string        // this store, which need not hear of itself
	connected atomic.Bool
	roles     chan struct{} // somebody's place in a role has changed
	wg        sync.WaitGroup
}

func (h *wakeups) start(s *Store) {
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.noted, h.mail, h.roles = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	h.sender = rand.Text()
	h.wg.Go(func() {
		for h.sleep(h.noted) {
			rest := hintEvery
			if h.notify(s) != nil { // again, or the others would not hear before they look by themselves
				rest = listenRetry
				signal(h.noted)
			}
			pause := time.NewTimer(rest)
			select {
			case <-pause.C:
			case <-h.ctx.Done():
				pause.Stop()
			}
		}
	})
}

func (h *wakeups) stop() {
	h.cancel()
	h.wg.Wait()
}

func (h *wakeups) sleep(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-h.ctx.Done():
		return false
	}
}

// note asks for a hint to be sent; it never waits.
func (h *wakeups) commit(stirred bool) {
	if stirred {
		signal(h.noted)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is on its way already
	}
}

func (h *wakeups) notify(s *Store) error {
	ctx, cancel := context.WithTimeout(h.ctx, hintTime)
	defer cancel()
	crashpoint.Here(crashpoint.PostgresHint)
	_, err := s.pool.Exec(ctx, notifySQL, h.sender)
	crashpoint.Here(crashpoint.PostgresHinted)
	return err
}

// Heard says that what is sent arrives here: it is tried at the beginning and in every silence, since a
// pooler may take LISTEN and let nothing through.
func (s *Store) Heard() bool { return s.hints.connected.Load() }

// RoleHints gives a sign when somebody's place in a role has changed, as far as Hints hears of it.
func (s *Store) RoleHints() <-chan struct{} { return s.hints.roles }

// Hints gives a sign when another process has committed something that somebody may be
// waiting for: a step that is ready, a job that is at rest. It holds a connection of its own, and makes
// a new one where that breaks, until ctx or the store ends.
func (s *Store) Hints(ctx context.Context) <-chan struct{} {
	signs := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.hints.ctx, cancel)
	s.hints.wg.Go(func() {
		defer cancel()
		defer unhook()
		for ctx.Err() == nil {
			pause := listenRetry
			if err := s.listen(ctx, signs); errors.Is(err, errDeaf) {
				pause = deafRetry
			}
			s.hints.connected.Store(false)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	})
	return signs
}

// listen passes signs on until the connection breaks.
func (s *Store) listen(ctx context.Context, signs chan struct{}) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hintTime)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "listen perdure; listen "+rolesChannel+"; listen "+mailChannel); err != nil {
		return err
	}
	signal(signs) // for what was missed before
	signal(s.hints.mail)
	wait := time.Duration(0)
	for {
		n, err := s.awaitNotification(ctx, conn, wait)
		if err != nil {
			return err
		}
		s.hints.connected.Store(true)
		wait = listenCheck
		switch {
		case n.Channel == mailChannel:
			signal(s.hints.mail)
		case n.Channel == rolesChannel:
			signal(s.hints.roles)
		case n.Payload != s.hints.sender:
			signal(signs)
		}
	}
}

var errDeaf = errors.New("what was sent did not arrive")

// hear waits for a notification; after so long a silence it sends one itself.
func (s *Store) awaitNotification(ctx context.Context, conn *pgx.Conn, silence time.Duration) (*pgconn.Notification, error) {
	if silence > 0 {
		quiet, cancel := context.WithTimeout(ctx, silence)
		n, err := conn.WaitForNotification(quiet)
		over := quiet.Err() != nil && ctx.Err() == nil
		cancel()
		if !over || err == nil {
			return n, err
		}
	}
	if err := s.hints.notify(s); err != nil {
		return nil, err
	}
	echo, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	n, err := conn.WaitForNotification(echo)
	if err != nil && echo.Err() != nil && ctx.Err() == nil {
		return nil, errDeaf
	}
	return n, err
}
