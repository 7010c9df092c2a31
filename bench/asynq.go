package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
)

const asynqWorkers = 256

func init() {
	kinds = append(kinds, Kind{
		Name: "asynq", Store: "Redis", Pace: 5_000, Brackets: true,
		Settings: []string{
			fmt.Sprintf("Concurrency %d, TaskCheckInterval 2ms, submitted by %d goroutines (there is no batch)", asynqWorkers, submitters),
			"Redis: appendonly yes, appendfsync everysec: may lose the last second, therefore in brackets", "finished tasks are deleted, as is its default",
		},
		Missing: func(*Env) string {
			if _, err := exec.LookPath("redis-server"); err != nil {
				return "no redis-server on this machine: install the package redis-server"
			}
			return ""
		},
		New: func(env *Env) System { return &asynqQueue{env: env} },
	})
}

// asynqQueue is asynq on a Redis of its own.
type asynqQueue struct {
	counted
	env *Env

	redis     *child
	client    *asynq.Client
	server    *asynq.Server
	inspector *asynq.Inspector
}

type quiet struct{}

func (quiet) Debug(...any) {}
func (quiet) Info(...any)  {}
func (quiet) Warn(...any)  {}
func (quiet) Error(...any) {}
func (quiet) Fatal(...any) {}

const asynqKind = "bench"

func (q *asynqQueue) Open(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	q.redis, err = start(program{path: "redis-server", dir: q.env.Dir, log: filepath.Join(q.env.Dir, "redis.log"), args: []string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", q.env.Dir, "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""}})
	if err != nil {
		return err
	}
	if err := await(ctx, 30*time.Second, dialable(addr)); err != nil {
		return fmt.Errorf("redis does not start: %w\n%s", err, q.redis.tail())
	}
	opt := asynq.RedisClientOpt{Addr: addr, PoolSize: 64}
	q.client, q.inspector = asynq.NewClient(opt), asynq.NewInspector(opt)
	q.server = asynq.NewServer(opt, asynq.Config{Concurrency: asynqWorkers, TaskCheckInterval: 2 * time.Millisecond,
		Logger: quiet{}, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Second})
	return nil
}

func (q *asynqQueue) Work(context.Context) error {
	mux := asynq.NewServeMux()
	mux.HandleFunc(asynqKind, func(ctx context.Context, t *asynq.Task) error {
		q.n.Add(1)
		return nil
	})
	return q.server.Start(mux)
}

func (q *asynqQueue) Left(context.Context) (bool, error) {
	i, err := q.inspector.GetQueueInfo("default")
	return err == nil && i.Size > 0, err
}

func (q *asynqQueue) Done(context.Context) (int64, error) {
	i, err := q.inspector.GetQueueInfo("default")
	if err != nil {
		return 0, err
	}
	return int64(i.ProcessedTotal - i.FailedTotal), nil
}

func (q *asynqQueue) Close() {
	q.server.Shutdown()
	q.client.Close()
	q.inspector.Close()
	q.redis.stop()
}

func (q *asynqQueue) Submit(ctx context.Context) error {
	_, err := q.enqueue(ctx)
	return err
}

func (q *asynqQueue) enqueue(ctx context.Context) (*asynq.TaskInfo, error) {
	b, err := json.Marshal(nextPayload())
	if err != nil {
		return nil, err
	}
	return q.client.EnqueueContext(ctx, asynq.NewTask(asynqKind, b))
}

func (q *asynqQueue) SubmitBatch(ctx context.Context, n int) error {
	return spread(ctx, n, submitters/batchers, q.Submit)
}

// RunOne looks until the task is gone: that is how one hears of it.
func (q *asynqQueue) RunOne(ctx context.Context) error {
	info, err := q.enqueue(ctx)
	for err == nil && ctx.Err() == nil {
		if _, err := q.inspector.GetTaskInfo(info.Queue, info.ID); err != nil {
			return nil // not found
		}
		time.Sleep(100 * time.Microsecond)
	}
	return err
}
