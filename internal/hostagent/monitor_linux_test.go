package hostagent

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// submitWith is submit with further fields of the step.
func (g *grid) submitWith(script string, fields map[string]any) perdure.JobID {
	g.Helper()
	step := map[string]any{"agent": "exec", "retry": map[string]any{"attempts": 1}, "completeWithin": "2m",
		"with": map[string]any{"command": []string{"sh", "-c", script}, "env": map[string]string{"D": g.dir}}}
	maps.Copy(step, fields)
	text, _ := json.Marshal(map[string]any{"type": "test", "steps": map[string]any{"run": step}})
	v, _, err := g.client.Submit(g.Context(), text, "application/json")
	if err != nil {
		g.Fatal(err)
	}
	return v.ID
}

func (g *grid) stop(id perdure.JobID) {
	g.Helper()
	if _, err := g.client.Act(g.Context(), id.String(), perdure.Act{Verb: perdure.VerbStop, Step: "run", Author: "anna", Reason: "test"}); err != nil {
		g.Fatal(err)
	}
}

// F184, F186: the host agent is killed while the answer to a claim is on its way. The next process continues with the command
// that it finds, and the run that never arrived expires long before its lock ends.
func TestRunThatNeverArrivedExpiresAtOnce(t *testing.T) {
	g := newGrid(t)
	h := g.host("h1", time.Minute)
	first := g.submit(waits, 1)
	pid := g.file("pid")
	h.kill(syscall.SIGKILL)
	id, err := identify(h.State, h.Name)
	if err != nil {
		t.Fatal(err)
	}
	second := g.submit(`exit 0`, 1)
	runs, err := g.client.Claim(t.Context(), protocol.Claim{Agent: "exec", Holder: "host/h1/" + id.Incarnation, Host: "h1", Free: perdure.Amounts{"slots": 1}, Max: 1,
		Heartbeat: time.Minute, RequestID: "r1", Wait: 2 * time.Second})
	if err != nil || len(runs) > 1 {
		t.Fatalf("%+v, %v", runs, err)
	}
	// The server may not have noticed yet that the host agent is gone: then the run went to its last claim.
	g.step(second, "the run", func(s *perdure.StepView) bool { return s.Phase == perdure.Running })
	began := time.Now()
	h.start()
	s := g.step(second, "the expiry", parked)
	if took := time.Since(began); s.LastError == nil || s.LastError.Code != "lost" || took > 30*time.Second {
		t.Errorf("%+v after %s", s.LastError, took)
	}
	if s := g.step(first, "the command", func(*perdure.StepView) bool { return true }); s.Phase != perdure.Running || s.Run != 1 || !g.lives(pid) {
		t.Errorf("the command that goes on: %s, run %d", s.Phase, s.Run)
	}
	g.touch("go")
	if s := g.step(first, "the end", settled); s.Run != 1 || g.file("starts") != "start\n" {
		t.Errorf("%d runs", s.Run)
	}
}

// F186: a directory whose run.json is not readable may have a living command. Then nothing expires before its lock.
func TestUnreadableRunForbidsCompleteHeartbeats(t *testing.T) {
	g := newGrid(t)
	h := g.host("h1", 5*time.Second)
	id := g.submit(waits, 1)
	pid := g.file("pid")
	h.kill(syscall.SIGKILL)
	dir, _ := h.keeperOf()
	r, err := keeper.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	g.Cleanup(func() { keeper.Destroy(dir, r) })
	damage(t, dir)
	h.start()
	s := g.step(id, "the expiry", parked)
	if s.LastError == nil || s.LastError.Code != "expired" {
		t.Errorf("%+v", s.LastError)
	}
	if g.lives(pid) {
		t.Error("the run expired, and its command lives")
	}
}

// F200, F203: an operator stops a run. The command ignores TERM, and is killed after the step's stopWithin.
func TestStoppedCommandIsKilled(t *testing.T) {
	g := newGrid(t)
	g.host("h1", 4*time.Second)
	id := g.submitWith(`trap 'date +%s%N >> $D/term' TERM; `+waits, map[string]any{"stopWithin": "1s"})
	pid := g.file("pid")
	g.stop(id)
	g.file("term")
	began := time.Now()
	g.await("the end of the command", func() bool { return !g.lives(pid) })
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("killed %s after TERM", took)
	}
	s := g.step(id, "the end", parked)
	if s.LastError == nil || s.LastError.Code != "stopped" || s.Outcome != perdure.OutcomeFailed {
		t.Errorf("%+v, %s", s.LastError, s.Outcome)
	}
}

