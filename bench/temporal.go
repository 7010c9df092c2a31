package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	temporalShards  = 128
	temporalPollers = 16
)

func init() {
	for _, local := range []bool{false, true} {
		name, how := "temporal", "activities"
		if local {
			name, how = "temporal-local", "local activities (brackets: a crash repeats all of a workflow task's)"
		}
		kinds = append(kinds, Kind{
			Name: name, Store: "PostgreSQL", Pace: 60, Brackets: local,
			Settings: []string{
				"the server is built from its Go module (bench/temporal/go.mod), all four services in one process; steps are " + how,
				fmt.Sprintf("%d history shards, 1 partition of the task queue, rate limits lifted, 40 connections", temporalShards),
				fmt.Sprintf("worker: %d pollers each of workflows and activities, 1,000 slots each", temporalPollers),
			},
			Missing: func(env *Env) string {
				if env.Temporal == "" {
					return "the server could not be built"
				}
				return ""
			},
			New: func(env *Env) System { return &temporalServer{env: env, local: local} },
		})
	}
}

// buildTemporal builds the server and its schema tool, once: it takes minutes.
func buildTemporal(ctx context.Context, r *runner) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	source, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("the source is not found from here: run this in bench/: %w", err)
	}
	module := filepath.Join(strings.TrimSpace(string(source)), "temporal")
	version, err := goIn(ctx, module, "list", "-m", "-f", "{{.Version}}", "go.temporal.io/server")
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "perdure-bench", "temporal-"+version)
	if _, err := os.Stat(filepath.Join(dir, "server")); err == nil {
		r.env.Temporal = dir
		return nil
	}
	progress("building Temporal %s", version)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, err := goIn(ctx, module, "build", "-o", dir+"/", "go.temporal.io/server/cmd/server", "go.temporal.io/server/cmd/tools/sql"); err != nil {
		return err
	}
	r.env.Temporal = dir
	return nil
}

func goIn(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// temporalServer is a server of Temporal on PostgreSQL, and a worker in this process.
type temporalServer struct {
	counted
	env   *Env
	local bool

	server  *child
	address string
	client  client.Client
	worker  worker.Worker
	look    *look
}

const temporalConfig = `
log: {stdout: true, level: error}
persistence:
  defaultStore: default
  visibilityStore: visibility
  numHistoryShards: %[1]d
  datastores:
    default: {sql: {pluginName: postgres12, databaseName: "%[2]s", connectAddr: "%[3]s", connectProtocol: tcp, user: postgres, password: none, maxConns: 40, maxIdleConns: 40, maxConnLifetime: 1h}}
    visibility: {sql: {pluginName: postgres12, databaseName: "%[2]s_visibility", connectAddr: "%[3]s", connectProtocol: tcp, user: postgres, password: none, maxConns: 10, maxIdleConns: 10, maxConnLifetime: 1h}}
global:
  membership: {maxJoinDuration: 30s, broadcastAddress: 127.0.0.1}
services:
  frontend: {rpc: {grpcPort: %[4]d, membershipPort: %[5]d, bindOnLocalHost: true}}
  matching: {rpc: {grpcPort: %[6]d, membershipPort: %[7]d, bindOnLocalHost: true}}
  history: {rpc: {grpcPort: %[8]d, membershipPort: %[9]d, bindOnLocalHost: true}}
  worker: {rpc: {grpcPort: %[10]d, membershipPort: %[11]d, bindOnLocalHost: true}}
clusterMetadata:
  enableGlobalNamespace: false
  failoverVersionIncrement: 10
  masterClusterName: active
  currentClusterName: active
  clusterInformation: {active: {enabled: true, initialFailoverVersion: 1, rpcName: frontend, rpcAddress: "127.0.0.1:%[4]d"}}
dcRedirectionPolicy: {policy: noop}
dynamicConfigClient: {filepath: "%[12]s", pollInterval: 60s}
`

const temporalDynamic = `
frontend.rps: [{value: 100000}]
frontend.namespaceRPS: [{value: 100000}]
frontend.namespaceCount: [{value: 100000}]
frontend.persistenceMaxQPS: [{value: 100000}]
history.rps: [{value: 100000}]
history.persistenceMaxQPS: [{value: 100000}]
matching.rps: [{value: 100000}]
matching.persistenceMaxQPS: [{value: 100000}]
matching.numTaskqueueReadPartitions: [{value: 1}]
matching.numTaskqueueWritePartitions: [{value: 1}]
limit.historyCount.error: [{value: 200000}]
`

func (t *temporalServer) Open(ctx context.Context) error {
	u, err := url.Parse(t.env.Postgres)
	if err != nil {
		return err
	}
	db := strings.TrimPrefix(u.Path, "/")
	for _, s := range []struct{ db, schema string }{{db, "temporal"}, {db + "_visibility", "visibility"}} {
		tool := func(args ...string) error {
			cmd := exec.CommandContext(ctx, filepath.Join(t.env.Temporal, "sql"), append([]string{
				"--plugin", "postgres12", "--endpoint", u.Hostname(), "--port", u.Port(), "--user", "postgres", "--password", "none", "--database", s.db}, args...)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", args[0], err, out)
			}
			return nil
		}
		if s.db != db {
			if err := tool("create-database"); err != nil {
				return err
			}
		}
		if err := tool("setup-schema", "--version", "0.0"); err != nil {
			return err
		}
		if err := tool("update-schema", "--schema-name", "postgresql/v12/"+s.schema); err != nil {
			return err
		}
	}
	ports := []any{temporalShards, db, u.Host}
	for range 8 {
		port, err := freePort()
		if err != nil {
			return err
		}
		ports = append(ports, port)
	}
	dynamic, config := filepath.Join(t.env.Dir, "dynamic.yaml"), filepath.Join(t.env.Dir, "config.yaml")
	if err := os.WriteFile(dynamic, []byte(temporalDynamic), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, temporalConfig, append(ports, dynamic)...), 0o644); err != nil {
		return err
	}
	t.address = fmt.Sprintf("127.0.0.1:%d", ports[3])
	t.server, err = start(program{path: filepath.Join(t.env.Temporal, "server"), dir: t.env.Dir, log: filepath.Join(t.env.Dir, "temporal.log"),
		args: []string{"--config-file", config, "--allow-no-auth", "start"}})
	if err != nil {
		return err
	}
	if err := t.connect(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, t.server.tail())
	}
	t.look, err = lookAtPostgres(ctx, t.env.Postgres)
	return err
}

