package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/cache"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// Update runs fn in a transaction at READ COMMITTED: each statement sees what was committed before it, and a read after
// a lock sees what the previous holder of the lock has written.
//
// If transactions lock jobs in several calls, two of them may wait for each other. The one that is retried locks at its
// first call all jobs that it requested before, in the order of ids. So it cannot deadlock in the same way again.
func (s *Store) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	var asked []perdure.JobID
	return s.retry(ctx, func(ctx context.Context) error {
		tx := &tx{store: s, clock: &s.clock, earlierRequests: asked, lockedRows: map[perdure.JobID]lockedRow{}, readyRows: map[kernel.StepRef]pgwire.RowID{},
			cache: s.cache.Begin()}
		err := s.admitted(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			tx.ctx, tx.conn = ctx, conn
			return s.update(tx, fn)
		})
		if len(tx.lockRequests) > len(asked) {
			asked = tx.lockRequests
		}
		return err
	})
}

// update is one attempt.
func (s *Store) update(tx *tx, fn func(kernel.Tx) error) (err error) {
	outcome := rolledBack
	defer func() { tx.end(outcome) }() // also if fn panics
	if err = fn(tx); err != nil {
		// The error of the transaction takes precedence over the error that fn makes of it.
		return cmp.Or(tx.failed, judgeOwn(err))
	}
	if tx.failed != nil {
		return tx.failed
	}
	if outcome, err = tx.commit(); err != nil {
		return err
	}
	s.wakeups.commit(tx.wakes)
	return nil
}

// outcome is how a transaction ended.
type outcome uint8

const (
	rolledBack outcome = iota
	committed
	unknown
)

// judgeOwn wraps errors of fn itself.
func judgeOwn(err error) error {
	if errors.Is(err, kernel.ErrStale) {
		return &fault{again, err}
	}
	return err
}

// tx is one attempt of an Update. It begins on the server with its first statement.
type tx struct {
	ctx             context.Context
	store           *Store
	conn            *pgxpool.Conn
	clock           *clock
	begun           bool
	lockRequests    []perdure.JobID     // jobs to lock, in this attempt
	earlierRequests []perdure.JobID     // jobs that an earlier attempt requested, until this attempt locks a job
	clockReading    reading             // the reading that came with the latest lock, until Now returns it
	returnedReading reading             // the latest reading that Now has returned
	alerted         time.Duration       // the jump of the server's clock for which this transaction has raised an alert
	wrote           bool                // something was written: the clock's mark may be raised
	witness         witness             // of this transaction
	witnessed       bool                // the witness was requested, after rows were written
	failed          error               // the first failure: all later calls fail
	saved           []*pgwire.Statement // statements to send with the next request
	wakes           wakeupKinds         // for other processes, after the commit

	cache      cache.Tx
	bundles    bundleTx
	lockedRows map[perdure.JobID]lockedRow     // rows that are locked and not yet written
	readyRows  map[kernel.StepRef]pgwire.RowID // entries of table ready that were found
	limits     []kernel.Limit                  // those that are defined
	hasLanes   bool                            // table lane may have rows
	lanes      laneChanges
	shares     shareChanges
	agents     map[string]perdure.AgentSettings
	routing    kernel.Routing
}

const beginSQL = "begin isolation level read committed"

// begin returns the statements before the first one. Each transaction shares the limits' gate and reads which limits are
// defined (see PutLimit), or closes the gate.
func (tx *tx) begin(gate string) []*pgwire.Statement {
	tx.begun = true
	return []*pgwire.Statement{pgwire.New(beginSQL), pgwire.New(tx.store.settings), pgwire.New(gate), tx.readSettings()}
}

