package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"database/sql"

	"github.com/cschleiden/go-workflows/backend"
	"github.com/cschleiden/go-workflows/backend/monoprocess"
	gwpostgres "github.com/cschleiden/go-workflows/backend/postgres"
	gwsqlite "github.com/cschleiden/go-workflows/backend/sqlite"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	gwPollers = 16
	gwPoll    = 2 * time.Millisecond
	gwConns   = 40
)

func init() {
	common := []string{fmt.Sprintf("monoprocess backend, %d pollers each of workflows and activities, polling every %v, executor cache of 10,000", gwPollers, gwPoll)}
	for _, store := range []string{"PostgreSQL", "SQLite"} {
		more := fmt.Sprintf("%d connections", gwConns)
		if store == "SQLite" {
			more = "one connection, as it sets by itself"
		}
		kinds = append(kinds, Kind{
			Name: "goworkflows-" + short(store), Store: store, Pace: 200,
			Settings: append(common, more, durabilityOf(store)),
			New:      func(env *Env) System { return &goWorkflows{env: env, sqlite: store == "SQLite"} },
		})
	}
}

// goWorkflows is an application of go-workflows.
type goWorkflows struct {
	counted
	env    *Env
	sqlite bool

	backend backend.Backend
	client  *client.Client
	worker  *worker.Worker
	stop    context.CancelFunc
	look    *look
}

type gwJob struct {
	Order        int64
	Note         string
	Steps, Width int
}

func (g *goWorkflows) activity(context.Context, int64) (int, error) {
	g.n.Add(1)
	return 0, nil
}

var gwOnce = workflow.ActivityOptions{RetryOptions: workflow.DefaultRetryOptions}

func (g *goWorkflows) flow(ctx workflow.Context, job gwJob) (int, error) {
	var beside []workflow.Future[int]
	for range job.Width {
		beside = append(beside, workflow.ExecuteActivity[int](ctx, gwOnce, g.activity, job.Order))
	}
	for _, f := range beside {
		if _, err := f.Get(ctx); err != nil {
			return 0, err
		}
	}
	for range job.Steps {
		if _, err := workflow.ExecuteActivity[int](ctx, gwOnce, g.activity, job.Order).Get(ctx); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func (g *goWorkflows) Open(ctx context.Context) (err error) {
	quiet := backend.WithLogger(slog.New(slog.DiscardHandler))
	var b backend.Backend
	if g.sqlite {
		path := filepath.Join(g.env.Dir, "workflows.db")
		b = gwsqlite.NewSqliteBackend(path, gwsqlite.WithBackendOptions(quiet))
		g.look, err = lookAtSQLite(path)
	} else {
		var cfg *pgx.ConnConfig
		if cfg, err = pgx.ParseConfig(g.env.Postgres); err != nil {
			return err
		}
		b = gwpostgres.NewPostgresBackend(cfg.Host, int(cfg.Port), cfg.User, "none", cfg.Database, gwpostgres.WithBackendOptions(quiet),
			gwpostgres.WithPostgresOptions(func(db *sql.DB) { db.SetMaxOpenConns(gwConns); db.SetMaxIdleConns(gwConns) }))
		g.look, err = lookAtPostgres(ctx, g.env.Postgres)
	}
	g.backend = monoprocess.NewMonoprocessBackend(b)
	g.client = client.New(g.backend)
	return err
}

func (g *goWorkflows) Work(context.Context) error {
	opts := worker.DefaultOptions
	opts.WorkflowPollers, opts.ActivityPollers = gwPollers, gwPollers
	opts.WorkflowPollingInterval, opts.ActivityPollingInterval = gwPoll, gwPoll
	opts.WorkflowExecutorCacheSize = 10_000
	g.worker = worker.New(g.backend, &opts)
	if err := g.worker.RegisterWorkflow(g.flow); err != nil {
		return err
	}
	if err := g.worker.RegisterActivity(g.activity); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	return g.worker.Start(ctx)
}

func (g *goWorkflows) Left(ctx context.Context) (bool, error) {
	n, err := g.look.number(ctx, "select count(*) from (select 1 from instances where completed_at is null limit 1) as x")
	return n > 0, err
}

func (g *goWorkflows) Done(ctx context.Context) (int64, error) {
	return g.look.number(ctx, "select count(*) from instances where completed_at is not null")
}

func (g *goWorkflows) Close() {
	if g.stop != nil {
		g.stop()
	}
	g.look.close()
}

func (g *goWorkflows) create(ctx context.Context, steps, width int) (*workflow.Instance, error) {
	p := nextPayload()
	return g.client.CreateWorkflowInstance(ctx, client.WorkflowInstanceOptions{InstanceID: uuid.NewString()}, g.flow,
		gwJob{Order: p.Order, Note: p.Note, Steps: steps, Width: width})
}

func (g *goWorkflows) Submit(ctx context.Context) error {
	_, err := g.create(ctx, 1, 0)
	return err
}

func (g *goWorkflows) SubmitChains(ctx context.Context, n, steps int) error {
	return spread(ctx, n, submitters, func(ctx context.Context) error {
		_, err := g.create(ctx, steps, 0)
		return err
	})
}

func (g *goWorkflows) SubmitFans(ctx context.Context, n, width int) error {
	return spread(ctx, n, fanSubmitters(width), func(ctx context.Context) error {
		_, err := g.create(ctx, 1, width)
		return err
	})
}

// SubmitBatch is how its backlog comes to be; there is no batch.
func (g *goWorkflows) SubmitBatch(ctx context.Context, n int) error {
	return spread(ctx, n, submitters/batchers, g.Submit)
}

func (g *goWorkflows) RunOne(ctx context.Context) error {
	i, err := g.create(ctx, 1, 0)
	if err == nil {
		err = g.client.WaitForWorkflowInstance(ctx, i, 10*time.Second)
	}
	return err
}
