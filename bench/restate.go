package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/server"
)

const (
	restateVersion    = "1.7.12" // of the npm package that holds the server
	restatePartitions = 4
)

func init() {
	kinds = append(kinds, Kind{
		Name: "restate", Store: "its own", Pace: 1_500,
		Settings: []string{
			"restate-server " + restateVersion + " from its npm package: a process of its own; the handlers are in the process that measures, over HTTP/2",
			fmt.Sprintf("%d partitions, a single node, its log synced (its default)", restatePartitions),
			"submitted with /send; each step a Run, parallel ones by RunAsync",
		},
		Missing: func(env *Env) string {
			if env.Restate == "" {
				return "restate-server could not be had"
			}
			return ""
		},
		New: func(env *Env) System { return &restateServer{env: env} },
	})
}

// fetchRestate takes the server out of its npm package, once.
func fetchRestate(ctx context.Context, r *runner) error {
	if path, err := exec.LookPath("restate-server"); err == nil {
		r.env.Restate = path
		return nil
	}
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	if runtime.GOOS != "linux" || arch == "" {
		return errors.New("there is no npm package of restate-server for this machine")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "perdure-bench", "restate-"+restateVersion)
	name := "@restatedev/restate-server-linux-" + arch
	path := filepath.Join(dir, "node_modules", name, "bin", "restate-server")
	if _, err := os.Stat(path); err != nil {
		progress("fetching restate-server %s", restateVersion)
		ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		// Without scripts: the package is the program alone.
		cmd := exec.CommandContext(ctx, "npm", "install", "--ignore-scripts", "--no-save", "--prefix", dir, name+"@"+restateVersion)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("npm install %s: %w\n%s", name, err, bytes.TrimSpace(out))
		}
	}
	r.env.Restate = path
	return nil
}

// restateServer is a server of Restate, and a service of ours that it calls.
type restateServer struct {
	counted
	env    *Env
	server *child
	http   *http.Client
	stop   context.CancelFunc

	ingress, admin string
}

type restateJob struct {
	Order        int64
	Note         string
	Steps, Width int
}

// restateBench is the service.
type restateBench struct{ r *restateServer }

func (restateBench) ServiceName() string { return "Bench" }

