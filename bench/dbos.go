package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	dbosConns   = 40
	dbosPoll    = time.Millisecond
	dbosWorkers = 500
)

func init() {
	common := []string{
		fmt.Sprintf("batches and chains: enqueued in transactions of %d (WithEnqueueTransaction), queue polled every %v, %d workers", batchSize, dbosPoll, dbosWorkers),
		"one by one, fans and at idle: RunWorkflow, which starts in process without a queue",
		"each step a RunAsStep, parallel ones by Go",
	}
	kinds = append(kinds, Kind{
		Name: "dbos-pg", Store: "PostgreSQL", Pace: 2_500,
		Settings: append(common, fmt.Sprintf("pgxpool of %d", dbosConns), "synchronous_commit=on"),
		New:      func(env *Env) System { return &dbosApp{env: env} },
	}, Kind{
		Name: "dbos-sqlite", Store: "SQLite", Pace: 1_000,
		Settings: append(common, "its own pool of 8, synchronous=NORMAL, as it sets by itself: a power cut may take the last commits"),
		New:      func(env *Env) System { return &dbosApp{env: env, sqlite: true} },
	})
}

// dbosApp is an application of DBOS Transact.
type dbosApp struct {
	handled
	env    *Env
	sqlite bool

	workers int // workflows at once; 0: dbosWorkers

	pool  *pgxpool.Pool
	db    *sql.DB
	queue dbos.Queue
	rated dbos.Queue
	ctx   dbos.Context
	look  *look
}

// dbosJob is a workflow's input: so many steps one after the other, then so many at once.
type dbosJob struct {
	payload
	Steps, Width int
}

func (d *dbosApp) work(order int64, last bool) dbos.Step[int] {
	return func(context.Context) (int, error) {
		d.handle(order, last)
		return 0, nil
	}
}