// F201: an operator stops a run whose host is dead. It expires with its lock.
func TestStopOfADeadHostsRun(t *testing.T) {
	g := newGrid(t)
	h := g.host("h1", 3*time.Second)
	id := g.submit(waits, 1)
	pid := g.file("pid")
	h.kill(syscall.SIGKILL)
	g.stop(id)
	s := g.step(id, "the end", parked)
	if s.LastError == nil || s.LastError.Code != "expired" {
		t.Errorf("%+v", s.LastError)
	}
	g.await("the end of the command", func() bool { return !g.lives(pid) })
}

// F197, F198: a command that reports progress goes on for longer than progressWithin. When it reports none, it is stopped.
func TestStalledCommandIsStopped(t *testing.T) {
	g := newGrid(t)
	g.host("h1", 3*time.Second)
	id := g.submitWith(`echo $$ > $D/pid; for i in 1 2 3 4 5 6; do echo "{\"done\":$i}" > $PERDURE_PROGRESS; sleep 1; done; echo x > $D/stalls; sleep 100`, map[string]any{"progressWithin": "3s"})
	pid := g.file("pid")
	g.file("stalls")
	s := g.step(id, "the end", parked)
	if s.LastError == nil || s.LastError.Code != "stalled" || !strings.Contains(string(s.Progress), "6") {
		t.Errorf("%+v, %s", s.LastError, s.Progress)
	}
	g.await("the end of the command", func() bool { return !g.lives(pid) })
}

// F273: a host that has several servers goes on at the next one if the first is lost: its run does not expire.
func TestHostGoesOnAtTheNextServer(t *testing.T) {
	g := newGrid(t)
	other, at := g.serve("127.0.0.1:0")
	t.Cleanup(func() { _ = other.Close() })
	g.hostOf("http://"+g.addr+",http://"+at, "h1", 2*time.Second)
	id := g.submit(`echo $$ > $D/pid; sleep 5; echo $$`, 1)
	pid := g.file("pid")
	g.down()
	s := g.step(id, "the end", settled)
	if s.Current != perdure.Done || s.Run != 1 || !strings.Contains(string(s.Output), `"stdout":`+strings.TrimSpace(pid)) {
		t.Errorf("%s, run %d: %s", s.Current, s.Run, s.Output)
	}
}

// F266: a host that is removed while its agent runs ends the agent, and stays removed until the agent is started again.
func TestRemovedHostEnds(t *testing.T) {
	g := newGrid(t)
	h := g.host("h1", 3*time.Second)
	state := func() operate.HostState {
		v, err := g.client.GetHost(g.Context(), "h1")
		if err != nil {
			return ""
		}
		return v.State
	}
	g.await("the registration", func() bool { return state() == operate.HostReady })
	if _, err := g.client.DrainHost(g.Context(), operate.HostDrain{Name: "h1", Deadline: time.Minute, Author: "anna"}); err != nil {
		t.Fatal(err)
	}
	if err := g.client.DeleteHost(g.Context(), "h1", "anna"); err != nil {
		t.Fatal(err)
	}
	err := h.cmd.Wait() // until the time of the test is over
	h.cmd = nil
	if log := h.logText(); err == nil || !strings.Contains(log, ErrRemoved.Error()) || state() != "" {
		t.Errorf("%v, %q:\n%s", err, state(), log)
	}
	h.start()
	g.await("the registration", func() bool { return state() == operate.HostReady })
}

// A run whose host is dead fails with the code timeout at its deadline, when its keeper has ended the command.
func TestDeadlineOfADeadHostsRun(t *testing.T) {
	g := newGrid(t)
	h := g.host("h1", 20*time.Second)
	id := g.submitWith(waits, map[string]any{"completeWithin": "5s"})
	pid := g.file("pid")
	h.kill(syscall.SIGKILL)
	s := g.step(id, "the end", parked)
	if s.LastError == nil || s.LastError.Code != "timeout" || !strings.Contains(s.LastError.Message, "completeWithin (5s)") {
		t.Errorf("%+v", s.LastError)
	}
	g.await("the end of the command", func() bool { return !g.lives(pid) })
}

func damage(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "run.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
}
