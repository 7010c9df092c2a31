// Package postgres is a kernel.Store on PostgreSQL 14 or later: any number of identical nodes share one database. It
// loads, locks and saves sets of rows. It holds no rules.
//
// Everything lives in the schema perdure. The base tables are packed and may change. The views perdure.jobs, steps,
// alerts, history, limits, nodes and holders are the documented interface (see migrations/).
//
// A session keeps no state: what a transaction needs is set for it alone, so that poolers in transaction mode
// (PgBouncer) work. A pooler that does not support prepared statements needs default_query_exec_mode=exec in the URL.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/redact"
	"github.com/perdure/perdure/store/internal/bundle"
	"github.com/perdure/perdure/store/postgres/internal/cache"
)

// Store is a database of jobs.
type Store struct {
	pool        *pgxpool.Pool
	limits      Limits
	settings    string        // SQL that sets the time limits of one transaction
	lockTimeout string        // of each transaction
	answer      time.Duration // see request
	clock       clock
	wakeups     wakeups
	commits     commits
	witnesses   witnesses
	readers     chan struct{} // a slot for each connection that views may use
	close       sync.Once

	cache         cache.Cache
	leastBundle   int // how many jobs make a bundle, at least; 0: no bundles are made
	indeterminate indeterminate
	routes        routeTexts
	fairTexts     fairTexts
}

var _ kernel.Store = (*Store)(nil)

// Limits bound how long a call may take, so that nothing waits for ever for a database that does not answer.
type Limits struct {
	Connect     time.Duration // for a new connection; the URL's connect_timeout overrides it
	Acquire     time.Duration // for a free connection
	Lock        time.Duration // for the lock of one row
	Statement   time.Duration // for one statement
	Idle        time.Duration // between two statements: a node that is paused releases its locks
	Transaction time.Duration // for the whole of one attempt
	Commit      time.Duration // for the answer to a COMMIT
	Silence     time.Duration // for the other side to confirm sent data (TCP), to detect a dead connection
}

// DefaultLimits suit a database in the same network. They are well above the time that any statement takes.
var DefaultLimits = Limits{
	Connect:     3 * time.Second,
	Acquire:     5 * time.Second,
	Lock:        2 * time.Second,
	Statement:   10 * time.Second,
	Idle:        5 * time.Second,
	Transaction: 20 * time.Second,
	Commit:      10 * time.Second,
	Silence:     5 * time.Second,
}

const defaultMaxConns = 10

// Option is an option of Open.
type Option func(*config)

type config struct {
	*pgxpool.Config
	limits       Limits
	virtualClock bool
	bundles      int
}

// WithLimits replaces DefaultLimits.
func WithLimits(l Limits) Option { return func(c *config) { c.limits = l } }

// WithVirtualClock says that the server's clock is a simulation's: it is not compared with this process's clock.
func WithVirtualClock() Option { return func(c *config) { c.virtualClock = true } }

// WithBundles sets how many jobs that are submitted together and wait are stored as one row, at least. 0: none. The
// default is 8.
func WithBundles(least int) Option { return func(c *config) { c.bundles = least } }

// Open connects to the database at url, and refuses it if its schema does not allow this program.
func Open(ctx context.Context, url string, opts ...Option) (*Store, error) {
	cfg, err := configure(url, opts)
	if err != nil {
		return nil, err
	}
	s := &Store{limits: cfg.limits, settings: cfg.settings(), lockTimeout: cfg.lockTimeout(), answer: cfg.answer(), cache: cache.New(), leastBundle: cfg.bundles}
	cfg.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error {
		s.prepare(cc)
		return nil
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg.Config); err != nil {
		return nil, perdure.Refuse(perdure.CodeInvalid, "postgres: %s", redact.Text(err.Error()))
	}
	s.clock.virtual = cfg.virtualClock
	s.readers = make(chan struct{}, max(1, int(cfg.MaxConns)-reserve))
	s.commits.start()
	s.wakeups.start(s)
	if err := s.CheckSchema(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the connections after the calls that are in progress.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.wakeups.stop()
		s.commits.stop()
		s.pool.Close()
	})
	return nil
}

