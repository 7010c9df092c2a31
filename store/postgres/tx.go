package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/postgres/internal/pgwire"
)

// Update runs fn in a transaction: READ COMMITTED, so that each statement sees what was committed
// before it, and what is read after a lock is what the lock's last holder left.
//
// Where transactions lock jobs in several calls, two of them may wait for each other. The one that is
// tried again locks all that it asked for before at its first call, in the order of ids, and so cannot
// run into that a second time.
func (s *Store) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	var asked []perdure.JobID
	return s.retry(ctx, func(ctx context.Context) error {
		tx := &tx{store: s, clock: &s.clock, earlierRequests: asked, lockedRows: map[perdure.JobID]lockedRow{}, readyRows: map[kernel.StepRef]pgwire.RowID{},
			cache: s.cache.begin()}
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

// update is one try.
func (s *Store) update(tx *tx, fn func(kernel.Tx) error) (err error) {
	outcome := rolledBack
	defer func() { tx.end(outcome) }() // also where fn panics
	if err = fn(tx); err != nil {
		// What the transaction failed with comes before what fn made of it.
		return cmp.Or(tx.failed, judgeOwn(err))
	}
	if tx.failed != nil {
		return tx.failed
	}
	if outcome, err = tx.commit(); err != nil {
		return err
	}
	s.hints.commit(tx.wakeUp)
	return nil
}

// outcome is how a transaction ended.
type outcome uint8

const (
	rolledBack outcome = iota
	committed
	unknown
)

// judgeOwn is for errors that fn came to itself.
func judgeOwn(err error) error {
	if errors.Is(err, kernel.ErrStale) {
		return &fault{again, err}
	}
	return err
}

// tx is one try of an Update. It begins on the server with its first statement.
type tx struct {
	ctx             context.Context
	store           *Store
	conn            *pgxpool.Conn
	clock           *clock
	begun           bool
	lockRequests    []perdure.JobID     // jobs to lock, in this attempt
	earlierRequests []perdure.JobID     // those of the attempt before, until one is locked in this attempt
	clockReading    reading             // the clock, if it was read with the latest lock and not requested yet
	returnedReading reading             // the latest reading that Now has returned
	alerted         time.Duration       // the jump of the server's clock for which this transaction has raised an alert
	wrote           bool                // Save had something to write
	witness         witness             // of this transaction
	witnessed       bool                // the witness was requested, after rows were written
	failed          error               // the first failure: nothing works after it
	saved           []*pgwire.Statement // statements to send with the next request
	wakeUp          bool                // something may be ready to claim, or due

	cache      cacheTx
	lockedRows map[perdure.JobID]lockedRow     // locked, and not written since
	readyRows  map[kernel.StepRef]pgwire.RowID // rows of ready that were found
	limits     []kernel.Limit                  // those that there are
	hasLanes   bool                            // there may be rows of lane
	lanes      laneChanges
	agents     map[string]perdure.AgentSettings
}

const beginSQL = "begin isolation level read committed"

// begin are the statements before the first one. Each transaction shares the limits' gate and knows which
// there are (see PutLimit), or closes it.
func (tx *tx) begin(gate string) []*pgwire.Statement {
	tx.begun = true
	return []*pgwire.Statement{pgwire.New(beginSQL), pgwire.New(tx.store.settings), pgwire.New(gate), tx.readSettings()}
}

// readSettings reads limits and settings of agents.
func (tx *tx) readSettings() *pgwire.Statement {
	tx.limits, tx.agents, tx.hasLanes = nil, map[string]perdure.AgentSettings{}, len(tx.lanes.entered) > 0
	return pgwire.New(settingsSQL).Each(func(r *pgwire.Reader) error {
		kind, name, value, second := r.Int(), r.Text(), r.Int64(), r.Int64()
		switch kind {
		case settingLimit:
			tx.limits = append(tx.limits, kernel.Limit{Name: name, Max: int(value), PerKey: int(second)})
		case settingAgent:
			tx.agents[name] = perdure.AgentSettings{Ageing: perdure.Duration(value) * perdure.Duration(time.Microsecond)}
		case settingSchema: // a newer program may have migrated the store since this one opened it
			schema := kernel.Schema{Version: int(value), MinWriter: int(second)}
			return schema.Admit(Schema, "the database")
		default:
			tx.hasLanes = true
		}
		return nil
	})
}

// limitNames are the limits that there are.
func (tx *tx) limitNames() map[string]bool {
	names := make(map[string]bool, len(tx.limits))
	for _, l := range tx.limits {
		names[l.Name] = true
	}
	return names
}

// limited says whether there is a limit of this name.
func (tx *tx) limited(name string) bool {
	_, found := slices.BinarySearchFunc(tx.limits, name, func(l kernel.Limit, name string) int { return cmp.Compare(l.Name, name) })
	return found
}

// start begins the transaction, if nothing has.
func (tx *tx) start() error {
	if tx.begun {
		return nil
	}
	return tx.run()
}

// run sends statements in one round trip, with what was saved before them, and what begins the transaction
// if nothing has yet.
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

// fail remembers the first failure. In PostgreSQL the transaction is over with it.
func (tx *tx) fail(err error) error {
	if err == nil {
		return nil
	}
	err = judge(err, tx.conn)
	tx.failed = cmp.Or(tx.failed, err)
	return err
}

// commit goes on where the caller has gone away, so that its outcome is known wherever it can be.
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
	// What was saved goes with it. PostgreSQL carries out nothing after what fails; so what must meet its rows
	// fails there where it does not.
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
	case err == nil: // a transaction that has failed is rolled back
		return rolledBack, judge(errors.New("COMMIT was answered by a rollback"), tx.conn)
	case errors.As(err, &pe) && (cmp.Or(pe.SeverityUnlocalized, pe.Severity) == "ERROR" || !reached):
		return rolledBack, tx.fail(err) // the server has said no
	}
	// Also where pgconn.SafeToRetry says that nothing was sent: of a connection that breaks while the
	// answer is awaited it says so, too.
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

// end rolls back what was not committed, or gives up the connection. The cache keeps what was committed.
func (tx *tx) end(how outcome) {
	switch how {
	case committed:
		tx.cache.commit()
		tx.clock.alerted(tx.alerted)
	case unknown:
		tx.cache.indeterminate()
	case rolledBack:
		if tx.begun {
			tx.rollback()
		}
		tx.cache.rollBack()
	}
}

func (tx *tx) rollback() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tx.ctx), time.Second)
	defer cancel()
	var f *fault
	if errors.As(tx.failed, &f) && f.kind == lost {
		_ = tx.conn.Conn().Close(ctx) // a standby's connection is whole, and of no use
		return
	}
	if tx.pg().IsClosed() || tx.pg().TxStatus() == 'I' {
		return
	}
	if _, err := tx.pg().Exec(ctx, "rollback").ReadAll(); err != nil {
		_ = tx.conn.Conn().Close(ctx)
	}
}

