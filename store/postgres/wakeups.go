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

// Wake-ups shorten the wait for the next poll. Nothing depends on them: they may be late, doubled or lost, and a pooler
// in transaction mode delivers none. They carry only the id of the sender, which
// ignores its own.
//
// Those for ready steps are sent after the commit, not with it, because PostgreSQL lets only one transaction at a time commit a
// NOTIFY (F069), and not for each commit, but at most once in hintEvery. Those for roles and mail are sent with the commit: the
// former are rare, and the latter are sent by callers' transactions.
const (
	hintEvery         = 20 * time.Millisecond
	echoTimeout       = 2 * time.Second
	listenCheck       = 20 * time.Second // after such a silence, the connection is tested (F100)
	listenRetry       = time.Second
	notListeningRetry = time.Minute // if no notification has ever arrived on a connection

	rolesChannel = "perdure_role"
	mailChannel  = "perdure_mail" // sent with the commit that adds mail

	notifySQL = "select set_config('synchronous_commit', 'off', true), pg_notify('perdure', $1)"
)

type wakeups struct {
	ctx       context.Context // ends when the store is closed
	cancel    context.CancelFunc
	noted     chan struct{}
	mail      chan struct{} // there may be new mail
	sender    string        // the id of this store, which ignores its own notifications
	connected atomic.Bool
	roles     chan struct{} // a node's place in a role has changed
	wg        sync.WaitGroup
}

func (h *wakeups) start(s *Store) {
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.noted, h.mail, h.roles = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	h.sender = rand.Text()
	h.wg.Go(func() {
		for h.sleep(h.noted) {
			rest := hintEvery
			if h.notify(s) != nil { // retry soon, because other nodes would not learn of it before their next poll
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

// commit schedules a wake-up for other processes. It never waits.
func (h *wakeups) commit(wakeUp bool) {
	if wakeUp {
		signal(h.noted)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is scheduled already
	}
}

func (h *wakeups) notify(s *Store) error {
	ctx, cancel := context.WithTimeout(h.ctx, echoTimeout)
	defer cancel()
	crashpoint.Here(crashpoint.PostgresHint)
	_, err := s.pool.Exec(ctx, notifySQL, h.sender)
	crashpoint.Here(crashpoint.PostgresHinted)
	return err
}

// Listening reports whether notifications arrive here. That is tested at the beginning and after each silence, because a
// pooler may accept LISTEN and deliver nothing.
func (s *Store) Listening() bool { return s.wakeups.connected.Load() }

// RoleWakeups returns a channel that receives when a node's place in a role has changed, as far as Wakeups receives
// notifications.
func (s *Store) RoleWakeups() <-chan struct{} { return s.wakeups.roles }

// Wakeups returns a channel that receives when another process has committed something that a component may wait for: a
// step is ready, or a job is settled or parked. It holds a connection of its own, and replaces it when it breaks, until
// ctx ends or the store is closed. Then the channel is closed.
func (s *Store) Wakeups(ctx context.Context) <-chan struct{} {
	signs := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.wakeups.ctx, cancel)
	s.wakeups.wg.Go(func() {
		defer close(signs)
		defer cancel()
		defer unhook()
		for ctx.Err() == nil {
			pause := listenRetry
			if err := s.listen(ctx, signs); errors.Is(err, errNotListening) {
				pause = notListeningRetry
			}
			s.wakeups.connected.Store(false)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	})
	return signs
}

// listen forwards notifications until the connection breaks.
func (s *Store) listen(ctx context.Context, signs chan struct{}) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), echoTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "listen perdure; listen "+rolesChannel+"; listen "+mailChannel); err != nil {
		return err
	}
	signal(signs) // something may have been missed before
	signal(s.wakeups.mail)
	wait := time.Duration(0)
	for {
		n, err := s.awaitNotification(ctx, conn, wait)
		if err != nil {
			return err
		}
		s.wakeups.connected.Store(true)
		wait = listenCheck
		switch {
		case n.Channel == mailChannel:
			signal(s.wakeups.mail)
		case n.Channel == rolesChannel:
			signal(s.wakeups.roles)
		case n.Payload != s.wakeups.sender:
			signal(signs)
		}
	}
}

var errNotListening = errors.New("a notification that was sent did not arrive")

// awaitNotification waits for a notification. After a silence it sends one itself, as a test.
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
	if err := s.wakeups.notify(s); err != nil {
		return nil, err
	}
	echo, cancel := context.WithTimeout(ctx, echoTimeout)
	defer cancel()
	n, err := conn.WaitForNotification(echo)
	if err != nil && echo.Err() != nil && ctx.Err() == nil {
		return nil, errNotListening
	}
	return n, err
}
