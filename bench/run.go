package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// runner does the rounds.
type runner struct {
	asked
	env     Env
	dir     string // everything temporary is in it
	pg      *postgres
	watched *postgres // one that counts statements
	missing map[string]string
	results []Result
	floor   []Floor
	began   time.Time
}

func newRunner(a asked) *runner {
	return &runner{asked: a, missing: map[string]string{}, began: time.Now()}
}

func (r *runner) run(ctx context.Context) (err error) {
	if r.dir, err = os.MkdirTemp(r.asked.dir, "perdure-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	// The database's user must be able to reach its directory.
	if err := os.Chmod(r.dir, 0o755); err != nil {
		return err
	}
	if err := r.provide(ctx); err != nil {
		return err
	}
	defer r.pg.stop()
	defer func() { r.watched.stop() }()
	if r.asked.floor {
		if r.floor, err = measureFloor(ctx, r.pg, r.dir, r.quick); err != nil {
			return fmt.Errorf("floor: %w", err)
		}
	}
	for round := range r.rounds {
		r.round(ctx, round)
		if ctx.Err() != nil {
			break
		}
		// What there is so far is worth keeping where a long run is broken off.
		if err := r.report(io.Discard); err != nil {
			return err
		}
	}
	if r.curves && ctx.Err() == nil {
		r.plotted(ctx)
	}
	if err := r.report(os.Stdout); err != nil {
		return err
	}
	return errors.Join(ctx.Err(), r.faults())
}

// provide starts and builds what measurements need.
func (r *runner) provide(ctx context.Context) (err error) {
	if r.env.Self, err = os.Executable(); err != nil {
		return err
	}
	if r.pg, err = startPostgres(ctx, r.dir); err != nil {
		return err
	}
	r.env.PostgresPID = r.pg.pid()
	r.env.Perdure = r.perdure
	for _, p := range []struct {
		system string
		get    func(context.Context, *runner) error
	}{{"perdure-http", buildPerdure}, {"restate", fetchRestate}, {"temporal", buildTemporal}} {
		if !r.wants(p.system) {
			continue
		}
		if err := p.get(ctx, r); err != nil {
			r.missing[p.system] = err.Error()
		}
	}
	for _, name := range r.systems {
		k, _ := kindOf(name)
		if k.Missing != nil {
			if why := k.Missing(&r.env); why != "" {
				for system, cause := range r.missing {
					if strings.HasPrefix(name, system) {
						why += ": " + cause
						break
					}
				}
				r.missing[name] = why
				progress("%s is left out: %s", name, why)
			}
		}
	}
	return nil
}

func (r *runner) wants(system string) bool {
	for _, name := range r.systems {
		if strings.HasPrefix(name, system) {
			return true
		}
	}
	return false
}

// round measures every workload once with every system, in an order that is another each time.
func (r *runner) round(ctx context.Context, round int) {
	for _, name := range r.workloads {
		w, _ := workloadOf(name)
		for _, i := range rand.Perm(len(r.systems)) {
			k, _ := kindOf(r.systems[i])
			if ctx.Err() != nil {
				return
			}
			if _, not := r.missing[k.Name]; not || w.Ours && !k.Ours || !w.Can(k.New(&r.env)) {
				continue
			}
			n := w.Size(k, r.quick)
			r.add(ctx, r.measure(ctx, k, w, max(int(float64(n)*r.scale), 1), round))
		}
	}
}

func (r *runner) add(ctx context.Context, res Result) {
	if ctx.Err() != nil {
		return // it was broken off, and says nothing
	}
	r.results = append(r.results, res)
	if res.Fault != "" {
		progress("%d %-8s %-14s FAULT %s", res.Round+1, res.Workload, res.System, res.Fault)
		return
	}
	progress("%d %-8s %-14s %8d  %12s %s", res.Round+1, res.Workload, res.System, res.N, figure(res.Value), res.Unit)
}

// measure starts a process that measures, and waits for what it says.
func (r *runner) measure(ctx context.Context, k Kind, w Workload, n, round int) Result {
	res, err := r.ask(ctx, k, w, n)
	if err != nil {
		res = Result{System: k.Name, Workload: w.Name, N: n, Unit: w.Unit, Fault: err.Error()}
	}
	res.Round = round
	return res
}

func (r *runner) ask(ctx context.Context, k Kind, w Workload, n int) (res Result, err error) {
	dir, err := os.MkdirTemp(r.dir, k.base()+"-")
	if err != nil {
		return res, err
	}
	defer os.RemoveAll(dir)
	o := Order{System: k.base(), Workload: w.Name, N: n, Within: r.within, Env: r.env, Options: r.options}
	if r.profile != "" {
		o.Profile = filepath.Join(r.profile, strings.ReplaceAll(k.Name, " ", "-")+"-"+w.Name)
	}
	if w.Long {
		o.Within += 2*r.options.Held + time.Duration(r.options.Waiting+r.options.Finished)*time.Millisecond
	}
	o.Env.Dir = dir
	if k.Store == "PostgreSQL" {
		pg := r.pg
		if w.Name == "rest" {
			if pg, err = r.counting(ctx); err != nil {
				return res, err
			}
			o.Env.PostgresPID = pg.pid()
		}
		url, drop, err := pg.fresh(ctx)
		if err != nil {
			return res, err
		}
		defer drop()
		o.Env.Postgres = url
	}
	answer := filepath.Join(r.dir, "answer.json")
	_ = os.Remove(answer)
	text, err := json.Marshal(o)
	if err != nil {
		return res, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Within+time.Minute)
	defer cancel()
	out, err := r.obey(ctx, k.variant, text, answer)
	if err != nil {
		return res, err
	}
	b, err := os.ReadFile(answer)
	if err != nil {
		return res, fmt.Errorf("it has ended without an answer: %s", out)
	}
	err = json.Unmarshal(b, &res)
	res.System = k.Name
	return res, err
}

// obey runs this program as the one that measures. It gives back the end of what that has printed.
func (r *runner) obey(ctx context.Context, v variant, order []byte, answer string) (string, error) {
	cmd := exec.CommandContext(ctx, cmp.Or(v.program, r.env.Self), "-measure", answer)
	cmd.Env = append(os.Environ(), v.environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's interrupt comes here
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer in.Close()
	if _, err := in.Write(append(order, '\n')); err != nil {
		return "", err
	}
	err = cmd.Wait()
	said := strings.TrimSpace(out.String())
	if len(said) > 1500 {
		said = said[len(said)-1500:]
	}
	if ctx.Err() != nil {
		return said, fmt.Errorf("it was ended: %w", context.Cause(ctx))
	}
	if err != nil {
		return said, fmt.Errorf("%w: %s", err, said)
	}
	return said, nil
}

// counting is a server that counts statements: that costs something, so the others do without.
func (r *runner) counting(ctx context.Context) (_ *postgres, err error) {
	if r.watched == nil {
		r.watched, err = startPostgres(ctx, r.dir, "shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=all")
	}
	return r.watched, err
}

// plotted measures the curves, once each.
func (r *runner) plotted(ctx context.Context) {
	for _, p := range points {
		w, _ := workloadOf(p.workload)
		for _, n := range p.sizes {
			for _, name := range r.systems {
				k, _ := kindOf(name)
				if ctx.Err() != nil {
					return
				}
				if _, not := r.missing[name]; not || !w.Can(k.New(&r.env)) || n > p.most(k) || r.quick && n > 10_000 {
					continue
				}
				r.add(ctx, r.measure(ctx, k, w, n, 0))
			}
		}
	}
}

// faults is the error of a run in which something was wrong: figures of a system that loses jobs are none.
func (r *runner) faults() error {
	n := 0
	for _, res := range r.results {
		if res.Fault != "" {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%d of %d measurements have failed", n, len(r.results))
	}
	return nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// buildPerdure builds the program from the module that this one is built with.
func buildPerdure(ctx context.Context, r *runner) error {
	if r.env.Perdure != "" {
		return nil
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/perdure/perdure").Output()
	if err != nil {
		return fmt.Errorf("the source of perdure is not found from here: run this in bench/, or say --perdure: %w", err)
	}
	path := filepath.Join(r.dir, "perdure")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/perdure")
	cmd.Dir = strings.TrimSpace(string(out))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("perdure is not built: %w\n%s", err, out)
	}
	r.env.Perdure = path
	return nil
}
