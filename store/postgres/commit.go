package postgres

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// With a synchronous standby (synchronous_standby_names), a COMMIT waits in the server until the standby has it.
// While it waits, no other session sees its changes. PostgreSQL ends the wait early in three cases: the COMMIT is
// cancelled, its backend is terminated, or the server restarts. Then the changes become visible although the
// standby does not have them, and are lost if the standby is promoted. So three rules keep acknowledged work
// (F150 to F152):
//
//   - A statement that may commit is never cancelled. The driver sends a cancel request on its own whenever a
//     context ends or a connection breaks; connLink suppresses it.
//   - A COMMIT whose wait was ended early is an indeterminate commit (kernel.ErrUnknown).
//   - What is visible may not be on the standby. So a transaction that writes nothing, and whose caller may
//     acknowledge what it has read, writes a record of its own before its COMMIT (awaitStandbySQL). The standby has
//     that record only after all that was visible.
//
// A COMMIT that this process gives up keeps its backend until the standby answers. commits bounds their number.
// See docs/adr/0021-synchronous-standby.md.

// awaitStandbySQL makes the COMMIT after it wait for a synchronous standby, if there is one. The record belongs to
// no table and is ignored by replication. (pg_current_xact_id() alone would not do: a transaction that has written
// nothing to the log does not wait.)
// The other columns are a witness (see witness.go).
const awaitStandbySQL = `select case when ` + waitsForStandby + ` then pg_logical_emit_message(true, 'perdure', '') end,
	pg_current_xact_id_if_assigned(), case when not pg_is_in_recovery() then (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8 end, pg_postmaster_start_time()`

const waitsForStandby = `not pg_is_in_recovery() and current_setting('synchronous_standby_names') <> '' and current_setting('synchronous_commit') not in ('off', 'local')`

// connLink is the state of one connection that the store keeps in addition to its prepared statements.
type connLink struct {
	dial         pgconn.DialFunc
	connected    atomic.Bool // the connection is established: further dials are for cancel requests
	committing   atomic.Bool // a statement that may commit was sent, and is not answered
	unreplicated atomic.Bool // the server has ended a wait for the standby early
}

const linkKey = "perdure.link"

var (
	errNoCancel     = errors.New("a statement that may commit is not cancelled")
	errUnreplicated = errors.New("the wait for the synchronous standby was cancelled")
)

// prepare is addLink for a connection that must not reach a former primary.
func (s *Store) prepare(cfg *pgx.ConnConfig) *pgx.ConnConfig {
	valid, l := cfg.ValidateConnect, addLink(cfg)
	cfg.ValidateConnect = func(ctx context.Context, pg *pgconn.PgConn) error {
		if valid != nil {
			if err := valid(ctx, pg); err != nil {
				return err
			}
		}
		if err := s.clock.refuseFormer(ctx, pg); err != nil {
			return err
		}
		l.connected.Store(true)
		return nil
	}
	return cfg
}

// addLink adds a link to the configuration of a connection.
func addLink(cfg *pgx.ConnConfig) *connLink {
	l := &connLink{dial: cfg.DialFunc}
	cfg.DialFunc = l.connect
	cfg.OnNotice = l.notice
	cfg.BuildContextWatcherHandler = func(pg *pgconn.PgConn) ctxwatch.Handler {
		pg.CustomData()[linkKey] = l
		return &pgconn.DeadlineContextWatcherHandler{Conn: pg.Conn()}
	}
	return l
}

func linkOf(conn *pgx.Conn) *connLink { return conn.PgConn().CustomData()[linkKey].(*connLink) }

// connect is called for the connection, and by the driver for each cancel request, which has to end within
// cancelWithin.
func (l *connLink) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if l.committing.Load() {
		return nil, errNoCancel
	}
	if !l.connected.Load() {
		return l.dial(ctx, network, addr)
	}
	deadline := time.Now().Add(cancelWithin)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, err := l.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(deadline)
}

// notice recognizes the server's warning by the name of the server function that raises it, because its text is
// translated.
func (l *connLink) notice(_ *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		l.unreplicated.Store(true)
	}
}

// commitTrip is pgwire.RoundTrip for statements that may commit. If their answer is lost, or does not come within
// Limits.Commit, they are not cancelled, and the connection is closed.
func (s *Store) commitTrip(ctx context.Context, conn *pgx.Conn, list ...*pgwire.Statement) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.Commit)
	defer cancel()
	l, sent := linkOf(conn), time.Now()
	l.unreplicated.Store(false)
	l.committing.Store(true)
	err := pgwire.RoundTrip(ctx, conn, list...)
	var pe *pgconn.PgError
	switch {
	case conn.IsClosed():
		hangUp(conn)
		if !errors.As(err, &pe) {
			s.commits.givenUp(s, sent)
		}
		return err
	case l.unreplicated.Load() && err == nil:
		err = errUnreplicated
	case err == nil:
		s.commits.acknowledged(sent)
	}
	l.committing.Store(false)
	return err
}

// commits bounds the COMMITs that this process has given up and that may still wait in the server. From maxGivenUp on,
// no statement that may commit is sent, except one probe at a time, until a probe is acknowledged.
type commits struct {
	mu      sync.Mutex
	waiting []time.Time    // when they were sent
	resumed chan struct{}  // closed when commits are sent again; nil while they are
	why     *perdure.Error // while they are not

	ctx    context.Context // until the store is closed
	cancel context.CancelFunc
	probes sync.WaitGroup
}

