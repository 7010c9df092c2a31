package hostagent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/slurm"
	"github.com/perdure/perdure/internal/slurm/slurmtest"
)

// gateway is a host agent whose commands run on a Slurm cluster.
type gateway struct {
	*grid
	cfg  Config
	stop func()
}

func (g *grid) gateway(c *slurmtest.Cluster) *gateway {
	w := &gateway{grid: g, cfg: Config{Exchange: g.client, Hosts: g.client, Name: "gate", State: filepath.Join(g.dir, "gate"), Heartbeat: 30 * time.Second, StopWithin: 2 * time.Second,
		MinFree: 1, Keep: time.Hour, Slots: 4, Log: slog.New(slog.NewTextHandler(g.Output(), nil)),
		Slurm: &slurm.Cluster{Env: append(os.Environ(), "SLURM_CONF="+c.Config)}}}
	w.start()
	g.Cleanup(func() { w.stop() })
	return w
}

func (w *gateway) start() {
	w.Helper()
	h, err := Open(w.cfg)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := h.Run(ctx); err != nil {
			w.Error(err)
		}
		h.Close()
	}()
	w.stop = func() { cancel(); <-ended; w.stop = func() {} }
}

// The commands of a gateway run as jobs of Slurm. They survive the gateway, and each is reported once (F230).
func TestCommandsOnSlurm(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Slurm cluster")
	}
	g := newGrid(t)
	w := g.gateway(slurmtest.Start(t))
	fails := g.submit(`echo broken >&2; exit 3`, 1)
	id := g.submit(waits, 1)
	g.file("pid")
	w.stop()
	w.start()
	g.touch("go")
	s := g.step(id, "the end", settled)
	if starts := g.file("starts"); starts != "start\n" || s.Run != 1 || string(s.Output) != `{"exit":0,"host":"gate","stdout":{"n":1}}` {
		t.Errorf("%q, %d runs, %s", starts, s.Run, s.Output)
	}
	if s := g.step(fails, "the failure", parked); s.LastError == nil || s.LastError.Code != "exit_3" || !strings.Contains(s.LastError.Message, "broken") {
		t.Errorf("%+v", s.LastError)
	}
}

// A job that the cluster has forgotten is lost. Its batch script learns by the shared directory that its lock has ended, and the
// next run does not meet the command of the first one (F251).
func TestForgottenSlurmJob(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Slurm cluster")
	}
	g := newGrid(t)
	c := slurmtest.Start(t)
	w := g.gateway(c)
	id := g.submit(`exec 9>>$D/held; flock -n 9 || echo overlap >> $D/overlaps; echo $PERDURE_RUN >> $D/runs; [ $PERDURE_RUN -gt 1 ] || sleep 60`, 3)
	g.file("runs")
	w.stop()
	c.KillController()
	if err := os.RemoveAll(filepath.Join(filepath.Dir(c.Config), "state")); err != nil { // it forgets all jobs
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(c.Config), "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.StartController(); err != nil {
		t.Fatal(err)
	}
	w.start() // it asks at once
	s := g.step(id, "the end", func(s *perdure.StepView) bool {
		if s.Run > 1 { // it drains a machine on which two jobs have one number
			c.Resume()
		}
		return settled(s)
	})
	if s.Run < 2 {
		t.Errorf("%d runs", s.Run)
	}
	if _, err := os.Stat(filepath.Join(g.dir, "overlaps")); err == nil {
		t.Error("two commands of the step lived at once")
	}
}