const temporalSpace = "bench"

func (t *temporalServer) connect(ctx context.Context) error {
	opts := client.Options{HostPort: t.address, Namespace: temporalSpace, Logger: noLog{}}
	if err := await(ctx, time.Minute, func(ctx context.Context) error {
		space, err := client.NewNamespaceClient(opts)
		if err != nil {
			return err
		}
		defer space.Close()
		return space.Register(ctx, &workflowservice.RegisterNamespaceRequest{Namespace: temporalSpace,
			WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour)})
	}); err != nil {
		return fmt.Errorf("temporal does not start: %w", err)
	}
	var err error
	if t.client, err = client.Dial(opts); err != nil {
		return err
	}
	return await(ctx, time.Minute, func(ctx context.Context) error { // it takes a while until the namespace is known everywhere
		_, err := t.client.DescribeTaskQueue(ctx, temporalQueue, enums.TASK_QUEUE_TYPE_WORKFLOW)
		return err
	})
}

type noLog struct{}

func (noLog) Debug(string, ...any) {}
func (noLog) Info(string, ...any)  {}
func (noLog) Warn(string, ...any)  {}
func (noLog) Error(string, ...any) {}

type temporalJob struct {
	Order        int64
	Note         string
	Steps, Width int
}

func (t *temporalServer) Activity(context.Context, int64) (int, error) {
	t.n.Add(1)
	return 0, nil
}

// Flow is the workflow: so many steps beside each other, then so many in a row.
func (t *temporalServer) Flow(ctx workflow.Context, job temporalJob) (int, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Minute})
	run := func() workflow.Future {
		if t.local {
			return workflow.ExecuteLocalActivity(ctx, t.Activity, job.Order)
		}
		return workflow.ExecuteActivity(ctx, t.Activity, job.Order)
	}
	var beside []workflow.Future
	for range job.Width {
		beside = append(beside, run())
	}
	for _, f := range beside {
		if err := f.Get(ctx, nil); err != nil {
			return 0, err
		}
	}
	for range job.Steps {
		if err := run().Get(ctx, nil); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

const temporalQueue = "bench"

func (t *temporalServer) Work(context.Context) error {
	t.worker = worker.New(t.client, temporalQueue, worker.Options{
		MaxConcurrentActivityExecutionSize: 1000, MaxConcurrentWorkflowTaskExecutionSize: 1000, MaxConcurrentLocalActivityExecutionSize: 1000,
		MaxConcurrentActivityTaskPollers: temporalPollers, MaxConcurrentWorkflowTaskPollers: temporalPollers,
	})
	t.worker.RegisterWorkflow(t.Flow)
	t.worker.RegisterActivity(t.Activity)
	return t.worker.Start()
}

func (t *temporalServer) Left(ctx context.Context) (bool, error) {
	n, err := t.look.number(ctx, "select count(*) from (select 1 from current_executions where status = 1 and workflow_id like 'job-%' limit 1) as x")
	return n > 0, err
}

func (t *temporalServer) Done(ctx context.Context) (int64, error) {
	return t.look.number(ctx, "select count(*) from current_executions where status = 2 and workflow_id like 'job-%'")
}

func (t *temporalServer) Close() {
	if t.worker != nil {
		t.worker.Stop()
	}
	if t.client != nil {
		t.client.Close()
	}
	t.look.close()
	t.server.stop()
}

func (t *temporalServer) run(ctx context.Context, steps, width int) (client.WorkflowRun, error) {
	p := nextPayload()
	return t.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: temporalQueue, ID: fmt.Sprintf("job-%d", p.Order)},
		t.Flow, temporalJob{Order: p.Order, Note: p.Note, Steps: steps, Width: width})
}

func (t *temporalServer) Submit(ctx context.Context) error {
	_, err := t.run(ctx, 1, 0)
	return err
}

func (t *temporalServer) SubmitChains(ctx context.Context, n, steps int) error {
	return spread(ctx, n, submitters, func(ctx context.Context) error {
		_, err := t.run(ctx, steps, 0)
		return err
	})
}

func (t *temporalServer) SubmitFans(ctx context.Context, n, width int) error {
	return spread(ctx, n, fanSubmitters(width), func(ctx context.Context) error {
		_, err := t.run(ctx, 1, width)
		return err
	})
}

func (t *temporalServer) RunOne(ctx context.Context) error {
	run, err := t.run(ctx, 1, 0)
	if err == nil {
		err = run.Get(ctx, nil)
	}
	return err
}