const (
	maxGivenUp = 4
	probeRetry = 250 * time.Millisecond // between two probes
	probeCheck = time.Second            // between two checks whether the probe's backend still exists
)

var (
	errNoAnswer = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the store does not answer commits",
		Hint: "it is probed, and work resumes by itself"}
	errNoStandby = &perdure.Error{Code: perdure.CodeUnavailable, Message: "the store's synchronous standby does not answer",
		Hint: "start the standby, or remove it from synchronous_standby_names; work resumes by itself"}
)

func (c *commits) start() { c.ctx, c.cancel = context.WithCancel(context.Background()) }

func (c *commits) stop() {
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.probes.Wait()
}

// Accepting returns why the store accepts no commits at present; nil while it does.
func (s *Store) Accepting() error {
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	if s.commits.why == nil {
		return nil
	}
	return s.commits.why
}

// admit waits for a bounded time until commits may be sent.
func (c *commits) admit(ctx context.Context, patience time.Duration) error {
	c.mu.Lock()
	resumed := c.resumed
	c.mu.Unlock()
	if resumed == nil {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-resumed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why == nil {
		return nil
	}
	return c.why
}

func (c *commits) givenUp(s *Store, sent time.Time) {
	s.pool.Reset() // if the server is gone, the other idle connections are of no use either
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting = append(c.waiting, sent); len(c.waiting) < maxGivenUp || c.resumed != nil || c.ctx.Err() != nil {
		return
	}
	c.resumed, c.why = make(chan struct{}), errNoAnswer
	resumed := c.resumed
	c.probes.Go(func() { s.probe(c.ctx, resumed) })
}

// acknowledged says that a commit sent at that time has ended: standbys confirm commits in their order, so those
// sent before have ended, too.
func (c *commits) acknowledged(sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return
	}
	still := c.waiting[:0]
	for _, at := range c.waiting {
		if at.After(sent) {
			still = append(still, at)
		}
	}
	if c.waiting = still; len(still) < maxGivenUp && c.resumed != nil {
		close(c.resumed)
		c.resumed, c.why = nil, nil
	}
}

func (c *commits) explain(why *perdure.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resumed != nil {
		c.why = why
	}
}

// probe sends commits, one after the other, until one is acknowledged and commits are sent again. After an
// acknowledgement they may still be stopped, because of commits that were sent after the probe and given up.
func (s *Store) probe(ctx context.Context, resumed <-chan struct{}) {
	for ctx.Err() == nil {
		acknowledged := s.probeOnce(ctx)
		select {
		case <-resumed:
			return
		default:
		}
		if !acknowledged {
			s.commits.explain(errNoAnswer)
		}
		_ = pause(ctx, probeRetry)
	}
}

// backend is a server's process that serves a connection.
type backend struct {
	pid   int
	start time.Time // of the server
}

const (
	probeSQL   = "select pg_backend_pid(), pg_postmaster_start_time(), " + "(" + waitsForStandby + ")::int, pg_logical_emit_message(true, 'perdure', '')::text"
	backendSQL = "select 1 from pg_stat_activity where pid = $1 and pg_postmaster_start_time() = $2"
)

// probeOnce waits for one commit as long as its backend is there, so that no more than one probe waits in the
// server.
func (s *Store) probeOnce(ctx context.Context) (acknowledged bool) {
	conn, err := s.connect(ctx)
	if err != nil {
		return false
	}
	defer closeNow(conn)
	var of backend
	why := errNoAnswer
	begin := func() error {
		ctx, cancel := context.WithTimeout(ctx, s.limits.Statement)
		defer cancel()
		return pgwire.RoundTrip(ctx, conn, pgwire.New(beginSQL), pgwire.New(s.settings), pgwire.New(probeSQL).Each(func(r *pgwire.Reader) error {
			of = backend{r.Int(), r.Time()}
			if r.Int() != 0 {
				why = errNoStandby
			}
			return r.Failed
		}))
	}
	if begin() != nil {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, sent, done := linkOf(conn), time.Now(), make(chan error, 1)
	l.committing.Store(true)
	go func() { done <- pgwire.RoundTrip(ctx, conn, pgwire.New("commit")) }()
	look := time.NewTicker(probeCheck)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			if err != nil || l.unreplicated.Load() {
				return false
			}
			s.commits.acknowledged(sent)
			return true
		case <-look.C:
		}
		switch there, err := s.serves(ctx, of); {
		case err != nil:
			s.commits.explain(errNoAnswer)
		case there:
			s.commits.explain(why)
		default: // another server has taken over
			cancel()
			<-done //nolint:errcheck // the connection is given up
			s.pool.Reset()
			return false
		}
	}
}

// serves reports whether a backend exists. It uses a connection of its own: those of the pool may all lead to a server
// that is gone.
func (s *Store) serves(ctx context.Context, of backend) (there bool, err error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return false, err
	}
	defer closeNow(conn)
	ctx, cancel := context.WithTimeout(ctx, s.limits.Connect)
	defer cancel()
	err = pgwire.RoundTrip(ctx, conn, pgwire.New(backendSQL).Int(of.pid).Moment(of.start).Each(func(*pgwire.Reader) error {
		there = true
		return nil
	}))
	return there, err
}

// connect makes a connection outside of the pool.
func (s *Store) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg := s.pool.Config().ConnConfig
	ctx, cancel := context.WithTimeout(ctx, s.limits.Connect)
	defer cancel()
	return pgx.ConnectConfig(ctx, s.prepare(cfg))
}

func closeNow(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