// readSettings reads limits and the settings of agents.
func (tx *tx) readSettings() *pgwire.Statement {
	tx.limits, tx.agents, tx.hasLanes = nil, map[string]perdure.AgentSettings{}, len(tx.lanes.entered) > 0
	tx.routing = kernel.Routing{}
	return pgwire.New(settingsSQL).Each(func(r *pgwire.Reader) error {
		kind, name, value, second := r.Int(), r.Text(), r.Int64(), r.Int64()
		switch kind {
		case settingLimit:
			name, rates, _ := strings.Cut(name, "\n")
			tx.limits = append(tx.limits, kernel.StoredLimit(name, int(value), int(second), rates))
		case settingAgent:
			name, fair, _ := strings.Cut(name, "\n")
			set := perdure.AgentSettings{Ageing: perdure.Duration(value) * perdure.Duration(time.Microsecond), Patience: perdure.Duration(second) * perdure.Duration(time.Microsecond)}
			if err := tx.store.fairTexts.read(&set, fair); err != nil {
				return err
			}
			tx.agents[name] = set
		case settingSchema: // a newer program may have migrated the database in the meantime
			schema := kernel.Schema{Version: int(value), MinWriter: int(second)}
			return schema.Admit(Schema, "the database")
		case settingReceiver:
			name, text, _ := strings.Cut(name, " ")
			settings, err := tx.store.routes.of(text)
			if err != nil {
				return err
			}
			tx.routing.Receivers = append(tx.routing.Receivers, kernel.Route{Name: name, Settings: settings})
		case settingFull:
			if tx.routing.Full == nil {
				tx.routing.Full = map[string]bool{}
			}
			tx.routing.Full[name] = true
		default:
			tx.hasLanes = true
		}
		return nil
	})
}

// limitNames returns the names of the defined limits.
func (tx *tx) limitNames() map[string]bool {
	names := make(map[string]bool, len(tx.limits))
	for _, l := range tx.limits {
		names[l.Name] = true
	}
	return names
}

// limited reports whether a limit is defined.
func (tx *tx) limited(name string) bool {
	_, found := slices.BinarySearchFunc(tx.limits, name, func(l kernel.Limit, name string) int { return cmp.Compare(l.Name, name) })
	return found
}

// start begins the transaction if it has not begun.
func (tx *tx) start() error {
	if tx.begun {
		return nil
	}
	return tx.run()
}

// run sends statements in one round trip, after those that were saved. If the transaction has not begun, it begins.
func (tx *tx) run(list ...*pgwire.Statement) error {
	if !tx.begun {
		list = append(tx.begin(shareGate), list...)
	}
	if len(tx.saved) > 0 {
		list = append(tx.saved, list...)
		tx.saved = nil
	}
	if len(list) == 0 {
		return nil
	}
	return tx.fail(tx.store.request(tx.ctx, tx.conn.Conn(), list...))
}

func (tx *tx) pg() *pgconn.PgConn { return tx.conn.Conn().PgConn() }

// fail keeps the first failure. In PostgreSQL a failed statement aborts the transaction: the server refuses all later
// ones until ROLLBACK.
func (tx *tx) fail(err error) error {
	if err == nil {
		return nil
	}
	err = judge(err, tx.conn)
	tx.failed = cmp.Or(tx.failed, err)
	return err
}

// commit returns without a COMMIT if the caller's context has ended. Once COMMIT is sent, it no longer depends on that
// context, so that the outcome is known whenever possible.
func (tx *tx) commit() (outcome, error) {
	if err := tx.ctx.Err(); err != nil {
		return rolledBack, tx.fail(err)
	}
	if !tx.begun {
		return rolledBack, nil
	}
	tx.saved = append(tx.saved, tx.laneStatements()...)
	for _, st := range []*pgwire.Statement{tx.raiseMark(), tx.awaitStandby()} {
		if st != nil {
			tx.saved = append(tx.saved, st)
		}
	}
	if tx.pg().IsClosed() {
		return rolledBack, tx.fail(errors.New("connection lost before COMMIT"))
	}
	if err := tx.store.Accepting(); err != nil { // since the transaction began
		return rolledBack, err
	}
	// The saved statements are sent with COMMIT. PostgreSQL executes nothing after an error. So a statement that must
	// write a certain number of rows fails in the server if it does not.
	list, reached := tx.saved, len(tx.saved) == 0
	for _, s := range list {
		s.Strictly()
	}
	if len(list) > 0 {
		list[len(list)-1].Then(func() { reached = true })
	}
	committing := pgwire.New("commit")
	crashpoint.Here(crashpoint.PostgresCommit)
	sent := tx.store.witnesses.sent()
	err := tx.store.commitTrip(context.WithoutCancel(tx.ctx), tx.conn.Conn(), append(list, committing)...)
	crashpoint.Here(crashpoint.PostgresCommitted)
	var pe *pgconn.PgError
	switch {
	case err == nil && committing.Tag == "COMMIT":
		tx.store.witnesses.acknowledged(tx.witness, sent)
		return committed, nil
	case err == nil: // a failed transaction is rolled back
		return rolledBack, judge(errors.New("COMMIT was answered by a rollback"), tx.conn)
	case errors.As(err, &pe) && (cmp.Or(pe.SeverityUnlocalized, pe.Severity) == "ERROR" || !reached):
		return rolledBack, tx.fail(err) // the server has refused
	}
	// This includes errors of which pgconn.SafeToRetry says that nothing was sent: it says so, too, if a connection
	// breaks while the answer is awaited.
	return unknown, fmt.Errorf("%w: %w", kernel.ErrUnknown, err)
}