func (d *dbosApp) flow(ctx dbos.Context, job dbosJob) (int, error) {
	var beside []<-chan dbos.StepOutcome[int]
	for range job.Width {
		c, err := dbos.Go(ctx, d.work(job.Order, false))
		if err != nil {
			return 0, err
		}
		beside = append(beside, c)
	}
	for _, c := range beside {
		if o := <-c; o.Err != nil {
			return 0, o.Err
		}
	}
	for i := range job.Steps {
		if _, err := dbos.RunAsStep(ctx, d.work(job.Order, i == job.Steps-1)); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// parent starts workflows, all of them at once, and waits for them.
func (d *dbosApp) parent(ctx dbos.Context, job dbosJob) (int, error) {
	children := make([]dbos.WorkflowHandle[int], job.Width)
	for i := range children {
		var err error
		if children[i], err = dbos.RunWorkflow(ctx, d.flow, dbosJob{payload: job.payload, Steps: 1}); err != nil {
			return 0, err
		}
	}
	for _, c := range children {
		if _, err := c.GetResult(); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

const dbosFlow = "bench"

func (d *dbosApp) Open(ctx context.Context) (err error) {
	cfg := dbos.Config{AppName: "bench", Logger: slog.New(slog.DiscardHandler), ApplicationVersion: "1"}
	if d.sqlite {
		path := filepath.Join(d.env.Dir, "dbos.db")
		// The settings that DBOS gives a file that it opens itself; the handle is needed for batches.
		d.db, err = sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(ON)&_pragma=synchronous(NORMAL)")
		if err != nil {
			return err
		}
		d.db.SetMaxOpenConns(8)
		d.db.SetMaxIdleConns(8)
		cfg.SQLiteSystemDB = d.db
		if d.look, err = lookAtSQLite(path); err != nil {
			return err
		}
	} else {
		pc, err := pgxpool.ParseConfig(d.env.Postgres)
		if err != nil {
			return err
		}
		pc.MaxConns = dbosConns
		if d.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
			return err
		}
		cfg.SystemDBPool = d.pool
		if d.look, err = lookAtPostgres(ctx, d.env.Postgres); err != nil {
			return err
		}
	}
	if d.ctx, err = dbos.NewContext(ctx, cfg); err != nil {
		return err
	}
	dbos.RegisterWorkflow(d.ctx, d.flow, dbos.WithWorkflowName(dbosFlow))
	dbos.RegisterWorkflow(d.ctx, d.parent, dbos.WithWorkflowName("parent"))
	d.rated, err = dbos.RegisterQueue(d.ctx, "rated", dbos.WithWorkerConcurrency(dbosWorkers), dbos.WithQueueBasePollingInterval(dbosPoll),
		dbos.WithRateLimiter(&dbos.RateLimiter{Limit: benchRate, Period: time.Second}))
	if err != nil {
		return err
	}
	d.queue, err = dbos.RegisterQueue(d.ctx, "bench", dbos.WithWorkerConcurrency(cmp.Or(d.workers, dbosWorkers)), dbos.WithQueueBasePollingInterval(dbosPoll))
	return err
}

func (d *dbosApp) setSlots(n int) { d.workers = n }

func (d *dbosApp) Work(context.Context) error { return dbos.Launch(d.ctx) }

func (d *dbosApp) table() string {
	if d.sqlite {
		return "workflow_status"
	}
	return "dbos.workflow_status"
}

func (d *dbosApp) Left(ctx context.Context) (bool, error) {
	n, err := d.look.number(ctx, "select count(*) from (select 1 from "+d.table()+" where status in ('PENDING', 'ENQUEUED') limit 1) as x")
	return n > 0, err
}

func (d *dbosApp) Done(ctx context.Context) (int64, error) {
	return d.look.number(ctx, "select count(*) from "+d.table()+" where status = 'SUCCESS'")
}

func (d *dbosApp) Close() {
	_ = dbos.Shutdown(d.ctx, 5*time.Second)
	if d.pool != nil {
		d.pool.Close()
	}
	if d.db != nil {
		d.db.Close()
	}
	d.look.close()
}

func (d *dbosApp) SubmitBatch(ctx context.Context, n int) error {
	return d.enqueue(ctx, d.queue, n, dbosJob{Steps: 1})
}

// enqueue stores jobs in one transaction, for a queue.
func (d *dbosApp) enqueue(ctx context.Context, queue dbos.Queue, n int, job dbosJob) error {
	return d.inTx(ctx, func(tx any) error {
		for range n {
			job.payload = nextPayload()
			if _, err := dbos.Enqueue[int](d.ctx, queue.GetName(), dbosFlow, job, dbos.WithEnqueueTransaction(tx)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *dbosApp) inTx(ctx context.Context, f func(tx any) error) error {
	if !d.sqlite {
		return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error { return f(tx) })
	}
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (d *dbosApp) run(n, goroutines int, job dbosJob) error {
	return spread(context.Background(), n, goroutines, func(context.Context) error {
		j := job
		j.payload = nextPayload()
		_, err := dbos.RunWorkflow(d.ctx, d.flow, j)
		return err
	})
}

func (d *dbosApp) Submit(context.Context) error { return d.run(1, 1, dbosJob{Steps: 1}) }

func (d *dbosApp) SubmitChains(ctx context.Context, n, steps int) error {
	return inBatches(ctx, n, func(ctx context.Context, k int) error { return d.enqueue(ctx, d.queue, k, dbosJob{Steps: steps}) })
}

func (d *dbosApp) SubmitFans(_ context.Context, n, width int) error {
	return d.run(n, fanSubmitters(width), dbosJob{Width: width, Steps: 1})
}

func (d *dbosApp) SubmitParents(_ context.Context, n, children int) error {
	return spread(context.Background(), n, fanSubmitters(children), func(context.Context) error {
		_, err := dbos.RunWorkflow(d.ctx, d.parent, dbosJob{payload: nextPayload(), Width: children})
		return err
	})
}

// burst is all that may start in a second: DBOS counts what has started in the last one.
func (d *dbosApp) burst() int { return benchRate }

func (d *dbosApp) SubmitLimited(ctx context.Context, n int) error {
	return d.enqueue(ctx, d.rated, n, dbosJob{Steps: 1})
}

func (d *dbosApp) RunOne(context.Context) error {
	h, err := dbos.RunWorkflow(d.ctx, d.flow, dbosJob{payload: nextPayload(), Steps: 1})
	if err == nil {
		_, err = h.GetResult()
	}
	return err
}
