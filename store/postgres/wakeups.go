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
// Those of wakeupKinds are sent after the commit, not with it, because PostgreSQL lets only one transaction at a time commit a
// NOTIFY (F069), and not for each commit, but at most once in hintEvery. Those for roles and mail are sent with the commit: the
// former are rare, and the latter are sent by callers' transactions.
const (
	hintEvery         = 20 * time.Millisecond
	echoTimeout       = 2 * time.Second
	listenCheck       = 20 * time.Second // after such a silence, the connection is tested (F100)
	listenRetry       = time.Second
	notListeningRetry = time.Minute // if no notification has ever arrived on a connection

	readyChannel   = "perdure"
	outboxChannel  = "perdure_outbox"
	streamsChannel = "perdure_stream"
	rolesChannel   = "perdure_role"
	mailChannel    = "perdure_mail" // sent with the commit that adds mail

	listenSQL = "listen " + readyChannel + "; listen " + outboxChannel + "; listen " + streamsChannel + "; listen " + rolesChannel + "; listen " + mailChannel
	notifySQL = "select set_config('synchronous_commit', 'off', true), pg_notify(c, $1) from unnest($2::text[]) c"
)

// wakeupKinds says which wake-ups other processes get after a commit.
type wakeupKinds uint32

const (
	wakeReady   wakeupKinds = 1 << iota // work or permits may be available, or a job has ended
	wakeOutbox                          // notifications may be due
	wakeStreams                         // streams have new events
)

// channels returns the channels of wake-ups.
func (k wakeupKinds) channels() (names []string) {
	for i, name := range []string{readyChannel, outboxChannel, streamsChannel} {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

type wakeups struct {
	ctx       context.Context // ends when the store is closed
	cancel    context.CancelFunc
	noted     chan struct{} // kinds is not empty
	kinds     atomic.Uint32 // wakeupKinds to send
	outbox    chan struct{} // notifications may be due
	streams   chan struct{} // streams have new events
	mail      chan struct{} // there may be new mail
	sender    string        // the id of this store, which ignores its own notifications
	connected atomic.Bool
	roles     chan struct{} // a node's place in a role has changed
	wg        sync.WaitGroup
}

func (h *wakeups) start(s *Store) {
	h.ctx, h.cancel = context.WithCancel(context.Background())
	for _, c := range []*chan struct{}{&h.noted, &h.outbox, &h.streams, &h.mail, &h.roles} {
		*c = make(chan struct{}, 1)
	}
	h.sender = rand.Text()
	h.wg.Go(func() {
		for h.sleep(h.noted) {
			rest, kinds := hintEvery, wakeupKinds(h.kinds.Swap(0))
			if h.notify(s, kinds) != nil { // retry soon, because other nodes would not learn of it before their next poll
				rest = listenRetry
				h.commit(kinds)
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

// commit schedules wake-ups for other processes. It never waits.
func (h *wakeups) commit(kinds wakeupKinds) {
	if kinds != 0 {
		h.kinds.Or(uint32(kinds))
		signal(h.noted)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is scheduled already
	}
}

func (h *wakeups) notify(s *Store, kinds wakeupKinds) error {
	ctx, cancel := context.WithTimeout(h.ctx, echoTimeout)
	defer cancel()
	crashpoint.Here(crashpoint.PostgresHint)
	_, err := s.pool.Exec(ctx, notifySQL, h.sender, kinds.channels())
	crashpoint.Here(crashpoint.PostgresHinted)
	return err
}

// Listening reports whether notifications arrive here. That is tested at the beginning and after each silence, because a
// pooler may accept LISTEN and deliver nothing.
func (s *Store) Listening() bool { return s.wakeups.connected.Load() }

// RoleWakeups returns a channel that receives when a node's place in a role has changed, as far as Wakeups receives
// notifications.
func (s *Store) RoleWakeups() <-chan struct{} { return s.wakeups.roles }

// OutboxWakeups returns a channel that receives when another process has stored notifications, or changed how they are
// delivered, as far as Wakeups receives notifications.
func (s *Store) OutboxWakeups() <-chan struct{} { return s.wakeups.outbox }

// StreamWakeups returns a channel that receives when another process has added events to streams, as far as Wakeups
// receives notifications.
func (s *Store) StreamWakeups() <-chan struct{} { return s.wakeups.streams }

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
	if _, err := conn.Exec(ctx, listenSQL); err != nil {
		return err
	}
	signal(signs) // something may have been missed before
	signal(s.wakeups.mail)
	signal(s.wakeups.outbox)
	signal(s.wakeups.streams)
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
		case n.Payload == s.wakeups.sender:
		case n.Channel == outboxChannel:
			signal(s.wakeups.outbox)
		case n.Channel == streamsChannel:
			signal(s.wakeups.streams)
		default:
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
	if err := s.wakeups.notify(s, wakeReady); err != nil {
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