// awaitStandby is for a transaction that may have written no row, because its caller may acknowledge what it has read.
// It returns nil if rows of jobs were written, because then COMMIT waits anyway.
func (tx *tx) awaitStandby() *pgwire.Statement {
	if tx.witnessed {
		return nil
	}
	return pgwire.New(awaitStandbySQL).Each(func(r *pgwire.Reader) error {
		r.Next()
		return tx.witness.scan(r)
	})
}

// end rolls back a transaction that was not committed, or closes its connection, and ends its part of the cache.
func (tx *tx) end(how outcome) {
	switch how {
	case committed:
		tx.cache.Commit()
		tx.bundles.committed(&tx.store.cache.Bundles)
		tx.clock.alerted(tx.alerted)
	case unknown:
		tx.cache.Indeterminate()
		if xid := tx.bundles.xid; xid != 0 {
			tx.store.indeterminate.add(tx.cache.Rows.Server, xid)
		}
	case rolledBack:
		if tx.begun {
			tx.rollback()
		}
		tx.cache.RollBack()
	}
}

func (tx *tx) rollback() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tx.ctx), time.Second)
	defer cancel()
	var f *fault
	if errors.As(tx.failed, &f) && f.kind == lost {
		_ = tx.conn.Conn().Close(ctx) // its server is gone, is a standby, or was refused
		return
	}
	if tx.pg().IsClosed() || tx.pg().TxStatus() == 'I' {
		return
	}
	if _, err := tx.pg().Exec(ctx, "rollback").ReadAll(); err != nil {
		_ = tx.conn.Conn().Close(ctx)
	}
}

// The limits' gate is an advisory lock. Every transaction shares it from its beginning, because it dispatches and stores
// permits by the limits that are defined. A transaction that changes a limit takes it exclusively. So a limit takes
// effect at once: when its change is committed, no transaction that has not seen it is in progress.
const (
	shareGate = "select pg_advisory_xact_lock_shared(8098991088)"
	closeGate = "select pg_advisory_xact_lock(8098991088)"
)

const (
	putAgentSQL = `insert into perdure.agent (name, ageing, patience, fair) values ($1, $2, $3, nullif($4, ''))
		on conflict (name) do update set ageing = excluded.ageing, patience = excluded.patience, fair = excluded.fair`
	deleteAgentSQL = `delete from perdure.agent where name = $1`
	putLimitSQL    = `insert into perdure."limit" (name, max, per_key, rates) values ($1, nullif($2, -1), nullif($3, -1), nullif($4, ''))
		on conflict (name) do update set max = excluded.max, per_key = excluded.per_key, rates = excluded.rates`
	deleteLimitSQL = `delete from perdure."limit" where name = $1`

	// Transactions that write permits share the gate. So a transaction that has closed the gate sees all permits.
	fillJobPermitsSQL = `insert into perdure.permit (name, key, job, idx, amount)
		select $1, '', o.job, 0, 1 from` + unsettledSQL + firstOfOpenSQL + `
		where s.type = $2 and s.permit on conflict do nothing`
	fillRunPermitsSQL = `insert into perdure.permit (name, key, job, idx, amount)
		select distinct $1, '', s.job, s.idx, 1 from perdure.out o` + membersSQL + `
		where o.agent = $2 and s.agent = $2 and s.phase = 3`
	emptyPermitsSQL = "delete from perdure.permit where name = $1"
)

