package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
)

func init() {
	for _, store := range []string{"PostgreSQL", "SQLite"} {
		kinds = append(kinds, Kind{
			Name: "perdure-http-" + short(store), Store: store, Ours: true, Pace: 40_000,
			Settings: []string{fmt.Sprintf("`perdure serve` in a process of its own, an agent of %d slots in another, both spoken to with package client", benchSlots), ourDurability(store)},
			Missing: func(env *Env) string {
				if env.Perdure == "" {
					return "there is no perdure program"
				}
				return ""
			},
			New: func(env *Env) System { return &perdureServer{env: env, store: store} },
		})
	}
}

// perdureServer is `perdure serve`, and an agent in another process.
type perdureServer struct {
	env   *Env
	store string

	listen string
	server *child
	agent  *child
	client *client.Client
	look   *look
	sent   atomic.Int64
}

func (p *perdureServer) url() string { return "http://" + p.listen }

func (p *perdureServer) Open(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	p.listen = fmt.Sprintf("127.0.0.1:%d", port)
	store := p.env.Postgres
	if p.store == "SQLite" {
		store = "sqlite:" + filepath.Join(p.env.Dir, "perdure.db")
	}
	p.server, err = start(program{path: p.env.Perdure, dir: p.env.Dir, log: filepath.Join(p.env.Dir, "serve.log"), args: []string{
		"serve", "--store", store, "--migrate", "--listen", p.listen, "--agents", "none", "--max-backlog", "20000000"}})
	if err != nil {
		return err
	}
	if p.client, err = client.New(p.url()); err != nil {
		return err
	}
	if err := await(ctx, 30*time.Second, func(ctx context.Context) error { _, err := p.client.ListNodes(ctx); return err }); err != nil {
		return fmt.Errorf("perdure serve does not start: %w\n%s", err, p.server.tail())
	}
	if p.store == "SQLite" {
		p.look, err = lookAtSQLite(filepath.Join(p.env.Dir, "perdure.db"))
	} else {
		p.look, err = lookAtPostgres(ctx, p.env.Postgres)
	}
	return err
}

func (p *perdureServer) Work(context.Context) (err error) {
	p.agent, err = start(program{path: p.env.Self, args: []string{"-agent", p.url(), strconv.Itoa(benchSlots)}, dir: p.env.Dir, log: filepath.Join(p.env.Dir, "agent.log")})
	return err
}

// serveAgent is the agent's process: ADDRESS, slots.
func serveAgent(ctx context.Context, args []string) error {
	slots, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	c, err := client.New(args[0])
	if err != nil {
		return err
	}
	a := perdure.NewAgent("bench")
	a.Slots = slots
	a.HandleAny(func(context.Context, *perdure.Run) (json.RawMessage, error) { return nil, nil })
	return c.Serve(ctx, client.ServeConfig{}, a)
}

// Left asks the server's metrics: that disturbs it less than a query would.
func (p *perdureServer) Left(ctx context.Context) (bool, error) {
	settled, err := metric(ctx, p.url()+"/metrics", "perdure_jobs_settled_total")
	return settled < float64(p.sent.Load()), err
}

// metric is the sum over all labels.
func metric(ctx context.Context, url, name string) (sum float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name+"{"); ok {
			if v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
				sum += v
			}
		}
	}
	return sum, errors.Join(lines.Err())
}

func (p *perdureServer) Done(ctx context.Context) (int64, error) { return doneJobs(ctx, p.look) }
func (p *perdureServer) Handled() int64                          { return -1 }

func (p *perdureServer) Close() {
	p.agent.stop()
	p.server.stop()
	p.look.close()
}

// submit submits n jobs of one definition.
func (p *perdureServer) submit(ctx context.Context, def *template, n int) error {
	inputs := make([]json.RawMessage, n)
	for i := range inputs {
		inputs[i] = json.RawMessage(input())
	}
	return p.submitWith(ctx, def, inputs)
}

// submitWith submits jobs of one definition with these inputs.
func (p *perdureServer) submitWith(ctx context.Context, def *template, inputs []json.RawMessage) error {
	jobs := make([]json.RawMessage, len(inputs))
	for i, in := range inputs {
		jobs[i] = json.RawMessage(`{"input":` + string(in) + `}`)
	}
	answers, err := p.client.SubmitAll(ctx, def.text(), jobs)
	for i := range answers {
		if answers[i].Err == nil {
			p.sent.Add(1)
		}
		err = errors.Join(err, answers[i].Err)
	}
	return err
}

func (p *perdureServer) SubmitBatch(ctx context.Context, n int) error {
	return p.submit(ctx, oneStep, n)
}

func (p *perdureServer) Submit(ctx context.Context) error {
	_, _, err := p.client.Submit(ctx, oneStep.text(), "application/json")
	if err == nil {
		p.sent.Add(1)
	}
	return err
}

func (p *perdureServer) SubmitChains(ctx context.Context, n, steps int) error {
	return inBatches(ctx, n, func(ctx context.Context, k int) error { return p.submit(ctx, chainOf(steps), k) })
}

func (p *perdureServer) SubmitFans(ctx context.Context, n, width int) error {
	return p.submit(ctx, fanOf(width), n)
}

func (p *perdureServer) SubmitParents(ctx context.Context, n, children int) error {
	return p.submit(ctx, parentOf(children), n)
}

func (p *perdureServer) RunOne(ctx context.Context) error {
	job, _, err := p.client.Submit(ctx, oneStep.text(), "application/json")
	if err != nil {
		return err
	}
	p.sent.Add(1)
	job, err = p.client.Job(ctx, job.ID.String(), 10*time.Second)
	if err == nil && job.Current != perdure.Done {
		err = fmt.Errorf("%s is %v after 10 s", job.ID, job.Current)
	}
	return err
}

// serveNode is a node by itself, with an agent whose runs never end: DIR, then the store as in Env. It says
// when it is ready, and ends with its stdin. What it uses, others look at from outside.
func serveNode(ctx context.Context, args []string) error {
	env := &Env{Dir: args[0], Postgres: args[1]}
	p := &perdureNode{env: env, store: "PostgreSQL", slots: 16}
	if env.Postgres == "" {
		p.store = "SQLite"
	}
	p.work = func(ctx context.Context, _ *perdure.Run) { <-ctx.Done() }
	if err := p.Open(ctx); err != nil {
		return err
	}
	if err := p.Work(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}