func (s restateBench) Job(ctx restate.Context, job restateJob) (int, error) {
	work := func(restate.RunContext) (int, error) {
		s.r.n.Add(1)
		return 0, nil
	}
	var beside []restate.RunAsyncFuture[int]
	for range job.Width {
		beside = append(beside, restate.RunAsync(ctx, work))
	}
	for _, f := range beside {
		if _, err := f.Result(); err != nil {
			return 0, err
		}
	}
	for range job.Steps {
		if _, err := restate.Run(ctx, work); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// Parent calls the service many times at once.
func (restateBench) Parent(ctx restate.Context, job restateJob) (int, error) {
	var children []restate.ResponseFuture[int]
	for range job.Width {
		children = append(children, restate.Service[int](ctx, "Bench", "Job").RequestFuture(restateJob{Order: job.Order, Note: job.Note, Steps: 1}))
	}
	for _, c := range children {
		if _, err := c.Response(); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func (r *restateServer) Open(ctx context.Context) error {
	var ports [4]int
	for i := range ports {
		var err error
		if ports[i], err = freePort(); err != nil {
			return err
		}
	}
	local := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	r.ingress, r.admin = "http://"+local(0), "http://"+local(1)
	var err error
	r.server, err = start(program{path: r.env.Restate, dir: r.env.Dir, log: filepath.Join(r.env.Dir, "restate.log"),
		args: []string{"--no-logo"}, env: []string{
			"RESTATE_BASE_DIR=" + filepath.Join(r.env.Dir, "restate"), "RESTATE_LISTEN_MODE=tcp", "RESTATE_DISABLE_TELEMETRY=true",
			"RESTATE_INGRESS__BIND_ADDRESS=" + local(0), "RESTATE_ADMIN__BIND_ADDRESS=" + local(1), "RESTATE_BIND_ADDRESS=" + local(2),
			"RESTATE_ADVERTISED_ADDRESS=http://" + local(2),
			fmt.Sprintf("RESTATE_DEFAULT_NUM_PARTITIONS=%d", restatePartitions), "RESTATE_LOG_FILTER=warn",
			"RESTATE_BIFROST__REPLICATED_LOGLET__ROCKSDB_DISABLE_WAL_FSYNC=false",
		}})
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(context.Background())
	r.stop = stop
	service := server.NewRestate().WithLogger(slog.DiscardHandler, true).Bind(restate.Reflect(restateBench{r}))
	go func() { _ = service.Start(life, local(3)) }()
	r.http = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 4 * submitters, MaxConnsPerHost: 4 * submitters}}
	for _, url := range []string{r.admin + "/health", r.ingress + "/restate/health"} {
		if err := await(ctx, time.Minute, func(ctx context.Context) error { return r.call(ctx, http.MethodGet, url, nil, nil) }); err != nil {
			return fmt.Errorf("restate-server does not start: %w\n%s", err, r.server.tail())
		}
	}
	return await(ctx, time.Minute, func(ctx context.Context) error {
		return r.call(ctx, http.MethodPost, r.admin+"/deployments", map[string]any{"uri": "http://" + local(3), "force": true}, nil)
	})
}

func (r *restateServer) call(ctx context.Context, method, url string, in, out any) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := r.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	return err
}

// Work has nothing to do: Restate calls the service once it is registered.
func (r *restateServer) Work(context.Context) error { return nil }

// invocations counts what Restate knows of. It keeps what is completed for a day.
func (r *restateServer) invocations(ctx context.Context, where string) (int64, error) {
	var answer struct{ Rows []map[string]int64 }
	err := r.call(ctx, http.MethodPost, r.admin+"/query", map[string]string{"query": "select count(*) as n from sys_invocation where " + where}, &answer)
	if err != nil || len(answer.Rows) != 1 {
		return 0, errors.Join(err, fmt.Errorf("%d rows", len(answer.Rows)))
	}
	return answer.Rows[0]["n"], nil
}

func (r *restateServer) Left(ctx context.Context) (bool, error) {
	n, err := r.invocations(ctx, "status <> 'completed'")
	return n > 0, err
}

func (r *restateServer) Done(ctx context.Context) (int64, error) {
	return r.invocations(ctx, "status = 'completed'")
}

func (r *restateServer) Close() {
	r.stop()
	r.server.stop()
}

func (r *restateServer) send(ctx context.Context, how string, steps, width int) error {
	p := nextPayload()
	return r.call(ctx, http.MethodPost, r.ingress+"/Bench/Job"+how, restateJob{Order: p.Order, Note: p.Note, Steps: steps, Width: width}, nil)
}

func (r *restateServer) Submit(ctx context.Context) error { return r.send(ctx, "/send", 1, 0) }

func (r *restateServer) SubmitChains(ctx context.Context, n, steps int) error {
	return spread(ctx, n, submitters, func(ctx context.Context) error { return r.send(ctx, "/send", steps, 0) })
}

func (r *restateServer) SubmitFans(ctx context.Context, n, width int) error {
	return spread(ctx, n, fanSubmitters(width), func(ctx context.Context) error { return r.send(ctx, "/send", 1, width) })
}

func (r *restateServer) SubmitParents(ctx context.Context, n, children int) error {
	return spread(ctx, n, fanSubmitters(children), func(ctx context.Context) error {
		p := nextPayload()
		return r.call(ctx, http.MethodPost, r.ingress+"/Bench/Parent/send", restateJob{Order: p.Order, Note: p.Note, Width: children}, nil)
	})
}

// RunOne calls and waits for the answer.
func (r *restateServer) RunOne(ctx context.Context) error { return r.send(ctx, "", 1, 0) }