// PutAgent closes the gate, so that steps that become ready in later transactions have the new settings.
func (tx *tx) PutAgent(name string, settings perdure.AgentSettings) error {
	if err := tx.closeGate(); err != nil {
		return err
	}
	return tx.run(pgwire.New(putAgentSQL).Text(name).Int64(time.Duration(settings.Ageing).Microseconds()).Int64(time.Duration(settings.Patience).Microseconds()).Text(kernel.FairText(&settings)), tx.readSettings())
}

func (tx *tx) DeleteAgent(name string) (bool, error) {
	if err := tx.closeGate(); err != nil {
		return false, err
	}
	_, had := tx.agents[name]
	return had, tx.run(pgwire.New(deleteAgentSQL).Text(name), tx.readSettings())
}

// PutLimit also stores, for a new limit, the permits that are held.
func (tx *tx) PutLimit(l kernel.Limit) error {
	if err := tx.closeGate(); err != nil {
		return err
	}
	list := []*pgwire.Statement{pgwire.New(putLimitSQL).Text(l.Name).Int(l.Max).Int(l.PerKey).Text(l.RatesText())}
	if kind, of, _ := kernel.SplitLimit(l.Name); !tx.limited(l.Name) {
		switch kind {
		case kernel.LimitOfJobs:
			list = append(list, pgwire.New(fillJobPermitsSQL).Text(l.Name).Text(of))
		case kernel.LimitOfAgent:
			list = append(list, pgwire.New(fillRunPermitsSQL).Text(l.Name).Text(of))
		}
	}
	tx.wakes |= wakeReady // the limit may have become higher
	return tx.run(append(list, tx.readSettings())...)
}

func (tx *tx) DeleteLimit(name string) (bool, error) {
	if err := tx.closeGate(); err != nil {
		return false, err
	}
	had := tx.limited(name)
	tx.wakes |= wakeReady
	list := []*pgwire.Statement{pgwire.New(deleteLimitSQL).Text(name)}
	if !(kernel.LimitKey{Name: name}).Kept(nil) {
		list = append(list, pgwire.New(emptyPermitsSQL).Text(name))
	}
	return had, tx.run(append(list, tx.readSettings())...)
}

// closeGate waits for all transactions that share the gate, and blocks new ones.
func (tx *tx) closeGate() error {
	if !tx.begun {
		return tx.fail(tx.store.request(tx.ctx, tx.conn.Conn(), tx.begin(closeGate)...))
	}
	return tx.run(pgwire.New(closeGate), tx.readSettings())
}

const closeAlertSQL = "update perdure.alert set closed_at = $3, closed_by = $2 where id = $1 and closed_at is null"

func (tx *tx) CloseAlert(id int64, by string, at time.Time) (closed bool, err error) {
	err = tx.run(pgwire.New(closeAlertSQL).Int64(id).Text(by).Time(at).Counted(func(n int64) { closed = n > 0 }))
	return closed, err
}

// The order is that of an expression, so that the index by jobs is read, not that by ids.
const lockAlertsSQL = "select " + alertFields + ` from perdure.alert a where a.job = any($1) and a.closed_at is null and exists (
	select from unnest($1::uuid[], $2::text[], $3::text[]) as c (of_job, of_step, of_kind)
	where c.of_job = a.job and (c.of_step = '' or c.of_step = a.step) and c.of_kind = a.kind)
order by a.id + 0 for update`

func (tx *tx) LockAlerts(of []kernel.CloseAlerts) (open []kernel.Alert, err error) {
	var jobs []perdure.JobID
	var steps, kinds []string
	for _, c := range of {
		for _, k := range c.Kinds {
			jobs, steps, kinds = append(jobs, c.Job), append(steps, c.Step), append(kinds, string(k))
		}
	}
	err = tx.run(pgwire.Into(uuids(pgwire.New(lockAlertsSQL), jobs).Texts(steps).Texts(kinds), &open, scanAlert))
	return open, err
}