// The limits' gate is an advisory lock: shared by every transaction from its beginning, as it lets out and
// keeps permits by what limits there are; taken alone by who changes one. So a limit takes hold at once:
// nobody who has not seen it is still under way when its change is committed.
const (
	shareGate = "select pg_advisory_xact_lock_shared(8098991088)"
	closeGate = "select pg_advisory_xact_lock(8098991088)"
)

const (
	putAgentSQL = `insert into perdure.agent (name, ageing) values ($1, $2) on conflict (name) do update set ageing = excluded.ageing`
	putLimitSQL = `insert into perdure."limit" (name, max, per_key) values ($1, nullif($2, -1), nullif($3, -1))
		on conflict (name) do update set max = excluded.max, per_key = excluded.per_key`
	deleteLimitSQL = `delete from perdure."limit" where name = $1`

	// Whoever writes permits shares the gate: behind it, what is committed is all that there is.
	fillJobPermitsSQL = `insert into perdure.permit (name, key, job, idx, amount)
		select $1, '', o.job, 0, 1 from` + unsettledSQL + firstOfOpenSQL + `
		where s.type = $2 and s.permit on conflict do nothing`
	fillRunPermitsSQL = `insert into perdure.permit (name, key, job, idx, amount)
		select distinct $1, '', s.job, s.idx, 1 from perdure.out o` + membersSQL + `
		where o.agent = $2 and s.agent = $2 and s.phase = 3`
	emptyPermitsSQL = "delete from perdure.permit where name = $1"
)

// PutAgent takes the gate, so that steps that become ready in later transactions have the new settings.
func (tx *tx) PutAgent(name string, settings perdure.AgentSettings) error {
	if err := tx.closeGate(); err != nil {
		return err
	}
	return tx.run(pgwire.New(putAgentSQL).Text(name).Int64(time.Duration(settings.Ageing).Microseconds()), tx.readSettings())
}

// PutLimit also counts, for a limit that is new, who would hold it.
func (tx *tx) PutLimit(l kernel.Limit) error {
	if err := tx.closeGate(); err != nil {
		return err
	}
	list := []*pgwire.Statement{pgwire.New(putLimitSQL).Text(l.Name).Int(l.Max).Int(l.PerKey)}
	if kind, of, _ := kernel.SplitLimit(l.Name); !tx.limited(l.Name) {
		switch kind {
		case kernel.LimitOfJobs:
			list = append(list, pgwire.New(fillJobPermitsSQL).Text(l.Name).Text(of))
		case kernel.LimitOfAgent:
			list = append(list, pgwire.New(fillRunPermitsSQL).Text(l.Name).Text(of))
		}
	}
	tx.wakeUp = true // there may be more room
	return tx.run(append(list, tx.readSettings())...)
}

func (tx *tx) DeleteLimit(name string) (bool, error) {
	if err := tx.closeGate(); err != nil {
		return false, err
	}
	had := tx.limited(name)
	tx.wakeUp = true
	list := []*pgwire.Statement{pgwire.New(deleteLimitSQL).Text(name)}
	if !(kernel.LimitKey{Name: name}).Kept(nil) {
		list = append(list, pgwire.New(emptyPermitsSQL).Text(name))
	}
	return had, tx.run(append(list, tx.readSettings())...)
}

// closeGate waits for all that are under way, and keeps others out.
func (tx *tx) closeGate() error {
	if !tx.begun {
		return tx.fail(tx.store.request(tx.ctx, tx.conn.Conn(), tx.begin(closeGate)...))
	}
	return tx.run(pgwire.New(closeGate), tx.readSettings())
}

const closeAlertSQL = "update perdure.alert set closed_at = $3, closed_by = $2 where id = $1 and closed_at is null"

func (tx *tx) CloseAlert(id int64, by string, at time.Time) error {
	return tx.run(pgwire.New(closeAlertSQL).Int64(id).Text(by).Time(at))
}
