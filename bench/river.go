package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	riverWorkers  = 2000
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
	riverConns    = 40
)

func init() {
	common := []string{
		fmt.Sprintf("MaxWorkers %d, FetchCooldown %v, FetchPollInterval %v: as `river bench` sets them", riverWorkers, riverCooldown, riverPoll),
		"InsertManyFast for batches; the completer works in batches by itself",
		"steps in a row: ResumableStep, each but the last made durable by ResumableSetStepTx",
	}
	kinds = append(kinds, Kind{
		Name: "river-pg", Store: "PostgreSQL", Pace: 15_000,
		Settings: append(common, fmt.Sprintf("pgxpool of %d", riverConns), "synchronous_commit=on"),
		New: func(env *Env) System {
			r := &riverQueue[pgx.Tx]{env: env}
			r.connect, r.inTx = r.connectPostgres, r.inPostgresTx
			return r
		},
	}, Kind{
		Name: "river-sqlite", Store: "SQLite", Pace: 4_000,
		Settings: append(common, "one connection, as its documentation says", "synchronous=FULL, WAL"),
		New: func(env *Env) System {
			r := &riverQueue[*sql.Tx]{env: env}
			r.connect, r.inTx = r.connectSQLite, r.inSQLiteTx
			return r
		},
	})
}

// riverQueue is a client of River, on either driver.
type riverQueue[Tx any] struct {
	handled
	env     *Env
	connect func(context.Context) error
	inTx    func(context.Context, func(Tx) error) error

	workers int // handlers at once; 0: riverWorkers

	pool   *pgxpool.Pool
	db     *sql.DB
	driver riverdriver.Driver[Tx]
	client *river.Client[Tx]
	look   *look
	events <-chan *river.Event
}

// riverArgs is a job; more than one step makes it a resumable one.
type riverArgs struct {
	payload
	Steps int `json:"steps,omitempty"`
}

func (riverArgs) Kind() string { return "bench" }

type riverWorker[Tx any] struct {
	river.WorkerDefaults[riverArgs]
	q *riverQueue[Tx]
}

func (w *riverWorker[Tx]) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	if job.Args.Steps == 0 {
		w.q.handle(job.Args.Order, true)
		return nil
	}
	for i := range job.Args.Steps {
		river.ResumableStep(ctx, fmt.Sprintf("s%d", i+1), nil, func(ctx context.Context) error {
			w.q.handle(job.Args.Order, i == job.Args.Steps-1)
			if i == job.Args.Steps-1 {
				return nil // is durable with the job's completion
			}
			return w.q.inTx(ctx, func(tx Tx) error {
				_, err := river.ResumableSetStepTx[riverdriver.Driver[Tx]](ctx, tx, job)
				return err
			})
		})
	}
	return nil
}

func (r *riverQueue[Tx]) connectPostgres(ctx context.Context) error {
	cfg, err := pgxpool.ParseConfig(r.env.Postgres)
	if err != nil {
		return err
	}
	cfg.MaxConns = riverConns
	if r.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	r.driver = any(riverpgxv5.New(r.pool)).(riverdriver.Driver[Tx])
	r.look, err = lookAtPostgres(ctx, r.env.Postgres)
	return err
}

func (r *riverQueue[Tx]) connectSQLite(context.Context) (err error) {
	path := filepath.Join(r.env.Dir, "river.db")
	r.db, err = sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		return err
	}
	r.db.SetMaxOpenConns(1)
	r.driver = any(riversqlite.New(r.db)).(riverdriver.Driver[Tx])
	r.look, err = lookAtSQLite(path)
	return err
}

func (r *riverQueue[Tx]) inPostgresTx(ctx context.Context, f func(Tx) error) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error { return f(any(tx).(Tx)) })
}

func (r *riverQueue[Tx]) inSQLiteTx(ctx context.Context, f func(Tx) error) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(any(tx).(Tx)); err != nil {
		return err
	}
	return tx.Commit()
}

func (r *riverQueue[Tx]) Open(ctx context.Context) error {
	if err := r.connect(ctx); err != nil {
		return err
	}
	m, err := rivermigrate.New(r.driver, nil)
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker[Tx]{q: r})
	r.client, err = river.NewClient(r.driver, &river.Config{
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: cmp.Or(r.workers, riverWorkers)}},
		Workers: workers, Logger: slog.New(slog.DiscardHandler),
	})
	return err
}

func (r *riverQueue[Tx]) setSlots(n int) { r.workers = n }

func (r *riverQueue[Tx]) Work(ctx context.Context) error { return r.client.Start(ctx) }

func (r *riverQueue[Tx]) Left(ctx context.Context) (bool, error) {
	n, err := r.look.number(ctx, "select count(*) from (select 1 from river_job where state in ('available', 'running', 'retryable', 'scheduled', 'pending') limit 1) as x")
	return n > 0, err
}

func (r *riverQueue[Tx]) Done(ctx context.Context) (int64, error) {
	return r.look.number(ctx, "select count(*) from river_job where state = 'completed'")
}

func (r *riverQueue[Tx]) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = r.client.StopAndCancel(ctx)
	if r.pool != nil {
		r.pool.Close()
	}
	if r.db != nil {
		r.db.Close()
	}
	r.look.close()
}

func (r *riverQueue[Tx]) insert(ctx context.Context, n, steps int) error {
	jobs := make([]river.InsertManyParams, n)
	for i := range jobs {
		jobs[i].Args = riverArgs{payload: nextPayload(), Steps: steps}
	}
	_, err := r.client.InsertManyFast(ctx, jobs)
	return err
}

func (r *riverQueue[Tx]) SubmitBatch(ctx context.Context, n int) error { return r.insert(ctx, n, 0) }

func (r *riverQueue[Tx]) SubmitChains(ctx context.Context, n, steps int) error {
	return inBatches(ctx, n, func(ctx context.Context, k int) error { return r.insert(ctx, k, steps) })
}

func (r *riverQueue[Tx]) Submit(ctx context.Context) error {
	_, err := r.client.Insert(ctx, riverArgs{payload: nextPayload()}, nil)
	return err
}

// RunOne hears of the end by River's own event.
func (r *riverQueue[Tx]) RunOne(ctx context.Context) error {
	if r.events == nil {
		r.events, _ = r.client.Subscribe(river.EventKindJobCompleted)
	}
	res, err := r.client.Insert(ctx, riverArgs{payload: nextPayload()}, nil)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-r.events:
			if e.Job.ID == res.Job.ID {
				return nil
			}
		}
	}
}