func configure(dsn string, opts []Option) (*config, error) {
	if why := misread(dsn); why != "" {
		return nil, &perdure.Error{Code: perdure.CodeInvalid, Message: "not the URL of a PostgreSQL database: " + why, Hint: escapeHint}
	}
	pc, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, perdure.Refuse(perdure.CodeInvalid, "not the URL of a PostgreSQL database: %s", faultIn(err))
	}
	c := &config{Config: pc, limits: DefaultLimits, bundles: bundle.MinJobs}
	if !strings.Contains(dsn, "pool_max_conns") {
		c.MaxConns = max(c.MaxConns, defaultMaxConns)
	}
	for _, opt := range opts {
		opt(c)
	}
	if !strings.Contains(dsn, "connect_timeout") {
		c.ConnConfig.ConnectTimeout = c.limits.Connect
	}
	c.PingTimeout = c.limits.Connect
	c.ConnConfig.DialFunc = c.limits.dial
	if _, ok := c.ConnConfig.RuntimeParams["application_name"]; !ok {
		c.ConnConfig.RuntimeParams["application_name"] = "perdure"
	}
	return c, nil
}

// lockTimeout is the setting of every transaction.
func (c *config) lockTimeout() string {
	if given, ok := c.ConnConfig.RuntimeParams["lock_timeout"]; ok {
		return given
	}
	return fmt.Sprint(c.limits.Lock.Milliseconds())
}

// answer returns how long a request waits for its answer: longer than the server's own limit for a statement. If the URL
// sets statement_timeout, that limit may have any length, so the request may take as long as the transaction.
func (c *config) answer() time.Duration {
	if _, given := c.ConnConfig.RuntimeParams["statement_timeout"]; given {
		return c.limits.Transaction
	}
	return c.limits.Statement + answerSlack
}

// settings returns the settings of every transaction. A setting that the URL gives is not changed.
//
// The planner may only use index scans, which every statement here is written for. A plan that was made while a table
// was empty, or from old statistics, must not become a scan of all rows; and the statistics of a queue are always old.
// No parameter makes another plan better. So one plan of each statement is made and kept: the one that plan_test.go
// checks.
func (c *config) settings() string {
	var b strings.Builder
	set := func(name, value string) {
		if _, ok := c.ConnConfig.RuntimeParams[name]; !ok {
			fmt.Fprintf(&b, ", set_config('%s', '%s', true)", name, value)
		}
	}
	ms := func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
	set("statement_timeout", ms(c.limits.Statement))
	set("lock_timeout", ms(c.limits.Lock))
	set("idle_in_transaction_session_timeout", ms(c.limits.Idle))
	for _, way := range []string{"seqscan", "bitmapscan", "hashjoin", "mergejoin", "material"} {
		set("enable_"+way, "off")
	}
	set("jit", "off")
	set("plan_cache_mode", "force_generic_plan")
	return "select " + strings.TrimPrefix(b.String(), ", ")
}

const escapeHint = "percent-encode special characters in the user, the password and the database: @ is %40, / is %2F, : is %3A, ? is %3F, # is %23"

// misread returns why a URL is probably not meant as it is parsed; empty if it may be. If a password contains an
// unescaped / or #, its end would be taken for the database or a parameter, and messages of the server would repeat it.
// The driver takes what follows the first @ for the host, and repeats it when it finds no such host.
func misread(dsn string) string {
	_, rest, found := strings.Cut(dsn, "://")
	if !found {
		return "" // key=value
	}
	if _, err := url.Parse(dsn); err != nil {
		return redact.ParseError(err)
	}
	hosts := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts = rest[:i]
		after, _, _ := strings.Cut(rest[i:], "=")
		if strings.Contains(after, "@") {
			return "there is an @ after the host"
		}
		if strings.Contains(rest[i:], "#") {
			return "there is a # after the host"
		}
	}
	if strings.Count(hosts, "@") > 1 {
		return "there is more than one @"
	}
	return ""
}

// faultIn returns what is wrong with a URL that the driver refuses, without the URL itself, which the driver's error
// repeats.
func faultIn(err error) string {
	var refused *pgconn.ParseConfigError
	if !errors.As(err, &refused) {
		return redact.Text(err.Error())
	}
	bare := *refused
	bare.ConnString = ""
	return redact.Text(strings.TrimPrefix(bare.Error(), "cannot parse ``: "))
}
